"""Ctrl-C, SIGTERM and SIGHUP: the first one ends the work in progress, and no other disturbs the clean-up.

Four simpler designs do not work here:

- Python's own handler raises KeyboardInterrupt between any two instructions. In an import, extension modules turn it
  into ImportError, and other modules stay partly imported. In `__del__`, in callbacks of weak references and in
  discarded generators, the interpreter prints it and continues. A second signal interrupts the clean-up after the
  first.
- A flag that the poll loop reads, and the coordinator between rounds: nothing reads it while data are loaded, while the
  coordinator computes, or in an audit, which may take minutes without a round.
- A flag for the first signal and Python's own handler for the second: impatient users press Ctrl-C many times, and the
  second signal would leave a result partly written and sites running.
- Blocking signals by `pthread_sigmask`: the kernel delivers them to another thread, and Python still runs the handler.

So the handler raises KeyboardInterrupt at once, with these exceptions. During an import it repeats the signal a moment
later, until the import is done. If the interpreter could only print the exception, it repeats the signal once. If a
context defers interrupts, such as while results are written, it raises afterwards. For some seconds after it raised, it
ignores further signals.
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
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

GRACE_S = 10.0
"""Seconds to end the sites and to write results, in which further signals are ignored."""

_TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.01


class Interrupts:
    """A signal handler that raises KeyboardInterrupt only where it can be handled.

    As a context, it replaces the Python handlers of all three signals, and calls them instead of raising. It defers
    signals outside of `allow`, and delivers a deferred one when it ends. Outside of the main thread it does nothing.
    """

    _raised_s: ClassVar[float] = -math.inf
    """When this process was last interrupted, on the monotonic clock. Contexts may be nested."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._hook_before = sys.unraisablehook
        self._imports = _imports(sys._getframe())  # a program may run during an import, such as by runpy
        self._holds = False
        self._kept: int | None = None
        self._kept_s = 0.0

    @property
    def has_raised(self) -> bool:
        """True if this process was interrupted."""
        return self._raised_s > -math.inf

    def listen(self, *numbers: int) -> None:
        """Handle these signals; outside of a context, they raise KeyboardInterrupt."""
        if not any(isinstance(signal.getsignal(number), Interrupts) for number in numbers):
            Interrupts._raised_s = -math.inf
        sys.unraisablehook = self._unraisable
        for number in numbers:
            signal.signal(number, self)

    def end(self) -> None:
        """Ignore all signals from now on, since the interpreter cannot be interrupted as it ends."""
        Interrupts._raised_s = math.inf
        for number in (signal.SIGINT, *_TERMINATIONS):
            signal.signal(number, signal.SIG_IGN)

    def __enter__(self) -> Self:
        self._holds = True
        if threading.current_thread() is threading.main_thread():
            found = {number: signal.getsignal(number) for number in (signal.SIGINT, *_TERMINATIONS)}
            self._before = {number: handler for number, handler in found.items() if callable(handler)}
            self.listen(*self._before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if sys.unraisablehook == self._unraisable:
            sys.unraisablehook = self._hook_before
        if self.has_raised:  # the caller has some seconds for its own clean-up
            Interrupts._raised_s = time.monotonic()
        for number, handler in reversed(self._before.items()):  # Ctrl-C last, because it may raise afterwards
            signal.signal(number, handler)
        if self._kept is not None and kind is None and not self.has_raised:
            self._raise(self._kept, None)

    @contextmanager
    def allow(self) -> Iterator[None]:
        """Raise interrupts within this context, and first a deferred one."""
        try:
            self._holds = False
            if self._kept is not None:
                self._raise(self._kept, None)
            yield
        finally:
            self._holds = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._raised_s < GRACE_S:
            return
        if self._kept is None:
            self._kept, self._kept_s = number, now
        if self._holds:
            return
        if _imports(frame) > self._imports and now - self._kept_s < GRACE_S:  # later, a hanging import is interrupted
            _thread.start_new_thread(self._press, ())  # a Thread takes locks, which the interrupted code may hold
        else:
            self._raise(number, frame)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        """Call the handler from before the outermost context."""
        self._kept, handler = None, self._before.get(number)
        while isinstance(handler, Interrupts):
            handler._kept, handler = None, handler._before.get(number)
        try:
            (handler if callable(handler) else signal.default_int_handler)(number, frame)
        except BaseException:
            Interrupts._raised_s = time.monotonic()
            raise

    def _unraisable(self, lost: UnraisableHookArgs) -> None:
        """Interrupt again, as `sys.unraisablehook`, if the interpreter could only print that it was interrupted."""
        if issubclass(lost.exc_type, KeyboardInterrupt):
            Interrupts._raised_s = -math.inf
            self._kept, self._kept_s = signal.SIGINT, time.monotonic()
            _thread.start_new_thread(self._press, ())
        else:
            self._hook_before(lost)

    def _press(self) -> None:
        """Send the signal again in a moment; the main thread receives it even if it waits for something."""
        time.sleep(_AGAIN_S)
        number, main = self._kept, threading.main_thread().ident
        if number is not None and main is not None:
            signal.pthread_kill(main, number)


def terminate_as_interrupted() -> None:
    """Handle SIGTERM like Ctrl-C from now on; also SIGHUP, unless it is ignored, as under `nohup`."""
    for number in _TERMINATIONS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.getsignal(signal.SIGINT))


def _imports(frame: FrameType | None) -> int:
    """Return the number of calls of the import machinery on the stack of a frame."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    return count
