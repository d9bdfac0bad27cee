"""What a site holds, and the file it is handed in: arrays and plain values, readable by its owner only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedsvm.federation.errors import Malformed, StepRefused
from fedsvm.federation.transport import framefile, wire

_RUN = bytes(wire.RUN_ID_BYTES)


@dataclass(frozen=True)
class Partition:
    """What one site holds.

    Parameters
    ----------
    arrays : mapping of str to array
        float64, int64, uint64 or uint8.
    values : mapping of str, default {}
        Numbers, text and lists.
    """

    arrays: Mapping[str, wire.Array]
    values: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: str) -> None:
        """Write to a new file that only its owner may read. Raises OSError if it exists."""
        message = wire.Message(wire.DATA_KIND, _RUN, fields=dict(self.values), arrays=dict(self.arrays))
        with framefile.create(path) as file:
            framefile.write(file, message)


def read_partition(path: str) -> Partition:
    """The partition in a file. Raises StepRefused if it is not one."""
    try:
        (message,) = framefile.read(path)
    except (Malformed, ValueError) as error:
        raise StepRefused(f"its partition file is damaged: {error}") from error
    return Partition(message.arrays, message.fields)
