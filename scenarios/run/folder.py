"""Where runs are written that are not told where to."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from fedsvm.scenarios.schema.spec import Scenario

RUNS = Path("runs")
"""Where runs go that are not told where to."""

LATEST = "latest"
"""The link there that leads to the last of them."""


def make_folder(scenario: Scenario, out: Path | None) -> Path:
    """An empty folder for a run: `out`, or runs/NAME-TIME-PID, which runs/latest leads to then. Raises OSError."""
    if out is not None:
        out.mkdir(parents=True)
        return out
    folder = RUNS / f"{scenario.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    link = RUNS / f"{LATEST}.{os.getpid()}"
    with suppress(OSError):  # on a disk without links, or where "latest" is somebody's folder
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name)
        link.replace(RUNS / LATEST)
    return folder
