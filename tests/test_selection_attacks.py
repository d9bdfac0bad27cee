"""The rows that a whole run of selecting columns reveals: by differences of support sums and of cuts, and to whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.attacks.chosen_columns import PartialRows, spread
from tests.run_results import simulate

SVM_T = ["algorithm.criteria=svm-t", "algorithm.size=10", "algorithm.select_groups=32", "data.test_fraction=0.0"]
SVM_T += ["algorithm.landmarks=10"]  # of the model on the columns that were chosen, which is not what is attacked
COLUMNS = [f"{kind}-{what}" for kind in ("mean", "worst") for what in ("radius", "texture", "perimeter", "area")]
COLUMNS += [f"{what}-error" for what in ("radius", "texture", "perimeter", "area", "smoothness", "compactness")]
CUTS = "algorithm.select_solver=cutting-plane"
BLIND = "algorithm.select_solver=interior-point"


def audited(name: str, folder: Path, *changes: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return what each party recovered by each attack."""
    done = simulate(name, folder, changes, audit=True)
    assert done.result.error is None, done.traceback
    return {each.parties: {attack.attack: attack for attack in each.attacks} for each in done.result.audit}


@pytest.mark.long
def test_rows_follow_from_support_sums_and_from_cuts(tmp_path: Path) -> None:
    """The coordinator alone, without a guess: a dozen rows of wdbc by the first, and a hundred by the second."""
    party = audited("voted-wrappers", tmp_path / "run", *SVM_T, CUTS, "algorithm.min_change=0")[("coordinator",)]
    by_support = party["differences of support sums"]
    assert (by_support.recovered >= 12, by_support.false_claims) == (True, 0)
    assert party["cuts of columns"].recovered >= 100


@pytest.mark.long
def test_no_row_follows_where_three_have_changed_and_no_cut_is_shown(tmp_path: Path) -> None:
    """By the guard, and blindly. The other columns are left out for the time it takes."""
    fewer = f"data.ignore={json.dumps(COLUMNS)}"
    party = audited("voted-wrappers", tmp_path / "run", *SVM_T, BLIND, fewer)[("coordinator",)]
    by_support = party["differences of support sums"]
    assert (by_support.claimed, by_support.recovered) == (0, 0)
    assert "cuts of columns" not in party


@pytest.mark.long
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


@pytest.mark.long
def test_the_models_of_pan_svm_wrappers_name_their_rows(tmp_path: Path) -> None:
    """To the coordinator with a list of the records, most rows at the margin or within, and none that is not there."""
    small = ["data.source=wine", "data.positive=class_0", "algorithm.landmarks=40", "algorithm.wrapper=pan-svm"]
    small += ['collusion={sites=[],coordinator=true,candidates="source"}', "data.test_fraction=0.3"]
    done = simulate("voted-wrappers", tmp_path / "run", small)
    assert done.result.error is None, done.traceback
    (alone,) = done.result.audit
    found = [each for each in alone.attacks if each.attack == "support rows of wrappers"]
    counts = sum(each.recovered for each in found), sum(each.false_claims for each in found)
    auc = max(each.auc for each in found if each.auc is not None)
    assert (counts[0] >= 10, counts[1], auc > 0.8) == (True, 0, True), (counts, auc)
