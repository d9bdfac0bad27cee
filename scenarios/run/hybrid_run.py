"""Hybrid SVM over a horizontal partition: columns, scale and features from public rows, a model with noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.data.horizontal import count_rows
from algorithms.hybrid_svm import HybridModel, HybridSettings, train
from algorithms.privacy.mechanisms import PrivacyParameters
from federation.federation import Federation
from scenarios.data.dataset import FederatedDataset
from scenarios.run import metrics
from scenarios.run.audit import Coalition
from scenarios.run.outcome import Fold, Outcome
from scenarios.run.public_columns import PublicColumns
from scenarios.schema.spec import Scenario


@dataclass(frozen=True)
class HybridRun:
    """The part of a run that knows what is learnt, and what public rows are there for."""

    scenario: Scenario
    workload: FederatedDataset
    folder: Path

    def train(self, federation: Federation, outcome: Outcome) -> None:
        """Train, release and test one model after the other, as far as the budget goes."""
        columns = PublicColumns(self.scenario, self.workload)
        account, settings = columns.account(), _settings(self.scenario)
        for fold in columns.folds:
            with outcome.timed("train_s"):
                with federation.phase("setup"):
                    columns.prepare(federation, fold)
                with federation.phase("train"):
                    rows: Callable[[], int] = lambda: sum(count_rows(federation).values())  # noqa: E731
                    model = train(federation, settings, columns.public, rows, account)
            if model.noise is not None:
                outcome.privacy = account.to_fields(**model.noise.origin)
            with outcome.timed("evaluate_s"), federation.phase("evaluate"):
                outcome.folds.append(self._tested(fold, model, settings, columns))

    def reconstructions(
        self, coalition: Coalition, transcripts: Mapping[str, list[Path]], federation: Federation, fold: Fold
    ) -> list[dict[str, Any]]:
        """Nothing but what the audit of sums finds."""
        return []

    def remarks(self, coalition: Coalition) -> list[str]:
        """What a coalition learns beside what each sum gives away."""
        return []

    def _tested(self, fold: int, model: HybridModel, settings: HybridSettings, columns: PublicColumns) -> Fold:
        train_rows, test_rows = columns.split(fold, model.sites)
        held_out = self.workload.tests[max(fold, 0)]
        test = metrics.tested(model.decision_values(test_rows[0]), test_rows[1]) if len(held_out) else None
        pooled = None
        if self.scenario.compare.centralised:
            pooled = metrics.compare_with_no_noise(model, settings, train_rows, test_rows)
        baselines = None
        if self.scenario.compare.baselines:
            baselines = metrics.private_baselines(model, settings, columns.public, train_rows, test_rows)
        return Fold(
            fold=fold,
            model=model.figures,
            arrays={
                "rho": model.frequencies.rho,
                "w": model.weights,
                "b": np.array(0.0),
                "offset": columns.scale.offset,
                "scale": columns.scale.scale,
                "columns": np.array(columns.names),
            },
            test=test,
            pooled=pooled,
            rows={},
            baselines=baselines,
        )


def _settings(scenario: Scenario) -> HybridSettings:
    chosen = scenario.algorithm
    colluding = len(scenario.collusion.sites) if scenario.collusion is not None else 0
    curious = max(1, colluding)  # each knows its own share of the noise
    promise = None
    if chosen.mechanism != "none" and chosen.epsilon is not None:
        promise = PrivacyParameters(chosen.mechanism, chosen.epsilon, chosen.delta or 0.0)
    return HybridSettings(
        frequencies=chosen.features,
        sigma=chosen.sigma or 1.0,
        fit=chosen.fit,
        C=chosen.C,
        promise=promise,
        sensitivity=chosen.sensitivity,
        prior=chosen.prior,
        variant=chosen.variant,
        groups=chosen.groups,
        tolerance=chosen.tolerance,
        max_iterations=chosen.max_iterations,
        parts=max(1, scenario.min_sites - curious),
        seed=scenario.seed,
    )
