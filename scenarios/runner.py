"""A run from beginning to end: data, processes, training, evaluation, and the folder that holds all of it."""

from __future__ import annotations

import os
import secrets
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from federation.wire import RUN_ID_BYTES
from scenarios import audit, evaluation
from scenarios.injector import Injector
from scenarios.outcome import Fold, Outcome, write
from scenarios.spec import Scenario
from scenarios.starter import Starter, address
from scenarios.workload import NO_FOLD, Workload

SITE_MODULE = "scenarios.site_process"
TRANSCRIPTS = "transcripts"

OnProgress = Callable[[Federation], None]


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
    written = write(scenario, workload, outcome, folder)
    return Finished(written, folder, outcome.traceback)


def _carry_out(scenario: Scenario, workload: Workload, folder: Path, outcome: Outcome, on_progress: OnProgress) -> None:
    with LocalLauncher(SITE_MODULE) as launcher, Injector(scenario, launcher) as injector:
        outcome.injector = injector
        with outcome.timed("launch_s"):
            workspace = launcher.prepare()
        keys = KeyPair.generate() if scenario.federation.encryption else None
        with Endpoint(COORDINATOR, address(scenario, workspace, 0), keys, len(workload.sites)) as endpoint:
            me = Party(COORDINATOR, endpoint.address, keys.public if keys else None)
            run_id = secrets.token_bytes(RUN_ID_BYTES)
            starter = Starter(scenario, workload, launcher, injector, workspace, folder / TRANSCRIPTS, run_id, me)
            try:
                with outcome.timed("launch_s"):
                    federation = _assemble(scenario, endpoint, starter, on_progress)
                outcome.federation, outcome.pids = federation, launcher.pids
                try:
                    federation.assemble()
                    _train_folds(scenario, workload, federation, outcome)
                finally:
                    federation.dismiss()
                    injector.settle()
                if scenario.collusion is not None:
                    with federation.phase("audit"):
                        outcome.collusion = _audit(scenario, workload, federation, starter, outcome.folds[-1])
            finally:
                outcome.refused = dict(endpoint.refused)


def _assemble(scenario: Scenario, endpoint: Endpoint, starter: Starter, on_progress: OnProgress) -> Federation:
    starter.injector.reach(starter.coordinator)
    parties = starter.start(scenario.federation.site_names)
    return Federation(
        endpoint,
        Roster([starter.coordinator, *parties]),
        starter.run,
        starter.launcher,
        scenario.protocol.secure_sum,
        scenario.federation.round_timeout_s,
        on_progress,
        survival=Survival(scenario.fewest_sites, scenario.federation.on_dropout, starter.revive),
        on_round=starter.injector.strike,
        transcript=starter.coordinators_transcript(),
        views=starter.injector.view,
    )


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
    scenario: Scenario, workload: Workload, federation: Federation, starter: Starter, fold: Fold
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
    victims = audit.audit_run(coalition, starter.transcripts, federation.accounts.rounds, rows)
    return {
        "coalition": list(members),
        "coordinator": coalition.coordinator,
        "victims": victims,
        "remarks": _remarks(scenario, coalition, federation),
    }


def _remarks(scenario: Scenario, coalition: audit.Coalition, federation: Federation) -> list[str]:
    """What the coalition learns beside what each sum gives away."""
    remarks = []
    if coalition.coordinator and any("difference" in each.form for each in federation.disclosures):
        remarks.append(
            "The coordinator saw the same sums over different sites, and subtracts them: see the differences among the "
            'disclosures. federation.on_dropout = "abort" avoids that.'
        )
    if coalition.coordinator and coalition.sites and scenario.algorithm.landmark_method == "local":
        remarks.append(
            f"{coalition.sites[0]} knows the order in which sites fill the table of landmarks, and the coordinator the "
            'table: together they can tell whose each landmark is. algorithm.landmark_method = "global" avoids that.'
        )
    return remarks


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


def make_folder(scenario: Scenario, out: Path | None) -> Path:
    """An empty folder for a run: `out`, or runs/NAME-TIMESTAMP. Raises OSError."""
    folder = out or Path("runs") / f"{scenario.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    return folder
