"""Noisy statistics of the rows of each class, enough to make a model without the rows.

Rows are sorted into cells, by their class and by the fold that holds them out. A row's contribution to a sum is in its
own cell, and so is no longer than a contribution to one sum over all rows: many cells cost no more of mu than one.
Sums over all rows add up the cells, and the noise of every one. Rows of a model are those of all other folds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.data.classes import members
from fedsvm.federation.arrays import FloatArray, IntArray

LEAST_ROWS = 3.0
"""The least number of rows of a class by which anything is divided."""


@dataclass(frozen=True)
class Cells:
    """The cells of rows.

    Parameters
    ----------
    classes : int
    folds : int, default 0
        The number of folds of cross-validation; 0 of none. Rows that are held out otherwise are in no cell.
    repeats : int, default 1
        The number of times that rows are dealt to folds; a row is in a cell of each.
    """

    classes: int
    folds: int = 0
    repeats: int = 1

    @property
    def parts(self) -> int:
        """Number of folds over all repeats; 1 without folds."""
        return max(1, self.folds * self.repeats)

    @property
    def count(self) -> int:
        """Number of cells."""
        return self.parts * self.classes

    @property
    def length(self) -> float:
        """Factor of the length of a row's contribution."""
        return math.sqrt(self.repeats)

    def of_rows(self, labels: FloatArray, folds: IntArray) -> FloatArray:
        """Return (n, cells) of 0 and 1: the cells of rows, each part's classes together.

        Parameters
        ----------
        labels : (1, n) or (K, n) FloatArray
        folds : (n,) or (n, repeats) IntArray
            The fold that holds a row out, -1 for none.
        """
        count = labels.shape[1]
        dealt = folds.reshape(count, -1)
        if self.folds:
            parts = (dealt[:, :, None] == np.arange(self.parts)).any(axis=1)
        else:
            parts = (dealt < 0).all(axis=1, keepdims=True)
        return np.asarray((parts[:, :, None] * members(labels).T[:, None, :]).reshape(count, -1))

    def spread(self, cells: FloatArray, values: FloatArray) -> FloatArray:
        """Return (n, cells * w): values (n, w) of rows in the places of their cells (n, cells)."""
        return np.asarray((cells[:, :, None] * values[:, None, :]).reshape(len(values), -1))

    def training_cells(self, fold: int | None) -> list[int]:
        """Return the parts whose rows are trained on where a fold is held out."""
        if fold is None or not self.folds:
            return list(range(self.parts))
        first = fold // self.folds * self.folds
        return [part for part in range(first, first + self.folds) if part != fold]

    def over_all(self, totals: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """Return totals of all rows, from those of the cells; of `classes` for each class."""
        found = {name: total.reshape(self.parts, self.classes, -1) for name, total in totals.items()}
        summed = {name: total.sum(axis=(0, 1)) for name, total in found.items() if name != "classes"}
        summed["classes"] = found["classes"].sum(axis=(0, 2))
        return {name: total / self.repeats for name, total in summed.items()}

    def noise_over_all(self, sigma: Mapping[str, float]) -> dict[str, float]:
        """Return the standard deviations of the noise of `over_all`."""
        cells = {name: self.parts if name == "classes" else self.count for name in sigma}
        return {name: each * math.sqrt(cells[name]) / self.repeats for name, each in sigma.items()}


@dataclass(frozen=True)
class ClassStatistics:
    """Noisy statistics of the rows of each class that a model is trained on.

    Attributes
    ----------
    rows : (K,) FloatArray
        Numbers of rows, not below `LEAST_ROWS` or the noise in them.
    mean, variance : (K, q) FloatArray
        Of the known values of numeric columns, clipped to their windows. A variance is not below what noise hides.
    missing : (K, q) FloatArray
        Shares of missing values.
    counts : (K, V) FloatArray
        Rows with each value of each categorical column, 0 or more.
    counts_noise : float
        Standard deviation of the noise in `counts`.
    """

    rows: FloatArray
    mean: FloatArray
    variance: FloatArray
    missing: FloatArray
    counts: FloatArray
    counts_noise: float


@dataclass(frozen=True)
class ClassTotals:
    """Noisy sums over the rows of each cell.

    Parameters
    ----------
    cells : Cells
    totals : mapping of str to FloatArray
        By the name of the block.
    sigma : mapping of str to float
        Standard deviations of their noise.
    ends : (2, q) FloatArray
        Windows of numeric columns.
    """

    cells: Cells
    totals: Mapping[str, FloatArray]
    sigma: Mapping[str, float]
    ends: FloatArray

    def without(self, fold: int | None) -> ClassStatistics:
        """Return the statistics of the rows that a model is trained on where a fold is held out."""
        parts = self.cells.training_cells(fold)
        noise = {name: sigma * math.sqrt(len(parts)) for name, sigma in self.sigma.items()}
        columns = self.ends.shape[1]
        rows = np.maximum(self._sum("classes", parts)[:, 0], max(LEAST_ROWS, noise["classes"]))
        known = np.repeat(rows[:, None], columns, axis=1)
        if "known" in self.totals:
            known = np.clip(self._sum("known", parts), LEAST_ROWS, known)
        middle, half = self.ends.mean(axis=0), (self.ends[1] - self.ends[0]) / 2
        center = np.clip(self._sum("sums", parts) / known, -1.0, 1.0)
        moved = noise.get("sums", 0.0) / known
        hidden = np.hypot(noise.get("squares", 0.0) / known, 2 * np.abs(center) * moved)
        # The square of a noisy center is too large by the variance of its noise, and so is its distance to a row.
        variance = _shrink(self._sum("squares", parts) / known - center**2 + 2 * moved**2, hidden, known)
        return ClassStatistics(
            rows,
            middle + half * center,
            variance * half**2,
            1 - known / rows[:, None],
            np.maximum(self._sum("categories", parts), 0.0),
            noise.get("categories", 0.0),
        )

    def _sum(self, name: str, parts: Sequence[int]) -> FloatArray:
        """Return (K, w): the total of a block over some parts; (K, 0) of a block that is absent."""
        total = self.totals.get(name, np.zeros(0)).reshape(self.cells.parts, self.cells.classes, -1)
        return np.asarray(total[list(parts)].sum(axis=0))


def _shrink(variance: FloatArray, noise: FloatArray, known: FloatArray) -> FloatArray:
    """Return (K, q) variances of classes, the nearer to the mean of all classes the larger their noise is.

    A quarter of the mean is the least, and the mean is not below its own noise.
    """
    share = known / known.sum(axis=0)
    mean = np.maximum((share * variance).sum(axis=0), np.sqrt((share**2 * noise**2).sum(axis=0)))
    mean = np.maximum(mean, np.finfo(float).tiny)
    weight = mean**2 / (mean**2 + noise**2)
    return np.asarray(np.maximum(weight * variance + (1 - weight) * mean, mean / 4))
