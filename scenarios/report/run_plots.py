"""The plots of one run: convergence, bytes, time, rounds, faults, ROC curve."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedsvm.federation.traffic_ledger import CONTROL
from fedsvm.scenarios.figures import human_bytes
from fedsvm.scenarios.report import message_flow
from fedsvm.scenarios.report.axes import ChartAxis, whole
from fedsvm.scenarios.report.chart import (
    Chart,
    ChartColumn,
    Level,
    Series,
    TimedEvent,
    TimeSpan,
    bars,
    columns,
    lines,
    spans,
)
from fedsvm.scenarios.report.drawing import EXCHANGE, HUB, MODEL, SITES, Style, colour, style
from fedsvm.scenarios.report.summary import describe_folds, fold_names, reading_line
from fedsvm.scenarios.run.result import RunResult

Event = Mapping[str, Any]

_MAX_LEGEND = 12
"""Of more folds, lines have no keys: they are alike."""

_WIDE_SIZES = 64
"""Curves to more columns have a logarithmic axis."""

_LEAST_BENEFIT = -0.1
"""A net benefit far below that of treating none would make a plot of it mostly empty."""

SMALLEST_TOLERANCE = 1e-9
"""One below it is as good as none, and would make a plot of the gap mostly empty."""


def human_seconds(seconds: float) -> str:
    """Return 3 significant digits and a unit: 12 ms, 3.21 s, 5 min 12 s, 2 d 3 h."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def plots(result: RunResult, log: Sequence[Event], ledger: Sequence[message_flow.LedgerRow]) -> list[Chart]:
    """Return all plots that apply to a run."""
    colours = palette(result, ledger)
    drawn = [
        _convergence(result, log),
        _roc(result),
        _class_rocs(result),
        _precision_recall(result),
        _decision_curve(result),
        _calibration(result),
        _sizes(result),
        _bytes(result, ledger, colours),
        _time(result, log),
        _rounds(result, log, colours),
        _presence(result, log),
        _baselines(result),
    ]
    return [chart for chart in drawn if chart is not None]


def palette(result: RunResult, ledger: Sequence[message_flow.LedgerRow]) -> dict[str, str]:
    """Return a color for each phase and each protocol, the same in all plots."""
    phases = list(result.cost.by_phase) if result.cost else []
    protocols = [name for name in dict.fromkeys(row["protocol"] for row in ledger) if name not in (*phases, CONTROL)]
    named = {name: colour(number) for number, name in enumerate([*phases, *protocols])}
    return {**named, CONTROL: "var(--grey)"}


# Convergence.


def gap_curves(
    log: Sequence[Event], last: float | None, fold_name: Callable[[int], str] = "fold {}".format
) -> dict[str, list[tuple[float, float]]]:
    """Return the certified gap after each iteration, a curve for each model, by the name of its fold.

    A model's last gap is in the line that names its fold; where there is none, that of the only model is `last`.
    Training that began anew, as when sites left, is a curve of its own. fold_name: what the fold of a number from 1 is
    called.
    """
    curves: dict[str, list[tuple[float, float]]] = {}
    points: list[tuple[float, float]] = []
    for event in log:
        if event["event"] != "figures" or not event.get("gap", 0) > 0:
            continue
        iteration = event.get("iteration", len(points) + 1)
        if points and iteration < points[-1][0]:
            curves[f"restarted {len(curves) + 1}"], points = points, []
        if not (points and points[-1] == (iteration, event["gap"])):
            points.append((iteration, event["gap"]))
        if "fold" in event:
            curves[fold_name(round(event["fold"]) + 1)] = points
            points = []
    if points:
        if last and not curves and points[-1][1] != last:
            points.append((points[-1][0] + 1, last))
        curves["" if not curves else "unfinished"] = points
    return curves


def _convergence(result: RunResult, log: Sequence[Event]) -> Chart | None:
    curves = gap_curves(log, result.model.gap if result.model else None, fold_names(result))
    if not any(len(points) > 1 for points in curves.values()):  # solved at once, or without a certificate
        return None
    has_keys = len(curves) <= _MAX_LEGEND
    series = [
        Series(
            name if has_keys else "",
            points,
            style(number) if len(curves) > 1 else Style(MODEL),
            tips=[f"{name or 'iteration'} {'after ' if name else ''}{x:.0f}: gap {gap:.2e}" for x, gap in points],
        )
        for number, (name, points) in enumerate(curves.items())
    ]
    tolerance = result.scenario["algorithm"].get("tolerance")
    of = f", a line for each model of {describe_folds(result)}" if len(curves) > 1 and describe_folds(result) else ""
    return lines(
        "Convergence",
        f"Certified maximum distance of the model from the optimum{of}. Training stops below the dashed line.",
        ChartAxis("iteration", number=whole),
        ChartAxis("certified relative gap", is_log=True),
        series,
        levels=[Level("tolerance", tolerance)] if tolerance and tolerance > SMALLEST_TOLERANCE else [],
    )


