"""Linear SVMs by a federated interior point: one secure sum a round, over all rows with positive weights.

For each of K binary problems:  min over w, b of  1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (w.f_i + b)),

with a price C_i for each row. The sites hold the rows, their dual variables and the point v = (w, b) (see `barrier`);
what is summed in a round is Newton's system, the objective, and of each class what a dual bound needs. Here the system
is solved and the gap certified, and neither needs v nor the system in the clear (see `masking`).

A round. The sum opens E = A (D + M) A^T and c = A (sum of alpha* f~ - D v), D = diag(1, ..., 1, 0). The sites are sent
y = E^-1 c, and the next mu: they go to v + A^T y, a full step.

    primal   P = 1/2 |w|^2 + sum C_i max(0, r_i), evaluated
    dual     theta_c scales the alphas of the class with the larger sum so that they add up to the other's, and s <= 1
             all of them: feasible, exactly. D = s T - s^2/2 |sum theta_c S_c|^2, T = sum theta_c sum alpha_i o_i.
             With noise in the objective s is 1, since it would scale the noise. With secret targets o_i = 1 + e_i the
             sum opens sum alpha_i and sum alpha_i e_i, and T is smaller by (1 - theta_c) sum alpha_i |e_i| at most.
    next mu  min(mu, sigma (P - D) / 2n), of the best P and the best D; where these stand still mu rises again.

Noise in the objective is a linear term B.w, B = sum_s b_s of draws b_s that sites keep to themselves (see
`objective_noise`). P, E y = c and the dual vector have it: the vector of each of g classes is S_c - B / g. The dual
point is sum theta_c S_c - B, and so longer than sum theta_c (S_c - B / g) by (1 - mean theta_c) |B| at most. P and D
have a public constant beside, of the size of 1/2 |B|^2, so that P is about 1/2 |w + B|^2 plus the losses, and above 0.

Rows that leave or join change P and D, which begin afresh; the point, mu and every other row's alpha stay as they are.

Against the sites, which must know the path: (D + M) x = q is linear in how often each conceivable row occurs. The
coordinator adds to y a dither, normal and isotropic in the metric of D + M, of `step_noise` times the length of the
step, which no site can take off. Certificates stay exact, since whatever point is reached is evaluated.

No paper has this; the barrier with lagging duals follows Chan, Golub and Mulet (SIAM J. Sci. Comput. 20, 1999).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedsvm.algorithms.optimization.masking import STRETCH, Dither
from fedsvm.algorithms.optimization.solution import Certificate, StoppingRule, relative_gap
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError

SIGMA = 0.05
"""The next mu as a share of what it would have to be if the gap were all of its making."""

PATIENT_SIGMA = 0.5
PATIENCE = 6
"""The number of rounds without a smaller gap after which mu follows the gap more slowly, or rises if it fell too
far."""

_FALLEN = 0.7
"""A gap has fallen when it is below this share of what it was."""

CALM_ROUNDS, CALM_FALL = 3, 0.7
"""The dither is halved if the gap has not fallen to this share in so many rounds; sooner would reveal more to sites."""

STALLED_ROUNDS = 12
"""The number of rounds without a smaller gap after which training ends, if the dither may not be halved any more."""

_RISE = 3.0
"""The largest rise of mu after a change of rows for which the step for the old mu is still taken."""

_GROWTH = 64.0
"""The factor by which the matrix in one limb may exceed the last round's trace, adjusted for a smaller mu."""

_TOO_COARSE = 0.1
"""The share of the tolerance that certificates may lose to rounding before the next sum has two limbs a number."""

_SOLVED = 64
"""Entries of the solution of a triangular system that are computed at a time."""

_JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6)
"""Shares of the mean diagonal that are added to a matrix that rounding left without a factorisation."""


@dataclass(frozen=True)
class Scales:
    """The divisors of the parts of a sum, so that one bound serves for all: none is larger at any site."""

    matrix: float
    gradient: float
    objective: float
    alphas: float
    vectors: float

    def to_array(self) -> FloatArray:
        """Return (5,) the scales."""
        return np.array([self.matrix, self.gradient, self.objective, self.alphas, self.vectors])


