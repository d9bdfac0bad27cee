"""Columns by a statistic of each, from one secure sum, and a PAN-SVM on the best: a filter.

    welch   Welch's t of two classes, with the false discovery rate of Benjamini and Hochberg
    f       F of the analysis of variance, of any number of classes, with the same
    fisher  Fisher's ratio, squared
    mi      mutual information of the class and the column cut into bins, one sum more
    mrmr    F over the mean correlation with the columns before (Ding and Peng 2005), a sum for each column but the last

See `selection.filters`. Nothing is voted among sites: means of local statistics are not the statistic, a site with one
class has none, and where rows are dealt by what is in them the two differ as much as one likes.

Disclosures. The coordinator learns class means and variances of all columns. If there are more columns than rows, these
reveal whose rows they are (Homer and others 2008). With mi it learns counts of each class in each bin; a count of 1 is
a single row's. With mrmr it learns products of columns. The sites learn which columns are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Le

from fedsvm.algorithms.algorithm import Outline
from fedsvm.algorithms.data.classes import members, one_against_rest
from fedsvm.algorithms.pooled import EvaluationRows
from fedsvm.algorithms.selection import filters
from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.algorithms.selection.model import (
    Choice,
    SelectedModel,
    SelectionAlgorithm,
    SelectionInput,
    SelectionSettings,
    chosen_count,
)
from fedsvm.algorithms.selection.moments import class_moments
from fedsvm.algorithms.selection.site import MOMENTS, SelectionSite, has_curve
from fedsvm.algorithms.selection.training import SubsetTraining
from fedsvm.algorithms.settings import Count, Share, ShareOrCount, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.script import Script, repeat, seq, stage
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR

SCORES = {
    "welch": "Welch's |t|",
    "f": "F",
    "fisher": "Fisher's ratio, squared",
    "mi": "mutual information, nats",
    "mrmr": "F",
}

LONE_COUNTS = "the bin of a single row's column, where no other row of its class is in the bin"


@dataclass
class FilterSettings(SelectionSettings):
    """The settings of a user."""

    _: KW_ONLY
    statistic: Annotated[
        Literal["welch", "f", "fisher", "mi", "mrmr"], doc("Statistic that orders columns. welch and f have p-values.")
    ] = "welch"
    size: Annotated[
        Literal["significant", "best", "one-se"] | ShareOrCount,
        doc(
            "Number of columns to keep: all significant ones, the best inner accuracy (best), the fewest within a "
            "standard error of it (one-se), a count, or a share."
        ),
    ] = "significant"  # type: ignore[assignment]  # one rule more
    false_discovery_rate: Annotated[
        Share, doc("False discovery rate of significant columns (Benjamini and Hochberg).")
    ] = 0.01
    bins: Annotated[
        int, Ge(2), Le(64), doc("For mi: number of bins, of equal probability under a normal distribution.")
    ] = 8
    mrmr_columns: Annotated[Count, doc("For mrmr: number of columns to order. The others follow by F.")] = 50


@dataclass(frozen=True)
class ScoredColumns:
    """Columns (p,) in order, their scores (p,), and their false discovery rates (p,) where they have p-values."""

    order: IntArray
    scores: FloatArray
    rates: FloatArray | None = None


class FilterSite(SelectionSite):
    """The site half: no SVM is trained to choose columns, unless a curve says how many."""

    @classmethod
    def choosing(cls, terms: Terms) -> Script:
        """Return the script of the statistic, and of the curve if there is one."""
        size = terms.settings["size"]
        ordered = {str: terms.settings["mrmr_columns"], int: size}.get(type(size))  # a share is of unknown columns
        by = {"mi": seq("class_bins"), "mrmr": repeat("column_products", 0, ordered)}
        scored = by.get(terms.settings["statistic"], seq())
        return seq(stage(*MOMENTS, scored), super().choosing(terms) if has_curve(terms) else seq())


class Filter(SelectionAlgorithm[FilterSettings]):
    """PAN-SVM on the columns with the best statistic, from one secure sum (Welch, F, Fisher, mRMR)."""

    name = "filter"
    estimator = "FilterSVC"
    Settings, Site = FilterSettings, FilterSite
    multiclass = True

    def choose(self, selecting: SelectionInput, settings: FilterSettings) -> Choice:
        """Select columns by one sum over the classes, and what the score needs in addition."""
        federation, columns = selecting.federation, selecting.prepared.columns

        def stage() -> tuple[ClassMoments, ScoredColumns]:
            moments = class_moments(federation, columns, selecting.classes)
            return moments, _score(federation, moments, settings)

        moments, scored = federation.until_stable(stage)
        size, rule = None, ""
        if settings.size == "significant":
            rates = scored.rates if scored.rates is not None else np.ones(columns)
            found = int((rates <= settings.false_discovery_rate).sum())
            size, rule = max(1, found), f"a false discovery rate of {settings.false_discovery_rate:g}"
            if not found:
                rule += ", at which no column is significant: the best one"
        training = SubsetTraining(federation, moments, settings)
        ranks = filters.ranks_of(scored.scores, scored.order)
        if settings.statistic == "mrmr":
            ranks = np.arange(1, columns + 1)
        return Choice(
            scored.order, scored.scores, SCORES[settings.statistic], ranks, training, size=size, size_rule=rule
        )

    def class_problems(self, settings: FilterSettings, classes: tuple[str, ...]) -> Iterator[str]:
        """Yield the problems of PAN-SVM, and statistics of two classes for more classes."""
        yield from super().class_problems(settings, classes)
        if len(classes) > 2 and settings.statistic in ("welch", "fisher"):
            yield (f'statistic: "{settings.statistic}" needs two classes, got {len(classes)}; set "f", "mi" or "mrmr"')

    def problems(self, settings: FilterSettings, outline: Outline) -> Iterator[str]:
        """Yield scores without p-values."""
        yield from super().problems(settings, outline)
        if settings.size == "significant" and settings.statistic not in ("welch", "f"):
            yield (
                'size: "significant" needs a statistic with p-values, welch or f, got '
                f'"{settings.statistic}"; set a number'
            )

    def pooled_order(self, model: SelectedModel, settings: FilterSettings, rows: EvaluationRows) -> IntArray:
        """Return the order by the same statistic of all rows together."""
        of_class = members(one_against_rest(rows.train.labels, len(rows.classes)))
        moments = ClassMoments.of(rows.train.rows, of_class)

        def bins(edges: FloatArray) -> FloatArray:
            return filters.bin_counts(rows.train.rows, of_class, edges)

        return _by_score(moments, settings, bins, lambda column: rows.train.rows[:, column] @ rows.train.rows).order


def _score(federation: Federation, moments: ClassMoments, settings: FilterSettings) -> ScoredColumns:
    """Score columns by the sums of the sites' rows."""
    columns, rows = moments.sums.shape[1], float(moments.counts.sum())

    def bins(edges: FloatArray) -> FloatArray:
        shape = (len(moments.counts), columns, settings.bins)
        counts = np.rint(federation.sum("class_bins", shape=shape, bound=rows, edges=edges))
        if alone := int((counts == 1).sum()):
            federation.disclose(COORDINATOR, "class_bins", LONE_COUNTS, (), alone, kind="single-row")
        return counts

    def products(column: int) -> FloatArray:
        return federation.sum("column_products", shape=(columns,), bound=math.inf, column=column)

    return _by_score(moments, settings, bins, products)


