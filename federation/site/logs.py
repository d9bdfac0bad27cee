"""The log records of a site's code, on their way to the coordinator.

Warnings of libraries (`warnings`) are included. A record is sent at once over the connection for orders, and has left
the process before the code continues, so that the last record before a process dies arrives too.

Security. The author of the site's code composes the text of a record. The coordinator receives it in the clear and
records it as a disclosure. Only arguments that are text or single numbers are inserted: the name of its type replaces
an array, a table, an exception or any other object, and no traceback is sent. So whole rows are never sent, but a
program that formats a value of a row into its own text reveals it. A site with such a program should forward nothing,
see `SILENT`.
"""

from __future__ import annotations

import logging
import numbers
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from fedsvm.federation.control import MAX_LOG_TEXT
from fedsvm.federation.errors import PeerDropped
from fedsvm.federation.site_messages import LOG_LEVELS, MAX_LOGGER_NAME, LogRecord
from fedsvm.federation.text import visible

SILENT = "none"
"""The level at which nothing is sent: records go to the site's standard error, as usual in Python."""

RECORDS_PER_ROUND = 10
"""Maximum number of records in a round; the coordinator receives only the number of further ones."""

MAX_RECORDS = 500
"""Maximum number of records sent by one site process."""


class LogForwarder(logging.Handler):
    """Sends the log records of this process.

    Parameters
    ----------
    level : {"debug", "info", "warning", "error"}
        The minimum level of records to send.
    send : callable
        Sends one record. If it raises PeerDropped, the coordinator cannot be reached now, and the record waits.
    """

    def __init__(self, level: str, send: Callable[[LogRecord], None]) -> None:
        super().__init__(level.upper())
        self._send = send
        self._waiting: deque[LogRecord] = deque()
        self._in_round = self._in_all = self._withheld = 0
        self._is_sending = False
        self._process = os.getpid()

    def install(self) -> None:
        """Send all records of this process, and the warnings of libraries."""
        root = logging.getLogger()
        root.addHandler(self)
        if root.level != self.level:  # setting it clears the cache of every logger
            root.setLevel(self.level)
        logging.captureWarnings(True)

    def remove(self) -> None:
        """Stop sending records, in a process that continues."""
        logging.getLogger().removeHandler(self)
        logging.captureWarnings(False)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, unless there were too many. Only the main thread uses sockets: records of others wait for it.

        Records of a process that the site's code forks go to standard error.
        """
        if os.getpid() != self._process:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        if self._in_round >= RECORDS_PER_ROUND or self._in_all >= MAX_RECORDS:
            self._withheld += 1
            return
        self._in_round += 1
        self._in_all += 1
        name = visible(record.name)[:MAX_LOGGER_NAME]
        self._waiting.append(LogRecord(_level(record.levelno), name, _text(record)))
        if threading.current_thread() is threading.main_thread():
            self.forward()

    def end_round(self) -> None:
        """Send waiting records and the number of omitted ones; the next round starts at 0."""
        self._in_round = 0
        if self._withheld and self._in_all < MAX_RECORDS:
            more = (
                f"{self._withheld} more records of this site were not forwarded (maximum {RECORDS_PER_ROUND} a round)."
            )
            self._withheld = 0
            self._in_all += 1
            self._waiting.append(LogRecord("warning", __name__, more))
        self.forward()

    def forward(self) -> None:
        """Send waiting records, as far as the coordinator can be reached."""
        if self._is_sending:  # records that sending itself causes wait until it is done
            return
        self._is_sending = True
        try:
            while self._waiting:
                self._send(self._waiting[0])
                self._waiting.popleft()
        except PeerDropped:
            pass
        finally:
            self._is_sending = False


def _level(number: int) -> str:
    """Return the standard level of a number."""
    reached = [name for name in LOG_LEVELS if number >= logging.getLevelNamesMapping()[name.upper()]]
    return reached[-1] if reached else LOG_LEVELS[0]


def _text(record: logging.LogRecord) -> str:
    """Return the message on one line. Arguments that are neither text nor numbers are replaced by their type."""
    template = str(_plain(record.msg))
    arguments: Any = record.args
    try:
        if isinstance(arguments, Mapping):
            template %= _ByName(arguments)
        elif arguments:
            template %= tuple(map(_plain, arguments))
    except Exception:  # noqa: BLE001 - an invalid record must not end the step that logged it
        template = f"{template} (its arguments do not fit)"
    kind = record.exc_info[0] if record.exc_info else None
    raised = f" ({kind.__name__})" if kind is not None else ""
    line = visible(" ".join(f"{template}{raised}".split()))
    return line if len(line) <= MAX_LOG_TEXT else f"{line[: MAX_LOG_TEXT - 1]}…"


class _ByName(dict[str, object]):
    """Arguments that a message inserts by name. Inserted as a whole, they appear as the name of their type.

    Python's `logging` passes a table that is the only argument in this way, whether it is a row or counts by value.
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        super().__init__({name: _plain(value) for name, value in values.items()})
        self._whole = str(_plain(values))

    def __repr__(self) -> str:
        return self._whole


def _plain(value: object) -> object:
    """Return the value if it is text or a single number, otherwise its type in angle brackets."""
    if value is None or isinstance(value, (str, numbers.Number)):
        return value
    return f"<{type(value).__name__}>"
