"""Time and memory as landmarks or rows grow, before and after a change, with training on pooled rows.

`python -m benchmarks.growth FOLDER [--before CHECKOUT] [--only NAME …]` needs FEDSVM_DATA and an idle machine, and
writes growth.json and growth.md. `--before` names another checkout of this project, whose code runs the same cases.
Every case runs in a process of its own: five sites, an estimator, and all rows to train on. LIBSVM and scikit-learn's
Nystroem with LIBLINEAR train on the pooled rows by one thread.

Seconds are of `fit`. Processor seconds and memory are of all processes together, imports included: memory is the
largest sum of what each has alone and its share of the rest, as sampled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tools.arguments import parser

HERE = Path(__file__).resolve().parent
OURS, PEERS = "ours", ("Nystroem and LinearSVC", "LIBSVM")
SIZES: Mapping[str, Sequence[int]] = {
    "vowel": (66, 132, 264, 528),
    "german": (125, 250, 500, 994),
    "a9a": (300,),
    "segment": (50, 100, 200, 400),
    "rows": (125_000, 250_000, 500_000, 1_000_000),
    "columns": (2_500, 5_000, 10_000, 20_000),
}
"""By case: the numbers of landmarks, or of rows."""

_EVERY_S = 0.1
_MOST_S, _MOST_PEER_S = 900.0, 100.0
"""After these a run is ended."""

_MOST_LIBSVM_ROWS = 50_000


@dataclass(frozen=True)
class Line:
    """One run: seconds of `fit`, processor seconds, and the most memory in MB, None where it was ended.

    payload_mb: what the sites and the coordinator sent.
    """

    case: str
    size: int
    who: str
    seconds: float | None
    processor: float
    memory_mb: float
    rounds: int | None = None
    objective: float | None = None
    accuracy: float | None = None
    payload_mb: float | None = None


def measure(case: str, size: int, who: str, checkout: Path, name: str) -> Line:
    """Run a case in a process of its own, with the code of a checkout. name: of whom the line speaks."""
    threads = {} if who == OURS else dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, str(HERE / "growth_case.py"), case, str(size), who]
    began, most = time.monotonic(), _MOST_S if who == OURS else _MOST_PEER_S
    with subprocess.Popen(
        command, env=os.environ | threads | {"PYTHONPATH": str(checkout)}, stdout=subprocess.PIPE, text=True
    ) as process:
        processor: dict[int, float] = {}
        memory = 0.0
        while process.poll() is None:
            memory = max(memory, sum(_measured(psutil.Process(process.pid), processor)))
            time.sleep(_EVERY_S)
            if time.monotonic() - began > most:
                process.kill()
        printed = process.stdout.read() if process.stdout else ""
    found: dict[str, Any] = json.loads(printed.splitlines()[-1]) if process.returncode == 0 else {}
    known = {each: found.get(each) for each in ("rounds", "objective", "accuracy", "payload_mb")}
    return Line(case, size, name, found.get("seconds"), sum(processor.values()), memory / 1e6, **known)


def _measured(process: psutil.Process, processor: dict[int, float]) -> Iterator[float]:
    """Yield the memory of a process and of each that it started, and note their processor seconds by their number."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return
    for each in family:
        try:
            times, memory = each.cpu_times(), each.memory_full_info().pss
        except psutil.Error:  # it ended meanwhile
            continue
        processor[each.pid] = times.user + times.system
        yield memory


def table(lines: Sequence[Line]) -> str:
    """Return all lines in Markdown, and for each case and whom the exponents of a fit over its sizes."""
    head = ["case", "size", "who", "seconds", "processor s", "MB", "rounds", "objective", "accuracy", "payload MB"]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for line in lines:
        measured = (line.seconds, line.processor, line.memory_mb, line.rounds)
        values = (*measured, line.objective, line.accuracy, line.payload_mb)
        cells = ["-" if value is None else f"{value:.4g}" for value in values]
        rows.append(f"| {line.case} | {line.size:,} | {line.who} | {' | '.join(cells)} |")
    rows += ["", "| case | who | seconds grow as size to the | processor s | MB |", "|---|---|---|---|---|"]
    for case, who in dict.fromkeys((line.case, line.who) for line in lines):
        of_both = [line for line in lines if (line.case, line.who) == (case, who) and line.seconds is not None]
        if len(of_both) > 2:
            cells = [f"{exponent(of_both, each):.2f}" for each in ("seconds", "processor", "memory_mb")]
            rows.append(f"| {case} | {who} | {' | '.join(cells)} |")
    return "\n".join([*rows, ""])


def exponent(lines: Sequence[Line], of: str) -> float:
    """Return the slope of a line through logarithms of sizes and of what was measured."""
    sizes, values = zip(*((line.size, getattr(line, of)) for line in lines), strict=True)
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def cases(only: Sequence[str], before: Path | None) -> Iterator[tuple[str, int, str, Path, str]]:
    """Yield what `measure` takes, small sizes first."""
    here = HERE.parent
    for case, sizes in SIZES.items():
        for size in sizes if not only or case in only else ():
            yield case, size, OURS, here, "ours"
            if before is not None:
                yield case, size, OURS, before, "ours, before"
            for peer in PEERS:
                if peer != "LIBSVM" or case != "rows" or size <= _MOST_LIBSVM_ROWS:
                    yield case, size, peer, here, peer


def main() -> None:
    """Measure, print and write."""
    arguments = parser("benchmarks.growth", __doc__)
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="folder for what is measured")
    arguments.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="another checkout to measure in the same run"
    )
    arguments.add_argument("--only", nargs="*", default=(), choices=SIZES, metavar="NAME", help=", ".join(SIZES))
    given = arguments.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    for case in cases(given.only, given.before):
        lines.append(measure(*case))
        print(lines[-1], flush=True)
        (given.folder / "growth.json").write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
        (given.folder / "growth.md").write_text(table(lines))
    print(table(lines))


if __name__ == "__main__":
    main()
