"""Minimising a convex function along a line, when each value is a sum over the sites (Lu 2016, algorithm 3).

The function is phi(t) = parabola(t) + scale * loss(t): the parabola is known here, the loss is a sum over sites. What
the sites send is their loss and its derivative at given steps, never the breakpoints of their rows, which an exact
search would need and which are every row's margin. All searches serve k lines at once, in the same rounds.

Security. The coordinator learns the summed loss and derivative at every step tried: `grid` reveals as many as the
grid has steps, in one round; `fixed-step` and `paper` one a round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray

GRID = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0])
MAX_STEPS = 200

Evaluate = Callable[[FloatArray], FloatArray]
"""Steps (k, s) to (k, s, 2): the loss and its derivative at each; one round."""


@dataclass(frozen=True)
class Parabola:
    """constant + slope t + curvature t^2 / 2, for k lines: three arrays (k,)."""

    constant: FloatArray
    slope: FloatArray
    curvature: FloatArray

    def value(self, steps: FloatArray) -> FloatArray:
        """Return values (k, s) at steps (k, s)."""
        half_square = 0.5 * self.curvature[:, None] * steps**2
        return np.asarray(self.constant[:, None] + self.slope[:, None] * steps + half_square)

    def derivative(self, steps: FloatArray) -> FloatArray:
        """Return derivatives (k, s) at steps (k, s)."""
        return np.asarray(self.slope[:, None] + self.curvature[:, None] * steps)


@dataclass(frozen=True)
class Minimum:
    """The best steps that were tried, and phi there: two arrays (k,)."""

    step: FloatArray
    value: FloatArray


class LineSearch(Protocol):
    """Finds the best of the steps it tries, or the paper's; t = 0 is the caller's own to compare with."""

    def __call__(self, evaluate: Evaluate, parabola: Parabola, scale: float) -> Minimum:
        """Return the step to take on each of k lines."""


def grid_search(evaluate: Evaluate, parabola: Parabola, scale: float) -> Minimum:
    """Try a whole grid of steps in one round: fine near 0, where most progress is made, and beyond 1."""
    steps = np.tile(GRID, (len(parabola.slope), 1))
    phi = parabola.value(steps) + scale * evaluate(steps)[:, :, 0]
    return _best(steps, phi)


def fixed_step_search(step: float) -> LineSearch:
    """Try t = step, 2 step, … one round each, until the derivative turns positive, and take the best of them."""

    def search(evaluate: Evaluate, parabola: Parabola, scale: float) -> Minimum:
        steps, phi, _ = _walk(1, step, evaluate, parabola, scale)
        return _best(steps, phi)

    return search


def printed_search(step: float) -> LineSearch:
    """Try t = 0, step, … one round each, and take the first with a derivative of 0 or more: algorithm 3 as printed.

    That step may be worse than the one before, or than t = 0.
    """

    def search(evaluate: Evaluate, parabola: Parabola, scale: float) -> Minimum:
        steps, phi, rises = _walk(0, step, evaluate, parabola, scale)
        lines, last = np.arange(len(steps)), steps.shape[1] - 1
        first = np.where(rises.any(axis=1), rises.argmax(axis=1), last)
        return Minimum(steps[lines, first], phi[lines, first])

    return search


def _walk(
    first: int, step: float, evaluate: Evaluate, parabola: Parabola, scale: float
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Return steps, phi there, and where phi does not fall, (k, s) each: multiples of `step` until it falls on no
    line."""
    tried: list[FloatArray] = []
    values: list[FloatArray] = []
    rises: list[NDArray[np.bool_]] = []
    for count in range(first, first + MAX_STEPS):
        steps = np.full((len(parabola.slope), 1), count * step)
        sums = evaluate(steps)
        tried.append(steps)
        values.append(parabola.value(steps) + scale * sums[:, :, 0])
        rises.append(parabola.derivative(steps) + scale * sums[:, :, 1] >= 0)
        if rises[-1].all():
            break
    return np.hstack(tried), np.hstack(values), np.hstack(rises)


def _best(steps: FloatArray, phi: FloatArray) -> Minimum:
    lines = np.arange(len(steps))
    lowest = phi.argmin(axis=1)
    return Minimum(steps[lines, lowest], phi[lines, lowest])


def line_search(name: str, step: float) -> LineSearch:
    """Return the search that a scenario names; `step` is the paper's lambda. Raises LookupError for another name."""
    if name == "grid":
        return grid_search
    if name == "fixed-step":
        return fixed_step_search(step)
    if name == "paper":
        return printed_search(step)
    raise LookupError(f"no line search is called {name!r}; there are grid, fixed-step and paper")
