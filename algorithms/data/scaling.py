"""The scale of columns: what every kernel and every norm is measured in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from fedsvm.federation.arrays import FloatArray

ScaleName = Literal["standard", "minmax", "none"]

_CONSTANT = 1e-9
"""The largest deviation of a constant column relative to its mean, caused by rounding."""


@dataclass(frozen=True)
class Scale:
    """(x - offset) / scale, both (p,)."""

    offset: FloatArray
    scale: FloatArray

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return rows (n, p) on the common scale."""
        return np.asarray((rows - self.offset) / self.scale)

    def linear(self, coef: FloatArray, intercept: float | FloatArray) -> dict[str, FloatArray]:
        """Return `coef_` (P, p) and `intercept_` (P,) for unscaled rows, from a model that is linear in scaled ones."""
        weights = coef / self.scale
        return {"coef_": weights, "intercept_": intercept - weights @ self.offset}

    @classmethod
    def of(cls, columns: FloatArray, method: ScaleName) -> Self:
        """Return the scale of columns (n, p): standard, minmax (to [-1, 1]) or none. Constants keep scale 1."""
        if method == "standard":
            return cls.standard(columns.mean(axis=0), columns.std(axis=0))
        if method == "minmax":
            return cls.minmax(columns.min(axis=0), columns.max(axis=0))
        return cls.none(columns.shape[1])

    @classmethod
    def standard(cls, mean: FloatArray, deviation: FloatArray) -> Self:
        """Return the scale for means and standard deviations (p,)."""
        varies = deviation > _CONSTANT * np.abs(mean)
        return cls(mean, np.where(varies, deviation, 1.0))

    @classmethod
    def minmax(cls, low: FloatArray, high: FloatArray) -> Self:
        """Return the scale to [-1, 1], from the smallest and largest values (p,)."""
        half = (high - low) / 2
        return cls((high + low) / 2, np.where(half > 0, half, 1.0))

    @classmethod
    def none(cls, columns: int) -> Self:
        """Return the scale that leaves columns unchanged."""
        return cls(np.zeros(columns), np.ones(columns))
