"""PAN-SVM (Lu 2016, chapter 3): a kernel SVM over horizontal partitions from which no row is sent.

Landmarks stand for the rows in a Nystroem approximation of the kernel; in the feature space that it spans the sites
train a linear SVM by cutting planes, of which the coordinator only ever sees sums over sites and rows.

What the paper overlooks: a sum may have a single term. Near the optimum few rows are on the wrong side of the margin,
and the more groups there are, the more often one of them is alone in its group; and two cuts of a group may differ by a
single row. The coordinator, which knows the landmarks, can tell the row from its features. Such sums and such rows are
counted among the disclosures, and what else a whole run gives away `attacks` find out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from algorithms.attacks.cluster_rounds import ClusterRounds
from algorithms.attacks.contract import Attack
from algorithms.attacks.cut_differences import CutDifferences, Points, pair_differences, single_rows
from algorithms.attacks.finite_domain import FiniteDomain
from algorithms.attacks.landmark_copies import LandmarkCopies
from algorithms.attacks.support_rows import SupportRows
from algorithms.contract import (
    Arrays,
    EvaluationRows,
    HorizontalAlgorithm,
    Model,
    Pooled,
    Remark,
    TrainingReport,
)
from algorithms.data.horizontal import HorizontalTask, Prepared
from algorithms.data.scaling import Scale
from algorithms.features.inversion import FeatureMap
from algorithms.features.kernels import Kernel, KernelSettings
from algorithms.features.landmarks import Landmarks, LandmarkSite, choose_landmarks, landmark_count
from algorithms.features.nystrom import nystrom_features, nystrom_map
from algorithms.optimisation import libsvm
from algorithms.optimisation.cutting_plane import CuttingPlaneSettings, Solution, Stopping, solve
from algorithms.optimisation.hinge_sums import FederatedOracle, HingeSite, HingeSums
from algorithms.optimisation.line_search import line_search
from algorithms.settings import Count, Positive, Share, ShareOrCount, doc
from federation.arrays import FloatArray
from federation.disclosures import Kind
from federation.federation import Federation
from federation.site.program import step
from protocols.analysis.views import Coalition

SINGLETON_CUTS = (
    "features of a single row, where no other row of its group is on the wrong side of the margin; with the landmarks "
    "they give the row away"
)
CUTS_THAT_DIFFER = (
    "features of a single row, by which two cuts of its group differ; with the landmarks they give the row away"
)


@dataclass
class PanSettings(KernelSettings, CuttingPlaneSettings):
    """What a user decides."""

    C: Annotated[Positive, doc("Penalty of each row's hinge loss, not divided by their number.")] = 1.0
    _: KW_ONLY
    landmarks: Annotated[ShareOrCount, doc("How many points stand for the rows: a share of the rows, or a count.")] = (
        0.25
    )
    landmark_method: Annotated[Literal["local", "global"], doc("k-means at each site, or over all sites by sums.")] = (
        "local"
    )
    min_cluster_size: Annotated[
        Count, doc("Rows that a landmark is the mean of, at least; 3 keeps single records from being shown.")
    ] = 1
    rank_tolerance: Annotated[Share, doc("Eigenvalues below this share of the largest are dropped.")] = 1e-10
    line_search: Annotated[
        Literal["grid", "fixed-step"], doc("All steps in one round, or the paper's, one round each.")
    ] = "grid"
    line_search_step: Annotated[Positive, doc("Of fixed-step: the paper's lambda.")] = 0.1


@dataclass(frozen=True)
class PanModel(Model):
    """A trained model: w (m,), b and the map from scaled rows; prediction needs no site.

    landmarks (l, p), mapping (l, m). training: how it went; None of a model that was read from a file.
    """

    kernel: Kernel
    landmarks: FloatArray
    mapping: FloatArray
    w: FloatArray
    b: float
    training: TrainingReport | None = None

    def features(self, rows: FloatArray) -> FloatArray:
        """(n, m) features of scaled rows (n, p)."""
        return nystrom_features(self.kernel, rows, self.landmarks, self.mapping)

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """(n,) decision values of scaled rows (n, p); positive for the class +1."""
        return np.asarray(self.features(rows) @ self.w + self.b)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """`landmarks`, `map`, `w`, `b` and the kernel."""
        arrays = {"landmarks": self.landmarks, "map": self.mapping, "w": self.w, "b": np.array(self.b)}
        return {**arrays, **self.kernel.to_arrays()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """The model in a file."""
        kernel = Kernel.from_arrays(arrays)
        return cls(kernel, arrays["landmarks"], arrays["map"], arrays["w"], float(arrays["b"]))

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """`landmarks_` (l, p), scaled, `dual_coef_` (1, l), `intercept_` (1,); of a linear kernel `coef_` (1, p)."""
        weights = (self.mapping @ self.w)[None, :]
        shown = {"landmarks_": self.landmarks, "dual_coef_": weights, "intercept_": np.array([self.b])}
        return shown if self.kernel.name != "linear" else shown | scaling.linear(weights @ self.landmarks, self.b)


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

    kernel: Kernel
    landmarks: Landmarks
    mapping: FloatArray


class PanSvm(HorizontalAlgorithm[PanSettings, PanModel]):
    """A kernel SVM over sites that hold rows, none of which leaves its site (PAN-SVM; Lu 2016, chapter 3)."""

    name = "pan-svm"
    estimator = "PanSVC"
    phases = ("setup", "landmarks", "train")
    Settings, Site, Model = PanSettings, PanSite, PanModel
    figures = {
        "landmarks": "points that stand for the rows",
        "rank": "features of a row",
        "records_exposed": "landmarks that are a single row's copy",
        "bundles": "bundles of cuts; each change of membership during training begins a new one",
    }

    def fit(self, federation: Federation, task: HorizontalTask, settings: PanSettings) -> PanModel:
        """Features from the sites' rows, then training on them; sites lost before training begin it all anew."""
        features = federation.until_stable(
            lambda: choose_features(federation, settings, task.prepare(federation), task.seed)
        )
        return train(federation, settings, features)

    def pooled(self, model: PanModel, settings: PanSettings, rows: EvaluationRows) -> Pooled:
        """LIBSVM on pooled, scaled rows: the same problem in the same features, and the exact kernel.

        The first must give the same optimum as the federation; the second says what the landmarks cost.
        """
        train_features, test_features = model.features(rows.train.rows), model.features(rows.test.rows)
        linear = libsvm.linear(train_features, rows.train.labels, settings.C)
        exact = libsvm.kernel(model.kernel, rows.train.rows, rows.train.labels, settings.C)
        return Pooled(
            scores=linear.decision_function(test_features),
            objective=libsvm.objective(linear, train_features, rows.train.labels, settings.C),
            exact=exact.decision_function(rows.test.rows),
        )

    def attacks(self, settings: PanSettings) -> list[Attack]:
        """On landmarks, on cuts, and on what the trained point is made of."""
        return [LandmarkCopies(), ClusterRounds(), CutDifferences(), FiniteDomain(), SupportRows(settings.C)]

    def remarks(self, settings: PanSettings, coalition: Coalition) -> list[str]:
        """Whose a landmark is, the coordinator and one site know together."""
        if not (coalition.coordinator and coalition.sites and settings.landmark_method == "local"):
            return []
        return [
            f"{coalition.sites[0]} knows the order in which sites fill the table of landmarks, and the coordinator the "
            'table: together they can tell whose each landmark is. algorithm.landmark_method = "global" avoids that.'
        ]


