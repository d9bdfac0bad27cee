"""The measures of any model's decision values, as values. `measuring` computes them."""

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

    accuracy: share of the rows whose class is right. auc: None if all rows are of one class; of more than two classes
    the mean of each against the others (macro), over those that have rows.
    """

    accuracy: float
    auc: float | None


@dataclass(frozen=True)
class RocCurve:
    """False and true positive rates as the threshold falls, and both at the model's own threshold."""

    false_positive_rate: tuple[float, ...]
    true_positive_rate: tuple[float, ...]
    operating_point: tuple[float, float] | None = None


@dataclass(frozen=True)
class PrecisionRecallCurve:
    """Sensitivity (recall) and PPV (precision) as the threshold falls.

    operating_point: both at the model's own threshold; None where it calls no row positive.
    """

    sensitivity: tuple[float, ...]
    ppv: tuple[float, ...]
    operating_point: tuple[float, float] | None = None


@dataclass(frozen=True)
class CalibrationCurve:
    """Rows in bins of equal width by their predicted probability: the mean of it, the share of positives, the rows."""

    predicted: tuple[float, ...]
    observed: tuple[float, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True)
class DecisionCurve:
    """Net benefit of treating the rows whose probability is at least a threshold, in a share of all rows.

    It is TP / n - FP / n * p / (1 - p) at a threshold of p, at which a false alarm costs p / (1 - p) of what a hit
    gains. treat_all: the same of treating every row. Treating none has a net benefit of 0. Vickers and Elkin, "Decision
    curve analysis", Medical Decision Making 26, 2006.
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
        """Share of the positive rows that are called so."""
        return _share(self.true_positive, self.true_positive + self.false_negative)

    @property
    def specificity(self) -> float | None:
        """Share of the negative rows that are called so."""
        return _share(self.true_negative, self.true_negative + self.false_positive)

    @property
    def ppv(self) -> float | None:
        """Share of the rows called positive that are."""
        return _share(self.true_positive, self.true_positive + self.false_positive)

    @property
    def npv(self) -> float | None:
        """Share of the rows called negative that are."""
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
        """Matthews' correlation coefficient; 0 where all rows are, or are called, of one class."""
        tp, fp, tn, fn = self.true_positive, self.false_positive, self.true_negative, self.false_negative
        product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        return (tp * tn - fp * fn) / math.sqrt(product) if product else 0.0


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


Matrix = tuple[tuple[int, ...], ...]
"""(K, K) rows of each class by what they are called."""


@dataclass(frozen=True)
class Measures(Score):
    """The measures of classification. None if a class has no rows, or for means, no fold has the measure.

    Of more than two classes `sensitivity`, `specificity`, `ppv`, `npv`, `average_precision` and `threshold` are None,
    and `binary_accuracy` is not.

    Attributes
    ----------
    threshold : float
        The decision value from which a row is called positive.
    sensitivity, specificity : float
        Shares of the positive and of the negative rows that are called so.
    ppv, npv : float
        Shares of the rows called positive and negative that are so: the positive and negative predictive values.
    balanced_accuracy : float
        Mean of sensitivity and specificity; of more than two classes the mean share of each that is called so.
    f1 : float
        Harmonic mean of sensitivity and PPV; of more than two classes the mean of each against the others (macro).
    mcc : float
        Matthews' correlation coefficient; 0 where all rows are, or are called, of one class. Of more than two it is
        Gorodkin's R_K (2004), which scikit-learn computes too.
    average_precision : float
        Area under the curve of PPV against sensitivity, in steps.
    majority_accuracy : float
        The accuracy of calling every row by the more frequent class of the same rows.
    brier : float
        Mean square of probability less outcome, 0 or 1, of more than two classes added up over these; None where the
        model gives no probabilities.
    calibration_slope : float
        Slope of the outcomes' log odds in those of the probabilities. It is 1 of a calibrated model, and less of one
        that is too sure.
    calibration_intercept : float
        Their shift with a slope of 1: calibration in the large. It is 0 of a calibrated model, and above where
        probabilities are too low.
    binary_accuracy : float
        Of more than two classes the mean, over these, of the accuracy with which each is told from the others by the
        sign of its decision value. It is high for any model of many classes, and says little.
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
"""The measures that have confidence intervals, and the least and the largest value of each."""


@dataclass(frozen=True)
class FoldMetrics(Measures):
    """The quality of a model on rows that it was not trained on. roc, precision_recall: None if auc is.

    intervals: 95 % confidence intervals by the name of the measure. calibration, decision_curve: where there are
    probabilities. confusion: of two classes; confusion_matrix: of more, rows of each class (first index) by what they
    are called (second), and class_rocs the curve of each class against the others, None of one that no row tested on is
    of, where the operating point is that of calling rows by their largest value.
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
    """Means over the folds, and each of them.

    A measure's mean is over the folds that have it. deviations: standard deviation over these, by the name of the
    measure, divided by one less than their number; empty of a single one. It is no error of the mean: training rows of
    folds overlap, and repeats have the same rows. intervals: 95 % confidence intervals by the name of the measure; over
    folds and repeats by the corrected resampled t, of a single model those of its test rows. confusion: added up over
    the folds, so that each row is counted once a repeat; so is confusion_matrix. shortfalls: sentences about what is as
    good and costs nothing.
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
    """The quality of the same model trained on all rows in one place, at the federation's threshold.

    max_decision_difference: between its decision values and the federation's. exact_kernel: what the kernel itself
    gives, where the model's features approximate one. gain: of the federated model over the exact kernel, or over this
    one if there is none; missing without test rows.
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
    """Another method on the same rows, with a phrase for it, and the seconds that it took where it is a pooled one.

    accuracy: at a threshold of 0, its own, whatever the model's is.
    """

    phrase: str
    seconds: float | None = None


@dataclass(frozen=True)
class SiteMetrics(Score):
    """The metrics that sites found by scoring rows that they hold out, over all folds.

    accuracy, auc: means over the folds. auc_resolution: how far any fold's AUC can be from that of the decision values
    themselves, since these are counted in bins. confusion, of more classes confusion_matrix: added up over the folds.
    """

    auc_resolution: float | None
    confusion: Confusion | None = None
    confusion_matrix: Matrix | None = None


def class_table(measured: FoldMetrics | Metrics) -> IntArray | None:
    """Return (K, K): the rows of each class (first index) by what they are called (second); None if not counted."""
    if measured.confusion_matrix is not None:
        return np.array(measured.confusion_matrix)
    if (found := measured.confusion) is None:
        return None
    return np.array([[found.true_negative, found.false_positive], [found.false_negative, found.true_positive]])
