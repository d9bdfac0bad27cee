"""Training over the sites by Newton's method, in the clear or behind a committee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsvm.algorithms.logistic_regression.settings import LogisticSettings
from fedsvm.algorithms.logistic_regression.systems import newton_systems, penalties_of
from fedsvm.algorithms.optimization.committee import LEAN, dither_size, solve_with_committee
from fedsvm.algorithms.optimization.weighting import Factors, Weighting
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.protocols.blind_parameters import STRETCH
from fedsvm.protocols.blind_system import BlindSolution

_ROOM = 1 + 1e-9
"""Factor on the bounds of sums, for rounding."""

_LEAST_OBJECTIVE = 1e-6
"""The smallest objective that noise is sized by, as a share of the largest."""

_LOSS_NOISE = 1e-3
"""The largest noise of a member of the committee on a loss, as a share of the objective before."""

_SPREAD = 32.0
"""Bound on a normal number drawn from 53 bits, with a margin of a factor of three."""

_SMALLEST = 2.0**-30
"""The smallest ratio of the scales of right-hand sides and matrix; it keeps solutions within the range of the check."""

_MOST_PROMISED = 0.5 * (STRETCH * (1 + 2.0**-10)) ** 2
"""Upper bound on the decrease that a step promises, over the decrement seen behind the mask.

