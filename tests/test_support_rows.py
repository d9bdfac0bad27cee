"""The training rows that exact weights of an SVM name, and the noise in its objective that hides them."""

from __future__ import annotations

import numpy as np
import pytest

from fedsvm.algorithms.attacks.joint_blocks import JointSupportRows
from fedsvm.algorithms.attacks.support_posterior import SupportEquation
from fedsvm.algorithms.attacks.support_rows import SupportRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.optimization import interior_point
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.joint_barrier import JointProblem
from fedsvm.algorithms.optimization.local_path import LocalPath, solve_pooled
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


@pytest.mark.parametrize("intercept", [True, False])
def test_a_file_of_a_joint_problem_ranks_rows_by_all_weights(intercept: bool) -> None:
    """A file without an intercept has zeros in its place, which are no equation."""
    written, feature_map, classes = WrittenDown(), FourierMap.draw(0.3, 80, len(NAMES), seed=1), 3
    kinds = (np.arange(300) % 3).astype(np.float64)
    rows = CANDIDATES.rows + 0.5 * np.eye(3, CANDIDATES.rows.shape[1])[kinds.astype(np.int64)] * CANDIDATES.rows.std(
        axis=0
    )
    there = LabeledRows(rows[:200], kinds[:200])
    features = feature_map(scaled(written, there.rows, []))
    of_class = np.eye(classes)[there.labels.astype(np.int64)].T
    problem = JointProblem.of_classes(features, of_class, np.full(200, C), intercept=intercept)
    path = LocalPath([problem])
    (found,) = interior_point.solve(
        path,
        problems=1,
        dimensions=problem.dimensions,
        intercept=False,
        stopping=StoppingRule(TOLERANCE, 100),
        barriers=classes,
    )
    weights = problem.weights(path.standings[0].v if found.keep else path.standings[0].best)
    written.add("receive_map", **feature_map.to_fields(), w=weights[:, :-1], b=weights[:, -1])
    truth = GroundTruth({"site-1": there}, {}, LabeledRows(rows, kinds), classes=classes)
    view = written.view()
    (ranking,) = audit_view(
        view, [SupportRows(C, TOLERANCE, is_joint=True), JointSupportRows(C, TOLERANCE)], truth, None
    ).attacks
    assert ranking.attack == "support rows, jointly"
    assert ranking.auc is not None and ranking.auc > 0.98
