"""The contributions of rows to a step of the interior point: the half that stays at the site.

For rows f (n, m) with labels y, prices C and targets o, write f~ = y (f, k), v = (w, b / k) and r = o - v.f~ (without
an intercept f~ = y f and v = w). k, the lever, is of the size of the features: rounding knows no units.

Each row has a dual variable 0 < alpha < C of its own, and for a barrier parameter mu two slacks t, xi > 0 with
xi = t + r, which minimise C xi - mu log xi - mu log t:

    mu/t + mu/xi = C,    alpha* = mu/t,    u* = C - alpha* = mu/xi.

Newton's step on the perturbed optimality conditions, with t and xi eliminated, needs of each row

    d = alpha u / (u t + alpha xi),   u = C - alpha,   and   alpha*,

since alpha + e of the linearised row alpha + d dr + e is alpha* itself. alpha lags behind the curve rather than being
tied to r, which lets full steps converge while mu falls by a factor of twenty at a time (the idea of Chan, Golub and
Mulet 1999 for total variation), and each row goes along its own dual step as far as it can without leaving (0, C).

Where the objective has noise, rows have secrets, which their site draws and keeps to itself. So nobody else knows
alpha* and d of a row, even with the path.

    barrier parameter   a random multiple of mu, drawn anew at each point. As mu falls all multiples lead to the same
                        optimum.
    target              1 plus a random offset, the same throughout a training. So the margins of rows on the margin
                        are not exactly 1. The optimum is another one, as with all noise in the objective.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.optimization.masking import Mask, precision_of, uniform
from fedsvm.federation.arrays import FloatArray, IntArray, Residues

BACK_OFF = 0.05
"""A dual variable keeps at least this share of its distance from 0 and from its price in one step."""

_BLOCK_VALUES, _LEAST_ROWS = 1 << 16, 64
"""Maximum size of a copy of some rows, or of a part of a matrix, in a step; and the minimum number of its rows."""

_MOST_MASKED_IN_SINGLE = 2.0**20
"""The trace of the products of some rows that are masked in single precision.

