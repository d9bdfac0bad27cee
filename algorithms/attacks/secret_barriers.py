"""An attack on the steps of the interior point where rows have secret barriers: which candidates are in the data.

A step x at a point v solves (D + M) x = q - D v - B but for noise, B the noise in the objective. So for all steps

    sum_i c_i k_is f~_i = -D (x_s + v_s) - B + noise,    k_is = d_is f~_i.x_s - alpha*_is,

where c_i is 1 if candidate i is there. Nobody but its site knows k_i, since the barrier parameters of a row are random
multiples of mu. But everybody knows their distribution. Samples of it give the mean and the covariance of k_i over the
steps. So each candidate is absent, or its k_i is normal; all together explain the right-hand sides.

Probabilistic data association (Bar-Shalom and Tse, Automatica 11, 1975) finds the chances: each candidate is weighed
against what all others leave, which is taken for normal with the mean and the covariance that their chances give. It
begins with more noise than there is. The mean and the covariance of a present candidate's k are corrected in the same
way. An attack that keeps those of the samples names fewer rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedsvm.algorithms.attacks.newton_path import ViewedPath, signed_features
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.federation.arrays import FloatArray, IntArray

_SAMPLES = 32
"""Histories of barriers that are sampled for each candidate."""

_SHRINKAGE = 0.5
"""The share of sampled covariances of two steps that is kept; variances are kept whole."""

_LEVELS = (30.0, 10.0, 3.0, 1.5)
"""Factors of all variances, one after the other. The last leaves room for what is not normal: with 1.2, a twentieth of
the claims on quickstart is wrong."""

_SWEEPS, _DAMPING, _SETTLED = 5, 0.5, 5e-3

_MOST_EQUATIONS = 3_000
"""Equations of the first steps that are taken, so that a sweep takes seconds."""

_ROUNDING = 1e-10
"""The share of the mean variance that is added to each: float64 does not invert a matrix without it."""


@dataclass(frozen=True)
class HiddenTerms:
    """The terms of rows in s steps, as far as they are known: rows (n, d) f~, and the distribution of k.

    means (n, s). covariances (n, s, s).
    """

    rows: FloatArray
    means: FloatArray
    covariances: FloatArray

    def with_more(self, other: HiddenTerms) -> HiddenTerms:
        """Return these terms and those of other rows."""
        return HiddenTerms(
            np.vstack([self.rows, other.rows]),
            np.vstack([self.means, other.means]),
            np.concatenate([self.covariances, other.covariances]),
        )

    @classmethod
    def sample(cls, path: ViewedPath, problem: Problem, steps: IntArray) -> HiddenTerms:
        """Return the terms of rows whose barriers are unknown."""
        random = np.random.default_rng(0)
        found = []
        for number in range(_SAMPLES):
            key = random.integers(0, 1 << 63, (1, 4)).astype(np.uint64)
            found.append(coefficients(path, problem.with_secrets(key, number), steps))
        drawn = np.array(found)
        means = drawn.mean(axis=0)
        apart = drawn - means[None]
        covariances = np.einsum("hsn,htn->nst", apart, apart) / (_SAMPLES - 1)
        kept = np.full(covariances.shape[1:], _SHRINKAGE)
        np.fill_diagonal(kept, 1.0)
        return cls(signed_features(problem), means.T, covariances * kept)


@dataclass(frozen=True)
class StepSums:
    """The right-hand sides (s, d) of s steps, and the covariances (s, d, d) of the noise on each.

    tilt (d,): the variance of each entry of the unknown part of B, which is the same in all steps.
    """

    right: FloatArray
    noise: FloatArray
    tilt: FloatArray

    @classmethod
    def of(cls, path: ViewedPath, steps: IntArray, problem: Problem, known_tilt: FloatArray, tilt: float) -> StepSums:
        """Return the sums of the steps that these rounds (s,) led to.

        Without a committee the covariances are those of noise of size 1; the caller multiplies them by the square of
        its size.

        problem: of rows like those in the data, and as many. known_tilt (m,): the known part of B. tilt: the deviation
        of each entry of the rest.
        """
        points, known = np.cumsum([each.step for each in path.rounds], axis=0), np.zeros(len(path.ridge))
        known[: len(known_tilt)] = known_tilt
        after = np.array([path.rounds[number + 1].step for number in steps])
        noise = []
        for number, step in zip(steps.tolist(), after, strict=True):
            if (dither := path.rounds[number].dither) is not None:
                noise.append(np.diag(dither**2))
                continue
            metric = np.diag(path.ridge) + problem.curvature(path.standings(problem)[number].slopes)
            noise.append(float(step @ metric @ step) / len(metric) * metric)
        right = -path.ridge * (after + points[steps]) - known
        return cls(right, np.array(noise), np.asarray(tilt**2 * (path.ridge > 0)))

    def without(self, path: ViewedPath, problem: Problem, steps: IntArray) -> StepSums:
        """Return the sums without rows whose barriers are known."""
        return replace(self, right=self.right - coefficients(path, problem, steps) @ signed_features(problem))


def steps_taken(path: ViewedPath) -> IntArray:
    """Return the rounds whose sums led to a step, the first ones that an attack can handle."""
    taken = [number for number, each in enumerate(path.rounds[1:]) if each.step.any()]
    return np.asarray(taken[: max(1, _MOST_EQUATIONS // len(path.ridge))], dtype=np.int64)


def coefficients(path: ViewedPath, problem: Problem, steps: IntArray) -> FloatArray:
    """Return (s, n) k of rows with these barriers; steps (s,): the rounds whose sums led to a step."""
    terms, standings = signed_features(problem), path.standings(problem)
    after = [path.rounds[number + 1].step for number in steps]
    return np.array(
        [
            standings[number].slopes * (terms @ step) - (standings[number].alpha + standings[number].lag)
            for number, step in zip(steps.tolist(), after, strict=True)
        ]
    )


def chances_of(hidden: HiddenTerms, sums: StepSums, prior: FloatArray) -> tuple[FloatArray, float]:
    """Return the chance (n,) that each candidate is there, and the share of the variance that they leave.

    prior (n,): the chances before. A candidate with a prior of 1 is there.
    """
    rows, s, d = hidden.rows, hidden.means.shape[1], hidden.rows.shape[1]
    weights = prior.copy()
    means, within = hidden.means.copy(), hidden.covariances.copy()
    fixed = np.zeros((s, d, s, d))
    fixed[:, np.arange(d), :, np.arange(d)] = sums.tilt[:, None, None]
    fixed[np.arange(s), :, np.arange(s)] += sums.noise
    fresh, left = prior, float("inf")
    with np.errstate(divide="ignore"):
        odds = np.log(prior) - np.log1p(-prior)
    for level in _LEVELS:
        for _ in range(_SWEEPS):
            expected = weights[:, None] * means
            spread = weights[:, None, None] * (within + (1 - weights)[:, None, None] * _outer(means))
            residual = (sums.right - expected.T @ rows).ravel()
            inverse = np.asarray(np.linalg.inv(_total(fixed, rows, spread, level)), dtype=np.float64)
            pull = (inverse @ residual).reshape(s, d) @ rows.T
            precision = _quadratic(inverse.reshape(s, d, s, d), rows)
            # what all others leave: without this candidate's own share of the covariance
            alone = np.linalg.inv(np.eye(s) - (1 - 1e-6) * level * spread @ precision)
            precision = precision @ alone
            precision = (precision + precision.transpose(0, 2, 1)) / 2
            pulled = np.einsum("nts,nt->ns", alone, pull.T) + _times(precision, expected)
            growth = np.eye(s) + precision @ hidden.covariances
            posterior = hidden.covariances @ np.linalg.inv(growth)
            surplus = pulled - _times(precision, hidden.means)
            gain = _times(posterior, surplus)
            evidence = (hidden.means * (pulled + surplus)).sum(axis=1) / 2 + (gain * surplus).sum(axis=1) / 2
            evidence -= np.linalg.slogdet(growth)[1] / 2
            fresh = 1 / (1 + np.exp(-np.clip(odds + evidence, -700, 700)))
            settled = float(np.abs(fresh - weights).max()) < _SETTLED
            weights += (1 - _DAMPING) * (fresh - weights)
            means += (1 - _DAMPING) * (hidden.means + gain - means)
            within += (1 - _DAMPING) * (posterior - within)
            left = float(residual @ inverse @ residual) * level / len(residual)
            if settled:
                break
    return fresh, left


def _total(fixed: FloatArray, rows: FloatArray, spread: FloatArray, level: float) -> FloatArray:
    """Return (s d, s d) the covariance of all right-hand sides, times a level."""
    s, d = fixed.shape[:2]
    total = fixed.copy()
    for one in range(s):
        for other in range(one, s):
            part = (rows.T * spread[:, one, other]) @ rows
            total[one, :, other] += part
            if other > one:
                total[other, :, one] += part
    whole = level * total.reshape(s * d, s * d)
    whole[np.diag_indices(s * d)] += _ROUNDING * (np.trace(whole) / (s * d) + 1.0)
    return whole


def _quadratic(inverse: FloatArray, rows: FloatArray) -> FloatArray:
    """Return (n, s, s) the quadratic forms of each row in the blocks (s, d, s, d) of a symmetric matrix."""
    s = len(inverse)
    found = np.empty((len(rows), s, s))
    for one in range(s):
        for other in range(one, s):
            found[:, one, other] = found[:, other, one] = ((rows @ inverse[one, :, other]) * rows).sum(axis=1)
    return found


def _outer(vectors: FloatArray) -> FloatArray:
    return vectors[:, :, None] * vectors[:, None, :]


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("nst,nt->ns", matrices, vectors))
