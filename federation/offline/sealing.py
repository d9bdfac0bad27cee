"""The keys that an offline party derives from its own key: for requests to the hub, its store, and its draws.

Every party has a key pair of Curve25519, in the file that `fedsvm keys new` makes. Messages between a site and the hub
are sealed with a secret that only these two share by X25519. It is fresh for every request (HKDF with a random number
of the request), so the nonce may be constant. It authenticates the site to the hub, and the hub to the site. A site's
store is sealed with a key derived from its secret key. A sealed request is

    public key of the site (32) | number (16) | sealed content | tag (16)
"""

from __future__ import annotations

import hmac
import math
import os
from collections.abc import Callable, Sequence

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.channel.envelope import NONCE_BYTES, TAG_BYTES
from fedsvm.federation.channel.interface import Draw
from fedsvm.federation.errors import Malformed
from fedsvm.federation.transport.keys import KEY_BYTES, KeyPair

NUMBER_BYTES = 16
HEAD_BYTES = KEY_BYTES + NUMBER_BYTES
"""Bytes of a sealed request that are not encrypted: the public key and the random number."""
_CONSTANT = bytes(NONCE_BYTES)


def derive_key(secret: bytes, purpose: str) -> bytes:
    """Return 256 bits derived from a secret for one purpose. They reveal nothing about keys for other purposes."""
    return hmac.digest(secret, f"fedsvm {purpose}".encode(), "sha256")


class Draws:
    """The random draws of a site in its rounds: the same when a round is repeated, and secret.

    Parameters
    ----------
    secret : bytes
        32 random bytes of the site's own, made for one run.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of_round(self, number: int, link: bytes = b"") -> Draw:
        """Return the function that draws the random vectors of a round, from one ChaCha20 keystream.

        link: the round's link in the chain of orders, so that no other order gets the same draws.
        """
        key = derive_key(self._secret, f"draws of round {number} {link.hex()}")
        stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

        def draw(shape: Sequence[int]) -> Residues:
            return np.frombuffer(stream.update(bytes(8 * math.prod(shape))), dtype="<u8").reshape(shape)

        return draw


class Requests:
    """Seals a site's requests to the hub, and opens the answers.

    Parameters
    ----------
    keys : KeyPair
        The key pair of the site.
    hub_key : bytes
        The hub's public key.
    """

    def __init__(self, keys: KeyPair, hub_key: bytes) -> None:
        self._keys = keys
        self._hub_key = hub_key
        self._agreement = KeyAgreement(b"", keys.secret)

    def seal(self, content: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
        """Seal a request. Return it with the function that opens its answer, which raises Malformed if the hub did not
        seal it."""
        number = os.urandom(NUMBER_BYTES)
        up, down = (self._agreement.secret(self._hub_key, _purpose(number, way)) for way in ("up", "down"))
        head = self._keys.public + number
        return head + ChaCha20Poly1305(up).encrypt(_CONSTANT, content, head), lambda answer: _open(down, answer, head)


class Answers:
    """Opens sites' requests to the hub, and seals the answers.

    Parameters
    ----------
    keys : KeyPair
        The key pair of the hub.
    """

    def __init__(self, keys: KeyPair) -> None:
        self._agreement = KeyAgreement(b"", keys.secret)

    def open(self, request: bytes) -> tuple[bytes, bytes, Callable[[bytes], bytes]]:
        """Return the sender's public key, the request, and the function that seals the answer. Raises Malformed."""
        head = request[:HEAD_BYTES]
        if len(request) < HEAD_BYTES + TAG_BYTES:
            raise Malformed("a request that is cut short")
        key, number = head[:KEY_BYTES], head[KEY_BYTES:]
        try:
            up, down = (self._agreement.secret(key, _purpose(number, way)) for way in ("up", "down"))
        except ValueError as error:
            raise Malformed("a request with an invalid key") from error
        content = _open(up, request[HEAD_BYTES:], head)
        return key, content, lambda answer: ChaCha20Poly1305(down).encrypt(_CONSTANT, answer, head)


class Vault:
    """Seals content for a file that others might read; each piece is bound to its place.

    Parameters
    ----------
    secret : bytes
        The key, of 32 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self._cipher = ChaCha20Poly1305(secret)

    def seal(self, content: bytes, place: str) -> bytes:
        """Return the sealed content after a random nonce."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, place.encode())

    def open(self, sealed: bytes, place: str) -> bytes:
        """Open content that was sealed for this place. Raises Malformed for anything else."""
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], place.encode())
        except (InvalidTag, ValueError) as error:
            raise Malformed("a piece that was not sealed with this key for this place") from error


def _purpose(number: bytes, way: str) -> str:
    return f"fedsvm visit {number.hex()} {way}"


def _open(secret: bytes, sealed: bytes, head: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(secret).decrypt(_CONSTANT, sealed, head)
    except (InvalidTag, ValueError) as error:
        raise Malformed("content that the named sender did not seal") from error
