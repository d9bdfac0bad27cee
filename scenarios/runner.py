"""A run from beginning to end: data, processes, training, evaluation, and the folder that holds all of it."""

from __future__ import annotations

import os
import secrets
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.horizontal import Scale, agree_scale, agree_vocabulary, count_rows
from algorithms.kernels import Kernel
from algorithms.pan_svm import Features, PanModel, PanSettings, choose_features, train
from algorithms.vocabulary import Vocabulary
from federation.arrays import FloatArray, IntArray
from federation.coordinator import Federation
from federation.endpoint import Endpoint
from federation.errors import FederationError, MembershipChanged, SiteFailed
from federation.keys import COORDINATOR, KeyPair, Party, Roster
from federation.launcher import LocalLauncher
from federation.membership import Survival
from federation.site import Assignment
from federation.transcript import Transcript
from federation.wire import RUN_ID_BYTES
from scenarios import audit, evaluation, result
from scenarios.injector import Injector
from scenarios.spec import Scenario, resolved_toml
from scenarios.workload import NO_FOLD, Workload

SITE_MODULE = "scenarios.site_process"
TRANSCRIPTS = "transcripts"

OnProgress = Callable[[Federation], None]


@dataclass
class Fold:
    """One model, trained and tested. `fold` is NO_FOLD when there is only one."""

    fold: int
    model: PanModel
    vocabulary: Vocabulary
    scale: Scale
    test: evaluation.Quality | None
    pooled: dict[str, Any] | None


@dataclass
class Outcome:
    """What is known of a run so far; it is written down on every path."""

    status: str = "failed"
    error: str | None = None
    traceback: str = ""
    federation: Federation | None = None
    injector: Injector | None = None
    pids: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    collusion: dict[str, Any] | None = None
    folds: list[Fold] = field(default_factory=list)
    timing: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds within to `name`."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.timing[name] = self.timing.get(name, 0.0) + time.monotonic() - began


@dataclass(frozen=True)
class Finished:
    """A run that ended: its result as written to `folder`, and the remote or local traceback of what failed."""

    result: dict[str, Any]
    folder: Path
    traceback: str


def run(scenario: Scenario, workload: Workload, folder: Path, on_progress: OnProgress) -> Finished:
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
    written = _write(scenario, workload, outcome, folder)
    return Finished(written, folder, outcome.traceback)


def _carry_out(scenario: Scenario, workload: Workload, folder: Path, outcome: Outcome, on_progress: OnProgress) -> None:
    with LocalLauncher(SITE_MODULE) as launcher, Injector(scenario, launcher) as injector:
        outcome.injector = injector
        with outcome.timed("launch_s"):
            workspace = launcher.prepare()
        keys = KeyPair.generate() if scenario.federation.encryption else None
        with Endpoint(COORDINATOR, _address(scenario, workspace, 0), keys, len(workload.sites)) as endpoint:
            me = Party(COORDINATOR, endpoint.address, keys.public if keys else None)
            run_id = secrets.token_bytes(RUN_ID_BYTES)
            staff = _Staff(scenario, workload, launcher, injector, workspace, folder / TRANSCRIPTS, run_id, me)
            try:
                with outcome.timed("launch_s"):
                    federation = _assemble(scenario, endpoint, staff, on_progress)
                outcome.federation, outcome.pids = federation, launcher.pids
                try:
                    federation.assemble()
                    _train_folds(scenario, workload, federation, outcome)
                finally:
                    federation.dismiss()
                    injector.settle()
                if scenario.collusion is not None:
                    with federation.phase("audit"):
                        outcome.collusion = _audit(scenario, workload, federation, staff, outcome.folds[-1])
            finally:
                outcome.refused = dict(endpoint.refused)