def choose_features(federation: Federation, settings: PanSettings, prepared: Prepared, seed: int) -> Features:
    """Choose landmarks from the scaled rows that the sites hold ready, and have the sites map their rows."""
    kernel = settings.kernel_of(prepared.columns)
    with federation.phase("landmarks"):
        landmarks = choose_landmarks(
            federation,
            settings.landmark_method,
            landmark_count(settings.landmarks, prepared.rows),
            settings.min_cluster_size,
            prepared.site_rows,
            prepared.columns,
            seed,
        )
        mapping = nystrom_map(kernel(landmarks.points, landmarks.points), settings.rank_tolerance)
        # Every site could compute the map from the landmarks, but eigenvectors of repeated eigenvalues differ
        # between linear algebra libraries, and sites with different maps would train nonsense.
        federation.run(
            "receive_map",
            remember=True,
            kernel=kernel.to_fields(),
            landmarks=landmarks.points,
            mapping=mapping,
            groups=settings.cut_groups,
        )
    return Features(kernel, landmarks, mapping)


def train(federation: Federation, settings: PanSettings, features: Features) -> PanModel:
    """Train on the features of the live sites' rows, to the certified gap.

    Cuts bound the loss over the rows that they were summed over: when sites leave or join, a new bundle starts from the
    best point so far, and what is certified in the end is so for the sites that are there in the end.
    """
    latest: list[Solution] = []
    bundles = 0

    def note(iteration: int, solutions: Sequence[Solution]) -> None:
        latest[:] = solutions
        worst = max(solutions, key=lambda solution: solution.gap)
        federation.log_metrics(iteration=iteration, objective=worst.objective, gap=worst.gap)

    def bundle() -> Solution:
        nonlocal bundles
        bundles += 1 if latest or not bundles else 0
        opened = _OpenedCuts(federation, FeatureMap(features.kernel, features.landmarks.points, features.mapping))
        try:
            (solution,) = solve(
                _oracle(federation, settings.cut_groups, features.mapping.shape[1], opened.take),
                problems=1,
                dimensions=features.mapping.shape[1],
                groups=settings.cut_groups,
                C=settings.C,
                stopping=Stopping(settings.tolerance, settings.max_iterations),
                search=line_search(settings.line_search, settings.line_search_step),
                on_iteration=note,
                resume=tuple(latest),
            )
        finally:  # what was opened was shown, whatever came of it
            opened.disclose()
        return solution

    with federation.phase("train"):
        solution = federation.until_stable(bundle)
    points = features.landmarks.points
    report = _report(solution, features, bundles, federation)
    return PanModel(features.kernel, points, features.mapping, solution.w, solution.b, report)


