"""A thread that regularly shows the operator of a site what the site waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

SILENCE_S = 8.0
"""Seconds of silence after which a site prints a reminder."""
_END_S = 1.0
"""Maximum wait in seconds for a reminder that is being printed when the context ends: a terminal may block."""


class Reminders:
    """A context in which a site regularly prints its current activity if it has printed nothing for a while.

    Parameters
    ----------
    tell : callable
        Shows a sentence to the operator.
    silence_s : float, default SILENCE_S
        Seconds of silence after which a reminder is printed.

    Attributes
    ----------
    activity : callable
        Returns a description of what the site does now. It is called in a separate thread.
    """

    def __init__(self, tell: Callable[[str], None], silence_s: float = SILENCE_S) -> None:
        self.activity: Callable[[], str] = lambda: "starts"
        self._tell = tell
        self._silence_s = silence_s
        self._said_at = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join(timeout=_END_S)

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def tell(self, sentence: str) -> None:
        """Show a sentence now; the next reminder is due later by the silence."""
        self._said_at = time.monotonic()
        self._tell(sentence)

    def _repeat(self) -> None:
        while not self._is_over.wait(max(0.0, self._said_at + self._silence_s - time.monotonic())):
            if time.monotonic() - self._said_at >= self._silence_s:
                self.tell(self.activity())
