"""Exact sums of columns, by which sites agree on categories, on values in place of missing ones and on a scale.

`ColumnSums` is a site's part. The functions are the coordinator's: each takes its sums and has the sites apply the
result to their rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsvm.algorithms.data import encoding
from fedsvm.algorithms.data.columns import Filling
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.data.scaled_rows import blocks_of
from fedsvm.algorithms.data.scaling import Scale, ScaleName
from fedsvm.algorithms.settings import MAX_COUNT
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SitePart, free, step
from fedsvm.protocols.secret_order import secret_order

if TYPE_CHECKING:
    from fedsvm.algorithms.data.horizontal import HorizontalSite

_AGREED_DIGITS = 12
MIN_KNOWN = 3
"""The fewest values whose mean a site may reveal."""

MINMAX_DISCLOSES = "each site's smallest and largest value of every column, unlinked from the site and from each other"


SCALE_STEPS = {
    "standard": ("column_sums", "column_squares"),
    "minmax": ("agree_secret", "column_extremes"),
    "none": (),
}
"""The steps by which each common scale is computed."""


class ColumnSums(SitePart):
    """The sums by which sites agree on categories, on values in place of missing ones, and on a common scale."""

    def __init__(self, site: HorizontalSite) -> None:
        self._site = site

    @step(
        told={
            "columns": free("numbers of categorical columns", "nothing; the values of each are opened anyway"),
            "slots": free("a whole number", "nothing; a table of another size opens the same values"),
            "salt": free("any text", "nothing; another place in the table for the same values"),
        }
    )
    def category_tables(self, columns: list[int], slots: int, salt: str) -> FloatArray:
        """Return the (k, slots, record) tables of this site's categories of k columns, to be summed; see `encoding`."""
        known = {column: self._site.open_categories(column) for column in columns}
        return np.stack([encoding.table_of(known[column], slots, salt) for column in columns])

    @step
    def missing_values(self) -> FloatArray:
        """Return the (q,) number of training rows without a value in each numeric column."""
        return np.asarray(np.isnan(self._numeric).sum(axis=0), dtype=np.float64)

    @step(bound=math.inf)
    def known_values(self) -> FloatArray:
        """Return the (q,) sum of the known values of the training rows in each numeric column."""
        return np.asarray(np.nansum(self._numeric, axis=0))

    @step(bound=math.inf)
    def column_sums(self) -> FloatArray:
        """Return the (p,) sums of the columns."""
        return self._add_up(lambda rows: rows)

    @step(
        bound=math.inf,
        told={
            "mean": free("any point", "nothing; the sum follows from the columns' sums and the sums around their mean"),
        },
    )
    def column_squares(self, mean: FloatArray) -> FloatArray:
        """Return the (p,) sums of squared distances from the mean."""
        return self._add_up(lambda rows: (rows - mean) ** 2)

    @step(bound=math.inf)
    def column_extremes(self) -> FloatArray:
        """Return the (2, n sites, p) this site's minima and maxima, each in a place that only the sites know."""
        site = self._site
        sites = site.channel.sites
        table = np.zeros((2, len(sites), site.encoded.shape[1]))
        if site.training.any():
            ends = [(rows.min(axis=0), rows.max(axis=0)) for rows in blocks_of(site.encoded, site.training)]
            lows, highs = (np.stack(each) for each in zip(*ends, strict=True))
            for kind, extremes in enumerate((lows.min(axis=0), highs.max(axis=0))):
                for column, extreme in enumerate(extremes):
                    order = secret_order(site.secret, f"extreme {kind} {column}", len(sites))
                    table[kind, order[sites.index(site.site)], column] = extreme
        return table

    @property
    def _numeric(self) -> FloatArray:
        return self._site.numeric[self._site.training]

    def _add_up(self, values: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Return (p,) the sums of values of the training rows."""
        blocks = blocks_of(self._site.encoded, self._site.training)
        return reduce(np.add, (np.asarray(values(rows).sum(axis=0)) for rows in blocks))


def agree_vocabulary(
    federation: Federation, columns: Sequence[str], declared: Mapping[str, Sequence[str]], seed: int
) -> Vocabulary:
    """Agree on the values of every categorical column: declared ones as they are, the others by secure sums."""
    undeclared = {number: column for number, column in enumerate(columns) if column not in declared}
    agreed = encoding.agree(federation, undeclared, seed)
    values = {column: agreed[column] if column in agreed else sorted(declared[column]) for column in columns}
    federation.run("encode", remember=True, values=list(values.values()))
    return Vocabulary(values)


def agree_filling(federation: Federation, columns: Sequence[str], rows: int, *, indicated: bool) -> Filling:
    """Compute means of the known values of numeric columns, and fill the rows with them; 0 for a column without any.

    Raises FederationError, before any value is summed, where the mean would be that of one row or two.

    indicated: whether 0/1 columns say where values are missing.
    """
    shape = (len(columns),)
    missing = np.rint(federation.sum("missing_values", shape=shape, bound=float(MAX_COUNT)))
    few = (missing < rows) & (rows - missing < MIN_KNOWN)
    if few.any():
        named = ", ".join(repr(name) for name, is_few in zip(columns, few, strict=True) if is_few)
        raise FederationError(
            f"Fewer than {MIN_KNOWN} training rows have a value of {named}, and all sites would receive its mean: "
            "add the column to data.ignore."
        )
    sums = federation.sum("known_values", shape=shape, bound=math.inf)
    means = np.divide(sums, rows - missing, out=np.zeros_like(sums), where=missing < rows)
    return apply_filling(federation, means, missing, indicated=indicated)


def apply_filling(federation: Federation, means: FloatArray, missing: FloatArray, *, indicated: bool) -> Filling:
    """Round means, order the sites to put them where values are missing, and return them.

    missing: (q,) how many values each column lacks; `indicated` adds a 0/1 column for those that lack any.
    """
    gaps = np.flatnonzero(missing > 0).tolist() if indicated else []
    filling = Filling(_round_to_bits(means), tuple(gaps))
    federation.run("fill", remember=True, values=filling.values, indicated=gaps)
    return filling


def agree_scale(federation: Federation, method: ScaleName, columns: int, rows: int) -> Scale:
    """Compute offset and scale of each column from sums over the sites, and scale the rows.

    standard: mean and standard deviation. minmax: to [-1, 1]; the coordinator sees each site's extremes, which are
    single patients' values, though not whose. A constant column keeps scale 1. The figures are rounded to 12
    digits, so that they do not depend on how the rows are spread over the sites.
    """
    if method == "standard":
        mean = federation.sum("column_sums", shape=(columns,), bound=math.inf) / rows
        squares = federation.sum("column_squares", shape=(columns,), bound=math.inf, mean=mean)
        found = Scale.standard(mean, np.sqrt(squares / rows))
    elif method == "minmax":
        federation.run("agree_secret")
        shape = (2, len(federation.sites), columns)
        lows, highs = federation.sum("column_extremes", shape=shape, bound=math.inf)
        federation.disclose("coordinator", "column_extremes", MINMAX_DISCLOSES, shape)
        found = Scale.minmax(lows.min(axis=0), highs.max(axis=0))
    else:
        found = Scale.none(columns)
    return apply_scale(federation, found)


def apply_scale(federation: Federation, found: Scale) -> Scale:
    """Round a scale, order the sites to apply it to their rows, and return it."""
    agreed = replace(found, offset=_round_to_bits(found.offset), scale=_round_to_bits(found.scale))
    window: dict[str, Any] = {} if found.window is None else {"window": found.window}
    federation.run("rescale", remember=True, offset=agreed.offset, scale=agreed.scale, **window)
    return agreed


def _round_to_bits(values: FloatArray) -> FloatArray:
    return np.array([float(f"{value:.{_AGREED_DIGITS}g}") for value in values])
