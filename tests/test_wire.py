"""The wire format: what goes in comes out, and whatever else comes in is refused without harm."""

from __future__ import annotations

import contextlib
import struct
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedsvm.federation.errors import Malformed
from fedsvm.federation.transport import framefile, wire
from fedsvm.federation.transport.wire import Message, decode, encode

DTYPES: list[np.dtype[Any]] = [np.dtype("<f8"), np.dtype("<i8"), np.dtype("<u8"), np.dtype("|u1")]
SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
ARRAYS: st.SearchStrategy[Any] = st.one_of([npst.arrays(dtype, SHAPES) for dtype in DTYPES])
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
COUNTS = st.integers(0, wire.MAX_HOP)
MESSAGES = st.builds(
    Message,
    st.sampled_from(wire.KINDS),
    st.binary(min_size=8, max_size=8),
    st.integers(0, 2**53 - 1),
    COUNTS,
    COUNTS,
    st.dictionaries(st.text(max_size=8), PLAIN, max_size=4),
    st.dictionaries(st.text(max_size=8), ARRAYS, max_size=4),
)


@given(MESSAGES)
def test_a_message_survives_the_wire(message: Message) -> None:
    received = decode(encode(message))
    assert (received.kind, received.run, received.fields) == (message.kind, message.run, message.fields)
    assert (received.round, received.sequence, received.hop) == (
        message.round,
        message.sequence,
        message.hop,
    )
    assert received.payload_bytes == message.payload_bytes
    for name, array in message.arrays.items():
        np.testing.assert_array_equal(received.arrays[name], array)
        assert received.arrays[name].dtype == array.dtype
        assert not received.arrays[name].flags.writeable


@pytest.mark.parametrize("place", [0, 1, 3, 8])
def test_arrays_lie_as_numbers_have_to_wherever_their_frame_does(place: int) -> None:
    """numpy adds up others in another order: what a site computed would depend on where a message came to lie."""
    numbers = np.random.default_rng(1).normal(size=(10, 30))
    frame = encode(Message("order", bytes(8), fields={"step": "cuts"}, arrays={"labels": np.ones(3), "w": numbers}))
    buffer = bytearray(8 + len(frame))
    buffer[place : place + len(frame)] = frame
    array = decode(memoryview(buffer)[place : place + len(frame)]).arrays["w"]
    assert array.flags.aligned
    assert (numbers @ array.T).tobytes() == (numbers @ numbers.T).tobytes()


@given(st.lists(MESSAGES, min_size=1, max_size=3))
def test_arrays_in_a_file_lie_so_without_a_copy(messages: list[Message]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/messages"
        with framefile.create(path) as file:
            for message in messages:
                framefile.write(file, message)
        read = list(framefile.read(path))
    assert [message.fields for message in read] == [message.fields for message in messages]
    for array in (array for message in read for array in message.arrays.values()):
        assert array.flags.aligned and not array.flags.owndata


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda rest: b"\2\0\0\0" + rest))
def test_a_random_frame_is_malformed_and_nothing_worse(frame: bytes) -> None:
    with pytest.raises(Malformed):
        decode(frame)


@settings(max_examples=300)
@given(MESSAGES, st.data())
def test_a_message_with_bytes_changed_is_read_or_refused(message: Message, data: st.DataObject) -> None:
    frame = bytearray(encode(message))
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del frame[data.draw(st.integers(0, len(frame) - 1)) :]
    with contextlib.suppress(Malformed):
        decode(bytes(frame))


def frame(*rest: bytes, fields: bytes = b"", specs: Any = (), **changes: Any) -> bytes:
    """A frame with some parts of a valid head replaced, and what follows it."""
    packed = specs if isinstance(specs, bytes) else msgpack.packb(specs) if specs else b""
    parts = {"version": 2, "kind": 0, "of_fields": len(fields), "of_specs": len(packed), "sequence": 0, "hop": 0}
    head = struct.pack("<BBxxIIIIxxxxQ8s", *(parts | {"round": 0, "run": b"12345678"} | changes).values())
    body = fields + packed
    return head + body + bytes(-len(body) % 8) + b"".join(rest)


