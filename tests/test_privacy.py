"""The privacy audit: a lower bound on epsilon from releases, which no mechanism may exceed, and which wrong ones do.

The pair of data sets is the worst there is: one row's label is flipped, so that minimisers are 2C/n apart, and its
features are as large in L1 as a vector of length 1 can be. The model is released tens of thousands of times from either
data set; the likelihood ratio of the mechanism itself, at a threshold chosen on other releases, tells them apart as
well as anything can. Clopper and Pearson's intervals make that a bound at 95 % confidence. The bits that the samplers
turn into noise come from a seeded generator here: an audit comes to the same each time, and takes a third of the time.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedsvm.algorithms.dp_erm.perturbation import perturb_objective
from fedsvm.algorithms.dp_erm.settings import ErmSettings
from fedsvm.algorithms.hybrid_svm.minimizer import minimize
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.privacy import discrete_noise
from fedsvm.algorithms.privacy.discrete_noise import laplace_share
from fedsvm.algorithms.privacy.mechanisms import Noise, PrivacyParameters, noise_for, spherical
from fedsvm.federation.arrays import FloatArray

ROWS, C, TOLERANCE = 200, 1.0, 1e-11
RELEASES = 40_000
CONFIDENCE, SURE = 0.95, 0.9999
"""A bound at 95 % is what is reported. A right mechanism may exceed it once in some hundred tests, so that what a test
demands is demanded at 99.99 %."""

DELTA = 1e-2
LARGEST_IN_L1 = np.full(2, math.sqrt(0.5))
"""A row of one frequency, D = 1, at an angle of 45 degrees."""

Mechanism = Callable[[FloatArray], FloatArray]


@contextmanager
def repeatable_draws() -> Iterator[None]:
    """Replace the operating system's generator, of which the samplers take bits and numbers, by a seeded one."""
    source = random.Random(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "SystemRandom", lambda: source)
        for name in ("getrandbits", "random", "randbytes"):
            patch.setattr(discrete_noise.SYSTEM, name, getattr(source, name))
        yield


def minimiser(features: FloatArray, labels: FloatArray, prior: FloatArray | None = None) -> FloatArray:
    start = np.zeros(features.shape[1]) if prior is None else prior
    return start + minimize(features, labels, start, C / len(labels), StoppingRule(TOLERANCE, 500)).w


def worst_pair() -> tuple[FloatArray, FloatArray]:
    """Minimisers of two data sets that differ in one row, as far apart as they can be."""
    features = np.tile(LARGEST_IN_L1, (ROWS, 1))
    labels = np.resize([1.0, -1.0], ROWS)
    flipped = labels.copy()
    flipped[0] = -1.0
    return minimiser(features, labels), minimiser(features, flipped)


def log_ratio(noise: Noise, releases: FloatArray, pair: tuple[FloatArray, FloatArray]) -> FloatArray:
    """log p(release | first) - log p(release | second), of the mechanism as it is declared."""
    first, second = (releases - noise.on_lattice(each) for each in pair)
    if noise.privacy.mechanism == "laplace":
        return np.asarray((np.abs(second) - np.abs(first)).sum(axis=1) / noise.scale)
    if noise.privacy.mechanism == "gaussian":
        return np.asarray(((second**2).sum(axis=1) - (first**2).sum(axis=1)) / (2 * noise.scale**2))
    return np.asarray((np.linalg.norm(second, axis=1) - np.linalg.norm(first, axis=1)) / noise.scale)


class Bounds(NamedTuple):
    """Below the epsilon of a mechanism, at 95 % and at 99.99 % confidence."""

    reported: float
    sure: float


def lower_bounds(noise: Noise, pair: tuple[FloatArray, FloatArray], release: Mechanism, delta: float = 0.0) -> Bounds:
    """Bounds for `release`, whose results are told apart as `noise` suggests."""
    with repeatable_draws():
        first, second = (np.array([release(each) for _ in range(RELEASES)]) for each in pair)
    of_first, of_second = (log_ratio(noise, releases, pair) for releases in (first, second))
    return best_bounds(of_first, of_second, delta)


