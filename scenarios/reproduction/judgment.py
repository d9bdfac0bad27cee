"""Measured against printed: a verdict for every cell and every claim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsvm.scenarios.data.downloads import origin
from fedsvm.scenarios.reproduction import plan
from fedsvm.scenarios.reproduction.claims import ROUNDING, ValuesMissing, holds
from fedsvm.scenarios.reproduction.entries import Claim, Entry, Paper
from fedsvm.scenarios.reproduction.plan import EntryCell, PlannedRun

Verdict = Literal["same", "better", "differs", "cannot", "failed", "open", ""]
"""same: within tolerance, or a claim that holds. cannot: for want of data, or of anything that could be measured.

failed: a run failed. open: its runs have not been carried out. "": measured, without a printed value.
"""

VERDICTS: tuple[Verdict, ...] = ("same", "better", "differs", "cannot", "failed", "open")


@dataclass(frozen=True)
class JudgedCell:
    """A cell with what was measured: mean and standard deviation over seeds, standard error, and the verdict.

    values: of each seed. deviation: None of one seed. error: over seeds, or of one seed over its folds. reason: why it
    differs, where that is known, or why it cannot be had.
    """

    cell: EntryCell
    verdict: Verdict
    reason: str = ""
    value: float | None = None
    deviation: float | None = None
    error: float | None = None
    values: tuple[float, ...] = ()

    @property
    def difference(self) -> float | None:
        """Measured less printed."""
        printed = self.cell.printed
        return None if self.value is None or printed is None else self.value - printed

    @property
    def is_surprise(self) -> bool:
        """True if it differs or failed unexpectedly."""
        return self.verdict == "failed" or (self.verdict == "differs" and not self.reason)


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with its verdict. reason: why it is known not to hold, or cannot be told.

    lacking: how many of the values that it is about were not there; it is told by the others.
    """

    claim: Claim
    verdict: Verdict
    reason: str = ""
    lacking: int = 0

    @property
    def is_surprise(self) -> bool:
        """True if the claim does not hold, unexpectedly."""
        return self.verdict == "differs" and not self.reason


@dataclass(frozen=True)
class JudgedEntry:
    """An entry with the verdicts of its cells and claims; shows: the tables that it draws, which have the verdicts."""

    paper: Paper
    entry: Entry
    cells: tuple[JudgedCell, ...]
    claims: tuple[JudgedClaim, ...]
    shows: tuple[JudgedEntry, ...] = ()

    @property
    def counts(self) -> Counter[str]:
        """The number of cells and claims with each verdict. An entry that cannot be measured counts as one.

        Claims that are this project's, and not the paper's, are not counted.
        """
        if self.entry.cannot:
            return Counter({"cannot": 1})
        printed: list[JudgedCell | JudgedClaim] = [*self.cells, *(each for each in self.claims if not each.claim.ours)]
        return Counter(each.verdict for each in printed if each.verdict)

    @property
    def counts_papers(self) -> Counter[str]:
        """Those of what a paper says."""
        return Counter() if self.paper.ours else self.counts

    @property
    def counts_ours(self) -> Counter[str]:
        """Verdicts on claims of this project, including those in the entry of a paper."""
        ours: Counter[str] = Counter(each.verdict for each in self.claims if each.claim.ours)
        return ours + self.counts if self.paper.ours else ours

    @property
    def surprises(self) -> int:
        """The number of verdicts that are worse than expected."""
        return sum(each.is_surprise for each in self.cells) + sum(each.is_surprise for each in self.claims)

    @property
    def runs(self) -> list[PlannedRun]:
        """The runs that it has need of."""
        return plan.needed_runs([each.cell for each in self.cells])


def judge(
    paper: Paper, entry: Entry, out: Path, *, full: bool, failures: Mapping[str, str] = MappingProxyType({})
) -> JudgedEntry:
    """Judge an entry by the results in a folder.

    Parameters
    ----------
    paper : Paper
    entry : Entry
    out : Path
        The folder that `plan.carry_out` had.
    full : bool
        Whether as --full has it.
    failures : mapping of str to str
        Why runs that were just carried out did not complete, by their names.

    Returns
    -------
    JudgedEntry

    Raises
    ------
    ScenarioError
        For an entry whose scenarios or claims are wrong.
    """
    cells = tuple(judge_cell(cell, out, failures) for cell in plan.cells(entry, full=full))
    measured = _EntryValues(entry, cells)
    claims = (_judged_claim(claim, measured, full=full) for claim in entry.claim)
    drawn = (each for each in paper.entry if each.id in entry.draws)
    shows = tuple(judge(paper, each, out, full=full, failures=failures) for each in drawn)
    return JudgedEntry(paper, entry, cells, tuple(claims), shows)


def judge_cell(cell: EntryCell, out: Path, failures: Mapping[str, str] = MappingProxyType({})) -> JudgedCell:
    """Judge a cell by the results of its runs, and by the errors of those that failed."""
    if reason := cell.reason:
        return JudgedCell(cell, "cannot", reason)
    if not cell.runs:
        return JudgedCell(cell, "open", "--full has it.")
    waiting = list(plan.unfinished_runs(cell, out))
    if missing := plan.missing(waiting):
        place = f" It is from {origin(missing)}." if origin(missing) else ""
        return JudgedCell(cell, "cannot", f"There is no {missing}: put {missing}.csv into FEDSVM_DATA's folder.{place}")
    if said := next(filter(None, (failures.get(run.name) or _failure(run, out) for run in waiting)), None):
        return JudgedCell(cell, "failed", said)
    if waiting:
        return JudgedCell(cell, "open", "Its runs have not been carried out.")
    return _measured_cell(cell, out)


