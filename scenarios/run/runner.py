"""A run from start to end: data, processes, training, evaluation, and the folder of the results."""

from __future__ import annotations

import importlib.metadata
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedsvm.algorithms import SITE_MODULE
from fedsvm.algorithms.origins import Mechanisms, origins
from fedsvm.algorithms.privacy.accountant import PrivacyReport
from fedsvm.federation import report
from fedsvm.federation.channel.interface import Observer
from fedsvm.federation.channel.transcript import Transcript
from fedsvm.federation.disclosed_round import DisclosedRound
from fedsvm.federation.errors import FederationError, SiteFailed
from fedsvm.federation.federation import Federation, RunObserver
from fedsvm.federation.processes.cluster import ClusterLauncher
from fedsvm.federation.processes.launcher_cache import SPARE, spare_launcher
from fedsvm.federation.processes.launcher_interface import SiteLauncher
from fedsvm.federation.processes.limits import refused_tasks_explained
from fedsvm.federation.run_journal import Journal
from fedsvm.federation.startup import start_federation
from fedsvm.federation.transport.keys import COORDINATOR, Party
from fedsvm.protocols.analysis.views import Coalition, RecordedRun
from fedsvm.scenarios.data.dataset import FederatedDataset, SiteSize, Sizes
from fedsvm.scenarios.interrupts import Interrupts
from fedsvm.scenarios.run import measuring
from fedsvm.scenarios.run.audit import (
    CollusionReport,
    GroundTruth,
    audit_view,
    file_audits,
    findings,
    standard_coalitions,
)
from fedsvm.scenarios.run.horizontal import SimulatedRows
from fedsvm.scenarios.run.injector import Injector
from fedsvm.scenarios.run.log import NAME as LOG
from fedsvm.scenarios.run.log import RunLog
from fedsvm.scenarios.run.metrics import BaselineMetrics, Metrics
from fedsvm.scenarios.run.model_warnings import cautions, linear_hint
from fedsvm.scenarios.run.offered_terms import resolve_settings
from fedsvm.scenarios.run.outcome import Fold, RunState
from fedsvm.scenarios.run.own_models import mean_own_models
from fedsvm.scenarios.run.result import (
    DataResult,
    ModelFile,
    ModelResult,
    RunResult,
    SiteResult,
    Timing,
    environment,
    network_report,
    write_ledger,
    write_result,
    write_whole,
)
from fedsvm.scenarios.run.secrecy import privacy_report, secrecy
from fedsvm.scenarios.run.selection import selection_result
from fedsvm.scenarios.run.shortfalls import shortfalls
from fedsvm.scenarios.run.starter import Starter
from fedsvm.scenarios.run.training import train
from fedsvm.scenarios.run.vertical import SimulatedColumns
from fedsvm.scenarios.schema.spec import Scenario, resolved_toml

OnProgress = Callable[[Federation, Sequence[str]], None]
"""Receives the federation and the faults so far, after each change."""


@dataclass(frozen=True)
class FinishedRun:
    """A run that ended: its result as written to `folder`, and the traceback of an error at a site or here."""

    result: RunResult
    folder: Path
    traceback: str


class DataFacts(Protocol):
    """The facts on the data in a result, whoever holds them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sites."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The negative and the positive class, or all of more than two."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about the data for the user."""

    @property
    def foreseen(self) -> tuple[str, ...]:
        """Sentences about limits of the result that are known before training."""

    @property
    def sizes(self) -> Sizes:
        """The sizes of the data."""

    def site_size(self, site: str) -> SiteSize:
        """Return the number of rows and columns of a site."""


@dataclass
class Run:
    """One run in progress: its parameters, its state, and the federation and the injector once they exist."""

    scenario: Scenario
    dataset: DataFacts
    folder: Path
    command: str
    audits_all: bool = False
    another_follows: bool = False
    journal: Journal | None = None
    began: float | None = None
    outcome: RunState = field(default_factory=RunState)
    shown: list[DisclosedRound] = field(default_factory=list)
    federation: Federation | None = None
    injector: Injector | None = None

    def __post_init__(self) -> None:
        self.log = RunLog(self.folder / LOG)