LIES: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("half a head", frame()[:20]),
    ("another version", frame(version=1)),
    ("unknown kind", frame(kind=255)),
    ("a round beyond counting", frame(round=1 << 53)),
    ("fields that are a list", frame(fields=msgpack.packb([]))),
    ("fields beyond the frame", frame(of_fields=100)),
    ("a hop beyond counting", frame(hop=wire.MAX_HOP + 1)),
    ("no numbers, of sides that numpy refuses", frame(specs=[["a", "<f8", [0, 2**28, 2**28, 2**28]]])),
    ("four gigabytes of fields", frame(of_fields=2**32 - 1)),
    ("an array that is not there", frame(specs=[["a", "<f8", [1]]])),
    ("half an array", frame(b"1234", specs=[["a", "<f8", [1]]])),
    ("bytes without their array", frame(b"12345678")),
    ("bytes behind the last array", frame(b"12345678", b"12345678", specs=[["a", "<f8", [1]]])),
    ("a huge shape", frame(specs=[["a", "<f8", [2**40, 2**40]]])),
    ("sides that wrap round", frame(specs=[["a", "<f8", [2**32, 2**32]]])),
    ("sides within the limit, and not their product", frame(specs=[["a", "<f8", [2**28] * 4]])),
    ("a negative side", frame(b"12345678", specs=[["a", "<f8", [-1, -1]]])),
    ("python objects", frame(b"12345678", specs=[["a", "|O", [1]]])),
    ("five dimensions", frame(b"12345678", specs=[["a", "<f8", [1] * 5]])),
    ("two arrays of one name", frame(b"1" + bytes(7) + b"2", specs=[["a", "|u1", [1]]] * 2)),
    ("seventeen arrays", frame(specs=[["a", "|u1", [0]]] * 17)),
    ("specs that are a table", frame(specs={"a": 1})),
    ("specs that are not msgpack", frame(specs=b"\xc1")),
    ("specs too long", frame(bytes(wire.MAX_SPECS_BYTES), of_specs=wire.MAX_SPECS_BYTES + 1)),
    ("fields too long", frame(bytes(wire.MAX_FIELDS_BYTES), of_fields=wire.MAX_FIELDS_BYTES + 1)),
    ("a list that claims 4 billion items", frame(fields=b"\xdd\xff\xff\xff\xff")),
    ("text that claims 4 gigabytes", frame(fields=b"\xdb\xff\xff\xff\xff")),
    ("nesting without end", frame(fields=b"\x91" * 100_000)),
]


@pytest.mark.parametrize("lie", [lie for _, lie in LIES], ids=[name for name, _ in LIES])
def test_a_lie_is_malformed_and_nothing_is_allocated_for_it(lie: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decode(lie)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "arrays",
    [
        {"a": np.zeros(1, dtype=np.float32)},
        {"a": np.zeros((1,) * 5)},
        {"a": np.array(["text"])},
        {str(i): np.zeros(1) for i in range(wire.MAX_ARRAYS + 1)},
    ],
    ids=["float32", "five dimensions", "text", "too many"],
)
def test_what_could_not_be_decoded_is_not_sent(arrays: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no wire form|or fewer"):
        encode(Message("data", b"12345678", arrays=arrays))


@pytest.mark.parametrize(
    "message",
    [
        Message("data", b"12345678", fields={"text": "x" * wire.MAX_FIELDS_BYTES}),
        Message("data", b"12345678", arrays={"x" * wire.MAX_SPECS_BYTES: np.zeros(1)}),
        Message("data", b"12345678", arrays={"a": np.broadcast_to(np.zeros(1), (wire.MAX_ARRAY_BYTES // 8 + 1,))}),
    ],
    ids=["fields", "specs", "arrays"],
)
def test_what_is_too_long_is_not_sent(message: Message) -> None:
    with pytest.raises(ValueError, match="or fewer"):
        encode(message)


def test_a_file_takes_what_is_too_long_to_be_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wire, "MAX_ARRAY_BYTES", 1000)
    message, path = Message("data", b"12345678", arrays={"a": np.zeros(100), "b": np.ones(100)}), str(tmp_path / "long")
    with framefile.create(path) as file:
        framefile.write(file, message)
    (read,) = framefile.read(path)
    assert (read.arrays["b"] == 1).all()
