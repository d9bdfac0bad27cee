"""The guide of three hospitals, followed on four machines: network namespaces with addresses of their own."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from sklearn.svm import SVC

from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.scenarios.oversight import receipts
from fedsvm.scenarios.oversight.receipt_comparison import compare
from tests.capture import Captured, captured
from tests.conftest import ROOT, wait_until
from tests.guides import blocks
from tests.hosts import ENDS_WITHIN_S, EXACT, NAMES, Hosts, Started, same, stalled, write_files
from tests.namespaces import Network, network, why_not
from tests.test_column_prediction import NEW, write_new_patients
from tests.test_hosts import write_columns

HOSTS = ("coordinator", *NAMES)
EXACTLY = " ".join(f"--set {each}" for each in EXACT)

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]


@contextmanager
def hospitals(folder: Path) -> Iterator[tuple[Hosts, Network]]:
    """Four machines, each with a folder of its own, with keys that were made and exchanged as the guide says."""
    there = Hosts(folder)
    with network(HOSTS) as net:
        write_files(folder)
        for host in HOSTS:
            (folder / host).mkdir()
            there.within[host] = net.within(host)
        for name in NAMES:
            shutil.move(folder / f"{name}.csv", folder / name)
        for block in blocks(ROOT / "docs" / "three-hospitals.md"):
            if block.title in HOSTS and ("keys new" in block.text):
                lines = block.text.replace("fedsvm ", f"{sys.executable} -m fedsvm ")
                subprocess.run(
                    [*net.within(block.title), "bash", "-euc", lines],
                    cwd=folder / block.title,
                    env={"PATH": "/usr/sbin:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
                    check=True,
                    capture_output=True,
                )
            elif block.title is not None and block.title.endswith(".toml"):
                host = block.title.removesuffix(".toml")
                text = block.text.replace('["congruence", "committee"]', '["congruence", "committee", "none"]')
                for setting in ("step_noise", "objective_noise", "tolerance"):  # as EXACT sets them
                    text = text.replace(f"{setting} = {{ min = 0.2 }}", f"{setting} = {{ min = 0 }}")
                (folder / (host if host in NAMES else "coordinator") / block.title).write_text(text)
        for name in NAMES:
            shutil.copy(folder / name / f"{name}.key", folder / "coordinator" / "sites")
            shutil.copy(folder / "coordinator" / "coordinator.key", folder / name)
        try:
            yield there, net
        finally:
            for each in there.started:
                each.process.kill()
                each.process.wait()


def start(there: Hosts, host: str, *, via: bool = False, beside: str = "") -> Started:
    """Run the guide's command of a host; `beside` is added to it. Of sites that go via the coordinator, as north's."""
    title = host if not via else "coordinator via" if host == "coordinator" else "north via"
    wanted = [
        block.text
        for block in blocks(ROOT / "docs" / "three-hospitals.md")
        if block.title == title and "keys new" not in block.text
    ]
    line = wanted[0].strip()
    if via and host != "coordinator":
        line = line.replace("north", host)
        (there.folder / host / f"{host}.toml").write_text((there.folder / "north" / "north.toml").read_text())
    machine = host.partition(" ")[0]
    place = Hosts(there.folder / machine, there.within)
    begun = place.command(machine, *line.split()[1:], *beside.split())
    there.started.append(begun)
    return begun


def simulated(there: Hosts, routing: str) -> Hosts:
    """The rehearsal of the guide, as a simulation of the same rows."""
    place = Hosts(there.folder / routing)
    place.folder.mkdir()
    for name in NAMES:
        shutil.copy(there.folder / name / f"{name}.csv", place.folder)
    shutil.copy(there.folder / "coordinator" / "rehearsal.toml", place.folder / "simulated.toml")
    place.simulated(*EXACTLY.split(), "--set", f"protocol.routing={routing}")
    return place


def wire_bytes(folder: Path) -> int:
    """All that the ledger has, by the kernel's count."""
    return sum(row["wire_bytes"] for row in pq.read_table(folder / "ledger.parquet").to_pylist())


def check(there: Hosts, run: str, packets: Captured, routing: str) -> None:
    """The model is the simulation's, and what was captured is what the ledger has."""
    place = simulated(there, routing)
    coordinators = Hosts(there.folder / "coordinator")
    assert same(coordinators.model(run), place.model("simulated"))
    result = json.loads((coordinators.folder / run / "result.json").read_text())
    exact = json.loads((place.folder / "simulated" / "result.json").read_text())
    assert result["at_sites"] == exact["at_sites"]
    total = sum(len(packets.stream(flow)) for flow in packets.flows)
    assert total == wire_bytes(coordinators.folder / run)


