"""The resources of a process: its CPU seconds, its unshared memory, and the free memory that it keeps."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

_C_LIBRARY = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
_TRIM = getattr(_C_LIBRARY, "malloc_trim", None)
_OPTION = getattr(_C_LIBRARY, "mallopt", None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGE_BYTES = 32 << 20


def resources() -> dict[str, Any]:
    """Return the CPU seconds and the unshared memory of this process in bytes (None if Linux does not report it)."""
    times = os.times()
    return {"cpu_s": times.user + times.system, "unique_memory_bytes": _unique_memory_bytes()}


def free_unused_memory() -> None:
    """Return memory that the C library keeps free to the system; do nothing if the library cannot."""
    if _TRIM is not None:
        _TRIM(0)


def reuse_large_blocks() -> None:
    """Keep free blocks of the C library for the next arrays, up to 32 MiB; do nothing if the library cannot.

    Otherwise, a process that creates and frees arrays of a few megabytes spends as much time on page faults as on
    arithmetic. `free_unused_memory` returns the kept memory.
    """
    if _OPTION is not None:
        _OPTION(_MMAP_THRESHOLD, _LARGE_BYTES)
        _OPTION(_TRIM_THRESHOLD, _LARGE_BYTES)


def _unique_memory_bytes() -> int | None:
    try:
        with open("/proc/self/smaps_rollup", "rb", buffering=0) as file:  # noqa: PTH123 - see read_partition
            lines = file.read().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Private_"))
