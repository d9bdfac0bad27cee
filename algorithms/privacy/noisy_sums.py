"""Sums of clipped contributions with discrete Gaussian noise of a site's own: the mechanism of noisy statistics.

Each row contributes one vector, in blocks. A block bounds the Euclidean length of the contribution, and its noise has a
standard deviation of this length over the block's mu. Adding or removing a row then is mu-Gaussian differentially
private (Dong, Roth and Su 2022), and the blocks of a vector compose to the root of the sum of their squared mu. Every
site adds all of the noise to its own sum. So the promise holds whoever colludes, and when one site's rows alone change.

Contributions are rounded to a lattice 2^20 times finer than their length, before they are added up; the rounding counts
in the length. Noise on a lattice so fine is as good as continuous.

References
----------
J. Dong, A. Roth and W. J. Su, "Gaussian differential privacy", Journal of the Royal Statistical Society B 84, 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np

from fedsvm.algorithms.privacy.discrete_noise import discrete_gaussian, draw_many
from fedsvm.federation.arrays import FloatArray, IntArray

FINENESS_BITS = 20
"""The lattice is finer than the contribution of a row by this many powers of two."""


@dataclass(frozen=True)
class NoisyBlock:
    """Entries of a vector that have noise of their own.

    Parameters
    ----------
    name : str
    size : int
        The number of entries.
    length : float
        Largest Euclidean length of one row's contribution; longer ones are clipped to it.
    mu : float
        Of Gaussian differential privacy, for adding or removing one row.
    """

    name: str
    size: int
    length: float
    mu: float

    @property
    def lattice(self) -> float:
        """Distance of neighboring points of the lattice, a power of two."""
        return 2.0 ** (math.floor(math.log2(self.length)) - FINENESS_BITS)

    @property
    def steps(self) -> int:
        """Standard deviation of one site's noise, in points of the lattice."""
        longest = self.length / self.lattice + math.sqrt(self.size) / 2 + 1  # rounded contributions are longer
        return math.ceil(longest / self.mu)

    @property
    def sigma(self) -> float:
        """Standard deviation of one site's noise."""
        return self.steps * self.lattice

    def add_noise(self, chunks: Iterable[FloatArray], source: Random) -> FloatArray:
        """Return (size,): the sum of contributions, clipped and with noise.

        Parameters
        ----------
        chunks : iterable of (n, size) FloatArray
            The contributions of some rows each.
        source : Random
            Generator of the noise.
        """
        total = np.zeros(self.size, dtype=np.int64)
        for rows in chunks:
            total += np.rint(clip_rows(rows, self.length) / self.lattice).astype(np.int64).sum(axis=0)
        return self._with_noise(total, source)

    def noised_counts(self, counts: IntArray, weights: FloatArray, source: Random) -> FloatArray:
        """Return (size,): counts with noise, each times its weight. Rows' weights must be within the length.

        Parameters
        ----------
        counts : (size,) IntArray
            The numbers of rows in each entry.
        weights : (size,) FloatArray
            What a row adds to each entry that it is in.
        source : Random
            Generator of the noise.
        """
        return self._with_noise(counts * np.rint(weights / self.lattice).astype(np.int64), source)

    def _with_noise(self, total: IntArray, source: Random) -> FloatArray:
        variance = Fraction(self.steps) ** 2
        noise = draw_many(lambda: discrete_gaussian(variance, source), self.size)
        return np.asarray((total + noise) * self.lattice)


def clip_rows(rows: FloatArray, length: float) -> FloatArray:
    """Return rows (n, k) shortened to this Euclidean length where they are longer, with 0 for NaN."""
    rows = np.nan_to_num(rows)
    with np.errstate(over="ignore"):  # a row that is too long for a float becomes 0
        lengths = np.linalg.norm(rows, axis=1)
    factors = np.minimum(1.0, length / np.maximum(lengths, np.finfo(float).tiny))
    return np.asarray(rows * factors[:, None])


def compose_mu(blocks: Iterable[NoisyBlock]) -> float:
    """Return the mu of all blocks together."""
    return math.sqrt(sum(block.mu**2 for block in blocks))
