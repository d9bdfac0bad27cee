"""Connections that send no request, half of one, or do not read: closed in time, and no reason to turn others away."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from fedsvm.scenarios.hub.connections import BoundedConnection, ConnectionLimits
from tests import hub as hubs
from tests.conftest import wait_until
from tests.hub import RunningHub

REQUEST_S = 0.5
LENIENT_S = 1.0
"""Of tests whose client is in time, on a machine that may be busy."""
NEVER_S = 60.0
DESCRIPTORS = 600
"""Of the hub: enough beside its connections for two rounds of accepting, which a busy machine may bring together."""
HEAD = b"POST /echo HTTP/1.1\r\nHost: hub\r\nContent-Length: 60000\r\n"
GET = b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n"
LARGE = 32 << 20


@dataclass
class Server:
    """A server in this process, its port, its limits, and when it looked whether a client does its part."""

    port: int
    limits: ConnectionLimits
    looks: list[float] = field(default_factory=list)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Return a connection from an address of this machine."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30, source_address=(source, 0))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # the kernel's own can hold a LARGE answer
        return connection

    def wait_for_look(self) -> None:
        """Wait until the server looks again whether its clients do their part."""
        before = len(self.looks)
        wait_until(lambda: len(self.looks) > before)


@contextmanager
def serving(total: int = 100, per_client: int = 100, request_s: float = REQUEST_S) -> Iterator[Server]:
    """A server whose connections are limited."""

    async def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    async def large(request: Request) -> PlainTextResponse:
        return PlainTextResponse(b"x" * LARGE)

    async def held(request: Request) -> StreamingResponse:
        """Send until the client's buffers are full, and end the answer once the server has looked."""

        async def chunks() -> AsyncIterator[bytes]:
            while not any(each.transport.get_write_buffer_size() for each in limits._open):
                yield bytes(1 << 14)
            await looked.wait()

        return StreamingResponse(chunks())

    limits, looked, looks = ConnectionLimits(total, per_client, request_s), asyncio.Event(), list[float]()

    class Watched(BoundedConnection):
        def _check_client(self) -> None:
            super()._check_client()
            looks.append(time.monotonic())
            looked.set()

    Watched.limits = limits
    routes = [Route("/", echo), Route("/echo", echo, methods=["POST"]), Route("/large", large), Route("/held", held)]
    app = Starlette(routes=routes)
    config = uvicorn.Config(app, http=Watched, log_level="error", access_log=False, lifespan="off")
    with socket.create_server(("127.0.0.1", 0), backlog=512) as bound:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield Server(bound.getsockname()[1], limits, looks)
        finally:
            server.should_exit = True
            thread.join()


