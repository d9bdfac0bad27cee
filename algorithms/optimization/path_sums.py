"""The interior point over a federation: where the sites keep the path, one secure sum a round.

A restarted site has lost the path. It adds zeros until another site sends it the point and the sites' common seed. The
other sites keep their dual variables, and no round is lost.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedsvm.algorithms.data.classes import Scheme, members
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.mapped_rows import FeatureRows
from fedsvm.algorithms.features.row_blocks import KeptBlocks, RowBlocks
from fedsvm.algorithms.optimization.barrier import SPREAD, Problem, SecretBarriers
from fedsvm.algorithms.optimization.blocked_problem import BlockedProblem
from fedsvm.algorithms.optimization.interior_point import Extent, NewtonRequest, NoiseSize, Outcome, RoundSums
from fedsvm.algorithms.optimization.joint_barrier import MARGIN_SQUARE, JointProblem
from fedsvm.algorithms.optimization.masking import Mask, Masking, draw_mask
from fedsvm.algorithms.optimization.objective_noise import SiteNoise, draw_noise, noise_size
from fedsvm.algorithms.optimization.path_rounds import (
    BEST_ARGUMENTS,
    BOUNDS,
    MASKED_SHOWS,
    OPEN_SHOWS,
    RELEASE_ARGUMENTS,
    ROUND_ARGUMENTS,
    Layout,
    RoundOrder,
    RowPaths,
)
from fedsvm.algorithms.optimization.weighting import Factors, RowWeights, Weighting, agreement_on_factors
from fedsvm.federation.arrays import FloatArray, IntArray, Residues
from fedsvm.federation.errors import FederationError, MembershipChanged, StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.private_file import replace_private
from fedsvm.federation.site.program import CHECKED, SitePart, free, step
from fedsvm.federation.site.script import Script, either, maybe, repeat, seq, stage
from fedsvm.federation.site.terms import Terms as RunTerms
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols import common_seed
from fedsvm.protocols.ring_broadcast import broadcast_ring

Release = Literal["everyone", "sites"]

_MANY_VALUES = 1 << 19
"""Features of a site from which on they are read in blocks: the cache does not hold them from sum to sum."""


class PathLostError(FederationError):
    """All sites that knew where training stands are gone, or were started again: it has to begin anew."""


@dataclass(frozen=True)
class _Start:
    """The options of `begin_path`: labels (P, n), and a prior (m,) for each problem.

    is_joint: whether all K classes are one problem; labels (K, n) are then those of each class against the others.
    """

    prior: FloatArray
    labels: FloatArray
    prices: FloatArray
    lever: float
    masking: Masking
    is_joint: bool = False

    @property
    def layout(self) -> Layout:
        """The layout of each problem."""
        return layout_of(self.features, len(self.labels) if self.is_joint else 0, intercept=self.lever > 0)

    @property
    def features(self) -> int:
        """m."""
        return int(self.prior.shape[-1])

    @property
    def count(self) -> int:
        """The number of problems."""
        return 1 if self.is_joint else len(self.labels)

    @property
    def told(self) -> int:
        """The number of values that a site receives of the path of each problem."""
        return 1 + (3 if self.masking == "committee" else 2) * self.layout.dimensions

    def joint_problem(self, features: FloatArray) -> JointProblem:
        """Return the joint problem of rows with features (n, m), without noise in its objective."""
        return JointProblem.of_classes(features, members(self.labels), self.prices, intercept=self.lever > 0)

    def problems(self, features: FloatArray | RowBlocks, noise: SiteNoise | None) -> list[Problem]:
        """Return the problems of rows with features (n, m), with noise in their objectives if any."""
        found: list[Problem] = []
        stored: FloatArray | KeptBlocks | RowBlocks = features
        if isinstance(features, np.ndarray) and features.size >= _MANY_VALUES:
            stored = KeptBlocks(features)
        for number, (labels, prior) in enumerate(zip(self.labels, self.priors, strict=True)):
            prices = np.where(labels == 0, 0.0, self.prices)
            if isinstance(stored, np.ndarray):
                posed = Problem.of(stored, labels, prices, prior=prior, lever=self.lever)
            else:
                posed = BlockedProblem.of_blocks(stored, labels, prices, prior=prior, lever=self.lever)
            found.append(posed if noise is None else _with_noise(posed, noise, number))
        return found

    @property
    def priors(self) -> FloatArray:
        """(P, m) of each problem."""
        return np.broadcast_to(self.prior, (len(self.labels), self.features))


def _with_noise(problem: Problem, noise: SiteNoise, number: int) -> Problem:
    """Return a problem with noise in its objective, and with secret barriers of its rows."""
    return replace(problem, tilt=noise.draws[number], barriers=SecretBarriers(noise.key, number))


def layout_of(features: int, joint_classes: int, *, intercept: bool) -> Layout:
    """Return the layout of a problem with so many features; joint_classes: 0 unless it is the joint one."""
    width = features + int(intercept)
    return Layout(joint_classes * width, joint_classes * width) if joint_classes else Layout(width, features)


class NewtonPath(SitePart):
    """The interior point at a site: the paths of its rows, which start at `begin_path`, and the sites' common seed.

    check_problem: raises OrderRefused for a prior or a price that was not agreed on.
    """

    def __init__(
        self,
        site: HorizontalSite,
        rows: FeatureRows,
        weights: RowWeights,
        check_problem: Callable[[FloatArray, float], None],
    ) -> None:
        self._site, self._rows, self._weights, self._check_problem = site, rows, weights, check_problem
        self.seed: Residues | None = None
        self.paths: RowPaths | None = None
        self.noise: SiteNoise | None = None
        self.start = _Start(np.zeros(0), np.zeros((0, 0)), np.zeros(0), 0.0, "none")
        # the iteration and the problems of the last round, as long as no masks are drawn for the next one
        self._last_round: tuple[int, Sequence[int]] | None = None

    @step(
        remembered=True,
        told={
            "prior, price, masking, factors, scheme": CHECKED,
            "lever": free("any number", "a model with another scale of the intercept"),
        },
    )
    def begin_path(
        self,
        prior: FloatArray,
        price: float,
        lever: float,
        masking: Masking,
        factors: Sequence[float] = (),
        scheme: Scheme = "ovr",
    ) -> None:
        """Store how to train: around `prior`, (m,) or (P, m) with one for each problem, at `price` for each row.

        The price is multiplied by the factor of the row's class and by the row's weight, if it has one. The scheme is
        each class against the others, every pair of classes, or all in one problem.
        Raises OrderRefused for another masking, price, prior, factors or scheme than was agreed on.
        """
        self._site.check_agreed(masking=masking)
        self._check_problem(prior, price)
        self._weights.check_factors(factors)
        prices = self._weights.prices(price, factors)
        self.start = _Start(prior, self._site.labels_by(scheme), prices, lever, masking, scheme == "joint")
        self.seed, self.paths, self._last_round = None, None, None

    def work_ahead(self) -> None:
        """Draw the masks of the next round, most of a round's work, while other sites still compute."""
        if self._last_round is not None and self.paths is not None:
            (iteration, problems), self._last_round = self._last_round, None
            self.paths.draw_ahead(problems, iteration + 1)

    @step(
        told={
            "holders": free("sites of the run", "a path that starts at 0 again, by naming a site that lost its own"),
        }
    )
    def share_path(self, holders: list[str]) -> None:
        """Receive the common seed and the points from the first of `holders` that takes part; new points are 0."""
        holder = next((site for site in holders if site in self._site.channel.sites), None)
        if holder is None:
            raise StepRefused("no site is left that knows where training stands; run again")
        start = self.start
        size, count = start.layout.dimensions, start.count
        shape = (1, common_seed.SHAPE[1] + count * start.told)
        told = broadcast_ring(
            self._site.channel, holder, self._own_path() if holder == self._site.site else None, shape
        )
        self.seed, rest = told[:, : common_seed.SHAPE[1]], told[0, common_seed.SHAPE[1] :].view(np.float64)
        problems = self._pose_problems() if self.paths is None else self.paths.problems
        paths = rest.reshape(count, -1)
        points = [
            problem.stand_at(int(path[0]), path[1 : size + 1], path[size + 1 : 2 * size + 1])
            for problem, path in zip(problems, paths, strict=True)
        ]
        if self.paths is None:
            self.paths = RowPaths(problems, points, self._draw)
        else:
            self.paths.hand_over(points)
        if start.masking == "committee":
            for place, path in enumerate(paths):
                self.paths.tell(place, int(path[0]), path[2 * size + 1 :])

    def _pose_problems(self) -> Sequence[Problem]:
        """Return the problems of this site's rows, with the agreed noise in their objectives."""
        start, site = self.start, self._site
        size = float(site.terms.settings.get("objective_noise") or 0.0)
        if start.is_joint:
            rows = start.joint_problem(self._rows.features)
            shape = 1, rows.dimensions
            self.noise = draw_noise(site, size, rows.features, start.labels, rows.prices, shape) if size else None
            return [rows if self.noise is None else replace(rows, tilt=self.noise.draws[0])]
        stored = self._rows.stored
        self.noise = draw_noise(site, size, stored, start.labels, start.prices) if size else None
        return start.problems(stored, self.noise)

    @step(bound=math.inf)
    def noise_sizes(self) -> FloatArray:
        """Return (2,) the size of this site's noise in the objective; see `SiteNoise.sizes`."""
        return np.zeros(2) if self.noise is None else self.noise.sizes

    def _own_path(self) -> Residues:
        """Return the seed, and of each problem the round, the point, the best point, and the next step if sites alone
        know it, as residues."""
        seed = self._site.channel.random(common_seed.SHAPE) if self.seed is None else self.seed
        if self.paths is None:
            told = np.zeros(self.start.count * self.start.told)
        else:
            parts = [np.concatenate([[at.iteration], at.v, at.best]) for at in self.paths.latest]
            if self.start.masking == "committee":
                steps = [self.paths.next_step(k, at.iteration + 1) for k, at in enumerate(self.paths.latest)]
                parts = [np.append(part, step) for part, step in zip(parts, steps, strict=True)]
            told = np.concatenate(parts)
        return np.hstack([seed, told.view(np.uint64)[None, :]])

    def _draw(self, problems: Sequence[int], iteration: int) -> Iterator[Mask | None]:
        """Draw the masks of a round one by one. They are the same at every site."""
        if self.seed is None:
            raise StepRefused("the sites have no common seed yet")
        layout = self.start.layout
        for problem in problems:
            purpose = f"{problem} {iteration}"
            yield draw_mask(self.seed, purpose, layout.dimensions, layout.features, self.start.masking)

    @step(bound=BOUNDS, told=ROUND_ARGUMENTS)
    def newton(self, **order: Any) -> FloatArray:
        """Return (k, length): this site's part of the Newton systems of k problems, or zeros if it knows no path.

        order: the fields of a `RoundOrder`.
        """
        round_ = RoundOrder(**order)
        if self.paths is None:
            return np.zeros((len(round_.problems), self.start.layout.length))
        round_.check(self.paths)
        total = self.paths.sums(round_, keeper=self._site.channel.sites[0] == self._site.site)
        self._last_round = round_.iteration, round_.problems.tolist()
        return total.reshape(len(round_.problems), -1)

    @step(
        bound=math.inf,
        public=True,
        told=RELEASE_ARGUMENTS,
    )
    def released(self, keep: IntArray, constants: IntArray, holder: str) -> FloatArray:
        """Return the (K, m + 2) best weights and intercepts, and a 1, at `holder`; zeros at other sites.

        Where the objective has noise, each site adds a share of a little more. The last point is the best where `keep`
        says so, and a constant is where there is one. A holder that was restarted has them no longer: training goes on,
        and comes here again.
        """
        empty = np.zeros((len(self.start.labels), self.start.features + 2))
        if self.paths is None:
            return empty
        self.paths.drop_masks()
        best = self.best(keep, constants)
        own = np.hstack([best, np.ones((len(best), 1))]) if self._site.site == holder else empty
        if self.noise is not None:
            self._require_noise(self.noise)
            own[:, :-1] += self.noise.released_share(best, len(self._site.channel.sites))
        return own

    def _require_noise(self, noise: SiteNoise) -> None:
        """Raise StepRefused if so many sites are gone that too little of the agreed noise is left."""
        if not noise.has_enough(present := len(self._site.channel.sites)):
            raise StepRefused(
                f"of {noise.sites} sites {present} are left, too few for the agreed noise in the objective; run again "
                "with those that are there"
            )

    @step(told=BEST_ARGUMENTS)
    def keep_best(self, keep: IntArray, constants: IntArray) -> None:
        """Write the weights (K, m) and intercepts (K,) to this site's own file, `model_path` of its settings."""
        if not (path := self._site.settings.get("model_path")):
            raise StepRefused('a site has no file to keep a model in; use algorithm.release = "everyone"')
        if self.paths is None:
            return  # restarted, see `released`
        self.paths.drop_masks()
        best = self.best(keep, constants)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - see replace_private
        replace_private(path, lambda file: np.savez(file, w=best[:, :-1], b=best[:, -1]))

    def best(self, keep: IntArray, constants: IntArray) -> FloatArray:
        """Return (K, m + 1), the best weights and intercepts. Raises StepRefused if no path is known."""
        if self.paths is None:
            raise StepRefused("the site lost the path when it was restarted; run again")
        return np.vstack(self.paths.best(keep, constants))


