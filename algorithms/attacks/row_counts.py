"""Rows that several sets of sums show, each counted once for what it is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import Epoch
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.protocols.analysis.views import RunView

SAME_WITHIN = 1e-4
"""In units of the scaled columns: rows with the same label that differ by less in every column are one."""


@dataclass(frozen=True)
class ShownRows:
    """Rows (n, p) with labels (n,) that one set of sums shows; a row that is there twice comes twice.

    Parameters
    ----------
    rows : (n, p)
    labels : (n,)
        NaN where they are unknown.
    resolution : (p,)
        The maximum difference of equal rows.
    residual : float
        See `RowClaim`.
    """

    rows: FloatArray
    labels: FloatArray
    resolution: FloatArray
    residual: float = 0.0

    @classmethod
    def of(cls, epoch: Epoch, rows: FloatArray, labels: FloatArray, residual: float = 0.0) -> Self:
        """Return rows that are the same if their scaled columns differ by at most `SAME_WITHIN`."""
        return cls(rows, labels, SAME_WITHIN * epoch.scale.scale, residual)


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

    def take(self, shown: ShownRows) -> None:
        """Take in the rows that one set of sums shows."""
        seen = np.zeros(len(self._counts) + len(shown.rows), dtype=np.int64)
        for row, label in zip(shown.rows, shown.labels, strict=True):
            seen[self._place(row, float(label), shown.resolution)] += 1
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


class CountingAttack(Attack):
    """An attack on each set of sums separately, which claims every row as often as one set shows it."""

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Yield one claim, of the rows of all sets, unless there are no sets."""
        counts: RowCounts | None = None
        residual = 0.0
        for shown in self.shown_rows(view, prior):
            counts = counts or RowCounts(shown.rows.shape[1])
            counts.take(shown)
            residual = max(residual, shown.residual)
        if counts is not None:
            yield RowClaim(*counts.repeated, residual)

    @abstractmethod
    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows of each set of sums, also if there are none."""
