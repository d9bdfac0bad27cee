"""Random numbers that a repeated step draws again: a key of the round determines them.

A step with its own draws, such as noise or a cipher's exponent, takes its key from `Channel.random`, which a site
records if the run has a journal. A process that repeats the step then draws the same numbers.
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
    """A generator whose numbers are uniform to everyone without its key: the keystream of ChaCha20 (RFC 8439).

    It has all methods of `random.Random`, but cannot be seeded and does not reveal its state.

    Parameters
    ----------
    key : bytes
        32 bytes, used for no other generator.
    """

    def __init__(self, key: bytes) -> None:
        self._stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()
        self._block, self._place = b"", 0
        super().__init__()

    def getrandbits(self, k: int, /) -> int:
        """Return an integer of k uniform bits."""
        size = (k + 7) // 8
        if self._place + size > len(self._block):
            self._block, self._place = self._stream.update(bytes(max(_BLOCK_BYTES, size))), 0
        taken = self._block[self._place : self._place + size]
        self._place += size
        return int.from_bytes(taken, "little") >> (8 * size - k)

    def random(self) -> float:
        """Return a uniform number in [0, 1) with 53 bits."""
        return self.getrandbits(53) * 2.0**-53

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """Ignore the call, since the numbers follow from the key."""

    def getstate(self) -> Any:
        """Raise NotImplementedError, since the state is secret."""
        raise NotImplementedError("a generator of secret numbers does not reveal its state")

    def setstate(self, state: Any) -> None:
        """Raise NotImplementedError, since the state follows from the key."""
        raise NotImplementedError("the state of a generator of secret numbers follows from its key")


def drawn_key(channel: Channel) -> bytes:
    """Draw 32 random bytes of this party; a repeated step draws the same bytes."""
    return channel.random(_KEY_SHAPE).tobytes()


def drawn_generator(channel: Channel) -> KeyedRandom:
    """Return a generator with a newly drawn key."""
    return KeyedRandom(drawn_key(channel))
