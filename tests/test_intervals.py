"""Confidence intervals: scipy's and scikit-learn's figures, and how often they hold the true value."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from fedsvm.algorithms.data.score_counts import count_scores as counts_of
from fedsvm.algorithms.site_scores import SiteScores
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.run.intervals import (
    auc_interval,
    calibration_fit,
    folds_interval,
    scores_interval,
    share_interval,
)
from fedsvm.scenarios.run.measuring import evaluate, mean_metrics, metrics_from_counts

DRAWS = 1000
LEAST, MOST = 930, 970
"""The range of seeded draws whose interval must contain the true value."""


def drawn(random: np.random.Generator, rows: int, distance: float = 1.2) -> tuple[FloatArray, FloatArray]:
    """Decision values (n,) and labels (n,); the classes are normal, so many deviations apart."""
    labels = np.where(np.arange(rows) < 0.4 * rows, 1.0, -1.0)
    return random.normal(size=rows) + distance * (labels > 0), labels


@pytest.mark.parametrize(("part", "whole"), [(0, 12), (5, 12), (12, 12), (190, 203)])
def test_share_interval_is_that_of_scipy(part: int, whole: int) -> None:
    found, expected = share_interval(part, whole), stats.binomtest(part, whole).proportion_ci(method="wilson")
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert share_interval(0, 0) is None


def test_share_interval_holds_the_true_share() -> None:
    random = np.random.default_rng(1)
    found = [share_interval(int(part), 80) for part in random.binomial(80, 0.7, DRAWS)]
    assert LEAST <= sum(each is not None and each.low <= 0.7 <= each.high for each in found) <= MOST


def test_auc_interval_has_the_variance_of_delong() -> None:
    decisions, labels = drawn(np.random.default_rng(2), 50)
    scores = np.round(decisions, 1)  # with ties
    positive, negative = scores[labels > 0], scores[labels < 0]
    pairs = np.where(positive[:, None] > negative, 1.0, np.where(positive[:, None] == negative, 0.5, 0.0))
    auc = pairs.mean()
    variance = pairs.mean(axis=1).var(ddof=1) / len(positive) + pairs.mean(axis=0).var(ddof=1) / len(negative)
    half = stats.norm.ppf(0.975) * np.sqrt(variance) / (auc * (1 - auc))
    found = scores_interval(scores, labels > 0)
    assert found is not None
    odds = np.log(auc / (1 - auc))
    assert found.low == pytest.approx(1 / (1 + np.exp(half - odds)), abs=1e-12)
    assert found.high == pytest.approx(1 / (1 + np.exp(-half - odds)), abs=1e-12)


@pytest.mark.parametrize("bins", [None, 20])
def test_auc_interval_holds_the_true_area(bins: int | None) -> None:
    random, held = np.random.default_rng(3), 0
    edges = np.array([]) if bins is None else np.linspace(-3, 4, bins - 1)
    grid = np.concatenate([[-np.inf], edges, [np.inf]])
    of_negative, of_positive = np.diff(stats.norm.cdf(grid)), np.diff(stats.norm.cdf(grid - 1.2))
    true = float(of_positive @ (np.cumsum(of_negative) - of_negative / 2))
    if bins is None:
        true = float(stats.norm.cdf(1.2 / np.sqrt(2)))
    for _ in range(DRAWS):
        decisions, labels = drawn(random, 120)
        scores = decisions if bins is None else np.digitize(decisions, edges).astype(float)
        found = scores_interval(scores, labels > 0)
        held += found is not None and found.low <= true <= found.high
    assert LEAST <= held <= MOST


def test_auc_interval_of_separated_classes_is_not_a_point() -> None:
    found = scores_interval(np.arange(20.0), np.arange(20) >= 15)
    assert found is not None and found.low == pytest.approx(0.5655, abs=1e-3) and found.high == 1
    assert auc_interval(np.array([1, 0]), np.array([0, 9])) is None, "one row has no variance"


def test_calibration_fit_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(4)
    odds = random.normal(size=400)
    positive = random.random(400) < 1 / (1 + np.exp(-(0.5 + 0.7 * odds)))
    found = calibration_fit(1 / (1 + np.exp(-odds)), positive)
    expected = LogisticRegression(C=np.inf, tol=1e-10).fit(odds[:, None], positive)
    assert found is not None
    assert found.slope == pytest.approx(expected.coef_[0, 0], abs=1e-5)
    shifted = 1 / (1 + np.exp(-(odds + found.intercept)))
    assert shifted.sum() == pytest.approx(positive.sum(), abs=1e-6), "calibrated in the large"


def test_calibration_intervals_hold_the_true_values() -> None:
    random = np.random.default_rng(5)
    held = np.zeros(2, dtype=int)
    for _ in range(DRAWS):
        odds = random.normal(size=200)
        probabilities = 1 / (1 + np.exp(-odds))
        found = calibration_fit(probabilities, random.random(200) < probabilities)
        assert found is not None
        slope, intercept = found.slope_interval, found.intercept_interval
        held += np.array([slope.low <= 1 <= slope.high, intercept.low <= 0 <= intercept.high])
    assert held.min() >= LEAST and held.max() <= MOST


def test_calibration_has_no_fit_where_classes_are_told_apart_completely() -> None:
    assert calibration_fit(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True])) is None
    assert calibration_fit(np.array([0.1, 0.2]), np.array([False, False])) is None


def test_folds_interval_is_the_corrected_resampled_t() -> None:
    values = [0.8, 0.85, 0.9, 0.7, 0.75, 0.8, 0.85, 0.8, 0.75, 0.8]
    error = np.sqrt((1 / 10 + 1 / 4) * np.var(values, ddof=1))
    low, high = stats.t.interval(0.95, 9, loc=np.mean(values), scale=error)
    found = folds_interval(values, 5, (0.0, 1.0))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert folds_interval([0.5], 5, (0.0, 1.0)) is None
    bounded = folds_interval([0.6, 1.0], 2, (0.0, 1.0))
    assert bounded is not None and (bounded.low, bounded.high) == (0, 1)


@pytest.mark.parametrize(("folds", "values"), [(5, 5), (10, 10), (5, 20)])
def test_folds_interval_holds_the_true_mean_of_values_as_correlated_as_folds_are(folds: int, values: int) -> None:
    random, shared = np.random.default_rng(8), np.sqrt(1 / folds)
    held = 0
    for _ in range(DRAWS):
        drawn_values = 0.8 + 0.02 * (shared * random.normal() + np.sqrt(1 - shared**2) * random.normal(size=values))
        found = folds_interval(drawn_values.tolist(), folds, (0.0, 1.0))
        held += found is not None and found.low <= 0.8 <= found.high
    assert LEAST <= held <= MOST


def fold_accuracies(random: np.random.Generator, rows: int, repeats: int) -> list[float]:
    """The accuracies of nearest means in repeated 5-fold cross-validation on drawn rows of three columns."""
    labels = np.where(np.arange(rows) % 2, 1.0, -1.0)
    columns = random.normal(size=(rows, 3)) + np.outer(labels, [0.8, 0, 0])
    found = []
    for _ in range(repeats):
        fold = random.permutation(rows) % 5
        for number in range(5):
            kept, held = fold != number, fold == number
            above, below = (columns[kept & (labels == sign)].mean(axis=0) for sign in (1, -1))
            decisions = (columns[held] - (above + below) / 2) @ (above - below)
            found.append(float(np.mean(decisions * labels[held] > 0)))
    return found


@pytest.mark.long
def test_folds_interval_holds_the_true_accuracy_of_repeated_cross_validation() -> None:
    """0.7852 is the mean accuracy of nearest means of 160 rows, from the normal distribution of 4,000 drawn models."""
    random = np.random.default_rng(7)
    found = [folds_interval(fold_accuracies(random, 200, 4), 5, (0.0, 1.0)) for _ in range(DRAWS)]
    assert LEAST <= sum(each is not None and each.low <= 0.7852 <= each.high for each in found) <= MOST


def test_metrics_have_intervals_of_test_rows_of_folds_and_of_counts() -> None:
    random = np.random.default_rng(6)
    shares = {"accuracy", "sensitivity", "specificity", "ppv", "npv", "auc"}
    folds = [evaluate(*drawn(random, 60), probabilities=random.uniform(0.1, 0.9, 60)) for _ in range(4)]
    alone, mean = mean_metrics(folds[:1]), mean_metrics(folds, 2)
    assert alone is not None and mean is not None
    assert set(alone.intervals) == set(mean.intervals) == shares | {"calibration_slope", "calibration_intercept"}
    assert {each.method for each in mean.intervals.values()} == {"corrected-t"}
    decisions, labels = drawn(random, 60)
    exact = evaluate(decisions, labels, threshold=0.3)
    counts = counts_of(decisions, labels[None], 0.3, 1000).astype(int)
    tp, fp, tn, fn = counts[:4].tolist()
    found = metrics_from_counts(SiteScores(tp, fp, tn, fn, counts[4:1004], counts[1004:]), 0.3)
    assert found is not None and set(found.intervals) == shares
    for name, interval in found.intervals.items():
        assert interval.low == pytest.approx(exact.intervals[name].low, abs=2e-3), name


def test_decision_curve_is_the_net_benefit() -> None:
    probabilities, labels = np.array([0.1, 0.4, 0.6, 0.9]), np.array([-1.0, 1.0, -1.0, 1.0])
    curve = evaluate(probabilities - 0.5, labels, probabilities=probabilities).decision_curve
    assert curve is not None
    at = curve.threshold.index(0.5)
    assert curve.net_benefit[at] == pytest.approx(1 / 4 - 1 / 4)
    assert curve.treat_all[at] == pytest.approx(0)
    assert curve.net_benefit[0] == pytest.approx(curve.treat_all[0])
