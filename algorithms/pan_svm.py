"""PAN-SVM (Lu 2016, chapter 3): a kernel SVM over horizontal partitions from which no row is sent.

Landmarks stand for the rows in a Nystroem approximation of the kernel; in the feature space that it spans the sites
train a linear SVM, of which the coordinator only ever sees sums over sites and rows. Features that come from no row
(random Fourier features, or the columns themselves) may take the landmarks' place (`features.choice`).

What the paper overlooks: sums of nearly the same rows, over and over, give rows away. Its cutting planes let a
coordinator that knows the map rebuild the training rows, whatever the secure sum; they are here to compare with. By
default the sites train by an interior point whose system the coordinator solves blindly (`optimisation.linear_svm`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from algorithms.attacks.cluster_rounds import ClusterRounds
from algorithms.attacks.contract import Attack
from algorithms.attacks.cut_differences import CutDifferences, pair_differences, single_rows
from algorithms.attacks.finite_domain import FiniteDomain
from algorithms.attacks.landmark_copies import LandmarkCopies
from algorithms.attacks.newton_steps import NewtonSteps
from algorithms.attacks.newton_systems import NewtonSystems
from algorithms.attacks.support_rows import SupportRows
from algorithms.calibration import CalibratedMappedSite, Calibration, ThresholdSettings, calibrate
from algorithms.contract import (
    Arrays,
    EvaluationRows,
    HorizontalAlgorithm,
    Model,
    Outline,
    Pooled,
    TrainingReport,
)
from algorithms.data.horizontal import HorizontalTask
from algorithms.data.scaling import Scale
from algorithms.features.choice import Features, FeatureSettings, read_map
from algorithms.features.feature_map import FeatureMap
from algorithms.features.inversion import NystromInverse
from algorithms.features.mapped_rows import map_rows
from algorithms.features.nystrom import NystromMap
from algorithms.optimisation import libsvm
from algorithms.optimisation.linear_svm import (
    LinearSvmSettings,
    LinearSvmSite,
    RowsTold,
    pooled_prices,
    pooled_solution,
    train_linear,
)
from algorithms.optimisation.weighting import Weighting
from algorithms.remarks import Remark
from federation.arrays import FloatArray
from federation.federation import Federation
from protocols.analysis.views import Coalition


@dataclass
class PanSettings(FeatureSettings, LinearSvmSettings, ThresholdSettings):
    """What a user decides."""


@dataclass(frozen=True)
class PanModel(Model):
    """A trained model: w (m,), b and the map from scaled rows to features.

    Prediction needs no site, unless w and b are None: then only the sites have them, each in its file. training: how it
    went; None of a model that was read from a file.
    """

    feature_map: FeatureMap
    w: FloatArray | None
    b: float | None
    training: TrainingReport | None = None
    calibration: Calibration | None = None

    def features(self, rows: FloatArray) -> FloatArray:
        """(n, m) features of scaled rows (n, p)."""
        return self.feature_map(rows)

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """(n,) decision values of scaled rows (n, p); positive for the class +1."""
        if self.w is None or self.b is None:
            raise ValueError("the model's weights are with the sites; read it together with one of their files")
        return np.asarray(self.features(rows) @ self.w + self.b)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """`w`, `b`, and what makes the features; `features` says which they are."""
        weights = {} if self.w is None else {"w": self.w, "b": np.asarray(self.b)}
        calibration = {} if self.calibration is None else self.calibration.to_arrays()
        return {**self.feature_map.to_arrays(), **weights, **calibration}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """The model in a file."""
        if "w" in arrays:
            calibration = Calibration.from_arrays(arrays)
            return cls(read_map(arrays), arrays["w"], float(arrays["b"]), calibration=calibration)
        return cls(read_map(arrays), parts[0]["w"][0], float(parts[0]["b"][0]))

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Those of the feature map."""
        return {} if self.w is None or self.b is None else self.feature_map.attributes(self.w, self.b, scaling)

    @property
    def calibrated(self) -> Calibration | None:
        """As fitted on rows that were set apart, if there were some."""
        return self.calibration

    @property
    def kept_by_sites(self) -> bool:
        """Whether the weights are with the sites alone."""
        return self.w is None


