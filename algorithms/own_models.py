"""Each site's own model, trained on its own rows, and how the federated one compares on the same test rows.

Where sites hold the test rows, each scores its own held-out rows by both models. One secure sum adds up ten numbers a
site: no row moves, and no site's own figures are shown. AUCs are of rows within a site, and their mean is weighted by
the sites' test rows, since decision values of different models are on different scales.

A site trains a model of the run's own kind where one is known of rows in one place (`Algorithm.own_method`), and
otherwise a support vector machine with the run's kernel, penalty and weights. Its rows are on the run's common scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.baselines import POOLED_BASELINES, one_class_scores, weight_rows
from fedsvm.algorithms.data.classes import predict_class
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.kernels import Kernel, KernelSettings
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.pooled import EvaluationRows
from fedsvm.federation.arrays import FloatArray

SVM = "svm"
"""The method of algorithms that name none: a support vector machine with the run's kernel, linear without one."""


def phrase_of(method: str) -> str:
    """Return what a site's own model is called."""
    return "an SVM with the run's kernel" if method == SVM else POOLED_BASELINES[method][0]


def has_several_classes(train: LabeledRows) -> bool:
    """Return whether training rows are of more than one class, so that a model can be trained."""
    return len(np.unique(train.labels)) > 1


def own_scores(method: str, settings: Any, rows: EvaluationRows) -> FloatArray:
    """Return decision values of `rows.test` by a model of `rows.train`: (n,), or (n, K) of K > 2 classes.

    Training rows of one class give that class throughout.
    """
    rows = weight_rows(settings, rows)
    if not has_several_classes(rows.train):
        return one_class_scores(settings, rows)
    if method != SVM:
        return POOLED_BASELINES[method][1](settings, rows)
    kernel = Kernel("linear", 1.0)
    if isinstance(settings, KernelSettings):
        kernel = settings.kernel_of(rows.train.rows.shape[1])
    C, train = getattr(settings, "C", 1.0), rows.train
    penalties = C if rows.weights is None else C * rows.weights
    return libsvm.against_others(
        lambda labels: libsvm.kernel(kernel, train.rows, labels, penalties),
        train.labels,
        len(rows.classes),
        rows.test.rows,
    )


@dataclass(frozen=True)
class Placements:
    """The shares of rows of the other class that rows are placed rightly against, ties as half; DeLong's V10 and V01.

    positive (m,), negative (n,): of the rows of each class. The mean of either is the AUC.
    """

    positive: FloatArray
    negative: FloatArray

    @classmethod
    def of(cls, scores: FloatArray, is_positive: NDArray[np.bool_]) -> Self:
        """Return the placements of scores (n,). Both classes need a row."""
        positive, negative = scores[is_positive], scores[~is_positive]
        return cls(_below(np.sort(negative), positive), 1 - _below(np.sort(positive), negative))

    @property
    def auc(self) -> float:
        """The area under the ROC curve."""
        return float(self.positive.mean())

    @property
    def variance(self) -> float:
        """DeLong's variance of the AUC, of two rows or more of each class."""
        return float(self.positive.var(ddof=1) / len(self.positive) + self.negative.var(ddof=1) / len(self.negative))

    def less(self, other: Placements) -> Placements:
        """Return the differences from those of other scores of the same rows."""
        return Placements(self.positive - other.positive, self.negative - other.negative)


def _below(ordered: FloatArray, values: FloatArray) -> FloatArray:
    """Return (k,) the share of `ordered` (n,) below each value; equal ones count as half."""
    places = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return np.asarray(places / (2 * len(ordered)), dtype=np.float64)


@dataclass(frozen=True)
class OwnCounts:
    """Sums over sites of what each finds on its own test rows, by its own model and by the federated one.

    rows, federated_right, own_right: test rows, and those that each model calls rightly. differing: rows that one of
    them alone calls rightly. ranked: rows at sites that have two test rows or more of each class. The others are of
    these sites: their rows times the AUC, and the rows squared times its variance; the last one is of the difference.
    """

    rows: float = 0.0
    federated_right: float = 0.0
    own_right: float = 0.0
    differing: float = 0.0
    ranked: float = 0.0
    federated_auc: float = 0.0
    own_auc: float = 0.0
    federated_variance: float = 0.0
    own_variance: float = 0.0
    gain_variance: float = 0.0

    @classmethod
    def of(cls, federated: FloatArray, own: FloatArray, labels: FloatArray) -> Self:
        """Return the counts of one site's test rows. Both models decide at 0.

        labels (n,): +1 and -1 of two classes, otherwise numbers.
        """
        truth = labels > 0 if federated.ndim == 1 else labels
        right, own_right = predict_class(federated) == truth, predict_class(own) == truth
        counts = cls(float(len(labels)), float(right.sum()), float(own_right.sum()), float((right != own_right).sum()))
        is_positive = labels > 0
        if federated.ndim > 1 or min(is_positive.sum(), (~is_positive).sum()) < 2:
            return counts
        placed, own_placed = (Placements.of(np.round(each, 9), is_positive) for each in (federated, own))
        n, gained = float(len(labels)), placed.less(own_placed)
        variances = (n * n * each.variance for each in (placed, own_placed, gained))
        return replace(counts, **dict(zip(_RANKED, (n, n * placed.auc, n * own_placed.auc, *variances), strict=True)))

    def to_array(self) -> FloatArray:
        """Return (10,) the numbers, in the order of the fields."""
        return np.array(list(vars(self).values()))


_RANKED = ("ranked", "federated_auc", "own_auc", "federated_variance", "own_variance", "gain_variance")

COUNTS = len(vars(OwnCounts()))


def own_counts(
    method: str,
    settings: Any,
    train: LabeledRows,
    test: LabeledRows,
    classes: tuple[str, ...],
    weights: FloatArray | None,
    federated: FloatArray,
) -> FloatArray:
    """Return the numbers of `OwnCounts` for one site; zeros without test rows, or with training rows of one class only.

    A site with one class has no model of its own, and a constant prediction is right on all of its own test rows.

    federated: decision values of the test rows by the federated model.
    """
    if not has_several_classes(train) or not len(test.rows):
        return OwnCounts().to_array()
    own = own_scores(method, settings, EvaluationRows(train, test, None, classes, weights))
    return OwnCounts.of(federated, own, test.labels).to_array()
