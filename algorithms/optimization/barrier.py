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
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from fedsvm.algorithms.optimization.masking import Mask
from fedsvm.federation.arrays import FloatArray, IntArray

BACK_OFF = 0.05
"""A dual variable keeps at least this share of its distance from 0 and from its price in one step."""

_BLOCK_ROWS = 4096
"""Rows that are weighted at a time, so that no copy of all features is made."""


@dataclass(frozen=True)
class Problem:
    """The rows of one binary problem: features (n, m), labels (n,) of +1 and -1, prices (n,), targets (n,).

    A row's loss is price * max(0, target - y (w.f + b)). lever: 0 where there is no intercept; only then may targets be
    other than 1.
    """

    features: FloatArray
    labels: FloatArray
    prices: FloatArray
    targets: FloatArray
    lever: float

    @classmethod
    def of(
        cls,
        features: FloatArray,
        labels: FloatArray,
        prices: FloatArray | float,
        *,
        prior: FloatArray | None = None,
        lever: float = 1.0,
    ) -> Problem:
        """Return the problem of rows, without those of weight 0. prior (m,): the losses at w are those at prior + w."""
        each = np.broadcast_to(np.asarray(prices, dtype=np.float64), labels.shape)
        targets = np.ones(len(labels)) if prior is None else 1.0 - labels * (features @ prior)
        if (used := each > 0).all():
            return cls(features, labels, each, targets, lever)
        return cls(features[used], labels[used], each[used], targets[used], lever)

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
        size = self.features.shape[1]
        total = np.zeros((self.dimensions, self.dimensions))
        for start in range(0, len(weights), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            scaled = self.features[rows] * np.sqrt(weights[rows])[:, None]
            total[:size, :size] += scaled.T @ scaled
        if self.lever:
            total[:size, -1] = total[-1, :size] = self.lever * (weights @ self.features)
            total[-1, -1] = self.lever**2 * weights.sum()
        return total

    def roots(self, weights: FloatArray) -> FloatArray:
        """Return (d, n) columns sqrt(weight) f~, up to their signs: R with R R^T = `curvature`."""
        scales = np.sqrt(weights)
        found = np.empty((self.dimensions, len(weights)))
        np.multiply(self.features.T, scales, out=found[: self.features.shape[1]])
        if self.lever:
            found[-1] = self.lever * scales
        return found

    def weights(self, v: FloatArray, constant: int = 0) -> FloatArray:
        """Return (m + 1,) w and b of v, or of a constant unless it is 0; b is 0 without an intercept."""
        if constant:
            return np.append(np.zeros(self.features.shape[1]), constant)
        return np.append(v[:-1], self.lever * v[-1]) if self.lever else np.append(v, 0.0)

    def keep(self, kept: IntArray) -> Self:
        """Return the problem restricted to the `kept` columns."""
        return replace(self, features=self.features[:, kept])

    def advance(
        self, before: DualState, iteration: int, step: FloatArray, mu: float, *, keep: bool, still: bool
    ) -> tuple[RowSums, DualState]:
        """Return the sums after a step of v (d,) from a state, and the state after it; see `DualState.move`."""
        standing = before.move(self, iteration, step, mu, keep=keep, still=still)
        return RowSums.of(self, standing), standing

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
        self, problem: Problem, iteration: int, step: FloatArray, mu: float, *, keep: bool, still: bool
    ) -> DualState:
        """Return the state after a step of v (d,), for a barrier parameter mu. keep: the point before the step is the
        best so far.

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
    of each class the sums of alpha * target and of alpha y f. rows (g,): how many there are. known: the matrix, if it
    was added up block by block.
    """

    problem: Problem
    slopes: FloatArray
    gradient: FloatArray
    loss: float
    alphas: FloatArray
    vectors: FloatArray
    rows: FloatArray
    known: FloatArray | None = None

    @classmethod
    def of(cls, problem: Problem, standing: DualState) -> RowSums:
        """Return the sums for rows in a state."""
        alpha, classes = standing.alpha, problem.classes
        signed = alpha * problem.labels
        return cls(
            problem=problem,
            slopes=standing.slopes,
            gradient=problem.weigh(alpha + standing.lag),
            loss=float(problem.prices @ np.maximum(0.0, problem.targets - problem.margins(standing.v))),
            alphas=np.array([each @ (alpha * problem.targets) for each in classes]),
            vectors=np.stack([(each * signed) @ problem.features for each in classes]),
            rows=np.array([each.sum() for each in classes]),
        )

    @cached_property
    def matrix(self) -> FloatArray:
        """(d, d), the sum of d f~ f~^T."""
        return self.problem.curvature(self.slopes) if self.known is None else self.known

    def behind(self, mask: Mask, ridge: FloatArray) -> FloatArray:
        """Return A (M + D) A^T for the matrix M and a diagonal D, ridge (d,).

        Where M is not known yet, fewer rows than d are masked one by one.

        ridge: 1 of each weight and 0 of the intercept, or 0 of all.
        """
        if self.known is not None or len(self.slopes) >= self.problem.dimensions:
            found = self.problem.curvature(self.slopes) if self.known is None else self.known.copy()
            found[np.diag_indices_from(found)] += ridge
            mask.conjugate(found)
            return found
        rows = mask.times(self.problem.roots(self.slopes))
        found = rows @ rows.T
        if ridge.any():
            found += mask.around_one()
            free = mask.times(1 - ridge)
            found -= np.outer(free, free)
        return found


def on_the_curve(residuals: FloatArray, prices: FloatArray, mu: float) -> tuple[FloatArray, FloatArray]:
    """Return alpha* and C - alpha* of residuals (n,), computed from the slack on the far side of r to keep all
    digits."""
    scaled = prices * np.abs(residuals)
    far = (scaled + 2 * mu + np.sqrt(scaled**2 + 4 * mu**2)) / (2 * prices)  # xi for r > 0, t otherwise
    small = mu / far
    large = prices - small
    above = residuals > 0
    return np.where(above, large, small), np.where(above, small, large)
