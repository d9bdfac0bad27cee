"""Each site's own model, the federated one and the gain, on the same test rows."""

from __future__ import annotations

from collections.abc import Mapping

from fedsvm.scenarios.figures import area, percent, percent_range, plain_range
from fedsvm.scenarios.report.section import Section
from fedsvm.scenarios.run.intervals import Interval
from fedsvm.scenarios.run.metrics import Score
from fedsvm.scenarios.run.result import RunResult


def _rows(result: RunResult) -> list[list[str]]:
    if (own := result.own_models) is None:
        return []
    measured = result.metrics.intervals if result.metrics is not None and own.tested_by == "runner" else {}
    return [
        *(_row(site, str(each.rows), each, each.intervals) for site, each in own.sites.items()),
        _row("sites alone, mean", "", own, own.intervals),
        _row("federated", "", own.federated, measured),
        _row("gain", "", Score(own.accuracy_gain, own.auc_gain), own.intervals, "_gain"),
    ]


def _row(name: str, rows: str, of: Score, intervals: Mapping[str, Interval], gain: str = "") -> list[str]:
    accuracy, auc = intervals.get(f"accuracy{gain}"), intervals.get(f"auc{gain}")
    within = [
        percent_range(accuracy.low, accuracy.high) if accuracy else "",
        plain_range(auc.low, auc.high) if auc else "",
    ]
    return [name, rows, percent(of.accuracy), within[0], area(of.auc), within[1]]


SECTION = Section(
    place=90,
    id="own",
    title="Sites alone",
    heading="Each site's own model on the same test rows",
    content=lambda run: {"rows": _rows(run.result)},
    template="""{{ grid(["model", "training rows", "accuracy", "95 % interval", "AUC", "95 % interval"], rows) }}""",
)
