"""A row by which the training data of two runs differ, from the scales in their model files.

An exact scale is the mean and the deviation of each column over all training rows, to twelve digits. With the number of
rows, which may be tried, it gives the sums of the columns and of their squares. If one run has one row more, the
difference of the sums is this row, and the difference of the sums of squares confirms it in every column. Noise larger
than the check leaves nothing to confirm, and nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

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
