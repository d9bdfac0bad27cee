"""Connections that send no request, half of one, or do not read: closed in time, and no reason to turn others away."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from fedsvm.scenarios.hub.connections import ConnectionLimits
from tests import hub as hubs
from tests.conftest import wait_until

REQUEST_S = 0.5
HEAD = b"POST /echo HTTP/1.1\r\nHost: hub\r\nContent-Length: 6000\r\n"
LARGE = 32 << 20


@dataclass
class Server:
    """A server in this process, and its port."""

    port: int

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Return a connection from an address of this machine."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10, source_address=(source, 0))


@contextmanager
def serving(total: int = 100, per_client: int = 100) -> Iterator[Server]:
    """A server whose connections are limited."""

    async def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    async def large(request: Request) -> PlainTextResponse:
        return PlainTextResponse(b"x" * LARGE)

    app = Starlette(routes=[Route("/", echo), Route("/echo", echo, methods=["POST"]), Route("/large", large)])
    limits = ConnectionLimits(total, per_client, REQUEST_S)
    config = uvicorn.Config(app, http=limits.protocol(), log_level="error", access_log=False, lifespan="off")
    with socket.create_server(("127.0.0.1", 0), backlog=512) as bound:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            wait_until(lambda: server.started, 30)
            yield Server(bound.getsockname()[1])
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
        assert REQUEST_S * 0.9 < time.monotonic() - began < REQUEST_S * 5


def test_head_that_comes_byte_by_byte_is_not_waited_for() -> None:
    with serving() as server, server.connect() as connection:
        began = time.monotonic()
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            for byte in HEAD * 1000:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
        assert time.monotonic() - began < REQUEST_S * 5


def test_body_that_moves_is_waited_for() -> None:
    with serving() as server, server.connect() as connection:
        began = time.monotonic()
        connection.sendall(HEAD + b"\r\n")
        for _ in range(12):
            connection.sendall(bytes(500))
            time.sleep(REQUEST_S / 6)
        assert time.monotonic() - began > REQUEST_S * 1.9
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_client_that_does_not_read_the_answer_is_dropped() -> None:
    with serving() as server, server.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: hub\r\n\r\n")
        time.sleep(REQUEST_S * 3)
        got = 0
        with suppress(ConnectionResetError):
            while chunk := connection.recv(1 << 20):
                got += len(chunk)
        assert got < LARGE


def test_client_that_reads_slowly_gets_the_whole_answer() -> None:
    with serving() as server, server.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
        got, began = 0, time.monotonic()
        while chunk := connection.recv(1 << 20):
            got += len(chunk)
            time.sleep(0.05)
        assert time.monotonic() - began > REQUEST_S
        assert got > LARGE


def test_client_over_its_limit_replaces_its_own_connections() -> None:
    with serving(total=10, per_client=4) as server, ExitStack() as held:
        other = held.enter_context(server.connect("127.0.0.2"))
        own = [held.enter_context(server.connect("127.0.0.3")) for _ in range(20)]
        assert is_closed(own[0])
        other.sendall(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n")
        assert other.recv(1000).startswith(b"HTTP/1.1 200")
        own[-1].sendall(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n")
        assert own[-1].recv(1000).startswith(b"HTTP/1.1 200")


def test_connections_that_are_busy_are_not_replaced() -> None:
    with serving(total=10, per_client=2) as server, ExitStack() as held:
        busy = [held.enter_context(server.connect()) for _ in range(2)]
        for connection in busy:
            connection.sendall(HEAD + b"\r\n" + bytes(3000))
        time.sleep(0.1)
        assert is_closed(held.enter_context(server.connect()))
        for connection in busy:
            connection.sendall(bytes(3000))
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_hub_answers_while_more_idle_sockets_than_descriptors_are_open(tmp_path: Path) -> None:
    with hubs.hub(tmp_path, descriptors=256) as running, ExitStack() as held:
        for _ in range(400):
            held.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=10))
        with urllib.request.urlopen(running.url, timeout=5) as answer:  # noqa: S310 - of this test's hub
            assert answer.status == 200
        assert len(running.log.read_text().splitlines()) == 1


def test_everything_in_the_hubs_folder_is_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir(mode=0o755)
    with hubs.hub(tmp_path, "--demo") as running:
        modes = {path: path.stat().st_mode & 0o777 for path in [running.folder, *running.folder.rglob("*")]}
        assert {path.name for path in modes} >= {"hub", "hub.sqlite", "hub.key_secret", "mails", "clinic.csv"}
        wrong = {path: oct(mode) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)}
        assert not wrong
