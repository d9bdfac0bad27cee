"""Rows whose numbers are mostly 0. Only the others are held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray

MOST_SHARE = 0.25
"""Of numbers other than 0 in rows that are held sparse. A number takes twice the memory there, with its column."""

LEAST_NUMBERS = 1 << 18
"""Numbers of rows that are held sparse; 2 MiB."""


@dataclass(frozen=True)
class SparseRows:
    """Rows (n, p) as compressed sparse rows.

    Parameters
    ----------
    starts : (n + 1,) IntArray
        Where each row begins in `places` and `values`, and their length.
    places, values : (k,) IntArray, FloatArray
        The columns of the numbers other than 0, row by row, and these numbers.
    width : int
        The number of columns.
    """

    starts: IntArray
    places: IntArray
    values: FloatArray
    width: int

    @classmethod
    def of(cls, rows: FloatArray) -> Self:
        """Return rows (n, p) as sparse ones."""
        of_rows, places = np.nonzero(rows)
        starts = np.append(0, np.cumsum(np.bincount(of_rows, minlength=len(rows))))
        return cls(starts, places, rows[of_rows, places], rows.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return len(self), self.width

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.starts) - 1

    def __getitem__(self, some: slice | IntArray | BoolArray) -> FloatArray:
        """Return (k, p) some rows with all their numbers."""
        rows = np.arange(len(self))[some]
        counts = self.starts[rows + 1] - self.starts[rows]
        ends = np.cumsum(counts)
        at = np.arange(counts.sum()) + np.repeat(self.starts[rows] - (ends - counts), counts)
        found = np.zeros((len(rows), self.width))
        found[np.repeat(np.arange(len(rows)), counts), self.places[at]] = self.values[at]
        return found


Numbers = FloatArray | SparseRows
"""Rows (n, p) that are read some at a time."""


def is_sparse(rows: FloatArray) -> bool:
    """Return whether rows (n, p) take much less memory as sparse ones."""
    return rows.size >= LEAST_NUMBERS and int(np.count_nonzero(rows)) <= MOST_SHARE * rows.size
