"""Elastic nets over sites: the columns and the objective of the pooled problem, certified."""

from __future__ import annotations

from pathlib import Path

import clarabel
import numpy as np
import pytest
from scipy import sparse

from tests.column_choice import choose, standardised
from tests.commands import fedsvm
from tests.test_runs import run

TIGHT = ("algorithm.select_tolerance=1e-7", "algorithm.select_groups=32")


def pooled(source: str, l1: float, l2: float, C: float) -> tuple[set[str], float]:
    """The columns whose weights are not zero, and the optimum, by a quadratic programme with a slack for each row."""
    train, names = standardised(source)
    n, p = train.rows.shape
    q = np.concatenate([np.zeros(p + 1), np.full(p, l1), np.full(n, C)])
    P = sparse.diags_array(np.concatenate([np.full(p, l2), np.zeros(1 + p + n)])).tocsc()
    signed = train.labels[:, None] * np.column_stack([train.rows, np.ones(n)])
    rows = [
        sparse.hstack([sparse.csr_array(-signed), sparse.csr_array((n, p)), -sparse.eye_array(n)]),
        sparse.hstack([sparse.csr_array((n, p + 1 + p)), -sparse.eye_array(n)]),
        sparse.hstack([sparse.eye_array(p), sparse.csr_array((p, 1)), -sparse.eye_array(p), sparse.csr_array((p, n))]),
        sparse.hstack([-sparse.eye_array(p), sparse.csr_array((p, 1)), -sparse.eye_array(p), sparse.csr_array((p, n))]),
    ]
    right = np.concatenate([-np.ones(n), np.zeros(n + 2 * p)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    cones = [clarabel.NonnegativeConeT(len(right))]
    found = clarabel.DefaultSolver(P, q, sparse.vstack(rows).tocsc(), right, cones, settings).solve()
    w = np.array(found.x)[:p]
    return {name for name, weight in zip(names, w, strict=True) if abs(weight) > 1e-6}, float(found.obj_val)


@pytest.mark.parametrize("l1", [20.0, 5.0])
def test_the_columns_and_the_objective_are_those_of_the_pooled_problem(l1: float, tmp_path: Path) -> None:
    result = choose(tmp_path / "run", "wdbc", "sparse-svm", f"algorithm.l1={l1}", *TIGHT).result
    expected, optimum = pooled("wdbc", l1, 0.01, 1.0)
    ranking, spent = result["selection"]["ranking"], result["cost"]["by_phase"]["select"]
    assert set(ranking["selected"]) == set(ranking["columns"][: len(expected)]) == expected
    assert result["model"]["figures"]["sparse_objective"] == pytest.approx(optimum, rel=1e-6)
    assert spent["wire_bytes"] == spent["predicted_wire_bytes"]
    assert spent["rounds"] <= 60


@pytest.mark.long
def test_colon_takes_fifty_rounds(tmp_path: Path, data_folder: Path) -> None:
    """2,000 genes over five sites, from the first round to the trained model."""
    changes = ["algorithm.l1=0.3", "algorithm.select_penalty=0.05", "algorithm.select_groups=8"]
    changes += ["algorithm.solver=cutting-plane"]
    plain = ["algorithm.kernel=linear", "algorithm.features=identity", "algorithm.C=0.05", "algorithm.landmarks=0.25"]
    result = choose(tmp_path / "run", "colon", "sparse-svm", *changes, *plain).result
    expected, _ = pooled("colon", 0.3, 0.01, 0.05)
    assert set(result["selection"]["ranking"]["selected"]) == expected
    assert 10 <= len(expected) <= 50
    assert result["cost"]["rounds"] <= 50
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"] < 12_000_000


@pytest.mark.long
def test_a_path_has_a_curve_and_half_samples_a_say(tmp_path: Path) -> None:
    changes = ["algorithm.path_steps=4", "algorithm.stability=3", "algorithm.inner_folds=3"]
    result = choose(tmp_path / "run", "wine", "sparse-svm", *changes).result
    ranking = result["selection"]["ranking"]
    assert len(ranking["curve"]) == 4
    assert len(ranking["stability"]) == len(ranking["columns"]) == 13
    assert max(ranking["stability"]) > 0.5
    assert all(0 <= share <= 1 for share in ranking["stability"])
    assert result["selection"]["readings"].keys() == {"whole"}
    assert len(ranking["selected"]) in [point["size"] for point in ranking["curve"]]


@pytest.mark.long
def test_test_rows_judge_every_size_and_new_rows_are_predicted(tmp_path: Path) -> None:
    small = ["data.source=wine", "data.positive=class_0", "data.test_fraction=0.3", "algorithm.l1=path"]
    result = run(
        "sparse-genes", tmp_path / "run", *small, "algorithm.path_steps=3", "algorithm.select_penalty=1"
    ).result
    assert result["metrics"]["accuracy"] > 0.8
    assert result["selection"]["readings"].keys() == {"nested", "separate", "whole"}
    predicted = fedsvm("predict", tmp_path / "run", "wine", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 179)


def test_a_site_that_is_killed_is_done_without(tmp_path: Path) -> None:
    kill = "faults=[{kind='kill',site=2,phase='select',round=9}]"
    result = choose(tmp_path / "run", "wine", "sparse-svm", kill, "algorithm.l1=5.0").result
    assert result["model"]["sites"] == ["site-1", "site-3", "site-4", "site-5"]


def test_rows_that_cuts_show_are_counted(tmp_path: Path) -> None:
    result = choose(tmp_path / "run", "wine", "sparse-svm", "algorithm.l1=5.0", "algorithm.select_groups=32").result
    kinds = {each["kind"] for each in result["disclosures"] if each["step"] == "subset_cuts"}
    assert {"single-row", "row-difference"} & kinds


def test_matrices_are_refused(tmp_path: Path) -> None:
    done = fedsvm("run", "sparse-genes", "--set", "algorithm.select_solver=interior-point", folder=tmp_path)
    assert done.returncode == 2
    assert "algorithm.select_solver" in done.stderr
