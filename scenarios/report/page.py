"""The report of a run as one page that needs nothing else: what came of it, plots, tables, and the scenario to copy."""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsvm.algorithms.origins import ArrayOrigin
from fedsvm.algorithms.privacy.accountant import Release
from fedsvm.federation.report import DisclosureReport, ProtocolCost
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.scenarios.figures import area, human_bytes, percent, percent_range, plain_range
from fedsvm.scenarios.report import message_flow, template, whole_run
from fedsvm.scenarios.report.cards import cards, of_fewer
from fedsvm.scenarios.report.run_plots import gap_curves, human_seconds, plots
from fedsvm.scenarios.report.summary import describe_folds, fold_names, interval, lines, release_remarks, repeats
from fedsvm.scenarios.run.audit import Finding
from fedsvm.scenarios.run.intervals import Interval
from fedsvm.scenarios.run.log import NAME as LOG
from fedsvm.scenarios.run.metrics import Metrics, Score
from fedsvm.scenarios.run.result import RunResult, SiteResult, read_result, write_whole
from fedsvm.scenarios.run.selection import SelectionResult
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError

NAME = "report.html"

Event = dict[str, Any]

_MAX_REMOVED = 5


def write_report(folder: Path) -> Path:
    """Write the report of the run in a folder, and say where.

    Raises ScenarioError if there is no run in it, and OSError if it cannot be written.
    """
    path, text = folder / NAME, render(folder)
    write_whole(path, lambda file: file.write(text.encode()))
    return path


def render(folder: Path) -> str:
    """Return the page of a run. Raises ScenarioError for a folder without a run."""
    result = read_result(folder)
    run = _describe_run(folder, result)
    return template.render("run.html.j2", run["name"], run=run)


def _describe_run(folder: Path, result: RunResult) -> dict[str, Any]:
    """Return what the template shows of a run."""
    collusion, cost = result.collusion, result.cost
    log, ledger = read_log(folder), message_flow.read_ledger(folder / "ledger.parquet")
    sites = [site.name for site in result.sites]
    scenario = _text(folder / "scenario.toml")
    run = {
        "name": result.scenario["name"],
        "status": result.status,
        "error": result.error,
        "where": _where(result),
        "ways_out": list(_ways_out(folder, result)),
        "facts": list(_facts(result)),
        "command": result.environment.command,
        "cards": list(cards(result)),
        "notes": [*result.warnings, *(collusion.remarks if collusion else ()), *release_remarks(result)],
        "summary": lines(result),
        "plots": plots(result, log, ledger),
        "topology": message_flow.topology(ledger, sites),
        "rounds": _rounds(message_flow.round_pictures(ledger, log, sites)),
        "links": _links(result),
        "phases": [[*_cost(name, spent), human_seconds(spent.seconds)] for name, spent in cost.by_phase.items()]
        if cost
        else [],
        "protocols": [_cost(name, spent) for name, spent in cost.by_protocol.items()] if cost else [],
        "sites": [_site(site) for site in result.sites],
        "logged": [_format_event(event) for event in log if event["event"] == "site_log"],
        "confusion": _confusion(result),
        "measures": _measures(result),
        "own_models": _own_models(result),
        "dealt": describe_folds(result),
        "repeats": repeats(result),
        "folds": _folds(result, log),
        "ranking": list(_ranking(result.selection)) if result.selection else [],
        "ranking_head": list(_ranking_head(result.selection)) if result.selection else [],
        "removals": list(_removals(result.selection)) if result.selection else [],
        "victims": [_victim(victim) for victim in collusion.victims] if collusion else [],
        "audit_head": whole_run.HEAD,
        "audit": whole_run.table(result.audit),
        "releases": [_release(release) for release in result.privacy.releases] if result.privacy else [],
        "arrays": [_array(each) for each in result.model_file.arrays] if result.model_file else [],
        "disclosures": sorted(_disclosures(result.disclosures), key=lambda each: each["rank"]),
        "scenario": scenario,
        "short_scenario": _beside_defaults(scenario),
    }
    return {**run, "contents": list(_contents(run))}


def read_log(folder: Path) -> list[Event]:
    """Return the events of a run, without an incomplete last line."""
    text = _text(folder / LOG)
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines()]


