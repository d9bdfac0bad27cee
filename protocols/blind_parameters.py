"""The public parameters of a blind system (`blind_system`), and a member's mask, as residues.

A site's part of a system is one vector. It has the upper triangle of the site's matrix, its right-hand sides, and its
part of the numbers and vectors whose sums are opened with the system, if any.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import BoundExceeded
from fedsvm.protocols.arithmetic.residue_numbers import ResidueNumbers, places_in_triangle

FRACTION_BITS = 60
"""Fraction bits of an entry divided by the scale."""

MASK_BITS = 12
"""Fraction bits of a mask. It need not be exactly orthogonal, but its owner must know it exactly."""

STRETCH = 2.0
"""Maximum entry of S, and maximum factor of a right-hand side; their minimum is its inverse."""

STEP_BITS = 40
"""Significant bits of the solution in the check."""

CHECK_BITS = 10
"""Bits of each entry of the check's random vector."""

_BUNDLE = 1 << 20
"""Maximum number of residues in the extended matrices of a bundle. A member holds about ten such arrays."""

WRONG = 1e-6
"""Relative residual, with respect to the largest possible system, above which a solution is wrong. Rounding leaves
about 1e-11."""


_VECTOR_BITS = 60
"""Fraction bits of a vector's entry."""


@dataclass(frozen=True)
class OpenedSums:
    """The sums that are opened with a system, each with noise of both members that hold shares.

    Attributes
    ----------
    noises : tuple of float, default ()
        For each number, the maximum of each member's noise, which is uniform. Numbers are between -1 and 1.
    vectors : int, default 0
        The number of vectors whose inner products are opened.
    length : int, default 0
        The number of entries of each vector. Its Euclidean norm is at most 1.
    product_noise : float, default 0.0
        The maximum of each member's noise on each inner product.
    """

    noises: tuple[float, ...] = ()
    vectors: int = 0
    length: int = 0
    product_noise: float = 0.0

    @property
    def products(self) -> int:
        """The number of inner products: one for every two vectors, and one of each with itself."""
        return self.vectors * (self.vectors + 1) // 2

    @property
    def opened(self) -> int:
        """The number of opened numbers and inner products."""
        return len(self.noises) + self.products


