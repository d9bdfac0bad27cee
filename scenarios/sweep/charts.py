"""The plots of a sweep: a measure by a varied key, or the course of a measure in each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedsvm.scenarios.report.axes import ChartAxis, whole
from fedsvm.scenarios.report.chart import Chart, Series, lines
from fedsvm.scenarios.report.comparison import measure
from fedsvm.scenarios.report.drawing import Style, style

Row = dict[str, Any]

SEED = "seed"
"""Runs that differ in it alone are repetitions."""

_APART_WORDS, _APART_NUMBERS = 9.0, 2.5
"""Units of the picture between the series of an axis of words, and of one of numbers."""


def numeric(value: Any) -> Any:
    """Return a number if a text is one, so that columns of numbers are numbers."""
    if not isinstance(value, str):
        return value
    try:
        return float(value) if "." in value or "e" in value.lower() else int(value)
    except ValueError:
        return value


@dataclass(frozen=True)
class Plot:
    """A measure against a varied key, or the round, a line or a set of bars for each value of another key."""

    measure: str
    axis: str
    group: str | None

    @property
    def name(self) -> str:
        grouped = f"-by-{self.group}" if self.group else ""
        return f"{self.measure}-against-{self.axis}{grouped}.svg"


def draw(plot: Plot, rows: Sequence[Row]) -> Chart | None:
    """Draw a measure of the completed runs by a varied key; for runs that differ in other keys, mean and range."""
    known = [row for row in rows if row["status"] == "completed" and row[plot.measure] is not None]
    values = list(dict.fromkeys(row[plot.axis] for row in known))
    if not values:
        return None
    of, names = measure(plot.measure), _names(values)
    groups: dict[str, list[Row]] = {}
    for row in known:
        groups.setdefault(str(row[plot.group]) if plot.group else "", []).append(row)
    apart = _APART_WORDS if names else _APART_NUMBERS
    series = [
        _series(plot, values, names, name, of_group, style(number), apart * (number - (len(groups) - 1) / 2))
        for number, (name, of_group) in enumerate(groups.items())
    ]
    told = []
    if any(low < high for each in series for low, high in each.spread):
        told.append("Means of runs that differ in other keys; strokes reach from the least to the largest.")
    if len(groups) > 1:
        told.append("Series stand a little apart, so that equal ones are seen.")
    return lines(
        f"{of.name[0].upper()}{of.name[1:]} against {plot.axis}{f', by {plot.group}' if plot.group else ''}",
        " ".join(told),
        ChartAxis(plot.axis, number=lambda value: f"{value:g}"),
        ChartAxis(of.name, number=of.written),
        series,
        names=names,
    )


def _names(values: Sequence[Any]) -> list[str]:
    """Return the values of an axis of words; none for an axis of numbers."""
    return [str(value) for value in values] if any(isinstance(numeric(value), str) for value in values) else []


def _series(
    plot: Plot,
    values: Sequence[Any],
    names: Sequence[str],
    name: str,
    rows: Sequence[Row],
    drawn_as: Style,
    shift: float,
) -> Series:
    """Return mean and range of a group's measure at each value of the axis."""
    found = {value: [row[plot.measure] for row in rows if row[plot.axis] == value] for value in values}
    there = {values.index(value) if names else numeric(value): each for value, each in found.items() if each}
    ordered = sorted(there.items())
    means = [(at, sum(each) / len(each)) for at, each in ordered]
    spread = [(min(each), max(each)) for _, each in ordered]
    return Series(name, means, drawn_as, line=not names, spread=spread, shift=shift)


def draw_curves(plot: Plot, runs: Sequence[Row]) -> Chart | None:
    """Draw the course of a measure, a line for each run. Runs that differ only in the seed look alike."""
    of, series, styles = measure(plot.measure), [], dict[str, Style]()
    keys = [key for key in dict.fromkeys(key for run in runs for key in run) if key not in ("curve", SEED)] or [SEED]
    told = [*([plot.group] if plot.group else []), *(key for key in keys if key != plot.group)]
    for run in runs:
        name = ", ".join(str(run[key]) for key in told)
        if run["curve"]:
            series.append(Series(name, run["curve"], styles.setdefault(name, style(len(styles)))))
    if not series:
        return None
    return lines(
        f"{of.name[0].upper()}{of.name[1:]} in every round",
        f"A line for each run, named by {', '.join(told)}.",
        ChartAxis("round", number=whole),
        ChartAxis(of.name, is_log=True),
        series,
    )