def _text(path: Path) -> str:
    """Return the content of a file of a run, empty if it is missing."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


# The head.


def _facts(result: RunResult) -> Iterator[tuple[str, str]]:
    data, on = result.scenario["data"], result.environment
    size = f", {result.data.rows} rows x {result.data.columns} columns" if result.data else ""
    files = ", ".join(data.get("sources", {}).values())
    yield "data", f"{data['source'] or files}{size}"
    if result.model is not None:
        names = result.model.classes
        yield ("positive class", names[1]) if len(names) == 2 else ("classes", f"{len(names)}: {', '.join(names)}")
    yield "algorithm", f"{result.scenario['algorithm']['name']}, {result.scenario['protocol']['sum']} sums"
    if on.date:
        yield "date", on.date[:19].replace("T", " ")
    yield "took", human_seconds(result.timing.total_s)
    processors = f", {on.cpus} processors" if on.cpus else ""
    yield "on", f"fedsvm {on.fedsvm}, Python {on.python}, {on.system}{processors}"


def _where(result: RunResult) -> str:
    """Return how far an incomplete run came."""
    if (progress := result.progress) is None:
        return " before its sites were up"
    return f" in round {progress.round}, in phase {progress.phase}"


def _ways_out(folder: Path, result: RunResult) -> Iterator[str]:
    """Yield what to do about an incomplete run, in addition to its error."""
    if result.status == "completed":
        return
    for change in result.memberships:
        for site, why in change.left.items():
            if site not in str(result.error):
                yield f"{site} dropped out in round {change.round} ({change.phase}): {why}."
    if result.scenario["federation"]["on_dropout"] == "abort" and any(each.left for each in result.memberships):
        yield 'Set federation.on_dropout = "continue" to continue without a site that drops out.'
    yield (
        f"{folder.name}/log.jsonl has a line for each completed round. Run it again with --debug to see a traceback."
    )


def _contents(run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the sections of the page, with the ids of their headings."""
    listed = [
        ("summary", "Summary", run["summary"]),
        ("plots", "Plots of the run", run["plots"]),
        ("messages", "Message flow", run["topology"] or run["rounds"]),
        ("links", "Links", run["links"]["names"]),
        ("cost", "Cost", run["phases"]),
        ("sites", "Sites", run["sites"]),
        ("logged", "Site logs", run["logged"]),
        ("measures", "Measures", run["measures"]),
        ("own", "Sites alone", run["own_models"]),
        ("folds", "Folds", run["folds"]),
        ("columns", "Columns", run["ranking"]),
        ("audit", "Audit", run["audit"]),
        ("coalition", "Coalition", run["victims"]),
        ("privacy", "Privacy", run["releases"]),
        ("arrays", "Model file", run["arrays"]),
        ("disclosed", "Disclosures", run["disclosures"]),
        ("scenario", "Scenario", run["scenario"]),
    ]
    return ((id_, name) for id_, name, there in listed if there)


# Tables.


def _rounds(pictures: Sequence[message_flow.RoundPicture]) -> list[dict[str, Any]]:
    """Return the rounds to draw; the one with the most bytes is shown first."""
    first = max(pictures, key=lambda each: each.payload_bytes, default=None)
    return [{"name": each.name, "chart": each.chart, "is_first": each is first} for each in pictures]


def _cost(name: str, spent: ProtocolCost) -> list[Any]:
    wire = human_bytes(spent.wire_bytes) if spent.wire_bytes is not None else "not measured"
    return [name, spent.rounds, spent.hops, spent.messages, human_bytes(spent.payload_bytes), wire]


def _links(result: RunResult) -> dict[str, Any]:
    """Return the bytes between parties, with shades."""
    links = result.cost.by_link if result.cost else ()
    parties = [COORDINATOR, *(site.name for site in result.sites)] if links else []
    names = parties[: message_flow.MAX_PARTIES]
    sent = {(link.sender, link.receiver): link.predicted_wire_bytes for link in links}
    largest = max(sent.values(), default=0) or 1

    def cell(pair: tuple[str, str]) -> dict[str, Any]:
        count = sent.get(pair, 0)
        share = 0.6 * math.log1p(count) / math.log1p(largest)
        return {"text": human_bytes(count) if count else "", "share": f"{share:.2f}" if count else "0"}

    return {"names": names, "rows": [(a, [cell((a, b)) for b in names]) for a in names]}


def _array(each: ArrayOrigin) -> list[Any]:
    return [each.array, each.computed_from, each.mechanism, "" if each.digits is None else each.digits]


