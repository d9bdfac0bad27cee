"""Landmarks drawn from a description of all rows: none is a row, or a function of single rows.

The description is from noisy statistics (`data.statistics`): the mean and the covariance of the numeric columns, and
the shares of the values of each categorical column. Landmarks are as safe as it is, since they follow from it and from
a public seed. Numeric columns get normal draws. A categorical column gets one of its values, so that a landmark looks
like a row. Numeric and categorical columns are drawn apart from each other.

The explained share says whether landmarks reach the rows. Of a row x it is |f(x)|^2 / k(x, x), where f are the features
that landmarks span: 1 where the kernel at x is a combination of the kernels at landmarks, near 0 where all are far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.data.statistics import NoisyStatistics
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.federation.arrays import FloatArray

ENOUGH = 0.35
"""The explained share from which on drawn landmarks do as well as means of rows, by experiments."""

MIN_EIGENVALUE = 0.01
"""The least eigenvalue of a covariance that is drawn from, as a share of the mean one."""


@dataclass(frozen=True)
class RowDescription:
    """A noisy description of all rows before they are scaled, from which landmarks follow.

    Parameters
    ----------
    rows : float
        Number of rows.
    low, high : (q,) array
        Windows to which numeric columns are clipped.
    mean : (q,) array
        Means of the numeric columns.
    covariance, noise : (q, q) array
        Their covariance, which need not be positive definite, and the standard deviation of the noise in it.
    frequencies : list of (k,) array
        Shares of the values of each categorical column.
    gaps : (i,) array
        Shares of the rows in which a 0/1 column says that a value is missing.
    """

    rows: float
    low: FloatArray
    high: FloatArray
    mean: FloatArray
    covariance: FloatArray
    noise: FloatArray
    frequencies: Sequence[FloatArray]
    gaps: FloatArray

    @classmethod
    def of(cls, statistics: NoisyStatistics, indicated: Sequence[int]) -> Self:
        """Return what noisy statistics say. indicated: the numeric columns with a 0/1 column of gaps."""
        return cls(
            statistics.rows,
            statistics.low,
            statistics.high,
            statistics.mean,
            statistics.covariance,
            statistics.covariance_noise,
            statistics.frequencies,
            statistics.missing[list(indicated)],
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The number of numeric columns, and of all columns after encoding."""
        return len(self.mean), len(self.mean) + sum(map(len, self.frequencies)) + len(self.gaps)

    @property
    def deviation(self) -> FloatArray:
        """(q,): standard deviations of the numeric columns, not below what noise hides."""
        return np.asarray(np.sqrt(np.maximum(self.covariance.diagonal(), self.noise.diagonal())))

    def mean_deviation(self, scale: Scale) -> float:
        """Return the root mean square of the deviations of all columns on a scale."""
        marks = np.concatenate([*self.frequencies, self.gaps])
        deviations = np.concatenate([self.deviation, np.sqrt(marks * (1 - marks))]) / scale.scale
        return float(np.sqrt((deviations**2).mean()))


def shrink(covariance: FloatArray, noise: FloatArray) -> FloatArray:
    """Return a noisy covariance, shrunk toward the identity by the known size of its noise, with an eigenvalue floor.

    Its distance from a multiple of the identity has a part that is noise, of known mean square; so much of the way it
    goes (Ledoit and Wolf 2004, with the noise's variance in place of the sampling's). noise (q, q): its standard
    deviation in each entry.
    """
    columns = len(covariance)
    if columns == 0:
        return covariance
    middle = max(float(np.trace(covariance)) / columns, 0.0) or 1.0
    center = middle * np.eye(columns)
    distance = float(((covariance - center) ** 2).sum())
    expected = float((noise**2).sum())
    weight = 1.0 if distance <= expected else expected / distance
    eigenvalues, eigenvectors = np.linalg.eigh(weight * center + (1 - weight) * covariance)
    floored = np.maximum(eigenvalues, MIN_EIGENVALUE * middle)
    return np.asarray((eigenvectors * floored) @ eigenvectors.T)


