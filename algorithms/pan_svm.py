"""PAN-SVM (Lu 2016, chapter 3): a kernel SVM over horizontal partitions from which no row is sent.

Landmarks stand for the rows in a Nystroem approximation of the kernel; in the feature space that it spans the sites
train a linear SVM by cutting planes, of which the coordinator only ever sees sums over sites and rows.

What the paper overlooks: a sum may have a single term. Near the optimum few rows are on the wrong side of the margin,
and the more groups there are, the more often one of them is alone in its group. The coordinator, which knows the
landmarks, can tell the row from its features. Such sums are counted among the disclosures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from algorithms.features.kernels import Kernel
from algorithms.features.landmarks import Landmarks, LandmarkSite, choose_landmarks
from algorithms.features.nystrom import nystrom_features, nystrom_map
from algorithms.figures import Figures
from algorithms.optimisation.cutting_plane import Solution, Stopping, solve
from algorithms.optimisation.hinge_sums import FederatedOracle, HingeSite, HingeSums
from algorithms.optimisation.line_search import line_search
from federation.arrays import FloatArray
from federation.errors import MembershipChanged
from federation.federation import Federation
from federation.site.program import step

LONE_ROWS_DISCLOSE = (
    "features of a single row, where no other row of its group is on the wrong side of the margin; with the landmarks "
    "they give the row away"
)


@dataclass(frozen=True)
class PanSettings:
    """What a user decides. `landmarks` is a count; C is the price of each row's loss, not divided by n."""

    kernel: Kernel
    C: float
    landmarks: int
    landmark_method: str
    min_cluster_size: int
    groups: int
    tolerance: float
    max_iterations: int
    rank_tolerance: float
    line_search: str
    line_search_step: float
    seed: int


@dataclass(frozen=True)
class PanModel:
    """A trained model: w (m,), b and the map from scaled rows; prediction needs no site.

    bundles: how many bundles of cuts it took; each change of membership during training begins a new one. sites: those
    over whose rows the objective and its bound hold.
    """

    kernel: Kernel
    landmarks: Landmarks
    mapping: FloatArray
    solution: Solution
    bundles: int
    sites: tuple[str, ...]

    def features(self, rows: FloatArray) -> FloatArray:
        """(n, m) features of scaled rows (n, p)."""
        return nystrom_features(self.kernel, rows, self.landmarks.points, self.mapping)

    def decision_values(self, rows: FloatArray) -> FloatArray:
        """(n,) decision values of scaled rows (n, p); positive for the class +1."""
        return np.asarray(self.features(rows) @ self.solution.w + self.solution.b)

    @property
    def figures(self) -> Figures:
        """What a result says of it."""
        return Figures(
            objective=self.solution.objective,
            lower_bound=self.solution.lower_bound,
            gap=self.solution.gap,
            converged=self.solution.converged,
            iterations=self.solution.iterations,
            sites=self.sites,
            bundles=self.bundles,
            landmarks=len(self.landmarks.points),
            records_exposed=self.landmarks.records_exposed,
            rank=self.mapping.shape[1],
        )


class PanSite(HingeSite, LandmarkSite):
    """The site half."""

    @step
    def receive_map(self, kernel: dict[str, Any], landmarks: FloatArray, mapping: FloatArray, groups: int) -> None:
        """Map this site's rows, and assign them at random to the groups of the grouped cuts."""
        features = nystrom_features(Kernel(**kernel), self.rows, landmarks, mapping)
        self.sums = HingeSums.dealt(features, self.labels, groups, self.random("groups"))

    @step
    def squared_norms(self) -> FloatArray:
        """(2,): the sum of the features' squared lengths, from which bounds on later sums follow, and their number."""
        return np.array([float((self.sums.features**2).sum()), float(len(self.sums.features))])


@dataclass(frozen=True)
class Features:
    """Landmarks, and the (l, m) map from a row's kernel values at them to its features."""

    landmarks: Landmarks
    mapping: FloatArray


def choose_features(federation: Federation, settings: PanSettings, rows: dict[str, int], columns: int) -> Features:
    """Choose landmarks from the scaled rows that the sites hold ready, and have the sites map their rows.

    rows: of each site, of `columns` columns.
    """
    with federation.phase("landmarks"):
        landmarks = choose_landmarks(
            federation,
            settings.landmark_method,
            settings.landmarks,
            settings.min_cluster_size,
            rows,
            columns,
            settings.seed,
        )
        mapping = nystrom_map(settings.kernel(landmarks.points, landmarks.points), settings.rank_tolerance)
        # Every site could compute the map from the landmarks, but eigenvectors of repeated eigenvalues differ
        # between linear algebra libraries, and sites with different maps would train nonsense.
        federation.run(
            "receive_map",
            remember=True,
            kernel=settings.kernel.to_fields(),
            landmarks=landmarks.points,
            mapping=mapping,
            groups=settings.groups,
        )
    return Features(landmarks, mapping)


def train(federation: Federation, settings: PanSettings, features: Features) -> PanModel:
    """Train on the features of the live sites' rows, to the certified gap.

    Cuts bound the loss over the rows that they were summed over: when sites leave or join, a new bundle starts from the
    best point so far, and what is certified in the end is so for the sites that are there in the end.
    """
    latest: list[Solution] = []

    def note(iteration: int, solutions: Sequence[Solution]) -> None:
        latest[:] = solutions
        worst = max(solutions, key=lambda solution: solution.gap)
        federation.log_metrics(iteration=iteration, objective=worst.objective, gap=worst.gap)

    with federation.phase("train"):
        bundles = 1
        while True:
            with suppress(MembershipChanged), federation.fixed_membership():
                solution = _solve(federation, settings, features.mapping.shape[1], note, tuple(latest))
                landmarks, mapping = features.landmarks, features.mapping
                return PanModel(settings.kernel, landmarks, mapping, solution, bundles, federation.sites)
            bundles += 1 if latest else 0


def _solve(
    federation: Federation,
    settings: PanSettings,
    dimensions: int,
    note: Callable[[int, Sequence[Solution]], None],
    resume: tuple[Solution, ...],
) -> Solution:
    (solution,) = solve(
        _oracle(federation, settings.groups, dimensions),
        problems=1,
        dimensions=dimensions,
        groups=settings.groups,
        C=settings.C,
        stopping=Stopping(settings.tolerance, settings.max_iterations),
        search=line_search(settings.line_search, settings.line_search_step),
        on_iteration=note,
        resume=resume,
    )
    return solution


def _oracle(federation: Federation, groups: int, dimensions: int) -> FederatedOracle:
    """Bounds on the sums follow from the summed squares of the features, by Cauchy and Schwarz."""
    squares, count = federation.sum("squared_norms", shape=(2,), bound=math.inf)
    rows = round(float(count))

    def disclose(lone: int) -> None:
        if lone:
            federation.disclose("coordinator", "cuts", LONE_ROWS_DISCLOSE, (dimensions,), times=lone)

    return FederatedOracle(federation, groups, rows, math.sqrt(rows * squares) * (1 + 1e-9) + 1.0, disclose)
