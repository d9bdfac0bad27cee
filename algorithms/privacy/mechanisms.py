"""Noise that makes a vector differentially private: how much, and how it is drawn.

Neighbouring data sets differ in one row, and their number of rows is public. The vector lies on a lattice, so that no
value is possible under one neighbour only; rounding to it, and stopping short of the exact minimiser, add to what one
row can change, and both are in the sensitivity here.

laplace    each coordinate discrete Laplace of scale L1 / epsilon: pure epsilon.
gaussian   each coordinate discrete Gaussian, calibrated by Balle and Wang (2018, theorem 8): (epsilon, delta). On a
           lattice 2^20 times finer than the noise, discrete and continuous are as good as the same.
spherical  points of the lattice with probability proportional to exp(-epsilon |b| / L2), as Chaudhuri, Monteleoni and
           Sarwate (2011) have it for all points: pure epsilon. Its norm does not come in shares, so the coordinator
           draws it, and sees the vector without noise.

How far what is drawn may be from these distributions is in delta.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from fedsvm.algorithms.privacy.discrete_noise import (
    discrete_gaussian,
    discrete_laplace,
    discrete_spherical,
    draw_many,
    laplace_share_loss,
    spherical_distance,
    total_variation_bound,
)
from fedsvm.federation.arrays import FloatArray

MechanismName = Literal["laplace", "gaussian", "spherical"]
FINENESS_BITS = 20
"""The lattice is finer than the noise by this many powers of two."""

_LARGEST_EXPONENT = 700.0
"""Of e in float64; an epsilon beyond it promises nothing anyway."""


@dataclass(frozen=True)
class PrivacyParameters:
    """The guarantee of a release, and its mechanism. delta belongs to the Gaussian mechanism."""

    mechanism: MechanismName
    epsilon: float
    delta: float = 0.0


@dataclass(frozen=True)
class Noise:
    """Noise for vectors of `size` on the lattice of `step`.

    scale: of the mechanism, in the vector's units: a coordinate's scale (laplace), its standard deviation (gaussian),
    L2 / epsilon (spherical). sensitivity: how far one row moves the vector, rounding and optimality gap included, in
    the norm that the mechanism needs. shares: how many shares make up the noise; each site draws one.
    """

    privacy: PrivacyParameters
    size: int
    step: float
    scale: float
    sensitivity: float
    shares: int

    @property
    def is_divisible(self) -> bool:
        """True if sites can draw it in shares that add up to it."""
        return self.privacy.mechanism != "spherical"

    @property
    def delta(self) -> float:
        """The promised delta, plus the distance of the draws from their distribution, for either neighbor."""
        if self.privacy.mechanism == "gaussian":
            return self.privacy.delta
        bound = total_variation_bound(self.steps, self.shares, self.size)
        if self.privacy.mechanism == "spherical":
            bound = spherical_distance(self.steps, self.size)
        return min(1.0, (1 + math.exp(min(self.privacy.epsilon, _LARGEST_EXPONENT))) * bound)

    @property
    def share_epsilon(self) -> float:
        """The epsilon of a vector with one share of the noise alone, for the delta that is promised.

        gaussian: that of a deviation smaller by the root of the number of shares. laplace: a share is far likelier
        to be 0 than anything else, and the worst case moves all coordinates alike, since what a coordinate tells is
        concave in the square of how far it moves.
        """
        if self.privacy.mechanism == "gaussian":
            deviation = self.steps * self.step / math.sqrt(self.shares) / self.sensitivity
            return gaussian_epsilon(deviation, self.privacy.delta)
        of_coordinate = math.ceil(self.sensitivity / self.size / self.step * (1 - 1e-12))
        return self.size * laplace_share_loss(self.steps, self.shares, of_coordinate)

    @property
    def steps(self) -> int:
        """The scale in steps of the lattice, rounded up."""
        return math.ceil(self.scale / self.step)

    @property
    def length(self) -> float:
        """The Euclidean length: on average (spherical), or the root of the mean square."""
        of_coordinate = {"spherical": math.sqrt(self.size), "laplace": math.sqrt(2), "gaussian": 1.0}
        return self.scale * math.sqrt(self.size) * of_coordinate[self.privacy.mechanism]

    @property
    def variance(self) -> Fraction:
        """Of a Gaussian coordinate, in squared steps."""
        return Fraction(self.steps) ** 2

    @property
    def drawn_by(self) -> str:
        """The parties that draw it."""
        if not self.is_divisible:
            return "the coordinator"
        return f"the sites, in shares for {self.shares} of them" if self.shares > 1 else "the sites, all of it at each"

    def on_lattice(self, vector: FloatArray) -> FloatArray:
        """Return the vector with every coordinate moved to the nearest point of the lattice."""
        return np.asarray(np.rint(vector / self.step) * self.step)

    def released(self, vector: FloatArray) -> FloatArray:
        """Return the vector on the lattice with noise drawn here."""
        if self.privacy.mechanism == "spherical":
            return self.on_lattice(vector) + discrete_spherical(self.steps, self.size) * self.step
        draw: Callable[[], int] = lambda: discrete_laplace(self.steps)  # noqa: E731
        if self.privacy.mechanism == "gaussian":
            draw = lambda: discrete_gaussian(self.variance)  # noqa: E731
        return self.on_lattice(vector) + draw_many(draw, self.size) * self.step


def noise_for(privacy: PrivacyParameters, size: int, sensitivity: float, gap: float, shares: int = 1) -> Noise:
    """Return noise for a vector of `size`.

    sensitivity: how far one row moves the exact minimiser of a 1-strongly convex objective, in L2. gap: how far the
    objective may be above its minimum; each of two neighbours is within sqrt(2 gap) of its minimiser.
    """
    l2 = sensitivity + 2 * math.sqrt(2 * gap)
    rough = _scale(privacy, size, l2)
    step = 2.0 ** (math.floor(math.log2(rough)) - FINENESS_BITS)
    l2 += math.sqrt(size) * step  # rounding moves each of two neighbours by half a step a coordinate
    return Noise(privacy, size, step, _scale(privacy, size, l2), _norm(privacy, size, l2), shares)


def _norm(privacy: PrivacyParameters, size: int, l2: float) -> float:
    """Return the sensitivity in the norm of the mechanism: L1 is at most sqrt(size) times L2."""
    return l2 * math.sqrt(size) if privacy.mechanism == "laplace" else l2


def _scale(privacy: PrivacyParameters, size: int, l2: float) -> float:
    sensitivity = _norm(privacy, size, l2)
    if privacy.mechanism == "gaussian":
        return sensitivity * gaussian_deviation(privacy.epsilon, privacy.delta)
    return sensitivity / privacy.epsilon


def gaussian_deviation(epsilon: float, delta: float) -> float:
    """Return the smallest standard deviation for sensitivity 1 that is (epsilon, delta) private (Balle and Wang
    2018)."""
    from scipy.optimize import brentq  # sites share this module, and few of them have a use for it

    def excess(log_deviation: float) -> float:
        return gaussian_delta(math.exp(log_deviation), epsilon) - delta

    found = math.exp(float(brentq(excess, -20.0, 20.0, xtol=1e-12)))
    return found * (1 + 1e-9)


def gaussian_epsilon(deviation: float, delta: float) -> float:
    """Return the smallest epsilon for which a standard deviation is (epsilon, delta) private for sensitivity 1."""
    from scipy.optimize import brentq

    def excess(epsilon: float) -> float:
        return gaussian_delta(deviation, epsilon) - delta

    if excess(0.0) <= 0:
        return 0.0
    highest = 0.5 / deviation**2 + 40.0 / deviation  # where delta is below exp(-800)
    return float(brentq(excess, 0.0, highest, xtol=1e-12)) * (1 + 1e-9)


def gaussian_delta(deviation: float, epsilon: float) -> float:
    """Return the delta of a standard deviation for sensitivity 1 at this epsilon (Balle and Wang 2018, theorem 8)."""
    from scipy.special import log_ndtr, ndtr

    near, far = 0.5 / deviation - epsilon * deviation, -0.5 / deviation - epsilon * deviation
    return float(ndtr(near) - math.exp(epsilon + log_ndtr(far)))


def spherical(size: int, scale: float) -> FloatArray:
    """Draw (size,) in float64: direction uniform, norm Gamma(size, scale), from the operating system's generator."""
    random = secrets.SystemRandom()
    direction = np.array([random.gauss(0.0, 1.0) for _ in range(size)])
    return np.asarray(direction / np.linalg.norm(direction) * random.gammavariate(size, scale))
