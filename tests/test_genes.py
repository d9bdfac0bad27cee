"""Thousands of columns of few rows, end to end over five sites; and what choosing among them makes of no signal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.column_choice import choose
from tests.test_runs import run

LINEAR = ("algorithm.kernel=linear", "algorithm.features=identity", "algorithm.landmarks=0.25")
CUTS = ("algorithm.select_solver=cutting-plane",)


def test_colon_is_ranked_in_two_hundred_rounds(tmp_path: Path, data_folder: Path) -> None:
    """2,000 genes, from the first round to the trained model."""
    result = run("rfe-genes", tmp_path / "run").result
    ranking = result["selection"]["ranking"]
    assert result["cost"]["rounds"] <= 200
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"] < 10_000_000
    assert [len(step["removed"]) for step in ranking["steps"]][:4] == [1000, 500, 250, 125]
    assert sum(bool(step["certain"]) for step in ranking["steps"]) >= 6
    assert result["selection"]["equal_positions"] >= 1900
    assert len(ranking["selected"]) == 20


@pytest.mark.long
def test_leukemia_goes_by_halves(tmp_path: Path, data_folder: Path) -> None:
    """7,129 genes."""
    changes = [*CUTS, *LINEAR, "algorithm.select_penalty=0.014", "algorithm.C=0.014", "algorithm.size=20"]
    result = choose(tmp_path / "run", "leukemia", "rfe", *changes, "algorithm.remove=half").result
    steps = result["selection"]["ranking"]["steps"]
    assert [len(step["removed"]) for step in steps][:4] == [3565, 1782, 891, 446]
    assert len(steps) == 12
    assert result["cost"]["rounds"] <= 300
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]


@pytest.mark.long
def test_the_best_size_on_the_rows_that_chose_is_right_of_labels_dealt_at_random(
    tmp_path: Path, data_folder: Path
) -> None:
    result = run("selection-bias", tmp_path / "run").result
    readings = result["selection"]["readings"]
    assert readings["whole"]["accuracy"] >= 0.95
    assert readings["nested"]["accuracy"] <= 0.70
    assert any("Labels were dealt to other rows at random" in each for each in result["warnings"])


def test_genes_are_voted_on_in_halves_and_no_row_follows(tmp_path: Path, data_folder: Path) -> None:
    """The guard and halving together, where there are few rows."""
    changes = [*CUTS, *LINEAR, "algorithm.select_penalty=0.05", "algorithm.size=20", "algorithm.remove=half"]
    result = choose(tmp_path / "run", "colon", "voted-wrappers", *changes, "algorithm.inner_folds=3").result
    assert result["selection"]["ranking"]["rows_determined"] == 0
