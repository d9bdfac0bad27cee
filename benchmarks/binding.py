"""The cost of binding masks and messages to the chain of orders, in rounds of a ring sum over real processes.

`python -m benchmarks.binding [SITES] [ROUNDS]` prints the processor time of all sites with the chain, as a ratio to
that of sites without it. Both kinds run at the same time and take turns, so that the load of the machine is the same.
"""

from __future__ import annotations

import os
import sys

import psutil

from benchmarks.peers import ROOT
from fedsvm.federation.federation import Federation
from fedsvm.federation.transport.wire import DATA_KIND, LINK, MAX_LINK_BYTES, Message
from tests.conftest import drill

_WARM_UP = 5


def seconds_of(federation: Federation) -> float:
    """Return the processor time of all sites until now."""
    times = [psutil.Process(pid).cpu_times() for pid in federation.pids.values()]
    return float(sum(each.user + each.system for each in times))


def run_rounds(federation: Federation, count: int) -> None:
    """Compute this number of sums."""
    for _ in range(count):
        federation.sum("total", shape=(3,), bound=1e3, factor=1.0)


def main(sites: int = 20, rounds: int = 200) -> None:
    """Print the ratio, and by how many bytes a message between sites grows."""
    os.environ["PYTHONPATH"] = str(ROOT)  # of the processes, whose modules are those of the tests
    with (
        drill(sites, another_follows=False) as bound,
        drill(sites, module="tests.unbound_site_process", another_follows=False) as unbound,
    ):
        both = (bound, unbound)
        for each in both:
            run_rounds(each, _WARM_UP)
        before = [seconds_of(each) for each in both]
        for _ in range(rounds // 10):
            for each in both:
                run_rounds(each, 10)
        with_chain, without = (seconds_of(each) - start for each, start in zip(both, before, strict=True))
    bare, linked = (
        len(Message(DATA_KIND, bytes(8), fields=fields).frame) for fields in ({}, {LINK: bytes(MAX_LINK_BYTES)})
    )
    print(f"ring of {sites} sites, {rounds} rounds: {with_chain:.2f} s with the chain, {without:.2f} s without")
    print(f"ratio {with_chain / without:.3f}; a message between sites has {linked - bare} bytes more")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
