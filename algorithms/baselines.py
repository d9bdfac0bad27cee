"""Methods on pooled rows that a scenario may compare its result with. None is a federated claim.

They are scikit-learn's, on the rows as the run scales them. C and the kernel's gamma are the run's where it has such,
and LIBSVM's defaults (1, and 1 / columns) where not; a linear SVM gets the same C, with which the figures of the
PAN-SVM dissertation's table 3.2 come out. Of trees, 10 rows for a split and 5 for a leaf came nearest to its figures.

Weights of classes and rows are the run's too. Only the larger class takes none, and its phrase says so.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedsvm.algorithms.concave_selection import concave_columns
from fedsvm.algorithms.data.classes import log_odds, one_against_rest
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.kernels import Kernel, KernelName, KernelSettings
from fedsvm.algorithms.kernel_penalty import kernel_widths
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.weighting import ClassWeightSettings
from fedsvm.algorithms.pooled import Baseline, EvaluationRows
from fedsvm.federation.arrays import FloatArray, IntArray

_NEVER = -1e300
"""The logarithm of what a class is likely that was not there in training; finite, so that rows can be ranked by it."""

OF_CHOSEN = "libsvm-rbf-chosen"
"""The baseline that has the columns which the run's model was left with, and not all."""

Score = Callable[[Any, EvaluationRows], FloatArray]
"""(n,) decision values of the test rows, (n, K) of more than two classes, by the settings of the run and all rows.

`EvaluationRows.weights` is what the loss of each training row is multiplied by, with its class's factor in it.
"""


def _svm(name: KernelName, settings: Any, rows: EvaluationRows) -> FloatArray:
    """Return the scores of an SVM with a kernel, with the run's gamma and penalty, if it has them."""
    (gamma, prices), train, test = _gamma_and_prices(settings, rows), rows.train, rows.test.rows
    return libsvm.against_others(
        lambda labels: libsvm.kernel(Kernel(name, gamma), train.rows, labels, prices),
        train.labels,
        len(rows.classes),
        test,
    )


def _concave(settings: Any, rows: EvaluationRows) -> FloatArray:
    """Return the scores of the SVM with the RBF kernel on the columns of FSV, of any class against the others."""
    problems = one_against_rest(rows.train.labels, len(rows.classes))
    kept = [concave_columns(rows.train.rows, labels, rows.weights) for labels in problems if np.ptp(labels)]
    return _svm("rbf", settings, _of_columns(rows, np.unique(np.concatenate(kept))))


def _kernel_penalty(settings: Any, rows: EvaluationRows) -> FloatArray:
    """Return the scores of KP-SVM, of any class against the others."""
    (gamma, prices), train = _gamma_and_prices(settings, rows), rows.train

    def scores(labels: FloatArray) -> FloatArray:
        v = kernel_widths(train.rows, labels, gamma, prices)
        svm = libsvm.kernel(Kernel("rbf", gamma), train.rows * v, labels, prices)
        return np.asarray(svm.decision_function(rows.test.rows * v))

    problems = one_against_rest(train.labels, len(rows.classes))
    values = [scores(labels) if np.ptp(labels) else np.full(len(rows.test.rows), labels[0]) for labels in problems]
    return values[0] if len(values) == 1 else np.column_stack(values)


def _gamma_and_prices(settings: Any, rows: EvaluationRows) -> tuple[float, libsvm.Prices]:
    """Return the run's gamma, and its C or that of each row; LIBSVM's defaults if it has none."""
    columns = rows.train.rows.shape[1]
    gamma, C = 1.0 / max(1, columns), 1.0
    if isinstance(settings, KernelSettings):
        gamma, C = settings.kernel_of(columns).gamma, getattr(settings, "C", 1.0)
    return gamma, C if rows.weights is None else C * rows.weights


def _naive_bayes(settings: Any, rows: EvaluationRows) -> FloatArray:
    from sklearn.naive_bayes import GaussianNB

    model = GaussianNB().fit(*rows.train, sample_weight=rows.weights)
    return log_odds(_place_scores(model.predict_joint_log_proba(rows.test.rows), model.classes_, rows, _NEVER))


