"""Secret matrices, drawn anew by all sites for every round, behind which a coordinator solves without seeing what.

Newton's system (D + M) x = q is opened as E = A (D + M) A^T and c = A q, with A = O1 S O2 and O1, O2 Haar-random
orthogonal, S diagonal and log-uniform in [1/4, 4]. The coordinator returns y = E^-1 c, and x = A^T y. Class vectors are
opened behind another Haar-random O, which keeps their inner products and nothing else.

What can be read off: the decrement c^T E^-1 c, the inner products, and of the spectrum of D + M what A leaves of it:
each eigenvalue to a factor of 16 ("congruence"), or exactly ("orthogonal", S = 1).

The sites draw from a seed that they share (`fedsvm.protocols.common_seed`), by SHAKE-256 and AES-256. Their linear
algebra may differ in the last bits, which is an error of the step and not of any certificate. A rotation is a product
of reflections (Stewart, SIAM J. Numer. Anal. 17, 1980) and is applied as one: its entries are never computed.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.agreement import SECRET_BYTES, keystream
from fedsvm.federation.channel.interface import uniform_residues

_Precision = TypeVar("_Precision", bound=np.floating[Any])

_Group = tuple[int, NDArray[np.float32], FloatArray]

Masking = Literal["congruence", "orthogonal", "none", "committee"]
"""In `committee` no site knows the masks; see `blind_path`."""

MaskingSetting = Literal["congruence", "orthogonal", "none", "committee", "auto"]
"""`auto` is resolved before a run; see `masking_choice`."""

STRETCH = 4.0
"""The largest diagonal entry of S; the smallest is its inverse."""


_GROUP = 64
"""Reflections that are applied at a time, as products of matrices."""

_MANY_DIMENSIONS = 256
"""From these on products of matrices take most of the time, and half as long in single precision."""

_BLOCK = 1 << 13
"""Normal numbers that are drawn at a time: the steps of a block stay in the cache."""


@dataclass(frozen=True)
class Rotation:
    """A Haar-random orthogonal matrix O (d, d): a product of d reflections, whose entries are never computed.

    groups: of each the row in which it begins, the vectors V (rows, b) of its reflections, in single precision, and T
    (b, b), by which their product is I - V T V^T (Schreiber and Van Loan 1989). T is that of the stored V, so that O is
    orthogonal in double precision. signs (d,): by which rows are multiplied first.
    """

    groups: Sequence[_Group]
    signs: FloatArray

    def times(self, columns: NDArray[_Precision]) -> NDArray[_Precision]:
        """Return O X for X (d,) or (d, n), in the precision of X."""
        signs = self.signs.astype(columns.dtype)
        found = np.ascontiguousarray((signs * columns.T).T)  # as products of matrices are
        for first, vectors, inner in _in_precision(reversed(self.groups), columns.dtype):
            found[first:] -= vectors @ (inner @ (vectors.T @ found[first:]))
        return found

    def transposed_times(self, columns: FloatArray) -> FloatArray:
        """Return O^T X for X (d,) or (d, n)."""
        found = columns.copy()
        for first, vectors, inner in _in_precision(self.groups, found.dtype):
            found[first:] -= vectors @ (inner.T @ (vectors.T @ found[first:]))
        return np.asarray((self.signs * found.T).T)

    def conjugate(self, matrix: NDArray[_Precision]) -> None:
        """Put O M O^T in the place of a symmetric M (d, d), in its precision."""
        signs = self.signs.astype(matrix.dtype)
        matrix *= signs
        matrix *= signs[:, None]
        for first, vectors, inner in _in_precision(reversed(self.groups), matrix.dtype):
            rest, beside = matrix[first:, first:], matrix[first:, :first]
            turned = inner @ (vectors.T @ matrix[first:])
            across = turned[:, first:]
            across -= (across @ vectors) @ inner.T / 2 @ vectors.T
            for start in range(0, len(rest), _GROUP):
                some, later = slice(start, start + _GROUP), slice(start + _GROUP, None)
                right = rest[some, start:]
                right -= vectors[some] @ across[:, start:]
                right -= across[:, some].T @ vectors[start:].T
                rest[later, some] = right[:, _GROUP:].T
                beside[some] -= vectors[some] @ turned[:, :first]
            matrix[:first, first:] = beside.T


@dataclass(frozen=True)
class FleetingRotation:
    """A Haar-random orthogonal matrix O (size, size), drawn one group of reflections at a time."""

    seed: Residues
    purpose: str
    size: int

    def times(self, columns: FloatArray) -> FloatArray:
        """Return O X for X (size,) or (size, n)."""
        found, signs = columns.copy(), np.empty(self.size)
        for first in range(0, self.size, _GROUP):
            (stored,), (inner,), (heads,) = _reflections(self.seed, self.purpose, 1, self.size, first)
            vectors = stored.astype(np.float64)
            found[first:] -= vectors @ (inner.T @ (vectors.T @ found[first:]))
            signs[first : first + _GROUP] = heads
        return np.asarray((signs * found.T).T)


@dataclass(frozen=True)
class Mask:
    """A = O1 S O2 (d, d), and O (m, m). stretch (d,): the diagonal of S."""

    left: Rotation
    stretch: FloatArray
    right: Rotation
    turn: FleetingRotation

    def times(self, columns: NDArray[_Precision]) -> NDArray[_Precision]:
        """Return A X for X (d,) or (d, n), in the precision of X."""
        stretch = self.stretch.astype(columns.dtype)
        return self.left.times((stretch * self.right.times(columns).T).T)

    def transposed_times(self, columns: FloatArray) -> FloatArray:
        """Return A^T X for X (d,) or (d, n)."""
        return self.right.transposed_times((self.stretch * self.left.transposed_times(columns).T).T)

    def inverse_times(self, columns: FloatArray) -> FloatArray:
        """Return A^-1 X for X (d,) or (d, n)."""
        return self.right.transposed_times((self.left.transposed_times(columns).T / self.stretch).T)

    def conjugate(self, matrix: FloatArray) -> None:
        """Put A M A^T in the place of a symmetric M (d, d)."""
        self.right.conjugate(matrix)
        matrix *= self.stretch
        matrix *= self.stretch[:, None]
        self.left.conjugate(matrix)

    def around_one(self) -> FloatArray:
        """Return A A^T, of many dimensions in single precision.

        Its eigenvalues are from 1/16 to 16, so that the rounding hardly changes a step.
        """
        found = np.diag(self.stretch**2).astype(precision_of(len(self.stretch)))
        self.left.conjugate(found)
        return found.astype(np.float64, copy=False)


def draw_mask(seed: Residues, purpose: str, dimensions: int, features: int, masking: Masking) -> Mask | None:
    """Draw the mask of one purpose, for v with `dimensions` and w with `features` entries; None if nothing is
    masked."""
    return draw_masks(seed, purpose, [(dimensions, features)], masking)[0]


def draw_masks(seed: Residues, purpose: str, sizes: Sequence[tuple[int, int]], masking: Masking) -> list[Mask | None]:
    """Draw masks of one purpose for problems of some sizes each, dimensions and features: see `draw_mask`.

    Many small ones cost a fraction of as many calls.
    """
    if masking in ("none", "committee"):
        return [None] * len(sizes)
    masks: list[Mask | None] = [None] * len(sizes)
    for size in dict.fromkeys(sizes):
        d, m = size
        places = [place for place, other in enumerate(sizes) if other == size]
        of_size, count = f"{purpose} {d} {m}", len(places)
        lefts, rights = (_rotations(seed, f"{of_size} {side}", count, d) for side in ("left", "right"))
        turns = [FleetingRotation(seed, f"{of_size} {place} turn", m) for place in range(count)]
        stretches = np.ones((count, d))
        if masking == "congruence":
            stretches = STRETCH ** (2 * uniform(seed, f"{of_size} stretch", count * d).reshape(count, d) - 1)
        for place, mask in zip(places, map(Mask, lefts, stretches, rights, turns), strict=True):
            masks[place] = mask
    return masks


class Dither:
    """Standard normal numbers that nobody else can foretell: AES-256 of a seed (1, 4) from the operating system.

    seed: as `dither_seed` draws one, where a run that is resumed must have the same; None for one of its own.
    """

    def __init__(self, seed: Residues | None = None) -> None:
        self._seed = dither_seed() if seed is None else seed
        self._draws = 0

    def draw(self, size: int) -> FloatArray:
        """Draw (size,) numbers, different ones at each call."""
        self._draws += 1
        return _normal(self._seed, f"dither {self._draws}", size)


def dither_seed() -> Residues:
    """Draw (1, 4) residues from the operating system's generator."""
    return uniform_residues((1, 4))


