"""What the kernel says a TCP connection carried.

Linux counts, for every TCP socket, the bytes that its stream received (`struct tcp_info`, linux/tcp.h).
Elsewhere, and on sockets that are not TCP, there is no such counter and the answer is None.
"""

from __future__ import annotations

import socket
import struct
import sys

_TCP_INFO_BYTES = 256
_RECEIVED = struct.Struct("=Q")
_RECEIVED_OFFSET = 128
_STATES_AFTER_FIN = {6, 8, 9, 11}
"""TIME_WAIT, CLOSE_WAIT, LAST_ACK, CLOSING: the peer's FIN came in, and the kernel counts it as a byte."""


def duplicate(descriptor: int) -> socket.socket | None:
    """A handle of our own on a connection that libzmq owns, or None where it cannot be counted."""
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


def bytes_received(connection: socket.socket) -> int | None:
    """Bytes that came in over the stream, or None where the kernel does not say."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return None
    if len(info) < _RECEIVED_OFFSET + _RECEIVED.size:
        return None
    received = int(_RECEIVED.unpack_from(info, _RECEIVED_OFFSET)[0])
    return received - 1 if info[0] in _STATES_AFTER_FIN else received