@dataclass(frozen=True)
class NewtonRequest:
    """The order of one problem in a round, as sites receive it.

    step (d,): y of the last round, zeros where there is none. mu: the barrier parameter. keep: whether the point before
    this step is the best so far. still: nothing moves, the dual variables no more than the point. gap: the last that is
    known, by which noise on what is opened is chosen.
    """

    problem: int
    step: FloatArray
    mu: float
    keep: bool
    still: bool
    scales: Scales
    gap: float = math.inf


@dataclass(frozen=True)
class Opened:
    """The opened sums of one problem in a round, masked or not; see `RowSums`. objective: of the point, with 1/2
    |w|^2.

    off: no sum of alphas is further from what it should be. extra: or less, if it has noise. reached: a bound on the
    length of the next step, where the sites have it already; then the gradient is empty, and the matrix (1, 1) a bound
    on the trace.
    """

    matrix: FloatArray
    gradient: FloatArray
    objective: float
    alphas: FloatArray
    extra: float
    vectors: FloatArray
    rows: FloatArray
    off: float = 0.0
    reached: float | None = None


@dataclass(frozen=True)
class NoiseSize:
    """The size of the noise in the objective: a bound on the length of B, and about 1/2 |B|^2, the constant."""

    length: float = 0.0
    constant: float = 0.0

    @classmethod
    def of(cls, tilts: Sequence[FloatArray]) -> NoiseSize:
        """Return the size of the longest of some known B (m,)."""
        length = max((float(np.linalg.norm(tilt)) for tilt in tilts), default=0.0)
        return cls(length, length**2 / 2)

    @property
    def least(self) -> float:
        """No objective is below it."""
        return min(0.0, self.constant - self.length**2 / 2)


@dataclass(frozen=True)
class Extent:
    """Public bounds on the rows: how many, the sum of |f~|^2, the largest price, and the largest target.

    noise: in the objective. spread: mu over a row's barrier parameter is at most this. offset: no secret target differs
    from 1 by more.
    """

    rows: int
    squares: float
    price: float
    target: float = 1.0
    noise: NoiseSize = NoiseSize()
    spread: float = 1.0
    offset: float = 0.0

    @property
    def lengths(self) -> float:
        """No sum of |f~| exceeds it (Cauchy and Schwarz)."""
        return math.sqrt(self.rows * self.squares)


@dataclass(frozen=True)
class RoundSums:
    """The result of a round: the opened sums of each problem, or None if they do not suffice for a step.

    changed: whether rows left or joined since the last one; then what they add up to certifies nothing. resolution:
    no number is further from what it should be than this share of its scale.
    """

    opened: Sequence[Opened | None]
    changed: bool = False
    resolution: float = 0.0


class Path(Protocol):
    """The owner of the rows, which returns sums round by round, and the best points in the end."""

    def extent(self) -> Extent:
        """Return bounds on the present rows."""

    def sums(self, iteration: int, terms: Sequence[NewtonRequest], *, wide: bool) -> RoundSums:
        """Take a step, and sum. wide: with two limbs a number."""


