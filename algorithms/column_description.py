"""A description of the columns of all sites: counts, means, deviations, quantiles, and frequencies of categories.

It is a program of its own, which trains nothing. Sites agree on categories, count values in bins between powers of two,
and then release one vector of counts and moments, all by secure sums. With `data.statistics_privacy` above 0 the
releases have the noise of noisy statistics, are charged to the same budget, and promise that mu together. With 0 they
are exact, but a site puts no count below its `min_cell` into a sum, and no sum of fewer than three values. It pools
small cells of a column with the next ones.

Values far from the rest, such as 999 among ages, lie in bins more than three widths of the middle half away from it.

Not covered by noise: the values of categories of `min_cell` rows at a site, and how many sites hold each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from fedsvm.algorithms.data import bins, encoding, statistics
from fedsvm.algorithms.data.bins import Window, bin_window
from fedsvm.algorithms.data.column_sums import MIN_KNOWN, ColumnSums
from fedsvm.algorithms.data.columns import Schema
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.data.statistics_rounds import CHUNK, StatisticsPlan, StatisticsSums
from fedsvm.algorithms.privacy.noisy_sums import NoisyBlock, clip_rows
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import PartTypes, free, step
from fedsvm.federation.site.script import Script, maybe, repeat, seq, stage
from fedsvm.federation.site.terms import Terms

NAME = "describe"
"""The program, as terms and policies call it."""

CELLS = 20
"""Equal bins within a column's window; two more are below and above it."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

_SHARE_CELLS = 0.35
"""Of squared mu of the second release, for the cells."""

_SHARE_GAPS = 0.05
"""And for the missing values of categorical columns."""

_MAX_QUANTILE_NOISE = 0.1
"""The largest noise of a quantile's share of rows; half of the share, or of what is above it, if that is less."""


@dataclass(frozen=True)
class NumericColumn:
    """The description of a numeric column over all sites.

    Parameters
    ----------
    name : str
    known : float
        Number of known values.
    missing : float
        Share of rows without a value.
    mean, deviation : float, optional
        With noise, of values clipped to the window. None if noise hides them or there are too few values.
    quantiles : tuple of float, optional
        By `QUANTILES`, interpolated between cells, each None if noise hides it. None if there are too few values.
    low, high : float, optional
        The window: the agreed range, or the ends of full bins that are not far from the rest.
    outside : float
        Share of known values outside the window.
    far : tuple of float, optional
        Share of values far from the rest, and the ends of their bins. None if there are none.
    constant_sites : int, optional
        Number of sites whose values are all the same. None with noise.
    """

    name: str
    known: float
    missing: float
    mean: float | None
    deviation: float | None
    quantiles: tuple[float | None, ...] | None
    low: float | None
    high: float | None
    outside: float
    far: tuple[float, float, float] | None
    constant_sites: int | None


@dataclass(frozen=True)
class Category:
    """A value of a categorical column.

    Parameters
    ----------
    value : str
    rows : float, optional
        None if fewer than the minimum count.
    sites : int, optional
        Number of sites with `min_cell` rows of it or more. None of declared values.
    """

    value: str
    rows: float | None
    sites: int | None


@dataclass(frozen=True)
class CategoricalColumn:
    """The description of a categorical column over all sites.

    Parameters
    ----------
    name : str
    known : float
        Number of known values.
    missing : float
        Share of rows without a value.
    values : tuple of Category
        The opened values, the most frequent first.
    others : float
        Rows of values that no site opens, or that have too few rows.
    constant_sites : int, optional
        Number of sites whose values are all the same. None with noise.
    """

    name: str
    known: float
    missing: float
    values: tuple[Category, ...]
    others: float
    constant_sites: int | None


