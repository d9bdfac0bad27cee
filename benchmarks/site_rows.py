"""The memory of one site with many rows: `python -m benchmarks.site_rows FOLDER ROWS [--landmarks N] [--limit MIB]`.

Made rows of 20 columns are written to a partition in FOLDER. A process of its own then takes the steps of a site in
`pan-svm`, without messages: sums of columns, scale, features in blocks, and two rounds of the interior point. The
landmarks are its first rows. It prints seconds and memory of its own after each step: the most before it, and now. Rows
in the mapped file are not its own. With a limit the system allows the process no more.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.features import row_blocks
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization.interior_point import NewtonRequest, Scales
from fedsvm.algorithms.optimization.path_rounds import RoundOrder
from fedsvm.algorithms.pan_svm import PanSettings, PanSite
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.site.partition import read_partition
from fedsvm.federation.site.rules import ANYTHING
from fedsvm.federation.site.terms import Terms
from tools.arguments import parser

COLUMNS, CENTRES, GAMMA = 20, 4, 0.05
_SITE, _SOME = "site-1", 100_000


def make(path: str, rows: int) -> None:
    """Write a partition of rows around four centres, which overlap."""
    random = np.random.default_rng(0)
    centres, of_rows = random.normal(size=(CENTRES, COLUMNS)), random.integers(CENTRES, size=rows)
    columns = centres[of_rows]
    for start in range(0, rows, _SOME):
        some = columns[start : start + _SOME]
        some += random.normal(size=some.shape)
    labels = np.where(of_rows % 2 > 0, 1.0, -1.0)
    site_partition(columns, labels, names=[f"x{number}" for number in range(COLUMNS)]).write(path)


def take_steps(path: str, landmarks: int, limit_mib: int) -> None:
    """Take the steps of a site, and print a line of Markdown for each."""
    if limit_mib:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_mib << 20, limit_mib << 20))
    row_blocks.MOST_VALUES = 0
    settings = asdict(PanSettings(landmarks=landmarks, max_landmarks=landmarks, masking="congruence"))
    terms = Terms("pan-svm", settings, "ring", {}, 1, reading={"scale": "standard", "statistics_privacy": 0.0})
    site = PanSite.under_terms(_SITE, read_partition(path), {"seed": 0}, terms, ANYTHING, lambda: None)
    channel, began = MemoryChannel(InMemoryNetwork((_SITE,)), _SITE), time.monotonic()

    def take(step: str, **arguments: Any) -> Any:
        with _most_mib() as most:
            found = site.run_step(step, channel, arguments)
        print(f"| {step} | {time.monotonic() - began:.0f} | {max(most)} | {_own_mib()} |", flush=True)
        return found

    print("| step | after s | most MiB | MiB |\n|---|---|---|---|")
    take("encode", values=[])
    rows = float(take("row_count"))
    mean = take("column_sums") / rows
    take("rescale", offset=mean, scale=np.sqrt(take("column_squares", mean=mean) / rows))
    features = NystromMap.span(Kernel("rbf", GAMMA), site.training_rows[:landmarks].copy(), 1e-10)
    take("receive_map", **features.to_fields())
    take("squared_norms")
    size = features.dimensions
    take("begin_path", prior=np.zeros(size), price=1.0, lever=1.0, masking="congruence")
    take("share_path", holders=[_SITE])
    for iteration in (1, 2):
        asked = NewtonRequest(
            0, np.zeros(size + 1), 1.0, keep=True, still=iteration == 1, scales=Scales(*[2.0**30] * 5)
        )
        take("newton", **vars(RoundOrder.of(iteration, [asked], int(rows))))
        site.work_ahead()


def _own_mib() -> int:
    """Return the memory of this process that is in no file (Linux)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) >> 10


@contextmanager
def _most_mib() -> Iterator[list[int]]:
    """Yield a list that has the memory of this process every few milliseconds of the context."""
    seen, over = [_own_mib()], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            seen.append(_own_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def main() -> None:
    """Measure and print."""
    arguments = parser("benchmarks.site_rows", __doc__)
    arguments.add_argument("folder", metavar="FOLDER", help="for the partition, of 160 bytes a row")
    arguments.add_argument("rows", type=int, metavar="ROWS", help="of the site")
    arguments.add_argument("--landmarks", type=int, default=200, metavar="N", help="number of landmarks")
    arguments.add_argument("--limit", type=int, default=0, metavar="MIB", help="most memory of the process; 0: any")
    options = arguments.parse_args()
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    fresh = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = str(Path(folder) / "partition")
        for target, given in ((make, (options.rows,)), (take_steps, (options.landmarks, options.limit))):
            process = fresh.Process(target=target, args=(path, *given))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(1)


if __name__ == "__main__":
    main()
