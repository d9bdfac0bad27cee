"""Sweeps: a row for each run of the grid, what was interrupted is resumed, and what cannot run is said before."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from scenarios.schema.errors import ScenarioError
from scenarios.sweep.grid import Axis, Plot, Point, Sweep, draw
from tests.conftest import site_processes, wait_until
from tests.test_runs import FEDSVM, fedsvm

SMALL = ("data.source=wine", "data.positive=class_0", "algorithm.landmarks=20", "compare.centralised=false")
WORDS = [word for change in SMALL for word in ("--set", change)]


PLOTS = ["payload_bytes:federation.sites:protocol.sum", "gap:round:protocol.sum"]


def grid(folder: Path, *axes: str, changes: tuple[str, ...] = SMALL) -> Sweep:
    return Sweep("quickstart", changes, tuple(Axis.read(axis) for axis in axes), folder)


@pytest.mark.long
def test_a_sweep_has_a_row_for_every_run_and_plots_them(tmp_path: Path) -> None:
    vary = ["--vary", "federation.sites=3,4", "--vary", "protocol.sum=plain,ring"]
    vary += [word for plot in PLOTS for word in ("--plot", plot)]
    done = fedsvm("sweep", "quickstart", *WORDS, *vary, "--jobs", "2", "--out", tmp_path / "s", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "s" / "sweep.csv").open()))
    found = [(row["federation.sites"], row["protocol.sum"], row["status"]) for row in rows]
    assert found == [(n, p, "completed") for n in ("3", "4") for p in ("plain", "ring")]
    table = pq.read_table(tmp_path / "s" / "sweep.parquet").to_pylist()
    assert [row["federation.sites"] for row in table] == [3, 3, 4, 4]
    assert all(row["payload_bytes"] > 0 and row["total_s"] > 0 and row["gap"] <= 1e-4 for row in table)
    for name in ("payload_bytes-against-federation.sites", "gap-against-round"):
        plot = tmp_path / "s" / f"{name}-by-protocol.sum.svg"
        assert "ring" in plot.read_text()
        ElementTree.parse(plot)  # noqa: S314 - written by this very test


@pytest.mark.long
def test_a_sweep_that_is_interrupted_goes_on_where_it_was(tmp_path: Path, temporary_folder: Path) -> None:
    command = [str(FEDSVM), "sweep", "quickstart", *WORDS, "--vary", "seed=1,2", "--out", str(tmp_path / "s")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=tmp_path)
    assert process.stderr is not None
    assert process.stderr.readline() == "seed=1 done\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stderr.close()
    wait_until(lambda: not site_processes(temporary_folder))
    first = tmp_path / "s" / "points" / "seed=1" / "result.json"
    before = first.stat().st_mtime_ns
    again = fedsvm("sweep", "quickstart", *WORDS, "--vary", "seed=1,2", "--out", tmp_path / "s", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "seed=1 done" not in again.stderr
    assert first.stat().st_mtime_ns == before
    assert len(grid(tmp_path / "s", "seed=1,2").rows()) == 2


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_sweep_leaves_nothing_that_runs(how: signal.Signals, tmp_path: Path, temporary_folder: Path) -> None:
    command = [str(FEDSVM), "sweep", "quickstart", *WORDS, "--vary", "seed=1,2", "--out", str(tmp_path / "s")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=tmp_path)
    wait_until(lambda: bool(site_processes(temporary_folder)), 30)
    os.kill(process.pid, how)
    assert process.wait(30) == (130 if how == signal.SIGTERM else -signal.SIGKILL)
    wait_until(lambda: not site_processes(temporary_folder))


def test_a_run_that_fails_is_a_row_and_is_run_again(tmp_path: Path) -> None:
    kill = "faults=[{kind='kill',site=1,phase='train',round=2}]"
    lost = ("--set", kill, "--set", "federation.on_dropout=abort")
    done = fedsvm("sweep", "quickstart", *WORDS, *lost, "--vary", "seed=1", "--out", tmp_path / "s", folder=tmp_path)
    assert done.returncode == 3
    assert "1 of 1 runs did not complete; sweep.csv says why." in done.stderr
    rows = list(csv.DictReader((tmp_path / "s" / "sweep.csv").open()))
    assert all(row["status"] == "failed" and "site-1 dropped" in row["error"] for row in rows)
    changes = (*SMALL, kill, "federation.on_dropout=abort")
    assert len(grid(tmp_path / "s", "seed=1", changes=changes).missing()) == 1


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("protocol.sum=plain,ring", ("plain", "ring")),
        ("data.split=sizes:[10,20], sizes:[15,15]", ("sizes:[10,20]", "sizes:[15,15]")),
        ('name="a,b",c', ('"a,b"', "c")),
    ],
)
def test_values_are_separated_by_commas_outside_of_brackets(text: str, values: tuple[str, ...]) -> None:
    assert Axis.read(text).values == values


@pytest.mark.parametrize("text", ["protocol.sum", "=a,b", "seed=", "seed=1,,2"])
def test_what_varies_nothing_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="write it as key"):
        Axis.read(text)


def test_every_point_is_checked_before_the_first_starts(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        grid(tmp_path / "s", "federation.sites=2,5", "protocol.sum=ring,k-secure,none").prepare()
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "sites=2,sum=ring",
        "sites=2,sum=k-secure",
        "sites=2,sum=none",
        "sites=5,sum=none",
    ]
    assert not (tmp_path / "s").exists()


def test_a_folder_is_of_one_scenario_and_a_grid_has_no_point_twice(tmp_path: Path) -> None:
    grid(tmp_path / "s", "seed=1,2").prepare()
    grid(tmp_path / "s", "seed=1,2,3").prepare()
    with pytest.raises(ScenarioError, match="holds a sweep of another scenario"):
        grid(tmp_path / "s", "seed=1,2", changes=(*SMALL, "algorithm.C=3")).prepare()
    with pytest.raises(ScenarioError, match="two points of the grid are the same"):
        grid(tmp_path / "t", "seed=1,1").prepare()
    with pytest.raises(ScenarioError, match="seed: is varied twice"):
        grid(tmp_path / "t", "seed=1", "seed=2").prepare()


def test_a_plot_of_what_is_not_there_is_refused(tmp_path: Path) -> None:
    axes, measures = (Axis.read("seed=1,2"),), grid(tmp_path, "seed=1,2").measures
    assert Plot.read("landmarks:seed", axes, measures) == Plot("landmarks", "seed", None)
    assert Plot.read("gap:seed", axes, measures) == Plot("gap", "seed", None)
    assert Plot.read("gap:round:seed", axes, measures) == Plot("gap", "round", "seed")
    for text in ("speed:seed", "gap:C", "gap:seed:C", "gap", "rounds:round"):
        with pytest.raises(ScenarioError, match="write it as measure:axis"):
            Plot.read(text, axes, measures)


def test_bars_stand_for_words_and_lines_for_numbers(tmp_path: Path) -> None:
    rows = [
        {"a": a, "b": b, "status": "completed", "gap": float(i)} for i, (a, b) in enumerate([("x", "1"), ("y", "2")])
    ]
    for axis in ("a", "b"):
        draw(Plot("gap", axis, None), rows, tmp_path / f"{axis}.svg")
    assert Point({"a.b": "x/y", "c": "1"}).name == "b=x_y,c=1"
    assert (tmp_path / "a.svg").read_text() != (tmp_path / "b.svg").read_text()
