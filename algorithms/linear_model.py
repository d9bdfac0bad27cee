"""The model of linear SVMs in features that all sites share, and its calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, Model, TrainingReport
from fedsvm.algorithms.calibration import (
    Calibration,
    ClassCalibration,
    ThresholdSettings,
    calibrate,
    calibrate_classes,
)
from fedsvm.algorithms.data.classes import (
    Scheme,
    above_others,
    pairs,
    ranked_by_votes,
)
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.choice import read_map
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.sklearn_parts import NotExportable, Steps, feature_steps, linear_step
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation

_SCHEMES: Mapping[str, Scheme] = {each: each for each in get_args(Scheme)}


def score_classes(values: FloatArray, scheme: Scheme, classes: int) -> FloatArray:
    """Return (n,) or (n, K) scores from the values (n,) or (n, P) of the problems."""
    if classes == 2 or scheme == "ovr":
        return values
    return ranked_by_votes(values, classes) if scheme == "ovo" else above_others(values)


@dataclass(frozen=True)
class PanModel(Model):
    """A trained model: w (m,), b and the map from scaled rows to features; of more classes w (P, m) and b (P,).

    Prediction needs no site, unless w and b are None: then only the sites have them, each in its file. training: how it
    went; None of a model that was read from a file. scheme: what the P problems are, see `data.classes`. classes: how
    many there are.
    """

    feature_map: FeatureMap
    w: FloatArray | None
    b: float | FloatArray | None
    training: TrainingReport | None = None
    calibration: Calibration | ClassCalibration | None = None
    scheme: Scheme = "ovr"
    classes: int = 2

    @classmethod
    def of_weights(
        cls,
        feature_map: FeatureMap,
        weights: FloatArray | None,
        training: TrainingReport | None = None,
        scheme: Scheme = "ovr",
        classes: int = 2,
    ) -> Self:
        """Return a model with weights and intercepts (P, m + 1), of one problem for two classes."""
        if weights is None:
            return cls(feature_map, None, None, training, None, scheme, classes)
        if classes == 2:
            ((*w, b),) = weights
            return cls(feature_map, np.array(w), float(b), training)
        return cls(feature_map, weights[:, :-1].copy(), weights[:, -1].copy(), training, None, scheme, classes)

    def features(self, rows: FloatArray) -> FloatArray:
        """Return (n, m) features of scaled rows (n, p)."""
        return self.feature_map(rows)

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p), positive for the class +1; (n, K) for more than two
        classes."""
        return score_classes(self._values(rows), self.scheme, self.classes)

    def probabilities(self, rows: FloatArray) -> FloatArray | None:
        """Return (n,) or (n, K) probabilities; see `Model`. Those of more classes are of the problems' own values."""
        return None if self.calibration is None else self.calibration.probabilities(self._values(rows))

    def _values(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values, or (n, P) of the problems of more than two classes."""
        if self.w is None or self.b is None:
            raise ValueError("the model's weights are with the sites; read it together with one of their files")
        return np.asarray(self.features(rows) @ self.w.T + self.b)

    def sklearn_steps(self, classes: NDArray[Any]) -> Steps:
        """Return the steps of a pipeline; see `Model`."""
        if self.w is None or self.b is None:
            raise NotExportable("its weights are with the sites")
        if self.classes > 2 and self.scheme != "ovr":
            raise NotExportable(f'scikit-learn has no part for decision values by "{self.scheme}"')
        if isinstance(self.calibration, ClassCalibration):
            raise NotExportable(
                "scikit-learn has no part that gives both this model's decision values and probabilities of more than "
                "two classes; train it without data.calibration"
            )
        return [*feature_steps(self.feature_map), linear_step(self.w, self.b, classes, self.calibration)]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the file, with those of the feature map and of the calibration.

        The decision value of a scaled row x is F(x) w + b, where F is the feature map. It is positive for `classes[1]`.

        Returns
        -------
        w : (m,) or (P, m)
            Weights of the m features; of more than two classes, those of P binary problems.
            Absent if the sites keep the weights.
        b : () or (P,)
            Intercepts. Absent if the sites keep the weights.
        scheme : text
            Of more than two classes: what the P problems are. "ovr": each class against the others, and the largest
            value wins. "ovo": every two classes, and each problem has a vote. "joint": one problem of all classes, and
            the largest value wins.
        pairs : (K (K - 1) / 2, 2)
            Of more than two classes: the numbers of every two of the K classes. With "ovo" each row is a problem.
        """
        weights = {} if self.w is None else {"w": self.w, "b": np.asarray(self.b)}
        calibration = {} if self.calibration is None else self.calibration.to_arrays()
        several: dict[str, NDArray[Any]] = {}
        if self.classes > 2:
            several = {"scheme": np.asarray(self.scheme), "pairs": pairs(self.classes)}
        return {**self.feature_map.to_arrays(), **weights, **calibration, **several}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file. Without w and b there and in the sites' files, `parts`, it has none."""
        feature_map = read_map(arrays)
        weights = next((each for each in (arrays, *parts) if "w" in each), None)
        if "scheme" in arrays:
            w, b = (None, None) if weights is None else (weights["w"], weights["b"])
            scheme: Scheme = _SCHEMES[str(arrays["scheme"])]
            found = ClassCalibration.from_arrays(arrays, scheme)
            return cls(feature_map, w, b, None, found, scheme, 1 + int(arrays["pairs"].max()))
        if "w" in arrays:
            calibration = Calibration.from_arrays(arrays)
            return cls(feature_map, arrays["w"], float(arrays["b"]), calibration=calibration)
        if weights is None:
            return cls(feature_map, None, None)
        return cls(feature_map, weights["w"][0], float(weights["b"][0]))

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return the attributes of the feature map."""
        return {} if self.w is None or self.b is None else self.feature_map.attributes(self.w, self.b, scaling)

    @property
    def calibrated(self) -> Calibration | ClassCalibration | None:
        """As fitted on rows that were set apart, if there were some."""
        return self.calibration

    @property
    def kept_by_sites(self) -> bool:
        """True if only the sites have the weights."""
        return self.w is None


def with_calibration(
    federation: Federation, task: HorizontalTask, model: PanModel, settings: ThresholdSettings
) -> PanModel:
    """Return the model calibrated on rows set apart, if there are any and its weights are known.

    Raises FederationError where too few of them are of a class.
    """
    if not task.calibrated or model.w is None or model.b is None:
        return model
    with federation.phase("train"):
        if not isinstance(model.b, float):
            found = calibrate_classes(federation, model.w, model.b, model.scheme, model.classes)
            return replace(model, calibration=found)
        return replace(model, calibration=calibrate(federation, model.w, model.b, settings))