@dataclass(frozen=True)
class ColumnDescription:
    """The columns of all sites.

    Parameters
    ----------
    sites : tuple of str
    mu : float
        Of Gaussian differential privacy, of all releases together; 0 of exact ones.
    min_cell : int
        The minimum count of a category that is shown.
    rows : float
    classes : mapping of str to float, optional
        Number of rows of each class, None if fewer than the minimum count.
    numeric : tuple of NumericColumn
    categorical : tuple of CategoricalColumn
    noise : mapping of str to float
        Standard deviation of the noise in counts, by kind.
    """

    sites: tuple[str, ...]
    mu: float
    min_cell: int
    rows: float
    classes: Mapping[str, float | None]
    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]
    noise: Mapping[str, float]


# What a site puts in.


class DescriptionSums(StatisticsSums):
    """This site's part of a description."""

    @step(bound=math.inf)
    def bin_counts(self) -> FloatArray:
        """Return (1 + c BINS,): numbers of rows, and of values in each bin of the columns without a range."""
        columns = self._plan.unranged_columns(self._names)
        block = _bins_block(columns, self._budget)
        return self._answer("bin_counts", [block], lambda place: [bins.bin_values(self._numeric[place][:, columns])])

    @step(
        bound=math.inf,
        told={
            "ends": free("windows with a width; the agreed range of a column that has one", "sums and cells in them")
        },
    )
    def description(self, ends: FloatArray) -> FloatArray:
        """Return counts, moments and histograms of columns; see `description_blocks`.

        Raises OrderRefused for windows without a width, or other than the agreed ranges.

        Parameters
        ----------
        ends : (2, q) FloatArray
            The windows.
        """
        self._check_ends(ends)
        site, is_exact = self._site, not self._plan.mu
        labels, codes = site.partition.arrays["labels"], site.partition.arrays["codes"]
        blocks = description_blocks(self._names, [len(each) for each in site.values], max(2, len(labels)), self._plan)
        unknown = [list(values).index("") if "" in values else -1 for values in site.partition.values["categories"]]

        def contributions(place: slice) -> list[FloatArray]:
            known, moved = self._in_windows(place, ends)
            cells = _cells(moved, known)
            if not is_exact:
                moved = clip_rows(np.clip(moved, -1.0, 1.0), math.sqrt(max(1.0, len(self._names) / 2)))
            found = self._contributions(place, known, moved)
            found["cells"] = cells.reshape(len(known), -1)
            found["gaps"] = (codes[place] == np.array(unknown)).astype(np.float64)
            return [found[block.name] for block in blocks]

        released = self._answer("description", blocks, contributions, ends.tolist())
        return np.concatenate([released, self._constant()]) if is_exact else released

    def _answer(
        self,
        name: str,
        blocks: Sequence[NoisyBlock],
        contributions: Callable[[slice], list[FloatArray]],
        *asked: Any,
    ) -> FloatArray:
        """Return the sums with noise; or exact ones, without small counts and without sums of few values."""
        if self._plan.mu:
            return super()._answer(name, blocks, contributions, *asked)
        totals = {block.name: np.zeros(block.size) for block in blocks}
        for at in range(0, len(self._numeric), CHUNK):
            for block, part in zip(blocks, contributions(slice(at, at + CHUNK)), strict=True):
                totals[block.name] += part.sum(axis=0)
        least = max(1, self._site.min_cell)
        for each in totals.keys() & {"scale", "classes", "categories", "gaps"}:
            totals[each] = np.where(totals[each] < least, 0.0, totals[each])
        if "cells" in totals:
            cells = totals["cells"].reshape(-1, CELLS + 2)
            totals["cells"] = np.concatenate([_pool_small(each, least) for each in cells])
        if "known" in totals:
            few = totals["known"] < max(MIN_KNOWN, least)
            for each in ("known", "sums", "squares"):
                totals[each] = np.where(few, 0.0, totals[each])
            totals["cells"] = np.where(np.repeat(few, CELLS + 2), 0.0, totals["cells"])
        return np.concatenate([totals[block.name] for block in blocks])

    def _constant(self) -> FloatArray:
        """Return (q + r,): 1 for each column whose values are all the same here, and known in enough rows."""
        least = max(MIN_KNOWN, self._site.min_cell)
        numeric = [column[~np.isnan(column)] for column in self._numeric[:].T]
        categorical = list(self._site.partition.arrays["codes"].T)
        found = [len(each) >= least and len(np.unique(each)) == 1 for each in [*numeric, *categorical]]
        return np.array(found, dtype=np.float64)


