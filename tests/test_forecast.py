"""Predicting costs: counts and bytes of numbers of sites that were not run are those that a run has."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios import forecast
from scenarios.schema.errors import ScenarioError
from tests.commands import fedsvm
from tests.conftest import long_but_for


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


def test_too_few_runs_and_too_few_sites_are_refused() -> None:
    with pytest.raises(ScenarioError, match="three different numbers of sites"):
        forecast.check(100, [5, 5, 20])
    with pytest.raises(ScenarioError, match="10 are not more than the 20 of the largest run; run it"):
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
