"""Several runs on one page: what differs between them, their figures side by side, their curves over each other."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsvm.scenarios.figures import area, human_bytes, percent
from fedsvm.scenarios.report import template
from fedsvm.scenarios.report.axes import ChartAxis, whole
from fedsvm.scenarios.report.chart import Chart, Level, Series, lines
from fedsvm.scenarios.report.drawing import Style, style
from fedsvm.scenarios.report.run_plots import SMALLEST_TOLERANCE, gap_curves, human_seconds
from fedsvm.scenarios.report.summary import interval, objective_noise
from fedsvm.scenarios.run.log import read_log
from fedsvm.scenarios.run.result import RunResult, read_result

_MAX_LINES = 30
"""Of more runs, curves over each other are a blot."""

_WIDE = 20.0
"""An axis whose ends differ by this factor is logarithmic."""


@dataclass(frozen=True)
class ComparedMeasure:
    """A figure of a run: what it is called with its unit, where it is, how it is written, and what of it is better."""

    name: str
    place: str
    written: Callable[[float], str]
    better: int = 0


def _plain(value: float) -> str:
    return f"{value:.6g}"


MEASURES: Mapping[str, ComparedMeasure] = {
    "accuracy": ComparedMeasure("accuracy", "metrics.accuracy", percent, 1),
    "auc": ComparedMeasure("AUC", "metrics.auc", area, 1),
    "sensitivity": ComparedMeasure("sensitivity", "metrics.sensitivity", percent, 1),
    "specificity": ComparedMeasure("specificity", "metrics.specificity", percent, 1),
    "ppv": ComparedMeasure("PPV", "metrics.ppv", percent, 1),
    "npv": ComparedMeasure("NPV", "metrics.npv", percent, 1),
    "balanced_accuracy": ComparedMeasure("balanced accuracy", "metrics.balanced_accuracy", percent, 1),
    "f1": ComparedMeasure("F1", "metrics.f1", area, 1),
    "mcc": ComparedMeasure("MCC", "metrics.mcc", area, 1),
    "average_precision": ComparedMeasure("average precision", "metrics.average_precision", area, 1),
    "majority_accuracy": ComparedMeasure("accuracy of the majority class", "metrics.majority_accuracy", percent),
    "brier": ComparedMeasure("Brier score", "metrics.brier", area, -1),
    "calibration_slope": ComparedMeasure("calibration slope", "metrics.calibration_slope", _plain),
    "calibration_intercept": ComparedMeasure("calibration intercept", "metrics.calibration_intercept", _plain),
    "binary_accuracy": ComparedMeasure("accuracy of one class against the rest", "metrics.binary_accuracy", percent),
    "threshold": ComparedMeasure("threshold", "metrics.threshold", _plain),
    "pooled_accuracy": ComparedMeasure("accuracy of pooled rows", "centralised.accuracy", percent),
    "pooled_auc": ComparedMeasure("AUC of pooled rows", "centralised.auc", area),
    "objective": ComparedMeasure("objective", "model.objective", _plain),
    "gap": ComparedMeasure("certified gap", "model.gap", "{:.1e}".format, -1),
    "iterations": ComparedMeasure("iterations", "model.iterations", whole, -1),
    "rounds": ComparedMeasure("rounds", "cost.rounds", whole, -1),
    "hops": ComparedMeasure("hops", "cost.hops", whole, -1),
    "messages": ComparedMeasure("messages", "cost.messages", whole, -1),
    "payload_bytes": ComparedMeasure("payload", "cost.payload_bytes", human_bytes, -1),
    "wire_bytes": ComparedMeasure("on the wire", "cost.wire_bytes", human_bytes, -1),
    "control_bytes": ComparedMeasure("requests and replies", "cost.control.wire_bytes", human_bytes, -1),
    "epsilon": ComparedMeasure("epsilon", "privacy.epsilon", _plain),
    "train_s": ComparedMeasure("training time", "timing.train_s", human_seconds, -1),
    "total_s": ComparedMeasure("total time", "timing.total_s", human_seconds, -1),
}
"""The measures of any run, by their names in sweeps."""


def measure(name: str) -> ComparedMeasure:
    """Return a measure by its name, which may be a figure of an algorithm."""
    return MEASURES.get(name) or ComparedMeasure(name.replace("_", " "), "", _plain)


@dataclass(frozen=True)
class ComparedRun:
    """A run to compare: its name among the others, its folder, its result, and the group that it is drawn with."""

    name: str
    folder: Path
    result: RunResult
    group: str

    def value(self, measured: ComparedMeasure) -> Any:
        """Return a figure of the run; None if it does not apply."""
        return figure(self.result, measured)


def figure(result: RunResult, measured: ComparedMeasure) -> Any:
    """Return a figure of a result; None if it does not apply."""
    found: Any = result
    for name in measured.place.split("."):
        found = getattr(found, name) if found is not None else None
    return found


def render(folders: Sequence[Path]) -> str:
    """Return a page that compares runs. Raises ScenarioError for a folder without a run."""
    runs = [ComparedRun(folder.name, folder, read_result(folder), folder.name) for folder in folders]
    return page(f"{len(runs)} runs", runs, changed_keys([run.result.scenario for run in runs]), [])


def page(
    title: str,
    runs: Sequence[ComparedRun],
    changed: Mapping[str, Sequence[Any]],
    charts: Sequence[Chart],
    repeated: Mapping[str, Sequence[ComparedRun]] | None = None,
) -> str:
    """Return the comparison of runs as a page that needs nothing else.

    changed: keys of the scenario that are not the same in all runs, each with its value in every run. charts: what is
    drawn beside convergence, and bytes against accuracy. repeated: completed runs that differ in the seed alone, by a
    name; the page has a row for their mean, and one for their deviation.
    """
    known = [each for each in MEASURES.values() if any(run.value(each) is not None for run in runs)]
    drawn = [*charts, *(chart for chart in (_convergence(runs), _bytes_against_accuracy(runs)) if chart)]
    failed = [(run.name, str(run.result.error)) for run in runs if run.result.status != "completed"]
    return template.render(
        "comparison.html.j2",
        title,
        changed=list(changed),
        measures=[each.name for each in known],
        rows=_rows(runs, changed, known),
        charts=drawn,
        failed=failed,
        noisy=any(run.result.model is not None and objective_noise(run.result.model) for run in runs),
        spread=[*_spread(runs, known), *_summarize_repeats(repeated or {}, known)],
    )


def changed_keys(scenarios: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the keys that differ between scenarios, with their values in all of them; None if one lacks the key.

    The name of a scenario is no difference where something else is.
    """
    flat = [_flat(scenario) for scenario in scenarios]
    keys = dict.fromkeys(key for each in flat for key in each)
    differing = {key: [each.get(key) for each in flat] for key in keys}
    differing = {key: values for key, values in differing.items() if any(value != values[0] for value in values)}
    return {key: values for key, values in differing.items() if key != "name" or len(differing) == 1}


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return found