def solve(
    path: Path,
    *,
    problems: int,
    dimensions: int | Sequence[int],
    intercept: bool,
    stopping: StoppingRule,
    on_iteration: Callable[[int, Sequence[Certificate]], None] = lambda iteration, certificates: None,
    settle: Callable[[Sequence[Outcome]], bool] = lambda outcomes: False,
    step_noise: float = 0.0,
    step_noise_floor: float = 0.0,
    dither: Dither | None = None,
    mus: Sequence[float] = (),
    barriers: int = 2,
) -> list[Outcome]:
    """Solve `problems` binary problems in the same rounds; each leaves the rounds when it is done.

    dimensions: of v, of all problems or of each, so that w has one less where there is an intercept. mus: where each
    problem's barrier parameter stood, of rows that do not start at 0 but stand near an optimum. step_noise: size of the
    dither, as a share of the step, which `dither` draws. step_noise_floor: the least that halving leaves of it.
    `on_iteration` receives the iteration and the state of every problem, where it is known: it is not in a round in
    which rows left or joined. `settle` is given what training came to, and says whether rows left or joined meanwhile,
    so that nothing is certified and training goes on. A certificate that is not `converged` ran into `max_iterations`
    or the floor of the dither. barriers: terms of mu of each row. Raises FederationError where a step cannot be
    computed.
    """
    extent = path.extent()
    dither = dither if dither is not None else Dither()
    sizes = [dimensions] * problems if isinstance(dimensions, int) else dimensions
    trails = [
        _ProblemProgress(k, size, intercept, extent, stopping.tolerance, step_noise, step_noise_floor, barriers)
        for k, size in enumerate(sizes)
    ]
    for trail, mu in zip(trails, mus, strict=False):
        trail.resume(mu)
    wide = False
    for iteration in itertools.count(1):
        active = [trail for trail in trails if not trail.is_done]
        found = path.sums(iteration, [trail.terms() for trail in active], wide=wide)
        if found.changed:
            extent = path.extent()
            for trail in trails:
                trail.restart(extent)
        for trail, opened in zip(active, found.opened, strict=True):
            trail.iterations = iteration
            if opened is None:
                trail.stand_still()
            else:
                trail.take(opened, dither, certify=not found.changed, resolution=found.resolution)
        wide = any(trail.needs_wide for trail in active)
        if not all(trail.is_evaluated for trail in trails):
            continue
        on_iteration(iteration, [trail.certificate for trail in trails])
        if iteration >= stopping.max_iterations or all(trail.is_done for trail in trails):
            outcomes = [trail.outcome() for trail in trails]
            if not settle(outcomes):
                return outcomes
            extent = path.extent()
            for trail in trails:
                trail.restart(extent)
    raise AssertionError("counting came to an end")


@dataclass(frozen=True)
class Outcome:
    """The end of a problem.

    keep: whether the last point is the best. constant: +1 or -1 where all rows are of one class, so that w = 0 and
    b = constant cost nothing; else 0. mu: the last barrier parameter. step_noise: what halving left of the dither.
    is_stalled: whether the gap stood still at its floor, so that training ended.
    """

    certificate: Certificate
    keep: bool
    constant: int
    mu: float = 0.0
    step_noise: float = 0.0
    is_stalled: bool = False


