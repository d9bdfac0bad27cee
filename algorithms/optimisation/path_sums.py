"""The interior point over a federation: where the sites keep the path, and how a round's sums cross the network.

One secure sum a round. All parts of a site's vector are divided by public bounds on their sizes, so that one limb of 64
bits serves for all; of a site whose part of the matrix is beyond what the last round let expect, the matrix is left
out, and the next round has two limbs and a bound that always holds.

A site that was restarted knows nothing of the path. It adds nothing until one that knows hands it the point and the
sites' common seed; the others lose neither their dual variables nor a round for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedsvm.algorithms.data.classes import Scheme
from fedsvm.algorithms.features.mapped_rows import FeatureSite
from fedsvm.algorithms.optimisation.barrier import Problem, RowSums, Standing
from fedsvm.algorithms.optimisation.interior_point import Extent, Opened, Outcome, RoundSums, Terms, opened_by
from fedsvm.algorithms.optimisation.masking import Mask, Masking, draw_mask
from fedsvm.algorithms.optimisation.weighting import Factors, WeightedSite, Weighting, agreement_on_factors
from fedsvm.federation.arrays import FloatArray, IntArray, Residues
from fedsvm.federation.errors import FederationError, MembershipChanged, StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.private_file import replace_private
from fedsvm.federation.site.program import step
from fedsvm.federation.site.script import Script, either, maybe, repeat, seq, stage
from fedsvm.federation.site.terms import Terms as RunTerms
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols import common_seed
from fedsvm.protocols.arithmetic.fixed_point import FixedPoint
from fedsvm.protocols.passing_on import pass_on

Release = Literal["everyone", "sites"]

WIDE_BOUND = 2.0**24
"""A bound for which numbers have two limbs."""

MASKED_SHOWS = (
    "in each round the objective, of each class the number of rows and the sum of their dual variables, three inner "
    "products of class vectors, the length of Newton's step, and what a secret matrix leaves of the system's spectrum"
)
OPEN_SHOWS = "in each round Newton's system over all rows, and with it the path of weights"


@dataclass(frozen=True)
class Layout:
    """Where the numbers of one problem stand in what is summed: d of v, m of w, and g classes."""

    dimensions: int
    features: int

    @property
    def classes(self) -> int:
        """g: two where there is an intercept."""
        return 1 + self.dimensions - self.features

    @property
    def length(self) -> int:
        """Of the vector: matrix (its upper triangle), gradient, objective, alphas, vectors, rows, and two flags."""
        d = self.dimensions
        return d * (d + 1) // 2 + d + 1 + self.classes * (2 + self.features) + 2

    def pack(self, opened: Opened, scales: FloatArray, rows: int, *, keeper: bool) -> FloatArray:
        """(length,) of what a site has, each part over its scale; rows: over how many counts are.

        keeper: whether the site added what is not a row's. A matrix beyond its scale is left out, and the last number
        says so.
        """
        matrix, gradient, objective, alphas, vectors = scales
        upper = opened.matrix[np.triu_indices(self.dimensions)] / matrix
        overflows = float(np.abs(upper).max(initial=0.0)) > 1.0
        return np.concatenate(
            [
                np.zeros_like(upper) if overflows else upper,
                opened.gradient / gradient,
                [opened.objective / objective],
                opened.alphas / alphas,
                np.ravel(opened.vectors) / vectors,
                opened.rows / rows,
                [float(keeper), float(overflows)],
            ]
        )

    def unpack(self, total: FloatArray, scales: FloatArray, rows: int) -> Opened | None:
        """What a sum (length,) says; None where nobody added what is not a row's, or a matrix was left out."""
        opened, keepers, overflows = self.parts(total, scales, rows)
        return None if keepers != 1 or overflows else opened

    def parts(self, total: FloatArray, scales: FloatArray, rows: int) -> tuple[Opened, int, int]:
        """What a sum (length,) of any sites says, and how many added what is not a row's, and left a matrix out."""
        d, g = self.dimensions, self.classes
        sizes = [d * (d + 1) // 2, d, 1, g, g * self.features, g, 1, 1]
        upper, gradient, objective, alphas, vectors, counts, keepers, overflows = np.split(total, np.cumsum(sizes)[:-1])
        matrix = np.zeros((d, d))
        matrix[np.triu_indices(d)] = upper
        matrix += np.triu(matrix, 1).T
        opened = Opened(
            matrix=matrix * scales[0],
            gradient=gradient * scales[1],
            objective=float(objective[0] * scales[2]),
            alphas=alphas * scales[3],
            vectors=vectors.reshape(g, self.features) * scales[4],
            rows=np.rint(counts * rows),
        )
        return opened, round(float(keepers[0])), round(float(overflows[0]))


class PathLostError(FederationError):
    """All sites that knew where training stands are gone, or were started again: it has to begin anew."""


class PathSite(FeatureSite, WeightedSite):
    """A site that has its training rows' features (n, m) ready, and goes the path with the others."""

    last_round: tuple[int, Sequence[int]] | None = None
    """Its iteration and problems, as long as no masks are drawn for the one after it."""

    @step
    def begin_path(
        self,
        prior: FloatArray,
        price: float,
        lever: float,
        masking: Masking,
        factors: Sequence[float] = (),
        scheme: Scheme = "ovr",
    ) -> None:
        """Take down how the rows are to be trained on: around `prior` (m,), or (P, m) of each problem, at `price` each,

        times its class's factor and, where rows have weights, the row's; each class against the others, or every two.
        Raises OrderRefused for another masking, price, prior, factors or scheme than was agreed on.
        """
        self.check_agreed(masking=masking)
        self.check_problem(prior, price)
        self.check_factors(factors)
        self.layout = Layout(prior.shape[-1] + int(lever > 0), prior.shape[-1])
        self.prior, self.price, self.lever, self.masking = prior, price, lever, masking
        self.factors = factors
        self.problem_labels = self.labels_by(scheme)
        self.problems: list[Problem] = []
        self.standings: list[list[Standing]] = []
        self.seed: Residues | None = None
        self.masks: dict[tuple[int, int], Mask | None] = {}
        self.last_round = None

    def check_problem(self, prior: FloatArray, price: float) -> None:
        """Raise OrderRefused for another prior or price than was agreed on; here either may be any."""

    def work_ahead(self) -> None:
        """Draw the masks of the next round, which is most of what this one took, while others are at it."""
        if self.last_round is not None:
            (iteration, problems), self.last_round = self.last_round, None
            for problem in problems:
                self._mask(problem, iteration + 1)

    @step
    def share_path(self, holders: list[str]) -> None:
        """Learn the common seed and the point from the first of `holders` that is there; where nobody stood, at 0."""
        holder = next((site for site in holders if site in self.channel.sites), None)
        if holder is None:
            raise StepRefused("no site is left that knows where training stands; run again")
        size, problems = self.layout.dimensions, len(self.problem_labels)
        shape = (1, common_seed.SHAPE[1] + problems * (1 + 2 * size))
        told = pass_on(self.channel, holder, self._own_path() if holder == self.site else None, shape)
        self.seed, rest = told[:, : common_seed.SHAPE[1]], told[0, common_seed.SHAPE[1] :].view(np.float64)
        if not self.problems:
            prices = self.prices(self.price, self.factors)
            self.problems = [
                Problem.of(self.features, labels, np.where(labels == 0, 0.0, prices), prior=prior, lever=self.lever)
                for labels, prior in zip(self.problem_labels, self._priors(), strict=True)
            ]
        for place, (problem, path) in enumerate(zip(self.problems, rest.reshape(problems, -1), strict=True)):
            point = Standing.at(problem, int(path[0]), path[1 : size + 1], path[size + 1 :])
            if place == len(self.standings):
                self.standings.append([point])
            elif self.standings[place][-1].iteration != point.iteration:
                self.standings[place] = [point]

    def _priors(self) -> FloatArray:
        """(P, m) of each problem."""
        size = self.layout.features
        return np.broadcast_to(self.prior, (len(self.problem_labels), size))

    def _own_path(self) -> Residues:
        """The seed, and of each problem the round, the point and the best point, as residues."""
        seed = self.channel.random(common_seed.SHAPE) if self.seed is None else self.seed
        latest = [standings[-1] for standings in self.standings]
        told = [np.concatenate([[each.iteration], each.v, each.best]) for each in latest]
        nothing = np.zeros(len(self.problem_labels) * (1 + 2 * self.layout.dimensions))
        return np.hstack([seed, (np.concatenate(told) if told else nothing).view(np.uint64)[None, :]])

    @step
    def newton(
        self,
        iteration: int,
        problems: IntArray,
        steps: FloatArray,
        mus: FloatArray,
        keep: FloatArray,
        still: FloatArray,
        scales: FloatArray,
        rows: int,
    ) -> FloatArray:
        """(k, length) this site's part of a round of k problems; a round that is run again begins where it began."""
        total = np.zeros((len(problems), self.layout.length))
        if not self.standings:
            return total
        keeper = self.channel.sites[0] == self.site
        for place, problem in enumerate(problems.tolist()):
            flags = {"keep": bool(keep[place]), "still": bool(still[place])}
            standing = self._moved(problem, iteration, steps[place], float(mus[place]), **flags)
            opened = self._masked(problem, iteration, standing, keeper=keeper)
            total[place] = self.layout.pack(opened, scales[place], rows, keeper=keeper)
        self.last_round = iteration, problems.tolist()
        return total

    def _moved(self, problem: int, iteration: int, step: FloatArray, mu: float, *, keep: bool, still: bool) -> Standing:
        """Where the rows stand after the step; where they stood before is kept for a round that is run again."""
        before = next(each for each in reversed(self.standings[problem]) if each.iteration < iteration)
        if not still and (mask := self._mask(problem, before.iteration)) is not None:
            step = mask.around.T @ step
        standing = before.moved(self.problems[problem], iteration, step, mu, keep=keep, still=still)
        self.standings[problem] = [before, standing]
        return standing

    def _masked(self, problem: int, iteration: int, standing: Standing, *, keeper: bool) -> Opened:
        rows = self.problems[problem]
        sums = RowSums.of(rows, standing)
        opened = opened_by(sums, standing.v, intercept=rows.lever > 0, regulariser=keeper)
        mask = self._mask(problem, iteration)
        return opened if mask is None else opened.masked(mask)

    def _mask(self, problem: int, iteration: int) -> Mask | None:
        """The mask of a round, the same at every site; the last two rounds' are kept."""
        key = problem, iteration
        if key not in self.masks:
            if self.seed is None:
                raise StepRefused("the sites have no common seed yet")
            self.masks = {known: mask for known, mask in self.masks.items() if known[1] >= iteration - 1}
            size, purpose = self.layout, f"{problem} {iteration}"
            self.masks[key] = draw_mask(self.seed, purpose, size.dimensions, size.features, self.masking)
        return self.masks[key]

    @step(bound=math.inf)
    def released(self, keep: IntArray, constants: IntArray, holder: str) -> FloatArray:
        """(K, m + 2): the best weights and intercepts, and that they are, at `holder`; zeros at the others.

        The last point is the best where `keep` says so, and a constant is where there is one. A holder that was
        restarted has them no longer: training goes on, and comes here again.
        """
        if self.site != holder or not self.standings:
            return np.zeros((len(self.problem_labels), self.layout.features + 2))
        return np.hstack([self.best(keep, constants), np.ones((len(self.problem_labels), 1))])

    @step
    def keep_best(self, keep: IntArray, constants: IntArray) -> None:
        """Write the weights (K, m) and intercepts (K,) to this site's own file, `model_path` of its settings."""
        if not (path := self.settings.get("model_path")):
            raise StepRefused('a site has no file to keep a model in; use algorithm.release = "everyone"')
        if not self.standings:
            return  # restarted, see `released`
        best = self.best(keep, constants)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - see replace_private
        replace_private(path, lambda file: np.savez(file, w=best[:, :-1], b=best[:, -1]))

    def best(self, keep: IntArray, constants: IntArray) -> FloatArray:
        """(K, m + 1) the best weights and intercepts; see `released`."""
        latest = [standings[-1] for standings in self.standings]
        points = [at.v if last else at.best for at, last in zip(latest, keep.tolist(), strict=True)]
        ends = zip(self.problems, points, constants.tolist(), strict=True)
        return np.stack([problem.weights(point, constant) for problem, point, constant in ends])


def newton_path(terms: RunTerms, end: str) -> Script:
    """Return the script of a `FederatedPath`, which a step `end` concludes.

    Rounds that certify nothing do not count among `max_iterations`: the first, one whose matrix is beyond what was
    expected, and some for each change of membership.
    """
    begun = stage("squared_norms", agreement_on_factors(terms), "begin_path", "share_path")
    handed_on = stage("share_path", maybe("squared_norms"))
    along = repeat(either("newton", handed_on), 1, terms.settings["max_iterations"] + 4, per_change=6)
    return stage(begun, repeat(seq(along, end), 1, 1, per_change=1))


def chosen(outcomes: Sequence[Outcome]) -> tuple[IntArray, IntArray]:
    """Which last points are the best, and the constants, each (K,), as sites are told."""
    keep = np.array([outcome.keep for outcome in outcomes], dtype=np.int64)
    return keep, np.array([outcome.constant for outcome in outcomes], dtype=np.int64)


def told_of(terms: Sequence[Terms]) -> dict[str, Any]:
    """What sites are told of the problems of a round, but for the steps."""
    return {
        "problems": np.array([each.problem for each in terms]),
        "mus": np.array([each.mu for each in terms]),
        "keep": np.array([float(each.keep) for each in terms]),
        "still": np.array([float(each.still) for each in terms]),
        "scales": np.array([each.scales.to_array() for each in terms]),
    }


def resolution_of(bound: float, sites: int) -> float:
    """How far rounding at so many sites moves a number of a sum at most."""
    return sites * 2.0 ** -(FixedPoint.for_bound(bound, sites).fraction_bits + 1)


class FederatedPath:
    """The path of K problems over the sites of a federation, which have their features ready.

    classes, scheme: what the problems are of; see `classes.problems_of`. price: of every row, times what `weighting`
    says. prior (m,), or (P, m): around which w is sought. intercept: whether there is one. release: who has the best
    points in the end.

    Attributes
    ----------
    weights : FloatArray or None
        (K, m + 1) weights and intercepts, once they are opened to the coordinator.
    """

    def __init__(
        self,
        federation: Federation,
        *,
        problems: int,
        classes: int = 2,
        scheme: Scheme = "ovr",
        prior: FloatArray,
        price: float,
        intercept: bool,
        masking: Masking,
        release: Release = "everyone",
        target: float = 1.0,
        weighting: Weighting | None = None,
    ) -> None:
        self._federation = federation
        self._classes, self._scheme = classes, scheme
        self._problems = problems
        self._prior, self._price, self._target = prior, price, target
        self._weighting = weighting or Weighting()
        self._intercept, self._masking, self._release = intercept, masking, release
        self._layout = Layout(prior.shape[-1] + int(intercept), prior.shape[-1])
        self.weights: FloatArray | None = None
        federation.until_stable(self._begin)
        self._seen = len(federation.membership.changes)
        self._told = set(federation.sites)
        shows = OPEN_SHOWS if masking == "none" else MASKED_SHOWS
        federation.disclose(COORDINATOR, "newton", shows, (self._layout.length,))

    @property
    def dimensions(self) -> int:
        """Of v."""
        return self._layout.dimensions

    def extent(self) -> Extent:
        """Bounds on the rows that are there; rows that left leave them as they are."""
        return self._extent

    def sums(self, iteration: int, terms: Sequence[Terms], *, wide: bool) -> RoundSums:
        """One secure sum."""
        rows, bound = self._extent.rows, WIDE_BOUND if wide else 1.0
        told = told_of(terms)
        total = self._federation.sum(
            "newton",
            shape=(len(terms), self._layout.length),
            bound=bound,
            iteration=iteration,
            steps=np.array([each.step for each in terms]),
            rows=rows,
            **told,
        )
        opened = [self._layout.unpack(vector, scale, rows) for vector, scale in zip(total, told["scales"], strict=True)]
        resolution = resolution_of(bound, len(self._federation.sites))
        return RoundSums(opened, changed=self._note_changes(), resolution=resolution)

    def settle(self, outcomes: Sequence[Outcome]) -> bool:
        """Open the best points, or have every site write them to a file of its own.

        Whether sites left or joined since the last round: then these are the best points of other rows.
        """
        keep, constants = chosen(outcomes)
        if self._release == "sites":
            self._federation.run("keep_best", keep=keep, constants=constants)
            return self._note_changes()
        shape = (self._problems, self._layout.features + 2)
        holder = next(site for site in self._federation.sites if site in self._told)
        found = self._federation.sum(
            "released", shape=shape, bound=math.inf, keep=keep, constants=constants, holder=holder
        )
        self.weights = found[:, :-1]
        return self._note_changes()

    def _begin(self) -> None:
        """Have the sites that are there stand at 0, with a seed that they share."""
        squares, rows = self._squared_norms()
        self._lever = math.sqrt(squares / rows) or 1.0 if self._intercept else 0.0
        factors = Factors.agreed(self._federation, self._weighting, self._classes)
        self._most, told = factors.largest, factors.told
        if self._scheme != "ovr":
            told["scheme"] = self._scheme
        self._extent = self._bounded(squares, rows)
        self._federation.run(
            "begin_path",
            remember=True,
            prior=self._prior,
            price=self._price,
            lever=self._lever,
            masking=self._masking,
            **told,
        )
        self._federation.run("share_path", holders=list(self._federation.sites))

    def _squared_norms(self) -> tuple[float, float]:
        squares, rows = self._federation.sum("squared_norms", shape=(2,), bound=math.inf)
        return max(float(squares), 0.0), max(float(np.rint(rows)), 1.0)

    def _bounded(self, squares: float, rows: float) -> Extent:
        """With room for what rounding does to bounds."""
        return Extent(
            int(rows), (squares + rows * self._lever**2) * (1 + 1e-9) + 1e-9, self._price * self._most, self._target
        )

    def _note_changes(self) -> bool:
        """Whether sites left or joined since the last time. Those that joined are told where training stands.

        A site that is restarted while others are being told knows nothing in its turn, and must not tell.
        """
        changes, before = self._federation.membership.changes, self._seen
        while self._seen < len(changes):
            for change in changes[self._seen :]:
                self._told -= {*change.left, *change.joined}
                self._seen += 1
            if set(self._federation.sites) - self._told:
                with suppress(MembershipChanged), self._federation.fixed_membership():
                    self._hand_on()
        return self._seen > before

    def _hand_on(self) -> None:
        """Have those that know the path tell it to all."""
        holders = [site for site in self._federation.sites if site in self._told]
        if not holders:
            raise PathLostError("No site is left that knows where training stands; run again.")
        self._federation.run("share_path", holders=holders)
        self._extent = self._bounded(*self._squared_norms())
        self._told = set(self._federation.sites)
