"""Whole runs of a small scenario, with the faults that a test gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.schema import spec
from tests.run_results import Ran

TOLERANCE = 1e-6
SMALL = [
    "data.source=wine",
    "data.positive=class_0",
    "data.scale=standard",
    "algorithm.landmarks=20",
    f"algorithm.tolerance={TOLERANCE}",
    "algorithm.step_noise=0.0",
    "protocol.rings=1",
]


def run(
    folder: Path, changes: Sequence[str], faults: Sequence[str], *, without: str = "", another_follows: bool = True
) -> Ran:
    """A run of a small scenario; `without` a site, that is, as if it had never been there.

    another_follows: see `runner.run`; where it does, a process waits a moment for it.
    """
    scenario, base = spec.read("quickstart", overrides=[*SMALL, *changes], faults=faults)
    rows = dataset.prepare(scenario, base)
    if without:
        kept = [(name, held) for name, held in zip(rows.names, rows.shards, strict=True) if name != without]
        names = [name for name, _ in kept]
        rows = replace(rows, names=tuple(names), shards=tuple(held for _, held in kept))
        federation = scenario.federation.model_copy(update={"names": names, "sites": len(names)})
        scenario = scenario.model_copy(update={"federation": federation})
    folder.mkdir(parents=True)
    finished = runner.run(scenario, rows, folder, another_follows=another_follows)
    return Ran.of(finished)


def check_optimum(result: dict[str, Any]) -> None:
    """The optimum over the rows of the sites that were there in the end, certified and as LIBSVM has it."""
    assert result["model"]["gap"] <= TOLERANCE
    assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=2e-5)
