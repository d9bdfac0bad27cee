"""The scale of columns: what every kernel and every norm is measured in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from fedsvm.federation.arrays import FloatArray, IntArray

ScaleName = Literal["standard", "minmax", "none"]

_CONSTANT = 1e-9
"""The largest deviation of a constant column relative to its mean, caused by rounding."""


@dataclass(frozen=True)
class Scale:
    """The scale (x - offset) / scale of columns, whose values are clipped to a window first if there is one.

    Parameters
    ----------
    offset, scale : (p,) FloatArray
    window : (2, p) FloatArray, optional
        Lowest and highest values; None of values that are not clipped.
    """

    offset: FloatArray
    scale: FloatArray
    window: FloatArray | None = None

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return rows (n, p) on the common scale."""
        clipped = rows if self.window is None else np.clip(rows, *self.window)
        found = clipped - self.offset
        found /= self.scale
        return np.asarray(found)

    def of_columns(self, columns: IntArray) -> Self:
        """Return the scale of some columns."""
        window = None if self.window is None else self.window[:, columns]
        return replace(self, offset=self.offset[columns], scale=self.scale[columns], window=window)

    def linear(self, coef: FloatArray, intercept: float | FloatArray) -> dict[str, FloatArray]:
        """Return `coef_` (P, p) and `intercept_` (P,) for unscaled rows, from a model that is linear in scaled ones.

        They hold for rows within the window.
        """
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
