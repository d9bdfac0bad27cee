"""The rounds in which sites release noisy statistics, and what a site puts into them.

A site answers a question once: asked again, to the last bit, it gives the kept answer, so that noise does not average
out. Every other question gets noise of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Protocol

import numpy as np

from fedsvm.algorithms.data import scale_search, statistics
from fedsvm.algorithms.data.class_statistics import Cells, ClassTotals
from fedsvm.algorithms.data.classes import members
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.data.scale_search import ScaleEvidence, find_window, found_ends
from fedsvm.algorithms.data.sparse_rows import Numbers
from fedsvm.algorithms.data.statistics import Budget, NoisyStatistics, wants_explained, wants_products
from fedsvm.algorithms.privacy.noisy_sums import NoisyBlock, clip_rows, compose_mu
from fedsvm.federation.arrays import BoolArray, FloatArray
from fedsvm.federation.channel.generator import drawn_generator
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.answers import AnswerRecord
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import SitePart, free, step
from fedsvm.federation.site.script import Script, maybe, seq
from fedsvm.federation.site.terms import Terms

_VERSION = 3
"""Of what rows contribute: raised when the same question gets another answer."""

CHUNK = 4096
"""Rows whose contributions are in memory at a time."""

_MAX_ENTRIES = 2**24
"""Entries of the contributions that are in memory at a time."""


@dataclass(frozen=True)
class StatisticsPlan:
    """The agreed terms of noisy statistics.

    Parameters
    ----------
    mu : float
        What they promise together; 0 for exact statistics, which take other rounds.
    ranges : mapping of str to sequence of float
        Lowest and highest value of numeric columns, where they are known.
    products : bool
        True if products of columns are summed.
    explained : bool
        True if explained shares of landmarks are summed, for which a part of mu is kept.
    filled : bool
        True if numbers may be missing.
    by_class : bool
        True if each class is summed by itself, for a model that is made of these sums.
    folds, repeats : int
        Those of cross-validation; 0 of none.
    """

    mu: float
    ranges: Mapping[str, Sequence[float]]
    products: bool = False
    explained: bool = False
    filled: bool = False
    by_class: bool = False
    folds: int = 0
    repeats: int = 1

    @classmethod
    def of(cls, terms: Terms, *, by_class: bool = False) -> StatisticsPlan:
        """Return those of a run's terms.

        Parameters
        ----------
        terms : Terms
        by_class : bool, default False
            True if the algorithm makes its model of sums over the rows of each class.
        """
        reading = terms.reading
        return cls(
            float(reading.get("statistics_privacy", 0.0)),
            reading.get("ranges", {}),
            wants_products(terms.settings),
            wants_explained(terms.settings),
            reading.get("missing") == "mean",
            by_class,
            int(reading.get("folds") or 0),
            int(reading.get("repeats") or 1),
        )

    def cells(self, classes: int) -> Cells | None:
        """Return the cells for which so many classes are summed; None of sums over all rows."""
        return Cells(classes, self.folds, self.repeats) if self.by_class else None

    def unranged_columns(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of the columns without a range."""
        return [number for number, name in enumerate(names) if name not in self.ranges]

    def budget(self, names: Sequence[str]) -> Budget:
        """Return the mu of each round, for these numeric columns."""
        searched, products = bool(self.unranged_columns(names)), self.products and len(names) > 1
        return Budget.of(self.mu, searched=searched, products=products, explained=self.explained)

    def ends(self, names: Sequence[str], found: FloatArray) -> FloatArray:
        """Return (2, q) windows: the ranges, and those that were found (2, c) for the other columns."""
        ends = np.array([self.ranges.get(name, (0.0, 1.0)) for name in names], dtype=np.float64).reshape(-1, 2).T.copy()
        ends[:, self.unranged_columns(names)] = found
        return ends


def statistics_script(terms: Terms) -> Script:
    """Return the script of the rounds of noisy statistics, of a run that takes them."""
    products = [maybe("noisy_products")] if wants_products(terms.settings) else []
    return seq(maybe("scale_counts", maybe("more_scale_counts")), "noisy_statistics", *products)


