"""The end of a run in a few lines: who took part, how well it went, what it cost, what it showed to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scenarios.live import human_bytes


def print_summary(console: Console, result: dict[str, Any], folder: Path) -> None:
    """Print the summary of a completed run."""
    table = Table(title=result["scenario"]["name"], title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in _lines(result):
        table.add_row(name, value)
    table.add_row("results", str(folder))
    console.print(table)
    for warning in result["warnings"][:5]:
        console.print(f"[yellow]note[/yellow] {warning}", highlight=False)
    if len(result["warnings"]) > 5:
        console.print(f"[yellow]note[/yellow] and {len(result['warnings']) - 5} more like it in result.json")


def _lines(result: dict[str, Any]) -> list[tuple[str, str]]:
    model, cost = result["model"], result["cost"]
    lines = [("sites", _sites(result)), ("model", _model(model))]
    if result["metrics"] is not None:
        lines.append(("accuracy", _quality(result["metrics"])))
    if result["centralised"] is not None:
        lines.append(("pooled rows", _pooled(result["centralised"])))
    lines += [
        (
            "objective",
            f"{model['objective']:.6g}, certified within {model['gap']:.1e} after {model['iterations']} iterations",
        ),
        ("rounds", f"{cost['rounds']} ({cost['hops']} hops)"),
        ("payload", f"{human_bytes(cost['payload_bytes'])} in {cost['messages']} messages"),
        ("wire", _wire(cost)),
        ("landmarks", _landmarks(model)),
        ("seconds", _seconds(result["timing"])),
    ]
    return lines


def _sites(result: dict[str, Any]) -> str:
    rows = [site["rows"] for site in result["sites"]]
    pids = {site["pid"] for site in result["sites"]}
    spread = f"{min(rows)}" if min(rows) == max(rows) else f"{min(rows)} to {max(rows)}"
    return f"{len(rows)} in {len(pids)} processes, {spread} rows each"


def _model(model: dict[str, Any]) -> str:
    return f"{model['algorithm']}, {model['landmarks']} landmarks, rank {model['rank']}"


def _quality(quality: dict[str, Any]) -> str:
    folds = len(quality.get("folds", []))
    where = f"mean of {folds} folds" if folds > 1 else "on the test rows"
    auc = f", AUC {quality['auc']:.4f}" if quality["auc"] is not None else ""
    return f"{100 * quality['accuracy']:.2f} % {where}{auc}"


def _pooled(pooled: dict[str, Any]) -> str:
    exact = pooled["exact_kernel"]["accuracy"]
    return (
        f"{100 * pooled['accuracy']:.2f} % with the same landmarks, {100 * exact:.2f} % with the exact kernel; "
        f"decision values differ by {pooled['max_decision_difference']:.1e} at most"
    )


def _wire(cost: dict[str, Any]) -> str:
    predicted = human_bytes(cost["predicted_wire_bytes"])
    control = human_bytes(cost["control"]["payload_bytes"])
    if cost["wire_bytes"] is None:
        return f"{predicted} predicted (not measured on this transport), and {control} of parameters in orders"
    agree = "as predicted" if cost["wire_bytes"] == cost["predicted_wire_bytes"] else f"{predicted} predicted"
    return f"{human_bytes(cost['wire_bytes'])} measured, {agree}; and {control} of parameters in orders"


def _landmarks(model: dict[str, Any]) -> str:
    exposed = model["records_exposed"]
    if exposed == 0:
        return "none is a single row's copy"
    return f"{exposed} of {model['landmarks']} are a single row's copy (algorithm.min_cluster_size = 3 avoids that)"


def _seconds(timing: dict[str, float]) -> str:
    return (
        f"{timing['total_s']:.1f} in all: launch {timing['launch_s']:.1f}, train {timing['train_s']:.1f}, "
        f"evaluate {timing['evaluate_s']:.1f}"
    )
