"""Runs of any algorithm over sites that hold rows, from preparing columns to tested models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsvm.algorithms.contract import EvaluationRows, HorizontalAlgorithm, Model
from fedsvm.algorithms.data.columns import Columns, Labelled
from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.data.horizontal import HorizontalTask
from fedsvm.algorithms.data.public_rows import PublicTask, public_columns
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant, PrivacyReport
from fedsvm.algorithms.site_scores import score_at_sites
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.federation import Federation
from fedsvm.scenarios.data.dataset import FederatedDataset, Rows
from fedsvm.scenarios.run import metrics
from fedsvm.scenarios.run.audit import GroundTruth
from fedsvm.scenarios.run.baselines import baselines_of
from fedsvm.scenarios.run.outcome import SITE_MODELS, Fold, Outcome, log_fold, trained
from fedsvm.scenarios.run.selection import FoldSelection, fold_selection
from fedsvm.scenarios.run.starter import JOURNAL
from fedsvm.scenarios.schema.data import DataSpec
from fedsvm.scenarios.schema.spec import Scenario

UNCOVERED_ROUNDS = (
    "cost, progress, timing, disclosures, log.jsonl, ledger.parquet: how many rounds training took, and how long"
)
UNCOVERED_JOURNAL = f"{JOURNAL}: every sum that the coordinator saw, on its disk; remove it when the run is over"
"""What no noise covers of what a run leaves behind."""


def held_out_folds(data: DataSpec) -> list[int | None]:
    """What each model that is trained holds out at the sites; None for nothing."""
    if data.folds is not None:
        return list(range(data.models))
    return [0 if data.tested_at_sites else None]


def noise_shares(scenario: Scenario) -> int:
    """As many sites as must remain, less those that know their own share of the noise.

    One, so that every site draws all of it, where colluding sites may isolate another's part with its share.
    """
    colluding = len(scenario.collusion.sites) if scenario.collusion is not None else 0
    least, most = scenario.min_sites, scenario.federation.sites
    isolating = min(scenario.protocol.secure_sum.isolating(sites) for sites in range(least, most + 1))
    return 1 if 0 < isolating <= colluding else max(1, least - max(1, colluding))


@dataclass
class HorizontalPipeline:
    """The part of a run that knows which rows are where."""

    scenario: Scenario
    dataset: FederatedDataset
    folder: Path
    _columns: Columns | None = None

    def train(self, federation: Federation, outcome: Outcome) -> None:
        """Train and test one model after the other."""
        algorithm, settings = self.scenario.algorithm.implementation, self.scenario.algorithm.settings
        accountant = PrivacyAccountant.within(settings, self.dataset.identity)
        task_of = self._tasks(accountant)
        for fold in held_out_folds(self.scenario.data):
            task = task_of(fold)
            try:
                with outcome.timed("train_s"):
                    model = algorithm.fit(federation, task, settings)
            finally:  # what was spent is spent, whatever came of it
                outcome.privacy = self._reported(accountant)
            self._columns = task.columns
            log_fold(federation, self._named(fold), trained(model))
            with outcome.timed("evaluate_s"), federation.phase("evaluate"):
                rows = self._rows(fold, trained(model).sites, task.columns)
                outcome.warnings += algorithm.warnings(model, settings, rows, fold or 0)
                outcome.keep(self._fold(federation, fold, model, task.columns, rows), algorithm)

    def _named(self, fold: int | None) -> int | None:
        """What results call a fold; None where there is one only."""
        return fold if self.scenario.data.folds is not None else None

    def _whole(self, model: Model) -> Model:
        """The model with what the sites keep of it, which only a simulation can look at."""
        if not model.kept_by_sites:
            return model
        parts = []
        for site in trained(model).sites:
            with np.load(self.folder / SITE_MODELS / f"{site}.npz") as part:
                parts.append({name: part[name] for name in part.files})
        return type(model).from_arrays(model.to_arrays(), parts)

    def _reported(self, accountant: PrivacyAccountant) -> PrivacyReport | None:
        """What was released, and what else the run's folder holds that noise does not cover."""
        report = accountant.report()
        return None if report is None else replace(report, not_covered=tuple(self._not_covered()))

    def _not_covered(self) -> Iterator[str]:
        compare, data = self.scenario.compare, self.scenario.data
        tested = [
            *(["metrics"] if data.folds is not None or data.test_fraction or data.test_source else []),
            *(["centralised"] if compare.centralised else []),
            *(["baselines"] if compare.baselines else []),
        ]
        if tested:
            yield f"{', '.join(tested)}: exact figures of private rows, which only a simulation has together"
        yield UNCOVERED_ROUNDS
        if (self.folder / JOURNAL).is_dir():
            yield UNCOVERED_JOURNAL
        if self.scenario.collusion is not None:
            yield "collusion, transcripts: what colluding parties saw of sums"

    def _tasks(self, accountant: PrivacyAccountant) -> Callable[[int | None], HorizontalTask | PublicTask]:
        """What each model is to be trained on, by the fold that is held out."""
        data, dataset, seed = self.scenario.data, self.dataset, self.scenario.seed
        if self.scenario.algorithm.implementation.scaling == "secure-sums":
            filled, indicated = data.missing == "mean", data.missing_indicators
            task = HorizontalTask(dataset.schema, data.scale, seed, filled=filled, indicated=indicated)
            return replace(
                task,
                classes=dataset.classes,
                weighted=bool(len(dataset.weights)),
                calibrated=data.calibration > 0,
                conditions=self._conditions,
                tested_apart=data.folds is None,
            ).of_fold
        public = dataset.rows.take(dataset.public)
        columns = public_columns(dataset.schema, public.numeric, public.categorical, data.scale, data.ranges)
        rows = self._scaled(dataset.public, columns)
        classes = len(dataset.classes)
        return lambda fold: PublicTask(columns, rows, accountant, noise_shares(self.scenario), seed, fold, classes)

    @property
    def _conditions(self) -> Conditions:
        """What is known of the network before anything was sent."""
        network, chosen = self.scenario.network, Conditions(self.scenario.protocol.secure_sum)
        if network is None:
            return chosen
        slow = replace(chosen, latency_s=network.latency_ms / 1000)
        return slow if network.bandwidth_mbit is None else replace(slow, bytes_per_s=network.bandwidth_mbit * 125_000)

    def _rows(self, fold: int | None, sites: tuple[str, ...], columns: Columns) -> EvaluationRows:
        """All that is needed to judge a model; without test rows it is judged on those it was trained on."""
        held_out, training = self.dataset.test(fold), self.dataset.training(fold, sites)
        train = self._scaled(training, columns)
        weights = self.dataset.weights[training] if len(self.dataset.weights) else None
        test = self._scaled(held_out, columns) if len(held_out) else train
        public = self._scaled(self.dataset.public, columns) if len(self.dataset.public) else None
        return EvaluationRows(train, test, public, self.dataset.classes, weights)

    def _fold(
        self, federation: Federation, fold: int | None, model: Any, columns: Columns, rows: EvaluationRows
    ) -> Fold:
        algorithm, settings = self.scenario.algorithm.implementation, self.scenario.algorithm.settings
        asked = None
        if isinstance(algorithm, HorizontalAlgorithm):
            asked = algorithm.score(federation, model, rows.test.rows)
        whole, labels, calibration = self._whole(model), rows.test.labels, model.calibrated
        threshold = 0.0 if calibration is None else calibration.threshold
        decisions = whole.decision_function(rows.test.rows) if asked is None else asked
        pooled = algorithm.pooled(whole, settings, rows) if self.scenario.compare.centralised else None
        alone = algorithm.public_baseline(model, settings, rows) if self.scenario.is_private else None
        public = metrics.compare_baselines([alone], labels)[alone.name] if alone is not None else None
        tested, classes = self.scenario.data.tested_at_sites, len(self.dataset.classes)
        at_sites = score_at_sites(federation, model, classes) if tested else None
        return Fold(
            fold=self._named(fold),
            training=trained(model),
            arrays={**model.to_arrays(), **columns.to_arrays(model.selected_columns)},
            test=_evaluated(whole, decisions, labels) if len(self.dataset.test(fold)) else None,
            pooled=metrics.compare(pooled, decisions, labels, threshold) if pooled is not None else None,
            baselines=baselines_of(self.scenario, model, rows, labels),
            public=public,
            at_sites=at_sites,
            calibration=calibration,
            selection=self._selection(model, columns, rows, has_test=len(self.dataset.test(fold)) > 0),
        )

    def _selection(
        self, model: Model, columns: Columns, rows: EvaluationRows, *, has_test: bool
    ) -> FoldSelection | None:
        """How columns were chosen, of a model that chose them, beside what pooled rows and the test rows say."""
        if (ranking := model.ranked) is None:
            return None
        algorithm, settings = self.scenario.algorithm.implementation, self.scenario.algorithm.settings
        order = algorithm.pooled_order(model, settings, rows) if self.scenario.compare.centralised else None
        names = None if order is None else [columns.names[column] for column in order]
        tested = model.decisions_by_size(rows.test.rows) if has_test else {}
        return fold_selection(ranking, names, tested, rows.test.labels)

    def truth(self) -> GroundTruth:
        """Every site's rows, of all folds, and records that one can think of, encoded as the sites encode them."""
        if (columns := self._columns) is None:
            raise AssertionError("nothing was trained")

        def encoded(rows: Rows) -> Labelled:
            return Labelled(columns.encode(rows.numeric, rows.categorical), rows.labels)

        dataset = self.dataset
        held = zip(dataset.names, dataset.shards, strict=True)
        candidates = encoded(dataset.candidates) if dataset.candidates is not None else None
        rows = {name: encoded(dataset.rows.take(shard.rows)) for name, shard in held}
        return GroundTruth(rows, {}, candidates, len(dataset.classes))

    def _scaled(self, indices: IntArray, columns: Columns) -> Labelled:
        """Rows (n, p) on the common scale, and their labels (n,)."""
        rows = self.dataset.rows.take(indices)
        return Labelled(columns(rows.numeric, rows.categorical), rows.labels)


def _evaluated(model: Model, decisions: FloatArray, labels: FloatArray) -> metrics.FoldMetrics:
    """Metrics at the model's threshold, and of its probabilities, if it was calibrated."""
    found = model.calibrated
    if found is None:
        return metrics.evaluate(decisions, labels)
    probabilities = found.probabilities(decisions)
    return metrics.evaluate(decisions, labels, threshold=found.threshold, probabilities=probabilities)
