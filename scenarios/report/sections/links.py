"""The bytes between each two parties, with shades."""

from __future__ import annotations

import math
from typing import Any

from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.scenarios.figures import human_bytes
from fedsvm.scenarios.report.message_flow import MAX_PARTIES
from fedsvm.scenarios.report.section import ReportedRun, Section

_TEMPLATE = """<div class="scroll"><table class="sticky">
<thead><tr><th>from \\ to</th>{% for name in names %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>{% for name, cells in rows %}<tr><td>{{ name }}</td>
{% for cell in cells %}<td style="background: rgba(var(--accent), {{ cell.share }})">{{ cell.text }}</td>{% endfor %}
</tr>{% endfor %}</tbody></table></div>"""


def _content(run: ReportedRun) -> dict[str, Any]:
    links = run.result.cost.by_link if run.result.cost else ()
    names = [COORDINATOR, *run.sites][:MAX_PARTIES] if links else []
    sent = {(link.sender, link.receiver): link.predicted_wire_bytes for link in links}
    largest = max(sent.values(), default=0) or 1

    def cell(pair: tuple[str, str]) -> dict[str, Any]:
        count = sent.get(pair, 0)
        share = 0.6 * math.log1p(count) / math.log1p(largest)
        return {"text": human_bytes(count) if count else "", "share": f"{share:.2f}" if count else "0"}

    return {"names": names, "rows": [(a, [cell((a, b)) for b in names]) for a in names]}


SECTION = Section(place=40, id="links", title="Links", heading="Bytes per link", content=_content, template=_TEMPLATE)
