"""Encryption that commutes: points of a curve, multiplied by one secret number after the other.

Whoever's turn it is, the order does not matter: what all have encrypted is equal if and only if it was equal before.
Points are x-coordinates on the NIST curves, whose orders are prime: no point leaks anything by its order, as half of
those on Curve25519 would, and every secret number has an inverse, so that what all have encrypted can be decrypted by
all again. P-256 serves where hashes are compared; P-521 has room for content that is to be read again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray

Points = NDArray[np.uint8]
"""(m, bytes of a point): x-coordinates, most significant byte first."""

_EITHER = b"\2"
"""Says which of the two points of an x-coordinate is meant; their multiples have the same x-coordinates."""
_MAX_TRIES = 128


@dataclass(frozen=True)
class Group:
    """A curve of prime order, with points of `point_bytes`, of which `spare_bits` at the front are always 0."""

    curve: ec.EllipticCurve
    order: int
    point_bytes: int
    spare_bits: int

    @property
    def longest_content_bytes(self) -> int:
        """What fits a point besides a length, a counter, and a first byte of 0."""
        return self.point_bytes - 3

    def hashed(self, identifiers: Iterable[str], salt: bytes) -> Points:
        """A point for each identifier; the salt makes it another one in every run."""
        return self._stacked([self._hashed(identifier.encode(), salt) for identifier in identifiers])

    def embedded(self, contents: Iterable[bytes]) -> Points:
        """A point for each content, which `contents_of` reads again. Raises ValueError for one that is too long."""
        return self._stacked([self._embedded(content) for content in contents])

    def multiplied(self, points: Points, key: ec.EllipticCurvePrivateKey) -> Points:
        """Each point times the key. Raises ValueError for bytes that are no point."""
        return self._stacked([key.exchange(ec.ECDH(), self._point(point.tobytes())) for point in points])

    def _hashed(self, identifier: bytes, salt: bytes) -> bytes:
        def attempt(counter: int) -> bytes:
            digest = hashlib.shake_256(bytes([counter]) + salt + identifier).digest(self.point_bytes)
            return bytes([digest[0] & (0xFF >> self.spare_bits)]) + digest[1:]

        return self._first_point(attempt)

    def _embedded(self, content: bytes) -> bytes:
        if len(content) > self.longest_content_bytes:
            raise ValueError(f"{len(content)} bytes do not fit a point; at most {self.longest_content_bytes} do")
        body = b"\0" + bytes([len(content)]) + content.ljust(self.longest_content_bytes, b"\0")
        return self._first_point(lambda counter: body + bytes([counter]))

    def _first_point(self, attempt: Callable[[int], bytes]) -> bytes:
        """The first attempt that is a point; each is one with a chance of a half."""
        for counter in range(_MAX_TRIES):
            try:
                self._point(candidate := attempt(counter))
            except ValueError:
                continue
            return candidate
        raise AssertionError("as many coins fell on one side")

    def _point(self, x: bytes) -> ec.EllipticCurvePublicKey:
        return ec.EllipticCurvePublicKey.from_encoded_point(self.curve, _EITHER + x)

    def _stacked(self, points: Sequence[bytes]) -> Points:
        return np.frombuffer(b"".join(points), dtype=np.uint8).reshape(len(points), self.point_bytes)


P256 = Group(ec.SECP256R1(), 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551, 32, 0)
P521 = Group(
    ec.SECP521R1(),
    2**521 - 657877501894328237357444332315020117536923257219387276263472201219398408051703,
    66,
    7,
)
"""Orders from FIPS 186-4, appendix D.1.2."""


class Cipher:
    """One party's secret number, for one use of a protocol. It lives in memory only."""

    def __init__(self, group: Group) -> None:
        number = 1 + secrets.randbelow(group.order - 1)
        self._group = group
        self._encrypting = ec.derive_private_key(number, group.curve)
        self._decrypting = ec.derive_private_key(pow(number, -1, group.order), group.curve)

    def encrypt(self, points: Points) -> Points:
        """Each point multiplied. Raises ValueError for bytes that are no point."""
        return self._group.multiplied(points, self._encrypting)

    def decrypt(self, points: Points) -> Points:
        """What `encrypt` made of points."""
        return self._group.multiplied(points, self._decrypting)


def contents_of(points: Points) -> list[bytes]:
    """What was embedded in points. Raises ValueError where nothing was."""
    if any(point[0] or point[1] > len(point) - 3 for point in points):
        raise ValueError("a point holds no content")
    return [point[2 : 2 + int(point[1])].tobytes() for point in points]


def distinct(points: Points) -> Points:
    """Each point once, in the order of their bytes, which says nothing of where they came from."""
    return np.unique(points, axis=0)