def best_bounds(of_first: FloatArray, of_second: FloatArray, delta: float) -> Bounds:
    """Bounds at the threshold that is best on the other half of the ratios.

    Best at 99.99 %: at 95 % it is in the tail now and then, where a few releases decide, and says nothing of the rest.
    """
    half = len(of_first) // 2

    def bound(threshold: float, part: slice, confidence: float) -> float:
        first, second = (int((ratios[part] >= threshold).sum()) for ratios in (of_first, of_second))
        return _bound(first, second, half, delta, confidence)

    thresholds = np.quantile(np.concatenate([of_first[:half], of_second[:half]]), np.linspace(0.02, 0.995, 60))
    best = max(thresholds, key=lambda threshold: bound(threshold, slice(half), SURE))
    return Bounds(*(bound(best, slice(half, 2 * half), confidence) for confidence in (CONFIDENCE, SURE)))


def _bound(first: int, second: int, count: int, delta: float, confidence: float) -> float:
    """log of (a lower bound on the first chance, less delta) over (an upper bound on the second)."""
    unsure = (1 - confidence) / 2
    low = float(stats.beta.ppf(unsure, first, count - first + 1)) if first else 0.0
    high = float(stats.beta.ppf(1 - unsure, second + 1, count - second)) if second < count else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf


MECHANISMS = [
    PrivacyParameters("laplace", 1.0),
    PrivacyParameters("laplace", 0.5),
    PrivacyParameters("laplace", 2.0),
    PrivacyParameters("spherical", 1.0),
    PrivacyParameters("gaussian", 1.0, DELTA),
]
named = pytest.mark.parametrize("privacy", MECHANISMS, ids=lambda p: f"{p.mechanism} {p.epsilon}")


def declared(privacy: PrivacyParameters, sensitivity: float = 2.0) -> Noise:
    return noise_for(privacy, 2, sensitivity * C / ROWS, TOLERANCE * C)


def test_the_worst_pair_is_as_far_apart_as_the_bound_allows() -> None:
    first, second = worst_pair()
    assert np.linalg.norm(first - second) == pytest.approx(2 * C / ROWS, rel=1e-4)
    assert np.abs(first - second).sum() == pytest.approx(math.sqrt(2) * 2 * C / ROWS, rel=1e-4)


@pytest.mark.long
@pytest.mark.timeout(600)
@named
def test_no_mechanism_gives_away_more_than_it_promises(
    privacy: PrivacyParameters, record_property: Callable[..., None]
) -> None:
    noise, pair = declared(privacy), worst_pair()
    found = lower_bounds(noise, pair, noise.released, privacy.delta)
    record_property("epsilon_at_least", found.reported)
    assert found.sure <= privacy.epsilon
    if privacy.mechanism != "gaussian":  # whose delta is far out in the tail
        assert found.reported > 0.5 * privacy.epsilon, "the audit would not see a leak"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("privacy", [p for p in MECHANISMS if p.epsilon == 1.0], ids=lambda p: p.mechanism)
def test_half_the_noise_is_found_out(privacy: PrivacyParameters, record_property: Callable[..., None]) -> None:
    noise, pair = declared(privacy), worst_pair()
    halved = Noise(privacy, noise.size, noise.step, noise.scale / 2, noise.sensitivity, noise.shares)
    found = lower_bounds(halved, pair, halved.released, privacy.delta)
    record_property("epsilon_at_least", found.reported)
    assert found.sure > privacy.epsilon


@pytest.mark.long
def test_the_papers_printed_combination_is_found_out() -> None:
    """C times the sum in equation 3, and noise for C / n in algorithm 1: false by a factor of n."""
    features = np.tile(LARGEST_IN_L1, (ROWS, 1))
    labels = np.resize([1.0, -1.0], ROWS)
    flipped = np.where(np.arange(ROWS) == 0, -1.0, labels)
    printed = [minimize(features, y, np.zeros(2), 0.01, StoppingRule(1e-9, 500)).w for y in (labels, flipped)]
    noise = noise_for(PrivacyParameters("laplace", 1.0), 2, 4 * 0.01 / ROWS, 0.0)
    assert lower_bounds(noise, (printed[0], printed[1]), noise.released).sure > 2.0