def _site(site: SiteResult) -> list[Any]:
    own = human_bytes(site.unique_memory_bytes) if site.unique_memory_bytes else ""
    spent = human_seconds(site.cpu_s) if site.cpu_s is not None else ""
    return [site.name, site.status, site.rows, site.columns, spent, own]


def _format_event(event: Event) -> list[Any]:
    return [event["site"], event["round"], event["level"], event["logger"], event["text"]]


def _confusion(result: RunResult) -> dict[str, Any] | None:
    """Return the confusion matrix over all folds; None if it was not counted."""
    if result.model is None or result.metrics is None:
        return None
    if (table := result.metrics.confusion_matrix) is not None:
        names = result.model.classes
        rows = [(f"actual {name}", counts) for name, counts in zip(names, table, strict=True)]
        return {"called": [f"predicted {name}" for name in names], "rows": rows}
    if (found := result.metrics.confusion) is None:
        return None
    negative, positive = result.model.classes
    return {
        "called": [f"predicted {positive}", f"predicted {negative}"],
        "rows": [
            (f"actual {positive}", [found.true_positive, found.false_negative]),
            (f"actual {negative}", [found.false_positive, found.true_negative]),
        ],
    }


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


def _measures(result: RunResult) -> list[tuple[str, str, str, str]]:
    """Return each measure of the test rows in words, with its confidence interval and its deviation over folds.

    Empty if only accuracy is known.
    """
    metrics = result.metrics
    if metrics is None or metrics.majority_accuracy is None:
        return []
    return [*_format_metrics(metrics, _SHARES, percent), *_format_metrics(metrics, _SCORES, area)]


def _format_metrics(
    metrics: Metrics, names: Mapping[str, str], written: Callable[[float], str]
) -> Iterator[tuple[str, str, str, str]]:
    for name, said in names.items():
        if (value := getattr(metrics, name)) is not None:
            deviation = metrics.deviations.get(name)
            spread = "" if deviation is None else f"± {written(deviation)}"
            yield f"{said}{of_fewer(metrics, name)}", written(value), interval(metrics, name), spread


def _own_models(result: RunResult) -> list[list[str]]:
    """Return a row for each site's own model, for the federated one and for the gain; empty if not compared."""
    if (own := result.own_models) is None:
        return []

    def row(name: str, rows: str, of: Score, intervals: Mapping[str, Interval], gain: str = "") -> list[str]:
        accuracy, auc = intervals.get(f"accuracy{gain}"), intervals.get(f"auc{gain}")
        within = [
            percent_range(accuracy.low, accuracy.high) if accuracy else "",
            plain_range(auc.low, auc.high) if auc else "",
        ]
        return [name, rows, percent(of.accuracy), within[0], area(of.auc), within[1]]

    measured = result.metrics.intervals if result.metrics is not None and own.tested_by == "runner" else {}
    return [
        *(row(site, str(each.rows), each, each.intervals) for site, each in own.sites.items()),
        row("sites alone, mean", "", own, own.intervals),
        row("federated", "", own.federated, measured),
        row("gain", "", Score(own.accuracy_gain, own.auc_gain), own.intervals, "_gain"),
    ]


def _folds(result: RunResult, log: Sequence[Event]) -> list[list[str]]:
    """Return the results of each fold, their mean and deviation; empty for a single model."""
    folds = result.metrics.folds if result.metrics else ()
    if result.metrics is None or len(folds) < 2:
        return []
    gaps = {name: points[-1] for name, points in gap_curves(log, None, fold_names(result)).items()}
    name_of = fold_names(result)
    head, rows = ["fold", "accuracy", "AUC", *(["iterations", "last gap"] if gaps else [])], []
    for number, fold in enumerate(folds, start=1):
        last = gaps.get(name_of(number))
        certified = ([f"{last[0]:.0f}", f"{last[1]:.1e}"] if last else ["", ""]) if gaps else []
        rows.append([name_of(number).removeprefix("fold "), percent(fold.accuracy), area(fold.auc), *certified])
    spread = statistics.stdev(fold.accuracy for fold in folds)
    empty = ["", ""] if gaps else []
    mean = ["mean", percent(result.metrics.accuracy), area(result.metrics.auc), *empty]
    areas = [fold.auc for fold in folds if fold.auc is not None]
    deviation = area(statistics.stdev(areas)) if len(areas) > 1 else ""
    return [head, *rows, mean, ["deviation", percent(spread), deviation, *empty]]


