"""SVMs on subsets of the columns and of the rows by the interior point, in the same rounds, and blindly.

What `optimization.path_sums` does for all rows and features is done here for problems that have columns and rows of
their own: the coordinator solves masked systems, and learns the weights of each problem in the end, by one sum. Masks
are drawn from a seed that the sites agree on, or by a committee (`optimization.blind_path`). A problem may lose columns
and go on: its rows keep their dual variables, which are as feasible as they were, and begin at the point without the
columns.

Which problems there are rides on the first order, as do the columns that stay of one that goes on. Sites that leave or
join end the path; whoever asked begins it anew.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.optimization import interior_point
from fedsvm.algorithms.optimization.barrier import DualState, Problem
from fedsvm.algorithms.optimization.blind_path import BLIND_ARGUMENTS, SHOWS, BlindOrder, BlindRounds
from fedsvm.algorithms.optimization.committee import contribute
from fedsvm.algorithms.optimization.interior_point import Extent, NewtonRequest, RoundSums
from fedsvm.algorithms.optimization.masking import Mask, Masking, draw_masks
from fedsvm.algorithms.optimization.path_rounds import (
    BEST_ARGUMENTS,
    BOUNDS,
    HOLDER_ARGUMENT,
    MASKED_SHOWS,
    OPEN_SHOWS,
    ROUND_ARGUMENTS,
    Layout,
    PathOrder,
    RoundOrder,
    RowPaths,
)
from fedsvm.algorithms.optimization.path_sums import choose_points
from fedsvm.algorithms.optimization.solution import Solution, StoppingRule
from fedsvm.algorithms.selection.kernel_scores import balance, sums_by_class
from fedsvm.algorithms.selection.subsets import COLUMN_ARGUMENTS, ColumnSubsets, SubsetProblems, check_columns
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import CHECKED, SitePart, free, step
from fedsvm.federation.transport.keys import COORDINATOR

RELEASED = "weights of SVMs on the way to the columns that are kept"
DUAL_SUMS = "of each class the sum of the columns, weighted by dual variables, of SVMs on the way to the kept columns"


_POSED_ARGUMENTS = {
    "epoch": free("a whole number", "a new path of problems, which starts at 0"),
    "kept": free("numbers of columns", "problems on fewer of their columns"),
    **COLUMN_ARGUMENTS,
    "mappings": free("any matrices", "features in which later sums can isolate rows"),
    "ranks": free("whole numbers", "features in which later sums can isolate rows"),
    "groups, inner_folds, price, masking": CHECKED,
    "lever": free("a number of at least 0", "a model with another scale of the intercept"),
}
"""Of a round's step, by which new problems are posed."""


