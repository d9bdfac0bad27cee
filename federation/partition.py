"""What a site holds, and the file it is handed in: arrays and plain values, readable by its owner only.

The file is a message in its wire format (see `wire`), each frame behind its length in 8 bytes. It costs a site far
less memory to read than an archive of numpy's would, of which the code alone takes a megabyte in every process.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from federation import wire
from federation.errors import Malformed, StepRefused

_LENGTH = struct.Struct("<Q")
_RUN = bytes(wire.RUN_ID_BYTES)


@dataclass(frozen=True)
class Partition:
    """Arrays by name, and plain values (numbers, text, lists) by name."""

    arrays: Mapping[str, wire.Array]
    values: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write to a new file that only its owner may read. Raises OSError if it exists."""
        message = wire.Message(wire.DATA_KIND, _RUN, fields=dict(self.values), arrays=dict(self.arrays))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for frame in wire.encode(message):
                file.write(_LENGTH.pack(len(frame)))
                file.write(frame)


def read_partition(path: str) -> Partition:
    """The partition in a file. Raises StepRefused if it is not one."""
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes a quarter of a megabyte in every site
        content = memoryview(file.read())
    try:
        message = wire.decode(_frames(content))
    except (Malformed, struct.error) as error:
        raise StepRefused(f"its partition file is damaged: {error}") from error
    return Partition(message.arrays, message.fields)


def _frames(content: memoryview) -> list[memoryview]:
    frames = []
    while content:
        (length,) = _LENGTH.unpack_from(content)
        frames.append(content[_LENGTH.size : _LENGTH.size + length])
        content = content[_LENGTH.size + length :]
    return frames
