"""The parts of a round's time: `python -m benchmarks.profile [SITES] [SUM]`, by default 20 sites and the ring.

Three tables. The first has processor time a round by process and thread, ours and the floor's (`benchmarks.floor`),
which has the same messages and does nothing with them: what its I/O threads take is ZeroMQ, CURVE and the kernel, and
what its main threads take is Python that says "send" and "receive". It has ours without and with receipts and signed
orders, in three runs of each by turns. The second divides a site's main thread by the part
of the program that runs, as Python's profiler has it, which takes about as long itself: it is to be read as shares.
The third has the memory that is a site's own (Linux), by what it holds, as it is assembled and after the rounds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pstats
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.floor import bare_ring
from fedsvm.federation.federation import Federation
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.processes.launcher_cache import spare_launcher
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.startup import Deployment, SiteSetup, start_federation
from fedsvm.protocols.sums.registry import SUMS
from tools.arguments import parser

ROOT = Path(__file__).parents[1]
NUMBERS, ROUNDS, WARM_UP, TURNS = 300, 100, 5, 3
WAIT_S = 30.0
WAITING = "waiting for a message"
PARTS: Mapping[str, tuple[str, ...]] = {
    WAITING: ("'poll' of 'select",),
    "sockets: ZeroMQ's calls": ("zmq/", "backend.cython", "transport/poller.py"),
    "endpoint and mailbox": ("transport/endpoint.py", "transport/auth.py", "mailbox.py", "selectors.py", "deadline.py"),
    "messages to and from frames": ("transport/wire.py", "msgpack", "transport/keys.py"),
    "counting what every link carried": ("ledger.py", "connection.py", "counters.py", "zmtp.py", "getsockopt"),
    "orders and answers, and what a site refuses": ("control.py", "policy.py", "rules.py", "membership.py"),
    "the protocol and its channel": ("protocols/", "channel/"),
    "carrying out an order": (
        "site/site.py",
        "site/order_admission.py",
        "site/program.py",
        "site/faults.py",
        "site/replies.py",
        "site/logs.py",
        "site_process.py",
    ),
    "numpy": ("numpy",),
}
OTHER = "Python's own functions"
OBJECTS, STATICS, LIBRARIES = "objects, and what libraries allocate", "data of the interpreter", "data of libraries"


def floor_us(sites: int) -> dict[str, float]:
    """Return microseconds of processor time per round, by kind of thread: of a site, and of the coordinator."""
    with bare_ring(sites) as ring:
        parties = [process.pid for process in multiprocessing.active_children() if process.pid is not None]
        return _spent_us(parties, lambda: ring.round(NUMBERS))


def ours_us(sites: int, name: str, *, receipts: bool) -> dict[str, float]:
    """Return the same for one of our sums. receipts: whether sites keep receipts, and orders are signed."""
    with tempfile.TemporaryDirectory() as folder, _federation(sites, name, folder if receipts else "") as run:
        return _spent_us(run.pids.values(), lambda: _sum(run))


def by_turns_us(sites: int, name: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the medians of several runs without receipts, and with them."""
    runs = [(ours_us(sites, name, receipts=False), ours_us(sites, name, receipts=True)) for _ in range(TURNS)]
    without, kept = ([pair[place] for pair in runs] for place in (0, 1))
    return _medians(without), _medians(kept)


def _medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {kind: float(np.median([run[kind] for run in runs])) for kind in runs[0]}


def shares(sites: int, name: str) -> tuple[dict[str, float], float]:
    """Return the microseconds of a round in the main thread of the second site, by part of the program, without
    waiting, and the number of its function calls."""
    with tempfile.TemporaryDirectory() as folder, _federation(sites, name) as run:
        path = str(Path(folder) / "site.prof")
        run.run("profile", path="", site="site-2")
        for _ in range(ROUNDS):
            _sum(run)
        run.run("profile", path=path, site="site-2")
        measured = pstats.Stats(path)
    spent, calls = Counter[str](), 0
    for (file, _, function), (_, count, own_s, _, _) in measured.stats.items():  # type: ignore[attr-defined]
        spent[_part(f"{file}:{function}")] += 1e6 * own_s / ROUNDS
        calls += count
    del spent[WAITING]
    return dict(spent.most_common()), calls / ROUNDS


def memory_kib(sites: int, name: str) -> list[dict[str, int]]:
    """Return the own KiB of the last site, by content: after assembly, and after `ROUNDS` rounds."""
    with _federation(sites, name) as run:
        pid = run.pids[f"site-{sites}"]
        assembled = _own_kib(pid)
        for _ in range(ROUNDS):
            _sum(run)
        return [assembled, _own_kib(pid)]


