"""The server process from which site processes are forked. It has everything imported, one thread, no ZeroMQ context.

Forked sites share the interpreter and the libraries, so a site starts in milliseconds and owns only the memory that it
writes. The server has one stream to the coordinator's process. When that stream ends, however that process ended, the
server kills the sites and removes the workspace. If the server itself is killed, the kernel kills the sites (Linux), or
they detect the end of their lifeline.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import heapq
import importlib
import math
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import msgpack

from fedsvm.federation.errors import FederationError, Malformed
from fedsvm.federation.processes import limits, pipe
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.program import Installation, script_of
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.site_start import run_site
from fedsvm.federation.site.warm_up import warm_up_server

WORKSPACE_PREFIX = "fedsvm-"
REST_S = 2.0
"""Seconds that the server waits without sites for the next federation."""
_PR_SET_PDEATHSIG = 1
_MAX_REPORT_BYTES = 1 << 14
_PRCTL = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None


def main(installation: Installation, descriptor: int) -> None:
    """Serve the coordinator's process at the other end of socket `descriptor` until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as stream, _workspace(stream) as workspace:
        if workspace is None:
            return
        try:
            pipe.write(stream, {"workspace": workspace})
        except OSError:  # nobody is there any more
            return
        _ForkServer(installation, stream, Path(workspace)).serve()
    sys.stderr.flush()
    os._exit(0)  # the launcher waits, and the interpreter would take time to free all modules


