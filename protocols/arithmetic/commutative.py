"""Encryption that commutes: points of a curve, multiplied by one secret number after the other.

Whoever's turn it is, the order does not matter: what all have encrypted is equal if and only if it was equal before.
Points are x-coordinates on the NIST curves, whose orders are prime: no point leaks anything by its order, as half of
those on Curve25519 would, and every secret number has an inverse, so that what all have encrypted can be decrypted by
all again. P-256 serves where hashes are compared; P-521 has room for content that is to be read again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray

CurvePoints = NDArray[np.uint8]
"""(m, bytes of a point): x-coordinates, most significant byte first."""

_EITHER = b"\2"
"""Says which of the two points of an x-coordinate is meant; their multiples have the same x-coordinates."""
_MAX_TRIES = 128


@dataclass(frozen=True)
class Group:
    """A curve of prime order.

    Attributes
    ----------
    curve : EllipticCurve
    order : int
        How many points it has.
    point_bytes : int
        Of an x-coordinate.
    spare_bits : int
        How many bits at its front are always 0.
    """

    curve: ec.EllipticCurve
    order: int
    point_bytes: int
    spare_bits: int

    @property
    def max_content_bytes(self) -> int:
        """The bytes of content that a point holds, without length, counter, and a first byte of 0."""
        return self.point_bytes - 3

    def hash_identifiers(self, identifiers: Iterable[str], salt: bytes) -> CurvePoints:
        """Return a point for each identifier.

        Parameters
        ----------
        identifiers : iterable of str
        salt : bytes
            Makes it another point in every run.

        Returns
        -------
        CurvePoints of shape (m, point_bytes)
        """

        def candidates(identifier: bytes) -> Iterator[bytes]:
            for counter in range(_MAX_TRIES):
                digest = hashlib.shake_256(bytes([counter]) + salt + identifier).digest(self.point_bytes)
                yield bytes([digest[0] & (0xFF >> self.spare_bits)]) + digest[1:]

        return self._stack([self._first_point(candidates(identifier.encode())) for identifier in identifiers])

    def embed_contents(self, contents: Iterable[bytes]) -> CurvePoints:
        """Return a point for each content, which `contents_of` reads again.

        Parameters
        ----------
        contents : iterable of bytes

        Returns
        -------
        CurvePoints of shape (m, point_bytes)
            0, length, content, zeros, and a counter that makes it a point.

        Raises
        ------
        ValueError
            For a content of more than `max_content_bytes`.
        """

        def candidates(content: bytes) -> Iterator[bytes]:
            if len(content) > self.max_content_bytes:
                raise ValueError(f"{len(content)} bytes do not fit a point; at most {self.max_content_bytes} do")
            body = b"\0" + bytes([len(content)]) + content.ljust(self.max_content_bytes, b"\0")
            for counter in range(_MAX_TRIES):
                yield body + bytes([counter])

        return self._stack([self._first_point(candidates(content)) for content in contents])

    def multiply(self, points: CurvePoints, key: ec.EllipticCurvePrivateKey) -> CurvePoints:
        """Return each point times the key.

        Parameters
        ----------
        points : CurvePoints of shape (m, point_bytes)
        key : EllipticCurvePrivateKey

        Returns
        -------
        CurvePoints of shape (m, point_bytes)

        Raises
        ------
        ValueError
            For bytes that are no point.
        """
        return self._stack([key.exchange(ec.ECDH(), self._point(point.tobytes())) for point in points])

    def _first_point(self, candidates: Iterable[bytes]) -> bytes:
        """Return the first candidate that is a point; each is one with probability 1/2."""
        for candidate in candidates:
            with contextlib.suppress(ValueError):
                self._point(candidate)
                return candidate
        raise AssertionError("as many coins fell on one side")

    def _point(self, x: bytes) -> ec.EllipticCurvePublicKey:
        return ec.EllipticCurvePublicKey.from_encoded_point(self.curve, _EITHER + x)

    def _stack(self, points: Sequence[bytes]) -> CurvePoints:
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
    """One party's secret number, for one use of a protocol.

    Parameters
    ----------
    group : Group
        Of the points to encrypt.
    source : Random
        Draws the number: a generator of secret ones.
    """

    def __init__(self, group: Group, source: Random) -> None:
        number = 1 + source.randrange(group.order - 1)
        self._group = group
        self._encrypting = ec.derive_private_key(number, group.curve)
        self._decrypting = ec.derive_private_key(pow(number, -1, group.order), group.curve)

    def encrypt(self, points: CurvePoints) -> CurvePoints:
        """Multiply each point by the secret number.

        Parameters
        ----------
        points : CurvePoints of shape (m, point_bytes)

        Returns
        -------
        CurvePoints of shape (m, point_bytes)

        Raises
        ------
        ValueError
            For bytes that are no point.
        """
        return self._group.multiply(points, self._encrypting)

    def decrypt(self, points: CurvePoints) -> CurvePoints:
        """Invert `encrypt`, also if others have encrypted the points before or since.

        Parameters
        ----------
        points : CurvePoints of shape (m, point_bytes)

        Returns
        -------
        CurvePoints of shape (m, point_bytes)

        Raises
        ------
        ValueError
            For bytes that are no point.
        """
        return self._group.multiply(points, self._decrypting)


def contents_of(points: CurvePoints) -> list[bytes]:
    """Return what was embedded in points.

    Parameters
    ----------
    points : CurvePoints of shape (m, point_bytes)

    Returns
    -------
    list of bytes

    Raises
    ------
    ValueError
        Where nothing was embedded in one.
    """
    if any(point[0] or point[1] > len(point) - 3 for point in points):
        raise ValueError("a point holds no content")
    return [point[2 : 2 + int(point[1])].tobytes() for point in points]


def distinct(points: CurvePoints) -> CurvePoints:
    """Return each point once, in the order of their bytes, which reveals nothing about their origin.

    Parameters
    ----------
    points : CurvePoints of shape (m, point_bytes)

    Returns
    -------
    CurvePoints of shape (at most m, point_bytes)
    """
    return np.unique(points, axis=0)
