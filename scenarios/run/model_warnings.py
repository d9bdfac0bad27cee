"""Warnings about tested models: a calibration from few rows, and a model that predicts only one class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedsvm.scenarios.run.metrics import FoldMetrics, class_table
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


def _only_class(test: FoldMetrics) -> int | None:
    """Return the number of the only predicted class; None if there are several, or only one class was tested."""
    if (table := class_table(test)) is None:
        return None
    called = np.flatnonzero(table.sum(axis=0))
    return int(called[0]) if len(called) == 1 and np.count_nonzero(table.sum(axis=1)) > 1 else None
