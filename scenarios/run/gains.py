"""The gain of one model over others on the same test rows, with intervals that are paired by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.classes import predict_class
from fedsvm.algorithms.own_models import Placements
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.run.intervals import (
    Area,
    Interval,
    auc_gain_interval,
    delong_interval,
    folds_interval,
    paired_interval,
)

RANKED_DECIMALS = 9
"""Scores count as equal if they differ by less: identical rows differ in the last digits by the order of summation."""

BOUNDS = (-1.0, 1.0)
"""The minimum and the maximum of a gain."""


@dataclass(frozen=True)
class Gain:
    """The figures of one model minus those of another on the same test rows.

    Attributes
    ----------
    accuracy, auc : float
        The differences. `auc` is missing if either model has none.
    intervals : mapping of str to Interval
        95 % confidence intervals of both, by name. That of `auc` needs two classes with two test rows each.
    """

    accuracy: float
    auc: float | None
    intervals: Mapping[str, Interval] = field(default_factory=dict)


def gain_over(decisions: FloatArray, others: Sequence[FloatArray], labels: FloatArray, threshold: float = 0.0) -> Gain:
    """Return the gain of a model over the mean of others.

    Parameters
    ----------
    decisions : (n,) or (n, K) array
        The model's decision values of the test rows.
    others : sequence of array
        The decision values of the other models.
    labels : (n,) array
        +1 and -1, or class numbers for more than two classes.
    threshold : float
        Decision value from which all of them predict a row as positive.
    """
    truth = labels > 0 if decisions.ndim == 1 else labels
    right = np.mean([predict_class(values, threshold) == truth for values in others], axis=0)
    gained = (predict_class(decisions, threshold) == truth) - right
    intervals = {"accuracy": paired_interval(float(gained.sum()), float(gained @ gained), len(gained))}
    areas = [_auc(values, labels) for values in (decisions, *others)]
    known = [each for each in areas if each is not None]
    auc = known[0] - float(np.mean(known[1:])) if len(known) == len(areas) else None
    if auc is not None and decisions.ndim == 1 and (found := _auc_interval(decisions, others, labels > 0)) is not None:
        intervals["auc"] = found
    return Gain(float(gained.mean()), auc, intervals)


def _auc(decisions: FloatArray, labels: FloatArray) -> float | None:
    """Return the area under the ROC curve; for more than two classes the mean of each against the others.

    None if all rows are of one class.
    """
    of_class = [(decisions, labels > 0)]
    if decisions.ndim > 1:
        of_class = [(column, labels == k) for k, column in enumerate(decisions.T)]
    areas = [_placements(scores, known).auc for scores, known in of_class if 0 < known.sum() < len(known)]
    return float(np.mean(areas)) if areas else None


def _placements(scores: FloatArray, is_positive: NDArray[np.bool_]) -> Placements:
    """Return the placements of scores (n,); scores that differ only in their last digits are ties."""
    return Placements.of(np.round(scores, RANKED_DECIMALS), is_positive)


def _auc_interval(
    decisions: FloatArray, others: Sequence[FloatArray], is_positive: NDArray[np.bool_]
) -> Interval | None:
    """Return the interval of an AUC minus the mean of others; None with fewer than two rows of a class."""
    rows = int(min(is_positive.sum(), (~is_positive).sum()))
    if rows < 2:
        return None
    own, *placed = (_placements(each, is_positive) for each in (decisions, *others))
    mean = Placements(
        np.mean([each.positive for each in placed], axis=0), np.mean([each.negative for each in placed], axis=0)
    )
    area, other = (
        Area(each.auc, each.variance, delong_interval(each.auc, each.variance, rows)) for each in (own, mean)
    )
    return auc_gain_interval(area, other, own.less(mean).variance)


def mean_gain(folds: Sequence[Gain], folds_per_repeat: int) -> Gain | None:
    """Return the means over the folds, with the corrected resampled t intervals; None without folds."""
    if len(folds) < 2:
        return folds[0] if folds else None
    known = {
        "accuracy": [fold.accuracy for fold in folds],
        "auc": [fold.auc for fold in folds if fold.auc is not None],
    }
    found = {name: folds_interval(values, folds_per_repeat, BOUNDS) for name, values in known.items()}
    return Gain(
        float(np.mean(known["accuracy"])),
        float(np.mean(known["auc"])) if known["auc"] else None,
        {name: interval for name, interval in found.items() if interval is not None},
    )
