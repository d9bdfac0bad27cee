"""Floor 4: what a user runs: scenarios, data sets, partitions, results and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run(
    scenario: str | Path,
    *,
    sites: int | None = None,
    changes: Mapping[str, Any] | None = None,
    out: Path | None = None,
) -> dict[str, Any]:
    """Run a scenario file, or one of the catalogue, and return what its result.json holds.

    sites: in place of the scenario's number. changes: values by key path, such as {"algorithm.C": 10.0}. out: a folder
    for the results that does not exist; runs/NAME-TIME-PID without it. A run that fails is a result too, with `status`
    and `error`. Raises ScenarioError where the scenario or its data are wrong, and OSError where no folder can be made.
    """
    from scenarios.data import dataset  # noqa: PLC0415 - site processes import this package, and need none of it
    from scenarios.run import runner  # noqa: PLC0415 - site processes import this package, and need none of it
    from scenarios.schema import spec  # noqa: PLC0415 - site processes import this package, and need none of it

    chosen, base = spec.read(scenario, changes=changes or {}, sites=sites)
    prepared = dataset.prepare(chosen, base)
    folder = runner.make_folder(chosen, out)
    return runner.run(chosen, prepared, folder, lambda federation, faults: None).result