@dataclass(frozen=True)
class _Staff:
    """Starts the sites of a run, at its beginning or again, and knows where parties write their transcripts."""

    scenario: Scenario
    workload: Workload
    launcher: LocalLauncher
    injector: Injector
    workspace: Path
    transcripts_folder: Path
    run: bytes
    coordinator: Party
    transcripts: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))

    def transcript(self, party: str) -> str:
        """A new file for a party's transcript; none where nobody colludes. The honest ones' do not outlive the run."""
        collusion = self.scenario.collusion
        if collusion is None:
            return ""
        folder = self.transcripts_folder if self._colludes(party) else self.workspace
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{party}-{len(self.transcripts[party]) + 1}.transcript"
        self.transcripts[party].append(path)
        return str(path)

    def coordinators_transcript(self) -> Transcript | None:
        """The coordinator's own, if it colludes."""
        return Transcript(self.transcript(COORDINATOR), colludes=True) if self._colludes(COORDINATOR) else None

    def _colludes(self, party: str) -> bool:
        collusion = self.scenario.collusion
        if collusion is None:
            return False
        named = collusion.members(self.scenario.federation.site_names)
        return collusion.coordinator if party == COORDINATOR else party in named

    def start(self, names: list[str], *, faults: bool) -> list[Party]:
        """Start these sites and lead the relays to them. `faults`: whether they do to themselves what is planned."""
        parties = self.launcher.start([self._assignment(name, faults=faults) for name in names])
        for party in parties:
            self.injector.reach(party)
        return parties

    def revive(self, site: str) -> Party | None:
        """Start a killed site again with its partition, if the scenario says so."""
        return self.start([site], faults=False)[0] if self.injector.rejoins(site) else None

    def _assignment(self, name: str, *, faults: bool) -> Assignment:
        number = self.scenario.federation.site_names.index(name)
        path = self.workspace / f"{name}.partition"
        path.unlink(missing_ok=True)  # of a site that was killed before it read it
        self.workload.write_partition(number, path)
        return Assignment(
            name=name,
            run=self.run,
            listen=_address(self.scenario, self.workspace, number + 1),
            peers=len(self.workload.sites),
            encrypted=self.scenario.federation.encryption,
            coordinator_address=self.coordinator.address,
            coordinator_key=self.coordinator.public_key,
            program=self.scenario.algorithm.name,
            partition_path=str(path),
            settings={"seed": self.scenario.seed},
            faults=self.injector.own_faults(name) if faults else [],
            transcript_path=self.transcript(name),
            colludes=self._colludes(name),
        )


def _assemble(scenario: Scenario, endpoint: Endpoint, staff: _Staff, on_progress: OnProgress) -> Federation:
    staff.injector.reach(staff.coordinator)
    parties = staff.start(scenario.federation.site_names, faults=True)
    return Federation(
        endpoint,
        Roster([staff.coordinator, *parties]),
        staff.run,
        staff.launcher,
        scenario.protocol.secure_sum,
        scenario.federation.round_timeout_s,
        on_progress,
        survival=Survival(scenario.fewest_sites, scenario.federation.on_dropout, staff.revive),
        on_round=staff.injector.strike,
        transcript=staff.coordinators_transcript(),
        views=staff.injector.view,
    )


def _address(scenario: Scenario, workspace: Path, number: int) -> str:
    """Where party `number` listens; the coordinator is number 0."""
    settings = scenario.federation
    if settings.transport == "ipc":
        return f"ipc://{workspace}/{number}.sock"
    return f"tcp://127.0.0.1:{settings.port + number if settings.port else '*'}"


def _train_folds(scenario: Scenario, workload: Workload, federation: Federation, outcome: Outcome) -> None:
    folds = range(len(workload.tests)) if scenario.data.folds is not None else [NO_FOLD]
    prepared = None
    for fold in folds:
        with outcome.timed("train_s"):
            prepared = _prepare(scenario, workload, federation, fold, prepared)
            model = train(federation, prepared.settings, prepared.features)
        with outcome.timed("evaluate_s"), federation.phase("evaluate"):
            trained_on = workload.training(fold, model.sites)
            test, pooled = _evaluate(scenario, workload, fold, trained_on, model, prepared)
        outcome.folds.append(Fold(fold, model, prepared.vocabulary, prepared.scale, test, pooled))


def _audit(
    scenario: Scenario, workload: Workload, federation: Federation, staff: _Staff, fold: Fold
) -> dict[str, Any] | None:
    """What the colluding parties learnt; the last model's scale is the one their finds are read in."""
    if scenario.collusion is None:
        return None
    members = tuple(scenario.collusion.members(list(workload.names)))
    coalition = audit.Coalition(members, scenario.collusion.coordinator)
    rows = {}
    for name, indices in zip(workload.names, workload.sites, strict=True):
        held = workload.rows.take(indices)
        rows[name] = fold.scale(fold.vocabulary.encode(held.numeric, held.categorical))
    victims = audit.audit_run(coalition, staff.transcripts, federation.accounts.rounds, rows)
    return {
        "coalition": list(members),
        "coordinator": coalition.coordinator,
        "victims": victims,
        "remarks": _remarks(scenario, coalition),
    }


def _remarks(scenario: Scenario, coalition: audit.Coalition) -> list[str]:
    """What the coalition learns beside what the sums give away."""
    if coalition.coordinator and coalition.sites and scenario.algorithm.landmark_method == "local":
        return [
            f"{coalition.sites[0]} knows the order in which sites fill the table of landmarks, and the coordinator the "
            'table: together they can tell whose each landmark is. algorithm.landmark_method = "global" avoids that.'
        ]
    return []


