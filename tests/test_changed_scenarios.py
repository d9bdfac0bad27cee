"""Keys removed from the command line, settings of another algorithm, lists as JSON, and estimates of the time left."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedsvm.scenarios.data import downloads
from fedsvm.scenarios.figures import TimeLeft, duration
from fedsvm.scenarios.hosts import host_scenario
from fedsvm.scenarios.report.live import EtaEstimator
from fedsvm.scenarios.reproduction import plan
from fedsvm.scenarios.reproduction.entry_selection import EntrySelection
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.sweep import grid
from tests.commands import fedsvm

TEXT = """
[data]
source = "wdbc"
test_fraction = 0.2
[algorithm]
name = "pan-svm"
kernel = "rbf"
landmarks = 20
C = 2.0
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    target = tmp_path / "my.toml"
    target.write_text(TEXT)
    return target


def test_a_key_can_be_removed_from_the_command_line(scenario: Path) -> None:
    with pytest.raises(ScenarioError, match="folds and test_fraction exclude each other"):
        spec.read(scenario, overrides=["data.folds=5"])
    chosen, _ = spec.read(scenario, overrides=["data.folds=5"], unset=["data.test_fraction"])
    assert chosen.data.folds == 5
    with pytest.raises(ScenarioError, match=r"--unset data\.foldz: the scenario does not set this key"):
        spec.read(scenario, unset=["data.foldz"])


@pytest.mark.parametrize(
    "words",
    [
        ["explain"],
        ["policy", "check", "--policy", "policy.toml"],
        ["predict-cost", "--sites", "90"],
        ["sweep", "--vary", "algorithm.C=1.0", "--out", "sweep"],
    ],
)
def test_every_command_with_set_removes_keys(words: list[str], scenario: Path) -> None:
    folder = scenario.parent
    (folder / "policy.toml").write_text("")
    done = fedsvm(*words, "my.toml", "--unset", "data.foldz", folder=folder)
    assert done.returncode == 2
    assert "--unset data.foldz: the scenario does not set this key" in " ".join(done.stderr.split())


def test_a_run_across_hosts_removes_keys(scenario: Path) -> None:
    sites = ["east", "north", "west"]
    with pytest.raises(ScenarioError, match="source"):
        host_scenario.read(scenario, ["data.positive=ill"], sites)
    chosen = host_scenario.read(
        scenario, ["data.positive=ill"], sites, ["data.source", "data.test_fraction", "algorithm.C"]
    )
    assert chosen.federation.site_names == sites
    assert chosen.algorithm.settings.C == 1.0


def test_a_sweep_runs_without_the_removed_keys(scenario: Path) -> None:
    axes = (grid.SweepAxis.read("seed=1,2"),)
    sweep = grid.Sweep(str(scenario), ("data.folds=5",), axes, scenario.parent / "s", ("data.test_fraction",))
    sweep.check()
    with pytest.raises(ScenarioError, match="folds and test_fraction exclude each other"):
        replace(sweep, unset=()).check()


def test_another_algorithm_drops_the_settings_that_it_does_not_have(scenario: Path) -> None:
    changes = ["algorithm.name=naive-bayes"]
    assert {"kernel", "landmarks"} <= set(spec.removed_settings(scenario, changes))
    assert spec.read(scenario, overrides=changes)[0].algorithm.name == "naive-bayes"
    assert spec.removed_settings(scenario, ["algorithm.C=1"]) == []
    another = ["algorithm.name=least-squares", "compare.baselines=false"]
    chosen, _ = spec.read("hybrid-stand-in", overrides=another, unset=["data.public"])
    assert chosen.algorithm.settings.features == "landmarks"  # and not 60, as the file has for hybrid-svm
    assert "features" in spec.removed_settings("hybrid-stand-in", ["algorithm.name=least-squares"])
    assert spec.removed_settings(scenario, changes, ["algorithm.kernel", "algorithm.landmarks", "algorithm.C"]) == []
    with pytest.raises(ScenarioError, match=r"algorithm\.kernel: unknown key"):
        spec.read(scenario, overrides=[*changes, "algorithm.kernel=rbf"])


def test_lists_are_printed_as_json(tmp_path: Path) -> None:
    rows = "".join(f"{row % 12},{'ab'[row % 2]}\n" for row in range(60))
    (tmp_path / "p.csv").write_text(f"age,label\n{rows}")
    done = fedsvm("data", "describe", "p.csv", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 60
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "log.jsonl").write_text("")
    done = fedsvm("runs", "--json", folder=tmp_path)
    (one,) = json.loads(done.stdout)
    assert (one["run"], one["status"], one["accuracy"]) == ("one", "unfinished", None)


def test_plots_take_the_names_of_the_printed_table() -> None:
    axes = (grid.SweepAxis.read("federation.sites=3,5"), grid.SweepAxis.read("algorithm.C=1,10"))
    plot = grid.read_plot("total:sites:C", axes, ("accuracy", "payload_bytes", "total_s"))
    assert (plot.measure, plot.axis, plot.group) == ("total_s", "federation.sites", "algorithm.C")


def test_the_time_left_follows_from_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    left = TimeLeft(4, _began=100.0)
    now[0] = 130.0
    assert left.after_one() == "; about 90 s left"
    assert [duration(each) for each in (8, 300, 8000)] == ["8 s", "5 min", "2 h 13 min"]
    left.done = 3
    assert left.after_one() == ""


def test_an_audit_says_how_long_it_still_takes() -> None:
    ahead = EtaEstimator(1, None)
    ahead.note_audit(10.0, 0, 0)
    assert ahead.seconds_left(12.0) is None
    ahead.note_audit(20.0, 2, 10)
    assert ahead.seconds_left(20.0) == pytest.approx(40.0)
    assert ahead.seconds_left(23.0) == pytest.approx(37.0)
    assert ahead.seconds_left(30.0) == pytest.approx(70.0)  # the current coalition is slower than the first two
    ahead.note_audit(60.0, 9, 10)
    assert ahead.seconds_left(90.0) is None


def test_an_entry_of_which_nothing_can_be_had_names_the_origin_of_its_files_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDSVM_DATA", str(tmp_path))
    chosen = EntrySelection.of(["lu-3.2"], tmp_path / "out", full=False)
    assert not plan.needed_runs([cell for each in chosen.ids for cell in plan.cells(chosen.known[each][1], full=False)])
    assert chosen.reproduce(1)
    said = capsys.readouterr().err
    assert "splice_train.csv: UCI/Delve Splice" in said
    assert "Nothing could be measured here of lu-3.2" in said


def test_every_file_of_a_paper_has_an_origin() -> None:
    for name in ("colon", "leukemia", "lung_cancer", "a9a_train", "pima_diabetes"):
        assert "http" in downloads.origin(name)