# What it cost.


def _bytes(result: RunResult, ledger: Sequence[message_flow.LedgerRow], colours: Mapping[str, str]) -> Chart | None:
    spent: dict[str, dict[str, float]] = (
        {phase: defaultdict(float) for phase in result.cost.by_phase} if result.cost else {}
    )
    for row in ledger:
        if row["phase"] in spent:
            spent[row["phase"]][row["protocol"]] += row["predicted_wire_bytes"]
    spent = {phase: parts for phase, parts in spent.items() if sum(parts.values())}
    if not spent:
        return None
    return bars(
        "Bytes",
        "Bytes on the wire of each protocol in each phase, predicted from message sizes. Control is "
        "requests, replies and the parameters in them.",
        human_bytes,
        spent,
        colours,
    )


_LOCAL, _EXCHANGE, _OWN = "sites compute", "sites compute and send", "coordinator computes"
_TIME_COLOURS = {_LOCAL: SITES, _EXCHANGE: EXCHANGE, _OWN: HUB}


def _time(result: RunResult, log: Sequence[Event]) -> Chart | None:
    """Draw the seconds of each phase: rounds without messages, rounds with messages, and between rounds."""
    if result.cost is None:
        return None
    spent: dict[str, dict[str, float]] = {phase: defaultdict(float) for phase in result.cost.by_phase}
    for event in log:
        if event["event"] == "round" and event["phase"] in spent:
            spent[event["phase"]][_EXCHANGE if event["hops"] else _LOCAL] += event["seconds"]
    for phase, parts in spent.items():
        parts[_OWN] = max(0.0, result.cost.by_phase[phase].seconds - sum(parts.values()))
    rows = {"launch": {_OWN: result.timing.launch_s}, **spent}
    if not any(sum(parts.values()) for parts in rows.values()):
        return None
    return bars(
        "Time",
        "Seconds of each phase: rounds in which sites only compute, rounds in which they also exchange arrays and "
        "wait for them, and time between rounds, in which the coordinator computes. Launch is the start of the sites.",
        human_seconds,
        {phase: parts for phase, parts in rows.items() if sum(parts.values())},
        _TIME_COLOURS,
    )


def _rounds(result: RunResult, log: Sequence[Event], colours: Mapping[str, str]) -> Chart | None:
    rounds = [event for event in log if event["event"] == "round"]
    if not rounds:
        return None
    drawn = [
        ChartColumn(
            event["round"],
            event["seconds"],
            "aborted" if event["aborted"] else event["phase"],
            "var(--bad)" if event["aborted"] else colours.get(event["phase"], "var(--grey)"),
            f"round {event['round']}, {event['phase']}: {event['step']}{' (aborted)' if event['aborted'] else ''}, "
            f"{human_seconds(event['seconds'])}",
        )
        for event in rounds
    ]
    count = result.cost.aborted if result.cost else 0
    aborted = f" {count} {'was' if count == 1 else 'were'} aborted." if count else ""
    return columns(
        "Rounds",
        f"Duration of each round, in order.{aborted}",
        ChartAxis("round", number=whole),
        ChartAxis("time", from_zero=True, number=lambda seconds: human_seconds(seconds) if seconds else "0"),
        drawn,
    )


def _presence(result: RunResult, log: Sequence[Event]) -> Chart | None:
    """Draw when each site took part, for a run in which that changed or was to change."""
    names = [site.name for site in result.sites]
    if not log or (not result.faults and len(result.memberships) < 2):
        return None
    rows = {name: list(_spans(name, log, max(event["at_s"] for event in log))) for name in names}
    strikes = [
        TimedEvent(name, fault.start_s, fault.kind)
        for fault in result.faults
        for name in fault.site.split(", ")
        if name in rows and fault.start_s is not None
    ]
    return spans(
        "Sites and faults",
        "Participation of each site (pale: absent) and the faults injected into it.",
        ChartAxis("time", number=lambda seconds: human_seconds(seconds) if seconds else "0"),
        rows,
        strikes,
    )


def _spans(name: str, log: Sequence[Event], end: float) -> Iterator[TimeSpan]:
    since, is_out = 0.0, False
    for event in log:
        changes = event["event"] == "membership" and name in (event["joined"] if is_out else event["left"])
        if changes:
            yield TimeSpan(since, event["at_s"], _describe_span(name, since, event["at_s"], is_out), is_out)
            since, is_out = event["at_s"], not is_out
            if is_out and name in event["joined"]:  # started again before the next round
                is_out = False
    yield TimeSpan(since, end, _describe_span(name, since, end, is_out), is_out)


