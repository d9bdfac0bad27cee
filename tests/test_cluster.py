"""Sites on the nodes of a Ray cluster: three nodes on this machine, by Ray's own means."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import pytest

from fedsvm.federation.errors import LaunchError
from fedsvm.federation.federation import Federation
from fedsvm.federation.processes.cluster import ClusterLauncher
from fedsvm.scenarios.run.runner import FinishedRun
from fedsvm.scenarios.schema import spec
from tests.conftest import ROOT, site_processes, wait_until
from tests.guides import blocks
from tests.hosts import EXACT
from tests.run_results import simulate

ray = pytest.importorskip("ray", reason='sites on a cluster need Ray: pip install "fedsvm[ray]"')
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

QUIET = ("compare.centralised=false", "compare.baselines=false", *EXACT)
ON_RAY = 'federation.launcher="ray"'


class Nodes:
    """A cluster of three nodes with two, one and one CPUs, and a head without any, where the coordinator is."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 10**8})
        self.nodes = [self.cluster.add_node(num_cpus=cpus, object_store_memory=10**8) for cpus in (2, 1, 1)]

    def kill_one(self) -> None:
        """End a node as a power cut does: with all that runs on it, of which Ray's own means end the raylet alone."""
        node = self.nodes.pop()
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for process in raylet.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """One cluster for all tests, since it takes seconds to start; the last of them loses a node."""
    # Of Ray's sockets the path may have 107 bytes, and its own names take most of them.
    with TemporaryDirectory(prefix="nodes-") as folder, pytest.MonkeyPatch.context() as environment:
        environment.setenv("TMPDIR", folder)  # by which its processes are told
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("PYTHONPATH", str(ROOT))
        there = Nodes()
        environment.setenv("RAY_ADDRESS", there.cluster.address)
        try:
            yield there
        finally:
            ray.shutdown()
            there.cluster.shutdown()


@pytest.fixture(autouse=True)
def _nothing_outlives_its_run(nodes: Nodes) -> Iterator[None]:
    yield
    wait_until(lambda: not site_processes(Path(os.environ["TMPDIR"])))


def run(folder: Path, name: str, *changes: str, faults: tuple[str, ...] = (), during: Any = None) -> FinishedRun:
    listened = {} if during is None else {"on_progress": during}
    return simulate(name, folder, [*QUIET, *changes], faults=faults, **listened)


def model(folder: Path) -> dict[str, bytes]:
    with np.load(folder / "model.npz") as file:
        return {name: file[name].tobytes() for name in file.files}


def test_the_model_is_that_of_sites_on_this_machine_to_the_last_bit(nodes: Nodes, tmp_path: Path) -> None:
    here = run(tmp_path / "here", "quickstart")
    there = run(tmp_path / "there", "quickstart", ON_RAY)
    assert there.result.status == "completed", there.result.error
    assert model(tmp_path / "there") == model(tmp_path / "here")
    assert here.result.cost is not None and there.result.cost is not None
    assert there.result.cost.payload_bytes == here.result.cost.payload_bytes
    for site in there.result.sites:
        assert site.cpu_s is not None and site.cpu_s > 0
        assert site.unique_memory_bytes is not None and site.unique_memory_bytes > 1 << 20


def test_sites_are_dealt_to_nodes_by_their_cpus(nodes: Nodes) -> None:
    with ClusterLauncher("fedsvm.algorithms.site_process", "auto") as launcher:
        launcher.prepare()

        class Named:
            def __init__(self, name: str) -> None:
                self.name = name

        wanted: Any = [Named(f"site-{number}") for number in range(8)]
        assert sorted(len(share) for _, share in launcher._assign_nodes(wanted)) == [2, 2, 4]
        assert [each.name for _, share in launcher._assign_nodes(wanted) for each in share] == [
            each.name for each in wanted
        ]


def test_a_site_that_is_killed_is_started_again_on_its_node(nodes: Nodes, tmp_path: Path) -> None:
    faults = ("kill:site=2,phase=train,round=4,rejoin=true", "stall:site=3,phase=train,round=6,for_s=0.5")
    finished = run(tmp_path / "run", "quickstart", ON_RAY, faults=faults)
    assert finished.result.status == "completed", finished.result.error
    assert finished.result.model is not None and len(finished.result.model.sites) == 5
    assert [fault.start_s is not None for fault in finished.result.faults] == [True, True]


def test_where_there_is_no_cluster_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(LaunchError, match=r"There is no Ray cluster at federation\.ray_address = '127\.0\.0\.1:1'"):
        ClusterLauncher("fedsvm.algorithms.site_process", "127.0.0.1:1")


def test_the_guide_runs_as_far_as_one_machine_can(nodes: Nodes, tmp_path: Path) -> None:
    found = {block.title: block.text for block in blocks(ROOT / "docs" / "cluster.md")}
    (tmp_path / "thousand.toml").write_text(found["thousand.toml"])
    words = shlex.split(found["head, a few sites"].removeprefix("fedsvm "))
    line = [sys.executable, "-m", "tests.exact", *words]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "few" / "result.json").read_text())
    assert (result["status"], len(result["sites"])) == ("completed", 12)
    assert spec.read(tmp_path / "thousand.toml")[0].federation.sites == 1000


def test_a_node_that_is_lost_takes_its_sites_along_and_the_others_go_on(nodes: Nodes, tmp_path: Path) -> None:
    killed: list[float] = []

    def kill(federation: Federation, struck: object) -> None:
        if not killed and federation.progress.phase == "train" and federation.progress.round > 2:
            killed.append(time.monotonic())
            nodes.kill_one()

    finished = run(
        tmp_path / "run", "quickstart", ON_RAY, "federation.round_timeout_s=20", "federation.sites=8", during=kill
    )
    assert finished.result.status == "completed", finished.result.error
    assert killed
    gone = {why for change in finished.result.memberships for why in change.left.values()}
    assert any("was lost with its node" in why or "did not answer" in why for why in gone), gone
    assert finished.result.model is not None
    assert len(finished.result.model.sites) == 6
