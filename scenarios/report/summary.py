"""The end of a run in a few lines: who took part, how well it went, what it cost, what it showed to whom."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedsvm.algorithms.privacy.accountant import PrivacyReport
from fedsvm.federation.report import CostReport, DisclosureReport
from fedsvm.federation.text import list_names, visible
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis.views import Coalition
from fedsvm.scenarios.figures import area_gain, format_count, human_bytes, percent, percent_range, plain_range, points
from fedsvm.scenarios.report import whole_run
from fedsvm.scenarios.run.audit import AttackResult, CollusionReport, KnownColumns
from fedsvm.scenarios.run.gains import Gain
from fedsvm.scenarios.run.intervals import Interval
from fedsvm.scenarios.run.metrics import Metrics, PooledMetrics, SiteMetrics, class_table
from fedsvm.scenarios.run.own_models import OwnModels
from fedsvm.scenarios.run.result import ModelResult, RunResult, Timing
from fedsvm.scenarios.run.selection import AccuracyEstimate, SelectionResult

_MAX_NOTES = 5
_MAX_COLUMNS = 10

_MAX_MISTAKEN = 3
"""Pairs of classes that a line names."""


def print_summary(console: Console, result: RunResult, folder: Path) -> None:
    """Print the summary of a completed run: as wide as a terminal is, and elsewhere a line for each figure and note."""
    print_named(console, [*lines(result), ("results", str(folder))], result.scenario["name"])
    has_own_lines = not console.is_terminal
    remarks = [*(result.collusion.remarks if result.collusion else ()), *release_remarks(result)]
    for note in (*remarks, *result.warnings[:_MAX_NOTES]):
        console.print(Text.assemble(("note", "yellow"), f" {visible(note)}"), soft_wrap=has_own_lines)
    if len(result.warnings) > _MAX_NOTES:
        more = len(result.warnings) - _MAX_NOTES
        console.print(Text.assemble(("note", "yellow"), f" and {more} more like it in result.json"))


def print_named(console: Console, values: Sequence[tuple[str, str]], title: str | None = None) -> None:
    """Print sentences with names: folded to the width of a terminal, and elsewhere in a line each."""
    shown = [(name, visible(value)) for name, value in values]
    if console.is_terminal:
        table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for name, value in shown:
            table.add_row(name, Text(value))
        console.print(table)
        return
    if title is not None:
        console.print(title, soft_wrap=True)
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        console.print(f"{name.ljust(width)}  {value}", soft_wrap=True)


def release_remarks(result: RunResult) -> list[str]:
    """Return remarks on trained and released models, each sentence once."""
    shortfalls = result.metrics.shortfalls if result.metrics else ()
    releases = result.privacy.releases if result.privacy else ()
    return list(dict.fromkeys([*shortfalls, *(remark for release in releases for remark in release.remarks)]))


def lines(result: RunResult) -> list[tuple[str, str]]:
    """Name and text of every line of the summary."""
    model, cost = result.model, result.cost
    if model is None or cost is None:
        return []
    return [
        *_quality_lines(result, model),
        *_cost_lines(cost),
        *_secrecy_lines(result, model),
        *_event_lines(result),
        ("seconds", _seconds(result.timing, cost)),
    ]


def _quality_lines(result: RunResult, model: ModelResult) -> list[tuple[str, str]]:
    """Return what was trained, and its quality."""
    found = [("sites", _sites(result))]
    if (alignment := result.alignment) is not None:
        found.append(("records", f"{alignment.records} held by all sites, aligned by {alignment.by}"))
    found.append(("model", f"{model.algorithm}, {model.description}"))
    if result.metrics is not None:
        folds = describe_folds(result)
        found += measure_lines(
            result.metrics, model.classes, f"mean and deviation of {folds}" if folds else "on the test rows"
        )
    if result.at_sites is not None:
        found.append(("at sites", _at_sites(result.at_sites)))
    if result.own_models is not None:
        found.append(("sites alone", _own_models(result.own_models, result.at_sites)))
    if result.selection is not None:
        found += selection_lines(result.selection)
    if result.centralised is not None:
        found.append(("pooled rows", _pooled_line(result.centralised, result)))
    if federating := federating_line(result.own_models, result.centralised):
        found.append(("federating", federating))
    if model.objective is not None:
        found.append(("objective", _objective(model, "rows" if alignment is None else "columns")))
    if result.privacy is not None:
        found += _privacy_lines(result.privacy)
    if result.baselines:
        found.append(("baselines", _baselines(result)))
    return found


def measure_lines(measured: Metrics, classes: tuple[str, ...], where: str) -> list[tuple[str, str]]:
    """Return the lines of measures with their confidence intervals. where: the rows, such as "on the test rows"."""
    found = [("accuracy", _metrics(measured, where)), *_class_lines(measured, classes)]
    if measured.intervals:
        table = class_table(measured)
        rows = "" if len(measured.folds) > 1 or table is None else f", {int(table.sum())} rows"
        found.append(("intervals", f"95 %{rows}: {_intervals(measured)}"))
    return found


def selection_lines(selection: SelectionResult) -> list[tuple[str, str]]:
    """Return the selected columns, and the estimates of their accuracy."""
    ranking = selection.ranking
    kept, of = ranking.selected, len(ranking.columns)
    listed = [name for name in ranking.columns if name in kept][:_MAX_COLUMNS]
    more = f" and {len(kept) - len(listed)} more" if len(kept) > len(listed) else ""
    found = [("columns", f"{len(kept)} of {of} by {ranking.size_rule}: {', '.join(listed)}{more}")]
    found += [(name, reading_line(reading)) for name, reading in selection.readings.items()]
    if selection.overlap is not None and selection.selected_in is not None:
        always = sum(count == max(selection.selected_in.values()) for count in selection.selected_in.values())
        found.append(
            (
                "stability",
                f"two folds share {100 * selection.overlap:.0f} % of the columns that either selected; "
                f"{always} of {len(selection.selected_in)} were selected most often",
            )
        )
    if selection.equal_positions is not None:
        found.append(
            ("pooled order", f"{selection.equal_positions} of {of} columns have the same rank as with pooled rows")
        )
    if ranking.rows_determined is not None:
        found.append(("rows revealed", f"{ranking.rows_determined} follow from the released support sets"))
    return found


def reading_line(reading: AccuracyEstimate) -> str:
    """Return an estimate with its standard error, and why it is optimistic, if it is."""
    told = f"{100 * reading.accuracy:.1f} ± {100 * reading.standard_error:.1f} % with {reading.size:g} columns"
    return f"{told}. {reading.biased}" if reading.biased else f"{told}, selected without the test rows"


def _baselines(result: RunResult) -> str:
    """Return the algorithm's own baselines by AUC, or the chosen ones on pooled rows by accuracy."""
    others = (result.baselines or {}).values()
    if result.scenario["compare"]["baselines"] is True:
        known = [f"{each.phrase} {each.auc:.4f}" for each in others if each.auc is not None]
        return f"AUC of {', '.join(known)}"
    listed = ", ".join(f"{each.phrase} {percent(each.accuracy)}" for each in others)
    own = ", each at its own threshold of 0" if result.metrics is not None and result.metrics.threshold else ""
    return f"on pooled rows {listed}{own}"


