"""The federated model against each site's own model and against models of pooled data, on the same test rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fedsvm.scenarios.figures import area, area_gain, percent, percent_range, plain_range, points
from fedsvm.scenarios.report.section import Card, Section
from fedsvm.scenarios.report.summary import verdict
from fedsvm.scenarios.run.gains import Gain
from fedsvm.scenarios.run.intervals import Interval
from fedsvm.scenarios.run.metrics import PooledMetrics, Score
from fedsvm.scenarios.run.own_models import OwnModels
from fedsvm.scenarios.run.result import RunResult


def _rows(result: RunResult) -> list[list[str]]:
    """Return a row for each model, with what the federated one gains over it; empty without any comparison."""
    own, pooled = result.own_models, result.centralised
    rows = [*_own_rows(own), *_pooled_rows(pooled)]
    if not rows:
        return []
    measured = result.metrics.intervals if result.metrics is not None and own and own.tested_by == "runner" else {}
    federated = own.federated if own is not None else result.metrics
    return [*rows, _row("federated", "", federated, measured)] if federated is not None else rows


def _own_rows(own: OwnModels | None) -> Iterator[list[str]]:
    if own is not None:
        for site, each in own.sites.items():
            of_one_class = " (one class)" if each.one_class else ""
            yield _row(f"{site} alone{of_one_class}", str(each.rows), each, each.intervals, each.gain)
        several = len(own.sites) > len(own.one_class_sites) > 0
        yield _row(f"sites{' with more classes' if several else ''} alone, mean", "", own, own.intervals, own.gain)


def _pooled_rows(pooled: PooledMetrics | None) -> Iterator[list[str]]:
    if pooled is None or pooled.gain is None:
        return
    if pooled.exact_kernel is None:
        yield _row("pooled data", "", pooled, {}, pooled.gain)
    else:
        yield _row("pooled data, same features", "", pooled, {})
        yield _row("pooled data, exact kernel", "", pooled.exact_kernel, {}, pooled.gain)


def _row(name: str, rows: str, of: Score, intervals: Mapping[str, Interval], gain: Gain | None = None) -> list[str]:
    accuracy, auc = intervals.get("accuracy"), intervals.get("auc")
    shown = [
        percent(of.accuracy) + (f" ({percent_range(accuracy.low, accuracy.high)})" if accuracy else ""),
        area(of.auc) + (f" ({plain_range(auc.low, auc.high)})" if auc else ""),
    ]
    return [name, rows, *shown, *_gain_cells(gain)]


def _gain_cells(gain: Gain | None) -> list[str]:
    """Return the gains in accuracy and AUC, with their intervals and what these say."""
    if gain is None:
        return ["", ""]
    accuracy = f"{points(gain.accuracy)}{_within(gain, 'accuracy', points)}"
    return [accuracy, "" if gain.auc is None else f"{area_gain(gain.auc)}{_within(gain, 'auc', area_gain)}"]


def _within(gain: Gain, name: str, written: Callable[[float], str]) -> str:
    found = gain.intervals.get(name)
    return f" ({written(found.low)} to {written(found.high)}): {verdict(found)}" if found else ""


def _cards(result: RunResult) -> Iterator[Card]:
    """Yield the gain over the sites' own models."""
    if (own := result.own_models) is not None:
        aside = f"points of accuracy over each site's own model{_within(own.gain, 'accuracy', points)}"
        yield Card(21, "gain", points(own.accuracy_gain), aside)


SECTION = Section(
    place=14,
    id="own",
    title="Worth it?",
    heading="Is federating worth it?",
    content=lambda run: {"rows": _rows(run.result)},
    template="""{{ grid(["model", "training rows", "accuracy", "AUC", "gain in accuracy (points)", "gain in AUC"], rows,
text=(4, 5), stack=true) }}
<p>A gain is the figure of the federated model less that of the model in this row. All models are tested on the same
rows, and gains are paired by row. Brackets have 95 % confidence intervals.
&ldquo;No clear difference&rdquo; means that the interval contains 0. The models may still differ.</p>""",
    cards=_cards,
)
