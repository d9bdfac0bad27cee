"""The terminal: text that cannot change how it is shown.

Names of columns, classes and files may come from strangers. So unprintable characters, such as the control characters
that a terminal executes, and line ends are shown as Python escapes, and no text is interpreted as markup.
"""

from __future__ import annotations

import io
import itertools
import json
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedsvm.federation.text import visible


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


errors = console(stderr=True)
out = console()


Position = tuple[str | None, int | None]
"""A run, by its number in hexadecimal, and the last round that a party knows; None before there is one."""


class _JsonLines(io.StringIO):
    """A text stream that writes each line to standard error as a JSON object."""

    def __init__(self, line: Callable[[str], str]) -> None:
        self._line, self._begun = line, ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(None, lines):
            sys.stderr.write(self._line(line) + "\n")
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _JsonFormatter(logging.Formatter):
    """A format of the standard library's log: a JSON object on one line, with the traceback in its message."""

    def __init__(self, line: Callable[[str], str]) -> None:
        super().__init__()
        self._line = line

    def format(self, record: logging.LogRecord) -> str:
        return self._line(super().format(record))


def log_as_json(party: str, position: Callable[[], Position] = lambda: (None, None)) -> None:
    """Write all further lines on standard error as JSON objects with `time`, `party`, `run`, `round` and `message`.

    This includes errors that the hub and libraries log.

    Parameters
    ----------
    party : str
        The name of the party that writes them.
    position : callable
        Returns the current run and round of the party.
    """

    def line(message: str) -> str:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        run, number = position()
        return json.dumps({"time": time, "party": party, "run": run, "round": number, "message": message})

    errors.file = _JsonLines(line)
    errors.width = 1_000_000  # one event is one line
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter(line))
    logging.basicConfig(handlers=[handler], force=True)


def complain(sentence: str) -> None:
    """Print an error on standard error."""
    errors.print(f"fedsvm: {visible(sentence)}", soft_wrap=True, style="red")


def say(who: str, sentence: str) -> None:
    """Print an event at a party on standard error."""
    errors.print(f"{who}: {visible(sentence)}", soft_wrap=True)


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows of text in columns. They are wrapped to the width of a terminal, and not wrapped elsewhere."""
    shown = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in itertools.zip_longest(*shown, fillvalue="")]
    if not out.is_terminal:
        for row in shown:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(min_width=min(widths[0], out.width // 2))  # names can be copied
    for cells in shown:
        table.add_row(*map(Text, cells))
    out.print(table)
