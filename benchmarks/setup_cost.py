"""The cost of a run before it trains, with exact and with noisy statistics: rounds and payload bytes.

`python -m benchmarks.setup_cost [DATA ...]` prints a line for each algorithm, as Markdown: of quickstart's boards
and of wdbc unless told. wdbc needs FEDSVM_DATA, and ranges of its columns are declared for noisy statistics. The run
is that of `fedsvm run quickstart` with another algorithm, five sites and a ring, and without a committee.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.landmarks import ranges_of
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

MU = 0.5
DATA = {"quickstart": (), "wdbc": ("data.source=wdbc", "data.positive=malignant")}
ALGORITHMS = (
    *("pan-svm", "svm-admm", "voting-ensemble", "least-squares", "logistic-regression"),
    *("naive-bayes", "decision-tree", "filter"),
)
_SET_UP = ("setup", "landmarks")
_HEAD = ("data", "algorithm", "rounds, exact", "noisy", "bytes, exact", "noisy", "share of the run's bytes")


@dataclass(frozen=True)
class SetupCost:
    """The rounds and payload bytes before training, and those of the whole run."""

    rounds: int
    payload_bytes: int
    all_rounds: int
    all_bytes: int


def measure(data: str, algorithm: str, mu: float) -> SetupCost:
    """Return the cost of one run. Raises RuntimeError for a run that did not complete."""
    changes = [*DATA[data], f"algorithm.name={algorithm}", f"data.statistics_privacy={mu}", "compare.centralised=false"]
    if algorithm == "pan-svm":
        changes.append("algorithm.masking=congruence")
    scenario, base = spec.read("quickstart", overrides=changes)
    if mu and (ranges := ranges_of(dataset.prepare(scenario, base))) != "{}":
        scenario, base = spec.read("quickstart", overrides=[*changes, f"data.ranges={ranges}"])
    with tempfile.TemporaryDirectory() as folder:
        result = runner.run(scenario, dataset.prepare(scenario, base), Path(folder)).result
    if result.status != "completed" or result.cost is None:
        raise RuntimeError(f"the run must complete, got {result.status}: {result.error}")
    phases = [cost for name, cost in result.cost.by_phase.items() if name in _SET_UP]
    return SetupCost(
        sum(each.rounds for each in phases),
        sum(each.payload_bytes for each in phases),
        result.cost.rounds,
        result.cost.payload_bytes,
    )


def line(data: str, algorithm: str) -> str:
    """Return a line of the table."""
    exact, noisy = measure(data, algorithm, 0.0), measure(data, algorithm, MU)
    shares = (f"{each.payload_bytes / each.all_bytes:.0%}".replace("%", " %") for each in (exact, noisy))
    rounds, sent = f"{exact.rounds} | {noisy.rounds}", f"{exact.payload_bytes:,} | {noisy.payload_bytes:,}"
    return f"| {data} | `{algorithm}` | {rounds} | {sent} | {', '.join(shares)} |"


def main() -> None:
    """Print the table."""
    arguments = parser("benchmarks.setup_cost", __doc__)
    arguments.add_argument("data", nargs="*", default=[*DATA], metavar="DATA", help=" or ".join(DATA))
    given = arguments.parse_args()
    print(f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}")
    for data in given.data:
        for algorithm in ALGORITHMS:
            print(line(data, algorithm), flush=True)


if __name__ == "__main__":
    main()