class DescriptionSite(HorizontalSite):
    """The rows of one site, whose columns are described. Nothing is trained."""

    part_types: ClassVar[PartTypes] = (ColumnSums, DescriptionSums)

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        del self.evaluation
        self.statistics: DescriptionSums = DescriptionSums(self)

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script: categories, bins of columns without a range, and the description."""
        return seq(stage(repeat("category_tables"), "encode", maybe("bin_counts"), "description"))


def description_blocks(
    names: Sequence[str], values: Sequence[int], classes: int, plan: StatisticsPlan
) -> tuple[NoisyBlock, ...]:
    """Return the blocks of the second release.

    Parameters
    ----------
    names : sequence of str
        The numeric columns.
    values : sequence of int
        How many values each categorical column has.
    classes : int
    plan : StatisticsPlan
    """
    mu, count = plan.budget(names).statistics, len(names)
    shares = {"cells": _SHARE_CELLS if names else 0.0, "gaps": _SHARE_GAPS if values else 0.0}
    rest = math.sqrt(1 - sum(shares.values()))
    own = (
        NoisyBlock("cells", count * (CELLS + 2), math.sqrt(count), mu * math.sqrt(shares["cells"])),
        NoisyBlock("gaps", len(values), math.sqrt(len(values)), mu * math.sqrt(shares["gaps"])),
    )
    common = statistics.statistics_blocks(count, values, classes, mu * rest, filled=True)
    return (*common, *(block for block in own if block.size))


def _bins_block(columns: Sequence[Any], budget: statistics.Budget) -> NoisyBlock:
    """Return the block of bins, which are counted once, with what two searches of scales may spend."""
    return bins.bins_block(len(columns), math.hypot(budget.scale, budget.again))


def _cells(moved: FloatArray, known: np.ndarray) -> FloatArray:
    """Return (n, q, CELLS + 2): 1 in the cell of each known value, whose window is put to [-1, 1]."""
    with np.errstate(invalid="ignore"):
        inside = np.clip(np.floor((moved + 1) / 2 * CELLS), 0, CELLS - 1) + 1
    place = np.where(moved < -1, 0, np.where(moved > 1, CELLS + 1, inside)).astype(np.int64)
    cells = np.zeros((*moved.shape, CELLS + 2))
    row, column = np.nonzero(known)
    cells[row, column, place[row, column]] = 1.0
    return cells


def _pool_small(cells: FloatArray, least: int) -> FloatArray:
    """Return the counts of a column's cells, those below the least pooled with the next ones within the window.

    A pooled count is in the cell of its middle row. Small counts outside the window become 0.
    """
    pooled = np.where(cells < least, 0.0, cells)
    pooled[1:-1] = 0.0
    ends, gathered = [1], 0.0
    for place in range(1, CELLS + 1):
        gathered += cells[place]
        if gathered >= least:
            ends.append(place + 1)
            gathered = 0.0
    if len(ends) > 1:
        ends[-1] = CELLS + 1
    for first, last in pairwise(ends):
        cumulated = np.cumsum(cells[first:last])
        pooled[first + np.searchsorted(cumulated, cumulated[-1] / 2)] += cumulated[-1]
    return pooled


# The coordinator.


def describe(
    federation: Federation, plan: StatisticsPlan, schema: Schema, classes: Sequence[str], seed: int, min_cell: int
) -> ColumnDescription:
    """Describe the columns of all sites. The rounds are of phase "describe".

    Parameters
    ----------
    federation : Federation
    plan : StatisticsPlan
        As the terms say it.
    schema : Schema
    classes : sequence of str
        Negative, then positive, or all of more.
    seed : int
        Of the tables of categories.
    min_cell : int
        The minimum count of a category that is shown.
    """
    with federation.phase("describe"):
        return federation.until_stable(lambda: _describe(federation, plan, schema, classes, seed, min_cell))


def _describe(
    federation: Federation, plan: StatisticsPlan, schema: Schema, classes: Sequence[str], seed: int, min_cell: int
) -> ColumnDescription:
    holders = _agreed_categories(federation, schema, seed)
    names, values = list(schema.numeric), [len(each) for each in holders.values()]
    windows = _windows(federation, plan, names)
    hidden = (-(2.0**bins.LAST_EXPONENT), 2.0**bins.LAST_EXPONENT)
    unranged = plan.unranged_columns(names)
    chosen = np.array([windows[name].ends or hidden for name in names]).reshape(-1, 2).T
    ends = plan.ends(names, chosen[:, unranged])
    blocks = description_blocks(names, values, len(classes), plan)
    constant = 0 if plan.mu else len(names) + len(values)
    size = sum(block.size for block in blocks) + constant
    sums = federation.sum("description", shape=(size,), bound=math.inf, ends=ends)
    parts = np.split(sums, np.cumsum([block.size for block in blocks]))
    totals = {block.name: part for block, part in zip(blocks, parts, strict=False)}
    sites = len(federation.sites)
    noise = {block.name: block.sigma * math.sqrt(sites) if plan.mu else 0.0 for block in blocks}
    alike = [None] * (len(names) + len(values)) if plan.mu else [round(count) for count in parts[-1]]
    rows = max(1.0, float(totals["classes"].sum()))
    few = max(float(min_cell), 2 * noise["classes"])
    return ColumnDescription(
        federation.sites,
        plan.mu,
        min_cell,
        rows,
        {name: _shown_count(count, few) for name, count in zip(classes, totals["classes"], strict=True)},
        tuple(
            _numeric(name, number, ends[:, number], windows[name], totals, noise, rows, alike[number])
            for number, name in enumerate(names)
        ),
        tuple(_categorical(holders, totals, noise, rows, alike[len(names) :], min_cell)),
        {name: noise[name] for name in ("classes", "known", "gaps", "cells", "categories") if name in noise},
    )


def _agreed_categories(federation: Federation, schema: Schema, seed: int) -> dict[str, dict[str, int | None]]:
    """Return the values of every categorical column, sorted, with the number of sites that hold each."""
    undeclared = {number: name for number, name in enumerate(schema.categorical) if name not in schema.declared}
    agreed = encoding.agree_with_holders(federation, undeclared, seed)
    found: dict[str, dict[str, int | None]] = {
        name: dict(agreed[name]) if name in agreed else dict.fromkeys(sorted(schema.declared[name]))
        for name in schema.categorical
    }
    federation.run("encode", remember=True, values=[list(each) for each in found.values()])
    return found


def _windows(federation: Federation, plan: StatisticsPlan, names: Sequence[str]) -> dict[str, Window]:
    """Return the window of each column: the agreed range, or that of the bins that are full."""
    unranged = [names[number] for number in plan.unranged_columns(names)]
    found = {name: Window((plan.ranges[name][0], plan.ranges[name][1]), None) for name in names if name in plan.ranges}
    if unranged:
        block = _bins_block(unranged, plan.budget(names))
        counts = federation.sum("bin_counts", shape=(block.size,), bound=math.inf)
        sigma = block.sigma * math.sqrt(len(federation.sites)) if plan.mu else 0.0
        tables = counts[1:].reshape(len(unranged), bins.BINS)
        found |= {name: bin_window(table, sigma) for name, table in zip(unranged, tables, strict=True)}
    return found


def _numeric(
    name: str,
    number: int,
    ends: FloatArray,
    window: Window,
    totals: Mapping[str, FloatArray],
    noise: Mapping[str, float],
    rows: float,
    constant: int | None,
) -> NumericColumn:
    known = float(np.clip(totals["known"][number], 0.0, rows))
    missing = max(0.0, 1 - known / rows)
    if known < max(MIN_KNOWN, 2 * noise["known"]) or window.ends is None:
        return NumericColumn(name, known, missing, None, None, None, None, None, 0.0, window.far, constant)
    middle, half = float(ends.mean()), float(ends[1] - ends[0]) / 2
    center = float(totals["sums"][number]) / known
    spread = deviation(float(totals["squares"][number]) / known, center, is_exact=not noise["known"])
    cells = totals["cells"].reshape(-1, CELLS + 2)[number]
    outside = float(cells[[0, -1]].sum())
    return NumericColumn(
        name,
        known,
        missing,
        middle + half * center,
        None if spread is None else half * spread,
        _quantiles(cells, ends, noise["cells"]),
        float(ends[0]),
        float(ends[1]),
        outside / known if outside > bins.SURE / 2 * noise["cells"] else 0.0,
        window.far,
        constant,
    )


def deviation(mean_square: float, mean: float, *, is_exact: bool) -> float | None:
    """Return the standard deviation of numbers; None where noise made their mean square no larger than a constant's."""
    variance = mean_square - mean**2
    if variance > 0:
        return math.sqrt(variance)
    return 0.0 if is_exact else None


