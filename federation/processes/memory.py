"""Memory of this machine."""

from __future__ import annotations

import os
from pathlib import Path


def available_bytes() -> int:
    """Return the memory that is free or can be freed; all memory if the system does not report it."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
