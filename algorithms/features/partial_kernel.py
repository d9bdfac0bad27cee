"""Kernel matrices of a vertical partition, summed over the sites (Que et al. 2012, generalised).

Inner products, and squared distances, are sums over columns: every site computes the part of its own columns, and any
secure sum adds the parts. From the sums follow the linear, polynomial and sigmoid kernels, and the RBF. The matrix is
symmetric, so that only its upper triangle goes over the network, row by row, in blocks that bound what a site holds.

Cost: ceil of n (n + 1) / 2 elements over the block size rounds, of that many elements in all.

Security. That of the secure sum: the coordinator sees the global matrix and no site's own. With the plain sum it sees
every site's, as in the paper; a linear kernel matrix gives that site's columns away up to a rotation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from fedsvm.federation.arrays import FloatArray

BLOCK_ELEMENTS = 1 << 18
"""Of the upper triangle in one round: 2 MB. A single row may be longer."""

MIN_SITES_TO_OPEN = 3
"""With fewer sites, the one that opened a sum would learn the other's part by taking off its own."""


def element_blocks(rows: int, columns: int) -> list[tuple[int, int]]:
    """Return ranges of rows of a (rows, columns) matrix with at most the elements of a block, or one row."""
    height = max(1, BLOCK_ELEMENTS // max(1, columns))
    return [(first, min(rows, first + height)) for first in range(0, rows, height)]


def row_blocks(rows: int, most: int = BLOCK_ELEMENTS) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows whose parts of the upper triangle have at most `most` elements, or one row."""
    first = 0
    while first < rows:
        ends = itertools.accumulate(rows - row for row in range(first, rows))
        count = sum(1 for _ in itertools.takewhile(lambda end: end <= most, ends))
        last = first + max(1, count)
        yield first, last
        first = last


def packed_size(rows: int, first: int, last: int) -> int:
    """Return the number of elements of the upper triangle in rows `first` to `last` - 1."""
    return sum(rows - row for row in range(first, last))


def partial_kernel(columns: FloatArray, first: int, last: int, *, distances: bool) -> FloatArray:
    """Return a site's part of these rows of the upper triangle, packed: inner products or squared distances of rows (n,
    p)."""
    inner = columns[first:last] @ columns[first:].T
    if distances:
        squares = (columns[first:] ** 2).sum(axis=1)
        inner = squares[: last - first, None] + squares[None, :] - 2.0 * inner
    return np.concatenate([inner[row, row:] for row in range(last - first)])


def unpack(packed: FloatArray, first: int, last: int, matrix: FloatArray) -> None:
    """Put packed rows into a symmetric matrix (n, n)."""
    start, rows = 0, len(matrix)
    for row in range(first, last):
        matrix[row, row:] = matrix[row:, row] = packed[start : start + rows - row]
        start += rows - row


def exchanged_elements(rows: int) -> int:
    """Return the number of elements that every site contributes, in all rounds together."""
    return rows * (rows + 1) // 2
