"""Noise on the integers: the distributions that are promised, in one draw and in shares, and the accountant."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from scipy import special, stats

from fedsvm.algorithms.privacy import discrete_noise
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant, Release
from fedsvm.algorithms.privacy.discrete_noise import (
    discrete_gaussian,
    discrete_laplace,
    discrete_spherical,
    draw_many,
    gaussian_share,
    laplace_share,
    laplace_share_loss,
    spherical_distance,
    total_variation_bound,
)
from fedsvm.algorithms.privacy.mechanisms import (
    MechanismName,
    Noise,
    PrivacyParameters,
    gaussian_deviation,
    gaussian_epsilon,
    noise_for,
    spherical,
)
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.channel.generator import KeyedRandom
from fedsvm.federation.errors import FederationError
from tests.conftest import long_but_for

MIN_P = 1e-5
"""Of a right sampler one test in 100,000 would fail; a wrong one fails by tens of powers of ten."""


def laplace_mass(scale: float) -> Callable[[IntArray], FloatArray]:
    return lambda x: np.exp(-np.abs(x) / scale) * math.tanh(0.5 / scale)


def gaussian_mass(variance: float) -> Callable[[IntArray], FloatArray]:
    whole = np.arange(-int(40 * math.sqrt(variance)) - 40, int(40 * math.sqrt(variance)) + 41)
    norm = np.exp(-(whole**2) / (2 * variance)).sum()
    return lambda x: np.exp(-(x.astype(float) ** 2) / (2 * variance)) / norm


def p_value(draws: IntArray, mass: Callable[[IntArray], FloatArray]) -> float:
    """Chi-square of draws against a distribution on the integers; rare values count together, with the rarest other.

    One value of which a fiftieth was to be expected would else be as unlikely as no right sampler may be, in one test
    of fifty.
    """
    values = np.arange(draws.min() - 1, draws.max() + 2)
    expected = mass(values) * len(draws)
    kept = expected > 5
    seen = np.array([np.count_nonzero(draws == value) for value in values[kept]])
    likely, rarest = expected[kept], int(expected[kept].argmin())
    likely[rarest] += len(draws) - likely.sum()
    seen[rarest] += len(draws) - seen.sum()
    return float(stats.chisquare(seen, likely).pvalue)


@pytest.mark.parametrize("scale", [1, 2, 17])
def test_one_laplace_draw_has_its_distribution(scale: int) -> None:
    assert p_value(draw_many(lambda: discrete_laplace(scale), 20_000), laplace_mass(scale)) > MIN_P


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(4), Fraction(1000, 7)])
def test_one_gaussian_draw_has_its_distribution(variance: Fraction) -> None:
    assert p_value(draw_many(lambda: discrete_gaussian(variance), 10_000), gaussian_mass(float(variance))) > MIN_P


@pytest.mark.parametrize("parts", [1, 3, 10])
@pytest.mark.parametrize("scale", [2, 15])
def test_laplace_shares_sum_to_one_central_draw(scale: int, parts: int, record_property: Callable[..., None]) -> None:
    shares = np.sum([laplace_share(scale, parts, 20_000) for _ in range(parts)], axis=0)
    found = p_value(shares, laplace_mass(scale))
    record_property("p_value", found)
    assert found > MIN_P


@pytest.mark.parametrize("parts", long_but_for([1, 3, 10], 1, 3))
def test_gaussian_shares_sum_to_one_central_draw(parts: int, record_property: Callable[..., None]) -> None:
    shares = np.sum([gaussian_share(Fraction(400), parts, 10_000) for _ in range(parts)], axis=0)
    found = p_value(shares, gaussian_mass(400.0))
    record_property("p_value", found)
    assert found > MIN_P


def test_the_check_sees_noise_that_is_wrong_by_little() -> None:
    """A scale that is off by a tenth, shares that are one too few, and a zero that counts twice."""
    assert p_value(draw_many(lambda: discrete_laplace(22), 20_000), laplace_mass(20)) < MIN_P
    assert p_value(np.sum([laplace_share(15, 3, 20_000) for _ in range(2)], axis=0), laplace_mass(15)) < MIN_P
    doubled = draw_many(lambda: discrete_laplace(3), 20_000)
    doubled[: len(doubled) // 20] = 0
    assert p_value(doubled, laplace_mass(3)) < MIN_P


def test_every_step_of_the_lattice_occurs() -> None:
    """Even and odd, and every residue modulo a prime, about equally often: no coarser grid hides in the draws."""
    for draws in (
        draw_many(lambda: discrete_laplace(1 << 20), 7_000),
        laplace_share(1 << 20, 5, 70_000) + laplace_share(1 << 20, 5, 70_000),
        draw_many(lambda: discrete_gaussian(Fraction(1 << 20) ** 2), 7_000),
    ):
        large = draws[np.abs(draws) > 1000]  # a share alone is often 0
        for modulus in (2, 7):
            assert stats.chisquare(np.bincount(large % modulus, minlength=modulus)).pvalue > MIN_P


def test_keys_give_the_keystream_of_their_cipher() -> None:
    """The first test vector of RFC 8439, appendix A.1, and then in pieces over the blocks that are made at once."""
    source = KeyedRandom(bytes(32))
    assert source.randbytes(16).hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    assert source.randbytes(16).hex() == "bdd219b8a08ded1aa836efcc8b770dc7"
    key = os.urandom(32)
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(40_000))
    source = KeyedRandom(key)
    assert b"".join(source.randbytes(64) for _ in range(2 * 4096 // 64 + 3)) == stream[: 2 * 4096 + 3 * 64]
    assert KeyedRandom(key).randbytes(40_000) == stream
    for bits in (1, 7, 8, 13, 53):
        size = -(-bits // 8)
        assert KeyedRandom(key).getrandbits(bits) == int.from_bytes(stream[:size], "little") >> 8 * size - bits
    assert KeyedRandom(key).random() == (int.from_bytes(stream[:7], "little") >> 3) / 2**53
    for method in (source.getstate, lambda: source.setstate(0)):
        with pytest.raises(NotImplementedError):
            method()


def test_a_keyed_generator_gives_noise_as_good_as_the_systems() -> None:
    once, again = (laplace_share(22, 3, 50, KeyedRandom(b"k" * 32)) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert not np.array_equal(once, laplace_share(22, 3, 50, KeyedRandom(b"l" * 32)))
    keyed = KeyedRandom(os.urandom(32))
    assert p_value(draw_many(lambda: discrete_laplace(20, keyed), 20_000), laplace_mass(20)) > MIN_P
    assert p_value(draw_many(lambda: discrete_gaussian(Fraction(400), keyed), 10_000), gaussian_mass(400.0)) > MIN_P
    shares = np.sum([laplace_share(20, 3, 20_000, keyed) for _ in range(3)], axis=0)
    assert p_value(shares, laplace_mass(20)) > MIN_P
    assert sorted(keyed.sample(range(100), 100)) == list(range(100))


class GivenWords(Random):
    """A generator that gives these words of 64 bits."""

    def __init__(self, words: list[int]) -> None:
        super().__init__()
        self._words = words

    def randbytes(self, n: int) -> bytes:
        assert n == 8 * len(self._words)
        return np.array(self._words, dtype="<u8").tobytes()


EPS = Fraction(float(np.finfo(np.longdouble).eps))
"""The rounding error that the bound on the distance of shares counts with."""


def test_uniform_numbers_keep_the_lowest_of_their_bits() -> None:
    words = [0, 1, 2, 2**53 + 1, 2**63 - 1, 2**63 + 1, 2**64 - 3, 2**64 - 1, *(2**bit + 1 for bit in range(64))]
    numbers = discrete_noise._uniform(len(words), GivenWords(words)) * np.longdouble(2) ** 64
    for word, number in zip(words, numbers, strict=True):
        assert abs(int(number) - (word + 1)) <= (word + 1) * EPS / 2


@pytest.mark.parametrize("mean", [0.01, 0.5, 14.0])
def test_poisson_draws_change_where_the_distribution_function_does(mean: float) -> None:
    """The distribution function is summed here in rationals, of a mean that is a float."""
    tolerance, exact = int(32 * EPS * 2**64), Fraction(mean)
    below: list[int] = []
    total, term = Fraction(0), Fraction(Decimal(-mean).exp(Context(prec=60)))
    while 2**64 * (1 - total) > 4 * tolerance:
        total += term
        term *= exact / (len(below) + 1)
        below.append(int(2**64 * total))
    assert len(below) > 5
    words = [end + side for end in below[:-1] for side in (-tolerance - 1, tolerance)]
    draws = discrete_noise._poisson(mean, len(words), GivenWords(words))
    assert draws.tolist() == [count + above for count in range(len(below) - 1) for above in (0, 1)]


@pytest.mark.parametrize("parts", [1, 3])
def test_one_negative_binomial_alone_has_its_distribution(parts: int) -> None:
    """Each is the first of its vector."""
    keyed = KeyedRandom(os.urandom(32))
    draws = np.concatenate([discrete_noise._negative_binomial(2, parts, 1, keyed) for _ in range(4000)])
    mass = stats.nbinom(1 / parts, -math.expm1(-1 / 2)).pmf
    assert draws.min() >= 0
    assert p_value(draws, mass) > MIN_P


@pytest.mark.parametrize(
    "draw",
    [
        lambda source: draw_many(lambda: discrete_laplace(1000, source), 30),
        lambda source: draw_many(lambda: discrete_gaussian(Fraction(1000**2), source), 30),
        lambda source: laplace_share(1000, 1, 30, source),
        lambda source: laplace_share(1000, 3, 30, source),
        lambda source: gaussian_share(Fraction(1000**2), 3, 30, source),
    ],
    ids=["laplace", "gaussian", "whole", "laplace share", "gaussian share"],
)
def test_noise_that_is_drawn_again_from_its_key_is_the_same(draw: Callable[[Random], IntArray]) -> None:
    """Two noises of one vector would average out."""
    once, again, other = (draw(KeyedRandom(key * 32)) for key in (b"k", b"k", b"l"))
    assert once.shape == (30,)
    np.testing.assert_array_equal(once, again)
    assert not np.array_equal(once, other)


def test_one_gaussian_share_has_its_part_of_the_variance() -> None:
    share = gaussian_share(Fraction(900), 3, 50, KeyedRandom(b"k" * 32))
    source = KeyedRandom(b"k" * 32)
    np.testing.assert_array_equal(share, draw_many(lambda: discrete_gaussian(Fraction(300), source), 50))


def test_two_sites_draw_shares_of_the_noise_and_one_draws_it_exactly() -> None:
    key = b"k" * 32
    source = KeyedRandom(key)
    one, other = (discrete_noise._negative_binomial(50, 2, 30, source) for _ in range(2))
    np.testing.assert_array_equal(laplace_share(50, 2, 30, KeyedRandom(key)), one - other)
    source = KeyedRandom(key)
    whole = draw_many(lambda: discrete_laplace(50, source), 30)
    np.testing.assert_array_equal(laplace_share(50, 1, 30, KeyedRandom(key)), whole)


def test_the_distance_of_shares_is_small_and_grows_with_what_is_drawn() -> None:
    assert total_variation_bound(1 << 20, 1, 120) == 0.0
    assert 0 < total_variation_bound(1 << 20, 5, 120) < total_variation_bound(1 << 20, 5, 240) < 1e-6


@pytest.mark.parametrize("size", [1, 2, 3])
def test_spherical_noise_on_a_lattice_has_that_direction_and_norm_too(size: int) -> None:
    """Even and odd sizes are drawn in two ways, and one coordinate is a discrete Laplace."""
    scale = 2**20
    draws = np.array([discrete_spherical(scale, size) for _ in range(1500)])
    assert draws.dtype == np.int64
    norms = np.linalg.norm(draws / scale, axis=1)
    assert stats.kstest(norms, stats.gamma(size).cdf).pvalue > MIN_P
    if size == 3:
        assert stats.kstest(draws[:, 0] / scale / norms, stats.uniform(-1, 2).cdf).pvalue > MIN_P


def test_the_distance_of_spherical_noise_is_far_below_any_promise() -> None:
    assert spherical_distance(2**20, 1) == 0.0
    bounds = [spherical_distance(2**20, size) for size in (2, 3, 20, 120)]
    assert bounds[0] < 2.0**-58
    assert sorted(bounds, reverse=True)[:2] == bounds[:2]
    assert max(bounds[1:]) < 2.0**-79
    noise = noise_for(PrivacyParameters("spherical", 1.0), 30, 0.1, 0.0)
    assert 0 < noise.delta < 1e-30


# One share alone.


@pytest.mark.parametrize("epsilon", [1e3, 1e9])
def test_laplace_share_of_huge_epsilon_has_finite_loss(epsilon: float) -> None:
    noise = noise_for(PrivacyParameters("laplace", epsilon), size=9, sensitivity=0.01, gap=1e-9, shares=5)
    assert noise.share_epsilon == pytest.approx(epsilon, rel=0.2)  # since exp(-shift / scale) dominates the ratio


def test_a_third_of_a_gaussian_gives_an_epsilon_of_one_point_eight() -> None:
    for delta, expected in [(1e-6, 1.8138), (1e-5, 1.8350), (1e-2, 2.0796)]:
        noise = noise_for(PrivacyParameters("gaussian", 1.0, delta), 12, 0.1, 0.0, shares=3)
        assert noise.share_epsilon == pytest.approx(expected, abs=1e-4)
        assert gaussian_epsilon(gaussian_deviation(1.0, delta), delta) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_one_share_that_is_all_of_the_noise_gives_what_is_promised(mechanism: MechanismName) -> None:
    noise = noise_for(PrivacyParameters(mechanism, 0.7, 1e-6 if mechanism == "gaussian" else 0.0), 40, 0.1, 0.0)
    assert noise.share_epsilon == pytest.approx(0.7, rel=1e-4)


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_what_a_laplace_share_tells_is_most_where_it_is_zero(parts: int) -> None:
    """Beside the probabilities themselves, summed term by term."""
    scale, r, reach = 40, 1 / parts, 4000
    j = np.arange(reach)
    one = np.exp(special.gammaln(j + r) - special.gammaln(j + 1) - j / scale)
    chances = np.log(np.convolve(one, one[::-1])[reach - 1 - 400 : reach + 400])
    for shift in (1, 3, 30):
        loss = laplace_share_loss(scale, parts, shift)
        assert loss == pytest.approx(float((chances[:-shift] - chances[shift:]).max()), rel=1e-6)
    losses = [laplace_share_loss(scale, parts, shift) for shift in range(1, 30)]
    assert (np.diff(losses) > 0).all()
    assert (np.diff(losses, 2) < 0).all(), "concave, so that the worst case moves all coordinates alike"


def test_spherical_noise_has_a_uniform_direction_and_a_gamma_norm() -> None:
    draws = np.array([spherical(3, 2.0) for _ in range(4000)])
    norms = np.linalg.norm(draws, axis=1)
    assert stats.kstest(norms, stats.gamma(3, scale=2.0).cdf).pvalue > MIN_P
    assert stats.kstest(draws[:, 0] / norms, stats.uniform(-1, 2).cdf).pvalue > MIN_P  # Archimedes


# How much.


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (4.0, 1e-8)])
def test_the_gaussian_deviation_is_the_smallest_that_is_private(epsilon: float, delta: float) -> None:
    def delta_of(deviation: float) -> float:
        near, far = 0.5 / deviation - epsilon * deviation, -0.5 / deviation - epsilon * deviation
        return float(stats.norm.cdf(near) - math.exp(epsilon) * stats.norm.cdf(far))

    deviation = gaussian_deviation(epsilon, delta)
    assert delta_of(deviation) <= delta < delta_of(deviation * 0.999)
    assert deviation < math.sqrt(2 * math.log(1.25 / delta)) / epsilon, "the classical calibration is larger"


def test_noise_covers_the_minimiser_the_gap_and_the_rounding() -> None:
    noise = noise_for(PrivacyParameters("laplace", 0.5), 120, sensitivity=2e-4, gap=1e-12)
    l2 = 2e-4 + 2 * math.sqrt(2e-12) + math.sqrt(120) * noise.step
    assert noise.sensitivity == pytest.approx(math.sqrt(120) * l2, rel=1e-12)
    assert noise.scale == pytest.approx(noise.sensitivity / 0.5, rel=1e-12)
    assert noise.steps * noise.step >= noise.scale
    assert math.log2(noise.step) == int(math.log2(noise.step))
    assert 2**19 < noise.steps < 2**22


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "spherical"])
def test_releases_lie_on_the_lattice_whatever_they_are_releases_of(mechanism: str) -> None:
    """Floating point gives nothing away: what can be released does not depend on what is released."""
    privacy = PrivacyParameters(mechanism, 1.0, 1e-6 if mechanism == "gaussian" else 0.0)  # type: ignore[arg-type]
    noise = noise_for(privacy, 5, sensitivity=0.01, gap=0.0)
    for vector in (np.zeros(5), np.full(5, 1 / 3), np.array([math.pi, -math.e, 1e-9, 7.0, 0.1])):
        steps = noise.released(vector) / noise.step
        np.testing.assert_array_equal(steps, np.rint(steps))


def test_shares_are_not_counted_as_exact() -> None:
    alone, shared = (noise_for(PrivacyParameters("laplace", 1.0), 120, 1e-4, 0.0, parts) for parts in (1, 5))
    assert alone.delta == 0.0
    assert 0 < shared.delta < 1e-5
    assert Noise(PrivacyParameters("gaussian", 1.0, 1e-6), 1, 1.0, 1.0, 1.0, 5).delta == 1e-6


# The accountant.


def release(epsilon: float, delta: float = 0.0) -> Release:
    return Release("a vector", epsilon, delta, "laplace", 1.0, 1.0, ("everyone",), "the coordinator")


def test_releases_add_up_and_what_exceeds_the_budget_is_refused() -> None:
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    for _ in range(10):
        accountant.spend(release(0.1, 1e-7))
    assert accountant.spent == pytest.approx((1.0, 1e-6))
    with pytest.raises(
        FederationError, match=r"epsilon = 0\.1, delta = 0 after 1 and 1e-06 would exceed the budget of 1"
    ):
        accountant.spend(release(0.1))
    with pytest.raises(FederationError, match="nothing is released"):
        PrivacyAccountant(delta=1e-9).spend(release(0.1, 1e-8))
    assert len(accountant.releases) == 10
    report = accountant.report()
    assert report is not None
    assert (report.epsilon, report.delta) == accountant.spent
    assert (report.mechanism, len(report.releases)) == ("laplace", 10)
    assert (report.budget.epsilon, report.budget.delta) == (1.0, 1e-6)


def test_where_nothing_was_released_nothing_is_reported_and_a_budget_without_limit_is_none() -> None:
    accountant = PrivacyAccountant(delta=1e-6)
    assert accountant.report() is None
    accountant.spend(release(5.0))
    report = accountant.report()
    assert report is not None
    assert (report.budget.epsilon, report.budget.delta) == (None, 1e-6)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "spherical"])
def test_noise_is_as_long_as_is_said_before_it_is_drawn(mechanism: MechanismName) -> None:
    """The mean of 100 lengths is within a tenth; of 40 coordinates the deviation of one is below a fifth."""
    noise = noise_for(PrivacyParameters(mechanism, 1.0, 1e-5 if mechanism == "gaussian" else 0.0), 40, 0.1, 1e-12)
    lengths = [float(np.linalg.norm(noise.released(np.zeros(40)))) for _ in range(100)]
    assert np.mean(lengths) == pytest.approx(noise.length, rel=0.1)
