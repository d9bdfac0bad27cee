"""A message as frames: one small msgpack header, then raw array buffers without a copy. Never pickle.

Wire format, version 1. Frame 0 is the msgpack array

    [version, kind, run, round, sequence, hop, fields, [[name, dtype, shape], ...]]

and frame i + 1 is the C-ordered, little-endian buffer of the i-th array listed at the end. `run` is 8 random
bytes that every message of a run carries. Everything a header claims is checked against the frames that came
with it before an array is made, and arrays are views of those frames: nothing is allocated on a sender's word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from federation.errors import Malformed

VERSION = 1
RUN_ID_BYTES = 8
MAX_HEADER_BYTES = 1 << 20
MAX_FRAME_BYTES = 1 << 28
MAX_ARRAYS = 16
MAX_DIMENSIONS = 4

CONTROL_KINDS = frozenset(
    {"roster", "order", "done", "failed", "abort", "aborted", "log_record", "stop", "final_report"}
)
DATA_KIND = "data"
JOINING_KINDS = frozenset({"join", "offer", "ready", "declined", "refused", "begin", "hello"})
"""Across hosts: what is said before the first roster, see `federation.hosts.messages`."""
ENVELOPE_KIND = "envelope"
"""What a site tells another through the coordinator, sealed: see `channel.envelope`."""
HELLO_KIND = "hello"
"""What a site says first on a connection by which it is to be reached."""
KINDS = CONTROL_KINDS | JOINING_KINDS | {DATA_KIND, ENVELOPE_KIND, HELLO_KIND}

_DTYPES: dict[str, np.dtype[Any]] = {
    "<f8": np.dtype("<f8"),
    "<i8": np.dtype("<i8"),
    "<u8": np.dtype("<u8"),
    "|u1": np.dtype("|u1"),
}

Array = NDArray[Any]


@dataclass(slots=True)
class Message:
    """What one party tells another. It is not changed once it is made.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    run : bytes
        The run's 8 random bytes.
    round : int, default 0
        The round that it belongs to.
    sequence : int, default 0
        Its number among the protocol's messages from this sender to this receiver in the round.
    hop : int, default 0
        Length of the longest chain of messages of this round that ends in this one.
    fields : dict, default {}
        Plain msgpack values: numbers, text, lists, tables.
    arrays : dict of str to array, default {}
        float64, int64, uint64 or uint8, of at most four dimensions.
    """

    kind: str
    run: bytes
    round: int = 0
    sequence: int = 0
    hop: int = 0
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    _frames: list[bytes | memoryview] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def frames(self) -> list[bytes | memoryview]:
        """Its frames, see `encode`: once, however many it is sent to."""
        if self._frames is None:
            self._frames = encode(self)
        return self._frames

    @property
    def payload_bytes(self) -> int:
        """Bytes of the array buffers."""
        payload_bytes = 0
        for array in self.arrays.values():
            payload_bytes += array.nbytes
        return payload_bytes


def encode(message: Message) -> list[bytes | memoryview]:
    """Frames of `message`; the buffers of contiguous arrays are not copied.

    Raises ValueError where the message could not be decoded at the other end.
    """
    specs: list[list[Any]] = []
    buffers: list[bytes | memoryview] = []
    for name, given in message.arrays.items():
        array = np.asarray(given, order="C")
        _require_sendable(name, array)
        specs.append([name, array.dtype.str, array.shape])
        buffers.append(_buffer(array))
    if len(specs) > MAX_ARRAYS:
        raise ValueError(f"{len(specs)} arrays in one message; at most {MAX_ARRAYS} go")
    tags = (message.run, message.round, message.sequence, message.hop)
    header = msgpack.packb((VERSION, message.kind, *tags, message.fields, specs))
    if len(header) > MAX_HEADER_BYTES:
        raise ValueError(
            f"the header of a {message.kind} message has {len(header)} bytes; at most {MAX_HEADER_BYTES} go"
        )
    return [header, *buffers]


def _buffer(array: Array) -> bytes | memoryview:
    return array.reshape(-1).view(np.uint8).data if array.size else b""


def _require_sendable(name: str, array: Array) -> None:
    if array.dtype.str not in _DTYPES or array.ndim > MAX_DIMENSIONS:
        raise ValueError(f"array {name!r} ({array.dtype}, {array.ndim} dimensions) has no wire form")
    if array.nbytes > MAX_FRAME_BYTES:
        raise ValueError(f"array {name!r} has {array.nbytes} bytes; at most {MAX_FRAME_BYTES} go in one frame")


def decode(frames: Sequence[bytes | memoryview]) -> Message:
    """The message in `frames`; its arrays are read-only, and views of the frames where these lie as numbers have to.

    Raises Malformed, and nothing else, for frames that do not keep the format.
    """
    _, kind, run, round_number, sequence, hop, fields, specs = _header(frames)
    if not isinstance(kind, str) or kind not in KINDS:
        raise Malformed("unknown kind of message")
    if not isinstance(run, bytes) or len(run) != RUN_ID_BYTES:
        raise Malformed("the run is not 8 bytes")
    for number in (round_number, sequence, hop):
        if type(number) is not int or not 0 <= number < 1 << 53:
            raise Malformed("round, sequence or hop is not a count")
    if not isinstance(fields, dict):
        raise Malformed("the fields are not a table")
    return Message(kind, run, round_number, sequence, hop, fields, _arrays(specs, frames))


def array_count(head: bytes | memoryview) -> int:
    """How many frames follow a header frame. Raises Malformed."""
    specs = _header([head])[-1]
    if not isinstance(specs, list):
        raise Malformed("array list does not match the frames")
    return len(specs)


def _header(frames: Sequence[bytes | memoryview]) -> list[Any]:
    if not frames or len(frames) > MAX_ARRAYS + 1:
        raise Malformed("wrong number of frames")
    if len(frames[0]) > MAX_HEADER_BYTES:
        raise Malformed("header too long")
    try:
        header = msgpack.unpackb(frames[0], strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise Malformed("header is not msgpack") from error
    if not isinstance(header, list) or len(header) != 8 or type(header[0]) is not int or header[0] != VERSION:
        raise Malformed("header of another format or version")
    return header


def _arrays(specs: object, frames: Sequence[bytes | memoryview]) -> dict[str, Array]:
    """The arrays in the frames behind the first."""
    if not isinstance(specs, list) or len(specs) != len(frames) - 1:
        raise Malformed("array list does not match the frames")
    arrays: dict[str, Array] = {}
    for place, spec in enumerate(specs, start=1):
        name, array = _array(spec, frames[place])
        arrays[name] = array
    if len(arrays) != len(specs):
        raise Malformed("two arrays of one name")
    return arrays


def _array(spec: object, frame: bytes | memoryview) -> tuple[str, Array]:
    if not isinstance(spec, list) or len(spec) != 3 or not isinstance(spec[0], str):
        raise Malformed("an array is not described by name, type and shape")
    name, code, shape = spec
    dtype = _DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None or not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise Malformed("an array of unknown type or shape")
    for side in shape:
        if type(side) is not int or not 0 <= side <= MAX_FRAME_BYTES:
            raise Malformed("an array with an impossible side")
    if math.prod(shape) * dtype.itemsize != len(frame):
        raise Malformed("an array whose buffer has another size than its shape")
    array = np.frombuffer(frame, dtype=dtype).reshape(shape)
    if not array.flags.aligned:  # numpy adds up such arrays in another order, and where one lies is chance
        array = array.copy()
    array.flags.writeable = False
    return name, array