def precision_of(dimensions: int) -> type[np.floating[Any]]:
    """Return the precision in which matrices of some dimensions are masked where rounding does not matter."""
    return np.float32 if dimensions >= _MANY_DIMENSIONS else np.float64


def _in_precision(
    groups: Iterable[_Group], precision: np.dtype[_Precision]
) -> Iterator[tuple[int, NDArray[_Precision], NDArray[_Precision]]]:
    for first, vectors, inner in groups:
        yield first, vectors.astype(precision, copy=False), inner.astype(precision, copy=False)


def _rotations(seed: Residues, purpose: str, count: int, size: int) -> list[Rotation]:
    """Draw Haar-random orthogonal matrices, as products of reflections of normal vectors (Stewart 1980)."""
    groups: list[list[_Group]] = [[] for _ in range(count)]
    signs = np.ones((count, size))
    for first in range(0, size, _GROUP):
        vectors, inner, signs[:, first : first + _GROUP] = _reflections(seed, purpose, count, size, first)
        for place, found in enumerate(groups):
            found.append((first, vectors[place], inner[place]))
    return [Rotation(*each) for each in zip(groups, signs, strict=True)]


def _reflections(
    seed: Residues, purpose: str, count: int, size: int, first: int
) -> tuple[NDArray[np.float32], FloatArray, FloatArray]:
    """Draw one group of the reflections of `count` rotations: V (count, rows, b), T (count, b, b), signs (count, b).

    Reflection k takes a normal vector of the last size - k entries to its own length in the first of them, as in a QR
    factorization of normal entries, whose R is not computed. The inverse of T is the upper triangle of V^T V, with half
    its diagonal.
    """
    rows, width = size - first, min(_GROUP, size - first)
    normal = _normal(seed, f"{purpose} {first}", count * rows * width).reshape(count, rows, width)
    normal[:, :width] *= _triangle(width)
    places = np.arange(width)
    heads = normal[:, places, places]
    normal[:, places, places] += np.copysign(np.sqrt(np.einsum("pij,pij->pj", normal, normal)), heads)
    vectors = normal.astype(np.float32)
    normal[...] = vectors
    inverse = normal.transpose(0, 2, 1) @ normal
    inverse *= _triangle(width).T - np.eye(width) / 2
    return vectors, np.asarray(np.linalg.inv(inverse)), np.asarray(-np.copysign(1.0, heads))


