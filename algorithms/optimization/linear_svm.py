"""A linear SVM on features that the sites have ready, by the solver of the user's choice.

    min over w, b of  1/2 |w|^2 + C sum_i max(0, 1 - y_i (w.f_i + b)).

The interior point (see `interior_point`) is ours: few rounds, sums over all rows with positive weights, masks that
blind the coordinator. The cutting plane (see `cutting_plane`) is the paper's, and shows it every point and cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from fedsvm.algorithms.data.classes import problems_of
from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.optimization import cutting_plane, interior_point, libsvm
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.blind_path import BlindPath
from fedsvm.algorithms.optimization.cutting_plane import Points, Taken
from fedsvm.algorithms.optimization.duration_forecast import Work
from fedsvm.algorithms.optimization.hinge_sums import FederatedOracle
from fedsvm.algorithms.optimization.interior_point import Outcome
from fedsvm.algorithms.optimization.joint_hinge import JointOracle
from fedsvm.algorithms.optimization.line_search import MAX_STEPS, line_search
from fedsvm.algorithms.optimization.linear_svm_settings import LinearSvmSettings, resolve_solver
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.masking import Dither, dither_seed
from fedsvm.algorithms.optimization.path_sums import FederatedPath, PathLostError, newton_path
from fedsvm.algorithms.optimization.solution import Certificate, Solution, StoppingRule
from fedsvm.algorithms.optimization.weighting import Weighting
from fedsvm.algorithms.remarks import Remark
from fedsvm.algorithms.settings import MAX_COUNT
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.disclosures import Kind
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.script import Script, either, maybe, repeat, seq, stage
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR

SINGLETON_CUTS = (
    "features of a single row, where no other row of its group is on the wrong side of the margin; with the "
    "map that all know they give the row away"
)


CUTS_THAT_DIFFER = (
    "features of a single row, by which two cuts of its group differ; with the public feature map they reveal the row"
)


_MOST_NOISE = 0.75
"""The share of the objective that the noise in it may make up without a remark."""

TOO_NOISY = (
    "with this C the noise in the objective outweighs the losses, and the model may be less accurate; set a smaller "
    "algorithm.C or algorithm.objective_noise"
)

_MIN_GROUP_ROWS = 8
"""Of the smallest of more than two classes: of letter's 1,600 rows and 6 groups 0.2 % of the cuts are then a row's, and
with 32 groups 15 %."""

_ONE_CLASS = "all training rows have one class, so the model predicts it for every row"
_CONSTANT = "{} of {} problems have rows of one class only, and nothing to learn"
_HALVED = "halved to {:.3g} when the gap stood still; algorithm.step_noise_floor keeps more of it"
_STALLED = "stopped training at a gap of {:.2g}; lower algorithm.{} for a smaller gap and less noise"

SINGLETON_BLOCKS = (
    "features of a single row, which alone is in a group's block of a class; with the map that all know they give the "
    "row away"
)

BLOCKS_THAT_DIFFER = (
    "features of a single row, by which two blocks of its group and a class differ; with the map that all know they "
    "give the row away"
)

OnCuts = Callable[[Taken], None]
"""Is called with the cuts of each round."""


def _solver_of(terms: Terms) -> str:
    settings = terms.settings
    weighted = settings.get("class_weight") is not None or bool(terms.reading.get("weight"))
    return resolve_solver(str(settings.get("solver")), str(settings.get("release")), weighted=weighted)


def training(terms: Terms) -> Script:
    """Return the script of `train_linear` by the agreed solver, or by the one that is found to be faster."""
    settings, solver = terms.settings, _solver_of(terms)
    by_path = newton_path(terms, "keep_best" if settings["release"] == "sites" else "released")
    counted = maybe("class_counts")
    by_cuts = seq(counted, _cutting_planes(terms))
    if solver == "auto":
        return seq(counted, "squared_norms", either(by_path, by_cuts))
    return by_path if solver == "interior-point" else by_cuts


def _cutting_planes(terms: Terms) -> Script:
    """Return the script of `_by_cutting_planes`: each iteration searches along a line, then may order cuts."""
    settings = terms.settings
    tried = 1 if settings["line_search"] == "grid" else MAX_STEPS
    if settings["multiclass"] == "joint":
        deal, first, line, cuts = "deal_joint_groups", repeat("joint_cuts", 1, 2), "joint_line", "joint_cuts"
    else:
        deal, first, line, cuts = "deal_groups", seq("starting_sums", maybe("cuts")), "line", "cuts"
    iteration = seq(repeat(line, 1, tried), maybe(cuts))
    return seq(deal, stage("squared_norms", first, repeat(iteration, 0, settings["max_iterations"])))


@dataclass(frozen=True)
class LinearTraining:
    """The result of training: certificates, one for each problem, and weights and intercepts (P, m + 1).

    weights: None if the sites keep them. figures and remarks: what a result reports in addition to the certificates.
    mean_square: of the features' lengths, over all rows.
    """

    certificates: tuple[Certificate, ...]
    weights: FloatArray | None
    figures: dict[str, Any] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    mean_square: float | None = None


@dataclass(frozen=True)
class RowsTold:
    """The number of single rows that a group's cuts reveal to whoever sees them; none for maps that are not inverted.

    differences: the number of rows by which cuts (T, m + 2) at some points differ. blocks: the number of blocks of
    joint cuts (T, K m' + 1) at points (T, K m') that are of one row, and the number of further rows by which two
    blocks differ; given K.
    """

    differences: Callable[[Points, FloatArray], int] = lambda points, cuts: 0
    blocks: Callable[[FloatArray, FloatArray, int], tuple[int, int]] = lambda points, cuts, classes: (
        2 * int(np.count_nonzero(np.rint(cuts[:, -1]) == 1)),
        0,
    )


NOTHING_TOLD = RowsTold()


def train_linear(
    federation: Federation,
    settings: LinearSvmSettings,
    features: int,
    rows_told: RowsTold = NOTHING_TOLD,
    weighting: Weighting | None = None,
    classes: int = 2,
    conditions: Conditions | None = None,
) -> LinearTraining:
    """Train on the live sites' rows of so many features, to the certified gap. weighting: of the interior point only.

    classes: how many there are. All binary problems are in the same rounds, which each leaves when it is done.
    conditions: of the network, by which `solver = "auto"` chooses.
    What is certified in the end is so for the rows of the sites that are there in the end. Raises FederationError where
    too few sites are left, or a step cannot be computed.
    """
    weighting = weighting or Weighting()
    if settings.solver == "auto":
        settings, remark = _faster(federation, settings, features, weighting, classes, conditions or Conditions())
        found = train_linear(federation, settings, features, rows_told, weighting, classes)
        return replace(found, remarks=(remark, *found.remarks))
    if settings.solver == "interior-point":
        return _by_interior_point(federation, settings, features, weighting, classes)
    return _by_cutting_planes(federation, settings, features, rows_told, classes)


def _faster(
    federation: Federation,
    settings: LinearSvmSettings,
    features: int,
    weighting: Weighting,
    classes: int,
    conditions: Conditions,
) -> tuple[LinearSvmSettings, Remark]:
    """Return settings with the solver that is predicted to be faster with these groups, and a remark.

    Where the sites keep the weights, or rows have some, there is one that can.
    """
    if settings.release == "sites" or weighting != Weighting():
        sentence = "interior-point, which alone does what the other settings ask for"
        return replace(settings, solver="interior-point"), Remark("solver", sentence)
    settings = replace(settings, cut_groups=_groups(federation, settings, classes), min_group_rows=1)
    rows = max(1, round(float(federation.sum("squared_norms", shape=(2,), bound=math.inf)[1])))
    problems, weights = settings.problem_shape(features, classes)
    work = Work(rows, weights, problems, settings.cut_groups, len(federation.sites))
    seconds = {
        "interior-point": work.by_interior_point(conditions),
        "cutting-plane": work.by_cutting_planes(conditions),
    }
    told = " and ".join(f"{each:.2g} s by {name}" for name, each in seconds.items())
    solver: Literal["interior-point", "cutting-plane"] = (
        "interior-point" if seconds["interior-point"] <= seconds["cutting-plane"] else "cutting-plane"
    )
    shows = ", which shows the coordinator every point and cut" if solver == "cutting-plane" else ""
    return replace(settings, solver=solver), Remark("solver", f"{solver}{shows}; predicted: {told}")


def _note(federation: Federation, iteration: int, certificates: Sequence[Certificate]) -> None:
    worst = max(certificates, key=lambda certificate: certificate.gap)
    federation.log_metrics(iteration=iteration, objective=worst.objective, gap=worst.gap)


def _by_interior_point(
    federation: Federation, settings: LinearSvmSettings, features: int, weighting: Weighting, classes: int
) -> LinearTraining:
    """Train by the interior point. Leaving sites take their rows with them; returning ones receive the path.

    Training begins anew only where no site is left that knows it, as after all were started again.
    """
    while True:
        with suppress(PathLostError):
            return _along_one_path(federation, settings, features, weighting, classes)


def _along_one_path(
    federation: Federation, settings: LinearSvmSettings, features: int, weighting: Weighting, classes: int
) -> LinearTraining:
    problems = problems_of(classes, settings.multiclass)
    noise, is_blind = settings.step_noise_among(federation.sites), settings.masking == "committee"
    is_joint = classes > 2 and settings.multiclass == "joint"
    posed: dict[str, Any] = {
        "problems": problems,
        "classes": classes,
        "scheme": "ovr" if classes == 2 else settings.multiclass,
        "prior": np.zeros(features),
        "price": settings.C,
        "intercept": settings.intercept,
        "release": settings.release,
        "weighting": weighting,
        "is_noisy": bool(settings.objective_noise),
    }
    if is_blind:
        path: FederatedPath = BlindPath(federation, step_noise=noise, **posed)
    else:
        path = FederatedPath(federation, masking=settings.resolved_masking, **posed)
    outcomes = interior_point.solve(
        path,
        problems=problems,
        dimensions=path.dimensions,
        intercept=settings.intercept and not is_joint,
        stopping=settings.stopping,
        step_noise=0.0 if is_blind else noise,
        step_noise_floor=noise if is_blind else settings.step_noise_floor_among(federation.sites),
        barriers=classes if is_joint else 2,
        dither=Dither(federation.journaled_random("dither", dither_seed)),
        on_iteration=lambda iteration, certificates: _note(federation, iteration, certificates),
        settle=path.settle,
    )
    remarks = []
    if constant := sum(outcome.constant != 0 for outcome in outcomes):
        sentence = _ONE_CLASS if classes == 2 else _CONSTANT.format(constant, problems)
        remarks.append(Remark("one class", sentence))
    remarks += _noise_remarks(outcomes, 0.0 if is_blind else noise, "step_noise" if is_blind else "step_noise_floor")
    certificates = tuple(outcome.certificate for outcome in outcomes)
    if any(path.noise.constant > _MOST_NOISE * each.objective > 0 for each in certificates):
        remarks.append(Remark("objective noise", TOO_NOISY))
    figures = {"objective_noise": settings.objective_noise} if settings.objective_noise else {}
    return LinearTraining(certificates, path.weights, figures, tuple(remarks), path.mean_square)


def _noise_remarks(outcomes: Sequence[Outcome], noise: float, key: str) -> list[Remark]:
    """Return the remark of a result on the noise on the steps. key: the setting that lowers it further."""
    if stalled := [outcome.certificate.gap for outcome in outcomes if outcome.is_stalled]:
        return [Remark("step noise", _STALLED.format(max(stalled), key))]
    least = min(outcome.step_noise for outcome in outcomes)
    return [Remark("step noise", _HALVED.format(least))] if least < noise else []


def _by_cutting_planes(
    federation: Federation, settings: LinearSvmSettings, features: int, rows_told: RowsTold, classes: int
) -> LinearTraining:
    """Train by cutting planes. Cuts bound the loss over the rows that they were summed over.

    When sites leave or join, a new bundle starts from the best point so far.
    """
    latest: list[Solution] = []
    bundles, groups = 0, _groups(federation, settings, classes)
    posed = (_Joint if classes > 2 and settings.multiclass == "joint" else _Binary)(settings, features, classes)

    def note(iteration: int, solutions: Sequence[Solution]) -> None:
        latest[:] = solutions
        _note(federation, iteration, solutions)

    def bundle() -> list[Solution]:
        nonlocal bundles
        bundles += 1 if latest or not bundles else 0
        opened: list[Taken] = []
        oracle = posed.oracle(federation, groups, opened.append)
        try:
            solutions = cutting_plane.solve(
                oracle,
                problems=posed.problems,
                dimensions=posed.dimensions,
                groups=groups,
                C=settings.C,
                stopping=replace(settings.stopping, printed=settings.line_search == "paper"),
                search=line_search(settings.line_search, settings.line_search_step),
                on_iteration=note,
                resume=tuple(latest),
                intercept=posed.intercept,
                first=posed.first(oracle),
            )
        finally:  # what was opened was shown, whatever came of it
            posed.disclose(federation, opened, rows_told)
        return solutions

    posed.deal(federation, groups)
    solutions = federation.until_stable(bundle)
    remarks = []
    if bundles > 1:
        remarks.append(Remark("bundles", f"{bundles} of cuts, a new one with each change of who takes part"))
    return LinearTraining(tuple(solutions), posed.weights(solutions), {"bundles": bundles}, tuple(remarks))


@dataclass(frozen=True)
class _Binary:
    """Cutting planes of two classes, of each class against the others, or of every two: a problem for each."""

    settings: LinearSvmSettings
    features: int
    classes: int

    @property
    def problems(self) -> int:
        return problems_of(self.classes, self.settings.multiclass)

    @property
    def dimensions(self) -> int:
        return self.features

    @property
    def intercept(self) -> bool:
        return self.settings.intercept

    def deal(self, federation: Federation, groups: int) -> None:
        scheme = self.settings.multiclass
        told: dict[str, Any] = {"scheme": scheme} if self.classes > 2 and scheme != "ovr" else {}
        federation.run("deal_groups", remember=True, groups=groups, **told)

    def oracle(self, federation: Federation, groups: int, on_cuts: OnCuts) -> FederatedOracle:
        return FederatedOracle(federation, groups, *_extent(federation), on_cuts)

    def first(self, oracle: FederatedOracle) -> Callable[[], Taken] | None:
        """Return the function that opens the first cuts by sums of each class."""
        scheme, intercept = self.settings.multiclass, self.intercept
        return lambda: oracle.first(self.features, self.classes, scheme, intercept=intercept)

    def disclose(self, federation: Federation, opened: Sequence[Taken], rows_told: RowsTold) -> None:
        """Write down what the cuts of one bundle show of single rows.

        Every cut of a group in which one row is active; and every row that is the difference of two cuts of one group,
        once for each problem whose cuts show it.
        """
        if not opened:
            return
        parts = ((taken.problems, taken.at.w, taken.at.b, taken.cuts) for taken in opened)
        problems, w, b, cuts = (np.concatenate(each) for each in zip(*parts, strict=True))
        alone = int(np.count_nonzero(np.rint(cuts[..., -1]) == 1))
        differ = 0
        for problem in np.unique(problems):
            of = problems == problem
            differ += sum(
                rows_told.differences(Points(w[of], b[of]), of_group) for of_group in cuts[of].transpose(1, 0, 2)
            )
        _disclose_rows(federation, "cuts", cuts.shape[2] - 2, (SINGLETON_CUTS, alone), (CUTS_THAT_DIFFER, differ))

    def weights(self, solutions: Sequence[Solution]) -> FloatArray:
        """Return (P, m + 1) the weights."""
        return np.array([np.append(each.w, each.b) for each in solutions])


@dataclass(frozen=True)
class _Joint(_Binary):
    """Cutting planes of all classes in one problem, whose weights are those of all; an intercept is among them."""

    @property
    def dimensions(self) -> int:
        return self.classes * (self.features + int(self.settings.intercept))

    @property
    def intercept(self) -> bool:
        return False

    def deal(self, federation: Federation, groups: int) -> None:
        federation.run("deal_joint_groups", remember=True, groups=groups, intercept=self.settings.intercept)

    def oracle(self, federation: Federation, groups: int, on_cuts: OnCuts) -> FederatedOracle:
        rows, lengths = _extent(federation)
        return JointOracle(federation, groups, rows, lengths + rows * int(self.settings.intercept), on_cuts)

    def first(self, oracle: FederatedOracle) -> Callable[[], Taken] | None:
        """Return None: the first cuts are opened as all others."""
        return None

    def disclose(self, federation: Federation, opened: Sequence[Taken], rows_told: RowsTold) -> None:
        """Disclose every block that is a single row, and every other row that is a difference of two blocks of a
        class."""
        if not opened:
            return
        points = np.concatenate([taken.at.w for taken in opened])
        cuts = np.concatenate([taken.cuts for taken in opened])
        sums = np.concatenate([-cuts[..., :-2], cuts[..., -1:]], axis=2)
        told = [rows_told.blocks(points, of_group, self.classes) for of_group in sums.transpose(1, 0, 2)]
        alone, differ = (sum(each) for each in zip(*told, strict=True))
        _disclose_rows(
            federation,
            "joint_cuts",
            self.dimensions // self.classes,
            (SINGLETON_BLOCKS, alone),
            (BLOCKS_THAT_DIFFER, differ),
        )

    def weights(self, solutions: Sequence[Solution]) -> FloatArray:
        """Return (K, m + 1) the weights."""
        (found,) = solutions
        weights = found.w.reshape(self.classes, -1)
        return weights if self.settings.intercept else np.column_stack([weights, np.zeros(self.classes)])


def _groups(federation: Federation, settings: LinearSvmSettings, classes: int) -> int:
    """Return the number of groups of rows: at most as many as leave enough rows of every class in each.

    A group with few rows of a class soon has a cut of one of them. Classes without rows have none to show. Of every two
    classes a problem has some 2/K of the rows, and as large a share of the groups.
    """
    at_least = settings.min_group_rows or (1 if classes == 2 else _MIN_GROUP_ROWS)
    if at_least == 1:
        return settings.cut_groups
    counts = np.rint(federation.sum("class_counts", shape=(classes,), bound=float(MAX_COUNT)))
    smallest = int(counts[counts > 0].min(initial=MAX_COUNT))
    groups = max(1, min(settings.cut_groups, smallest // at_least))
    return groups if settings.multiclass != "ovo" or classes == 2 else max(1, round(2 * groups / classes))


def _extent(federation: Federation) -> tuple[int, float]:
    """Return the number of rows, and a bound on the sum of their features' lengths, by Cauchy and Schwarz."""
    squares, count = federation.sum("squared_norms", shape=(2,), bound=math.inf)
    rows = round(float(count))
    return rows, math.sqrt(rows * squares) * (1 + 1e-9) + 1.0


