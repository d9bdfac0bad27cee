"""Which column is missed least, by the rows that inner folds leave out, and what decides where that is a tie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsvm.algorithms.ranking import DecidedBy
from fedsvm.algorithms.selection.filters import SAME
from fedsvm.algorithms.selection.subsets import Subset
from fedsvm.algorithms.selection.training import SubsetTraining
from fedsvm.federation.arrays import FloatArray, IntArray


def held_out(training: SubsetTraining, columns: Sequence[IntArray], tolerance: float) -> tuple[FloatArray, FloatArray]:
    """(k,) rows that are right, and (k,) their loss, of models of some columns each, over all inner folds."""
    folds = range(training.settings.inner_folds)
    judged = training.judged([Subset(each, fold) for each in columns for fold in folds], tolerance)
    right, loss = (each.reshape(len(columns), -1).sum(axis=1) for each in (judged.right, judged.loss))
    return right, loss


def removal_of(
    places: Sequence[int], right: FloatArray, loss: FloatArray, ranks: FloatArray | IntArray
) -> tuple[IntArray, DecidedBy]:
    """The place (1,) without which most rows are right; then the least loss, the lowest rank, the higher place."""
    best = np.flatnonzero(right == right.max())
    decided: DecidedBy = "accuracy"
    if len(best) > 1:
        decided = "loss"
        best = best[loss[best] <= loss[best].min() + SAME * loss[best].max()]
    if len(best) > 1:
        decided = "rank"
        best = best[ranks[best] == ranks[best].min()]
    return np.array([max(places[place] for place in best.tolist())]), decided
