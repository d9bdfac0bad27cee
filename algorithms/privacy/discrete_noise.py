"""Noise on the integers, from the operating system's generator or a keyed one: discrete Laplace, Gaussian, spherical.

Noise drawn in floating point gives itself away: which values are possible at all depends on what it is added to
(Mironov 2012). Here noise and result lie on one lattice, where every value is possible whatever the result is.

One draw of the first two is exact, with rational arithmetic and coins only (Canonne, Kamath and Steinke 2020,
algorithms 1 to 3). A spherical vector, of probability proportional to exp(-|z|), is a mixture of Gaussian ones, whose
variance is drawn in decimals: `spherical_distance` bounds what that costs.

Drawn in shares, one at each site, so that nobody knows the noise: the difference of two negative binomials with a
fractional count, whose sum over the sites is discrete Laplace; and discrete Gaussians of a share of the variance, whose
sum is as good as one (Kairouz, Liu and Steinke 2021, theorem 9). Negative binomials have no simple exact sampler:
`total_variation_bound` bounds how far those here are from the distribution.
"""

from __future__ import annotations

import decimal
import math
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from random import Random

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, IntArray

Wide = NDArray[np.longdouble]
SYSTEM: Random = random.SystemRandom()
"""The operating system's generator."""

_BITS = 64
_ERRORS = 160
"""Roundings of size eps that may add up in one logarithmic draw, over a support of 40 scales at four bounds each."""

_VARIANCE_BITS = 128
"""Behind the point of a variance that is drawn."""

_EXACT = decimal.Context(prec=90)


# One draw, exactly.


def discrete_laplace(scale: int, source: Random = SYSTEM) -> int:
    """Draw an integer x with probability proportional to exp(-|x| / scale)."""
    while True:
        low = source.randrange(scale)
        if not _bernoulli_exp(low, scale, source):
            continue
        high = 0
        while _bernoulli_exp(1, 1, source):
            high += 1
        size, negative = low + scale * high, source.randrange(2)
        if size or not negative:  # zero would count twice
            return -size if negative else size