def _quantiles(cells: FloatArray, ends: FloatArray, noise: float) -> tuple[float | None, ...] | None:
    """Return quantiles by interpolation between cells; those outside the window are at its ends."""
    sums = np.cumsum(cells)
    rising = (np.maximum.accumulate(sums) + np.minimum.accumulate(sums[::-1])[::-1]) / 2
    total = float(rising[-1])
    if total <= 0:
        return None
    edges, shares = np.linspace(ends[0], ends[1], CELLS + 1), rising[: CELLS + 1] / total
    return tuple(
        float(np.interp(share, shares, edges)) if _is_told(share, shares, noise / total) else None
        for share in QUANTILES
    )


def _is_told(share: float, shares: FloatArray, noise: float) -> bool:
    """Return whether the noise of the share of rows below a quantile is small enough. noise: of a cell's share."""
    below = 1 + int(np.searchsorted(shares[:-1], share))
    deviation = noise * math.sqrt(below * (1 - share) ** 2 + (CELLS + 2 - below) * share**2)
    return deviation <= min(_MAX_QUANTILE_NOISE, share / 2, (1 - share) / 2)


def _categorical(
    holders: Mapping[str, Mapping[str, int | None]],
    totals: Mapping[str, FloatArray],
    noise: Mapping[str, float],
    rows: float,
    constant: Sequence[int | None],
    min_cell: int,
) -> list[CategoricalColumn]:
    sizes = [len(each) for each in holders.values()]
    counts = np.split(totals.get("categories", np.zeros(0)), np.cumsum(sizes)[:-1]) if sizes else []
    few = max(float(min_cell), 2 * noise.get("categories", 0.0))
    found = []
    for number, (name, values) in enumerate(holders.items()):
        gaps = float(np.clip(totals["gaps"][number], 0.0, rows))
        listed = [
            Category(value, _shown_count(count, few), sites)
            for (value, sites), count in zip(values.items(), counts[number], strict=True)
        ]
        listed.sort(key=lambda each: (-(each.rows or 0.0), each.value))
        others = max(0.0, rows - gaps - sum(each.rows or 0.0 for each in listed))
        found.append(CategoricalColumn(name, rows - gaps, gaps / rows, tuple(listed), others, constant[number]))
    return found


def _shown_count(count: float, few: float) -> float | None:
    """Return a count; None if it is below the minimum, or noise hides it."""
    return float(count) if count >= few else None
