"""The classes of measures, which `measuring` computes from any model's decision values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import IntArray
from fedsvm.scenarios.run.gains import Gain
from fedsvm.scenarios.run.intervals import (
    Interval,
)


@dataclass(frozen=True)
class Score:
    """The accuracy of decision values, and the area under their ROC curve.

    accuracy: share of correctly predicted rows. auc: None if all rows are of one class; for more than two classes the
    mean of each against the others (macro), over the classes that have rows.
    """

    accuracy: float
    auc: float | None


@dataclass(frozen=True)
class RocCurve:
    """False and true positive rates for a decreasing threshold, and both at the model's own threshold."""

    false_positive_rate: tuple[float, ...]
    true_positive_rate: tuple[float, ...]
    operating_point: tuple[float, float] | None = None


@dataclass(frozen=True)
class PrecisionRecallCurve:
    """Sensitivity (recall) and PPV (precision) for a decreasing threshold.

    operating_point: both at the model's own threshold; None if it predicts no row as positive.
    """

    sensitivity: tuple[float, ...]
    ppv: tuple[float, ...]
    operating_point: tuple[float, float] | None = None


@dataclass(frozen=True)
class CalibrationCurve:
    """Rows in bins of equal width by predicted probability: its mean, the share of positives, the number of rows."""

    predicted: tuple[float, ...]
    observed: tuple[float, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True)
class DecisionCurve:
    """Net benefit of treating the rows whose probability is at least a threshold, as a share of all rows.

    It is TP / n - FP / n * p / (1 - p) at a threshold of p, where a false positive costs p / (1 - p) of the benefit of
    a true positive. treat_all: the net benefit of treating every row. Treating no row has a net benefit of 0. Vickers
    and Elkin, "Decision curve analysis", Medical Decision Making 26, 2006.
    """

    threshold: tuple[float, ...]
    net_benefit: tuple[float, ...]
    treat_all: tuple[float, ...]


@dataclass(frozen=True)
class Confusion:
    """The confusion matrix of two classes, and the shares derived from it; None without rows."""

    true_positive: int
    false_positive: int
    true_negative: int
    false_negative: int

    @classmethod
    def of(cls, called: NDArray[np.bool_], positive: NDArray[np.bool_]) -> Confusion:
        """Count rows (n,) by prediction and class."""
        return cls(
            true_positive=int((called & positive).sum()),
            false_positive=int((called & ~positive).sum()),
            true_negative=int((~called & ~positive).sum()),
            false_negative=int((~called & positive).sum()),
        )

    @property
    def sensitivity(self) -> float | None:
        """Share of the positive rows that are predicted as positive."""
        return _share(self.true_positive, self.true_positive + self.false_negative)

    @property
    def specificity(self) -> float | None:
        """Share of the negative rows that are predicted as negative."""
        return _share(self.true_negative, self.true_negative + self.false_positive)

    @property
    def ppv(self) -> float | None:
        """Share of the rows predicted as positive that are positive."""
        return _share(self.true_positive, self.true_positive + self.false_positive)

    @property
    def npv(self) -> float | None:
        """Share of the rows predicted as negative that are negative."""
        return _share(self.true_negative, self.true_negative + self.false_negative)

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean of sensitivity and specificity."""
        known = [share for share in (self.sensitivity, self.specificity) if share is not None]
        return sum(known) / 2 if len(known) == 2 else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of sensitivity and PPV."""
        return _share(2 * self.true_positive, 2 * self.true_positive + self.false_positive + self.false_negative)

    @property
    def mcc(self) -> float:
        """Matthews' correlation coefficient; 0 if all rows have, or are predicted as, one class."""
        tp, fp, tn, fn = self.true_positive, self.false_positive, self.true_negative, self.false_negative
        product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        return (tp * tn - fp * fn) / math.sqrt(product) if product else 0.0


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


Matrix = tuple[tuple[int, ...], ...]
"""The number of rows of each class (first index) by predicted class (second index), of shape (K, K)."""


@dataclass(frozen=True)
class Measures(Score):
    """The measures of classification. A measure is None if a class has no rows; a mean is None if no fold has it.

    For more than two classes `sensitivity`, `specificity`, `ppv`, `npv`, `average_precision` and `threshold` are None,
    and `binary_accuracy` is not.

    Attributes
    ----------
    threshold : float
        Decision value from which a row is predicted as positive.
    sensitivity, specificity : float
        Shares of the positive and of the negative rows that are predicted correctly.
    ppv, npv : float
        Positive and negative predictive values: shares of the rows predicted as positive, or as negative, that are so.
    balanced_accuracy : float
        Mean of sensitivity and specificity; for more than two classes the mean share of correctly predicted rows of
        each class.
    f1 : float
        Harmonic mean of sensitivity and PPV; for more than two classes the mean of each against the others (macro).
    mcc : float
        Matthews' correlation coefficient; 0 if all rows have, or are predicted as, one class. For more than two classes
        it is Gorodkin's R_K (2004), as in scikit-learn.
    average_precision : float
        Area under the curve of PPV against sensitivity, in steps.
    majority_accuracy : float
        The accuracy of predicting the most frequent class of the same rows for every row.
    brier : float
        Mean squared difference of probability and outcome, 0 or 1; for more than two classes summed over them. None if
        the model has no probabilities.
    calibration_slope : float
        Slope of a logistic regression of the outcomes on the predicted log odds. It is 1 for a calibrated model, and
        less for an overconfident one.
    calibration_intercept : float
        Intercept of this regression with a slope of 1 (calibration in the large). It is 0 for a calibrated model, and
        positive if probabilities are too low.
    binary_accuracy : float
        For more than two classes: the accuracy of separating a class from the others by the sign of its decision value,
        averaged over the classes. It is high for any model of many classes, so it has little meaning.
    """

    threshold: float | None = None
    sensitivity: float | None = None
    specificity: float | None = None
    ppv: float | None = None
    npv: float | None = None
    balanced_accuracy: float | None = None
    f1: float | None = None
    mcc: float | None = None
    average_precision: float | None = None
    majority_accuracy: float | None = None
    brier: float | None = None
    calibration_slope: float | None = None
    calibration_intercept: float | None = None
    binary_accuracy: float | None = None


