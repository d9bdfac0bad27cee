"""DPP-SVM over a vertical partition, from aligning the sites' records to a tested model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from algorithms.data.vertical import Records, align, encoded, hold_out, labels_of, scale_of
from algorithms.dpp_svm import DppModel, DppSettings, decision_values, train
from algorithms.features.kernels import Kernel
from algorithms.features.partial_kernel import exchanged_elements, unpack
from algorithms.kernel_attack import STEP, attack
from federation.arrays import FloatArray, IntArray
from federation.errors import MembershipChanged
from federation.federation import Federation
from scenarios.data.dataset import NO_FOLD, FederatedDataset
from scenarios.run import audit, metrics
from scenarios.run.audit import Coalition
from scenarios.run.outcome import PARTS, Fold, Outcome
from scenarios.schema.spec import Scenario


@dataclass(frozen=True)
class VerticalRun:
    """The part of a run that knows what is learnt, and from which columns."""

    scenario: Scenario
    workload: FederatedDataset
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
        """What some known records make of the kernel matrices that the coalition has in the end."""
        chosen, colluding = self.scenario.algorithm, self.scenario.collusion
        seen = audit.parts_seen(coalition, transcripts, federation.accounts.rounds, STEP)
        found = []
        for sites, parts in sorted(seen.items()):
            matrix = _last_matrix(parts, len(fold.rows[sites[0]]))
            for columns_of in dict.fromkeys([sites, *((site,) for site in sites)]):
                reconstruction = attack(
                    sites,
                    matrix,
                    fold.rows,
                    columns_of,
                    colluding.known_records if colluding else None,
                    distances=Kernel(chosen.kernel).of_distances,
                    random=np.random.default_rng([self.scenario.seed, 3]),
                )
                found.append(reconstruction.to_fields())
        return found

    def remarks(self, coalition: Coalition) -> list[str]:
        """What a coalition learns beside what each sum gives away."""
        linear = self.scenario.algorithm.kernel == "linear"
        if linear or not coalition.sites:
            return []
        return [
            "The first site opens the sums from which new records are scored: if it colludes, the coalition has the "
            "kernel values between these and the records that are weighed, of all columns together."
        ]

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
        outcome.warnings += _shortfall(model, fold)
        with outcome.timed("evaluate_s"), federation.phase("evaluate"):
            return self._tested(federation, fold, model, records)

    def _tested(self, federation: Federation, fold: int, model: DppModel, records: Records) -> Fold:
        """Scored by the sites; what all columns together would have given, only a simulation knows."""
        test, scores, audited = None, model.fitted, self.scenario.collusion is not None
        if records.held_out:
            labels = labels_of(federation, records.held_out, records.label_sites, held_out=True)
            scores = decision_values(federation, model, records.held_out)
            test = metrics.tested(scores, labels)
        pooled = None
        if self.scenario.compare.centralised:
            columns = self._columns(federation.sites, federation.sites)
            pooled = metrics.compare_with_pooled_columns(
                model, _settings(self.scenario, len(columns.train[1])), columns.train, columns.test, scores
            )
        return Fold(
            fold=fold if self.scenario.data.folds is not None else NO_FOLD,
            model=model.figures(federation.sites),
            arrays=_arrays(model),
            test=test,
            pooled=pooled,
            rows={site: self._columns((site,), federation.sites).train[0] for site in federation.sites if audited},
        )

    def _columns(self, of: Sequence[str], sites: Sequence[str]) -> _Columns:
        """The columns `of` some of the sites that take part.

        The order of the records is what the first of these has in its file; all else comes from the source of the data.
        """
        workload, parts = self.workload, self.folder / PARTS
        held = dict(zip(workload.names, workload.holdings, strict=True))
        with np.load(parts / f"{sites[0]}.npz") as part:
            indices, training = held[sites[0]].rows[part["order"]], part["training"]
        rows = _encoded(workload, indices, {column for site in of for column in held[site].columns})
        offset, spread = scale_of(rows[training], self.scenario.data.scale)
        rows, labels = (rows - offset) / spread, workload.rows.signs[indices]
        train = rows[training], labels[training]
        return _Columns(train, (rows[~training], labels[~training]) if not training.all() else train)


class _Columns(NamedTuple):
    """Scaled rows (n, p) of the records that all sites hold, in their order, and labels (n,)."""

    train: tuple[FloatArray, FloatArray]
    test: tuple[FloatArray, FloatArray]


def _last_matrix(parts: Sequence[FloatArray], rows: int) -> FloatArray:
    """The (n, n) matrix that was exchanged last, from the blocks of all exchanges."""
    packed = np.concatenate(parts)[-exchanged_elements(rows) :]
    matrix = np.empty((rows, rows))
    unpack(packed, 0, rows, matrix)
    return matrix


def _encoded(workload: FederatedDataset, indices: IntArray, columns: set[str]) -> FloatArray:
    rows = workload.rows.take(indices)
    numeric = [place for place, name in enumerate(workload.numeric_columns) if name in columns]
    categorical = [place for place, name in enumerate(workload.categorical_columns) if name in columns]
    values = [np.unique(rows.categorical[:, place], return_inverse=True) for place in categorical]
    codes = np.column_stack([codes for _, codes in values]) if values else np.zeros((len(indices), 0))
    return encoded(rows.numeric[:, numeric], codes.astype(np.int64), [names.tolist() for names, _ in values])


def _shortfall(model: DppModel, fold: int) -> list[str]:
    if model.converged:
        return []
    gap = f", {model.gap:.1e} short of a bound," if model.gap is not None else ""
    return [
        f"Training of fold {fold} stopped{gap} after {model.iterations} iterations. Where columns follow from others, "
        "scale them otherwise or leave them out; else lower algorithm.C."
    ]


def _settings(scenario: Scenario, rows: int) -> DppSettings:
    chosen = scenario.algorithm
    return DppSettings(
        kernel=Kernel(chosen.kernel, chosen.gamma, chosen.degree, chosen.coef0),
        C=chosen.C,
        exchange=scenario.algorithm.kernel_exchange,
        landmarks=chosen.landmark_count(rows),
        groups=chosen.groups,
        tolerance=chosen.tolerance,
        max_iterations=chosen.max_iterations,
        rank_tolerance=chosen.rank_tolerance,
        seed=scenario.seed,
    )


def _arrays(model: DppModel) -> dict[str, Any]:
    """The coordinator's part of the model; the records that are weighed stay at the sites, split by columns."""
    return {
        "weighed": model.weighed,
        "coefficients": model.coefficients,
        "b": np.array(model.intercept),
        **metrics.kernel_arrays(model.kernel),
    }
