"""Horizontal partitions made comparable: one vocabulary for categories, one scale for columns, one count of rows.

Every site holds different rows of the same columns. What the sites need in common is agreed by sums, never by
looking at pooled rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from algorithms.data import encoding
from algorithms.data.encoding import Vocabulary
from federation.arrays import FloatArray
from federation.federation import Federation
from federation.site.partition import Partition
from federation.site.program import SiteProgram, step
from protocols.common_seed import common_seed
from protocols.secret_order import secret_order

ScaleName = Literal["standard", "minmax", "none"]
_AGREED_DIGITS = 12

MINMAX_DISCLOSES = "each site's smallest and largest value of every column, unlinked from the site and from each other"


class HorizontalSite(SiteProgram):
    """The rows of one site.

    The partition's arrays are `numeric` (n, p), `codes` (n, q) of the q categorical columns, `labels` (K, n) of +1
    and -1 for K binary problems, and `folds` (n,): the fold in which a row is held out, -1 for none. Its value
    `categories` lists the values of each categorical column, at this site, that the codes count.
    """

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        numeric = partition.arrays["numeric"]
        self.training = np.ones(len(numeric), dtype=bool)
        self.encoded: FloatArray = numeric
        self.rows = self.encoded

    @property
    def labels(self) -> FloatArray:
        """(K, n) labels of the training rows."""
        return np.asarray(self.partition.arrays["labels"][:, self.training])

    @step
    def agree_secret(self) -> None:
        """Share a seed with the other sites that the coordinator does not know."""
        self.secret = common_seed(self.channel)

    @step
    def category_tables(self, columns: list[int], slots: int, salt: str) -> FloatArray:
        """(k, slots, record): this site's categories of k columns as summable tables; see `vocabulary`."""
        categories = self.partition.values["categories"]
        return np.stack([encoding.table_of(categories[column], slots, salt) for column in columns])

    @step
    def encode(self, values: list[list[str]]) -> None:
        """Turn categorical columns into one 0/1 column per value, behind the numeric ones."""
        codes, categories = self.partition.arrays["codes"], self.partition.values["categories"]
        blocks = [encoding.one_hot(codes[:, j], categories[j], values[j]) for j in range(codes.shape[1])]
        self.encoded = np.hstack([self.partition.arrays["numeric"], *blocks])

    @step
    def hold_out(self, fold: int) -> None:
        """Train on all rows but those of `fold`."""
        self.training = self.partition.arrays["folds"] != fold

    @step
    def row_count(self) -> FloatArray:
        """Number of training rows."""
        return np.array(float(self.training.sum()))

    @step
    def column_sums(self) -> FloatArray:
        """(p,) sums of the columns."""
        return np.asarray(self.encoded[self.training].sum(axis=0))

    @step
    def column_squares(self, mean: FloatArray) -> FloatArray:
        """(p,) sums of squared distances from the mean."""
        return np.asarray(((self.encoded[self.training] - mean) ** 2).sum(axis=0))

    @step
    def column_extremes(self) -> FloatArray:
        """(2, n sites, p): this site's minima and maxima, each in a place that only the sites know."""
        sites = self.channel.sites
        rows = self.encoded[self.training]
        table = np.zeros((2, len(sites), rows.shape[1]))
        if len(rows):
            for kind, extremes in enumerate((rows.min(axis=0), rows.max(axis=0))):
                for column, extreme in enumerate(extremes):
                    order = secret_order(self.secret, f"extreme {kind} {column}", len(sites))
                    table[kind, order[sites.index(self.site)], column] = extreme
        return table

    @step
    def rescale(self, offset: FloatArray, scale: FloatArray) -> None:
        """Put the training rows on the common scale."""
        self.rows = (self.encoded[self.training] - offset) / scale


@dataclass(frozen=True)
class Scale:
    """(x - offset) / scale, both (p,)."""

    offset: FloatArray
    scale: FloatArray

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Rows (n, p) on the common scale."""
        return np.asarray((rows - self.offset) / self.scale)


def agree_vocabulary(
    federation: Federation, columns: Sequence[str], declared: Mapping[str, Sequence[str]], seed: int
) -> Vocabulary:
    """The values of every categorical column: declared ones as they are, the others by secure sums."""
    undeclared = {number: column for number, column in enumerate(columns) if column not in declared}
    agreed = encoding.agree(federation, undeclared, seed)
    values = {column: agreed[column] if column in agreed else sorted(declared[column]) for column in columns}
    federation.run("encode", remember=True, values=list(values.values()))
    return Vocabulary(values)


def count_rows(federation: Federation) -> dict[str, int]:
    """Training rows at each site, which the sites do not hide."""
    return {site: int(count) for site, count in federation.gather("row_count", shape=()).items()}


def agree_scale(federation: Federation, method: ScaleName, columns: int, rows: int) -> Scale:
    """Offset and scale of each column from sums over the sites, and the rows put on it.

    standard: mean and standard deviation. minmax: to [-1, 1]; the coordinator sees each site's extremes, which are
    single patients' values, though not whose. A constant column keeps scale 1. The figures are rounded to 12
    digits, so that they do not depend on how the rows are spread over the sites.
    """
    if method == "standard":
        offset, scale = _moments(federation, columns, rows)
    elif method == "minmax":
        offset, scale = _middles(federation, columns)
    else:
        offset, scale = np.zeros(columns), np.ones(columns)
    agreed = Scale(_rounded(offset), _rounded(np.where(scale > 0, scale, 1.0)))
    federation.run("rescale", remember=True, offset=agreed.offset, scale=agreed.scale)
    return agreed


def _moments(federation: Federation, columns: int, rows: int) -> tuple[FloatArray, FloatArray]:
    mean = federation.sum("column_sums", shape=(columns,), bound=math.inf) / rows
    squares = federation.sum("column_squares", shape=(columns,), bound=math.inf, mean=mean)
    deviation = np.sqrt(squares / rows)
    # What is left of a constant column is the rounding of its mean, not a spread to divide by.
    return mean, np.where(deviation > 1e-9 * np.abs(mean), deviation, 0.0)


def _middles(federation: Federation, columns: int) -> tuple[FloatArray, FloatArray]:
    federation.run("agree_secret")
    shape = (2, len(federation.sites), columns)
    lows, highs = federation.sum("column_extremes", shape=shape, bound=math.inf)
    federation.disclose("coordinator", "column_extremes", MINMAX_DISCLOSES, shape)
    low, high = lows.min(axis=0), highs.max(axis=0)
    return (high + low) / 2, (high - low) / 2


def _rounded(values: FloatArray) -> FloatArray:
    return np.array([float(f"{value:.{_AGREED_DIGITS}g}") for value in values])
