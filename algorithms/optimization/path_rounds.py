"""A round of the interior point over a federation: the order, a site's part of its sum, and the sum read again.

The problems of a round may have rows and features of their own. All parts of a site's vector are divided by public
bounds on their sizes, so that one limb of 64 bits serves for all. If a site's part of the matrix exceeds the
bound from the last round, the site omits the matrix, and the next round has two limbs and a bound that always holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fedsvm.algorithms.optimization.barrier import DualState, Problem, RowSums
from fedsvm.algorithms.optimization.interior_point import NewtonRequest, Opened, RoundSums
from fedsvm.algorithms.optimization.local_path import opened_by
from fedsvm.algorithms.optimization.masking import Mask
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import free
from fedsvm.protocols.arithmetic.fixed_point import FixedPoint

WIDE_BOUND = 2.0**24
"""A bound for which numbers have two limbs."""

BOUNDS = 1.0, WIDE_BOUND
"""Of the sums of all rounds. With others a coordinator could bracket a value more closely than by a power of two."""

MASKED_SHOWS = (
    "in each round the objective, of each class the number of rows and the sum of their dual variables, the sum of "
    "dual variables times secret offsets, three inner products of class vectors, the length of Newton's step, and what "
    "a secret matrix leaves of the system's spectrum"
)
OPEN_SHOWS = "in each round Newton's system over all rows, and with it the path of weights"

TOO_SMALL = "one value of each site, between its last two tries; the site then refuses all orders"
"""The gain of a coordinator that lowers scales, or the number of rows, one by one."""

ROUND_ARGUMENTS = {
    "iteration": free("a whole number", "masks of another round, which all sites draw alike"),
    "steps": free(
        "any step, in masked coordinates",
        "sums at an unknown point; a false step only spoils the model",
    ),
    "problems": free("numbers of problems", "only a choice of problems"),
    "mus": free("numbers above 0", "sums for another barrier parameter; with an extreme one, without secret barriers"),
    "keep": free("0 or 1 of each problem", "the last point instead of the best one, nearly the same"),
    "still": free("0 or 1 of each problem", "the sums at the same point, with fresh masks"),
    "scales": free("powers of two", TOO_SMALL),
    "rows": free("a number above 0", TOO_SMALL),
}
"""Of a step that takes the fields of a `RoundOrder`."""
BEST_ARGUMENTS = {
    "keep": free(
        "0 or 1 of each problem",
        "the last point instead of the best one, nearly the same",
    ),
    "constants": free("-1, 0 or 1 of each problem", "a constant model in place of the trained one"),
}
"""Of a step that takes the best points; see `RowPaths.best`."""
RELEASE_ARGUMENTS = {
    **BEST_ARGUMENTS,
    "keep": free(
        "0 or 1 of each problem",
        "the last point instead of the best one, nearly the same, with another draw of the noise on release",
    ),
    "holder": free("a site of the run", "nothing; the named site adds the same model"),
}
"""Of a step that opens the best points, where the objective may have noise."""
HOLDER_ARGUMENT = {"holder": RELEASE_ARGUMENTS["holder"]}


@dataclass(frozen=True)
class Layout:
    """The places of one problem's numbers in the sum: d of v, m of w, and g classes."""

    dimensions: int
    features: int

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the layout of a problem."""
        return cls(problem.dimensions, problem.dimensions - int(problem.lever > 0))

    @property
    def classes(self) -> int:
        """g: two where there is an intercept."""
        return 1 + self.dimensions - self.features

    @property
    def length(self) -> int:
        """Of the vector: matrix (its upper triangle), gradient, objective, alphas, extra, vectors, rows, two flags."""
        d = self.dimensions
        return d * (d + 1) // 2 + d + 1 + self.classes * (2 + self.features) + 3

    def pack(self, opened: Opened, scales: FloatArray, rows: int, *, keeper: bool) -> FloatArray:
        """Return (length,) a site's numbers, each part over its scale; rows: the divisor of counts.

        keeper: whether the site added what is not a row's. A matrix beyond its scale is left out, and the last number
        says so.
        """
        packed = np.empty(self.length)
        self.pack_into(packed, opened, scales, rows, keeper=keeper)
        return packed

    def pack_into(self, place: FloatArray, opened: Opened, scales: FloatArray, rows: int, *, keeper: bool) -> None:
        """Write the numbers of `pack` to a place (length,)."""
        matrix, gradient, objective, alphas, vectors = scales
        d = self.dimensions
        upper, rest = np.split(place, [d * (d + 1) // 2])
        for row, begin in enumerate(self._begins):
            np.divide(opened.matrix[row, row:], matrix, out=upper[begin : begin + d - row])
        overflows = max(upper.max(initial=0.0), -upper.min(initial=0.0)) > 1.0
        if overflows:
            upper[:] = 0.0
        rest[:] = np.concatenate(
            [
                opened.gradient / gradient,
                [opened.objective / objective],
                opened.alphas / alphas,
                [opened.extra / alphas],
                np.ravel(opened.vectors) / vectors,
                opened.rows / rows,
                [float(keeper), float(overflows)],
            ]
        )

    @property
    def _begins(self) -> IntArray:
        """(d,), where each row of the matrix begins in its upper triangle."""
        rows = np.arange(self.dimensions)
        return rows * self.dimensions - rows * (rows - 1) // 2

    def unpack(self, total: FloatArray, scales: FloatArray, rows: int) -> Opened | None:
        """Return what a sum (length,) means; None if nobody added the regularizer, or a matrix was omitted."""
        opened, keepers, overflows = self.parts(total, scales, rows)
        return None if keepers != 1 or overflows else opened

    def parts(self, total: FloatArray, scales: FloatArray, rows: int) -> tuple[Opened, int, int]:
        """Return what a sum (length,) of any sites means, and how many added the regularizer, and omitted a matrix."""
        d, g = self.dimensions, self.classes
        sizes = [d * (d + 1) // 2, d, 1, g, 1, g * self.features, g, 1, 1]
        parts = np.split(total, np.cumsum(sizes)[:-1])
        upper, gradient, objective, alphas, extra, vectors, counts, keepers, overflows = parts
        matrix = np.empty((d, d))
        for row, begin in enumerate(self._begins):
            matrix[row, row:] = matrix[row:, row] = upper[begin : begin + d - row]
        matrix *= scales[0]
        opened = Opened(
            matrix=matrix,
            gradient=gradient * scales[1],
            objective=float(objective[0] * scales[2]),
            alphas=alphas * scales[3],
            extra=float(extra[0] * scales[3]),
            vectors=vectors.reshape(g, self.features) * scales[4],
            rows=np.rint(counts * rows),
        )
        return opened, round(float(keepers[0])), round(float(overflows[0]))


@dataclass(frozen=True)
class PathOrder:
    """The order of a round of k problems, without their steps.

    problems (k,): their numbers. mus (k,): barrier parameters. keep (k,): 1 if the point before the step is the best so
    far. still (k,): 1 if nothing moves. scales (k, 5): see `Scales`. rows: the number by which counts are divided.
    """

    iteration: int
    problems: IntArray
    mus: FloatArray
    keep: FloatArray
    still: FloatArray
    scales: FloatArray
    rows: int

    def check(self, paths: RowPaths) -> None:
        """Raise OrderRefused for an order that no round of these paths has."""
        problems, known = np.asarray(self.problems).ravel().tolist(), len(paths.problems)
        if not problems or len(set(problems)) < len(problems) or not set(problems) <= set(range(known)):
            raise OrderRefused(f"problems must be different numbers from 0 to {known - 1}, got {problems}")
        for name, shape in self._shapes(paths).items():
            values = np.asarray(getattr(self, name))
            if values.shape != shape or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
                raise OrderRefused(f"{name} must be finite numbers of shape {shape}")
            if name in _POSITIVE and not (values > 0).all():
                raise OrderRefused(f"{name} must be above 0")
            if name == "scales" and (np.frexp(values)[0] != 0.5).any():
                raise OrderRefused("scales must be powers of two")
            if name in _NOT_NEGATIVE and (values < 0).any():
                raise OrderRefused(f"{name} must be 0 or more")
        if self.iteration <= (last := max(paths.starts_at(problem) for problem in problems)):
            raise OrderRefused(f"iteration must be above {last}, from which the problems go on, got {self.iteration}")

    def _shapes(self, paths: RowPaths) -> dict[str, tuple[int, ...]]:
        """Return the shapes that the fields must have."""
        k = len(self.problems)
        return {"iteration": (), "rows": (), "mus": (k,), "keep": (k,), "still": (k,), "scales": (k, 5)}


_POSITIVE, _NOT_NEGATIVE = ("rows", "mus", "scales", "noises"), ("dithers",)
"""Fields of orders: their numbers must be above 0, or 0 or more."""


def told_of(terms: Sequence[NewtonRequest]) -> dict[str, Any]:
    """Return the fields of a `PathOrder` that are of single problems."""
    return {
        "problems": np.array([each.problem for each in terms]),
        "mus": np.array([each.mu for each in terms]),
        "keep": np.array([float(each.keep) for each in terms]),
        "still": np.array([float(each.still) for each in terms]),
        "scales": np.array([each.scales.to_array() for each in terms]),
    }


@dataclass(frozen=True)
class RoundOrder(PathOrder):
    """The order of a round with a sum. steps: the steps in v of all problems, concatenated."""

    steps: FloatArray

    def _shapes(self, paths: RowPaths) -> dict[str, tuple[int, ...]]:
        dimensions = sum(paths.problems[problem].dimensions for problem in self.problems.tolist())
        steps = np.shape(self.steps) if np.size(self.steps) == dimensions else (dimensions,)  # of any division
        return {**super()._shapes(paths), "steps": steps}

    @classmethod
    def of(cls, iteration: int, terms: Sequence[NewtonRequest], rows: int) -> Self:
        """Pack what the solver asks of each problem."""
        steps = np.concatenate([each.step for each in terms])
        return cls(iteration, **told_of(terms), rows=rows, steps=steps)

    def opened(
        self, federation: Federation, step: str, layouts: Sequence[Layout], shape: Any, *, wide: bool, **params: Any
    ) -> RoundSums:
        """Order the round as a secure sum of `step`, and return Newton's system of each problem.

        wide: whether numbers have two limbs.
        """
        bound = BOUNDS[wide]
        told = {"iteration": self.iteration, "steps": self.steps, **vars(self)}
        total = federation.sum(step, shape=shape, bound=bound, **told, **params)
        vectors = np.split(np.ravel(total), np.cumsum([layout.length for layout in layouts])[:-1])
        parts = zip(layouts, vectors, self.scales, strict=True)
        systems = [layout.unpack(vector, scale, self.rows) for layout, vector, scale in parts]
        sites = len(federation.sites)
        resolution = sites * 2.0 ** -(FixedPoint.for_bound(bound, sites).fraction_bits + 1)
        return RoundSums(systems, resolution=resolution)


DrawMasks = Callable[[Sequence[int], int], Iterable[Mask | None]]
"""Draws the masks of some problems in a round. A problem's mask in a round is always the same."""

