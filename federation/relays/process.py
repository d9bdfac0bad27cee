"""The relay process: one event loop that carries the bytes of all links. See `client` for its use.

The port of a connection identifies its opener, and so its two directed links: outward bytes obey the link to the
listener, bytes back obey the opposite one. Bytes from one end wait in a queue until the conditions of their link allow
them to go. A cut link allows none, and when it heals, waiting bytes get new times.

The relays carry ciphertext and hold no key. Strangers on this machine may connect: the listener refuses what they send,
and the waiting bytes of one connection are bounded.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import math
import os
import random
import resource
import select
import selectors
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fedsvm.federation.errors import LaunchError
from fedsvm.federation.faults.fault_kind import LinkFault, link_fault
from fedsvm.federation.processes import pipe
from fedsvm.federation.relays.client import DirectedLink, LinkEffect

_MAX_CHUNK_BYTES = 1 << 16
_MAX_QUEUED_BYTES = 1 << 22
_CHUNK_OVERHEAD_BYTES = 256
"""Bytes counted for each chunk in a queue, so that single bytes cannot fill the memory either."""
_LISTENER_REST_S = 0.05
_BACKLOG = 128
_LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)
_WHAT_TO_CHANGE = {
    errno.EMFILE: "raise the hard limit of open files (ulimit -Hn) or run fewer sites",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max) or run fewer sites",
    errno.EADDRINUSE: "no port is free; widen net.ipv4.ip_local_port_range or run fewer sites",
}


class _EventLoop:
    """Waits for sockets and for moments, and then calls their actions."""

    def __init__(self) -> None:
        self.running = True
        self._selector = selectors.DefaultSelector()
        self._watched: dict[socket.socket, int] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = itertools.count()

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` at a moment of the monotonic clock."""
        heapq.heappush(self._timers, (moment, next(self._counter), action))

    def watch(self, end: socket.socket, events: int, action: Callable[[int], None]) -> None:
        """Call `action` with what a socket is ready for, whenever it is ready for some of `events`; 0: no more."""
        before = self._watched.get(end, 0)
        if events and before:
            if events != before:
                self._selector.modify(end, events, action)
        elif events:
            self._selector.register(end, events, action)
        elif before:
            self._selector.unregister(end)
        self._watched[end] = events

    def forget(self, end: socket.socket) -> None:
        """Stop watching a socket that will be closed."""
        if self._watched.pop(end, 0):
            self._selector.unregister(end)

    def run(self) -> None:
        """Process events until `running` is False."""
        while self.running:
            self._wait()
            for key, events in self._selector.select(0):
                if self._watched.get(key.fileobj, 0) & events:  # type: ignore[call-overload]  # only sockets are watched
                    key.data(events)
            self._call_due()

    def _wait(self) -> None:
        """Wait by select on the selector's own descriptor, since epoll itself rounds up to whole milliseconds."""
        timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        select.select([self._selector], [], [], timeout)

    def _call_due(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()


@dataclass(eq=False)
class _SharedLink:
    """A directed link, shared by all connections that use it."""

    jitter: random.Random
    conditions: LinkEffect = field(default_factory=LinkEffect)
    faults: list[LinkFault] = field(default_factory=list)
    flows: dict[_Flow, _Connection] = field(default_factory=dict)
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
        """Give waiting bytes new times, as if all of them were sent now."""
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
    """Bytes that are not sent yet, and when they may be; no bytes from the start: the end of the stream."""

    rest: memoryview
    due: float = math.inf


class _Flow:
    """One direction of one connection: chunks wait between `source` and `sink` until they are due."""

    def __init__(
        self, source: socket.socket, sink: socket.socket, line: _SharedLink, when: Callable[[float], None]
    ) -> None:
        self.finished = False
        self.blocked = False
        self._source, self._sink, self._line, self._when = source, sink, line, when
        self._ended = False
        self._chunks: deque[_Chunk] = deque()
        self._queued_bytes = 0
        self._latest_due = 0.0

    @property
    def has_room(self) -> bool:
        """True if the flow may read more."""
        return not self._ended and self._queued_bytes < _MAX_QUEUED_BYTES

    def waiting_bytes(self) -> int:
        return sum(len(chunk.rest) for chunk in self._chunks)

    def read(self) -> None:
        """Read the bytes that arrived. Raises OSError."""
        try:
            data = self._source.recv(_MAX_CHUNK_BYTES)
        except BlockingIOError:
            return
        self._ended = not data
        chunk = _Chunk(memoryview(self._line.change(data)))
        self._chunks.append(chunk)
        self._queued_bytes += _CHUNK_OVERHEAD_BYTES + len(data)
        if self._line.is_held:
            for fault in self._line.faults:
                fault.held_bytes += len(data) if fault.holds else 0
        else:
            self._time(chunk)

    def send(self) -> None:
        """Send the bytes that are due, as far as the sink accepts them. Raises OSError."""
        self.blocked = False
        now = time.monotonic()
        while self._chunks and self._chunks[0].due <= now and not self.blocked and not self._line.is_held:
            chunk = self._chunks[0]
            self._send(chunk)
            if not chunk.rest:
                self._chunks.popleft()
                self._queued_bytes -= _CHUNK_OVERHEAD_BYTES

    def retime(self) -> None:
        """Set the times of all waiting bytes, also of those that have one."""
        self._latest_due = 0.0
        for chunk in self._chunks:
            self._time(chunk)

    def _time(self, chunk: _Chunk) -> None:
        self._latest_due = chunk.due = max(self._latest_due, self._line.due(len(chunk.rest)))
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


class _Connection:
    """A connection that an opener made, `near`, and the one that continues it to the listener, `far`.

    `dial` begins to connect the far end. It waits while one of the two links is cut, as any handshake would.
    """

    def __init__(
        self,
        loop: _EventLoop,
        near: socket.socket,
        lines: tuple[_SharedLink, _SharedLink],
        dial: Callable[[socket.socket], None],
    ) -> None:
        self._loop, self._near, self._lines, self._dial = loop, near, lines, dial
        self._far = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for end in (near, self._far):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outward = _Flow(near, self._far, lines[0], self._proceed_at)
        self._inward = _Flow(self._far, near, lines[1], self._proceed_at)
        self._dialled = self._established = self._closed = False
        lines[0].flows[self._outward] = self
        lines[1].flows[self._inward] = self

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
        del self._lines[0].flows[self._outward]
        del self._lines[1].flows[self._inward]
        for end in (self._near, self._far):
            self._loop.forget(end)
            _close(end, reset=reset)

    def _connect(self) -> None:
        """Connect the far end unless something is cut. Raises OSError."""
        if not self._dialled and not any(line.is_held for line in self._lines):
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

    def _end_is_ready(self, flow: _Flow, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                flow.read()
        except OSError:
            self.close(reset=True)
        else:
            self.proceed()


class _Server:
    """Serves the requests of the client, and accepts connections."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._loop = _EventLoop()
        self._lines: dict[DirectedLink, _SharedLink] = {}
        self._targets: dict[str, tuple[str, int]] = {}
        self._faults: list[LinkFault] = []

    def serve(self) -> None:
        """Serve requests until their stream ends."""
        self._loop.watch(self._stream, selectors.EVENT_READ, self._obey)
        self._loop.run()

    # Requests.

    def _obey(self, events: int) -> None:
        request = pipe.read(self._stream)
        if request is None:
            self._loop.running = False
            return
        try:
            pipe.write(self._stream, self._answer(**request))
        except OSError:
            self._loop.running = False

    def _answer(self, do: str, **terms: Any) -> dict[str, Any]:
        requests: dict[str, Callable[..., dict[str, Any]]] = {
            "open": self._open,
            "point": self._point,
            "disturb": self._disturb,
            "outcomes": self._outcomes,
        }
        try:
            return requests[do](**terms)
        except LaunchError as error:
            return {"error": str(error)}

    def _open(self, seed: int, links: list[list[Any]]) -> dict[str, Any]:
        for sender, receiver, conditions in links:
            for link in ((sender, receiver), (receiver, sender)):
                jitter = random.Random(f"{seed} {link}")  # noqa: S311 - an experiment's, not a secret
                self._lines.setdefault(link, _SharedLink(jitter))
            self._lines[sender, receiver].conditions = LinkEffect(**conditions)
        return {"ports": [self._listen(sender, receiver) for sender, receiver, _ in links]}

    def _point(self, listener: str, host: str, port: int) -> dict[str, Any]:
        self._targets[listener] = (host, port)
        return {}

    def _disturb(self, kind: str, links: list[list[str]], for_s: float | None, terms: dict[str, Any]) -> dict[str, Any]:
        lines = [self._line(sender, receiver) for sender, receiver in links]
        if (fault_type := link_fault(kind)) is None:
            raise LaunchError(f"No fault on links is called {kind}; its module must be one of federation/faults/kinds.")
        fault = fault_type(**terms)
        fault.begin(lines)
        self._faults.append(fault)
        for line in lines:
            line.faults.append(fault)
        if fault.holds:
            _hold(fault, lines)
        if fault.resets_connections:
            _reset(fault, lines)
        if for_s is not None:
            self._loop.at(time.monotonic() + for_s, lambda: _heal(fault, lines))
        return {"number": len(self._faults) - 1}

    def _outcomes(self) -> dict[str, Any]:
        return {"outcomes": [[number, fault.outcome()] for number, fault in enumerate(self._faults)]}

    def _line(self, sender: str, receiver: str) -> _SharedLink:
        line = self._lines.get((sender, receiver))
        if line is None:
            raise LaunchError(f"No relay carries what {sender} sends to {receiver}; open that link first.")
        return line

    # Connections.

    def _listen(self, opener: str, listener: str) -> int:
        try:
            server = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        except OSError as error:
            advice = _WHAT_TO_CHANGE.get(error.errno or 0, "see whether 127.0.0.1 is up")
            raise LaunchError(f"The relays cannot listen for {opener}: {error.strerror}; {advice}.") from error
        server.setblocking(False)
        self._await_connections(server, opener, listener)
        return int(server.getsockname()[1])

    def _await_connections(self, server: socket.socket, opener: str, listener: str) -> None:
        self._loop.watch(server, selectors.EVENT_READ, lambda events: self._accept(server, opener, listener))

    def _accept(self, server: socket.socket, opener: str, listener: str) -> None:
        try:
            near, _ = server.accept()
        except OSError:
            # Given up by its opener, or no descriptor is free: then the listener would be ready again and again.
            self._loop.forget(server)
            again = time.monotonic() + _LISTENER_REST_S
            self._loop.at(again, lambda: self._await_connections(server, opener, listener))
            return
        lines = self._lines[opener, listener], self._lines[listener, opener]
        resets = {fault for line in lines for fault in line.faults if fault.resets_connections}
        for fault in resets:
            fault.resets += 1
        if resets or not self._join(near, lines, listener):
            _close(near, reset=True)

    def _join(self, near: socket.socket, lines: tuple[_SharedLink, _SharedLink], listener: str) -> bool:
        """Continue a connection to the listener; False if no descriptor is free for it."""
        try:
            connection = _Connection(self._loop, near, lines, lambda far: self._dial(far, listener))
        except OSError:
            return False
        connection.proceed()
        return True

    def _dial(self, far: socket.socket, listener: str) -> None:
        """Begin to connect to the current address of a party. Raises OSError."""
        if listener not in self._targets:
            raise ConnectionRefusedError
        status = far.connect_ex(self._targets[listener])
        if status not in (0, errno.EINPROGRESS):
            raise OSError(status, os.strerror(status))


def _hold(fault: LinkFault, lines: list[_SharedLink]) -> None:
    """Hold waiting bytes too; `proceed` notifies the ends."""
    fault.held_bytes += sum(flow.waiting_bytes() for line in lines for flow in line.flows)
    for connection in _connections(lines):
        connection.proceed()


def _reset(fault: LinkFault, lines: list[_SharedLink]) -> None:
    for connection in _connections(lines):
        connection.close(reset=True)
        fault.resets += 1


def _heal(fault: LinkFault, lines: list[_SharedLink]) -> None:
    fault.healed = True
    for line in lines:
        line.faults.remove(fault)
        if fault.holds and not line.is_held:
            line.retime()
    for connection in _connections(lines):
        connection.proceed()


def _connections(lines: list[_SharedLink]) -> list[_Connection]:
    """Return the connections that use any of these links, each once."""
    return list(dict.fromkeys(connection for line in lines for connection in line.flows.values()))


def _events(outward: _Flow, inward: _Flow) -> int:
    """Return the events to wait for at an end that is the source of one flow and the sink of the other."""
    return (selectors.EVENT_READ if outward.has_room else 0) | (selectors.EVENT_WRITE if inward.blocked else 0)


def _close(end: socket.socket, *, reset: bool) -> None:
    if reset:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT_AT_ALL)
    end.close()


def main(descriptor: int) -> None:
    """Relay for the process at the other end of socket `descriptor` until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with socket.socket(fileno=descriptor) as stream:
        _Server(stream).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
