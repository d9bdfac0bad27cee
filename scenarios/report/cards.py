"""The cards of a run: its most important figures, for the report and for notebooks."""

from __future__ import annotations

import html
import statistics
from collections.abc import Iterator

from fedsvm.scenarios.figures import area, human_bytes, percent
from fedsvm.scenarios.report.run_plots import human_seconds
from fedsvm.scenarios.report.summary import describe_folds, interval
from fedsvm.scenarios.run.metrics import Metrics
from fedsvm.scenarios.run.result import RunResult

_ROW = "display:flex;flex-wrap:wrap;gap:.6em;font-family:sans-serif"
_CARD = "border:1px solid #8886;border-radius:.5em;padding:.5em .8em;max-width:14em"
_QUIET, _LARGE = "opacity:.7;font-size:.8em", "font-size:1.4em;font-weight:600"


def cards(result: RunResult) -> Iterator[dict[str, str]]:
    """Yield the most important figures: name, value, and a remark."""
    if (metrics := result.metrics) is not None:
        several = len(metrics.folds) > 1
        spread = statistics.stdev(fold.accuracy for fold in metrics.folds) if several else 0.0
        aside = f"± {100 * spread:.2f} over {describe_folds(result)}" if several else "on the test rows"
        if not several and metrics.majority_accuracy is not None:
            aside = f"{percent(metrics.majority_accuracy)} for the majority class"
        aside += _within(metrics, "accuracy")
        yield {"name": "accuracy", "value": percent(metrics.accuracy), "beside": aside}
        if metrics.auc is not None:
            areas = [fold.auc for fold in metrics.folds if fold.auc is not None]
            of = "mean over classes, one against the rest" if metrics.confusion_matrix else "area under the ROC curve"
            aside = f"± {statistics.stdev(areas):.4f}" if len(areas) > 1 else of
            aside += of_fewer(metrics, "auc") + _within(metrics, "auc")
            yield {"name": "AUC", "value": area(metrics.auc), "beside": aside}
        if (share := metrics.binary_accuracy) is not None and metrics.f1 is not None:
            aside = f"mean over classes; one against the rest correct for {100 * share:.1f} %"
            yield {"name": "F1", "value": f"{metrics.f1:.3f}", "beside": aside}
        for name, share in (("sensitivity", metrics.sensitivity), ("specificity", metrics.specificity)):
            if share is not None:
                of = "positive" if name == "sensitivity" else "negative"
                aside = f"share of {of} rows found{of_fewer(metrics, name)}{_within(metrics, name)}"
                yield {"name": name, "value": f"{100 * share:.1f} %", "beside": aside}
    if (pooled := result.centralised) is not None:
        aside = "all rows in one place" if result.alignment is None else "all columns in one place"
        yield {"name": "pooled", "value": percent(pooled.accuracy), "beside": aside}
    if result.privacy is not None:
        yield {"name": "epsilon", "value": f"{result.privacy.epsilon:g}", "beside": result.privacy.mechanism}
    if result.model is not None and result.model.gap is not None:
        yield {
            "name": "certified gap",
            "value": f"{result.model.gap:.1e}",
            "beside": "maximum distance from the optimum",
        }
    if (cost := result.cost) is not None:
        carried = cost.predicted_wire_bytes if cost.wire_bytes is None else cost.wire_bytes
        yield {"name": "on the wire", "value": human_bytes(carried), "beside": f"{cost.messages} messages"}
        aside = f"{cost.aborted} aborted" if cost.aborted else f"{cost.hops} hops"
        yield {"name": "rounds", "value": str(cost.rounds), "beside": aside}
    yield {"name": "time", "value": human_seconds(result.timing.total_s), "beside": f"{len(result.sites)} sites"}


def _within(metrics: Metrics, name: str) -> str:
    """Return the confidence interval of a measure as the end of a phrase."""
    text = interval(metrics, name)
    return f"; 95 % interval {text}" if text else ""


def of_fewer(metrics: Metrics, name: str) -> str:
    """Return the number of folds that have a measure, if some lack it."""
    known, folds = metrics.folds_with(name), len(metrics.folds)
    return f", of the {known} of {folds} folds that have it" if known < folds else ""


def notebook_html(result: RunResult) -> str:
    """Return the cards of a run as HTML that brings its own style, with every value escaped."""
    head = f"{result.scenario['name']}: {result.status}"
    told = [f'<div style="font-weight:600">{html.escape(head)}</div>']
    if result.error:
        told.append(f"<div>{html.escape(result.error)}</div>")
    shown = "".join(_card(each) for each in cards(result))
    return f'<div>{"".join(told)}<div style="{_ROW}">{shown}</div></div>'


def _card(card: dict[str, str]) -> str:
    styles = (("name", _QUIET), ("value", _LARGE), ("beside", _QUIET))
    lines = "".join(f'<div style="{style}">{html.escape(card[key])}</div>' for key, style in styles)
    return f'<div style="{_CARD}">{lines}</div>'


RunResult.as_cards = notebook_html
