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

`StoppingRule.printed` undoes (3) and (4): cuts are taken where the line search ends, and a problem is done where the
search does not move, or where the new cut's loss at the master is within tolerance times rows of the master's
(line 11). The certificate is then a result and no rule. Line 11 as printed compares the new cut after the master has
it, which holds at once for any cut that is tight; here it is compared before.

Problems may have different numbers of features, as where each is of other columns: an oracle is then asked at points
with zeros behind those of a problem, and gives cuts of the same form. A bundle may lose columns and go on (`without`):
a cut of all columns, less some, is a cut of the problem without them, and no lower bound falls.

Elastic nets. With a penalty l1 |w|_1 + l2/2 |w|^2 in place of 1/2 |w|^2 only the master changes, and the bound: it is
sum z m - sum_j max(|(sum z a)_j| - l1, 0)^2 / (2 l2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import numpy as np

from fedsvm.algorithms.optimization.line_search import LineSearch, Parabola
from fedsvm.algorithms.optimization.solution import Solution, StoppingRule, StoppingSettings, relative_gap
from fedsvm.algorithms.settings import Dimension, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import FederationError

MU = 0.1
IDLE_MASTERS = 2
"""A cut that had no multiplier in this many masters is dropped. The bound is the best so far, so it cannot fall."""

_MASTER_ACCURACY = 1e-3
"""Accuracy of a master problem, as a share of the tolerance of the whole."""
_FINEST_ACCURACY = 1e-12
_ACTIVE = 1e-9


@dataclass(frozen=True)
class Points:
    """Points of k problems: w (k, m) and b (k,)."""

    w: FloatArray
    b: FloatArray

    def active(self, features: FloatArray, labels: FloatArray) -> FloatArray:
        """Return (k, n): 1 if a row with features (n, m) and label (n,) is on the wrong side of the margin, otherwise
        0."""
        return np.asarray(labels * (self.w @ features.T + self.b[:, None]) < 1, dtype=np.float64)


@dataclass(frozen=True)
class Line(Points):
    """Lines from k points along dw (k, m) and db (k,), with the steps (k, s) at which they are evaluated."""

    dw: FloatArray
    db: FloatArray
    steps: FloatArray

    def bound(self, rows: int, norm_sum: float) -> float:
        """Return an upper bound on losses and derivatives for `rows` rows whose norms add up to `norm_sum`."""

        def margins(w: FloatArray, b: FloatArray) -> float:
            """Return an upper bound on the sum of |w.f + b| over the rows."""
            return float((np.linalg.norm(w, axis=1) * norm_sum + np.abs(b) * rows).max())

        slopes = margins(self.dw, self.db)
        return max(rows + margins(self.w, self.b) + float(np.abs(self.steps).max()) * slopes, slopes)


class Oracle(Protocol):
    """The sums over all rows. Each call is one round over the network."""

    def cuts(self, problems: IntArray, at: Points) -> FloatArray:
        """Return (k, g, m + 2) a, d, m of every group, for problems (k,) at points. A problem may occur twice."""

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        """Return (k, s, 2) the loss and its derivative along lines of problems (k,), at their steps."""


@dataclass(frozen=True)
class Taken:
    """Cuts (k, g, m + 2) that were taken of problems (k,) at points."""

    problems: IntArray
    at: Points
    cuts: FloatArray


@dataclass(kw_only=True)
class CuttingPlaneSettings(StoppingSettings):
    """The settings of the length of training, and the size of rounds."""

    cut_groups: Annotated[
        Dimension,
        doc(
            "Cuts per round; 1 is the paper's algorithm. With more cuts, training takes fewer rounds, but a cut "
            "more often contains a single row."
        ),
    ] = 32


@dataclass(frozen=True)
class Penalty:
    """l1 |w|_1 + l2/2 |w|^2, with l2 above 0."""

    l1: float = 0.0
    l2: float = 1.0

    def value(self, w: FloatArray) -> float:
        """Return the penalty of weights (m,)."""
        return float(self.l1 * np.abs(w).sum() + self.l2 / 2 * w @ w)

    def conjugate(self, v: FloatArray) -> float:
        """Return the maximum of v.w minus the penalty, for v (m,)."""
        beyond = np.maximum(np.abs(v) - self.l1, 0.0)
        return float(beyond @ beyond / (2 * self.l2))


RIDGE = Penalty()


@dataclass(frozen=True)
class ElasticParabola(Parabola):
    """The penalties of k points along lines: what a parabola says, and l1 |w + t dw|_1; w and dw (k, m)."""

    l1: float
    w: FloatArray
    dw: FloatArray

    def value(self, steps: FloatArray) -> FloatArray:
        """Return values (k, s) at steps (k, s)."""
        along = self.w[:, None, :] + steps[:, :, None] * self.dw[:, None, :]
        return np.asarray(super().value(steps) + self.l1 * np.abs(along).sum(axis=2))

    def derivative(self, steps: FloatArray) -> FloatArray:
        """Return derivatives (k, s) at steps (k, s), from the right."""
        along = self.w[:, None, :] + steps[:, :, None] * self.dw[:, None, :]
        signs = np.where(along == 0, np.sign(self.dw)[:, None, :], np.sign(along))
        return np.asarray(super().derivative(steps) + self.l1 * (signs * self.dw[:, None, :]).sum(axis=2))


def solve(
    oracle: Oracle,
    *,
    problems: int,
    dimensions: int,
    groups: int,
    C: float,
    stopping: StoppingRule,
    search: LineSearch,
    on_iteration: Callable[[int, Sequence[Solution]], None],
    resume: Sequence[Solution] = (),
    intercept: bool = True,
    first: Callable[[], Taken] | None = None,
) -> list[Solution]:
    """Solve `problems` binary problems in the same rounds; each leaves the rounds when it is done.

    intercept: without it b is 0. first: another way to the cuts that bound the first masters; see `start`.

    `on_iteration` receives the iteration and the state of every problem. `resume`: where an earlier bundle stood, over
    other rows; its points are where this one starts, its cuts bound nothing here, its iterations count. A solution that
    is not `converged` ran into `max_iterations`. Raises FederationError when a master problem cannot be solved.
    """
    bundles = [Bundle(dimensions, groups, C, intercept=intercept) for _ in range(problems)]
    start(oracle, bundles, resume, first)
    done = max((solution.iterations for solution in resume), default=0)
    return improve(oracle, bundles, stopping, search, on_iteration, done)


def improve(
    oracle: Oracle,
    bundles: list[Bundle],
    stopping: StoppingRule,
    search: LineSearch,
    on_iteration: Callable[[int, Sequence[Solution]], None] = lambda iteration, solutions: None,
    done: int = 0,
) -> list[Solution]:
    """Continue with bundles that have cuts, each until it is done; see `solve`. done: previous iterations."""
    for bundle in bundles:
        bundle.accuracy = max(_FINEST_ACCURACY, _MASTER_ACCURACY * stopping.tolerance)
    for iteration in range(done + 1, stopping.max_iterations + 1):
        for k in _unfinished_problems(bundles, stopping):
            bundles[k].solve_master(iteration)
        on_iteration(iteration, [bundle.solution(stopping.tolerance) for bundle in bundles])
        if active := _unfinished_problems(bundles, stopping):
            _search(oracle, bundles, active, search, stopping)
        if active := _unfinished_problems(bundles, stopping):
            _cut(oracle, bundles, active, stopping)
        if not _unfinished_problems(bundles, stopping):
            break
    return [bundle.solution(stopping.tolerance) for bundle in bundles]


def _unfinished_problems(bundles: list[Bundle], stopping: StoppingRule) -> list[int]:
    if stopping.printed:
        return [k for k, bundle in enumerate(bundles) if not bundle.stopped]
    return [k for k, bundle in enumerate(bundles) if bundle.gap > stopping.tolerance]


def starts_of(problems: int, *, intercept: bool) -> tuple[IntArray, FloatArray]:
    """Return (k,) each: problems and b of the cuts at w = 0 that bound the first masters, two with an intercept."""
    b = np.repeat([-1.0, 1.0] if intercept else [0.0], problems)
    return np.arange(len(b)) % problems, b


def start(
    oracle: Oracle,
    bundles: list[Bundle],
    resume: Sequence[Solution] = (),
    first: Callable[[], Taken] | None = None,
) -> None:
    """Add the cuts that bound the first masters, and those at the points to resume from."""
    widest = max(bundle.dimensions for bundle in bundles)
    if first is None:
        _, b = starts_of(len(bundles), intercept=bundles[0].intercept)
        take(oracle, bundles, Points(np.zeros((len(b), widest)), b))
    else:
        _put(bundles, first())
    for bundle in bundles:
        bundle.count_rows()
    if resume:
        take(oracle, bundles, Points(_stack([each.w for each in resume]), np.array([each.b for each in resume])))


def _stack(vectors: Sequence[FloatArray]) -> FloatArray:
    """Return (k, m) vectors of different lengths, padded with zeros."""
    widest = max(map(len, vectors))
    return np.array([np.pad(each, (0, widest - len(each))) for each in vectors])


def take(oracle: Oracle, bundles: list[Bundle], at: Points) -> None:
    """Add cuts at points; point i belongs to problem i modulo the number of problems."""
    problems = np.arange(len(at.b)) % len(bundles)
    _put(bundles, Taken(problems, at, oracle.cuts(problems, at)))


def _put(bundles: list[Bundle], taken: Taken) -> None:
    for problem, cuts, at_w, at_b in zip(taken.problems, taken.cuts, taken.at.w, taken.at.b, strict=True):
        bundles[problem].add(cuts, at_w, float(at_b))


def _search(
    oracle: Oracle, bundles: list[Bundle], active: list[int], search: LineSearch, stopping: StoppingRule
) -> None:
    """Move from each problem's point towards its master's, as far as the objective falls or as the paper does."""
    chosen = [bundles[k] for k in active]
    problems = np.array(active)
    w, b = _stack([bundle.w for bundle in chosen]), np.array([bundle.b for bundle in chosen])
    dw = _stack([bundle.master_w for bundle in chosen]) - w
    db = np.array([bundle.master_b for bundle in chosen]) - b
    # phi(t) = l2/2 |w + t dw|^2 + l1 |w + t dw|_1 + C loss(t)
    l1, l2 = chosen[0].penalty.l1, chosen[0].penalty.l2
    parabola = Parabola(l2 / 2 * (w**2).sum(axis=1), l2 * (w * dw).sum(axis=1), l2 * (dw**2).sum(axis=1))
    if l1:
        parabola = ElasticParabola(**vars(parabola), l1=l1, w=w, dw=dw)
    found = search(lambda steps: oracle.line(problems, Line(w, b, dw, db, steps)), parabola, chosen[0].C)
    for i, bundle in enumerate(chosen):
        if stopping.printed:  # the step is taken even if the objective rises
            bundle.objective, bundle.stopped = np.inf, bool(found.step[i] == 0)
        bundle.consider(w[i] + found.step[i] * dw[i], float(b[i] + found.step[i] * db[i]), float(found.value[i]))


def _cut(oracle: Oracle, bundles: list[Bundle], active: list[int], stopping: StoppingRule) -> None:
    """Add cuts near each problem's point, a little on the master's side unless as printed."""
    chosen, mu = [bundles[k] for k in active], 0.0 if stopping.printed else MU
    w = _stack([(1 - mu) * bundle.w + mu * bundle.master_w for bundle in chosen])
    b = np.array([(1 - mu) * bundle.b + mu * bundle.master_b for bundle in chosen])
    problems, at = np.array(active), Points(w, b)
    taken = Taken(problems, at, oracle.cuts(problems, at))
    if stopping.printed:
        for bundle, cuts in zip(chosen, taken.cuts, strict=True):
            bundle.stopped = bundle.missed_loss(cuts) < stopping.tolerance * bundle.rows
    _put(bundles, taken)


@dataclass
class Bundle:
    """The cuts of one problem, its best point, and its master's."""

    dimensions: int
    groups: int
    C: float
    intercept: bool = True
    penalty: Penalty = RIDGE
    accuracy: float = _MASTER_ACCURACY
    objective: float = np.inf
    lower_bound: float = 0.0
    iterations: int = 0
    b: float = 0.0
    master_b: float = 0.0
    rows: float = 0.0
    stopped: bool = False
    """True once the paper's rule ends the problem."""
    w: FloatArray = field(init=False)
    master_w: FloatArray = field(init=False)
    dual: FloatArray = field(init=False)
    """(m,) sum z a of the multipliers that the lower bound is by: the penalty's maximiser there is near the optimum,
    and where the optimum has zeros has them too, once the bound is close."""

    def __post_init__(self) -> None:
        self.w = self.master_w = self.dual = np.zeros(self.dimensions)
        self._cuts = np.zeros((0, self.dimensions + 2))
        self._group = np.zeros(0, dtype=np.int64)
        self._idle = np.zeros(0, dtype=np.int64)

    @property
    def gap(self) -> float:
        return relative_gap(self.objective, self.lower_bound)

    def solution(self, tolerance: float) -> Solution:
        """Return the current solution."""
        converged = self.stopped or self.gap <= tolerance
        return Solution(self.objective, self.lower_bound, self.iterations, converged, self.w, self.b)

    def consider(self, w: FloatArray, b: float, objective: float) -> None:
        """Take an evaluated point as the best if it is; zeros may stand behind w."""
        if objective < self.objective:
            self.w, self.b, self.objective = w[: self.dimensions], b, objective

    def add(self, cuts: FloatArray, w: FloatArray, b: float) -> None:
        """Add the cuts taken at (w, b), (g, m + 2) or wider; tight there, they evaluate the objective too."""
        cuts, w = np.hstack([cuts[:, : self.dimensions], cuts[:, -2:]]), w[: self.dimensions]
        if not self.intercept:
            cuts[:, -2] = 0.0
        loss = float((cuts[:, -1] - cuts[:, :-2] @ w - cuts[:, -2] * b).sum())
        self.consider(w, b, self.penalty.value(w) + self.C * loss)
        self._cuts = np.vstack([self._cuts, cuts])
        self._group = np.concatenate([self._group, np.arange(self.groups)])
        self._idle = np.concatenate([self._idle, np.zeros(self.groups, dtype=np.int64)])

    def count_rows(self) -> None:
        """Count the rows by the first cuts, at w = 0 and b of -1 and 1, which each are in one of."""
        self.rows = float(self._cuts[:, -1].sum())

    def missed_loss(self, cuts: FloatArray) -> float:
        """Return the distance of new cuts' loss (g, m + 2) at the master's point from the loss that the master knew."""
        known = np.zeros(self.groups)
        np.maximum.at(known, self._group, self._at_master(self._cuts))
        return abs(float(self._at_master(cuts).sum() - known.sum()))

    def _at_master(self, cuts: FloatArray) -> FloatArray:
        """Return (T,) the loss that cuts promise at the master's point."""
        return np.asarray(cuts[:, -1] - cuts[:, : self.dimensions] @ self.master_w - cuts[:, -2] * self.master_b)

    def solve_master(self, iteration: int) -> None:
        """Solve the master problem: set a new point to move towards, and perhaps a better bound."""
        self.iterations = iteration
        master = Master(self._cuts, self._group, self.groups, self.C, self.penalty, self.accuracy)
        self.master_w, self.master_b, multipliers = master.solve(intercept=self.intercept)
        feasible = _feasible(multipliers, self._cuts[:, -2], self._group, self.groups, self.C)
        dual = feasible @ self._cuts[:, :-2]
        bound = float(feasible @ self._cuts[:, -1]) - self.penalty.conjugate(dual)
        if bound > self.lower_bound:
            self.lower_bound, self.dual = bound, dual
        self._idle = np.where(multipliers > _ACTIVE * self.C, 0, self._idle + 1)
        kept = self._idle < IDLE_MASTERS
        self._cuts, self._group, self._idle = self._cuts[kept], self._group[kept], self._idle[kept]

    def without(self, kept: IntArray) -> Bundle:
        """Return the bundle of the problem with only these features. All cuts, and the bound, remain valid.

        Its best point is not evaluated yet.
        """
        fewer = self._anew(len(kept), self.penalty)
        fewer.w, fewer.master_w, fewer.dual = self.w[kept], self.master_w[kept], self.dual[kept]
        fewer.lower_bound = self.lower_bound
        fewer._cuts = np.hstack([self._cuts[:, kept], self._cuts[:, -2:]])
        return fewer

    def with_penalty(self, penalty: Penalty) -> Bundle:
        """Return the bundle of the problem with another penalty. Cuts bound the loss, whatever is added to it."""
        other = self._anew(self.dimensions, penalty)
        other.w, other.master_w, other._cuts = self.w, self.master_w, self._cuts
        return other

    def _anew(self, dimensions: int, penalty: Penalty) -> Bundle:
        """Return a bundle at the same b with room for the same cuts, none of them idle."""
        made = Bundle(dimensions, self.groups, self.C, self.intercept, penalty, self.accuracy)
        made.b, made.master_b, made.iterations = self.b, self.master_b, self.iterations
        made._group, made._idle = self._group, np.zeros_like(self._idle)
        return made


@dataclass(frozen=True)
class Master:
    """min penalty(w) + C sum_g xi_g  with  xi_g >= m - w.a - b d  for the cuts (T, m + 2) of g, and xi_g >= 0."""

    cuts: FloatArray
    group: IntArray
    groups: int
    C: float
    penalty: Penalty
    accuracy: float

    def solve(self, *, intercept: bool) -> tuple[FloatArray, float, FloatArray]:
        """Return w (m,), b and the multipliers (T,) of the cuts."""
        w, b, z = self._sparse() if self.penalty.l1 else self._dense()
        return w, b if intercept else 0.0, z

    @property
    def _member(self) -> FloatArray:
        member = np.zeros((len(self.cuts), self.groups))
        member[np.arange(len(self.cuts)), self.group] = 1
        return member

    def _dense(self) -> tuple[FloatArray, float, FloatArray]:
        """Solve without a term in |w|_1. w is in the span of the cuts: as long as they are fewer than features, the
        problem

        is about its coordinates there. The dual is no larger then, but where many b are best its b is one at the edge
        and not in the middle of them, and the cuts taken there need up to ten times the rounds.
        """
        # Imported here because sites, which share this file's module, have no use for a solver and pay for its memory.
        import piqp

        span, own = None, self.cuts[:, :-2]
        if len(own) < own.shape[1]:
            span, triangle = np.linalg.qr(own.T)
            own = triangle.T
        size = own.shape[1]
        quadratic = np.diag(np.concatenate([np.full(size, self.penalty.l2), np.zeros(1 + self.groups)]))
        linear = np.concatenate([np.zeros(size + 1), np.full(self.groups, self.C)])
        lowest = np.concatenate([np.full(size + 1, -np.inf), np.zeros(self.groups)])
        bounded = -np.hstack([own, self.cuts[:, -2:-1], self._member])
        x, z = self._solution(piqp.DenseSolver(), quadratic, linear, bounded, -self.cuts[:, -1], lowest)
        return x[:size] if span is None else span @ x[:size], float(x[size]), z

    def _sparse(self) -> tuple[FloatArray, float, FloatArray]:
        """Solve with a term in |w|_1, over u >= |w| and w."""
        import piqp
        from scipy import sparse

        (count, width), groups, penalty = self.cuts.shape, self.groups, self.penalty
        m = width - 2
        curvature = np.concatenate([np.full(m, penalty.l2), np.zeros(1 + groups + m)])
        linear = np.concatenate([np.zeros(m + 1), np.full(groups, self.C), np.full(m, penalty.l1)])
        rows = [sparse.csc_array(-np.hstack([self.cuts[:, :-1], self._member, np.zeros((count, m))]))]
        for sign in (1.0, -1.0):
            between = sparse.csc_array((m, 1 + groups))
            rows.append(sparse.hstack([sign * sparse.eye_array(m), between, -sparse.eye_array(m)]))
        bounded = sparse.csc_matrix(sparse.vstack(rows))
        right = np.concatenate([-self.cuts[:, -1], np.zeros(2 * m)])
        lowest = np.concatenate([np.full(m + 1, -np.inf), np.zeros(groups + m)])
        quadratic = sparse.csc_matrix(sparse.diags_array(curvature))
        x, z = self._solution(piqp.SparseSolver(), quadratic, linear, bounded, right, lowest)
        return x[:m], float(x[m]), z[:count]

    def _solution(
        self, solver: Any, quadratic: Any, linear: FloatArray, bounded: Any, right: FloatArray, lowest: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return x >= `lowest` that minimizes 1/2 x.Q x + c.x with B x <= right, and the multipliers of the rows of
        B."""
        for name in ("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel"):
            setattr(solver.settings, name, self.accuracy)
        solver.setup(quadratic, linear, None, None, bounded, None, right, lowest, None)
        status = solver.solve()
        x, z = np.asarray(solver.result.x), np.asarray(solver.result.z_u)
        if not (np.isfinite(x).all() and np.isfinite(z).all()):
            raise FederationError(f"A master problem could not be solved ({status.name}); try a smaller algorithm.C.")
        return x, z


def _feasible(z: FloatArray, d: FloatArray, group: IntArray, groups: int, C: float) -> FloatArray:
    """Return multipliers near z that are feasible for the dual: z >= 0, no group above C, sum z d = 0.

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