def discrete_gaussian(variance: Fraction, source: Random = SYSTEM) -> int:
    """Draw an integer x with probability proportional to exp(-x^2 / (2 variance))."""
    scale = math.isqrt(variance.numerator // variance.denominator) + 1
    p, q = variance.numerator, variance.denominator
    while True:
        candidate = discrete_laplace(scale, source)
        if _bernoulli_exp((abs(candidate) * scale * q - p) ** 2, 2 * p * q * scale * scale, source):
            return candidate


def discrete_spherical(scale: int, size: int) -> IntArray:
    """Draw (size,) integers z with probability proportional to exp(-|z| / scale), |z| their length in L2.

    exp(-|z| / s) is the integral over v of exp(-|z|^2 / 2v) v^(-1/2) exp(-v / 2s^2), but for a factor. The sum of
    exp(-|z|^2 / 2v) over all z is as good as (2 pi v)^(size / 2), so that z is discrete Gaussian given a variance v
    that is Gamma((size + 1) / 2, 2 s^2).
    """
    if size == 1:
        return draw_many(lambda: discrete_laplace(scale), 1)
    exact = Fraction(_half_integer_gamma(size + 1)) * 2 * scale**2
    variance = Fraction(max(1, round(exact * 2**_VARIANCE_BITS)), 2**_VARIANCE_BITS)
    return draw_many(lambda: discrete_gaussian(variance), size)


def spherical_distance(scale: int, size: int) -> float:
    """Return a bound on the total variation distance of `discrete_spherical`; scale: 2^20 or more.

    With r(v) the sum over the integers of exp(-n^2 / 2v), over sqrt(2 pi v), to the power `size`, it is the mean of
    r - 1: below 2.2 size exp(-2 pi^2 v) for v >= 1, and (1 + 1 / sqrt(2 pi v))^size otherwise. The cost of the omitted
    bits of the variance is added.
    """
    if size == 1:
        return 0.0
    shape = (size + 1) / 2
    large = math.log2(2.2 * size) - shape * math.log2(1 + 4 * math.pi**2 * scale**2)
    small = 1 + size * math.log2(1.4) - math.lgamma(shape) / math.log(2) - shape * math.log2(2 * scale**2)
    return float(2.0**large + 2.0**small + size * 2.0 ** (16 - _VARIANCE_BITS))


def _half_integer_gamma(twice: int) -> Decimal:
    """Draw from Gamma of shape twice / 2: a sum of exponentials, plus one times a squared cosine for a half."""
    with decimal.localcontext(_EXACT):
        whole = _sum_of_exponentials(twice // 2)
        return whole + _sum_of_exponentials(1) * _squared_cosine() if twice % 2 else whole


def _sum_of_exponentials(count: int) -> Decimal:
    """Draw exponential numbers by inversion, from twice as many bits each, and add them: one logarithm of a product."""
    product = math.prod(SYSTEM.getrandbits(2 * _VARIANCE_BITS) + 1 for _ in range(count))
    return -(Decimal(product) / (1 << 2 * _VARIANCE_BITS * count)).ln()


def _squared_cosine() -> Decimal:
    """Draw the squared cosine of a uniform angle, from a uniform point in a quarter of a disk."""
    radius = 2**_VARIANCE_BITS
    while True:
        x, y = SYSTEM.randrange(radius) + 1, SYSTEM.randrange(radius) + 1
        if x * x + y * y <= radius * radius:
            return Decimal(x * x) / (x * x + y * y)


def _bernoulli_exp(numerator: int, denominator: int, source: Random) -> bool:
    """Return True with probability exp(-numerator / denominator), by coins of rational probability."""
    whole, rest = divmod(numerator, denominator)
    return all(_decays_up_to_one(1, 1, source) for _ in range(whole)) and _decays_up_to_one(rest, denominator, source)


def _decays_up_to_one(numerator: int, denominator: int, source: Random) -> bool:
    turn = 1
    while source.randrange(denominator * turn) < numerator:
        turn += 1
    return turn % 2 == 1


def draw_many(draw: Callable[[], int], size: int) -> IntArray:
    """Return (size,) independent draws."""
    return np.array([draw() for _ in range(size)], dtype=np.int64)


# Shares: `parts` of them add up to the noise.


def laplace_share(scale: int, parts: int, size: int, source: Random = SYSTEM) -> IntArray:
    """Draw (size,) shares whose sum over `parts` sites is discrete Laplace of this scale."""
    if parts == 1:
        return draw_many(lambda: discrete_laplace(scale, source), size)
    return _negative_binomial(scale, parts, size, source) - _negative_binomial(scale, parts, size, source)


def gaussian_share(variance: Fraction, parts: int, size: int, source: Random = SYSTEM) -> IntArray:
    """Draw (size,) shares whose sum over `parts` sites is practically discrete Gaussian of this variance."""
    return draw_many(lambda: discrete_gaussian(variance / parts, source), size)


def total_variation_bound(scale: int, parts: int, size: int) -> float:
    """Return a bound on the total variation distance of `size` sums of Laplace shares from the distribution."""
    if parts == 1:
        return 0.0
    draws = 2 * size * (math.log(scale) + 1) + size
    return float(draws * _ERRORS * scale * max(float(np.finfo(np.longdouble).eps), 2.0**-_BITS))


def laplace_share_loss(scale: int, parts: int, shift: int) -> float:
    """Return the log of how much likelier one Laplace share alone is to be 0 than `shift`.

    The probabilities fall from 0 on, and their logarithms are convex on either side: no other value tells more of
    whether it is shifted by so much.
    """
    if parts == 1:
        return shift / scale
    return _log_share_probability(scale, parts, 0) - _log_share_probability(scale, parts, shift)


def _log_share_probability(scale: int, parts: int, value: int) -> float:
    """Return the logarithm of the probability of a difference of two negative binomials, up to a constant.

    The probability is the sum over j of the products of those of j and j + value. A factor of exp(-value / scale),
    which may be too small for a float, is taken out of it. The sum is term by term up to 2^16, and beyond that an
    integral over log j.
    """
    from scipy.special import betaln  # for large k it is more exact than a difference of logarithms of gamma

    def terms(j: FloatArray) -> FloatArray:
        logs = [betaln(k + 1 / parts, 1 - 1 / parts) - j / scale for k in (j, j + value)]
        return np.asarray(np.exp(logs[0] + logs[1]))

    one_by_one = 2**16
    low, high = math.log(one_by_one - 0.5), math.log(one_by_one + 60.0 * scale)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    j = np.exp(low + (high - low) * (nodes + 1) / 2)
    beyond = (high - low) / 2 * float(weights @ (j * terms(j)))
    return math.log(float(terms(np.arange(one_by_one, dtype=np.float64)).sum()) + beyond) - value / scale


def _negative_binomial(scale: int, parts: int, size: int, source: Random) -> IntArray:
    """Draw counts with r = 1/parts and p = exp(-1/scale): a Poisson number of logarithmic draws."""
    log_rest = np.log(-np.expm1(np.longdouble(-1) / scale))  # of 1 - p
    counts = _poisson(float(-log_rest) / parts, size, source)
    draws = _logarithmic(scale, log_rest, int(counts.sum()), source)
    totals = np.concatenate([[0], np.cumsum(draws)])
    ends = np.cumsum(counts)
    return np.asarray(totals[ends] - totals[ends - counts])


def _poisson(mean: float, size: int, source: Random) -> IntArray:
    """Draw Poisson numbers by inversion of the distribution function."""
    terms = np.arange(1, math.ceil(mean + 40 * math.sqrt(mean + 1)) + 40, dtype=np.longdouble)
    masses = np.exp(np.longdouble(-mean)) * np.concatenate(
        [[np.longdouble(1)], np.cumprod(np.longdouble(mean) / terms)]
    )
    return np.searchsorted(np.cumsum(masses), _uniform(size, source)).astype(np.int64)


def _logarithmic(scale: int, log_rest: np.longdouble, size: int, source: Random) -> IntArray:
    """Draw by Kemp's method (1981): geometric with a random parameter."""
    first, second = _uniform(size, source), _uniform(size, source)
    log_q = np.log1p(-np.exp(log_rest * first))
    with np.errstate(divide="ignore"):  # q = 0 leaves 1
        values = np.floor(1 + np.log(second) / log_q)
    return np.where(np.log(second) >= np.longdouble(-1) / scale, 1, values).astype(np.int64)


def _uniform(size: int, source: Random) -> Wide:
    """Draw numbers in (0, 1], of 64 bits each."""
    bits = np.frombuffer(source.randbytes(8 * size), dtype=np.uint64)
    return np.asarray((bits.astype(np.longdouble) + 1) / np.longdouble(2) ** _BITS)
