"""The selection of columns, and three estimates of the accuracy with the selected columns; one is unbiased.

nested    the mean over folds of models whose columns, and how many, were chosen without the rows tested on
separate  the best of all sizes on rows set apart, each the mean of the inner folds' models: the size is chosen on the
          rows that it is judged by
whole     the best of all sizes by cross-validation on the rows that also chose the columns

The latter two are what the PAN-SVM dissertation reports (its CV2 and CV1). On labels without any meaning `whole` comes
to 100 % where there are many columns (Ambroise and McLachlan 2002), and `nested` does not.
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
    """An accuracy, the columns that it is of (a mean over folds), and its standard error.

    biased: why it is too high, in a sentence; "" of one that is not.
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
        Of the last model.
    readings : mapping of str to AccuracyEstimate
        Of the accuracy, as far as they are known: "nested", "separate", "whole".
    evaluation : {"nested", "separate", "whole"}
        The reading that the scenario asks for.
    curve : tuple of CurvePoint
        Means over the folds.
    equal_positions : int, optional
        How many columns of the last ranking stand where pooled rows put them.
    selected_in : mapping of str to int
        How many folds chose each column that any of them chose.
    overlap : float, optional
        Mean over pairs of folds of the columns that both chose, as a share of those that either chose (Jaccard).
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
        """The one that was asked for; None where it is not known."""
        return self.readings.get(self.evaluation)


def fold_selection(
    ranking: FeatureRanking,
    pooled: Sequence[str] | None,
    tested: Mapping[int, Sequence[FloatArray]],
    labels: FloatArray,
) -> FoldSelection:
    """Return a ranking with that of pooled rows, and its curve with the accuracy on test rows.

    tested: decision values (n,) or (n, K) of the test rows, of each size by one model or more. labels (n,): of +1 and
    -1, or numbers of classes.
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
    # Models of every size are not calibrated: if the model is, their readings name their threshold.
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
