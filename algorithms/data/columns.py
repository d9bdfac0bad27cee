"""Columns of a source, and how rows in them become the scaled rows that a model is of."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.federation.arrays import FloatArray, IntArray


class LabeledRows(NamedTuple):
    """Rows (n, p) on the common scale, and their labels (n,): +1 and -1, or numbers of more than two classes."""

    rows: FloatArray
    labels: FloatArray


@dataclass(frozen=True)
class Schema:
    """Names of numeric and of categorical columns, and the values of those whose values are declared."""

    numeric: Sequence[str]
    categorical: Sequence[str] = ()
    declared: Mapping[str, Sequence[str]] = field(default_factory=dict)


INDICATED = " is missing"
"""The end of the name of a 0/1 column that marks missing values; before it stands the name of the marked column."""


@dataclass(frozen=True)
class Filling:
    """Values (q,) that replace missing numbers, by numeric column; NaN for a column that is not filled.

    indicated: numbers of the columns that have a 0/1 column, which marks the filled values.
    """

    values: FloatArray
    indicated: tuple[int, ...] = ()

    def __call__(self, numeric: FloatArray, encoded: FloatArray) -> FloatArray:
        """Return encoded rows (n, p) filled and with indicators; the first columns are the numeric ones (n, q)."""
        gaps = np.isnan(numeric)
        filled = encoded.copy()
        filled[:, : numeric.shape[1]] = np.where(gaps, self.values, numeric)
        return np.hstack([filled, gaps[:, list(self.indicated)]])


@dataclass(frozen=True)
class Columns:
    """Encoded columns: the numeric ones, then a 0/1 column for each value of a categorical one, on the common scale.

    filling: values for missing numbers; None if no number may be missing. Its indicators are the last columns.
    """

    numeric: Sequence[str]
    vocabulary: Vocabulary
    scale: Scale
    filling: Filling | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns: "column=value" for a category."""
        indicated = self.filling.indicated if self.filling is not None else ()
        return [*self.numeric, *self.vocabulary.columns, *(f"{self.numeric[j]}{INDICATED}" for j in indicated)]

    def encode(self, numeric: FloatArray, categorical: NDArray[np.str_]) -> FloatArray:
        """Return (n, p) encoded rows of numeric columns (n, q) and categorical ones (n, r) as text, not yet scaled."""
        encoded = self.vocabulary.encode(numeric, categorical)
        return encoded if self.filling is None else self.filling(numeric, encoded)

    def __call__(self, numeric: FloatArray, categorical: NDArray[np.str_]) -> FloatArray:
        """Return (n, p) scaled rows of numeric columns (n, q) and categorical ones (n, r) as text."""
        return self.scale(self.encode(numeric, categorical))

    def to_arrays(self, selected: IntArray | None = None) -> dict[str, NDArray[Any]]:
        """Return the columns as a model's file holds them.

        selected: numbers of the columns that the model uses; None if it uses all.

        Returns
        -------
        columns : (p,) text
            Names of the columns; those of a categorical one are "column=value".
        offset, scale : (p,)
            Common scale: a scaled row is (row - offset) / scale.
        window : (2, p)
            Lowest and highest values, to which rows are clipped before they are scaled. Only of noisy statistics.
        filling : (q,)
            Values that fill gaps of the numeric columns. Only if gaps are filled.
        left_out : text
            Names of the columns that the model does not use. Only of a model of chosen columns.
        filled : (q,) text
            Names of the numeric columns of `filling`. Only of a model of chosen columns.
        """
        names, filling = np.array(self.names), {} if self.filling is None else {"filling": self.filling.values}
        scale = self.scale if selected is None else self.scale.of_columns(selected)
        window = {} if scale.window is None else {"window": scale.window}
        if selected is None:
            return {"offset": scale.offset, "scale": scale.scale, **window, "columns": names, **filling}
        filled = {} if self.filling is None else {"filled": np.array(list(self.numeric))}
        return {
            "offset": scale.offset,
            "scale": scale.scale,
            **window,
            "columns": names[selected],
            "left_out": np.delete(names, selected),
            **filling,
            **filled,
        }


def column_sets(columns: Sequence[IntArray]) -> list[int]:
    """Return (q,) a number for the columns of each problem, which neighbors with the same columns share."""
    numbers = [0]
    for before, now in itertools.pairwise(columns):
        numbers.append(numbers[-1] + int(not np.array_equal(before, now)))
    return numbers