def _cost_lines(cost: CostReport) -> list[tuple[str, str]]:
    aborted = f", {cost.aborted} of them aborted" if cost.aborted else ""
    return [
        ("rounds", f"{cost.rounds} ({cost.hops} hops){aborted}"),
        ("payload", f"{human_bytes(cost.payload_bytes)} in {cost.messages} messages"),
        ("wire", _wire(cost)),
    ]


def _secrecy_lines(result: RunResult, model: ModelResult) -> list[tuple[str, str]]:
    """Return who learned what by design."""
    found = [("disclosed", _count_disclosures(result.disclosures))]
    if result.secrecy is not None:
        found += [("one sum", result.secrecy.single_sum), ("all sums", result.secrecy.whole_run)]
    if result.model_file is not None:
        found.append(("model file", result.model_file.summary))
    found += [(remark.name, remark.sentence) for remark in model.remarks]
    for party, single in _single_rows(result.disclosures).items():
        listed = ", ".join(f"{count} in {what}" for what, count in single.items())
        who = "the coordinator" if party == COORDINATOR else party
        found.append(("single rows", f"{listed} depend on one row alone, which {who} can learn"))
    return found


def _event_lines(result: RunResult) -> list[tuple[str, str]]:
    """Return the events of the run: faults, slow links, collusion, and log records of sites."""
    found = [
        ("fault", f"{fault.kind} {fault.site} in {fault.phase} round {fault.round}: {fault.outcome}")
        for fault in result.faults
    ]
    if logged := {site.name: site.logged for site in result.sites if site.logged}:
        found.append(("logged", f"{_count_log_records(logged)}; see log.jsonl"))
    if (network := result.network) is not None:
        measured, predicted = 1000 * network.measured_s_per_round, 1000 * network.predicted_s_per_round
        found.append(
            ("network", f"{measured:.1f} ms per round measured, {predicted:.1f} ms predicted without computation")
        )
    if result.collusion is not None:
        found.append(("collusion", _collusion(result.collusion)))
    if result.audit:
        found.append(("whole run", whole_run.line(result.audit)))
        found += [
            ("rebuilt", _rebuilt(attack, attack.known_before))
            for attack in result.audit[0].attacks
            if attack.known_before is not None
        ]
    return found


