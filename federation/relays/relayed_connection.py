"""Relayed connections: each has two flows of bytes, which obey the conditions and faults of two directed links.

Bytes from one end wait in a queue until the conditions of their link allow them to go. A cut link allows none, and when
it heals, waiting bytes get new times. The queue of a flow is bounded.
"""

from __future__ import annotations

import contextlib
import math
import random
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from fedsvm.federation.faults.fault_kind import LinkFault
from fedsvm.federation.relays.client import LinkEffect
from fedsvm.federation.relays.event_loop import EventLoop

_MAX_CHUNK_BYTES = 1 << 16
_MAX_QUEUED_BYTES = 1 << 22
_CHUNK_OVERHEAD_BYTES = 256
"""Bytes counted for each chunk in a queue in addition to its content, so that many short chunks are bounded too."""
_LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class RelayedLink:
    """A directed link, shared by all connections that use it.

    Parameters
    ----------
    jitter : random.Random
        Draws the jitter of the link.

    Attributes
    ----------
    conditions : LinkEffect
        Latency, jitter and bandwidth.
    faults : list of LinkFault
        The current faults.
    flows : dict of Flow to RelayedConnection
        The flows over the link, each with its connection.
    """

    jitter: random.Random
    conditions: LinkEffect = field(default_factory=LinkEffect)
    faults: list[LinkFault] = field(default_factory=list)
    flows: dict[Flow, RelayedConnection] = field(default_factory=dict)
    _free_at: float = 0.0

    @property
    def is_held(self) -> bool:
        """True if bytes wait until a fault is over."""
        return any(fault.holds for fault in self.faults)

    def due(self, size: int) -> float:
        """Return the moment at which `size` bytes sent now arrive."""
        bandwidth = self.conditions.bandwidth_mbit
        self._free_at = max(time.monotonic(), self._free_at) + (size * 8e-6 / bandwidth if bandwidth else 0.0)
        extra_ms = sum(fault.extra_ms(size) for fault in self.faults)
        jitter_ms = self.jitter.uniform(-self.conditions.jitter_ms, self.conditions.jitter_ms)
        return self._free_at + max(0.0, self.conditions.latency_ms + jitter_ms + extra_ms) / 1000

    def retime(self) -> None:
        """Set the times of waiting bytes again, as if all of them were sent now."""
        self._free_at = 0.0
        for flow in self.flows:
            flow.retime()

    def change(self, data: bytes) -> bytes:
        """Return a chunk as the faults change it."""
        for fault in tuple(self.faults):
            data = fault.change(self, data)
            if fault.is_spent(self):
                self.faults.remove(fault)
        return data


@dataclass(eq=False)
class _Chunk:
    """Bytes that wait, and the moment from which they may be sent. An empty chunk is the end of the stream."""

    rest: memoryview
    due: float = math.inf


class Flow:
    """One direction of one connection: chunks wait between `source` and `sink` until they are due.

    Parameters
    ----------
    source, sink : socket
        Non-blocking.
    link : RelayedLink
        The directed link whose conditions apply.
    when : callable
        Receives the time at which each chunk is due, on the monotonic clock in seconds.

    Attributes
    ----------
    finished : bool
        True once the end of the stream was forwarded.
    blocked : bool
        True while the sink accepts nothing more.
    """

    def __init__(
        self, source: socket.socket, sink: socket.socket, link: RelayedLink, when: Callable[[float], None]
    ) -> None:
        self.finished = False
        self.blocked = False
        self._source, self._sink, self._link, self._when = source, sink, link, when
        self._ended = False
        self._chunks: deque[_Chunk] = deque()
        self._queued_bytes = 0
        self._latest_due = 0.0

    @property
    def has_room(self) -> bool:
        """True if the flow may read more."""
        return not self._ended and self._queued_bytes < _MAX_QUEUED_BYTES

    def waiting_bytes(self) -> int:
        """Return the number of bytes that are read and not sent."""
        return sum(len(chunk.rest) for chunk in self._chunks)

    def read(self) -> None:
        """Read the bytes that arrived. Raises OSError."""
        try:
            data = self._source.recv(_MAX_CHUNK_BYTES)
        except BlockingIOError:
            return
        self._ended = not data
        chunk = _Chunk(memoryview(self._link.change(data)))
        self._chunks.append(chunk)
        self._queued_bytes += _CHUNK_OVERHEAD_BYTES + len(data)
        if self._link.is_held:
            for fault in self._link.faults:
                fault.held_bytes += len(data) if fault.holds else 0
        else:
            self._time(chunk)

    def send(self) -> None:
        """Send the bytes that are due, as far as the sink accepts them. Raises OSError."""
        self.blocked = False
        now = time.monotonic()
        while self._chunks and self._chunks[0].due <= now and not self.blocked and not self._link.is_held:
            chunk = self._chunks[0]
            self._send(chunk)
            if not chunk.rest:
                self._chunks.popleft()
                self._queued_bytes -= _CHUNK_OVERHEAD_BYTES

    def retime(self) -> None:
        """Set the times of all waiting bytes again."""
        self._latest_due = 0.0
        for chunk in self._chunks:
            self._time(chunk)

    def _time(self, chunk: _Chunk) -> None:
        self._latest_due = chunk.due = max(self._latest_due, self._link.due(len(chunk.rest)))
        self._when(chunk.due)

    def _send(self, chunk: _Chunk) -> None:
        if not chunk.rest:
            self._sink.shutdown(socket.SHUT_WR)
            self.finished = True
            return
        try:
            sent = self._sink.send(chunk.rest)
        except BlockingIOError:
            self.blocked = True
            return
        chunk.rest = chunk.rest[sent:]
        self._queued_bytes -= sent


