"""Ctrl-C and SIGTERM: the first ends what is done, wherever it falls, and no other disturbs what has to be done then.

Python raises KeyboardInterrupt between any two lines, and at two kinds of place it is lost. An import in the middle may
make another error of it (extension modules do), or leave half a module; it is raised when the import is done. In a
callback of a weak reference, in `__del__` and the like the interpreter prints it and goes on; it is raised once more.
"""

from __future__ import annotations

import _thread
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

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_S = 0.01
_IMPORTS = "<frozen importlib"
"""How the file names of the interpreter's own import machinery begin."""


class Interrupter:
    """A signal handler that raises KeyboardInterrupt: one that is not lost, and not another while it is dealt with."""

    def __init__(self) -> None:
        self._is_over = False
        self._heard_s = -GRACE_S
        self._number = int(signal.SIGINT)
        self._imports = _imports(sys._getframe())  # of a program that is run by being imported

    def listen(self, *numbers: signal.Signals) -> None:
        """Deal with these from now on, for good."""
        for number in numbers:
            signal.signal(number, self)
        sys.unraisablehook = self.unraisable

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._is_over or time.monotonic() - self._heard_s < GRACE_S:
            return
        self._number = number
        if _imports(frame) > self._imports:
            self._call_again()
            return
        self._heard_s = time.monotonic()
        raise KeyboardInterrupt

    def unraisable(self, lost: UnraisableHookArgs) -> None:
        """As `sys.unraisablehook`: an interrupt that the interpreter could only print comes once more."""
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(lost)
        elif not self._is_over:
            self._heard_s = -GRACE_S
            self._call_again()

    def end(self) -> None:
        """Hear no more: what the interpreter does at its end is no place to interrupt."""
        self._is_over = True
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _call_again(self) -> None:
        _thread.start_new_thread(_press, (self._number,))  # a Thread takes locks, which who is interrupted may hold


class Interrupts:
    """A context in which interrupts are heard, and raised only where they may be.

    One that came where none may, with none before it that ended anything, is raised as the context ends. What an
    interrupt does is for the handlers to say that were there before, where they are not Python's own. A signal without
    a handler in Python, or of a program that runs this outside of its main thread, is left alone.
    """

    def __init__(self) -> None:
        self._allowed = self._ended = False
        self._kept: int | None = None
        self._before: dict[int, Any] = {}
        self._handlers: dict[int, Any] = {}
        self._hook_before = sys.unraisablehook

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is not threading.main_thread():
            return self
        found = {int(number): signal.getsignal(number) for number in _SIGNALS}
        self._before = {number: handler for number, handler in found.items() if callable(handler)}
        self._handlers = dict(self._before)
        if signal.default_int_handler in self._before.values():
            ours = Interrupter()
            sys.unraisablehook = ours.unraisable
            for number, handler in self._before.items():
                self._handlers[number] = ours if handler is signal.default_int_handler else handler
        for number in self._before:
            signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._handlers != self._before:
            sys.unraisablehook = self._hook_before
        if self._kept is not None and not self._ended and kind is None:
            self._before[self._kept](self._kept, None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Within, interrupts are raised, and what follows the first one finds it being dealt with."""
        self._allowed = True
        try:
            yield
        except KeyboardInterrupt:
            self._ended = True
            raise
        finally:
            self._allowed = False

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._allowed:
            self._handlers[number](number, frame)
        else:
            self._kept = number


def _imports(frame: FrameType | None) -> int:
    """How many calls of the import machinery are under way where a frame is."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(_IMPORTS)
        frame = frame.f_back
    return count


def _press(number: int) -> None:
    """Send this process a signal in a moment; its main thread hears it even where it waits for something."""
    time.sleep(_AGAIN_S)
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, number)