def run(
    scenario: Scenario,
    dataset: FederatedDataset,
    folder: Path,
    on_progress: OnProgress = lambda federation, struck: None,
    *,
    began: float | None = None,
    audit: bool = False,
    another_follows: bool = False,
    command: str = "",
    journal: Journal | None = None,
) -> FinishedRun:
    """Carry out a scenario whose data are prepared, in an empty folder.

    Parameters
    ----------
    scenario : Scenario
    dataset : FederatedDataset
    folder : Path
    on_progress : callable
        See `OnProgress`.
    began : float, optional
        When the run was requested, on the monotonic clock in seconds, from which its total time counts; by default now.
    audit : bool, default False
        Whether to attack the run afterwards, as the coordinator, each site, and the coordinator with each site.
    another_follows : bool, default False
        Whether this process may start another run, for which the launcher waits a moment; see `spare_launcher`.
    command : str, default ""
        The command line, for the result.
    journal : Journal, optional
        Records the run so that it can be resumed. Verbs that it has already are replayed.

    Returns
    -------
    FinishedRun
        See `run_and_record` for errors.
    """
    this = Run(scenario, dataset, folder, command, audit, another_follows, journal, began)
    return run_and_record(this, lambda: _carry_out(this, dataset, on_progress))


def run_and_record(this: Run, carry_out: Callable[[], None]) -> FinishedRun:
    """Carry out a run, and write its result.

    Errors within the run, or of its folder, are in the result instead of being raised. An interrupt while results are
    written raises KeyboardInterrupt afterwards.
    """
    outcome = this.outcome
    called = time.monotonic()
    asked = called if this.began is None else this.began
    outcome.timing["prepare_s"] = called - asked
    with Interrupts() as interrupts:
        try:
            with interrupts.allow(), refused_tasks_explained():
                carry_out()
            outcome.status = "completed"
        except KeyboardInterrupt:
            outcome.status, outcome.error = "interrupted", "The run was interrupted."
        except FederationError as error:
            outcome.error = str(error)
            outcome.traceback = error.remote_traceback if isinstance(error, SiteFailed) else traceback.format_exc()
        except MemoryError as error:
            outcome.error = f"There is not enough memory ({error}); use fewer rows or columns, or a smaller model."
            outcome.traceback = traceback.format_exc()
        except OSError as error:
            outcome.error, outcome.traceback = _unwritten(this.folder, error), traceback.format_exc()
        except Exception as error:  # noqa: BLE001 - an internal error must also leave a result
            outcome.error = f"An internal error: {type(error).__name__}: {error}; run again with --debug to see where."
            outcome.traceback = traceback.format_exc()
        earlier_s = this.federation.record.earlier_s if this.federation is not None else 0.0
        outcome.timing["total_s"] = time.monotonic() - asked + earlier_s
        return FinishedRun(_write_results(this), this.folder, outcome.traceback)


def _carry_out(this: Run, dataset: FederatedDataset, on_progress: OnProgress) -> None:
    scenario = this.scenario
    made = SimulatedColumns if scenario.data.partition == "vertical" else SimulatedRows
    source: SimulatedRows | SimulatedColumns = made(scenario, dataset, this.folder)
    with _launcher(this) as launcher, Injector(scenario, launcher) as injector:
        this.injector = injector
        journalled = this.journal is not None
        starter = Starter(scenario, dataset, launcher, injector, this.folder, this.audits_all, journalled)
        with _start_sites(this, starter, on_progress) as federation:
            federation.assemble()
            train(source, federation, this.outcome)
        if scenario.collusion is not None or this.audits_all:
            with federation.phase("audit"), this.outcome.time_block("audit_s", federation.record.age):
                _audit(this, RecordedRun(federation.accounts.rounds, this.shown, starter.transcripts), source.truth())


