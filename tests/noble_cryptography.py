"""The classes of `cryptography` that a participant uses, over the audited JavaScript libraries of noble.

The wheel of `cryptography` for browsers is on no package registry, only in the full distribution of Pyodide. Where
that cannot be had, `tests.pyodide_folder` packs this module in its place: the same primitives, in a real browser, and
the hub and the other participants check them with `cryptography` itself. `ec` has the names of its curves only.
"""

from __future__ import annotations

from typing import Any

import js  # type: ignore[import-not-found]  # of Pyodide
from pyodide.ffi import JsException, to_js  # type: ignore[import-not-found]

js.importScripts("/pyodide/noble.js")
_BLOCK_BYTES = 64


class InvalidTag(Exception):
    """A ciphertext that was not sealed with this key."""


class InvalidSignature(Exception):
    """A signature of another content, or by another key."""


class X25519PublicKey:
    """A public key of X25519."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    @classmethod
    def from_public_bytes(cls, content: bytes) -> X25519PublicKey:
        return cls(bytes(content))

    def public_bytes_raw(self) -> bytes:
        return self.content


class X25519PrivateKey:
    """A private key of X25519."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def generate(cls) -> X25519PrivateKey:
        return cls(js.noble.x25519.utils.randomSecretKey().to_bytes())

    @classmethod
    def from_private_bytes(cls, content: bytes) -> X25519PrivateKey:
        return cls(bytes(content))

    def private_bytes_raw(self) -> bytes:
        return self._content

    def public_key(self) -> X25519PublicKey:
        return X25519PublicKey(js.noble.x25519.getPublicKey(to_js(self._content)).to_bytes())

    def exchange(self, peer: X25519PublicKey) -> bytes:
        try:
            shared: bytes = js.noble.x25519.getSharedSecret(to_js(self._content), to_js(peer.content)).to_bytes()
        except JsException as error:
            raise ValueError("a public key that gives a secret which all know") from error
        return shared


class Ed25519PublicKey:
    """A public key of Ed25519."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    @classmethod
    def from_public_bytes(cls, content: bytes) -> Ed25519PublicKey:
        return cls(bytes(content))

    def public_bytes_raw(self) -> bytes:
        return self.content

    def verify(self, signature: bytes, content: bytes) -> None:
        try:
            is_valid = js.noble.ed25519.verify(to_js(signature), to_js(content), to_js(self.content))
        except JsException:
            is_valid = False
        if not is_valid:
            raise InvalidSignature


class Ed25519PrivateKey:
    """A private key of Ed25519."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def generate(cls) -> Ed25519PrivateKey:
        return cls(js.noble.ed25519.utils.randomSecretKey().to_bytes())

    @classmethod
    def from_private_bytes(cls, content: bytes) -> Ed25519PrivateKey:
        return cls(bytes(content))

    def private_bytes_raw(self) -> bytes:
        return self._content

    def public_key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey(js.noble.ed25519.getPublicKey(to_js(self._content)).to_bytes())

    def sign(self, content: bytes) -> bytes:
        signature: bytes = js.noble.ed25519.sign(to_js(content), to_js(self._content)).to_bytes()
        return signature


class _Aead:
    """An authenticated cipher."""

    _name = ""

    def __init__(self, key: bytes) -> None:
        self._key = bytes(key)

    def _cipher(self, nonce: bytes, bound: bytes | None) -> Any:
        return getattr(js.noble, self._name)(to_js(self._key), to_js(bytes(nonce)), to_js(bound or b""))

    def encrypt(self, nonce: bytes, content: bytes, bound: bytes | None) -> bytes:
        sealed: bytes = self._cipher(nonce, bound).encrypt(to_js(bytes(content))).to_bytes()
        return sealed

    def decrypt(self, nonce: bytes, sealed: bytes, bound: bytes | None) -> bytes:
        try:
            content: bytes = self._cipher(nonce, bound).decrypt(to_js(bytes(sealed))).to_bytes()
        except JsException as error:
            raise InvalidTag from error
        return content


class ChaCha20Poly1305(_Aead):
    """ChaCha20-Poly1305 (RFC 8439)."""

    _name = "chacha20poly1305"


class AESGCM(_Aead):
    """AES-GCM (NIST SP 800-38D)."""

    _name = "gcm"


class ChaCha20:
    """ChaCha20 with the counter of its first block, 4 bytes little-endian, before a nonce of 12."""

    def __init__(self, key: bytes, nonce: bytes) -> None:
        self.key, self.counter, self.nonce = key, int.from_bytes(nonce[:4], "little"), nonce[4:]


class Cipher:
    """A stream cipher."""

    def __init__(self, algorithm: ChaCha20, mode: None) -> None:
        self._algorithm = algorithm
        self._place = 0

    def encryptor(self) -> Cipher:
        return self

    def update(self, content: bytes) -> bytes:
        first, skipped = divmod(self._place, _BLOCK_BYTES)
        whole = to_js(bytes(skipped) + bytes(content))
        key, nonce = to_js(self._algorithm.key), to_js(self._algorithm.nonce)
        stream: bytes = js.noble.chacha20(key, nonce, whole, js.undefined, self._algorithm.counter + first).to_bytes()
        self._place += len(content)
        return stream[skipped:]


class EllipticCurve:
    """A curve by its name."""


class SECP256R1(EllipticCurve):
    """P-256."""


class SECP521R1(EllipticCurve):
    """P-521."""


MODULES = {
    "": (),
    "exceptions": ("InvalidTag", "InvalidSignature"),
    "hazmat": (),
    "hazmat.primitives": (),
    "hazmat.primitives.asymmetric": (),
    "hazmat.primitives.asymmetric.ec": ("EllipticCurve", "SECP256R1", "SECP521R1"),
    "hazmat.primitives.asymmetric.ed25519": ("Ed25519PrivateKey", "Ed25519PublicKey"),
    "hazmat.primitives.asymmetric.x25519": ("X25519PrivateKey", "X25519PublicKey"),
    "hazmat.primitives.ciphers": ("Cipher",),
    "hazmat.primitives.ciphers.aead": ("AESGCM", "ChaCha20Poly1305"),
    "hazmat.primitives.ciphers.algorithms": ("ChaCha20",),
}
"""The modules of `cryptography` that have these names."""
