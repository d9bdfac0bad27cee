"""Warnings about tested models: a calibration from few rows, only one predicted class, or no gain from the kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedsvm.scenarios.figures import percent
from fedsvm.scenarios.run.metrics import BaselineMetrics, FoldMetrics, Metrics, class_table
from fedsvm.scenarios.run.outcome import Fold


def cautions(folds: Sequence[Fold], classes: tuple[str, ...]) -> Iterator[str]:
    """Yield a sentence for each reason to doubt the trained models.

    classes: the negative and the positive class, or all of more than two.
    """
    counted = [fold.calibration for fold in folds if fold.calibration is not None and fold.calibration.rows is not None]
    if counted:
        fewest = min(counted, key=lambda each: min(each.rows or ()))
        if (caution := fewest.caution(classes)) is not None:
            yield caution
    named = [_only_class(fold.test) for fold in folds if fold.test is not None]
    for number in sorted({each for each in named if each is not None}):
        models = "The model predicts"
        if len(named) > 1:
            models = f"{named.count(number)} of {len(named)} models predict"
        yield (
            f"{models} {classes[number]!r} for every test row: accuracy is only the share of that class. Look at "
            "the AUC and the threshold."
        )


def linear_hint(
    settings: Any, metrics: Metrics | None, baselines: Mapping[str, BaselineMetrics] | None
) -> Iterator[str]:
    """Yield a sentence if a linear SVM of pooled rows was compared, and is as accurate as a model with another kernel.

    Models whose threshold is not 0 are not compared, since the linear SVM's is.
    """
    linear = (baselines or {}).get("libsvm-linear")
    if linear is None or metrics is None or metrics.threshold or getattr(settings, "kernel", "linear") == "linear":
        return
    if linear.accuracy >= metrics.accuracy:
        has_map = isinstance(getattr(settings, "features", None), str)
        features = " --set algorithm.features=identity" if has_map else ""
        yield (
            f"A linear SVM of pooled rows is correct on {percent(linear.accuracy)} of the test rows, this model on "
            f"{percent(metrics.accuracy)}. Compare a run with --set algorithm.kernel=linear{features}."
        )


def _only_class(test: FoldMetrics) -> int | None:
    """Return the number of the only predicted class; None if there are several, or only one class was tested."""
    if (table := class_table(test)) is None:
        return None
    called = np.flatnonzero(table.sum(axis=0))
    return int(called[0]) if len(called) == 1 and np.count_nonzero(table.sum(axis=1)) > 1 else None
