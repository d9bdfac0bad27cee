"""The results of a federation computed on all rows at once, for comparison in tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.optimization.cutting_plane import Line, Points, solve
from fedsvm.algorithms.optimization.line_search import LineSearch, grid_search
from fedsvm.algorithms.optimization.solution import Solution, StoppingRule
from fedsvm.federation.arrays import FloatArray, IntArray


@dataclass
class PooledOracle:
    """The sums of the cutting plane over rows (n, m) with labels (K, n), dealt at random to groups."""

    features: FloatArray
    labels: FloatArray
    groups: int
    rounds: int = 0

    def __post_init__(self) -> None:
        dealt = np.random.default_rng(0).permutation(len(self.features)) % self.groups
        self._members = np.eye(self.groups)[:, dealt]

    def cuts(self, problems: IntArray, at: Points) -> FloatArray:
        """a, d and m of every group; see `Oracle.cuts`."""
        self.rounds += 1
        found = []
        for problem, at_w, at_b in zip(problems, at.w, at.b, strict=True):
            y = self.labels[problem]
            c = (y * (self.features @ at_w + at_b) < 1).astype(float)
            members = self._members * c
            found.append(np.column_stack([(members * y) @ self.features, members @ y, members.sum(axis=1)]))
        return np.array(found)

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        """Losses and derivatives; see `Oracle.line`."""
        self.rounds += 1
        w, b, dw, db, steps = line.w, line.b, line.dw, line.db, line.steps
        found = np.empty((*steps.shape, 2))
        for i, problem in enumerate(problems):
            y = self.labels[problem]
            slope = y * (self.features @ dw[i] + db[i])
            for j, step in enumerate(steps[i]):
                slack = 1 - y * (self.features @ (w[i] + step * dw[i]) + b[i] + step * db[i])
                found[i, j] = np.maximum(slack, 0).sum(), -slope[slack > 0].sum()
        return found


def solve_pooled(
    oracle: PooledOracle,
    C: float,
    tolerance: float,
    search: LineSearch = grid_search,
    most: int = 500,
    resume: Sequence[Solution] = (),
) -> list[Solution]:
    """Solve all problems of an oracle."""
    return solve(
        oracle,
        problems=len(oracle.labels),
        dimensions=oracle.features.shape[1],
        groups=oracle.groups,
        C=C,
        stopping=StoppingRule(tolerance, most),
        search=search,
        on_iteration=lambda iteration, solutions: None,
        resume=resume,
    )
