"""Trained models as parts of scikit-learn, for a pipeline that needs nothing of fedsvm.

The parts are made as if they had been fitted: their fitted attributes are set from the model's arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.calibration import Calibration
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.federation.arrays import FloatArray

Steps = list[tuple[str, Any]]
"""Names and parts, in the order of a pipeline whose input is scaled rows."""


class NotExportable(Exception):
    """A model that no parts of scikit-learn make up. The message says why."""


def feature_steps(feature_map: FeatureMap) -> Steps:
    """Return the steps that turn scaled rows into features. Raises NotExportable for an unknown map."""
    if isinstance(feature_map, NystromMap):
        return [("features", _nystroem(feature_map.kernel, feature_map.landmarks, feature_map.mapping))]
    if isinstance(feature_map, FourierMap):
        return [("features", sampler(feature_map.rho))]
    if isinstance(feature_map, IdentityMap):
        return []
    raise NotExportable(f"scikit-learn has no map like {type(feature_map).__name__}")


def _nystroem(kernel: Kernel, landmarks: FloatArray, mapping: FloatArray) -> Any:
    from sklearn.kernel_approximation import Nystroem

    parameters = {} if kernel.name == "linear" else {"gamma": kernel.gamma}
    if kernel.name in ("poly", "sigmoid"):
        parameters["coef0"] = kernel.coef0
    if kernel.name == "poly":
        parameters["degree"] = kernel.degree
    made = Nystroem(kernel=kernel.name, n_components=len(landmarks), **parameters)
    made.components_, made.normalization_ = landmarks, mapping.T
    made.component_indices_ = np.arange(len(landmarks))
    made.n_features_in_, made._n_features_out = landmarks.shape[1], mapping.shape[1]
    return made


def sampler(rho: FloatArray) -> Any:
    """Return the features [cos(rho x), sin(rho x)] / sqrt(D) of frequencies (D, p) as an RBFSampler."""
    from sklearn.kernel_approximation import RBFSampler

    made = RBFSampler(n_components=2 * len(rho))
    made.random_weights_ = np.vstack([rho, rho]).T
    made.random_offset_ = np.repeat([0.0, -np.pi / 2], len(rho))
    made.n_features_in_, made._n_features_out = rho.shape[1], 2 * len(rho)
    return made


def binarizer(columns: int) -> Any:
    """Return the step that makes 1 of values above 0, and 0 of others."""
    from sklearn.preprocessing import Binarizer

    made = Binarizer(threshold=0.0)
    made.n_features_in_ = columns
    return made


def linear_step(
    w: FloatArray, b: float | FloatArray, classes: NDArray[Any], calibration: Calibration | None = None
) -> tuple[str, Any]:
    """Return the classifier with decision values features @ w + b, w being (m,), or (K, m) of K > 2 classes.

    With a calibration it has probabilities, its decision value is their log odds, and its threshold is the model's.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import FixedThresholdClassifier
    from sklearn.svm import LinearSVC

    weights, intercept = np.atleast_2d(w), np.atleast_1d(np.asarray(b, dtype=np.float64))
    if len(weights) > 1 and len(intercept) == 1:
        intercept = np.repeat(intercept, len(weights))
    made = LinearSVC() if calibration is None else LogisticRegression()
    if calibration is not None:
        weights, intercept = -calibration.slope * weights, -(calibration.slope * intercept + calibration.offset)
    made.coef_, made.intercept_, made.classes_ = weights, intercept, classes
    made.n_features_in_, made.n_iter_ = weights.shape[1], np.array([1])
    if calibration is None:
        return "classifier", made
    threshold = -(calibration.slope * calibration.threshold + calibration.offset)
    fixed = FixedThresholdClassifier(
        made, threshold=threshold, pos_label=classes[1], response_method="decision_function"
    )
    fixed.estimator_ = made
    return "classifier", fixed
