"""DPP-SVM over a vertical partition, from aligning the sites' records to a tested model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.dpp_svm import DppModel, DppSettings, decision_values, train
from algorithms.kernels import Kernel
from algorithms.vertical import Records, align, encoded, hold_out, labels_of, scale_of
from federation.arrays import FloatArray, IntArray
from federation.coordinator import Federation
from federation.errors import MembershipChanged
from scenarios import evaluation
from scenarios.audit import Coalition
from scenarios.outcome import PARTS, Fold, Outcome
from scenarios.spec import Scenario
from scenarios.workload import NO_FOLD, Workload


@dataclass(frozen=True)
class VerticalRun:
    """The part of a run that knows what is learnt, and from which columns."""

    scenario: Scenario
    workload: Workload
    folder: Path

    def train(self, federation: Federation, outcome: Outcome) -> None:
        """Train and test one model after the other. When sites leave or join, the records are aligned again."""
        (self.folder / PARTS).mkdir(mode=0o700)
        pending = list(range(len(self.workload.tests)))
        while pending:
            with suppress(MembershipChanged), federation.fixed_membership():
                with outcome.timed("train_s"), federation.phase("setup"):
                    matched = align(federation, self.scenario.data.align)
                    outcome.alignment = {"by": self.scenario.data.align, "records": matched}
                while pending:
                    outcome.folds.append(self._fold(federation, outcome, pending[0]))
                    pending.pop(0)
        outcome.warnings += self._missing(federation)

    def reconstructions(
        self, coalition: Coalition, transcripts: Mapping[str, list[Path]], federation: Federation, fold: Fold
    ) -> list[dict[str, Any]]:
        """What known records make of the kernel matrices that the coalition saw."""
        return []

    def remarks(self, coalition: Coalition) -> list[str]:
        """What a coalition learns beside what each sum gives away."""
        return []

    def _missing(self, federation: Federation) -> list[str]:
        """A sentence for each site that the model does without."""
        holdings = zip(self.workload.names, self.workload.holdings, strict=True)
        return [
            f"The columns of {name} are not in the model ({', '.join(held.columns)}): it was lost before the kernel "
            "exchange."
            for name, held in holdings
            if name not in federation.sites
        ]

    def _fold(self, federation: Federation, outcome: Outcome, fold: int) -> Fold:
        with outcome.timed("train_s"):
            with federation.phase("setup"):
                records = hold_out(federation, fold, self.scenario.data.scale)
            with federation.phase("train"):
                model = train(federation, _settings(self.scenario, len(records.labels)), records.labels)
        with outcome.timed("evaluate_s"), federation.phase("evaluate"):
            return self._tested(federation, fold, model, records)

    def _tested(self, federation: Federation, fold: int, model: DppModel, records: Records) -> Fold:
        """Scored by the sites; what all columns together would have given, only a simulation knows."""
        test, scores = None, model.fitted
        if records.held_out:
            labels = labels_of(federation, records.held_out, records.label_sites, held_out=True)
            scores = decision_values(federation, model, records.held_out)
            test = evaluation.quality(scores, labels)
        pooled = None
        if self.scenario.compare.centralised:
            columns = _Columns.together(self.workload, federation.sites, self.folder / PARTS, self.scenario.data.scale)
            pooled = evaluation.compare_with_pooled_columns(
                model, _settings(self.scenario, len(columns.train[1])), columns.train, columns.test, scores
            )
        return Fold(
            fold=fold if self.scenario.data.folds is not None else NO_FOLD,
            model=_described(model, federation.sites),
            arrays=_arrays(model),
            test=test,
            pooled=pooled,
            rows={},
        )


@dataclass(frozen=True)
class _Columns:
    """All columns of the records that all sites hold, in their order: rows (n, p) and labels (n,)."""

    train: tuple[FloatArray, FloatArray]
    test: tuple[FloatArray, FloatArray]

    @classmethod
    def together(cls, workload: Workload, sites: Sequence[str], parts: Path, scale: str) -> _Columns:
        """The order is what the first site has in its file; everything else comes from the source of the data."""
        first = workload.holdings[workload.names.index(sites[0])]
        with np.load(parts / f"{sites[0]}.npz") as part:
            indices, training = first.rows[part["order"]], part["training"]
        held = {name for site in sites for name in workload.holdings[workload.names.index(site)].columns}
        rows = _encoded(workload, indices, held)
        offset, spread = scale_of(rows[training], scale)
        rows, labels = (rows - offset) / spread, workload.rows.signs[indices]
        train = rows[training], labels[training]
        return cls(train, (rows[~training], labels[~training]) if not training.all() else train)


def _encoded(workload: Workload, indices: IntArray, columns: set[str]) -> FloatArray:
    rows = workload.rows.take(indices)
    numeric = [place for place, name in enumerate(workload.numeric_columns) if name in columns]
    categorical = [place for place, name in enumerate(workload.categorical_columns) if name in columns]
    values = [np.unique(rows.categorical[:, place], return_inverse=True) for place in categorical]
    codes = np.column_stack([codes for _, codes in values]) if values else np.zeros((len(indices), 0))
    return encoded(rows.numeric[:, numeric], codes.astype(np.int64), [names.tolist() for names, _ in values])


def _settings(scenario: Scenario, rows: int) -> DppSettings:
    chosen = scenario.algorithm
    return DppSettings(
        kernel=Kernel(chosen.kernel, chosen.gamma, chosen.degree, chosen.coef0),
        C=chosen.C,
        exchange=scenario.protocol.kernel_exchange,
        landmarks=chosen.landmark_count(rows),
        groups=chosen.groups,
        tolerance=chosen.tolerance,
        max_iterations=chosen.max_iterations,
        rank_tolerance=chosen.rank_tolerance,
        seed=scenario.seed,
    )


def _described(model: DppModel, sites: Sequence[str]) -> dict[str, Any]:
    """What result.json says of a model."""
    low_rank = model.rank is not None
    return {
        "objective": model.objective,
        "lower_bound": model.lower_bound,
        "gap": model.gap,
        "converged": model.converged,
        "iterations": model.iterations,
        "bundles": None,
        "sites": list(sites),
        "landmarks": len(model.weighed) if low_rank else None,
        "records_exposed": None,
        "rank": model.rank,
        "support": None if low_rank else len(model.weighed),
    }


def _arrays(model: DppModel) -> dict[str, Any]:
    """The coordinator's part of the model; the records that are weighed stay at the sites, split by columns."""
    return {
        "weighed": model.weighed,
        "coefficients": model.coefficients,
        "b": np.array(model.intercept),
        **evaluation.kernel_arrays(model.kernel),
    }
