"""All of the hub as one web application: participants' programs, people's pages, and what happens by itself."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread
import sqlalchemy as sql
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedsvm.federation.errors import FederationError, Malformed
from fedsvm.federation.hosts import certificates
from fedsvm.scenarios.hub.accounts import UserAccounts
from fedsvm.scenarios.hub.browser_files import BrowserFiles
from fedsvm.scenarios.hub.database import Database
from fedsvm.scenarios.hub.limits import RateLimiter
from fedsvm.scenarios.hub.mails import MailSender, Outbox
from fedsvm.scenarios.hub.metrics import free_bytes, metrics
from fedsvm.scenarios.hub.notices import Notices
from fedsvm.scenarios.hub.participant_api import MAX_STRANGERS_WORD_BYTES, MAX_WORD_BYTES, ParticipantApi
from fedsvm.scenarios.hub.participation import WORDS
from fedsvm.scenarios.hub.roles import Roles
from fedsvm.scenarios.hub.stored_messages import StoredMessages
from fedsvm.scenarios.hub.task_runner import TaskRunner
from fedsvm.scenarios.hub.tasks import Tasks, vault_of

_LOGGER = logging.getLogger(__name__)
_KEY, _LOCK = "hub", "hub.lock"
_PLAIN = "text/plain; charset=utf-8"

_MIN_FREE_BYTES = 16 * 2**20
"""Free space below which a hub is unhealthy: it cannot store the messages of a round for certain."""
_THIS_MACHINE = ("127.0.0.1", "::1")
"""Addresses of clients that may read the metrics."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer that has none of its own."""
_THREADS = 200
"""Requests that are answered at once: those of participants who watch hang until there is something to say."""


@dataclass(frozen=True)
class Settings:
    """The settings that a hub is started with.

    Parameters
    ----------
    folder : Path
        Its key, its database if no other is named, the runs of tasks, and mails if they are not sent.
    url : str
        By which people reach it, without a slash at its end.
    database : str
        As SQLAlchemy names one.
    sender : str
        Its address for mails.
    every_s : float
        How often it looks whether somebody is late, or has to be asked.
    a_second : float
        How many requests of one address it answers a second, in the long run.
    burst : int
        How many it answers at once.
    roles : Roles
        The administrators, and who can create tasks.
    pyodide : Path, optional
        The folder of a Pyodide distribution, by which participants take part in their browsers.
    """

    folder: Path
    url: str
    database: str
    sender: str = "fedsvm@localhost"
    every_s: float = 2.0
    a_second: float = 50.0
    burst: int = 200
    roles: Roles = field(default_factory=Roles)
    pyodide: Path | None = None


class Hub:
    """The parts of a hub, put together.

    Parameters
    ----------
    settings : Settings
    carrier : MailSender
        Sends mails.

    Raises
    ------
    FederationError
        Another hub is at work in this folder, or the database cannot be used.
    ScenarioError
        The folder of Pyodide lacks a file.
    """

    def __init__(self, settings: Settings, carrier: MailSender) -> None:
        self.browser_files = None if settings.pyodide is None else BrowserFiles(settings.pyodide)
        folder = settings.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # a folder that was there already may be open to others
        self._lock = _lock_folder(folder)
        secret = folder / f"{_KEY}{certificates.SECRET}"
        if not secret.exists():
            certificates.create(folder, _KEY)
        certificate = certificates.read_secret(secret)
        self.keys, signing = certificate.keys, certificate.signing
        if signing is None:
            raise FederationError(f"{secret} has no key for signatures; move it away, and start the hub again.")
        self.signing_key = signing.public
        self.settings = settings
        self.carrier = carrier
        self.closing = asyncio.Event()
        self.database = Database(settings.database)
        letters = StoredMessages(vault_of(self.keys, "letters"))
        self.outbox = Outbox(self.database, vault_of(self.keys, "mails"), settings.sender)
        self.accounts = UserAccounts(self.database, self.outbox, settings.url)
        self.tasks = Tasks(self.database, letters, Notices(self.outbox, self.keys, settings.url), settings.roles)
        self.conductor = TaskRunner(self.database, letters, folder / "tasks", self.tasks.note_over, signing)
        self.tasks.nudge, self.tasks.never_ran = self.conductor.nudge, self.conductor.never_ran
        self.desk = ParticipantApi(self.tasks, self.conductor, self.keys, signing.public)
        self.conductor.on_said = self.desk.note_said

    def close(self) -> None:
        """End what runs, and let go of the database."""
        self.conductor.close()
        self.database.close()
        os.close(self._lock)

    async def look_after(self) -> None:
        """Do what is due by itself until `closing`: no mail server that is slow holds up the tasks."""
        await asyncio.gather(self._again(self._look), self._again(self.send_mails))

    async def _look(self) -> None:
        await run_in_threadpool(self.tasks.look_after_all)

    async def _again(self, what: Callable[[], Awaitable[None]]) -> None:
        while not self.closing.is_set():
            try:
                await run_in_threadpool(self.database.hold)
                await what()
            except Exception:
                _LOGGER.exception("pending work failed and will be tried again")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.closing.wait(), self.settings.every_s)

    async def send_mails(self) -> None:
        """Send what was not sent yet."""
        for number, message in await run_in_threadpool(self.outbox.due):
            if self.closing.is_set():
                return
            try:
                await self.carrier.send(number, message)
            except Exception as error:  # noqa: BLE001 - one that no library can send must not hold up the others
                await run_in_threadpool(self.outbox.note, number, str(error) or type(error).__name__)
                _LOGGER.warning("mail %d could not be sent: %s", number, type(error).__name__)
                continue
            await run_in_threadpool(self.outbox.note, number)