class Holder(Protocol):
    """The attributes of a site that the sums read."""

    channel: Channel
    terms: Terms
    partition: Partition
    answers: AnswerRecord
    min_cell: int
    encoded: Numbers
    numeric: Numbers
    values: list[list[str]]
    sums_by_class: ClassVar[bool]


class StatisticsSums(SitePart):
    """This site's part of noisy statistics, over all of its rows."""

    def __init__(self, site: Holder) -> None:
        self._site = site

    @step(bound=math.inf)
    def scale_counts(self) -> FloatArray:
        """Return (1 + c ENTRIES,): noisy counts of rows, and of the sizes of columns without a range."""
        return self._counts("scale_counts", self._plan.unranged_columns(self._names), self._budget.scale)

    @step(
        bound=math.inf,
        told={"columns": free("columns without a range", "noisy counts of their sizes, with fresh noise as large")},
    )
    def more_scale_counts(self, columns: list[int]) -> FloatArray:
        """Return (1 + c ENTRIES,): noisy counts of rows, and of the sizes of some columns again.

        Raises OrderRefused for a column that has a range.

        Parameters
        ----------
        columns : list of int
            Their numbers, ascending.
        """
        if not columns or columns != sorted(set(columns) & set(self._plan.unranged_columns(self._names))):
            raise OrderRefused("columns must be numbers of columns without an agreed range, in ascending order")
        return self._counts("more_scale_counts", columns, self._budget.again)

    def _counts(self, name: str, columns: list[int], mu: float) -> FloatArray:
        """Return noisy counts of these columns."""
        block = scale_search.scale_block(len(columns), mu)

        def draw(source: Random) -> FloatArray:
            counts = scale_search.scale_counts(self._numeric[:][:, columns])
            return block.noised_counts(counts, scale_search.scale_weights(len(columns)), source)

        return self._release(name, [block], draw, columns)

    @step(
        bound=math.inf,
        told={"ends": free("windows with a width; the agreed range of a column that has one", "noisy sums in them")},
    )
    def noisy_statistics(self, ends: FloatArray) -> FloatArray:
        """Return the noisy statistics of columns clipped to windows; see `statistics_blocks`.

        Raises OrderRefused for windows without a width, or other than the agreed ranges.

        Parameters
        ----------
        ends : (2, q) FloatArray
            The windows.
        """
        self._check_ends(ends)
        arrays, blocks, cells = self._site.partition.arrays, self._blocks, self._cells

        def contributions(place: slice) -> list[FloatArray]:
            known, moved = self._in_windows(place, ends)
            clipped = clip_rows(
                np.clip(moved, -1.0, 1.0), next((block.length for block in blocks if block.name == "sums"), 1.0)
            )
            found = self._contributions(place, known, clipped)
            if cells is None:
                return [found[block.name] for block in blocks]
            found["classes"] = np.ones((len(known), 1))
            own = cells.of_rows(arrays["labels"][:, place], arrays["folds"][place])
            return [cells.spread(own, found[block.name]) for block in blocks]

        return self._answer("noisy_statistics", blocks, contributions, ends.tolist())

    def _in_windows(self, place: slice, ends: FloatArray) -> tuple[BoolArray, FloatArray]:
        """Return for some rows which values (n, q) are known, and all moved so that windows end at -1 and 1, or 0."""
        numeric = self._numeric[place]
        known = ~np.isnan(numeric)
        return known, np.where(known, (numeric - ends.mean(axis=0)) / ((ends[1] - ends[0]) / 2), 0.0)

    def _contributions(self, place: slice, known: BoolArray, moved: FloatArray) -> dict[str, FloatArray]:
        """Return what some rows contribute to the blocks of a release."""
        width, site = len(self._names), self._site
        return {
            "classes": members(site.partition.arrays["labels"][:, place]).T,
            "known": known.astype(np.float64),
            "sums": moved,
            "squares": moved**2,
            "categories": site.encoded[place][:, width : width + sum(map(len, site.values))],
        }

    @step(
        bound=math.inf,
        told={
            "mean, deviation": free(
                "a scale with deviations above 0", "noisy products on it, with fresh noise as large"
            ),
            "ends": free("windows with a width; the agreed range of a column that has one", "noisy products in them"),
        },
    )
    def noisy_products(self, mean: FloatArray, deviation: FloatArray, ends: FloatArray) -> FloatArray:
        """Return (q (q + 1) / 2,): noisy sums of squares and products of columns, clipped and on the standard scale.

        Raises OrderRefused for a deviation that is not above 0, and for windows as `noisy_statistics` does.

        Parameters
        ----------
        mean, deviation : (q,) FloatArray
            The scale.
        ends : (2, q) FloatArray
            The windows.
        """
        self._check_ends(ends)
        width = len(self._names)
        if mean.shape != (width,) or deviation.shape != (width,) or not (deviation > 0).all():
            raise OrderRefused(f"mean and deviation must be of the {width} numeric columns, and deviations above 0")
        block = statistics.products_block(width, self._budget.products)
        upper = np.triu_indices(width, 1)

        def products(place: slice) -> list[FloatArray]:
            numeric = self._numeric[place]
            standard = np.nan_to_num((np.clip(numeric, *ends) - mean) / deviation)
            rows = clip_rows(standard, statistics.longest_row(width))
            return [np.hstack([rows**2, math.sqrt(2) * rows[:, upper[0]] * rows[:, upper[1]]])]

        return self._answer("noisy_products", [block], products, [mean.tolist(), deviation.tolist(), ends.tolist()])

    def _answer(
        self,
        name: str,
        blocks: Sequence[NoisyBlock],
        contributions: Callable[[slice], list[FloatArray]],
        *asked: Any,
    ) -> FloatArray:
        """Return the sums of contributions with noise, or the kept answer to the same question."""
        chunk = max(1, min(CHUNK, _MAX_ENTRIES // max(block.size for block in blocks)))
        places = [slice(at, at + chunk) for at in range(0, len(self._numeric), chunk)]

        def draw(source: Random) -> FloatArray:
            return np.concatenate(
                [block.add_noise(_column(contributions, places, number), source) for number, block in enumerate(blocks)]
            )

        return self._release(name, blocks, draw, *asked)

    def _release(
        self,
        name: str,
        blocks: Sequence[NoisyBlock],
        draw: Callable[[Random], FloatArray],
        *asked: Any,
    ) -> FloatArray:
        """Return what is drawn with noise, or the kept answer to the same question."""
        site = self._site
        question = {
            "version": _VERSION,
            "step": name,
            "asked": asked,
            "blocks": [[block.name, block.size, block.length, block.mu] for block in blocks],
            "sites": site.channel.sites,
            "terms": site.terms.to_fields(),
        }
        source = drawn_generator(site.channel)  # drawn each time: a step that is carried out again draws as often
        return site.answers.answer(question, site.partition, compose_mu(blocks), lambda: draw(source))

    def check_window(self, window: FloatArray) -> None:
        """Raise OrderRefused for a window of all columns that is not of agreed ranges, or with exact statistics.

        Parameters
        ----------
        window : (2, p) FloatArray
        """
        width, held = len(self._names), self._site.encoded.shape[1]
        if not self._plan.mu:
            raise OrderRefused("a window applies to noisy statistics alone, and the agreed ones are exact")
        if window.shape != (2, held) or (window[:, width:] != [[0.0], [1.0]]).any():
            raise OrderRefused(f"a window must be of the {held} columns, and of 0 and 1 where these are")
        self._check_ends(window[:, :width])

    def _check_ends(self, ends: FloatArray) -> None:
        width = len(self._names)
        if ends.shape != (2, width) or not np.isfinite(ends).all() or not (ends[0] < ends[1]).all():
            raise OrderRefused(
                f"ends must be a window for each of the {width} numeric columns, its low end below its high end"
            )
        unranged = self._plan.unranged_columns(self._names)
        if not np.array_equal(self._plan.ends(self._names, ends[:, unranged]), ends):
            raise OrderRefused("ends must be the agreed ranges, for the columns that have one")

    @property
    def _plan(self) -> StatisticsPlan:
        return StatisticsPlan.of(self._site.terms, by_class=self._site.sums_by_class)

    @property
    def _budget(self) -> Budget:
        return self._plan.budget(self._names)

    @property
    def _names(self) -> list[str]:
        return list(self._site.partition.values["numeric"])

    @property
    def _numeric(self) -> Numbers:
        return self._site.numeric

    @property
    def _blocks(self) -> tuple[NoisyBlock, ...]:
        values = [len(each) for each in self._site.values]
        return statistics.statistics_blocks(
            len(self._names),
            values,
            self._classes,
            self._budget.statistics,
            filled=self._plan.filled,
            cells=self._cells,
        )

    @property
    def _classes(self) -> int:
        return max(2, len(self._site.partition.arrays["labels"]))

    @property
    def _cells(self) -> Cells | None:
        return self._plan.cells(self._classes)


def _column(
    contributions: Callable[[slice], list[FloatArray]], places: Sequence[slice], number: int
) -> Iterator[FloatArray]:
    """Yield the contributions of one block, of some rows at a time."""
    for place in places:
        yield contributions(place)[number]


# The coordinator.


def take_statistics(
    federation: Federation, plan: StatisticsPlan, names: Sequence[str], vocabulary: Vocabulary, classes: int
) -> NoisyStatistics:
    """Release noisy statistics of the rows of all sites. Raises FederationError where a range is required.

    Parameters
    ----------
    federation : Federation
    plan : StatisticsPlan
    names : sequence of str
        The numeric columns.
    vocabulary : Vocabulary
        Categories, which the sites have encoded.
    classes : int
    """
    budget, unranged = plan.budget(names), plan.unranged_columns(names)
    found = _find_ends(federation, budget, names, unranged) if unranged else np.zeros((2, 0))
    ends, values = plan.ends(names, found), [len(each) for each in vocabulary.values.values()]
    cells = plan.cells(classes)
    blocks = statistics.statistics_blocks(
        len(names), values, classes, budget.statistics, filled=plan.filled, cells=cells
    )
    size = sum(block.size for block in blocks)
    sums = federation.sum("noisy_statistics", shape=(size,), bound=math.inf, ends=ends)
    places = np.cumsum([block.size for block in blocks])[:-1]
    totals = {block.name: part for block, part in zip(blocks, np.split(sums, places), strict=True)}
    sigma = {block.name: _total(federation, block) for block in blocks}
    of_classes = None if cells is None else ClassTotals(cells, totals, sigma, ends)
    if cells is not None:
        totals, sigma = cells.over_all(totals), cells.noise_over_all(sigma)
    taken = replace(statistics.statistics_of(totals, sigma, ends, values, plan.mu), of_classes=of_classes)
    if not budget.products:
        return taken
    pairs = statistics.products_block(len(names), budget.products)
    if statistics.are_hopeless(len(names), taken.rows, _total(federation, pairs)):
        return taken
    products = federation.sum(
        "noisy_products", shape=(pairs.size,), bound=math.inf, mean=taken.mean, deviation=taken.deviation, ends=ends
    )
    return statistics.with_products(taken, products, _total(federation, pairs))


def _find_ends(federation: Federation, budget: Budget, names: Sequence[str], columns: Sequence[int]) -> FloatArray:
    """Return (2, c): windows of the columns with these numbers, which have no range. Raises FederationError where noise
    hides some."""
    first = _evidence(federation, "scale_counts", len(columns), budget.scale)
    windows = [find_window(place, first) for place in range(len(columns))]
    unsure = [place for place, window in enumerate(windows) if not window.sure]
    if unsure:
        asked = [columns[place] for place in unsure]
        more = _evidence(federation, "more_scale_counts", len(asked), budget.again, columns=asked)
        for again, place in enumerate(unsure):
            windows[place] = find_window(place, first, more, again)
    return found_ends(windows, first.rows, [names[number] for number in columns])


def _evidence(federation: Federation, step: str, count: int, mu: float, **params: Any) -> ScaleEvidence:
    """Return what the noisy counts of so many columns say."""
    block = scale_search.scale_block(count, mu)
    counts = federation.sum(step, shape=(block.size,), bound=math.inf, **params)
    return ScaleEvidence.of(counts, _total(federation, block), count)


def _total(federation: Federation, block: NoisyBlock) -> float:
    """Return the standard deviation of the noise of all sites together."""
    return block.sigma * math.sqrt(len(federation.sites))