A mask A that is wrong by rounding is (1 + e) times the mask, with e of 5e-6 at most, of which sqrt(trace) e is next to
the 1 of the penalty. Products of masked rows are in double precision, so that they stay a sum of squares.
"""

_MOST_SQUARES = 2.0**100
"""Features with a larger sum of squares can be beyond single precision."""

_FEW_ROWS = 4 / 3
"""So many rows a dimension are masked in the same time as their matrix."""

SPREAD = 6.0
"""The largest multiple of mu that a row draws; the smallest is its inverse."""

TARGET_SPREAD = 0.6
"""The largest offset of a target that a row draws."""

TARGET_DEVIATION = TARGET_SPREAD / math.sqrt(3)
"""The standard deviation of these offsets."""


@dataclass(frozen=True)
class SecretBarriers:
    """The multiples of mu of a site's rows in one problem: log-uniform between 1 / SPREAD and SPREAD.

    They follow from the site's key (1, 4), the number of the problem and the point alone. So an order of another round
    at the same point does not draw them again. At a point nearby they are others: a coordinator that orders tiny steps
    averages them out, and one that orders an extreme mu makes them irrelevant.
    """

    key: Residues
    problem: int

    def draw(self, v: FloatArray, rows: int) -> FloatArray:
        """Return the multiples (rows,) at a point (d,)."""
        at = hashlib.sha256(v.tobytes()).hexdigest()
        return np.asarray(SPREAD ** (2 * uniform(self.key, f"barriers {self.problem} {at}", rows) - 1))


def secret_offsets(key: Residues, problem: int, rows: int) -> FloatArray:
    """Return the offsets (rows,) of the targets of a site's rows, uniform between -TARGET_SPREAD and TARGET_SPREAD.

    They follow from the site's key (1, 4) and the number of the problem.
    """
    return np.asarray(TARGET_SPREAD * (2 * uniform(key, f"targets {problem}", rows) - 1))


@dataclass(frozen=True)
class Problem:
    """The rows of one binary problem: features (n, m), labels (n,) of +1 and -1, prices (n,), targets (n,).

    A row's loss is price * max(0, target - y (w.f + b)). lever: 0 where there is no intercept. tilt (m,): of a linear
    term tilt.w, this site's noise in the objective (see `objective_noise`). barriers: of its rows, if they have secret
    ones.
    """

    features: FloatArray
    labels: FloatArray
    prices: FloatArray
    targets: FloatArray
    lever: float
    tilt: FloatArray | None = field(default=None, kw_only=True)
    barriers: SecretBarriers | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls,
        features: FloatArray,
        labels: FloatArray,
        prices: FloatArray | float,
        *,
        prior: FloatArray | None = None,
        lever: float = 1.0,
        tilt: FloatArray | None = None,
    ) -> Problem:
        """Return the problem of rows, without those of weight 0. prior (m,): the losses at w are those at prior + w."""
        each = np.broadcast_to(np.asarray(prices, dtype=np.float64), labels.shape)
        targets = np.ones(len(labels)) if prior is None else 1.0 - labels * (features @ prior)
        if (used := each > 0).all():
            return cls(features, labels, each, targets, lever, tilt=tilt)
        return cls(features[used], labels[used], each[used], targets[used], lever, tilt=tilt)

    @property
    def dimensions(self) -> int:
        """Of v: one more than of w where there is an intercept."""
        return int(self.features.shape[1]) + int(self.lever > 0)

    def margins(self, v: FloatArray) -> FloatArray:
        """Return (n,) v.f~."""
        values = self.features @ v[:-1] + self.lever * v[-1] if self.lever else self.features @ v
        return np.asarray(self.labels * values)

    def weigh(self, weights: FloatArray) -> FloatArray:
        """Return (d,) the sum of weights * f~."""
        signed = weights * self.labels
        total = signed @ self.features
        return np.append(total, self.lever * signed.sum()) if self.lever else np.asarray(total)

    def curvature(self, weights: FloatArray) -> FloatArray:
        """Return (d, d) the sum of weights * f~ f~^T; labels cancel."""
        total = np.zeros((self.dimensions, self.dimensions))
        for roots in self.roots(weights, max(_LEAST_ROWS, _BLOCK_VALUES // self.dimensions)):
            _add_products(total, roots)
        return total

    def curvature_in_single(self, weights: FloatArray, most: float) -> NDArray[np.floating[Any]]:
        """Return what `curvature` does, with a part in single precision whose trace is at most `most`.

        The rows of large weights are few as a rule; these have products in double precision.
        """
        width = self.features.shape[1]
        squares = float(np.vdot(self.features, self.features)) + len(weights) * self.lever**2
        heavy = weights * squares > most
        if not 1 / _MOST_SQUARES < squares < _MOST_SQUARES or 2 * np.count_nonzero(heavy) > len(weights):
            return self.curvature(weights)
        roots = np.empty((len(weights), self.dimensions), dtype=np.float32)
        roots[:, :width], roots[:, width:] = self.features, self.lever
        roots *= np.sqrt(np.where(heavy, 0.0, weights)).astype(np.float32)[:, None]
        found = roots.T @ roots
        if not heavy.any():
            return np.asarray(found)
        rows = replace(self, features=self.features[heavy], labels=self.labels[heavy])
        return np.asarray(found + rows.curvature(weights[heavy]))

    def roots(self, weights: FloatArray, length: int) -> Iterator[FloatArray]:
        """Yield (d, length) columns sqrt(weight) f~ of so many rows at a time, up to their signs.

        R R^T of all add up to `curvature`.
        """
        scales = np.sqrt(weights)
        for start in range(0, len(weights), length):
            rows = slice(start, start + length)
            found = np.empty((len(scales[rows]), self.dimensions)).T
            np.multiply(self.features[rows].T, scales[rows], out=found[: self.features.shape[1]])
            if self.lever:
                found[-1] = self.lever * scales[rows]
            yield found

    def weights(self, v: FloatArray, constant: int = 0) -> FloatArray:
        """Return (m + 1,) w and b of v, or of a constant unless it is 0; b is 0 without an intercept."""
        if constant:
            return np.append(np.zeros(self.features.shape[1]), constant)
        return np.append(v[:-1], self.lever * v[-1]) if self.lever else np.append(v, 0.0)

    def keep(self, kept: IntArray) -> Self:
        """Return the problem restricted to the `kept` columns."""
        return replace(self, features=self.features[:, kept], tilt=None if self.tilt is None else self.tilt[kept])

    def with_secrets(self, key: Residues, problem: int) -> Self:
        """Return the problem, of this number, with secret barriers and targets of its rows by a site's key (1, 4)."""
        targets = self.targets + secret_offsets(key, problem, len(self.labels))
        return replace(self, targets=targets, barriers=SecretBarriers(key, problem))

    @property
    def squares(self) -> float:
        """The sum of |f~|^2 over the rows."""
        return float((self.features**2).sum()) + len(self.labels) * self.lever**2

    def stand_at(self, iteration: int, v: FloatArray, best: FloatArray) -> DualState:
        """Return the state of new rows at a point."""
        return DualState.at(self, iteration, v, best)

    def advance(
        self, before: DualState, iteration: int, step: FloatArray, mu: float, *, keep: bool, still: bool
    ) -> tuple[RowSums, DualState]:
        """Return the sums after a step of v (d,) from a state, and the state after it; see `DualState.move`."""
        standing = before.move(self, iteration, step, self.mus(before.v + step, mu), keep=keep, still=still)
        return RowSums.of(self, standing), standing

    def mus(self, v: FloatArray, mu: float) -> float | FloatArray:
        """Return the barrier parameter at a point (d,): mu, or (n,) of each row if they have secret ones."""
        return mu if self.barriers is None else mu * self.barriers.draw(v, len(self.labels))

    @property
    def classes(self) -> list[FloatArray]:
        """(n,) of 0 and 1: the rows of each class whose dual variables must add up to as much as the other's.

        Without an intercept nothing must, and all rows are one.
        """
        if not self.lever:
            return [np.ones(len(self.labels))]
        return [(self.labels > 0).astype(np.float64), (self.labels < 0).astype(np.float64)]


