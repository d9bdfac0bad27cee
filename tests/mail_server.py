"""A mail server in the process of a test."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as MessageHandler

from tests.conftest import wait_until


class Inbox(MessageHandler):
    """The mails that a mail server received."""

    def __init__(self) -> None:
        super().__init__()
        self.mails: list[Message] = []

    def handle_message(self, message: Message) -> None:
        """Keep one mail."""
        self.mails.append(message)

    def found(self, to: str, pattern: str) -> str:
        """Return a pattern's match in the last mail to an address that has it; waits for it."""
        found: list[str] = []

        def is_there() -> bool:
            texts = [mail.get_payload(decode=True) for mail in self.mails if mail["To"] == to]
            found[:] = [match[0] for text in texts for match in re.finditer(pattern, bytes(text).decode())]
            return bool(found)

        wait_until(is_there)
        return found[-1]


@contextmanager
def mail_server() -> Iterator[tuple[Inbox, int]]:
    """A mail server in this process, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    inbox = Inbox()
    server = Controller(inbox, hostname="127.0.0.1", port=port)
    server.start()
    try:
        yield inbox, port
    finally:
        server.stop()