def is_closed(connection: socket.socket) -> bool:
    """Return whether the server closes a connection without an answer, before its client gives up."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD, HEAD + b"\r\nabc"], ids=["none", "line", "head", "body"])
def test_connection_with_unfinished_request_is_closed(sent: bytes) -> None:
    with serving() as server, server.connect() as connection:
        connection.sendall(sent)
        began = time.monotonic()
        assert is_closed(connection)
        assert time.monotonic() - began > REQUEST_S * 0.9


def test_head_that_comes_byte_by_byte_is_not_waited_for() -> None:
    with serving() as server, server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        wait_until(lambda: bool(server.limits._open))
        (held,) = server.limits._open
        with suppress(ConnectionResetError, BrokenPipeError):
            while held in server.limits._open:
                before = held._received
                connection.sendall(b"a")
                wait_until(lambda before=before: held._received > before or held not in server.limits._open)  # type: ignore[misc]
        assert is_closed(connection)


def test_body_that_moves_is_waited_for() -> None:
    with serving(request_s=LENIENT_S) as server, server.connect() as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        for _ in range(3):
            connection.sendall(bytes(4000))
            server.wait_for_look()
        connection.sendall(bytes(60000 - 3 * 4000))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_client_that_does_not_read_the_answer_is_dropped() -> None:
    with serving() as server, server.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: hub\r\n\r\n")
        assert connection.recv(1) == b"H"
        wait_until(lambda: not server.limits._open)
        got = 1
        with suppress(ConnectionResetError):
            while chunk := connection.recv(1 << 20):
                got += len(chunk)
        assert got < LARGE


def test_client_that_reads_slowly_gets_the_whole_answer() -> None:
    with serving(request_s=LENIENT_S) as server, server.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
        got = len(connection.recv(1))
        (held,) = server.limits._open
        wait_until(lambda: held._before[1] > 0)
        for _ in range(2):
            while held.transport.get_write_buffer_size() > held._before[1] - 4096:
                got += len(connection.recv(1 << 16))
            server.wait_for_look()
        while chunk := connection.recv(1 << 20):
            got += len(chunk)
        assert got > LARGE


def test_client_has_its_time_to_read_an_answer_that_began_late() -> None:
    with serving(request_s=LENIENT_S) as server, server.connect() as connection:
        connection.sendall(b"GET /held HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
        server.wait_for_look()
        got = b""
        while chunk := connection.recv(1 << 20):
            got += chunk
        assert got.endswith(b"0\r\n\r\n")


def test_client_over_its_limit_replaces_its_own_connections() -> None:
    with serving(total=10, per_client=4, request_s=NEVER_S) as server, ExitStack() as held:
        other = held.enter_context(server.connect("127.0.0.2"))
        own = [held.enter_context(server.connect("127.0.0.3")) for _ in range(20)]
        assert is_closed(own[0])
        for connection in (other, own[-1]):
            connection.sendall(GET)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_all_clients_together_replace_the_oldest_idle_connection() -> None:
    with serving(total=3, per_client=3, request_s=NEVER_S) as server, ExitStack() as held:
        every = [held.enter_context(server.connect(f"127.0.0.{place}")) for place in range(2, 7)]
        assert is_closed(every[0])
        assert is_closed(every[1])
        for connection in every[2:]:
            connection.sendall(GET)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_connections_that_are_busy_are_not_replaced() -> None:
    with serving(total=10, per_client=2, request_s=NEVER_S) as server, ExitStack() as held:
        busy = [held.enter_context(server.connect()) for _ in range(2)]
        for connection in busy:
            connection.sendall(HEAD + b"Expect: 100-continue\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        assert is_closed(held.enter_context(server.connect()))
        for connection in busy:
            connection.sendall(bytes(60000))
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with few descriptors, in a folder that others could read before."""
    folder = tmp_path_factory.mktemp("hub")
    (folder / "hub").mkdir(mode=0o755)
    with hubs.hub(folder, "--demo", descriptors=DESCRIPTORS) as there:
        yield there


def page_of(running: RunningHub) -> int:
    """Return the status of the hub's front page."""
    with urllib.request.urlopen(running.url, timeout=20) as answer:  # noqa: S310 - of a hub that the test started
        return int(answer.status)


def test_everything_in_the_hubs_folder_is_its_owners_alone(running: RunningHub) -> None:
    modes = {}
    for path in [running.folder, *running.folder.rglob("*")]:
        with suppress(FileNotFoundError):  # a mail is renamed when it is written
            modes[path] = path.stat().st_mode & 0o777
    assert {path.name for path in modes} >= {"hub", "hub.sqlite", "hub.key_secret", "mails", "clinic.csv"}
    assert not {path: oct(mode) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)}


def test_hub_answers_while_more_idle_sockets_than_descriptors_are_open(running: RunningHub) -> None:
    before = running.log.read_text()
    with ExitStack() as held:
        for _ in range(DESCRIPTORS + 100):
            held.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=30))
        assert page_of(running) == 200
    assert running.log.read_text() == before


def test_connections_that_cannot_be_accepted_are_logged_in_one_line(running: RunningHub) -> None:
    assert running.process is not None
    pid, before = running.process.pid, len(running.log.read_text().splitlines())
    is_open = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    with ExitStack() as held:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (is_open, DESCRIPTORS))
        for _ in range(20):
            held.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=30))
        wait_until(lambda: "cannot be accepted" in running.log.read_text())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        assert page_of(running) == 200
    assert len(running.log.read_text().splitlines()) == before + 1, running.log.read_text()


def test_closed_terminal_ends_the_hub_as_a_termination_does(running: RunningHub) -> None:
    assert running.process is not None
    running.process.send_signal(signal.SIGHUP)
    assert running.process.wait(60) == -signal.SIGTERM
    running.start()
