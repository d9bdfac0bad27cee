"""Columns at different sites as a source of tasks, and those of a simulation, which knows which columns are where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedsvm.algorithms.algorithm import VerticalAlgorithm, VerticalModel
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.encoding import one_hot
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.data.vertical import VerticalTask, align, labels_of
from fedsvm.algorithms.pooled import EvaluationRows
from fedsvm.algorithms.ranking import column_of
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.federation import Federation
from fedsvm.scenarios.data.dataset import FederatedDataset
from fedsvm.scenarios.run import measuring
from fedsvm.scenarios.run.audit import GroundTruth
from fedsvm.scenarios.run.evaluation import compare_with_pooled, pooled_order
from fedsvm.scenarios.run.metrics import FoldMetrics
from fedsvm.scenarios.run.outcome import SITE_MODELS, Alignment, ModelEvaluation, RunState, site_model
from fedsvm.scenarios.run.selection import FoldSelection, fold_selection
from fedsvm.scenarios.run.training import Source


@dataclass
class ColumnSource(Source):
    """Columns of the same records at different sites.

    columns: names of the columns of each site. records: those that all sites hold. tested: those of them that the last
    model held out.
    """

    columns: Mapping[str, Sequence[str]] = field(init=False, default_factory=dict)
    records: int = field(init=False, default=0)
    tested: int = field(init=False, default=0)

    def around(self, federation: Federation, state: RunState, train: Callable[[], None]) -> None:
        """Align the sites' records, then train. Repeat both if sites leave or join."""
        by = self.scenario.data.align

        def stage() -> None:
            with state.time_block("train_s", federation.record.age), federation.phase("setup"):
                self.records = align(federation, by)
            state.alignment = Alignment(by, self.records)
            train()

        federation.until_stable(stage)
        state.warnings += [
            f"The columns of {site} are not in the model ({', '.join(names)}): it was lost before the kernel exchange."
            for site, names in self.columns.items()
            if site not in federation.sites
        ]

    def task(self, fold: int | None) -> VerticalTask:
        """Return the task of a fold."""
        return VerticalTask(self.scenario.data.scale, self.scenario.seed, fold, len(self.classes))

    def note_trained(self, federation: Federation, task: VerticalTask) -> None:
        """Note how many records the model held out."""
        self.tested = task.records.held_out

    def evaluate(self, federation: Federation, model: VerticalModel, task: VerticalTask) -> ModelEvaluation:
        """Return metrics of the records that the sites hold out and score, and how columns were chosen."""
        selection = None if model.ranked is None else FoldSelection(model.ranked)
        return ModelEvaluation(test=self.score(federation, model, task)[1], selection=selection)

    def score(
        self, federation: Federation, model: VerticalModel, task: VerticalTask
    ) -> tuple[FloatArray, FoldMetrics | None]:
        """Return decision values of held-out records and their metrics; without such those of the training records."""
        records = task.records
        if not records.held_out:
            return model.fitted, None
        algorithm = self.scenario.algorithm.implementation
        if not isinstance(algorithm, VerticalAlgorithm):
            raise TypeError(f"{algorithm.name} must be a VerticalAlgorithm, got {type(algorithm).__mro__[1].__name__}")
        labels = labels_of(federation, records.held_out, records.label_sites, held_out=True, classes=task.classes)
        scores = algorithm.score(federation, model, records.held_out)
        return scores, measuring.evaluate(scores, labels)


@dataclass
class SimulatedColumns(ColumnSource):
    """Columns that were dealt to sites on this machine, and are all known here."""

    dataset: FederatedDataset
    folder: Path
    _trained: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.classes = self.dataset.classes
        self.columns = {name: self.dataset.shard(name).columns for name in self.names}

    def around(self, federation: Federation, state: RunState, train: Callable[[], None]) -> None:
        """Make the folder of the sites' parts of models, which a run that is resumed has already, and train."""
        (self.folder / SITE_MODELS).mkdir(mode=0o700, exist_ok=True)
        super().around(federation, state, train)

    def evaluate(self, federation: Federation, model: VerticalModel, task: VerticalTask) -> ModelEvaluation:
        """Return metrics of the held-out records, and those of models of all columns in one place."""
        scores, test = self.score(federation, model, task)
        self._trained = federation.sites
        rows = self._columns(self._trained, self._trained)
        return replace(
            compare_with_pooled(self.scenario, model, model, scores, rows, task.fold, is_tested=test is not None),
            test=test,
            selection=self._selection(model),
        )

    def _selection(self, model: VerticalModel) -> FoldSelection | None:
        """Return how columns were chosen, by names that only their sites know, compared with pooled columns."""
        if (ranking := model.ranked) is None:
            return None
        sites = self._trained
        held = {site: site_model(self.folder, site)["held"].tolist() for site in sites}
        names = {column_of(site, place): name for site in sites for place, name in enumerate(held[site])}
        order = None
        if self.scenario.compare.centralised:
            order = pooled_order(self.scenario, model, *self._encoded_of(sites, sites, every=True))
        return fold_selection(ranking.rename(names), order, {}, np.zeros(0))

    def truth(self) -> GroundTruth:
        """Return the scaled columns of every site, of the records of the last model."""
        return GroundTruth({}, {site: self._columns((site,), self._trained).train.rows for site in self._trained})

    def _columns(self, of: Sequence[str], sites: Sequence[str]) -> EvaluationRows:
        """Return the scaled columns `of` some of the sites that take part, those that the model uses."""
        return self._encoded_of(of, sites)[1]

    def _encoded_of(
        self, of: Sequence[str], sites: Sequence[str], *, every: bool = False
    ) -> tuple[list[str], EvaluationRows]:
        """Return names and rows of the columns `of` some participating sites, in the order of the sites' records.

        That order is what the first of them has in its file; all else comes from the source of the data. every: those
        too that the model is not of.
        """
        parts = {site: site_model(self.folder, site) for site in {sites[0], *of}}
        indices, training = self.dataset.shard(sites[0]).rows[parts[sites[0]]["order"]], parts[sites[0]]["training"]
        names, rows = self._encode(indices, {column for site in of for column in self.columns[site]})
        if not every:
            wanted = {name for site in of for name in parts[site]["columns"].tolist()}
            names, rows = [name for name in names if name in wanted], rows[:, [name in wanted for name in names]]
        scaled, labels = Scale.of(rows[training], self.scenario.data.scale)(rows), self.dataset.rows.labels[indices]
        train = LabeledRows(scaled[training], labels[training])
        test = LabeledRows(scaled[~training], labels[~training]) if not training.all() else train
        return names, EvaluationRows(train, test, classes=self.dataset.classes)

    def _encode(self, indices: IntArray, columns: set[str]) -> tuple[list[str], FloatArray]:
        """Return names (p,) and columns (n, p) of some rows, numeric ones first, encoded as at the sites."""
        dataset, rows = self.dataset, self.dataset.rows.take(indices)
        numeric = [place for place, name in enumerate(dataset.numeric_columns) if name in columns]
        blocks, names = [], [dataset.numeric_columns[place] for place in numeric]
        for place, name in enumerate(dataset.categorical_columns):
            if name in columns:
                values, codes = np.unique(rows.categorical[:, place], return_inverse=True)
                blocks.append(one_hot(codes, values.tolist(), values.tolist()))
                names += [f"{name}={value}" for value in values.tolist()]
        return names, np.hstack([rows.numeric[:, numeric], *blocks])