def _objective(model: ModelResult, what: str) -> str:
    certified = "uncertified, since the kernel may be indefinite,"
    if model.gap is not None:
        certified = f"certified within {model.gap:.1e}"
    after = f" after {model.iterations} iterations" if model.iterations is not None else ""
    noise = f" with the sites' noise ({size:g})" if (size := objective_noise(model)) else ""
    return f"{model.objective:.3g}{noise}, {certified}{after}, over the {what} of {len(model.sites)} sites"


def objective_noise(model: ModelResult) -> float:
    """Return the size of the sites' noise in the objective; 0 without any."""
    return float(model.figures.get("objective_noise", 0.0))


def _privacy_lines(privacy: PrivacyReport) -> list[tuple[str, str]]:
    """Return the guaranteed privacy, the total over all runs, and what in the run's folder is not covered."""
    several = f" in {len(privacy.releases)} releases" if len(privacy.releases) > 1 else ""
    whom = "; ".join(privacy.protects_against)
    spent = _format_epsilon(privacy.epsilon, privacy.delta)
    found = [("privacy", f"{spent}{several} by {privacy.mechanism}; protects against {whom}")]
    if (ledger := privacy.ledger) is not None:
        budget = f" of a budget of {privacy.budget.epsilon:g}" if privacy.budget.epsilon is not None else ""
        runs = f"{format_count(ledger.releases, 'release')} of all runs in {ledger.path}"
        found.append(("spent in all", f"{_format_epsilon(ledger.epsilon, ledger.delta)}{budget} in {runs}"))
    else:
        found.append(("not counted", "no ledger adds this run to others on the same rows; algorithm.ledger names one"))
    if privacy.not_covered:
        found.append(("not covered", f"{'; '.join(privacy.not_covered)}. Release the model only, not these"))
    return found


def _format_epsilon(epsilon: float, delta: float) -> str:
    return f"epsilon {epsilon:g}{f', delta {delta:.1e}' if delta else ''}"


def _collusion(collusion: CollusionReport) -> str:
    """Return what colluders learned from single sums. The whole run has a line of its own."""
    parties = Coalition(collusion.coalition, collusion.coordinator).parties
    who = f"{', '.join(parties)} {'learns' if len(parties) == 1 else 'learn'}"
    recovered = sorted({victim.site for victim in collusion.victims if victim.recovered})
    if not recovered:
        return f"{who} no input of another site from any single sum"
    share = sum(victim.recovered for victim in collusion.victims) / sum(
        victim.values for victim in collusion.victims if victim.site in recovered
    )
    return f"{who} {100 * share:.0f} % of the inputs of {', '.join(recovered)} to single sums"


def _rebuilt(attack: AttackResult, before: KnownColumns) -> str:
    together = " together" if len(before.sites) > 1 else ""
    error = f", with errors up to {attack.max_error:.1e}" if attack.max_error is not None else ""
    return (
        f"{attack.recovered} of {before.held_back} records of {', '.join(before.columns_of)}, from values of "
        f"{', '.join(before.sites)}{together} and {before.known_records} known records{error}"
    )


def _sites(result: RunResult) -> str:
    rows = [site.rows for site in result.sites]
    spread = f"{min(rows)}" if min(rows) == max(rows) else f"{min(rows)} to {max(rows)}"
    dropped = [site.name for site in result.sites if site.status == "dropped"]
    without = f"; dropped: {', '.join(dropped)}" if dropped else ""
    columns = sum(site.columns for site in result.sites)
    among = f" of {columns} columns in all" if result.alignment is not None else ""
    pids = {site.pid for site in result.sites if site.pid is not None}
    where = f" in {len(pids)} processes" if pids else ""  # nothing is known of those on other hosts
    return f"{len(rows)}{where}, {spread} rows each{among}{without}"


