"""What is known of a run, and the folder that it is written to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.horizontal import Scale
from algorithms.pan_svm import PanModel
from algorithms.vocabulary import Vocabulary
from federation.coordinator import Federation
from scenarios import evaluation, result
from scenarios.injector import Injector
from scenarios.spec import Scenario, resolved_toml
from scenarios.workload import NO_FOLD, Workload


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


def write(scenario: Scenario, workload: Workload, outcome: Outcome, folder: Path) -> dict[str, Any]:
    """Write all that is known to the run's folder; what result.json says."""
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
