"""Drift: values of new rows outside the range of the training rows, missing and unknown values, and shifted means.

The comparison needs no training row and no extreme value. A column's range is the declared one (`data.ranges`).
Otherwise it is the window of the noisy statistics, whose ends are noisy quantiles of the training rows. Without these
it follows from the common scale in the model's file: for "minmax" the values from -1 to 1, for "standard" 5 standard
deviations around the mean. By Chebyshev's inequality at most 1 of 25 training rows is outside the latter, and at most 1
of 400 beyond 20 standard deviations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.scaling import Scale
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.text import quote_names
from fedsvm.scenarios.figures import percent

DEVIATIONS = 5.0
_MOST_OUTSIDE = 1 / DEVIATIONS**2
_FAR = 20.0
_LISTED = 5

NOISY = "noisy quantiles"
"""The source of a range from noisy statistics. Some training rows are outside such a range too."""

HEAD = ("column", "range", "range from", "outside", "missing", "unknown", "shift")


@dataclass(frozen=True)
class ColumnDrift:
    """The difference of a column of new rows from the training rows.

    Attributes
    ----------
    column : str
        Its name.
    within : tuple of float, optional
        The range of a numeric column, if one is known.
    outside, missing, unknown : int
        The number of rows with a number outside the range, without a value, and with an unknown category.
    rows : int
        The number of all rows.
    shift : float, optional
        The mean of a numeric column minus that of the training rows, in their standard deviations.
    values : tuple of str
        The unknown categories.
    origin : str
        The source of the range: "declared", "noisy quantiles", "minmax" or "mean and 5 SD"; "" without a range.
    is_plain : bool
        Whether training rows may have as many values outside the range.
    """

    column: str
    rows: int
    missing: int
    outside: int = 0
    unknown: int = 0
    within: tuple[float, float] | None = None
    shift: float | None = None
    values: tuple[str, ...] = ()
    origin: str = ""
    is_plain: bool = True

    def cells(self) -> tuple[str, ...]:
        """Return the column's row of the table under `HEAD`."""
        counts = (self.outside, self.missing, self.unknown)
        within = "" if self.within is None else f"{self.within[0]:.4g} to {self.within[1]:.4g}"
        shares = (percent(count / max(1, self.rows), 1) if count else "" for count in counts)
        return (self.column, within, self.origin, *shares, "" if self.shift is None else f"{self.shift:+.2f}")

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for values outside the range, and for unknown categories."""
        if not self.is_plain and self.within is not None:
            low, high = self.within
            kind = "noisy quantiles" if self.origin == NOISY else "training range"
            yield (
                f"{_rows(self.outside)} outside the {kind} of column {self.column!r}, {low:.4g} to {high:.4g}: "
                "the model is unreliable for such rows."
            )
        if self.unknown:
            yield (
                f"{_rows(self.unknown)} of an unknown category in column {self.column!r} ({quote_names(self.values)}), "
                "which is taken as missing; --unknown refuse refuses such rows."
            )


def _rows(count: int) -> str:
    return "1 row is" if count == 1 else f"{count} rows are"


def numeric_drift(
    column: str,
    values: FloatArray,
    offset: float,
    scale: float,
    kind: str,
    declared: Sequence[float] | None,
    window: Sequence[float] | None = None,
) -> ColumnDrift:
    """Return how numbers (n,), NaN where missing, differ from training rows on a scale of a kind.

    window: the ends of noisy statistics, if the scale has some.
    """
    present = values[~np.isnan(values)]
    moments = (offset - DEVIATIONS * scale, offset + DEVIATIONS * scale)
    within, origin = None, ""
    if declared is not None:
        within, origin = (float(declared[0]), float(declared[1])), "declared"
    elif window is not None:
        within, origin = (float(window[0]), float(window[1])), NOISY
    elif kind == "minmax":
        within, origin = (offset - scale, offset + scale), "minmax"
    elif kind == "standard":
        within, origin = moments, f"mean and {DEVIATIONS:.0f} SD"
    if within is None or not len(present):
        return ColumnDrift(column, len(values), int(np.isnan(values).sum()))
    plain_share = 0.0 if origin in ("declared", "minmax") else _MOST_OUTSIDE
    unlikely = (min(within[0], moments[0]), max(within[1], moments[1])) if origin == NOISY else within
    is_far = kind == "standard" and bool((np.abs(present - offset) > _FAR * scale).any())
    return ColumnDrift(
        column,
        len(values),
        int(np.isnan(values).sum()),
        _count_outside(present, within),
        within=within,
        shift=float((present.mean() - offset) / scale) if kind == "standard" else None,
        origin=origin,
        is_plain=_count_outside(present, unlikely) <= plain_share * len(present) and not is_far,
    )


def _count_outside(values: FloatArray, within: tuple[float, float]) -> int:
    """Return how many values are outside a range, by more than rounding."""
    slack = 1e-9 * (within[1] - within[0])
    return int(((values < within[0] - slack) | (values > within[1] + slack)).sum())


def category_drift(column: str, values: NDArray[np.str_], known: Iterable[str]) -> ColumnDrift:
    """Return how texts (n,), "" where missing, differ from the known categories."""
    missing = values == ""
    is_unknown = ~missing & ~np.isin(values, list(known))
    listed = tuple(sorted(set(values[is_unknown].tolist())))[:_LISTED]
    return ColumnDrift(column, len(values), int(missing.sum()), unknown=int(is_unknown.sum()), values=listed)


def sparse_rows(table: Mapping[str, NDArray[np.generic]], columns: Sequence[str]) -> str | None:
    """Return a warning about rows that lack more than half of their values; None if there are none."""
    gaps = np.zeros(len(table[columns[0]]) if columns else 0)
    for name in columns:
        values = table[name]
        gaps += np.asarray(values == "" if values.dtype.kind == "U" else np.isnan(values.astype(np.float64)))
    sparse = np.flatnonzero(gaps > len(columns) / 2) + 1
    if not len(sparse):
        return None
    more = f" and {len(sparse) - _LISTED} more" if len(sparse) > _LISTED else ""
    listed = ", ".join(map(str, sparse[:_LISTED].tolist()))
    subject, verb = ("Row", "lacks") if len(sparse) == 1 else ("Rows", "lack")
    return f"{subject} {listed}{more} {verb} more than half of the values."


def drift(
    table: Mapping[str, NDArray[np.generic]],
    columns: Sequence[str],
    origins: Mapping[str, str],
    scale: Scale,
    kind: str,
    ranges: Mapping[str, Sequence[float]],
    categories: Mapping[str, Sequence[str]],
) -> tuple[ColumnDrift, ...]:
    """Return the drift of every column of a table that the model uses.

    Parameters
    ----------
    table : mapping of str to array
        Columns of the new rows.
    columns : sequence of str
        The model's columns.
    origins : mapping of str to str
        The column of the table that each of these comes from.
    scale : Scale
        The scale of the model's columns.
    kind : str
        The kind of the scale, as in `data.scale`.
    ranges : mapping of str to sequence of float
        Declared ranges.
    categories : mapping of str to sequence of str
        Known categories of each categorical column.
    """
    found = []
    for name in dict.fromkeys(origins[column] for column in columns):
        values = table[name]
        if values.dtype.kind == "U":
            found.append(category_drift(name, values.astype(np.str_), categories.get(name, ())))
        elif name in columns:
            at = columns.index(name)
            offset, width = float(scale.offset[at]), float(scale.scale[at])
            window = None if scale.window is None else scale.window[:, at].tolist()
            found.append(numeric_drift(name, values.astype(np.float64), offset, width, kind, ranges.get(name), window))
    return tuple(found)
