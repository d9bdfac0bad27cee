"""The selection of columns, and three estimates of the accuracy with the selected columns, of which one is unbiased.

nested    the mean over folds of models whose columns, and their number, were selected without the test rows
separate  the best of all sizes on separate rows, as means of the inner folds' models: the same rows select the size and
          estimate the accuracy
whole     the best of all sizes by cross-validation on the rows that also selected the columns

The PAN-SVM dissertation reports the latter two (its CV2 and CV1). With random labels and many columns, `whole` reaches
100 % (Ambroise and McLachlan 2002), and `nested` does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np

from fedsvm.algorithms.ranking import CurvePoint, FeatureRanking
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.run.measuring import accuracy
from fedsvm.scenarios.run.metrics import FoldMetrics, class_table

Evaluation = Literal["nested", "separate", "whole"]

BIASED: Mapping[str, str] = {
    "separate": (
        "It is the best of all sizes on the rows that it is measured on, so it is too high; a size that is chosen on "
        "training rows comes to less."
    ),
    "whole": (
        "It is the best of all sizes, of columns that were ranked by the rows it is measured on, so it is too high: "
        "labels dealt at random come to nearly as much where there are many columns."
    ),
}


@dataclass(frozen=True)
class FoldSelection:
    """The selection by one model. equal_positions: columns with the same rank in pooled rows; None if unknown."""

    ranking: FeatureRanking
    equal_positions: int | None = None


@dataclass(frozen=True)
class AccuracyEstimate:
    """An estimate of the accuracy, its number of columns (a mean over folds), and its standard error.

    biased: the reason why it is too high, in a sentence; "" if it is unbiased.
    """

    accuracy: float
    size: float
    standard_error: float
    biased: str = ""


@dataclass(frozen=True)
class SelectionResult:
    """The selected columns, and how they were selected.

    Attributes
    ----------
    ranking : FeatureRanking
        The ranking of the last model.
    readings : mapping of str to AccuracyEstimate
        The known estimates of the accuracy: "nested", "separate", "whole".
    evaluation : {"nested", "separate", "whole"}
        The estimate that the scenario requests.
    curve : tuple of CurvePoint
        Means over the folds.
    equal_positions : int, optional
        The number of columns with the same rank in pooled rows, for the last ranking.
    selected_in : mapping of str to int
        For each selected column, the number of folds that selected it.
    overlap : float, optional
        Mean Jaccard index of the columns selected in two folds, over all pairs of folds.
    """

    ranking: FeatureRanking
    readings: Mapping[str, AccuracyEstimate]
    evaluation: Evaluation
    curve: tuple[CurvePoint, ...] = ()
    equal_positions: int | None = None
    selected_in: Mapping[str, int] | None = None
    overlap: float | None = None

    @property
    def reading(self) -> AccuracyEstimate | None:
        """The requested estimate; None if it is unknown."""
        return self.readings.get(self.evaluation)


def fold_selection(
    ranking: FeatureRanking,
    pooled: Sequence[str] | None,
    tested: Mapping[int, Sequence[FloatArray]],
    labels: FloatArray,
) -> FoldSelection:
    """Return a ranking compared with that of pooled rows, with the accuracy on test rows in its curve.

    tested: for each size, decision values (n,) or (n, K) of the test rows by one model or more. labels (n,): +1 and -1,
    or class numbers.
    """
    right = {size: float(np.mean([accuracy(each, labels) for each in models])) for size, models in tested.items()}
    curve = tuple(replace(point, test_accuracy=right.get(point.size)) for point in ranking.curve)
    equal = None
    if pooled is not None:
        equal = sum(name == other for name, other in zip(ranking.columns, pooled, strict=True))
    return FoldSelection(replace(ranking, curve=curve), equal)


def selection_result(
    folds: Sequence[FoldSelection], tests: Sequence[FoldMetrics], evaluation: Evaluation
) -> SelectionResult | None:
    """Return the selections of all models of a run; None for a run without selection."""
    if not folds:
        return None
    curve = _mean_curve([fold.ranking.curve for fold in folds])
    chosen = [set(fold.ranking.selected) for fold in folds]
    overlaps = [len(one & other) / len(one | other) for one, other in combinations(chosen, 2)]
    counts = {name: sum(name in each for each in chosen) for name in folds[-1].ranking.columns}
    return SelectionResult(
        ranking=folds[-1].ranking,
        readings=_readings(folds, tests, curve),
        evaluation=evaluation,
        curve=curve,
        equal_positions=folds[-1].equal_positions,
        selected_in={name: count for name, count in counts.items() if count} if len(folds) > 1 else None,
        overlap=float(np.mean(overlaps)) if overlaps else None,
    )


def _mean_curve(curves: Sequence[Sequence[CurvePoint]]) -> tuple[CurvePoint, ...]:
    """Return the mean curve over the sizes that all folds have."""
    by_size = [{point.size: point for point in curve} for curve in curves]
    means = []
    for size in sorted(set.intersection(*(set(each) for each in by_size))):
        points = [each[size] for each in by_size]
        tested = [point.test_accuracy for point in points if point.test_accuracy is not None]
        means.append(
            CurvePoint(
                size,
                float(np.mean([point.accuracy for point in points])),
                float(np.mean([point.standard_error for point in points])),
                float(np.mean(tested)) if len(tested) == len(points) else None,
            )
        )
    return tuple(means)


def _readings(
    folds: Sequence[FoldSelection], tests: Sequence[FoldMetrics], curve: Sequence[CurvePoint]
) -> dict[str, AccuracyEstimate]:
    found = {}
    rows = sum(_rows(test) for test in tests)
    # Models of other sizes are not calibrated: if the final model is, the estimates name their threshold.
    beside = " Its models have a threshold of 0." if any(test.threshold for test in tests) else ""
    if tests:
        size = float(np.mean([len(fold.ranking.selected) for fold in folds]))
        found["nested"] = _reading(float(np.mean([test.accuracy for test in tests])), size, rows)
    if tested := [(point.test_accuracy, -point.size) for point in curve if point.test_accuracy is not None]:
        accuracy, less = max(tested)
        found["separate"] = _reading(accuracy, -less, rows, BIASED["separate"] + beside)
    if curve:
        best = max(curve, key=lambda point: (point.accuracy, -point.size))
        found["whole"] = AccuracyEstimate(best.accuracy, best.size, best.standard_error, BIASED["whole"] + beside)
    return found


def _rows(test: FoldMetrics) -> int:
    table = class_table(test)
    return 0 if table is None else int(table.sum())


def _reading(accuracy: float, size: float, rows: int, biased: str = "") -> AccuracyEstimate:
    error = math.sqrt(accuracy * (1 - accuracy) / rows) if rows else 0.0
    return AccuracyEstimate(accuracy, size, error, biased)
