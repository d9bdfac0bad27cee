"""The output of a reproduction: a page, one JSON file, and a table of values for each entry."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsvm.scenarios.report import template
from fedsvm.scenarios.report.page import NAME as REPORT
from fedsvm.scenarios.reproduction.judgment import (
    JudgedCell,
    JudgedClaim,
    JudgedEntry,
    Verdict,
    count_verdicts,
    counted_apart,
)
from fedsvm.scenarios.reproduction.pictures import draw_pictures
from fedsvm.scenarios.reproduction.provenance import InputDigests
from fedsvm.scenarios.run.result import environment, write_whole

PAGE, DATA = "index.html", "reproduction.json"
TABLES = "tables"
_NAMED = 3
"""Up to how many cells that have one reason are named before it."""

WORDS: dict[Verdict, tuple[str, str]] = {
    "same": ("✓", "same"),
    "better": ("▲", "better"),
    "differs": ("✗", "differs"),
    "cannot": ("○", "cannot"),
    "failed": ("!", "failed"),
    "open": ("…", "not run"),
    "": ("", ""),
}


@dataclass(frozen=True)
class Reproduction:
    """All entries as judged, of quick runs or of full ones, in a folder."""

    entries: Sequence[JudgedEntry]
    full: bool
    folder: Path

    def write(self) -> Path:
        """Write the page, reproduction.json and the tables, and say where the page is. Raises OSError."""
        (self.folder / TABLES).mkdir(parents=True, exist_ok=True)
        for judged in self.entries:
            if judged.cells:
                _write(self.folder / TABLES / f"{judged.entry.id}.csv", _table_text(judged))
        _write(self.folder / DATA, json.dumps(self.plain(), indent=1) + "\n")
        path = self.folder / PAGE
        _write(path, self._page())
        return path

    def plain(self) -> dict[str, Any]:
        """Return the content of reproduction.json."""
        on = environment()
        return {
            "mode": "full" if self.full else "quick",
            "date": on.date,
            "code": list(InputDigests.of(self.folder).code),
            "environment": {"fedsvm": on.fedsvm, "python": on.python, "system": on.system, "cpus": on.cpus},
            "counts": dict(counted_apart(self.entries, ours=False)),
            "counts_ours": dict(counted_apart(self.entries, ours=True)),
            "surprises": sum(each.surprises for each in self.entries),
            "entries": [_plain_entry(each, self.folder) for each in self.entries],
        }

    def _page(self) -> str:
        on, papers = environment(), list(dict.fromkeys(each.paper.name for each in self.entries))
        facts = [("runs", "--full" if self.full else "--quick"), ("fedsvm", on.fedsvm), ("Python", on.python)]
        facts += [("on", f"{on.system}, {on.cpus} processors"), ("date", on.date[:16].replace("T", " "))]
        states = len(InputDigests.of(self.folder).code)
        facts += [("by", f"{states} states of the code")] if states > 1 else []
        return template.render(
            "reproduction.html.j2",
            "Papers and measurements",
            facts=facts,
            cards=[
                {"symbol": WORDS[name][0], "name": WORDS[name][1], "value": number}
                for name, number in counted_apart(self.entries, ours=False)
            ],
            ours=_format_counts(counted_apart(self.entries, ours=True)),
            surprises=[each.entry for each in self.entries if each.surprises],
            papers=[
                {
                    "name": name,
                    "title": next(each.paper.title for each in self.entries if each.paper.name == name),
                    "counts": _format_counts(
                        count_verdicts([each for each in self.entries if each.paper.name == name])
                    ),
                    "entries": [
                        _template_values(each, self.folder) for each in self.entries if each.paper.name == name
                    ],
                }
                for name in papers
            ],
        )


def is_of_full(folder: Path) -> bool | None:
    """Return whether a folder's page is of full runs; None if there is no readable page."""
    try:
        return {"full": True, "quick": False}.get(json.loads((folder / DATA).read_text(encoding="utf-8"))["mode"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(text.encode()))


def _format_counts(counts: Iterator[tuple[Verdict, int]]) -> str:
    return ", ".join(f"{number} {WORDS[verdict][1]}" for verdict, number in counts)


# Of the page.


def _template_values(judged: JudgedEntry, folder: Path) -> dict[str, Any]:
    """Return what the template shows of an entry."""
    entry = judged.entry
    rows: dict[str, list[JudgedCell]] = {}
    for each in judged.cells:
        rows.setdefault(each.cell.row.name, []).append(each)
    unit = f", {entry.unit}" if entry.unit else ""
    return {
        "id": entry.id,
        "what": f"{judged.paper.name}, {entry.what}{f', {entry.page}' if entry.page else ''}",
        "title": entry.title,
        "counts": _format_counts(count_verdicts([judged])),
        "cannot": entry.cannot,
        "draws": entry.draws,
        "correction": entry.correction,
        "head": [f"{entry.axis.label if entry.axis else ''}{unit}".strip(", "), *(each.name for each in entry.column)],
        "rows": [_row(each, folder) for each in rows.values()],
        "claims": [_claim(each) for each in judged.claims],
        "notes": list(dict.fromkeys(_notes(judged))),
        "charts": draw_pictures(judged, folder),
        "table": f"{TABLES}/{entry.id}.csv",
    }


def _row(cells: Sequence[JudgedCell], folder: Path) -> dict[str, Any]:
    row = cells[0].cell.row
    reasons = {each.reason for each in cells}
    alone = len(reasons) == 1 and cells[0].verdict in ("cannot", "open")
    return {
        "name": row.name,
        "reason": cells[0].reason if alone else "",
        "verdict": WORDS[cells[0].verdict][1] if alone else "",
        "printed": ", ".join(_format_printed(each) for each in cells if each.cell.printed is not None),
        "width": len(cells),
        "cells": [_cell(each, folder) for each in cells],
    }


def _cell(judged: JudgedCell, folder: Path) -> dict[str, Any]:
    symbol, word = WORDS[judged.verdict]
    run = next(iter(judged.cell.runs), None)
    link = run.folder(Path()) / REPORT if run is not None else None
    difference, within = judged.difference, judged.cell.entry.tolerance(judged.cell.row, judged.cell.column)
    return {
        "class": judged.verdict or "measured",
        "printed": _format_printed(judged),
        "value": _number(judged.value, judged),
        "deviation": _number(judged.deviation, judged),
        "difference": _number(difference, judged, sign="+"),
        "verdict": f"{symbol} {word}".strip(),
        "within": "" if difference is None or within is None else f"{within:g}",
        "link": str(link) if link is not None and (folder / link).is_file() else "",
        "command": run.command if run is not None else "",
        "reason": judged.reason,
    }


def _format_printed(judged: JudgedCell) -> str:
    """Return the printed value with all its digits."""
    value, decimals = judged.cell.printed, judged.cell.entry.decimals
    if value is None:
        return ""
    text = f"{value:.{decimals}f}"
    return text if float(text) == value else f"{value:.10g}"


def _number(value: float | None, judged: JudgedCell, sign: str = "") -> str:
    if value is None:
        return ""
    decimals = judged.cell.entry.decimals
    small = value != 0 and abs(value) < 10.0**-decimals
    return f"{value:{sign}.3g}" if small else f"{value:{sign}.{decimals}f}"


def _notes(judged: JudgedEntry) -> Iterator[str]:
    """Yield notes of rows, and why cells differ or failed."""
    for each in judged.cells:
        if each.cell.row.note:
            yield f"{each.cell.row.name}: {each.cell.row.note}"
    of_reason: dict[str, list[str]] = {}
    for each in judged.cells:
        if each.verdict in ("differs", "failed") and each.reason:
            of_reason.setdefault(each.reason, []).append(f"{each.cell.row.name}, {each.cell.column.name}")
    for reason, cells in of_reason.items():
        yield f"{'; '.join(cells) if len(cells) <= _NAMED else f'{len(cells)} values'}: {reason}"


def _describe_declaration(judged: JudgedClaim) -> str:
    """Return what the file says of a claim that unexpectedly holds."""
    is_declared = judged.verdict == "same" and judged.claim.differs
    return f"According to its file it does not hold: {judged.claim.differs}" if is_declared else ""


def _claim(judged: JudgedClaim) -> dict[str, str]:
    symbol, word = WORDS[judged.verdict]
    answer = {"same": "yes", "differs": "no"}.get(judged.verdict, word)
    return {
        "class": judged.verdict,
        "answer": f"{symbol} {answer}",
        "text": judged.claim.text,
        "by": "A claim of this project, not of the paper." if judged.claim.ours else "",
        "test": judged.claim.test,
        "reason": judged.reason or _describe_declaration(judged),
        "lacking": f"Told without {judged.lacking} of its values, which are not there." if judged.lacking else "",
    }


# Of the files.


def _plain_entry(judged: JudgedEntry, folder: Path) -> dict[str, Any]:
    entry = judged.entry
    return {
        "id": entry.id,
        "paper": judged.paper.name,
        "what": entry.what,
        "page": entry.page,
        "title": entry.title,
        "unit": entry.unit,
        "cannot": entry.cannot,
        "draws": entry.draws,
        "correction": entry.correction,
        "counts": dict(count_verdicts([judged])),
        "cells": [_plain_cell(each) for each in judged.cells],
        "claims": [
            {
                "text": each.claim.text,
                "test": each.claim.test,
                "ours": each.claim.ours,
                "verdict": each.verdict,
                "reason": each.reason,
                "lacking": each.lacking,
            }
            for each in judged.claims
        ],
    }


def _plain_cell(judged: JudgedCell) -> dict[str, Any]:
    cell = judged.cell
    return {
        "row": cell.row.name,
        "column": cell.column.name,
        "paper": cell.printed,
        "value": judged.value,
        "deviation": judged.deviation,
        "standard_error": judged.error,
        "within": cell.entry.tolerance(cell.row, cell.column),
        "verdict": judged.verdict,
        "reason": judged.reason,
        "measure": cell.measure,
        "runs": [{"folder": str(run.folder(Path())), "command": run.command} for run in cell.all_runs],
    }


def _table_text(judged: JudgedEntry) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "paper", "value", "deviation", "verdict", "reason", "command"])
    for each in judged.cells:
        command = each.cell.runs[0].command if each.cell.runs else ""
        names = [each.cell.row.name, each.cell.column.name]
        writer.writerow([*names, each.cell.printed, each.value, each.deviation, each.verdict, each.reason, command])
    return text.getvalue()
