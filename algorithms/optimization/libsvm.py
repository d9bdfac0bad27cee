"""LIBSVM, through scikit-learn: on pooled rows, to compare with, and on a kernel matrix that a coordinator holds.

Imported where it is called: sites share the modules that import this one, and need none of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fedsvm.algorithms.data.classes import one_against_rest
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.federation.arrays import FloatArray

if TYPE_CHECKING:
    from sklearn.svm import SVC

POOLED_TOLERANCE = 1e-6
DUAL_TOLERANCE = 1e-10
DUAL_ITERATIONS = 1_000_000
"""At least. LIBSVM keeps the kernel in 24 bits, and of a singular matrix that may never reach its tolerance."""

CACHE_MB = 500

Prices = float | FloatArray
"""C of every row, or (n,) of each."""


def linear(rows: FloatArray, labels: FloatArray, C: Prices) -> SVC:
    """Train a linear SVM on rows (n, p) with labels (n,), for comparison."""
    from sklearn.svm import SVC

    penalty, weights = _split(C)
    svm = SVC(kernel="linear", C=penalty, tol=POOLED_TOLERANCE, cache_size=CACHE_MB)
    return svm.fit(rows, labels, sample_weight=weights)


def kernel(kernel: Kernel, rows: FloatArray, labels: FloatArray, C: Prices) -> SVC:
    """Train an SVM with the exact kernel on rows (n, p) with labels (n,), for comparison."""
    from sklearn.svm import SVC

    fields, (penalty, weights) = kernel.to_fields(), _split(C)
    svm = SVC(C=penalty, cache_size=CACHE_MB, kernel=fields.pop("name"), **fields)
    return svm.fit(rows, labels, sample_weight=weights)


def against_others(fit: Callable[[FloatArray], SVC], labels: FloatArray, classes: int, test: FloatArray) -> FloatArray:
    """Return decision values of test rows (k, p) by one SVM for each class against the rest, trained by `fit`.

    labels (n,): as `LabeledRows` has them. (k,) of two classes, (k, K) of more; a class without rows, or with all, is
    +1 or -1 throughout.
    """
    if classes == 2:
        return np.asarray(fit(labels).decision_function(test))
    values = np.empty((len(test), classes))
    for number, signs in enumerate(one_against_rest(labels, classes)):
        one_class = len(np.unique(signs)) == 1
        values[:, number] = signs[0] if one_class else fit(signs).decision_function(test)
    return values


def _split(C: Prices) -> tuple[float, FloatArray | None]:
    """Return the penalty of all rows, or of each (n,), as scikit-learn takes it."""
    return (1.0, C) if isinstance(C, np.ndarray) else (C, None)


def exact_scores(
    feature_map: FeatureMap, C: Prices, train: LabeledRows, test: FloatArray, classes: int = 2
) -> FloatArray | None:
    """Return decision values of test rows (k, p) by the kernel that a map approximates; None for an exact map.

    (k,), or (k, K) of more than two classes, each against the others.
    """
    if feature_map.exact:
        return None
    return against_others(lambda labels: kernel(feature_map.kernel, train.rows, labels, C), train.labels, classes, test)


def dual(matrix: FloatArray, labels: FloatArray, C: float) -> SVC:
    """Solve the dual of a kernel matrix (n, n) with labels (n,); `fit_status_` is 0 if it converged."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC

    most = max(DUAL_ITERATIONS, 100 * len(labels))
    solver = SVC(C=C, kernel="precomputed", tol=DUAL_TOLERANCE, cache_size=CACHE_MB, max_iter=most)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the model says so
        return solver.fit(matrix, labels)


def objective(svm: SVC, rows: FloatArray, labels: FloatArray, C: Prices) -> float:
    """Return 1/2 |w|^2 + the sum of C times hinge losses of a linear SVM over rows (n, p)."""
    weights = svm.coef_[0]
    hinge = np.maximum(0.0, 1.0 - labels * (rows @ weights + svm.intercept_[0]))
    return float(0.5 * weights @ weights + (C * hinge).sum())
