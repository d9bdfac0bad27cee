"""PAN-SVM over a horizontal partition, from agreeing on columns and scale to a tested model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.data.encoding import Vocabulary
from algorithms.data.horizontal import Scale, agree_scale, agree_vocabulary, count_rows
from algorithms.features.kernels import Kernel
from algorithms.pan_svm import Features, PanModel, PanSettings, choose_features, train
from federation.arrays import FloatArray, IntArray
from federation.errors import MembershipChanged
from federation.federation import Federation
from scenarios.data.dataset import NO_FOLD, FederatedDataset
from scenarios.run import metrics
from scenarios.run.audit import Coalition
from scenarios.run.outcome import Fold, Outcome
from scenarios.schema.spec import Scenario


@dataclass(frozen=True)
class _Prepared:
    """What the sites agreed on before they train."""

    vocabulary: Vocabulary
    agreed_by: frozenset[str]
    scale: Scale
    settings: PanSettings
    features: Features


@dataclass(frozen=True)
class HorizontalRun:
    """The part of a run that knows what is learnt, and from which rows."""

    scenario: Scenario
    workload: FederatedDataset
    folder: Path

    def train(self, federation: Federation, outcome: Outcome) -> None:
        """Train and test one model after the other."""
        folds = range(len(self.workload.tests)) if self.scenario.data.folds is not None else [NO_FOLD]
        prepared = None
        for fold in folds:
            with outcome.timed("train_s"):
                prepared = self._prepare(federation, fold, prepared)
                model = train(federation, prepared.settings, prepared.features)
            with outcome.timed("evaluate_s"), federation.phase("evaluate"):
                outcome.folds.append(self._tested(fold, model, prepared))

    def reconstructions(
        self, coalition: Coalition, transcripts: Mapping[str, list[Path]], federation: Federation, fold: Fold
    ) -> list[dict[str, Any]]:
        """Nothing but what the audit of sums finds."""
        return []

    def remarks(self, coalition: Coalition) -> list[str]:
        """What a coalition learns beside what each sum gives away."""
        local = self.scenario.algorithm.landmark_method == "local"
        if not (coalition.coordinator and coalition.sites and local):
            return []
        return [
            f"{coalition.sites[0]} knows the order in which sites fill the table of landmarks, and the coordinator the "
            'table: together they can tell whose each landmark is. algorithm.landmark_method = "global" avoids that.'
        ]

    def _prepare(self, federation: Federation, fold: int, before: _Prepared | None) -> _Prepared:
        """Agree on all that training needs; when sites leave or join meanwhile, again from the start."""
        while True:
            with suppress(MembershipChanged), federation.fixed_membership():
                return self._agree(federation, fold, before)

    def _agree(self, federation: Federation, fold: int, before: _Prepared | None) -> _Prepared:
        data, workload, seed = self.scenario.data, self.workload, self.scenario.seed
        with federation.phase("setup"):
            if before is not None and before.agreed_by >= set(federation.sites):
                vocabulary, agreed_by = before.vocabulary, before.agreed_by
            else:
                vocabulary = agree_vocabulary(federation, workload.categorical_columns, data.categories, seed)
                agreed_by = frozenset(federation.sites)
            if fold != NO_FOLD:
                federation.run("hold_out", remember=True, fold=fold)
            rows = count_rows(federation)
            width = len(workload.numeric_columns) + len(vocabulary.columns)
            scale = agree_scale(federation, data.scale, width, sum(rows.values()))
        settings = _settings(self.scenario, sum(rows.values()))
        return _Prepared(vocabulary, agreed_by, scale, settings, choose_features(federation, settings, rows, width))

    def _tested(self, fold: int, model: PanModel, prepared: _Prepared) -> Fold:
        held_out = self.workload.tests[max(fold, 0)]
        train_rows = self._scaled(self.workload.training(fold, model.sites), prepared)
        test_rows = self._scaled(held_out, prepared) if len(held_out) else train_rows
        test = metrics.tested(model.decision_values(test_rows[0]), test_rows[1]) if len(held_out) else None
        pooled = None
        if self.scenario.compare.centralised:
            pooled = metrics.compare_with_pooled(model, self.scenario.algorithm.C, train_rows, test_rows)
        holdings = zip(self.workload.names, self.workload.holdings, strict=True)
        audited = self.scenario.collusion is not None
        return Fold(
            fold=fold,
            model=model.figures,
            arrays=self._arrays(model, prepared),
            test=test,
            pooled=pooled,
            rows={name: self._scaled(held.rows, prepared)[0] for name, held in holdings if audited},
        )

    def _scaled(self, indices: IntArray, prepared: _Prepared) -> tuple[FloatArray, FloatArray]:
        """Rows (n, p) on the common scale, and their labels (n,)."""
        rows = self.workload.rows.take(indices)
        return prepared.scale(prepared.vocabulary.encode(rows.numeric, rows.categorical)), rows.signs

    def _arrays(self, model: PanModel, prepared: _Prepared) -> dict[str, Any]:
        return {
            "landmarks": model.landmarks.points,
            "map": model.mapping,
            "w": model.solution.w,
            "b": np.array(model.solution.b),
            "offset": prepared.scale.offset,
            "scale": prepared.scale.scale,
            "columns": np.array([*self.workload.numeric_columns, *prepared.vocabulary.columns]),
            **metrics.kernel_arrays(model.kernel),
        }


def _settings(scenario: Scenario, rows: int) -> PanSettings:
    chosen, protocol = scenario.algorithm, scenario.protocol
    return PanSettings(
        kernel=Kernel(chosen.kernel, chosen.gamma, chosen.degree, chosen.coef0),
        C=chosen.C,
        landmarks=chosen.landmark_count(rows) or 1,
        landmark_method=chosen.landmark_method,
        min_cluster_size=chosen.min_cluster_size,
        groups=chosen.groups,
        tolerance=chosen.tolerance,
        max_iterations=chosen.max_iterations,
        rank_tolerance=chosen.rank_tolerance,
        line_search=algorithm.line_search,
        line_search_step=protocol.step,
        seed=scenario.seed,
    )
