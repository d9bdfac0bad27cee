"""The report of a run as one page that needs nothing else: summary, plots, tables, and the scenario to copy."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.privacy.accountant import Release
from federation.ledger import CONTROL
from federation.report import DisclosureReport, ProtocolCost
from federation.transport.keys import COORDINATOR
from scenarios.console import visible
from scenarios.report import whole_run
from scenarios.report.live import human_bytes
from scenarios.report.plotting import new_figure, plain_text
from scenarios.report.summary import lines, release_remarks
from scenarios.run.audit import Finding
from scenarios.run.earlier import event_from_schema_1
from scenarios.run.result import RunResult, SiteResult, read_result, write_whole

NAME = "report.html"
_TEMPLATE = "report.html.j2"
_MAX_PARTIES = 26
"""Of more, links are counted in the ledger, and the matrix would be no picture."""

_WIDTH = 6.0
"""Of plots, in inches."""

_MAX_NAME = 20
"""Letters beside a plot."""

Event = dict[str, Any]
Plot = dict[str, str]


def write_report(folder: Path) -> Path:
    """Write the report of the run in a folder, and say where.

    Raises ScenarioError if there is no run in it, and OSError if it cannot be written.
    """
    path, text = folder / NAME, render([folder])
    write_whole(path, lambda file: file.write(text.encode()))
    return path


def render(folders: Sequence[Path]) -> str:
    """One run in full, or several side by side. Raises ScenarioError for a folder without a run."""
    import jinja2  # slow to import

    results = [(folder, read_result(folder)) for folder in folders]
    alone = len(results) == 1
    runs = [_described(folder, result, alone=alone) for folder, result in results]
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, finalize=_shown)
    title = runs[0]["name"] if alone else f"{len(runs)} runs"
    return environment.get_template(_TEMPLATE).render(title=title, runs=runs, side_by_side=_side_by_side(runs))


def _shown(value: Any) -> Any:
    """Text without what no page can show; lines stay lines."""
    return visible(value, keep="\n") if type(value) is str else value


def _side_by_side(runs: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """The summaries' lines by name, a cell for each run."""
    names = list(dict.fromkeys(name for run in runs for name, _ in run["summary"]))
    return [(name, ["; ".join(v for n, v in run["summary"] if n == name) for run in runs]) for name in names]


def _described(folder: Path, result: RunResult, *, alone: bool) -> dict[str, Any]:
    """What the template shows of a run."""
    collusion, cost = result.collusion, result.cost
    log = _log(folder / "log.jsonl") if alone else []
    return {
        "name": result.scenario["name"] if alone else folder.name,
        "status": result.status,
        "error": result.error,
        "notes": [*result.warnings, *(collusion.remarks if collusion else ()), *release_remarks(result)],
        "summary": lines(result),
        "plots": _plots(folder, result, log) if alone and log else [],
        "phases": [[*_cost(name, spent), f"{spent.seconds:.2f}"] for name, spent in cost.by_phase.items()]
        if cost
        else [],
        "protocols": [_cost(name, spent) for name, spent in cost.by_protocol.items()] if cost else [],
        "links": _links(result),
        "sites": [_site(site) for site in result.sites],
        "victims": [_victim(victim) for victim in collusion.victims] if collusion else [],
        "audit_head": whole_run.HEAD,
        "audit": whole_run.table(result.audit),
        "releases": [_release(release) for release in result.privacy.releases] if result.privacy else [],
        "disclosures": [_disclosure(each) for each in result.disclosures],
        "scenario": _text(folder / "scenario.toml") if alone else "",
    }


def _log(path: Path) -> list[Event]:
    lines = _text(path).splitlines()
    return [event_from_schema_1(json.loads(line)) for line in lines]


