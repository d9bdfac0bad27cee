"""The runs that entries need: each once, in a folder by its content, so that cells share them."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from statistics import stdev
from typing import Any

from fedsvm.scenarios.data import sources
from fedsvm.scenarios.reproduction.entries import Column, Entry, Row
from fedsvm.scenarios.reproduction.measures import Reading, reading
from fedsvm.scenarios.run.result import RESULT, SCHEMA
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.sweep.worker import Workers

RUNS = "runs"
"""The folder of the runs, next to the page."""
_LOCK = ".lock"


@dataclass(frozen=True)
class PlannedRun:
    """A run: its scenario and changes, the folder that its content calls for, and the data file that it lacks.

    files: the data files that it reads. audit: whether it is attacked afterwards.
    """

    scenario: str
    changes: tuple[str, ...]
    name: str
    missing: str
    files: tuple[Path, ...] = ()
    audit: bool = False

    def folder(self, out: Path) -> Path:
        """Return the folder of the run."""
        return out / RUNS / self.name

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        return shlex.join(
            [
                "fedsvm",
                "audit" if self.audit else "run",
                self.scenario,
                *(word for each in self.changes for word in ("--set", each)),
            ]
        )


@dataclass(frozen=True)
class EntryCell:
    """A cell of an entry, with a run for each seed; without runs where it cannot be had, or is left out.

    less: the cell whose values are taken away. parts: cells that its value follows from, where its row has no runs.
    """

    entry: Entry
    row: Row
    column: Column
    runs: tuple[PlannedRun, ...] = ()
    less: EntryCell | None = None
    parts: tuple[EntryCell, ...] = ()

    @property
    def printed(self) -> float | None:
        """The paper's value."""
        if not self.row.paper:
            return None
        found = self.row.paper[self.entry.column.index(self.column)]
        return None if found == "" else found

    @property
    def measure(self) -> str:
        """The measure of the cell."""
        return self.column.measure or self.entry.measure

    @property
    def scale(self) -> float:
        """The factor for figures of results."""
        if self.column.scale is not None:
            return self.column.scale
        return 100.0 if self.entry.unit == "%" else 1.0

    @property
    def reason(self) -> str:
        """Why it cannot be had, or ""."""
        reasons = (each.reason for each in self.parts)
        return self.entry.reason(self.row, self.column) or next(filter(None, reasons), "")

    @property
    def missing(self) -> str:
        """The data file that its runs lack, or ""."""
        return missing(self.all_runs)

    @property
    def all_runs(self) -> tuple[PlannedRun, ...]:
        """Its runs, and those of what is taken away."""
        taken = (*self.parts, *([self.less] if self.less is not None else []))
        return (*self.runs, *(run for each in taken for run in each.all_runs))


def cells(entry: Entry, *, full: bool) -> list[EntryCell]:
    """Return the cells of an entry, row by row. Raises ScenarioError for an invalid scenario."""
    return [_cell(entry, row, column, full=full) for row in entry.rows for column in entry.column]


def _cell(entry: Entry, row: Row, column: Column, *, full: bool) -> EntryCell:
    if entry.reason(row, column) or (entry.is_left_to_full(row, column) and not full):
        return EntryCell(entry, row, column)
    if row.derived_from:
        return _derived_cell(entry, row, column, full=full)
    name = entry.scenario_of(row, column)
    if not name:
        raise ScenarioError([f"{entry.id}, {row.name}, {column.name}: no scenario is named."])
    changes = entry.changes_of(row, column, full=full)
    seeds = range(1, (entry.full_seeds if full else entry.seeds) + 1)
    try:
        runs = tuple(plan_run(name, changes, seed, audit=entry.audit) for seed in seeds)
    except ScenarioError as error:
        said = (f"{entry.id}, {row.name}, {column.name}: {problem}" for problem in error.problems)
        raise ScenarioError(said) from None
    less = next((each for each in entry.column if each.name == column.less), None)
    return EntryCell(entry, row, column, runs, None if less is None else _cell(entry, row, less, full=full))


def _derived_cell(entry: Entry, row: Row, column: Column, *, full: bool) -> EntryCell:
    """Return a cell computed from others, without runs if one has none, or only one for a deviation."""
    others = (each for each in entry.rows if each.name in row.derived_from)
    parts = tuple(_cell(entry, each, column, full=full) for each in others)
    is_told = all(len(each.runs) > (1 if row.deviation_of else 0) for each in parts)
    return EntryCell(entry, row, column, parts[0].runs if is_told else (), parts=parts)


def plan_run(scenario: str, changes: tuple[str, ...], seed: int, *, audit: bool = False) -> PlannedRun:
    """Return a run named by its content, so that equal runs are shared. Raises ScenarioError for an invalid
    scenario."""
    content = _content(scenario, changes)
    told = f"{version('fedsvm')}\n{seed}{' audited' if audit else ''}\n{content.text}"
    name = f"{content.name}-{sha256(told.encode()).hexdigest()[:16]}"
    lacking = (sources.file_name(each) for each in content.sources if not sources.is_there(each, content.base))
    return PlannedRun(scenario, (*changes, f"seed={seed}"), name, next(lacking, ""), content.files, audit)


