"""Signatures of parties (Ed25519, RFC 8032).

Each use has a name that is signed too, so a signature for one use is not valid for another.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ORDER, PARTY, RECEIPT = b"order", b"party", b"receipt"
"""The uses of a signature."""


class SigningKey:
    """A party's key pair for signatures. The secret key is never printed.

    Parameters
    ----------
    seed : bytes, optional
        The 32 bytes of the secret key; by default fresh random bytes.

    Attributes
    ----------
    public : bytes
        The 32 bytes by which others verify.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        self._private = Ed25519PrivateKey.generate() if seed is None else Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._private.public_key().public_bytes_raw()

    @property
    def seed(self) -> bytes:
        """The 32 bytes of the secret key, for the file of its owner."""
        return self._private.private_bytes_raw()

    def sign(self, use: bytes, content: bytes) -> bytes:
        """Return a signature of 64 bytes."""
        return self._private.sign(_frame(use, content))


def is_signed(public: bytes, signature: bytes, use: bytes, content: bytes) -> bool:
    """Return whether the owner of a public key signed this content for this use."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _frame(use, content))
    except (InvalidSignature, ValueError):
        return False
    return True


def _frame(use: bytes, content: bytes) -> bytes:
    return b"fedsvm 1 " + use + b"\0" + content
