"""The cost of a run, by phase and by protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedsvm.federation.report import ProtocolCost
from fedsvm.scenarios.figures import human_bytes
from fedsvm.scenarios.report.run_plots import human_seconds
from fedsvm.scenarios.report.section import Card, ReportedRun, Section
from fedsvm.scenarios.run.result import RunResult

_TEMPLATE = """{{ grid(["phase", "rounds", "hops", "messages", "payload", "wire", "time"], phases) }}
<p></p>
{{ grid(["protocol", "rounds", "hops", "messages", "payload", "wire"], protocols) }}"""


def _content(run: ReportedRun) -> dict[str, Any]:
    if (cost := run.result.cost) is None:
        return {}
    return {
        "phases": [[*_row(name, spent), human_seconds(spent.seconds)] for name, spent in cost.by_phase.items()],
        "protocols": [_row(name, spent) for name, spent in cost.by_protocol.items()],
    }


def _row(name: str, spent: ProtocolCost) -> list[Any]:
    wire = human_bytes(spent.wire_bytes) if spent.wire_bytes is not None else "not measured"
    return [name, spent.rounds, spent.hops, spent.messages, human_bytes(spent.payload_bytes), wire]


def _cards(result: RunResult) -> Iterator[Card]:
    if (cost := result.cost) is not None:
        carried = cost.predicted_wire_bytes if cost.wire_bytes is None else cost.wire_bytes
        yield Card(50, "on the wire", human_bytes(carried), f"{cost.messages} messages")
        aside = f"{cost.aborted} aborted" if cost.aborted else f"{cost.hops} hops"
        yield Card(51, "rounds", str(cost.rounds), aside)


SECTION = Section(place=50, id="cost", title="Cost", content=_content, template=_TEMPLATE, cards=_cards)