def with_calibration(
    federation: Federation, task: HorizontalTask, model: PanModel, settings: ThresholdSettings
) -> PanModel:
    """The model with what rows set apart say of its decision values, where there are such and its weights are known.

    Raises FederationError where too few of them are of a class.
    """
    if not task.calibrated or model.w is None or model.b is None:
        return model
    with federation.phase("train"):
        return replace(model, calibration=calibrate(federation, model.w, model.b, settings))


class PanSite(CalibratedMappedSite, LinearSvmSite):
    """The site half."""


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
        "bundles": "of cuts; each change of membership during training begins a new one",
    }

    def fit(self, federation: Federation, task: HorizontalTask, settings: PanSettings) -> PanModel:
        """Features from the sites' rows, then training on them; sites lost before training begin it all anew."""
        features = federation.until_stable(lambda: map_rows(federation, settings, task.prepare(federation), task.seed))
        model = train(federation, settings, features, settings.weighting(task.classes, by_row=task.weighted))
        return with_calibration(federation, task, model, settings)

    def problems(self, settings: PanSettings, outline: Outline) -> Iterator[str]:
        """Settings of features that these are not, and kernels that they do not have."""
        yield from settings.feature_problems()
        yield from settings.solver_problems()
        yield from settings.threshold_problems(calibrated=outline.calibrated)

    def takes_weights(self, settings: PanSettings) -> bool:
        """Where the interior point trains."""
        return settings.solver == "interior-point"

    def can_calibrate(self, settings: PanSettings) -> bool:
        """Where the coordinator has the weights, which it tells the sites."""
        return settings.release == "everyone"

    def class_problems(self, settings: PanSettings, classes: tuple[str, str]) -> Iterator[str]:
        """Weights of classes that there are not."""
        yield from settings.class_problems(classes)

    def pooled(self, model: PanModel, settings: PanSettings, rows: EvaluationRows) -> Pooled:
        """LIBSVM on pooled, scaled rows: the same problem in the same features, and the exact kernel.

        The first must give the same optimum as the federation; the second says what approximating the kernel costs.
        """
        train_features, test_features = model.features(rows.train.rows), model.features(rows.test.rows)
        prices = pooled_prices(settings, rows.train.labels, rows.weights, rows.classes)
        w, b, objective = pooled_solution(settings, train_features, rows.train.labels, prices)
        exact = libsvm.exact_scores(model.feature_map, prices, rows.train, rows.test.rows)
        return Pooled(scores=test_features @ w + b, objective=objective, exact=exact)

    def attacks(self, settings: PanSettings) -> list[Attack]:
        """On landmarks, on cuts, on Newton's systems and steps, and on what the trained point is made of."""
        return [
            LandmarkCopies(),
            ClusterRounds(),
            CutDifferences(),
            FiniteDomain(),
            NewtonSystems(),
            NewtonSteps(settings.step_noise),
            SupportRows(settings.C),
        ]

    def remarks(self, settings: PanSettings, coalition: Coalition) -> list[str]:
        """Whose a landmark is, the coordinator and one site know together; what a site that opens sums has."""
        return settings.landmark_remarks(coalition)


def train(
    federation: Federation, settings: PanSettings, features: Features, weighting: Weighting | None = None
) -> PanModel:
    """Train on the features of the live sites' rows, to the certified gap."""
    with federation.phase("train"):
        trained = train_linear(federation, settings, features.map.dimensions, _rows_told_by(features.map), weighting)
    certificate = trained.certificate
    report = TrainingReport(
        sites=federation.sites,
        description=features.description,
        objective=certificate.objective,
        lower_bound=certificate.lower_bound,
        gap=certificate.gap,
        iterations=certificate.iterations,
        converged=certificate.converged,
        figures={**features.figures, **trained.figures},
        remarks=(*(Remark(name, sentence) for name, sentence in features.remarks.items()), *trained.remarks),
    )
    return PanModel(features.map, trained.w, trained.b, report)


def _rows_told_by(feature_map: FeatureMap) -> RowsTold:
    """How many different single rows differences of cuts of one group are; of maps that are not inverted, none."""
    if not isinstance(feature_map, NystromMap):
        return lambda points, cuts: 0
    inverse = NystromInverse(feature_map.base_kernel, feature_map.landmarks, feature_map.mapping)
    return lambda points, cuts: len(single_rows(points, pair_differences(cuts), inverse).labels)
