"""Figures of papers, drawn from what was measured, with printed values as hollow marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedsvm.scenarios.report.axes import ChartAxis
from fedsvm.scenarios.report.chart import Chart, Series, boxes, lines
from fedsvm.scenarios.report.drawing import Style, style
from fedsvm.scenarios.reproduction import judgment, measures, plan
from fedsvm.scenarios.reproduction.entries import Entry, Picture
from fedsvm.scenarios.reproduction.judgment import JudgedCell, JudgedEntry

_GRID = 21
"""Places along the false positive rate at which curves are averaged."""
_MAX_LINEAR = 100
"""Numbers of columns above which an axis of them is logarithmic."""


def draw_pictures(judged: JudgedEntry, out: Path) -> list[Chart]:
    """Return the pictures of an entry, or of the tables that it plots; none if nothing was measured."""
    shown = [_whole(judged.entry, each, out) if judged.entry.whole else each for each in judged.shows] or [judged]
    return [chart for each in shown for chart in _charts(judged.entry.pictures, each, out)]


def _whole(figure: Entry, table: JudgedEntry, out: Path) -> JudgedEntry:
    """Return a table of differences as a figure shows it, without subtracting; it has no printed values."""
    columns = [each.model_copy(update={"less": "", "drawn": each.name in figure.whole}) for each in table.entry.column]
    named = {"what": figure.what, "title": figure.title, "quantity": figure.quantity, "column": columns}
    entry = table.entry.model_copy(update=named)
    places = {each.name: each for each in columns}
    cells = [
        replace(
            each.cell,
            entry=entry,
            row=each.cell.row.model_copy(update={"paper": []}),
            column=places[each.cell.column.name],
            less=None,
        )
        for each in table.cells
    ]
    return replace(table, entry=entry, cells=tuple(judgment.judge_cell(cell, out) for cell in cells))


def _charts(pictures: Sequence[Picture], judged: JudgedEntry, out: Path) -> list[Chart]:
    known = [
        each
        for each in judged.cells
        if each.value is not None and each.cell.column.drawn and not each.cell.row.derived_from
    ]
    return [chart for picture in pictures for chart in _draw(picture, judged, known, out)] if known else []


def _draw(picture: Picture, judged: JudgedEntry, known: Sequence[JudgedCell], out: Path) -> list[Chart]:
    if picture == "roc":
        return [_roc(judged, known, out)]
    if picture == "boxes":
        return [_boxes(judged, known, out)]
    if picture == "sizes":
        names = dict.fromkeys(each.cell.column.name for each in known)
        return [_sizes(judged, name, [each for each in known if each.cell.column.name == name], out) for name in names]
    return [_lines(judged, known, by_name=picture == "points")]


def _title(judged: JudgedEntry) -> str:
    what = judged.entry.what
    return f"{what[0].upper()}{what[1:]}: {judged.entry.title}"


def _axis_label(entry: Entry) -> str:
    """Return the label of a vertical axis."""
    return ", ".join(filter(None, (entry.quantity or "measured", entry.unit)))


def _lines(judged: JudgedEntry, known: Sequence[JudgedCell], *, by_name: bool) -> Chart:
    entry = judged.entry
    names = list(dict.fromkeys(each.cell.row.name for each in known)) if by_name else []
    series = []
    columns = [column for column in entry.column if column.drawn]
    for number, column in enumerate(columns):
        own = [each for each in known if each.cell.column == column]
        if by_name:
            places = [(float(names.index(each.cell.row.name)), each) for each in own]
        else:
            places = [(each.cell.row.at, each) for each in own if each.cell.row.at is not None]
        shift = 9.0 * (number - (len(columns) - 1) / 2) if by_name else 0.0
        series += _column_series(column.name, places, style(number), shift, line=not by_name)
    spread = any(low < high for each in series for low, high in each.spread)
    told = ["Strokes reach two standard errors to both sides."] if spread else []
    told += ["Hollow marks are printed values."] if any(each.hollow for each in series) else []
    label = entry.axis.label if entry.axis else ""
    is_log = entry.axis is not None and entry.axis.log
    return lines(
        _title(judged),
        " ".join(told),
        ChartAxis(label, is_log=is_log, number=lambda value: f"{value:g}"),
        ChartAxis(_axis_label(entry), number=lambda value: f"{value:.6g}"),
        series,
        names=names,
    )


def _column_series(
    name: str, places: Sequence[tuple[float, JudgedCell]], drawn_as: Style, shift: float, *, line: bool
) -> list[Series]:
    """Return the measured and the printed values of a column."""
    ordered = sorted(places, key=lambda each: each[0])
    points = [(at, each.value) for at, each in ordered if each.value is not None]
    errors = [each.error or 0.0 for _, each in ordered]
    spread = [(y - 2 * error, y + 2 * error) for (_, y), error in zip(points, errors, strict=True)]
    found = [Series(name, points, drawn_as, line=line, spread=spread, shift=shift)] if points else []
    printed = [(at, each.cell.printed) for at, each in ordered if each.cell.printed is not None]
    if printed:
        tips = [f"{name}, printed: {value:g}" for _, value in printed]
        found.append(Series(name, printed, drawn_as, line=False, tips=tips, shift=shift + 4, hollow=True))
    return found


def _roc(judged: JudgedEntry, known: Sequence[JudgedCell], out: Path) -> Chart:
    """Draw vertical means over folds, with their standard deviation."""
    rates, series = np.linspace(0, 1, _GRID), []
    rows = list(dict.fromkeys(each.cell.row.name for each in known))
    for number, name in enumerate(rows):
        (run, *_) = next(each.cell.runs for each in known if each.cell.row.name == name)
        folds = measures.at(plan.result_of(run, out), "metrics.folds") or []
        curves = [
            np.interp(rates, fold["roc"]["false_positive_rate"], fold["roc"]["true_positive_rate"])
            for fold in folds
            if fold.get("roc")
        ]
        if curves:
            mean, deviation = np.mean(curves, axis=0), np.std(curves, axis=0)
            spread = list(zip(np.clip(mean - deviation, 0, 1), np.clip(mean + deviation, 0, 1), strict=True))
            points = list(zip(rates.tolist(), mean.tolist(), strict=True))
            series.append(Series(name, points, style(number), spread=spread, shift=2.0 * number))
    return lines(
        _title(judged),
        "Vertical means over the folds; strokes reach a standard deviation to both sides. Curves stand a little apart.",
        ChartAxis("false positive rate", number=lambda value: f"{value:g}"),
        ChartAxis("true positive rate", number=lambda value: f"{value:.3g}"),
        series,
        has_diagonal=True,
    )


def _sizes(judged: JudgedEntry, column: str, known: Sequence[JudgedCell], out: Path) -> Chart:
    """Draw the accuracy on held-out rows by number of columns, for each row in a column."""
    series, most = [], 0
    rows = [row.name for row in judged.entry.rows]
    for each in known:
        curve = measures.at(plan.result_of(each.cell.runs[0], out), "selection.curve") or []
        points = [
            (float(at["size"]), each.cell.scale * at["test_accuracy"])
            for at in curve
            if at["test_accuracy"] is not None
        ]
        most = max([most, *(int(size) for size, _ in points)])
        series.append(Series(each.cell.row.name, points, style(rows.index(each.cell.row.name))))
    return lines(
        f"{_title(judged)}: {column}",
        f"{', '.join(each.cell.row.name for each in known)}: means over splits of the rows, of linear SVMs.",
        ChartAxis("columns kept", is_log=most > _MAX_LINEAR, number=lambda value: f"{value:g}"),
        ChartAxis(_axis_label(judged.entry), number=lambda value: f"{value:.6g}"),
        [each for each in series if each.points],
    )


def _boxes(judged: JudgedEntry, known: Sequence[JudgedCell], out: Path) -> Chart:
    """Draw the values of the seeds of each column and row; with one seed, of its folds."""
    entry, found = judged.entry, {}
    for each in known:
        name = each.cell.row.name if len(entry.column) == 1 else f"{each.cell.column.name} {each.cell.row.name}"
        found[name] = list(each.values) if len(each.values) > 1 else _of_folds(each, out)
    return boxes(
        _title(judged),
        "Boxes are quartiles over seeds, or over the folds of one, with the median across; "
        "whiskers end within 1.5 boxes.",
        entry.axis.label if entry.axis else "",
        ChartAxis(_axis_label(entry), number=lambda value: f"{value:.6g}"),
        found,
    )


def _of_folds(judged: JudgedCell, out: Path) -> list[float]:
    """Return the cell's measure in each fold of its run, or the mean if folds lack it."""
    measure = judged.cell.measure.removeprefix("metrics.")
    folds = [fold for run in judged.cell.runs for fold in measures.at(plan.result_of(run, out), "metrics.folds") or []]
    values = [judged.cell.scale * fold[measure] for fold in folds if fold.get(measure) is not None]
    return values or list(judged.values)