def _rows(
    runs: Sequence[ComparedRun], changed: Mapping[str, Sequence[Any]], known: Sequence[ComparedMeasure]
) -> list[dict[str, Any]]:
    """Return a row for each run: its different keys, and its figures, the best of them marked."""
    best = {each.name: _best(runs, each) for each in known}
    return [
        {
            "name": run.name,
            "status": run.result.status,
            "changed": [_format_value(values[place]) for values in changed.values()],
            "figures": [_figure(run, each, best[each.name]) for each in known],
        }
        for place, run in enumerate(runs)
    ]


def _format_value(value: Any) -> str:
    """Return a value of a scenario as short text for a table."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(
            f"{each['kind']} {each['site']}" if isinstance(each, dict) and "kind" in each else str(each)
            for each in value
        )
    return "" if value is None else str(value)


def _best(runs: Sequence[ComparedRun], each: ComparedMeasure) -> float | None:
    """Return the best value of completed runs; None if none is better, or all are equal."""
    values = [run.value(each) for run in runs if run.result.status == "completed" and run.value(each) is not None]
    if not each.better or len(set(values)) < 2:
        return None
    return float(max(values) if each.better > 0 else min(values))


def _figure(run: ComparedRun, each: ComparedMeasure, best: float | None) -> dict[str, Any]:
    value = run.value(each)
    if value is None:
        return {"text": "", "value": "", "is_best": False, "interval": ""}
    is_best = best is not None and run.result.status == "completed" and value == best
    within = ""
    if each.place.startswith("metrics.") and run.result.metrics is not None:
        within = interval(run.result.metrics, each.place.removeprefix("metrics."))
    return {"text": each.written(value), "value": repr(float(value)), "is_best": is_best, "interval": within}


def _spread(runs: Sequence[ComparedRun], known: Sequence[ComparedMeasure]) -> list[list[str]]:
    """Return minimum and maximum of each figure over the completed runs."""
    values = [[run.value(each) for run in runs if run.result.status == "completed"] for each in known]
    there = [[value for value in each if value is not None] for each in values]
    if len(runs) < 3:
        return []
    return [
        [name, *(each.written(of(value)) if value else "" for each, value in zip(known, there, strict=True))]
        for name, of in (("minimum", min), ("maximum", max))
    ]


def mean_and_deviation(values: Sequence[Any]) -> tuple[float | None, float | None]:
    """Return the mean and the standard deviation of the values that are not None; None where there are too few."""
    known = [float(value) for value in values if value is not None]
    mean = statistics.fmean(known) if known else None
    return mean, statistics.stdev(known) if len(known) > 1 else None


def _summarize_repeats(
    repeated: Mapping[str, Sequence[ComparedRun]], known: Sequence[ComparedMeasure]
) -> list[list[str]]:
    rows = []
    for name, runs in repeated.items():
        found = [mean_and_deviation([run.value(each) for run in runs]) for each in known]
        for place, what in enumerate(("mean", "deviation")):
            values = zip(known, (each[place] for each in found), strict=True)
            texts = ["" if value is None else of.written(value) for of, value in values]
            rows.append([f"{what} of {name}" if name else what, *texts])
    return rows


def _styles(runs: Sequence[ComparedRun]) -> dict[str, Style]:
    """Return the style of each group of runs."""
    return {group: style(number) for number, group in enumerate(dict.fromkeys(run.group for run in runs))}


def _convergence(runs: Sequence[ComparedRun]) -> Chart | None:
    """Draw the gap of each run by iteration; with folds, of the first."""
    series, styles = [], _styles(runs)
    for run in runs[:_MAX_LINES]:
        curves = gap_curves(read_log(run.folder), run.result.model.gap if run.result.model else None)
        points = next(iter(curves.values()), [])
        if len(points) > 1:
            tips = [f"{run.name}, iteration {x:.0f}: gap {gap:.2e}" for x, gap in points]
            series.append(Series(run.group, points, styles[run.group], tips=tips))
    if not series:
        return None
    tolerances = {run.result.scenario["algorithm"].get("tolerance") or 0.0 for run in runs}
    only = f" The first {_MAX_LINES} of {len(runs)} runs." if len(runs) > _MAX_LINES else ""
    return lines(
        "Convergence",
        f"Certified maximum distance of each model from the optimum; with folds, of the first.{only}",
        ChartAxis("iteration", number=whole),
        ChartAxis("certified relative gap", is_log=True),
        series,
        levels=[Level("tolerance", each) for each in tolerances if each > SMALLEST_TOLERANCE and len(tolerances) == 1],
    )


def _bytes_against_accuracy(runs: Sequence[ComparedRun]) -> Chart | None:
    accuracy, carried, styles = MEASURES["accuracy"], MEASURES["payload_bytes"], _styles(runs)
    known = [run for run in runs if run.value(accuracy) is not None and run.value(carried)]
    if len(known) < 2:
        return None
    series = [
        Series(
            run.group,
            [(run.value(carried), run.value(accuracy))],
            styles[run.group],
            line=False,
            tips=[f"{run.name}: {percent(run.value(accuracy))} for {human_bytes(run.value(carried))}"],
        )
        for run in known
    ]
    sent = [run.value(carried) for run in known]
    return lines(
        "Accuracy by bytes",
        "Bytes sent and accuracy of each run. Best is at the top left.",
        ChartAxis("payload", is_log=max(sent) > _WIDE * min(sent), number=human_bytes),
        ChartAxis("accuracy on test rows", number=lambda share: f"{100 * share:.4g} %"),
        series,
    )