MEASURES = tuple(each.name for each in fields(Measures))
"""Their names."""


BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("accuracy", "sensitivity", "specificity", "ppv", "npv", "auc"), (0.0, 1.0)),
    **dict.fromkeys(("calibration_slope", "calibration_intercept"), (-math.inf, math.inf)),
}
"""The measures that have confidence intervals, with the minimum and the maximum of each."""


@dataclass(frozen=True)
class FoldMetrics(Measures):
    """The measures of a model on rows on which it was not trained.

    Attributes
    ----------
    confusion, confusion_matrix
        The confusion matrix for two classes, and for more: rows of each class (first index) by predicted class (second
        index).
    roc, precision_recall
        The curves; None if `auc` is.
    calibration, decision_curve
        Only for models with probabilities.
    intervals : mapping of str to Interval
        95 % confidence intervals by the name of the measure.
    class_rocs : tuple
        For more than two classes, the ROC curve of each against the others; None for a class without test rows. The
        operating point is that of predicting the class with the largest decision value.
    """

    confusion: Confusion | None = None
    confusion_matrix: Matrix | None = None
    roc: RocCurve | None = None
    precision_recall: PrecisionRecallCurve | None = None
    calibration: CalibrationCurve | None = None
    decision_curve: DecisionCurve | None = None
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    class_rocs: tuple[RocCurve | None, ...] = ()


@dataclass(frozen=True)
class Metrics(Measures):
    """Means over the folds that have a measure, and the measures of each fold.

    Attributes
    ----------
    folds : tuple of FoldMetrics
    deviations : mapping of str to float
        Standard deviations over the folds by the name of the measure, with n - 1 in the denominator; empty for a single
        fold. They are not standard errors of the mean: training rows of folds overlap, and repeats have the same rows.
    intervals : mapping of str to Interval
        95 % confidence intervals by the name of the measure: the corrected resampled t interval over folds and repeats,
        or for a single model the interval on its test rows.
    confusion, confusion_matrix
        Sums over the folds, so that each row is counted once a repeat.
    shortfalls : tuple of str
        Sentences on trivial alternatives that are as good.
    """

    folds: tuple[FoldMetrics, ...] = ()
    deviations: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    confusion: Confusion | None = None
    confusion_matrix: Matrix | None = None
    shortfalls: tuple[str, ...] = ()

    def folds_with(self, name: str) -> int:
        """Return the number of folds that have a measure."""
        return sum(getattr(fold, name) is not None for fold in self.folds)


@dataclass(frozen=True)
class PooledFold(Score):
    """The measures of the same model trained on pooled rows, at the federation's threshold.

    Attributes
    ----------
    objective : float or None
    max_decision_difference : float
        The largest difference from the federation's decision values.
    exact_kernel : Score or None
        The result of the kernel itself, if the model's features approximate it.
    gain : Gain, optional
        The gain of the federated model over the exact kernel, or if there is none over this model; None without test
        rows.
    """

    objective: float | None
    max_decision_difference: float
    exact_kernel: Score | None
    gain: Gain | None = None


@dataclass(frozen=True)
class PooledMetrics(PooledFold):
    """Means over the folds, the last objective, the largest difference, and each fold."""

    folds: tuple[PooledFold, ...] = ()


@dataclass(frozen=True)
class BaselineMetrics(Score):
    """Another method on the same rows, with a phrase that names it, and for a pooled method its seconds.

    accuracy: at a threshold of 0, even if the model has another.
    """

    phrase: str
    seconds: float | None = None


@dataclass(frozen=True)
class SiteMetrics(Score):
    """The metrics of rows that sites hold out and score themselves, over all folds.

    accuracy, auc: means over the folds. auc_resolution: the largest possible error of a fold's AUC, since decision
    values are counted in bins. confusion, or confusion_matrix for more than two classes: sums over the folds.
    """

    auc_resolution: float | None
    confusion: Confusion | None = None
    confusion_matrix: Matrix | None = None


def class_table(measured: FoldMetrics | Metrics) -> IntArray | None:
    """Return the rows of each class (first index) by predicted class (second), of shape (K, K); None if not counted."""
    if measured.confusion_matrix is not None:
        return np.array(measured.confusion_matrix)
    if (found := measured.confusion) is None:
        return None
    return np.array([[found.true_negative, found.false_positive], [found.false_negative, found.true_positive]])
