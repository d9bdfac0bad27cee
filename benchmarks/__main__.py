"""Compare groupings, sums and transports on the quickstart, and the federation with LIBSVM on pooled rows.

Every line is a ratio against the first of its table, measured in this run on this machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from federation.coordinator import Federation
from scenarios import runner, spec, workload

HARD = ["algorithm.C=100", "algorithm.gamma=0.05", "algorithm.tolerance=1e-5", "compare.centralised=false"]
COMPARISONS: dict[str, dict[str, list[str]]] = {
    "groups of cuts, to a certified gap of 1e-5": {
        "groups = 32": HARD,
        "groups = 64": [*HARD, "algorithm.groups=64"],
        "groups = 8": [*HARD, "algorithm.groups=8"],
        "groups = 1 (the paper)": [*HARD, "algorithm.groups=1"],
    },
    "line search": {
        "grid": HARD,
        "fixed-step (the paper)": [*HARD, "protocol.line_search=fixed-step"],
    },
    "secure sum": {
        "plain": [*HARD, "protocol.sum=plain"],
        "ring": HARD,
    },
    "transport": {
        "tcp, encrypted": HARD,
        "tcp, open": [*HARD, "federation.encryption=false"],
        "ipc": [*HARD, "federation.transport=ipc"],
    },
}
MEASURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "rounds": lambda result: result["cost"]["rounds"],
    "hops": lambda result: result["cost"]["hops"],
    "payload": lambda result: result["cost"]["payload_bytes"],
    "wire (predicted)": lambda result: result["cost"]["predicted_wire_bytes"],
    "training seconds": lambda result: result["timing"]["train_s"],
}


def measure(changes: list[str]) -> dict[str, float]:
    """The measures of one run of the quickstart."""
    scenario, base = spec.read("quickstart", overrides=changes)
    with tempfile.TemporaryDirectory() as folder:
        finished = runner.run(scenario, workload.prepare(scenario, base), Path(folder), _ignore)
    assert finished.result["status"] == "completed", finished.result["error"]
    return {name: of(finished.result) for name, of in MEASURES.items()}


def _ignore(federation: Federation) -> None:
    pass


def main() -> None:
    """Print a table for each comparison."""
    console = Console()
    for title, ways in COMPARISONS.items():
        table = Table("", *MEASURES, title=title, title_justify="left")
        measured = {name: measure(changes) for name, changes in ways.items()}
        first = next(iter(measured.values()))
        for name, figures in measured.items():
            table.add_row(name, *(f"{figures[m]:.4g} ({figures[m] / first[m]:.2f})" for m in MEASURES))
        console.print(table)


if __name__ == "__main__":
    main()
