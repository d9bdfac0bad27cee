"""Whole runs under faults: the certified optimum of the survivors, or a clear reason; never a hang, never a wrong sum.

`make test` runs a batch of each; `make chaos` (FEDSVM_CHAOS set) all of them, and prints what came of it.
"""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.threats import FaultSpec
from tests.conftest import site_processes, wait_until, workspaces
from tests.run_results import Ran
from tests.small_runs import SMALL, TOLERANCE, check_optimum, run

EVERYTHING = "FEDSVM_CHAOS" in os.environ


# Each site killed in each phase under each sum.

LAST_ROUND = {"setup": 5, "landmarks": 5, "train": 17}
PLACES = [(phase, number) for phase, last in LAST_ROUND.items() for number in (1, (last + 1) // 2, last)]
FIRST_ITERATION = 4
"""Of rounds of training: before it come the features' lengths, the terms, and the sites' common seed."""
CALM_ITERATIONS = 13
"""The iterations of training without faults; the last round releases the model."""


def check_training(result: dict[str, Any], phase: str, number: int) -> None:
    """Nothing began anew: a fault in the first half costs six iterations, later no more than to begin anew would."""
    at = number - FIRST_ITERATION + 1 if phase == "train" else 0
    most = CALM_ITERATIONS + (6 if at <= CALM_ITERATIONS / 2 else at)
    assert result["model"]["iterations"] <= most
    check_optimum(result)


def kills(turn_of_sum: int) -> Iterator[tuple[str, int, int]]:
    """Phase, round and site: under `make chaos` every site in each phase, and some site in every round of training."""
    for turn, (phase, number) in enumerate(PLACES):
        if phase != "train" or not EVERYTHING:
            yield from ((phase, number, site) for site in (range(1, 6) if EVERYTHING else (1 + turn % 5,)))
    if EVERYTHING:
        rounds = range(1, LAST_ROUND["train"] + 1)
        yield from (("train", number, 1 + (number + turn_of_sum) % 5) for number in rounds)


@functools.cache
def optimum_without(site: str, folder: Path) -> float:
    """The objective of a run that never had this site."""
    result = run(folder / f"without-{site}", ["protocol.sum=plain"], [], without=site).result
    assert result["error"] is None
    return float(result["model"]["objective"])


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("references")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", SUMS)
def test_a_killed_site_leaves_the_optimum_of_the_others(
    protocol: str, tmp_path: Path, shared_folder: Path, temporary_folder: Path
) -> None:
    outcomes: Counter[tuple[str, str]] = Counter()
    for phase, number, site in kills(list(SUMS).index(protocol)):
        fault = f"kill:site={site},phase={phase},round={number}"
        name = f"{phase}-{number}-{site}"
        result = run(tmp_path / name, [f"protocol.sum={protocol}"], [fault]).result
        assert result["error"] is None, (name, result["error"])
        check_training(result, phase, number)
        assert f"site-{site} dropped in {phase} round " in result["faults"][0]["outcome"]
        assert [each["status"] for each in result["sites"]].count("dropped") == 1
        if phase != "train":
            expected = optimum_without(f"site-{site}", shared_folder)
            assert result["model"]["objective"] == pytest.approx(expected, rel=2 * TOLERANCE)
        again = result["cost"]["aborted"]
        is_summed = phase == "train" and number not in (2, 3)
        assert again <= (0 if protocol in {"plain", "masked"} and is_summed else 1)
        outcomes[phase, "run again" if again else "went on in the same round"] += 1
    wait_until(lambda: not site_processes(temporary_folder))  # the server waits a moment for another run
    assert not workspaces(temporary_folder)
    print(f"\n{protocol}: {sum(outcomes.values())} kills, all completed", dict(outcomes))


@pytest.mark.long
@pytest.mark.parametrize("protocol", SUMS)
def test_a_site_that_is_restarted_in_training_brings_its_rows_back(protocol: str, tmp_path: Path) -> None:
    """It is handed the path, and what is certified is the optimum of all rows."""
    for number in range(1, LAST_ROUND["train"] + 1, 4 if EVERYTHING else 8):
        fault = f"kill:site={1 + number % 5},phase=train,round={number},rejoin=true"
        result = run(tmp_path / str(number), [f"protocol.sum={protocol}"], [fault]).result
        assert result["error"] is None, (number, result["error"])
        check_training(result, "train", number)
        assert [each["status"] for each in result["sites"]].count("rejoined") == 1
        assert len(result["model"]["sites"]) == 5
        assert result["model"]["objective"] == pytest.approx(optimum_without("", tmp_path), rel=2 * TOLERANCE)


def test_a_sum_that_cannot_go_on_with_fewer_sites_says_so(tmp_path: Path) -> None:
    changes = ["protocol.sum=changing-neighbours", "protocol.rings=2"]
    scenario, base = spec.read("quickstart", overrides=[*SMALL, *changes])
    rows = dataset.prepare(scenario, base)
    faults, _ = spec.read("quickstart", faults=["kill:site=2,phase=train,round=3"])
    scenario = scenario.model_copy(update={"faults": faults.faults})  # as if the site had died by itself
    (tmp_path / "run").mkdir()
    result = Ran.of(runner.run(scenario, rows, tmp_path / "run")).result
    assert result["status"] == "failed"
    assert "site-2 dropped in round" in result["error"]
    assert "4 sites are left, and 5 are needed" in result["error"]
    assert result["progress"]["phase"] == "train"
    assert result["cost"]["rounds"] > 10
    assert result["memberships"][-1]["left"].keys() == {"site-2"}


# Random schedules of several faults.


def random_fault(random: np.random.Generator, sites: int) -> str:
    """Any kind of fault, anywhere."""
    kind = random.choice(["kill", "stall", "disconnect", "partition", "delay", "corrupt"])
    phase = random.choice(["setup", "landmarks", "train"])
    terms = {"phase": phase, "round": random.integers(1, {"setup": 6, "landmarks": 6, "train": 20}[str(phase)])}
    seconds = round(float(random.choice([0.1, 0.4, 1.5])), 1)
    if kind != "partition":
        terms["site"] = random.integers(1, sites + 1)
    if kind in {"kill", "stall"}:
        terms["message"] = random.integers(0, 4)
    if kind == "kill":
        terms["rejoin"] = random.choice(["true", "false"])
    if kind in {"stall", "disconnect", "partition", "delay"}:
        terms["for_s"] = seconds
    if kind == "partition":
        terms["groups"] = random.choice(["bisect", "[[1,2]]", "[[2],[4]]"])
    if kind == "delay":
        terms["delay_ms"] = random.integers(1, 200)
    if kind in {"disconnect", "corrupt"}:
        terms["direction"] = random.choice(["in", "out", "both"])
    return f"{kind}:" + ",".join(f"{key}={value}" for key, value in terms.items())


def random_schedule(seed: int) -> tuple[list[str], list[str]]:
    """Changes and faults that go together."""
    random = np.random.default_rng([seed, 7])
    while True:
        sites = int(random.integers(4, 8))
        changes = [f"federation.sites={sites}", f"protocol.sum={random.choice(list(SUMS))}"]
        changes += ["federation.round_timeout_s=1.0"]
        faults = [random_fault(random, sites) for _ in range(random.integers(2, 5))]
        try:
            spec.read("quickstart", overrides=[*SMALL, *changes], faults=faults)
        except ScenarioError:
            continue
        return changes, faults


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(200 if EVERYTHING else 2))
def test_random_faults_end_in_the_optimum_or_in_a_reason(seed: int, tmp_path: Path, temporary_folder: Path) -> None:
    changes, faults = random_schedule(seed)
    result = run(tmp_path / "run", changes, faults, another_follows=False).result
    if result["status"] == "completed":
        check_optimum(result)
    else:
        assert "dropped in" in result["error"] or "was aborted" in result["error"], (faults, result["error"])
        assert "internal" not in result["error"]
    assert COORDINATOR not in result["memberships"][-1]["sites"]
    assert not site_processes(temporary_folder)
    assert not workspaces(temporary_folder)
    print(
        f"\n{seed}: {result['status']} {result['error'] or ''}",
        *(fault["outcome"] for fault in result["faults"]),
        sep="; ",
    )


@pytest.mark.long
def test_a_broken_link_between_two_sites_is_named_when_both_reach_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is silent, so nobody is dropped; the run says who waits for whom."""
    monkeypatch.setattr(FaultSpec, "links", lambda self, names: [("site-1", "site-2")])
    faults = ["partition:groups=bisect,phase=train,round=3"]
    result = run(tmp_path / "run", ["federation.round_timeout_s=1.0"], faults).result
    assert result["status"] == "failed"
    assert "though every site answers the coordinator" in result["error"]
    assert "site-2 for site-1" in result["error"]
    assert {site["status"] for site in result["sites"]} == {"finished"}


# Network conditions.


def seconds_a_ring_round(result: dict[str, Any], folder: Path) -> float:
    """The fastest sum of training: what else the machine does can only make one slower."""
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    sums = [event for event in events if event["event"] == "round" and event["step"] == "newton"]
    assert {event["hops"] for event in sums} == {6}
    return float(min(event["seconds"] for event in sums))


@pytest.mark.alone
def test_a_ring_round_takes_the_latency_of_its_hops_and_what_it_computes(tmp_path: Path) -> None:
    """An order, five hops round the ring and one to the coordinator: seven times the latency."""
    changes = ["compare.centralised=false", "algorithm.max_iterations=6"]
    local = run(tmp_path / "local", changes, [])
    slow = run(tmp_path / "slow", [*changes, "network.latency_ms=20"], [])
    here, there = (seconds_a_ring_round(each.result, each.folder) for each in (local, slow))
    assert there == pytest.approx(7 * 0.020 + here, rel=0.1)
    network = slow.result["network"]
    assert network["predicted_s_per_round"] <= network["measured_s_per_round"]
    assert slow.result["cost"]["wire_bytes"] == slow.result["cost"]["predicted_wire_bytes"]


def test_links_may_have_conditions_of_their_own(tmp_path: Path) -> None:
    changes = ["compare.centralised=false", "algorithm.max_iterations=4"]
    links = "network.links=[{from=1,to=2,latency_ms=60},{from='coordinator',to='site-3',latency_ms=0,jitter_ms=0}]"
    result = run(tmp_path / "run", [*changes, links], [])
    assert 0.060 <= seconds_a_ring_round(result.result, result.folder) < 0.3