def _describe_span(name: str, since: float, until: float, is_out: bool) -> str:
    what = "was out" if is_out else "took part"
    return f"{name} {what} from {human_seconds(since)} to {human_seconds(until)}"


# How good it is.


def _roc(result: RunResult) -> Chart | None:
    metrics = result.metrics
    curves = [(number, fold.roc) for number, fold in enumerate(metrics.folds, 1) if fold.roc] if metrics else []
    if metrics is None or not curves or metrics.auc is None:
        return None
    return _curves(
        "ROC curve",
        f"{_of(curves, result)} {metrics.auc:.4f}.",
        ("1 - specificity", "sensitivity"),
        [
            (number, (each.false_positive_rate, each.true_positive_rate), each.operating_point)
            for number, each in curves
        ],
        fold_names(result),
        has_diagonal=True,
    )


def _class_rocs(result: RunResult) -> Chart | None:
    """Draw each of more than two classes against the rest, for the first fold that has them."""
    metrics = result.metrics
    fold = next((each for each in metrics.folds if any(each.class_rocs)), None) if metrics else None
    if metrics is None or fold is None or result.model is None or metrics.auc is None:
        return None
    names = result.model.classes
    folds = " of the first fold" if len(metrics.folds) > 1 else ""
    return _curves(
        "ROC curves of classes",
        f"One class against the rest, test rows{folds}. Squares: prediction of the class with the largest "
        f"value. Mean area under the curves: {metrics.auc:.4f}.",
        ("1 - specificity", "sensitivity"),
        [
            (number, (each.false_positive_rate, each.true_positive_rate), each.operating_point)
            for number, each in enumerate(fold.class_rocs, 1)
            if each is not None
        ],
        lambda number: names[number - 1],
        has_diagonal=True,
    )


def _precision_recall(result: RunResult) -> Chart | None:
    metrics = result.metrics
    known = enumerate(metrics.folds, 1) if metrics else ()
    curves = [(number, fold.precision_recall) for number, fold in known if fold.precision_recall]
    if metrics is None or not curves or metrics.average_precision is None:
        return None
    return _curves(
        "Precision-recall curve",
        f"{_of(curves, result)} {metrics.average_precision:.4f}.",
        ("sensitivity", "PPV"),
        [(number, (each.sensitivity, each.ppv), each.operating_point) for number, each in curves],
        fold_names(result),
    )


def _of(curves: Sequence[Any], result: RunResult) -> str:
    """Return the description of the area under curves."""
    folds = describe_folds(result)
    if folds and result.metrics is not None and len(curves) < len(result.metrics.folds):
        folds = f"{len(curves)} of {len(result.metrics.folds)} folds"
    under = f"{folds} on test rows; the mean area" if folds else "Test rows; the area"
    return f"Square: the model's threshold. {under} under the curve is"


def _curves(
    title: str,
    caption: str,
    axes: tuple[str, str],
    curves: Sequence[tuple[int, tuple[Sequence[float], Sequence[float]], tuple[float, float] | None]],
    fold_name: Callable[[int], str],
    *,
    has_diagonal: bool = False,
) -> Chart:
    """Draw curves of shares, one for each fold, with its number and its operating point."""
    several, series = len(curves) > 1, []
    for number, (across, up), operating in curves:
        name = fold_name(number) if several and len(curves) <= _MAX_LEGEND else ""
        drawn = colour(number - 1) if several else MODEL
        series.append(Series(name, list(zip(across, up, strict=True)), Style(drawn)))
        if operating is not None:
            told = f"{name or 'the model'} at its threshold: {axes[0]} {operating[0]:.3f}, {axes[1]} {operating[1]:.3f}"
            series.append(
                Series(
                    name,
                    [operating],
                    Style(drawn if several else "var(--ink)", shape="square"),
                    line=False,
                    tips=[told],
                )
            )
    x, y = (ChartAxis(axis, number=lambda share: f"{share:.3g}") for axis in axes)
    return lines(title, caption, x, y, series, has_diagonal=has_diagonal)


