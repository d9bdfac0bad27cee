"""The sockets and descriptors that a party waits on.

A socket's descriptor signals only messages that arrive after the last use of the socket, and sending is a use. So a
party that has sent on a socket must read it before the next wait.
"""

from __future__ import annotations

import itertools
import selectors
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import zmq
from zmq.backend import zmq_poll

from fedsvm.federation.transport.wire import MAX_FRAME_BYTES

_POLLIN, _NOBLOCK = int(zmq.POLLIN), int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE) | _NOBLOCK
"""Plain numbers: combining two members of an enumeration takes as long as sending a message."""

_GATHER_MS = 4
"""Milliseconds in which messages of other sockets are collected while the awaited socket has none."""

_MOST_AT_ONCE = 1000
"""Maximum number of messages of one socket that are read before the caller checks its deadline."""

LINGER_MS = 1000
_KEEPALIVE = {zmq.TCP_KEEPALIVE: 1, zmq.TCP_KEEPALIVE_IDLE: 60, zmq.TCP_KEEPALIVE_INTVL: 15, zmq.TCP_KEEPALIVE_CNT: 4}
"""Probes after 60 seconds of silence, every 15 seconds, four times: a lost machine is detected within two minutes."""

_EVENT = struct.Struct("=Hi")
"""A monitor's first frame (zmq_socket_monitor): the event and its value."""

_send = zmq.backend.Socket.send
"""The method of the base class of `zmq.Socket`, without the arguments that are unused here."""

Reader = Callable[[], object]
"""Reads at least one of the messages that wait on a socket."""


class Poller:
    """The sockets and descriptors of a party, which it serves in one place.

    Parameters
    ----------
    context : zmq.Context
        Context of the sockets.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._context = context
        self._selector = selectors.DefaultSelector()
        self._monitors: dict[zmq.Socket[bytes], zmq.Socket[bytes]] = {}
        self._readers: dict[zmq.Socket[bytes], Reader] = {}
        self._descriptors: dict[zmq.Socket[bytes], int] = {}  # to ask a socket takes longer than to wait for it
        self._unread: dict[zmq.Socket[bytes], Reader] = {}  # used since they were found empty
        self._watched: list[Any] = []

    def open(self, kind: int) -> zmq.Socket[bytes]:
        """Return a new socket for messages."""
        opened = self._context.socket(kind)
        opened.setsockopt(zmq.LINGER, LINGER_MS)
        opened.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        opened.setsockopt(zmq.SNDHWM, 0)
        for option, value in _KEEPALIVE.items():
            opened.setsockopt(option, value)
        return opened

    def watch(self, descriptor: Any, handler: Callable[[], object]) -> None:
        """Call `handler` whenever `descriptor` is readable while this waits; an error that it raises ends the wait."""
        self._selector.register(descriptor, selectors.EVENT_READ, handler)
        self._watched.append(descriptor)

    def add(self, opened: zmq.Socket[bytes], read: Reader) -> None:
        """Call `read` when there is something to read from a socket."""

        def mark_unread() -> None:
            self._unread[opened] = read

        self._descriptors[opened] = opened.FD
        self._selector.register(self._descriptors[opened], selectors.EVENT_READ, mark_unread)
        self._readers[opened] = self._unread[opened] = read

    def monitor(self, watched: zmq.Socket[bytes], events: int, note: Callable[[int, int], None]) -> None:
        """Call `note` with each of these events of a socket's connections, and its value."""
        address = f"inproc://monitor-{watched.FD}"
        watched.monitor(address, events)
        monitor = self._context.socket(zmq.PAIR)
        monitor.setsockopt(zmq.RCVHWM, 0)  # unlimited: libzmq blocks all connections while a monitor's queue is full
        monitor.connect(address)

        def read() -> None:
            for frames in drain(monitor):
                note(*_EVENT.unpack(frames[0].buffer))

        self.add(monitor, read)
        self._monitors[watched] = monitor

    def remove(self, watched: zmq.Socket[bytes]) -> None:
        """Close a monitored socket, and its monitor."""
        for closed in (watched, self._monitors.pop(watched)):
            self._selector.unregister(self._descriptors.pop(closed))
            self._unread.pop(closed, None)
            del self._readers[closed]
        watched.disable_monitor()
        watched.close(linger=0)

    def send(self, opened: zmq.Socket[bytes], frame: bytes, routing_id: bytes | None = None) -> None:
        """Send one frame on a socket; `routing_id` identifies the receiver if the socket is a ROUTER.

        Raises zmq.ZMQError if it cannot be sent now.
        """
        # Copied: to send large frames without a copy, pyzmq would start a thread in every site, which takes memory.
        self._unread[opened] = self._readers[opened]
        if routing_id is not None:
            _send(opened, routing_id, _MORE)
        _send(opened, frame, _NOBLOCK)

    def serve(self, timeout_ms: int, *, first: zmq.Socket[bytes] | None = None) -> None:
        """Read every socket that has something to read; wait for one if there is none.

        first: a socket whose messages end the wait at once. Messages of other sockets may wait for some milliseconds,
        so that this process wakes up once for many of them.
        """
        try:
            came = self._read_all()
            if first is not None and not came:
                urgent = [(each, _POLLIN) for each in (self._descriptors[first], *self._watched)]
                zmq_poll(urgent, min(timeout_ms, _GATHER_MS))
            for key, _ in self._selector.select(0 if came else timeout_ms / 1000):  # reading may have ended the wait
                key.data()
            self._read_all()
        except BaseException:  # such as Ctrl-C: the message that was being read is not signalled again
            self._unread.update(self._readers)
            raise

    def _read_all(self) -> bool:
        """Read the sockets in use until they are empty or much was read, and return whether there was anything."""
        came = False
        for _ in range(_MOST_AT_ONCE):
            if not self._unread:
                break
            readable = dict(zmq_poll([*zip(self._unread, itertools.repeat(_POLLIN), strict=False)], 0))  # one for all
            if not readable:
                self._unread.clear()
                break
            self._unread = {opened: read for opened, read in self._unread.items() if opened in readable}
            for read in list(self._unread.values()):
                read()
            came = True
        return came

    def close(self) -> None:
        """Stop waiting. The context closes the sockets."""
        for watched in self._monitors:
            watched.disable_monitor()
        self._selector.close()


def is_readable(opened: zmq.Socket[bytes]) -> bool:
    """Return whether a message waits on a socket."""
    return bool(zmq_poll([(opened, _POLLIN)], 0))  # unlike getsockopt, it creates no enumerations


def next_frame(opened: zmq.Socket[bytes]) -> zmq.Frame:
    """Return the next frame of a message that waits on a socket."""
    return opened.recv(_NOBLOCK, copy=False)


def only_frame(opened: zmq.Socket[bytes], refused: Counter[str]) -> zmq.Frame | None:
    """Return the one frame of the next message, or None if it has more, which is counted."""
    frame = opened.recv(_NOBLOCK, copy=False)
    if not frame.more:
        return frame
    while next_frame(opened).more:
        pass
    refused["malformed: more than one frame"] += 1
    return None


def drain(opened: zmq.Socket[bytes]) -> Iterator[list[zmq.Frame]]:
    """Yield the frames of every message that waits on a socket."""
    while is_readable(opened):
        frames = [next_frame(opened)]
        while frames[-1].more:
            frames.append(next_frame(opened))
        yield frames
