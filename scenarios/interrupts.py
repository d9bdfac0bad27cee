"""Ctrl-C, SIGTERM and SIGHUP: the first one ends the work in progress, and no other disturbs the clean-up.

Four plainer designs do not work here:

- Python's own handler raises KeyboardInterrupt between any two instructions. In an import, extension modules turn it
  into ImportError and other modules stay half imported. In `__del__`, in callbacks of weak references and in generators
  that are thrown away, the interpreter prints it and goes on. A second one interrupts the clean-up after the first.
- A flag that is read by the loop that waits for messages, and between rounds: nobody reads it while data are loaded,
  while the coordinator computes, or in an audit, which take minutes and have no rounds.
- A flag for the first signal and Python's own handler for the second: impatient users press Ctrl-C many times, and the
  second one would leave a result half written and sites running.
- Blocking signals by `pthread_sigmask`: the kernel gives them to another thread, and Python runs the handler all the
  same.

So the handler raises KeyboardInterrupt at once, except in these cases. In an import it comes again a moment later,
until the import is done. Where the interpreter could only print it, it comes once more. Where a context holds it back,
as while results are written, it is raised afterwards. For some seconds after it was raised, further ones are ignored.
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
"""Seconds for ending the sites and writing results, before another signal is raised."""

_TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.01


class Interrupts:
    """A signal handler that raises KeyboardInterrupt only where that can be dealt with.

    As a context it replaces the handlers in Python of all three signals, and calls them in place of raising. It holds
    signals back outside of `allowed`, and passes on one that is still held back when it ends. Outside of the main
    thread it leaves signals alone.
    """

    _raised_s: ClassVar[float] = -math.inf
    """When this process was interrupted last; the contexts of a process may be nested."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._hook_before = sys.unraisablehook
        self._imports = _imports(sys._getframe())  # of a program that is run by being imported
        self._holds = False
        self._kept: int | None = None
        self._kept_s = 0.0

    @property
    def has_raised(self) -> bool:
        """True if this process was interrupted."""
        return self._raised_s > -math.inf

    def listen(self, *numbers: int) -> None:
        """Handle these signals; outside of a context, as Python's own handler does."""
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
        if self.has_raised:  # the caller gets some seconds for its own end
            Interrupts._raised_s = time.monotonic()
        for number, handler in reversed(self._before.items()):  # Ctrl-C last: it may raise from here on
            signal.signal(number, handler)
        if self._kept is not None and kind is None and not self.has_raised:
            self._raise(self._kept, None)

    @contextmanager
    def allow(self) -> Iterator[None]:
        """Raise interrupts within, and at once one that was held back."""
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
        if _imports(frame) > self._imports and now - self._kept_s < GRACE_S:  # an import that hangs is interrupted
            _thread.start_new_thread(self._press, ())  # a Thread takes locks, which the interrupted code may hold
        else:
            self._raise(number, frame)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        """Call the handler that was there before the outermost context."""
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
    """Handle SIGTERM as Ctrl-C is handled from now on, and SIGHUP unless it is ignored, as `nohup` does."""
    for number in _TERMINATIONS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.getsignal(signal.SIGINT))


def _imports(frame: FrameType | None) -> int:
    """Return how many calls of the import machinery are under way in a frame."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    return count
