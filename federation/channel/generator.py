"""Random numbers of a party that a repeated step must draw again: they follow from a key of its round.

A step with its own draws, such as noise or a cipher's number, takes its key from `Channel.random`, which a site records
if the run has a journal. A process that repeats the step then draws the same numbers.
"""

from __future__ import annotations

import random
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedsvm.federation.channel.agreement import SECRET_BYTES
from fedsvm.federation.channel.interface import Channel

_NONCE = bytes(16)
"""Every key is used for one generator only, so that its nonce may be constant."""

_BLOCK_BYTES = 4096
_KEY_SHAPE = (SECRET_BYTES // 8,)


class KeyedRandom(random.Random):
    """Numbers that are uniform to everyone who does not know the key: the keystream of ChaCha20 (RFC 8439).

    It has all methods of `random.Random`, over these bits, but cannot be seeded and does not reveal its state.

    Parameters
    ----------
    key : bytes
        32 bytes, of this one generator.
    """

    def __init__(self, key: bytes) -> None:
        self._stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()
        self._block, self._place = b"", 0
        super().__init__()

    def getrandbits(self, k: int, /) -> int:
        """Return a whole number of k uniform bits."""
        size = (k + 7) // 8
        if self._place + size > len(self._block):
            self._block, self._place = self._stream.update(bytes(max(_BLOCK_BYTES, size))), 0
        taken = self._block[self._place : self._place + size]
        self._place += size
        return int.from_bytes(taken, "little") >> (8 * size - k)

    def random(self) -> float:
        """Return a number in [0, 1) of 53 bits."""
        return self.getrandbits(53) * 2.0**-53

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """Ignore the call, since the numbers follow from the key."""

    def getstate(self) -> Any:
        """Raise NotImplementedError, since the state is secret."""
        raise NotImplementedError("a generator of secret numbers does not tell its state")

    def setstate(self, state: Any) -> None:
        """Raise NotImplementedError, since the state follows from the key."""
        raise NotImplementedError("a generator of secret numbers begins with its key")


def drawn_key(channel: Channel) -> bytes:
    """Draw 32 random bytes of this party; a step that is repeated draws the same."""
    return channel.random(_KEY_SHAPE).tobytes()


def drawn_generator(channel: Channel) -> KeyedRandom:
    """Return a generator with a key of its own."""
    return KeyedRandom(drawn_key(channel))