@dataclass
class _ProblemProgress:
    """One problem, as far as the coordinator knows it."""

    problem: int
    dimensions: int
    intercept: bool
    extent: Extent
    tolerance: float
    step_noise: float
    step_noise_floor: float
    barriers: int = 2
    objective: float = math.inf
    lower_bound: float = 0.0
    iterations: int = 0
    constant: int = 0
    mu: float = field(init=False)
    step: FloatArray = field(init=False)
    _is_still: bool = field(init=False)
    _sent: Scales = field(init=False)
    keep: bool = False
    needs_wide: bool = False
    _ceiling: float = math.inf
    _known_gap: float = math.inf
    _has_new_rows: bool = False
    _trace: float = math.inf
    _intercept_reach: float = 0.0
    _reach: float = 0.0
    _gaps: list[float] = field(default_factory=list)
    _is_stalled: bool = False

    def __post_init__(self) -> None:
        self.mu = self._last_mu = self.extent.price
        self.lower_bound = self.extent.noise.least
        self._stay()

    @property
    def gap(self) -> float:
        return relative_gap(self.objective, self.lower_bound)

    @property
    def is_evaluated(self) -> bool:
        """True if anything is known of these rows."""
        return self.objective < math.inf

    @property
    def is_converged(self) -> bool:
        return self.gap <= self.tolerance

    @property
    def is_done(self) -> bool:
        return self.is_converged or self._is_stalled

    @property
    def certificate(self) -> Certificate:
        return Certificate(self.objective, self.lower_bound, self.iterations, self.is_converged)

    def outcome(self) -> Outcome:
        return Outcome(self.certificate, self.keep, self.constant, self.mu, self.step_noise, self._is_stalled)

    def resume(self, mu: float) -> None:
        """Begin at rows that stand near an optimum of another problem, for whose barrier parameter they stood."""
        self.mu = self._last_mu = mu
        self._has_new_rows = True

    def restart(self, extent: Extent) -> None:
        """Discard what was proven of other rows, and keep the point."""
        self.extent = extent
        self.objective, self.lower_bound, self.constant = math.inf, extent.noise.least, 0
        self._ceiling, self._has_new_rows, self._is_stalled = math.inf, True, False
        self._gaps.clear()

    def stand_still(self) -> None:
        """Handle an unusable sum: take no step, and bound the next only by what always holds."""
        self._stay()
        self.keep, self._trace, self.needs_wide = False, math.inf, True

    def _stay(self) -> None:
        self.step, self._is_still = np.zeros(self.dimensions), True

    def terms(self) -> NewtonRequest:
        self._sent = self._scales()
        return NewtonRequest(self.problem, self.step, self.mu, self.keep, self._is_still, self._sent, self._known_gap)

    def _scales(self) -> Scales:
        """Return bounds on each part of the next sum at every site: powers of two, which reveal little of the last
        one."""
        extent, price = self.extent, self.extent.price
        largest = 1.0 + extent.spread * price**2 / (8 * self.mu) * extent.squares
        expected = _GROWTH * self._trace * self._last_mu / self.mu
        loss = price * (extent.rows * extent.target + self._reach * extent.lengths)
        tilt = extent.noise.length
        return Scales(
            matrix=_power_of_two(min(STRETCH**2 * largest, expected)),
            gradient=_power_of_two(STRETCH * (price * extent.lengths + self._reach + tilt)),
            objective=_power_of_two(loss + self._reach**2 / 2 + tilt * self._reach),
            alphas=_power_of_two(price * extent.rows * extent.target),
            vectors=_power_of_two(price * extent.lengths + tilt),
        )

    def take(self, opened: Opened, dither: Dither, *, certify: bool, resolution: float) -> None:
        """Judge the point, and choose the next step and the next mu; resolution: see `RoundSums`."""
        if self.intercept and not opened.rows.all():
            self._take_one_class(opened, certify=certify)
            return
        at = opened.objective + self.extent.noise.constant
        objective = at + resolution * self._sent.objective
        bound = self._bound(opened, resolution)
        self.keep, self.needs_wide = False, False
        if certify:
            self.keep = objective < self.objective
            self.objective = min(self.objective, objective)
            self.lower_bound = max(self.lower_bound, bound)
            self._gaps.append(self.gap)
            self._is_stalled = self._is_at_floor and self._has_stood_still(STALLED_ROUNDS)
            if self.is_done:
                self._stay()
                return
            self._known_gap = self.objective - self.lower_bound
        lost = objective - at + self._bound(opened, 0.0) - bound
        self.needs_wide = lost > _TOO_COARSE * self.tolerance * objective
        self._last_mu, self._trace = self.mu, float(np.trace(opened.matrix))
        if not self._is_at_floor and self._has_stood_still(CALM_ROUNDS, CALM_FALL):
            self.step_noise = max(self.step_noise / 2, self.step_noise_floor)
        self.mu = self._next_mu(opened, at - bound, certify=certify)
        if self._has_new_rows and self.mu > _RISE * self._last_mu:
            self._stay()
        else:
            self.step, self._is_still = self._newton_step(opened, dither), False
        self._has_new_rows = not certify
        reached = STRETCH * float(np.linalg.norm(self.step)) if opened.reached is None else opened.reached
        self._extend_reach(opened.objective, reached)

    def _take_one_class(self, opened: Opened, *, certify: bool) -> None:
        """Handle rows of one class, or none: w = 0 and b = +1 or -1 are optimal, if these are all the rows."""
        self.stand_still()
        if certify:
            self.constant, self.needs_wide = (1 if opened.rows[0] else -1), False
            self.objective = self.lower_bound = 0.0

    def _bound(self, opened: Opened, resolution: float) -> float:
        """Return the dual objective of the alphas, made feasible, minus what rounding may have added."""
        sent, alphas, classes = self._sent, np.maximum(opened.alphas, np.finfo(float).tiny), len(opened.alphas)
        theta = min(alphas) / alphas if self.intercept else np.ones(classes)
        off, vectors = classes * (resolution * sent.alphas + opened.off), theta @ opened.vectors
        length = float(np.linalg.norm(vectors)) + classes * resolution * sent.vectors * math.sqrt(len(vectors))
        noise = self.extent.noise
        length += (1 - float(theta.mean())) * noise.length
        if self.intercept:  # classes that differ by what was rounded off
            length += off * float(((np.linalg.norm(opened.vectors, axis=1) + noise.length / classes) / alphas).sum())
        offset, total, square = self.extent.offset, float(theta @ opened.alphas) - 2 * off, length**2
        if offset:
            lost = 2 * off + float((1 - theta) @ alphas)
            total += opened.extra - resolution * sent.alphas - offset * lost
        share = min(1.0, max(total, 0.0) / square) if square > 0 and not noise.length else 1.0
        return noise.constant + share * total - share**2 / 2 * square

    def _next_mu(self, opened: Opened, apart: float, *, certify: bool) -> float:
        """Return mu for the best gap, or for this point's, `apart`, if nothing is proven.

        Never above the last one for the same rows, but where training stands still: too far from the curve for its mu,
        Newton's steps come back to that of another.
        """
        rows = self.barriers * max(1.0, float(opened.rows.sum()))
        if not certify:
            return (
                SIGMA * max(apart, self.tolerance * (opened.objective + self.extent.noise.constant)) / rows or self.mu
            )
        gap = self.objective - self.lower_bound
        if self._has_stood_still(PATIENCE):
            self._ceiling = PATIENT_SIGMA * gap / rows
        else:
            self._ceiling = min(self._ceiling, SIGMA * gap / rows)
        return self._ceiling

    def _has_stood_still(self, rounds: int, share: float = _FALLEN) -> bool:
        """Return whether the gap has not fallen in this number of rounds."""
        return len(self._gaps) > rounds and self._gaps[-1] > share * self._gaps[-1 - rounds]

    @property
    def _is_at_floor(self) -> bool:
        return self.step_noise <= self.step_noise_floor > 0

    def _newton_step(self, opened: Opened, dither: Dither) -> FloatArray:
        """Return y = E^-1 c, with the dither, or zeros where the sites have the step already.

        Raises FederationError for a matrix that is no sum of squares.
        """
        if opened.reached is not None:
            return np.zeros(self.dimensions)
        factor = _factor(opened.matrix)
        step = _solve_transposed(factor, _solve(factor, opened.gradient))
        if self.step_noise > 0:
            decrement = math.sqrt(max(0.0, float(opened.gradient @ step)))
            noise = _solve_transposed(factor, dither.draw(len(step)))
            step += self.step_noise * decrement / math.sqrt(len(step)) * noise
        return np.asarray(step)

    def _extend_reach(self, objective: float, longest: float) -> None:
        """Extend the bound on points after the next step: 1/2 |w|^2 is part of the objective, b is the sum of its
        steps."""
        self._intercept_reach += longest if self.intercept else 0.0
        tilt = self.extent.noise.length  # |w|^2 / 2 is at most the objective and tilt |w|
        self._reach = tilt + math.sqrt(max(2 * objective + tilt**2, 0.0)) + self._intercept_reach + longest