@dataclass(frozen=True)
class DualState:
    """The state of the rows of a problem after a round, each (n,): residuals, alpha and its distance from the price, d,
    and alpha* - alpha. iteration: the round. v, best: (d,), the point of the round, and the best so far."""

    iteration: int
    v: FloatArray
    best: FloatArray
    residuals: FloatArray
    alpha: FloatArray
    rest: FloatArray
    slopes: FloatArray
    lag: FloatArray

    @classmethod
    def at(cls, problem: Problem, iteration: int, v: FloatArray, best: FloatArray) -> DualState:
        """Return the state of new rows at a point: alpha is half the price, and has no step to take."""
        half, nothing = problem.prices / 2, np.zeros(len(problem.labels))
        return cls(iteration, v, best, problem.targets - problem.margins(v), half, half, nothing, nothing)

    def move(
        self, problem: Problem, iteration: int, step: FloatArray, mu: float | FloatArray, *, keep: bool, still: bool
    ) -> DualState:
        """Return the state after a step of v (d,), for a barrier parameter mu, or (n,) of each row. keep: the point
        before the step is the best so far.

        still: there is no step, and the dual variables take none. They would fall on the curve, without the lag that
        full steps need.
        """
        v = self.v + step
        change = -problem.margins(step)
        residuals = self.residuals + change
        wanted = np.zeros_like(self.lag) if still else self.slopes * change + self.lag
        room = np.where(wanted < 0, self.alpha, self.rest)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(wanted == 0, 1.0, np.minimum(1.0, (1 - BACK_OFF) * room / np.abs(wanted)))
        alpha, rest = self.alpha + share * wanted, self.rest - share * wanted
        star, rest_star = on_the_curve(residuals, problem.prices, mu)
        slopes = alpha * rest / (mu * (rest / star + alpha / rest_star))
        best = self.v if keep else self.best
        return DualState(iteration, v, best, residuals, alpha, rest, slopes, star - alpha)