A right-hand side has a factor of at least 1 / `STRETCH` there.
"""


@dataclass(frozen=True)
class _TriedPoint:
    """A tried point.

    Attributes
    ----------
    objective : float
        The objective there, to within `error`.
    step : (d,)
        Newton's step from there.
    promise : float
        Upper bound on the decrease of the objective by that step, to second order.
    error : float
        Bound on the noise of the objective.
    """

    objective: float
    step: FloatArray
    promise: float
    error: float = 0.0


@dataclass
class LogisticProgress:
    """The progress of one problem: its best point (d,), the objective there, and the step (d,) that is tried next.

    error, promise: of the best point; see `_TriedPoint`.
    """

    best: FloatArray
    step: FloatArray
    objective: float = math.inf
    error: float = 0.0
    promise: float = math.inf
    converged: bool = False

    @property
    def point(self) -> FloatArray:
        """The point (d,) that is tried next."""
        return self.best + self.step

    def restart(self) -> None:
        """Keep the best point after rows changed, and try it again for its objective over the new rows."""
        self.step, self.objective, self.promise, self.converged = np.zeros(len(self.best)), math.inf, math.inf, False

    def take(self, tried: _TriedPoint, tolerance: float) -> bool:
        """Move to the tried point if it is better, and otherwise halve the step. Return whether it was better."""
        if tried.objective - tried.error > self.objective + self.error:
            self.step = self.step / 2
            return False
        self.best, self.objective, self.error = self.point, tried.objective, tried.error
        self.step, self.promise = tried.step, tried.promise
        self.converged = tried.promise <= tolerance * tried.objective
        return True


@dataclass
class NewtonTraining:
    """Training over the sites.

    Attributes
    ----------
    federation : Federation
    settings : LogisticSettings
    weighting : Weighting
        Weights of rows and classes.
    problems : list of LogisticProgress
        One for two classes; for more, one for each class against the others.
    iterations : int
        Number of rounds so far, in which points were tried.
    factors : Factors
        Factors of the classes' losses, which the stage agrees on.
    mean_square : float
        Mean squared length of all mapped rows.
    """

    federation: Federation
    settings: LogisticSettings
    weighting: Weighting
    problems: list[LogisticProgress]
    iterations: int = 0
    factors: Factors = field(default_factory=Factors)
    mean_square: float = 0.0

    @property
    def converged(self) -> bool:
        """True if every problem has converged."""
        return all(problem.converged for problem in self.problems)

    def stage(self) -> None:
        """Take Newton's steps until they promise too little. After a change of rows, start from the best points."""
        squares, count = self.federation.sum("squared_norms", shape=(2,), bound=math.inf)
        rows = max(1.0, round(float(count)))
        self.mean_square = max(0.0, float(squares)) / rows
        squares = (max(0.0, float(squares)) + rows) * _ROOM
        self.factors = Factors.agreed(self.federation, self.weighting, max(2, len(self.problems)))
        for problem in self.problems:
            problem.restart()
        while self.iterations < self.settings.max_iterations and not self.converged:
            active = [k for k, problem in enumerate(self.problems) if not problem.converged]
            tried = self._try(active, rows, squares)
            self.iterations += 1
            better = [
                self.problems[k].take(each, self.settings.tolerance) for k, each in zip(active, tried, strict=True)
            ]
            if any(better):
                objective = sum(problem.objective for problem in self.problems)
                self.federation.log_metrics(iteration=self.iterations, objective=objective)

    def _try(self, active: list[int], rows: float, squares: float) -> list[_TriedPoint]:
        """Try the next points of the active problems in one round. Each site's part is scaled to at most 1.

        rows: their number. squares: bound on the sum of the squared lengths of z over all rows.
        """
        points, settings = np.stack([self.problems[k].point for k in active]), self.settings
        lengths = math.sqrt(rows * squares)
        longest = max(float(np.linalg.norm(point)) for point in points)
        scales = np.array([rows + longest * lengths, lengths, squares]) * _ROOM * self.factors.largest
        arguments: dict[str, Any] = {"problems": active} if len(self.problems) > 1 else {}
        arguments |= {"points": points, "intercept": settings.intercept, **self.factors.told}
        if settings.masking == "committee":
            scales += settings.regularisation * np.array([0.0, longest, 1.0])
            most = rows * self.factors.largest * math.log(2)
            return self._solve_blindly([self.problems[k] for k in active], most, scales, arguments)
        return self._open(points, scales, arguments)

    def _open(self, points: FloatArray, scales: FloatArray, arguments: dict[str, Any]) -> list[_TriedPoint]:
        """Open loss, gradient and Hessian at points (k, d) by one secure sum, and solve."""
        count, d = points.shape
        shape = (count, 1 + d + d * (d + 1) // 2)
        totals = self.federation.sum("newton_sums", shape=shape, bound=1.0, scales=scales, **arguments)
        penalties = penalties_of(d, self.settings.regularisation, intercept=self.settings.intercept)
        tried = []
        for total, point in zip(totals, points, strict=True):
            hessian = np.zeros((d, d))
            hessian[np.triu_indices(d)] = total[1 + d :] * scales[2]
            symmetric = hessian + np.triu(hessian, 1).T
            objective = float(total[0] * scales[0]) + 0.5 * float(penalties @ point**2)
            slope = total[1 : 1 + d] * scales[1] + penalties * point
            step = np.asarray(-np.linalg.solve(symmetric + np.diag(penalties), slope))
            tried.append(_TriedPoint(objective, step, -0.5 * float(slope @ step)))
        return tried

    def _solve_blindly(
        self, problems: Sequence[LogisticProgress], most: float, scales: FloatArray, arguments: dict[str, Any]
    ) -> list[_TriedPoint]:
        """Solve for the steps from the tried points behind a committee.

        most: upper bound on the objective at a best point. Changes the scale of right-hand sides in `scales`.
        """
        settings, d = self.settings, len(problems[0].best)
        # noise on the loss may take an objective below 0
        objectives = np.array([min(max(problem.objective, _LEAST_OBJECTIVE * most), most) for problem in problems])
        promises = np.array([min(problem.promise / STRETCH**2, most) for problem in problems])
        of_w = dither_size(settings.step_noise, promises, d, settings.regularisation)
        of_intercept = of_w * np.minimum(1.0, np.sqrt(objectives / (LEAN * settings.regularisation)))
        scales[1] = max(scales[1], _SPREAD * float(of_w.max()), _SMALLEST * float(scales[2]))
        noises, dithers = _LOSS_NOISE * objectives, np.column_stack([of_w, of_intercept])
        penalties = penalties_of(d, settings.regularisation, intercept=settings.intercept)
        systems = newton_systems(d, scales, noises, dithers, settings.regularisation, intercept=settings.intercept)
        seen = solve_with_committee(
            self.federation,
            "blind_steps",
            systems,
            _numbers_of,
            scales=scales,
            noises=noises,
            dithers=dithers,
            regularisation=settings.regularisation,
            **arguments,
        )
        tried = []
        for problem, noise, numbers in zip(problems, noises.tolist(), seen, strict=True):
            objective = float(numbers[-1] * scales[0]) + 0.5 * float(penalties @ problem.point**2)
            promise = _MOST_PROMISED * float(numbers[-2] * scales[1] ** 2 / scales[2])
            tried.append(_TriedPoint(objective, numbers[:d] * scales[1] / scales[2], promise, error=2 * noise))
        return tried


def _numbers_of(solved: Sequence[BlindSolution]) -> FloatArray:
    """Return one row for each solution: the step, its decrement behind the mask, and the loss."""
    return np.stack([np.hstack([each.found[0], each.decrements, each.numbers]) for each in solved])
