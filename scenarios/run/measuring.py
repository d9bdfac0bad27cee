"""Measures of decision values, and of counts by sites, with their means and intervals over folds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.classes import predict_class
from fedsvm.algorithms.pooled import Baseline, Pooled
from fedsvm.algorithms.site_scores import ClassScores, SiteScores
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.scenarios.run.curves import ThresholdCurve
from fedsvm.scenarios.run.gains import RANKED_DECIMALS, gain_over, mean_gain
from fedsvm.scenarios.run.intervals import (
    Interval,
    auc_interval,
    calibration_fit,
    folds_interval,
    scores_interval,
    share_interval,
)
from fedsvm.scenarios.run.metrics import (
    BOUNDS,
    MEASURES,
    BaselineMetrics,
    CalibrationCurve,
    Confusion,
    DecisionCurve,
    FoldMetrics,
    Matrix,
    Metrics,
    PooledFold,
    PooledMetrics,
    PrecisionRecallCurve,
    RocCurve,
    Score,
    SiteMetrics,
)

_MAX_POINTS = 200
"""Maximum number of points of a curve for display."""


_CALIBRATION_BINS = 10


def evaluate(
    decisions: FloatArray, labels: FloatArray, *, threshold: float = 0.0, probabilities: FloatArray | None = None
) -> FoldMetrics:
    """Return metrics of decision values against labels, with curves.

    Parameters
    ----------
    decisions : (n,) array, or (n, K) for K > 2 classes
    labels : (n,) array
        +1 and -1, or class numbers for K > 2 classes.
    threshold : float, default 0.0
        Decision value from which a row is predicted as positive.
    probabilities : (n,) or (n, K) array, optional
        Predicted probabilities of +1, or of each class.
    """
    if decisions.ndim == 2:
        return _evaluate_classes(decisions, labels, probabilities)
    positive = labels > 0
    found, curve = Confusion.of(decisions >= threshold, positive), _threshold_curve(decisions, labels)
    fit = None if probabilities is None else calibration_fit(probabilities, positive)
    intervals = {**_share_intervals(found), "auc": scores_interval(np.round(decisions, RANKED_DECIMALS), positive)}
    if fit is not None:
        intervals |= {"calibration_slope": fit.slope_interval, "calibration_intercept": fit.intercept_interval}
    return FoldMetrics(
        accuracy=accuracy(decisions, labels, threshold),
        auc=None if curve is None else curve.area_under_roc(),
        threshold=threshold,
        **_of_confusion(found),
        average_precision=None if curve is None else curve.average_precision(),
        brier=None if probabilities is None else float(np.mean((probabilities - positive) ** 2)),
        calibration_slope=None if fit is None else fit.slope,
        calibration_intercept=None if fit is None else fit.intercept,
        intervals=_found_intervals(intervals),
        roc=None if curve is None else _roc_curve(*curve.roc(), found),
        precision_recall=None if curve is None else _precision_recall_curve(curve, found),
        calibration=None if probabilities is None else _calibration_curve(probabilities, positive),
        decision_curve=None if probabilities is None else _decision_curve(probabilities, positive),
    )


def _evaluate_classes(decisions: FloatArray, labels: FloatArray, probabilities: FloatArray | None) -> FoldMetrics:
    """Return metrics of decision values (n, K) for K > 2 classes. labels: class numbers (n,), -1 for unknown."""
    classes, found = decisions.shape[1], score(decisions, labels)
    table = np.zeros((classes, classes), dtype=np.int64)
    known = labels >= 0
    np.add.at(table, (labels[known].astype(np.int64), predict_class(decisions)[known]), 1)
    is_class = np.equal.outer(labels, np.arange(classes))
    return FoldMetrics(
        accuracy=found.accuracy,
        auc=found.auc,
        intervals=_found_intervals({"accuracy": share_interval(int(np.trace(table)), len(labels))}),
        **{**_of_table(table), "majority_accuracy": float(table.sum(axis=1).max() / len(labels))},
        binary_accuracy=float(((decisions >= 0) == is_class).mean()),
        brier=None if probabilities is None else float(((probabilities - is_class) ** 2).sum(axis=1).mean()),
        class_rocs=tuple(
            None
            if each is None
            else _roc_curve(*each.roc(), Confusion.of(predict_class(decisions) == k, is_class[:, k]))
            for k, each in enumerate(_class_curves(decisions, labels))
        ),
    )


def _of_confusion(found: Confusion) -> dict[str, Any]:
    """Return the measures of a confusion matrix of two classes, by name."""
    positive = (found.true_positive + found.false_negative) / sum(vars(found).values())
    shares = ("sensitivity", "specificity", "ppv", "npv", "balanced_accuracy", "f1", "mcc")
    measured = {name: getattr(found, name) for name in shares}
    return {**measured, "majority_accuracy": max(positive, 1 - positive), "confusion": found}


def _share_intervals(found: Confusion) -> dict[str, Interval | None]:
    """Return the intervals of shares of counted rows, by the name of the measure."""
    tp, fp, tn, fn = found.true_positive, found.false_positive, found.true_negative, found.false_negative
    return {
        "accuracy": share_interval(tp + tn, tp + fp + tn + fn),
        "sensitivity": share_interval(tp, tp + fn),
        "specificity": share_interval(tn, tn + fp),
        "ppv": share_interval(tp, tp + fp),
        "npv": share_interval(tn, tn + fn),
    }


def _found_intervals(intervals: Mapping[str, Interval | None]) -> dict[str, Interval]:
    return {name: found for name, found in intervals.items() if found is not None}


def _of_table(table: IntArray) -> dict[str, Any]:
    """Return the measures of a confusion matrix (K, K), by name."""
    rows, right = table.sum(axis=1), np.diag(table)
    there, touched = rows > 0, (rows + table.sum(axis=0)) > 0
    return {
        "balanced_accuracy": float((right[there] / rows[there]).mean()) if there.any() else None,
        "f1": float((2 * right[touched] / (rows + table.sum(axis=0))[touched]).mean()) if touched.any() else None,
        "mcc": _correlation(table),
        "majority_accuracy": float(rows.max() / rows.sum()) if rows.sum() else None,
        "confusion_matrix": _matrix(table),
    }


def _matrix(table: IntArray) -> Matrix:
    return tuple(tuple(counts) for counts in table.tolist())


def _correlation(table: IntArray) -> float:
    """Return Gorodkin's R_K of a confusion matrix (K, K), 0 if all rows have, or are predicted as, one class.

    It is (c s - sum p t) / sqrt((s^2 - sum p^2) (s^2 - sum t^2)), for s rows, c correct ones, t rows of each class, and
    p rows predicted as each class.
    """
    of_class, called_so, total = table.sum(axis=1), table.sum(axis=0), int(table.sum())
    product = float(total**2 - called_so @ called_so) * float(total**2 - of_class @ of_class)
    return float(np.trace(table) * total - called_so @ of_class) / math.sqrt(product) if product else 0.0


def confusion_of(scores: SiteScores) -> Confusion:
    """Return the confusion matrix of the sites' scores."""
    return Confusion(scores.true_positive, scores.false_positive, scores.true_negative, scores.false_negative)


