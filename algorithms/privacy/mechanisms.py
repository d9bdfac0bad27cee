"""Noise that makes a vector differentially private: how much, and how it is drawn.

Neighbouring data sets differ in one row, and their number of rows is public. The vector lies on a lattice, so that no
value is possible under one neighbour only; rounding to it, and stopping short of the exact minimiser, add to what one
row can change, and both are in the sensitivity here.

laplace    each coordinate discrete Laplace of scale L1 / epsilon: pure epsilon.
gaussian   each coordinate discrete Gaussian, calibrated by Balle and Wang (2018, theorem 8): (epsilon, delta). On a
           lattice 2^20 times finer than the noise, discrete and continuous are as good as the same.
spherical  density proportional to exp(-epsilon |b| / L2) (Chaudhuri, Monteleoni and Sarwate 2011): pure epsilon. Its
           norm does not come in shares, so the coordinator draws it, and sees the vector without noise.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from algorithms.privacy.discrete_noise import discrete_gaussian, discrete_laplace, drawn, total_variation_bound
from federation.arrays import FloatArray

MechanismName = Literal["laplace", "gaussian", "spherical"]
FINENESS_BITS = 20
"""The lattice is finer than the noise by this many powers of two."""


@dataclass(frozen=True)
class PrivacyParameters:
    """What is promised of a release, and by which mechanism. delta is of the Gaussian mechanism."""

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
        """Whether sites can draw it in shares that add up to it."""
        return self.privacy.mechanism != "spherical"

    @property
    def delta(self) -> float:
        """Beside the promised one, the distance of drawn shares from their distribution, under either neighbour."""
        if self.privacy.mechanism != "laplace":
            return self.privacy.delta
        return (1 + math.exp(self.privacy.epsilon)) * total_variation_bound(self.steps, self.shares, self.size)

    @property
    def steps(self) -> int:
        """The scale in steps of the lattice, rounded up."""
        return math.ceil(self.scale / self.step)

    @property
    def variance(self) -> Fraction:
        """Of a Gaussian coordinate, in squared steps."""
        return Fraction(self.steps) ** 2

    @property
    def drawn_by(self) -> str:
        """Who draws it."""
        return f"the sites, in shares for {self.shares} of them" if self.is_divisible else "the coordinator"

    def on_lattice(self, vector: FloatArray) -> FloatArray:
        """The vector with every coordinate moved to the nearest point of the lattice."""
        return np.asarray(np.rint(vector / self.step) * self.step)

    def released(self, vector: FloatArray) -> FloatArray:
        """The vector on the lattice, with noise drawn here, all of it."""
        if self.privacy.mechanism == "spherical":
            return self.on_lattice(self.on_lattice(vector) + spherical(self.size, self.scale))
        draw: Callable[[], int] = lambda: discrete_laplace(self.steps)  # noqa: E731
        if self.privacy.mechanism == "gaussian":
            draw = lambda: discrete_gaussian(self.variance)  # noqa: E731
        return self.on_lattice(vector) + drawn(draw, self.size) * self.step


def noise_for(privacy: PrivacyParameters, size: int, sensitivity: float, gap: float, shares: int = 1) -> Noise:
    """Noise for a vector of `size`.

    sensitivity: how far one row moves the exact minimiser of a 1-strongly convex objective, in L2. gap: how far the
    objective may be above its minimum; each of two neighbours is within sqrt(2 gap) of its minimiser.
    """
    l2 = sensitivity + 2 * math.sqrt(2 * gap)
    rough = _scale(privacy, size, l2)
    step = 2.0 ** (math.floor(math.log2(rough)) - FINENESS_BITS)
    l2 += math.sqrt(size) * step  # rounding moves each of two neighbours by half a step a coordinate
    return Noise(privacy, size, step, _scale(privacy, size, l2), _norm(privacy, size, l2), shares)


def _norm(privacy: PrivacyParameters, size: int, l2: float) -> float:
    """The sensitivity in the norm that the mechanism needs: L1 is at most sqrt(size) times L2."""
    return l2 * math.sqrt(size) if privacy.mechanism == "laplace" else l2


def _scale(privacy: PrivacyParameters, size: int, l2: float) -> float:
    sensitivity = _norm(privacy, size, l2)
    if privacy.mechanism == "gaussian":
        return sensitivity * gaussian_deviation(privacy.epsilon, privacy.delta)
    return sensitivity / privacy.epsilon


def gaussian_deviation(epsilon: float, delta: float) -> float:
    """The smallest standard deviation for sensitivity 1 that is (epsilon, delta) private (Balle and Wang 2018)."""
    from scipy.optimize import brentq  # sites share this module and have no use for it
    from scipy.special import log_ndtr, ndtr

    def excess(log_deviation: float) -> float:
        deviation = math.exp(log_deviation)
        near, far = 0.5 / deviation - epsilon * deviation, -0.5 / deviation - epsilon * deviation
        return float(ndtr(near) - math.exp(epsilon + log_ndtr(far))) - delta

    found = math.exp(float(brentq(excess, -20.0, 20.0, xtol=1e-12)))
    return found * (1 + 1e-9)


def spherical(size: int, scale: float) -> FloatArray:
    """(size,): direction uniform, norm Gamma(size, scale), from the operating system's generator."""
    random = secrets.SystemRandom()
    direction = np.array([random.gauss(0.0, 1.0) for _ in range(size)])
    return np.asarray(direction / np.linalg.norm(direction) * random.gammavariate(size, scale))
