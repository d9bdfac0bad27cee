"""The summary of a run, and the cards of the whole run."""

from __future__ import annotations

from collections.abc import Iterator

from fedsvm.scenarios.report.run_plots import human_seconds
from fedsvm.scenarios.report.section import Card, Section
from fedsvm.scenarios.report.summary import lines, objective_noise
from fedsvm.scenarios.run.result import RunResult


def _cards(result: RunResult) -> Iterator[Card]:
    if result.model is not None and result.model.gap is not None:
        noisy = "distance of training from the optimum of its noisy objective"
        told = noisy if objective_noise(result.model) else "maximum distance from the optimum"
        yield Card(40, "certified gap", f"{result.model.gap:.1e}", told)
    yield Card(60, "time", human_seconds(result.timing.total_s), f"{len(result.sites)} sites")


SECTION = Section(
    place=10,
    id="summary",
    title="Summary",
    content=lambda run: {"lines": lines(run.result)},
    template="""<div class="box"><dl>
{% for name, value in lines %}<dt>{{ name }}</dt><dd>{{ value }}</dd>{% endfor %}</dl></div>""",
    cards=_cards,
)
