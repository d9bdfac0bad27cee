"""The released model, and its map of rows into the unit ball."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, Model, TrainingReport
from fedsvm.algorithms.data.classes import log_odds
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.dp_erm.settings import ErmSettings
from fedsvm.algorithms.features.fourier import choose_frequencies, paired_features
from fedsvm.algorithms.privacy.mechanisms import Noise
from fedsvm.algorithms.sklearn_parts import NotExportable, Steps, linear_step, sampler
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import StepRefused

_LENGTH_ROUNDING = 1e-12


@dataclass(frozen=True)
class UnitBallMap:
    """The map of scaled rows (n, d) to points (n, size) of L2 norm at most 1.

    Attributes
    ----------
    rho : (D, d)
        Frequencies of Fourier features; D is 0 for a linear model.
    longest : float
        Length that rows of a linear model are divided by: that of the longest public row.
    size : int
        Dimension of the points.
    """

    rho: FloatArray
    longest: float
    size: int

    @classmethod
    def from_public(cls, public: FloatArray, settings: ErmSettings, seed: int) -> UnitBallMap:
        """Return Fourier features chosen from public rows (m, d); without features, a division by the longest row."""
        if not settings.features:
            longest = float(np.linalg.norm(public, axis=1).max())
            return cls(np.zeros((0, public.shape[1])), longest or 1.0, public.shape[1])
        random, sigma = np.random.default_rng([seed, 4]), settings.sigma_of(public.shape[1])
        frequencies = choose_frequencies(public, settings.features, sigma, settings.fit_to, random)
        return cls(frequencies.rho, 1.0, 2 * settings.features)

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return the points (n, size) of rows (n, d); rows of a linear model longer than `longest` are clipped."""
        return paired_features(rows, self.rho) if len(self.rho) else at_most_one(rows / self.longest, clip=True)

    def longer(self, rows: FloatArray) -> int:
        """Return how many rows are longer than the longest public one."""
        return 0 if len(self.rho) else int((np.linalg.norm(rows, axis=1) > self.longest).sum())


def at_most_one(rows: FloatArray, *, clip: bool) -> FloatArray:
    """Return rows (n, d) of L2 norm at most 1. Raises StepRefused for longer ones, unless they are clipped."""
    lengths = np.linalg.norm(rows, axis=1)
    if not clip and (lengths > 1 + _LENGTH_ROUNDING).any():
        raise StepRefused(
            "the L2 norm of one of its rows or more exceeds the largest of public ones, and noise covers rows of norm "
            "1 at most; set algorithm.clip_norm = true, or more public rows apart"
        )
    return np.asarray(rows / np.maximum(1.0, lengths)[:, None])


@dataclass(frozen=True)
class ErmModel(Model):
    """Released weights for the points that `feature_map` makes of scaled rows.

    Attributes
    ----------
    feature_map : UnitBallMap
        Map of scaled rows to points of dimension d.
    weights : (d,) or (K, d)
        Weights; for K > 2 classes, one row for each class.
    noise : Noise, optional
        The noise of output perturbation, which the weights contain.
    training : TrainingReport, optional
        Report of the training. It has the number of rounds only without noise, since that number depends on private
        rows.
    jointly : bool
        True if the weights of K classes solve one joint problem.
    """

    feature_map: UnitBallMap
    weights: FloatArray
    noise: Noise | None = None
    training: TrainingReport | None = None
    jointly: bool = False

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values for scaled rows (n, d), (n, K) for more than two classes."""
        return scores_of(self.feature_map(rows) @ self.weights.T, jointly=self.jointly)

    def sklearn_steps(self, classes: NDArray[Any]) -> Steps:
        """Return the steps of a pipeline; see `Model`."""
        if self.jointly or not len(self.feature_map.rho):
            raise NotExportable("scikit-learn has no part for joint decision values, or for rows cut to a length")
        return [("features", sampler(self.feature_map.rho)), linear_step(self.weights, 0.0, classes)]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the file.

        The decision value of a scaled row x is (x / longest) w of a linear model, and otherwise
        [cos(rho x), sin(rho x)] / sqrt(D) w.

        Returns
        -------
        rho : (D, d)
            Frequencies; D is 0 for a linear model.
        longest : ()
            Length that rows of a linear model are divided by.
        w : (d,) or (K, d)
            Weights as released; of K > 2 classes, one row for each class.
        b : ()
            0: the model has no intercept.
        scheme : text
            "joint", if the weights of K classes are those of one problem.
        """
        feature_map = self.feature_map
        longest = np.array(feature_map.longest)
        scheme: dict[str, NDArray[Any]] = {"scheme": np.asarray("joint")} if self.jointly else {}
        return {"rho": feature_map.rho, "longest": longest, "w": self.weights, "b": np.array(0.0), **scheme}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file."""
        feature_map = UnitBallMap(arrays["rho"], float(arrays["longest"]), arrays["w"].shape[-1])
        return cls(feature_map, arrays["w"], jointly="scheme" in arrays)

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return `coef_` (P, d) for the points that `feature_map_(rows)` makes of scaled rows."""
        return {"coef_": np.atleast_2d(self.weights), "feature_map_": self.feature_map}


def scores_of(values: FloatArray, *, jointly: bool) -> FloatArray:
    """Return (n,) or (n, K) decision values from w.x; for a joint problem log odds of each class against the others."""
    return log_odds(values) if jointly else np.asarray(values)
