"""Compare groupings, sums, transports and networks on the quickstart, and what sums pay for sites that are lost.

Every line is a ratio against the first of its table, measured in this run on this machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

HARD = ["algorithm.C=100", "algorithm.gamma=0.05", "algorithm.tolerance=1e-5", "compare.centralised=false"]
EASY = ["compare.centralised=false"]
TWO_KILLED = "faults=[" + ",".join(f"{{kind='kill',site={site},phase='train',round=4}}" for site in (4, 13)) + "]"
COMPARISONS: dict[str, dict[str, list[str]]] = {
    "groups of cuts, to a certified gap of 1e-5": {
        "groups = 32": HARD,
        "groups = 64": [*HARD, "algorithm.cut_groups=64"],
        "groups = 8": [*HARD, "algorithm.cut_groups=8"],
        "groups = 1 (the paper)": [*HARD, "algorithm.cut_groups=1"],
    },
    "line search": {
        "grid": HARD,
        "fixed-step (the paper)": [*HARD, "algorithm.line_search=fixed-step"],
    },
    "secure sum": {
        "plain": [*HARD, "protocol.sum=plain"],
        "ring": HARD,
        "k-secure, 3 segments": [*HARD, "protocol.sum=k-secure"],
        "changing neighbours, 2 rings": [*HARD, "protocol.sum=changing-neighbours"],
        "masked": [*HARD, "protocol.sum=masked"],
    },
    "links 20 ms long, to a certified gap of 1e-4": {
        "groups = 32": [*EASY, "network.latency_ms=20"],
        "groups = 1 (the paper)": [*EASY, "network.latency_ms=20", "algorithm.cut_groups=1"],
        "groups = 32, masked": [*EASY, "network.latency_ms=20", "protocol.sum=masked"],
    },
    "twenty sites, two killed in training round 4": {
        "ring, nobody killed": [*EASY, "federation.sites=20"],
        "ring": [*EASY, "federation.sites=20", TWO_KILLED],
        "masked, nobody killed": [*EASY, "federation.sites=20", "protocol.sum=masked"],
        "masked": [*EASY, "federation.sites=20", "protocol.sum=masked", TWO_KILLED],
    },
    "transport": {
        "tcp, encrypted": HARD,
        "tcp, open": [*HARD, "federation.encryption=false"],
        "ipc": [*HARD, "federation.transport=ipc"],
    },
}


def measures(result: RunResult) -> dict[str, float]:
    """Return the measures for comparing runs. Raises RuntimeError for a run that did not complete."""
    if result.status != "completed" or result.cost is None:
        raise RuntimeError(f"the run must complete, got {result.status}: {result.error}")
    return {
        "rounds": result.cost.rounds,
        "aborted": result.cost.aborted,
        "hops": result.cost.hops,
        "payload": result.cost.payload_bytes,
        "wire (predicted)": result.cost.predicted_wire_bytes,
        "training seconds": result.timing.train_s,
    }


def measure(changes: list[str]) -> dict[str, float]:
    """Return the measures of one run of the quickstart."""
    scenario, base = spec.read("quickstart", overrides=changes)
    with tempfile.TemporaryDirectory() as folder:
        return measures(runner.run(scenario, dataset.prepare(scenario, base), Path(folder)).result)


def _beside(figure: float, first: float) -> str:
    return f"{figure:.4g} ({figure / first:.2f})" if first else f"{figure:.4g}"


def main() -> None:
    """Print a table for each comparison."""
    parser("benchmarks", __doc__).parse_args()
    console = Console()
    for title, ways in COMPARISONS.items():
        measured = {name: measure(changes) for name, changes in ways.items()}
        first = next(iter(measured.values()))
        table = Table("", *first, title=title, title_justify="left")
        for way, figures in measured.items():
            table.add_row(way, *(_beside(figure, first[name]) for name, figure in figures.items()))
        console.print(table)


if __name__ == "__main__":
    main()
