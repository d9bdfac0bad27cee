"""Standard streams that may be closed during a run, or from its start.

A command imports this module first, so it imports only the standard library.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any


class OutputLost(Exception):
    """Standard output cannot be written any more. The message is the system's reason."""

    def __init__(self, number: int | None) -> None:
        super().__init__(os.strerror(number) if number else "it is closed")
        self.reader_left = number == errno.EPIPE


class _Output(io.FileIO):
    """Standard output. After an error, all further output is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            _open_null(self.fileno())
            raise OutputLost(error.errno) from None


class _ErrorOutput(io.FileIO):
    """Standard error. Output that cannot be written is dropped without an error."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            _open_null(self.fileno())
            return len(data)


def _open_null(descriptor: int, flags: int = os.O_WRONLY) -> None:
    null = os.open(os.devnull, flags)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)
    os.set_inheritable(descriptor, True)  # otherwise the first socket of a site process would get its number


def guard_streams() -> None:
    """Make all printing detect a closed standard output, and survive a closed standard error.

    Streams that are closed from the start are opened on the null device, so that no file or socket of a run gets their
    descriptors.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            _open_null(descriptor, flags)
    encoding = next((stream.encoding for stream in (sys.stdout, sys.stderr) if stream is not None), "utf-8")
    sys.stdout = _text(_Output(1, "w", closefd=False), encoding)
    sys.stderr = _text(_ErrorOutput(2, "w", closefd=False), encoding)


def _text(raw: io.FileIO, encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors="backslashreplace", line_buffering=raw.isatty())
