"""Lattice reduction on the numbers opened behind a committee, with their noise and without."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

from fedsvm.algorithms.attacks.opened_scalars import NOT_INSTALLED, OpenedEquations
from fedsvm.algorithms.optimization import blind_path
from fedsvm.federation.arrays import FloatArray
from tests.small_runs import run

FEW = 60


def knapsack(candidates: int, numbers: int, noise: float, *, faint: int = 0) -> tuple[OpenedEquations, FloatArray]:
    random = np.random.default_rng(4)
    parts, there = random.uniform(0, 10, size=(numbers, candidates)), random.integers(0, 2, size=candidates)
    parts[:, :faint] *= 1e-6
    totals = parts @ there + noise * random.uniform(-1, 1, size=numbers)
    known = OpenedEquations(parts, totals, np.full(numbers, noise), np.abs(parts).sum(axis=1))
    return known, there.astype(np.float64)


def test_exact_sums_of_known_numbers_tell_who_is_in_them() -> None:
    equations, there = knapsack(60, 12, 0.0)
    assert equations.decide().tolist() == there.tolist()


def test_noise_as_large_as_the_parts_leaves_all_undecided() -> None:
    equations, _ = knapsack(60, 12, 30.0)
    assert np.isnan(equations.decide()).all()


def test_only_candidates_whose_parts_noise_hides_stay_undecided() -> None:
    equations, there = knapsack(30, 12, 1e-3, faint=10)
    decided = equations.decide()
    told = ~np.isnan(decided)
    assert told.tolist() == [False] * 10 + [True] * 20
    assert (decided[told] == there[told]).all()


def colluding(folder: Path, *changes: str) -> list[dict[str, Any]]:
    """Return the attacks of a coordinator and a site of three that know all rows of a small table."""
    rows = load_wine()
    chosen = np.random.default_rng(1).permutation(len(rows.target))[:FEW]
    lines = [[*map(str, row), "a" if target == 1 else "b"] for row, target in zip(rows.data, rows.target, strict=True)]
    table = folder / "wine.csv"
    head = [*(f"column {place}" for place in range(rows.data.shape[1])), "label"]
    table.write_text("".join(f"{','.join(line)}\n" for line in [head, *(lines[place] for place in chosen)]))
    told = [f"data.source={table}", "data.positive=a", "federation.sites=3", "algorithm.masking=committee"]
    told += ["algorithm.step_noise=0.1", "algorithm.tolerance=1e-4", "compare.centralised=false", *changes]
    told.append('collusion={sites=["site-2"],coordinator=true,candidates="source"}')
    (audit,) = run(folder / "run", told, []).result["audit"]
    assert audit["false_claims"] <= 1, "the other attacks claim by chance"
    found = [each for each in audit["attacks"] if each["attack"] == "lattice reduction"]
    return [{**each, "rows": audit["rows"]} for each in found]


def test_a_run_without_noise_on_its_numbers_names_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blind_path, "_NOISE", 1e-12)  # sites refuse 0
    ranking, claim = colluding(tmp_path)
    assert ranking["auc"] == 1.0
    assert claim["note"] == f"decides {ranking['ranked']} of {ranking['ranked']} unknown candidates"
    assert claim["claimed"] == claim["recovered"] >= 0.5 * claim["rows"], "others found some before"


def test_with_its_noise_few_are_decided_and_all_of_them_rightly(tmp_path: Path) -> None:
    *_, claim = colluding(tmp_path)
    assert claim["note"].startswith("decides ")
    assert claim["false_claims"] == 0
    assert claim["recovered"] < 0.5 * claim["rows"]


def test_without_the_library_the_audit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    (claim,) = colluding(tmp_path)
    assert (claim["claimed"], claim["note"]) == (0, NOT_INSTALLED)