@dataclass(frozen=True)
class _Prepared:
    """What the sites agreed on before they train."""

    vocabulary: Vocabulary
    agreed_by: frozenset[str]
    scale: Scale
    settings: PanSettings
    features: Features


def _prepare(
    scenario: Scenario, workload: Workload, federation: Federation, fold: int, before: _Prepared | None
) -> _Prepared:
    """Agree on all that training needs; when sites leave or join meanwhile, again from the start."""
    while True:
        with suppress(MembershipChanged), federation.fixed_membership():
            return _agree(scenario, workload, federation, fold, before)


def _agree(
    scenario: Scenario, workload: Workload, federation: Federation, fold: int, before: _Prepared | None
) -> _Prepared:
    data = scenario.data
    with federation.phase("setup"):
        if before is not None and before.agreed_by >= set(federation.sites):
            vocabulary, agreed_by = before.vocabulary, before.agreed_by
        else:
            columns = workload.categorical_columns
            vocabulary = agree_vocabulary(federation, columns, data.categories, scenario.seed)
            agreed_by = frozenset(federation.sites)
        if fold != NO_FOLD:
            federation.run("hold_out", remember=True, fold=fold)
        rows = count_rows(federation)
        width = len(workload.numeric_columns) + len(vocabulary.columns)
        scale = agree_scale(federation, data.scale, width, sum(rows.values()))
    settings = _settings(scenario, sum(rows.values()))
    return _Prepared(vocabulary, agreed_by, scale, settings, choose_features(federation, settings, rows, width))


def _settings(scenario: Scenario, rows: int) -> PanSettings:
    chosen, protocol = scenario.algorithm, scenario.protocol
    wanted = chosen.landmarks if isinstance(chosen.landmarks, int) else round(chosen.landmarks * rows)
    return PanSettings(
        kernel=Kernel(chosen.kernel, chosen.gamma, chosen.degree, chosen.coef0),
        C=chosen.C,
        landmarks=max(1, min(wanted, rows)),
        landmark_method=chosen.landmark_method,
        min_cluster_size=chosen.min_cluster_size,
        groups=chosen.groups,
        tolerance=chosen.tolerance,
        max_iterations=chosen.max_iterations,
        rank_tolerance=chosen.rank_tolerance,
        line_search=protocol.line_search,
        line_search_step=protocol.step,
        seed=scenario.seed,
    )


def _evaluate(
    scenario: Scenario, workload: Workload, fold: int, trained_on: IntArray, model: PanModel, prepared: _Prepared
) -> tuple[evaluation.Quality | None, dict[str, Any] | None]:
    def scaled(indices: IntArray) -> tuple[FloatArray, FloatArray]:
        rows = workload.rows.take(indices)
        return prepared.scale(prepared.vocabulary.encode(rows.numeric, rows.categorical)), rows.signs

    held_out = workload.tests[max(fold, 0)]
    train_rows = scaled(trained_on)
    test_rows = scaled(held_out) if len(held_out) else train_rows
    test = evaluation.quality(model.decision_values(test_rows[0]), test_rows[1]) if len(held_out) else None
    pooled = None
    if scenario.compare.centralised:
        pooled = evaluation.compare_with_pooled(model, scenario.algorithm.C, train_rows, test_rows)
    return test, pooled


# What is written down.


def _write(scenario: Scenario, workload: Workload, outcome: Outcome, folder: Path) -> dict[str, Any]:
    written = _result(scenario, workload, outcome)
    (folder / "scenario.toml").write_text(resolved_toml(scenario))
    if outcome.federation is not None:
        result.write_ledger(folder / "ledger.parquet", outcome.federation.accounts)
        result.write_log(folder / "log.jsonl", outcome.federation.log)
    if outcome.folds:
        _write_model(workload, outcome.folds[-1], folder / "model.npz")
    result.write_json(folder / "result.json", written)
    return written