def describe_folds(result: RunResult) -> str:
    """Return the cross-validation, such as "4 folds" or "3 repeats of 2 folds"; empty for a single model."""
    count, times = len(result.metrics.folds) if result.metrics else 0, repeats(result)
    if count < 2:
        return ""
    return f"{times} repeats of {count // times} folds" if times > 1 else f"{count} folds"


def fold_names(result: RunResult) -> Callable[[int], str]:
    """Return the name of a model by its held-out fold, counted from 1: "fold 2", or "repeat 1, fold 2"."""
    data = result.scenario["data"]
    folds, several = data.get("folds") or 1, data.get("repeats", 1) > 1

    def name(number: int) -> str:
        repeat, fold = divmod(number - 1, folds)
        return f"repeat {repeat + 1}, fold {fold + 1}" if several else f"fold {number}"

    return name


def repeats(result: RunResult) -> int:
    """Return how often every row was tested: once, or in each repeat of a completed run."""
    return int(result.scenario["data"].get("repeats", 1)) if result.status == "completed" else 1


def _metrics(metrics: Metrics, where: str) -> str:
    auc = f", AUC {metrics.auc:.4f}{_deviation(metrics, 'auc')}" if metrics.auc is not None else ""
    return f"{percent(metrics.accuracy)}{_deviation(metrics, 'accuracy', 100)} {where}{auc}"


def _at_sites(found: SiteMetrics) -> str:
    """Return what sites measured on the rows that they hold out."""
    within = f" to within {found.auc_resolution:.1g}" if found.auc_resolution else ""
    auc = f", AUC {found.auc:.4f}{within}" if found.auc is not None else ""
    return f"{percent(found.accuracy)} of {_held_out(found)} held-out rows{auc}, through secure sums"


def _held_out(found: SiteMetrics) -> int:
    """Return the number of rows that sites hold out."""
    rows = sum(map(sum, found.confusion_matrix)) if found.confusion_matrix else 0
    return rows + (sum(asdict(found.confusion).values()) if found.confusion else 0)


def _own_models(own: OwnModels, at_sites: SiteMetrics | None) -> str:
    """Return the accuracy of the sites' own models and of the federated one, and which sites can train no model."""
    auc = f", AUC {own.auc:.4f}" if own.auc is not None else ""
    spread = ""
    if own.sites:
        counted = [each for each in own.sites.values() if not each.one_class] or list(own.sites.values())
        found = [each.accuracy for each in counted]
        spread = f" ({percent(min(found))} to {percent(max(found))})"
    both = f"by each site's own model and {percent(own.federated.accuracy)} by the federated one, both at threshold 0"
    return f"{percent(own.accuracy)}{spread}{auc} {both}{_without_own_model(own, at_sites)}"


def _without_own_model(own: OwnModels, at_sites: SiteMetrics | None) -> str:
    """Return a clause on sites with rows of one class, which cannot train a model; empty without any."""
    if len(own.one_class_sites) == len(own.sites) > 0:
        return "; every site has rows of one class, and predicts that class"
    if own.one_class_sites:
        return f"; not counting {list_names(own.one_class_sites)} with rows of one class"
    left_out = _held_out(at_sites) - own.test_rows if at_sites is not None and own.test_rows else 0
    return f"; not counting {left_out} rows at sites that train on one class" if left_out > 0 else ""


def federating_line(own: OwnModels | None, pooled: PooledMetrics | None) -> str:
    """Return the gains of federating over the alternatives, with their intervals; an empty text if none is known."""
    found = []
    if own is not None:
        found.append(f"over the sites' own models: {_gain(own.gain)}")
    if pooled is not None and pooled.gain is not None:
        model = "the model" if pooled.exact_kernel is None else "the exact kernel"
        found.append(f"over {model} of pooled data: {_gain(pooled.gain)}")
    return "; ".join(found)


def _gain(gain: Gain) -> str:
    """Return what the test rows say about a gain, by accuracy and AUC."""
    found = [f"accuracy {points(gain.accuracy)} points{_gain_within(gain, 'accuracy', points)}"]
    if gain.auc is not None:
        found.append(f"AUC {area_gain(gain.auc)}{_gain_within(gain, 'auc', area_gain)}")
    return ", ".join(found)


