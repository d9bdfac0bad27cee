"""Ranges of numeric columns as a first scenario proposes them: around the values of a file, and roughly."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.data.tables import Feature

_MAX_CODES, _GREATEST_CODE = 10, 99
"""A column with so many different whole numbers at most, and none greater, keeps its least and greatest."""

_STEPS = 4
"""The least number of steps between the ends, in which they are rounded."""


def rough_ranges(features: Iterable[Feature]) -> dict[str, tuple[float, float]]:
    """Return the rough range of each numeric column that has values."""
    numeric = {each.name: each.values.astype(np.float64) for each in features if not each.categorical}
    known = {name: values[np.isfinite(values)] for name, values in numeric.items()}
    return {name: rough_range(values) for name, values in known.items() if len(values)}


def rough_range(values: FloatArray) -> tuple[float, float]:
    """Return the lowest and highest number for a column with these values (n,), rounded outward.

    The ends are multiples of 1, 2 or 5 times a power of ten. Few whole numbers, such as 0 and 1, are taken for codes,
    and keep their ends.
    """
    different = np.unique(values)
    low, high = float(different[0]), float(different[-1])
    if low == high:
        return min(low, 0.0), max(high, 0.0) or 1.0
    are_small = len(different) <= _MAX_CODES and max(-low, high) <= _GREATEST_CODE
    if are_small and (different == np.rint(different)).all():
        return low, high
    step = _round_step((high - low) / _STEPS)
    return _round_end(math.floor(round(low / step, 9)) * step), _round_end(math.ceil(round(high / step, 9)) * step)


def _round_step(most: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is not above `most`."""
    power = 10.0 ** math.floor(math.log10(most))
    return max(factor * power for factor in (1, 2, 5) if factor == 1 or factor * power <= most)


def _round_end(end: float) -> float:
    return float(f"{end:.12g}") + 0.0
