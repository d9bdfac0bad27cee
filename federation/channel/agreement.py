"""Secrets that two sites share and nobody else knows, and the keystreams derived from them.

Every site has an X25519 key pair for one run; the public halves are in the roster. The agreed secret is never used
itself: HKDF derives from it a separate secret for every purpose (RFC 7748, RFC 5869). `round_keys` derives the keys of
each round from one such secret, so that keys revealed for one round open no other.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import math
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedsvm.federation.arrays import Residues

SECRET_BYTES = 32
TAG_BYTES = 16
"""The number of bytes that sealing adds to content."""


class KeyAgreement:
    """One party's key pair for one run. The private half is only in memory, unless its creator stores it.

    Parameters
    ----------
    run : bytes
        The run's 8 random bytes.
    private : bytes, optional
        32 bytes, for a party whose process ends before the run; by default fresh random bytes.

    Attributes
    ----------
    public : bytes
        The half that goes into the roster.
    """

    def __init__(self, run: bytes, private: bytes | None = None) -> None:
        self._run = run
        self._private = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)
        self._extracted: dict[bytes, bytes] = {}
        self._pair_keys: dict[tuple[bytes, str], bytes] = {}
        self.public = self._private.public_key().public_bytes_raw()

    def secret(self, peer_public: bytes, purpose: str) -> bytes:
        """Return 256 bits that only this party and the owner of `peer_public` can derive, for one purpose.

        Raises ValueError for a public key that would make the secret known to all.
        """
        if (extracted := self._extracted.get(peer_public)) is None:
            agreed = self._private.exchange(X25519PublicKey.from_public_bytes(peer_public))
            self._extracted[peer_public] = extracted = hmac.digest(self._run, agreed, "sha256")
        # HKDF (RFC 5869): its extract step is cached for the run, and one block of its expand step has 256 bits
        return hmac.digest(extracted, purpose.encode() + b"\x01", "sha256")

    def pair_key(self, me: str, peer: str, peer_public: bytes, purpose: str) -> bytes:
        """Return the key that `me` and `peer` share in all rounds, for one purpose. `round_keys` derives from it.

        Raises ValueError as `secret` does.
        """
        if (key := self._pair_keys.get((peer_public, purpose))) is None:
            key = self.secret(peer_public, f"fedsvm {purpose} {min(me, peer)} {max(me, peer)}")
            self._pair_keys[peer_public, purpose] = key
        return key


def round_keys(pair_key: bytes, round_number: int, link: bytes = b"") -> bytes:
    """Return the keys that two sites share in one round, for one purpose: a secret and a sealing key of 32 bytes.

    link: the round's link in the chain of orders. Sites with different links get different keys.

    Keyed BLAKE2b (RFC 7693) is a pseudorandom function. The coordinator learns the secrets of some rounds when sites
    drop; without the key, these reveal nothing about other rounds, nor does one half of a round reveal the other. HKDF
    in every round would protect no better, since its key would also be in a site's memory during the run. BLAKE2b takes
    a third of the time, and only 32 bytes for each pair. With many processes on one machine, scattered memory limits
    the speed.
    """
    return hashlib.blake2b(
        round_number.to_bytes(8, "little") + link, key=pair_key, digest_size=2 * SECRET_BYTES
    ).digest()


def seal(keys: bytes, content: bytes, *, by_lower: bool) -> bytes:
    """Seal content with AES-256-GCM and `round_keys`, so that only the other of two sites can open it.

    A key is used in one round, and a nonce in one direction. So each of the two sites may seal one content in a round.
    """
    return AESGCM(keys[SECRET_BYTES:]).encrypt(_nonce(0, by_lower), content, None)


def unseal(keys: bytes, sealed: bytes, *, by_lower: bool) -> bytes:
    """Open content that one of two sites sealed; `by_lower`: the one whose name sorts first. Raises InvalidTag."""
    return AESGCM(keys[SECRET_BYTES:]).decrypt(_nonce(0, by_lower), sealed, None)


@functools.lru_cache(maxsize=8)
def _nonce(number: int, use: int) -> bytes:
    """Return 12 bytes, from a number below 2^64 and one below 2^32."""
    return number.to_bytes(8, "little") + use.to_bytes(4, "little")


@functools.lru_cache(maxsize=4)
def _zeros(size: int) -> bytes:
    """Return zero bytes, cached: allocating and clearing memory for long ones takes longer than the cipher."""
    return bytes(size)


def keystream(secret: bytes, shape: Sequence[int], part: int = 0) -> Residues:
    """Return a uint64 array of `shape` from AES in counter mode, keyed with all of a 256-bit secret.

    It uses GCM (NIST SP 800-38D) without its tag: one call takes half as long as creating a cipher object and then
    using it, which matters for short streams. The nonce is the number of the part, so that a secret has many
    independent streams of up to 64 GB.
    """
    words = math.prod(shape)
    stream = AESGCM(secret).encrypt(_nonce(part, 0), _zeros(8 * words), None)
    return np.frombuffer(stream, dtype="<u8", count=words).reshape(shape)


def keystreams(secrets: Sequence[bytes], shape: Sequence[int], part: int = 0) -> Residues:
    """Return the keystreams of several secrets in one array of shape (secrets, *shape)."""
    words, nonce = math.prod(shape), _nonce(part, 0)
    zeros = _zeros(8 * words)
    streams = b"".join([AESGCM(secret).encrypt(nonce, zeros, None) for secret in secrets])
    rows = np.frombuffer(streams, dtype="<u8").reshape(len(secrets), words + TAG_BYTES // 8)
    return rows[:, :words].reshape(len(secrets), *shape)
