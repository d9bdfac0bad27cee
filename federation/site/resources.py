"""The resources that a process used: CPU seconds, and memory of its own."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None


def resources() -> dict[str, Any]:
    """Return the CPU seconds of this process, and the memory of its own (None if Linux does not report it)."""
    times = os.times()
    return {"cpu_s": times.user + times.system, "unique_memory_bytes": _unique_memory_bytes()}


def free_unused_memory() -> None:
    """Return memory that the C library keeps free to the system; do nothing if the library cannot."""
    if _TRIM is not None:
        _TRIM(0)


def _unique_memory_bytes() -> int | None:
    try:
        with open("/proc/self/smaps_rollup", "rb", buffering=0) as file:  # noqa: PTH123 - see read_partition
            lines = file.read().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Private_"))
