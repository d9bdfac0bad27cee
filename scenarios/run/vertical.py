"""Runs of any algorithm over sites that hold columns, from aligning the sites' records to tested models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.contract import EvaluationRows, VerticalAlgorithm, VerticalModel
from fedsvm.algorithms.data.columns import Labelled
from fedsvm.algorithms.data.encoding import one_hot
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.data.vertical import VerticalTask, align, labels_of
from fedsvm.algorithms.ranking import Ranking, column_of
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.federation import Federation
from fedsvm.scenarios.data.dataset import FederatedDataset
from fedsvm.scenarios.run import metrics
from fedsvm.scenarios.run.audit import GroundTruth
from fedsvm.scenarios.run.baselines import baselines_of
from fedsvm.scenarios.run.outcome import SITE_MODELS, Alignment, Fold, Outcome, log_fold, trained
from fedsvm.scenarios.run.selection import FoldSelection, fold_selection
from fedsvm.scenarios.schema.spec import Scenario


@dataclass
class VerticalPipeline:
    """The part of a run that knows which columns are where."""

    scenario: Scenario
    dataset: FederatedDataset
    folder: Path
    _trained: tuple[str, ...] = ()

    def train(self, federation: Federation, outcome: Outcome) -> None:
        """Train and test one model after the other. When sites leave or join, the records are aligned again."""
        (self.folder / SITE_MODELS).mkdir(mode=0o700, exist_ok=True)  # it is there in a run that is resumed
        pending = list(range(len(self.dataset.tests)))

        def stage() -> None:
            with outcome.timed("train_s"), federation.phase("setup"):
                matched = align(federation, self.scenario.data.align)
                outcome.alignment = Alignment(self.scenario.data.align, matched)
            while pending:
                outcome.keep(self._fold(federation, outcome, pending[0]), self._algorithm)
                pending.pop(0)

        federation.until_stable(stage)
        outcome.warnings += self._missing(federation)

    @property
    def _algorithm(self) -> VerticalAlgorithm[Any, Any]:
        algorithm = self.scenario.algorithm.implementation
        if not isinstance(algorithm, VerticalAlgorithm):
            raise TypeError(f"{algorithm.name} must be a VerticalAlgorithm, got {type(algorithm).__mro__[1].__name__}")
        return algorithm

    def _missing(self, federation: Federation) -> list[str]:
        """A sentence for each site that the model does without."""
        return [
            f"The columns of {name} are not in the model ({', '.join(held.columns)}): it was lost before the kernel "
            "exchange."
            for name, held in zip(self.dataset.names, self.dataset.shards, strict=True)
            if name not in federation.sites
        ]

    def _fold(self, federation: Federation, outcome: Outcome, fold: int) -> Fold:
        """One model, scored by the sites; what all columns together would have given, only a simulation knows."""
        algorithm, settings = self._algorithm, self.scenario.algorithm.settings
        classes = len(self.dataset.classes)
        task = VerticalTask(self.scenario.data.scale, self.scenario.seed, fold, classes)
        with outcome.timed("train_s"):
            model = algorithm.fit(federation, task, settings)
        log_fold(federation, fold if self.scenario.data.folds is not None else None, trained(model))
        with outcome.timed("evaluate_s"), federation.phase("evaluate"):
            test, held_out = None, task.records.held_out
            scores: FloatArray = model.fitted
            if held_out:
                sites = task.records.label_sites
                labels = labels_of(federation, held_out, sites, held_out=True, classes=classes)
                scores = algorithm.score(federation, model, held_out)
                test = metrics.evaluate(scores, labels)
            sites = self._trained = federation.sites
            rows = self._columns(sites, sites)
            outcome.warnings += algorithm.warnings(model, settings, rows, fold)
            pooled = algorithm.pooled(model, settings, rows) if self.scenario.compare.centralised else None
            selection = None if model.ranked is None else self._selection(model, model.ranked)
            return Fold(
                fold=fold if self.scenario.data.folds is not None else None,
                training=trained(model),
                arrays=model.to_arrays(),
                test=test,
                pooled=metrics.compare(pooled, scores, rows.test.labels) if pooled is not None else None,
                baselines=baselines_of(self.scenario, model, rows, rows.test.labels),
                selection=selection,
            )

    def _selection(self, model: VerticalModel, ranking: Ranking) -> FoldSelection:
        """How columns were chosen, by the names that only their sites know, beside what all columns together say."""
        sites = self._trained
        held = {site: self._part(site)["held"].tolist() for site in sites}
        names = {column_of(site, place): name for site in sites for place, name in enumerate(held[site])}
        order = None
        if self.scenario.compare.centralised:
            columns, rows = self._encoded_of(sites, sites, every=True)
            found = self._algorithm.pooled_order(model, self.scenario.algorithm.settings, rows)
            order = None if found is None else [columns[column] for column in found]
        return fold_selection(ranking.renamed(names), order, {}, np.zeros(0))

    def truth(self) -> GroundTruth:
        """Every site's columns, scaled, of the records that were trained on last."""
        return GroundTruth({}, {site: self._columns((site,), self._trained).train.rows for site in self._trained})

    def _columns(self, of: Sequence[str], sites: Sequence[str]) -> EvaluationRows:
        """Scaled columns `of` some of the sites that take part, those that the model is of."""
        return self._encoded_of(of, sites)[1]

    def _part(self, site: str) -> dict[str, NDArray[Any]]:
        """What a site keeps of the model."""
        with np.load(self.folder / SITE_MODELS / f"{site}.npz") as part:
            return {name: part[name] for name in part.files}

    def _encoded_of(
        self, of: Sequence[str], sites: Sequence[str], *, every: bool = False
    ) -> tuple[list[str], EvaluationRows]:
        """Names and rows of the columns `of` some of the sites that take part, in the order of the sites' records.

        That order is what the first of them has in its file; all else comes from the source of the data. every: those
        too that the model is not of.
        """
        parts = {site: self._part(site) for site in {sites[0], *of}}
        indices, training = self.dataset.shard(sites[0]).rows[parts[sites[0]]["order"]], parts[sites[0]]["training"]
        names, rows = self._encoded(indices, {column for site in of for column in self.dataset.shard(site).columns})
        if not every:
            wanted = {name for site in of for name in parts[site]["columns"].tolist()}
            names, rows = [name for name in names if name in wanted], rows[:, [name in wanted for name in names]]
        scaled, labels = Scale.of(rows[training], self.scenario.data.scale)(rows), self.dataset.rows.labels[indices]
        train = Labelled(scaled[training], labels[training])
        test = Labelled(scaled[~training], labels[~training]) if not training.all() else train
        return names, EvaluationRows(train, test, classes=self.dataset.classes)

    def _encoded(self, indices: IntArray, columns: set[str]) -> tuple[list[str], FloatArray]:
        """Names (p,) and these columns (n, p) of some rows, numeric ones first, as the sites encode theirs."""
        dataset, rows = self.dataset, self.dataset.rows.take(indices)
        numeric = [place for place, name in enumerate(dataset.numeric_columns) if name in columns]
        blocks, names = [], [dataset.numeric_columns[place] for place in numeric]
        for place, name in enumerate(dataset.categorical_columns):
            if name in columns:
                values, codes = np.unique(rows.categorical[:, place], return_inverse=True)
                blocks.append(one_hot(codes, values.tolist(), values.tolist()))
                names += [f"{name}={value}" for value in values.tolist()]
        return names, np.hstack([rows.numeric[:, numeric], *blocks])
