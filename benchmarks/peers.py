"""The cost of a secure sum relative to bare sockets and to other frameworks, as ratios within one run.

`python -m benchmarks.peers FOLDER` writes peers.json, peers.md and peers.svg; `python -m benchmarks.peers FOLDER 5,20
ring,masked` measures these numbers of sites and these sums alone, and keeps what the folder has of other numbers. 1,000
sites take some minutes.

Our five sums are compared with the floor (`benchmarks.floor`: the same bytes, without a protocol)
and, where they are installed, the sum of MPyC, by Shamir's shares between as many processes (`pip install
fedsvm[peers]`), and Flower's SecAgg+, in an environment of its own: `FLOWER_PYTHON` names the Python of one with
`pip install "flwr[simulation]"`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.floor import median_round_s
from fedsvm.federation.processes.launcher_cache import SPARE
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.startup import local_federation
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.scenarios.report.axes import ChartAxis, whole
from fedsvm.scenarios.report.chart import Chart, Series, lines
from fedsvm.scenarios.report.drawing import style
from tools.arguments import parser

LENGTHS = {300: 25, 10_000: 15, 1_000_000: 5}
"""Numbers in a vector, and how many rounds the median is of."""
SITES = {5: (300, 10_000, 1_000_000), 20: (300, 10_000), 100: (300, 10_000), 500: (300,), 1000: (300,)}
MANY_SITES, FEW_ROUNDS = 500, 7
"""From so many sites on the median is of so many rounds at most."""

ROOT = Path(__file__).parents[1]
FLOOR, MPYC, FLOWER = "bare ring and star", "MPyC", "Flower SecAgg+"
PEER_SITES, PEER_NUMBERS, PEER_ROUNDS = 20, 10_000, 3
"""MPyC connects everybody to everybody and shares every number with each: more of either takes minutes a round."""


@dataclass(frozen=True)
class Measured:
    """Of one way to sum: median milliseconds of a round, and of our own what assembling and a site's memory took."""

    way: str
    sites: int
    numbers: int
    milliseconds: float
    assembled_s: float | None = None
    site_mib: float | None = None


def floors(sites: int, lengths: tuple[int, ...]) -> Iterator[Measured]:
    """Yield the measurements of bare sockets."""
    rounds = min(_rounds(sites, length) for length in lengths)
    for length, seconds in zip(lengths, median_round_s(sites, lengths, rounds), strict=True):
        yield Measured(FLOOR, sites, length, 1e3 * seconds)


def sums(name: str, sites: int, lengths: tuple[int, ...]) -> Iterator[Measured]:
    """Yield the measurements of one of our sums."""
    SPARE.close()  # so that what starting takes is counted in every row
    nothing = Partition(arrays={"rows": np.zeros((1, 1))})
    began = time.perf_counter()
    partitions = dict.fromkeys((f"site-{number}" for number in range(1, sites + 1)), nothing)
    medians = {}
    module, settings = "benchmarks.site_process", {"seed": 0}
    with local_federation(module, "numbers", partitions, SUMS[name](), settings=settings, round_timeout_s=120) as run:
        assembled_s = time.perf_counter() - began

        def round_s(length: int) -> float:
            begun = time.perf_counter()
            run.sum("numbers", shape=(length,), bound=1.0, length=length)
            return time.perf_counter() - begun

        round_s(1)
        for length in lengths:
            medians[length] = statistics.median(round_s(length) for _ in range(_rounds(sites, length)))
    own = max((report.unique_memory_bytes or 0 for report in run.final_reports.values()), default=0) / 2**20
    for length, seconds in medians.items():
        yield Measured(name, sites, length, 1e3 * seconds, assembled_s, own)


def _rounds(sites: int, length: int) -> int:
    return min(LENGTHS[length], FEW_ROUNDS) if sites >= MANY_SITES else LENGTHS[length]


