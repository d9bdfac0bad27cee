"""Messages in a file: for each, the length of its frame in 8 bytes, the frame (see `wire`), and zeros.

The zeros align the next length to a multiple of 8, so that arrays can be views of the content. A frame may be longer
than the maximum for a message that is sent.

Only the owner may read files of a site. Reading this format takes far less memory than an archive of numpy, whose code
alone takes a megabyte in every process.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from typing import IO

from fedsvm.federation.errors import Malformed
from fedsvm.federation.transport import wire

_LENGTH = struct.Struct("<Q")
_MAPPED_BYTES = 1 << 24
"""Minimum length of a file that is mapped, so that its content takes no memory of the process."""


class _CutShort(Malformed):
    def __init__(self) -> None:
        super().__init__("an incomplete message")


def create(path: str) -> IO[bytes]:
    """Create a file that only its owner may read. Raises OSError if it exists."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def write(file: IO[bytes], message: wire.Message) -> None:
    """Append one message."""
    parts = wire.parts(message)
    length = sum(map(len, parts))
    file.writelines([_LENGTH.pack(length), *parts, bytes(_padding(length))])


def read(path: str) -> Iterator[wire.Message]:
    """Yield every message of a file. Raises Malformed if it is damaged."""
    yield from messages(_content(path))


def messages(content: memoryview) -> Iterator[wire.Message]:
    """Yield every message of the content of a file. Raises Malformed if it is damaged."""
    while content:
        message, content = _message(content)
        yield message


def read_whole(path: str) -> tuple[list[wire.Message], int]:
    """Return the messages before the first damage, such as after a killed writer, and their length in bytes.

    Raises Malformed if the first message is damaged, for example in a file of another version.
    """
    content = rest = _content(path)
    found: list[wire.Message] = []
    while rest:
        try:
            message, rest = _message(rest)
        except _CutShort:
            break
        except Malformed:
            if not found:
                raise
            break
        found.append(message)
    return found, len(content) - len(rest)


def _content(path: str) -> memoryview:
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes a quarter of a megabyte in every site
        if os.fstat(file.fileno()).st_size >= _MAPPED_BYTES:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return memoryview(file.read())


def _message(content: memoryview) -> tuple[wire.Message, memoryview]:
    """Return the first message of the content, and the rest. Raises Malformed."""
    try:
        (length,) = _LENGTH.unpack_from(content)
    except struct.error as error:
        raise _CutShort from error
    end = _LENGTH.size + length
    following = end + _padding(length)
    if following > len(content):
        raise _CutShort
    return wire.decode(content[_LENGTH.size : end]), content[following:]


def _padding(length: int) -> int:
    return -length % _LENGTH.size
