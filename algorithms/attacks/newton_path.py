"""The path of a training by the interior point (`optimization.interior_point`), as who knows the masks has it.

Every site does: it is sent each step behind a mask that it draws itself, from the seed that the sites share. So does a
coordinator that a site tells the seed, or one of a run without masks. Whoever knows the path knows the dual variable,
the slope and the pull of every row that it can think of, at every point: they are functions of the path alone.

With a committee, a site receives each step in the clear, and learns more of a system only if two members collude.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedsvm.algorithms.attacks.attack import TWO_CLASSES, BinaryTask
from fedsvm.algorithms.attacks.epochs import Epoch
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.optimization.barrier import DualState, Problem
from fedsvm.algorithms.optimization.blind_path import BlindOrder
from fedsvm.algorithms.optimization.interior_point import Opened
from fedsvm.algorithms.optimization.masking import Mask, Masking, draw_mask
from fedsvm.algorithms.optimization.path_rounds import Layout
from fedsvm.algorithms.optimization.path_sums import layout_of
from fedsvm.algorithms.optimization.weighting import row_prices
from fedsvm.federation.arrays import FloatArray, IntArray, Residues
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols import common_seed
from fedsvm.protocols.analysis.blind_views import opened_sums, received_solutions, systems_of_pair
from fedsvm.protocols.analysis.views import RoundView

EVERYONE = ("every site",)
"""The rows in a system that two members of a committee have: those of all sites, their own too."""

_MOST_KEPT = 300
"""Dimensions of masks that are kept, at most."""


@dataclass(frozen=True)
class PathRound:
    """One round: the step (d,) that led to its point, mu, what sites were told of it, and what was summed.

    sums: by the sites whose rows are in it, as `RoundView.sums`, without masks. dither (d,): the deviation of noise on
    the right-hand side of the equation that leads to the step after this round, if it is there. opened: by the
    coordinator behind a committee.
    """

    step: FloatArray
    mu: float
    keep: bool
    still: bool
    sums: Mapping[tuple[str, ...], RowTotals]
    dither: FloatArray | None = None
    opened: OpenedNumbers | None = None


@dataclass(frozen=True)
class OpenedNumbers:
    """The numbers opened with a round's system: the objective, and the sum of alphas and the rows of each class.

    objective_noise, alpha_noise: the maximum noise of both members together, on the objective and on each sum of
    alphas.
    """

    objective: float
    alphas: FloatArray
    rows: FloatArray
    objective_noise: float
    alpha_noise: float


@dataclass(frozen=True)
class RowTotals:
    """The sums over rows in a round, without the terms that belong to no row: see `barrier.RowSums`.

    gradient: empty where it has noise.
    """

    matrix: FloatArray
    gradient: FloatArray


@dataclass(frozen=True)
class ViewedPath:
    """A training: its rounds, and what makes the rows a problem. rows: how many there are, as sites are told.

    factors: of the price, of the negative and the positive label, where that has one for several classes their mean;
    weights of single rows nobody is told. known: whether the masks are, or there are none.
    """

    prior: FloatArray
    price: float
    lever: float
    rows: int
    rounds: Sequence[PathRound]
    known: bool
    factors: Sequence[float] = (1.0, 1.0)

    @property
    def end(self) -> FloatArray:
        """(m + 1,): w and b of the last point."""
        v: FloatArray = np.sum([each.step for each in self.rounds], axis=0)
        return np.asarray(np.append(v[:-1], self.lever * v[-1]) if self.lever else np.append(v, 0.0))

    @property
    def ridge(self) -> FloatArray:
        """(d,): what 1/2 |w|^2 adds to the diagonal of Newton's system."""
        return np.append(np.ones(len(self.prior)), np.zeros(1 if self.lever else 0))

    def problem(self, epoch: Epoch, rows: LabeledRows) -> Problem | None:
        """Return the problem of unscaled rows, as they would be trained on; None if the map is unknown."""
        if epoch.features is None:
            return None
        features = epoch.features(epoch.scale(rows.rows))
        prices = row_prices(self.price, (rows.labels > 0).astype(np.int64), self.factors, None)
        return Problem.of(features, rows.labels, prices, prior=self.prior, lever=self.lever)

    def standings(self, problem: Problem) -> list[DualState]:
        """Return the state after each round of rows that were present from the beginning."""
        at = np.zeros(problem.dimensions)
        standing, found = DualState.at(problem, 0, at, at), list[DualState]()
        for number, each in enumerate(self.rounds, start=1):
            mus = problem.mus(standing.v + each.step, each.mu)
            standing = standing.move(problem, number, each.step, mus, keep=each.keep, still=each.still)
            found.append(standing)
        return found


def signed_features(problem: Problem) -> FloatArray:
    """Return (n, d) f~ of every row."""
    rows = problem.labels[:, None] * problem.features
    return np.column_stack([rows, problem.lever * problem.labels]) if problem.lever else rows


