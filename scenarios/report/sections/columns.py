"""The selected columns, best first, and the order in which others were removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedsvm.scenarios.report.section import ReportedRun, Section
from fedsvm.scenarios.run.selection import SelectionResult

_MAX_RANKED = 200
"""Columns that a page lists; the result has all of them."""
_MAX_REMOVED = 5
_CERTAIN = {True: "yes", False: "no", None: ""}
_TEMPLATE = """{{ grid(head, rows, [1]) }}
{% if removals %}<details><summary>Order of removal</summary>
{{ grid(["step", "removed", "decided by", "certain", "gap", "rounds", "sites"], removals, [1, 2]) }}
</details>{% endif %}"""


def _content(run: ReportedRun) -> dict[str, Any]:
    if (selection := run.result.selection) is None:
        return {}
    return {
        "head": list(_head(selection)),
        "rows": list(_ranking(selection)),
        "removals": list(_removals(selection)),
    }


def _head(selection: SelectionResult) -> Iterator[str]:
    yield from ("rank", "column", selection.ranking.score, "chosen")
    if selection.selected_in is not None:
        yield "selected in folds"
    if selection.ranking.stability:
        yield "selected in half-samples"


def _ranking(selection: SelectionResult) -> Iterator[list[str]]:
    """Yield the columns, best first."""
    ranking, chosen = selection.ranking, set(selection.ranking.selected)
    for place, name in enumerate(ranking.columns[:_MAX_RANKED]):
        score = ranking.scores[place]
        row = [
            str(ranking.ranks[place]),
            name,
            "" if score is None else f"{score:.4g}",
            "yes" if name in chosen else "",
        ]
        if selection.selected_in is not None:
            row.append(str(selection.selected_in.get(name, 0)))
        if ranking.stability:
            row.append(f"{100 * ranking.stability[place]:.0f} %")
        yield row


def _removals(selection: SelectionResult) -> Iterator[list[str]]:
    """Yield the removal of columns, step by step."""
    for number, step in enumerate(selection.ranking.steps, start=1):
        names, more = ", ".join(step.removed[:_MAX_REMOVED]), len(step.removed) - _MAX_REMOVED
        gap = "" if step.gap is None else f"{step.gap:.1e}"
        told = f"{names} and {more} more" if more > 0 else names
        yield [str(number), told, step.decided_by, _CERTAIN[step.certain], gap, str(step.rounds), str(step.sites)]


SECTION = Section(
    place=110, id="columns", title="Columns", heading="Columns, best first", content=_content, template=_TEMPLATE
)
