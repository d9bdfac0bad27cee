"""The table of methods beside PAN-SVM: every line is a scenario that is valid, and a table has a line for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.comparators import DATA, Line, draw, methods, scenario_of, table
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("name", DATA)
def test_every_method_is_a_valid_scenario(name: str, listed: bool) -> None:
    _, svm, landmarks = DATA[name]
    scenarios = [scenario_of(name, algorithm, listed=listed) for _, algorithm in methods(svm, landmarks)]
    assert len({str(scenario.algorithm) for scenario in scenarios}) == len(scenarios) == 8


def test_a_coordinator_with_a_list_is_audited(tmp_path: Path) -> None:
    scenario = scenario_of("wdbc", {"name": "least-squares", "features": "fourier", "gamma": 0.03}, listed=True)
    tmp_path.joinpath("run").mkdir()
    rows = dataset.prepare(scenario, Path())
    result = runner.run(scenario, rows, tmp_path / "run").result
    assert (result.audit[0].recovered, result.audit[0].rows) == (455, 455)


def test_rows_are_drawn_of_what_is_too_large(data_folder: Path, tmp_path: Path) -> None:
    assert data_folder
    draw(tmp_path)
    scenario = scenario_of("a9a, 6,000 rows", {"name": "naive-bayes"}, listed=False)
    rows = dataset.prepare(scenario, tmp_path)
    assert len(rows.rows.numeric) == 6_000
    assert rows.rows.numeric.shape[1] == 123
    assert 0.2 < np.mean(rows.rows.labels > 0) < 0.28


def test_what_there_is_not_is_a_dash() -> None:
    line = Line("wdbc", "a vote", 0.96, None, None, 13, 360_000, 0.3, 0, 0, 455)
    assert table([line]).splitlines()[-1] == "| wdbc | a vote | 96.0 % | - | - | 13 | 0.36 MB | 0.3 | 0 of 455 |"
