"""Linear algebra over the integers modulo 2^64: whether a vector is a combination of others, and its coefficients.

The even residues are zero divisors, so Gaussian elimination cannot divide by an arbitrary pivot. It uses the pivot with
the fewest factors of 2, since every other entry in its column is a multiple of it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SPARE_COLUMNS = 64
"""In k + 64 columns, a random vector is a combination of k others, even modulo 2 only, with probability 2^-64."""


class Span:
    """All combinations of some vectors with coefficients modulo 2^64.

    Parameters
    ----------
    rows : uint64 array of shape (k, d)
        The vectors.
    """

    def __init__(self, rows: NDArray[np.uint64]) -> None:
        self._count, self._width = rows.shape
        work = np.hstack([rows, np.eye(self._count, dtype=np.uint64)])
        self._pivots: list[_Pivot] = []
        while (pivot_place := _fewest_factors_of_two(work[:, : self._width])) is not None:
            row, column = pivot_place
            pivot = _Pivot.of(work[row], column)
            work = np.delete(work, row, axis=0)
            work = work - (work[:, column] >> pivot.shift)[:, None] * pivot.row
            self._pivots.append(pivot)

    def combination(self, target: NDArray[np.uint64]) -> NDArray[np.uint64] | None:
        """Return `target` as a combination of the rows.

        Parameters
        ----------
        target : uint64 array of shape (d,)

        Returns
        -------
        uint64 array of shape (k,), or None
            Coefficients c with sum_i c_i row_i = target modulo 2^64; None if there are none.
        """
        rest = np.concatenate([target, np.zeros(self._count, dtype=np.uint64)])
        for pivot in self._pivots:
            rest = rest - (rest[pivot.column] >> pivot.shift) * pivot.row
        return None if rest[: self._width].any() else np.negative(rest[self._width :])


def are_combinations(vectors: Sequence[NDArray[np.uint64]], others: NDArray[np.uint64]) -> list[bool]:
    """Return which vectors are combinations of others, with enough columns to rule out a coincidence.

    Parameters
    ----------
    vectors : sequence of uint64 arrays of shape (d,)
    others : uint64 array of shape (k, d)

    Returns
    -------
    list of bool
        One value for each vector. All are False if d is less than k + 64. A vector of zeros is False, although it is a
        combination of any vectors.
    """
    enough = len(others) + _SPARE_COLUMNS
    width = others.shape[1]
    if width < enough:
        return [False] * len(vectors)
    spread = np.linspace(0, width - 1, enough).astype(np.int64)
    columns = functools.reduce(np.union1d, (np.flatnonzero(vector)[:enough] for vector in vectors), spread)
    span = Span(others[:, columns])
    return [bool(vector.any()) and span.combination(vector[columns]) is not None for vector in vectors]


@dataclass(frozen=True)
class _Pivot:
    """A row whose entry in `column` is 2^shift, followed by its coefficients in the original rows."""

    row: NDArray[np.uint64]
    column: int
    shift: np.uint64

    @classmethod
    def of(cls, row: NDArray[np.uint64], column: int) -> _Pivot:
        """Return the row times the inverse of the odd factor of its entry."""
        entry = int(row[column])
        shift = (entry & -entry).bit_length() - 1
        return cls(row * np.uint64(pow(entry >> shift, -1, 1 << 64)), column, np.uint64(shift))


def _fewest_factors_of_two(rows: NDArray[np.uint64]) -> tuple[int, int] | None:
    """Return row and column of the entry with the fewest factors of 2; None if all are 0."""
    lowest_bits = rows & (~rows + np.uint64(1))
    if not lowest_bits.any():
        return None
    row, column = np.unravel_index(np.argmin(lowest_bits - np.uint64(1)), rows.shape)
    return int(row), int(column)
