"""Logistic regression or Huber's SVM with output or objective perturbation, over a horizontal partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.fourier import choose_frequencies, paired_features
from algorithms.horizontal import count_rows
from algorithms.private_erm import ErmModel, ErmSettings, Loss, at_most_one, train
from federation.arrays import FloatArray
from federation.coordinator import Federation
from scenarios import evaluation
from scenarios.audit import Coalition
from scenarios.outcome import Fold, Outcome
from scenarios.public_columns import PublicColumns, in_words
from scenarios.spec import Scenario
from scenarios.workload import Workload


@dataclass(frozen=True)
class ErmRun:
    """The part of a run that knows what is learnt, and what public rows are there for."""

    scenario: Scenario
    workload: Workload
    folder: Path

    def train(self, federation: Federation, outcome: Outcome) -> None:
        """Train, release and test one model after the other, as far as the budget goes."""
        columns = PublicColumns(self.scenario, self.workload)
        account, settings, points = columns.account(), _settings(self.scenario), self._points(columns)
        clip = self.scenario.algorithm.long_rows == "clip"
        for fold in columns.folds:
            with outcome.timed("train_s"):
                with federation.phase("setup"):
                    columns.prepare(federation, fold)
                with federation.phase("train"):
                    model = train(
                        federation,
                        settings,
                        points.rho,
                        points.longest,
                        points.size,
                        lambda: sum(count_rows(federation).values()),
                        account,
                        clip=clip,
                    )
            if settings.epsilon is not None:
                outcome.privacy = in_words(account, drawn_by="the coordinator")
            with outcome.timed("evaluate_s"), federation.phase("evaluate"):
                outcome.folds.append(self._tested(fold, model, settings, columns, points))
                outcome.warnings += points.clipped(columns.split(fold, model.sites)[0][0])

    def reconstructions(
        self, coalition: Coalition, transcripts: Mapping[str, list[Path]], federation: Federation, fold: Fold
    ) -> list[dict[str, Any]]:
        """Nothing but what the audit of sums finds."""
        return []

    def remarks(self, coalition: Coalition) -> list[str]:
        """What a coalition learns beside what each sum gives away."""
        return []

    def _points(self, columns: PublicColumns) -> _Points:
        """Fourier features from public rows, or rows divided by the length of the longest public one."""
        chosen, public = self.scenario.algorithm, columns.public[0]
        if not chosen.features:
            longest = float(np.linalg.norm(public, axis=1).max())
            return _Points(np.zeros((0, public.shape[1])), longest or 1.0, public.shape[1])
        random = np.random.default_rng([self.scenario.seed, 4])
        found = choose_frequencies(public, chosen.features, chosen.sigma or 1.0, chosen.fit, random)
        return _Points(found.rho, 1.0, 2 * chosen.features)

    def _tested(
        self, fold: int, model: ErmModel, settings: ErmSettings, columns: PublicColumns, points: _Points
    ) -> Fold:
        (train_rows, train_labels), (test_rows, test_labels) = columns.split(fold, model.sites)
        held_out = len(self.workload.tests[max(fold, 0)])
        test = points(test_rows)
        pooled = None
        if self.scenario.compare.centralised:
            known = points(train_rows), train_labels
            pooled = evaluation.compare_with_no_perturbation(model, settings, known, (test, test_labels))
        return Fold(
            fold=fold,
            model=_described(model, settings),
            arrays={
                "rho": points.rho,
                "longest": np.array(points.longest),
                "w": model.weights,
                "b": np.array(0.0),
                "offset": columns.scale.offset,
                "scale": columns.scale.scale,
                "columns": np.array(columns.names),
            },
            test=evaluation.quality(test @ model.weights, test_labels) if held_out else None,
            pooled=pooled,
            rows={},
        )


@dataclass(frozen=True)
class _Points:
    """How scaled rows become points of length 1 at most; see `ErmSite.take_rows`."""

    rho: FloatArray
    longest: float
    size: int

    def __call__(self, rows: FloatArray) -> FloatArray:
        return paired_features(rows, self.rho) if len(self.rho) else at_most_one(rows / self.longest, clip=True)

    def clipped(self, rows: FloatArray) -> list[str]:
        """How many private rows were clipped, which only a simulation may say: no noise covers it."""
        longer = 0 if len(self.rho) else int((np.linalg.norm(rows, axis=1) > self.longest).sum())
        if not longer:
            return []
        return [f"{longer} of {len(rows)} private rows were longer than the longest public one, and clipped to it."]


def _settings(scenario: Scenario) -> ErmSettings:
    chosen = scenario.algorithm
    loss = Loss(chosen.loss, chosen.half_width)
    return ErmSettings(loss, chosen.regularisation, chosen.perturbation, chosen.epsilon)


def _described(model: ErmModel, settings: ErmSettings) -> dict[str, Any]:
    """What result.json says of a model; how training ended depends on private rows."""
    return {
        "objective": None,
        "lower_bound": None,
        "gap": None,
        "converged": True,
        "iterations": model.rounds if settings.epsilon is None else None,
        "bundles": None,
        "sites": list(model.sites),
        "landmarks": None,
        "records_exposed": None,
        "rank": len(model.weights),
    }
