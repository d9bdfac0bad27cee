"""Starts site processes on this machine and watches them."""

from __future__ import annotations

import select
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsvm.federation.errors import LaunchError
from fedsvm.federation.processes import limits, pipe
from fedsvm.federation.processes.child import Child
from fedsvm.federation.processes.launcher_interface import Ended
from fedsvm.federation.processes.server_start import start_server
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import Party

_START_S = 60.0
_SITE_START_S = 0.05
"""Additional seconds allowed per site when thousands start: five times the start of one."""


class LocalLauncher:
    """Forks sites from a preloaded server process, and ends them all when it is closed.

    Parameters
    ----------
    module : str
        The module that the server runs by `python -m`: it names the installation whose programs the sites offer.
    server : Child, optional
        The server, if it was started before.

    Attributes
    ----------
    host : str
        The address at which this machine reaches itself.
    workspace : Path or None
        A folder for the partitions and ipc sockets of this run, once the server is up. It is removed when the launcher
        is closed, or when this process or the server is killed.
    pids : dict of str to int
        The current process of each site.
    struck : dict of int to float
        For each fault that a site inflicted on itself, by its number: when, on the monotonic clock in seconds.
    continued : list of (str, float)
        The stalled sites that continued, and when, on the monotonic clock in seconds.
    """

    def __init__(self, module: str, server: Child | None = None) -> None:
        self.host = "127.0.0.1"
        self.pids: dict[str, int] = {}
        self.struck: dict[int, float] = {}
        self.continued: list[tuple[str, float]] = []
        self._ended: list[Ended] = []
        self._server = server or start_server(module)
        self._stream = self._server.stream
        self.workspace: Path | None = None

    def __enter__(self) -> LocalLauncher:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def prepare(self) -> Path:
        """Wait until the server is up, and return the workspace that it created. Raises LaunchError."""
        return self._prepare(Deadline(_START_S))

    def _prepare(self, deadline: Deadline) -> Path:
        if self.workspace is not None:
            return self.workspace
        answer = self._read(deadline)
        if "error" in answer:
            raise LaunchError(answer["error"])
        self.workspace = Path(answer["workspace"])
        return self.workspace

    def start(self, assignments: Iterable[Assignment]) -> list[Party]:
        """Start a site for each assignment and wait until all have reported in. Raises LaunchError."""
        wanted = list(assignments)
        policies: list[SitePolicy] = []  # each once, because it names all sites
        for assignment in wanted:
            if assignment.policy not in policies:
                policies.append(assignment.policy)
        starts = [assignment.to_fields(policies.index(assignment.policy)) for assignment in wanted]
        order = {"policies": [asdict(policy) for policy in policies], "start": starts}
        # This process may load another library for linear algebra while the sites run.
        pipe.write(self._stream, order | {"spare_tasks": limits.pool_tasks()})
        parties: dict[str, Party] = {}
        deadline = Deadline(_START_S + _SITE_START_S * len(wanted))
        awaited = {assignment.name for assignment in wanted}
        while awaited:
            message = self._read(deadline)
            if party := self._reporting_site(message, awaited):
                parties[party.name] = party
                awaited.discard(party.name)
        return [parties[assignment.name] for assignment in wanted]

    def fileno(self) -> int:
        """Return a descriptor that is readable when a site or the server ended."""
        return self._stream.fileno()

    def collect_ended(self) -> list[Ended]:
        """Return the sites that ended since the last call. Raises LaunchError if the server itself is gone."""
        while select.select([self._stream], [], [], 0)[0]:
            message = pipe.read(self._stream)
            if message is None:
                raise LaunchError("The process that the sites are forked from was killed, and the sites with it.")
            self._note(message)
        ended, self._ended = self._ended, []
        return ended

    def rest(self) -> bool:
        """End the sites. Return whether their server waits a moment for another run, see `resume`."""
        return self._agrees_to("rest")

    def resume(self) -> bool:
        """Return whether the server is ready for another run: it rested, or is starting."""
        if self.workspace is None:
            return True
        self.pids, self.struck, self.continued, self._ended = {}, {}, [], []
        return self.workspace.is_dir() and self._agrees_to("resume")

    def disown(self) -> None:
        """Leave the server to the process that started it, since this process is a fork."""
        self._stream.close()

    def close(self) -> None:
        """End every process that is left, and remove the workspace."""
        if self.workspace is None:  # the server may still be loading libraries; a loaded one ignores the signal
            with suppress(LaunchError):  # in one long call it may be killed before it can remove its workspace
                self._prepare(Deadline(0))
            self._server.process.terminate()
        try:
            self._server.close()
        finally:
            if self.workspace is not None:
                shutil.rmtree(self.workspace, ignore_errors=True)

    def _agrees_to(self, request: str) -> bool:
        """Send a request to the server and wait until the server repeats it. Return whether it did."""
        deadline = Deadline(_START_S)
        with suppress(OSError, LaunchError):
            pipe.write(self._stream, {request: True})
            while request not in self._read(deadline):
                pass  # reports of sites that have ended
            return True
        return False

    def _reporting_site(self, message: dict[str, Any], awaited: set[str]) -> Party | None:
        """Return the site that reports in with this message, if it is such a message."""
        if "error" in message:
            raise LaunchError(message["error"])
        if message.get("ended") in awaited:
            raise LaunchError(f"{message['ended']} could not start: its process {message['how']}.")
        if "party" not in message:
            self._note(message)
            return None
        self.pids[message["site"]] = message["pid"]
        return Party(*message["party"])

    def _note(self, message: dict[str, Any]) -> None:
        """Record the end of a site, or the fault that it is about to inflict on itself."""
        if "ended" in message:
            self._ended.append(Ended(message["ended"], message["how"], message["well"]))
        elif "fault" in message:
            self.struck[message["fault"]] = time.monotonic()
        elif "continued" in message:
            self.continued.append((message["continued"], time.monotonic()))

    def _read(self, deadline: Deadline) -> dict[str, Any]:
        if not select.select([self._stream], [], [], deadline.remaining_ms() / 1000)[0]:
            raise LaunchError(
                f"The site processes were not up within {deadline.seconds:g} s; is the machine overloaded?"
            )
        message = pipe.read(self._stream)
        if message is None:
            status = self._server.status()
            raise LaunchError(f"The process that the sites are forked from ended with status {status} at its start.")
        return message
