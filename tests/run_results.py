"""Runs as tests look at them: what result.json holds, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsvm.scenarios.run.runner import FinishedRun


@dataclass(frozen=True)
class Ran:
    """A run that ended: what its result.json holds, its folder, and the traceback of what failed."""

    result: dict[str, Any]
    folder: Path
    traceback: str

    @classmethod
    def of(cls, finished: FinishedRun) -> Ran:
        """A finished run."""
        return cls(finished.result.to_dict(), finished.folder, finished.traceback)
