"""Subsets of listed rows with a given mean, found by meet in the middle.

Each subset is split into two halves. The sums of all halves are compared along one direction, where equal sums are
neighbors in order, and then in all columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from functools import lru_cache
from itertools import chain, combinations

import numpy as np

from fedsvm.federation.arrays import FloatArray, IntArray

SAME_SUM = 1e-6
"""Sums of scaled rows that differ by less in every column are one."""

MOST_ROWS = 8
"""Size of the largest subsets."""

_ROUNDING = 1e-10
"""Difference of equal sums along a direction of length 1, at most."""

_MOST_HALVES = 150_000
"""Number of halves of one kind that are compared; of rows that have more, only those nearest to the mean are taken."""

_MOST_PAIRS = 4_000_000
"""Number of halves with the same sum along the direction that are compared in all columns."""


class SubsetsOfMean:
    """A search for subsets of the rows (n, p) with a given mean; of 0/1 columns alone all sizes are searched.

    The mean of rows with other columns belongs to one subset only, so that the search ends with the first.
    """

    def __init__(self, rows: FloatArray) -> None:
        self._rows = rows
        self._low, self._high = rows.min(axis=0, initial=0.0), rows.max(axis=0, initial=0.0)
        direction = np.random.default_rng(0).standard_normal(rows.shape[1])
        self._direction = direction / np.linalg.norm(direction)
        self._along = rows @ self._direction
        self._is_binary = all(len(np.unique(column)) <= 2 for column in rows.T)

    def __call__(self, mean: FloatArray, smallest: int, without: Set[int] = frozenset()) -> list[frozenset[int]]:
        """Return the subsets of `smallest` rows or more whose mean this is, as numbers of rows.

        without: rows that no subset can hold.
        """
        found: list[frozenset[int]] = []
        rows = np.setdiff1d(np.arange(len(self._rows)), list(without))
        for size in range(smallest, MOST_ROWS + 1):
            found += self._of_size(mean, size, rows)
            if found and not self._is_binary:
                break
        return found

    def _of_size(self, mean: FloatArray, size: int, among: IntArray) -> Iterator[frozenset[int]]:
        total = size * mean
        rows = self._possible(mean, size, among)
        if len(rows) < size:
            return
        first, second = _subsets(len(rows), size // 2), _subsets(len(rows), size - size // 2)
        along = self._along[rows]
        left, right = _equal(along[first].sum(axis=1), total @ self._direction - along[second].sum(axis=1))
        subsets = np.sort(np.hstack([first[left], second[right]]), axis=1)
        subsets = np.unique(subsets[(np.diff(subsets, axis=1) > 0).all(axis=1)], axis=0)
        for subset in rows[subsets]:
            if np.abs(self._rows[subset].sum(axis=0) - total).max() < SAME_SUM:
                yield frozenset(subset.tolist())

    def _possible(self, mean: FloatArray, size: int, among: IntArray) -> IntArray:
        """Return the rows that a subset can hold, those nearest to the mean if there are too many."""
        rest = size * mean - self._rows[among]
        low, high = (size - 1) * self._low - SAME_SUM, (size - 1) * self._high + SAME_SUM
        rows = among[((rest >= low) & (rest <= high)).all(axis=1)]
        most = _most_rows(size - size // 2)
        if len(rows) > most:
            rows = rows[np.argsort(((self._rows[rows] - mean) ** 2).sum(axis=1), kind="stable")[:most]]
        return np.asarray(rows)


@lru_cache
def _most_rows(half: int) -> int:
    """Return of how many rows all halves of this size are compared."""
    most = half
    while math.comb(most + 1, half) <= _MOST_HALVES:
        most += 1
    return most


@lru_cache(maxsize=64)
def _subsets(rows: int, size: int) -> IntArray:
    """Return all subsets (s, size) of so many rows."""
    every = np.fromiter(chain.from_iterable(combinations(range(rows), size)), dtype=np.int64)
    return every.reshape(math.comb(rows, size), size)


def _equal(first: FloatArray, second: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the places of equal numbers in the first and in the second."""
    order = np.argsort(first)
    ordered = np.append(first[order], np.inf)
    begin = np.searchsorted(ordered, second - _ROUNDING)
    count = np.zeros(len(second), dtype=np.int64)
    some = np.flatnonzero(ordered[begin] <= second + _ROUNDING)  # few numbers have an equal
    count[some] = np.searchsorted(ordered, second[some] + _ROUNDING) - begin[some]
    if count.sum() > _MOST_PAIRS:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    ends = np.cumsum(count)
    within = np.arange(count.sum()) - np.repeat(ends - count, count)
    return order[np.repeat(begin, count) + within], np.repeat(np.arange(len(second)), count)
