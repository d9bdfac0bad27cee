"""The released model of the hybrid SVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, Model, TrainingReport
from fedsvm.algorithms.data.classes import above_others
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.fourier import paired_features
from fedsvm.algorithms.privacy.mechanisms import Noise
from fedsvm.algorithms.sklearn_parts import NotExportable, Steps, linear_step, sampler
from fedsvm.federation.arrays import FloatArray


@dataclass(frozen=True)
class HybridModel(Model):
    """The released model: rho (D, d) and weights (2 D,), with the prior (2 D,), which public rows chose.

    Of more than two classes weights and priors are (K, 2 D). jointly: whether they are those of one problem.
    training: how training ended depends on private rows, and is told without noise only.
    """

    rho: FloatArray
    weights: FloatArray
    prior: FloatArray
    noise: Noise | None = None
    training: TrainingReport | None = None
    jointly: bool = False

    def features(self, rows: FloatArray) -> FloatArray:
        """Return (n, 2 D) features of scaled rows (n, d)."""
        return paired_features(rows, self.rho)

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values for scaled rows (n, d), (n, K) for more than two classes."""
        return scores_of(self.features(rows) @ self.weights.T, jointly=self.jointly)

    def sklearn_steps(self, classes: NDArray[Any]) -> Steps:
        """Return the steps of a pipeline; see `Model`."""
        if self.jointly:
            raise NotExportable("scikit-learn has no part for decision values of a joint problem")
        return [("features", sampler(self.rho)), linear_step(self.weights, 0.0, classes)]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the file.

        The decision value of a scaled row x is [cos(rho x), sin(rho x)] / sqrt(D) w.

        Returns
        -------
        rho : (D, d)
            Frequencies.
        w : (2 D,) or (K, 2 D)
            Weights as released; of K > 2 classes, one row for each class.
        b : ()
            0: the model has no intercept.
        scheme : text
            "joint", if the weights of K classes are those of one problem.
        """
        scheme: dict[str, NDArray[Any]] = {"scheme": np.asarray("joint")} if self.jointly else {}
        return {"rho": self.rho, "w": self.weights, "b": np.array(0.0), **scheme}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file."""
        return cls(arrays["rho"], arrays["w"], np.zeros_like(arrays["w"]), jointly="scheme" in arrays)

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return `frequencies_` (D, p) and `coef_` (P, 2 D) of [cos, sin] of frequencies_ x, over √D."""
        return {"frequencies_": self.rho, "coef_": np.atleast_2d(self.weights)}


def scores_of(values: FloatArray, *, jointly: bool) -> FloatArray:
    """Return (n,) or (n, K) decision values from w.f; for a joint problem each minus the largest of the others."""
    return above_others(values) if jointly else np.asarray(values)
