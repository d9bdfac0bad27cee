"""Rows at different sites as a source of tasks, and those of a simulation, which knows which rows are where."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsvm.algorithms.algorithm import HorizontalAlgorithm, Model
from fedsvm.algorithms.data.columns import Columns, LabeledRows, Schema
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.data.public_rows import PublicTask, public_columns
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.own_models import has_several_classes, own_scores, phrase_of
from fedsvm.algorithms.pooled import EvaluationRows
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant
from fedsvm.algorithms.privacy.privacy_ledger import DataIdentity
from fedsvm.algorithms.site_scores import ClassScores, SiteScores, count_at_sites, score_at_sites
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.federation import Federation
from fedsvm.scenarios.data.dataset import FederatedDataset, Rows
from fedsvm.scenarios.run import measuring
from fedsvm.scenarios.run.audit import GroundTruth
from fedsvm.scenarios.run.evaluation import compare_with_pooled, pooled_order
from fedsvm.scenarios.run.offered_terms import conditions_of, terms_of
from fedsvm.scenarios.run.outcome import ModelEvaluation, site_model
from fedsvm.scenarios.run.own_models import OwnModels, compare_counts, compare_own
from fedsvm.scenarios.run.selection import FoldSelection, fold_selection
from fedsvm.scenarios.run.training import Source, training_of
from fedsvm.scenarios.schema.spec import Scenario

RowTask = HorizontalTask | PublicTask


def noise_shares(scenario: Scenario) -> int:
    """Return the number of sites whose noise must suffice: those that must remain, minus those that know their share.

    It is 1 if colluding sites can isolate the part of another site, so that every site draws all of the noise.
    """
    colluding = len(scenario.collusion.sites) if scenario.collusion is not None else 0
    least, most = scenario.min_sites, scenario.federation.sites
    isolating = min(scenario.protocol.secure_sum.isolating(sites) for sites in range(least, most + 1))
    return 1 if 0 < isolating <= colluding else max(1, least - max(1, colluding))


@dataclass
class RowSource(Source):
    """Rows of the same columns at different sites.

    schema: the columns. identity: identifies the data in a privacy ledger.
    """

    schema: Schema = field(init=False)
    identity: DataIdentity = field(init=False)

    @abstractmethod
    def public_rows(self) -> Rows:
        """Return the public rows."""

    def task(self, fold: int | None) -> RowTask:
        """Return the task of a fold. All tasks share the agreements of the sites, and one privacy budget."""
        return replace(self._first_task, fold=fold)

    @cached_property
    def _first_task(self) -> RowTask:
        scenario, data = self.scenario, self.scenario.data
        if scenario.algorithm.implementation.scaling == "secure-sums":
            return HorizontalTask(
                self.schema,
                data.scale,
                scenario.seed,
                filled=data.missing == "mean",
                indicated=data.missing_indicators,
                classes=self.classes,
                weighted=data.weight is not None,
                calibrated=data.calibration > 0,
                conditions=conditions_of(scenario),
                tested_apart=data.folds is None,
                plan=StatisticsPlan.of(
                    terms_of(scenario), by_class=scenario.algorithm.implementation.model_is_statistics
                ),
            )
        rows = self.public_rows()
        columns = public_columns(self.schema, rows.numeric, rows.categorical, data.scale, data.ranges)
        public = LabeledRows(columns(rows.numeric, rows.categorical), rows.labels)
        accountant = PrivacyAccountant.within(scenario.algorithm.settings, self.identity)
        return PublicTask(columns, public, accountant, noise_shares(scenario), scenario.seed, classes=len(self.classes))

    def arrays(self, model: Model, task: RowTask) -> dict[str, Any]:
        """Return the arrays of a model, and those of the columns that it uses."""
        return {**model.to_arrays(), **task.columns.to_arrays(model.selected_columns)}

    def evaluate(self, federation: Federation, model: Model, task: RowTask) -> ModelEvaluation:
        """Return the evaluation by the sites on rows that they hold out, and the selection of columns."""
        scores = self.scores_at_sites(federation, model)
        threshold = 0.0 if model.calibrated is None else model.calibrated.threshold
        return ModelEvaluation(
            test=None if scores is None else measuring.metrics_from_counts(scores, threshold),
            at_sites=scores,
            own=self.own_at_sites(federation, model),
            selection=None if model.ranked is None else FoldSelection(model.ranked),
        )

    def scores_at_sites(self, federation: Federation, model: Model) -> SiteScores | ClassScores | None:
        """Return the sites' scores of the rows that they hold out; None if they hold out no rows."""
        tested = self.scenario.data.tested_at_sites
        return score_at_sites(federation, model, len(self.classes)) if tested else None

    def own_at_sites(self, federation: Federation, model: Model) -> OwnModels | None:
        """Compare own models at the sites on rows that they hold out; None without such rows, or if not requested."""
        if not (self.scenario.compare.sites and self.scenario.data.tested_at_sites):
            return None
        phrase = phrase_of(self.scenario.algorithm.implementation.own_method)
        return compare_counts(phrase, count_at_sites(federation, model))