@contextlib.contextmanager
def _workspace(stream: socket.socket) -> Iterator[str | None]:
    """Create a folder that only this user may enter, and remove it when the server ends, also by SIGTERM."""
    try:
        with _terminated_later():
            folder = tempfile.mkdtemp(prefix=WORKSPACE_PREFIX)
            signal.signal(signal.SIGTERM, functools.partial(_leave, folder))
    except OSError as error:
        reason = f"No folder for temporary files: {error}; set TMPDIR to a folder that can be written."
        with contextlib.suppress(OSError):  # nobody is there any more
            pipe.write(stream, {"error": reason})
        yield None
        return
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _terminated_later() -> Iterator[None]:
    """Defer a SIGTERM until the context ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave(workspace: str, number: int, frame: FrameType | None) -> NoReturn:
    """End the process while code is being loaded, and remove the workspace.

    An exception is not enough: if an import is interrupted within the callback of a weak reference, Python prints it
    and continues.
    """
    shutil.rmtree(workspace, ignore_errors=True)
    os._exit(0)


class _ForkServer:
    def __init__(self, installation: Installation, stream: socket.socket, workspace: Path) -> None:
        self._installation = installation
        self._stream = stream
        self._workspace = workspace
        self._sites: dict[int, str] = {}
        self._stalls: dict[str, float | None] = {}
        self._stalled: list[tuple[float, int]] = []
        self._reports, self._report = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reports.setblocking(False)
        self._lifeline, self._life = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._own = (self._selector.fileno(), stream.fileno(), self._reports.fileno(), self._life)
        self._serving = True
        self._rests_until = math.inf

    def serve(self) -> None:
        """Fork sites as ordered, forward their reports, and report their ends."""
        wakeup, waker = socket.socketpair()
        wakeup.setblocking(False)
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._selector.register(self._stream, selectors.EVENT_READ, self._obey)
        self._selector.register(self._reports, selectors.EVENT_READ, self._forward_report)
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._reap(wakeup))
        self._installation.warm_up()
        if not limits.limit_below(limits.TASKS_PER_WARM_UP):  # otherwise the start of the sites reports the limit
            warm_up_server(self._workspace, self._lifeline, self._installation.practice)
        gc.collect()
        gc.enable()  # an installation may load its modules without it
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from here on, the server ends with its stream
        try:
            while self._serving and time.monotonic() < self._rests_until:
                for key, _ in self._selector.select(self._until_next()):
                    key.data()
                self._continue_stalled()
        finally:
            self._kill_all()

    def _obey(self) -> None:
        order = pipe.read(self._stream)
        if order is None:
            self._serving = False
        elif "rest" in order:
            self._kill_all()
            self._forward_report()
            self._stalls.clear()
            self._stalled.clear()
            self._empty_workspace()
            self._rests_until = time.monotonic() + REST_S
            self._tell(order)
        elif "resume" in order:
            self._rests_until = math.inf
            self._tell(order)
        else:
            try:
                policies = [self._add_script(SitePolicy.from_fields(fields)) for fields in order["policies"]]
                with limits.refused_tasks_explained():
                    needed = limits.TASKS_PER_SITE * len(order["start"]) + order["spare_tasks"]
                    limits.require_tasks(needed, f"Starting {len(order['start'])} of the sites")
                    self._fork_all([Assignment.from_fields(fields, policies) for fields in order["start"]])
            except (FederationError, Malformed) as error:
                self._tell({"error": str(error)})

    def _add_script(self, policy: SitePolicy) -> SitePolicy:
        """Return the policy with the script of its program, whose libraries are loaded, so that no site has to do it.

        That would write to the pages of all its classes. If the program cannot be loaded, or the terms lack settings of
        it, the site reports why.
        """
        try:
            program = self._installation.programs[policy.terms.program]
            policy.check_settings(self._installation.default_settings(policy.terms.program))
        except (KeyError, FederationError):
            return policy
        for library in program.libraries:
            importlib.import_module(library)
        policy.terms.content  # noqa: B018 - a cached property
        return replace(policy, script=script_of(program, policy.terms))

    def _empty_workspace(self) -> None:
        """Remove partitions and transcripts, so that the next run finds nothing of this one."""
        with contextlib.suppress(FileNotFoundError):  # somebody removed it, and the next run has another server
            for left in self._workspace.iterdir():
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)

    def _fork_all(self, assignments: list[Assignment]) -> None:
        """Fork all sites at once: every page that the server writes between two forks becomes a page of the child's
        own."""
        server = os.getpid()
        gc.freeze()
        for assignment in assignments:
            pid = os.fork()
            if pid == 0:
                self._live(assignment, server)
            self._sites[pid] = assignment.name

    def _live(self, assignment: Assignment, server: int) -> None:
        """Run the site in the child process, and never return."""
        status = 1
        try:
            self._detach(server)
            run_site(assignment, self._installation, self._report_as(assignment.name), self._lifeline)
            status = 0
        except FederationError as error:
            self._report.send(msgpack.packb({"site": assignment.name, "error": str(error)}))
        except BaseException:  # noqa: BLE001 - the child must not continue as a second server
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _report_as(self, site: str) -> Callable[[dict[str, Any]], None]:
        def report(fields: dict[str, Any]) -> None:
            self._report.send(msgpack.packb(fields | {"site": site}))

        return report

    def _detach(self, server: int) -> None:
        """Close the server's descriptors, and end when it ends.

        Descriptors are closed by number, since Python's objects for them would write to further pages.
        """
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for descriptor in self._own:
            os.closerange(descriptor, descriptor + 1)  # ignores a kqueue, which a child does not inherit
        if _PRCTL is not None:
            _PRCTL(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != server:
            os._exit(1)

    def _forward_report(self) -> None:
        """Forward a site's report. Before it stalls, it reports for how long."""
        with contextlib.suppress(BlockingIOError):
            while True:
                report = msgpack.unpackb(self._reports.recv(_MAX_REPORT_BYTES))
                if "fault" in report:
                    self._stalls[report["site"]] = report["for_s"]
                self._tell(report)

    def _note_stopped(self, pid: int) -> None:
        self._forward_report()
        if (seconds := self._stalls.pop(self._sites[pid], None)) is not None:
            heapq.heappush(self._stalled, (time.monotonic() + seconds, pid))

    def _until_next(self) -> float | None:
        first = min([self._rests_until, *(until for until, _ in self._stalled)])
        return max(0.0, first - time.monotonic()) if first < math.inf else None

    def _continue_stalled(self) -> None:
        while self._stalled and self._stalled[0][0] <= time.monotonic():
            _, pid = heapq.heappop(self._stalled)
            if pid in self._sites:
                os.kill(pid, signal.SIGCONT)
                self._tell({"continued": self._sites[pid]})

    def _reap(self, wakeup: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while wakeup.recv(4096):
                pass
        while self._sites:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self._note_stopped(pid)
                continue
            self._forward_report()
            self._tell({"ended": self._sites.pop(pid), "how": _how(status), "well": status == 0})

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            pipe.write(self._stream, message)
        except OSError:
            self._serving = False

    def _kill_all(self) -> None:
        for pid in self._sites:
            os.kill(pid, signal.SIGKILL)
        for pid in self._sites:
            os.waitpid(pid, 0)
        self._sites.clear()


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed by signal {os.WTERMSIG(status)}"
    return f"exited with status {os.WEXITSTATUS(status)}"
