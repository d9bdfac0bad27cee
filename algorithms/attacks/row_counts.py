"""Rows that several sets of sums show, each counted once for what it is."""

from __future__ import annotations

import numpy as np

from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray, IntArray

SAME_WITHIN = 1e-4
"""In units of the scaled columns: rows with the same label that differ by less in every column are one."""


class RowCounts:
    """The minimum number of occurrences of each row, from several sets of sums over the same data.

    What one set shows of a row is true, so of several the largest count is.

    Parameters
    ----------
    columns : int
        p, of rows.
    """

    def __init__(self, columns: int) -> None:
        self._rows = np.zeros((0, columns))
        self._labels = np.zeros(0)
        self._counts = np.zeros(0, dtype=np.int64)

    def take(self, rows: FloatArray, labels: FloatArray, resolution: FloatArray) -> None:
        """Take in the rows (n, p) that one set of sums shows, with labels (n,); one that is there twice comes twice.

        resolution: (p,) by how much equal rows may differ.
        """
        seen = np.zeros(len(self._counts) + len(rows), dtype=np.int64)
        for row, label in zip(rows, labels, strict=True):
            seen[self._place(row, float(label), resolution)] += 1
        self._counts = np.maximum(self._counts, seen[: len(self._counts)])

    def _place(self, row: FloatArray, label: float, resolution: FloatArray) -> int:
        labelled = np.isnan(self._labels) if np.isnan(label) else self._labels == label
        same = (np.abs(self._rows - row) <= resolution).all(axis=1) & labelled
        if same.any():
            return int(same.argmax())
        self._rows = np.vstack([self._rows, row])
        self._labels = np.append(self._labels, label)
        self._counts = np.append(self._counts, 0)
        return len(self._labels) - 1

    def __len__(self) -> int:
        return int(self._counts.sum())

    @property
    def repeated(self) -> LabeledRows:
        """Every row as often as it is there."""
        places: IntArray = np.repeat(np.arange(len(self._counts)), self._counts)
        return LabeledRows(self._rows[places], self._labels[places])
