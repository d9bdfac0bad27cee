"""Other methods beside a result: those that the algorithm brings along, or pooled ones that a scenario names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsvm.algorithms.baselines import pooled_baselines
from fedsvm.algorithms.contract import EvaluationRows, Model
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.run.metrics import BaselineMetrics, compare_baselines
from fedsvm.scenarios.schema.spec import Scenario


def baselines_of(
    scenario: Scenario, model: Model, rows: EvaluationRows, labels: FloatArray
) -> dict[str, BaselineMetrics] | None:
    """How they fare on the test rows with labels (n,), as `EvaluationRows` has them; None where none are asked for."""
    wanted, algorithm = scenario.compare.baselines, scenario.algorithm
    if not wanted:
        return None
    settings: Any = algorithm.settings
    if isinstance(wanted, list):
        return compare_baselines(pooled_baselines(wanted, settings, rows, model.selected_columns), labels)
    return compare_baselines(algorithm.implementation.baselines(model, settings, rows, scenario.seed), labels)


def mean_baselines(folds: Sequence[dict[str, BaselineMetrics] | None]) -> dict[str, BaselineMetrics] | None:
    """Means over the folds, by name; None without any."""
    known = [fold for fold in folds if fold is not None]
    if not known:
        return None
    return {name: _mean([fold[name] for fold in known if name in fold]) for name in known[-1]}


def _mean(folds: Sequence[BaselineMetrics]) -> BaselineMetrics:
    accuracy = float(np.mean([each.accuracy for each in folds]))
    areas = [each.auc for each in folds if each.auc is not None]
    seconds = [each.seconds for each in folds if each.seconds is not None]
    return BaselineMetrics(accuracy, _mean_of(areas), folds[-1].phrase, _mean_of(seconds))


def _mean_of(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
