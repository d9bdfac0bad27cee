"""Weights of classes and of rows: by what a row's price is multiplied, and how much that can be."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from fedsvm.algorithms.data.class_statistics import LEAST_ROWS
from fedsvm.algorithms.data.classes import members, numbers, one_against_rest
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.settings import MAX_COUNT, Positive, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import OrderRefused, StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SitePart, step
from fedsvm.federation.site.script import Script, seq
from fedsvm.federation.site.terms import Terms

EXPONENTS = np.arange(-64, 65)
"""Of two: between these the largest weight of a site is placed."""


@dataclass(frozen=True)
class Weighting:
    """The factors of the rows' losses.

    by_class: factors of the classes, of two the negative one's first, or what makes K of them balanced: n / (K n_c) of
    a class with n_c of n rows, as in scikit-learn, where K counts the classes that have rows. by_row: whether each row
    has a factor of its own besides.
    """

    by_class: Literal["balanced"] | tuple[float, ...] | None = None
    by_row: bool = False

    def factors(self, counts: FloatArray) -> tuple[float, ...]:
        """Return the factors of classes with these numbers of rows (K,)."""
        if isinstance(self.by_class, tuple):
            return self.by_class
        found, present = np.ones(len(counts)), counts > 0
        if self.by_class == "balanced":
            found[present] = counts.sum() / (np.count_nonzero(present) * counts[present])
        return tuple(found.tolist())


ClassWeight = Literal["balanced"] | dict[str, Positive]


@dataclass(kw_only=True)
class ClassWeightSettings:
    """By what the losses of a class are multiplied."""

    class_weight: Annotated[
        ClassWeight | None,
        doc('Weight of the loss of each class (default 1), or "balanced": rows / (classes * rows of the class).'),
    ] = None

    def class_problems(self, classes: tuple[str, ...]) -> Iterator[str]:
        """Yield weights of unknown classes; see `Algorithm.class_problems`."""
        if isinstance(self.class_weight, dict) and (
            unknown := [name for name in self.class_weight if name not in classes]
        ):
            listed = f"{', '.join(map(repr, classes[:-1]))} and {classes[-1]!r}"
            yield f"class_weight: {unknown[0]!r} is not one of the classes {listed}"

    def weighting(self, classes: tuple[str, ...], *, by_row: bool) -> Weighting:
        """Return the factors of the rows' losses. by_row: whether rows have weights."""
        if not isinstance(self.class_weight, dict):
            return Weighting(self.class_weight, by_row)
        return Weighting(tuple(self.class_weight.get(name, 1.0) for name in classes), by_row)

    def weighting_of(self, task: HorizontalTask) -> Weighting:
        """Return the factors of the rows' losses in a task whose rows are prepared.

        With noisy statistics, balanced factors follow from their numbers of rows, none of which is below its noise.
        """
        found, statistics = self.weighting(task.classes, by_row=task.weighted), task.statistics
        if found.by_class != "balanced" or statistics is None:
            return found
        counts = np.maximum(statistics.classes, max(LEAST_ROWS, statistics.sigma["classes"]))
        return replace(found, by_class=found.factors(counts))

    def pooled_factors(
        self, labels: FloatArray, weights: FloatArray | None, classes: tuple[str, ...]
    ) -> FloatArray | None:
        """Return (n,) factors of all rows, with labels (n,) and weights (n,) if any; None if all are 1."""
        if self.class_weight is None and weights is None:
            return None
        weighting = self.weighting(classes, by_row=weights is not None)
        problems = one_against_rest(labels, len(classes))
        return row_prices(1.0, numbers(problems), weighting.factors(members(problems).sum(axis=1)), weights)


