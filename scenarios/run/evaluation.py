"""The evaluation of a model in a simulation, which has the rows or columns of all sites together."""

from __future__ import annotations

from collections.abc import Sequence

from fedsvm.algorithms.algorithm import Model
from fedsvm.algorithms.baselines import pooled_baselines
from fedsvm.algorithms.pooled import EvaluationRows
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.run import measuring
from fedsvm.scenarios.run.metrics import BaselineMetrics
from fedsvm.scenarios.run.outcome import ModelEvaluation
from fedsvm.scenarios.schema.spec import Scenario


def compare_with_pooled(
    scenario: Scenario,
    model: Model,
    whole: Model,
    decisions: FloatArray,
    rows: EvaluationRows,
    fold: int | None,
    *,
    is_tested: bool,
) -> ModelEvaluation:
    """Compare a model with models of pooled rows, of public rows, and of other methods.

    whole: the model with the parts that its sites keep. decisions: its decision values of `rows.test`, (n,), or (n, K)
    for K > 2 classes. is_tested: whether no model was trained on `rows.test`.
    """
    table, labels = scenario.algorithm, rows.test.labels
    algorithm, settings, calibration = table.implementation, table.settings, model.calibrated
    pooled = algorithm.train_pooled(whole, settings, rows) if scenario.compare.centralised else None
    public = algorithm.public_baseline(model, settings, rows) if scenario.is_private else None
    threshold = 0.0 if calibration is None else calibration.threshold
    return ModelEvaluation(
        pooled=None if pooled is None else measuring.compare(pooled, decisions, labels, threshold, is_tested=is_tested),
        baselines=_baselines(scenario, model, rows),
        public=None if public is None else measuring.compare_baselines([public], labels)[public.name],
        warnings=algorithm.warnings(model, settings, rows, fold or 0),
    )


def _baselines(scenario: Scenario, model: Model, rows: EvaluationRows) -> dict[str, BaselineMetrics] | None:
    """Return the metrics of other methods on the test rows; None if the scenario asks for none."""
    wanted, table = scenario.compare.baselines, scenario.algorithm
    if not wanted:
        return None
    if isinstance(wanted, list):
        found = pooled_baselines(wanted, table.settings, rows, model.selected_columns)
    else:
        found = table.implementation.baselines(model, table.settings, rows, scenario.seed)
    return measuring.compare_baselines(found, rows.test.labels)


def pooled_order(scenario: Scenario, model: Model, names: Sequence[str], rows: EvaluationRows) -> list[str] | None:
    """Return the names of the columns as pooled rows rank them; None if nothing is ranked."""
    table = scenario.algorithm
    order = table.implementation.pooled_order(model, table.settings, rows)
    return None if order is None else [names[column] for column in order]
