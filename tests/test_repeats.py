"""Repeats of cross-validation: every row is tested on once in each, in other company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm import ScenarioError, run
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.schema import spec

CHANGES: dict[str, Any] = {
    "data.source": "wine",
    "data.positive": "class_1",
    "data.scale": "standard",
    "data.test_fraction": 0,
    "data.folds": 3,
    "data.repeats": 2,
    "algorithm.landmarks": 20,
    "algorithm.tolerance": 1e-3,
}


def test_each_repeat_tests_every_row_once() -> None:
    prepared = dataset.prepare(*spec.read("quickstart", changes=CHANGES))
    once = dataset.prepare(*spec.read("quickstart", changes={**CHANGES, "data.repeats": 1}))
    assert len(prepared.tests) == 6
    for repeat in range(2):
        tested = np.concatenate(prepared.tests[3 * repeat : 3 * repeat + 3])
        assert sorted(tested.tolist()) == list(range(178))
    assert all(map(np.array_equal, prepared.tests[:3], once.tests))
    assert not any(np.array_equal(one, other) for one in prepared.tests[:3] for other in prepared.tests[3:])
    for fold, test in enumerate(prepared.tests):
        assert not set(test) & set(prepared.training(fold, prepared.names))
        assert len(test) + len(prepared.training(fold, prepared.names)) == 178


@pytest.mark.parametrize("name", ["quickstart", "dpp-svm-tic-tac-toe"])
def test_a_run_has_the_mean_and_the_deviation_over_all_of_them(name: str, tmp_path: Path) -> None:
    changes = CHANGES if name == "quickstart" else {"data.test_fraction": 0, "data.folds": 2, "data.repeats": 2}
    if name != "quickstart":
        changes |= {"data.source": "wine", "data.positive": "class_1"}
    result = run(name, changes=changes, out=tmp_path / "run")
    assert result.status == "completed", result.error
    assert result.metrics is not None and result.centralised is not None
    models = changes["data.folds"] * 2
    assert len(result.metrics.folds) == len(result.centralised.folds) == models
    accuracies = [fold.accuracy for fold in result.metrics.folds]
    assert result.metrics.deviations["accuracy"] == pytest.approx(np.std(accuracies, ddof=1))
    assert result.metrics.confusion is not None
    page = (tmp_path / "run" / "report.html").read_text()
    told = "repeat 2, fold 1"
    assert (f"{told} after" in page) == (name == "quickstart")
    assert f"</svg>{told}</button>" in page
    assert f"<td>{told}</td>" in page
    assert "fold 5" not in page
    if name == "quickstart":
        assert "a line for each model of 2 repeats of 3 folds" in page
    assert result.metrics.confusion.true_positive + result.metrics.confusion.false_negative == 2 * 71


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data.folds": 10, "data.repeats": 20}, "sums over 200 folds are 181 independent ones over 178 rows"),
        ({"data.repeats": 400}, "folds times repeats must be 1000 or less, got 1200"),
    ],
)
def test_repeats_that_would_tell_rows_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        dataset.prepare(*spec.read("quickstart", changes={**CHANGES, **changes}))
    assert says in caught.value.problems[0]
    with pytest.raises(ScenarioError, match="repeats apply to cross-validation; set folds too"):
        spec.read("quickstart", changes={"data.repeats": 2})
