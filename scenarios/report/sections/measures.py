"""The measures of a model on test rows, with the confusion matrix."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedsvm.scenarios.figures import area, percent
from fedsvm.scenarios.report.section import Card, ReportedRun, Section
from fedsvm.scenarios.report.summary import describe_folds, interval, repeats
from fedsvm.scenarios.run.metrics import Metrics
from fedsvm.scenarios.run.result import RunResult

_TEMPLATE = """<div class="charts">
{% if confusion %}<figure class="worded"><h3>Confusion matrix</h3>
<div class="scroll"><table>
<thead><tr><td></td>{% for name in confusion.called %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>{% for name, counts in confusion.rows %}<tr><td>{{ name }}</td>
{% for count in counts %}<td>{{ count }}</td>{% endfor %}</tr>{% endfor %}</tbody></table></div>
<figcaption>Rows: actual class. Columns: predicted class. Test rows{{ summed }}.{{ counted }}</figcaption>
</figure>{% endif %}
<figure class="worded"><h3>Measures</h3>
{{ grid(head, measures) }}
{% if dealt %}<figcaption>{{ averaged }}</figcaption>{% endif %}
</figure></div>"""

_OF_REPEATS = (
    " Repeats use the same rows, so the deviation shows the effect of the split, not the uncertainty of the mean."
)
_SHARES = {
    "accuracy": "accuracy",
    "majority_accuracy": "accuracy of always predicting the majority class",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "ppv": "positive predictive value (PPV)",
    "npv": "negative predictive value (NPV)",
    "balanced_accuracy": "balanced accuracy",
    "binary_accuracy": "accuracy of one class against the rest, mean over classes",
}
_SCORES = {
    "f1": "F1",
    "mcc": "Matthews' correlation coefficient (MCC)",
    "auc": "AUC",
    "average_precision": "average precision",
    "brier": "Brier score",
    "calibration_slope": "calibration slope",
    "calibration_intercept": "calibration intercept",
}


def _content(run: ReportedRun) -> dict[str, Any]:
    """Return each measure in words, with its confidence interval and its deviation over folds.

    Empty if only accuracy is known.
    """
    metrics = run.result.metrics
    if metrics is None or metrics.majority_accuracy is None:
        return {}
    dealt, count = describe_folds(run.result), repeats(run.result)
    averaged = f"Means, intervals by the corrected resampled t, and standard deviations over {dealt}."
    return {
        "measures": [*_format_metrics(metrics, _SHARES, percent), *_format_metrics(metrics, _SCORES, area)],
        "confusion": _confusion(run.result, metrics),
        "dealt": dealt,
        "summed": f", summed over {dealt}" if dealt else "",
        "counted": f" Each row is counted once per repeat, {count} times in total." if count > 1 else "",
        "averaged": averaged + (_OF_REPEATS if count > 1 else ""),
        "head": ["measure", "value", "95 % interval", *(["over folds"] if metrics.deviations else [])],
    }


def _format_metrics(metrics: Metrics, names: Mapping[str, str], written: Callable[[float], str]) -> Iterator[list[str]]:
    for name, said in names.items():
        if (value := getattr(metrics, name)) is not None:
            deviation = metrics.deviations.get(name)
            spread = [] if deviation is None else [f"± {written(deviation)}"]
            yield [f"{said}{_of_fewer(metrics, name)}", written(value), interval(metrics, name), *spread]


def _confusion(result: RunResult, metrics: Metrics) -> dict[str, Any] | None:
    """Return the confusion matrix over all folds; None if it was not counted."""
    if result.model is None:
        return None
    if (table := metrics.confusion_matrix) is not None:
        names = result.model.classes
        rows = [(f"actual {name}", counts) for name, counts in zip(names, table, strict=True)]
        return {"called": [f"predicted {name}" for name in names], "rows": rows}
    if (found := metrics.confusion) is None:
        return None
    negative, positive = result.model.classes
    return {
        "called": [f"predicted {positive}", f"predicted {negative}"],
        "rows": [
            (f"actual {positive}", [found.true_positive, found.false_negative]),
            (f"actual {negative}", [found.false_positive, found.true_negative]),
        ],
    }


def _cards(result: RunResult) -> Iterator[Card]:
    if (metrics := result.metrics) is not None:
        several = len(metrics.folds) > 1
        spread = statistics.stdev(fold.accuracy for fold in metrics.folds) if several else 0.0
        aside = f"± {100 * spread:.2f} over {describe_folds(result)}" if several else "on the test rows"
        if not several and metrics.majority_accuracy is not None:
            aside = f"{percent(metrics.majority_accuracy)} for the majority class"
        yield Card(10, "accuracy", percent(metrics.accuracy), aside + _within(metrics, "accuracy"))
        if metrics.auc is not None:
            areas = [fold.auc for fold in metrics.folds if fold.auc is not None]
            of = "mean over classes, one against the rest" if metrics.confusion_matrix else "area under the ROC curve"
            aside = f"± {statistics.stdev(areas):.4f}" if len(areas) > 1 else of
            aside += _of_fewer(metrics, "auc") + _within(metrics, "auc")
            yield Card(11, "AUC", area(metrics.auc), aside)
        if (share := metrics.binary_accuracy) is not None and metrics.f1 is not None:
            aside = f"mean over classes; one against the rest correct for {100 * share:.1f} %"
            yield Card(12, "F1", f"{metrics.f1:.3f}", aside)
        for name, share in (("sensitivity", metrics.sensitivity), ("specificity", metrics.specificity)):
            if share is not None:
                of = "positive" if name == "sensitivity" else "negative"
                aside = f"share of {of} rows found{_of_fewer(metrics, name)}{_within(metrics, name)}"
                yield Card(13, name, f"{100 * share:.1f} %", aside)
    if (pooled := result.centralised) is not None:
        aside = "all rows in one place" if result.alignment is None else "all columns in one place"
        if pooled.exact_kernel is not None:
            aside += f", in the same features; {percent(pooled.exact_kernel.accuracy)} with the exact kernel"
        yield Card(20, "pooled", percent(pooled.accuracy), aside)


def _within(metrics: Metrics, name: str) -> str:
    """Return the confidence interval of a measure as the end of a phrase."""
    text = interval(metrics, name)
    return f"; 95 % interval {text}" if text else ""


def _of_fewer(metrics: Metrics, name: str) -> str:
    """Return the number of folds that have a measure, if some lack it."""
    known, folds = metrics.folds_with(name), len(metrics.folds)
    return f", of the {known} of {folds} folds that have it" if known < folds else ""


SECTION = Section(
    place=12,
    id="measures",
    title="Measures",
    heading="Results on test rows",
    content=_content,
    template=_TEMPLATE,
    cards=_cards,
)
