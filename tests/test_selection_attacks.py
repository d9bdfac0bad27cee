"""What a whole run of choosing columns gives away: rows by differences of support sums and of cuts, and to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithms.attacks.chosen_columns import PartialRows, spread
from scenarios.data import dataset
from scenarios.run import runner
from scenarios.schema import spec

SVM_T = ["algorithm.criteria=svm-t", "algorithm.size=10", "algorithm.select_groups=32", "data.test_fraction=0.0"]
CUTS = "algorithm.select_solver=cutting-plane"
BLIND = "algorithm.select_solver=interior-point"


def audited(name: str, folder: Path, *changes: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """What each party recovered by each attack."""
    scenario, base = spec.read(name, overrides=list(changes))
    folder.mkdir(parents=True)
    rows = dataset.prepare(scenario, base)
    done = runner.run(scenario, rows, folder, lambda federation, faults: None, audit=True)
    assert done.result.error is None, done.traceback
    return {each.parties: {attack.attack: attack for attack in each.attacks} for each in done.result.audit}


@pytest.mark.long
@pytest.mark.parametrize(("least", "solver"), [(0, CUTS), (3, BLIND)])
def test_rows_follow_from_support_sums_unless_they_are_guarded(least: int, solver: str, tmp_path: Path) -> None:
    """The coordinator alone, without a guess: ten rows of wdbc and more, and none where three rows have changed."""
    changes = [*SVM_T, solver, f"algorithm.min_change={least}"]
    party = audited("voted-wrappers", tmp_path / "run", *changes)[("coordinator",)]
    by_support = party["differences of support sums"]
    assert by_support.false_claims == 0
    assert by_support.recovered >= 10 if least == 0 else by_support.recovered == 0
    assert party["cuts of columns"].recovered >= 50 if solver == CUTS else "cuts of columns" not in party


def test_sites_get_no_row_of_others_from_the_choice(tmp_path: Path) -> None:
    small = ["data.source=wine", "data.positive=class_0", "data.folds=2", "algorithm.size=4", "algorithm.landmarks=20"]
    found = audited("rfe", tmp_path / "run", *small, CUTS)
    for parties, attacks in found.items():
        recovered = sum(attack.recovered for attack in attacks.values())
        assert recovered == 0 or "coordinator" in parties
    assert found[("coordinator",)]["cuts of columns"].recovered > 0


def test_rows_that_agree_in_what_is_known_are_one() -> None:
    rows = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, np.nan], [1.0, np.nan, 4.0], [5.0, np.nan, np.nan]])
    found = PartialRows(rows, np.array([1.0, 1.0, 1.0, -1.0])).distinct(np.ones(3))
    np.testing.assert_array_equal(found.rows[0], rows[0])
    assert len(found.rows) == 3
    np.testing.assert_array_equal(spread(np.ones((1, 2)), np.array([0, 2]), 3)[0], [1.0, np.nan, 1.0])
