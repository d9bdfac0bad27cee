"""The default folders of runs."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from fedsvm.scenarios.schema.spec import Scenario

RUNS = Path("runs")
"""The default folder of runs."""

LATEST = "latest"
"""The link in it to the latest run."""


def make_folder(scenario: Scenario, out: Path | None) -> Path:
    """Create an empty folder for a run: `out`, or runs/NAME-TIME-PID with the link runs/latest. Raises OSError.

    Only its owner may read it, since the model and the records of a run can name rows.
    """
    if out is not None:
        out.mkdir(mode=0o700, parents=True)
        return out
    folder = RUNS / f"{scenario.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(mode=0o700, parents=True)
    link = RUNS / f"{LATEST}.{os.getpid()}"
    with suppress(OSError):  # a disk without links, or "latest" is a user's folder
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name)
        link.replace(RUNS / LATEST)
    return folder