def _result(scenario: Scenario, workload: Workload, outcome: Outcome) -> dict[str, Any]:
    federation = outcome.federation
    return {
        "schema": result.SCHEMA,
        "status": outcome.status,
        "error": outcome.error,
        "warnings": list(workload.warnings),
        "scenario": scenario.model_dump(mode="json", by_alias=True),
        "model": _model(workload, outcome.folds[-1]) if outcome.folds else None,
        "metrics": _metrics(outcome.folds),
        "centralised": _centralised(outcome.folds),
        "cost": result.cost(federation.accounts, dict(federation.phase_seconds)) if federation else None,
        "sites": _sites(scenario, workload, outcome),
        "progress": result.progress(federation) if federation else None,
        "memberships": result.memberships(federation) if federation else [],
        "faults": outcome.injector.reports(federation) if federation and outcome.injector else [],
        "network": result.network(scenario.network, federation.accounts) if federation and scenario.network else None,
        "collusion": outcome.collusion,
        "disclosures": result.disclosures(federation.disclosures) if federation else [],
        "refused": outcome.refused,
        "privacy": None,
        "timing": {name: outcome.timing.get(name, 0.0) for name in ("launch_s", "train_s", "evaluate_s", "total_s")},
        "environment": result.environment(),
    }


def _model(workload: Workload, fold: Fold) -> dict[str, Any]:
    solution = fold.model.solution
    return {
        "algorithm": "pan-svm",
        "fold": None if fold.fold == NO_FOLD else fold.fold,
        "objective": solution.objective,
        "lower_bound": solution.lower_bound,
        "gap": solution.gap,
        "converged": solution.converged,
        "iterations": solution.iterations,
        "bundles": fold.model.bundles,
        "sites": list(fold.model.sites),
        "landmarks": len(fold.model.landmarks.points),
        "records_exposed": fold.model.landmarks.records_exposed,
        "rank": fold.model.mapping.shape[1],
        "classes": list(workload.classes),
    }


def _metrics(folds: list[Fold]) -> dict[str, Any] | None:
    tested = [asdict(fold.test) for fold in folds if fold.test is not None]
    if not tested:
        return None
    return {"accuracy": _mean(tested, "accuracy"), "auc": _mean(tested, "auc"), "folds": tested}


def _centralised(folds: list[Fold]) -> dict[str, Any] | None:
    pooled = [fold.pooled for fold in folds if fold.pooled is not None]
    if not pooled:
        return None
    exact = [fold["exact_kernel"] for fold in pooled]
    return {
        "accuracy": _mean(pooled, "accuracy"),
        "auc": _mean(pooled, "auc"),
        "objective": pooled[-1]["objective"],
        "max_decision_difference": max(fold["max_decision_difference"] for fold in pooled),
        "exact_kernel": {"accuracy": _mean(exact, "accuracy"), "auc": _mean(exact, "auc")},
    }


def _mean(folds: list[dict[str, Any]], name: str) -> float | None:
    known = [fold[name] for fold in folds if fold[name] is not None]
    return float(np.mean(known)) if known else None


def _sites(scenario: Scenario, workload: Workload, outcome: Outcome) -> list[dict[str, Any]]:
    columns = len(workload.numeric_columns) + len(workload.categorical_columns)
    farewells = outcome.federation.farewells if outcome.federation else {}
    sites = []
    for name, rows in zip(scenario.federation.site_names, workload.sites, strict=True):
        farewell = farewells.get(name)
        sites.append(
            {
                "name": name,
                "pid": outcome.pids.get(name),
                "rows": len(rows),
                "columns": columns,
                "status": _status(name, outcome.federation) if farewell else "dropped",
                "unique_memory_bytes": farewell["unique_memory_bytes"] if farewell else None,
                "cpu_s": farewell["cpu_s"] if farewell else None,
                "refused": farewell["refused"] if farewell else {},
            }
        )
    return sites


def _status(site: str, federation: Federation | None) -> str:
    """finished, dropped if it was out in the end, rejoined if it was out in between."""
    if federation is None or site not in federation.sites:
        return "dropped"
    return "rejoined" if any(site in change.joined for change in federation.membership.changes) else "finished"


def _write_model(workload: Workload, fold: Fold, path: Path) -> None:
    model = fold.model
    np.savez(
        path,
        landmarks=model.landmarks.points,
        map=model.mapping,
        w=model.solution.w,
        b=np.array(model.solution.b),
        offset=fold.scale.offset,
        scale=fold.scale.scale,
        classes=np.array(workload.classes),
        columns=np.array([*workload.numeric_columns, *fold.vocabulary.columns]),
        kernel=np.array(model.kernel.name),
        gamma=np.array(model.kernel.gamma),
        degree=np.array(model.kernel.degree),
        coef0=np.array(model.kernel.coef0),
    )


def make_folder(scenario: Scenario, out: Path | None) -> Path:
    """An empty folder for a run: `out`, or runs/NAME-TIMESTAMP. Raises OSError."""
    folder = out or Path("runs") / f"{scenario.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    return folder
