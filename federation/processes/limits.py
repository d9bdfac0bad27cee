"""The system's limits on processes, threads and address space.

libzmq and OpenBLAS abort if a thread is refused, and OpenBLAS retries forever if memory is refused. Therefore the
limits are read before such a library is loaded.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from fedsvm.federation.errors import LaunchError

TASKS_PER_ENDPOINT = 2
"""The threads that libzmq starts for an endpoint."""
TASKS_PER_SITE = 1 + TASKS_PER_ENDPOINT
TASKS_PER_WARM_UP = 1 + 2 * TASKS_PER_ENDPOINT
_LIBRARIES_BYTES = 900 << 20
"""Address space in bytes of a command with all of its libraries; with less, some cannot be loaded or crash."""
_BYTES_PER_POOL_TASK = 40 << 20
"""Bytes for each thread: a buffer of 32 MiB by OpenBLAS, and a stack of 8 MiB by the system."""
_CGROUPS = Path("/sys/fs/cgroup")
_PROCESSES = Path("/proc")
_POOL_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
_REMEDY = "raise the limit, or run fewer sites at a time"


def pool_tasks() -> int:
    """Return the number of threads that a library for linear algebra starts when it is loaded."""
    chosen = [int(value) for name in _POOL_VARIABLES if (value := os.environ.get(name, "")).isdigit()]
    return max(0, min([len(os.sched_getaffinity(0)), *chosen]) - 1)


def require_tasks(count: int, who: str) -> None:
    """Raise LaunchError if a limit allows fewer than `count` more processes and threads."""
    if limit := limit_below(count):
        raise LaunchError(f"{who} needs {count} more processes and threads, but {limit}; {_REMEDY}.")


def require_address_space(pool_tasks: int, who: str) -> None:
    """Raise LaunchError if `ulimit -v` is too low for the libraries and so many threads for linear algebra.

    If a limit suffices, load these libraries and their buffers now: later, data may leave too little address space.
    """
    import resource  # a browser has no such module, and starts no processes

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    needed = _LIBRARIES_BYTES + pool_tasks * _BYTES_PER_POOL_TASK
    if limit < needed:
        raise LaunchError(
            f"{who} needs {needed >> 10} kB of address space, but ulimit -v is {limit >> 10}; raise the limit."
        )
    import numpy as np
    from scipy.linalg import blas

    square = np.ones((256, 256))
    blas.dgemm(1.0, square @ square, square)


def limit_below(count: int) -> str:
    """Return the limit that allows fewer than `count` more processes and threads, or "" if none does."""
    return next((limit for room, limit in _limits() if room < count), "")


class refused_tasks_explained:  # noqa: N801 - a context, written as one that is made of a generator
    """A context that raises LaunchError, with the limits, if the system refuses a process or a thread."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_refused_fork = isinstance(error, BlockingIOError) and error.strerror == os.strerror(errno.EAGAIN)
        is_refused_thread = isinstance(error, RuntimeError) and str(error) == "can't start new thread"
        if is_refused_fork or is_refused_thread:
            raise LaunchError(refusal()) from error


def refusal() -> str:
    """Return a sentence for a process or thread that the system refused."""
    limits = ", ".join(limit for _, limit in _limits()) or "by kernel.threads-max, or for lack of memory"
    return f"The system refused to start another process or thread ({limits}); {_REMEDY}."


def _limits() -> Iterator[tuple[int, str]]:
    """Yield each limit: how many more tasks it allows, and its name and value."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most != resource.RLIM_INFINITY and os.getuid() != 0:
        yield most - _own_tasks(), f"ulimit -u is {most}"
    for folder in _cgroups():
        with suppress(OSError, ValueError):  # the group has no limit, or its limit is "max"
            most = int((folder / "pids.max").read_text())
            yield most - int((folder / "pids.current").read_text()), f"{folder / 'pids.max'} is {most}"


def _own_tasks() -> int:
    """Count the processes and threads of this user."""
    count = 0
    for process in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            if process.stat().st_uid == os.getuid():
                count += len(os.listdir(process / "task"))  # noqa: PTH208 - a path for each thread takes ten times as long
    return count


def _cgroups() -> Iterator[Path]:
    """Yield the folders in which limits of this process's control groups may be, of version 1 and 2."""
    with suppress(OSError):
        for line in (_PROCESSES / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "pids" in controllers.split(","):
                folder = _CGROUPS / controllers / path.strip("/")
                yield from (folder, *folder.parents)
