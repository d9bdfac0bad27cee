"""Logistic regression or Huber's SVM with output or objective perturbation, over a horizontal partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.data.horizontal import count_rows
from algorithms.dp_erm import ErmModel, ErmSettings, Loss, Points, train
from federation.arrays import FloatArray
from federation.federation import Federation
from scenarios.data.dataset import FederatedDataset
from scenarios.run import metrics
from scenarios.run.audit import Coalition
from scenarios.run.outcome import Fold, Outcome
from scenarios.run.public_columns import PublicColumns
from scenarios.schema.spec import Scenario


@dataclass(frozen=True)
class ErmRun:
    """The part of a run that knows what is learnt, and what public rows are there for."""

    scenario: Scenario
    workload: FederatedDataset
    folder: Path

    def train(self, federation: Federation, outcome: Outcome) -> None:
        """Train, release and test one model after the other, as far as the budget goes."""
        columns = PublicColumns(self.scenario, self.workload)
        account, settings = columns.account(), _settings(self.scenario)
        chosen, seed = self.scenario.algorithm, self.scenario.seed
        points = Points.from_public(columns.public[0], chosen.features, chosen.sigma or 1.0, chosen.fit, seed)
        for fold in columns.folds:
            with outcome.timed("train_s"):
                with federation.phase("setup"):
                    columns.prepare(federation, fold)
                with federation.phase("train"):
                    model = train(
                        federation,
                        settings,
                        points,
                        lambda: sum(count_rows(federation).values()),
                        account,
                        clip=chosen.long_rows == "clip",
                    )
            if settings.epsilon is not None:
                outcome.privacy = account.to_fields(drawn_by="the coordinator")
            with outcome.timed("evaluate_s"), federation.phase("evaluate"):
                outcome.folds.append(self._tested(fold, model, settings, columns, points))
                outcome.warnings += _clipped(points, columns.split(fold, model.sites)[0][0])

    def reconstructions(
        self, coalition: Coalition, transcripts: Mapping[str, list[Path]], federation: Federation, fold: Fold
    ) -> list[dict[str, Any]]:
        """Nothing but what the audit of sums finds."""
        return []

    def remarks(self, coalition: Coalition) -> list[str]:
        """What a coalition learns beside what each sum gives away."""
        return []

    def _tested(
        self, fold: int, model: ErmModel, settings: ErmSettings, columns: PublicColumns, points: Points
    ) -> Fold:
        (train_rows, train_labels), (test_rows, test_labels) = columns.split(fold, model.sites)
        held_out = len(self.workload.tests[max(fold, 0)])
        test = points(test_rows)
        pooled = None
        if self.scenario.compare.centralised:
            known = points(train_rows), train_labels
            pooled = metrics.compare_with_no_perturbation(model, settings, known, (test, test_labels))
        return Fold(
            fold=fold,
            model=model.figures,
            arrays={
                "rho": points.rho,
                "longest": np.array(points.longest),
                "w": model.weights,
                "b": np.array(0.0),
                "offset": columns.scale.offset,
                "scale": columns.scale.scale,
                "columns": np.array(columns.names),
            },
            test=metrics.tested(test @ model.weights, test_labels) if held_out else None,
            pooled=pooled,
            rows={},
        )


def _clipped(points: Points, rows: FloatArray) -> list[str]:
    """How many private rows were clipped, which only a simulation may say: no noise covers it."""
    if not (longer := points.longer(rows)):
        return []
    return [f"{longer} of {len(rows)} private rows were longer than the longest public one, and clipped to it."]


def _settings(scenario: Scenario) -> ErmSettings:
    chosen = scenario.algorithm
    loss = Loss(chosen.loss, chosen.half_width)
    return ErmSettings(loss, chosen.regularisation, chosen.perturbation, chosen.epsilon)
