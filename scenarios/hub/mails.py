"""Mails: what is written to whom, once for each occasion, and how it is sent.

A mail is put in the database in the very transaction that is the reason for it, and sent afterwards. As a file it is
written under its number, so that a hub that ends in between writes the same file again; by SMTP its Message-ID is the
same, by which servers and readers know a second copy. Its text may hold a link, and lies sealed in the database.

One that a server refuses is tried again, the less often the older it is, and given up in the end: what nobody takes
keeps nothing else from being sent.
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

from fedsvm.federation.errors import Malformed
from fedsvm.federation.offline.sealing import Vault
from fedsvm.federation.text import visible
from fedsvm.scenarios.hub.database import MAX_SUBJECT, Database, Mail, digest
from fedsvm.scenarios.run.result import write_whole

_TIMEOUT_S = 20.0
_MAX_AT_ONCE = 50
_FIRST_RETRY_S, _MAX_RETRY_S = 5.0, 3600.0
_GIVEN_UP_S = 3 * 24 * 3600.0


class MailSender(Protocol):
    """Sends mails."""

    async def send(self, number: int, message: EmailMessage) -> None:
        """Send one. Raises OSError, or what the library raises."""


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

        await aiosmtplib.send(message, hostname=self._host, port=self._port, timeout=_TIMEOUT_S)


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
        """Queue a mail, unless there was one for this occasion."""
        if session.scalar(sql.select(Mail.id).filter_by(occasion=occasion)) is not None:
            return
        sealed, now = self._vault.seal(text.encode(), occasion), time.time()
        subject = visible(" ".join(subject.split()))[:MAX_SUBJECT]
        session.add(
            Mail(occasion=occasion, recipient=recipient, subject=subject, sealed=sealed, made_at=now, try_at=now)
        )

    def due(self) -> list[tuple[int, EmailMessage]]:
        """Return the mails to send now, the oldest first."""
        now = time.time()
        unsent = sql.select(Mail).filter_by(sent_at=None).where(Mail.try_at <= now, Mail.made_at > now - _GIVEN_UP_S)
        with self._database.reading() as session:
            mails = session.scalars(unsent.order_by(Mail.try_at, Mail.id).limit(_MAX_AT_ONCE))
            return [(mail.id, self._message(mail)) for mail in mails]

    def note(self, number: int, problem: str = "") -> None:
        """Record that a mail was sent, or why not. An unsent mail then waits as long again as it is old."""
        now = time.time()
        with self._database.session() as session:
            mail = session.get_one(Mail, number)
            mail.problem, mail.sent_at = problem, None if problem else now
            mail.try_at = now + min(max(now - mail.made_at, _FIRST_RETRY_S), _MAX_RETRY_S)

    def _message(self, mail: Mail) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self._sender, mail.recipient
        message["Subject"] = mail.subject.replace("=?", "= ?")  # what seems encoded would be decoded, line ends and all
        message["Date"] = format_datetime(datetime.fromtimestamp(mail.made_at, tz=UTC))
        message["Message-ID"] = f"<{digest(mail.occasion).hex()[:32]}@{self._sender.rpartition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"
        try:
            text = self._vault.open(mail.sealed, mail.occasion).decode()
        except Malformed:
            text = "The text of this mail is lost, because the key of the hub has changed.\n"
        message.set_content(text, cte="7bit" if text.isascii() else "quoted-printable")  # links stay in one piece
        return message
