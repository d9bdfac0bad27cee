"""Ctrl-C, SIGTERM and SIGHUP: the first one ends the work in progress, and no other disturbs the clean-up.

Python raises KeyboardInterrupt between any two lines, and there are places where that is lost. An import in the middle
may make another error of it (extension modules do), or leave half a module; it is raised when the import is done. In a
callback of a weak reference, in `__del__` and the like the interpreter prints it and goes on; it is raised once more.
"""

from __future__ import annotations

import _thread
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

GRACE_S = 10.0
"""How long a first Ctrl-C has for ending the sites and writing what is known, before another is heard."""

_TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)
_SIGNALS = (signal.SIGINT, *_TERMINATIONS)
_AGAIN_S = 0.01
_IMPORTS = "<frozen importlib"
"""How the file names of the interpreter's own import machinery begin."""


class Interrupter:
    """A signal handler that raises KeyboardInterrupt: one that is not lost, and not another while it is dealt with."""

    def __init__(self) -> None:
        self._is_over = False
        self._heard_s = self._deferred_s = -math.inf
        self._coming: int | None = None
        self._hook_before = sys.unraisablehook
        self._imports = _imports(sys._getframe())  # of a program that is run by being imported

    @property
    def has_raised(self) -> bool:
        """Whether there was one, wherever it was dealt with."""
        return self._heard_s > -math.inf

    def listen(self, *numbers: signal.Signals) -> None:
        """Deal with these from now on, for good."""
        for number in numbers:
            signal.signal(number, self)
        sys.unraisablehook = self.unraisable

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._is_over or now - self._heard_s < GRACE_S:
            return
        if _imports(frame) > self._imports and self._may_wait(now):
            self._call_again(number)
            return
        self._heard_s = now
        raise KeyboardInterrupt

    def unraisable(self, lost: UnraisableHookArgs) -> None:
        """As `sys.unraisablehook`: an interrupt that the interpreter could only print comes once more."""
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            self._hook_before(lost)
        elif not self._is_over:
            self._heard_s = -math.inf
            self._call_again(signal.SIGINT)

    def end(self) -> None:
        """Hear no more: what the interpreter does at its end is no place to interrupt."""
        self._is_over = True
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def withdrawn(self) -> int | None:
        """The signal that was to come again, which will not."""
        coming, self._coming = self._coming, None
        return coming

    def _may_wait(self, now: float) -> bool:
        """Whether an import has not been waited for too long: one that hangs is interrupted all the same."""
        if now - self._deferred_s > 2 * GRACE_S:
            self._deferred_s = now
        return now - self._deferred_s < GRACE_S

    def _call_again(self, number: int) -> None:
        if self._coming is None:
            self._coming = number
            _thread.start_new_thread(self._press, ())  # a Thread takes locks, which who is interrupted may hold

    def _press(self) -> None:
        """Send the signal again in a moment; the main thread hears it even where it waits for something."""
        time.sleep(_AGAIN_S)
        number, main = self.withdrawn(), threading.main_thread().ident
        if number is not None and main is not None and not self._is_over:
            signal.pthread_kill(main, number)


class Interrupts:
    """A context in which interrupts are heard, and raised only where they may be, and not while one is dealt with.

    One that came where none may, with none before it that ended anything, is raised as the context ends. What an
    interrupt does is for the handlers to say that were there before, where they are not Python's own. A signal without
    a handler in Python, or of a program that runs this outside of its main thread, is left alone.
    """

    def __init__(self) -> None:
        self._allowed = self._ended = False
        self._raised_s = -math.inf
        self._kept: int | None = None
        self._before: dict[int, Any] = {}
        self._ours = Interrupter()
        self._hook_before = sys.unraisablehook

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            found = {int(number): signal.getsignal(number) for number in _SIGNALS}
            self._before = {number: handler for number, handler in found.items() if callable(handler)}
            sys.unraisablehook = self._unraisable
        for number in self._before:
            signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if sys.unraisablehook == self._unraisable:
            sys.unraisablehook = self._hook_before
        for number, handler in reversed(self._before.items()):  # Ctrl-C last: it may raise from here on
            signal.signal(number, handler)
        kept = self._ours.withdrawn() if self._kept is None else self._kept
        if kept is not None and not self._ended and kind is None:
            self._before[kept](kept, None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Within, interrupts are raised, and what follows the first one finds it being dealt with."""
        try:
            self._allowed = True
            if self._kept is not None:
                kept, self._kept = self._kept, None
                self._hear(kept, None)
            yield
        except KeyboardInterrupt:
            self._ended = True
            raise
        finally:
            self._allowed = False

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self._allowed:
            self._kept = number
        elif time.monotonic() - self._raised_s >= GRACE_S:
            before = self._before[number]
            handler = self._ours if before is signal.default_int_handler else before
            try:
                handler(number, frame)
            except BaseException:
                self._raised_s = time.monotonic()
                raise

    def _unraisable(self, lost: UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            self._raised_s = -math.inf
        if signal.default_int_handler in self._before.values():
            self._ours.unraisable(lost)
        else:
            self._hook_before(lost)


def terminate_as_interrupted() -> None:
    """Handle SIGTERM as Ctrl-C is handled from now on, and SIGHUP unless it is ignored, as `nohup` does."""
    for number in _TERMINATIONS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.getsignal(signal.SIGINT))


def _imports(frame: FrameType | None) -> int:
    """How many calls of the import machinery are under way where a frame is."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(_IMPORTS)
        frame = frame.f_back
    return count
