"""Linear SVMs by cutting planes, when all that is known of the rows are sums (Lu 2016, algorithms 2 and 3).

For each of K binary problems:  min over w, b of  1/2 |w|^2 + C sum_i max(0, 1 - y_i (w.f_i + b)).

C is per row and not divided by n, and b is not regularised: the problem that LIBSVM solves with the kernel F F^T.

At a point (w, b) let c_i = [y_i (w.f_i + b) < 1]. One sum gives a = sum c_i y_i f_i, d = sum c_i y_i, m = sum c_i, and
with them a cut: the loss at any (w', b') is at least m - w'.a - b' d. Rows are dealt to g groups, each with its own cut
and its own slack in the master problem (g = 1 is the paper), which makes the sum g times longer and the rounds many
times fewer.

Corrections to the paper. (1) With b unregularised the first masters are unbounded: the cuts at (0, -1) and (0, +1) are
there from the start. (2) Equation 3.8 misplaces the loss; phi below is the objective along the line. (3) New cuts are
taken at 0.9 best + 0.1 master (Franc and Sonnenburg 2009, mu = 0.1), since at the best point itself it can stall.
(4) It stops on the relative gap between the best objective and a lower bound, both certified: the objective is
evaluated, and the bound is computed from multipliers made feasible, whatever the solver's accuracy was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol

import numpy as np

from algorithms.optimisation.line_search import LineSearch, Parabola
from algorithms.optimisation.solution import Solution, Stopping, StoppingSettings, relative_gap
from algorithms.settings import Dimension, doc
from federation.arrays import FloatArray, IntArray
from federation.errors import FederationError

MU = 0.1
IDLE_MASTERS = 2
"""A cut that had no multiplier in this many masters is dropped. The bound is the best so far, so it cannot fall."""

_MASTER_ACCURACY = 1e-3
"""Accuracy of a master problem, as a share of the tolerance of the whole."""
_FINEST_ACCURACY = 1e-12
_ACTIVE = 1e-9


class Oracle(Protocol):
    """The sums over all rows. Each call is one round over the network."""

    def cuts(self, problems: IntArray, w: FloatArray, b: FloatArray) -> FloatArray:
        """(k, g, m + 2): a, d, m of every group, for problems (k,) at w (k, m), b (k,). A problem may come twice."""

    def line(
        self,
        problems: IntArray,
        w: FloatArray,
        b: FloatArray,
        dw: FloatArray,
        db: FloatArray,
        steps: FloatArray,
    ) -> FloatArray:
        """(k, s, 2): the loss and its derivative along (dw, db) at steps (k, s)."""


@dataclass(kw_only=True)
class CuttingPlaneSettings(StoppingSettings):
    """How long to train, and how much each round carries."""

    cut_groups: Annotated[
        Dimension,
        doc("Cuts per round; 1 is the paper's algorithm. More take fewer rounds, and more often hold a single row."),
    ] = 32


def solve(
    oracle: Oracle,
    *,
    problems: int,
    dimensions: int,
    groups: int,
    C: float,
    stopping: Stopping,
    search: LineSearch,
    on_iteration: Callable[[int, Sequence[Solution]], None],
    resume: Sequence[Solution] = (),
    intercept: bool = True,
) -> list[Solution]:
    """Solve `problems` binary problems in the same rounds; each leaves the rounds when it is done.

    intercept: without it b is 0.

    `on_iteration` is told the iteration and the state of every problem. `resume`: where an earlier bundle stood, over
    other rows; its points are where this one starts, its cuts bound nothing here, its iterations count. A solution that
    is not `converged` ran into `max_iterations`. Raises FederationError when a master problem cannot be solved.
    """
    accuracy = max(_FINEST_ACCURACY, _MASTER_ACCURACY * stopping.tolerance)
    bundles = [_Bundle(dimensions, groups, C, accuracy, intercept) for _ in range(problems)]
    _start(oracle, bundles, resume)
    done = max((solution.iterations for solution in resume), default=0)
    for iteration in range(done + 1, stopping.max_iterations + 1):
        for k in _unfinished(bundles, stopping):
            bundles[k].solve_master(iteration)
        on_iteration(iteration, [bundle.solution(stopping.tolerance) for bundle in bundles])
        if active := _unfinished(bundles, stopping):
            _search(oracle, bundles, active, search)
        if active := _unfinished(bundles, stopping):
            _cut(oracle, bundles, active)
        if not _unfinished(bundles, stopping):
            break
    return [bundle.solution(stopping.tolerance) for bundle in bundles]


def _unfinished(bundles: list[_Bundle], stopping: Stopping) -> list[int]:
    return [k for k, bundle in enumerate(bundles) if bundle.gap > stopping.tolerance]


def _start(oracle: Oracle, bundles: list[_Bundle], resume: Sequence[Solution]) -> None:
    """The cuts that bound the first masters, two if there is an intercept, and those at the points to resume from."""
    count = len(bundles)
    starts = np.repeat([-1.0, 1.0] if bundles[0].intercept else [0.0], count)
    _take(oracle, bundles, np.zeros((len(starts), bundles[0].w.size)), starts)
    if resume:
        _take(oracle, bundles, np.array([each.w for each in resume]), np.array([each.b for each in resume]))


def _take(oracle: Oracle, bundles: list[_Bundle], w: FloatArray, b: FloatArray) -> None:
    """Take cuts at points (w, b), which belong to the problems in turn."""
    problems = np.arange(len(b)) % len(bundles)
    for problem, cuts, at_w, at_b in zip(problems, oracle.cuts(problems, w, b), w, b, strict=True):
        bundles[problem].add(cuts, at_w, float(at_b))


def _search(oracle: Oracle, bundles: list[_Bundle], active: list[int], search: LineSearch) -> None:
    """Go from each problem's best point towards its master's, as far as the objective falls."""
    chosen = [bundles[k] for k in active]
    problems = np.array(active)
    w, b = np.array([bundle.w for bundle in chosen]), np.array([bundle.b for bundle in chosen])
    dw = np.array([bundle.master_w for bundle in chosen]) - w
    db = np.array([bundle.master_b for bundle in chosen]) - b
    # phi(t) = 1/2 |w + t dw|^2 + C loss(t)
    parabola = Parabola(0.5 * (w**2).sum(axis=1), (w * dw).sum(axis=1), (dw**2).sum(axis=1))
    found = search(lambda steps: oracle.line(problems, w, b, dw, db, steps), parabola, chosen[0].C)
    for i, bundle in enumerate(chosen):
        bundle.consider(w[i] + found.step[i] * dw[i], float(b[i] + found.step[i] * db[i]), float(found.value[i]))


def _cut(oracle: Oracle, bundles: list[_Bundle], active: list[int]) -> None:
    """New cuts near each problem's best point, a little on the master's side."""
    chosen = [bundles[k] for k in active]
    w = np.array([(1 - MU) * bundle.w + MU * bundle.master_w for bundle in chosen])
    b = np.array([(1 - MU) * bundle.b + MU * bundle.master_b for bundle in chosen])
    for bundle, cuts, at_w, at_b in zip(chosen, oracle.cuts(np.array(active), w, b), w, b, strict=True):
        bundle.add(cuts, at_w, float(at_b))


@dataclass
class _Bundle:
    """The cuts of one problem, its best point, and its master's."""

    dimensions: int
    groups: int
    C: float
    accuracy: float
    intercept: bool
    objective: float = np.inf
    lower_bound: float = 0.0
    iterations: int = 0
    b: float = 0.0
    master_b: float = 0.0
    w: FloatArray = field(init=False)
    master_w: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.w = self.master_w = np.zeros(self.dimensions)
        self._cuts = np.zeros((0, self.dimensions + 2))
        self._group = np.zeros(0, dtype=np.int64)
        self._idle = np.zeros(0, dtype=np.int64)

    @property
    def gap(self) -> float:
        return relative_gap(self.objective, self.lower_bound)

    def solution(self, tolerance: float) -> Solution:
        """The state as it stands."""
        converged = self.gap <= tolerance
        return Solution(self.objective, self.lower_bound, self.iterations, converged, self.w, self.b)

    def consider(self, w: FloatArray, b: float, objective: float) -> None:
        """Take an evaluated point as the best if it is."""
        if objective < self.objective:
            self.w, self.b, self.objective = w, b, objective

    def add(self, cuts: FloatArray, w: FloatArray, b: float) -> None:
        """Add the cuts (g, m + 2) taken at (w, b). A cut is tight there, so they also evaluate the objective."""
        if not self.intercept:
            cuts = np.hstack([cuts[:, :-2], np.zeros((len(cuts), 1)), cuts[:, -1:]])
        loss = float((cuts[:, -1] - cuts[:, :-2] @ w - cuts[:, -2] * b).sum())
        self.consider(w, b, float(0.5 * w @ w + self.C * loss))
        self._cuts = np.vstack([self._cuts, cuts])
        self._group = np.concatenate([self._group, np.arange(self.groups)])
        self._idle = np.concatenate([self._idle, np.zeros(self.groups, dtype=np.int64)])

    def solve_master(self, iteration: int) -> None:
        """The master problem: a new point to go towards, and perhaps a better bound."""
        self.iterations = iteration
        self.master_w, self.master_b, multipliers = _solve_master(
            self._cuts, self._group, self.groups, self.C, self.accuracy
        )
        self.master_b = self.master_b if self.intercept else 0.0
        feasible = _feasible(multipliers, self._cuts[:, -2], self._group, self.groups, self.C)
        self.lower_bound = max(self.lower_bound, _dual_objective(feasible, self._cuts))
        self._idle = np.where(multipliers > _ACTIVE * self.C, 0, self._idle + 1)
        kept = self._idle < IDLE_MASTERS
        self._cuts, self._group, self._idle = self._cuts[kept], self._group[kept], self._idle[kept]


