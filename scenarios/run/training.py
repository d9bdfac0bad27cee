"""Training: fits, times, logs, evaluates and keeps one model after the other over a federation.

Runs differ only in their `Source`: rows or columns, in a simulation or at hosts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedsvm.algorithms.algorithm import Model, TrainingReport
from fedsvm.algorithms.data.public_rows import PublicTask
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.scenarios.run.offered_terms import resolve_settings
from fedsvm.scenarios.run.outcome import Fold, ModelEvaluation, RunState
from fedsvm.scenarios.schema.spec import Scenario


@dataclass
class Source(ABC):
    """The data at the sites of a federation: the tasks of training, and the evaluation of models.

    classes: the negative and the positive class, or all of more than two.
    """

    scenario: Scenario
    classes: tuple[str, ...] = field(init=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sites."""
        return tuple(self.scenario.federation.site_names)

    @property
    def folds(self) -> Sequence[int | None]:
        """The fold that each model holds out; None for a model without held-out rows."""
        data = self.scenario.data
        if data.folds is not None:
            return range(data.models)
        return [0 if data.tested_at_sites or (data.partition == "vertical" and data.test_fraction) else None]

    @abstractmethod
    def task(self, fold: int | None) -> Any:
        """Return the task of the model that holds out a fold; None holds out no rows."""

    @abstractmethod
    def evaluate(self, federation: Federation, model: Any, task: Any) -> ModelEvaluation:
        """Evaluate a model. The rounds are of phase "evaluate"."""

    def arrays(self, model: Model, task: Any) -> dict[str, Any]:
        """Return the arrays of a model's file."""
        return model.to_arrays()

    def note_trained(self, federation: Federation, task: Any) -> None:  # noqa: B027 - not every source learns something
        """Take in what the training of a model showed of the data."""

    def around(self, federation: Federation, state: RunState, train: Callable[[], None]) -> None:
        """Call `train`, which trains all models that are still to be trained."""
        train()


def train(source: Source, federation: Federation, state: RunState) -> None:
    """Train and evaluate every model of a scenario. Models that are done stay done if `source` begins anew.

    Raises
    ------
    FederationError
        A site failed, too few sites are left, or a privacy budget has no room.
    """
    pending = list(source.folds)

    def train_pending() -> None:
        while pending:
            state.keep(_train(source, federation, state, pending[0]), source.scenario.algorithm.implementation)
            del pending[0]

    source.around(federation, state, train_pending)


def _train(source: Source, federation: Federation, state: RunState, held_out: int | None) -> Fold:
    """Return the model that is trained while a fold is held out, with its evaluation."""
    table, task = source.scenario.algorithm, source.task(held_out)
    if isinstance(task, PublicTask):
        state.accountant = task.accountant  # reported whatever comes of the fit: releases stay released
    with state.time_block("train_s", federation.record.age):
        settings, remarks = resolve_settings(source.scenario)
        model = table.implementation.fit(federation, task, settings)
    training = training_of(model)
    training = replace(training, remarks=(*training.remarks, *remarks))
    fold = held_out if source.scenario.data.folds is not None else None
    _log_fold(federation, fold, training)
    source.note_trained(federation, task)
    with state.time_block("evaluate_s", federation.record.age), federation.phase("evaluate"):
        evaluation = source.evaluate(federation, model, task)
    arrays = source.arrays(model, task)
    return Fold(**vars(evaluation), fold=fold, training=training, arrays=arrays, calibration=model.calibrated)


def training_of(model: Model) -> TrainingReport:
    """Return the report on a model's training. Raises FederationError for a model without one."""
    if model.training is None:
        raise FederationError(f"{type(model).__name__} must come from `fit` with a TrainingReport, got none.")
    return model.training


def _log_fold(federation: Federation, fold: int | None, training: TrainingReport) -> None:
    """Log the state in which training ended, which can differ from that of its last iteration."""
    last = {"iteration": training.iterations, "objective": training.objective, "gap": training.gap}
    known = {name: float(value) for name, value in last.items() if value is not None}
    if fold is not None:
        known["fold"] = fold
    if known:
        federation.log_metrics(**known)
