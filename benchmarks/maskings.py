"""The cost of masking Newton's system: rounds, bytes and seconds of whole runs, without masks and with each kind.

`python -m benchmarks.maskings [--only CASE …] [--repeat N]` needs an idle machine. A case is CLASSES-SITES-FEATURES,
such as 2-5-180. PAN-SVM trains in random Fourier features, so that their number is exactly that. Its rows are of
tic-tac-toe, wine and digits. Each run is a `fedsvm run` of its own. All cases together take some six minutes, since ten
classes with 300 features or more are trained for five rounds only: their gap is large, and rounds compare.

Seconds are of the run, as its result has them, and of one round of training. Processor seconds are of all its
processes, imports included, also on a machine that does other things. Of several runs the medians are shown. The last
line of a case has the committee's in multiples of congruence.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fedsvm.scenarios.run.log import read_log
from tools.arguments import parser

MASKINGS = ("none", "congruence", "committee")
ROWS = {
    2: ["data.source=tic-tac-toe", "data.positive=positive"],
    3: ["data.source=wine"],
    10: ["data.source=digits"],
}
CASES = {
    f"{classes}-{sites}-{features}": (classes, sites, features)
    for classes in ROWS
    for sites in (5, 20)
    for features in (100, 180, 300, 500)
}
_STEPS = ("newton", "blind_newton")
_SETTINGS = (
    *("algorithm.features=fourier", "algorithm.gamma=0.1", "algorithm.C=10", "algorithm.tolerance=1e-4"),
    "data.statistics_privacy=0",  # noisy counts of few rows do not show the scale of a column
)
_LARGE, _FEW_ROUNDS = 3_000, 5
"""From so many features of all classes on, a run ends after a few rounds of training."""

_MOST_S = 1800.0
"""After these a run is ended, and the benchmark with it."""


@dataclass(frozen=True)
class Figures:
    """The figures of one run, or medians of several."""

    rounds: float
    megabytes: float
    seconds: float
    round_ms: float
    processor_s: float
    gap: float


def measure(classes: int, sites: int, features: int, masking: str) -> Figures:
    """Run a case. Raises RuntimeError if the run fails."""
    changes = [*ROWS[classes], *_SETTINGS, f"algorithm.frequencies={features // 2}", f"algorithm.masking={masking}"]
    changes += [f"federation.sites={sites}", "federation.min_sites=3", "compare.centralised=false"]
    if classes * features >= _LARGE:
        changes.append(f"algorithm.max_iterations={_FEW_ROUNDS}")
    with tempfile.TemporaryDirectory(prefix="fedsvm-maskings-") as folder:
        out, scenario = Path(folder) / "run", Path(folder) / "scenario.toml"
        scenario.write_text(f'name = "maskings"\n[data]\nsource = "{ROWS[classes][0].partition("=")[2]}"\n')
        words = [sys.executable, "-m", "fedsvm", "run", str(scenario), "--out", str(out), "--quiet"]
        words += [word for change in changes for word in ("--set", change)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(words, capture_output=True, text=True, timeout=_MOST_S, env=dict(os.environ), check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)} failed: {done.stderr[-2000:]}")
        result = json.loads((out / "result.json").read_text())
        trained = [event for event in read_log(out) if event["event"] == "round" and event["step"] in _STEPS]
    return Figures(
        rounds=result["cost"]["rounds"],
        megabytes=result["cost"]["payload_bytes"] / 1e6,
        seconds=result["timing"]["total_s"],
        round_ms=1e3 * statistics.median(event["seconds"] for event in trained),
        processor_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        gap=result["model"]["gap"],
    )


def medians(runs: Sequence[Figures]) -> Figures:
    """Return the median of each figure."""
    return Figures(*(statistics.median(each) for each in zip(*(asdict(run).values() for run in runs), strict=True)))


def show(case: str, masking: str, figures: Figures) -> None:
    """Print a line of the table."""
    print(f"| {case} | {masking} | {' | '.join(f'{each:.3g}' for each in asdict(figures).values())} |", flush=True)


def main() -> None:
    """Measure and print, as Markdown."""
    arguments = parser("benchmarks.maskings", __doc__)
    arguments.add_argument("--only", nargs="*", default=(), choices=CASES, metavar="CASE", help=", ".join(CASES))
    arguments.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of each, 1 by default")
    given = arguments.parse_args()
    print("| case | masking | rounds | MB | s | ms a round | processor s | gap |\n|---|---|---|---|---|---|---|---|")
    for case in given.only or CASES:
        found = {}
        for masking in MASKINGS:
            found[masking] = medians([measure(*CASES[case], masking) for _ in range(given.repeat)])
            show(case, masking, found[masking])
        pairs = zip(asdict(found["committee"]).values(), asdict(found["congruence"]).values(), strict=True)
        show(case, "ratio", Figures(*(committee / congruence for committee, congruence in pairs)))


if __name__ == "__main__":
    main()
