"""PAN-SVM (Lu 2016, chapter 3): a kernel SVM over horizontal partitions from which no row is sent.

Landmarks stand for the rows in a Nystroem approximation of the kernel; in the feature space that it spans the sites
train a linear SVM by cutting planes, of which the coordinator only ever sees sums over sites and rows. Features that
come from no row (random Fourier features, or the columns themselves) may take the landmarks' place (`features.choice`).

What the paper overlooks: a sum may have a single term. Near the optimum few rows are on the wrong side of the margin,
and the more groups there are, the more often one of them is alone in its group. The coordinator, which knows the
map, can tell the row from its features. Such sums are counted among the disclosures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from algorithms.contract import (
    Arrays,
    Coalition,
    EvaluationRows,
    HorizontalAlgorithm,
    Model,
    Outline,
    Pooled,
    Remark,
    TrainingReport,
)
from algorithms.data.horizontal import HorizontalTask, Prepared
from algorithms.data.scaling import Scale
from algorithms.features.choice import Features, FeatureSettings, choose_features, read_map
from algorithms.features.feature_map import FeatureMap
from algorithms.features.landmarks import LandmarkSite
from algorithms.optimisation import libsvm
from algorithms.optimisation.cutting_plane import CuttingPlaneSettings, Solution, Stopping, solve
from algorithms.optimisation.hinge_sums import FederatedOracle, HingeSite, HingeSums
from algorithms.optimisation.line_search import line_search
from algorithms.settings import Positive, doc
from federation.arrays import FloatArray
from federation.federation import Federation
from federation.site.program import step

SINGLETON_CUTS = (
    "features of a single row, where no other row of its group is on the wrong side of the margin; with the "
    "map that all know they give the row away"
)

_COUNT_ROUNDING = 2.0**-15


@dataclass
class PanSettings(FeatureSettings, CuttingPlaneSettings):
    """What a user decides."""

    C: Annotated[Positive, doc("Penalty of each row's hinge loss, not divided by their number.")] = 1.0
    _: KW_ONLY
    line_search: Annotated[
        Literal["grid", "fixed-step"], doc("All steps in one round, or the paper's, one round each.")
    ] = "grid"
    line_search_step: Annotated[Positive, doc("Of fixed-step: the paper's lambda.")] = 0.1


@dataclass(frozen=True)
class PanModel(Model):
    """A trained model: w (m,), b and the map from scaled rows to features; prediction needs no site.

    training: how it went; None of a model that was read from a file.
    """

    feature_map: FeatureMap
    w: FloatArray
    b: float
    training: TrainingReport | None = None

    def features(self, rows: FloatArray) -> FloatArray:
        """(n, m) features of scaled rows (n, p)."""
        return self.feature_map(rows)

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """(n,) decision values of scaled rows (n, p); positive for the class +1."""
        return np.asarray(self.features(rows) @ self.w + self.b)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """`w`, `b`, and what makes the features; `features` says which they are."""
        return {**self.feature_map.to_arrays(), "w": self.w, "b": np.array(self.b)}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """The model in a file."""
        return cls(read_map(arrays), arrays["w"], float(arrays["b"]))

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Those of the feature map."""
        return self.feature_map.attributes(self.w, self.b, scaling)


class PanSite(HingeSite, LandmarkSite):
    """The site half."""

    @step
    def receive_map(self, groups: int, **feature_map: Any) -> None:
        """Map this site's rows, and assign them at random to the groups of the grouped cuts."""
        features = read_map(feature_map)(self.rows)
        self.sums = HingeSums.dealt(features, self.labels, groups, self.random("groups"))

    @step
    def squared_norms(self) -> FloatArray:
        """(2,): the sum of the features' squared lengths, from which bounds on later sums follow, and their number."""
        return np.array([float((self.sums.features**2).sum()), float(len(self.sums.features))])