def _oracle(
    federation: Federation,
    groups: int,
    dimensions: int,
    on_cuts: Callable[[FloatArray, FloatArray, FloatArray], None],
) -> FederatedOracle:
    """Bounds on the sums follow from the summed squares of the features, by Cauchy and Schwarz."""
    squares, count = federation.sum("squared_norms", shape=(2,), bound=math.inf)
    rows = round(float(count))
    return FederatedOracle(federation, groups, rows, math.sqrt(rows * squares) * (1 + 1e-9) + 1.0, on_cuts)


class _OpenedCuts:
    """The cuts of one bundle, and what of single rows is to be disclosed of them.

    Of single rows are: every cut of a group in which one row is active; and every row that is the difference of two
    cuts of one group, each row once, recognised as the coordinator would: features computed again from it are those
    that were seen, and it is active at the one point and not at the other (`cut_differences.single_rows`).
    """

    def __init__(self, federation: Federation, features: FeatureMap) -> None:
        self._federation, self._features = federation, features
        self._rounds: list[tuple[FloatArray, FloatArray, FloatArray]] = []

    def take(self, w: FloatArray, b: FloatArray, cuts: FloatArray) -> None:
        """A round's points w (k, m), b (k,), and grouped cuts (k, g, m + 2)."""
        self._rounds.append((w, b, cuts))

    def disclose(self) -> None:
        """Write down what they show."""
        if not self._rounds:
            return
        w, b, cuts = (np.concatenate(each) for each in zip(*self._rounds, strict=True))
        alone = int(np.count_nonzero(np.rint(cuts[..., -1]) == 1))
        differ = sum(
            len(single_rows(Points(w, b), pair_differences(of_group), self._features).labels)
            for of_group in cuts.transpose(1, 0, 2)
        )
        self._disclose(SINGLETON_CUTS, alone, "single-row")
        self._disclose(CUTS_THAT_DIFFER, differ, "row-difference")

    def _disclose(self, detail: str, times: int, kind: Kind) -> None:
        if times:
            shape = (self._features.mapping.shape[1],)
            self._federation.disclose("coordinator", "cuts", detail, shape, times=times, kind=kind)


def _report(solution: Solution, features: Features, bundles: int, federation: Federation) -> TrainingReport:
    """What a result says of the model."""
    count, exposed, rank = len(features.landmarks.points), features.landmarks.records_exposed, features.mapping.shape[1]
    copies = f"{exposed} of {count} are a single row's copy (algorithm.min_cluster_size = 3 avoids that)"
    remarks = [Remark("landmarks", copies if exposed else "none is a single row's copy")]
    if bundles > 1:
        remarks.append(Remark("bundles", f"{bundles} of cuts, a new one with each change of who takes part"))
    return TrainingReport(
        sites=federation.sites,
        description=f"{count} landmarks, rank {rank}",
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        gap=solution.gap,
        iterations=solution.iterations,
        converged=solution.converged,
        figures={"landmarks": count, "rank": rank, "records_exposed": exposed, "bundles": bundles},
        remarks=tuple(remarks),
    )
