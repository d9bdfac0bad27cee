"""A run from beginning to end: data, processes, training, evaluation, and the folder that holds all of it."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from federation.assemble import started
from federation.errors import FederationError, SiteFailed
from federation.federation import Federation
from federation.processes.launcher import LocalLauncher
from scenarios.data.dataset import FederatedDataset
from scenarios.run import audit
from scenarios.run.erm_run import ErmRun
from scenarios.run.horizontal import HorizontalRun
from scenarios.run.hybrid_run import HybridRun
from scenarios.run.injector import Injector
from scenarios.run.outcome import Fold, Outcome, write
from scenarios.run.starter import Starter
from scenarios.run.vertical import VerticalRun
from scenarios.schema.spec import Scenario

SITE_MODULE = "algorithms.site_process"

OnProgress = Callable[[Federation, Sequence[str]], None]
"""Is told of the federation, and of the faults that struck so far, whenever there is something new."""


class Course(Protocol):
    """What of a run depends on what is learnt and how the data are cut."""

    def train(self, federation: Federation, outcome: Outcome) -> None:
        """Train and test every model of the scenario."""

    def reconstructions(
        self, coalition: audit.Coalition, transcripts: Mapping[str, list[Path]], federation: Federation, fold: Fold
    ) -> list[dict[str, Any]]:
        """Records that the coalition rebuilds from what it saw together with what it knew before."""

    def remarks(self, coalition: audit.Coalition) -> list[str]:
        """What the coalition learns beside what each sum gives away."""


COURSES: Mapping[str, Callable[[Scenario, FederatedDataset, Path], Course]] = {
    "pan-svm": HorizontalRun,
    "dpp-svm": VerticalRun,
    "hybrid-svm": HybridRun,
    "dp-erm": ErmRun,
}


@dataclass(frozen=True)
class Finished:
    """A run that ended: its result as written to `folder`, and the remote or local traceback of what failed."""

    result: dict[str, Any]
    folder: Path
    traceback: str


def run(scenario: Scenario, workload: FederatedDataset, folder: Path, on_progress: OnProgress) -> Finished:
    """Carry out a scenario whose data are prepared, in an empty folder.

    Never raises for what goes wrong within the run: result.json says what it was.
    """
    outcome = Outcome()
    with outcome.timed("total_s"):
        try:
            _carry_out(scenario, workload, folder, outcome, on_progress)
            outcome.status = "completed"
        except KeyboardInterrupt:
            outcome.status, outcome.error = "interrupted", "The run was interrupted."
        except FederationError as error:
            outcome.error = str(error)
            outcome.traceback = error.remote_traceback if isinstance(error, SiteFailed) else traceback.format_exc()
        except Exception as error:  # noqa: BLE001 - a defect of ours must still leave a result behind
            outcome.error = f"An internal error: {type(error).__name__}: {error}; run again with --debug to see where."
            outcome.traceback = traceback.format_exc()
    written = write(scenario, workload, outcome, folder)
    return Finished(written, folder, outcome.traceback)


def _carry_out(
    scenario: Scenario, workload: FederatedDataset, folder: Path, outcome: Outcome, on_progress: OnProgress
) -> None:
    course = COURSES[scenario.algorithm.name](scenario, workload, folder)
    with LocalLauncher(SITE_MODULE) as launcher, Injector(scenario, launcher) as injector:
        outcome.injector = injector
        starter = Starter(scenario, workload, launcher, injector, folder)
        with _started(starter, outcome, on_progress) as federation:
            federation.assemble()
            course.train(federation, outcome)
        if scenario.collusion is not None:
            with federation.phase("audit"):
                outcome.collusion = _audit(scenario, course, federation, starter, outcome.folds[-1])


@contextmanager
def _started(starter: Starter, outcome: Outcome, on_progress: OnProgress) -> Iterator[Federation]:
    """The sites of a scenario, and when they are gone what the relays and the coordinator have to say."""
    injector, began = starter.injector, time.monotonic()
    try:
        with started(
            starter.launcher,
            starter.deployment(),
            on_listening=injector.reach,
            on_progress=lambda federation: on_progress(federation, injector.struck()),
            on_round=injector.strike,
            views=injector.view,
            transcript=starter.coordinators_transcript(),
        ) as federation:
            outcome.timing["launch_s"] = time.monotonic() - began
            outcome.federation = federation
            yield federation
    finally:
        if outcome.federation is not None:
            outcome.refused = outcome.federation.refused
            injector.settle()


def _audit(scenario: Scenario, course: Course, federation: Federation, starter: Starter, fold: Fold) -> dict[str, Any]:
    """What the colluding parties learnt; the last model's scale is the one their finds are read in."""
    if (colluding := scenario.collusion) is None:
        raise AssertionError("nobody colludes")
    coalition = audit.Coalition(tuple(colluding.members(scenario.federation.site_names)), colluding.coordinator)
    victims = audit.audit_run(coalition, starter.transcripts, federation.accounts.rounds, fold.rows)
    reconstructions = course.reconstructions(coalition, starter.transcripts, federation, fold)
    _expose(victims, reconstructions)
    return {
        "coalition": list(coalition.sites),
        "coordinator": coalition.coordinator,
        "victims": victims,
        "reconstructions": reconstructions,
        "remarks": [*_differences(coalition, federation), *course.remarks(coalition)],
    }


def _expose(victims: list[dict[str, Any]], reconstructions: list[dict[str, Any]]) -> None:
    """Count the records that were rebuilt from a site's own part among what the coalition has of it."""
    for rebuilt in reconstructions:
        for victim in victims:
            if [victim["site"]] == rebuilt["sites"] and victim["step"] == rebuilt["step"]:
                victim["records_exposed"] = rebuilt["recovered"]


def _differences(coalition: audit.Coalition, federation: Federation) -> list[str]:
    if not (coalition.coordinator and any("difference" in each.form for each in federation.disclosures)):
        return []
    return [
        "The coordinator saw the same sums over different sites, and subtracts them: see the differences among the "
        'disclosures. federation.on_dropout = "abort" avoids that.'
    ]


def make_folder(scenario: Scenario, out: Path | None) -> Path:
    """An empty folder for a run: `out`, or runs/NAME-TIMESTAMP. Raises OSError."""
    folder = out or Path("runs") / f"{scenario.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    return folder
