"""Single rows among the sums of clusters that rounds of k-means over all sites show (`features.landmarks`, `global`).

A round shows of every cluster the sum S of its rows, the sum of their squared distances to its centre c, and their
number n. From these follows Q, the sum of the rows' squared lengths: Q = spread + 2 c.S - n |c|^2. Two clusters, of one
round or of two, whose rows differ by one row x have S - S' = x and Q - Q' = |x|^2; of two rows or more, the square of
the sum is not the sum of the squares. So whoever sees the sums knows which differences are rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from federation.arrays import FloatArray, IntArray

SAME_SQUARE = 1e-7
"""Of a row and of what is said of its square, as a share of 1 + |x|^2, rounding leaves less."""

_COUNT_ROUNDING = 2.0**-15


@dataclass(frozen=True)
class ClusterSums:
    """One round: centres (l, p), and sums (l, p + 2) of each cluster's rows, their squared distances, their number."""

    centres: FloatArray
    sums: FloatArray

    @property
    def moments(self) -> FloatArray:
        """(l, p + 2): the sums of rows, of their squared lengths, and their number."""
        rows, spread, count = self.sums[:, :-2], self.sums[:, -2], self.sums[:, -1]
        squares = spread + 2.0 * (self.centres * rows).sum(axis=1) - count * (self.centres**2).sum(axis=1)
        return np.column_stack([rows, squares, count])


def differing_rows(one: FloatArray, other: FloatArray) -> tuple[FloatArray, IntArray, IntArray]:
    """(k, p) rows by which a cluster of one round and one of another differ, and which clusters (k,), (k,) these are.

    one, other: (l, p + 2), as `ClusterSums.moments`; of one cluster without rows, zeros.
    """
    first, second = np.nonzero(np.abs(np.abs(one[:, None, -1] - other[None, :, -1]) - 1.0) < _COUNT_ROUNDING)
    differences = one[first] - other[second]
    differences *= np.rint(differences[:, -1:])
    squares = (differences[:, :-2] ** 2).sum(axis=1)
    same = np.abs(squares - differences[:, -2]) < SAME_SQUARE * (1.0 + squares)
    return differences[same, :-2], first[same], second[same]