_MAX_RANKED = 200
"""Columns that a page lists; the result has all of them."""


def _ranking_head(selection: SelectionResult) -> Iterator[str]:
    yield from ("rank", "column", selection.ranking.score, "chosen")
    if selection.selected_in is not None:
        yield "selected in folds"
    if selection.ranking.stability:
        yield "selected in half-samples"


def _ranking(selection: SelectionResult) -> Iterator[list[str]]:
    """Yield the columns, best first."""
    ranking, chosen = selection.ranking, set(selection.ranking.selected)
    for place, name in enumerate(ranking.columns[:_MAX_RANKED]):
        score = ranking.scores[place]
        row = [
            str(ranking.ranks[place]),
            name,
            "" if score is None else f"{score:.4g}",
            "yes" if name in chosen else "",
        ]
        if selection.selected_in is not None:
            row.append(str(selection.selected_in.get(name, 0)))
        if ranking.stability:
            row.append(f"{100 * ranking.stability[place]:.0f} %")
        yield row


_CERTAIN = {True: "yes", False: "no", None: ""}


def _removals(selection: SelectionResult) -> Iterator[list[str]]:
    """Yield the removal of columns, step by step."""
    for number, step in enumerate(selection.ranking.steps, start=1):
        names, more = ", ".join(step.removed[:_MAX_REMOVED]), len(step.removed) - _MAX_REMOVED
        gap = "" if step.gap is None else f"{step.gap:.1e}"
        told = f"{names} and {more} more" if more > 0 else names
        yield [str(number), told, step.decided_by, _CERTAIN[step.certain], gap, str(step.rounds), str(step.sites)]


def _victim(victim: Finding) -> list[Any]:
    error = "" if victim.max_error is None else f"{victim.max_error:.1e}"
    return [victim.site, victim.protocol, victim.step, victim.values, victim.recovered, error]


def _release(release: Release) -> list[Any]:
    figures = [f"{figure:.3g}" for figure in (release.epsilon, release.delta, release.noise_scale)]
    return [release.what, release.mechanism, *figures, "; ".join(release.protects_against)]


_SEVERITY = {
    "single-row": (0, "rows", "a single row", "The part of the sum that comes from one row alone"),
    "row-difference": (1, "rows", "a single row", "Two sums whose difference is a single row"),
    "value": (2, "sites", "one site", "Each site's own value"),
    "difference": (3, "sites", "sites that left", "The difference of two sums reveals the value of sites that left"),
    "design": (4, "sites", "by design", "A disclosure that is part of the protocol"),
    "sum": (5, "rest", "all sites together", "Sum over all sites; individual contributions stay hidden"),
    "parameter": (6, "rest", "the model", "A parameter sent by the coordinator"),
}


_MAX_SHAPES = 2


def _disclosures(listed: Sequence[DisclosureReport]) -> Iterator[dict[str, Any]]:
    """Yield each disclosure once, with its shapes, which may differ by fold."""
    alike: dict[tuple[str, str, str, str], list[DisclosureReport]] = {}
    for each in listed:
        alike.setdefault((each.to, each.step, each.kind, each.detail), []).append(each)
    for same in alike.values():
        shapes = [" x ".join(map(str, each.shape)) or "1" for each in same]
        more = f" and {len(shapes) - _MAX_SHAPES} more" if len(shapes) > _MAX_SHAPES else ""
        shape = f"{', '.join(shapes[:_MAX_SHAPES])}{more}"
        yield {**_disclosure(same[0]), "shape": shape, "times": sum(each.times for each in same)}


def _disclosure(each: DisclosureReport) -> dict[str, Any]:
    """Return how sensitive a disclosure is, in words."""
    rank, level, severity, sentence = _SEVERITY[each.kind]
    what = f"{sentence}: {each.detail}" if each.detail else sentence
    return {
        "rank": rank,
        "level": level,
        "severity": severity,
        "to": each.to,
        "what": what,
        "step": each.step.replace("_", " "),
    }


def _beside_defaults(text: str) -> str:
    """Return a scenario without its defaults, empty if another version wrote it."""
    try:
        return spec.short_toml(spec.validate(tomllib.loads(text)))
    except (ScenarioError, ValueError):
        return ""
