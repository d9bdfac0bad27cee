"""The cost of a site on the nodes of a Ray cluster and on this machine: the same run, by both launchers.

`python -m benchmarks.cluster [SITES]` prints a table. The cluster has three nodes on this machine, by Ray's own means,
so that what differs is the launcher and not the machine. Needs `fedsvm[ray]`.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers import ROOT, machine
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

NODES = 3
ROWS_PER_SITE = 20
_MIB = 1 << 20


@contextmanager
def nodes() -> Iterator[None]:
    """Start a cluster of three nodes, and a head without CPUs, at `RAY_ADDRESS`."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}
    import ray
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 10**8})
    for _ in range(NODES):
        cluster.add_node(num_cpus=1, object_store_memory=10**8)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def carried_out(launcher: str, sites: int) -> RunResult:
    """Run PAN-SVM over this number of sites."""
    scenario = spec.validate(
        {
            "name": "cluster",
            "federation": {"sites": sites, "launcher": launcher, "round_timeout_s": 300.0},
            "data": {"source": f"made-sphere:rows={ROWS_PER_SITE * sites},columns=10,margin=0.05", "positive": "above"},
            "algorithm": {"name": "pan-svm", "kernel": "linear", "masking": "none", "step_noise": 0.0},
            "protocol": {"sum": "ring"},
            "compare": {"centralised": False},
        }
    )
    rows = dataset.prepare(scenario, Path())
    with tempfile.TemporaryDirectory() as folder:
        return runner.run(scenario, rows, Path(folder)).result


def row(launcher: str, result: RunResult) -> str:
    """Return a line of the table. Raises RuntimeError for a run that failed."""
    if result.status != "completed" or result.cost is None:
        raise RuntimeError(result.error)
    cpu = statistics.mean(site.cpu_s or 0.0 for site in result.sites)
    own = statistics.mean(site.unique_memory_bytes or 0 for site in result.sites) / _MIB
    train_s = result.timing.train_s or 0.0
    per_round = 1000 * train_s / result.cost.rounds
    return (
        f"| {launcher} | {len(result.sites)} | {result.timing.launch_s or 0:.1f} | {train_s:.1f} | "
        f"{result.cost.rounds} | {per_round:.0f} | {1000 * cpu:.0f} | {own:.1f} |"
    )


def main() -> None:
    arguments = parser("benchmarks.cluster", __doc__)
    arguments.add_argument("sites", nargs="?", type=int, default=200, metavar="SITES", help="number of sites")
    sites: int = arguments.parse_args().sites
    print(machine())
    print("| launcher | sites | launch, s | training, s | rounds | ms a round | CPU ms a site | own MiB a site |")
    print("|---|---|---|---|---|---|---|---|")
    print(row("local", carried_out("local", sites)), flush=True)
    with nodes():
        print(row("ray", carried_out("ray", sites)), flush=True)


if __name__ == "__main__":
    main()