def _launcher(this: Run) -> AbstractContextManager[SiteLauncher]:
    """Return the launcher that starts the sites, and ends them with the context. Raises FederationError."""
    settings = this.scenario.federation
    if settings.launcher == "local":
        return spare_launcher(SITE_MODULE) if this.another_follows else SPARE.take(SITE_MODULE)
    if this.audits_all or this.journal is not None:
        raise FederationError(
            "On a cluster, this machine cannot read the files of sites: run without --audit and --journal."
        )
    return ClusterLauncher(SITE_MODULE, settings.ray_address)


class _SimulationObserver(RunObserver):
    """The observer of a simulation: keeps its log and its rounds, and begins the faults on its links."""

    def __init__(self, this: Run, starter: Starter, on_progress: OnProgress) -> None:
        self._this = this
        self._starter = starter
        self._on_progress = on_progress
        self._transcript: Transcript | None = None

    def party_listens(self, party: Party) -> None:
        if party.name == COORDINATOR:
            self._transcript = self._starter.coordinators_transcript()
        self._starter.injector.reach(party)

    def round_begins(self, phase: str, phase_round: int) -> None:
        self._starter.injector.strike(phase, phase_round)

    def round_completed(self, shown: DisclosedRound) -> None:
        if self._this.audits_all or self._this.scenario.collusion is not None:
            self._this.shown.append(shown)

    def channel_observers(self, round_number: int) -> Sequence[Observer]:
        return () if self._transcript is None else (self._transcript.begin_round(round_number),)

    def progress_made(self, federation: Federation) -> None:
        self._this.log.follow(federation.record.log)
        self._on_progress(federation, self._starter.injector.describe_struck())


@contextmanager
def _start_sites(this: Run, starter: Starter, on_progress: OnProgress) -> Iterator[Federation]:
    """Start the sites of a scenario; when they have ended, collect the reports of the relays."""
    injector, began = starter.injector, time.monotonic()
    try:
        with start_federation(
            starter.launcher,
            starter.deployment(),
            observer=_SimulationObserver(this, starter, on_progress),
            views=injector.view,
            journal=this.journal,
        ) as federation:
            this.outcome.timing["launch_s"] = time.monotonic() - began
            this.federation = federation
            yield federation
    finally:
        if this.federation is not None:
            injector.settle()


def _audit(this: Run, recorded: RecordedRun, truth: GroundTruth) -> None:
    """Record the results of attacks by declared colluders and, if all parties are audited, by the others."""
    from fedsvm.algorithms.attacks.attack import KnownRecords

    scenario, federation, outcome = this.scenario, this.federation, this.outcome
    algorithm, declared = scenario.algorithm.implementation, scenario.collusion
    settings, _ = resolve_settings(scenario)
    coalitions = standard_coalitions(scenario.federation.site_names) if this.audits_all else []
    known = KnownRecords(truth.columns, declared.known_records if declared else None, scenario.seed)
    if declared is not None and federation is not None:
        coalition = Coalition(tuple(declared.members(scenario.federation.site_names)), declared.coordinator)
        outcome.collusion = CollusionReport(
            coalition=coalition.sites,
            coordinator=coalition.coordinator,
            victims=tuple(findings(recorded, coalition, algorithm.shown_steps(settings))),
            remarks=(*_differences(coalition, federation), *algorithm.remarks(settings, coalition)),
        )
        coalitions = [coalition, *(each for each in coalitions if each != coalition)]
    parties, attacks = [], algorithm.attacks(settings)
    for view in recorded.views(coalitions):
        parties.append(audit_view(view, attacks, truth, known if truth.columns else None))
        if federation is not None:
            federation.log_metrics(audited=len(parties), to_audit=len(coalitions))
    if this.audits_all and outcome.folds:
        of_file = algorithm.file_attacks(settings)
        if scenario.data.weight is not None:
            of_file = [each for each in of_file if not each.needs_equal_rows]
        parties += file_audits(outcome.folds[-1].arrays, of_file, truth)
    outcome.audit = tuple(parties)


