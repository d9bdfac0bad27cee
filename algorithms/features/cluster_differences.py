"""Single rows among the sums of clusters that rounds of k-means over all sites show (`features.landmarks`, `global`).

A round shows of every cluster the sum S of its rows, the sum of their squared distances to its centre c, and their
number n. From these follows Q, the sum of the rows' squared lengths: Q = spread + 2 c.S - n |c|^2. Clusters of two
rounds whose rows differ by one row x have S - S' = x and Q - Q' = |x|^2, and x is nearest to the one centre and not to
the other; of three rows or more, the square of the sum is the sum of the squares by coincidence only. So whoever sees
the sums knows which differences are rows. Where columns have few values, such as zeros and ones, coincidences happen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.features.kernels import squared_distances
from fedsvm.federation.arrays import FloatArray, IntArray

SAME_SQUARE = 1e-7
"""Of a row and of what is said of its square, as a share of 1 + |x|^2, rounding leaves less."""

_COUNT_ROUNDING = 2.0**-15


@dataclass(frozen=True)
class ClusterMoments:
    """One round: centres (l, p), and of each cluster the sums of its rows, of their squared lengths, and their number.

    moments: (l, p + 2).
    """

    centres: FloatArray
    moments: FloatArray

    @classmethod
    def of_sums(cls, centres: FloatArray, sums: FloatArray) -> ClusterMoments:
        """Return moments from what a round shows (l, p + 2): sums of rows, of their squared distances to the centers,
        and counts."""
        rows, spread, count = sums[:, :-2], sums[:, -2], sums[:, -1]
        squares = spread + 2.0 * (centres * rows).sum(axis=1) - count * (centres**2).sum(axis=1)
        return cls(centres, np.column_stack([rows, squares, count]))

    def nearest(self, rows: FloatArray) -> IntArray:
        """Return (k,) the cluster of each row (k, p)."""
        return np.asarray(squared_distances(rows, self.centres).argmin(axis=1))


def lone_rows(clusters: ClusterMoments) -> FloatArray:
    """Return (k, p) rows that are alone in a cluster."""
    return clusters.moments[np.abs(clusters.moments[:, -1] - 1.0) < _COUNT_ROUNDING, :-2]


def differing_rows(one: ClusterMoments, other: ClusterMoments) -> FloatArray:
    """Return (k, p) rows by which a cluster of one round and a cluster of another differ, with repetitions."""
    counts = one.moments[:, None, -1] - other.moments[None, :, -1]
    first, second = np.nonzero(np.abs(np.abs(counts) - 1.0) < _COUNT_ROUNDING)
    differences = one.moments[first] - other.moments[second]
    in_first = differences[:, -1] > 0
    differences *= np.rint(differences[:, -1:])
    rows = differences[:, :-2]
    squares = (rows**2).sum(axis=1)
    same = np.abs(squares - differences[:, -2]) < SAME_SQUARE * (1.0 + squares)
    same &= ((one.nearest(rows) == first) == in_first) & ((other.nearest(rows) == second) != in_first)
    return np.asarray(rows[same])