def _lock_folder(folder: Path) -> int:
    """Return a descriptor that locks a folder against other hubs, which would send all mails too."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise FederationError(
            f"Another hub is at work in {folder}; end that one first, or name another folder (--folder)."
        ) from None
    return lock


def application(hub: Hub) -> FastAPI:
    """Return the web application of a hub."""
    from fedsvm.scenarios.hub.pages import pages_of, say_there_is_none

    @contextlib.asynccontextmanager
    async def alive(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        looking = asyncio.create_task(hub.look_after())
        yield
        hub.closing.set()
        await looking
        await run_in_threadpool(hub.close)

    app = FastAPI(title="fedsvm hub", lifespan=alive, docs_url=None, redoc_url=None, openapi_url=None)

    @app.post(WORDS)
    async def words(request: Request) -> Response:
        """Answer a sealed request of a participant's program."""
        try:
            body = await _word(request, hub.desk)
            answer = await run_in_threadpool(hub.desk.answer, body)
        except (Malformed, FederationError) as error:
            return Response(f"The hub cannot read this: {error}.", 400, media_type=_PLAIN)
        return Response(answer, media_type="application/octet-stream")

    @app.get("/health")
    async def health() -> Response:
        """Answer 200 if the database can be read and the disk has space, and 503 otherwise."""
        try:
            await run_in_threadpool(hub.database.check)
            if await run_in_threadpool(free_bytes, hub.settings.folder) < _MIN_FREE_BYTES:
                return Response("disk full", 503, media_type=_PLAIN)
        except sql.exc.SQLAlchemyError:
            _LOGGER.exception("the database cannot be used")
            return Response("database unavailable", 503, media_type=_PLAIN)
        return Response("ok", media_type=_PLAIN)

    @app.get("/metrics")
    async def show_metrics(request: Request) -> Response:
        """Answer programs on this machine with the state of the hub, and others as if there were no such page."""
        if request.client is None or request.client.host not in _THIS_MACHINE:
            raise HTTPException(404)
        return Response(await run_in_threadpool(metrics, hub.database, hub.settings.folder), media_type=_PLAIN)

    app.include_router(pages_of(hub))
    app.add_exception_handler(HTTPException, say_there_is_none)
    app.add_middleware(Guard, a_second=hub.settings.a_second, burst=hub.settings.burst)
    return app


async def _word(request: Request, desk: ParticipantApi) -> bytes:
    """Return the body of a request. It may be long only if it begins with a known key. Raises Malformed."""
    body, most = bytearray(), MAX_STRANGERS_WORD_BYTES
    async for part in request.stream():
        body += part
        if len(body) > most and most == MAX_STRANGERS_WORD_BYTES and await run_in_threadpool(desk.knows, bytes(body)):
            most = MAX_WORD_BYTES
        if len(body) > most:
            raise Malformed(f"it has more than {most} bytes")
    return bytes(body)


class Guard:
    """Turns away who asks too often, and tells browsers what no answer may do.

    Parameters
    ----------
    app : ASGI application
    a_second : float
        Requests of one address that are answered a second, in the long run.
    burst : int
        Those that are answered at once.
    """

    def __init__(self, app: ASGIApp, a_second: float, burst: int) -> None:
        self._app = app
        self._requests = RateLimiter(a_second, burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        client = scope.get("client")
        if not self._requests.allows(client[0] if client else ""):
            said = "Too many requests; try again in a second."
            response = Response(said, 429, {"Retry-After": "1"}, media_type=_PLAIN)
            await response(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)
