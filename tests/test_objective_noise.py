"""Noise in the objective: what is trained and certified with it, and that a question has one draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.optimization.barrier import TARGET_SPREAD, Problem
from fedsvm.algorithms.optimization.interior_point import NoiseSize
from fedsvm.algorithms.optimization.linear_svm_settings import OBJECTIVE_NOISE, LinearSvmSettings
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.masking import Masking
from fedsvm.algorithms.optimization.objective_noise import (
    SiteNoise,
    draw_noise,
    noise_size,
    released_deviation,
)
from fedsvm.algorithms.optimization.path_sums import choose_points
from fedsvm.algorithms.optimization.solution import StoppingRule, relative_gap
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.site.partition import Partition
from tests.in_process import Loss
from tests.test_interior_point import PathSite, Training, game, part_of, primal, random_problem, rows_without, train

SIZE, TOLERANCE = 0.2, 1e-5


def draws(found: Training) -> FloatArray:
    """Return (P, m), the sum of the draws of the sites that take part."""
    noises = [found.federation.programs[site].path.noise for site in found.federation.sites]  # type: ignore[attr-defined]
    return np.asarray(np.sum([noise.draws for noise in noises], axis=0))


def sizes(found: Training, problem: Problem) -> NoiseSize:
    """Return what the coordinator was last told of the noise."""
    told = [total for step, total, _ in found.federation.opened if step == "noise_sizes"]
    return noise_size(told[-1], problem.features.shape[1])


def exact_weights(found: Training) -> FloatArray:
    """Return (P, m + 1), the weights and intercepts that the sites have."""
    path = found.federation.programs[found.federation.sites[-1]].path  # type: ignore[attr-defined]
    return np.asarray(path.best(*choose_points(found.outcomes)))


def with_targets(found: Training, problem: Problem) -> Problem:
    """Return the problem of the rows of the sites that take part, with their secret targets."""
    paths = [found.federation.programs[site].path.paths for site in found.federation.sites]  # type: ignore[attr-defined]
    parts = [path.problems[0] for path in paths]
    assert sum(len(part.labels) for part in parts) == len(problem.labels)
    targets = np.concatenate([part.targets for part in parts])
    assert np.std(targets - 1) > 0.3 * TARGET_SPREAD and np.abs(targets - 1).max() <= TARGET_SPREAD
    features, labels = np.vstack([part.features for part in parts]), np.concatenate([part.labels for part in parts])
    return Problem(features, labels, np.concatenate([part.prices for part in parts]), targets, problem.lever)


def check(found: Training, problem: Problem, slack: float = 1e-9) -> None:
    """The sites' weights are optimal for the problem with their noise, as far as was certified."""
    problem = with_targets(found, problem)
    ((*weights, intercept),) = exact_weights(found)
    (tilt,), w, certificate = draws(found), np.array(weights), found.certificate
    constant = sizes(found, problem).constant
    exact = primal(problem, w, float(intercept)) + tilt @ w + constant
    (alone,) = solve_pooled([replace(problem, tilt=tilt)], StoppingRule(TOLERANCE / 100, 200))
    optimum = alone.objective - tilt @ tilt / 2 + constant
    assert certificate.converged
    assert -1e-9 <= certificate.objective / exact - 1 <= slack + 1e-9
    assert certificate.lower_bound <= optimum
    assert exact <= optimum * (1 + TOLERANCE)
    assert np.linalg.norm(tilt) <= sizes(found, problem).length


@pytest.mark.parametrize(("masking", "slack"), [("congruence", 0.0), ("committee", TOLERANCE)])
@pytest.mark.parametrize("intercept", [True, False])
def test_what_is_certified_is_the_problem_with_the_noise_of_all_sites(
    masking: Masking, slack: float, *, intercept: bool
) -> None:
    problem = game(0.03, 10.0, 30)
    problem = problem if intercept else replace(problem, lever=0.0)
    found = train(problem, masking=masking, tolerance=TOLERANCE, objective_noise=SIZE)
    check(found, problem, slack)


