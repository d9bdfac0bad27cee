"""The runs that entries need: each once, in a folder by its content, so that cells share them."""

from __future__ import annotations

import functools
import json
import math
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.data import sources
from scenarios.reproduction.entries import Column, Entry, Row
from scenarios.run.result import RESULT
from scenarios.schema import spec
from scenarios.schema.errors import ScenarioError
from scenarios.schema.spec import Scenario
from scenarios.sweep.worker import Workers

RUNS = "runs"
"""The folder of the runs, beside the page."""


@dataclass(frozen=True)
class PlannedRun:
    """A run: its scenario and changes, the folder that its content calls for, and the data file that it lacks."""

    scenario: str
    changes: tuple[str, ...]
    name: str
    missing: str

    def folder(self, out: Path) -> Path:
        """Where it is, or will be."""
        return out / RUNS / self.name

    @property
    def command(self) -> str:
        """What repeats it."""
        return shlex.join(
            ["fedsvm", "run", self.scenario, *(word for each in self.changes for word in ("--set", each))]
        )


@dataclass(frozen=True)
class Cell:
    """A cell of an entry, with a run for each seed; without runs where it cannot be had, or is left out."""

    entry: Entry
    row: Row
    column: Column
    runs: tuple[PlannedRun, ...] = ()

    @property
    def printed(self) -> float | None:
        """The paper's value."""
        if not self.row.paper:
            return None
        found = self.row.paper[self.entry.column.index(self.column)]
        return None if found == "" else found

    @property
    def measure(self) -> str:
        """What of a result it is."""
        return self.column.measure or self.entry.measure

    @property
    def missing(self) -> str:
        """The data file that its runs lack, or ""."""
        return next((run.missing for run in self.runs if run.missing), "")


def cells(entry: Entry, *, full: bool) -> list[Cell]:
    """The cells of an entry, row by row. Raises ScenarioError for a scenario that is wrong."""
    return [_cell(entry, row, column, full=full) for row in entry.rows for column in entry.column]


def _cell(entry: Entry, row: Row, column: Column, *, full: bool) -> Cell:
    if entry.reason(row, column) or ((row.full or column.full) and not full):
        return Cell(entry, row, column)
    name = entry.scenario_of(row, column)
    if not name:
        raise ScenarioError([f"{entry.id}, {row.name}, {column.name}: no scenario is named."])
    changes = entry.changes_of(row, column, full=full)
    seeds = range(1, (entry.full_seeds if full else entry.seeds) + 1)
    try:
        runs = tuple(planned(name, (*changes, f"seed={seed}")) for seed in seeds)
    except ScenarioError as error:
        said = (f"{entry.id}, {row.name}, {column.name}: {problem}" for problem in error.problems)
        raise ScenarioError(said) from None
    return Cell(entry, row, column, runs)


@functools.lru_cache(maxsize=100_000)
def planned(scenario: str, changes: tuple[str, ...]) -> PlannedRun:
    """A run by what it does: the same for all that do the same. Raises ScenarioError for a scenario that is wrong."""
    read, base = spec.read(scenario, overrides=list(changes))
    content = spec.resolved_toml(read.model_copy(update={"name": "run"}))
    digest = sha256(f"{version('fedsvm')}\n{content}".encode()).hexdigest()[:16]
    return PlannedRun(scenario, changes, f"{read.name}-{digest}", _missing(read, base))


def _missing(scenario: Scenario, base: Path) -> str:
    """The first source of a scenario that is not there, or ""."""
    data = scenario.data
    named = [*([data.source] if data.source else []), *data.sources.values()]
    named += [data.test_source] if data.test_source else []
    return next((source for source in named if not sources.is_there(source, base)), "")


def needed(planned_cells: Sequence[Cell]) -> list[PlannedRun]:
    """The runs of cells whose data are there, each once."""
    return list({run.name: run for cell in planned_cells if not cell.missing for run in cell.runs}.values())


def carry_out(runs: Sequence[PlannedRun], out: Path, jobs: int, on_done: Callable[[PlannedRun], None]) -> None:
    """Carry out those that have no result yet, `jobs` at a time. Interrupted, it ends those that run."""
    waiting = [run for run in runs if not is_done(run, out)]
    if not waiting:
        return
    with Workers() as workers, ThreadPoolExecutor(jobs) as pool:
        begun = {pool.submit(_carry_out, run, out, workers): run for run in waiting}
        try:
            for done in as_completed(begun):
                done.result()
                on_done(begun[done])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workers.interrupt()
            raise


def _carry_out(run: PlannedRun, out: Path, workers: Workers) -> None:
    shutil.rmtree(run.folder(out), ignore_errors=True)
    workers.carry_out(run.scenario, run.changes, run.folder(out))


def is_done(run: PlannedRun, out: Path) -> bool:
    """Whether it has completed."""
    return result_of(run, out).get("status") == "completed"


