"""Confidence intervals (95 %) of measures on test rows.

Shares of counted rows have Wilson's interval. The area under a ROC curve has DeLong's variance on the scale of its
logit, from decision values or from their counts in bins, where pairs within a bin are ties. Slope and intercept of the
calibration are coefficients of a logistic regression, with Wald's interval. Means over folds have the corrected
resampled t interval: folds share training rows, so their uncorrected deviation is too small.

Differences of two models on the same rows are paired. The difference of accuracies has the interval of Bonett and
Price, which counts two more rows, one for each model. The interval of a difference of areas follows from the interval
of each area and the correlation of the two (MOVER; Zou). Unlike Wald's interval, neither collapses to a point if the
models differ on few rows.

All intervals apply to a fixed model and other test rows from the same population. Only those of means over folds apply
to other splits.

References
----------
E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22, 1927. E. R. DeLong,
D. M. DeLong and D. L. Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
characteristic curves", Biometrics 44, 1988. C. Nadeau and Y. Bengio, "Inference for the generalization error", Machine
Learning 52, 2003. D. R. Cox, "Two further applications of a model for binary regression", Biometrika 45, 1958.
D. G. Bonett and R. M. Price, "Adjusted Wald confidence interval for a difference of binomial proportions based on
paired data", Journal of Educational and Behavioral Statistics 37, 2012. G. Y. Zou, "Toward using confidence intervals
to compare correlations", Psychological Methods 12, 2007.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, IntArray

LEVEL = 0.95

_Z = NormalDist().inv_cdf((1 + LEVEL) / 2)

_MAX_NEWTON_STEPS = 25
_SMALL_STEP = 1e-10
_SMALLEST_PROBABILITY = 1e-15
_LEAST_INFORMATION = 1e-3
"""Sum of p (1 - p) below which the classes are completely separated, so that the likelihood has no maximum."""

Method = Literal["wilson", "delong", "wald", "corrected-t", "bonett-price", "mover"]


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval, and its method."""

    low: float
    high: float
    method: Method


def share_interval(part: int, whole: int) -> Interval | None:
    """Return Wilson's interval of a share of independent rows; None without rows."""
    if not whole:
        return None
    share, spread = part / whole, _Z**2 / whole
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return Interval(max(0.0, middle - half), min(1.0, middle + half), "wilson")


def auc_interval(positive: IntArray, negative: IntArray) -> Interval | None:
    """Return DeLong's interval of the area under the ROC curve; None with fewer than two rows of a class.

    If the classes are completely separated, the variance is 0. The interval is then Wilson's, for as many pairs as the
    smaller class has rows.

    Parameters
    ----------
    positive, negative : (k,) array of int
        The number of rows of each class with each decision value, or in each bin of it, lowest first.
    """
    m, n = int(positive.sum()), int(negative.sum())
    if min(m, n) < 2:
        return None
    of_positive = (np.cumsum(negative) - negative / 2) / n
    of_negative = 1 - (np.cumsum(positive) - positive / 2) / m
    auc = float(positive @ of_positive) / m
    variance = float(positive @ (of_positive - auc) ** 2) / (m - 1) / m
    variance += float(negative @ (of_negative - auc) ** 2) / (n - 1) / n
    return delong_interval(auc, variance, min(m, n))


def delong_interval(auc: float, variance: float, rows: int) -> Interval:
    """Return DeLong's interval of an area; without a variance, Wilson's for the rows of the smaller class."""
    if not 0 < auc < 1 or variance <= 0:
        found = share_interval(round(auc * rows), rows)
        return Interval(0.0, 1.0, "delong") if found is None else Interval(found.low, found.high, "delong")
    return auc_wald(auc, variance)


def auc_wald(auc: float, variance: float) -> Interval:
    """Return the interval of an area above 0 and below 1 with a variance, on the scale of its logit."""
    half = _Z * math.sqrt(variance) / (auc * (1 - auc))
    low, high = (1 / (1 + math.exp(-(math.log(auc / (1 - auc)) + sign * half))) for sign in (-1, 1))
    return Interval(low, high, "delong")


def paired_interval(total: float, squares: float, rows: float) -> Interval:
    """Return Bonett and Price's interval of a mean paired difference, which lies between -1 and 1.

    Parameters
    ----------
    total, squares : float
        Sum of the rows' differences, and of their squares. A row that only the first model predicts correctly has the
        difference 1, one that only the second does -1; with a mean of several models, values between occur.
    rows : float
        The number of rows.
    """
    mean = total / (rows + 2)
    half = _Z * math.sqrt(max(0.0, (squares + 2) / (rows + 2) - mean**2) / (rows + 2))
    return Interval(max(-1.0, mean - half), min(1.0, mean + half), "bonett-price")