class RowWeights(SitePart):
    """The weights of a site's rows."""

    def __init__(self, site: HorizontalSite) -> None:
        self._site = site

    @step
    def class_counts(self) -> FloatArray:
        """Return the (K,) number of rows of each class; for two, the negative one first."""
        return np.asarray(members(self._site.labels).sum(axis=1))

    @step
    def largest_weight(self) -> FloatArray:
        """Return the (129,) position of a site's largest weight between powers of two."""
        return mark_power_of_two(self._site.weights)

    def check_factors(self, factors: Sequence[float]) -> None:
        """Raise OrderRefused for factors of classes that the agreed `class_weight` does not imply.

        Those of a table are its numbers, and 1 for each class that it leaves out. Balanced ones are n / (K n_c), and 1
        for a class without rows, so that their inverses add up to K, the number of classes. No factors are all 1.
        """
        settings = self._site.terms.settings
        if not settings:  # of sites without agreed settings
            return
        classes, weight = max(2, len(self._site.labels)), settings.get("class_weight")
        got = list(factors) or [1.0] * classes
        numeric = all(type(factor) in (int, float) and 0 < factor < math.inf for factor in got)
        if weight == "balanced":
            agreed = len(got) == classes and numeric and math.isclose(sum(1 / each for each in got), classes)
        else:
            named = list((weight or {}).values())
            agreed = numeric and sorted(got) == sorted([*named, *[1.0] * (classes - len(named))])
        if not agreed:
            raise OrderRefused(f"factors must be those of class_weight = {json.dumps(weight)}, as agreed, got {got}")

    def prices(self, price: float, factors: Sequence[float]) -> FloatArray:
        """Return (n,) `price` times the factor of the row's class, 1 without factors, times the row's weight."""
        labels = self._site.labels
        return row_prices(price, numbers(labels), factors or [1.0] * max(2, len(labels)), self._site.weights)


def agreement_on_factors(terms: Terms) -> Script:
    """Return the script of `Factors.agreed`."""
    balanced = terms.settings.get("class_weight") == "balanced" and not StatisticsPlan.of(terms).mu
    weighted = terms.reading.get("weight")
    return seq(*(["class_counts"] if balanced else []), *(["largest_weight"] if weighted else []))


@dataclass(frozen=True)
class Factors:
    """The factors that sites agree on: those of the classes (K,), and a bound on those of rows."""

    by_class: tuple[float, ...] = ()
    largest: float = 1.0

    @classmethod
    def agreed(cls, federation: Federation, weighting: Weighting, classes: int) -> Factors:
        """Compute the factors by sums if needed. Balanced factors are for the present rows."""
        counts = np.ones(classes)
        if weighting.by_class == "balanced":
            counts = np.rint(federation.sum("class_counts", shape=counts.shape, bound=float(MAX_COUNT)))
        by_class, largest = weighting.factors(counts), 1.0
        if weighting.by_row:
            sites = float(len(federation.sites))
            largest = bound_of(federation.sum("largest_weight", shape=EXPONENTS.shape, bound=sites))
        return cls(by_class, max(by_class) * largest)

    @property
    def told(self) -> dict[str, Any]:
        """The factors for messages to sites: nothing if all are 1."""
        return {} if set(self.by_class) <= {1.0} else {"factors": list(self.by_class)}


def row_prices(price: float, numbers: IntArray, factors: Sequence[float], weights: FloatArray | None) -> FloatArray:
    """Return (n,) prices of rows with these class numbers (n,), and weights (n,), if any."""
    prices = price * np.asarray(factors)[numbers]
    return prices if weights is None else prices * weights


def mark_power_of_two(weights: FloatArray | None) -> FloatArray:
    """Return (129,) 1 at the smallest power of two above a site's weights; at the first one without weights.

    Raises StepRefused for a weight that exceeds all of these, which no bound on sums would hold for.
    """
    largest = 0.0 if weights is None or not len(weights) else float(weights.max())
    if largest > 2.0 ** EXPONENTS[-1]:
        raise StepRefused(
            f"one of its rows has a weight of more than 2^{EXPONENTS[-1]}; divide all weights, of every site, by the "
            "same number, and multiply algorithm.C or divide algorithm.regularisation by it"
        )
    exponent = np.clip(np.ceil(np.log2(largest)), EXPONENTS[0], EXPONENTS[-1]) if largest > 0 else EXPONENTS[0]
    return np.asarray(exponent == EXPONENTS, dtype=np.float64)


def bound_of(places: FloatArray) -> float:
    """Return a bound on the weights of all sites, from the sum (129,) of their positions."""
    return float(2.0 ** EXPONENTS[np.flatnonzero(np.rint(places))[-1]])