def newton_paths(epoch: Epoch, posed: BinaryTask = TWO_CLASSES) -> list[ViewedPath]:
    """Return every training of one problem in an epoch.

    Masks that are not known are taken for none, which no sum then agrees with. The joint problem of all classes is not
    binary, and left out.
    """
    return [path for each in trainings(epoch) if not each.is_joint for path in _path(each, posed)]


@dataclass(frozen=True)
class ViewedTraining:
    """The view that a coalition has of a training: its beginning, the seed of the masks if it is known, and rounds."""

    begun: Mapping[str, Any]
    seed: Residues | None
    rounds: Sequence[RoundView]

    @property
    def is_joint(self) -> bool:
        """True if all classes are one problem."""
        return self.begun.get("scheme") == "joint"

    @property
    def is_known(self) -> bool:
        """True if the masks are known, or there are none; the seed says nothing of a committee's."""
        masking = self.begun["masking"]
        return masking == "none" or (masking != "committee" and self.seed is not None)


def trainings(epoch: Epoch) -> list[ViewedTraining]:
    """Return the trainings by the interior point in an epoch that have rounds."""
    found: list[ViewedTraining] = []
    begun: Mapping[str, Any] | None = None
    seed: Residues | None = None
    rounds: list[RoundView] = []
    for each in epoch.rounds:
        if each.step == "begin_path":
            found += _training(begun, seed, rounds)
            begun, seed, rounds = each.parameters, None, []
        elif each.step == "share_path" and seed is None:
            seed = next((array[:, : common_seed.SHAPE[1]] for array in each.heard), None)
        elif each.step in ("newton", "blind_newton"):
            rounds.append(each)
    return [*found, *_training(begun, seed, rounds)]


def _training(
    begun: Mapping[str, Any] | None, seed: Residues | None, rounds: Sequence[RoundView]
) -> list[ViewedTraining]:
    return [] if begun is None or not rounds else [ViewedTraining(begun, seed, rounds)]


def _path(training: ViewedTraining, posed: BinaryTask) -> list[ViewedPath]:
    begun, rounds = training.begun, training.rounds
    if begun["masking"] == "committee":
        return blind_paths(begun, rounds, posed)
    priors, lever = np.atleast_2d(begun["prior"]), begun["lever"]
    prior = priors[posed.number if len(priors) > 1 else 0]
    layout = Layout(len(prior) + int(lever > 0), len(prior))
    found = path_rounds(training, posed.number, layout)
    return _view(begun, prior, rounds, posed, found, known=training.is_known)


def path_rounds(training: ViewedTraining, problem: int, layout: Layout) -> list[PathRound]:
    """Return the rounds of a problem of a training without a committee, with sums behind no mask that is known."""
    begun, seed, found = training.begun, training.seed, list[PathRound]()
    mask: Mask | None = None
    v: FloatArray = np.zeros(layout.dimensions)
    for each in training.rounds:
        told = each.parameters
        place = _place(told["problems"], problem)
        if place is None:
            continue
        step = told["steps"][place] if mask is None else mask.transposed_times(told["steps"][place])
        v += step
        if seed is not None:
            purpose = f"{problem} {told['iteration']}"
            mask = _draw_mask_of_round(seed, purpose, layout, begun["masking"])
        sums = {sites: _totals(layout, total[place], told, place, mask, v) for sites, total in each.sums.items()}
        whole = {sites: total for sites, total in sums.items() if total is not None}
        keep, still = bool(told["keep"][place]), bool(told["still"][place])
        found.append(PathRound(step, float(told["mus"][place]), keep, still, sums=whole))
    return found


def _view(
    begun: Mapping[str, Any],
    prior: FloatArray,
    rounds: Sequence[RoundView],
    posed: BinaryTask,
    found: Sequence[PathRound],
    *,
    known: bool,
) -> list[ViewedPath]:
    if not found:
        return []
    factors = posed.factors(begun["factors"]) if "factors" in begun else (1.0, 1.0)
    rows = int(rounds[-1].parameters["rows"])
    return [ViewedPath(prior, begun["price"], begun["lever"], rows, tuple(found), known, factors)]


def blind_paths(begun: Mapping[str, Any], rounds: Sequence[RoundView], posed: BinaryTask) -> list[ViewedPath]:
    """Return the training behind a committee, as a coalition has it: the path if a site is in it, systems if two
    members are."""
    priors, lever = np.atleast_2d(begun["prior"]), begun["lever"]
    prior = priors[posed.number if len(priors) > 1 else 0]
    found, known = _blind_rounds(rounds, posed.number, Layout(len(prior) + int(lever > 0), len(prior)))
    return _view(begun, prior, rounds, posed, found, known=known)


def joint_end(epoch: Epoch, classes: int) -> FloatArray | None:
    """Return (K, m') the last point of the joint problem's interior point; None if there is none, or its path is
    unknown."""
    jointly = [each for each in trainings(epoch) if each.is_joint]
    rounds = joint_rounds(jointly[-1], classes) if jointly else []
    return np.sum([each.step for each in rounds], axis=0).reshape(classes, -1) if rounds else None


