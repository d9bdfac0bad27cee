"""The audit's sweep as a table on a terminal and as a page: the darker a cell, the more coalitions of its size leak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from fedsvm.protocols.analysis.survey import CoalitionCount
from fedsvm.protocols.sums.secure_sum import SecureSum
from fedsvm.scenarios.figures import human_bytes, percent
from fedsvm.scenarios.report import template

_TITLE = "Share of (coalition, victim) pairs in which the coalition learns the victim's input"
_BY = "by the number of colluding sites"
COSTED_NUMBERS = 1000
"""A sum of so many numbers, each from -1 to 1, is what costs are shown of."""


def table(cells: Sequence[CoalitionCount]) -> Table:
    """Return the heat map for a terminal."""
    sizes = _sizes(cells)
    title = f"{_TITLE}, {_BY} (of {cells[0].sites})"
    found = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    found.add_column("sum", no_wrap=True)
    found.add_column("coordinator", no_wrap=True)
    for size in sizes:
        found.add_column(str(size), justify="right", no_wrap=True)
    for name, coordinator, shares in _rows(cells):
        found.add_row(name, coordinator, *(Text(_percent(share), style=_style(share)) for share in shares))
    return found


def page(cells: Sequence[CoalitionCount], sums: Sequence[SecureSum]) -> str:
    """Return a page that needs no other file. sums: the sums of the cells, for their cost."""
    sites = cells[0].sites
    cost = {each.described: each.cost(sites, (COSTED_NUMBERS,), 1.0) for each in sums}
    return template.render(
        "audit.html.j2",
        f"Coalitions against secure sums, {sites} sites",
        about=f"{_TITLE}, {_BY}, with and without the coordinator.",
        sizes=_sizes(cells),
        tables=[
            (who, [(name, [_cell(share) for share in shares]) for name, which, shares in _rows(cells) if which == when])
            for who, when in (("Sites alone", "without"), ("Sites and the coordinator", "with"))
        ],
        numbers=COSTED_NUMBERS,
        costs=[(name, each.messages, each.hops, human_bytes(each.payload_bytes)) for name, each in cost.items()],
    )


def _rows(cells: Sequence[CoalitionCount]) -> Iterator[tuple[str, str, list[float]]]:
    for name in dict.fromkeys(cell.sum for cell in cells):
        for coordinator in (False, True):
            row = [cell for cell in cells if cell.sum == name and cell.coordinator == coordinator]
            yield name, "with" if coordinator else "without", [cell.share for cell in row]


def _sizes(cells: Sequence[CoalitionCount]) -> list[int]:
    return sorted({cell.size for cell in cells})


def _percent(share: float) -> str:
    return percent(share, 0) if share else "none"


def _style(share: float) -> str:
    """Return green for none, then yellow to red."""
    return "green" if share == 0 else "yellow" if share < 0.5 else "red" if share < 1 else "bold red"


def _cell(share: float) -> dict[str, str]:
    """Return a share with its shade of the page's color for bad values."""
    return {"text": _percent(share), "shade": f"{75 * share:.0f}%"}