def _tree(settings: Any, rows: EvaluationRows) -> FloatArray:
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(min_samples_split=10, min_samples_leaf=5, random_state=0)
    tree.fit(*rows.train, sample_weight=rows.weights)
    shares = _place_scores(tree.predict_proba(rows.test.rows), tree.classes_, rows, 0.0)
    return np.asarray(shares[:, 1] - shares[:, 0] if len(rows.classes) == 2 else shares - 0.5)


def _place_scores(values: FloatArray, found: FloatArray, rows: EvaluationRows, absent: float) -> FloatArray:
    """Return (n, K) a model's scores for the classes that it was trained on, and `absent` for the others."""
    if len(rows.classes) == 2:
        return values
    placed = np.full((len(values), len(rows.classes)), absent)
    known = found >= 0
    placed[:, found[known].astype(np.int64)] = values[:, known]
    return placed


def one_class_scores(settings: Any, rows: EvaluationRows) -> FloatArray:
    """Return decision values that call every test row by the larger class of the training rows."""
    if len(rows.classes) == 2:
        return np.full(len(rows.test.rows), 1.0 if rows.train.labels.sum() >= 0 else -1.0)
    counts = [np.count_nonzero(rows.train.labels == number) for number in range(len(rows.classes))]
    return np.tile(np.arange(len(counts)) == np.argmax(counts), (len(rows.test.rows), 1)) - 0.5


POOLED_BASELINES: Mapping[str, tuple[str, Score]] = {
    "libsvm-rbf": ("an SVM with the RBF kernel", functools.partial(_svm, "rbf")),
    "libsvm-linear": ("a linear SVM", functools.partial(_svm, "linear")),
    "naive-bayes": ("Gaussian naive Bayes", _naive_bayes),
    "tree": ("a decision tree", _tree),
    "majority": ("the larger class, always", one_class_scores),
    OF_CHOSEN: ("an SVM with the RBF kernel, of the chosen columns", functools.partial(_svm, "rbf")),
    "fsv": ("an SVM with the RBF kernel, of columns by concave minimization", _concave),
    "kp-svm": ("an SVM with the RBF kernel, of penalized widths", _kernel_penalty),
}
"""By name: a phrase, and how rows are scored."""


def pooled_baselines(
    names: list[str], settings: Any, rows: EvaluationRows, chosen: IntArray | None = None
) -> list[Baseline]:
    """Train the named methods on all rows together. With a single class, return only that class.

    chosen: numbers of the columns that a model was left with; None where it has all.
    """
    rows = weight_rows(settings, rows)
    one_class = len(np.unique(rows.train.labels)) < 2
    found = []
    for name in names:
        phrase, score = POOLED_BASELINES[name]
        if score is one_class_scores and rows.weights is not None:
            phrase += ", without weights"
        began = time.perf_counter()
        scores = (one_class_scores if one_class else score)(
            settings, _of_columns(rows, chosen) if name == OF_CHOSEN else rows
        )
        found.append(Baseline(name, phrase, scores, time.perf_counter() - began))
    return found


def weight_rows(settings: Any, rows: EvaluationRows) -> EvaluationRows:
    """Return the rows with what their losses are multiplied by, without training rows for which this is 0."""
    weights = rows.weights
    if isinstance(settings, ClassWeightSettings):
        weights = settings.pooled_factors(rows.train.labels, weights, rows.classes)
    if weights is None:
        return rows
    counted = weights > 0
    train = LabeledRows(rows.train.rows[counted], rows.train.labels[counted])
    return replace(rows, train=train, weights=weights[counted])


def _of_columns(rows: EvaluationRows, chosen: IntArray | None) -> EvaluationRows:
    if chosen is None:
        return rows
    train, test = (LabeledRows(each.rows[:, chosen], each.labels) for each in (rows.train, rows.test))
    return replace(rows, train=train, test=test)
