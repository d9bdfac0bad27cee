"""The choice of the column whose removal costs least, by the rows that inner folds leave out, with tie-breaking."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsvm.algorithms.ranking import DecidedBy
from fedsvm.algorithms.selection.filters import SAME
from fedsvm.algorithms.selection.subsets import Subset
from fedsvm.algorithms.selection.training import SubsetTraining
from fedsvm.federation.arrays import FloatArray, IntArray


def held_out(training: SubsetTraining, columns: Sequence[IntArray], tolerance: float) -> tuple[FloatArray, FloatArray]:
    """Return (k,) correct rows, and (k,) their loss, for models of some columns each, over all inner folds."""
    folds = range(training.settings.inner_folds)
    judged = training.judge([Subset(each, fold) for each in columns for fold in folds], tolerance)
    right, loss = (each.reshape(len(columns), -1).sum(axis=1) for each in (judged.right, judged.loss))
    return right, loss


def removal_of(
    places: Sequence[int], right: FloatArray, loss: FloatArray, ranks: FloatArray | IntArray
) -> tuple[IntArray, DecidedBy]:
    """Return the place (1,) without which most rows are correct; ties by least loss, lowest rank, higher place."""
    best = np.flatnonzero(right == right.max())
    decided: DecidedBy = "accuracy"
    if len(best) > 1:
        decided = "loss"
        best = best[loss[best] <= loss[best].min() + SAME * loss[best].max()]
    if len(best) > 1:
        decided = "rank"
        best = best[ranks[best] == ranks[best].min()]
    return np.array([max(places[place] for place in best.tolist())]), decided
