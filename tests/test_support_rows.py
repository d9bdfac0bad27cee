"""The training rows that exact weights of an SVM name, and the noise in its objective that hides them."""

from __future__ import annotations

import numpy as np
import pytest

from fedsvm.algorithms.attacks.support_posterior import SupportEquation
from fedsvm.algorithms.attacks.support_rows import SupportRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.scenarios.run.audit import AttackResult, GroundTruth, audit_view
from tests.tasks import NAMES, table
from tests.views import WrittenDown, scaled

C, TOLERANCE = 4.0, 1e-6
CANDIDATES = table(300, seed=4)
THERE = LabeledRows(CANDIDATES.rows[:200], CANDIDATES.labels[:200])


def attacked(noise: float, C: float = C) -> tuple[AttackResult, AttackResult]:
    """Return the ranking and the claim of whoever holds a model of 200 rows in 160 features."""
    written, feature_map = WrittenDown(), FourierMap.draw(0.3, 80, len(NAMES), seed=1)
    features = feature_map(scaled(written, THERE.rows, []))
    tilt = np.asarray(noise * C * np.random.default_rng(1).standard_normal(features.shape[1]))  # features have length 1
    (found,) = solve_pooled([Problem.of(features, THERE.labels, C, tilt=tilt)], StoppingRule(TOLERANCE, 100))
    written.add("receive_map", **feature_map.to_fields(), w=found.w, b=np.array(found.b))
    truth = GroundTruth({"site-1": THERE}, {}, CANDIDATES)
    ranking, claim = audit_view(written.view(), [SupportRows(C, TOLERANCE, noise)], truth, None).attacks
    return ranking, claim


def test_exact_weights_name_most_rows_at_the_margin_and_within() -> None:
    ranking, claim = attacked(0.0)
    assert ranking.auc is not None
    assert ranking.auc > 0.97
    assert claim.false_claims == 0
    assert claim.recovered > 60


@pytest.mark.parametrize("c", [0.5, 40.0])
def test_noise_in_the_objective_hides_most_names_whatever_c_is_and_more_of_it_all(c: float) -> None:
    """A row that is unlike all others can be told through noise of a fifth of its largest part."""
    exact, usual, large = (attacked(noise, c)[1] for noise in (0.0, 0.2, 0.6))
    assert exact.recovered > 20
    assert usual.recovered <= 5
    assert large.claimed == 0


def test_nothing_is_claimed_where_the_prices_of_rows_are_unknown() -> None:
    written, feature_map = WrittenDown(), FourierMap.draw(0.3, 80, len(NAMES), seed=1)
    features = feature_map(scaled(written, THERE.rows, []))
    (found,) = solve_pooled([Problem.of(features, THERE.labels, C)], StoppingRule(TOLERANCE, 100))
    written.add("receive_map", **feature_map.to_fields(), w=found.w, b=np.array(found.b))
    truth = GroundTruth({"site-1": THERE}, {}, CANDIDATES)
    (only,) = audit_view(written.view(), [SupportRows(C, TOLERANCE, weighted=True)], truth, None).attacks
    assert only.auc is not None


def test_the_posterior_is_that_of_all_cases() -> None:
    """Three candidates below the margin, of which two are there: a is 0 or C, and there are eight cases."""
    random = np.random.default_rng(0)
    terms, there, noise = random.normal(size=(3, 2)), np.array([1.0, 1.0, 0.0]), np.full(2, 0.8)
    total = C * there @ terms + noise * random.normal(size=2)
    equation = SupportEquation(terms, total, noise, np.full(3, -2.0), np.full(3, 0.01))
    cases = np.array(list(np.ndindex(2, 2, 2)), dtype=np.float64)
    weights = np.exp(-0.5 * (((C * cases @ terms - total) / noise) ** 2).sum(axis=1))
    exact = weights @ cases / weights.sum()
    assert np.abs(equation.posterior(np.full(3, 0.5), C).chances - exact).max() < 0.1