@dataclass(frozen=True)
class RowSums:
    """The sums over the rows of a problem in a round.

    slopes (n,): d of each row. gradient (d,): the sum of alpha* f~. loss: of the point. alphas (g,) and vectors (g, m):
    of each class the sums of alpha and of alpha y f. extra: the sum of alpha * (target - 1). Without an intercept it is
    0, and alphas (1,) the sum of alpha * target. rows (g,): how many there are. known: the matrix, if it was added up
    block by block.
    """

    problem: Problem
    slopes: FloatArray
    gradient: FloatArray
    loss: float
    alphas: FloatArray
    extra: float
    vectors: FloatArray
    rows: FloatArray
    known: FloatArray | None = None

    @classmethod
    def of(cls, problem: Problem, standing: DualState) -> RowSums:
        """Return the sums for rows in a state."""
        alpha, classes = standing.alpha, problem.classes
        signed, valued = alpha * problem.labels, alpha * problem.targets
        extra = float((valued - alpha).sum()) if problem.lever else 0.0
        return cls(
            problem=problem,
            slopes=standing.slopes,
            gradient=problem.weigh(alpha + standing.lag),
            loss=float(problem.prices @ np.maximum(0.0, problem.targets - problem.margins(standing.v))),
            alphas=np.array([each @ (alpha if problem.lever else valued) for each in classes]),
            extra=extra,
            vectors=np.stack([(each * signed) @ problem.features for each in classes]),
            rows=np.array([each.sum() for each in classes]),
        )

    @cached_property
    def matrix(self) -> FloatArray:
        """(d, d), the sum of d f~ f~^T."""
        return self.problem.curvature(self.slopes) if self.known is None else self.known

    def behind(self, mask: Mask | None, ridge: FloatArray) -> FloatArray:
        """Return A (M + D) A^T for the matrix M, a mask A if any, and a diagonal D, ridge (d,).

        Where M is not known yet, few rows are masked in place of M, some at a time. A known M is masked in its place.

        ridge: 1 of each weight and 0 of the intercept, or 0 of all.
        """
        d = self.problem.dimensions
        if mask is None:
            found = self.matrix.copy()
            found[np.diag_indices(d)] += ridge
            return found
        if self.known is not None or len(self.slopes) > _FEW_ROWS * d:
            found = self.problem.curvature(self.slopes) if self.known is None else self.known
            found[np.diag_indices(d)] += ridge
            mask.conjugate(found)
            return found
        found = mask.around_one() if ridge.any() else np.zeros((d, d))
        for roots in self.problem.roots(self.slopes, max(_LEAST_ROWS, _BLOCK_VALUES // d)):
            precision = precision_of(d) if np.vdot(roots.T, roots.T) <= _MOST_MASKED_IN_SINGLE else np.float64
            masked = mask.times(roots.astype(precision, copy=False))
            _add_products(found, masked.astype(np.float64, copy=False))
        if ridge.any():
            free = mask.times(1 - ridge)
            for place, value in enumerate(free):
                found[place] -= value * free
        return found


def _add_products(total: FloatArray, columns: FloatArray) -> None:
    """Add R R^T to a symmetric matrix (d, d), for R (d, n), by some rows of it at a time, and by halves."""
    length = max(_LEAST_ROWS, _BLOCK_VALUES // len(total))
    for start in range(0, len(total), length):
        here = slice(start, start + length)
        rest = slice(start + length, None)
        total[here, here] += columns[here] @ columns[here].T
        total[here, rest] += columns[here] @ columns[rest].T
        total[rest, here] = total[here, rest].T


def on_the_curve(residuals: FloatArray, prices: FloatArray, mu: float | FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return alpha* and C - alpha* of residuals (n,), computed from the slack on the far side of r to keep all
    digits."""
    scaled = prices * np.abs(residuals)
    far = (scaled + 2 * mu + np.sqrt(scaled**2 + 4 * mu**2)) / (2 * prices)  # xi for r > 0, t otherwise
    small = mu / far
    large = prices - small
    above = residuals > 0
    return np.where(above, large, small), np.where(above, small, large)