def _by_score(
    moments: ClassMoments, settings: FilterSettings, bins: filters.Counted, products: filters.Products
) -> ScoredColumns:
    """Score columns by sums from any source."""
    if settings.statistic == "mi":
        scores = filters.mutual_information(bins(filters.bin_edges(moments, settings.bins)))
        return ScoredColumns(filters.best_first(scores, moments.constant), scores)
    if settings.statistic == "fisher":
        scores = filters.squared_fisher(moments)
        return ScoredColumns(filters.best_first(scores, moments.constant), scores)
    tested = filters.welch(moments) if settings.statistic == "welch" else filters.f_statistic(moments)
    order, rates = filters.best_first(tested.statistic, moments.constant), filters.adjust_p_values(tested.p_value)
    if settings.size == "significant":  # by p, which degrees of freedom put in another order than t where they differ
        order = order[np.argsort(rates[order] > settings.false_discovery_rate, kind="stable")]
    if settings.statistic == "mrmr":
        wanted = settings.mrmr_columns if isinstance(settings.size, str) else chosen_count(settings.size, len(order))
        first = filters.mrmr(moments, min(wanted, len(order)), products)
        order = np.array([*first, *(column for column in order.tolist() if column not in set(first))])
    return ScoredColumns(order, tested.statistic, rates)
