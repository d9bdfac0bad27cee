"""Connections of clients: how many the hub holds open, and how long each may wait for its client.

uvicorn closes a connection that is idle after a response. It has no deadline for a client that never sends a request,
sends one slowly, or does not read the answer. Its `limit_concurrency` counts such clients against all others. asyncio
logs a traceback for every connection that it cannot accept, many thousands a minute. Therefore the hub sets its own
limits, below the limit of open files.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import signal
import socket
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, ClassVar

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

_LOGGER = logging.getLogger(__name__)
_BACKLOG = 100
"""Connections that asyncio accepts at once, before any of them is counted."""
_KEEP_ALIVE_S = 5
_SHUTDOWN_S = 5
_MAX_CONNECTIONS = 4096
_OTHER_FILES = 256
"""Descriptors kept free for the database, runs, and connections that are being accepted or closed."""
_CLIENTS_SHARE = 4
"""One client may hold this fraction of all connections: several must act together to use up all."""
_REQUEST_S = 10.0
_MIN_BYTES_PER_S = 1024
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOG_EVERY_S = 60.0


class ConnectionLimits:
    """The open connections of a hub. A new one over a limit replaces the oldest one that has no request.

    Parameters
    ----------
    total : int
        Maximum number of connections.
    per_client : int
        Maximum number of connections of one network address.
    request_s : float, default 10.0
        Seconds that a client has to send the head of a request. A body or an answer that takes longer must move at
        1 KiB/s.
    """

    def __init__(self, total: int, per_client: int, request_s: float = _REQUEST_S) -> None:
        self.request_s = request_s
        self._total = total
        self._per_client = per_client
        self._open: dict[BoundedConnection, None] = {}
        self._of_client: dict[str, dict[BoundedConnection, None]] = defaultdict(dict)

    @classmethod
    def of_this_process(cls) -> ConnectionLimits:
        """Raise the limit of open files as far as allowed; return limits that stay below it."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        files = _MAX_CONNECTIONS + _OTHER_FILES if hard == resource.RLIM_INFINITY else hard
        total = min(_MAX_CONNECTIONS, files - min(_OTHER_FILES, files // 2))
        return cls(total, max(1, total // _CLIENTS_SHARE))

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the protocol class that uvicorn uses for connections within these limits."""
        return type("LimitedConnection", (BoundedConnection,), {"limits": self})

    def admit(self, new: BoundedConnection) -> bool:
        """Return whether a new connection may stay; close an older one for it if a limit is reached."""
        own = self._of_client[new.address]
        if len(own) >= self._per_client and not _close_first_idle(own):
            return False
        if len(self._open) >= self._total and not _close_first_idle(self._open):
            return False
        self._open[new] = self._of_client[new.address][new] = None
        return True

    def release(self, gone: BoundedConnection) -> None:
        """Stop counting a connection."""
        self._open.pop(gone, None)
        self._of_client[gone.address].pop(gone, None)
        if not self._of_client[gone.address]:
            del self._of_client[gone.address]


class BoundedConnection(H11Protocol):
    """A connection that is closed if its client neither sends a request nor reads the answer."""

    limits: ClassVar[ConnectionLimits]
    _timer: asyncio.TimerHandle | None = None
    _received = 0
    _before = (0, 0)

    @property
    def address(self) -> str:
        """The client's network address."""
        return self.client[0] if self.client is not None else ""

    @property
    def is_idle(self) -> bool:
        """Return whether the client has not sent the head of a request yet."""
        return self.conn.their_state is h11.IDLE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count a new connection, or close it if there are too many."""
        super().connection_made(transport)
        if self.limits.admit(self):
            self._wait_for_client()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take in bytes; a body gets a deadline of its own."""
        self._received += len(data)
        was_idle = self.is_idle
        super().data_received(data)
        if was_idle and not self.is_idle:
            self._wait_for_client()

    def pause_writing(self) -> None:
        """Give the client time to read what it is sent."""
        super().pause_writing()
        self._wait_for_client()

    def on_response_complete(self) -> None:
        """Give the client time to read the response and to send the next request."""
        super().on_response_complete()
        self._wait_for_client()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        if self._timer is not None:
            self._timer.cancel()
        self.limits.release(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection at once."""
        self.limits.release(self)
        self.transport.abort()

    def _wait_for_client(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._before = (self._received, self.transport.get_write_buffer_size())
        self._timer = self.loop.call_later(self.limits.request_s, self._check_client)

    def _check_client(self) -> None:
        if self._is_client_late():
            self.drop()
        else:
            self._wait_for_client()

    def _is_client_late(self) -> bool:
        """Return whether the client has not done its part since the last look."""
        received, unsent_before = self._before
        least = _MIN_BYTES_PER_S * self.limits.request_s
        unsent = self.transport.get_write_buffer_size()
        if unsent:  # an answer that began since then has had less time than it may take
            return unsent_before > 0 and unsent_before - unsent < least
        if self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused:
            return self._received - received < least
        return self.is_idle


async def answer(app: FastAPI, bound: socket.socket) -> None:
    """Answer the requests that come in at a bound socket, until the process is told to end."""
    config = uvicorn.Config(
        app,
        http=ConnectionLimits.of_this_process().protocol(),
        backlog=_BACKLOG,
        log_config=None,  # as the hub's own log, which may be JSON
        log_level="error",  # a warning for every malformed request would let strangers fill the log
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    loop, server = asyncio.get_running_loop(), uvicorn.Server(config)
    log_exhaustion_rarely(loop)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as `nohup` does
        loop.add_signal_handler(signal.SIGHUP, server.handle_exit, signal.SIGTERM, None)
    await server.serve(sockets=[bound])


def log_exhaustion_rarely(loop: asyncio.AbstractEventLoop) -> None:
    """Make an event loop log connections that cannot be accepted at most once a minute."""
    next_at = 0.0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal next_at
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _EXHAUSTED):
            loop.default_exception_handler(context)
        elif loop.time() >= next_at:
            next_at = loop.time() + _LOG_EVERY_S
            _LOGGER.warning("connections cannot be accepted: %s", error.strerror)

    loop.set_exception_handler(handle)


def _close_first_idle(connections: Iterable[BoundedConnection]) -> bool:
    """Close the oldest of some connections that has no request; return whether there was one."""
    oldest = next((each for each in connections if each.is_idle), None)
    if oldest is not None:
        oldest.drop()
    return oldest is not None
