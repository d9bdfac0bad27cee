"""The map of the parties, and the messages of a round."""

from __future__ import annotations

from typing import Any

from fedsvm.scenarios.report.message_flow import round_pictures, topology
from fedsvm.scenarios.report.section import ReportedRun, Section

_TEMPLATE = """<div class="charts">{% if topology %}{{ figure(topology) }}{% endif %}
{% if rounds %}<figure><h3>Messages of a round<select data-choice aria-label="Round">
{% for each in rounds %}<option{% if each.is_first %} selected{% endif %}>{{ each.name }}</option>{% endfor %}
</select></h3>
{% for each in rounds %}<div data-picture>{{ each.chart.svg|safe }}{{ keys(each.chart) }}
<figcaption>{{ each.chart.caption }}</figcaption></div>{% endfor %}</figure>{% endif %}</div>"""


def _content(run: ReportedRun) -> dict[str, Any]:
    """Return the map, and the rounds to draw; the one with the most bytes is shown first."""
    pictures = round_pictures(run.ledger, run.log, run.sites)
    first = max(pictures, key=lambda each: each.payload_bytes, default=None)
    rounds = [{"name": each.name, "chart": each.chart, "is_first": each is first} for each in pictures]
    return {"topology": topology(run.ledger, run.sites), "rounds": rounds}


SECTION = Section(place=30, id="messages", title="Message flow", content=_content, template=_TEMPLATE)