def _power_of_two(bound: float) -> float:
    """Return the smallest power of two above a number."""
    return 2.0 ** math.frexp(max(bound, 1.0))[1]


def _factor(matrix: FloatArray) -> FloatArray:
    """Return the Cholesky factor. Uses numpy alone, so that a site which trains by itself loads nothing more."""
    for jitter in _JITTERS:
        shifted = matrix
        if jitter:
            shifted = matrix + jitter * np.trace(matrix) / len(matrix) * np.eye(len(matrix))
        with suppress(np.linalg.LinAlgError):
            return np.asarray(np.linalg.cholesky(shifted))
    raise FederationError(
        "Newton's system of the interior point has no solution in double precision; scale the columns, lower "
        'algorithm.C, or take algorithm.solver = "cutting-plane".'
    )


def _solve(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Return x (d,) with L x = right for a lower triangular L (d, d)."""
    found = right.copy()
    for start in range(0, len(found), _SOLVED):
        here = slice(start, start + _SOLVED)
        found[here] = np.linalg.solve(factor[here, here], found[here])
        found[start + _SOLVED :] -= factor[start + _SOLVED :, here] @ found[here]
    return found


def _solve_transposed(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Return x (d,) with L^T x = right for a lower triangular L (d, d)."""
    found = right.copy()
    for start in reversed(range(0, len(found), _SOLVED)):
        here = slice(start, start + _SOLVED)
        found[here] = np.linalg.solve(factor[here, here].T, found[here])
        found[:start] -= found[here] @ factor[here, :start]
    return found
