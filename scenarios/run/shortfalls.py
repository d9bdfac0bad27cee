"""Sentences on a result that is no better than predicting the most frequent class, or than public rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedsvm.scenarios.figures import percent
from fedsvm.scenarios.run.metrics import BaselineMetrics, Metrics, class_table
from fedsvm.scenarios.schema.spec import Scenario

_NOISE = (
    " At this epsilon, noise hides the signal of so few private rows: use more rows, allow a larger epsilon, or learn "
    "fewer weights."
)


def shortfalls(
    scenario: Scenario,
    classes: tuple[str, ...],
    metrics: Metrics,
    public: Sequence[BaselineMetrics],
) -> Iterator[str]:
    """Yield a sentence for each trivial alternative that is as good as the trained model.

    classes: the negative and the positive class, or all of more than two. public: for private models, the result of
    public rows alone in each fold.
    """
    why = _NOISE if scenario.is_private else ""
    if metrics.majority_accuracy is not None and metrics.accuracy <= metrics.majority_accuracy:
        yield (
            f"Accuracy, {percent(metrics.accuracy)}, is not above the {percent(metrics.majority_accuracy)} of "
            f"calling every row {_majority(metrics, classes)}: look at {_instead(metrics)}.{why}"
        )
    alone = sum(each.accuracy for each in public) / max(1, len(public))
    if public and metrics.accuracy < alone:
        yield (
            f"Accuracy, {percent(metrics.accuracy)}, is below the {percent(alone)} of {public[0].phrase}, "
            f"which spend no privacy.{why}"
        )


def _instead(metrics: Metrics) -> str:
    """Return the measures that one frequent class does not inflate."""
    return "sensitivity, specificity and AUC" if metrics.confusion_matrix is None else "balanced accuracy, F1 and AUC"


def _majority(metrics: Metrics, classes: tuple[str, ...]) -> str:
    """Return the most frequent class of the test rows."""
    table = class_table(metrics)
    return "by one class" if table is None else repr(classes[int(table.sum(axis=1).argmax())])
