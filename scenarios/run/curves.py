"""Curves that decision values are judged by, and the areas under them.

They are written out because scikit-learn's, which tests compare them with, take most of a second to import, more than
many a run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray


@dataclass(frozen=True)
class ThresholdCurve:
    """The true and false positives of a falling threshold: (k + 1,) rows, from none to all.

    Of k different scores, each is a threshold; rows that share one are called positive together.
    """

    true: FloatArray
    false: FloatArray

    @classmethod
    def of(cls, scores: FloatArray, positive: NDArray[np.bool_]) -> ThresholdCurve:
        """Return the curve of scores (n,), larger for positive rows, and which rows are positive (n,). Both kinds must
        occur."""
        order = np.argsort(-scores, kind="stable")
        last_of_score = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
        true = np.cumsum(positive[order])[last_of_score].astype(float)
        return cls(np.append(0.0, true), np.append(0.0, last_of_score + 1 - true))

    def roc(self) -> tuple[FloatArray, FloatArray]:
        """Return false and true positive rates at the corners of the curve, from (0, 0) to (1, 1)."""
        bends = (np.diff(self.true, 2) != 0) | (np.diff(self.false, 2) != 0)
        corners = np.concatenate([[True], bends, [True]])
        return self.false[corners] / self.false[-1], self.true[corners] / self.true[-1]

    def precision_recall(self) -> tuple[FloatArray, FloatArray]:
        """Return precision and recall at every threshold, starting with a precision of 1 at a recall of 0."""
        precision = self.true[1:] / (self.true + self.false)[1:]
        return np.append(1.0, precision), self.true / self.true[-1]

    def area_under_roc(self) -> float:
        """Share of the pairs of a positive and a negative row in which the positive scores higher; a tie is half."""
        return float(np.trapezoid(self.true / self.true[-1], self.false / self.false[-1]))

    def average_precision(self) -> float:
        """Return the area under precision against recall, in steps."""
        precision, recall = self.precision_recall()
        return float(np.sum(np.diff(recall) * precision[1:]))
