"""Predicting costs: counts and bytes of numbers of sites that were not run are those that a run has."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedsvm.scenarios import forecast
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.commands import FEDSVM, fedsvm
from tests.conftest import long_but_for, site_processes, wait_until

STEADY = ["--set", "algorithm.cut_groups=1", "--set", "algorithm.tolerance=1e-12"]
"""Has PAN-SVM train for minutes."""


@pytest.mark.parametrize("protocol", long_but_for(["ring", "k-secure", "masked"], "masked"))
def test_rounds_messages_and_bytes_are_those_of_a_run(protocol: str) -> None:
    """Of an algorithm whose rounds do not depend on the rows."""
    changes = [f"protocol.sum={protocol}"]
    runs = [forecast.measure("naive-bayes", sites, changes) for sites in (4, 6, 9)]
    predicted = forecast.predict(runs, forecast.secure_sum_of("naive-bayes", changes), 13)
    found = forecast.measure("naive-bayes", 13, changes).total
    assert predicted.rounds == found.rounds
    assert predicted.hops == pytest.approx(found.hops)
    assert predicted.messages == pytest.approx(found.messages)
    assert predicted.payload_bytes == pytest.approx(found.payload_bytes, rel=1e-9)
    assert predicted.wire_bytes == pytest.approx(found.wire_bytes, rel=0.01)
    assert predicted.control_bytes == pytest.approx(found.control_bytes, rel=0.05), "names have a digit more"
    assert predicted.rounds_s > 0
    assert predicted.launch_s > 0


def test_seconds_include_libraries_and_data_once_and_results_and_report() -> None:
    """The first run of a process loads libraries. Results are longer with more sites, and data are not."""
    loading = 5.0
    first = forecast.measure("naive-bayes", 3, began=time.monotonic() - loading)
    runs = [first, *(forecast.measure("naive-bayes", sites) for sites in (4, 5))]
    assert loading <= first.prepare_s < loading + 60
    assert all(0 < run.prepare_s < first.prepare_s for run in runs[1:])
    assert all(run.end_s > 0 for run in runs)
    predicted = forecast.predict(runs, forecast.secure_sum_of("naive-bayes"), 100)
    assert predicted.prepare_s >= first.prepare_s
    assert predicted.end_s > 0
    parts = predicted.launch_s + predicted.rounds_s + predicted.own_s + predicted.end_s
    assert predicted.seconds == pytest.approx(predicted.prepare_s + parts)


def test_wait_of_the_first_run_is_not_taken_for_seconds_of_a_site() -> None:
    """The first run of a process waits for the server that its sites are forked from, and prepares the report."""
    measured = [forecast.measure("naive-bayes", sites) for sites in (3, 4, 5)]
    first, *_ = runs = [replace(run, launch_s=0.01 + 0.003 * run.sites, end_s=0.02 * run.sites) for run in measured]
    runs[0] = replace(first, launch_s=first.launch_s + 0.3, end_s=first.end_s + 0.1)
    predicted = forecast.predict(runs, forecast.secure_sum_of("naive-bayes"), 100)
    assert predicted.launch_s == pytest.approx(0.31)
    assert predicted.prepare_s == pytest.approx(max(run.prepare_s for run in runs) + 0.3)
    assert predicted.end_s == pytest.approx(2.1)


@pytest.mark.long
def test_rounds_messages_and_bytes_of_a_committee_are_those_of_a_run() -> None:
    """Hops vary with the members that are drawn."""
    changes = ["algorithm.name=least-squares", "algorithm.features=identity", "algorithm.kernel=linear"]
    changes += ["algorithm.masking=committee", "data.statistics_privacy=0"]
    runs = [forecast.measure("naive-bayes", sites, changes) for sites in (4, 6, 9)]
    predicted = forecast.predict(runs, forecast.secure_sum_of("naive-bayes", changes), 13)
    found = forecast.measure("naive-bayes", 13, changes).total
    assert predicted.rounds == found.rounds
    assert predicted.messages == pytest.approx(found.messages)
    assert predicted.payload_bytes == pytest.approx(found.payload_bytes, rel=1e-9)
    # names have a digit more, and the connections that sites make depend on the members that are drawn
    assert predicted.wire_bytes == pytest.approx(found.wire_bytes, rel=0.1)
    assert predicted.hops == pytest.approx(found.hops, rel=0.25)
    assert predicted.rounds_s > 0


def test_too_few_runs_and_too_few_sites_are_refused() -> None:
    with pytest.raises(ScenarioError, match="three different numbers of sites"):
        forecast.check(100, [5, 5, 20])
    with pytest.raises(ScenarioError, match="must exceed 20, the sites of the largest run, got 10"):
        forecast.check(10, [3, 5, 20])


def test_the_command_says_what_was_measured_and_what_is_predicted(tmp_path: Path) -> None:
    done = fedsvm("predict-cost", "naive-bayes", "--sites", "1000", "--measure", "3,4,5", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [
        ["measured", "3"],
        ["measured", "4"],
        ["measured", "5"],
        ["predicted", "1000"],
    ]
    assert fedsvm("predict-cost", "naive-bayes", "--sites", "1000", "--measure", "3,x", folder=tmp_path).returncode == 2


def test_an_interrupted_prediction_leaves_nothing(tmp_path: Path, temporary_folder: Path) -> None:
    words = [str(FEDSVM), "predict-cost", "quickstart", "--sites", "100", "--measure", "4,8,12", *STEADY]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path) as process:
        wait_until(lambda: len(site_processes(temporary_folder)) > 4, 60)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "fedsvm: Interrupted; nothing is kept of what was measured.\n")
    wait_until(lambda: not site_processes(temporary_folder))
    wait_until(lambda: not list(temporary_folder.iterdir()))