class PanSvm(HorizontalAlgorithm[PanSettings, PanModel]):
    """A kernel SVM over sites that hold rows, none of which leaves its site (PAN-SVM; Lu 2016, chapter 3)."""

    name = "pan-svm"
    estimator = "PanSVC"
    phases = ("setup", "landmarks", "train")
    Settings, Site, Model = PanSettings, PanSite, PanModel
    figures = {
        "landmarks": "points that stand for the rows",
        "frequencies": "of random Fourier features",
        "rank": "features of a row",
        "records_exposed": "landmarks that are a single row's copy",
        "bundles": "bundles of cuts; each change of membership during training begins a new one",
    }

    def fit(self, federation: Federation, task: HorizontalTask, settings: PanSettings) -> PanModel:
        """Features from the sites' rows, then training on them; sites lost before training begin it all anew."""
        features = federation.until_stable(lambda: map_rows(federation, settings, task.prepare(federation), task.seed))
        return train(federation, settings, features)

    def problems(self, settings: PanSettings, outline: Outline) -> Iterator[str]:
        """Settings of features that these are not, and kernels that they do not have."""
        return settings.feature_problems()

    def pooled(self, model: PanModel, settings: PanSettings, rows: EvaluationRows) -> Pooled:
        """LIBSVM on pooled, scaled rows: the same problem in the same features, and the exact kernel.

        The first must give the same optimum as the federation; the second says what approximating the kernel costs.
        """
        train_features, test_features = model.features(rows.train.rows), model.features(rows.test.rows)
        linear = libsvm.linear(train_features, rows.train.labels, settings.C)
        exact = None
        if not model.feature_map.exact:
            kernel = libsvm.kernel(model.feature_map.kernel, rows.train.rows, rows.train.labels, settings.C)
            exact = kernel.decision_function(rows.test.rows)
        return Pooled(
            scores=linear.decision_function(test_features),
            objective=libsvm.objective(linear, train_features, rows.train.labels, settings.C),
            exact=exact,
        )

    def sensitive_rows(self, step: str, total: FloatArray) -> FloatArray | None:
        """Centres, and sums over clusters, that are of a single row. Rows of the global method lie on a grid."""
        if step == "local_landmarks":
            return total[_is_one(total[:, -1]), :-1]
        return total[_is_one(total[:, -1]), :-2] if step == "cluster_sums" else None

    def remarks(self, settings: PanSettings, coalition: Coalition) -> list[str]:
        """Whose a landmark is, the coordinator and one site know together; what a site that opens sums has."""
        method = settings.landmark_method if settings.features == "landmarks" else None
        if method == "local" and coalition.coordinator and coalition.sites:
            return [
                f"{coalition.sites[0]} knows the order in which sites fill the table of landmarks, and the coordinator "
                'the table: together they can tell whose each landmark is. algorithm.landmark_method = "global" avoids '
                "that."
            ]
        if method == "global" and coalition.sites:
            return [
                "The site with the fewest rows opens the sums of every round of k-means, and the others learn the "
                "centres: if it colludes, what the coalition does not hold itself is in the differences of these sums."
            ]
        return []


def map_rows(federation: Federation, settings: PanSettings, prepared: Prepared, seed: int) -> Features:
    """Choose the features of the scaled rows that the sites hold ready, and have the sites map their rows."""
    with federation.phase("landmarks"):
        features = choose_features(federation, settings, prepared, seed)
        federation.run("receive_map", remember=True, groups=settings.cut_groups, **features.map.to_fields())
    return features


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
        (solution,) = solve(
            _oracle(federation, settings.cut_groups, features.map.dimensions),
            problems=1,
            dimensions=features.map.dimensions,
            groups=settings.cut_groups,
            C=settings.C,
            stopping=Stopping(settings.tolerance, settings.max_iterations),
            search=line_search(settings.line_search, settings.line_search_step),
            on_iteration=note,
            resume=tuple(latest),
        )
        return solution

    with federation.phase("train"):
        solution = federation.until_stable(bundle)
    return PanModel(features.map, solution.w, solution.b, _report(solution, features, bundles, federation))


def _oracle(federation: Federation, groups: int, dimensions: int) -> FederatedOracle:
    """Bounds on the sums follow from the summed squares of the features, by Cauchy and Schwarz."""
    squares, count = federation.sum("squared_norms", shape=(2,), bound=math.inf)
    rows = round(float(count))

    def disclose(singletons: int) -> None:
        if singletons:
            federation.disclose(
                "coordinator", "cuts", SINGLETON_CUTS, (dimensions,), times=singletons, kind="single-row"
            )

    return FederatedOracle(federation, groups, rows, math.sqrt(rows * squares) * (1 + 1e-9) + 1.0, disclose)


def _report(solution: Solution, features: Features, bundles: int, federation: Federation) -> TrainingReport:
    """What a result says of the model."""
    remarks = [Remark(name, sentence) for name, sentence in features.remarks.items()]
    if bundles > 1:
        remarks.append(Remark("bundles", f"{bundles} of cuts, a new one with each change of who takes part"))
    return TrainingReport(
        sites=federation.sites,
        description=features.description,
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        gap=solution.gap,
        iterations=solution.iterations,
        converged=solution.converged,
        figures={**features.figures, "bundles": bundles},
        remarks=tuple(remarks),
    )


def _is_one(counts: FloatArray) -> NDArray[np.bool_]:
    """Which counts, as a secure sum gives them back, are of a single row."""
    return np.asarray(np.abs(counts - 1.0) < _COUNT_ROUNDING)
