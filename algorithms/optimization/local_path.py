"""The path of rows that are all in one place, as the interior point trains on them without a federation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsvm.algorithms.optimization.barrier import SPREAD, TARGET_SPREAD, Problem, RowSums
from fedsvm.algorithms.optimization.interior_point import (
    Extent,
    NewtonRequest,
    NoiseSize,
    Opened,
    Outcome,
    RoundSums,
    solve,
)
from fedsvm.algorithms.optimization.masking import Mask
from fedsvm.algorithms.optimization.solution import Solution, StoppingRule
from fedsvm.federation.arrays import FloatArray


class LocalPath:
    """The rows of K problems, all here: what a federation of one site that nobody hides from would sum."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = problems
        self.standings = [p.stand_at(0, np.zeros(p.dimensions), np.zeros(p.dimensions)) for p in problems]

    def extent(self) -> Extent:
        """Return the bounds of these rows."""
        has_secrets = any(problem.barriers is not None for problem in self.problems)
        return Extent(
            rows=max(len(problem.labels) for problem in self.problems),
            squares=max(problem.squares for problem in self.problems),
            price=max(float(problem.prices.max(initial=0.0)) for problem in self.problems) or 1.0,
            target=max(float(np.abs(problem.targets).max(initial=1.0)) for problem in self.problems),
            noise=NoiseSize.of([problem.tilt for problem in self.problems if problem.tilt is not None]),
            spread=SPREAD if has_secrets else 1.0,
            offset=TARGET_SPREAD if has_secrets else 0.0,
        )

    def sums(self, iteration: int, terms: Sequence[NewtonRequest], *, wide: bool) -> RoundSums:
        """Run a round without rounding."""
        return RoundSums([self.opened(iteration, each) for each in terms])

    def opened(
        self, iteration: int, terms: NewtonRequest, *, regulariser: bool = True, mask: Mask | None = None
    ) -> Opened:
        """Return the sums after a step of one problem, with or without the terms of 1/2 |w|^2, behind a mask if any."""
        problem = self.problems[terms.problem]
        sums, standing = problem.advance(
            self.standings[terms.problem], iteration, terms.step, terms.mu, keep=terms.keep, still=terms.still
        )
        self.standings[terms.problem] = standing
        return opened_by(sums, standing.v, intercept=problem.lever > 0, regulariser=regulariser, mask=mask)

    def best(self, outcome: Outcome, problem: int) -> Solution:
        """Return the best point of a finished problem."""
        standing, rows = self.standings[problem], self.problems[problem]
        found = rows.weights(standing.v if outcome.keep else standing.best, outcome.constant)
        return Solution(**vars(outcome.certificate), w=found[:-1], b=float(found[-1]))


def opened_by(sums: RowSums, v: FloatArray, *, intercept: bool, regulariser: bool, mask: Mask | None = None) -> Opened:
    """Return the sums over rows, with the terms of 1/2 |w|^2 if requested, behind a mask if any.

    The noise in the objective is in all of them; equal parts of it are in the vectors of the classes.
    """
    weights = np.full(len(v), float(regulariser))
    if intercept:
        weights[-1] = 0.0
    gradient, objective, vectors = sums.gradient - weights * v, sums.loss + 0.5 * float(weights @ v**2), sums.vectors
    if (tilt := sums.problem.tilt) is not None:
        gradient[: len(tilt)] -= tilt
        objective += float(tilt @ v[: len(tilt)])
        vectors = vectors - tilt / len(vectors)
    vectors = vectors if mask is None else mask.turn.times(vectors.T).T
    return Opened(
        matrix=sums.behind(mask, weights),
        gradient=gradient if mask is None else mask.times(gradient),
        objective=objective,
        alphas=sums.alphas,
        extra=sums.extra,
        vectors=vectors,
        rows=sums.rows,
    )


def solve_pooled(problems: Sequence[Problem], stopping: StoppingRule, step_noise: float = 0.0) -> list[Solution]:
    """Solve problems whose rows are all here."""
    path, first = LocalPath(problems), problems[0]
    outcomes = solve(
        path,
        problems=len(problems),
        dimensions=first.dimensions,
        intercept=first.lever > 0,
        stopping=stopping,
        step_noise=step_noise,
    )
    return [path.best(outcome, k) for k, outcome in enumerate(outcomes)]
