"""Commutative encryption: points of a curve, multiplied by the secret number of each party.

The order of the parties does not matter: points that all parties encrypted are equal if and only if the original points
were equal. Points are x-coordinates on the NIST curves, whose orders are prime. So no point reveals anything by its
order, as half of the points of Curve25519 would, and every secret number has an inverse for decryption. P-256 is used
to compare hashes; P-521 has room for content that is decrypted again.
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
"""The prefix that selects one of the two points of an x-coordinate; their multiples have the same x-coordinates."""
_MAX_TRIES = 128


@dataclass(frozen=True)
class Group:
    """A curve of prime order.

    Attributes
    ----------
    curve : EllipticCurve
    order : int
        The number of its points.
    point_bytes : int
        The number of bytes of an x-coordinate.
    spare_bits : int
        The number of leading bits of an x-coordinate that are always 0.
    """

    curve: ec.EllipticCurve
    order: int
    point_bytes: int
    spare_bits: int

    @property
    def max_content_bytes(self) -> int:
        """Maximum bytes of content in a point, without the length, the counter, and a first byte of 0."""
        return self.point_bytes - 3

    def hash_identifiers(self, identifiers: Iterable[str], salt: bytes) -> CurvePoints:
        """Return a point for each identifier.

        Parameters
        ----------
        identifiers : iterable of str
        salt : bytes
            Random bytes of the run, so that points of two runs differ.

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
        """Return a point for each content, from which `contents_of` returns it.

        Parameters
        ----------
        contents : iterable of bytes

        Returns
        -------
        CurvePoints of shape (m, point_bytes)
            For each content: a zero, its length, the content, zeros, and a counter for which the bytes are a point.

        Raises
        ------
        ValueError
            A content has more than `max_content_bytes`.
        """

        def candidates(content: bytes) -> Iterator[bytes]:
            if len(content) > self.max_content_bytes:
                raise ValueError(f"a content must have {self.max_content_bytes} bytes or fewer, got {len(content)}")
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
            Some bytes are not a point.
        """
        return self._stack([key.exchange(ec.ECDH(), self._point(point.tobytes())) for point in points])

    def _first_point(self, candidates: Iterable[bytes]) -> bytes:
        """Return the first candidate that is a point; each is one with probability 1/2."""
        for candidate in candidates:
            with contextlib.suppress(ValueError):
                self._point(candidate)
                return candidate
        raise AssertionError("no candidate is a point, which has a negligible probability")

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
    """One party's secret number, for one execution of a protocol.

    Parameters
    ----------
    group : Group
        The group of the points to encrypt.
    source : Random
        A cryptographic generator, which draws the number.
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
            Some bytes are not a point.
        """
        return self._group.multiply(points, self._encrypting)

    def decrypt(self, points: CurvePoints) -> CurvePoints:
        """Invert `encrypt`, even if others encrypted the points before or afterwards.

        Parameters
        ----------
        points : CurvePoints of shape (m, point_bytes)

        Returns
        -------
        CurvePoints of shape (m, point_bytes)

        Raises
        ------
        ValueError
            Some bytes are not a point.
        """
        return self._group.multiply(points, self._decrypting)


def contents_of(points: CurvePoints) -> list[bytes]:
    """Return the contents embedded in points.

    Parameters
    ----------
    points : CurvePoints of shape (m, point_bytes)

    Returns
    -------
    list of bytes

    Raises
    ------
    ValueError
        A point has no content.
    """
    if any(point[0] or point[1] > len(point) - 3 for point in points):
        raise ValueError("a point has no content")
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
