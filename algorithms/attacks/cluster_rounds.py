"""Rows by comparing rounds of k-means over all sites: a cluster that gains or loses one row gives it away.

What is known of a row then is which cluster it is in at every round, so that it can be taken off all of them, which
leaves clusters of fewer rows. The labels are not in these sums.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from algorithms.attacks.contract import Attack, Claim, Prior, Ranking
from algorithms.attacks.epochs import epochs
from algorithms.attacks.row_counts import SAME_WITHIN, RowCounts
from algorithms.features.cluster_differences import ClusterSums, differing_rows
from algorithms.features.kernels import squared_distances
from algorithms.features.landmarks import GRID, on_grid
from federation.arrays import FloatArray
from protocols.analysis.views import RoundView, RunView


class ClusterRounds(Attack):
    """Differences of clusters of any two rounds, and the rows in them peeled off."""

    name = "rounds of k-means"

    def __call__(self, view: RunView, prior: Prior) -> Iterator[Claim | Ranking]:
        """Every set of honest sites by itself; folds and repetitions add up."""
        counts: RowCounts | None = None
        residual = 0.0
        for epoch in epochs(view):
            for rounds in _by_sites(epoch.of("cluster_sums")):
                counts = counts or RowCounts(epoch.columns)
                rows = peel(rounds)
                counts.take(epoch.unscaled(rows), np.full(len(rows), np.nan), SAME_WITHIN * epoch.scale.scale)
                residual = max(residual, float(np.abs(rows - on_grid(rows)).max(initial=0.0)))
        if counts is not None:
            yield Claim(*counts.repeated, residual)


def _by_sites(rounds: list[RoundView]) -> list[list[ClusterSums]]:
    """Rounds over the rows of the same sites together."""
    found: dict[tuple[str, ...], list[ClusterSums]] = {}
    for each in rounds:
        for sites, sums in each.sums.items():
            found.setdefault(sites, []).append(ClusterSums(each.parameters["centres"], sums))
    return list(found.values())


def peel(rounds: list[ClusterSums]) -> FloatArray:
    """All rows (k, p) that come out of some rounds over the same rows; a row that is there twice comes out twice."""
    moments = [each.moments for each in rounds]
    found = [rounds[0].centres[:0]]
    while len(new := _on_the_grid(_differences(moments))):
        taken = [row for row in np.unique(new, axis=0) if _take_off(rounds, moments, row)]
        if not taken:
            break
        found.append(np.array(taken))
    return np.concatenate(found)


def _differences(moments: list[FloatArray]) -> FloatArray:
    """Rows (k, p) by which clusters of any two rounds differ, or that are alone in one."""
    without_rows = np.zeros((1, moments[0].shape[1]))
    return np.concatenate([differing_rows(*pair) for pair in itertools.combinations([*moments, without_rows], 2)])


def _on_the_grid(rows: FloatArray) -> FloatArray:
    """Rows of this method lie on a grid, up to rounding of the sums."""
    rounded = on_grid(rows)
    return np.asarray(rounded[(np.abs(rows - rounded) < GRID / 16).all(axis=1)])


def _take_off(rounds: list[ClusterSums], moments: list[FloatArray], row: FloatArray) -> bool:
    """Subtract a row from its cluster in every round; False where one of these has no row left."""
    nearest = [int(squared_distances(row[None], each.centres).argmin()) for each in rounds]
    if any(moment[place, -1] < 0.5 for moment, place in zip(moments, nearest, strict=True)):
        return False
    for moment, place in zip(moments, nearest, strict=True):
        moment[place] -= np.concatenate([row, [row @ row, 1.0]])
    return True