def _failure(run: PlannedRun, out: Path) -> str:
    """Return why a run of an earlier command failed, or ""."""
    result = plan.result_of(run, out)
    if result.get("status") != "failed":
        return ""
    return str(result.get("error") or f"The run failed without a reason; {run.command} repeats it.")


def _measured_cell(cell: EntryCell, out: Path) -> JudgedCell:
    readings = plan.values_of(cell, out)
    if not readings:
        folder = cell.runs[0].folder(out)
        return JudgedCell(
            cell, "failed", f"{folder} has no {cell.measure}; once it is removed, the same command repeats it."
        )
    values = np.array([each.value for each in readings])
    several = len(values) > 1
    deviation = float(values.std(ddof=1)) if several else None
    error = deviation / math.sqrt(len(values)) if deviation is not None else readings[0].error
    verdict, reason = _verdict(cell, float(values.mean()))
    return JudgedCell(cell, verdict, reason, float(values.mean()), deviation, error, tuple(values.tolist()))


def _verdict(cell: EntryCell, value: float) -> tuple[Verdict, str]:
    printed, within = cell.printed, cell.entry.tolerance(cell.row, cell.column)
    if printed is None or within is None:
        return "", ""
    if abs(value - printed) <= within + ROUNDING:
        return "same", ""
    way = cell.column.better or cell.entry.better
    if way and (value > printed) == (way == "higher"):
        return "better", ""
    return "differs", cell.entry.reason_to_differ(cell.row, cell.column)


def _judged_claim(claim: Claim, measured: _EntryValues, *, full: bool) -> JudgedClaim:
    if claim.full and not full:
        return JudgedClaim(claim, "open", "--full has the runs to tell.")
    measured.lacking.clear()
    try:
        if holds(claim.test, measured):
            return JudgedClaim(claim, "same", lacking=len(measured.lacking))
    except ValuesMissing:
        if any(each.verdict in ("open", "failed") for each in measured.cells):
            return JudgedClaim(claim, "open", "Its runs have not been carried out, or failed.")
        return JudgedClaim(claim, "cannot", "What it is about could not be measured here.")
    return JudgedClaim(claim, "differs", claim.differs, len(measured.lacking))


class _EntryValues:
    """The values of an entry by row and column, NaN if missing.

    lacking: places of values that columns and rows were asked for and that are not there, and not left to --full.
    """

    def __init__(self, entry: Entry, cells: Sequence[JudgedCell]) -> None:
        self.cells = cells
        self.lacking: set[int] = set()
        self._rows = {row.name: number for number, row in enumerate(entry.rows)}
        self._columns = {column.name: number for number, column in enumerate(entry.column)}
        self._has_runs = np.array([not row.derived_from for row in entry.rows])
        self._at = np.array([np.nan if row.at is None else row.at for row in entry.rows])
        shape = (len(self._rows), len(self._columns))
        self._values = np.array([_number(each.value) for each in cells]).reshape(shape)
        self._errors = np.array([_number(each.error) for each in cells]).reshape(shape)
        wanted = [bool(each.cell.runs) or each.verdict == "cannot" for each in cells]
        lacking = [at if wanted[at] and each.value is None else -1 for at, each in enumerate(cells)]
        self._lacking = np.array(lacking, dtype=int).reshape(shape)
        self._printed = np.array([_number(each.cell.printed) for each in cells]).reshape(shape)

    def column(self, name: str, low: float, high: float) -> NDArray[np.float64]:
        return self._count_of((self._between(low, high), self._columns[name]))

    def errors(self, name: str, low: float, high: float) -> NDArray[np.float64]:
        place = (self._between(low, high), self._columns[name])
        self._count_of(place)
        return np.asarray(self._errors[place])

    def row(self, name: str, first: str, last: str) -> NDArray[np.float64]:
        start, end = (self._columns[first], self._columns[last] + 1) if first else (0, len(self._columns))
        if start >= end:
            raise ValueError
        return self._count_of((self._rows[name], slice(start, end)))

    def cell(self, row: str, column: str) -> float:
        return float(self._values[self._rows[row], self._columns[column]])

    def paper(self, row: str, column: str) -> float:
        return float(self._printed[self._rows[row], self._columns[column]])

    def seeds(self, row: str, column: str) -> tuple[float, ...]:
        return self.cells[self._rows[row] * len(self._columns) + self._columns[column]].values

    def _count_of(self, place: tuple[Any, ...]) -> NDArray[np.float64]:
        self.lacking.update(self._lacking[place][self._lacking[place] >= 0].tolist())
        return np.asarray(self._values[place])

    def _between(self, low: float, high: float) -> NDArray[np.bool_]:
        if low == -np.inf and high == np.inf:
            return self._has_runs
        return np.asarray((self._at >= low - ROUNDING) & (self._at <= high + ROUNDING))


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def count_verdicts(judged_entries: Sequence[JudgedEntry]) -> Iterator[tuple[Verdict, int]]:
    """Return the number of all cells and claims with each verdict that occurs."""
    return _order_counts(sum((each.counts for each in judged_entries), Counter[str]()))


def counted_apart(judged_entries: Sequence[JudgedEntry], *, ours: bool) -> Iterator[tuple[Verdict, int]]:
    """Return the same for the papers' claims, or for this project's."""
    counts = (each.counts_ours if ours else each.counts_papers for each in judged_entries)
    return _order_counts(sum(counts, Counter[str]()))


def _order_counts(total: Counter[str]) -> Iterator[tuple[Verdict, int]]:
    return ((verdict, total[verdict]) for verdict in VERDICTS if total[verdict])
