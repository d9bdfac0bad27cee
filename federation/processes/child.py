"""A child process at the other end of a stream, which ends with the stream or is killed."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from fedsvm.federation.processes.limits import refused_tasks_explained
from fedsvm.federation.transport.deadline import Deadline

EXIT_GRACE_S = 5.0
"""Maximum time for a process to end by itself."""


class Child:
    """Runs `python -m module DESCRIPTOR`, the descriptor being its end of `stream`. Raises LaunchError."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self.stream, theirs = socket.socketpair()
        with theirs, refused_tasks_explained():
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def status(self) -> int | None:
        """Return the status with which the process ended, or None if it did not."""
        grace = Deadline(EXIT_GRACE_S)
        _sleep_till_end(self.process.pid, grace)
        try:
            return self.process.wait(grace.remaining_ms() / 1000)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """End the stream, and with it the process."""
        self.stream.close()
        try:
            self.status()
        finally:  # also after an interrupt
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


def _sleep_till_end(pid: int, deadline: Deadline) -> None:
    """Wait until a child of this process ends, if the kernel reports it; `subprocess` polls every 50 ms only."""
    if not hasattr(os, "pidfd_open"):
        return
    with suppress(OSError):  # the kernel is too old for it, or the child was waited for already
        descriptor = os.pidfd_open(pid)
        try:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            ended.poll(deadline.remaining_ms())
        finally:
            os.close(descriptor)
