"""The end of a run in a few lines: who took part, how well it went, what it cost, what it showed to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from algorithms import pan_svm
from algorithms.features import landmarks
from protocols.sums.registry import SUMS
from scenarios.report.live import human_bytes
from scenarios.schema.tables import ProtocolSpec


def print_summary(console: Console, result: dict[str, Any], folder: Path) -> None:
    """Print the summary of a completed run."""
    table = Table(title=result["scenario"]["name"], title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in lines(result):
        table.add_row(name, Text(value))
    table.add_row("results", Text(str(folder)))
    console.print(table)
    for note in [*(result["collusion"] or {}).get("remarks", []), *result["warnings"][:5]]:
        console.print(Text.assemble(("note ", "yellow"), note))
    if len(result["warnings"]) > 5:
        console.print(f"[yellow]note[/yellow] and {len(result['warnings']) - 5} more like it in result.json")


def lines(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and text of every line of the summary."""
    model, cost = result["model"], result["cost"]
    found = [("sites", _sites(result))]
    if result["alignment"] is not None:
        found.append(("records", _records(result["alignment"])))
    found.append(("model", _model(model)))
    if result["metrics"] is not None:
        found.append(("accuracy", _quality(result["metrics"])))
    if result["centralised"] is not None:
        found.append(("pooled rows", _pooled(result["centralised"], model, private=result["privacy"] is not None)))
    found += [
        *([("objective", _objective(model))] if model["objective"] is not None else []),
        *([("privacy", _privacy(result["privacy"]))] if result["privacy"] else []),
        *([("baselines", _baselines(result["baselines"]))] if result["baselines"] else []),
        ("rounds", _rounds(cost)),
        ("payload", f"{human_bytes(cost['payload_bytes'])} in {cost['messages']} messages"),
        ("wire", _wire(cost)),
        ("disclosed", _disclosed(result["disclosures"])),
        *([("secrecy", _secrecy(result))] if result["scenario"]["protocol"]["sum"] in SUMS else []),
        *([("landmarks", _landmarks(model))] if model["records_exposed"] is not None else []),
        *([("lone rows", lone)] if (lone := _lone_rows(result["disclosures"])) else []),
        *(("fault", _fault(fault)) for fault in result["faults"]),
        *([("network", _network(result["network"]))] if result["network"] else []),
        *([("collusion", _collusion(result["collusion"]))] if result["collusion"] else []),
        *(("rebuilt", _reconstruction(rebuilt)) for rebuilt in (result["collusion"] or {}).get("reconstructions", [])),
        ("seconds", _seconds(result["timing"])),
    ]
    return found


def _objective(model: dict[str, Any]) -> str:
    bundles = f" in {model['bundles']} bundles of cuts" if (model["bundles"] or 1) > 1 else ""
    indefinite = "uncertified, since the kernel may be indefinite,"
    gap = f"certified within {model['gap']:.1e}" if model["gap"] is not None else indefinite
    what = "rows" if model["bundles"] is not None else "columns"
    return (
        f"{model['objective']:.6g}, {gap} after {model['iterations']} iterations{bundles}, over the {what} of "
        f"{len(model['sites'])} sites"
    )


def _privacy(privacy: dict[str, Any]) -> str:
    delta = f", delta {privacy['delta']:.1e}" if privacy["delta"] else ""
    releases = len(privacy["releases"])
    several = f" in {releases} releases" if releases > 1 else ""
    whom = "; ".join(privacy["protects_against"])
    return f"epsilon {privacy['epsilon']:g}{delta}{several} by {privacy['mechanism']}; protects against {whom}"


def _baselines(baselines: dict[str, Any]) -> str:
    names = {
        "public": f"{baselines['public_rows']} public rows alone",
        "private": "random features",
        "no_noise": "no noise",
    }
    found = {text: baselines[name]["auc"] for name, text in names.items() if name in baselines}
    return "AUC of " + ", ".join(f"{text} {auc:.4f}" for text, auc in found.items() if auc is not None)