def normal_draws(mean: FloatArray, covariance: FloatArray, count: int, random: np.random.Generator) -> FloatArray:
    """Return (count, q) draws of a normal distribution; the first are the same whatever the count.

    By the covariance's symmetric root, which is the same whatever eigenvectors a linear algebra library chooses.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(covariance)
    root = (eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0))) @ eigenvectors.T
    return np.asarray(mean + random.standard_normal((count, len(mean))) @ root)


def drawn_landmarks(described: RowDescription, count: int, seed: int) -> FloatArray:
    """Return (count, p) landmarks of encoded columns, not scaled; the first are the same whatever the count."""
    blocks = [_numeric_draws(described, count, np.random.default_rng([seed, 0]))]
    for number, frequencies in enumerate(described.frequencies):
        uniform = np.random.default_rng([seed, 1, number]).random(count)
        value = np.minimum(np.searchsorted(np.cumsum(frequencies), uniform, side="right"), len(frequencies) - 1)
        blocks.append(np.equal.outer(value, np.arange(len(frequencies))).astype(np.float64))
    for number, share in enumerate(described.gaps):
        uniform = np.random.default_rng([seed, 2, number]).random((count, 1))
        blocks.append((uniform < share).astype(np.float64))
    return np.hstack(blocks)


def _numeric_draws(described: RowDescription, count: int, random: np.random.Generator) -> FloatArray:
    """Return (count, q) normal draws; the covariance is repaired where all columns have a deviation of 1."""
    deviation = np.where(described.deviation > 0, described.deviation, 1.0)
    units = np.outer(deviation, deviation)
    covariance = shrink(described.covariance / units, described.noise / units)
    standard = normal_draws(np.zeros(len(deviation)), covariance, count, random)
    return np.clip(described.mean + standard * deviation, described.low, described.high)


# How well landmarks reach the rows.


def landmark_counts(wanted: float, rows: float, most: int) -> tuple[int, ...]:
    """Return the numbers of landmarks to try, ascending: what is asked for, doubled up to `most`.

    Parameters
    ----------
    wanted : int or float
        A count, which is tried also where it is above `most`, or a share of the rows.
    rows : float
        Noisy number of rows.
    most : int
        Largest number to try otherwise.
    """
    if isinstance(wanted, int):
        counts, most = [wanted], max(wanted, most)
    else:
        counts = [min(most, max(1, round(wanted * rows)))]
    while counts[-1] < most:
        counts.append(min(most, 2 * counts[-1]))
    return tuple(counts)


def explained_shares(
    kernel: Kernel, rows: FloatArray, landmarks: FloatArray, counts: Sequence[int], rank_tolerance: float
) -> FloatArray:
    """Return (n, c): the explained share of each row, between 0 and 1, by the first so many landmarks.

    counts: ascending. A share never falls as landmarks are added.
    """
    lengths = kernel.of_sums(np.zeros(len(rows)) if kernel.of_distances else np.einsum("ij,ij->i", rows, rows))
    shares = np.zeros((len(rows), len(counts)))
    for place, count in enumerate(counts):
        squares = (NystromMap.span(kernel, landmarks[:count], rank_tolerance)(rows) ** 2).sum(axis=1)
        shares[:, place] = np.divide(squares, lengths, out=np.ones(len(rows)), where=lengths > 0)
    return np.asarray(np.maximum.accumulate(np.clip(shares, 0.0, 1.0), axis=1))


def increments(shares: FloatArray) -> FloatArray:
    """Return (n, c): what each number of landmarks adds to the shares of the one before.

    None is negative, and those of a row add up to 1 at most: so a row's vector is at most 1 long, however many numbers
    are tried.
    """
    return np.diff(shares, axis=1, prepend=0.0)


def smallest_enough(counts: Sequence[int], shares: FloatArray) -> int | None:
    """Return the smallest number of landmarks with an explained share (c,) of `ENOUGH` or more; None without any."""
    return next((count for count, share in zip(counts, shares, strict=True) if share >= ENOUGH), None)