def _gain_within(gain: Gain, name: str, written: Callable[[float], str]) -> str:
    found = gain.intervals.get(name)
    return f" (95 %: {written(found.low)} to {written(found.high)}, {verdict(found)})" if found else ""


def verdict(interval: Interval) -> str:
    """Return what the interval of a gain says."""
    return "better" if interval.low > 0 else "worse" if interval.high < 0 else "no clear difference"


def _deviation(metrics: Metrics, name: str, factor: float = 1) -> str:
    """Return the deviation over folds, if any, and the number of folds with the measure if some lack it."""
    deviation, known = metrics.deviations.get(name), metrics.folds_with(name)
    over = f" (of {known} of {len(metrics.folds)} folds)" if known < len(metrics.folds) else ""
    return over if deviation is None else f" ± {factor * deviation:.{2 if factor > 1 else 4}f}{over}"


def _class_lines(metrics: Metrics, classes: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the clinical measures of two classes; empty for an old result without them."""
    if metrics.majority_accuracy is None:
        return []
    if metrics.confusion_matrix is not None:
        return _several_lines(metrics, classes)
    names = {"sensitivity": "sensitivity", "specificity": "specificity", "ppv": "PPV", "npv": "NPV"}
    shares = [
        f"{said} {100 * share:.1f} %{_deviation(metrics, name, 100)}"
        for name, said in names.items()
        if (share := getattr(metrics, name)) is not None
    ]
    others = [f"F1 {metrics.f1:.3f}" if metrics.f1 is not None else "", f"MCC {metrics.mcc:.3f}"]
    if metrics.brier is not None:
        others.append(f"Brier score {metrics.brier:.4f}")
    balanced = ""
    if metrics.balanced_accuracy is not None:
        balanced = f"accuracy {percent(metrics.balanced_accuracy)}, "
    majority = f"{percent(metrics.majority_accuracy)} for the majority class"
    at = f" from {metrics.threshold:.4g} on" if metrics.threshold else ""
    if at and metrics.deviations.get("threshold"):
        at += " (mean over folds, each has its own)"
    return [
        ("positive", f"{classes[1]!r}{at}: {', '.join(shares)}"),
        ("balanced", f"{balanced}{', '.join(each for each in others if each)}; {majority}"),
    ]


_INTERVAL_NAMES: Mapping[str, tuple[str, Callable[[float, float], str]]] = {
    "accuracy": ("accuracy", percent_range),
    "sensitivity": ("sensitivity", percent_range),
    "specificity": ("specificity", percent_range),
    "ppv": ("PPV", percent_range),
    "npv": ("NPV", percent_range),
    "auc": ("AUC", plain_range),
    "calibration_slope": ("calibration slope", plain_range),
    "calibration_intercept": ("calibration intercept", plain_range),
}


def interval(metrics: Metrics, name: str) -> str:
    """Return the 95 % confidence interval of a measure; an empty text if it has none."""
    found = metrics.intervals.get(name)
    return "" if found is None else _INTERVAL_NAMES[name][1](found.low, found.high)


def _intervals(metrics: Metrics) -> str:
    known = {name: (said, interval(metrics, name)) for name, (said, _) in _INTERVAL_NAMES.items()}
    return ", ".join(f"{said} {text}" for said, text in known.values() if text)


def _several_lines(metrics: Metrics, classes: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the measures of more than two classes, and the most frequent errors."""
    table = metrics.confusion_matrix or ()
    mistaken = sorted(
        ((count, i, j) for i, counts in enumerate(table) for j, count in enumerate(counts) if i != j and count),
        key=lambda each: (-each[0], each[1], each[2]),
    )
    listed = ", ".join(f"{classes[i]!r} for {classes[j]!r} ({count})" for count, i, j in mistaken[:_MAX_MISTAKEN])
    shares = [
        f"{said} {percent(share)}{_deviation(metrics, name, 100)}"
        for name, said in (("balanced_accuracy", "accuracy"), ("binary_accuracy", "one against the rest"))
        if (share := getattr(metrics, name)) is not None
    ]
    scores = [f"F1 {metrics.f1:.3f}" if metrics.f1 is not None else "", f"MCC {metrics.mcc:.3f}"]
    majority = f"{100 * (metrics.majority_accuracy or 0):.2f} % for the majority class"
    return [
        (
            "classes",
            f"{len(classes)}; most frequent errors {listed}" if listed else f"{len(classes)}, no errors",
        ),
        ("balanced", f"{', '.join(each for each in (*shares, *scores) if each)}; {majority}"),
    ]


def _pooled_line(pooled: PooledMetrics, result: RunResult) -> str:
    if result.privacy is not None:
        return f"{percent(pooled.accuracy)} without noise, on all rows in one place"
    accuracy, together = 100 * pooled.accuracy, "columns" if result.alignment is not None else "rows"
    found = f"{accuracy:.2f} % with all {together} in one place"
    if pooled.exact_kernel is not None:
        found = f"{accuracy:.2f} % in the same features, {percent(pooled.exact_kernel.accuracy)} with the exact kernel"
    why = ", since LIBSVM's have no noise" if result.model is not None and objective_noise(result.model) else ""
    return f"{found}; decision values differ by at most {pooled.max_decision_difference:.1e}{why}"


def _wire(cost: CostReport) -> str:
    predicted, control = human_bytes(cost.predicted_wire_bytes), human_bytes(cost.control.payload_bytes)
    if cost.wire_bytes is None:
        return f"{predicted} predicted (not measured on this transport), plus {control} of parameters in requests"
    expected = cost.predicted_wire_bytes - cost.unmeasured_bytes
    agree = "as predicted" if cost.wire_bytes == expected else f"{predicted} predicted"
    if cost.unmeasured_bytes:
        agree += f", plus {human_bytes(cost.unmeasured_bytes)} to lost sites"
    return f"{human_bytes(cost.wire_bytes)} measured, {agree}; plus {control} of parameters in requests"


def _count_disclosures(disclosures: tuple[DisclosureReport, ...]) -> str:
    """Return the numbers of sums, values of single sites and other disclosures to each party."""
    parties = []
    for party in dict.fromkeys(each.to for each in disclosures):
        shown = [each for each in disclosures if each.to == party]
        sums = len({each.step for each in shown if each.kind == "sum"})
        values = sorted({each.step for each in shown if each.kind == "value" and not each.detail})
        parameters = len({(each.step, each.detail) for each in shown if each.kind == "parameter"})
        others = len({each.detail for each in shown if each.kind != "parameter" and each.detail})
        counts = [
            *([f"sums of {format_count(sums, 'step')}"] if sums else []),
            *([f"each site's {', '.join(values)}"] if values else []),
            *([format_count(parameters, "parameter")] if parameters else []),
            *([f"{format_count(others, 'protocol-specific disclosure')} (see the report)"] if others else []),
        ]
        parties.append(f"to {'the ' if party in ('coordinator', 'sites') else ''}{party} {', '.join(counts)}")
    return "; ".join(parties) or "nothing"


def _single_rows(disclosures: tuple[DisclosureReport, ...]) -> Mapping[str, Counter[str]]:
    """Return how often each party saw a single row: in sums of a step, and in differences of sums."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for each in disclosures:
        if each.kind in ("single-row", "row-difference"):
            what = each.step if each.kind == "single-row" else f"differences of {each.step}"
            found[each.to][what] += each.times
    return found


def _count_log_records(by_site: Mapping[str, Mapping[str, int]]) -> str:
    """Return the number of log records of each level by site, such as "site-1 2 warnings, 1 error"."""
    levels = {"info": "message", "debug": "debugging message"}
    told = {
        site: ", ".join(format_count(count, levels.get(level, level)) for level, count in counts.items())
        for site, counts in by_site.items()
    }
    return "; ".join(f"{site} {counts}" for site, counts in told.items())


def _seconds(timing: Timing, cost: CostReport) -> str:
    said = (
        f"{timing.total_s:.1f}: libraries and data {timing.prepare_s:.1f}, launch {timing.launch_s:.1f}, "
        f"train {timing.train_s:.1f}, evaluate {timing.evaluate_s:.1f}"
    )
    rounds = [phase.rounds_s for phase in cost.by_phase.values() if phase.rounds_s is not None]
    own = max(0.0, timing.train_s + timing.evaluate_s - sum(rounds))
    if rounds:
        said += f"; of train and evaluate {sum(rounds):.1f} in rounds, {own:.1f} at the coordinator"
    return f"{said}; audit {timing.audit_s:.1f}" if timing.audit_s else said


def print_end(console: Console, seconds: float, report_s: float) -> None:
    """Print the seconds since the start of the command, and those that the report took."""
    told = f"      {seconds:.1f} s, including {report_s:.1f} s for the report"
    console.print(Text.assemble(("elapsed", "dim"), told))
