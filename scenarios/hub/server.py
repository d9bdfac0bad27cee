"""A task service that runs until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedsvm.federation.errors import FederationError
from fedsvm.scenarios.console import errors, say
from fedsvm.scenarios.schema.errors import ScenarioError

if TYPE_CHECKING:
    from fedsvm.scenarios.hub.mails import MailSender

_EXTRA = 'fedsvm hub needs additional packages: pip install "fedsvm[hub]".'


def serve(
    folder: Path,
    listen: str,
    url: str,
    smtp: str,
    sender: str,
    database: str,
    every_s: float,
    admins: Sequence[str] = (),
    makers: Sequence[str] = (),
    pyodide: Path | None = None,
    *,
    demo: bool,
) -> None:
    """Run a hub until it is told to end. Raises ScenarioError for wrong options, FederationError where it cannot."""
    try:
        from fedsvm.scenarios.hub import connections
        from fedsvm.scenarios.hub.demo import CREATOR, prepare
        from fedsvm.scenarios.hub.roles import Roles
        from fedsvm.scenarios.hub.service import Hub, Settings, application
    except ImportError as error:
        raise FederationError(f"{_EXTRA} ({error.name} is missing.)") from error

    roles = Roles.read(admins, makers)
    if demo and not roles.can_create(CREATOR):
        raise ScenarioError([f"--demo: {CREATOR} creates the example task; add it with --maker."])
    os.umask(0o077)  # the database and the runs' files are made by libraries, which know no other way
    host, port = _address("--listen", listen)
    with _bind(host, port) as bound:
        port = bound.getsockname()[1]
        shown = "localhost" if host in ("127.0.0.1", "0.0.0.0", "localhost") else host  # noqa: S104
        where = (url or f"http://{shown}:{port}").rstrip("/")
        settings = Settings(
            folder=folder,
            url=where,
            database=database or f"sqlite:///{(folder / 'hub.sqlite').resolve()}",
            sender=sender,
            every_s=every_s,
            roles=roles,
            pyodide=pyodide,
        )
        logging.basicConfig(level=logging.WARNING, stream=errors.file, format="%(levelname)s: %(message)s")
        hub = Hub(settings, _mail_sender(smtp, folder))
        say("hub", f"listens at {where}; mails go to {smtp or folder / 'mails'}")
        if demo:
            path = prepare(hub.tasks, hub.accounts, folder / "demo")
            say("hub", f"the example task is ready; sign in at {where}{path}")
            say("hub", f"the participants' files are in {folder / 'demo'}, and their invitations in {folder / 'mails'}")
        asyncio.run(connections.answer(application(hub), bound))


def _mail_sender(smtp: str, folder: Path) -> MailSender:
    from fedsvm.scenarios.hub.mails import Files, Smtp

    return Smtp(*_address("--smtp", smtp)) if smtp else Files(folder / "mails")


def _address(option: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ScenarioError([f"{option}: must be an address such as 127.0.0.1:8000, got {text}."])
    return host.strip("[]"), int(port)


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=512)
    except OSError as error:
        raise FederationError(
            f"The hub cannot listen at {host}:{port} ({os.strerror(error.errno or 0)}); use another address (--listen)."
        ) from error
