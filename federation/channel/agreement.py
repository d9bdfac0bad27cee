"""Secrets that two sites share and nobody else knows, and the keystreams that such secrets open.

Every site has an X25519 key pair for one run; the public halves are in the roster. What two sites agree on is never
used itself: HKDF derives from it, for every purpose and round, a secret of its own (RFC 7748, RFC 5869). So what is
shown of one round opens no other.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from federation.arrays import Residues

SECRET_BYTES = 32
_NONCE = bytes(12)
"""Every secret is used for one keystream only, so that its nonce may be constant."""


class KeyAgreement:
    """One party's key pair for one run. The private half lives in memory only, unless who made it keeps it.

    Parameters
    ----------
    run : bytes
        The run's 8 random bytes.
    private : bytes, optional
        32 bytes, of a party whose process does not live as long as the run; by default fresh ones.

    Attributes
    ----------
    public : bytes
        The half that goes into the roster.
    """

    def __init__(self, run: bytes, private: bytes | None = None) -> None:
        self._run = run
        self._private = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)
        self._keyed: dict[bytes, hmac.HMAC] = {}
        self.public = self._private.public_key().public_bytes_raw()

    def secret(self, peer_public: bytes, purpose: str) -> bytes:
        """256 bits that only this party and the owner of `peer_public` can derive, for one purpose.

        Raises ValueError for a public key that would make the secret known to all.
        """
        if (keyed := self._keyed.get(peer_public)) is None:
            agreed = self._private.exchange(X25519PublicKey.from_public_bytes(peer_public))
            keyed = hmac.new(hmac.digest(self._run, agreed, "sha256"), digestmod="sha256")
            self._keyed[peer_public] = keyed
        # HKDF (RFC 5869): its first half is done once a run, and of the second one block of 256 bits is enough
        block = keyed.copy()
        block.update(purpose.encode() + b"\x01")
        return block.digest()


def keystream(secret: bytes, shape: Sequence[int]) -> Residues:
    """uint64 array of `shape` from AES keyed with all of a 256-bit secret, in counter mode.

    By way of GCM (NIST SP 800-38D), whose tag is not used: one call of it takes half as long as a cipher that is first
    made and then asked, which is most of what short streams take.
    """
    words = math.prod(shape)
    stream = AESGCM(secret).encrypt(_NONCE, bytes(8 * words), None)
    return np.frombuffer(stream, dtype="<u8", count=words).reshape(shape)
