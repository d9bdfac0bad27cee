"""Rows by which clusters of two folds differ, from their means, which everybody is sent.

A cluster of k rows that lost one in another fold has k L - (k - 1) L' for this row. With a list of candidates a row is
claimed if it is on it. Without a list rows are ranked by their distance from the cluster, since no check tells them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.subset_sums import MOST_ROWS, SAME_SUM
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RunView

_MOST_FOLDS = 10
_NEAREST = 3
"""Landmarks of another fold that a cluster may have become, by their distance."""

_SAME_MEAN = 1e-9
"""Landmarks that differ by less of each column's deviation are of the same rows."""


class FoldDifferences(Attack):
    """Rows that two folds' landmarks differ by. smallest: rows of a cluster, at least."""

    name = "differences of folds"

    def __init__(self, smallest: int) -> None:
        self._smallest = smallest

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Yield the listed rows among the differences, or without a list all differences, the likeliest first."""
        folds = [each for each in epochs(view) if each.inverse is not None][:_MOST_FOLDS]
        if len(folds) < 2:
            return
        scale = folds[0].scale
        rows, away = self._differences([scale(landmarks_of(each)) for each in folds])
        if prior.candidates is not None:
            yield self._match_listed(folds[0], rows, prior.candidates, prior.own)
        elif len(rows):
            unscaled = folds[0].unscale(rows)
            yield CandidateScores(LabeledRows(unscaled, np.full(len(rows), np.nan)), -away)

    def _differences(self, landmarks: list[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Return scaled rows (n, p), and their distances (n,) from the cluster that they may have left."""
        from scipy.spatial import cKDTree  # an audit alone has a use for it

        sizes = np.arange(max(2, self._smallest), MOST_ROWS + 1, dtype=np.float64)[:, None, None, None]
        found = [np.zeros((0, landmarks[0].shape[1]))]
        distances = [np.zeros(0)]
        for whole, less in permutations(landmarks, 2):
            apart, near = cKDTree(less).query(whole, k=min(_NEAREST, len(less)))
            apart, near = np.asarray(apart).reshape(len(whole), -1), np.asarray(near).reshape(len(whole), -1)
            means = less[near]
            rows = sizes * whole[:, None] - (sizes - 1) * means
            changed = np.broadcast_to(apart > _SAME_MEAN, rows.shape[:-1])
            found.append(rows[changed])
            distances.append(np.linalg.norm(rows - means, axis=-1)[changed])
        rows, away = np.vstack(found), np.concatenate(distances)
        _, first = np.unique(np.round(rows / SAME_SUM), axis=0, return_index=True)
        return rows[first], away[first]

    def _match_listed(
        self, epoch: Epoch, rows: FloatArray, candidates: LabeledRows, own: LabeledRows | None
    ) -> RowClaim:
        from scipy.spatial import cKDTree

        scaled = epoch.scale(candidates.rows)
        near = cKDTree(rows).query(scaled, p=np.inf)[0] if len(rows) else np.full(len(scaled), np.inf)
        named = near < SAME_SUM
        if own is not None and len(own.rows):
            named &= cKDTree(epoch.scale(own.rows)).query(scaled, p=np.inf)[0] > SAME_SUM
        return RowClaim(candidates.rows[named], candidates.labels[named], float(near[named].max(initial=0.0)))


def landmarks_of(epoch: Epoch) -> FloatArray:
    """Return the landmarks (l, p) as rows that are not scaled."""
    if epoch.inverse is None:
        raise AssertionError("there is a map by landmarks")
    return epoch.unscale(epoch.inverse.landmarks)
