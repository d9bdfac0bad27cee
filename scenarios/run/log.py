"""The file `log.jsonl`, to which a run writes each event when it happens."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from fedsvm.scenarios.run.result import write_whole

NAME = "log.jsonl"


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a run, without an incomplete last line; none if the file is missing."""
    path = folder / NAME
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines()]


class RunLog:
    """Writes the log of a federation to a file, a line of JSON for each event.

    An error of the file does not end the run: `close` raises it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = 0
        self._is_whole = True
        self._file: IO[bytes] | None = None

    def follow(self, events: Sequence[dict[str, Any]]) -> None:
        """Write the new events. events: all events so far, in order."""
        if not self._is_whole:
            return
        try:
            self._file = self._file or self._open_file()
            while self._written < len(events):
                self._file.write(_line(events[self._written]))
                self._written += 1
        except OSError:
            self._is_whole = False

    def _open_file(self) -> IO[bytes]:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return os.fdopen(descriptor, "wb", buffering=0)

    def close(self, events: Sequence[dict[str, Any]]) -> None:
        """Write all events to disk. Raises OSError."""
        self.follow(events)
        file, self._file = self._file, None
        if file is not None:
            with file:
                os.fsync(file.fileno())
        if not self._is_whole:
            write_whole(self._path, lambda whole: whole.writelines(map(_line, events)))


def _line(event: dict[str, Any]) -> bytes:
    return f"{json.dumps(event)}\n".encode()
