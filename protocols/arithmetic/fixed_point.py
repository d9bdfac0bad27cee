"""Conversion of float64 to and from integers modulo 2^64, or modulo 2^128 if 64 bits would lose precision.

A value x becomes round(x * 2^f). The number f is the largest with n * B * 2^f < 2^63 (or 2^127), for n values and the
declared bound B on their absolute values and sums. Sums of residues are exact, in any order; the only error is the
rounding of each input, at most 2^-(f+1). Residues modulo 2^128 have two limbs, added with carry. The carry is not
visible, so a sum of wide residues reveals only the sum.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.errors import BoundExceeded

LIMB_BITS = 64
MIN_FRACTION_BITS = 40
"""Minimum number of fraction bits with one limb; otherwise two limbs are used."""

_BLOCK = 1 << 14
"""Number of values encoded or decoded at a time, so that intermediate results fit the cache."""

MAX_BOUND = 2.0**62
"""The bound used if it is unknown: two limbs then have 50 fraction bits or more."""


@dataclass(frozen=True)
class FixedPoint:
    """An encoding of float64 as residues.

    Attributes
    ----------
    limbs : int
        The number of limbs of 64 bits: 1 or 2.
    fraction_bits : int
        The number of fraction bits.
    bound : float
        Maximum absolute value.
    """

    limbs: int
    fraction_bits: int
    bound: float

    @classmethod
    @functools.lru_cache(maxsize=16)
    def for_bound(cls, bound: float, sites: int) -> FixedPoint:
        """Return the finest encoding whose sums cannot wrap around.

        Parameters
        ----------
        bound : float
            Maximum absolute value of each value and of each partial sum; math.inf if it is unknown.
        sites : int
            The number of values in a sum.

        Returns
        -------
        FixedPoint

        Raises
        ------
        ValueError
            The bound is not positive or is larger than 2^62, or there are too many sites.
        """
        known = MAX_BOUND if math.isinf(bound) else bound
        if not 0 < known <= MAX_BOUND:
            raise ValueError(f"a bound must be positive and at most 2^62, or infinite, got {bound}")
        integer_bits = math.frexp(known * sites)[1]
        for limbs in (1, 2):
            fraction_bits = LIMB_BITS * limbs - 1 - integer_bits
            if fraction_bits >= MIN_FRACTION_BITS:
                return cls(limbs, fraction_bits, known)
        raise ValueError(f"{sites} values of size {bound} do not fit 128 bits")

    def encode(self, values: FloatArray) -> Residues:
        """Return values as residues, each rounded to a multiple of 2^-fraction_bits.

        Parameters
        ----------
        values : float64 array of any shape

        Returns
        -------
        Residues of shape (limbs, values.size)

        Raises
        ------
        BoundExceeded
            A value is not finite or exceeds the bound.
        """
        flat = values.reshape(-1)
        if flat.size <= _BLOCK:
            return self._encode(flat, flat)
        residues = np.empty((self.limbs, flat.size), dtype=np.uint64)
        for start in range(0, flat.size, _BLOCK):
            residues[:, start : start + _BLOCK] = self._encode(flat[start : start + _BLOCK], flat)
        return residues

    def _encode(self, flat: FloatArray, whole: FloatArray) -> Residues:
        if (
            flat.size and not max(np.maximum.reduce(flat), -np.minimum.reduce(flat)) <= self.bound
        ):  # NaN compares as not below it
            self._refuse(whole)
        scaled = flat * 2.0**self.fraction_bits  # exact, since the factor is a power of two
        np.rint(scaled, out=scaled)
        if self.limbs == 1:
            return scaled.astype(np.int64).view(np.uint64)[None, :]
        size = np.abs(scaled)
        high = np.floor(np.ldexp(size, -LIMB_BITS))
        low = size - np.ldexp(high, LIMB_BITS)
        residues = np.stack([low.astype(np.uint64), high.astype(np.uint64)])
        return np.where(scaled < 0, subtract(np.zeros_like(residues), residues), residues)

    def _refuse(self, values: FloatArray) -> None:
        if not np.isfinite(values).all():
            raise BoundExceeded(f"{np.count_nonzero(~np.isfinite(values))} of {values.size} values are not finite")
        raise BoundExceeded(f"a value is beyond the declared bound {self.bound:.6g}")

    def decode(self, residues: Residues) -> FloatArray:
        """Return values from residues, or from a sum of residues.

        Parameters
        ----------
        residues : Residues of shape (limbs, d)

        Returns
        -------
        float64 array of shape (d,)
        """
        if residues.shape[1] <= _BLOCK:
            return self._decode(residues)
        values = np.empty(residues.shape[1])
        for start in range(0, len(values), _BLOCK):
            values[start : start + _BLOCK] = self._decode(residues[:, start : start + _BLOCK])
        return values

    def _decode(self, residues: Residues) -> FloatArray:
        if self.limbs == 1:
            values: FloatArray = residues[0].view(np.int64).astype(np.float64)
            values *= 2.0**-self.fraction_bits
            return values
        negative = residues[1].view(np.int64) < 0
        size = np.where(negative, subtract(np.zeros_like(residues), residues), residues).astype(np.float64)
        magnitude = np.ldexp(size[1], LIMB_BITS - self.fraction_bits) + np.ldexp(size[0], -self.fraction_bits)
        return np.asarray(np.where(negative, -magnitude, magnitude))


def add(a: Residues, b: Residues) -> Residues:
    """Return the sum of residues, elementwise modulo 2^64 or 2^128.

    Parameters
    ----------
    a, b : Residues of shape (limbs, d)

    Returns
    -------
    Residues of shape (limbs, d)
    """
    total = a + b
    if len(total) == 2:
        total[1] += total[0] < a[0]
    return total


def accumulate(total: Residues, residues: Residues, sign: int = 1) -> None:
    """Add residues to a total, or with `sign` -1 subtract them, in place, elementwise modulo 2^64 or 2^128.

    Parameters
    ----------
    total, residues : Residues of shape (limbs, d)
    sign : {1, -1}, default 1
    """
    if sign > 0:
        np.add(total, residues, out=total)
        if len(total) == 2:
            total[1] += total[0] < residues[0]
    else:
        borrow = total[0] < residues[0] if len(total) == 2 else None
        np.subtract(total, residues, out=total)
        if borrow is not None:
            total[1] -= borrow


def total_of(vectors: Residues) -> Residues:
    """Return the sum of several vectors of residues.

    Parameters
    ----------
    vectors : Residues of shape (vectors, limbs, d)
        At least one vector.

    Returns
    -------
    Residues of shape (limbs, d)
        For a single vector, the vector itself instead of a copy.
    """
    total: Residues
    if len(vectors) == 1:
        total = vectors[0]
    elif vectors.shape[1] == 1:
        total = np.add.reduce(vectors, axis=0)
    else:
        total = vectors[0].copy()
        for vector in vectors[1:]:
            accumulate(total, vector)
    return total


def subtract(a: Residues, b: Residues) -> Residues:
    """Return the difference a - b of residues, elementwise modulo 2^64 or 2^128.

    Parameters
    ----------
    a, b : Residues of shape (limbs, d)

    Returns
    -------
    Residues of shape (limbs, d)
    """
    difference = a - b
    if len(difference) == 2:
        difference[1] -= a[0] < b[0]
    return difference