class SubsetPath(SitePart):
    """The interior point at a site, for its current problems on subsets of columns."""

    def __init__(self, site: HorizontalSite, subsets: ColumnSubsets) -> None:
        self._site, self._subsets = site, subsets
        self._epoch = -1
        self._masking: Masking = "none"
        self._paths = self._ended = RowPaths([], [], functools.partial(self._draw_masks, self._epoch))

    @step(bound=BOUNDS, told={**ROUND_ARGUMENTS, **_POSED_ARGUMENTS})
    def subset_newton(self, epoch: int, kept: IntArray | None = None, **order: Any) -> FloatArray:
        """Return this site's part of a round of k problems, one behind the other; see `NewtonPath.newton`.

        epoch: number of the path; a new path has new problems, or those of the previous path on fewer columns.
        """
        round_ = RoundOrder(**self._begin_where_new(RoundOrder, epoch, kept, order))
        round_.check(self._paths)
        return self._paths.sums(round_, keeper=self._site.channel.sites[0] == self._site.site)

    @step(shown=SHOWS, told={**BLIND_ARGUMENTS, **_POSED_ARGUMENTS})
    def blind_subset_newton(self, epoch: int, kept: IntArray | None = None, **order: Any) -> None:
        """Take part in a round of k problems behind a committee; see `BlindNewton.blind_newton` and `subset_newton`."""
        round_ = BlindOrder(**self._begin_where_new(BlindOrder, epoch, kept, order))
        round_.check(self._paths)
        problems, keeper = round_.problems.tolist(), self._site.channel.sites[0] == self._site.site
        systems = round_.systems([Layout.of(self._paths.problems[problem]) for problem in problems])
        entries = [round_.entries(self._paths, place, each, keeper=keeper) for place, each in enumerate(systems)]
        round_.keep_steps(self._paths, contribute(self._site, systems, entries))

    @step(
        bound=math.inf,
        told=BEST_ARGUMENTS | HOLDER_ARGUMENT,
    )
    def subset_weights(self, keep: IntArray, constants: IntArray, holder: str) -> FloatArray:
        """Return the best weights and intercept of each problem, one behind the other; zeros if not at `holder`."""
        best = np.concatenate(self._paths.best(keep, constants))
        return best if self._site.site == holder else np.zeros_like(best)

    @step(bound=math.inf)
    def subset_duals(self) -> FloatArray:
        """Return the (2, m + 1) sum of alpha of each class, and of alpha y times each column of the first problem."""
        first = self._subsets.posed[0]
        rows = self._site.scaled[np.ix_(self._subsets.used_rows(first.fold), first.columns)]
        return sums_by_class(self._paths.latest[0].alpha, self._site.labels[0], rows)

    def _begin_where_new(
        self, kind: type[PathOrder], epoch: int, kept: IntArray | None, told: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Begin a new path if there is one, and return the fields of the order of a round among what is told."""
        order = {name: value for name, value in told.items() if name in kind.__dataclass_fields__}
        if epoch != self._epoch or order["iteration"] == 1:
            self._begin(epoch, kept, **{name: value for name, value in told.items() if name not in order})
        return order

    def _begin(
        self,
        epoch: int,
        kept: IntArray | None,
        price: float = 1.0,
        lever: float = 0.0,
        masking: Masking = "none",
        **posed: Any,
    ) -> None:
        """Set new problems, or restrict those of the previous path to the `kept` columns."""
        draw = functools.partial(self._draw_masks, epoch)
        if kept is None:
            agreed = {"C": price, "wrapper": "pan-svm"} if "mappings" in posed else {"select_penalty": price}
            self._site.check_agreed(**agreed, masking=masking)
            if not 0 <= lever < math.inf:
                raise OrderRefused(f"lever must be a finite number of at least 0, got {lever}")
            self._subsets.pose(**posed)
            self._masking = masking
            problems = [self._problem(problem, price, lever) for problem in range(len(self._subsets.posed))]
            points = [DualState.at(p, 0, np.zeros(p.dimensions), np.zeros(p.dimensions)) for p in problems]
            self._paths = RowPaths(problems, points, draw)
        else:
            self._ended = self._paths if epoch != self._epoch else self._ended
            for problem in self._ended.problems:
                check_columns(kept, problem.features.shape[1])
            self._paths = self._ended.without(kept, draw)
        self._epoch = epoch

    def _problem(self, problem: int, price: float, lever: float) -> Problem:
        subset = self._subsets.posed[problem]
        site, used = self._site, self._subsets.used_rows(subset.fold)
        features = self._subsets.features(problem, used)
        return Problem.of(features, site.labels[subset.label, used], price, lever=lever)

    def _draw_masks(self, epoch: int, problems: Sequence[int], iteration: int) -> Sequence[Mask | None]:
        """Draw the masks of a round, which are the same at every site. Those of all problems are drawn together."""
        if self._masking in ("none", "committee"):
            return [None] * len(problems)
        sizes = [(rows.dimensions, rows.features.shape[1]) for rows in self._paths.problems]
        drawn = draw_masks(self._site.secret, f"columns {epoch} {iteration}", sizes, self._masking)
        return [drawn[problem] for problem in problems]


@dataclass
class SubsetPaths:
    """The paths of problems over a federation, one after the other, under one seed of the sites.

    rows: how many there are; squares: the sum over them of all their columns' squares.
    """

    federation: Federation
    rows: int
    squares: float
    C: float
    masking: Masking
    step_noise: float
    step_noise_floor: float
    _blind: BlindRounds | None = None
    _epoch: int = -1
    _has_seed_for: int = -1
    _mus: tuple[float, ...] = ()
    _lengths: Sequence[int] = ()
    _begun: Mapping[str, Any] = field(default_factory=dict)

    @property
    def _lever(self) -> float:
        return math.sqrt(self.squares / self.rows) or 1.0

    def solve(self, posed: SubsetProblems, stopping: StoppingRule) -> list[Solution]:
        """Solve new problems. Raises MembershipChanged where sites leave or join."""
        self._lengths = posed.dimensions
        self._begun = {**posed.to_arguments(), "price": self.C, "lever": self._lever, "masking": self.masking}
        return self._solve(stopping, ())

    def solve_without(self, kept: IntArray, stopping: StoppingRule) -> list[Solution]:
        """Continue all problems with only these places of their columns, from their current state."""
        self._lengths, self._begun = [len(kept)] * len(self._mus), {"kept": kept}
        return self._solve(stopping, self._mus)

    def column_weights(self, columns: int) -> FloatArray:
        """Return (m,) the sum of alpha y times each column of the only problem, over all its rows."""
        sums = self.federation.sum("subset_duals", shape=(2, columns + 1), bound=math.inf)
        self.federation.disclose(COORDINATOR, "subset_duals", DUAL_SUMS, sums.shape)
        return balance(sums)

    def extent(self) -> Extent:
        """Return the extent of all rows in all columns, a bound for every problem; see `interior_point.Path`."""
        squares = (self.squares + self.rows * self._lever**2) * (1 + 1e-9) + 1e-9
        return Extent(self.rows, squares, self.C)

    def sums(self, iteration: int, terms: Sequence[NewtonRequest], *, wide: bool) -> RoundSums:
        """Order the round as one secure sum; see `interior_point.Path`."""
        layouts = [Layout(length + 1, length) for length in (self._lengths[each.problem] for each in terms)]
        order = {"epoch": self._epoch, **(self._begun if iteration == 1 else {})}
        if self._blind is not None:
            step, shows = "blind_subset_newton", SHOWS
            found = self._blind.sums(step, iteration, terms, layouts, self.extent(), self._lever, order)
        else:
            step, shows = "subset_newton", OPEN_SHOWS if self.masking == "none" else MASKED_SHOWS
            round_, shape = RoundOrder.of(iteration, terms, self.rows), (sum(each.length for each in layouts),)
            found = round_.opened(self.federation, step, layouts, shape, wide=wide, **order)
        if iteration == 1:
            self.federation.disclose(COORDINATOR, step, shows, ())
        return found

    def _solve(self, stopping: StoppingRule, mus: Sequence[float]) -> list[Solution]:
        federation, changes = self.federation, len(self.federation.membership.changes)
        is_blind = self.masking == "committee"
        self._blind = BlindRounds(federation, self.step_noise) if is_blind else None
        if self.masking not in ("none", "committee") and self._has_seed_for != changes:
            federation.run("agree_secret")
            self._has_seed_for = changes
        self._epoch += 1
        outcomes = interior_point.solve(
            self,
            problems=len(self._lengths),
            dimensions=[length + 1 for length in self._lengths],
            intercept=True,
            stopping=stopping,
            step_noise=0.0 if is_blind else self.step_noise,
            step_noise_floor=self.step_noise if is_blind else self.step_noise_floor,
            mus=mus,
        )
        self._mus = tuple(outcome.mu for outcome in outcomes)
        keep, constants = choose_points(outcomes)
        ends = np.cumsum([length + 1 for length in self._lengths])
        order: dict[str, Any] = {"keep": keep, "constants": constants, "holder": federation.sites[0]}
        found = federation.sum("subset_weights", shape=(int(ends[-1]),), bound=math.inf, **order)
        federation.disclose(COORDINATOR, "subset_weights", RELEASED, ())
        points = zip(outcomes, np.split(found, ends[:-1]), strict=True)
        return [Solution(**vars(each.certificate), w=point[:-1], b=float(point[-1])) for each, point in points]
