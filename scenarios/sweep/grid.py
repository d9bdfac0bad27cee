"""A grid of runs: one scenario with some of its keys varied, one row a run, resumed where it was interrupted."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fedsvm.scenarios.report import comparison
from fedsvm.scenarios.report.chart import Chart
from fedsvm.scenarios.report.comparison import MEASURES, figure, mean_and_deviation
from fedsvm.scenarios.run.result import RunResult, read_result
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.federation import MAX_NAME
from fedsvm.scenarios.sweep.charts import SEED, Plot, Row, draw, draw_curves, numeric
from fedsvm.scenarios.sweep.worker import Workers

POINTS = "points"
MAX_POINTS = 10_000
_BASE = "scenario.toml"
_SEPARATOR = re.compile(r""",(?=(?:[^"']|"[^"]*"|'[^']*')*$)(?![^\[]*\])""")
PAGE = "index.html"
ROUND = "round"
"""The axis along which a run itself goes."""

_UNITS = ("_bytes", "_s")
"""Ends of measures that the printed table does not have."""

CURVES = ("gap", "objective")
"""The measures that are known in each round, if the algorithm logs them."""


@dataclass(frozen=True)
class SweepAxis:
    """A key path and the texts of its values, each as `--set` takes it."""

    key: str
    values: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> SweepAxis:
        """Parse "key.path=v1,v2,…"; commas within brackets or quotes do not separate. Raises ScenarioError."""
        key, equals, listed = text.partition("=")
        values = _SEPARATOR.split(listed)
        if not equals or not key.strip() or not all(value.strip() for value in values) or not values:
            raise ScenarioError([f"--vary {text}: write it as key.path=v1,v2,…, such as federation.sites=5,10."])
        return cls(key.strip(), tuple(value.strip() for value in values))


@dataclass(frozen=True)
class Point:
    """One run of the grid: a value for every axis."""

    values: Mapping[str, str]

    @property
    def name(self) -> str:
        """A name for its folder, another one for every point."""
        text = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in self.values.items())
        name = re.sub(r"[^A-Za-z0-9=,._+-]", "_", text)
        return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 17]}-{sha256(text.encode()).hexdigest()[:16]}"

    @property
    def changes(self) -> list[str]:
        return [f"{key}={value}" for key, value in self.values.items()]


