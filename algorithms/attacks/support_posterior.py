"""The posterior that candidates are training rows of an SVM, given its weights.

At the optimum w = sum_i a_i f~_i with f~_i = y_i f_i. A training row has a_i = 0 if its margin is above 1, a_i = C if
it is below, and any a_i in [0, C] at a margin of 1. A candidate that is no training row has a_i = 0. Whoever has w
knows all margins, so each a_i has a prior of three parts: a point at 0, a point at C and a uniform one between. The
equation for w is linear in a. Expectation propagation (Minka 2001) approximates its posterior by a Gaussian whose every
coordinate has the mean and the variance that the prior gives it together with what all other coordinates say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedsvm.federation.arrays import FloatArray

_AT, _WITHIN, _BEYOND = 0.2, 0.1, 0.5
"""Prior densities of a training row's margin: at 1, and per unit of margin below and above 1."""

_PRECISIONS = np.geomspace(1e-7, 0.1, 61)
"""Deviations of margins that are tried, to find which explains the candidates' margins best."""

_MORE = 1.3
"""The factor of the noise with which an answer is tried again."""

_LEVELS = 8
"""The number of levels by which noise is lowered to its own size."""

_CONSISTENT = 2.0
"""An answer whose mean squared error is more than this share of the noise's variance does not explain the total."""

_MOST_ITERATIONS = 100
_DAMPING = 0.2
_SETTLED = 1e-3
"""No posterior changes by more in an iteration that is the last."""

_LEAST_VARIANCE = 1e-6
"""Of a coordinate, as a share of C squared."""

_LEAST_NOISE = 1e-7
"""Noise on the equation, as a share of C times the largest feature; with less, float64 does not solve it."""

_LEAST_PRECISION = 1e-9
_LEAST_CHANCE = 1e-12


@dataclass(frozen=True)
class Posterior:
    """The chance that each candidate is a training row (n,), and the least that it is with more noise, too.

    least: None if no such rows make up w. A row that is certain only if the noise is known exactly is not.
    """

    chances: FloatArray
    least: FloatArray | None