def _disclose_rows(
    federation: Federation, step: str, features: int, alone: tuple[str, int], differ: tuple[str, int]
) -> None:
    """Disclose rows of this many features: those alone in what was opened, and those that are differences."""
    told: list[tuple[tuple[str, int], Kind]] = [(alone, "single-row"), (differ, "row-difference")]
    for (detail, times), kind in told:
        if times:
            federation.disclose(COORDINATOR, step, detail, (features,), times=times, kind=kind)


def pooled_prices(
    settings: LinearSvmSettings, labels: FloatArray, weights: FloatArray | None, classes: tuple[str, ...]
) -> libsvm.Prices:
    """Return C for all rows together, with labels (n,) and weights (n,) if any; or for each of them (n,)."""
    factors = settings.pooled_factors(labels, weights, classes)
    return settings.C if factors is None else settings.C * factors


def pooled_solution(
    settings: LinearSvmSettings, features: FloatArray, labels: FloatArray, prices: libsvm.Prices
) -> tuple[FloatArray, float, float]:
    """Return w (m,), b and the objective on features (n, m) of all rows: by LIBSVM, which always has an intercept."""
    if settings.intercept:
        svm = libsvm.linear(features, labels, prices)
        return svm.coef_[0], float(svm.intercept_[0]), libsvm.objective(svm, features, labels, prices)
    rows = Problem.of(features, labels, prices, lever=0.0)
    (found,) = solve_pooled([rows], StoppingRule(libsvm.POOLED_TOLERANCE, settings.max_iterations))
    return found.w, 0.0, found.objective