def _records(alignment: dict[str, Any]) -> str:
    return f"{alignment['records']} that all sites hold, aligned by {alignment['by']}"


def _rounds(cost: dict[str, Any]) -> str:
    aborted = f", {cost['aborted']} of them aborted" if cost["aborted"] else ""
    return f"{cost['rounds']} ({cost['hops']} hops){aborted}"


def _fault(fault: dict[str, Any]) -> str:
    return f"{fault['kind']} {fault['site']} in {fault['phase']} round {fault['round']}: {fault['outcome']}"


def _network(network: dict[str, Any]) -> str:
    measured, predicted = network["measured_s_per_round"], network["predicted_s_per_round"]
    return f"{1000 * measured:.1f} ms a round measured, {1000 * predicted:.1f} ms predicted without computing"


def _collusion(collusion: dict[str, Any]) -> str:
    parties = [*collusion["coalition"], *(["coordinator"] if collusion["coordinator"] else [])]
    who = f"{', '.join(parties)} {'learns' if len(parties) == 1 else 'learn'}"
    victims = collusion["victims"]
    recovered = sorted({victim["site"] for victim in victims if victim["recovered"]})
    if not recovered:
        return f"{who} no input of another site"
    share = sum(v["recovered"] for v in victims) / sum(v["values"] for v in victims if v["site"] in recovered)
    exposed = sum(victim["records_exposed"] for victim in victims)
    return f"{who} {100 * share:.0f} % of the inputs of {', '.join(recovered)}, {exposed} records among them"


def _reconstruction(rebuilt: dict[str, Any]) -> str:
    together = " together" if len(rebuilt["sites"]) > 1 else ""
    whose, wanted = ", ".join(rebuilt["sites"]), ", ".join(rebuilt["columns_of"])
    error = f", with errors up to {rebuilt['max_error']:.1e}" if rebuilt["max_error"] is not None else ""
    return (
        f"{rebuilt['recovered']} of {rebuilt['held_back']} records of {wanted}, from the kernel of {whose}{together} "
        f"and {rebuilt['known_records']} known ones{error}"
    )


def _sites(result: dict[str, Any]) -> str:
    rows = [site["rows"] for site in result["sites"]]
    pids = {site["pid"] for site in result["sites"]}
    spread = f"{min(rows)}" if min(rows) == max(rows) else f"{min(rows)} to {max(rows)}"
    dropped = [site["name"] for site in result["sites"] if site["status"] == "dropped"]
    without = f"; dropped: {', '.join(dropped)}" if dropped else ""
    columns = [site["columns"] for site in result["sites"]]
    among = f" of {sum(columns)} columns in all" if result["alignment"] is not None else ""
    return f"{len(rows)} in {len(pids)} processes, {spread} rows each{among}{without}"


def _model(model: dict[str, Any]) -> str:
    if model["rank"] is None:
        return f"{model['algorithm']}, exact, {model['support']} support records"
    if model["landmarks"] is None:
        return f"{model['algorithm']}, {model['rank']} features"
    return f"{model['algorithm']}, {model['landmarks']} landmarks, rank {model['rank']}"


def _quality(quality: dict[str, Any]) -> str:
    folds = len(quality.get("folds", []))
    where = f"mean of {folds} folds" if folds > 1 else "on the test rows"
    auc = f", AUC {quality['auc']:.4f}" if quality["auc"] is not None else ""
    return f"{100 * quality['accuracy']:.2f} % {where}{auc}"


def _pooled(pooled: dict[str, Any], model: dict[str, Any], *, private: bool) -> str:
    if private:
        return f"{100 * pooled['accuracy']:.2f} % without noise, on all rows together"
    accuracy, exact = 100 * pooled["accuracy"], 100 * pooled["exact_kernel"]["accuracy"]
    approximate = f"{accuracy:.2f} % with the same landmarks, {exact:.2f} % with the exact kernel"
    found = approximate if model["rank"] is not None else f"{exact:.2f} % with all columns together"
    return f"{found}; decision values differ by {pooled['max_decision_difference']:.1e} at most"


