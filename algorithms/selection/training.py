"""Training the SVMs that choose columns, by the solver of the user's choice, many in the same rounds.

The interior point is the default: its coordinator is blind, and learns the weights of each problem alone. It sums
matrices, so that it is for some hundred columns. Cutting planes take thousands, in fewer rounds where many problems are
alike, and show rows: they are sums of rows' columns as they are, and differ by single rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Le

from fedsvm.algorithms.data.columns import column_sets
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization.cutting_plane import RIDGE, Bundle, Penalty, improve, start
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.algorithms.optimization.masking import MaskingSetting
from fedsvm.algorithms.optimization.solution import Solution, StoppingRule
from fedsvm.algorithms.pan_svm import PanSettings
from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.algorithms.selection.moments import class_moments
from fedsvm.algorithms.selection.subset_path import SubsetPaths
from fedsvm.algorithms.selection.subsets import Subset, SubsetOracle, SubsetProblems
from fedsvm.algorithms.settings import Positive, Tolerance, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation

MAX_BLIND_COLUMNS = 300
"""Of more, the matrices of the interior point are too large to be summed."""

MIN_OF_FOLD = 3
"""Rows of a class that an inner fold leaves out, over all sites, on average."""

MAX_BLIND_NUMBERS = 4_000_000
"""Maximum number of values that a site contributes to one sum of the interior point."""


@dataclass
class TrainingSettings(PanSettings):
    """The settings of the SVMs that select columns, in addition to those of PAN-SVM on the selected ones."""

    _: KW_ONLY
    masking: Annotated[
        MaskingSetting,
        doc(
            "How Newton's systems are masked, of the SVMs that select columns and of the model. congruence hides their "
            "eigenvalues up to a factor; orthogonal reveals them; none reveals the systems. committee is congruence "
            "with masks that no site knows: the coordinator needs two of three members to undo them. auto is "
            "congruence: nobody knows before the run how many SVMs it trains."
        ),
    ] = "congruence"
    select_solver: Annotated[
        Literal["interior-point", "cutting-plane"],
        doc(
            "Solver of the SVMs that select columns: interior-point, masked, up to 300 columns; or cutting-plane, "
            "any number, which reveals rows."
        ),
    ] = "interior-point"
    select_penalty: Annotated[Positive, doc("C of the linear SVMs that select columns.")] = 1.0
    select_groups: Annotated[
        int, Ge(1), Le(64), doc("Cuts per round of cutting planes that select columns; more take fewer rounds.")
    ] = 4
    select_tolerance: Annotated[
        Tolerance, doc("Certified relative gap of the SVMs that select columns. Curves use 1e-3.")
    ] = 1e-4
    inner_folds: Annotated[
        int, Ge(2), Le(20), doc("Number of folds of the inner cross-validation that compares sizes and columns.")
    ] = 5


@dataclass(frozen=True)
class ScoredModels:
    """Models, how many of the rows that each left out are right (q,), their loss (q,) and number (q,).

    models: of each its SVM, or of K > 2 classes the K that tell each from the rest.
    """

    models: Sequence[Sequence[Solution]]
    right: FloatArray
    loss: FloatArray
    rows: FloatArray


@dataclass
class SubsetTraining:
    """Problems of columns over the rows of a federation, and how they are trained.

    moments: of the rows. When sites leave or join they are asked for again: other rows have other bounds. landmarks: of
    all columns, for SVMs with the RBF kernel; None for linear ones.
    """

    federation: Federation
    moments: ClassMoments
    settings: TrainingSettings
    landmarks: NystromMap | None = None
    paths: SubsetPaths = field(init=False)
    _changes: int = field(init=False)

    def __post_init__(self) -> None:
        self._changes = len(self.federation.membership.changes)
        self._begin_paths()

    def _begin_paths(self) -> None:
        settings, sites = self.settings, self.federation.sites
        noises = settings.step_noise_among(sites), settings.step_noise_floor_among(sites)
        price = settings.select_penalty if self.landmarks is None else settings.C
        solved = (price, settings.resolved_masking, *noises)
        self.paths = SubsetPaths(self.federation, self.rows, self.squares, *solved)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.moments.counts.sum())

    @property
    def problems(self) -> int:
        """The number of SVMs: one for two classes, and for more one for each."""
        return 1 if len(self.moments.counts) == 2 else len(self.moments.counts)

    @property
    def squares(self) -> float:
        """The sum over the rows of their columns' squares, or a bound on that of their features of the RBF kernel."""
        return float(self.moments.squares.sum()) if self.landmarks is None else float(self.rows)

    def refresh(self) -> None:
        """Ask for the moments again where sites left or joined. Raises MembershipChanged where they do so now."""
        changes = len(self.federation.membership.changes)
        if changes != self._changes:
            classes, columns = self.moments.sums.shape
            self.moments, self._changes = class_moments(self.federation, columns, classes), changes
            self._begin_paths()

    @property
    def is_blind(self) -> bool:
        """True if the interior point trains."""
        return self.settings.select_solver == "interior-point"

    def posed(self, subsets: Sequence[Subset]) -> SubsetProblems:
        """Return problems as sites receive them."""
        numbers = column_sets([each.columns for each in subsets])
        each_set = [self.map_of(subsets[place].columns) for place in np.unique(numbers, return_index=True)[1]]
        maps = [found for number in numbers if (found := each_set[number]) is not None]
        return SubsetProblems(subsets, self.settings.select_groups, self.settings.inner_folds, maps)

    def map_of(self, columns: IntArray) -> NystromMap | None:
        """Return the features of some columns; None of linear SVMs."""
        if self.landmarks is None:
            return None
        kernel, points = self.settings.kernel_of(len(columns)), self.landmarks.landmarks[:, columns]
        return NystromMap.span(kernel, points, self.settings.rank_tolerance)

    def column_weights(self, columns: IntArray, solution: Solution) -> FloatArray:
        """Return (m,) the weight of each column in the model trained last: w, or the sum of alpha y x (equation 5.1).

        Raises MembershipChanged where sites leave or join.
        """
        return solution.w if self.landmarks is None else self.paths.column_weights(len(columns))

    def oracle(self, subsets: Sequence[Subset]) -> SubsetOracle:
        """Return the sums for cutting planes; bounds by Cauchy and Schwarz."""
        norm_sum = math.sqrt(self.rows * self.squares) * (1 + 1e-9) + 1.0
        posed = self.posed(subsets)
        return SubsetOracle(self.federation, posed.groups, self.rows, norm_sum, posed=posed)

    def require_few(self, posed: SubsetProblems) -> None:
        """Raise FederationError for problems that are too large for sums of matrices."""
        widest = max(posed.dimensions)
        numbers = sum((each + 1) * (each + 2) // 2 for each in posed.dimensions)
        if posed.maps and (widest > MAX_BLIND_COLUMNS or numbers > MAX_BLIND_NUMBERS):
            raise FederationError(
                f"{len(posed.maps)} SVMs on up to {widest} features need sums of {numbers} numbers: set fewer "
                'algorithm.landmarks, fewer candidates, or algorithm.wrapper = "linear".'
            )
        if widest > MAX_BLIND_COLUMNS or numbers > MAX_BLIND_NUMBERS:
            raise FederationError(
                f"SVMs on {widest} columns need sums of {numbers} numbers by the interior point: filter the columns "
                'before, have a size that is a count, or set algorithm.select_solver = "cutting-plane", which takes '
                "any number of columns and shows the coordinator rows."
            )

    def require_folds(self) -> None:
        """Raise FederationError for inner folds whose class sums, which cuts show, are of fewer rows than may be."""
        folds = self.settings.inner_folds
        smallest = int(self.moments.counts.min())
        if smallest < MIN_OF_FOLD * folds:
            raise FederationError(
                f"A class of {smallest} rows makes inner folds of fewer than {MIN_OF_FOLD}: lower "
                f"algorithm.inner_folds from {folds}, or have algorithm.size be a count."
            )

    def train(self, subsets: Sequence[Subset], tolerance: float, penalty: Penalty = RIDGE) -> list[Solution]:
        """Train all problems in the same rounds. Raises MembershipChanged where sites leave or join."""
        self.refresh()
        stopping = StoppingRule(tolerance, self.settings.max_iterations)
        if self.is_blind and penalty == RIDGE:
            posed = self.posed(subsets)
            self.require_few(posed)
            return self.paths.solve(posed, stopping)
        oracle, C = self.oracle(subsets), self.settings.select_penalty
        bundles = [Bundle(len(each.columns), self.settings.select_groups, C, penalty=penalty) for each in subsets]
        try:
            start(oracle, bundles)
            return improve(oracle, bundles, stopping, grid_search)
        finally:
            oracle.disclose()

    def judge(self, subsets: Sequence[Subset], tolerance: float) -> ScoredModels:
        """Train on subsets, and count on the rows that each leaves out, anew where sites leave or join."""
        self.require_folds()
        posed = [replace(each, label=label) for each in subsets for label in range(self.problems)]
        return self.federation.until_stable(lambda: self.count(self.train(posed, tolerance)))

    def count(self, solutions: Sequence[Solution]) -> ScoredModels:
        """Judge models of all problems posed last, by the rows that each leaves out. Takes one round."""
        w, b, together = [each.w for each in solutions], np.array([each.b for each in solutions]), self.problems
        longest = max(float(np.linalg.norm(each)) for each in w)
        lengths = math.sqrt(self.rows * self.squares) * (1 + 1e-9) + 1.0
        right, loss, rows = self.federation.sum(
            "held_out_rows",
            shape=(len(solutions) // together, 3),
            bound=together * (self.rows * (1 + float(np.abs(b).max())) + longest * lengths),
            w=np.concatenate(w),
            b=b,
        ).T
        models = [solutions[first : first + together] for first in range(0, len(solutions), together)]
        return ScoredModels(models, np.rint(right), loss, np.rint(rows))


Enough = Callable[[Sequence[Solution]], bool]
"""A function that tells whether models are trained to a small enough gap."""


@dataclass
class ShrinkingSvm:
    """Linear SVMs on fewer and fewer columns, each trained from the state of the one before.

    labels: their number, one for each class that is separated from the rest; one for two classes. If sites leave or
    join during a step, it starts again.
    """

    training: SubsetTraining
    columns: IntArray
    labels: int = 1
    _bundles: list[Bundle] | None = None
    _changes: int = -1
    _kept: IntArray | None = None

    @property
    def _subsets(self) -> list[Subset]:
        return [Subset(self.columns, label=label) for label in range(self.labels)]

    def train(self, tolerances: Sequence[float], enough: Enough) -> list[Solution]:
        """Return the models of the remaining columns, trained to smaller and smaller gaps until one suffices."""
        by_solver = self._by_path if self.training.is_blind else self._by_cuts
        return self.training.federation.until_stable(lambda: by_solver(tolerances, enough))

    def drop(self, removed: IntArray) -> None:
        """Remove some columns, by their numbers."""
        kept = np.flatnonzero(~np.isin(self.columns, removed))
        self.columns = self.columns[kept]
        self._kept = kept if self._kept is not None else None
        self._bundles = [bundle.without(kept) for bundle in self._bundles] if self._bundles is not None else None

    def begin_anew(self) -> None:
        """Forget the state of the rows, since other problems were posed."""
        self._kept = None

    def _has_changed(self) -> bool:
        """Return whether sites left or joined since the last step."""
        changes = len(self.training.federation.membership.changes)
        changed, self._changes = changes != self._changes, changes
        return changed

    def _by_cuts(self, tolerances: Sequence[float], enough: Enough) -> list[Solution]:
        training, settings = self.training, self.training.settings
        training.refresh()
        oracle = training.oracle(self._subsets)
        try:
            if self._has_changed() or self._bundles is None:
                new = (settings.select_groups, settings.select_penalty)
                self._bundles = [Bundle(len(self.columns), *new) for _ in range(self.labels)]
                start(oracle, self._bundles)
            for tolerance in tolerances:
                done = max(bundle.iterations for bundle in self._bundles)
                stopping = StoppingRule(tolerance, done + settings.max_iterations)
                solutions = improve(oracle, self._bundles, stopping, grid_search, done=done)
                if enough(solutions) or not all(solution.converged for solution in solutions):
                    break
            return solutions
        finally:
            oracle.disclose()

    def _by_path(self, tolerances: Sequence[float], enough: Enough) -> list[Solution]:
        training = self.training
        training.refresh()
        posed = training.posed(self._subsets)
        training.require_few(posed)
        paths = training.paths
        kept = None if self._has_changed() or posed.maps else self._kept
        for tolerance in tolerances:
            stopping = StoppingRule(tolerance, training.settings.max_iterations)
            solutions = paths.solve(posed, stopping) if kept is None else paths.solve_without(kept, stopping)
            kept = np.arange(posed.dimensions[0])
            if enough(solutions) or not all(solution.converged for solution in solutions):
                break
        self._kept = kept
        return solutions


def strengths(solutions: Sequence[Solution]) -> FloatArray:
    """Return (m,) the length of each column's weights over all models: |w| for a single one."""
    return np.asarray(np.linalg.norm([solution.w for solution in solutions], axis=0))


def certain_radius(solutions: Sequence[Solution]) -> float:
    """Return a bound on the distance between the weights of all models and those of the optima."""
    return math.sqrt(sum(max(0.0, 2 * (each.objective - each.lower_bound)) for each in solutions))