def _own_kib(pid: int) -> dict[str, int]:
    """Return own KiB by mapping: memory of no file holds Python's objects and allocations of libraries."""
    own, holds = Counter[str](), OBJECTS
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            mapped = words[5] if len(words) > 5 else ""
            of_python = Path(mapped).name.startswith(("python", "libpython"))
            holds = STATICS if of_python else LIBRARIES if mapped.startswith("/") else OBJECTS
        elif words[0].startswith("Private_"):
            own[holds] += int(words[1])
    return dict(own)


@contextlib.contextmanager
def _federation(sites: int, name: str, receipts: str = "") -> Iterator[Federation]:
    """Start sites that hold nothing. receipts: the folder of their receipts; empty for none."""
    names = tuple(f"site-{number}" for number in range(1, sites + 1))
    nothing, total = Partition(arrays={"rows": np.zeros((1, 1))}), SUMS[name]()

    def setup(site: str) -> SiteSetup:
        path = f"{receipts}/{site}.jsonl" if receipts else ""
        return SiteSetup(lambda file: nothing.write(str(file)), {"seed": 0}, receipt_path=path)

    terms = Terms("numbers", {}, name, dict(total.options), total.min_sites)
    deployment = Deployment(names, terms, total, setup, WAIT_S, DropoutPolicy(sites, "abort"))
    with spare_launcher("benchmarks.site_process") as launcher, start_federation(launcher, deployment) as federation:
        federation.assemble()
        yield federation


def _sum(run: Federation) -> None:
    run.sum("numbers", shape=(NUMBERS,), bound=1.0, length=NUMBERS)


def _spent_us(sites: Iterable[int], round_: Callable[[], object]) -> dict[str, float]:
    pids = list(sites)
    for _ in range(WARM_UP):
        round_()
    before = {pid: _threads_us(pid) for pid in (*pids, os.getpid())}
    for _ in range(ROUNDS):
        round_()
    after = {pid: _threads_us(pid) for pid in (*pids, os.getpid())}
    spent = {pid: {kind: (after[pid][kind] - before[pid][kind]) / ROUNDS for kind in after[pid]} for pid in after}
    of_sites = {f"site, {kind}": float(np.mean([spent[pid][kind] for pid in pids])) for kind in ("main", "I/O")}
    return of_sites | {f"coordinator, {kind}": spent[os.getpid()][kind] for kind in ("main", "I/O")}


def _threads_us(pid: int) -> dict[str, float]:
    """Return the processor time of a process so far, of the thread that runs Python and of ZeroMQ's (Linux)."""
    spent = {"main": 0.0, "I/O": 0.0}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        of_zeromq = (thread / "comm").read_text().startswith("ZMQ")
        spent["I/O" if of_zeromq else "main"] += int((thread / "schedstat").read_text().split()[0]) / 1e3
    return spent


def _part(function: str) -> str:
    named = function.replace(str(ROOT), "")
    return next((part for part, marks in PARTS.items() if any(mark in named for mark in marks)), OTHER)


def _all(spent: Mapping[str, float], sites: int) -> float:
    """Return the processor time of all processes, from that of a site and of the coordinator."""
    return sum(us * (sites if kind.startswith("site") else 1) for kind, us in spent.items())


def main() -> None:
    """Measure and print, as Markdown."""
    arguments = parser("benchmarks.profile", __doc__)
    arguments.add_argument("sites", nargs="?", type=int, default=20, metavar="SITES", help="number of sites")
    arguments.add_argument("sum", nargs="?", default="ring", metavar="SUM", help="secure sum")
    options = arguments.parse_args()
    sites, name = options.sites, options.sum
    os.environ["PYTHONPATH"] = str(ROOT)  # site processes find this package, which no wheel has
    floor, (ours, kept) = floor_us(sites), by_turns_us(sites, name)
    print(f"| processor time a round, us | floor | {name}, {sites} sites | with receipts |\n|---|---|---|---|")
    for kind, spent in ours.items():
        print(f"| {kind} | {floor[kind]:.0f} | {spent:.0f} | {kept[kind]:.0f} |")
    print(f"| all | {_all(floor, sites):.0f} | {_all(ours, sites):.0f} | {_all(kept, sites):.0f} |")
    parts, calls = shares(sites, name)
    print(f"\nA site calls {calls:.0f} functions a round.")
    print("\n| of a site's main thread | share |\n|---|---|")
    for part, spent in parts.items():
        print(f"| {part} | {100 * spent / sum(parts.values()):.0f} % |")
    assembled, after = memory_kib(sites, name)
    print(f"\n| a site's own memory, KiB | assembled | after {ROUNDS} rounds |\n|---|---|---|")
    for holds in (OBJECTS, STATICS, LIBRARIES):
        print(f"| {holds} | {assembled[holds]:,} | {after[holds]:,} |")


if __name__ == "__main__":
    main()