def _calibration(result: RunResult) -> Chart | None:
    """Share of positives against predicted probability, of each fold."""
    folds = enumerate(result.metrics.folds, 1) if result.metrics else ()
    curves = [(number, fold.calibration) for number, fold in folds if fold.calibration]
    if result.metrics is None or result.metrics.brier is None or not curves:
        return None
    several, fold_name = len(curves) > 1, fold_names(result)
    series = [
        Series(
            fold_name(number) if several and len(curves) <= _MAX_LEGEND else "",
            list(zip(each.predicted, each.observed, strict=True)),
            Style(colour(number - 1) if several else MODEL),
            tips=[
                f"{rows} rows with probability {probability:.2f}: {100 * share:.1f} % positive"
                for probability, share, rows in zip(each.predicted, each.observed, each.rows, strict=True)
            ],
        )
        for number, each in curves
    ]
    return lines(
        "Calibration",
        f"Observed against predicted probability. On the diagonal the model is perfectly calibrated. The Brier score "
        f"is {result.metrics.brier:.4f}.",
        ChartAxis("predicted probability", number=lambda share: f"{share:.3g}"),
        ChartAxis("share of positives", number=lambda share: f"{share:.3g}"),
        series,
        has_diagonal=True,
    )


def _decision_curve(result: RunResult) -> Chart | None:
    """Draw the net benefit by threshold probability, for each fold."""
    folds = enumerate(result.metrics.folds, 1) if result.metrics else ()
    curves = [(number, fold.decision_curve) for number, fold in folds if fold.decision_curve]
    if not curves:
        return None
    several, fold_name = len(curves) > 1, fold_names(result)
    series = [
        Series(
            (fold_name(number) if len(curves) <= _MAX_LEGEND else "") if several else "the model",
            _worthwhile(each.threshold, each.net_benefit),
            Style(colour(number - 1) if several else MODEL),
        )
        for number, each in curves
    ]
    first = curves[0][1]
    series.append(Series("treat all", _worthwhile(first.threshold, first.treat_all), Style("var(--ink)", dash="4 3")))
    return lines(
        "Decision curve",
        "Net benefit of treating the rows whose probability is at least the threshold, where a false alarm costs the "
        "odds of the threshold. A model is of use where it is above treating all and above 0, treating none.",
        ChartAxis("threshold of the probability", number=lambda share: f"{share:.3g}"),
        ChartAxis("net benefit", number=lambda share: f"{share:.3g}"),
        series,
        levels=[Level("treat none", 0.0)],
    )


def _worthwhile(thresholds: Sequence[float], benefits: Sequence[float]) -> list[tuple[float, float]]:
    """Return the points of a decision curve that are not far below treating none."""
    return [(x, y) for x, y in zip(thresholds, benefits, strict=True) if y >= _LEAST_BENEFIT]


def _sizes(result: RunResult) -> Chart | None:
    """Draw the accuracy by number of columns, and its three estimates."""
    selection = result.selection
    if selection is None or len(selection.curve) < 2:
        return None
    curve = selection.curve
    inner = [(float(point.size), point.accuracy) for point in curve]
    tips = [
        f"{point.size} columns: {100 * point.accuracy:.1f} ± {100 * point.standard_error:.1f} % on inner folds"
        for point in curve
    ]
    series = [Series("inner folds", inner, Style(MODEL), tips=tips)]
    for name, sign in (("a standard error below", -1), ("a standard error above", 1)):
        edge = [(float(each.size), min(1.0, each.accuracy + sign * each.standard_error)) for each in curve]
        series.append(Series(name, edge, Style("var(--grey)")))
    if all(point.test_accuracy is not None for point in curve):
        tested = [(float(point.size), point.test_accuracy or 0.0) for point in curve]
        told = [f"{size:g} columns: {100 * accuracy:.1f} % on test rows" for size, accuracy in tested]
        series.append(Series("test rows", tested, style(1), tips=told))
    for name, reading in selection.readings.items():
        point = (float(reading.size), reading.accuracy)
        series.append(
            Series(
                name,
                [point],
                Style("var(--ink)", shape="square"),
                line=False,
                tips=[f"{name}: {reading_line(reading)}"],
            )
        )
    wide = curve[-1].size > _WIDE_SIZES
    return lines(
        "Accuracy by number of columns",
        "Linear models of the best columns, on inner folds of the rows that ranked them (optimistic) and on test rows. "
        "Squares: nested is unbiased, the other two are the best point of a curve.",
        ChartAxis("columns", number=whole, is_log=wide),
        ChartAxis("accuracy", number=lambda share: f"{100 * share:.3g} %"),
        series,
    )


def _baselines(result: RunResult) -> Chart | None:
    if not result.baselines or result.metrics is None or result.metrics.auc is None:
        return None
    known = {each.phrase: each.auc for each in result.baselines.values() if each.auc is not None}
    rows = {"this model": {"model": result.metrics.auc}, **{name: {"baseline": auc} for name, auc in known.items()}}
    return bars(
        "Comparison with other methods",
        "Area under the ROC curve of the model and of other methods on the same test rows; 0.5 is chance.",
        lambda area: f"{area:.4f}",
        rows,
        {"model": MODEL, "baseline": "var(--grey)"},
    )
