"""Minimizers of regularized losses, by Newton's method on sums of losses, gradients and Hessians over rows.

    J(f) = (1/n) sum_i l(y_i f.x_i) + b.f/n + lambda/2 |f|^2

for one weight vector, or for K of one multinomial problem.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.losses import Loss
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError

GRADIENT_TOLERANCE = 1e-10
"""Of J; the minimizer is within this over lambda."""

MAX_STEPS = 100
_MIN_LENGTH = 2.0**-30


def erm_sums(points: FloatArray, labels: FloatArray, f: FloatArray, loss: Loss) -> FloatArray:
    """Return (1 + d + d^2,) the sum of losses of rows (n, d) with labels (n,), its gradient and its Hessian."""
    values, slopes, curvatures = loss(labels * (points @ f))
    hessian = (points * curvatures[:, None]).T @ points
    return np.concatenate([[values.sum()], (slopes * labels) @ points, hessian.ravel()])


def joint_erm_sums(points: FloatArray, classes: FloatArray, f: FloatArray) -> FloatArray:
    """Return (1 + K d + (K d)^2,) multinomial logistic loss of rows (n, d) of classes (K, n) at f, gradient, Hessian.

    A row of no class has no loss.
    """
    value, slopes, chances = _softmax_terms(points, classes, f)
    kinds, size = len(classes), points.shape[1]
    hessian = np.empty((kinds, size, kinds, size))
    for k, chance in enumerate(chances):
        for other in range(kinds):
            weights = chance * (float(k == other) - chances[other])
            hessian[k, :, other] = (points * weights[:, None]).T @ points
    return np.concatenate([[value], (slopes @ points).ravel(), hessian.ravel()])


def softmax_loss(points: FloatArray, classes: FloatArray, f: FloatArray) -> tuple[float, FloatArray]:
    """Return the multinomial logistic loss of rows (n, d) of classes (K, n) at f (K d,), and its gradient (K d,)."""
    value, slopes, _ = _softmax_terms(points, classes, f)
    return value, (slopes @ points).ravel()


def _softmax_terms(points: FloatArray, classes: FloatArray, f: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return the loss, its slopes (K, n) in each row's scores, and probabilities (K, n); 0 for rows of no class."""
    named = classes.sum(axis=0) > 0
    scores = f.reshape(len(classes), -1) @ points.T
    logarithms = scores - np.logaddexp.reduce(scores, axis=0)
    chances = np.exp(logarithms) * named
    return -float((classes * logarithms).sum()), chances - classes, chances


@dataclass(frozen=True)
class Plan:
    """The objective that is minimised: J with b.f/n, and lambda + Delta in place of lambda. scale: of the norm of b."""

    regularisation: float
    b: FloatArray
    scale: float | None


Total = Callable[[list[int], FloatArray], FloatArray]
"""(k, 1 + d + d^2): the sums over all rows of what `erm_sums` computes, of problems at points (k, d)."""


def minimize_together(total: Total, plans: Sequence[Plan], rows: int) -> list[FloatArray]:
    """Return the minimizer (d,) of each problem. All share rounds, which each leaves when it is solved.

    Raises FederationError if one is not reached.
    """
    steps = [_newton(plan, rows) for plan in plans]
    points, found = {k: next(each) for k, each in enumerate(steps)}, dict[int, FloatArray]()
    while points:
        active = list(points)
        for k, sums in zip(active, total(active, np.stack(list(points.values()))), strict=True):
            try:
                points[k] = steps[k].send(sums)
            except StopIteration as end:
                found[k] = end.value
                del points[k]
    return [found[k] for k in range(len(plans))]


def _newton(plan: Plan, rows: int) -> Generator[FloatArray, FloatArray, FloatArray]:
    """Run Newton's method with step halving: request the sums at points (d,), and return the minimizer."""
    f, length = np.zeros(len(plan.b)), 1.0
    value, gradient, hessian = _objective((yield f), plan, rows, f)
    for _ in range(MAX_STEPS):
        if np.linalg.norm(gradient) <= GRADIENT_TOLERANCE:
            return f
        direction = -np.linalg.solve(hessian, gradient)
        candidate = f + length * direction
        at_candidate = _objective((yield candidate), plan, rows, candidate)
        rounding = 1e-14 * (abs(value) + plan.regularisation * float(f @ f))  # large terms may cancel in a small value
        if at_candidate[0] <= value + 1e-4 * length * float(gradient @ direction) + rounding:
            (value, gradient, hessian), f, length = at_candidate, candidate, 1.0
        elif (length := length / 2) < _MIN_LENGTH:
            break
    raise FederationError(
        f"Training did not reach a gradient of {GRADIENT_TOLERANCE:g} over {len(f)} features; nothing is released. "
        "Raise algorithm.regularisation."
    )


def _objective(total: FloatArray, plan: Plan, rows: int, f: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return value, gradient and Hessian of the objective, from the sums over all rows."""
    size, lam, sums = len(f), plan.regularisation, total / rows
    return (
        float(sums[0] + 0.5 * lam * f @ f + plan.b @ f / rows),
        sums[1 : 1 + size] + lam * f + plan.b / rows,
        sums[1 + size :].reshape(size, size) + lam * np.eye(size),
    )


def minimum(
    total: Callable[[FloatArray], tuple[float, FloatArray]], size: int, rows: int, regularisation: float
) -> tuple[FloatArray, float]:
    """Return weights (size,) and J of one problem, by L-BFGS. total: losses over all rows, and their gradient."""
    from scipy.optimize import minimize

    def objective(f: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = total(f)
        return value / rows + 0.5 * regularisation * float(f @ f), gradient / rows + regularisation * f

    options = {"maxiter": 10_000, "ftol": 1e-16, "gtol": 1e-10}
    best = minimize(objective, np.zeros(size), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(best.x), float(best.fun)
