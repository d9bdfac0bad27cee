"""Ctrl-C and SIGTERM during a run: the first ends it, and no other disturbs what has to be done then.

What an interrupt does is for the handlers to say that were there before: here they are only called at the right time.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context in which interrupts are heard, and raised only where they may be, and only once.

    One that came where none may, with none before it, is raised as the context ends. A signal without a handler in
    Python, or of a program that runs this outside of its main thread, is left alone.
    """

    def __init__(self) -> None:
        self._allowed = self._raised = False
        self._kept: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            handlers = {int(number): signal.getsignal(number) for number in _SIGNALS}
            self._before = {number: handler for number, handler in handlers.items() if callable(handler)}
        for number in self._before:
            signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._kept is not None and not self._raised and kind is None:
            self._before[self._kept](self._kept, None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Within, the first interrupt is raised. Those that follow find it being dealt with."""
        self._allowed = True
        try:
            yield
        finally:
            self._allowed = False

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._allowed and not self._raised:
            self._raised = True
            self._before[number](number, frame)
        else:
            self._kept = number
