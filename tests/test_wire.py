"""The wire format: what goes in comes out, and whatever else comes in is refused without harm."""

from __future__ import annotations

import contextlib
import tempfile
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from federation.errors import Malformed
from federation.transport import framefile, wire
from federation.transport.wire import Message, decode, encode

DTYPES: list[np.dtype[Any]] = [np.dtype("<f8"), np.dtype("<i8"), np.dtype("<u8"), np.dtype("|u1")]
SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
ARRAYS: st.SearchStrategy[Any] = st.one_of([npst.arrays(dtype, SHAPES) for dtype in DTYPES])
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
COUNTS = st.integers(0, 2**53 - 1)
MESSAGES = st.builds(
    Message,
    st.sampled_from(sorted(wire.KINDS)),
    st.binary(min_size=8, max_size=8),
    COUNTS,
    COUNTS,
    COUNTS,
    st.dictionaries(st.text(max_size=8), PLAIN, max_size=4),
    st.dictionaries(st.text(max_size=8), ARRAYS, max_size=4),
)


@given(MESSAGES)
def test_a_message_survives_the_wire(message: Message) -> None:
    received = decode([bytes(frame) for frame in encode(message)])
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
    head, body = encode(Message("order", bytes(8), arrays={"w": numbers}))
    buffer = bytearray(8 + len(body))
    buffer[place : place + len(body)] = body
    array = decode([bytes(head), memoryview(buffer)[place : place + len(body)]]).arrays["w"]
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


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_random_frames_are_malformed_and_nothing_worse(frames: list[bytes]) -> None:
    with pytest.raises(Malformed):
        decode(frames)


@settings(max_examples=300)
@given(MESSAGES, st.data())
def test_a_message_with_bytes_changed_is_read_or_refused(message: Message, data: st.DataObject) -> None:
    frames = [bytearray(frame) for frame in encode(message)]
    frame = data.draw(st.sampled_from(frames))
    if frame:
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()) and frame:
        del frame[data.draw(st.integers(0, len(frame) - 1)) :]
    with contextlib.suppress(Malformed):
        decode([bytes(frame) for frame in frames])


def header(**changes: Any) -> list[Any]:
    """A valid header for no arrays, with some of its parts replaced."""
    parts = {"version": 1, "kind": "data", "run": b"12345678", "round": 0, "sequence": 0, "hop": 0}
    return list((parts | {"fields": {}, "arrays": []} | changes).values())


LIES: list[tuple[str, list[bytes]]] = [
    ("no frames", []),
    ("another version", [msgpack.packb(header(version=2))]),
    ("true is not a version", [msgpack.packb(header(version=True))]),
    ("unknown kind", [msgpack.packb(header(kind="exec"))]),
    ("kind that is bytes", [msgpack.packb(header(kind=b"data"))]),
    ("kind that cannot be hashed", [msgpack.packb(header(kind=[]))]),
    ("short run", [msgpack.packb(header(run=b"1"))]),
    ("negative round", [msgpack.packb(header(round=-1))]),
    ("round that is text", [msgpack.packb(header(round="1"))]),
    ("fields that are a list", [msgpack.packb(header(fields=[]))]),
    ("an array without its frame", [msgpack.packb(header(arrays=[["a", "<f8", [1]]]))]),
    ("a frame without its array", [msgpack.packb(header()), b"12345678"]),
    ("a huge shape", [msgpack.packb(header(arrays=[["a", "<f8", [2**40, 2**40]]])), b""]),
    ("sides that wrap round", [msgpack.packb(header(arrays=[["a", "<f8", [2**32, 2**32]]])), b""]),
    ("a negative side", [msgpack.packb(header(arrays=[["a", "<f8", [-1, -1]]])), b"12345678"]),
    ("python objects", [msgpack.packb(header(arrays=[["a", "|O", [1]]])), b"12345678"]),
    ("five dimensions", [msgpack.packb(header(arrays=[["a", "<f8", [1] * 5]])), b"12345678"]),
    ("two arrays of one name", [msgpack.packb(header(arrays=[["a", "|u1", [1]]] * 2)), b"1", b"2"]),
    ("a header too long", [b"\0" * (wire.MAX_HEADER_BYTES + 1)]),
    ("too many frames", [msgpack.packb(header())] * (wire.MAX_ARRAYS + 2)),
    ("a list that claims 4 billion items", [b"\xdd\xff\xff\xff\xff"]),
    ("text that claims 4 gigabytes", [b"\xdb\xff\xff\xff\xff"]),
    ("nesting without end", [b"\x91" * 100_000]),
]


@pytest.mark.parametrize("frames", [frames for _, frames in LIES], ids=[name for name, _ in LIES])
def test_a_lie_is_malformed_and_nothing_is_allocated_for_it(frames: list[bytes]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decode(frames)
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
    with pytest.raises(ValueError, match=r"no wire form|at most"):
        encode(Message("data", b"12345678", arrays=arrays))


def test_a_header_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ValueError, match="header"):
        encode(Message("data", b"12345678", fields={"text": "x" * wire.MAX_HEADER_BYTES}))