def joint_rounds(training: ViewedTraining, classes: int) -> list[PathRound]:
    """Return the rounds of a training of the joint problem; none if the path is unknown."""
    begun = training.begun
    layout = layout_of(begun["prior"].shape[-1], classes, intercept=begun["lever"] > 0)
    if begun["masking"] == "committee":
        found, known = _blind_rounds(training.rounds, 0, layout)
    else:
        found, known = path_rounds(training, 0, layout), training.is_known
    return found if known else []


def _blind_rounds(rounds: Sequence[RoundView], problem: int, layout: Layout) -> tuple[list[PathRound], bool]:
    """Return the rounds of a problem of a training behind a committee, and whether a site is among those who see it."""
    step: FloatArray = np.zeros(layout.dimensions)
    found, known = list[PathRound](), False
    for each in rounds:
        place = _place(each.parameters["problems"], problem)
        if place is None:
            continue
        order = BlindOrder(**each.parameters)
        taken = np.zeros_like(step) if order.still[place] else step
        sites = {party: lines for party, lines in each.entries.items() if party != COORDINATOR}
        public = order.systems([layout] * len(order.problems))
        systems = systems_of_pair(each.entries, public)
        sums: dict[tuple[str, ...], RowTotals] = {}
        sums |= {} if systems is None else {EVERYONE: _of_system(layout, order, place, systems[place])}
        dither = np.repeat(order.dithers[place], [layout.features, layout.dimensions - layout.features])
        mu, keep, still = float(order.mus[place]), bool(order.keep[place]), bool(order.still[place])
        opened = _opened(layout, order, place, each) if COORDINATOR in each.entries else None
        found.append(PathRound(taken, mu, keep, still, sums=sums, dither=dither, opened=opened))
        if sites:
            known = True
            told = received_solutions(next(iter(sites.values())), public)
            step = told[place][:, 0] * order.solution_unit(place)
    return found, known


def _opened(layout: Layout, order: BlindOrder, place: int, round_: RoundView) -> OpenedNumbers:
    numbers, _ = opened_sums(round_.entries[COORDINATOR], order.systems([layout] * len(order.problems)))[place]
    objective, alphas, rows, _ = np.split(numbers, np.cumsum([1, layout.classes, layout.classes]))
    of_objective, of_alphas, _ = 2 * order.noises[place]
    return OpenedNumbers(
        objective=float(objective[0] * order.scales[place, 2]),
        alphas=alphas * order.scales[place, 3],
        rows=np.rint(rows * order.rows),
        objective_noise=float(of_objective),
        alpha_noise=float(of_alphas),
    )


def _of_system(layout: Layout, order: BlindOrder, place: int, system: FloatArray) -> RowTotals:
    d, m = layout.dimensions, layout.features
    ridge = np.append(np.ones(m), np.zeros(d - m))
    return RowTotals(system[:d, :d] * order.scales[place, 0] - np.diag(ridge), np.zeros(0))


def _draw_mask_of_round(seed: Residues, purpose: str, layout: Layout, masking: Masking) -> Mask | None:
    """Return the mask of a round. Several attacks of several parties ask for it: small ones are kept."""
    if layout.dimensions > _MOST_KEPT:
        return draw_mask(seed, purpose, layout.dimensions, layout.features, masking)
    return _cached_mask(seed.tobytes(), seed.shape, purpose, layout.dimensions, layout.features, masking)


@lru_cache(maxsize=64)
def _cached_mask(
    seed: bytes, shape: tuple[int, ...], purpose: str, dimensions: int, features: int, masking: Masking
) -> Mask | None:
    drawn: Residues = np.frombuffer(seed, dtype=np.uint64).reshape(shape)
    return draw_mask(drawn, purpose, dimensions, features, masking)


def _place(problems: IntArray, problem: int) -> int | None:
    places = np.flatnonzero(problems == problem)
    return int(places[0]) if len(places) else None


def _totals(
    layout: Layout, total: FloatArray, told: Mapping[str, Any], place: int, mask: Mask | None, v: FloatArray
) -> RowTotals | None:
    """Return the sums over rows; None if a matrix was omitted."""
    opened, keepers, overflows = layout.parts(total, told["scales"][place], told["rows"])
    if overflows:
        return None
    opened = opened if mask is None else _unmask(opened, mask)
    ridge = np.zeros(layout.dimensions)
    ridge[: layout.features] = keepers
    return RowTotals(opened.matrix - np.diag(ridge), opened.gradient + ridge * v)


def _unmask(opened: Opened, mask: Mask) -> Opened:
    half = mask.inverse_times(opened.matrix)
    return replace(opened, matrix=mask.inverse_times(half.T), gradient=mask.inverse_times(opened.gradient))
