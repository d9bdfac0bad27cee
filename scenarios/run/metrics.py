"""How good decision values are, whatever model they are of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from algorithms.contract import Baseline, Pooled
from federation.arrays import FloatArray

_RANKED_DECIMALS = 9
"""Rows of equal score, as identical ones have, differ in the last digits by the order of summation. They are ties."""

_MAX_POINTS = 200
"""Of a curve that is there to be looked at."""


@dataclass(frozen=True)
class Quality:
    """accuracy: share of rows on the right side. auc: None where only one class is there to rank."""

    accuracy: float
    auc: float | None


@dataclass(frozen=True)
class RocCurve:
    """False and true positive rates as the threshold falls."""

    false_positive_rate: tuple[float, ...]
    true_positive_rate: tuple[float, ...]


@dataclass(frozen=True)
class FoldMetrics(Quality):
    """How good a model is on the rows that it was not trained on. roc: None as with auc."""

    roc: RocCurve | None = None


@dataclass(frozen=True)
class Metrics(Quality):
    """Means over the folds, and each of them."""

    folds: tuple[FoldMetrics, ...] = ()


@dataclass(frozen=True)
class PooledFold(Quality):
    """What all rows in one place would have given, by the same model.

    max_decision_difference: between its decision values and the federation's. exact_kernel: what the kernel itself
    gives, where the model's features approximate one.
    """

    objective: float | None
    max_decision_difference: float
    exact_kernel: Quality | None


@dataclass(frozen=True)
class PooledMetrics(PooledFold):
    """Means over the folds, the last objective, the largest difference, and each fold."""

    folds: tuple[PooledFold, ...] = ()


@dataclass(frozen=True)
class BaselineMetrics(Quality):
    """Another method on the same rows, with a phrase for it."""

    phrase: str


def evaluate(decisions: FloatArray, labels: FloatArray) -> FoldMetrics:
    """Metrics of decision values (n,) against labels (n,) of +1 and -1, with the curve that the AUC is the area of."""
    from sklearn.metrics import roc_curve  # a second of imports that only evaluations need

    found, curve = quality(decisions, labels), None
    if found.auc is not None:
        false, true, _ = roc_curve(labels, np.round(decisions, _RANKED_DECIMALS))
        shown = np.unique(np.linspace(0, len(false) - 1, min(len(false), _MAX_POINTS)).astype(int))
        curve = RocCurve(tuple(false[shown].tolist()), tuple(true[shown].tolist()))
    return FoldMetrics(found.accuracy, found.auc, curve)


def quality(decisions: FloatArray, labels: FloatArray) -> Quality:
    """Quality of decision values (n,) against labels (n,) of +1 and -1; a value of 0 counts as +1."""
    from sklearn.metrics import roc_auc_score

    right = float(np.mean(np.where(decisions >= 0, 1.0, -1.0) == labels))
    both = len(np.unique(labels)) == 2
    return Quality(right, float(roc_auc_score(labels, np.round(decisions, _RANKED_DECIMALS))) if both else None)


def compare(pooled: Pooled, decisions: FloatArray, labels: FloatArray) -> PooledFold:
    """What pooling would have given, beside the federation's decision values (n,) of the same rows."""
    found = quality(pooled.scores, labels)
    return PooledFold(
        accuracy=found.accuracy,
        auc=found.auc,
        objective=pooled.objective,
        max_decision_difference=float(np.abs(pooled.scores - decisions).max()),
        exact_kernel=None if pooled.exact is None else quality(pooled.exact, labels),
    )


def compare_baselines(baselines: Iterable[Baseline], labels: FloatArray) -> dict[str, BaselineMetrics]:
    """How other methods fare on the same rows, by their names."""
    found = {each.name: (quality(each.scores, labels), each.phrase) for each in baselines}
    return {name: BaselineMetrics(each.accuracy, each.auc, phrase) for name, (each, phrase) in found.items()}


def mean_metrics(folds: list[FoldMetrics]) -> Metrics | None:
    """Means over the folds; None without any."""
    return Metrics(*_means(folds), tuple(folds)) if folds else None


def mean_pooled(folds: list[PooledFold]) -> PooledMetrics | None:
    """Means over the folds; None without any."""
    if not folds:
        return None
    exact = [fold.exact_kernel for fold in folds if fold.exact_kernel is not None]
    return PooledMetrics(
        *_means(folds),
        objective=folds[-1].objective,
        max_decision_difference=max(fold.max_decision_difference for fold in folds),
        exact_kernel=Quality(*_means(exact)) if exact else None,
        folds=tuple(folds),
    )


def _means(folds: list[FoldMetrics] | list[PooledFold] | list[Quality]) -> tuple[float, float | None]:
    areas = [fold.auc for fold in folds if fold.auc is not None]
    return float(np.mean([fold.accuracy for fold in folds])), float(np.mean(areas)) if areas else None