@dataclass(frozen=True)
class Sweep:
    """The grid of some axes around a scenario, in a folder."""

    scenario: str
    changes: tuple[str, ...]
    axes: tuple[SweepAxis, ...]
    folder: Path
    unset: tuple[str, ...] = ()

    @property
    def points(self) -> list[Point]:
        keys = [axis.key for axis in self.axes]
        return [
            Point(dict(zip(keys, chosen, strict=True))) for chosen in itertools.product(*(a.values for a in self.axes))
        ]

    def check(self) -> None:
        """Raise ScenarioError for what is wrong with any point."""
        if problems := list(self._problems()):
            raise ScenarioError(problems)

    def prepare(self) -> None:
        """Check every point, and take the folder. Raises ScenarioError before anything is started."""
        self.check()
        scenario, _ = spec.read(self.scenario, overrides=self.changes, unset=self.unset)
        text, base = spec.resolved_toml(scenario), self.folder / _BASE
        if base.is_file() and base.read_text() != text:
            raise ScenarioError([f"--out: {self.folder} holds a sweep of another scenario; name another folder."])
        try:
            (self.folder / POINTS).mkdir(parents=True, exist_ok=True)
            base.write_text(text)
        except OSError as error:
            raise ScenarioError([f"--out: no folder {self.folder} can be made: {error.strerror}."]) from error

    def _problems(self) -> Iterator[str]:
        keys = [axis.key for axis in self.axes]
        if (count := math.prod(len(axis.values) for axis in self.axes)) > MAX_POINTS:
            yield f"--vary: {count} runs are more than {MAX_POINTS}; list fewer values."
            return
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            yield f"--vary {twice[0]}: is varied twice; list all its values once."
        names = [point.name for point in self.points]
        if len(set(names)) < len(names):
            yield "--vary: two points of the grid are the same; list each value once."
        for point in self.points:
            try:
                self._read(point)
            except ScenarioError as error:
                yield from (f"{point.name}: {problem}" for problem in error.problems)

    def _read(self, point: Point) -> spec.Scenario:
        return spec.read(self.scenario, overrides=[*self.changes, *point.changes], unset=self.unset)[0]

    def missing(self) -> list[Point]:
        """Return the points without the result of a completed run."""
        return [point for point in self.points if not self._is_done(point)]

    def _is_done(self, point: Point) -> bool:
        result = self._result(point)
        return result is not None and result.status == "completed"

    def run(self, jobs: int, on_done: Callable[[Point, str], None]) -> None:
        """Run what is missing, `jobs` at a time, each in a process of its own. Interrupted, it ends those that run.

        on_done: is told of each, and why it did not complete, or "".
        """
        with Workers() as workers, ThreadPoolExecutor(jobs) as pool:
            try:
                waiting = {pool.submit(self._run, point, workers): point for point in self.missing()}
                for done in as_completed(waiting):
                    on_done(waiting[done], done.result() or self._failure(waiting[done]))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                workers.interrupt()
                raise

    def _run(self, point: Point, workers: Workers) -> str:
        target = self.folder / POINTS / point.name
        shutil.rmtree(target, ignore_errors=True)
        return workers.carry_out(self.scenario, (*self.changes, *point.changes), target, unset=self.unset)

    def _failure(self, point: Point) -> str:
        """Return why a started run did not complete, or ""."""
        result = self._result(point)
        if result is None:
            return "The run left no result."
        return "" if result.status == "completed" else result.error or f"The run {result.status}."

    def _result(self, point: Point) -> RunResult | None:
        with suppress(ScenarioError):
            return read_result(self.folder / POINTS / point.name)
        return None

    @property
    def measures(self) -> tuple[str, ...]:
        """The columns besides the varied keys, which can be plotted: common measures, then the algorithms' figures."""
        read = [self._read(point) for point in self.points]
        figures = [name for scenario in read for name in scenario.algorithm.implementation.figures]
        return tuple(dict.fromkeys([*MEASURES, *figures]))

    def rows(self) -> list[Row]:
        """Return a row for each point with a result: its values, its measures, and how it ended."""
        found, own_measures = [], self.measures[len(MEASURES) :]
        for point in self.points:
            result = self._result(point)
            if result is not None:
                measures = {name: figure(result, each) for name, each in MEASURES.items()}
                figures = result.model.figures if result.model else {}
                own = {name: figures.get(name) for name in own_measures}
                found.append({**point.values, "status": result.status, **measures, **own, "error": result.error})
        return found

    @property
    def _varies_seed(self) -> bool:
        return any(axis.key == SEED for axis in self.axes)

    def summary_rows(self, rows: Sequence[Row]) -> list[Row]:
        """Return a row for the mean and one for the deviation of completed runs that differ in the seed alone.

        The rows have `summary`, "mean" or "deviation", and no seed. Empty if the seed is not varied.
        """
        if not self._varies_seed:
            return []
        groups: dict[tuple[str, ...], list[Row]] = {}
        keys = [axis.key for axis in self.axes if axis.key != SEED]
        for row in rows:
            if row["status"] == "completed":
                groups.setdefault(tuple(row[key] for key in keys), []).append(row)
        found = []
        for values, same in groups.items():
            both = {name: mean_and_deviation([row[name] for row in same]) for name in self.measures}
            for place, summary in enumerate(("mean", "deviation")):
                measures = {name: pair[place] for name, pair in both.items()}
                shared = {**dict.fromkeys(same[0]), **dict(zip(keys, values, strict=True)), "status": "completed"}
                found.append({**shared, **measures, "summary": summary})
        return found

    def curves(self, measure: str) -> list[Row]:
        """Return the values of each completed point, and its `curve`: rounds and the measure in them."""
        found = []
        for point in self.points:
            if self._is_done(point):
                log = (self.folder / POINTS / point.name / "log.jsonl").read_text().splitlines()
                events = [event for event in map(json.loads, log) if event["event"] == "figures" and measure in event]
                found.append({**point.values, "curve": [(event["round"], event[measure]) for event in events]})
        return found

    def draw(self, plot: Plot, rows: Sequence[Row]) -> Chart | None:
        """Draw a plot into the sweep's folder; None where no run has what it shows."""
        chart = draw_curves(plot, self.curves(plot.measure)) if plot.axis == ROUND else draw(plot, rows)
        if chart is not None:
            (self.folder / plot.name).write_text(chart.file(), encoding="utf-8")
        return chart

    def write_page(self, charts: Sequence[Chart]) -> Path:
        """Write index.html: what differs between the runs that have a result, what came of them, and the plots."""
        groups = [axis.key for axis in self.axes if axis.key != SEED] or [SEED]
        runs, values = [], []
        repeated: dict[str, list[comparison.ComparedRun]] = {}
        for point in self.points:
            if (result := self._result(point)) is not None:
                group = ", ".join(point.values[key] for key in groups)
                runs.append(comparison.ComparedRun(point.name, self.folder / POINTS / point.name, result, group))
                if result.status == "completed":
                    same = ", ".join(f"{key}={value}" for key, value in point.values.items() if key != SEED)
                    repeated.setdefault(same, []).append(runs[-1])
                values.append(point.values)
        changed = {axis.key: [value[axis.key] for value in values] for axis in self.axes}
        path = self.folder / PAGE
        title = f"{self.folder.name}: {len(runs)} runs"
        path.write_text(
            comparison.page(title, runs, changed, charts, repeated if self._varies_seed else {}), encoding="utf-8"
        )
        return path

    def write(self) -> list[Row]:
        """Write the rows as sweep.csv and sweep.parquet, with means and deviations over seeds, and return the rows."""
        import pyarrow as pa  # slow to import
        from pyarrow import csv, parquet

        rows = self.rows()
        if rows:
            written = [*rows, *self.summary_rows(rows)]
            if self._varies_seed:
                written = [{"summary": "", **row} for row in written]
            table = pa.Table.from_pylist([{name: numeric(value) for name, value in row.items()} for row in written])
            parquet.write_table(table, self.folder / "sweep.parquet")
            csv.write_csv(table, self.folder / "sweep.csv")
        return rows