def _text(path: Path) -> str:
    """What a file of a run holds; nothing of one that could not be written."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


# Tables.


def _cost(name: str, spent: ProtocolCost) -> list[Any]:
    wire = human_bytes(spent.wire_bytes) if spent.wire_bytes is not None else "not measured"
    return [name, spent.rounds, spent.hops, spent.messages, human_bytes(spent.payload_bytes), wire]


def _links(result: RunResult) -> dict[str, Any]:
    """Bytes from each party to each other, the more the darker."""
    links = result.cost.by_link if result.cost else ()
    names = [COORDINATOR, *(site.name for site in result.sites)][:_MAX_PARTIES]
    sent = {(link.sender, link.receiver): link.predicted_wire_bytes for link in links}
    largest = max(sent.values(), default=0) or 1

    def cell(pair: tuple[str, str]) -> dict[str, Any]:
        count = sent.get(pair, 0)
        share = 0.75 * math.log1p(count) / math.log1p(largest)
        return {"text": human_bytes(count) if count else "", "share": f"{share:.2f}" if count else "0"}

    return {"names": names, "rows": [(a, [cell((a, b)) for b in names]) for a in names]}


def _site(site: SiteResult) -> list[Any]:
    own = human_bytes(site.unique_memory_bytes) if site.unique_memory_bytes else ""
    spent = f"{site.cpu_s:.2f}" if site.cpu_s is not None else ""
    return [site.name, site.status, site.rows, site.columns, spent, own]


def _victim(victim: Finding) -> list[Any]:
    error = "" if victim.max_error is None else f"{victim.max_error:.1e}"
    return [victim.site, victim.protocol, victim.step, victim.values, victim.recovered, error]


def _release(release: Release) -> list[Any]:
    figures = [f"{figure:.3g}" for figure in (release.epsilon, release.delta, release.noise_scale)]
    return [release.what, release.mechanism, *figures, "; ".join(release.protects_against)]


def _disclosure(each: DisclosureReport) -> list[Any]:
    shape = " x ".join(map(str, each.shape)) or "1"
    words = f"parameter {each.detail}" if each.kind == "parameter" else each.detail or each.kind
    return [each.to, each.step, words, shape, each.times]


# Plots.


def _plots(folder: Path, result: RunResult, log: list[Event]) -> list[Plot]:
    drawn = [_gaps(log, result), _bytes(folder, result), _rounds(log, result), _timeline(result, log), _roc(result)]
    return [plot for plot in drawn if plot is not None]


def _drawn(
    title: str, caption: str, height: float, draw: Callable[[Any], None], left: float = 0.8, right: float = 0.15
) -> Plot:
    """A plot as SVG in the page's own colour, so that it can be read on light and on dark.

    height, left, right: of the plot and the margins beside it, in inches.
    """
    figure = new_figure(_WIDTH, height, layout=None)
    figure.subplots_adjust(left / _WIDTH, 0.5 / height, 1 - right / _WIDTH, 1 - 0.15 / height)
    import matplotlib as mpl  # slow to import

    embedded = mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fedsvm", "font.family": "sans-serif"})
    with embedded, plain_text():
        axes = figure.subplots()
        figure.patch.set_alpha(0)
        axes.patch.set_alpha(0)
        draw(axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
    return {"title": title, "caption": caption, "svg": svg}


def _gaps(log: list[Event], result: RunResult) -> Plot | None:
    found = [(event["round"], event["gap"]) for event in log if event["event"] == "figures" and event.get("gap", 0) > 0]
    if not found:
        return None
    if result.model is not None and result.model.gap:
        found.append((max(event["round"] for event in log if event["event"] == "round"), result.model.gap))

    def draw(axes: Any) -> None:
        axes.semilogy(*zip(*found, strict=True), marker="o", markersize=3)
        axes.yaxis.set_major_formatter(lambda gap, _: f"{gap:.0e}")
        axes.yaxis.set_minor_formatter(lambda gap, _: "")
        axes.set(xlabel="round", ylabel="certified relative gap")
        axes.grid(alpha=0.3)

    caption = "How far the best model so far is above the optimum at most, by the bound that the cuts give."
    return _drawn("Convergence", caption, 3.2, draw)


def _bytes(folder: Path, result: RunResult) -> Plot | None:
    if not (folder / "ledger.parquet").is_file() or result.cost is None:
        return None
    spent = _by_phase_and_protocol(folder / "ledger.parquet")
    phases = [phase for phase in result.cost.by_phase if any(of == phase for of, _ in spent)]
    protocols = list(dict.fromkeys(protocol for _, protocol in spent))

    def draw(axes: Any) -> None:
        left = np.zeros(len(phases))
        for number, protocol in enumerate(protocols):
            width = np.array([spent.get((phase, protocol), 0) for phase in phases]) / 1e6
            colour = "#999999" if protocol == CONTROL else f"C{number}"
            axes.barh(phases, width, left=left, color=colour, label=_short(protocol))
            left += width
        axes.invert_yaxis()
        axes.set(xlabel="MB on the wire, as predicted from message sizes")
        axes.legend(framealpha=0, loc="center left", bbox_to_anchor=(1, 0.5))
        axes.grid(axis="x", alpha=0.3)

    caption = "What each protocol carried in each phase; control is orders, answers and the parameters in them (grey)."
    return _drawn("Bytes", caption, 1.2 + 0.4 * len(phases), draw, left=_beside(phases), right=0.4 + _beside(protocols))


def _by_phase_and_protocol(ledger: Path) -> dict[tuple[str, str], int]:
    """Bytes on the wire by phase and protocol, in the order they came up in."""
    import pyarrow.parquet as pq  # slow to import

    found: dict[tuple[str, str], int] = {}
    for row in pq.read_table(ledger, columns=["phase", "protocol", "predicted_wire_bytes"]).to_pylist():
        place = row["phase"], row["protocol"]
        found[place] = found.get(place, 0) + row["predicted_wire_bytes"]
    return {place: count for place, count in found.items() if count}


def _roc(result: RunResult) -> Plot | None:
    curves = [fold.roc for fold in result.metrics.folds if fold.roc is not None] if result.metrics else []
    if result.metrics is None or not curves:
        return None

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], linestyle="--", color="#999999", linewidth=1)
        for curve in curves:
            rates = curve.false_positive_rate, curve.true_positive_rate
            axes.plot(*rates, color="C0", alpha=max(0.3, 1 / len(curves)), linewidth=1.5)
        axes.set(xlabel="false positive rate", ylabel="true positive rate", aspect="equal")
        axes.grid(alpha=0.3)

    of = f"Of {len(curves)} folds; the mean area" if len(curves) > 1 else "Of the test rows; the area"
    return _drawn("ROC curve", f"{of} under it is {result.metrics.auc:.4f}.", 3.6, draw)


def _rounds(log: list[Event], result: RunResult) -> Plot | None:
    rounds = [event for event in log if event["event"] == "round"]
    if not rounds:
        return None
    phases = list(dict.fromkeys(event["phase"] for event in rounds))

    def draw(axes: Any) -> None:
        for number, phase in enumerate(phases):
            own = [event for event in rounds if event["phase"] == phase]
            colours = [f"C{number}" if not event["aborted"] else "#c0392b" for event in own]
            axes.bar(
                [event["round"] for event in own],
                [1000 * event["seconds"] for event in own],
                color=colours,
                label=phase,
            )
        axes.set(xlabel="round", ylabel="milliseconds")
        axes.legend(framealpha=0)
        axes.grid(axis="y", alpha=0.3)

    aborted = f"; {result.cost.aborted} were aborted (red)" if result.cost and result.cost.aborted else ""
    return _drawn("Rounds", f"How long every round took, by phase{aborted}.", 3.0, draw)


def _timeline(result: RunResult, log: list[Event]) -> Plot | None:
    names = [site.name for site in result.sites]
    if not result.faults and len(result.memberships) < 2:
        return None
    end = max(event["at_s"] for event in log)
    absent = _absences(names, log, end)

    def draw(axes: Any) -> None:
        for place, name in enumerate(names):
            axes.barh(place, end, height=0.5, color="C0", alpha=0.7)
            for left, back in absent[name]:
                axes.barh(place, back - left, left=left, height=0.5, color="#bbbbbb")
        for fault in result.faults:
            for place in [names.index(name) for name in fault.site.split(", ") if name in names]:
                if fault.start_s is not None:
                    axes.plot(fault.start_s, place, marker="x", color="#c0392b", markersize=9, markeredgewidth=2)
                    axes.annotate(fault.kind, (fault.start_s, place), (4, 8), textcoords="offset points", fontsize=8)
        axes.set_yticks(range(len(names)), list(map(_short, names)))
        axes.invert_yaxis()
        axes.set(xlabel="seconds")

    caption = "Sites that take part (blue) and are out (grey), and the faults that struck them."
    return _drawn("Sites and faults", caption, 0.7 + 0.32 * len(names), draw, left=_beside(names))


def _short(name: str) -> str:
    """The name, cut where it would leave no room for the plot."""
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def _beside(names: Sequence[str]) -> float:
    """Inches that the longest name takes beside a plot."""
    return 0.3 + 0.085 * max(len(_short(name)) for name in names)


def _absences(names: list[str], log: list[Event], end: float) -> dict[str, list[tuple[float, float]]]:
    """When each site was out: from when it left until it was back, or the end."""
    since: dict[str, float] = {}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for event in log:
        if event["event"] == "membership":
            since |= dict.fromkeys(event["left"], event["at_s"])
            for name in event["joined"]:
                found[name].append((since.pop(name, event["at_s"]), event["at_s"]))
    for name, left in since.items():
        found[name].append((left, end))
    return found