class RelayedConnection:
    """A connection that an opener made, and the one that continues it to the listener.

    While a fault holds one of the two links, the second connection is not begun: a handshake would wait, too.

    Parameters
    ----------
    loop : EventLoop
    near : socket
        The connection to the opener.
    links : tuple of RelayedLink
        The link to the listener, and the one back.
    dial : callable
        Begins to connect a socket to the listener. It may raise OSError.
    """

    def __init__(
        self,
        loop: EventLoop,
        near: socket.socket,
        links: tuple[RelayedLink, RelayedLink],
        dial: Callable[[socket.socket], None],
    ) -> None:
        self._loop, self._near, self._links, self._dial = loop, near, links, dial
        self._far = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for end in (near, self._far):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outward = Flow(near, self._far, links[0], self._proceed_at)
        self._inward = Flow(self._far, near, links[1], self._proceed_at)
        self._dialled = self._established = self._closed = False
        links[0].flows[self._outward] = self
        links[1].flows[self._inward] = self

    def proceed(self) -> None:
        """Move all bytes that can move now, and wait for the rest."""
        if self._closed:
            return
        try:
            self._connect()
            if self._established:
                self._outward.send()
                self._inward.send()
        except OSError:
            self.close(reset=True)
            return
        if self._outward.finished and self._inward.finished:
            self.close(reset=False)
        else:
            self._watch()

    def close(self, *, reset: bool) -> None:
        """End the connection at both ends; with `reset` no end mistakes it for a complete stream."""
        self._closed = True
        del self._links[0].flows[self._outward]
        del self._links[1].flows[self._inward]
        for end in (self._near, self._far):
            self._loop.forget(end)
            close_socket(end, reset=reset)

    def _connect(self) -> None:
        """Connect the far end unless a fault holds a link. Raises OSError."""
        if not self._dialled and not any(link.is_held for link in self._links):
            self._dial(self._far)
            self._dialled = True

    def _proceed_at(self, moment: float) -> None:
        self._loop.at(moment, self.proceed)

    def _watch(self) -> None:
        self._loop.watch(self._near, _events(self._outward, self._inward), partial(self._end_is_ready, self._outward))
        if self._established:
            self._loop.watch(self._far, _events(self._inward, self._outward), partial(self._end_is_ready, self._inward))
        elif self._dialled:
            self._loop.watch(self._far, selectors.EVENT_WRITE, self._far_has_answered)

    def _far_has_answered(self, events: int) -> None:
        if self._far.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close(reset=True)
        else:
            self._established = True
            self.proceed()

    def _end_is_ready(self, flow: Flow, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                flow.read()
        except OSError:
            self.close(reset=True)
        else:
            self.proceed()


def _events(outward: Flow, inward: Flow) -> int:
    """Return the events to wait for at an end that is the source of one flow and the sink of the other."""
    return (selectors.EVENT_READ if outward.has_room else 0) | (selectors.EVENT_WRITE if inward.blocked else 0)


def close_socket(end: socket.socket, *, reset: bool) -> None:
    """Close a socket; with `reset` the other end receives a reset instead of the end of the stream."""
    if reset:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT_AT_ALL)
    end.close()
