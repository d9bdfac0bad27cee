"""Linear SVMs on subsets of the columns and of the rows by the interior point, in the same rounds, and blindly.

What `optimisation.path_sums` does for all rows and features is done here for problems that have columns and rows of
their own: the coordinator solves masked systems, and learns the weights of each problem in the end, by one sum. Masks
are drawn from a seed that the sites agree on. A problem may lose columns and go on: its rows keep their dual variables,
which are as feasible as they were, and begin at the point without the columns.

Which problems there are rides on the first order, as do the columns that stay of one that goes on. Sites that leave or
join end the path; whoever asked begins it anew.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.optimisation import interior_point
from fedsvm.algorithms.optimisation.barrier import Problem, Standing
from fedsvm.algorithms.optimisation.interior_point import Extent, Outcome, RoundSums, Terms
from fedsvm.algorithms.optimisation.masking import Mask, Masking, draw_masks
from fedsvm.algorithms.optimisation.path_rounds import MASKED_SHOWS, OPEN_SHOWS, Layout, PathRound, RowPaths
from fedsvm.algorithms.optimisation.path_sums import chosen
from fedsvm.algorithms.optimisation.solution import Solution, Stopping
from fedsvm.algorithms.selection.subsets import ColumnSubsets, Posed, Subset
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SitePart, step
from fedsvm.federation.transport.keys import COORDINATOR

RELEASED = "weights of SVMs on the way to the columns that are kept"


class SubsetPath(SitePart):
    """The interior point at a site for the problems of columns that were posed to it."""

    def __init__(self, site: HorizontalSite, subsets: ColumnSubsets) -> None:
        self._site, self._subsets = site, subsets
        self._epoch = -1
        self._masking: Masking = "none"
        self._paths = self._ended = RowPaths([], [], functools.partial(self._draw_masks, self._epoch))

    @step
    def subset_newton(self, epoch: int, kept: IntArray | None = None, **order: Any) -> FloatArray:
        """This site's part of a round of k problems, one behind the other; see `NewtonPath.newton`.

        epoch: of the path; a new one begins with problems that are posed, or without columns of the one before.
        """
        posed = {name: order.pop(name) for name in list(order) if name not in PathRound.__dataclass_fields__}
        round_ = PathRound(**order)
        if epoch != self._epoch or round_.iteration == 1:
            self._begin(epoch, kept, **posed)
        return np.concatenate(self._paths.sums(round_, keeper=self._site.channel.sites[0] == self._site.site))

    @step(bound=math.inf)
    def subset_weights(self, keep: IntArray, constants: IntArray, holder: str) -> FloatArray:
        """The best weights and intercept of each problem, one behind the other, at `holder`; zeros at the others."""
        return np.concatenate(self._paths.best(keep, constants)) * float(self._site.site == holder)

    def _begin(
        self,
        epoch: int,
        kept: IntArray | None,
        price: float = 1.0,
        lever: float = 0.0,
        masking: Masking = "none",
        **posed: Any,
    ) -> None:
        """Stand where a path begins."""
        draw = functools.partial(self._draw_masks, epoch)
        if kept is None:
            self._site.check_agreed(select_penalty=price, masking=masking)
            self._subsets.pose(**posed)
            self._masking = masking
            problems = [self._problem(subset, price, lever) for subset in self._subsets.posed]
            points = [Standing.at(p, 0, np.zeros(p.dimensions), np.zeros(p.dimensions)) for p in problems]
            self._paths = RowPaths(problems, points, draw)
        else:
            self._ended = self._paths if epoch != self._epoch else self._ended
            self._paths = self._ended.without(kept, draw)
        self._epoch = epoch

    def _problem(self, subset: Subset, price: float, lever: float) -> Problem:
        site, used = self._site, self._subsets.used(subset.fold)
        features = site.scaled[np.ix_(used, subset.columns)]
        return Problem.of(features, site.labels[subset.label, used], price, lever=lever)

    def _draw_masks(
        self, epoch: int, problems: Sequence[int], iteration: int, sizes: Sequence[tuple[int, int]]
    ) -> Sequence[Mask | None]:
        """The masks of a round, the same at every site."""
        if self._masking == "none":
            return [None] * len(problems)
        return draw_masks(self._site.secret, f"columns {epoch} {iteration}", sizes, self._masking)


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
    _epoch: int = -1
    _has_seed_for: int = -1
    _mus: tuple[float, ...] = ()

    @property
    def _lever(self) -> float:
        return math.sqrt(self.squares / self.rows) or 1.0

    def solve(self, posed: Posed, stopping: Stopping) -> list[Solution]:
        """Solve problems from nothing. Raises MembershipChanged where sites leave or join."""
        begun = {**posed.told(), "price": self.C, "lever": self._lever, "masking": self.masking}
        return self._solved([len(each.columns) for each in posed.subsets], stopping, begun, ())

    def solve_without(self, kept: IntArray, stopping: Stopping) -> list[Solution]:
        """Go on with all problems in these places of their columns, the same in each, from where they stood."""
        return self._solved([len(kept)] * len(self._mus), stopping, {"kept": kept}, self._mus)

    def _solved(
        self, lengths: Sequence[int], stopping: Stopping, begun: dict[str, Any], mus: Sequence[float]
    ) -> list[Solution]:
        federation = self.federation
        if self.masking != "none" and self._has_seed_for != len(federation.membership.changes):
            federation.run("agree_secret")
            self._has_seed_for = len(federation.membership.changes)
        self._epoch += 1
        path = _SubsetPath(self, lengths, begun)
        outcomes = interior_point.solve(
            path,
            problems=len(lengths),
            dimensions=[length + 1 for length in lengths],
            intercept=True,
            stopping=stopping,
            step_noise=self.step_noise if len(federation.sites) > 1 else 0.0,
            mus=mus,
        )
        self._mus = tuple(outcome.mu for outcome in outcomes)
        return path.released(outcomes)


@dataclass
class _SubsetPath:
    """One of them; see `interior_point.Path`."""

    paths: SubsetPaths
    lengths: Sequence[int]
    begun: dict[str, Any]

    @property
    def _layouts(self) -> list[Layout]:
        return [Layout(length + 1, length) for length in self.lengths]

    def extent(self) -> Extent:
        """Of all rows in all columns, which no problem exceeds."""
        paths = self.paths
        squares = (paths.squares + paths.rows * paths._lever**2) * (1 + 1e-9) + 1e-9
        return Extent(paths.rows, squares, paths.C)

    def sums(self, iteration: int, terms: Sequence[Terms], *, wide: bool) -> RoundSums:
        """One secure sum."""
        paths, layouts = self.paths, [self._layouts[each.problem] for each in terms]
        round_, shape = PathRound.of(iteration, terms, paths.rows), (sum(each.length for each in layouts),)
        begun = self.begun if iteration == 1 else {}
        found = round_.opened(paths.federation, "subset_newton", layouts, shape, wide=wide, epoch=paths._epoch, **begun)
        if iteration == 1:
            shows = OPEN_SHOWS if paths.masking == "none" else MASKED_SHOWS
            paths.federation.disclose(COORDINATOR, "subset_newton", shows, ())
        return found

    def released(self, outcomes: Sequence[Outcome]) -> list[Solution]:
        """The best points, opened to the coordinator."""
        federation, (keep, constants) = self.paths.federation, chosen(outcomes)
        ends = [length + 1 for length in self.lengths]
        found = federation.sum(
            "subset_weights",
            shape=(sum(ends),),
            bound=math.inf,
            keep=keep,
            constants=constants,
            holder=federation.sites[0],
        )
        federation.disclose(COORDINATOR, "subset_weights", RELEASED, ())
        points = np.split(found, np.cumsum(ends)[:-1])
        return [
            Solution(**vars(outcome.certificate), w=point[:-1], b=float(point[-1]))
            for outcome, point in zip(outcomes, points, strict=True)
        ]
