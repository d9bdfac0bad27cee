"""Runs in this process, and their results as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.runner import FinishedRun
from fedsvm.scenarios.schema import spec


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


def simulate(
    scenario: str | Path,
    folder: Path,
    overrides: Sequence[str] = (),
    *,
    changes: Mapping[str, Any] | None = None,
    faults: Sequence[str] = (),
    sites: int | None = None,
    **options: Any,
) -> FinishedRun:
    """Run a scenario within this process; its sites are processes of their own. options: of `runner.run`."""
    read, base = spec.read(scenario, overrides=overrides, changes=changes or {}, faults=faults, sites=sites)
    folder.mkdir(parents=True, exist_ok=True)
    return runner.run(read, dataset.prepare(read, base), folder, **options)
