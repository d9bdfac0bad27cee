"""Linear SVMs on subsets of the columns and of the rows by the interior point, in the same rounds, and blindly.

What `optimisation.path_sums` does for all rows and features is done here for problems that have columns and rows of
their own: the coordinator solves masked systems, and learns the weights of each problem in the end, by one sum. Masks
are drawn from a seed that the sites agree on. A problem may lose columns and go on: its rows keep their dual variables,
which are as feasible as they were, and begin at the point without the columns.

Which problems there are rides on the first order, as do the columns that stay of one that goes on. Sites that leave or
join end the path; whoever asked begins it anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsvm.algorithms.calibration import calibration
from fedsvm.algorithms.data.horizontal import each_model, preparation
from fedsvm.algorithms.features.mapped_rows import mapping
from fedsvm.algorithms.optimisation import interior_point
from fedsvm.algorithms.optimisation.barrier import Problem, RowSums, Standing
from fedsvm.algorithms.optimisation.interior_point import Extent, Outcome, RoundSums, Terms, opened_by
from fedsvm.algorithms.optimisation.linear_svm import training
from fedsvm.algorithms.optimisation.masking import Mask, Masking, draw_masks
from fedsvm.algorithms.optimisation.path_sums import (
    MASKED_SHOWS,
    OPEN_SHOWS,
    WIDE_BOUND,
    Layout,
    chosen,
    resolution_of,
    told_of,
)
from fedsvm.algorithms.optimisation.solution import Solution, Stopping
from fedsvm.algorithms.selection.subsets import Posed, Subset, SubsetSite
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import step
from fedsvm.federation.site.script import Script, any_order, seq, stage
from fedsvm.federation.site.terms import Terms as RunTerms
from fedsvm.federation.transport.keys import COORDINATOR

RELEASED = "weights of SVMs on the way to the columns that are kept"


MOMENTS = ("class_sizes", "class_moments")
"""The steps of `class_moments`."""

CUTS = frozenset({"subset_cuts", "subset_line"})
"""The steps of cutting planes on columns."""


def has_curve(terms: RunTerms) -> bool:
    """Return whether the size that the terms agree on is read off a curve of accuracy."""
    return terms.settings.get("size") in ("best", "one-se")


@dataclass(frozen=True)
class Base:
    """Where problems begin: their rows, and where these stand."""

    problems: tuple[Problem, ...]
    standings: tuple[Standing, ...]

    def without(self, kept: IntArray) -> Base:
        """The problems, in these of their columns; dual variables stay."""
        pairs = [_without(*pair, kept) for pair in zip(self.problems, self.standings, strict=True)]
        return Base(tuple(problem for problem, _ in pairs), tuple(standing for _, standing in pairs))


def _without(problem: Problem, standing: Standing, kept: IntArray) -> tuple[Problem, Standing]:
    fewer = replace(problem, features=problem.features[:, kept])
    v = standing.v[np.append(kept, problem.features.shape[1]) if problem.lever else kept]
    still, residuals = np.zeros(len(standing.alpha)), fewer.targets - fewer.margins(v)
    return fewer, replace(standing, v=v, best=v, residuals=residuals, slopes=still, lag=still, iteration=0)


def svms(terms: RunTerms) -> frozenset[str]:
    """Return the steps that train SVMs on columns and, where a curve is measured, count on rows that they leave out."""
    by_path = frozenset({"agree_secret", "subset_newton", "subset_weights"})
    trained = by_path if terms.settings["select_solver"] == "interior-point" else CUTS
    return trained | ({"held_out_rows"} if has_curve(terms) else frozenset())


class SelectionSite(SubsetSite):
    """A site that also goes the paths of problems of columns."""

    epoch = -1
    trails: list[list[Standing]]

    @classmethod
    def script(cls, terms: RunTerms) -> Script:
        """Return the script of `SelectionAlgorithm.fit`: columns are chosen and kept, and then a model is trained.

        How many rounds the choice takes depends on the number of columns, which the terms do not say.
        """
        chosen = seq(cls.choosing(terms), "keep_columns")
        mapped = stage(mapping(terms))
        return each_model(terms, stage(preparation(terms)), chosen, mapped, training(terms), calibration(terms))

    @classmethod
    def choosing(cls, terms: RunTerms) -> Script:
        """Return the script of what comes before columns are kept: here SVMs on columns, in any order."""
        return any_order({*MOMENTS, *svms(terms)})

    @step
    def subset_newton(
        self,
        epoch: int,
        iteration: int,
        problems: IntArray,
        steps: FloatArray,
        mus: FloatArray,
        keep: FloatArray,
        still: FloatArray,
        scales: FloatArray,
        rows: int,
        kept: IntArray | None = None,
        **posed: Any,
    ) -> FloatArray:
        """This site's part of a round of k problems, one behind the other; see `PathSite.newton`.

        epoch: of the path; a new one begins with problems that are posed, or without columns of the one before. A round
        that is run again begins where it began.
        """
        if epoch != self.epoch or iteration == 1:
            self._begin(epoch, kept, **posed)
        keeper = self.channel.sites[0] == self.site
        layouts = [self._subset_layout(problem) for problem in problems.tolist()]
        self._draw_masks(problems.tolist(), iteration)
        cut = np.split(steps, np.cumsum([each.dimensions for each in layouts])[:-1])
        parts = []
        for place, (problem, layout) in enumerate(zip(problems.tolist(), layouts, strict=True)):
            before = next(each for each in reversed(self.trails[problem]) if each.iteration < iteration)
            is_still = bool(still[place])
            towards = cut[place]
            if not is_still and (mask := self.subset_masks.get((problem, before.iteration))) is not None:
                towards = mask.around.T @ towards
            standing = before.moved(
                self.base.problems[problem],
                iteration,
                towards,
                float(mus[place]),
                keep=bool(keep[place]),
                still=is_still,
            )
            self.trails[problem] = [before, standing]
            sums = RowSums.of(self.base.problems[problem], standing)
            has_lever = self.base.problems[problem].lever > 0
            opened = opened_by(sums, standing.v, intercept=has_lever, regulariser=keeper)
            mask = self.subset_masks.get((problem, iteration))
            shown = opened if mask is None else opened.masked(mask)
            parts.append(layout.pack(shown, scales[place], rows, keeper=keeper))
        return np.concatenate(parts)

    @step(bound=math.inf)
    def subset_weights(self, keep: IntArray, constants: IntArray, holder: str) -> FloatArray:
        """The best weights and intercept of each problem, one behind the other, at `holder`; zeros at the others."""
        found = []
        for problem, rows in enumerate(self.base.problems):
            at = self.trails[problem][-1]
            best = rows.weights(at.v if keep[problem] else at.best, int(constants[problem]))
            found.append(best if self.site == holder else np.zeros_like(best))
        return np.concatenate(found)

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
        if kept is None:
            self.check_agreed(select_penalty=price, masking=masking)
            self._take(**posed)
            self.subset_masking = masking
            problems = tuple(self._problem(subset, price, lever) for subset in self._posed)
            standings = tuple(Standing.at(p, 0, np.zeros(p.dimensions), np.zeros(p.dimensions)) for p in problems)
            self.base = Base(problems, standings)
        else:
            if epoch != self.epoch:
                self.ended = Base(self.base.problems, tuple(each[-1] for each in self.trails))
            self.base = self.ended.without(kept)
        self.epoch = epoch
        self.trails = [[each] for each in self.base.standings]
        self.subset_masks: dict[tuple[int, int], Mask | None] = {}

    def _problem(self, subset: Subset, price: float, lever: float) -> Problem:
        used = self._used(subset.fold)
        return Problem.of(
            self.scaled[np.ix_(used, subset.columns)], self.labels[subset.label, used], price, lever=lever
        )

    def _subset_layout(self, problem: int) -> Layout:
        rows = self.base.problems[problem]
        return Layout(rows.dimensions, rows.features.shape[1])

    def _draw_masks(self, problems: list[int], iteration: int) -> None:
        """The masks of a round, the same at every site; those of the last two rounds are kept."""
        if (problems[0], iteration) in self.subset_masks or self.subset_masking == "none":
            return
        if not hasattr(self, "secret"):
            raise StepRefused("the sites have no common seed yet")
        self.subset_masks = {known: mask for known, mask in self.subset_masks.items() if known[1] >= iteration - 1}
        layouts = [self._subset_layout(problem) for problem in problems]
        sizes = [(layout.dimensions, layout.features) for layout in layouts]
        drawn = draw_masks(self.secret, f"columns {self.epoch} {iteration}", sizes, self.subset_masking)
        self.subset_masks |= {(problem, iteration): mask for problem, mask in zip(problems, drawn, strict=True)}


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
        federation, layouts = self.paths.federation, [self._layouts[each.problem] for each in terms]
        bound, told = WIDE_BOUND if wide else 1.0, told_of(terms)
        total = federation.sum(
            "subset_newton",
            shape=(sum(each.length for each in layouts),),
            bound=bound,
            epoch=self.paths._epoch,
            iteration=iteration,
            steps=np.concatenate([each.step for each in terms]),
            rows=self.paths.rows,
            **told,
            **(self.begun if iteration == 1 else {}),
        )
        shows = OPEN_SHOWS if self.paths.masking == "none" else MASKED_SHOWS
        if iteration == 1:
            federation.disclose(COORDINATOR, "subset_newton", shows, ())
        parts = np.split(total, np.cumsum([each.length for each in layouts])[:-1])
        summed = zip(layouts, parts, told["scales"], strict=True)
        opened = [layout.unpack(part, scale, self.paths.rows) for layout, part, scale in summed]
        return RoundSums(opened, resolution=resolution_of(bound, len(federation.sites)))

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
