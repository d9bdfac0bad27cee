"""The data of a site, and the file in which it receives them, which only the owner may read."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from fedsvm.federation.errors import Malformed, StepRefused
from fedsvm.federation.transport import framefile, wire

_RUN = bytes(wire.RUN_ID_BYTES)


@dataclass(frozen=True)
class Partition:
    """The data that one site holds.

    Parameters
    ----------
    arrays : mapping of str to array
        Arrays of float64, int64, uint64 or uint8, by name.
    values : mapping of str, default {}
        Numbers, text and lists, by name.
    """

    arrays: Mapping[str, wire.Array]
    values: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: str) -> None:
        """Write to a new file that only its owner may read. Raises OSError if it exists."""
        with framefile.create(path) as file:
            self._write_to(file)

    def as_read(self) -> Partition:
        """Return a copy with the memory layout that `read_partition` would give, so that sums are identical.

        So the rows of a site that starts its own process are never in a temporary file.
        """
        content = io.BytesIO()
        self._write_to(content)
        (message,) = framefile.messages(memoryview(content.getvalue()))
        return Partition(message.arrays, message.fields)

    def _write_to(self, file: IO[bytes]) -> None:
        framefile.write(file, wire.Message(wire.DATA_KIND, _RUN, fields=dict(self.values), arrays=dict(self.arrays)))


def read_partition(path: str) -> Partition:
    """Return the partition in a file. Raises StepRefused if it is not one."""
    try:
        (message,) = framefile.read(path)
    except (Malformed, ValueError) as error:
        raise StepRefused(f"its partition file is damaged: {error}") from error
    return Partition(message.arrays, message.fields)
