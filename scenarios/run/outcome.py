"""What is known of a run, and the folder that it is written to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.figures import Figures
from federation import report
from federation.arrays import FloatArray
from federation.federation import Federation
from scenarios.data.dataset import NO_FOLD, FederatedDataset
from scenarios.run import metrics, result
from scenarios.run.injector import Injector
from scenarios.schema.spec import Scenario, resolved_toml

PARTS = "sites"
"""The folder of a run in which each site keeps its own part of a vertical model."""


@dataclass
class Fold:
    """One model, trained and tested. `fold` is NO_FOLD when there is only one.

    model: what result.json says of it. arrays: its file. pooled: what all data together would have given. rows: of each
    site, (n, p), as it trained on them, where the audit looks for them. baselines: other methods on the same rows.
    """

    fold: int
    model: Figures
    arrays: dict[str, Any]
    test: metrics.Tested | None
    pooled: dict[str, Any] | None
    rows: dict[str, FloatArray]
    baselines: dict[str, Any] | None = None


@dataclass
class Outcome:
    """What is known of a run so far; it is written down on every path."""

    status: str = "failed"
    error: str | None = None
    traceback: str = ""
    federation: Federation | None = None
    injector: Injector | None = None
    refused: dict[str, int] = field(default_factory=dict)
    alignment: dict[str, Any] | None = None
    privacy: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
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


def write(scenario: Scenario, workload: FederatedDataset, outcome: Outcome, folder: Path) -> dict[str, Any]:
    """Write all that is known to the run's folder; what result.json says."""
    written = _result(scenario, workload, outcome)
    (folder / "scenario.toml").write_text(resolved_toml(scenario))
    if outcome.federation is not None:
        result.write_ledger(folder / "ledger.parquet", outcome.federation.accounts)
        result.write_log(folder / "log.jsonl", outcome.federation.log)
    if outcome.folds:
        np.savez(folder / "model.npz", **outcome.folds[-1].arrays, classes=np.array(workload.classes))
    result.write_json(folder / "result.json", written)
    return written


def _result(scenario: Scenario, workload: FederatedDataset, outcome: Outcome) -> dict[str, Any]:
    federation = outcome.federation
    return {
        "schema": result.SCHEMA,
        "status": outcome.status,
        "error": outcome.error,
        "warnings": [*workload.warnings, *outcome.warnings],
        "scenario": scenario.model_dump(mode="json", by_alias=True),
        "alignment": outcome.alignment,
        "model": _model(scenario, workload, outcome.folds[-1]) if outcome.folds else None,
        "metrics": _metrics(outcome.folds),
        "centralised": _centralised(outcome.folds),
        "cost": report.cost(federation) if federation else None,
        "sites": _sites(workload, federation),
        "progress": report.progress(federation) if federation else None,
        "memberships": report.memberships(federation) if federation else [],
        "faults": outcome.injector.reports(federation) if federation and outcome.injector else [],
        "network": result.network(scenario.network, federation.accounts) if federation and scenario.network else None,
        "collusion": outcome.collusion,
        "disclosures": report.disclosures(federation) if federation else [],
        "refused": outcome.refused,
        "privacy": outcome.privacy,
        "baselines": outcome.folds[-1].baselines if outcome.folds else None,
        "timing": {name: outcome.timing.get(name, 0.0) for name in ("launch_s", "train_s", "evaluate_s", "total_s")},
        "environment": result.environment(),
    }


def _model(scenario: Scenario, workload: FederatedDataset, fold: Fold) -> dict[str, Any]:
    return {
        "algorithm": scenario.algorithm.name,
        "fold": None if fold.fold == NO_FOLD else fold.fold,
        **fold.model.to_fields(),
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
        "folds": pooled,
    }


def _mean(folds: list[dict[str, Any]], name: str) -> float | None:
    known = [fold[name] for fold in folds if fold[name] is not None]
    return float(np.mean(known)) if known else None


def _sites(workload: FederatedDataset, federation: Federation | None) -> list[dict[str, Any]]:
    """Each site with what it holds, and what became of it."""
    known = {site["name"]: site for site in report.sites(federation)} if federation else {}
    return [
        {"name": name, "rows": len(held.rows), "columns": len(held.columns), **known.get(name, report.NO_REPORT)}
        for name, held in zip(workload.names, workload.holdings, strict=True)
    ]