def mpyc_sums(sites: int, lengths: tuple[int, ...]) -> Iterator[Measured]:
    """Yield the measurements of MPyC's sum, if it is installed."""
    if importlib.util.find_spec("mpyc") is None or sites > PEER_SITES:
        return
    for length in (length for length in lengths if sites * length <= 5 * PEER_NUMBERS):
        command = [sys.executable, "-m", "benchmarks.mpyc_sum", str(length), str(PEER_ROUNDS), f"-M{sites}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        yield Measured(MPYC, sites, length, float(done.stdout.split()[-1]))


def flower_sums(sites: int, lengths: tuple[int, ...]) -> Iterator[Measured]:
    """Yield the measurements of Flower's SecAgg+, if a Python with Flower is named."""
    python = os.environ.get("FLOWER_PYTHON", "")
    for length in lengths if python and sites <= PEER_SITES else ():
        command = [python, "-m", "benchmarks.flower_sum", str(sites), str(length), str(PEER_ROUNDS)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        yield Measured(FLOWER, sites, length, float(done.stdout.split()[-1]))


def machine() -> str:
    """Return a description of this machine."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cpus} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def table(measured: list[Measured]) -> str:
    """Return Markdown: a row for each way and number of sites, milliseconds and multiples of the floor's."""
    of_floor = {(each.sites, each.numbers): each.milliseconds for each in measured if each.way == FLOOR}
    lines = ["| sites | numbers | way | milliseconds a round | times the floor | assembled, s | own MiB a site |"]
    lines.append("|---|---|---|---|---|---|---|")
    for each in measured:
        floor = of_floor[each.sites, each.numbers]
        assembled = "" if each.assembled_s is None else f"{each.assembled_s:.2f}"
        own = "" if each.site_mib is None else f"{each.site_mib:.1f}"
        lines.append(
            f"| {each.sites} | {each.numbers:,} | {each.way} | {each.milliseconds:.1f} | "
            f"{each.milliseconds / floor:.1f} | {assembled} | {own} |"
        )
    return "\n".join(lines)


def plot(measured: list[Measured], numbers: int) -> Chart:
    """Plot milliseconds of a round of `numbers` numbers by sites, a line for each way."""
    ways = list(dict.fromkeys(each.way for each in measured))
    series = [
        Series(
            way,
            [(each.sites, each.milliseconds) for each in measured if (each.way, each.numbers) == (way, numbers)],
            style(place),
        )
        for place, way in enumerate(ways)
    ]
    return lines(
        f"A sum of {numbers} numbers",
        "Median milliseconds of a round against the number of sites, all on one machine.",
        ChartAxis("sites", is_log=True, number=whole),
        ChartAxis("milliseconds", is_log=True),
        series,
    )


def main() -> None:
    """Measure, print and write."""
    arguments = parser("benchmarks.peers", __doc__)
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="folder for what is measured")
    arguments.add_argument(
        "sites", nargs="?", default=",".join(map(str, SITES)), metavar="N,N,…", help="numbers of sites"
    )
    arguments.add_argument("sums", nargs="?", default=",".join(SUMS), metavar="SUM,SUM,…", help="secure sums")
    options = arguments.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = str(ROOT)  # site processes find this package, which no wheel has
    chosen = [int(sites) for sites in options.sites.split(",")]
    path = folder / "peers.json"
    known = json.loads(path.read_text())["measured"] if path.exists() else []
    measured = [Measured(**each) for each in known if each["sites"] not in chosen]
    names = options.sums.split(",")
    for sites in chosen:
        lengths = SITES.get(sites, (300,))
        measured += floors(sites, lengths)
        for name in names:
            measured += sums(name, sites, lengths)
        measured += mpyc_sums(sites, lengths)
        measured += flower_sums(sites, lengths)
        measured.sort(key=lambda each: (each.sites, each.numbers))
        _write(folder, measured)
        print(f"{sites} sites measured", flush=True)
    print((folder / "peers.md").read_text())


def _write(folder: Path, measured: list[Measured]) -> None:
    content = {"machine": machine(), "measured": [*map(asdict, measured)]}
    (folder / "peers.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "peers.md").write_text(f"{machine()}\n\n{table(measured)}\n")
    (folder / "peers.svg").write_text(plot(measured, min(LENGTHS)).file())


if __name__ == "__main__":
    main()
