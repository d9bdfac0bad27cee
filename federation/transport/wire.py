"""A message as one frame: a header of fixed form, msgpack for plain values, then raw array buffers. Never pickle.

Wire format, version 2. All numbers are little-endian:

    version (1) | kind (1) | 0 (2) | bytes of fields (4) | bytes of specs (4) | sequence (4) | hop (4) | 0 (4)
    round (8) | run (8) | fields | specs | zeros | array | zeros | array ...

`fields` is a msgpack table, and `specs` a msgpack list of [name, dtype, shape]; an empty one has no bytes. Every array
is C-ordered and begins at a multiple of 8; the last array ends the frame. `run` is 8 random bytes that every message of
a run carries. All sizes in a frame are checked against its length before an array is created, and arrays are views of
the frame, so a sender cannot cause an allocation.

A message is one frame because CURVE takes as long to seal and open each frame as Python takes to process it.
"""

from __future__ import annotations

import functools
import math
import struct
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.errors import Malformed

VERSION = 2
RUN_ID_BYTES = 8
MAX_FIELDS_BYTES, MAX_SPECS_BYTES = 1 << 20, 1 << 12
MAX_ARRAY_BYTES = 1 << 28
"""Maximum bytes of all arrays of a message together."""
MAX_ARRAYS = 16
MAX_FRAME_BYTES = MAX_ARRAY_BYTES + MAX_FIELDS_BYTES + (1 << 13)
"""Maximum bytes of a frame: with the header, the specs, and the alignment of arrays."""
MAX_DIMENSIONS = 4
MAX_HOP = 1 << 31
"""Maximum length of a chain of messages; no protocol has a longer one."""

DATA_KIND = "data"
LINK = "link"
"""The one field of a data message between two sites: the round's link in the sender's chain of orders."""
MAX_LINK_BYTES = 32
ENVELOPE_KIND = "envelope"
"""The kind of sealed messages between sites through the coordinator: see `channel.envelope`."""
HELLO_KIND = "hello"
"""The kind of the first message of a site on a connection on which it can be reached."""
CONTROL_KINDS = (
    "roster",
    "order",
    "done",
    "failed",
    "abort",
    "aborted",
    "log_record",
    "stop",
    "final_report",
    "missed",
)
JOINING_KINDS = ("join", "offer", "ready", "declined", "refused", "begin")
"""Messages across hosts before the first roster, see `fedsvm.federation.hosts.messages`."""
KINDS = (DATA_KIND, ENVELOPE_KIND, HELLO_KIND, *CONTROL_KINDS, *JOINING_KINDS)
"""All kinds; a frame has the position of its kind in this list."""

_NARROW = "<i4" if np.dtype(int).itemsize == 4 else None
"""The type of numpy's integers on systems where they have 4 bytes, such as a browser. On the wire, integers have 8."""
_DTYPES: dict[str, np.dtype[Any]] = {
    "<f8": np.dtype("<f8"),
    "<i8": np.dtype("<i8"),
    "<u8": np.dtype("<u8"),
    "|u1": np.dtype("|u1"),
}

Array = NDArray[Any]

ALIGNMENT = 8
_HEAD = struct.Struct("<BBxxIIIIxxxxQ8s")
_PLACES = {kind: place for place, kind in enumerate(KINDS)}
_ZEROS = bytes(ALIGNMENT)