@dataclass
class SimulatedRows(RowSource):
    """The rows of a simulation, which are all known on this machine."""

    dataset: FederatedDataset
    folder: Path
    _columns: Columns | None = None

    def __post_init__(self) -> None:
        dataset = self.dataset
        self.schema, self.classes, self.identity = dataset.schema, dataset.classes, dataset.identity

    def public_rows(self) -> Rows:
        """Return the public rows of the data set."""
        return self.dataset.rows.take(self.dataset.public)

    def note_trained(self, federation: Federation, task: RowTask) -> None:
        """Store the encoding of rows, for an audit."""
        self._columns = task.columns

    def evaluate(self, federation: Federation, model: Model, task: RowTask) -> ModelEvaluation:
        """Return metrics of the test rows, also for models of pooled rows."""
        algorithm, asked = self.scenario.algorithm.implementation, None
        rows = self._rows(task.fold, training_of(model).sites, task.columns)
        if isinstance(algorithm, HorizontalAlgorithm):
            asked = algorithm.score(federation, model, rows.test.rows)
        whole = self._whole(model)
        decisions = whole.decision_function(rows.test.rows) if asked is None else asked
        calibration, is_tested = whole.calibrated, len(self.dataset.test(task.fold)) > 0
        judged: dict[str, Any] = {}
        if calibration is not None:
            judged = {"threshold": calibration.threshold, "probabilities": whole.probabilities(rows.test.rows)}
        return replace(
            compare_with_pooled(self.scenario, model, whole, decisions, rows, task.fold, is_tested=is_tested),
            test=measuring.evaluate(decisions, rows.test.labels, **judged) if is_tested else None,
            at_sites=self.scores_at_sites(federation, model),
            own=self._own(federation, model, task, decisions, rows),
            selection=self._selection(model, task.columns, rows, is_tested=is_tested),
        )

    def _own(
        self, federation: Federation, model: Model, task: RowTask, decisions: FloatArray, rows: EvaluationRows
    ) -> OwnModels | None:
        """Return the comparison with the sites' own models; None if it is not requested, or there are no test rows."""
        if self.scenario.data.tested_at_sites:
            return self.own_at_sites(federation, model)
        if not self.scenario.compare.sites or not len(self.dataset.test(task.fold)):
            return None
        table, own, of_one_class = self.scenario.algorithm, {}, []
        method = table.implementation.own_method
        for site in training_of(model).sites:
            of_site = self._rows(task.fold, (site,), task.columns)
            if len(of_site.train.rows):
                own[site] = (len(of_site.train.rows), own_scores(method, table.settings, of_site))
                if not has_several_classes(of_site.train):
                    of_one_class.append(site)
        return compare_own(phrase_of(method), decisions, rows.test.labels, own, of_one_class)

    def _whole(self, model: Model) -> Model:
        """Return the model with the parts in the sites' own files."""
        if not model.kept_by_sites:
            return model
        parts = [site_model(self.folder, site) for site in training_of(model).sites]
        return type(model).from_arrays(model.to_arrays(), parts)

    def _rows(self, fold: int | None, sites: tuple[str, ...], columns: Columns) -> EvaluationRows:
        """Return the rows on which a model is evaluated: the test rows, or without any the training rows."""
        held_out, training = self.dataset.test(fold), self.dataset.training(fold, sites)
        train = self._scale(training, columns)
        weights = self.dataset.weights[training] if len(self.dataset.weights) else None
        test = self._scale(held_out, columns) if len(held_out) else train
        public = self._scale(self.dataset.public, columns) if len(self.dataset.public) else None
        return EvaluationRows(train, test, public, self.dataset.classes, weights)

    def _selection(
        self, model: Model, columns: Columns, rows: EvaluationRows, *, is_tested: bool
    ) -> FoldSelection | None:
        """Return the selection of columns, compared with pooled rows and tested; None if all columns were used."""
        if (ranking := model.ranked) is None:
            return None
        tested = model.decisions_by_size(rows.test.rows) if is_tested else {}
        compared = self.scenario.compare.centralised
        order = pooled_order(self.scenario, model, columns.names, rows) if compared else None
        return fold_selection(ranking, order, tested, rows.test.labels)

    def truth(self) -> GroundTruth:
        """Return the rows of every site, of all folds, and the candidates, encoded as the sites encode them."""
        if (columns := self._columns) is None:
            raise AssertionError("nothing was trained")

        def encode_rows(rows: Rows) -> LabeledRows:
            return LabeledRows(columns.encode(rows.numeric, rows.categorical), rows.labels)

        dataset = self.dataset
        held = zip(dataset.names, dataset.shards, strict=True)
        candidates = encode_rows(dataset.candidates) if dataset.candidates is not None else None
        rows = {name: encode_rows(dataset.rows.take(shard.rows)) for name, shard in held}
        return GroundTruth(rows, {}, candidates, len(dataset.classes), encode_rows(dataset.rows))

    def _scale(self, indices: IntArray, columns: Columns) -> LabeledRows:
        """Return rows (n, p) on the common scale, and their labels (n,)."""
        rows = self.dataset.rows.take(indices)
        return LabeledRows(columns(rows.numeric, rows.categorical), rows.labels)