@dataclass(frozen=True)
class _Content:
    """A scenario's name, what it does but for its seed, its sources, and the folder that these are looked for in."""

    name: str
    text: str
    sources: tuple[str, ...]
    base: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold its sources."""
        found = (sources.file_of(each, self.base) for each in self.sources)
        return tuple(path for path in found if path is not None)


@functools.lru_cache(maxsize=10_000)
def _content(scenario: str, changes: tuple[str, ...]) -> _Content:
    """Return the content of a scenario. Raises ScenarioError if it is invalid."""
    read, base = spec.read(scenario, overrides=list(changes))
    data = read.data
    named = [*([data.source] if data.source else []), *data.sources.values()]
    named += [data.test_source] if data.test_source else []
    return _Content(
        read.name, spec.resolved_toml(read.model_copy(update={"name": "run", "seed": 0})), tuple(named), base
    )


def missing(runs: Sequence[PlannedRun]) -> str:
    """Return the first data file that one of the runs lacks, or ""."""
    return next((run.missing for run in runs if run.missing), "")


def needed_runs(planned_cells: Sequence[EntryCell]) -> list[PlannedRun]:
    """Return the runs of cells with available data, each once."""
    return list({run.name: run for cell in planned_cells if not cell.missing for run in cell.all_runs}.values())


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Make a folder, and keep every other command out of it, which would remove what this one runs.

    Raises ScenarioError where it cannot be made, and where another is at work in it.
    """
    try:
        (out / RUNS).mkdir(parents=True, exist_ok=True)
        lock = os.open(out / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ScenarioError([f"--out: no folder {out} can be made: {error.strerror}."]) from error
    try:
        if not _try_lock(lock):
            raise ScenarioError(
                [f"--out: another fedsvm reproduce is at work in {out}; wait until it ends, or name another folder."]
            )
        yield
    finally:
        os.close(lock)


def _try_lock(descriptor: int) -> bool:
    """Lock a file until it is closed; whether nobody else had."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def carry_out(
    runs: Sequence[PlannedRun], out: Path, jobs: int, on_done: Callable[[PlannedRun, str], None]
) -> dict[str, str]:
    """Carry out those that have no result yet. Interrupted, it ends those that run.

    Parameters
    ----------
    runs : sequence of PlannedRun
    out : Path
        The folder whose runs they are or will be.
    jobs : int
        How many run at a time.
    on_done : callable
        Is told of each as it ends, and why it did not complete, or "".

    Returns
    -------
    dict of str to str
        Why those that did not complete did not, by their names.
    """
    waiting = [run for run in runs if not is_done(run, out)]
    if not waiting:
        return {}
    failures: dict[str, str] = {}
    with Workers() as workers, ThreadPoolExecutor(jobs) as pool:
        try:
            begun = {pool.submit(_carry_out, run, out, workers): run for run in waiting}
            for done in as_completed(begun):
                run = begun[done]
                said = done.result()
                if not is_done(run, out):
                    told = said or result_of(run, out).get("error")
                    failures[run.name] = told or f"The run left no result; repeat it with {run.command}."
                on_done(run, failures.get(run.name, ""))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workers.interrupt()
            raise
    return failures


def _carry_out(run: PlannedRun, out: Path, workers: Workers) -> str:
    shutil.rmtree(run.folder(out), ignore_errors=True)
    return workers.carry_out(run.scenario, run.changes, run.folder(out), audit=run.audit)


def is_done(run: PlannedRun, out: Path) -> bool:
    """Return whether a run completed, with a result in the format of this version."""
    result = result_of(run, out)
    return result.get("status") == "completed" and result.get("schema") == SCHEMA


def result_of(run: PlannedRun, out: Path) -> Mapping[str, Any]:
    """Return the content of result.json, empty if it cannot be read."""
    path = run.folder(out) / RESULT
    try:
        return _parse(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return {}


@functools.lru_cache(maxsize=64)
def _parse(path: Path, written_ns: int) -> Mapping[str, Any]:
    """Return a result, cached for all cells that use it in sequence."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def values_of(cell: EntryCell, out: Path) -> list[Reading]:
    """Return the values that the cell's completed runs measured; empty if one lacks it."""
    if cell.parts:
        return _derive(cell, [values_of(each, out) for each in cell.parts])
    found = [reading(result_of(run, out), cell.measure, cell.scale) for run in cell.runs if is_done(run, out)]
    known = [each for each in found if each is not None]
    if len(known) < len(cell.runs):
        return []
    if cell.less is None:
        return known
    taken = values_of(cell.less, out)
    return [Reading(of.value - away.value) for of, away in zip(known, taken, strict=True)] if taken else []


def _derive(cell: EntryCell, values: Sequence[Sequence[Reading]]) -> list[Reading]:
    """Return values computed from those of other cells; empty if one has none."""
    if not all(values):
        return []
    if cell.row.deviation_of:
        return [Reading(stdev(each.value for each in values[0]))]
    return [Reading(sum(each.value for each in of_seed)) for of_seed in zip(*values, strict=True)]


def unfinished_runs(cell: EntryCell, out: Path) -> Iterator[PlannedRun]:
    """Return the runs that have not completed."""
    return (run for run in cell.all_runs if not is_done(run, out))
