"""Bins of numbers between powers of two, one set for each sign, with a bin of zeros between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.privacy.noisy_sums import NoisyBlock
from fedsvm.federation.arrays import FloatArray, IntArray

FIRST_EXPONENT, LAST_EXPONENT = -13, 26
"""Of two: sizes of numbers between which bins lie; smaller and larger ones are in the outermost bins."""

_SIZES = LAST_EXPONENT - FIRST_EXPONENT + 1
BINS = 2 * _SIZES + 1
"""Bins of a column: negative numbers by size, zero, positive numbers by size."""


_FAR = 3.0
"""Widths of the middle half of a column; bins farther away from it are far from the rest."""

SURE = 6.0
"""Deviations of noise above which a bin is full."""

_COVERED = 0.8
"""The least share of known values in full bins; with less the window is hidden by noise."""


def bins_block(columns: int, mu: float) -> NoisyBlock:
    """Return the block of counts: one bin of each column and the row itself."""
    return NoisyBlock("scale", 1 + columns * BINS, math.sqrt(1 + columns), mu)


def bin_values(columns: FloatArray) -> FloatArray:
    """Return (n, 1 + c BINS): 1 for each row (n, c), and in the bin of each known value."""
    table = np.zeros((*columns.shape, BINS))
    row, column = np.nonzero(~np.isnan(columns))
    table[row, column, bins_of(columns[row, column])] = 1.0
    return np.hstack([np.ones((len(columns), 1)), table.reshape(len(columns), -1)])


def bins_of(numbers: FloatArray) -> IntArray:
    """Return the bin of each number: by its sign, and the power of two that is just not below its size."""
    size = np.where(numbers == 0, 1.0, np.abs(numbers))
    exponent = np.clip(np.ceil(np.log2(size)), FIRST_EXPONENT, LAST_EXPONENT).astype(np.int64) - FIRST_EXPONENT
    return np.asarray(
        np.where(numbers == 0, _SIZES, np.where(numbers > 0, _SIZES + 1 + exponent, _SIZES - 1 - exponent))
    )


def bin_ends() -> tuple[FloatArray, FloatArray]:
    """Return (BINS,) the lower and the upper ends of the bins."""
    sizes = 2.0 ** np.arange(FIRST_EXPONENT, LAST_EXPONENT + 1)
    inner = np.concatenate([[0.0], sizes[:-1]])
    return np.concatenate([-sizes[::-1], [0.0], inner]), np.concatenate([-inner[::-1], [0.0], sizes])


@dataclass(frozen=True)
class Window:
    """The part of a column that is not far from the rest, and what is. ends is None if noise hides it."""

    ends: tuple[float, float] | None
    far: tuple[float, float, float] | None


def bin_window(table: FloatArray, sigma: float) -> Window:
    """Return the window of a column, from the counts (BINS,) of its values, with noise of deviation sigma."""
    full = table > SURE * sigma
    counts = np.where(full, table, 0.0)
    if not full.any() or counts.sum() < _COVERED * (table.sum() - SURE * sigma):
        return Window(None, None)
    lower, upper = bin_ends()
    shares = np.cumsum(counts) / counts.sum()
    first, last = lower[np.argmax(shares >= 0.25)], upper[np.argmax(shares >= 0.75)]
    reach = _FAR * (last - first)
    near = full & ((lower <= last + reach) & (upper >= first - reach) if reach else True)
    low, high = float(lower[near.argmax()]), float(upper[len(near) - 1 - near[::-1].argmax()])
    away = full & ~near
    far = None
    if away.any():
        ends = float(lower[away.argmax()]), float(upper[len(away) - 1 - away[::-1].argmax()])
        far = float(counts[away].sum() / counts.sum()), *ends
    return Window((low, high if high > low else low + 1.0), far)
