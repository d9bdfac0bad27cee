"""Large integers as residues modulo several primes, in float64, with exact matrix products by BLAS.

A number is represented by its remainders modulo primes below 2^b. Sums and products are computed modulo each prime. A
sum of s products of remainders is below s * 2^(2 b); b is the largest number for which this is at most 2^53, so float64
represents every partial sum exactly.

Arrays of residues have the shape (primes, rows, columns). A residue is the remainder with the smallest absolute value,
except in packed words, which need nonnegative remainders.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, IntArray, Residues

_EXACT_BITS = 53
"""float64 represents whole numbers up to 2^53 exactly."""

_MAX_BITS = 22
_LANE_BITS = 32
"""Bits of a residue in a word: a word of 64 bits has two residues, or two sums of residues below 2^32."""

_LIMB_BITS = 30
"""Bits of a digit of an encoded number: the product with a residue is exact in float64."""

_LATER_PART = 1 << 16
"""Offset of the part of a keystream from which rejected bits are drawn again: more than the number of primes."""

_LANE, _WORD = np.dtype("<u4"), np.dtype("<u8")
_SIGNED_LANE = np.dtype("<i4")
"""The type of half a word. Signed integers are converted to float64 several at a time; unsigned ones are not."""


Expand = Callable[[Sequence[bytes], Sequence[int], int], Residues]
"""Returns the keystreams of secrets as residues, given the secrets, a shape and a part of a vector."""


@dataclass(frozen=True)
class ResidueNumbers:
    """Residues modulo some primes.

    Attributes
    ----------
    primes : tuple of int
        The primes, in descending order.
    """

    primes: tuple[int, ...]

    @classmethod
    def holding(cls, bits: int, size: int) -> ResidueNumbers:
        """Return the primes for signed numbers of some bits, and for products of matrices of some size.

        Parameters
        ----------
        bits : int
            Maximum absolute value of a number, as a power of two.
        size : int
            The number of terms of each entry in a product of matrices.

        Returns
        -------
        ResidueNumbers
        """
        width = min(_MAX_BITS, (_EXACT_BITS - math.ceil(math.log2(max(size, 2)))) // 2)
        primes = _primes_below(1 << width, math.ceil((bits + 1) / (width - 1)))
        product, count = 1, 0
        while product <= 1 << (bits + 1):
            product, count = product * primes[count], count + 1
        return cls(primes[:count])

    @property
    def modulus(self) -> int:
        """The product of the primes."""
        return math.prod(self.primes)

    def reduce(self, values: FloatArray) -> FloatArray:
        """Replace whole numbers between -2^53 and 2^53 by their residues in place, and return them.

        This works prime by prime, so that the numbers fit the cache.
        """
        multiples = np.empty(values.shape[1:])
        for place, prime in enumerate(self.primes):
            _center(values[place], prime, multiples)
        return values

    def product(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the product of two matrices of residues."""
        return self.reduce(np.matmul(left, right))

    def symmetric_part(self, values: FloatArray) -> FloatArray:
        """Return half of the sum of square matrices and their transposes, without reduction: entries are below 2^45."""
        found = np.empty_like(values)
        for place, prime in enumerate(self.primes):
            np.add(values[place], values[place].T, out=found[place])
            found[place] *= (prime + 1) // 2
        return found

    def of_integers(self, integers: IntArray) -> FloatArray:
        """Return the residues (primes, rows, columns) of a matrix of int64 between -2^53 and 2^53."""
        return self.reduce(np.tile(integers.astype(np.float64), (len(self.primes), 1, 1)))

    def power_of_two(self, exponent: int) -> FloatArray:
        """Return the residues (primes, 1, 1) of a power of two."""
        return np.array([pow(2, exponent, prime) for prime in self.primes], dtype=np.float64)[:, None, None]

    def encode(self, values: FloatArray, fraction_bits: int) -> FloatArray:
        """Return the residues of a matrix of float64, each rounded to a multiple of 2^-fraction_bits.

        Parameters
        ----------
        values : float64 array of shape (rows, columns)
        fraction_bits : int
            The number of fraction bits; encoded numbers may have more bits than an int64.

        Returns
        -------
        FloatArray of shape (primes, rows, columns)
        """
        limbs = _limbs(values, fraction_bits)
        residues = np.empty((len(self.primes), *values.shape))
        multiples = np.empty(values.shape)
        for place, prime in enumerate(self.primes):
            found, base = residues[place], pow(2, _LIMB_BITS, prime)
            found[...] = 0
            for limb in limbs:
                found *= base  # below 2^43
                found += limb
                _center(found, prime, multiples)
        return residues

    def decode(self, residues: FloatArray) -> FloatArray:
        """Return the signed numbers (rows, columns) of residues, to a few units in the last place of float64.

        Uses Garner's mixed radix, whose digits are exact: a number is the sum of digits times products of primes.
        """
        digits: list[FloatArray] = []
        multiples = np.empty(residues.shape[1:])
        for place, prime in enumerate(self.primes):
            value = residues[place].copy()
            for digit, other in zip(digits, self.primes, strict=False):
                value -= digit
                value *= pow(other, -1, prime)  # below 2^46
                _center(value, prime, multiples)
            _lift(value, prime, multiples)
            digits.append(value)
        negative = _exceed(digits, _digits_of(self.modulus // 2, self.primes))
        total, base = np.zeros(digits[0].shape), 1
        for digit, prime in zip(digits, self.primes, strict=True):
            total += np.where(negative, prime - 1 - digit, digit) * float(base)
            base *= prime
        return np.asarray(np.where(negative, -(total + 1), total))

    def uniform(self, expand: Expand, seed: Residues, shape: Sequence[int]) -> FloatArray:
        """Return residues (primes, rows, columns) that are uniform to everyone who does not know the seed.

        Each residue takes bits of half a word, as many as the primes have. Values that are not below the prime are
        drawn again, so that all residues are equally likely.

        Parameters
        ----------
        expand : callable
            Expands the seed, as `Channel.expand`.
        seed : Residues of shape (4,)
        shape : (rows, columns)

        Returns
        -------
        FloatArray of shape (primes, rows, columns)
        """
        secret, width = seed.tobytes(), self.primes[0].bit_length()
        found = np.empty((len(self.primes), *shape))
        for place, (prime, residues) in enumerate(zip(self.primes, found, strict=True)):
            lanes, part = _lanes(expand, secret, math.prod(shape), place, width), place
            while (beyond := np.flatnonzero(lanes >= prime)).size:
                part += _LATER_PART
                lanes[beyond] = _lanes(expand, secret, beyond.size, part, width)
            residues[...] = lanes.reshape(shape)
        return found

    def uniform_symmetric(self, expand: Expand, seed: Residues, size: int) -> FloatArray:
        """Return symmetric matrices (primes, size, size) with a uniform upper triangle; see `uniform`."""
        return symmetric(self.uniform(expand, seed, (1, size * (size + 1) // 2)), size)

    def pack(self, residues: FloatArray) -> Residues:
        """Return residues as words of 64 bits, two in each, of shape (1, words)."""
        lanes = residues.astype(_SIGNED_LANE)
        lanes += lanes >> 31 & np.array(self.primes, dtype=_SIGNED_LANE)[:, None, None]  # to those that are negative
        flat = lanes.reshape(-1).view(_LANE)
        if len(flat) % 2:
            flat = np.append(flat, _LANE.type(0))
        return flat.view(_WORD).astype(np.uint64, copy=False)[None, :]

    def words(self, shape: Sequence[int]) -> int:
        """Return the number of words for packed residues of a shape (rows, columns)."""
        return -(-len(self.primes) * math.prod(shape) // 2)

    def unpack(self, words: Residues, shape: Sequence[int]) -> FloatArray:
        """Return residues (primes, rows, columns) from words, or from a sum of up to 2^10 such words.

        Parameters
        ----------
        words : Residues of shape (1, words)
        shape : (rows, columns)

        Returns
        -------
        FloatArray
        """
        lanes = words[0].astype(_WORD, copy=False).view(_LANE)
        found = lanes[: len(self.primes) * math.prod(shape)].astype(np.float64).reshape(len(self.primes), *shape)
        return self.reduce(found)


MAX_SUMMANDS = 1 << (_LANE_BITS - _MAX_BITS)
"""Maximum number of parties whose packed residues can be added without a carry from one residue to the next."""


def _center(values: FloatArray, prime: int, multiples: FloatArray) -> None:
    """Replace whole numbers between -2^53 and 2^53 in place by their residues modulo a prime.

    Multiplies by the reciprocal, which is faster than `fmod`. multiples: a work array of the same shape.
    """
    np.multiply(values, 1 / prime, out=multiples)
    np.rint(multiples, out=multiples)
    multiples *= prime
    values -= multiples


def _lift(values: FloatArray, prime: int, multiples: FloatArray) -> None:
    """Add a prime to the negative numbers, in place."""
    np.less(values, 0, out=multiples)
    multiples *= prime
    values += multiples


def _limbs(values: FloatArray, fraction_bits: int) -> list[FloatArray]:
    """Return the digits of values in multiples of 2^-fraction_bits, most significant first, each up to 2^30."""
    bits = math.frexp(float(np.abs(values).max(initial=0.0)))[1] + fraction_bits
    count = max(1, -(-bits // _LIMB_BITS))
    rest = values * 2.0 ** (fraction_bits - (count - 1) * _LIMB_BITS)
    limbs = []
    for _ in range(count):
        limbs.append(np.rint(rest))
        rest = (rest - limbs[-1]) * 2.0**_LIMB_BITS  # both exact
    return limbs


def _lanes(expand: Expand, secret: bytes, count: int, part: int, width: int) -> IntArray:
    """Return (count,) numbers of `width` bits from half words of a part of a secret's keystream."""
    words = expand([secret], (1, -(-count // 2)), part)[0, 0]
    return np.asarray(words.astype(_WORD, copy=False).view(_SIGNED_LANE)[:count] & _SIGNED_LANE.type((1 << width) - 1))


def transpose(residues: FloatArray) -> FloatArray:
    """Return the transposes of matrices of residues."""
    return residues.transpose(0, 2, 1)


def symmetric(triangle: FloatArray, size: int) -> FloatArray:
    """Return symmetric matrices (primes, size, size) from their upper triangles (primes, 1, size (size + 1) / 2)."""
    return np.asarray(np.take(triangle[:, 0], places_in_triangle(size), axis=1))


def upper(matrices: FloatArray) -> FloatArray:
    """Return the upper triangles (primes, 1, size (size + 1) / 2) of matrices (primes, size, size)."""
    flat = matrices.reshape(len(matrices), -1)
    return np.asarray(np.take(flat, _places_of_triangle(matrices.shape[1]), axis=1)[:, None, :])


@functools.lru_cache(maxsize=2)
def _places_of_triangle(size: int) -> IntArray:
    """Return the positions of the upper triangle in a matrix of this size, row by row."""
    return np.flatnonzero(np.triu(np.ones((size, size), dtype=bool)))


@functools.lru_cache(maxsize=1)
def places_in_triangle(size: int) -> IntArray:
    """Return for each position of a symmetric matrix (size, size) its position in the upper triangle."""
    rows, columns = np.ogrid[:size, :size]
    first, last = np.minimum(rows, columns), np.maximum(rows, columns)
    return np.asarray(first * size - first * (first - 1) // 2 + last - first)


@functools.lru_cache(maxsize=8)
def _primes_below(limit: int, count: int) -> tuple[int, ...]:
    found: list[int] = []
    candidate = limit - 1
    while len(found) < count:
        if all(candidate % divisor for divisor in range(3, math.isqrt(candidate) + 1, 2)):
            found.append(candidate)
        candidate -= 2
    return tuple(found)


def _digits_of(value: int, primes: Sequence[int]) -> list[int]:
    digits = []
    for prime in primes:
        value, digit = divmod(value, prime)
        digits.append(digit)
    return digits


def _exceed(digits: Sequence[FloatArray], others: Sequence[int]) -> NDArray[np.bool_]:
    """Return which numbers are larger than another, digit by digit from the last."""
    larger, equal = np.zeros(digits[0].shape, dtype=bool), np.ones(digits[0].shape, dtype=bool)
    for digit, other in zip(reversed(digits), reversed(others), strict=True):
        larger |= equal & (digit > other)
        equal &= digit == other
    return larger
