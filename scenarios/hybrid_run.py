"""Hybrid SVM over a horizontal partition: columns, scale and features from public rows, a model with noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from algorithms import public_scale
from algorithms.horizontal import Scale, count_rows
from algorithms.hybrid_svm import HybridModel, HybridSettings, train
from algorithms.mechanisms import Account, Promise
from algorithms.vocabulary import Vocabulary
from federation.arrays import FloatArray, IntArray
from federation.coordinator import Federation
from scenarios import evaluation
from scenarios.audit import Coalition
from scenarios.outcome import Fold, Outcome
from scenarios.spec import Scenario
from scenarios.workload import NO_FOLD, Workload


@dataclass(frozen=True)
class HybridRun:
    """The part of a run that knows what is learnt, and what public rows are there for."""

    scenario: Scenario
    workload: Workload
    folder: Path

    def train(self, federation: Federation, outcome: Outcome) -> None:
        """Train, release and test one model after the other, as far as the budget goes."""
        chosen = self.scenario.algorithm
        account = Account(chosen.budget or math.inf, chosen.budget_delta or math.inf)
        folds = range(len(self.workload.tests)) if self.scenario.data.folds is not None else [NO_FOLD]
        public = self.scaled(self.workload.public)
        settings = _settings(self.scenario)
        for fold in folds:
            with outcome.timed("train_s"):
                with federation.phase("setup"):
                    values = list(self._vocabulary.values.values())
                    public_scale.prepare(federation, values, self._scale, fold if fold != NO_FOLD else len(folds))
                with federation.phase("train"):
                    model = train(federation, settings, public, lambda: sum(count_rows(federation).values()), account)
            outcome.privacy = _privacy(account, model)
            with outcome.timed("evaluate_s"), federation.phase("evaluate"):
                outcome.folds.append(self._tested(fold, model, settings))

    def reconstructions(
        self, coalition: Coalition, transcripts: Mapping[str, list[Path]], federation: Federation, fold: Fold
    ) -> list[dict[str, Any]]:
        """Nothing but what the audit of sums finds."""
        return []

    def remarks(self, coalition: Coalition) -> list[str]:
        """What a coalition learns beside what each sum gives away."""
        return []

    def scaled(self, indices: IntArray) -> tuple[FloatArray, FloatArray]:
        """Rows (n, d) in the columns and on the scale of the public ones, and labels (n,)."""
        rows = self.workload.rows.take(indices)
        return self._scale(self._vocabulary.encode(rows.numeric, rows.categorical)), rows.signs

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        """Categories that are declared, or that public rows have."""
        rows, declared = self.workload.rows.take(self.workload.public), self.scenario.data.categories
        columns = zip(self.workload.categorical_columns, rows.categorical.T, strict=True)
        return Vocabulary({name: sorted(declared.get(name, set(column.tolist()))) for name, column in columns})

    @cached_property
    def _scale(self) -> Scale:
        rows = self.workload.rows.take(self.workload.public)
        encoded = self._vocabulary.encode(rows.numeric, rows.categorical)
        return public_scale.scale_from_public(encoded, self.scenario.data.scale)

    def _tested(self, fold: int, model: HybridModel, settings: HybridSettings) -> Fold:
        held_out = self.workload.tests[max(fold, 0)]
        train_rows = self.scaled(self.workload.training(fold, model.sites))
        test_rows = self.scaled(held_out) if len(held_out) else train_rows
        public_rows = self.scaled(self.workload.public)
        test = evaluation.quality(model.decision_values(test_rows[0]), test_rows[1]) if len(held_out) else None
        pooled = None
        if self.scenario.compare.centralised:
            pooled = evaluation.compare_with_no_noise(model, settings, train_rows, test_rows)
        baselines = None
        if self.scenario.compare.baselines:
            baselines = evaluation.private_baselines(model, settings, public_rows, train_rows, test_rows)
        return Fold(
            fold=fold,
            model=_described(model),
            arrays={
                "rho": model.frequencies.rho,
                "w": model.weights,
                "b": np.array(0.0),
                "offset": self._scale.offset,
                "scale": self._scale.scale,
                "columns": np.array([*self.workload.numeric_columns, *self._vocabulary.columns]),
            },
            test=test,
            pooled=pooled,
            rows={},
            baselines=baselines,
        )


def _settings(scenario: Scenario) -> HybridSettings:
    chosen = scenario.algorithm
    colluding = len(scenario.collusion.sites) if scenario.collusion is not None else 0
    promise = None
    if chosen.mechanism != "none" and chosen.epsilon is not None:
        promise = Promise(chosen.mechanism, chosen.epsilon, chosen.delta or 0.0)
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
        parts=max(1, scenario.fewest_sites - colluding),
        seed=scenario.seed,
    )


def _described(model: HybridModel) -> dict[str, Any]:
    """What result.json says of a model. How training ended depends on private rows, and is told without noise only."""
    open_solution = model.solution if model.noise is None else None
    return {
        "objective": open_solution.objective if open_solution else None,
        "lower_bound": open_solution.lower_bound if open_solution else None,
        "gap": open_solution.gap if open_solution else None,
        "converged": True,
        "iterations": open_solution.iterations if open_solution else None,
        "bundles": None,
        "sites": list(model.sites),
        "landmarks": None,
        "records_exposed": None,
        "rank": len(model.weights),
        "frequencies": len(model.frequencies.rho),
        "fit_error": {"as_drawn": model.frequencies.error_as_drawn, "fitted": model.frequencies.error},
    }


def _privacy(account: Account, model: HybridModel) -> dict[str, Any] | None:
    """The account so far, and what the last release was made of; None where nothing was promised."""
    noise = model.noise
    if noise is None:
        return None
    epsilon, delta = account.spent
    last = account.releases[-1]
    return {
        "epsilon": epsilon,
        "delta": delta,
        "mechanism": last.mechanism,
        "sensitivity": last.sensitivity,
        "noise_scale": last.noise_scale,
        "protects_against": list(last.protects_against),
        "lattice": noise.step,
        "drawn_by": f"the sites, in shares for {noise.parts} of them" if noise.in_shares else "the coordinator",
        "budget": {"epsilon": _finite(account.epsilon), "delta": _finite(account.delta)},
        "releases": [
            asdict(release) | {"protects_against": list(release.protects_against)} for release in account.releases
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