@dataclass(frozen=True)
class BlindSystem:
    """The public parameters of one system, the same at every party.

    Attributes
    ----------
    size : int
        The number d of rows of the matrix H.
    problems : int
        The number of right-hand sides.
    scale : float
        A power of two that no entry of H or q exceeds.
    penalty : float
        The number that is added to the diagonal of H, except its last `free` entries.
    free : int
        The number of diagonal entries without penalty.
    is_told : bool, default False
        Whether all sites learn the solutions. If not, the coordinator and the two members that hold shares learn them.
    dither : float, default 0.0
        The standard deviation of normal noise on each entry of the right-hand sides. Each of these two members adds
        half of the variance.
    free_dither : float, default 0.0
        The same for the last `free` entries.
    sums : OpenedSums
        The sums that are opened with the system; by default none.
    """

    size: int
    problems: int
    scale: float
    penalty: float
    free: int
    is_told: bool = False
    dither: float = 0.0
    free_dither: float = 0.0
    sums: OpenedSums = field(default_factory=OpenedSums)

    @property
    def extended(self) -> int:
        """The size of H with the right-hand sides as further rows and columns."""
        return self.size + self.problems

    @property
    def triangle(self) -> int:
        """The number of entries of the upper triangle of the extended matrix."""
        return self.extended * (self.extended + 1) // 2

    @property
    def own(self) -> int:
        """The number of entries of the upper triangle of H and of the right-hand sides."""
        return self.size * (self.size + 1) // 2 + self.problems * self.size

    @property
    def entries(self) -> int:
        """The number of entries of a site: those of the system, then its numbers and vectors of `sums`."""
        return self.own + len(self.sums.noises) + self.sums.vectors * self.sums.length

    @property
    def opened(self) -> int:
        """The number of entries that the coordinator learns: those of the extended masked matrix, and `sums`."""
        return self.triangle + self.sums.opened

    @cached_property
    def numbers(self) -> ResidueNumbers:
        """The residue numbers of the system, large enough for all its products."""
        places = math.ceil(math.log2(self.extended))
        masked = FRACTION_BITS + 4 * MASK_BITS + 5 + places
        checked = FRACTION_BITS + STEP_BITS + CHECK_BITS + 2 * places + 1
        multiplied = 2 * _VECTOR_BITS + 4
        bits = max(masked, checked, multiplied if self.sums.vectors else 0)
        return ResidueNumbers.holding(bits, max(self.extended, self.sums.length))

    def encode(self, entries: FloatArray) -> FloatArray:
        """Return the residues (primes, 1, entries). Raises BoundExceeded for an entry beyond the scale."""
        parts = self._parts(entries)
        for part, bound in zip(parts, (self.scale, 1.0, 1.0), strict=True):
            if not np.abs(part).max(initial=0.0) <= bound:
                raise BoundExceeded(f"an entry of the system is not finite or beyond the declared bound {bound:g}")
        bits = (FRACTION_BITS, FRACTION_BITS, _VECTOR_BITS)
        scaled = zip((parts[0] / self.scale, parts[1], parts[2]), bits, strict=True)
        return np.concatenate([self.numbers.encode(part[None, :], places) for part, places in scaled], axis=2)

    def _parts(self, entries: FloatArray) -> list[FloatArray]:
        """Return the entries of the system, of the numbers and of the vectors."""
        return np.split(entries, [self.own, self.own + len(self.sums.noises)], axis=-1)

    def matrix(self, entries: FloatArray) -> FloatArray:
        """Return the extended matrices (primes, d + K, d + K) of entries (primes, 1, entries)."""
        full = np.take(entries[:, 0], _places_in_entries(self.size, self.problems), axis=1)
        full[:, self.size :, self.size :] = 0
        return full

    def numbers_of(self, entries: FloatArray) -> FloatArray:
        """Return the numbers (primes, 1, count) among entries (primes, 1, entries)."""
        return self._parts(entries)[1]

    def vectors_of(self, entries: FloatArray) -> FloatArray:
        """Return the vectors (primes, g, m) among entries (primes, 1, entries)."""
        return self._parts(entries)[2].reshape(len(entries), self.sums.vectors, self.sums.length)

    def encode_noise(self, uniform: FloatArray) -> FloatArray:
        """Encode a member's noise on the sums as residues (primes, 1, opened), from numbers (opened,) between -1 and
        1."""
        count, sums = len(self.sums.noises), self.sums
        of_numbers = self.numbers.encode((uniform[:count] * np.array(sums.noises))[None, :], FRACTION_BITS)
        of_products = self.numbers.encode((uniform[count:] * sums.product_noise)[None, :], 2 * _VECTOR_BITS)
        return np.concatenate([of_numbers, of_products], axis=2)

    def read_sums(self, opened: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Decode residues (primes, 1, opened) as the numbers (count,) and the inner products (g, g)."""
        values, count, g = self.numbers.decode(opened)[0], len(self.sums.noises), self.sums.vectors
        products = np.zeros((g, g))
        products[np.triu_indices(g)] = np.ldexp(values[count:], -2 * _VECTOR_BITS)
        return np.ldexp(values[:count], -FRACTION_BITS), products + np.triu(products, 1).T

    def is_solved(self, left: FloatArray, found: FloatArray) -> bool:
        """Return whether residues (primes, 1, K) of r . (H x - q) are close enough to 0."""
        numbers = np.ldexp(self.numbers.decode(left), -FRACTION_BITS - solution_bits(found)) * self.scale
        allowed = WRONG * self.size**2 * 2.0**CHECK_BITS * self.scale * float(np.linalg.norm(found))
        return bool(np.abs(numbers).max() <= allowed)

    def add_penalty(self, full: FloatArray) -> FloatArray:
        """Add the penalty to the diagonals of extended matrices, in place and without reduction; return them."""
        penalized, penalty = np.arange(self.size - self.free), np.array([[self.penalty / self.scale]])
        full[:, penalized, penalized] += self.numbers.encode(penalty, FRACTION_BITS)[:, 0]
        return full


@functools.lru_cache(maxsize=2)
def _places_in_entries(size: int, problems: int) -> IntArray:
    """Return for each position of an extended matrix its position among the entries; 0 if it has none."""
    triangle = size * (size + 1) // 2
    places = np.zeros((size + problems, size + problems), dtype=np.int64)
    places[:size, :size] = places_in_triangle(size)
    places[size:, :size] = triangle + np.arange(problems * size).reshape(problems, size)
    places[:size, size:] = places[size:, :size].T
    return places


def bundles_of(systems: Sequence[BlindSystem]) -> list[list[BlindSystem]]:
    """Return the systems of a round in bundles, in order: the systems of a bundle share their messages.

    Systems share a bundle if all their messages have the same shapes, and if it is small: a member holds the matrices
    of a whole bundle at a time.
    """
    bundles = list[list[BlindSystem]]()
    for _, alike in itertools.groupby(systems, key=_shape):
        of_shape = list(alike)
        count = max(1, _BUNDLE // (len(of_shape[0].numbers.primes) * of_shape[0].extended ** 2))
        bundles += [of_shape[start : start + count] for start in range(0, len(of_shape), count)]
    return bundles


def _shape(system: BlindSystem) -> tuple[int, ...]:
    """Return the parameters that determine the shapes of a system's messages."""
    sums = system.sums
    return system.size, system.problems, system.is_told, len(sums.noises), sums.vectors, sums.length


@dataclass(frozen=True)
class OwnMask:
    """A member's mask, whose entries are multiples of 2^-12, at most 2.

    Attributes
    ----------
    around : FloatArray of shape (d, d)
        The matrix O in O H O^T.
    factors : FloatArray of shape (K,)
        The factor of each right-hand side.
    """

    around: FloatArray
    factors: FloatArray

    def residues(self, system: BlindSystem) -> FloatArray:
        """Return the extended mask (1, d + K, d + K) as integers, which are their own residues modulo each prime."""
        d = system.size
        whole = np.zeros((system.extended, system.extended))
        whole[:d, :d] = self.around
        whole[d:, d:] = np.diag(self.factors)
        return np.asarray(np.rint(np.ldexp(whole, MASK_BITS)))[None]


def solution_bits(found: FloatArray) -> int:
    """Return the number of fraction bits of a solution in the check."""
    return max(0, STEP_BITS - math.frexp(float(np.abs(found).max(initial=0.0)))[1])
