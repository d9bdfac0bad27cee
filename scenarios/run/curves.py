"""ROC and precision-recall curves of decision values, and the areas under them.

They do not use scikit-learn, whose import takes most of a second, longer than many runs. Tests compare both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray


@dataclass(frozen=True)
class ThresholdCurve:
    """The numbers of true and false positives of a decreasing threshold: arrays (k + 1,), from none to all.

    Each of the k different scores is a threshold; rows with equal scores are predicted positive together.
    """

    true: FloatArray
    false: FloatArray

    @classmethod
    def of(cls, scores: FloatArray, positive: NDArray[np.bool_]) -> ThresholdCurve:
        """Return the curve of scores (n,), which are larger for positive rows. positive: which rows are positive (n,);
        both kinds must occur."""
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
        """Return the share of pairs of positive and negative rows in which the positive scores higher (ties: half)."""
        return float(np.trapezoid(self.true / self.true[-1], self.false / self.false[-1]))

    def average_precision(self) -> float:
        """Return the area under precision against recall, in steps."""
        precision, recall = self.precision_recall()
        return float(np.sum(np.diff(recall) * precision[1:]))
