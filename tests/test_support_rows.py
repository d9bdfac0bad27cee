"""The training rows that exact weights of an SVM name, and the noise on released weights that hides them."""

from __future__ import annotations

import numpy as np

from fedsvm import PanSVC
from fedsvm.algorithms.attacks.support_posterior import SupportEquation
from fedsvm.algorithms.attacks.support_rows import SupportRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.release_noise import with_noise
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.federation.arrays import FloatArray
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
    (found,) = solve_pooled([Problem.of(features, THERE.labels, C)], StoppingRule(TOLERANCE, 100))
    seed = np.arange(4, dtype=np.uint64)[None, :]
    ((*w, b),) = with_noise(np.append(found.w, found.b)[None, :], noise, seed)
    written.add("receive_map", **feature_map.to_fields(), w=np.array(w), b=np.array(b))
    truth = GroundTruth({"site-1": THERE}, {}, CANDIDATES)
    ranking, claim = audit_view(written.view(), [SupportRows(C, TOLERANCE, noise)], truth, None).attacks
    return ranking, claim


def test_exact_weights_name_most_rows_at_the_margin_and_within() -> None:
    ranking, claim = attacked(0.0)
    assert ranking.auc is not None
    assert ranking.auc > 0.97
    assert claim.false_claims == 0
    assert claim.recovered > 60


def test_noise_on_released_weights_hides_names_if_c_is_small() -> None:
    claimed = {(noise, c): attacked(noise, c)[1] for noise in (0.0, 0.2) for c in (0.5, 40.0)}
    assert claimed[0.0, 0.5].recovered > 20
    assert claimed[0.2, 0.5].claimed == 0
    assert claimed[0.2, 40.0].recovered > 20, "the part of a row is larger than the noise"


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


def test_a_released_model_has_the_noise_that_was_agreed() -> None:
    """The deviation of the noise on 60 weights is within bounds that one run in 10^7 breaks."""
    rows, labels = table(120, seed=1)
    where = np.array(["north", "south", "west"])[np.arange(120) % 3]

    def weights(noise: float) -> FloatArray:
        model = PanSVC(C=2.0, gamma=0.3, features="fourier", frequencies=30, step_noise=0.0, release_noise=noise)
        return np.asarray(model.fit(rows, labels, groups=where).model_.to_arrays()["w"])

    assert 0.5 < np.std(weights(0.3) - weights(0.0)) / 0.3 < 1.6


def test_noise_on_the_same_weights_is_the_same_and_on_others_another() -> None:
    """Otherwise a coordinator could order the release again, and average."""
    seed, weights = np.arange(4, dtype=np.uint64)[None, :], np.ones((2, 5))
    first, again = with_noise(weights, 0.1, seed), with_noise(weights, 0.1, seed)
    other = with_noise(weights + 1e-9, 0.1, seed)
    np.testing.assert_array_equal(first, again)
    assert np.abs(other - first)[:, :-1].min() > 1e-6
    assert (first[:, -1] == 1).all()
    assert np.abs(first[0] - first[1])[:-1].min() > 1e-6, "each problem has noise of its own"
    constant = np.stack([weights[0], [0, 0, 0, 0, -1]])
    np.testing.assert_array_equal(with_noise(constant, 0.1, seed), [first[0], constant[1]])
