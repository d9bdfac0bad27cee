"""The audit's sweep as a table on a terminal and as a page: the darker a cell, the more coalitions of its size leak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from rich.table import Table
from rich.text import Text

from protocols.analysis.survey import Cell

_TITLE = "Share of (coalition, victim) pairs in which the coalition learns the victim's input"
_BY = "by the number of colluding sites"
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Coalitions against secure sums</title>
<style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: #222; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: .35rem .7rem; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
tbody td {{ border: 1px solid #fff; }}
</style>
<h1>Coalitions against secure sums, {sites} sites</h1>
<p>{title}, {by}, with and without the coordinator. With all but one of the sites the sum itself gives the last input
away.</p>
<table><thead><tr><th>sum</th><th>coordinator</th>{sizes}</tr></thead><tbody>
{rows}
</tbody></table></html>
"""


def table(cells: Sequence[Cell]) -> Table:
    """For a terminal."""
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


def page(cells: Sequence[Cell]) -> str:
    """A page that needs nothing else."""
    sizes = "".join(f"<th>{size}</th>" for size in _sizes(cells))
    rows = "\n".join(
        f"<tr><td>{escape(name)}</td><td>{coordinator}</td>{''.join(_data_cell(share) for share in shares)}</tr>"
        for name, coordinator, shares in _rows(cells)
    )
    return _PAGE.format(title=_TITLE, by=_BY, sites=cells[0].sites, sizes=sizes, rows=rows)


def _rows(cells: Sequence[Cell]) -> Iterator[tuple[str, str, list[float]]]:
    for name in dict.fromkeys(cell.sum for cell in cells):
        for coordinator in (False, True):
            row = [cell for cell in cells if cell.sum == name and cell.coordinator == coordinator]
            yield name, "with" if coordinator else "without", [cell.share for cell in row]


def _sizes(cells: Sequence[Cell]) -> list[int]:
    return sorted({cell.size for cell in cells})


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share else "none"


def _style(share: float) -> str:
    """Green for none, then from yellow to red."""
    return "green" if share == 0 else "yellow" if share < 0.5 else "red" if share < 1 else "bold red"


def _data_cell(share: float) -> str:
    lightness = 95 - 50 * share
    background = f"hsl(8 80% {lightness:.0f}%)" if share else "hsl(130 40% 92%)"
    return f'<td style="background: {background}; color: {"#fff" if share > 0.6 else "#222"}">{_percent(share)}</td>'
