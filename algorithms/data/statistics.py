"""Noisy statistics of columns: what is agreed on about all rows, with noise as large as a row.

Exact means, deviations and extremes name rows: by subset sums, by two runs, by folds. Here sites open counts, column
sums, sums of squares and of products, and frequencies of categories by secure sums of vectors with noise, which promise
`data.statistics_privacy` as one mu-Gaussian differentially private release (see `privacy.noisy_sums`). All that is
computed from them is as safe.

A numeric column is clipped to a window, whose two ends are public: `data.ranges`, or else those that `scale_search`
finds in a first release. Where noise hides them, ranges are required. Means and squares are of windows put to [-1, 1];
products are of columns on their noisy standard scale.

There is one set of statistics for all folds, over all rows of the sites, before folds are dealt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsvm.algorithms.data.class_statistics import Cells, ClassTotals
from fedsvm.algorithms.data.scaling import Scale, ScaleName
from fedsvm.algorithms.privacy.noisy_sums import NoisyBlock
from fedsvm.federation.arrays import FloatArray

_SHARE_EXPLAINED, _SHARE_SCALE, _SHARE_AGAIN, _SHARE_PRODUCTS = 0.1, 0.24, 0.16, 0.5
"""Of squared mu: for explained shares; of what remains, for the search of scales, and for a second one of columns that
the first does not find; and of what remains then, for products."""

_SHARES = {"classes": 1.0, "known": 1.0, "sums": 2.0, "squares": 3.0, "categories": 3.0}
"""Of squared mu that remains, in proportion, for each block of the statistics."""

MAX_PRODUCT_COLUMNS = 256
"""With more numeric columns no products are summed."""

_LEAST_KEPT = 0.3
"""The least factor by which clipping is taken to make products smaller."""

_LONGEST = 1.2
"""Largest mean square of a row on the standard scale; longer rows are clipped."""


@dataclass(frozen=True)
class NoisyStatistics:
    """Noisy statistics of all rows, as the sites released them.

    Attributes
    ----------
    mu : float
        Of Gaussian differential privacy, of all rounds together, for adding or removing one row.
    rows : float
        Number of rows, 1 or more.
    classes : (K,) FloatArray
        Numbers of rows of the classes, 0 or more; of two the negative one's first.
    low, high : (q,) FloatArray
        Windows to which numeric columns are clipped.
    known : (q,) FloatArray
        Numbers of known values, 1 or more.
    mean : (q,) FloatArray
        Means of numeric columns.
    covariance, covariance_noise : (q, q) FloatArray
        Covariance of numeric columns, and the standard deviation of the noise in it. Off the diagonal it is 0 unless
        products were summed. It need not be positive definite.
    frequencies : tuple of FloatArray
        Of each categorical column the shares of its values, in the order of the vocabulary; their sum is 1.
    shares : tuple of FloatArray
        Of each categorical column the share of rows that have each value, which need not add up to 1.
    sigma : mapping of str to float
        Of each block the standard deviation of the noise of the total.
    of_classes : ClassTotals, optional
        Sums over the rows of each class. None unless a model is made of them.
    """

    mu: float
    rows: float
    classes: FloatArray
    low: FloatArray
    high: FloatArray
    known: FloatArray
    mean: FloatArray
    covariance: FloatArray
    covariance_noise: FloatArray
    frequencies: tuple[FloatArray, ...]
    shares: tuple[FloatArray, ...]
    sigma: Mapping[str, float]
    of_classes: ClassTotals | None = None

    @property
    def deviation(self) -> FloatArray:
        """(q,) standard deviations of numeric columns, not below what noise hides."""
        return np.asarray(np.sqrt(np.maximum(self.covariance.diagonal(), self.covariance_noise.diagonal())))

    @property
    def missing(self) -> FloatArray:
        """(q,) shares of missing values of numeric columns, 0 where noise hides them."""
        share = 1 - self.known / self.rows
        return np.where(
            share * self.rows > 2 * math.hypot(*(self.sigma[name] for name in ("known", "classes"))), share, 0.0
        )

    def scale(self, method: ScaleName, indicated: Sequence[int] = ()) -> Scale:
        """Return the scale of encoded columns: numeric ones, then those of categories, then indicators of gaps.

        Columns of 0 and 1 have the deviation of their share f, the root of f (1 - f), and not below what noise hides.
        Values are clipped to their windows, so that a window that is too small makes no row large.

        Parameters
        ----------
        method : {"standard", "minmax", "none"}
            minmax is from the ends of windows.
        indicated : sequence of int
            Numbers of the numeric columns that have an indicator.
        """
        of_values = np.concatenate([np.zeros(0), *self.shares])
        marks = np.concatenate([of_values, self.missing[list(indicated)] if indicated else np.zeros(0)])
        if method == "none":
            return Scale.none(len(self.mean) + len(marks))
        low, high = np.concatenate([self.low, np.zeros(len(marks))]), np.concatenate([self.high, np.ones(len(marks))])
        window = np.array([low, high]) if len(self.mean) else None
        if method == "minmax":
            return replace(Scale.minmax(low, high), window=window)
        hidden = self.sigma.get("categories", self.sigma["classes"]) / self.rows
        deviation = np.sqrt(np.maximum(marks * (1 - marks), min(hidden, 0.25)))
        found = Scale.standard(np.concatenate([self.mean, marks]), np.concatenate([self.deviation, deviation]))
        return replace(found, window=window)


# What is asked.


def wants_products(settings: Mapping[str, Any]) -> bool:
    """Return whether these settings of an algorithm need the covariance of columns."""
    return settings.get("features") == "landmarks" and settings.get("landmark_method") in ("auto", "drawn")


def wants_explained(settings: Mapping[str, Any]) -> bool:
    """Return whether these settings of an algorithm need explained shares of landmarks."""
    return settings.get("features") == "landmarks" and settings.get("landmark_method") in ("auto", "drawn")


@dataclass(frozen=True)
class Budget:
    """The mu of each round; 0 of a round that is not asked.

    Attributes
    ----------
    scale, again, statistics, products, explained : float
        again: of the second search, for the columns that the first does not find.
    """

    scale: float
    again: float
    statistics: float
    products: float
    explained: float

    @classmethod
    def of(cls, mu: float, *, searched: bool, products: bool, explained: bool) -> Budget:
        """Return how mu is divided.

        Parameters
        ----------
        mu : float
            Of all rounds.
        searched : bool
            True if some numeric column has no range.
        products : bool
            True if products of columns are summed.
        explained : bool
            True if explained shares of landmarks are summed.
        """
        last = _SHARE_EXPLAINED if explained else 0.0
        first, again = ((1 - last) * share * searched for share in (_SHARE_SCALE, _SHARE_AGAIN))
        second = (1 - last - first - again) * _SHARE_PRODUCTS if products else 0.0
        shares = first, again, 1 - last - first - again - second, second, last
        return cls(*(mu * math.sqrt(share) for share in shares))


def statistics_blocks(
    columns: int, values: Sequence[int], classes: int, mu: float, *, filled: bool, cells: Cells | None = None
) -> tuple[NoisyBlock, ...]:
    """Return the blocks of the statistics.

    Parameters
    ----------
    columns : int
        The number of numeric columns.
    values : sequence of int
        How many values each categorical column has.
    classes : int
    mu : float
    filled : bool
        True if numbers may be missing.
    cells : Cells, optional
        Those for which each block is summed; None of sums over all rows, and of rows of each class.
    """
    moments = math.sqrt(max(1.0, columns / 2))
    sizes = {
        "classes": (classes if cells is None else 1, 1.0),
        "known": (columns if filled else 0, math.sqrt(columns)),
        "sums": (columns, moments),
        "squares": (columns, moments),
        "categories": (sum(values), math.sqrt(len(values))),
    }
    present = {name: found for name, found in sizes.items() if found[0]}
    if cells is not None:
        present = {name: (size * cells.count, length * cells.length) for name, (size, length) in present.items()}
    whole = sum(_SHARES[name] for name in present)
    return tuple(
        NoisyBlock(name, size, length, mu * math.sqrt(_SHARES[name] / whole))
        for name, (size, length) in present.items()
    )


def products_block(columns: int, mu: float) -> NoisyBlock:
    """Return the block of squares of numeric columns, and of products of every two times the root of two."""
    return NoisyBlock("products", columns * (columns + 1) // 2, _LONGEST * columns, mu)


def are_hopeless(columns: int, rows: float, sigma: float) -> bool:
    """Return whether noise of this deviation hides every correlation, or there are too many columns for products."""
    return columns > MAX_PRODUCT_COLUMNS or sigma / (math.sqrt(2) * rows) > 1.0


def longest_row(columns: int) -> float:
    """Return the length to which rows on the standard scale are clipped before products are taken."""
    return math.sqrt(_LONGEST * columns)


# What is found.


def statistics_of(
    totals: Mapping[str, FloatArray], sigma: Mapping[str, float], ends: FloatArray, values: Sequence[int], mu: float
) -> NoisyStatistics:
    """Return the statistics that noisy totals say, without products.

    Parameters
    ----------
    totals : mapping of str to FloatArray
        By the name of the block.
    sigma : mapping of str to float
        Standard deviations of their noise.
    ends : (2, q) FloatArray
        Windows of numeric columns.
    values : sequence of int
        How many values each categorical column has.
    mu : float
        Of all rounds.
    """
    classes = np.maximum(totals["classes"], 0.0)
    rows, columns = max(1.0, float(totals["classes"].sum())), ends.shape[1]
    known = np.clip(totals["known"], 1.0, rows) if "known" in totals else np.full(columns, rows)
    middle, half = ends.mean(axis=0), (ends[1] - ends[0]) / 2
    center = np.clip(totals.get("sums", np.zeros(0)) / known, -1.0, 1.0)
    variance = totals.get("squares", np.zeros(0)) / known - center**2
    hidden = sigma.get("squares", 0.0) / known
    counts = np.split(totals.get("categories", np.zeros(0)), np.cumsum(values)[:-1]) if values else []
    shares = tuple(np.clip(each / rows, 0.0, 1.0) for each in counts)
    return NoisyStatistics(
        mu,
        rows,
        classes,
        ends[0],
        ends[1],
        known,
        middle + half * center,
        np.diag(variance * half**2),
        np.diag(hidden * half**2),
        tuple(each / each.sum() if each.any() else np.full(len(each), 1 / max(1, len(each))) for each in shares),
        shares,
        {"known": 0.0, **sigma},
    )


def with_products(found: NoisyStatistics, products: FloatArray, sigma: float) -> NoisyStatistics:
    """Return the statistics with the covariance of every two columns.

    Clipping makes all products smaller, by about the factor by which it makes the mean square smaller, which is known.

    Parameters
    ----------
    found : NoisyStatistics
    products : (q (q + 1) / 2,) FloatArray
        By `products_block`; those of columns with themselves come first.
    sigma : float
        Standard deviation of the noise.
    """
    covariance, noise = found.covariance.copy(), found.covariance_noise.copy()
    width = len(covariance)
    kept = float(np.clip(products[:width].sum() / width / found.rows, _LEAST_KEPT, 1.0))
    upper = np.triu_indices(width, 1)
    unit = np.outer(found.deviation, found.deviation)[upper] / (math.sqrt(2) * found.rows * kept)
    for matrix, entries in ((covariance, products[width:] * unit), (noise, sigma * unit)):
        matrix[upper] = entries
        matrix.T[upper] = entries
    return replace(found, covariance=covariance, covariance_noise=noise, sigma={**found.sigma, "products": sigma})