def _differences(coalition: Coalition, federation: Federation) -> list[str]:
    if not (coalition.coordinator and any(each.kind == "difference" for each in federation.disclosures)):
        return []
    return [
        "The coordinator saw the same sums over different sites and can subtract them: see the differences among the "
        'disclosures. federation.on_dropout = "abort" avoids that.'
    ]


# Results.


def _write_results(this: Run) -> RunResult:
    """Write all files to the run's folder, result.json first, and return the result.

    If a file cannot be written, the run has failed, with an error that names the file.
    """
    result, folder = _result(this), this.folder
    try:
        write_result(folder, result)
        _write_files(this)
    except (OSError, MemoryError, ImportError) as error:  # without memory, libraries do not load
        said = _unwritten(folder, error)
        status = "failed" if result.status == "completed" else result.status
        result = replace(result, status=status, error=f"{result.error} {said}" if result.error else said)
        with suppress(OSError, MemoryError):
            write_result(folder, result)
    return result


def _write_files(this: Run) -> None:
    """Write the files other than result.json. Raises OSError."""
    folder, scenario = this.folder, this.scenario
    write_whole(folder / "scenario.toml", lambda file: file.write(resolved_toml(scenario).encode()))
    if this.outcome.folds:
        arrays = this.outcome.folds[-1].arrays
        of_run = _of_run(this)
        write_whole(folder / "model.npz", lambda file: np.savez(file, **arrays, **of_run))
    if this.federation is not None:
        this.log.close(this.federation.record.log)
        write_ledger(folder / "ledger.parquet", this.federation.accounts)


def _of_run(this: Run) -> dict[str, Any]:
    """Return the entries of the model's file in addition to the model's arrays.

    It has declared ranges, never extremes of rows. Their columns are under `ranged`.
    """
    scenario = this.scenario
    found = {
        "classes": np.array(this.dataset.classes),
        "algorithm": np.array(scenario.algorithm.name),
        "version": np.array(importlib.metadata.version("fedsvm")),
        "scaling": np.array(scenario.data.scale),
    }
    if ranges := scenario.data.ranges:
        found |= {"ranged": np.array(list(ranges)), "ranges": np.array(list(ranges.values()), dtype=np.float64)}
    return found


def _unwritten(folder: Path, error: OSError | MemoryError | ImportError) -> str:
    """Return the error for a file that cannot be written, with the reason and a remedy."""
    if not isinstance(error, OSError):
        return f"The run could not write all of its files ({error or 'no memory'}); allow more memory (ulimit -v)."
    reason = error.strerror or str(error)
    if not folder.is_dir():
        return f"The folder of the run, {folder}, is gone ({reason}); run again, and leave it in place."
    where = error.filename or "its files"
    return f"The run could not write {where} ({reason}); make room in {folder}, or name another folder by --out."