@pytest.mark.parametrize("masking", ["congruence", "committee"])
def test_bounds_hold_wherever_training_with_secret_targets_ends(masking: Masking) -> None:
    for most in range(2, 8):
        problem = random_problem(most) if most % 2 else game(0.03, 10.0, 30)
        found = train(problem, masking=masking, tolerance=TOLERANCE, objective_noise=SIZE, most=most)
        (tilt,), targeted = draws(found), with_targets(found, problem)
        (alone,) = solve_pooled([replace(targeted, tilt=tilt)], StoppingRule(TOLERANCE / 100, 200))
        optimum = alone.objective - tilt @ tilt / 2 + sizes(found, problem).constant
        assert found.certificate.lower_bound <= optimum
        assert found.certificate.objective >= optimum * (1 - 1e-9)


def test_noise_as_large_as_the_losses_is_certified_too() -> None:
    problem = game(0.03, 1000.0, 30)
    check(train(problem, tolerance=TOLERANCE, objective_noise=0.9), problem)


@pytest.mark.parametrize("restarted", [False, True])
def test_the_noise_leaves_with_a_site_and_comes_back_with_it(*, restarted: bool) -> None:
    problem = game(0.03, 10.0, 30)
    found = train(problem, objective_noise=SIZE, losses={("newton", 4): Loss(("site-2",), restarted=restarted)})
    check(found, problem if restarted else part_of(problem, rows_without(problem, 1)))


def test_each_problem_has_a_draw_of_its_own() -> None:
    problem = random_problem(1)
    found = train(problem, labels=np.stack([problem.labels, problem.labels]), objective_noise=SIZE)
    first, second = draws(found)
    assert np.abs(first - second).min() > 0
    assert found.weights is not None
    assert np.abs(found.weights[0] - found.weights[1]).max() > 1e-6


def test_released_weights_have_a_little_noise_of_which_every_site_adds_a_share() -> None:
    """Its deviation on 30 weights is within bounds that one run in 10^7 breaks."""
    problem = game(0.03, 10.0, 30)
    found = train(problem, objective_noise=SIZE)
    exact = exact_weights(found)
    assert found.weights is not None
    added = found.weights - exact
    paths = [found.federation.programs[site].path for site in found.federation.sites]  # type: ignore[attr-defined]
    shares = [path.noise.released_share(exact, len(paths)) for path in paths]
    np.testing.assert_allclose(added, np.sum(shares, axis=0), atol=1e-6)
    assert all(np.abs(share).max() > 0 for share in shares)
    usual = np.mean([released_deviation(path.noise.mean_square) ** 2 for path in paths]) ** 0.5
    assert 0.3 < np.std(added[0, :-1]) / usual < 2
    assert added[0, -1] == pytest.approx(0, abs=1e-6)


def test_a_share_of_the_released_noise_is_the_same_for_the_same_weights_alone() -> None:
    """Otherwise a coordinator could order the release again, and average."""
    site = drawing_site()
    noise = draw_noise(site, SIZE, np.eye(4, 5), np.ones((2, 4)), np.full(4, 2.0))
    weights = np.ones((2, 6))
    first = noise.released_share(weights, 5)
    np.testing.assert_array_equal(noise.released_share(weights, 5), first)
    assert np.abs(noise.released_share(weights + 1e-9, 5) - first)[:, :-1].min() > 1e-7
    fewer = noise.released_share(weights, 4)
    assert np.ptp(fewer[0, :-1] / first[0, :-1]) > 1e-3, "two sizes of one draw would give the weights away"
    assert np.abs(first[0] - first[1])[:-1].min() > 1e-7, "each problem has noise of its own"
    constant = np.stack([weights[0], [0, 0, 0, 0, 0, -1]])
    np.testing.assert_array_equal(noise.released_share(constant, 5), [first[0], np.zeros(6)])


def test_features_next_to_nothing_leave_the_released_noise_as_long_as_the_weights_at_most() -> None:
    noise = draw_noise(drawing_site(), SIZE, 1e-200 * np.eye(4, 5), np.ones((1, 4)), np.full(4, 2.0))
    assert np.abs(noise.released_share(np.ones((1, 6)), 5)).max() < 5


