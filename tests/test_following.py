"""Following a run while it goes on, and finding it again: the log as it happens, progress, runs, a tracker."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from fedsvm import RunProgress, run
from fedsvm.scenarios import runs
from fedsvm.scenarios.console import print_table
from fedsvm.scenarios.run.log import RunLog
from fedsvm.scenarios.run.result import read_result
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.commands import FEDSVM, fedsvm
from tests.conftest import site_processes, wait_until

FAST = {"compare.centralised": False, "algorithm.landmarks": 20}
WORDS = [word for change in FAST.items() for word in ("--set", f"{change[0]}={str(change[1]).lower()}")]


def events(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_the_log_has_every_round_when_progress_is_told(tmp_path: Path) -> None:
    seen: list[tuple[RunProgress, list[dict[str, object]]]] = []

    def look(progress: RunProgress) -> None:
        if progress.round:
            seen.append((progress, events(tmp_path / "run")))

    result = run("quickstart", changes=FAST, out=tmp_path / "run", progress=look)
    for progress, logged in seen:
        rounds = [event["round"] for event in logged if event["event"] == "round"]
        assert rounds == list(range(1, progress.round + 1))
    last = seen[-1][0]
    assert (last.phase, last.round) == ("evaluate", result.cost.rounds if result.cost else 0)
    assert last.sites == tuple(site.name for site in result.sites)
    assert last.figures["gap"] == (result.model.gap if result.model else None)
    assert last.payload_bytes > 0
    assert 0 < last.seconds < 60
    assert (tmp_path / "run" / "report.html").is_file()


def test_what_a_callback_raises_is_the_error_of_the_run(tmp_path: Path) -> None:
    def fail(progress: RunProgress) -> None:
        raise ValueError("the callback had enough")

    result = run("quickstart", changes=FAST, out=tmp_path / "run", progress=fail)
    assert result.status == "failed"
    assert "the callback had enough" in str(result.error)


def test_a_run_that_is_killed_leaves_its_log(tmp_path: Path, temporary_folder: Path) -> None:
    folder = tmp_path / "run"
    with subprocess.Popen([str(FEDSVM), "run", "quickstart", "--quiet", "--out", str(folder)]) as process:
        wait_until(lambda: (folder / "log.jsonl").is_file() and "figures" in (folder / "log.jsonl").read_text())
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert any(event["event"] == "figures" for event in events(folder))
    assert [found.status for found in runs.find(tmp_path)] == ["unfinished"]
    wait_until(lambda: not site_processes(temporary_folder))


def test_a_run_finds_nothing_of_the_one_before(tmp_path: Path, temporary_folder: Path) -> None:
    """The process that sites are forked from is the same; transcripts of colluders are of one run."""
    colluding = {**FAST, "collusion.sites": [1], "collusion.coordinator": True}
    for number in (1, 2):
        assert run("quickstart", changes=colluding, out=tmp_path / str(number)).error is None
    wait_until(lambda: not site_processes(temporary_folder))


def test_each_fold_ends_in_the_log_within_the_tolerance(tmp_path: Path) -> None:
    changes = {**FAST, "data.folds": 3, "algorithm.tolerance": 1e-3}
    run("wdbc-10-fold", changes=changes, out=tmp_path / "run")
    last = [event for event in events(tmp_path / "run") if "fold" in event]
    assert [event["fold"] for event in last] == [0, 1, 2]
    assert all(isinstance(event["gap"], float) and event["gap"] <= 1e-3 for event in last)


def test_a_log_that_could_not_be_written_is_written_in_the_end(tmp_path: Path) -> None:
    log, lines = RunLog(tmp_path / "later" / "log.jsonl"), [{"event": "round", "round": 1}]
    log.follow(lines)
    (tmp_path / "later").mkdir()
    log.close([*lines, {"event": "round", "round": 2}])
    assert [event["round"] for event in events(tmp_path / "later")] == [1, 2]
    with pytest.raises(OSError, match="No such file"):
        RunLog(tmp_path / "gone" / "log.jsonl").close(lines)


# Runs.


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that completed, one that failed, one that was killed, and something else."""
    folder = tmp_path_factory.mktemp("found")
    run("quickstart", changes=FAST, out=folder / "b-good")
    kill = [{"kind": "kill", "site": 1, "phase": "setup", "round": 2}]
    changes = {**FAST, "faults": kill, "federation.on_dropout": "abort", "protocol.sum": "plain"}
    run("quickstart", changes=changes, out=folder / "a-lost")
    (folder / "killed").mkdir()
    (folder / "killed" / "log.jsonl").write_text("")
    (folder / "notes").mkdir()
    return folder


def names(found: list[runs.Found]) -> list[str]:
    return [each.folder.name for each in found]


