"""How good a model is, and what training on pooled rows would have given instead.

Only a simulation can ask the second question: here, and nowhere else, all rows are looked at together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from algorithms.kernels import Kernel
from algorithms.pan_svm import PanModel
from federation.arrays import FloatArray

_LIBSVM_TOLERANCE = 1e-6
_LIBSVM_CACHE_MB = 500


@dataclass(frozen=True)
class Quality:
    """accuracy: share of rows on the right side. auc: None where only one class is there to rank."""

    accuracy: float
    auc: float | None


def quality(decisions: FloatArray, labels: FloatArray) -> Quality:
    """Quality of decision values (n,) against labels (n,) of +1 and -1; a value of 0 counts as +1."""
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415 - a second of imports that only evaluations need

    right = float(np.mean(np.where(decisions >= 0, 1.0, -1.0) == labels))
    both = len(np.unique(labels)) == 2
    return Quality(right, float(roc_auc_score(labels, decisions)) if both else None)


def objective(features: FloatArray, labels: FloatArray, w: FloatArray, b: float, C: float) -> float:
    """1/2 |w|^2 + C sum of hinge losses, for features (n, m)."""
    hinge = np.maximum(0.0, 1.0 - labels * (features @ w + b))
    return float(0.5 * w @ w + C * hinge.sum())


def compare_with_pooled(
    model: PanModel, C: float, train: tuple[FloatArray, FloatArray], test: tuple[FloatArray, FloatArray]
) -> dict[str, Any]:
    """LIBSVM on the pooled, scaled rows: the same problem in the same features, and the exact kernel.

    train, test: rows (n, p) and labels (n,). The first must give the same optimum as the federation; the second says
    what the landmarks cost.
    """
    from sklearn.svm import SVC  # noqa: PLC0415 - as above

    features, labels = model.features(train[0]), train[1]
    same = SVC(kernel="linear", C=C, tol=_LIBSVM_TOLERANCE, cache_size=_LIBSVM_CACHE_MB).fit(features, labels)
    w, b = same.coef_[0], float(same.intercept_[0])
    pooled = model.features(test[0]) @ w + b
    exact = SVC(C=C, cache_size=_LIBSVM_CACHE_MB, **_libsvm_kernel(model.kernel)).fit(train[0], labels)
    return {
        "accuracy": quality(pooled, test[1]).accuracy,
        "auc": quality(pooled, test[1]).auc,
        "objective": objective(features, labels, w, b, C),
        "max_decision_difference": float(np.abs(pooled - model.decision_values(test[0])).max()),
        "exact_kernel": vars(quality(exact.decision_function(test[0]), test[1])),
    }


def _libsvm_kernel(kernel: Kernel) -> dict[str, Any]:
    fields = kernel.to_fields()
    return {"kernel": fields.pop("name"), **fields}