@dataclass(slots=True)
class Message:
    """A message from one party to another. It does not change.

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
    _frame: bytes | None = field(default=None, init=False, repr=False, compare=False)
    _payload_bytes: int = field(default=-1, init=False, repr=False, compare=False)

    @property
    def frame(self) -> bytes:
        """Return the encoded frame, see `encode`. It is made once for all receivers."""
        if self._frame is None:
            self._frame = encode(self)
        return self._frame

    @property
    def payload_bytes(self) -> int:
        """Bytes of the array buffers."""
        if self._payload_bytes < 0:
            self._payload_bytes = 0
            for array in self.arrays.values():
                self._payload_bytes += array.nbytes
        return self._payload_bytes


def encode(message: Message) -> bytes:
    """Return the frame of `message`. Raises ValueError if the receiver could not decode it."""
    if (payload_bytes := message.payload_bytes) > MAX_ARRAY_BYTES:
        raise ValueError(f"the arrays of a message must have {MAX_ARRAY_BYTES} bytes or fewer, got {payload_bytes}")
    return b"".join(parts(message))


def parts(message: Message) -> list[bytes | memoryview]:
    """Return the frame of `message` in parts. The buffers of contiguous arrays are not copied.

    Raises ValueError like `encode`, except for arrays that are too long.
    """
    specs: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    buffers: list[bytes | memoryview] = []
    for name, given in message.arrays.items():
        array = np.asarray(given, order="C")
        code = array.dtype.str
        if code == _NARROW:
            array = array.astype(np.int64)
            code = array.dtype.str
        if code not in _DTYPES or array.ndim > MAX_DIMENSIONS:
            raise ValueError(f"array {name!r} ({array.dtype}, {array.ndim} dimensions) has no wire form")
        specs += ((name, code, array.shape),)
        buffers.append(array.reshape(-1).view(np.uint8).data if array.size else b"")
    if len(specs) > MAX_ARRAYS:
        raise ValueError(f"a message must have {MAX_ARRAYS} arrays or fewer, got {len(specs)}")
    of_fields = msgpack.packb(message.fields) if message.fields else b""
    of_specs = _pack_specs(specs) if specs else b""
    for name, packed, most in (("fields", of_fields, MAX_FIELDS_BYTES), ("specs", of_specs, MAX_SPECS_BYTES)):
        if len(packed) > most:
            raise ValueError(
                f"the {name} of a {message.kind} message must have {most} bytes or fewer, got {len(packed)}"
            )
    lengths = (len(of_fields), len(of_specs))
    end = sum(lengths)
    tags = (message.sequence, message.hop, message.round, message.run)
    joined = [_HEAD.pack(VERSION, _PLACES[message.kind], *lengths, *tags), of_fields, of_specs]
    for buffer in buffers:
        joined += (_ZEROS[: -end % ALIGNMENT], buffer)
        end = len(buffer)
    return joined


def decode(frame: bytes | memoryview) -> Message:
    """Return the message in `frame`. Its arrays are read-only, and views of the frame if they are aligned.

    Raises Malformed, and nothing else, for a frame that does not keep the format.
    """
    if len(frame) < _HEAD.size:
        raise Malformed("header too short")
    version, place, of_fields, of_specs, sequence, hop, round_number, run = _HEAD.unpack_from(frame)
    if version != VERSION:
        raise Malformed("header of another format or version")
    if place >= len(KINDS):
        raise Malformed("unknown kind of message")
    if round_number >= 1 << 53 or hop > MAX_HOP:
        raise Malformed("round or hop is not a count")
    if of_fields > MAX_FIELDS_BYTES or of_specs > MAX_SPECS_BYTES:
        raise Malformed("header too long")
    start = _HEAD.size + of_fields
    end = start + of_specs
    if end > len(frame):
        raise Malformed("an incomplete frame")
    fields = _unpack(frame[_HEAD.size : start]) if of_fields else {}
    if not isinstance(fields, dict):
        raise Malformed("the fields are not a table")
    arrays: dict[str, Array] = {}
    for name, dtype, shape, size in _specs(bytes(frame[start:end])) if of_specs else ():
        begin = end + -end % ALIGNMENT
        end = begin + size
        if end > len(frame):
            raise Malformed("array list does not match the frame")
        array = np.frombuffer(frame, dtype, size // dtype.itemsize, begin).reshape(shape)
        if not array.flags.aligned:  # numpy sums unaligned arrays in another order, and their address is random
            array = array.copy()
        array.setflags(write=False)
        arrays[name] = array
    if end != len(frame):
        raise Malformed("array list does not match the frame")
    return Message(KINDS[place], run, round_number, sequence, hop, fields, arrays)


@functools.lru_cache(maxsize=32)
def _pack_specs(specs: tuple[tuple[str, str, tuple[int, ...]], ...]) -> bytes:
    """Return packed specs. They are cached, since a party sends the same specs in most rounds."""
    return bytes(msgpack.packb(specs))


@functools.lru_cache(maxsize=32)
def _specs(packed: bytes) -> tuple[tuple[str, np.dtype[Any], tuple[int, ...], int], ...]:
    """Return name, type, shape and bytes of every array. Raises Malformed.

    The result is cached, since a peer sends the same specs in most rounds.
    """
    specs = _unpack(packed)
    if not isinstance(specs, list) or len(specs) > MAX_ARRAYS:
        raise Malformed("array list does not match the frame")
    known = tuple(map(_spec, specs))
    if len({name for name, *_ in known}) != len(known):
        raise Malformed("two arrays of one name")
    return known


def _spec(spec: object) -> tuple[str, np.dtype[Any], tuple[int, ...], int]:
    if not isinstance(spec, list) or len(spec) != 3 or not isinstance(spec[0], str):
        raise Malformed("an array is not described by name, type and shape")
    name, code, shape = spec
    dtype = _DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None or not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise Malformed("an array of unknown type or shape")
    for side in shape:
        if type(side) is not int or not 0 <= side <= MAX_ARRAY_BYTES:
            raise Malformed("an array with an invalid dimension")
    if math.prod(side or 1 for side in shape) > MAX_ARRAY_BYTES:  # numpy refuses such sides even for empty arrays
        raise Malformed("an array with invalid dimensions")
    return name, dtype, tuple(shape), math.prod(shape) * dtype.itemsize


def _unpack(packed: bytes | memoryview) -> object:
    """Decode msgpack. Raises Malformed."""
    try:
        return msgpack.unpackb(packed, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise Malformed("header is not msgpack") from error