@pytest.mark.parametrize(("sites", "present", "enough"), [(5, 5, True), (5, 3, True), (5, 2, False), (3, 2, True)])
def test_nothing_is_released_if_more_than_half_of_the_noise_is_gone(sites: int, present: int, *, enough: bool) -> None:
    noise = SiteNoise(np.zeros((1, 2)), 1.0, 1.0, sites, np.zeros((1, 4), dtype=np.uint64))
    assert noise.has_enough(present) == enough


class _Channel:
    """Of a site's channel what a draw uses."""

    sites = ("site-1", "site-2", "site-3", "site-4", "site-5")

    def __init__(self) -> None:
        self.random = lambda shape: np.random.default_rng().integers(0, 2**64, size=shape, dtype=np.uint64)


def drawing_site() -> PathSite:
    site = PathSite("site-1", Partition({"numeric": np.ones((4, 3)), "labels": np.ones((1, 4))}), {})
    site.channel = _Channel()  # type: ignore[assignment]
    return site


def test_the_same_question_has_the_same_noise_and_any_other_fresh_noise() -> None:
    site, features, labels, prices = drawing_site(), np.eye(4, 3), np.ones((1, 4)), np.full(4, 2.0)
    first = draw_noise(site, SIZE, features, labels, prices).draws
    np.testing.assert_array_equal(draw_noise(site, SIZE, features, labels, prices).draws, first)
    asked: list[tuple[Any, ...]] = [
        (features + 1e-15, labels, prices),
        (features, -labels, prices),
        (features, labels, prices * (1 + 1e-15)),
    ]
    others = [draw_noise(site, SIZE, *question).draws for question in asked]
    site.terms = replace(site.terms, settings={"tolerance": 1e-4})
    others.append(draw_noise(site, SIZE, features, labels, prices).draws)
    assert all(np.abs(other - first).min() > 1e-6 for other in others)


def test_the_noise_of_all_other_sites_is_as_large_as_agreed() -> None:
    """Relative to the root mean square of a row's largest part, C |f|; and no draw is longer than the sites say."""
    features = np.array([[3.0, 4.0], [0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    noise = draw_noise(drawing_site(), SIZE, features, np.ones((1, 4)), np.full(4, 2.0))
    assert noise.deviation * 2 == pytest.approx(SIZE * 2.0 * np.sqrt(75 / 4))
    assert np.linalg.norm(noise.draws) <= noise.sizes[0]
    assert noise.sizes[1] == pytest.approx(noise.deviation**2)


def test_a_site_without_rows_has_no_noise() -> None:
    noise = draw_noise(drawing_site(), SIZE, np.zeros((0, 2)), np.ones((1, 0)), np.zeros(0))
    assert not noise.draws.any()
    assert not noise.sizes.any()


@pytest.mark.parametrize(
    ("changes", "sites", "mu", "size"),
    [
        ({}, 5, 0.5, OBJECTIVE_NOISE),
        ({}, 5, 0.0, 0.0),
        ({}, 1, 0.5, 0.0),
        ({"masking": "none"}, 5, 0.5, 0.0),
        ({"solver": "cutting-plane"}, 5, 0.5, 0.0),
        ({"solver": "auto"}, 5, 0.5, 0.0),
        ({"objective_noise": 0.1}, 5, 0.0, 0.1),
        ({"objective_noise": 0.0}, 5, 0.5, 0.0),
    ],
)
def test_the_default_size_is_for_runs_that_hide_rows_elsewhere(
    changes: dict[str, Any], sites: int, mu: float, size: float
) -> None:
    assert LinearSvmSettings(**changes).noise_among(sites, mu) == size


def test_an_objective_that_is_not_above_zero_is_certified_by_equality_alone() -> None:
    assert relative_gap(0.0, 0.0) == 0.0
    assert relative_gap(-1.0, -2.0) == 1.0