def read_plot(text: str, axes: Sequence[SweepAxis], measures: Sequence[str]) -> Plot:
    """Parse "measure:axis" or "measure:axis:group". Raises ScenarioError."""
    measure, _, rest = text.partition(":")
    axis, _, group = rest.partition(":")
    keys = [each.key for each in axes]
    axis, group = _whole_key(axis, keys), _whole_key(group, keys)
    named = [f"{measure}{unit}" for unit in ("", *_UNITS)]
    measure = next((name for name in named if name in measures), measure)
    curve = axis == ROUND and measure in CURVES
    if measure not in measures or not (axis in keys or curve) or (group and group not in keys):
        raise ScenarioError(
            [
                f"--plot {text}: write it as measure:axis or measure:axis:group; measures are "
                f"{', '.join(measures)}, and axes {', '.join(keys)}, and {ROUND} for {' and '.join(CURVES)}."
            ]
        )
    return Plot(measure, axis, group or None)


def _whole_key(name: str, keys: Sequence[str]) -> str:
    """Return the key that the printed table calls by its last part."""
    found = [key for key in keys if key.rpartition(".")[2] == name]
    return found[0] if len(found) == 1 else name


def default_plots(axes: Sequence[SweepAxis]) -> list[Plot]:
    """Return plots of accuracy, bytes and seconds by an axis of numbers if there is one, grouped by the next axis."""
    keys = [axis.key for axis in axes if axis.key != SEED] or [axes[0].key]
    numbers = [
        axis.key for axis in axes if axis.key in keys and not any(isinstance(numeric(v), str) for v in axis.values)
    ]
    across = (numbers or keys)[0]
    group = next((key for key in keys if key != across), None)
    return [Plot(measure, across, group) for measure in ("accuracy", "payload_bytes", "total_s")]