_KEPT = 1 << 20
"""Numbers of masks that a site keeps for the next step, and as many that it draws ahead. Others are drawn again."""


class RowPaths:
    """The paths of a site's rows: the current point of each problem, the mask of its last round, and masks drawn
    ahead."""

    def __init__(self, problems: Sequence[Problem], points: Sequence[DualState], draw: DrawMasks) -> None:
        self.problems = tuple(problems)
        self._standings = [[point] for point in points]
        self._draw = draw
        self._last: dict[int, tuple[int, Mask | None]] = {}
        self._ahead: dict[tuple[int, int], Mask | None] = {}
        self._steps: dict[tuple[int, int], FloatArray] = {}

    @property
    def latest(self) -> list[DualState]:
        """The last standing of each problem."""
        return [standings[-1] for standings in self._standings]

    def starts_at(self, problem: int) -> int:
        """Return the iteration of the point that the last round of a problem started from."""
        return self._standings[problem][0].iteration

    def hand_over(self, points: Sequence[DualState]) -> None:
        """Continue from these points, except for problems that are there already."""
        for place, point in enumerate(points):
            if self._standings[place][-1].iteration != point.iteration:
                self._standings[place] = [point]

    def sums(self, round_: RoundOrder, *, keeper: bool) -> FloatArray:
        """Take the steps of a round, and return this site's vectors for each of its problems, one behind the other.

        A repeated round starts from the same points as before. keeper: whether this site adds 1/2 |w|^2.
        """
        problems, iteration = round_.problems.tolist(), round_.iteration
        layouts = [Layout.of(self.problems[problem]) for problem in problems]
        steps = np.split(np.ravel(round_.steps), np.cumsum([layout.dimensions for layout in layouts])[:-1])
        total = np.empty(sum(layout.length for layout in layouts))
        places = np.split(total, np.cumsum([layout.length for layout in layouts])[:-1])
        masks, kept = self._masks(problems, iteration), self._keep(problems)
        unmasked = self._unmask(problems, iteration, steps, np.asarray(round_.still, dtype=bool))
        for place, (problem, step, mask) in enumerate(zip(problems, unmasked, masks, strict=True)):
            intercept = self.problems[problem].lever > 0
            sums, standing = self.move(round_, place, step)
            opened = opened_by(sums, standing.v, intercept=intercept, regulariser=keeper, mask=mask)
            layouts[place].pack_into(places[place], opened, round_.scales[place], round_.rows, keeper=keeper)
            if problem in kept:
                self._last[problem] = iteration, mask
        self._last = {problem: self._last[problem] for problem in kept}
        return total

    def move(self, round_: PathOrder, place: int, step: FloatArray) -> tuple[RowSums, DualState]:
        """Take a step (d,) of the problem at a place of the order; return the sums over the rows, and their state."""
        problem = int(round_.problems[place])
        rows, before = self.problems[problem], self._before(problem, round_.iteration)
        sums, standing = rows.advance(
            before,
            round_.iteration,
            step,
            float(round_.mus[place]),
            keep=bool(round_.keep[place]),
            still=bool(round_.still[place]),
        )
        self._standings[problem] = [before, standing]
        return sums, standing

    def next_step(self, problem: int, iteration: int) -> FloatArray:
        """Return the step (d,) that sites were told before a round; zeros where they were told none."""
        told = self._steps.get((problem, self._before(problem, iteration).iteration))
        return np.zeros(self.problems[problem].dimensions) if told is None else told

    def tell(self, problem: int, iteration: int, step: FloatArray) -> None:
        """Keep the step (d,) after a round, and forget those of all but the round before."""
        self._steps = {known: each for known, each in self._steps.items() if known[1] >= iteration - 1}
        self._steps[problem, iteration] = step

    def draw_ahead(self, problems: Sequence[int], iteration: int) -> None:
        """Draw masks of the next round, of as many of its problems as memory allows."""
        chosen = self._keep(problems)
        drawn = zip(chosen, self._draw(chosen, iteration), strict=True)
        self._ahead = {(problem, iteration): mask for problem, mask in drawn}

    def drop_masks(self) -> None:
        """Give up masks, which take more memory than the rows of a small site; those of another round are drawn
        again."""
        self._last, self._ahead = {}, {}

    def best(self, keep: IntArray, constants: IntArray) -> list[FloatArray]:
        """Return the best weights and intercept (m + 1,) of each problem.

        keep (K,): whether the last point is the best. constants (K,): the intercept if the rows are of one class,
        otherwise 0. Raises OrderRefused for other numbers.
        """
        for name, values, allowed in (("keep", keep, (0, 1)), ("constants", constants, (-1, 0, 1))):
            if np.shape(values) != (len(self.problems),) or not np.isin(values, allowed).all():
                listed = ", ".join(map(str, allowed))
                raise OrderRefused(f"{name} must have one of {listed} for each of the {len(self.problems)} problems")
        points = [at.v if last else at.best for at, last in zip(self.latest, keep.tolist(), strict=True)]
        ends = zip(self.problems, points, constants.tolist(), strict=True)
        return [problem.weights(point, constant) for problem, point, constant in ends]

    def without(self, kept: IntArray, draw: DrawMasks) -> RowPaths:
        """Return the paths of the same problems restricted to the `kept` columns; dual variables are unchanged."""
        pairs = [_without(*pair, kept) for pair in zip(self.problems, self.latest, strict=True)]
        return RowPaths([problem for problem, _ in pairs], [standing for _, standing in pairs], draw)

    def _before(self, problem: int, iteration: int) -> DualState:
        return next(each for each in reversed(self._standings[problem]) if each.iteration < iteration)

    def _keep(self, problems: Sequence[int]) -> Sequence[int]:
        """Return the first problems, one at least, whose masks together are not too large to keep."""
        numbers = np.cumsum([self.problems[problem].dimensions ** 2 for problem in problems])
        return problems[: max(1, int((numbers <= _KEPT).sum()))]

    def _masks(self, problems: Sequence[int], iteration: int) -> Iterator[Mask | None]:
        """Yield the masks of a round, each drawn when it is needed unless it was drawn ahead."""
        ahead, self._ahead = self._ahead, {}
        fresh = iter(self._draw([problem for problem in problems if (problem, iteration) not in ahead], iteration))
        for problem in problems:
            yield ahead.pop((problem, iteration)) if (problem, iteration) in ahead else next(fresh)

    def _unmask(
        self, problems: Sequence[int], iteration: int, steps: Sequence[FloatArray], still: BoolArray
    ) -> Iterator[FloatArray]:
        """Yield the steps (d,) of a round, which the coordinator computed behind the masks of the round before.

        A problem that stands `still` has none to unmask. Masks that are not kept are drawn again. A kept one is given
        up before the sums, which take as much memory.
        """
        before = [self._before(problem, iteration).iteration for problem in problems]
        known = [self._last.get(problem, (None,))[0] == at for problem, at in zip(problems, before, strict=True)]
        lost = [place for place in range(len(problems)) if not known[place] and not still[place]]
        drawn = {
            at: iter(self._draw([problems[place] for place in lost if before[place] == at], at))
            for at in {before[place] for place in lost}
        }
        for place, (problem, step) in enumerate(zip(problems, steps, strict=True)):
            unmasked = step
            if not still[place]:
                mask = self._last.pop(problem)[1] if known[place] else next(drawn[before[place]])
                unmasked = step if mask is None else mask.transposed_times(step)
                del mask
            yield unmasked


def _without(problem: Problem, standing: DualState, kept: IntArray) -> tuple[Problem, DualState]:
    fewer = problem.keep(kept)
    v = standing.v[np.append(kept, problem.features.shape[1]) if problem.lever else kept]
    still, residuals = np.zeros(len(standing.alpha)), fewer.targets - fewer.margins(v)
    return fewer, replace(standing, v=v, best=v, residuals=residuals, slopes=still, lag=still, iteration=0)