def test_the_guide_gives_the_simulations_model_and_the_ledger_has_every_byte_on_the_bridge(tmp_path: Path) -> None:
    with hospitals(tmp_path) as (there, net), captured(net.bridge) as packets:
        coordinator = start(there, "coordinator", beside=EXACTLY)
        coordinator.says("listens at ")
        begun = [coordinator, *(start(there, name) for name in NAMES)]
        assert [each.ends() for each in begun] == [0] * 4, [each.said for each in begun]
    check(there, "result", packets, "direct")


@pytest.mark.parametrize("host", ["north", "coordinator"])
def test_a_run_waits_for_a_link_that_is_down(host: str, tmp_path: Path) -> None:
    """No site loses its state meanwhile, and so none leaves the run."""
    words = "--set federation.round_timeout_s=6 --set algorithm.tolerance=1e-9 --set algorithm.masking=congruence"
    with hospitals(tmp_path) as (there, net):
        coordinator = start(there, "coordinator", beside=f"{words} --rejoin 60s")
        coordinator.says("listens at ")
        stalls = "--fault stall:phase=train,round=6,for_s=2"
        begun = [start(there, name, beside=stalls if name == "north" else "") for name in NAMES]
        wait_until(lambda: stalled(begun[NAMES.index("north")]), 60)
        with net.down(host):
            coordinator.says("did not answer; the run waits, at most 60 s")
        assert [each.ends() for each in (coordinator, *begun)] == [0] * 4, [x.said for x in (coordinator, *begun)]
    result = json.loads((tmp_path / "coordinator" / "result" / "result.json").read_text())
    assert [change["left"] for change in result["memberships"] if change["left"]] == []


def test_a_run_that_failed_by_a_link_that_is_down_is_resumed_with_the_sites_that_waited(tmp_path: Path) -> None:
    with hospitals(tmp_path) as (there, net):
        words = "--set federation.round_timeout_s=4 --set algorithm.tolerance=1e-9 --set algorithm.masking=congruence"
        coordinator = start(there, "coordinator", beside=words)
        coordinator.says("listens at ")
        stalls = "--fault stall:phase=train,round=6,for_s=2"
        begun = [start(there, name, beside=stalls if name == "north" else "") for name in NAMES]
        wait_until(lambda: stalled(begun[NAMES.index("north")]), 60)
        with net.down("north"):
            assert coordinator.ends() == 3
        resumed = start(there, "coordinator again")
        assert [each.ends() for each in (resumed, *begun)] == [0] * 4, [x.said for x in (resumed, *begun)]
    assert "the run is resumed" in begun[0].said


def test_where_sites_cannot_reach_each_other_direct_fails_with_the_way_out_and_via_coordinator_completes(
    tmp_path: Path,
) -> None:
    with hospitals(tmp_path) as (there, net):
        for host in NAMES:
            for other in NAMES:
                if other != host:
                    net.cut(host, other)
        coordinator = start(there, "coordinator", beside=f"{EXACTLY} --set federation.round_timeout_s=3")
        coordinator.says("listens at ")
        begun = [coordinator, *(start(there, name) for name in NAMES)]
        assert coordinator.ends() == 3
        for each in begun:
            each.ends()
        said = " ".join(coordinator.said.split())
        assert (found := re.search(r"Waiting were (.+?): look at the connections", said)), said
        assert set(found[1].split(", ")) <= {f"{one} for {other}" for one, other in permutations(NAMES, 2)}
        assert 'where sites cannot reach each other set protocol.routing = "via-coordinator"' in said
        with captured(net.bridge) as packets:
            coordinator = start(there, "coordinator", via=True, beside=EXACTLY)
            coordinator.says("listens at ")
            begun = [coordinator, *(start(there, name, via=True) for name in NAMES)]
            assert [each.ends() for each in begun] == [0] * 4, [each.said for each in begun]
        sites = {net.addresses[name] for name in NAMES}
        assert not [flow for flow in packets.flows if {flow.source[0], flow.target[0]} <= sites]
        check(there, "sealed", packets, "via-coordinator")


def test_sites_that_serve_take_part_in_two_runs_and_keep_a_receipt_of_each(tmp_path: Path) -> None:
    with hospitals(tmp_path) as (there, _):
        policy = (tmp_path / "north" / "north.toml").read_text()
        for name in NAMES:
            (tmp_path / name / f"{name}.toml").write_text(policy)
        sites = [start(there, name, beside=f"--serve --policy {name}.toml") for name in NAMES]
        for out in ("result", "second"):
            coordinator = start(there, "coordinator", beside=f"--out {out}")
            assert coordinator.ends() == 0, coordinator.said
        wait_until(lambda: all(site.said.count("the run is completed") == 2 for site in sites), ENDS_WITHIN_S)
    kept = {name: {each.run: each for each in receipts.select_receipts(tmp_path / name, None)} for name in NAMES}
    runs = kept["north"].keys()
    assert len(runs) == 2
    for run in runs:
        of_all = [kept[name][run] for name in NAMES]
        assert all(each.is_whole and each.outcome == "completed" for each in of_all)
        assert not any(compare(*pair).differences for pair in permutations(of_all, 2))