@dataclass(frozen=True)
class Area:
    """An area under a ROC curve with its variance and its interval."""

    auc: float
    variance: float
    interval: Interval


def auc_gain_interval(area: Area, other: Area, variance: float) -> Interval:
    """Return the interval of the difference of two areas on the same rows (MOVER).

    Parameters
    ----------
    area, other : Area
        The two areas; the second is subtracted.
    variance : float
        DeLong's variance of the difference, from which the correlation follows. It is 0 if either area has no variance.
    """
    spread = math.sqrt(area.variance * other.variance)
    correlation = (area.variance + other.variance - variance) / (2 * spread) if spread > 0 else 0.0
    correlation = min(1.0, max(-1.0, correlation))
    gain = area.auc - other.auc

    def half(own: float, others: float) -> float:
        return math.sqrt(max(0.0, own**2 + others**2 - 2 * correlation * own * others))

    low = gain - half(area.auc - area.interval.low, other.interval.high - other.auc)
    high = gain + half(area.interval.high - area.auc, other.auc - other.interval.low)
    return Interval(max(-1.0, low), min(1.0, high), "mover")


def scores_interval(scores: FloatArray, positive: NDArray[np.bool_]) -> Interval | None:
    """Return `auc_interval` of scores (n,) of rows that are positive (n,) or not."""
    values, place = np.unique(scores, return_inverse=True)
    of_class = [np.bincount(place[kind], minlength=len(values)) for kind in (positive, ~positive)]
    return auc_interval(*of_class)


@dataclass(frozen=True)
class CalibrationFit:
    """Slope and intercept of a logistic regression of the outcomes on the predicted log odds, with their intervals.

    The intercept is that with a slope of 1 (calibration in the large).
    """

    slope: float
    slope_interval: Interval
    intercept: float
    intercept_interval: Interval


def calibration_fit(probabilities: FloatArray, positive: NDArray[np.bool_]) -> CalibrationFit | None:
    """Return the calibration of predicted probabilities (n,); None if the likelihood has no maximum.

    positive: the outcomes (n,).
    """
    clipped = np.clip(probabilities, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
    odds = np.log(clipped / (1 - clipped))
    sloped = _logistic(np.column_stack([odds, np.ones_like(odds)]), np.zeros_like(odds), positive)
    shifted = _logistic(np.ones((len(odds), 1)), odds, positive)
    if sloped is None or shifted is None:
        return None
    return CalibrationFit(sloped[0], _wald(*sloped), shifted[0], _wald(*shifted))


def _logistic(rows: FloatArray, offset: FloatArray, positive: NDArray[np.bool_]) -> tuple[float, float] | None:
    """Return the first coefficient of a logistic regression and its standard error; None if it does not converge."""
    coefficients = np.zeros(rows.shape[1])
    for _ in range(_MAX_NEWTON_STEPS):
        p = 1 / (1 + np.exp(-np.clip(rows @ coefficients + offset, -500, 500)))
        spread = p * (1 - p)
        information = rows.T @ (rows * spread[:, None])
        if spread.sum() < _LEAST_INFORMATION or np.linalg.cond(information) > 1 / np.finfo(float).eps:
            return None
        step = np.linalg.solve(information, rows.T @ (positive - p))
        coefficients = coefficients + step
        if np.abs(step).max() < _SMALL_STEP * (1 + np.abs(coefficients).max()):
            return float(coefficients[0]), math.sqrt(np.linalg.inv(information)[0, 0])
    return None


def _wald(value: float, error: float) -> Interval:
    return Interval(value - _Z * error, value + _Z * error, "wald")


def folds_interval(values: Sequence[float], folds: int, bounds: tuple[float, float]) -> Interval | None:
    """Return the corrected resampled t interval of a mean over folds and repeats; None for fewer than two values.

    The variance of the mean of J values is (1 / J + 1 / (folds - 1)) s^2, since a fold's test rows are 1 / (folds - 1)
    of its training rows.

    Parameters
    ----------
    values : sequence of float
        The measure in each fold of each repeat.
    folds : int
        The number of folds in a repeat, at least two.
    bounds : tuple of float
        The minimum and the maximum of the measure.
    """
    if len(values) < 2 or folds < 2:
        return None
    from scipy.special import stdtrit  # slow to import, only needed with folds

    quantile = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2))
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    half = quantile * deviation * math.sqrt(1 / len(values) + 1 / (folds - 1))
    return Interval(max(bounds[0], mean - half), min(bounds[1], mean + half), "corrected-t")
