"""The event loop of the relay process: it waits for sockets and for points in time."""

from __future__ import annotations

import heapq
import itertools
import select
import selectors
import socket
import time
from collections.abc import Callable


class EventLoop:
    """Waits for sockets and for points in time, and calls their actions.

    Attributes
    ----------
    running : bool
        Set it to False to end `run` after the current events.
    """

    def __init__(self) -> None:
        self.running = True
        self._selector = selectors.DefaultSelector()
        self._watched: dict[socket.socket, int] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = itertools.count()

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` at a time of the monotonic clock in seconds."""
        heapq.heappush(self._timers, (moment, next(self._counter), action))

    def watch(self, end: socket.socket, events: int, action: Callable[[int], None]) -> None:
        """Call `action` with the ready events of a socket whenever it is ready for some of `events`; 0: stop."""
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
        """Wait with select on the selector's own descriptor, since epoll rounds up to whole milliseconds."""
        timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        select.select([self._selector], [], [], timeout)

    def _call_due(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