def result_of(run: PlannedRun, out: Path) -> Mapping[str, Any]:
    """What its result.json holds; nothing where there is none that can be read."""
    try:
        found = json.loads((run.folder(out) / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


# What a result says.


@dataclass(frozen=True)
class Reading:
    """A figure of a run, and its standard error over the run's folds, None of a single one."""

    value: float
    error: float | None = None


def reading(result: Mapping[str, Any], measure: str, scale: float) -> Reading | None:
    """A measure of a completed run's result; None where it has no such figure."""
    found = DERIVED[measure](result) if measure in DERIVED else at(result, measure)
    if not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return Reading(scale * float(found), _fold_error(result, measure, scale))


def at(result: Any, path: str) -> Any:
    """What stands at a path of keys and places; None where nothing does."""
    for part in path.split("."):
        if isinstance(result, Mapping):
            result = result.get(part)
        elif isinstance(result, list) and part.isdigit() and int(part) < len(result):
            result = result[int(part)]
        else:
            return None
    return result


def _fold_error(result: Mapping[str, Any], measure: str, scale: float) -> float | None:
    """Of a mean over folds: their deviation, by the root of their number."""
    name = "accuracy" if measure == "error" else measure.removeprefix("metrics.")
    deviation, folds = at(result, f"metrics.deviations.{name}"), at(result, "metrics.folds") or []
    if deviation is None or len(folds) < 2 or not (measure == "error" or measure.startswith("metrics.")):
        return None
    return scale * float(deviation) / math.sqrt(len(folds))


def _of_curve(name: str, *, less: bool) -> Callable[[Mapping[str, Any]], float | None]:
    """What all columns come to along the curve of sizes; or, if `less`, by how much the best of all sizes is above."""

    def value(result: Mapping[str, Any]) -> float | None:
        curve = at(result, "selection.curve") or []
        known = [(point["size"], point[name]) for point in curve if point[name] is not None]
        if not known:
            return None
        every = float(max(known)[1])
        return max(accuracy for _, accuracy in known) - every if less else every

    return value


def _error(result: Mapping[str, Any]) -> float | None:
    accuracy = at(result, "metrics.accuracy")
    return None if accuracy is None else 1 - accuracy


def _private_rows(result: Mapping[str, Any]) -> float | None:
    held = [site["rows"] for site in result.get("sites", [])]
    return float(sum(held)) if held else None


def _classes(result: Mapping[str, Any]) -> float | None:
    classes = at(result, "model.classes")
    return None if classes is None else float(len(classes))


def _on_unit_interval(result: Mapping[str, Any]) -> float | None:
    """Gamma of columns in [0, 1] that does what the run's does of the same columns in [-1, 1]."""
    gamma = at(result, "scenario.algorithm.gamma")
    return 4 * gamma if isinstance(gamma, float) else None


def _largest_site_cpu(result: Mapping[str, Any]) -> float | None:
    return max((site["cpu_s"] for site in result.get("sites", []) if site["cpu_s"] is not None), default=None)


def _fold_spread(result: Mapping[str, Any]) -> float | None:
    areas = [fold["auc"] for fold in at(result, "metrics.folds") or [] if fold["auc"] is not None]
    return max(areas) - min(areas) if areas else None


def _difference_to(name: str) -> Callable[[Mapping[str, Any]], float | None]:
    def difference(result: Mapping[str, Any]) -> float | None:
        own, other = at(result, "metrics.accuracy"), at(result, f"baselines.{name}.accuracy")
        return None if own is None or other is None else float(own - other)

    return difference


def _disclosed(kind: str) -> Callable[[Mapping[str, Any]], float | None]:
    def times(result: Mapping[str, Any]) -> float | None:
        return float(np.sum([each["times"] for each in result.get("disclosures", []) if each["kind"] == kind]))

    return times


DERIVED: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "error": _error,
    "classes": _classes,
    "gamma-on-unit-interval": _on_unit_interval,
    "private-rows": _private_rows,
    "largest-site-cpu": _largest_site_cpu,
    "spread-of-fold-auc": _fold_spread,
    "beyond-libsvm-rbf": _difference_to("libsvm-rbf"),
    "single-rows-in-cuts": _disclosed("single-row"),
    "whole-of-all-columns": _of_curve("accuracy", less=False),
    "whole-improvement": _of_curve("accuracy", less=True),
    "separate-of-all-columns": _of_curve("test_accuracy", less=False),
    "separate-improvement": _of_curve("test_accuracy", less=True),
}
"""Figures that no result has as they are: 1 - accuracy, CPU seconds of the busiest site, and the like."""


def values_of(cell: Cell, out: Path) -> list[Reading]:
    """What the cell's completed runs measured."""
    found = [reading(result_of(run, out), cell.measure, cell.entry.scale) for run in cell.runs if is_done(run, out)]
    return [each for each in found if each is not None]


def unfinished(cell: Cell, out: Path) -> Iterator[PlannedRun]:
    """Its runs that have not completed."""
    return (run for run in cell.runs if not is_done(run, out))
