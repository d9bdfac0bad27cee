"""Mails: what is written to whom, once for each occasion, and how it is sent.

A mail is put in the database in the very transaction that is the reason for it, and sent afterwards. As a file it is
written under its number, so that a hub that ends in between writes the same file again; by SMTP its Message-ID is the
same, by which servers and readers know a second copy. Its text may hold a link, and lies sealed in the database.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Protocol

import sqlalchemy as sql
from sqlalchemy.orm import Session

from federation.errors import Malformed
from federation.visits.sealing import Vault
from scenarios.hub.database import Database, Mail, digest
from scenarios.run.result import write_whole

_TIMEOUT_S = 20.0
_MOST_AT_ONCE = 50


class Carrier(Protocol):
    """Sends mails."""

    async def send(self, number: int, message: EmailMessage) -> None:
        """Send one. Raises OSError, or what the library raises, with a sentence."""


class Files:
    """Writes mails as .eml files into a folder, in place of sending them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder

    async def send(self, number: int, message: EmailMessage) -> None:
        """Write one file, under its number."""
        write_whole(self._folder / f"{number:05d}.eml", lambda file: file.write(message.as_bytes()))


class Smtp:
    """Sends mails to a server.

    Parameters
    ----------
    host : str
    port : int
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def send(self, number: int, message: EmailMessage) -> None:
        """Hand one over to the server, encrypted where it can be."""
        import aiosmtplib

        try:
            await aiosmtplib.send(message, hostname=self._host, port=self._port, timeout=_TIMEOUT_S)
        except aiosmtplib.SMTPException as error:
            raise OSError(str(error)) from error


class Outbox:
    """The mails of a hub.

    Parameters
    ----------
    database : Database
    vault : Vault
        By which texts lie sealed.
    sender : str
        The hub's own address.
    """

    def __init__(self, database: Database, vault: Vault, sender: str) -> None:
        self._database = database
        self._vault = vault
        self._sender = sender

    def put(self, session: Session, occasion: str, recipient: str, subject: str, text: str) -> None:
        """Have a mail sent, unless there was one for this occasion."""
        if session.scalar(sql.select(Mail.id).filter_by(occasion=occasion)) is not None:
            return
        sealed = self._vault.seal(text.encode(), occasion)
        subject = " ".join(subject.split())
        session.add(Mail(occasion=occasion, recipient=recipient, subject=subject, sealed=sealed, made_at=time.time()))

    def due(self) -> list[tuple[int, EmailMessage]]:
        """Mails that were not sent, the oldest first."""
        with self._database.session() as session:
            found = session.scalars(sql.select(Mail).filter_by(sent_at=None).order_by(Mail.id).limit(_MOST_AT_ONCE))
            return [(mail.id, self._message(mail)) for mail in found]

    def note(self, number: int, problem: str = "") -> None:
        """A mail was sent, or not, and why."""
        with self._database.session() as session:
            mail = session.get_one(Mail, number)
            mail.problem, mail.sent_at = problem, None if problem else time.time()

    def _message(self, mail: Mail) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self._sender, mail.recipient, mail.subject
        message["Date"] = format_datetime(datetime.fromtimestamp(mail.made_at, tz=UTC))
        message["Message-ID"] = f"<{digest(mail.occasion).hex()[:32]}@{self._sender.rpartition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"
        try:
            text = self._vault.open(mail.sealed, mail.occasion).decode()
        except Malformed:
            text = "The text of this mail was sealed with another key of the hub, and is lost.\n"
        message.set_content(text, cte="7bit" if text.isascii() else "quoted-printable")  # links stay in one piece
        return message