@pytest.mark.parametrize(("share_of_noise", "found_out"), [(1.0, False), (0.5, True)])
@repeatable_draws()
def test_objective_perturbation_gives_away_no_more_than_it_promises(share_of_noise: float, found_out: bool) -> None:
    """In one dimension, where b follows from what is released, and with it the likelihood.

    Near 0 Huber's loss has slope -1 on both sides, so that a row at +1 in place of one at -1 moves b by 2, as far as
    anything can.
    """
    rows, epsilon, regularisation = 60, 1.0, 1.0
    huber = ErmSettings(regularisation, loss="huber", half_width=0.1, perturbation="objective", epsilon=epsilon)
    plan = perturb_objective(huber, 1, rows)
    scale = plan.scale or 0.0

    def released(positive: int) -> FloatArray:
        b = np.array([spherical(1, scale * share_of_noise)[0] for _ in range(RELEASES)])
        found = (2 * positive - rows - b) / (rows * regularisation)
        return found[np.abs(found) < 0.9]  # where all slopes are -1, and this is the minimiser

    def log_density(f: FloatArray, positive: int) -> FloatArray:
        return -np.abs(2 * positive - rows - rows * regularisation * f) / scale

    releases = released(31), released(30)
    assert min(map(len, releases)) > 0.99 * RELEASES
    count = int(0.99 * RELEASES)
    ratios = [log_density(f[:count], 31) - log_density(f[:count], 30) for f in releases]
    found = best_bounds(ratios[0], ratios[1], 0.0)
    assert (found.sure > epsilon) == found_out
    # of 24 audits the lowest came to 0.75, their mean to 0.80: below 0.65 it does not see what is there
    assert found.reported > 0.65 * epsilon


@pytest.mark.long
@repeatable_draws()
def test_shares_of_as_many_sites_as_must_remain_protect_as_much() -> None:
    """Three shares where noise is sized for three; with two of them it is found out."""
    privacy, pair = PrivacyParameters("laplace", 1.0), worst_pair()
    noise = noise_for(privacy, 2, 2 * C / ROWS, TOLERANCE * C, shares=3)

    def bounds(sites: int) -> Bounds:
        drawn = [laplace_share(noise.steps, 3, 2 * RELEASES * 2) for _ in range(sites)]
        shares = iter(np.sum(drawn, axis=0).reshape(-1, 2) * noise.step)
        return lower_bounds(noise, pair, lambda w: noise.on_lattice(w) + next(shares), noise.delta)

    enough = bounds(3)
    assert enough.reported > 0.65
    assert enough.sure <= 1.0
    assert bounds(2).sure > 1.0


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(1, 6), st.floats(0.01, 100.0), st.booleans())
def test_no_pair_of_neighbours_is_further_apart_than_the_sensitivity(
    seed: int, rows: int, frequencies: int, penalty: float, with_prior: bool
) -> None:
    """2C/n for the minimiser, whatever the rows, the replaced one, C and the prior are; plus what the gap allows."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, 2 * frequencies))
    features /= np.linalg.norm(features, axis=1)[:, None]
    labels = random.choice([-1.0, 1.0], rows)
    other_features, other_labels = features.copy(), labels.copy()
    direction = random.normal(size=2 * frequencies)
    other_features[0] = direction / np.linalg.norm(direction)
    other_labels[0] = random.choice([-1.0, 1.0])
    prior = random.normal(size=2 * frequencies) if with_prior else np.zeros(2 * frequencies)
    found = []
    for z, y in ((features, labels), (other_features, other_labels)):
        found.append(minimize(z, y, prior, penalty / rows, StoppingRule(TOLERANCE, 500)))
    assert all(solution.converged for solution in found)
    gap = TOLERANCE * penalty * (1 + float(np.linalg.norm(prior)))
    assert np.linalg.norm(found[0].w - found[1].w) <= 2 * penalty / rows + 2 * math.sqrt(2 * gap)