def test_runs_are_found_sorted_and_filtered(two_runs: Path) -> None:
    found = runs.find(two_runs)
    assert names(found) == ["a-lost", "b-good", "killed"]
    assert names(runs.sort_runs(found, "date")) == ["b-good", "a-lost", "killed"]
    assert names(runs.sort_runs(found, "accuracy"))[0] == "b-good"
    assert names(runs.sort_runs(found, "wire")) == ["a-lost", "b-good", "killed"]
    assert names(runs.filter_runs(found, ["status=failed"])) == ["a-lost"]
    assert names(runs.filter_runs(found, ["protocol.sum=ring", "compare.centralised=false"])) == ["b-good"]
    with pytest.raises(ScenarioError, match="must be one of run, date, accuracy"):
        runs.sort_runs(found, "speed")
    with pytest.raises(ScenarioError, match="write it as key=value"):
        runs.filter_runs(found, ["failed"])
    assert runs.filter_runs(found, ["algorithm.epsilon=1"]) == []  # of another algorithm
    assert runs.filter_runs([], ["protocol.sum=ring"]) == []
    for key, meant in {"protocol.summ": "protocol.sum", "landmarks": "algorithm.landmarks", "stauts": "status"}.items():
        with pytest.raises(ScenarioError, match=rf"there is no key '{key}'; .* Did you mean '{meant}'\?"):
            runs.filter_runs(found, [f"{key}=1"])
    with pytest.raises(
        ScenarioError,
        match=r"no key 'foo'; use run, status or a key of the scenario with its table, such as protocol\.sum\.$",
    ):
        runs.filter_runs(found, ["foo=1"])
    with pytest.raises(ScenarioError, match="name the folder of your runs by --in"):
        runs.find(two_runs / "nowhere")


def test_the_command_lists_runs(two_runs: Path) -> None:
    done = fedsvm("runs", "--in", two_runs, "--sort", "run", "--reverse", folder=two_runs)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][:3] == ["run", "date", "status"]
    assert [line[0] for line in lines[1:]] == ["killed", "b-good", "a-lost"]
    metrics = read_result(two_runs / "b-good").metrics
    assert metrics is not None
    assert f"{100 * metrics.accuracy:.2f}" in lines[2]


def test_runs_are_deleted_all_or_none(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text("")
    (tmp_path / "latest").symlink_to("two")
    with pytest.raises(ScenarioError) as caught:
        runs.delete(tmp_path, ["one", "tow"], unfinished=False)
    assert len(caught.value.problems) == 2
    assert "has no run 'tow'. Did you mean 'two'?" in caught.value.problems[1]
    assert "add --unfinished" in caught.value.problems[0]
    runs.delete(tmp_path, ["two"], unfinished=True)
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    with pytest.raises(ScenarioError, match="has no run"):
        runs.delete(tmp_path, ["../" + tmp_path.name + "/one"], unfinished=True)


def test_the_last_run_of_a_folder_is_linked(tmp_path: Path) -> None:
    for _ in range(2):
        done = fedsvm("run", "quickstart", *WORDS, "--quiet", folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    folders = sorted(path for path in (tmp_path / "runs").iterdir() if not path.is_symlink())
    assert len(folders) == 2
    assert (tmp_path / "runs" / "latest").resolve() == folders[-1]
    result = read_result(tmp_path / "runs" / "latest")
    assert result.environment.command.startswith("fedsvm run quickstart --set compare.centralised=false")
    assert fedsvm("report", "runs/latest", folder=tmp_path).stdout == "runs/latest/report.html\n"


def test_a_table_in_a_pipe_is_neither_cut_nor_padded(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("a" * 70, "b" * 70), ("c", "d")])
    assert capsys.readouterr().out == f"{'a' * 70}  {'b' * 70}\n{'c':70}  d\n"


# Trackers.


@pytest.mark.long
def test_a_run_is_read_back_from_the_file_store_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = fedsvm("run", "quickstart", *WORDS, "--quiet", "--track", "mlflow", "--out", "run", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("quickstart")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    result = read_result(tmp_path / "run")
    assert result.metrics is not None
    assert result.cost is not None
    assert (found.info.status, found.info.run_name) == ("FINISHED", "run")
    assert found.data.params["algorithm.landmarks"] == "20"
    assert found.data.params["protocol.sum"] == "ring"
    assert found.data.metrics["final.accuracy"] == result.metrics.accuracy
    assert found.data.metrics["final.wire_bytes"] == result.cost.wire_bytes
    gaps = {entry.step: entry.value for entry in client.get_metric_history(found.info.run_id, "gap")}
    logged = {event["round"]: event["gap"] for event in events(tmp_path / "run") if event["event"] == "figures"}
    assert gaps == logged
    artefacts = {artefact.path for artefact in client.list_artifacts(found.info.run_id)}
    assert {"result.json", "report.html", "model.npz"} <= artefacts


def test_another_tracker_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = fedsvm("run", "quickstart", "--track", "wandb", folder=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert done.stderr == "fedsvm: --track: must be mlflow, got 'wandb'.\n"
