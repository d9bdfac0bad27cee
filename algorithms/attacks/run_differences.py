"""A row by which the training data of two runs differ, from what their model files say of all rows.

An exact standard scale is the mean and the deviation of each column over all training rows, to twelve digits. With the
number of rows, which may be tried, it gives the sums of the columns and of their squares. If one run has one row more,
the difference of the sums is this row, and the difference of the sums of squares confirms it in every column. Means and
variances of classes, which a naive Bayes model consists of, do the same on any scale. The ends of an exact minmax scale
are values of rows: a row beyond them moves them. Noise larger than the check leaves nothing to confirm, and nothing is
claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.scaling import Scale
from fedsvm.federation.arrays import FloatArray, IntArray

MOST_ROWS = 100_000
"""Numbers of training rows that are tried, at most."""

_AT_ONCE = 1_000_000
"""Numbers of an array that is computed at a time, at most."""

_DIGITS = 1e-12
"""Half of the last of twelve digits, times two: a figure of the scale is off by less, as a share of it."""

_MIN_CHECKED = 3
"""Columns that must confirm a row."""

_RESOLVED = 1e-3
"""Deviations of a column that its rounding errors must stay below, to confirm anything."""

_SAME_SQUARE = 1e-6
"""Squares of a row that differ by less, as a share of the column's variance and themselves, are the same."""


@dataclass(frozen=True)
class DifferingRow:
    """A row that one of two runs has and the other lacks.

    Parameters
    ----------
    row : (p,) FloatArray
        In the columns as sites encode them, not scaled.
    rows : int
        Training rows of the run that has it.
    is_in_second : bool
        True if the second run has it, False if the first does.
    checked : int
        Columns whose sums of squares confirm it.
    residual : float
        The largest difference that the check left, in deviations of a column.
    """

    row: FloatArray
    rows: int
    is_in_second: bool
    checked: int
    residual: float


def differing_row(first: Scale, second: Scale, most_rows: int = MOST_ROWS) -> DifferingRow | None:
    """Return the row that one run has more than the other; None if no row explains the difference of their scales.

    Parameters
    ----------
    first, second : Scale
        By mean and deviation, of the same columns.
    most_rows : int
        The largest number of training rows that is tried.
    """
    if first.offset.shape != second.offset.shape:
        return None
    at_once = max(1, _AT_ONCE // max(1, len(first.offset)))
    found = [
        each
        for begin in range(2, most_rows + 1, at_once)
        for is_in_second in (True, False)
        for each in _explaining(
            first, second, np.arange(begin, min(begin + at_once, most_rows + 1)), is_in_second=is_in_second
        )
    ]
    return min(found, key=lambda each: each.residual, default=None)


def _explaining(first: Scale, second: Scale, counts: IntArray, *, is_in_second: bool) -> Iterator[DifferingRow]:
    """Yield the rows that explain the difference, for each number of rows (n,) of the run that has one more."""
    less, more = (first, second) if is_in_second else (second, first)
    count = counts[:, None].astype(np.float64)
    error = _DIGITS * count * (np.abs(less.offset) + np.abs(more.offset))
    rows = count * more.offset - (count - 1) * less.offset
    squares = [scale.scale**2 + scale.offset**2 for scale in (less, more)]
    apart = np.abs(rows**2 - (count * squares[1] - (count - 1) * squares[0]))
    allowed = 4 * (_DIGITS * count * (squares[0] + squares[1]) + np.abs(rows) * error) + error**2
    informs = (more.scale != 1.0) & (less.scale != 1.0) & (more.offset != less.offset)
    resolved = informs & (np.sqrt(allowed) < _RESOLVED * more.scale)
    agrees = (apart <= allowed) | ~resolved
    checked = resolved.sum(axis=1)
    for place in np.flatnonzero(agrees.all(axis=1) & (checked >= _MIN_CHECKED)):
        residual = float((np.sqrt(apart[place]) / more.scale)[resolved[place]].max())
        yield DifferingRow(rows[place], int(counts[place]), is_in_second, int(checked[place]), residual)


def row_of_class(first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]]) -> DifferingRow | None:
    """Return the row that one run has more than the other in one class; None if no row explains their means.

    Parameters
    ----------
    first, second : mapping of str to NDArray
        The arrays of two naive Bayes models over the same columns and classes.
    """
    shapes = [[each[name].shape for name in ("counts", "means")] for each in (first, second)]
    if shapes[0] != shapes[1]:
        return None
    gained = second["counts"] - first["counts"]
    if sorted(np.abs(gained).tolist()) != [*[0.0] * (len(gained) - 1), 1.0]:
        return None
    kind, is_in_second = int(np.abs(gained).argmax()), bool(gained.sum() > 0)
    less, more = (first, second) if is_in_second else (second, first)
    count, before = float(more["counts"][kind]), _class_moments(less, kind)
    mean, square = _class_moments(more, kind)
    row, found = (count * new - (count - 1) * old for new, old in zip((mean, square), before, strict=True))
    variance = square - mean**2
    apart = np.abs(row**2 - found)
    if len(row) < _MIN_CHECKED or (apart > _SAME_SQUARE * (variance + row**2)).any():
        return None
    rows = round(float(more["counts"].sum()))
    return DifferingRow(row, rows, is_in_second, len(row), float(np.sqrt(apart / variance).max()))


def _class_moments(arrays: Mapping[str, NDArray[Any]], kind: int) -> tuple[FloatArray, FloatArray]:
    """Return the means (p,) of a class, and of squares, of columns that are not scaled."""
    mean = arrays["means"][kind] * arrays["scale"] + arrays["offset"]
    return mean, arrays["variances"][kind] * arrays["scale"] ** 2 + mean**2


def values_beyond(first: Scale, second: Scale) -> tuple[bool, dict[int, float]]:
    """Return whether the second run has values beyond the ends of the first or the reverse, and these, by column.

    No values if each has some beyond the other's, which no row that was added explains.

    Parameters
    ----------
    first, second : Scale
        Exact minmax scales of the same columns.
    """
    ends = [(each.offset - each.scale, each.offset + each.scale) for each in (first, second)]
    (low, high), (new_low, new_high) = ends
    error = _DIGITS * (np.abs(np.array(ends)).sum(axis=(0, 1)))
    varied = (first.scale != 1.0) & (second.scale != 1.0)
    wider = varied & ((new_low < low - error) | (new_high > high + error))
    narrower = varied & ((new_low > low + error) | (new_high < high - error))
    if wider.any() == narrower.any():
        return True, {}
    outer, inner, columns = (ends[1], ends[0], wider) if wider.any() else (ends[0], ends[1], narrower)
    is_low = outer[0] < inner[0] - error
    return bool(wider.any()), {
        int(column): float(outer[0][column] if is_low[column] else outer[1][column])
        for column in np.flatnonzero(columns)
    }
