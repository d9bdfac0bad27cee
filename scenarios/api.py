"""A scenario run from Python: `fedsvm.run`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsvm.federation.federation import Federation
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.data.site_column import resolve_site_names
from fedsvm.scenarios.report import page
from fedsvm.scenarios.report.live import EtaEstimator
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.folder import make_folder
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.run.runner import OnProgress
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.spec import Scenario


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run.

    Parameters
    ----------
    phase : str
        The current phase, such as "setup" or "train".
    round : int
        The number of the last completed round, from 1; a resumed run continues the count.
    sites : tuple of str
        The sites that take part.
    payload_bytes : int
        Bytes of the arrays in all protocol messages so far.
    figures : mapping of str to float
        The latest metrics of the algorithm, such as its `iteration`, `objective` and certified `gap`.
    faults : tuple of str
        The faults that occurred so far, in sentences.
    seconds : float
        Seconds since the run began.
    seconds_left : float, optional
        Estimated seconds until training or the audit ends; None if unknown.
    """

    phase: str
    round: int
    sites: tuple[str, ...]
    payload_bytes: int
    figures: Mapping[str, float]
    faults: tuple[str, ...]
    seconds: float
    seconds_left: float | None = None

    @classmethod
    def of(
        cls, federation: Federation, faults: Sequence[str], seconds: float, seconds_left: float | None = None
    ) -> RunProgress:
        """Return the progress of a federation."""
        now = federation.progress
        payload = federation.accounts.payload_bytes
        figures = dict(now.figures)
        return cls(now.phase, now.rounds, federation.sites, payload, figures, tuple(faults), seconds, seconds_left)


def run(
    scenario: str | Path,
    *,
    sites: int | None = None,
    changes: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    audit: bool = False,
    progress: Callable[[RunProgress], object] | None = None,
) -> RunResult:
    """Run a scenario file, or one of the catalogue, write its report, and return its result.

    A run that fails also returns a result, with `status` and `error`. So does a run that Ctrl-C ends: its `status` is
    "interrupted", and no KeyboardInterrupt is raised.

    Parameters
    ----------
    scenario : str or Path
        A TOML file, or the name of a scenario in the catalogue.
    sites : int, optional
        Number of sites; by default that of the scenario.
    changes : mapping of str to Any, optional
        Values by key path, such as ``{"algorithm.C": 10.0}``.
    out : str or Path, optional
        A new folder for the results; by default ``runs/NAME-TIME-PID``.
    audit : bool, default False
        Whether to attack the run afterwards, as ``fedsvm audit SCENARIO`` does; see `audit` of the result.
    progress : callable, optional
        Called with a `RunProgress` after every round, and whenever the algorithm has new figures. An exception that it
        raises ends the run, and is the error of the result.

    Returns
    -------
    RunResult
        The content of `result.json` in the folder; `to_dict()` returns it as plain values.

    Raises
    ------
    ScenarioError
        The scenario or its data are invalid; nothing was started.
    OSError
        The folder cannot be created.
    TypeError
        `progress` is not a function.

    Examples
    --------
    >>> from fedsvm import run
    >>> result = run("quickstart", sites=8, changes={"algorithm.C": 10.0})
    >>> result.status
    'completed'
    """
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function that takes a RunProgress, such as print, got {progress!r}.")
    began = time.monotonic()
    chosen, base = spec.read(scenario, changes=changes or {}, sites=sites)

    ahead = EtaEstimator.of(chosen)

    def tell(federation: Federation, faults: Sequence[str]) -> None:
        if progress is not None:
            now = time.monotonic()
            ahead.note_progress(now, federation)
            progress(RunProgress.of(federation, faults, now - began, ahead.seconds_left(now)))

    return carry_out(chosen, base, Path(out) if out is not None else None, tell, began=began, audit=audit)


def carry_out(
    scenario: Scenario,
    base: Path,
    out: Path | None,
    tell: OnProgress = lambda federation, faults: None,
    *,
    began: float | None = None,
    audit: bool = False,
) -> RunResult:
    """Run a scenario that was read from the folder `base`, and write its report; see `run` and `runner.run`."""
    chosen = resolve_site_names(scenario, base)
    prepared = dataset.prepare(chosen, base)
    folder = make_folder(chosen, out)
    result = runner.run(chosen, prepared, folder, tell, began=began, audit=audit, another_follows=True).result
    try:
        page.write_report(folder)
    except OSError as error:
        warnings.warn(f"The report of the run in {folder} cannot be written: {error}.", stacklevel=2)
    return result