def metrics_from_counts(scores: SiteScores | ClassScores, threshold: float) -> FoldMetrics | None:
    """Return metrics from the counts of sites, for runs in which nobody sees decision values; None without rows.

    The ROC curve has a point for each bin that has rows.
    """
    if not scores.rows:
        return None
    if isinstance(scores, ClassScores):
        intervals = {"accuracy": share_interval(int(np.trace(scores.table)), scores.rows)}
        shares = _of_table(scores.table)
        return FoldMetrics(accuracy=scores.accuracy, auc=scores.auc, intervals=_found_intervals(intervals), **shares)
    found, auc = confusion_of(scores), scores.auc
    roc = None if auc is None else _binned_roc_curve(scores, found)
    intervals = {**_share_intervals(found), "auc": auc_interval(scores.positive, scores.negative)}
    return FoldMetrics(
        accuracy=scores.accuracy,
        auc=auc,
        threshold=threshold,
        **_of_confusion(found),
        roc=roc,
        intervals=_found_intervals(intervals),
    )


def _binned_roc_curve(scores: SiteScores, found: Confusion) -> RocCurve:
    filled = np.flatnonzero(scores.positive + scores.negative)[::-1]
    false, true = (
        np.concatenate([[0.0], np.cumsum(counts[filled]) / counts.sum()])
        for counts in (scores.negative, scores.positive)
    )
    return _roc_curve(false, true, found)


