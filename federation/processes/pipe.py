"""Messages over a local stream between a process and its own children: length, then msgpack."""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgpack

_LENGTH = struct.Struct("<I")


def write(stream: socket.socket, message: dict[str, Any]) -> None:
    """Send one message."""
    body = msgpack.packb(message)
    stream.sendall(_LENGTH.pack(len(body)) + body)


def read(stream: socket.socket) -> dict[str, Any] | None:
    """Return the next message, or None when the other end is gone."""
    head = _exactly(stream, _LENGTH.size)
    body = _exactly(stream, _LENGTH.unpack(head)[0]) if head is not None else None
    return None if body is None else dict(msgpack.unpackb(body))


def _exactly(stream: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count > 0:
        try:
            part = stream.recv(count)
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