def _solve_master(
    cuts: FloatArray, group: IntArray, groups: int, C: float, accuracy: float
) -> tuple[FloatArray, float, FloatArray]:
    """min 1/2 |w|^2 + C sum_g xi_g  with  xi_g >= m - w.a - b d  for its cuts, and xi_g >= 0.

    Returns w (m,), b and the multipliers (T,) of the T cuts. w is in the span of the cuts: as long as they are fewer
    than features, the problem is about its coordinates there. The dual is no larger then, but where many b are best
    its b is one at the edge and not in the middle of them, and the cuts taken there need up to ten times the rounds.
    """
    # Imported here because sites, which share this file's module, have no use for a solver and pay for its memory.
    import piqp

    count, span = len(cuts), None
    own = cuts[:, :-2]
    if count < own.shape[1]:
        span, triangle = np.linalg.qr(own.T)
        own = triangle.T
    size = own.shape[1]
    quadratic = np.diag(np.concatenate([np.ones(size), np.zeros(1 + groups)]))
    linear = np.concatenate([np.zeros(size + 1), np.full(groups, C)])
    member = np.zeros((count, groups))
    member[np.arange(count), group] = 1
    lowest = np.concatenate([np.full(size + 1, -np.inf), np.zeros(groups)])
    solver = piqp.DenseSolver()
    for name in ("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel"):
        setattr(solver.settings, name, accuracy)
    bounded = -np.hstack([own, cuts[:, -2:-1], member])
    solver.setup(quadratic, linear, None, None, bounded, None, -cuts[:, -1], lowest, None)
    status = solver.solve()
    x, z = np.asarray(solver.result.x), np.asarray(solver.result.z_u)
    if not (np.isfinite(x).all() and np.isfinite(z).all()):
        raise FederationError(f"A master problem could not be solved ({status.name}); try a smaller algorithm.C.")
    return x[:size] if span is None else span @ x[:size], float(x[size]), z


def _feasible(z: FloatArray, d: FloatArray, group: IntArray, groups: int, C: float) -> FloatArray:
    """Multipliers near z that are feasible for the dual: z >= 0, no group above C, sum z d = 0.

    The last holds after the larger of the positive and the negative part is scaled down to the smaller, which cannot
    break the first two.
    """
    z = np.maximum(z, 0.0)
    of_group = np.bincount(group, z, minlength=groups)
    z = z * np.where(of_group > C, C / np.maximum(of_group, C), 1.0)[group]
    upward, downward = float(z[d > 0] @ d[d > 0]), float(-z[d < 0] @ d[d < 0])
    smaller = min(upward, downward)
    z = np.where(d > 0, z * (smaller / upward if upward > 0 else 0.0), z)
    return np.where(d < 0, z * (smaller / downward if downward > 0 else 0.0), z)


def _dual_objective(z: FloatArray, cuts: FloatArray) -> float:
    """sum z m - 1/2 |sum z a|^2: below the optimum for every feasible z."""
    return float(z @ cuts[:, -1] - 0.5 * np.sum((z @ cuts[:, :-2]) ** 2))
