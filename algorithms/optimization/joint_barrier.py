"""The contributions of rows to a step of the interior point for all K classes in one problem (`joint_hinge`).

Write r_k = [k != y] + (w_k - w_y).f~ for the brackets of a row f~ of class y, so that r_y = 0, and C for its price.
For a barrier parameter mu the row has a loss xi above all brackets, which minimizes C xi - mu sum_k log t_k with the
slacks t_k = xi - r_k:

    alpha*_k = mu / t_k,    sum_k alpha*_k = C.

A row has K dual variables alpha. They are positive and add up to C: one for each other class, and one for its own,
which is the rest. They lag behind the curve as those of two classes do (`barrier` solves this problem for
K = 2). Newton's step on the perturbed optimality conditions, with t and xi eliminated, needs for each row

    H = diag(q) - q q^T / sum(q),   q_k = alpha_k / t_k,   and   alpha*.

The matrix over the rows is the sum of H (x) f~ f~^T, of K m' weights. The gradient of the losses is minus the sum of
(C e_y - alpha) (x) f~, with which the dual objective of a row is the sum of its alphas of other classes. Any alpha >= 0
that add up to C are feasible, and s times those of other classes too for s <= 1, since the rest takes what they lose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedsvm.algorithms.optimization.barrier import BACK_OFF, DualState, Problem, RowSums
from fedsvm.federation.arrays import FloatArray

MARGIN_SQUARE = 4.0
"""The sum of |f~|^2 over the rows, times this, bounds what `interior_point.Scales` bounds by it for two classes: a
bracket moves by at most sqrt(2) |f~| |W|, and H is at most C^2 / (2 mu)."""

_MAX_ITERATIONS = 100
_ACCURACY = 1e-15


@dataclass(frozen=True)
class JointProblem(Problem):
    """The rows of the joint problem: features f~ (n, m'), which have a column of ones where there is an intercept.

    of_class: (n, K) of 0 and 1, one 1 a row. intercept: whether there is one, which is in |W|^2. labels are (n,) ones,
    and targets (n,) ones.
    """

    of_class: FloatArray
    intercept: bool

    @property
    def squares(self) -> float:
        """A bound in place of the sum of |f~|^2; see `MARGIN_SQUARE`."""
        return MARGIN_SQUARE * super().squares

    @classmethod
    def of_classes(
        cls,
        features: FloatArray,
        classes: FloatArray,
        prices: FloatArray,
        *,
        intercept: bool,
    ) -> Self:
        """Return the problem of rows with features (n, m), of classes (K, n) of 0 and 1.

        Rows of no class or of price 0 have no loss and are left out.
        """
        used = (prices > 0) & (classes.sum(axis=0) > 0)
        columns = np.column_stack([features, np.ones(len(features))]) if intercept else features
        ones = np.ones(int(used.sum()))
        return cls(columns[used], ones, prices[used], ones, 0.0, classes.T[used], intercept)

    @property
    def dimensions(self) -> int:
        """K m'."""
        return int(self.of_class.shape[1] * self.features.shape[1])

    def stand_at(self, iteration: int, v: FloatArray, best: FloatArray) -> DualState:
        """Return the state of new rows at a point: all alphas of a row are equal, and have no step to take.

        Its arrays are (n, K): r, alpha, C - alpha, q and alpha* - alpha.
        """
        equal = np.broadcast_to(self.prices[:, None] / self.of_class.shape[1], self.of_class.shape)
        nothing = np.zeros_like(equal)
        rest = self.prices[:, None] - equal
        return DualState(iteration, v, best, self.brackets(v), equal, rest, nothing, nothing)

    def scores(self, v: FloatArray) -> FloatArray:
        """Return (n, K) w_k.f~."""
        return np.asarray(self.features @ v.reshape(self.of_class.shape[1], -1).T)

    def brackets(self, v: FloatArray) -> FloatArray:
        """Return (n, K) r."""
        return 1.0 - self.of_class + self.against_own(self.scores(v))

    def against_own(self, scores: FloatArray) -> FloatArray:
        """Return (n, K) scores, each minus that of the row's class."""
        return np.asarray(scores - (scores * self.of_class).sum(axis=1, keepdims=True))

    def weigh_classes(self, alpha: FloatArray) -> FloatArray:
        """Return (K m',) the sum of (C e_y - alpha) (x) f~, for alpha (n, K)."""
        return np.asarray(((self.prices[:, None] * self.of_class - alpha).T @ self.features).ravel())

    def curvature_of(self, slopes: FloatArray) -> FloatArray:
        """Return (K m', K m') the sum of H (x) f~ f~^T, for q (n, K)."""
        classes, width = self.of_class.shape[1], self.features.shape[1]
        found = np.empty((classes, width, classes, width))
        totals = slopes.sum(axis=1)
        shares = np.divide(slopes, totals[:, None], out=np.zeros_like(slopes), where=totals[:, None] > 0)
        for k in range(classes):
            for other in range(k, classes):
                weights = slopes[:, k] * ((k == other) - shares[:, other])
                block = (self.features * weights[:, None]).T @ self.features
                found[k, :, other] = found[other, :, k] = block
        return found.reshape(classes * width, -1)

    def advance(
        self, before: DualState, iteration: int, step: FloatArray, mu: float, *, keep: bool, still: bool
    ) -> tuple[RowSums, DualState]:
        """Return the sums after a step of v (K m',) from a state, with their matrix, and the state after it."""
        after = self.move(before, iteration, step, mu, keep=keep, still=still)
        of_others = after.alpha * (1.0 - self.of_class)
        sums = RowSums(
            problem=self,
            slopes=after.slopes,
            gradient=self.weigh_classes(after.alpha + after.lag),
            loss=float(self.prices @ after.residuals.max(axis=1, initial=0.0)),
            alphas=np.array([of_others.sum()]),
            extra=0.0,
            vectors=self.weigh_classes(after.alpha)[None],
            rows=np.array([float(len(self.prices))]),
            known=self.curvature_of(after.slopes),
        )
        return sums, after

    def move(
        self, before: DualState, iteration: int, step: FloatArray, mu: float, *, keep: bool, still: bool
    ) -> DualState:
        """Return the state after a step; see `DualState.move`. All alphas of a row go the same share of their way."""
        slopes, change = before.slopes, self.against_own(self.scores(step))
        totals, moved = slopes.sum(axis=1, keepdims=True), (slopes * change).sum(axis=1, keepdims=True)
        mean = np.divide(moved, totals, out=np.zeros_like(totals), where=totals > 0)
        wanted = np.zeros_like(before.lag) if still else slopes * (change - mean) + before.lag
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(wanted < 0, (1 - BACK_OFF) * before.alpha / -wanted, 1.0)
        alpha = before.alpha + room.min(axis=1, keepdims=True, initial=1.0) * wanted
        residuals = before.residuals + change
        star = on_the_curve(residuals, self.prices, mu)
        best, rest = before.v if keep else before.best, self.prices[:, None] - alpha
        return DualState(iteration, before.v + step, best, residuals, alpha, rest, alpha * star / mu, star - alpha)

    def weights(self, v: FloatArray, constant: int = 0) -> FloatArray:
        """Return (K, m + 1) w and b of each class; b is 0 without an intercept."""
        found = v.reshape(self.of_class.shape[1], -1)
        return found if self.intercept else np.column_stack([found, np.zeros(len(found))])


def on_the_curve(brackets: FloatArray, prices: FloatArray, mu: float) -> FloatArray:
    """Return alpha* (n, K) of brackets (n, K) and prices (n,).

    In units of mu / C the distance t of xi from the largest bracket is between 1 and K and solves
    sum_k 1 / (t + g_k) = 1, where g_k is how far bracket k is below the largest. 1 / sum is concave and rises, so that
    Newton's steps from 1 come from below and do not pass the solution.
    """
    below = (brackets.max(axis=1, keepdims=True) - brackets) * (prices / mu)[:, None]
    t = np.ones((len(below), 1))
    for _ in range(_MAX_ITERATIONS):
        parts = 1.0 / (t + below)
        total = parts.sum(axis=1, keepdims=True)
        step = (total - 1.0) * total / (parts**2).sum(axis=1, keepdims=True)
        t = t + step
        if (np.abs(step) <= _ACCURACY * t).all():
            break
    parts = 1.0 / (t + below)
    return np.asarray(prices[:, None] * parts / parts.sum(axis=1, keepdims=True))