def mean_site_metrics(folds: Sequence[SiteScores | ClassScores]) -> SiteMetrics | None:
    """Return the sites' metrics over the folds; None without rows."""
    tested = [scores for scores in folds if scores.rows]
    if not tested:
        return None
    return SiteMetrics(
        accuracy=float(np.mean([scores.accuracy for scores in tested])),
        auc=_mean_known([scores.auc for scores in tested]),
        auc_resolution=max((scores.auc_resolution or 0.0 for scores in tested if scores.auc is not None), default=None),
        confusion=_add_tables([confusion_of(scores) for scores in tested if isinstance(scores, SiteScores)]),
        confusion_matrix=_added_matrices(
            [_matrix(scores.table) for scores in tested if isinstance(scores, ClassScores)]
        ),
    )


def _threshold_curve(decisions: FloatArray, labels: FloatArray) -> ThresholdCurve | None:
    """Return the curve of decision values (n,); None if all rows are of one class."""
    if len(np.unique(labels)) < 2:
        return None
    return ThresholdCurve.of(np.round(decisions, RANKED_DECIMALS), labels > 0)


def _class_curves(decisions: FloatArray, labels: FloatArray) -> list[ThresholdCurve | None]:
    """Return the curve of each class against the others, from decision values (n, K) and class numbers (n,)."""
    return [_threshold_curve(column, np.where(labels == k, 1.0, -1.0)) for k, column in enumerate(decisions.T)]


def _roc_curve(false: FloatArray, true: FloatArray, found: Confusion) -> RocCurve:
    sensitivity, specificity = found.sensitivity, found.specificity
    point = None if sensitivity is None or specificity is None else (1 - specificity, sensitivity)
    return RocCurve(_thin_curve(false), _thin_curve(true), point)


def _precision_recall_curve(curve: ThresholdCurve, found: Confusion) -> PrecisionRecallCurve:
    precision, recall = curve.precision_recall()
    point = None if found.sensitivity is None or found.ppv is None else (found.sensitivity, found.ppv)
    return PrecisionRecallCurve(_thin_curve(recall), _thin_curve(precision), point)


def _thin_curve(values: FloatArray) -> tuple[float, ...]:
    """Return a limited number of points of a curve, including its ends."""
    places = np.unique(np.linspace(0, len(values) - 1, min(len(values), _MAX_POINTS)).astype(int))
    return tuple(values[places].tolist())


def _calibration_curve(probabilities: FloatArray, positive: NDArray[np.bool_]) -> CalibrationCurve:
    """Return the calibration curve over the bins that have rows."""
    bins = np.minimum((probabilities * _CALIBRATION_BINS).astype(int), _CALIBRATION_BINS - 1)
    filled, rows = np.unique(bins, return_counts=True)
    return CalibrationCurve(
        predicted=tuple(float(probabilities[bins == each].mean()) for each in filled),
        observed=tuple(float(positive[bins == each].mean()) for each in filled),
        rows=tuple(rows.tolist()),
    )


def _decision_curve(probabilities: FloatArray, positive: NDArray[np.bool_]) -> DecisionCurve:
    """Return the net benefit at thresholds of 1 % to 99 %."""
    thresholds = np.arange(1, 100) / 100
    treated = np.greater_equal.outer(probabilities, thresholds)
    true, false = treated[positive].sum(axis=0), treated[~positive].sum(axis=0)
    cost, rows, share = thresholds / (1 - thresholds), len(positive), float(positive.mean())
    return DecisionCurve(
        threshold=tuple(thresholds.tolist()),
        net_benefit=tuple(((true - false * cost) / rows).tolist()),
        treat_all=tuple((share - (1 - share) * cost).tolist()),
    )


def accuracy(decisions: FloatArray, labels: FloatArray, threshold: float = 0.0) -> float:
    """Return the share of correctly predicted rows, as `evaluate` does."""
    return float(np.mean(predict_class(decisions, threshold) == (labels > 0 if decisions.ndim == 1 else labels)))


def score(decisions: FloatArray, labels: FloatArray, threshold: float = 0.0) -> Score:
    """Return accuracy and area under the ROC curve, as `evaluate` does."""
    curves = [_threshold_curve(decisions, labels)] if decisions.ndim == 1 else _class_curves(decisions, labels)
    areas = [None if each is None else each.area_under_roc() for each in curves]
    return Score(accuracy(decisions, labels, threshold), _mean_known(areas))


