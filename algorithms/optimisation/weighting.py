"""Weights of classes and of rows: by what a row's price is multiplied, and how much that can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from federation.arrays import FloatArray, IntArray

EXPONENTS = np.arange(-64, 65)
"""Of two: between these the largest weight of a site is placed."""


@dataclass(frozen=True)
class Weighting:
    """What prices are multiplied by.

    by_class: factors of the classes, of two the negative one's first, or what makes K of them balanced: n / (K n_c) of
    a class with n_c of n rows, as in scikit-learn. by_row: whether each row has a factor of its own besides.
    """

    by_class: Literal["balanced"] | tuple[float, ...] | None = None
    by_row: bool = False

    def factors(self, counts: FloatArray) -> tuple[float, ...]:
        """Of the classes with so many rows (K,)."""
        if isinstance(self.by_class, tuple):
            return self.by_class
        if self.by_class is None or not counts.all():
            return (1.0,) * len(counts)
        return tuple((counts.sum() / (len(counts) * counts)).tolist())


def row_prices(price: float, numbers: IntArray, factors: Sequence[float], weights: FloatArray | None) -> FloatArray:
    """(n,) prices of rows of classes with these numbers (n,), and weights (n,), if they have some."""
    prices = price * np.asarray(factors)[numbers]
    return prices if weights is None else prices * weights


def placed(weights: FloatArray | None) -> FloatArray:
    """(129,) 1 at the power of two that the largest of a site's weights does not exceed; nothing of one without."""
    largest = 0.0 if weights is None or not len(weights) else float(weights.max())
    exponent = np.clip(np.ceil(np.log2(largest)), EXPONENTS[0], EXPONENTS[-1]) if largest > 0 else EXPONENTS[0]
    return np.asarray(exponent == EXPONENTS, dtype=np.float64)


def bound_of(places: FloatArray) -> float:
    """A number that no weight of any site exceeds, from the sum (129,) of what they placed."""
    return float(2.0 ** EXPONENTS[np.flatnonzero(np.rint(places))[-1]])
