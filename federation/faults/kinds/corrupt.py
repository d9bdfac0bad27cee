"""Bytes that are changed on the links of a site."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from annotated_types import Ge, Le

from fedsvm.federation.faults.fault_kind import FaultKey, LinkFault
from fedsvm.federation.transport.wire import MAX_ARRAY_BYTES

_MIN_CHUNK_BYTES = 64


class Corrupt(LinkFault):
    """A change of the next bytes on each of the links, in chunks of 64 bytes or more."""

    name = "corrupt"
    sentence = "`bytes` bytes of a frame changed on each of the site's links."
    keys = frozenset({"site", "direction"})
    own_keys = (
        FaultKey(
            "bytes",
            Annotated[int, Ge(1), Le(MAX_ARRAY_BYTES)],
            1,
            "For corrupt: the number of bytes changed in a frame.",
        ),
    )
    needs_encryption = True

    def __init__(self, **terms: Any) -> None:
        super().__init__(**terms)
        self._left: dict[object, int] = {}

    def begin(self, links: Collection[object]) -> None:
        """Set the number of bytes to change on each link."""
        self._left = dict.fromkeys(links, int(self.terms["bytes"]))

    def change(self, link: object, data: bytes) -> bytes:
        """Change bytes from the middle of a chunk on, until `bytes` of a link are changed.

        Frames begin with their lengths, which must stay whole.
        """
        if len(data) < _MIN_CHUNK_BYTES:
            return data
        start = len(data) // 2
        end = start + min(self._left[link], len(data) - start)
        self.corrupted_bytes += end - start
        self._left[link] -= end - start
        self.healed = not any(self._left.values())
        return data[:start] + bytes(byte ^ 0xFF for byte in data[start:end]) + data[end:]

    def is_spent(self, link: object) -> bool:
        """Return whether all bytes of a link are changed."""
        return self._left[link] == 0


KIND = Corrupt
