"""A cache of one launcher, kept for a moment after a federation so that the next need not load everything again.

A cross-validation of ten fits is ten federations one after the other. The server of the first forks the sites of all of
them, and ends by itself after `REST_S` seconds without work. A command starts its server while it reads its data.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedsvm.federation.processes.child import Child
from fedsvm.federation.processes.forkserver import REST_S
from fedsvm.federation.processes.launcher import LocalLauncher

_SET_BY_LIBRARIES = "KMP_"
"""The prefix of environment variables that libraries set when they are loaded."""


@dataclass(frozen=True, eq=False)
class _KeptLauncher:
    """A launcher without sites, the environment of its server, and the timer for the server's end."""

    launcher: LocalLauncher
    surroundings: Any
    timer: threading.Timer | None = None

    def release(self) -> LocalLauncher:
        """Cancel the timer and return the launcher."""
        if self.timer is not None:
            self.timer.cancel()
        return self.launcher


class _LauncherCache:
    """At most one launcher that is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: _KeptLauncher | None = None

    def adopt(self, module: str, server: Child) -> None:
        """Keep a server that was just started, until it is needed."""
        self._replace(_KeptLauncher(LocalLauncher(module, server), _surroundings(module)))

    def take(self, module: str) -> LocalLauncher:
        """Return the kept launcher if it still answers and its environment is the current one; otherwise a new one."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is None:
            return LocalLauncher(module)
        launcher = kept.release()
        try:
            surroundings = _surroundings(module)
            if surroundings is not None and kept.surroundings == surroundings and launcher.resume():
                return launcher
        except BaseException:
            launcher.close()
            raise
        launcher.close()
        return LocalLauncher(module)

    def keep(self, module: str, launcher: LocalLauncher) -> None:
        """Keep a launcher without sites, until its server has ended by itself."""
        timer = threading.Timer(REST_S, self.close, [launcher])
        timer.daemon = True
        self._replace(_KeptLauncher(launcher, _surroundings(module), timer))
        timer.start()

    def close(self, launcher: LocalLauncher | None = None) -> None:
        """End the kept launcher; if a launcher is given, only if it is the kept one."""
        with self._lock:
            if self._kept is None or launcher not in (None, self._kept.launcher):
                return
            kept, self._kept = self._kept, None
        kept.release().close()

    def disown(self) -> None:
        """Leave the parent's launcher to the parent process, after a fork."""
        self._lock = threading.Lock()
        if self._kept is not None:
            self._kept.launcher.disown()
        self._kept = None

    def _replace(self, kept: _KeptLauncher) -> None:
        with self._lock:
            replaced, self._kept = self._kept, kept
        if replaced is not None:
            replaced.release().close()


def _surroundings(module: str) -> Any:
    """Return the environment that determines a server, or None if there is no current folder."""
    try:
        folder = os.getcwd()  # noqa: PTH109 - only compared
    except OSError:
        return None
    known = {name: value for name, value in os.environ.items() if not name.startswith(_SET_BY_LIBRARIES)}
    return module, folder, known


SPARE = _LauncherCache()
"""The cache of this process."""

atexit.register(SPARE.close)
os.register_at_fork(after_in_child=SPARE.disown)


@contextmanager
def spare_launcher(module: str) -> Iterator[LocalLauncher]:
    """Provide a launcher for one federation. Its sites end with the context; its server ends unless it is soon reused.

    Parameters
    ----------
    module : str
        See `LocalLauncher`.
    """
    launcher = SPARE.take(module)
    try:
        yield launcher
        if launcher.rest():
            SPARE.keep(module, launcher)
            return
    except BaseException:
        launcher.close()
        raise
    launcher.close()
