"""The kernel's byte counts of a TCP connection.

Linux counts, for every TCP socket, the bytes that its stream received and sent (`struct tcp_info`, linux/tcp.h).
Elsewhere, and on sockets that are not TCP, there is no such counter and the answer is None.
"""

from __future__ import annotations

import socket
import struct
import sys

_TCP_INFO_BYTES = 256
_COUNT = struct.Struct("=Q")
_RECEIVED_OFFSET = 128
_SENT_OFFSET = 200
_SENT_AGAIN_OFFSET = 208
_STATES_AFTER_FIN = {6, 8, 9, 11}
"""TIME_WAIT, CLOSE_WAIT, LAST_ACK, CLOSING: the peer's FIN was received, and the kernel counts it as a byte."""


def duplicate(descriptor: int) -> socket.socket | None:
    """Return a separate handle of a connection that libzmq owns, or None if it cannot be counted."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        connection = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return None
    if bytes_received(connection) is None:
        connection.close()
        return None
    return connection


def bytes_received(connection: socket.socket, expected: int = -1) -> int | None:
    """Return the bytes received over the stream, or None if the kernel does not report them.

    The kernel reads the state before the count, and a FIN may arrive in between. So this reads both a second time.
    Nothing is counted after a FIN: if the second count is higher, the first did not include a FIN. Nor did it if it
    equals `expected`, the count computed from the messages.
    """
    received = _count(_info(connection), _RECEIVED_OFFSET)
    if received is None or received == expected:
        return received
    later = _info(connection)
    if received != _count(later, _RECEIVED_OFFSET):
        return received
    return received - 1 if later[0] in _STATES_AFTER_FIN else received


def bytes_sent(connection: socket.socket) -> int | None:
    """Return the bytes sent over the stream without repetitions, or None if the kernel does not report them (Linux
    before 4.19)."""
    info = _info(connection)
    sent, again = _count(info, _SENT_OFFSET), _count(info, _SENT_AGAIN_OFFSET)
    return sent - again if sent is not None and again is not None else None


def _info(connection: socket.socket) -> bytes:
    """Return the kernel's struct tcp_info, empty for a socket without one."""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return b""


def _count(info: bytes, offset: int) -> int | None:
    return int(_COUNT.unpack_from(info, offset)[0]) if len(info) >= offset + _COUNT.size else None