@dataclass(frozen=True)
class SupportEquation:
    """w as a sum over candidates.

    terms (n, d): f~ of each candidate. total (d,): their sum, weighted by a. noise (d,): its standard deviation.
    margins (n,): of each candidate. margin_noise (n,): their standard deviation.
    """

    terms: FloatArray
    total: FloatArray
    noise: FloatArray
    margins: FloatArray
    margin_noise: FloatArray

    def posterior(self, chances: FloatArray, C: float) -> Posterior:
        """Return the probability that each candidate is a training row; chances (n,): before w is known."""
        first, explains = self._chances(chances, C)
        if not explains:
            return Posterior(first, None)
        second, explains = replace(self, noise=_MORE * self.noise)._chances(chances, C)
        return Posterior(first, np.minimum(first, second) if explains else None)

    def _chances(self, chances: FloatArray, C: float) -> tuple[FloatArray, bool]:
        beyond, prior = self._prior(chances)
        least = _LEAST_NOISE * C * float(np.abs(self.terms).max())
        shares, explains = _propagate(self.terms.T, self.total, np.maximum(self.noise, least), prior, C)
        still = chances * beyond
        return 1 - shares + shares * still / (1 - chances + still), explains

    def _prior(self, chances: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (n,) the chance that a training row is beyond the margin, and (3, n) those of a = 0, C and between."""
        away = (self.margins - 1) / self.margin_noise
        at = _AT * np.exp(-0.5 * away**2) / (np.sqrt(2 * np.pi) * self.margin_noise)
        within, beyond = _WITHIN * _normal(-away), _BEYOND * _normal(away)
        every = at + within + beyond
        parts = np.stack([1 - chances + chances * beyond / every, chances * within / every, chances * at / every])
        return beyond / every, np.maximum(parts, _LEAST_CHANCE)


def chances_by_margin(margins: FloatArray, noise: FloatArray, chance: float) -> FloatArray:
    """Return the chance (n,) that each candidate is a training row, given its margin alone.

    At the optimum many training rows have a margin of exactly 1, and other candidates by chance only.

    margins, noise (n,): the margins, and the deviations of known noise on them. They may be less precise: of all
    deviations that explains the margins best. chance: before they are known.
    """
    away = margins - 1
    best, found = -np.inf, np.full(len(margins), chance)
    for precision in _PRECISIONS:
        deviation = np.hypot(precision, noise)
        others = _WITHIN * _normal(-away / deviation) + _BEYOND * _normal(away / deviation)
        at = _AT * np.exp(-0.5 * (away / deviation) ** 2) / (np.sqrt(2 * np.pi) * deviation)
        member = chance * (at + (1 - _AT) * others)
        every = member + (1 - chance) * others
        likelihood = float(np.log(every).sum())
        if likelihood > best:
            best, found = likelihood, member / every
    return np.asarray(found)


def _normal(values: FloatArray) -> FloatArray:
    from scipy.special import ndtr  # an audit alone has a use for it

    return np.asarray(ndtr(values))


def _propagate(
    design: FloatArray, total: FloatArray, noise: FloatArray, prior: FloatArray, C: float
) -> tuple[FloatArray, bool]:
    """Return (n,) the posterior chance that a = 0, and whether the answer explains the total.

    design (d, n): whose sum, weighted by a, is total (d,). With little noise from the start, the search may end at an
    answer that does not explain the total. Then it begins with more noise, and lowers it as long as the answer does.
    """
    logs, mean = np.log(prior), prior[1] * C + prior[2] * C / 2
    precision = 1 / np.maximum(prior[1] * C**2 + prior[2] * C**2 / 3 - mean**2, _LEAST_VARIANCE * C**2)
    most = np.maximum(noise, C * np.sqrt((design**2).mean(axis=1)))
    found = prior[0]
    for shares in ((0.0,), np.linspace(1.0, 0.0, _LEVELS).tolist()):
        parts = precision, precision * mean
        for share in shares:
            level = noise * (most / noise) ** share
            at_zero, parts = _settle(design, total, level, logs, parts, C)
            left = (design @ _gaussian(design, total, level, *parts)[0] - total) / level
            if (left**2).mean() > _CONSISTENT:
                break
            found = at_zero
        else:
            return found, True
    return found, False


def _settle(
    design: FloatArray,
    total: FloatArray,
    noise: FloatArray,
    logs: FloatArray,
    parts: tuple[FloatArray, FloatArray],
    C: float,
) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
    """Return the chance of a = 0 (n,) with this noise, and the Gaussian parts: precisions and shifts (n,)."""
    precision, shift = parts
    at_zero = np.zeros(len(shift))
    for _ in range(_MOST_ITERATIONS):
        mean, variance = _gaussian(design, total, noise, precision, shift)
        cavity = 1 / np.maximum(1 / variance - precision, _LEAST_PRECISION)
        centre = cavity * (mean / variance - shift)
        before = at_zero
        at_zero, mean, spread = _moments(logs, centre, cavity, C)
        spread = np.maximum(spread, _LEAST_VARIANCE * C**2)
        # where what others say is wider than the prior there is no such Gaussian, and the old one stays
        possible = 1 / spread - 1 / cavity > _LEAST_PRECISION
        wanted = np.where(possible, 1 / spread - 1 / cavity, precision)
        moved = np.where(possible, mean / spread - centre / cavity, shift)
        precision = (1 - _DAMPING) * precision + _DAMPING * wanted
        shift = (1 - _DAMPING) * shift + _DAMPING * moved
        if np.abs(at_zero - before).max() < _SETTLED:
            break
    return at_zero, (precision, shift)


def _gaussian(
    design: FloatArray, total: FloatArray, noise: FloatArray, precision: FloatArray, shift: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return means and variances (n,) of a, of Gaussian parts with a precision and a shift, given the equation."""
    from scipy.linalg import cho_factor, cho_solve  # an audit alone has a use for it

    scaled = design / precision
    factor = cho_factor(scaled @ design.T + np.diag(noise**2), lower=True)
    gain = cho_solve(factor, scaled)
    mean = shift / precision + gain.T @ (total - design @ (shift / precision))
    return mean, np.maximum(1 / precision - np.einsum("ij,ij->j", scaled, gain), 1e-300)


def _moments(
    logs: FloatArray, centre: FloatArray, cavity: FloatArray, C: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the chance of a = 0, the mean and the variance (n,) of the prior times a Gaussian."""
    from scipy.special import log_ndtr  # an audit alone has a use for it

    deviation = np.sqrt(cavity)
    low, high = -centre / deviation, (C - centre) / deviation
    mirrored = low > 0
    left, right = (log_ndtr(np.where(mirrored, -one, other)) for one, other in ((high, low), (low, high)))
    mass = right + np.log1p(-np.exp(np.minimum(left - right, -1e-12)))
    density = -0.5 * np.log(2 * np.pi) - mass
    at_low, at_high = np.exp(density - 0.5 * low**2), np.exp(density - 0.5 * high**2)
    inner = np.clip(centre + deviation * (at_low - at_high), 0.0, C)
    inner_variance = np.clip(cavity * (1 + low * at_low - high * at_high - (at_low - at_high) ** 2), 0.0, C**2 / 12)
    point = -0.5 * np.log(2 * np.pi) - np.log(deviation)
    chances = logs + np.stack([point - 0.5 * low**2, point - 0.5 * high**2, mass - np.log(C)])
    parts = np.exp(chances - chances.max(axis=0))
    parts /= parts.sum(axis=0)
    mean = parts[1] * C + parts[2] * inner
    return parts[0], mean, parts[1] * C**2 + parts[2] * (inner_variance + inner**2) - mean**2
