"""The SVM of one site's rows near a center: the problem that a site of consensus ADMM solves in each iteration.

An augmented Lagrangian finds it. With the dual variables lambda and a penalty sigma, from the last lambda:

    x      <- argmin over x of  rho/2 |x - v|^2 + 1/(2 sigma) sum e(lambda + sigma (1 - B x))
    lambda <- lambda + sigma (1 - B x), cut to [0, 1]

where e(q) = q^2 - (q - p)^2 with p = q cut to [0, 1]: a square between 0 and 1, a line beyond. Newton's method finds x,
from the last x. Its matrix contains only the rows whose q is between 0 and 1. These are often fewer than the features,
so that a step costs little more than two products with all rows.

References
----------
Y. Yan and Q. Li, "An efficient augmented Lagrangian method for support vector machine", Optimization Methods and
Software 35 (4), 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsvm.federation.arrays import BoolArray, FloatArray

_ACCURACY = 1e-9
"""The most by which lambda may miss the condition of the optimum, and the gradient that of x, as a share of rho x."""

_AGREEMENT = 1e-6
"""The most by which x may differ from v + B^T lambda / rho in the end, as a share of its length."""

_PENALTIES = (1.0, 3.0, 1e6)
"""The first penalty, its factor from round to round, and the largest."""

_MOST_ROUNDS, _MOST_STEPS = 100, 50
"""Rounds of the augmented Lagrangian, and Newton steps of a round, after which rounding prevents more accuracy."""

_SUFFICIENT, _SHORTEST = 1e-4, 1e-18
"""The share of the predicted decrease that a step must have, and the shortest step that is tried."""


def local_model(
    features: FloatArray, labels: FloatArray, centre: FloatArray, rho: float, start: FloatArray, lever: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Return a site's own model near a center, and its dual variables.

    Parameters
    ----------
    features : (n, m)
    labels : (n,)
        Of +1 and -1.
    centre : (m + 1,)
        v = z - u.
    rho : float
        Penalty of the squared distance from it.
    start : (n,)
        Dual variables to start from.
    lever : float, default 1.0
        f~ = (f, lever).

    Returns
    -------
    x : (m + 1,)
        The minimizer of sum max(0, 1 - y f~.x) + rho/2 |x - v|^2: v + B^T lambda / rho, B = y f~.
    dual : (n,)
        lambda, that of |B^T lambda|^2 / (2 rho) + lambda.(B v - 1) over [0, 1]^n.
    """
    if not len(labels):
        return centre, start
    problem = _Problem(features, labels, centre, rho, lever)
    dual, x = start, problem.model(start)
    penalty, factor, largest = _PENALTIES
    for _ in range(_MOST_ROUNDS):
        x = problem.penalized_minimum(x, dual, penalty)
        short = 1.0 - problem.margins(x)
        dual = _cut(dual + penalty * short)
        is_complementary = np.abs(dual - _cut(dual + short)).max() <= _ACCURACY
        apart = np.linalg.norm(x - problem.model(dual))
        if is_complementary and apart <= _AGREEMENT * max(1.0, float(np.linalg.norm(x))):
            break
        penalty = min(factor * penalty, largest)
    return x, dual


def _cut(dual: FloatArray) -> FloatArray:
    return np.clip(dual, 0.0, 1.0)


@dataclass(frozen=True)
class _Problem:
    """The rows B = y f~ of a site, not stored, and the distance that a model pays for."""

    features: FloatArray
    labels: FloatArray
    centre: FloatArray
    rho: float
    lever: float

    def margins(self, x: FloatArray) -> FloatArray:
        """Return B x."""
        return np.asarray(self.labels * (self.features @ x[:-1] + self.lever * x[-1]))

    def weigh_rows(self, dual: FloatArray) -> FloatArray:
        """Return B^T lambda."""
        signed = dual * self.labels
        return np.append(signed @ self.features, self.lever * signed.sum())

    def model(self, dual: FloatArray) -> FloatArray:
        """Return v + B^T lambda / rho."""
        return self.centre + self.weigh_rows(dual) / self.rho

    def penalized_minimum(self, x: FloatArray, dual: FloatArray, penalty: float) -> FloatArray:
        """Return the minimizer of the augmented Lagrangian, from x."""
        from scipy.linalg import cho_factor, cho_solve  # the server that sites are forked from has no use for it

        raw = dual + penalty * (1.0 - self.margins(x))
        for _ in range(_MOST_STEPS):
            gradient = self.rho * (x - self.centre) - self.weigh_rows(_cut(raw))
            if np.linalg.norm(gradient) <= _ACCURACY * self.rho * max(1.0, float(np.linalg.norm(x))):
                break
            step = -cho_solve(cho_factor(self._curvature((raw >= 0) & (raw <= 1), penalty)), gradient)
            raw_step = -penalty * self.margins(step)
            share = self._share_of_step(x, step, raw, raw_step, penalty, float(gradient @ step))
            if share < _SHORTEST:
                break
            x, raw = x + share * step, raw + share * raw_step
        return x

    def _curvature(self, free: BoolArray, penalty: float) -> FloatArray:
        """Return rho I + sigma B^T B over the free rows (n,)."""
        rows = np.column_stack([self.features[free], np.full(int(free.sum()), self.lever)])
        curvature = penalty * (rows.T @ rows)
        curvature[np.diag_indices_from(curvature)] += self.rho
        return np.asarray(curvature)

    def _share_of_step(
        self, x: FloatArray, step: FloatArray, raw: FloatArray, raw_step: FloatArray, penalty: float, slope: float
    ) -> float:
        """Return the largest of 1, 1/2, 1/4 ... with a sufficient decrease, or less than the shortest step."""

        def value(share: float) -> float:
            away, at = x + share * step - self.centre, raw + share * raw_step
            cut = _cut(at)
            return float(self.rho / 2 * (away @ away) + (cut * (at - cut / 2)).sum() / penalty)

        share, before = 1.0, value(0.0)
        while value(share) > before + _SUFFICIENT * share * slope and share >= _SHORTEST:
            share /= 2
        return share
