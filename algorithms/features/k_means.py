"""k-means by sums over rows, wherever these are: what each step does, and nothing of who asks.

It grows by binary splitting (Linde, Buzo and Gray 1980), which needs no row to start from: `rounds` says how many
centres there may be when, `cluster_sums` adds up the rows, and `ClusterRound.centres` computes the centres. Where
clusters must not be small, splitting those that are large comes to nearly as many centres as are asked for; seeds
that are rows would leave many of them to be merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.features.kernels import squared_distances
from fedsvm.federation.arrays import FloatArray, IntArray

SPLIT_ITERATIONS = 2
FINAL_ITERATIONS = 10
SPARE_SPLITS = 2
"""Splits beyond those that doubling takes, since clusters that are small, or of equal rows, are not split."""

GRID = 2.0**-16
"""Rows and centres of k-means over sums lie on this grid: their distances are then exact in float64, so that ties fall
the same way however the rows are spread over the sites."""

_ROWS_OF_CENTRE = 256
"""Rows for each centre from which local centres are sought; faiss takes as many."""

_SEEDS = 2**32
_MOST_DISTANCES = 1 << 17
"""Distances between rows and centers that are computed at a time: they stay in the cache."""


# Of sums.


@dataclass(frozen=True)
class ClusterRound:
    """A round of k-means. number: from 0. slots: how many centres it may have. splits: clusters are split before it."""

    number: int
    slots: int
    splits: bool

    def centres(self, sums: FloatArray, min_cluster_size: int, seed: int) -> FloatArray:
        """Return the centers (l, p) of this round, from the sums of the one before; deterministic."""
        clusters = Clusters.of_sums(sums, min_cluster_size)
        if not self.splits:
            return clusters.centres
        return clusters.split(self.slots, 2 * min_cluster_size, np.random.default_rng([seed, self.number]))


def rounds(count: int) -> list[ClusterRound]:
    """Return the rounds on the way to at most `count` centers. Their number does not depend on any row."""
    splits = math.ceil(math.log2(count)) + SPARE_SPLITS
    grown = [min(count, 2 ** (1 + number // SPLIT_ITERATIONS)) for number in range(splits * SPLIT_ITERATIONS)]
    growing = [ClusterRound(1 + number, slots, number % SPLIT_ITERATIONS == 0) for number, slots in enumerate(grown)]
    final = [ClusterRound(1 + len(grown) + number, count, False) for number in range(FINAL_ITERATIONS)]
    return [ClusterRound(0, 1, False), *growing, *final]


def cluster_sums(rows: FloatArray, centres: FloatArray) -> FloatArray:
    """Return (l, p + 2) per center, for the rows nearest to it: their sum, that of squared distances, their number."""
    return _GridRows.of(rows).cluster_sums(centres)


@dataclass(frozen=True)
class _GridRows:
    """Rows (n, p) on the grid, and their squares (n,), for several rounds."""

    rows: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, rows: FloatArray) -> _GridRows:
        gridded = on_grid(rows)
        return cls(gridded, np.einsum("ij,ij->i", gridded, gridded))

    def cluster_sums(self, centres: FloatArray) -> FloatArray:
        """Return what the function of this name returns."""
        if not len(centres):
            return np.zeros((0, self.rows.shape[1] + 2))
        return _add_up([self._sums(block, centres) for block in _blocks(self.rows, centres)])

    def _sums(self, block: slice, centres: FloatArray) -> FloatArray:
        rows, count = self.rows[block], len(centres)
        beyond = rows @ (-2.0 * centres.T)  # squared distances, without the squares of the rows
        beyond += np.einsum("ij,ij->i", centres, centres)
        nearest, places = beyond.argmin(axis=1), np.arange(len(rows))
        spread = np.maximum(self.squares[block] + beyond[places, nearest], 0.0)
        members = np.zeros_like(beyond)
        members[places, nearest] = 1.0
        spreads, sizes = np.bincount(nearest, spread, count), np.bincount(nearest, minlength=count)
        return np.column_stack([members.T @ rows, spreads, sizes])


@dataclass(frozen=True)
class Clusters:
    """centres (l, p), spreads (l,) sums of squared distances, sizes (l,)."""

    centres: FloatArray
    spreads: FloatArray
    sizes: FloatArray

    @classmethod
    def of_sums(cls, sums: FloatArray, min_cluster_size: int) -> Clusters:
        """Return the means of large enough clusters. Rows of others join the nearest in the next round."""
        sizes = np.rint(sums[:, -1])
        kept = sizes >= max(1, min_cluster_size)
        return cls(on_grid(sums[kept, :-2] / sizes[kept, None]), sums[kept, -2], sizes[kept])

    def split(self, count: int, least: int, random: np.random.Generator) -> FloatArray:
        """Return the centers, with those of the widest clusters of at least `least` rows split in two, at most
        `count`."""
        splittable = np.flatnonzero((self.sizes >= least) & (self.spreads > 0))
        widest = splittable[np.argsort(-self.spreads[splittable], kind="stable")][: count - len(self.centres)]
        deviation = np.sqrt(self.spreads / np.maximum(self.sizes, 1) / self.centres.shape[1])
        signs = random.choice([-1.0, 1.0], size=self.centres.shape)
        step_away = 0.5 * deviation[:, None] * signs
        stay = np.setdiff1d(np.arange(len(self.centres)), widest)
        halves = [self.centres[widest] - step_away[widest], self.centres[widest] + step_away[widest]]
        return on_grid(np.vstack([self.centres[stay], *halves]))


def on_grid(values: FloatArray) -> FloatArray:
    """Return the nearest multiples of 2^-16."""
    found = values / GRID
    np.rint(found, out=found)
    found *= GRID
    return found


# Of rows.


def pooled_centres(rows: FloatArray, count: int, min_cluster_size: int, seed: int) -> FloatArray:
    """Return at most `count` centers (l, p) of local rows (n, p), equal to those from sums over sites with these
    rows."""
    sums, gridded = np.zeros((0, rows.shape[1] + 2)), _GridRows.of(rows)
    for each in rounds(count):
        centres = each.centres(sums, min_cluster_size, seed) if each.number else np.zeros((1, rows.shape[1]))
        sums = gridded.cluster_sums(centres)
    return Clusters.of_sums(sums, min_cluster_size).centres


def local_centres(
    rows: FloatArray, quota: int, min_cluster_size: int, random: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Return at most `quota` k-means centers (l, p) of rows (n, p) and the sizes (l,) of their clusters.

    Of many rows, some drawn at random decide which rows are clusters; the centers are the means of all of their rows.
    Clusters of fewer than `min_cluster_size` rows are merged into their nearest, the smallest first.
    """
    count, seed = min(quota, len(rows)), int(random.integers(_SEEDS))
    some, least = rows, min_cluster_size
    if len(rows) > (most := _ROWS_OF_CENTRE * count):
        some, least = rows[random.choice(len(rows), most, replace=False)], math.ceil(least * most / len(rows))
    largest = float(max(some.max(initial=0.0), -some.min(initial=0.0))) or 1.0  # the grid is for a common scale
    centres = largest * pooled_centres(some / largest, count, least, seed) if count else rows[:0]
    while len(centres):
        sums = _add_up([_member_sums(rows[block], centres) for block in _blocks(rows, centres)])
        sizes = sums[:, -1]
        if sizes.min() >= max(1, min_cluster_size):
            return sums[:, :-1] / sizes[:, None], sizes.astype(np.int64)
        centres = np.delete(centres, sizes.argmin(), axis=0)
    return centres, np.zeros(0, dtype=np.int64)


def _member_sums(rows: FloatArray, centres: FloatArray) -> FloatArray:
    """Return (l, p + 1) per center the sum and the number of the rows nearest to it."""
    members = np.eye(len(centres))[squared_distances(rows, centres).argmin(axis=1)]
    return np.column_stack([members.T @ rows, members.sum(axis=0)])


def _blocks(rows: FloatArray, centres: FloatArray) -> Iterator[slice]:
    """Yield slices of the rows, with a bounded number of distances to centers each."""
    length = max(1, _MOST_DISTANCES // len(centres))
    for start in range(0, max(1, len(rows)), length):
        yield slice(start, start + length)


def _add_up(parts: Sequence[FloatArray]) -> FloatArray:
    """Return the sum of the blocks' sums."""
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)
