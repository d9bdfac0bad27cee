"""PAN-SVM (Lu 2016, chapter 3): a kernel SVM over horizontal partitions from which no row is sent.

Landmarks stand for the rows in a Nystroem approximation of the kernel; in the feature space that it spans the sites
train a linear SVM by cutting planes, of which the coordinator only ever sees sums over sites and rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from algorithms.cutting_plane import Solution, Stopping, solve
from algorithms.kernels import Kernel
from algorithms.landmarks import Landmarks, LandmarkSite, choose_landmarks
from algorithms.nystrom import nystrom_features, nystrom_map
from federation.arrays import FloatArray, IntArray
from federation.coordinator import Federation
from federation.program import step
from protocols.line_search import line_search


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
    """A trained model: w (m,), b and the map from scaled rows; prediction needs no site."""

    kernel: Kernel
    landmarks: Landmarks
    mapping: FloatArray
    solution: Solution

    def features(self, rows: FloatArray) -> FloatArray:
        """(n, m) features of scaled rows (n, p)."""
        return nystrom_features(self.kernel, rows, self.landmarks.points, self.mapping)

    def decision_values(self, rows: FloatArray) -> FloatArray:
        """(n,) decision values of scaled rows (n, p); positive for the class +1."""
        return np.asarray(self.features(rows) @ self.solution.w + self.solution.b)


class PanSite(LandmarkSite):
    """The site half."""

    @step
    def receive_map(self, kernel: dict[str, Any], landmarks: FloatArray, mapping: FloatArray, groups: int) -> None:
        """Map this site's rows, and assign them at random to the groups of the grouped cuts."""
        self.features = nystrom_features(Kernel(**kernel), self.rows, landmarks, mapping)
        rows = len(self.features)
        self.groups = (self.random.permutation(rows) + self.random.integers(groups)) % groups
        self.group_members = np.eye(groups)[:, self.groups]

    @step
    def squared_norms(self) -> FloatArray:
        """Sum of the squared lengths of the features, from which bounds on later sums follow."""
        return np.array(float((self.features**2).sum()))

    @step
    def cuts(self, problems: IntArray, w: FloatArray, b: FloatArray) -> FloatArray:
        """(k, g, m + 2) per problem and group: a = sum c y f, d = sum c y, m = sum c (algorithm 2, lines 4 to 7)."""
        y = self.labels[problems]
        c = y * (w @ self.features.T + b[:, None]) < 1
        cy = c * y
        rows = np.empty((len(problems), self.group_members.shape[0], self.features.shape[1] + 2))
        for k in range(len(problems)):
            rows[k, :, :-2] = (self.group_members * cy[k]) @ self.features
            rows[k, :, -2] = self.group_members @ cy[k]
            rows[k, :, -1] = self.group_members @ c[k]
        return rows

    @step
    def line(
        self,
        problems: IntArray,
        w: FloatArray,
        b: FloatArray,
        dw: FloatArray,
        db: FloatArray,
        steps: FloatArray,
    ) -> FloatArray:
        """(k, s, 2): the loss and its derivative along (dw, db) at each step (algorithm 3, lines 4 to 10)."""
        y = self.labels[problems]
        start = y * (w @ self.features.T + b[:, None])
        slope = y * (dw @ self.features.T + db[:, None])
        slack = 1 - start[:, None, :] - steps[:, :, None] * slope[:, None, :]
        violated = slack > 0
        return np.stack([(slack * violated).sum(axis=2), -(violated * slope[:, None, :]).sum(axis=2)], axis=2)


@dataclass(frozen=True)
class FederatedOracle:
    """The sums of the cutting plane, over a federation. `reach` bounds the summed length of the features."""

    federation: Federation
    groups: int
    rows: int
    reach: float

    def cuts(self, problems: IntArray, w: FloatArray, b: FloatArray) -> FloatArray:
        """One secure sum of grouped cuts; see `PanSite.cuts`."""
        shape = (len(problems), self.groups, w.shape[1] + 2)
        return self.federation.sum("cuts", shape=shape, bound=max(self.rows, self.reach), problems=problems, w=w, b=b)

    def line(
        self,
        problems: IntArray,
        w: FloatArray,
        b: FloatArray,
        dw: FloatArray,
        db: FloatArray,
        steps: FloatArray,
    ) -> FloatArray:
        """One secure sum of losses and derivatives at every step; see `PanSite.line`."""
        margins = self._margin_bound(w, b) + float(np.abs(steps).max()) * self._margin_bound(dw, db)
        bound = max(self.rows + margins, self._margin_bound(dw, db))
        shape = (*steps.shape, 2)
        return self.federation.sum(
            "line", shape=shape, bound=bound, problems=problems, w=w, b=b, dw=dw, db=db, steps=steps
        )

    def _margin_bound(self, w: FloatArray, b: FloatArray) -> float:
        """No sum over rows of |w.f + b| exceeds this."""
        return float((np.linalg.norm(w, axis=1) * self.reach + np.abs(b) * self.rows).max())


def train(federation: Federation, settings: PanSettings, rows: dict[str, int], columns: int) -> PanModel:
    """Train on the rows that the sites hold ready, scaled; `rows` at each site, of `columns` columns."""
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
        mapping = nystrom_map(settings.kernel, landmarks.points, settings.rank_tolerance)
        # Every site could compute the map from the landmarks, but eigenvectors of repeated eigenvalues differ
        # between linear algebra libraries, and sites with different maps would train nonsense.
        federation.run(
            "receive_map",
            kernel=settings.kernel.to_fields(),
            landmarks=landmarks.points,
            mapping=mapping,
            groups=settings.groups,
        )
    with federation.phase("train"):
        oracle = _oracle(federation, settings.groups, sum(rows.values()))
        solution = _solve(federation, oracle, settings, mapping.shape[1])
    return PanModel(settings.kernel, landmarks, mapping, solution)


def _oracle(federation: Federation, groups: int, rows: int) -> FederatedOracle:
    """Bounds on the sums follow from the summed squares of the features, by Cauchy and Schwarz."""
    squares = float(federation.sum("squared_norms", shape=(), bound=math.inf))
    return FederatedOracle(federation, groups, rows, reach=math.sqrt(rows * squares) * (1 + 1e-9) + 1.0)


def _solve(federation: Federation, oracle: FederatedOracle, settings: PanSettings, dimensions: int) -> Solution:
    def note(iteration: int, solutions: Sequence[Solution]) -> None:
        worst = max(solutions, key=lambda solution: solution.gap)
        federation.note(iteration=iteration, objective=worst.objective, gap=worst.gap)

    (solution,) = solve(
        oracle,
        problems=1,
        dimensions=dimensions,
        groups=settings.groups,
        C=settings.C,
        stopping=Stopping(settings.tolerance, settings.max_iterations),
        search=line_search(settings.line_search, settings.line_search_step),
        on_iteration=note,
    )
    return solution
