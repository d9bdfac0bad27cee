"""Starts the process that sites are forked from (`forkserver`).

It imports only the standard library: a command starts the server first, and both load their libraries at the same time.
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
"""Without these the C library of Linux keeps the memory of large vectors in every site. It may keep a megabyte:
returning and requesting each matrix of a few hundred rows would double the time of a training step. The last turns off
the cache of each thread, whose blocks lie where the server freed them: a site would write to a page for each."""


def start_server(module: str) -> Child:
    """Start the server of an installation: see `LocalLauncher`. Raises LaunchError."""
    return Child(module, os.environ | fast_blas() | _ONE_THREAD | _GIVE_MEMORY_BACK)
