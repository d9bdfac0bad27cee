"""Rows by comparing rounds of k-means over all sites: a cluster that gains or loses one row gives it away.

What is known of a row then is which cluster it is in at every round, so that it can be taken off all of them, which
leaves clusters of fewer rows. The labels are not in these sums.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from algorithms.attacks.contract import Attack, Claim, Prior, Ranking
from algorithms.attacks.epochs import Epoch, epochs
from algorithms.attacks.row_counts import SAME_WITHIN, RowCounts
from algorithms.features import k_means
from algorithms.features.cluster_differences import ClusterSums, differing_rows
from algorithms.features.k_means import GRID, on_grid
from algorithms.features.kernels import squared_distances
from federation.arrays import FloatArray, IntArray
from protocols.analysis.views import RunView


class ClusterRounds(Attack):
    """Differences of clusters of any two rounds, and the rows in them peeled off."""

    name = "rounds of k-means"

    def __call__(self, view: RunView, prior: Prior) -> Iterator[Claim | Ranking]:
        """Every clustering by itself; folds and repetitions add up."""
        counts: RowCounts | None = None
        residual = 0.0
        for epoch in epochs(view):
            own = epoch.scale(prior.own.rows) if prior.own is not None else np.zeros((0, epoch.columns))
            for rounds in clusterings(epoch, own):
                counts = counts or RowCounts(epoch.columns)
                rows = peel(rounds, times=2 if epoch.category_columns == epoch.columns else 1)
                counts.take(epoch.unscaled(rows), np.full(len(rows), np.nan), SAME_WITHIN * epoch.scale.scale)
                residual = max(residual, float(np.abs(rows - on_grid(rows)).max(initial=0.0)))
        if counts is not None:
            yield Claim(*counts.repeated, residual)


def clusterings(epoch: Epoch, own: FloatArray) -> list[list[ClusterSums]]:
    """Of every clustering the rounds over the honest sites' rows, where the coalition opened them.

    Centres are what the site that opened the sums before made of them; whoever has these, and its own rows (n, p),
    makes the same.
    """
    found: list[list[ClusterSums]] = []
    total: FloatArray | None = None
    for plan, opened in zip(epoch.of("take_centres"), epoch.of("cluster_sums"), strict=False):
        round_ = k_means.Round(**plan.parameters["plan"])
        if round_.number == 0:
            found.append([])
            centres = np.zeros((1, epoch.columns))
        elif total is not None:
            centres = round_.centres(total, plan.parameters["min_cluster_size"], plan.parameters["seed"])
        total = None
        if len(opened.sums) == 1 and found:
            (honest,) = opened.sums.values()
            among_own = k_means.cluster_sums(own, centres)
            total = honest.copy()
            total[: len(centres)] += among_own
            found[-1].append(ClusterSums(centres, honest[: len(centres)]))
        else:
            found.append([])
    return [rounds for rounds in found if rounds]


def peel(rounds: list[ClusterSums], times: int = 1) -> FloatArray:
    """All rows (k, p) that come out of some rounds over the same rows; a row that is there twice comes out twice.

    times: from how many pairs of clusters a row must come out. Of categories one may be a coincidence.
    """
    moments = [each.moments for each in rounds]
    found = [rounds[0].centres[:0]]
    while len(new := _on_the_grid(_differences(rounds, moments))):
        rows, seen = np.unique(new, axis=0, return_counts=True)
        taken = [row for row in rows[seen >= times] if _take_off(rounds, moments, row)]
        if not taken:
            break
        found.append(np.array(taken))
    return np.concatenate(found)


def _differences(rounds: list[ClusterSums], moments: list[FloatArray]) -> FloatArray:
    """Rows (k, p) by which clusters of any two rounds differ, or that are alone in one."""
    nowhere = ClusterSums(np.full((1, rounds[0].centres.shape[1]), np.inf), np.zeros((1, moments[0].shape[1])))
    pairs = itertools.combinations(zip([*rounds, nowhere], [*moments, nowhere.sums], strict=True), 2)
    return np.concatenate([_rows_between(*one, *other) for one, other in pairs])


def _rows_between(one: ClusterSums, first: FloatArray, other: ClusterSums, second: FloatArray) -> FloatArray:
    """Rows (k, p) by which a cluster of one round and one of another differ, in the one and not in the other.

    Of categories the sum of two rows less a third may be a row too, with a square that is right. Then it is where it is
    by chance only.
    """
    rows, gained, lost = differing_rows(first, second)
    in_first, in_second = _nearest(rows, one.centres), _nearest(rows, other.centres)
    joined = (first[gained, -1] > second[lost, -1]) & (in_first == gained) & (in_second != lost)
    left = (first[gained, -1] < second[lost, -1]) & (in_first != gained) & (in_second == lost)
    return np.asarray(rows[joined | left])


def _nearest(rows: FloatArray, centres: FloatArray) -> IntArray:
    """(k,) which centre each row is nearest to; none, -1, where there are none."""
    if not np.isfinite(centres).all():
        return np.full(len(rows), -1)
    return np.asarray(squared_distances(rows, centres).argmin(axis=1))


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