def newton_path(terms: RunTerms, end: str) -> Script:
    """Return the script of a `FederatedPath`, which a step `end` concludes.

    Rounds that certify nothing do not count among `max_iterations`: the first, one whose matrix is beyond what was
    expected, and some for each change of membership.
    """
    noise = ["noise_sizes"] if terms.settings.get("objective_noise") else []
    begun = stage("squared_norms", agreement_on_factors(terms), "begin_path", "share_path", *noise)
    handed_on = stage("share_path", maybe("squared_norms", *noise))
    round_ = "blind_newton" if terms.settings["masking"] == "committee" else "newton"
    along = repeat(either(round_, handed_on), 1, terms.settings["max_iterations"] + 4, per_change=6)
    return stage(begun, repeat(seq(along, end), 1, 1, per_change=1))


def choose_points(outcomes: Sequence[Outcome]) -> tuple[IntArray, IntArray]:
    """Return which last points are the best, and the constants, each (K,), as sites receive them."""
    keep = np.array([outcome.keep for outcome in outcomes], dtype=np.int64)
    return keep, np.array([outcome.constant for outcome in outcomes], dtype=np.int64)


class FederatedPath:
    """The path of K problems over the sites of a federation, which have their features ready.

    classes, scheme: what the problems are of; see `classes.problems_of`. price: of every row, times what `weighting`
    says. prior (m,), or (P, m): around which w is sought. intercept: whether there is one. release: who has the best
    points in the end. is_noisy: whether the sites add noise to the objective.

    Attributes
    ----------
    weights : FloatArray or None
        (K, m + 1) weights and intercepts, once they are opened to the coordinator.
    mean_square : float
        Of the features' lengths, over all rows.
    """

    mean_square: float

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
        is_noisy: bool = False,
    ) -> None:
        self._federation = federation
        self._is_noisy = is_noisy
        self._classes, self._scheme = classes, scheme
        self._problems = problems
        self._prior, self._price, self._target = prior, price, target
        self._weighting = weighting or Weighting()
        self._intercept, self._masking, self._release = intercept, masking, release
        self._joint_classes = classes if scheme == "joint" else 0
        self._layout = layout_of(prior.shape[-1], self._joint_classes, intercept=intercept)
        self.weights: FloatArray | None = None
        federation.until_stable(self._begin)
        self._seen = len(federation.membership.changes)
        self._told = set(federation.sites)
        self._disclose()

    def _disclose(self) -> None:
        shows = OPEN_SHOWS if self._masking == "none" else MASKED_SHOWS
        self._federation.disclose(COORDINATOR, "newton", shows, (self._layout.length,))

    @property
    def dimensions(self) -> int:
        """Of v."""
        return self._layout.dimensions

    def extent(self) -> Extent:
        """Return bounds on the present rows; rows that left do not change them."""
        return self._extent

    def sums(self, iteration: int, terms: Sequence[NewtonRequest], *, wide: bool) -> RoundSums:
        """Run one secure sum."""
        round_ = RoundOrder.of(iteration, terms, self._extent.rows)
        in_rows = replace(round_, steps=round_.steps.reshape(len(terms), -1))
        shape = (len(terms), self._layout.length)
        found = in_rows.opened(self._federation, "newton", [self._layout] * len(terms), shape, wide=wide)
        return replace(found, changed=self._note_changes())

    def settle(self, outcomes: Sequence[Outcome]) -> bool:
        """Open the best points, or have every site write them to a file of its own.

        Whether sites left or joined since the last round: then these are the best points of other rows.
        """
        keep, constants = choose_points(outcomes)
        if self._release == "sites":
            self._federation.run("keep_best", keep=keep, constants=constants)
            return self._note_changes()
        shape = (self._joint_classes or self._problems, self._prior.shape[-1] + 2)
        holder = next(site for site in self._federation.sites if site in self._told)
        found = self._federation.sum(
            "released", shape=shape, bound=math.inf, public=True, keep=keep, constants=constants, holder=holder
        )
        self.weights = found[:, :-1]
        return self._note_changes()

    @property
    def noise(self) -> NoiseSize:
        """The size of the noise in the objective, as the sites last told it."""
        return self._extent.noise

    def _begin(self) -> None:
        """Start the present sites at 0, with a seed that they share."""
        squares, rows = self._squared_norms()
        self.mean_square = squares / rows
        lever = 1.0 if self._joint_classes else math.sqrt(self.mean_square) or 1.0
        self._lever = lever if self._intercept else 0.0
        factors = Factors.agreed(self._federation, self._weighting, self._classes)
        self._most, told = factors.largest, factors.told
        if self._scheme != "ovr":
            told["scheme"] = self._scheme
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
        self._extent = self._bound_with_margin(squares, rows)

    def _squared_norms(self) -> tuple[float, float]:
        squares, rows = self._federation.sum("squared_norms", shape=(2,), bound=math.inf)
        return max(float(squares), 0.0), max(float(np.rint(rows)), 1.0)

    def _bound_with_margin(self, squares: float, rows: float) -> Extent:
        """Return bounds with a margin for rounding, and those of the noise, for which the sites are asked."""
        bound = (squares + rows * self._lever**2) * (1 + 1e-9) + 1e-9
        bound *= MARGIN_SQUARE if self._joint_classes else 1.0
        spread = SPREAD if self._is_noisy and not self._joint_classes else 1.0
        return Extent(int(rows), bound, self._price * self._most, self._target, self._noise_size(), spread)

    def _noise_size(self) -> NoiseSize:
        if not self._is_noisy:
            return NoiseSize()
        sizes = self._federation.sum("noise_sizes", shape=(2,), bound=math.inf)
        return noise_size(np.asarray(sizes), self._layout.features)

    def _note_changes(self) -> bool:
        """Return whether sites left or joined since the last call. New ones receive the path.

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
        """Send the path from the sites that know it to all."""
        holders = [site for site in self._federation.sites if site in self._told]
        if not holders:
            raise PathLostError("No site is left that knows where training stands; run again.")
        self._federation.run("share_path", holders=holders)
        self._extent = self._bound_with_margin(*self._squared_norms())
        self._told = set(self._federation.sites)
