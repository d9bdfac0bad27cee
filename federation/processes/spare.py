"""A launcher that outlives one federation by a moment, so that the next need not load everything again.

A cross-validation of ten fits is ten federations one after the other. The server of the first forks the sites of them
all; left alone for `REST_S` it ends by itself. And a command has its server start while it reads its data.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from federation.errors import LaunchError
from federation.processes.forkserver import REST_S
from federation.processes.launcher import LocalLauncher


class _Spare:
    """At most one launcher without sites, and what its server was started under."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[Any, LocalLauncher] | None = None

    def expire(self, launcher: LocalLauncher) -> None:
        """Take note that the server of this one has ended by itself, if it is still kept."""
        with self._lock:
            if self._kept is None or self._kept[1] is not launcher:
                return
            self._kept = None
        launcher.close()

    def start(self, module: str) -> None:
        """Have a new one started, while whoever is going to take it does something else."""
        self.keep(module, LocalLauncher(module))

    def take(self, module: str) -> LocalLauncher:
        """The one that is kept, if it would be started in the same way now and still answers; otherwise a new one."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            started_under, launcher = kept
            if started_under == _surroundings(module) and (launcher.workspace is None or launcher.resume()):
                return launcher
            if started_under[0] == os.getpid():
                launcher.close()
        return LocalLauncher(module)

    def keep(self, module: str, launcher: LocalLauncher) -> None:
        """Keep this one, in place of one that is kept already."""
        with self._lock:
            replaced, self._kept = self._kept, (_surroundings(module), launcher)
        if replaced is not None:
            replaced[1].close()

    def close(self) -> None:
        """End the one that is kept, unless it is another process's."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None and kept[0][0] == os.getpid():
            kept[1].close()


def _surroundings(module: str) -> Any:
    """What a server is what it is by; a process that was forked has not the right to its parent's."""
    return os.getpid(), module, os.getcwd(), dict(os.environ)  # noqa: PTH109 - compared, not worked with


SPARE = _Spare()
"""Of this process."""

atexit.register(SPARE.close)


@contextmanager
def spare_launcher(module: str) -> Iterator[LocalLauncher]:
    """A launcher for one federation; its sites end with the context, and its server unless it is soon used again.

    Parameters
    ----------
    module : str
        See `LocalLauncher`.
    """
    launcher = SPARE.take(module)
    try:
        yield launcher
    except BaseException:
        launcher.close()
        raise
    with suppress(LaunchError):
        launcher.rest()
        SPARE.keep(module, launcher)
        timer = threading.Timer(REST_S, SPARE.expire, [launcher])
        timer.daemon = True
        timer.start()
        return
    launcher.close()
