"""Sweeps: a row for each run of the grid, what was interrupted is resumed, and what cannot run is said before."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.sweep.charts import Plot, draw, draw_curves
from fedsvm.scenarios.sweep.grid import Point, Sweep, SweepAxis, default_plots, read_plot
from fedsvm.scenarios.sweep.worker import Workers
from tests.commands import fedsvm
from tests.conftest import site_processes, wait_until

SMALL = ("data.source=wine", "data.positive=class_0", "algorithm.landmarks=20", "compare.centralised=false")
WORDS = [word for change in SMALL for word in ("--set", change)]


PLOTS = ["payload_bytes:federation.sites:protocol.sum", "gap:round:protocol.sum"]


def grid(folder: Path, *axes: str, changes: tuple[str, ...] = SMALL) -> Sweep:
    return Sweep("quickstart", changes, tuple(SweepAxis.read(axis) for axis in axes), folder)


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
    words = ["sweep", "quickstart", *WORDS, "--vary", "seed=1,2", "--out", str(tmp_path / "s")]
    command = [sys.executable, "-m", "tests.exact", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=tmp_path)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("seed=1 done; about ")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.stderr.close()
    wait_until(lambda: not site_processes(temporary_folder))
    first = tmp_path / "s" / "points" / "seed=1" / "result.json"
    before = first.stat().st_mtime_ns
    again = fedsvm("sweep", "quickstart", *WORDS, "--vary", "seed=1,2", "--out", tmp_path / "s", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "seed=1 done" not in again.stderr
    assert first.stat().st_mtime_ns == before
    assert len(grid(tmp_path / "s", "seed=1,2").rows()) == 2


@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
def test_a_killed_sweep_leaves_nothing_that_runs(how: signal.Signals, tmp_path: Path, temporary_folder: Path) -> None:
    words = ["sweep", "quickstart", *WORDS, "--vary", "seed=1,2", "--out", str(tmp_path / "s")]
    command = [sys.executable, "-m", "tests.exact", *words]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=tmp_path)
    wait_until(lambda: bool(site_processes(temporary_folder)))
    os.kill(process.pid, how)
    assert process.wait(60) == (130 if how == signal.SIGTERM else -signal.SIGKILL)
    wait_until(lambda: not site_processes(temporary_folder))


def test_a_run_that_fails_is_a_row_and_is_run_again(tmp_path: Path) -> None:
    kill = "faults=[{kind='kill',site=1,phase='train',round=2}]"
    lost = ("--set", kill, "--set", "federation.on_dropout=abort")
    done = fedsvm("sweep", "quickstart", *WORDS, *lost, "--vary", "seed=1", "--out", tmp_path / "s", folder=tmp_path)
    assert done.returncode == 3
    assert "1 of 1 runs did not complete; sweep.csv has the reasons." in done.stderr
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
    assert SweepAxis.read(text).values == values


@pytest.mark.parametrize("text", ["protocol.sum", "=a,b", "seed=", "seed=1,,2"])
def test_what_varies_nothing_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="write it as key"):
        SweepAxis.read(text)


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


def test_runs_that_differ_in_the_seed_have_a_mean_and_a_deviation(tmp_path: Path) -> None:
    sweep = grid(tmp_path / "s", "protocol.sum=plain,ring", "seed=1,2,3")
    empty = dict.fromkeys(sweep.measures)
    rows = [
        {"protocol.sum": name, "seed": str(seed), "status": "completed", **empty, "auc": value, "error": None}
        for name, values in (("plain", (0.6, 0.7, 0.8)), ("ring", (0.5,)))
        for seed, value in enumerate(values)
    ]
    found = sweep.summary_rows([*rows, {**rows[0], "status": "failed", "auc": 0.1}])
    assert [(row["protocol.sum"], row["summary"], row["seed"]) for row in found] == [
        ("plain", "mean", None),
        ("plain", "deviation", None),
        ("ring", "mean", None),
        ("ring", "deviation", None),
    ]
    assert [row["auc"] for row in found] == [pytest.approx(0.7), pytest.approx(0.1), 0.5, None]
    assert grid(tmp_path / "t", "protocol.sum=plain,ring").summary_rows(rows) == []


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
    axes, measures = (SweepAxis.read("seed=1,2"),), grid(tmp_path, "seed=1,2").measures
    assert read_plot("landmarks:seed", axes, measures) == Plot("landmarks", "seed", None)
    assert read_plot("gap:seed", axes, measures) == Plot("gap", "seed", None)
    assert read_plot("gap:round:seed", axes, measures) == Plot("gap", "round", "seed")
    for text in ("speed:seed", "gap:C", "gap:seed:C", "gap", "rounds:round"):
        with pytest.raises(ScenarioError, match="write it as measure:axis"):
            read_plot(text, axes, measures)


def test_words_stand_apart_and_numbers_on_a_line() -> None:
    rows = [
        {"a": a, "b": b, "seed": "1", "status": "completed", "gap": float(i + 1)}
        for i, (a, b) in enumerate([("x", "1"), ("y", "2")])
    ]
    words, numbers = draw(Plot("gap", "a", None), rows), draw(Plot("gap", "b", None), rows)
    assert words is not None
    assert numbers is not None
    assert "polyline" in numbers.file()
    assert "polyline" not in words.file()
    assert Point({"a.b": "x/y", "c": "1"}).name == "b=x_y,c=1"


def test_a_plot_says_what_it_is_of_in_words_with_units_and_spread() -> None:
    rows = [
        {"protocol.sum": s, "sites": n, "seed": seed, "status": "completed", "payload_bytes": 10**6 * int(n + seed)}
        for s in ("plain", "ring")
        for n in ("3", "5")
        for seed in ("1", "2")
    ]
    chart = draw(Plot("payload_bytes", "sites", "protocol.sum"), rows)
    assert chart is not None
    assert chart.title == "Payload against sites, by protocol.sum"
    assert [key.name for key in chart.keys] == ["plain", "ring"]
    assert len({(key.colour, key.dash) for key in chart.keys}) == 2
    assert "30 MB" in chart.file()
    assert "strokes reach from the least to the largest" in chart.caption
    assert draw(Plot("payload_bytes", "sites", None), []) is None


def test_curves_of_runs_that_differ_can_be_told_apart() -> None:
    runs = [
        {"protocol.sum": s, "landmarks": n, "seed": seed, "curve": [(1, 1.0), (2, 0.1)]}
        for s in ("plain", "ring")
        for n in ("40", "80")
        for seed in ("1", "2")
    ]
    chart = draw_curves(Plot("gap", "round", "protocol.sum"), runs)
    assert chart is not None
    assert [key.name for key in chart.keys] == ["plain, 40", "plain, 80", "ring, 40", "ring, 80"]
    assert len({key.colour for key in chart.keys}) == 4


def test_by_default_numbers_go_across_and_seeds_are_spread() -> None:
    axes = [SweepAxis.read(text) for text in ("protocol.sum=plain,ring", "seed=1,2", "federation.sites=3,5")]
    assert {(plot.axis, plot.group) for plot in default_plots(axes)} == {("federation.sites", "protocol.sum")}
    assert {(plot.axis, plot.group) for plot in default_plots(axes[1:2])} == {("seed", None)}


def test_an_error_that_nobody_foresaw_is_told_and_the_worker_goes_on(tmp_path: Path) -> None:
    with Workers() as workers:
        assert "Error: " in workers.carry_out("quickstart", [], tmp_path / "\0")
        (worker,) = workers._all
        assert "data.source" in workers.carry_out("quickstart", ["data.source=no-such-file"], tmp_path / "b")
        assert workers._all == {worker}


def test_what_a_run_that_failed_says_is_told(tmp_path: Path) -> None:
    told: dict[str, str] = {}
    changes = ("federation.round_timeout_s=0.001",)  # of the dozens of rounds one takes longer on any machine
    sweep = Sweep("quickstart", changes, (SweepAxis.read("algorithm.C=1.0"),), tmp_path)
    sweep.prepare()
    sweep.run(1, lambda point, said: told.update({point.name: said}))
    ((_, said),) = told.items()
    assert "0.001 s" in said
