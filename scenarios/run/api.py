"""A scenario run from Python: `fedsvm.run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scenarios.data import dataset
from scenarios.data.located import located
from scenarios.run import runner
from scenarios.run.result import RunResult
from scenarios.schema import spec


def run(
    scenario: str | Path,
    *,
    sites: int | None = None,
    changes: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    audit: bool = False,
) -> RunResult:
    """Run a scenario file, or one of the catalogue, and return its result.

    A run that fails is a result too, with `status` and `error`.

    Parameters
    ----------
    scenario : str or Path
        A TOML file, or the name of a scenario in the catalogue.
    sites : int, optional
        Number of sites, in place of the scenario's.
    changes : mapping of str to Any, optional
        Values by key path, such as ``{"algorithm.C": 10.0}``.
    out : str or Path, optional
        A folder for the results that does not exist; ``runs/NAME-TIME-PID`` without it.
    audit : bool, default False
        Whether to attack the run afterwards, as ``fedsvm audit SCENARIO`` does: `audit` of the result.

    Returns
    -------
    RunResult
        What `result.json` in the folder holds; `to_dict()` gives that as plain values.

    Raises
    ------
    ScenarioError
        Where the scenario or its data are wrong; nothing was started.
    OSError
        Where the folder cannot be made.

    Examples
    --------
    >>> from fedsvm import run
    >>> result = run("quickstart", sites=8, changes={"protocol.sum": "plain"})
    >>> result.status
    'completed'
    """
    chosen, base = spec.read(scenario, changes=changes or {}, sites=sites)
    chosen = located(chosen, base)
    prepared = dataset.prepare(chosen, base)
    folder = runner.make_folder(chosen, Path(out) if out is not None else None)
    return runner.run(chosen, prepared, folder, lambda federation, faults: None, audit=audit).result