def compare(
    pooled: Pooled, decisions: FloatArray, labels: FloatArray, threshold: float = 0.0, *, is_tested: bool = True
) -> PooledFold:
    """Compare the results of pooled rows with the federation's decision values of the same rows.

    threshold: that of the federated model, which also applies to the model of pooled rows, since both have the same
    scale. is_tested: whether no model was trained on the rows.
    """
    found = score(pooled.scores, labels, threshold)
    best = pooled.scores if pooled.exact is None else pooled.exact
    return PooledFold(
        accuracy=found.accuracy,
        auc=found.auc,
        objective=pooled.objective,
        max_decision_difference=float(np.abs(pooled.scores - decisions).max()),
        exact_kernel=None if pooled.exact is None else score(pooled.exact, labels, threshold),
        gain=gain_over(decisions, [best], labels, threshold) if is_tested else None,
    )


def compare_baselines(baselines: Iterable[Baseline], labels: FloatArray) -> dict[str, BaselineMetrics]:
    """Return the metrics of other methods on the same rows, by their names."""
    found = [(each, score(each.scores, labels)) for each in baselines]
    return {each.name: BaselineMetrics(of.accuracy, of.auc, each.phrase, each.seconds) for each, of in found}


def mean_metrics(folds: list[FoldMetrics], folds_per_repeat: int = 1) -> Metrics | None:
    """Return means, deviations and confidence intervals over the folds; None without folds."""
    if not folds:
        return None
    values = {name: _known_values(folds, name) for name in MEASURES}
    matrices = [fold.confusion_matrix for fold in folds if fold.confusion_matrix is not None]
    means: dict[str, Any] = {name: _mean_known(known) for name, known in values.items()}
    return Metrics(
        **means,
        folds=tuple(folds),
        deviations={name: float(np.std(known, ddof=1)) for name, known in values.items() if len(known) > 1},
        intervals=_mean_intervals(folds, values, folds_per_repeat),
        confusion=_add_tables([fold.confusion for fold in folds if fold.confusion is not None]),
        confusion_matrix=_added_matrices(matrices),
    )


def _mean_intervals(
    folds: Sequence[FoldMetrics], values: Mapping[str, Sequence[float]], folds_per_repeat: int
) -> Mapping[str, Interval]:
    if len(folds) == 1:
        return folds[0].intervals
    return _found_intervals(
        {name: folds_interval(values[name], folds_per_repeat, bounds) for name, bounds in BOUNDS.items()}
    )


def _known_values(folds: Sequence[FoldMetrics], name: str) -> list[float]:
    return [value for fold in folds if (value := getattr(fold, name)) is not None]


def _add_tables(tables: list[Confusion]) -> Confusion | None:
    if not tables:
        return None
    return Confusion(*(sum(counts) for counts in zip(*(asdict(each).values() for each in tables), strict=True)))


def _added_matrices(tables: list[Matrix]) -> Matrix | None:
    return tuple(tuple(counts) for counts in np.sum(tables, axis=0).tolist()) if tables else None


def mean_pooled(folds: list[PooledFold], folds_per_repeat: int = 1) -> PooledMetrics | None:
    """Return the means over the folds, with the interval of the gain; None without folds."""
    if not folds:
        return None
    exact = [fold.exact_kernel for fold in folds if fold.exact_kernel is not None]
    return PooledMetrics(
        **_means(folds),
        objective=folds[-1].objective,
        max_decision_difference=max(fold.max_decision_difference for fold in folds),
        exact_kernel=Score(**_means(exact)) if exact else None,
        gain=mean_gain([fold.gain for fold in folds if fold.gain is not None], folds_per_repeat),
        folds=tuple(folds),
    )


def mean_baselines(folds: Sequence[dict[str, BaselineMetrics]]) -> dict[str, BaselineMetrics] | None:
    """Return the means over the folds, by the name of the method; None without folds."""
    if not folds:
        return None
    return {name: _mean_baseline([fold[name] for fold in folds if name in fold]) for name in folds[-1]}


def _mean_baseline(folds: Sequence[BaselineMetrics]) -> BaselineMetrics:
    seconds = _mean_known([each.seconds for each in folds])
    return BaselineMetrics(**_means(folds), phrase=folds[-1].phrase, seconds=seconds)


def _means(folds: Sequence[Score]) -> dict[str, Any]:
    accuracies, areas = [fold.accuracy for fold in folds], [fold.auc for fold in folds]
    return {"accuracy": float(np.mean(accuracies)), "auc": _mean_known(areas)}


def _mean_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None if all are."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
