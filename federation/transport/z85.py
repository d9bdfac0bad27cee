"""The text form of keys: Z85 (ZeroMQ RFC 32), five letters for four bytes.

The functions equal those of `zmq.utils.z85`. They are here because a site that takes part through a web server needs no
sockets, and so no pyzmq.
"""

from __future__ import annotations

import struct

_LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {letter: value for value, letter in enumerate(_LETTERS)}
_BASE = 85
_POWERS = tuple(_BASE**place for place in reversed(range(5)))


def encode(content: bytes) -> bytes:
    """Return the letters of some bytes. Raises ValueError for a length that four does not divide."""
    if len(content) % 4:
        raise ValueError(f"the length must be a multiple of 4, got {len(content)}")
    words = struct.unpack(f">{len(content) // 4}I", content)
    return bytes(_LETTERS[word // power % _BASE] for word in words for power in _POWERS)


def decode(letters: str | bytes) -> bytes:
    """Return the bytes of some letters. Raises ValueError for text that is not Z85."""
    text = letters.encode() if isinstance(letters, str) else letters
    if len(text) % 5:
        raise ValueError(f"the length must be a multiple of 5, got {len(text)}")
    try:
        values = [_VALUES[letter] for letter in text]
        words = [
            sum(value * power for value, power in zip(values[at : at + 5], _POWERS, strict=True))
            for at in range(0, len(values), 5)
        ]
        return struct.pack(f">{len(words)}I", *words)
    except (KeyError, struct.error) as error:
        raise ValueError("the text must consist of groups of five letters of Z85") from error
