"""A capture of an interface's traffic by a packet socket; needs root, and Linux."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 263, 1, 1
_IPV4, _TCP, _SYN, _FIN = 0x0800, 6, 2, 1
_BUFFER_BYTES = 1 << 26


class Flow(NamedTuple):
    """One direction of a TCP connection: addresses and ports."""

    source: tuple[str, int]
    target: tuple[str, int]


@dataclass
class Captured:
    """The segments of each flow, by their place in the stream."""

    starts: dict[Flow, int] = field(default_factory=dict)
    segments: dict[Flow, dict[int, bytes]] = field(default_factory=dict)

    def take(self, frame: bytes) -> None:
        """Take in one Ethernet frame; what is no TCP over IPv4 is left out."""
        if len(frame) < 54 or struct.unpack("!H", frame[12:14])[0] != _IPV4 or frame[23] != _TCP:
            return
        packet = frame[14:]
        head = 4 * (packet[0] & 15)
        length = struct.unpack("!H", packet[2:4])[0] or len(packet)
        segment = packet[head:length]
        source_port, target_port, sequence = struct.unpack("!HHI", segment[:8])
        flow = Flow((socket.inet_ntoa(packet[12:16]), source_port), (socket.inet_ntoa(packet[16:20]), target_port))
        if segment[13] & _SYN:
            self.starts[flow] = sequence + 1
        elif data := segment[4 * (segment[12] >> 4) :]:
            self.segments.setdefault(flow, {})[sequence] = data

    def stream(self, flow: Flow) -> bytes:
        """The bytes of a flow, each once however often it was sent. Raises AssertionError where some are missing."""
        start, found = self.starts[flow], bytearray()
        for sequence, data in sorted(self.segments.get(flow, {}).items()):
            offset = sequence - start
            assert offset <= len(found), f"the capture lacks bytes of {flow}"
            found[offset : offset + len(data)] = data
        return bytes(found)

    @property
    def flows(self) -> list[Flow]:
        """Those whose beginning was seen."""
        return list(self.starts)


def may_capture() -> bool:
    """Return whether this process may open packet sockets."""
    return os.geteuid() == 0 and hasattr(socket, "AF_PACKET")


@contextmanager
def captured(interface: str) -> Iterator[Captured]:
    """Capture all that goes over an interface while the context lasts."""
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(_ETH_P_ALL))
    listener.setsockopt(socket.SOL_SOCKET, 33, _BUFFER_BYTES)  # SO_RCVBUFFORCE
    listener.bind((interface, 0))
    membership = struct.pack("iHH8s", socket.if_nametoindex(interface), _PACKET_MR_PROMISC, 0, b"")
    listener.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
    listener.settimeout(0.1)
    found, over = Captured(), threading.Event()

    def listen() -> None:
        while True:
            try:
                found.take(listener.recv(1 << 18))
            except TimeoutError:
                if over.is_set():
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        listener.close()
