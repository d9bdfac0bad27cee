"""Features of many rows, read block by block: those that are kept, or computed again whenever they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedsvm.algorithms.data.scaled_rows import ScaledRows
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray

MOST_VALUES = 1 << 27
"""Features of a site's rows that are kept in memory: 1 GiB of them."""

_BLOCK_VALUES, _LEAST_ROWS = 1 << 16, 256
"""Features of a block. The C library keeps memory of this size for the next block; more it would give back."""

_KEPT_VALUES = 1 << 18
"""Features of a block of those that are kept: with a copy in single precision they stay in the cache. With half as many
a round takes a tenth longer."""


@dataclass(frozen=True)
class KeptBlocks:
    """Features (n, m) in memory."""

    features: FloatArray

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield the place of each block and its features."""
        rows, width = self.features.shape
        for place in _places(rows, width, _KEPT_VALUES):
            yield place, self.features[place]

    @property
    def width(self) -> int:
        """m."""
        return int(self.features.shape[1])

    def keep_rows(self, kept: BoolArray) -> KeptBlocks:
        """Return the blocks of some rows (n,)."""
        return KeptBlocks(self.features[kept])

    def keep_columns(self, kept: IntArray) -> KeptBlocks:
        """Return the blocks of some features."""
        return KeptBlocks(self.features[:, kept])

    def times(self, vector: FloatArray) -> FloatArray:
        """Return (n,) the products of all features with a vector (m,)."""
        return np.asarray(self.features @ vector)


@dataclass(frozen=True)
class RowBlocks:
    """Rows (n, p) and the map that gives their features (n, m).

    Parameters
    ----------
    rows : FloatArray or ScaledRows
        On the common scale.
    feature_map : FeatureMap
    columns : IntArray
        The features that are read, of those that the map gives.
    """

    rows: FloatArray | ScaledRows
    feature_map: FeatureMap
    columns: IntArray

    @classmethod
    def of(cls, rows: FloatArray | ScaledRows, feature_map: FeatureMap) -> RowBlocks:
        """Return the blocks of all features."""
        return cls(rows, feature_map, np.arange(feature_map.dimensions))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield the place of each block and its features, which are dropped before the next."""
        width = max(self.feature_map.dimensions, self.rows.shape[1])
        for place in _places(len(self.rows), width, _BLOCK_VALUES):
            features = self.feature_map(self.rows[place])
            yield place, features if self.is_whole else features[:, self.columns]

    @property
    def width(self) -> int:
        """m."""
        return len(self.columns)

    @property
    def is_whole(self) -> bool:
        """True if all features of the map are read."""
        return len(self.columns) == self.feature_map.dimensions

    def keep_rows(self, kept: BoolArray) -> RowBlocks:
        """Return the blocks of some rows (n,)."""
        return replace(self, rows=self.rows.keep(kept) if isinstance(self.rows, ScaledRows) else self.rows[kept])

    def keep_columns(self, kept: IntArray) -> RowBlocks:
        """Return the blocks of some features."""
        return replace(self, columns=self.columns[kept])

    def times(self, vector: FloatArray) -> FloatArray:
        """Return (n,) the products of all features with a vector (m,)."""
        found = np.empty(len(self.rows))
        for place, features in self:
            found[place] = features @ vector
        return found

    def squares(self) -> float:
        """Return the sum of squares of all features."""
        return sum(float((features**2).sum()) for _, features in self)

    def to_array(self) -> FloatArray:
        """Return (n, m) all features."""
        found = np.empty((len(self.rows), len(self.columns)))
        for place, features in self:
            found[place] = features
        return found


def squares_of(features: FloatArray) -> float:
    """Return the sum of squares of features (n, m), without a copy of them all."""
    rows, width = features.shape
    return sum(float((features[place] ** 2).sum()) for place in _places(rows, width, _BLOCK_VALUES))


def _places(rows: int, width: int, values: int) -> Iterator[slice]:
    """Yield the places of blocks of rows of so many numbers each, of about so many values."""
    length = max(_LEAST_ROWS, values // max(1, width))
    for start in range(0, rows, length):
        yield slice(start, start + length)