@functools.lru_cache(maxsize=4)
def _triangle(size: int) -> FloatArray:
    """Return (size, size) 1 in the lower triangle, with the diagonal, and 0 above it."""
    return np.tri(size)


def _normal(seed: Residues, purpose: str, size: int) -> FloatArray:
    """Return (size,) standard normal numbers, by Box and Muller: two from two uniform ones.

    Sine and cosine are those of the tangent of half the angle, which alone numpy computes several at a time.
    """
    pairs = -(-size // 2)
    words = _words(seed, purpose, 2 * pairs).reshape(2, pairs)
    found = np.empty((2, pairs))
    for start in range(0, pairs, _BLOCK):
        block = slice(start, start + _BLOCK)
        share, turns = _in_unit_interval(words[:, block])
        radius = np.sqrt(-2 * np.log1p(-share))
        tangent = np.tan(np.pi * turns)
        square = tangent * tangent
        radius /= 1 + square
        np.multiply(radius, 1 - square, out=found[0, block])
        np.multiply(radius, 2 * tangent, out=found[1, block])
    return found.reshape(-1)[:size]


def uniform(seed: Residues, purpose: str, size: int) -> FloatArray:
    """Return (size,) numbers in [0, 1), of 53 bits, a function of the seed and the purpose."""
    return _in_unit_interval(_words(seed, purpose, size))


def _in_unit_interval(words: Residues) -> FloatArray:
    found: FloatArray = (words >> np.uint64(11)).astype(np.float64)
    found *= 2.0**-53
    return found


def _words(seed: Residues, purpose: str, size: int) -> Residues:
    """Return (size,) uniform residues, a function of the seed and the purpose."""
    secret = hashlib.shake_256(seed.tobytes() + b"mask " + purpose.encode()).digest(SECRET_BYTES)
    return keystream(secret, (size,))
