"""Weights of classes and of rows: by what a row's price is multiplied, and how much that can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from algorithms.data.horizontal import HorizontalSite
from algorithms.settings import MAX_COUNT, Positive, doc
from federation.arrays import FloatArray
from federation.federation import Federation
from federation.site.program import step

EXPONENTS = np.arange(-64, 65)
"""Of two: between these the largest weight of a site is placed."""


@dataclass(frozen=True)
class Weighting:
    """What prices are multiplied by.

    by_class: factors of the negative and the positive class, or what makes these balanced: n / (2 n_c) of a class with
    n_c of n rows, as in scikit-learn. by_row: whether each row has a factor of its own besides.
    """

    by_class: Literal["balanced"] | tuple[float, float] | None = None
    by_row: bool = False

    def factors(self, counts: FloatArray) -> tuple[float, float]:
        """Of the negative and the positive class, with so many rows (2,)."""
        if isinstance(self.by_class, tuple):
            return self.by_class
        if self.by_class is None or not counts.all():
            return 1.0, 1.0
        negative, positive = (counts.sum() / (2 * counts)).tolist()
        return negative, positive


ClassWeight = Literal["balanced"] | dict[str, Positive]


@dataclass(kw_only=True)
class ClassWeightSettings:
    """By what the losses of a class are multiplied."""

    class_weight: Annotated[
        ClassWeight | None,
        doc("Factors of a class's losses: its name and a number, 1 if left out; or balanced: rows / (2 of it)."),
    ] = None

    def class_problems(self, classes: tuple[str, str]) -> Iterator[str]:
        """Weights of classes that there are not; see `Algorithm.class_problems`."""
        if isinstance(self.class_weight, dict) and (
            unknown := [name for name in self.class_weight if name not in classes]
        ):
            yield f"class_weight: {unknown[0]!r} is none of the classes {classes[0]!r} and {classes[1]!r}"

    def weighting(self, classes: tuple[str, str], *, by_row: bool) -> Weighting:
        """What prices of rows are multiplied by. by_row: whether they have weights."""
        if not isinstance(self.class_weight, dict):
            return Weighting(self.class_weight, by_row)
        negative, positive = (self.class_weight.get(name, 1.0) for name in classes)
        return Weighting((negative, positive), by_row)

    def pooled_factors(
        self, labels: FloatArray, weights: FloatArray | None, classes: tuple[str, str]
    ) -> FloatArray | None:
        """(n,) of all rows together, with labels (n,) and weights (n,) if they have some; None where all are 1."""
        if self.class_weight is None and weights is None:
            return None
        weighting = self.weighting(classes, by_row=weights is not None)
        counts = np.array([float((labels < 0).sum()), float((labels > 0).sum())])
        return row_prices(1.0, labels, weighting.factors(counts), weights)


class WeightedSite(HorizontalSite):
    """A site whose rows may count for more or less than others."""

    @step
    def class_counts(self) -> FloatArray:
        """(2,): how many rows are of the negative and of the positive class."""
        return np.array([float((self.labels[0] < 0).sum()), float((self.labels[0] > 0).sum())])

    @step
    def largest_weight(self) -> FloatArray:
        """(129,): between which powers of two the largest weight of a row lies."""
        return placed(self.weights)


@dataclass(frozen=True)
class Factors:
    """What sites agree on: factors of the negative and the positive class, and what no row's factor exceeds."""

    by_class: tuple[float, float] = (1.0, 1.0)
    largest: float = 1.0

    @classmethod
    def agreed(cls, federation: Federation, weighting: Weighting) -> Factors:
        """By sums where they are needed; what is balanced is so over the rows that are there now."""
        counts = np.ones(2)
        if weighting.by_class == "balanced":
            counts = np.rint(federation.sum("class_counts", shape=(2,), bound=float(MAX_COUNT)))
        by_class, largest = weighting.factors(counts), 1.0
        if weighting.by_row:
            sites = float(len(federation.sites))
            largest = bound_of(federation.sum("largest_weight", shape=EXPONENTS.shape, bound=sites))
        return cls(by_class, max(by_class) * largest)


def row_prices(price: float, labels: FloatArray, factors: Sequence[float], weights: FloatArray | None) -> FloatArray:
    """(n,) prices of rows with labels (n,) of +1 and -1 and weights (n,), if they have some."""
    prices = price * np.where(labels > 0, factors[1], factors[0])
    return prices if weights is None else prices * weights


def placed(weights: FloatArray | None) -> FloatArray:
    """(129,) 1 at the power of two that the largest of a site's weights does not exceed; nothing of one without."""
    largest = 0.0 if weights is None or not len(weights) else float(weights.max())
    exponent = np.clip(np.ceil(np.log2(largest)), EXPONENTS[0], EXPONENTS[-1]) if largest > 0 else EXPONENTS[0]
    return np.asarray(exponent == EXPONENTS, dtype=np.float64)


def bound_of(places: FloatArray) -> float:
    """A number that no weight of any site exceeds, from the sum (129,) of what they placed."""
    return float(2.0 ** EXPONENTS[np.flatnonzero(np.rint(places))[-1]])
