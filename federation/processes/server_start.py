"""Starts the process from which sites are forked (`forkserver`).

It imports only the standard library, so a command starts the server first, and both load their libraries in parallel.
"""

from __future__ import annotations

import os

from fedsvm.federation.processes.blas import fast_blas
from fedsvm.federation.processes.child import Child

_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM")}
_GIVE_MEMORY_BACK = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
}
"""Settings of the C library of Linux. Without them it keeps the memory of large vectors in every site. It may keep a
megabyte: returning and requesting each matrix of a few hundred rows would double the time of a training step. The last
setting turns off the cache of each thread: its blocks are spread over pages of the server, and a site that writes to
them would own a copy of each page."""


def start_server(module: str) -> Child:
    """Start the server of an installation: see `LocalLauncher`. Raises LaunchError."""
    return Child(module, os.environ | fast_blas() | _ONE_THREAD | _GIVE_MEMORY_BACK)