def _wire(cost: dict[str, Any]) -> str:
    predicted = human_bytes(cost["predicted_wire_bytes"])
    control = human_bytes(cost["control"]["payload_bytes"])
    if cost["wire_bytes"] is None:
        return f"{predicted} predicted (not measured on this transport), and {control} of parameters in orders"
    expected = cost["predicted_wire_bytes"] - cost["unmeasured_bytes"]
    agree = "as predicted" if cost["wire_bytes"] == expected else f"{predicted} predicted"
    if cost["unmeasured_bytes"]:
        agree += f", {human_bytes(cost['unmeasured_bytes'])} more to sites that were lost"
    return f"{human_bytes(cost['wire_bytes'])} measured, {agree}; and {control} of parameters in orders"


def _disclosed(disclosures: list[dict[str, Any]]) -> str:
    """How many sums, values of single sites and other things each party was shown."""
    parts = []
    for party in dict.fromkeys(each["to"] for each in disclosures):
        shown = [(each["step"], each["form"]) for each in disclosures if each["to"] == party]
        sums = len({step for step, form in shown if form == "sum"})
        values = sorted({step for step, form in shown if form == "value"})
        parameters = len({place for place in shown if place[1].startswith("parameter ")})
        others = len({form for _, form in shown if form not in ("sum", "value") and not form.startswith("parameter ")})
        found = [
            *([f"sums of {_counted(sums, 'step')}"] if sums else []),
            *([f"each site's {', '.join(values)}"] if values else []),
            *([_counted(parameters, "parameter")] if parameters else []),
            *([f"{_counted(others, 'thing')} more by design"] if others else []),
        ]
        parts.append(f"to {'the ' if party in ('coordinator', 'sites') else ''}{party} {', '.join(found)}")
    return "; ".join(parts) or "nothing"


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _secrecy(result: dict[str, Any]) -> str:
    """How many must collude to learn what a site put into a sum, when the fewest sites were there."""
    protocol = ProtocolSpec.model_validate(result["scenario"]["protocol"])
    chosen, sites = protocol.secure_sum, min(len(each["sites"]) for each in result["memberships"])
    fewest = min(chosen.smallest_coalition(sites), sites - 1)
    if chosen.discloses == "value" or sites < 2:
        return "none: the coordinator sees what every site puts into a sum"
    who = "all other sites together" if fewest == sites - 1 else f"{_counted(fewest, 'site')} and the coordinator"
    of = " that no site dropped from" if len(result["memberships"]) > 1 else ""
    return f"{who} can learn what a site puts into a {protocol.sum} sum{of}, and fewer sites cannot"


def _landmarks(model: dict[str, Any]) -> str:
    exposed = model["records_exposed"]
    if exposed == 0:
        return "none is a single row's copy"
    return f"{exposed} of {model['landmarks']} are a single row's copy (algorithm.min_cluster_size = 3 avoids that)"


def _lone_rows(disclosures: list[dict[str, Any]]) -> str:
    """How often the coordinator saw what is a single row's; empty if never."""
    cuts, clusters = (
        sum(each["times"] for each in disclosures if each["form"] == form)
        for form in (pan_svm.LONE_ROWS_DISCLOSE, landmarks.LONE_ROWS_DISCLOSE)
    )
    found = []
    if cuts:
        lower = "(a lower algorithm.cut_groups has fewer)"
        found.append(f"{_counted(cuts, 'cut')} of a single row, which the coordinator can tell from them {lower}")
    if clusters:
        found.append(f"{_counted(clusters, 'cluster')} of a single row on the way to the landmarks")
    return "; ".join(found)


def _seconds(timing: dict[str, float]) -> str:
    return (
        f"{timing['total_s']:.1f} in all: launch {timing['launch_s']:.1f}, train {timing['train_s']:.1f}, "
        f"evaluate {timing['evaluate_s']:.1f}"
    )
