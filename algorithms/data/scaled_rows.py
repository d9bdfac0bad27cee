"""Rows on the common scale that are computed when they are read, since scaled zeros are other numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.data.sparse_rows import Numbers
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray

_BLOCK_NUMBERS = 1 << 22
"""Numbers of rows that are read at a time."""


@dataclass(frozen=True)
class ScaledRows:
    """Some of the rows (n, p) of a site on a scale.

    Parameters
    ----------
    encoded : Numbers
        All rows of the site before they are scaled.
    scale : Scale
    kept : (n,) IntArray, optional
        Which of them; None for all.
    """

    encoded: Numbers
    scale: Scale
    kept: IntArray | None = None

    @classmethod
    def of(cls, encoded: Numbers, scale: Scale, kept: BoolArray) -> Self:
        """Return the rows that are marked in `kept`."""
        return cls(encoded, scale, None if kept.all() else np.flatnonzero(kept))

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return len(self), self.encoded.shape[1]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.encoded) if self.kept is None else len(self.kept)

    def __getitem__(self, place: slice) -> FloatArray:
        """Return (k, p) some rows."""
        return self.scale(self.encoded[place if self.kept is None else self.kept[place]])

    def keep(self, kept: BoolArray) -> Self:
        """Return some of these rows."""
        return replace(self, kept=np.flatnonzero(kept) if self.kept is None else self.kept[kept])


def places_of(rows: int, width: int) -> Iterator[slice]:
    """Yield the places of so many rows, some at a time, which take a few megabytes at `width` numbers a row; at least
    one."""
    length = max(1, _BLOCK_NUMBERS // max(1, width))
    for start in range(0, max(1, rows), length):
        yield slice(start, start + length)


def blocks_of(rows: Numbers, kept: BoolArray) -> Iterator[FloatArray]:
    """Yield the rows (n, p) that are marked in `kept`, some at a time; at least one block."""
    marked = np.flatnonzero(kept)
    for place in places_of(len(marked), rows.shape[1]):
        yield rows[marked[place]]
