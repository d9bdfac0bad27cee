"""Secret matrices, drawn anew by all sites for every round, behind which a coordinator solves without seeing what.

Newton's system (D + M) x = q is opened as E = A (D + M) A^T and c = A q, with A = O1 S O2 and O1, O2 Haar-random
orthogonal, S diagonal and log-uniform in [1/4, 4]. The coordinator returns y = E^-1 c, and x = A^T y. Class vectors are
opened behind another Haar-random O, which keeps their inner products and nothing else.

What can be read off: the decrement c^T E^-1 c, the inner products, and of the spectrum of D + M what A leaves of it:
each eigenvalue to a factor of 16 ("congruence"), or exactly ("orthogonal", S = 1).

The sites draw from a seed that they share (`fedsvm.protocols.common_seed`), by SHAKE-256 and AES-256. Their linear
algebra may differ in the last bits, which is an error of the step and not of any certificate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.agreement import SECRET_BYTES, keystream
from fedsvm.federation.channel.interface import uniform_residues

Masking = Literal["congruence", "orthogonal", "none", "committee"]
"""In `committee` no site knows the masks; see `blind_path`."""

STRETCH = 4.0
"""The largest diagonal entry of S; the smallest is its inverse."""


@dataclass(frozen=True)
class Mask:
    """A (d, d), and O (m, m)."""

    around: FloatArray
    turn: FloatArray


def draw_mask(seed: Residues, purpose: str, dimensions: int, features: int, masking: Masking) -> Mask | None:
    """Draw the mask of one purpose, for v with `dimensions` and w with `features` entries; None if nothing is
    masked."""
    if masking in ("none", "committee"):
        return None
    left, right = (_rotation(seed, f"{purpose} {side}", dimensions) for side in ("left", "right"))
    if masking == "congruence":
        share = _uniform(seed, f"{purpose} stretch", dimensions)
        left = left * STRETCH ** (2 * share - 1)
    return Mask(left @ right, _rotation(seed, f"{purpose} turn", features))


def draw_masks(seed: Residues, purpose: str, sizes: Sequence[tuple[int, int]], masking: Masking) -> list[Mask | None]:
    """Draw masks of one purpose for problems of some sizes each, dimensions and features, from one stream: see
    `draw_mask`.

    Many small ones cost a fraction of as many calls.
    """
    if masking == "none":
        return [None] * len(sizes)
    counts = [2 * d * d + m * m for d, m in sizes]
    normals = np.split(_normal(seed, f"{purpose} rotations", sum(counts)), np.cumsum(counts)[:-1])
    stretches = np.split(
        _uniform(seed, f"{purpose} stretches", sum(d for d, _ in sizes)), np.cumsum([d for d, _ in sizes])[:-1]
    )
    masks: list[Mask | None] = [None] * len(sizes)
    for size in dict.fromkeys(sizes):
        d, m = size
        places = [place for place, other in enumerate(sizes) if other == size]
        drawn = np.array([normals[place] for place in places])
        left, right = (_rotate(drawn[:, side * d * d :][:, : d * d].reshape(-1, d, d)) for side in (0, 1))
        turns = _rotate(drawn[:, 2 * d * d :].reshape(-1, m, m))
        if masking == "congruence":
            left = left * STRETCH ** (2 * np.array([stretches[place] for place in places]) - 1)[:, None, :]
        for place, around, turn in zip(places, left @ right, turns, strict=True):
            masks[place] = Mask(around, turn)
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


def _rotation(seed: Residues, purpose: str, size: int) -> FloatArray:
    """Return a Haar-random orthogonal (size, size) matrix: QR of normal entries without the signs of R (Mezzadri
    2007)."""
    return _rotate(_normal(seed, purpose, size * size).reshape(size, size))


def _rotate(normal: FloatArray) -> FloatArray:
    """Return rotations of normal entries, from one matrix or a stack of them."""
    q, r = np.linalg.qr(normal)
    return np.asarray(q * np.copysign(1.0, np.diagonal(r, axis1=-2, axis2=-1))[..., None, :])


def _normal(seed: Residues, purpose: str, size: int) -> FloatArray:
    """Return (size,) standard normal numbers, by Box and Muller: two from two uniform ones."""
    pairs = -(-size // 2)
    first, second = _uniform(seed, purpose, 2 * pairs).reshape(2, pairs)
    radius, angle = np.sqrt(-2 * np.log1p(-first)), 2 * np.pi * second
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]


def _uniform(seed: Residues, purpose: str, size: int) -> FloatArray:
    """Return (size,) numbers in [0, 1), of 53 bits, a function of the seed and the purpose."""
    secret = hashlib.shake_256(seed.tobytes() + b"mask " + purpose.encode()).digest(SECRET_BYTES)
    return np.asarray(np.ldexp((keystream(secret, (size,)) >> np.uint64(11)).astype(np.float64), -53))
