"""The sealed store of a site between its visits: the facts of its run, everything received, and everything sent.

Each record is on the disk before it has an effect: a received message before the site uses it, and a message of the
site before it is sent. So after an interruption at any moment the next visit sends the same again, and a hub cannot
make a site send two different messages in one place. The file has for each record

    length of what follows (8 bytes, little-endian) | nonce (12) | sealed msgpack [what, value] | tag (16)

and an incomplete record, for example after a power cut, counts as never written.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

import msgpack

from fedsvm.federation.errors import FederationError, Malformed
from fedsvm.federation.offline.sealing import Vault
from fedsvm.federation.site.private_file import replace_private
from fedsvm.federation.transport import wire
from fedsvm.federation.transport.wire import Message

_LENGTH = struct.Struct("<Q")
SECRET_BYTES = 32
OVER = "over"
"""The one fact that remains of a finished run."""
_FACTS, _IN, _OUT = "facts", "in", "out"


class SiteStore:
    """The file of one site in one run.

    Parameters
    ----------
    path : Path
        Its file; earlier records are read, and new ones are appended.
    key : bytes
        The sealing key of 32 bytes.

    Attributes
    ----------
    facts : mapping
        The facts of earlier visits, by name; empty before the first.
    received : list of Message
        All received messages, in order.
    sent : list of Message
        All sent messages, in order.

    Raises
    ------
    FederationError
        Another visit is running, the file cannot be opened, or it was sealed with another key.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        self._path = path
        self._vault = Vault(key)
        self._count = 0
        self.facts: Mapping[str, Any] = {}
        self.received: list[Message] = []
        self.sent: list[Message] = []
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise FederationError(f"{path} cannot be opened: {error.strerror}.") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BlockingIOError:
            os.close(self._file)
            raise FederationError(f"Another visit is running and writes {path}; wait until it has ended.") from None
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)

    def note(self, facts: Mapping[str, Any]) -> None:
        """Store further facts, which are plain values."""
        self._append(_FACTS, dict(facts))

    def add_received(self, message: Message) -> None:
        """Store a received message."""
        self._append(_IN, message.frame)

    def add_sent(self, message: Message) -> None:
        """Store a message before it is sent."""
        self._append(_OUT, message.frame)

    def close_for_good(self, facts: Mapping[str, Any]) -> None:
        """Delete the secrets of the run and all messages, so that only these facts remain.

        Nothing can be stored afterwards.
        """
        self._count, self.facts, self.received, self.sent = 0, {}, [], []
        framed = self._frame(_FACTS, dict(facts))

        def write(file: IO[bytes]) -> None:
            file.write(framed)
            file.flush()
            os.fsync(file.fileno())

        try:
            replace_private(str(self._path), write)
        except OSError as error:
            raise self._unwritten(error) from error
        self._take(_FACTS, facts)

    def _frame(self, what: str, value: Any) -> bytes:
        sealed = self._vault.seal(msgpack.packb([what, value]), str(self._count))
        return _LENGTH.pack(len(sealed)) + sealed

    def _unwritten(self, error: OSError) -> FederationError:
        return FederationError(f"{self._path} cannot be written: {error.strerror}; make room there.")

    def _append(self, what: str, value: Any) -> None:
        framed = memoryview(self._frame(what, value))
        try:
            while framed:
                framed = framed[os.write(self._file, framed) :]
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritten(error) from error
        self._take(what, value)

    def _take(self, what: str, value: Any) -> None:
        self._count += 1
        if what == _FACTS:
            self.facts = {**self.facts, **value}
        else:
            try:
                message = wire.decode(value)
            except (Malformed, TypeError) as error:
                raise FederationError(
                    f"{self._path} was written by another version of fedsvm; use the version of the earlier visits."
                ) from error
            (self.received if what == _IN else self.sent).append(message)

    def _read(self) -> None:
        content, place = memoryview(self._path.read_bytes()), 0
        while place + _LENGTH.size <= len(content):
            end = place + _LENGTH.size + int(_LENGTH.unpack_from(content, place)[0])
            if end > len(content):
                break
            try:
                record = self._vault.open(bytes(content[place + _LENGTH.size : end]), str(self._count))
            except Malformed as error:
                raise FederationError(
                    f"{self._path} was sealed with another key, or is damaged; use the unchanged folder of the earlier "
                    "visits."
                ) from error
            self._take(*msgpack.unpackb(record))
            place = end
        os.ftruncate(self._file, place)