def everywhere(there: Hosts, guide: str, scenario: str = "") -> None:
    """Run a guide's last commands of the coordinator and, at each site, of south, until all of them end."""
    lines = {block.title: block.text for block in blocks(ROOT / "docs" / guide)}
    words = {"coordinator": lines["coordinator"].replace("hospitals.toml", scenario).split()[1:]}
    words |= {name: lines["south"].replace("south", name).split()[1:] for name in NAMES}
    begun = []
    for host, line in words.items():
        begun.append(Hosts(there.folder / host, there.within).command(host, *line))
        there.started.append(begun[-1])
        if host == "coordinator":
            begun[0].says("listens at ")
    assert [each.ends() for each in begun] == [0] * 4, [each.said for each in begun]


def test_hospitals_with_columns_predict_new_patients_as_the_model_of_all_columns(tmp_path: Path) -> None:
    """New patients get the decision values of the model of all columns, which is LIBSVM's of the joined table."""
    with hospitals(tmp_path) as (there, _):
        joined, new = write_columns(tmp_path), write_new_patients(tmp_path)
        for name in NAMES:
            shutil.move(tmp_path / f"{name}.csv", tmp_path / name / f"{name}.csv")
            shutil.move(tmp_path / f"{name}-new.csv", tmp_path / name / "new.csv")
        everywhere(there, "three-hospitals.md", "columns.toml")
        everywhere(there, "vertical.md")
    assert len(new) >= NEW // 2 and not joined.keys() & new.keys()
    pooled = Pooled.of(tmp_path, [joined[who] for who in joined if not is_held_out(who)])
    with (tmp_path / "south" / "south-predictions.csv").open() as file:
        found = {row["patient"]: float(row["decision"]) for row in csv.DictReader(file)}
    assert found == pytest.approx(dict(zip(new, pooled.decisions(list(new.values())), strict=True)), abs=1e-9)
    assert found == pytest.approx(dict(zip(new, pooled.of_libsvm(list(new.values())), strict=True)), abs=1e-4)


def is_held_out(patient: str) -> bool:
    """Return whether sites test the model on a patient, by the guide's share and seed."""
    return int.from_bytes(hashlib.sha256(f"0 {patient}".encode()).digest()[:8], "big") < 0.25 * 2**64


@dataclass(frozen=True)
class Pooled:
    """The model of all columns in one place: the coordinator's coefficients, of records of the joined table."""

    kernel: Kernel
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    train: NDArray[np.float64]
    labels: NDArray[np.float64]
    support: NDArray[np.intp]
    coefficients: NDArray[np.float64]
    intercept: float

    @classmethod
    def of(cls, folder: Path, table: Sequence[tuple[float, ...]]) -> Pooled:
        """Take the coefficients of the run, and find their records in the joined table by the sites' parts."""
        with np.load(folder / "coordinator" / "result" / "model.npz") as file:
            model = dict(file)
        reference = np.hstack([np.load(folder / name / f"{name}.npz")["reference"] for name in NAMES])
        rows, labels = np.array(table)[:, :3], np.array(table)[:, 3]
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        train = (rows - mean) / deviation
        apart = np.abs(train[:, None] - reference).max(axis=2)
        assert apart.min(axis=0).max() < 1e-9, "every support record is one that all sites have, scaled as pooled"
        kernel, support = Kernel.from_arrays(model), apart.argmin(axis=0)
        return cls(kernel, mean, deviation, train, labels, support, model["dual_coef"], float(model["b"]))

    def decisions(self, rows: Sequence[tuple[float, ...]]) -> list[float]:
        """Return the decision values of patients."""
        values = self.kernel(self._scaled(rows), self.train[self.support]) @ self.coefficients + self.intercept
        return [float(value) for value in values]

    def of_libsvm(self, rows: Sequence[tuple[float, ...]]) -> list[float]:
        """Return what LIBSVM gives that is trained on the joined table."""
        fields = self.kernel.to_fields()
        svm = SVC(C=1.0, kernel="rbf", gamma=fields["gamma"], tol=1e-8).fit(self.train, self.labels)
        return [float(value) for value in svm.decision_function(self._scaled(rows))]

    def _scaled(self, rows: Sequence[tuple[float, ...]]) -> NDArray[np.float64]:
        return (np.array(rows) - self.mean) / self.deviation