def _describe_scenario(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario, with the algorithm's values for settings that have none."""
    said, (settings, _) = scenario.model_dump(mode="json", by_alias=True), resolve_settings(scenario)
    said["algorithm"] |= {
        key: getattr(settings, key, None) for key, value in said["algorithm"].items() if value is None
    }
    return said


def _result(this: Run) -> RunResult:
    scenario, outcome, folds = this.scenario, this.outcome, this.outcome.folds
    privacy = privacy_report(scenario, outcome.accountant, this.folder)
    known = RunResult(
        status=outcome.status,
        error=outcome.error,
        warnings=_warnings(this),
        scenario=_describe_scenario(scenario),
        data=_data(this.dataset),
        alignment=outcome.alignment,
        model=_model(this, folds[-1]) if folds else None,
        model_file=_model_file(this, folds[-1], privacy) if folds else None,
        metrics=_metrics(this),
        at_sites=measuring.mean_site_metrics([fold.at_sites for fold in folds if fold.at_sites is not None]),
        centralised=measuring.mean_pooled(
            [fold.pooled for fold in folds if fold.pooled is not None], scenario.data.folds or 1
        ),
        baselines=_mean_baselines(this),
        own_models=mean_own_models([fold.own for fold in folds if fold.own is not None], scenario.data.folds or 1),
        selection=selection_result(
            [fold.selection for fold in folds if fold.selection is not None],
            [fold.test for fold in folds if fold.test is not None],
            scenario.data.evaluation,
        ),
        sites=_sites(this.dataset, this.federation),
        collusion=outcome.collusion,
        audit=outcome.audit,
        privacy=privacy,
        timing=Timing(**outcome.timing),
        environment=environment(this.command),
    )
    if (federation := this.federation) is None:
        return known
    memberships = report.memberships(federation)
    return replace(
        known,
        cost=report.cost(federation),
        progress=report.progress(federation),
        memberships=memberships,
        secrecy=secrecy(scenario, memberships, privacy),
        faults=this.injector.reports(federation) if this.injector else (),
        network=network_report(scenario.network, federation.accounts) if scenario.network else None,
        disclosures=report.disclosures(federation),
        refused=federation.refused,
    )


def _warnings(this: Run) -> tuple[str, ...]:
    """Return all warnings. If noise protects rows, warnings about tested models are omitted."""
    dataset, outcome = this.dataset, this.outcome
    of_models = (sentence for fold in outcome.folds for sentence in fold.warnings)
    doubts: Iterable[str] = ()
    if not this.scenario.is_private:
        hint = linear_hint(this.scenario.algorithm.settings, _metrics(this), _mean_baselines(this))
        doubts = (*cautions(outcome.folds, dataset.classes), *hint)
    return *dataset.foreseen, *dataset.warnings, *of_models, *outcome.warnings, *doubts


def _mean_baselines(this: Run) -> Mapping[str, BaselineMetrics] | None:
    return measuring.mean_baselines([fold.baselines for fold in this.outcome.folds if fold.baselines is not None])


def _metrics(this: Run) -> Metrics | None:
    """Return the means over the folds, and their shortfalls."""
    public = [fold.public for fold in this.outcome.folds if fold.public is not None]
    tested = [fold.test for fold in this.outcome.folds if fold.test is not None]
    found = measuring.mean_metrics(tested, this.scenario.data.folds or 1)
    if found is None:
        return None
    return replace(found, shortfalls=tuple(shortfalls(this.scenario, this.dataset.classes, found, public)))


def _model(this: Run, fold: Fold) -> ModelResult:
    name, classes = this.scenario.algorithm.name, this.dataset.classes
    return ModelResult(**vars(fold.training), algorithm=name, fold=fold.fold, classes=classes)


def _model_file(this: Run, fold: Fold, privacy: PrivacyReport | None) -> ModelFile:
    """Return what the arrays of the model file are computed from."""
    scenario, remarks = this.scenario, {each.name: each.sentence for each in fold.training.remarks}
    mechanisms = Mechanisms(
        scenario.algorithm.implementation.scaling,
        scenario.data.scale,
        scenario.data.statistics_privacy,
        remarks.get("landmarks", ""),
        "" if privacy is None else privacy.mechanism,
        scenario.algorithm.implementation.model_is_statistics,
        float(fold.training.figures.get("objective_noise", 0.0)),
    )
    arrays = {**fold.arrays, **_of_run(this)}
    return ModelFile(mechanisms.summary(arrays), origins(arrays, mechanisms))


def _data(dataset: DataFacts) -> DataResult:
    sizes = dataset.sizes
    return DataResult(sizes.rows, sizes.columns, sizes.tested, sizes.public)


def _sites(dataset: DataFacts, federation: Federation | None) -> tuple[SiteResult, ...]:
    """Return each site with its data and its status."""
    known = {site.name: site for site in report.sites(federation)} if federation else {}
    return tuple(
        SiteResult(**vars(known.get(name, report.SiteReport(name))), **vars(dataset.site_size(name)))
        for name in dataset.names
    )
