"""Rows by comparing rounds of k-means over all sites: a cluster that gains or loses one row gives it away.

What is known of a row then is which cluster it is in at every round, so that it can be taken off all of them, which
leaves clusters of fewer rows. The labels are not in these sums.

Where all columns are categories, squares do not tell one row from three (x + x' - x'' has the square of a row whenever
x - x'' and x' - x'' are orthogonal, which zeros and ones often are); there only clusters of one row are taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from fedsvm.algorithms.attacks.attack import Prior
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.row_counts import CountingAttack, ShownRows
from fedsvm.algorithms.features import k_means
from fedsvm.algorithms.features.cluster_differences import SAME_SQUARE, ClusterMoments, differing_rows, lone_rows
from fedsvm.algorithms.features.k_means import GRID, on_grid
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RunView


class ClusterRounds(CountingAttack):
    """Differences of clusters of any two rounds, and the rows in them peeled off."""

    name = "rounds of k-means"

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows of each clustering."""
        for epoch in epochs(view):
            own = epoch.scale(prior.own.rows) if prior.own is not None else np.zeros((0, epoch.columns))
            for rounds in clusterings(epoch, own):
                rows = peel(rounds, alone=epoch.category_columns == epoch.columns)
                residual = float(np.abs(rows - on_grid(rows)).max(initial=0.0))
                yield ShownRows.of(epoch, epoch.unscale(rows), np.full(len(rows), np.nan), residual)


def clusterings(epoch: Epoch, own: FloatArray) -> list[list[ClusterMoments]]:
    """Return for each clustering the rounds over the honest sites' rows, if the coalition opened them.

    Centres are what the site that opened the sums before made of them; whoever has these, and its own rows (n, p),
    makes the same.
    """
    found: list[list[ClusterMoments]] = []
    total: FloatArray | None = None
    for plan, opened in zip(epoch.of("take_centres"), epoch.of("cluster_sums"), strict=False):
        round_ = k_means.ClusterRound(**plan.parameters["plan"])
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
            found[-1].append(ClusterMoments.of_sums(centres, honest[: len(centres)]))
        else:
            found.append([])
    return [rounds for rounds in found if rounds]


def peel(rounds: list[ClusterMoments], *, alone: bool = False) -> FloatArray:
    """Return all rows (k, p) that follow from some rounds over the same rows; a row that occurs twice is returned
    twice.

    alone: take rows that are alone in a cluster, and no differences. The rounds' moments are those without these rows
    afterwards.
    """
    found = [rounds[0].centres[:0]]
    while len(new := _on_the_grid(_differences(rounds, alone=alone))):
        taken = [row for row in np.unique(new, axis=0) if _take_off(rounds, row)]
        if not taken:
            break
        found.append(np.array(taken))
    return np.concatenate(found)


def _differences(rounds: list[ClusterMoments], *, alone: bool) -> FloatArray:
    """Return rows (k, p) that are alone in a cluster, or by which clusters of two rounds differ."""
    pairs = [] if alone else itertools.combinations(rounds, 2)
    return np.concatenate([*map(lone_rows, rounds), *(differing_rows(*pair) for pair in pairs)])


def _on_the_grid(rows: FloatArray) -> FloatArray:
    """Return the rows that lie on a grid, up to rounding of the sums, as this method requires."""
    rounded = on_grid(rows)
    return np.asarray(rounded[(np.abs(rows - rounded) < GRID / 16).all(axis=1)])


def _take_off(rounds: list[ClusterMoments], row: FloatArray) -> bool:
    """Subtract a row from its cluster in every round; False where what would be left is of no rows.

    The sum of k rows' squares is at least the square of their sum, divided by k.
    """
    places = [int(each.nearest(row[None])[0]) for each in rounds]
    off = np.concatenate([row, [row @ row, 1.0]])
    rest = np.array([each.moments[place] - off for each, place in zip(rounds, places, strict=True)])
    counts = np.rint(rest[:, -1])
    spare = rest[:, -2] - (rest[:, :-2] ** 2).sum(axis=1) / np.maximum(counts, 1)
    if (counts < 0).any() or (spare < -SAME_SQUARE * (1.0 + np.abs(rest[:, -2]))).any():
        return False
    for each, place, left in zip(rounds, places, rest, strict=True):
        each.moments[place] = left
    return True
