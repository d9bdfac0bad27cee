"""Recursive feature elimination over sites: the order of pooled rows, each step certified, and what that costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_selection import RFE
from sklearn.svm import SVC

from fedsvm.algorithms.optimization.cutting_plane import Bundle, Line, Penalty, Points, improve, start
from fedsvm.algorithms.optimization.hinge_sums import HingeSums
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.algorithms.optimization.single_rows import lone_rows, rows_apart
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.selection.elimination import is_certain, lowest, removed_count
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.scenarios.report.page import render
from tests.column_choice import choose, standardised
from tests.commands import fedsvm
from tests.test_runs import run

CUTS = "algorithm.select_solver=cutting-plane"
WIDE = "algorithm.select_groups=32"
ONE = ("algorithm.remove=one", "algorithm.size=3")


def pooled_order(source: str, C: float) -> list[str]:
    """scikit-learn's, of rows in one place; constant columns last."""
    train, names = standardised(source)
    found = RFE(SVC(kernel="linear", C=C, tol=1e-8, max_iter=10_000_000), n_features_to_select=1, step=1)
    ranks = found.fit(*train).ranking_
    constant = np.ptp(train.rows, axis=0) == 0
    return [names[j] for j in np.lexsort((ranks, constant))]


@pytest.mark.parametrize(
    ("source", "C", "most_rounds", "most_bytes"),
    [pytest.param("pima_diabetes", 1.0, 79, 1_000_000, marks=pytest.mark.long), ("wdbc", 1.0, 150, 2_500_000)],
)
def test_the_order_is_scikit_learns_and_every_step_is_certain(
    source: str, C: float, most_rounds: int, most_bytes: int, tmp_path: Path, data_folder: Path
) -> None:
    result = choose(tmp_path / "run", source, "rfe", CUTS, WIDE, f"algorithm.select_penalty={C}", *ONE).result
    ranking, spent = result["selection"]["ranking"], result["cost"]["by_phase"]["select"]
    assert list(ranking["columns"]) == pooled_order(source, C)
    assert all(step["certain"] for step in ranking["steps"])
    assert len(ranking["steps"]) == len(ranking["columns"]) - 1
    assert spent["rounds"] <= most_rounds
    assert spent["wire_bytes"] == spent["predicted_wire_bytes"] <= most_bytes
    assert {step["sites"] for step in ranking["steps"]} == {5}


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "C", "solver"),
    [
        ("wdbc", 0.1, CUTS),
        ("wdbc", 10.0, CUTS),
        ("ionosphere", 1.0, CUTS),
        ("wdbc", 0.1, "algorithm.select_solver=interior-point"),
        ("wdbc", 1.0, "algorithm.select_solver=interior-point"),
        ("wdbc", 10.0, "algorithm.select_solver=interior-point"),
        ("ionosphere", 1.0, "algorithm.select_solver=interior-point"),
        ("pima_diabetes", 1.0, "algorithm.select_solver=interior-point"),
    ],
)
def test_the_order_is_scikit_learns_by_both_solvers(
    source: str, C: float, solver: str, tmp_path: Path, data_folder: Path
) -> None:
    result = choose(tmp_path / "run", source, "rfe", solver, WIDE, f"algorithm.select_penalty={C}", *ONE).result
    ranking, expected = result["selection"]["ranking"], pooled_order(source, C)
    assert list(ranking["columns"]) == expected
    assert all(step["certain"] for step in ranking["steps"])
    assert len(ranking["steps"]) == {"wdbc": 29, "ionosphere": 32, "pima_diabetes": 7}[source]  # f2 is constant


@pytest.mark.long
@pytest.mark.parametrize("source", ["wine", "wdbc"])
def test_the_order_does_not_depend_on_sites_splits_or_sums(source: str, tmp_path: Path, data_folder: Path) -> None:
    """Rows dealt at random, sorted by their class, and by a column, over sums with and without masks."""
    by_feature = {"wine": "alcohol", "wdbc": "mean-radius"}[source]
    orders = set()
    for number, (sites, split, protocol) in enumerate(
        [(5, "random", "ring"), (8, "label-skew", "masked"), (8, f"by-feature:{by_feature}", "masked")]
    ):
        changes = [CUTS, WIDE, "algorithm.landmarks=5", f"data.split={split}", f"protocol.sum={protocol}", *ONE]
        result = choose(tmp_path / f"{number}", source, "rfe", *changes, sites=sites).result
        assert all(step["certain"] for step in result["selection"]["ranking"]["steps"])
        orders.add(tuple(result["selection"]["ranking"]["columns"]))
    assert orders == {tuple(pooled_order(source, 1.0))}


@pytest.mark.parametrize("masking", ["congruence", "committee"])
def test_blindly_nothing_but_weights_is_shown(masking: str, tmp_path: Path) -> None:
    """The default solver: as many rounds again, and no cut. A committee gives the same order."""
    result = choose(tmp_path / "run", "wine", "rfe", *ONE, f"algorithm.masking={masking}").result
    ranking = result["selection"]["ranking"]
    assert list(ranking["columns"]) == pooled_order("wine", 1.0)
    assert all(step["certain"] for step in ranking["steps"])
    kinds = {(each["step"], each["kind"]) for each in result["disclosures"] if each["to"] == "coordinator"}
    assert not {step for step, kind in kinds if kind in ("single-row", "row-difference")}
    assert ("subset_weights", "design") in kinds
    assert (("blind_subset_newton", "design") in kinds) == (masking == "committee")


def test_cuts_that_survive_a_column_cost_a_third_of_new_ones(tmp_path: Path) -> None:
    """The same order, from a bundle that goes on and from a new one for each step, in as many groups."""
    result = choose(tmp_path / "run", "wdbc", "rfe", CUTS, WIDE, *ONE).result
    steps = result["selection"]["ranking"]["steps"]
    train, names = standardised("wdbc")
    left, anew = list(range(30)), 0
    for step in steps:
        oracle = _Counting(train.rows[:, left], train.labels)
        bundle = Bundle(len(left), 32, 1.0)
        start(oracle, [bundle])
        for tolerance in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
            (found,) = improve(oracle, [bundle], StoppingRule(tolerance, 500), grid_search, done=bundle.iterations)
            if is_certain([found], lowest(np.abs(found.w), 1)):
                break
        gone = left.pop(int(lowest(np.abs(found.w), 1)[0]))
        assert step["removed"] == [names[gone]]
        anew += oracle.rounds
    assert sum(step["rounds"] for step in steps) <= 0.35 * anew


class _Counting:
    """Sums over pooled rows, and how often they were asked for."""

    def __init__(self, features: np.ndarray, labels: np.ndarray) -> None:
        self.sums = HingeSums.deal(features, labels[None, :], 32, np.random.default_rng(0))
        self.rounds = 0

    def cuts(self, problems: IntArray, at: Points) -> FloatArray:
        self.rounds += 1
        return self.sums.cuts(problems, at)

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        self.rounds += 1
        return self.sums.line(problems, line)


def test_no_certain_step_departs_from_the_optimum() -> None:
    """Trained to any gap: where it says so, LIBSVM's weights at a tolerance of 1e-8 have the same column lowest."""
    certain = 0
    for source in ("wdbc", "wine"):
        train, _ = standardised(source)
        left = list(range(train.rows.shape[1]))
        while len(left) > 2:
            exact = np.abs(SVC(kernel="linear", C=1.0, tol=1e-8).fit(train.rows[:, left], train.labels).coef_[0])
            for tolerance in (1e-2, 1e-3, 1e-4, 1e-6):
                bundle, oracle = Bundle(len(left), 32, 1.0), _Counting(train.rows[:, left], train.labels)
                start(oracle, [bundle])
                (found,) = improve(oracle, [bundle], StoppingRule(tolerance, 300), grid_search)
                places = lowest(np.abs(found.w), 1)
                if is_certain([found], places):
                    certain += 1
                    assert places[0] == int(np.argmin(exact))
            left.pop(int(np.argmin(exact)))
    assert certain > 20


def test_a_bundle_loses_columns_and_takes_another_penalty() -> None:
    """Lower bounds hold for what it became: no optimum is below them."""
    train, _ = standardised("wine")
    oracle, bundle = _Counting(train.rows, train.labels), Bundle(13, 32, 1.0)
    start(oracle, [bundle])
    improve(oracle, [bundle], StoppingRule(1e-6, 300), grid_search)
    kept = np.array([0, 3, 6, 9, 12])
    fewer = bundle.without(kept)
    svm = SVC(kernel="linear", C=1.0, tol=1e-8).fit(train.rows[:, kept], train.labels)
    hinge = np.maximum(0, 1 - train.labels * svm.decision_function(train.rows[:, kept])).sum()
    optimum = 0.5 * float(np.sum(svm.coef_**2)) + hinge
    assert bundle.lower_bound <= fewer.lower_bound <= optimum * (1 + 1e-9)
    other = bundle.with_penalty(Penalty(l1=0.5, l2=0.1))
    assert other.lower_bound == 0.0


def test_columns_go_by_halves_while_there_are_many() -> None:
    left, sizes = 2000, []
    while left > 1:
        left -= removed_count("auto", left)
        sizes.append(left)
    assert sizes[:6] == [1000, 500, 250, 125, 62, 61]
    assert removed_count(0.2, 10) == 2
    assert removed_count("half", 2) == 1


def test_rows_that_cuts_differ_by_are_counted() -> None:
    """Two cuts of rows of which one crossed the margin between their points."""
    rows, labels = np.array([[1.0, 2.0], [3.0, 1.0], [0.5, -1.0]]), np.array([1.0, -1.0, 1.0])
    sums = HingeSums(rows, labels[None, :], np.ones((1, 3)))
    points = Points(np.array([[0.0, 0.0], [0.6, 0.6]]), np.array([0.0, 0.0]))
    cuts = sums.cuts(np.zeros(2, dtype=np.int64), points)
    assert len(lone_rows(cuts)[1]) == 0
    found, signs = rows_apart(points, cuts)
    np.testing.assert_allclose(found, rows[:1])
    assert signs.tolist() == [1.0]


def test_a_site_that_is_killed_in_elimination_is_done_without(tmp_path: Path) -> None:
    """The ranking says from which step on it is of fewer rows; the run ends, by either solver."""
    for solver, at in (("cutting-plane", 16), ("interior-point", 65)):  # in step 5
        kill = f"faults=[{{kind='kill',site=2,phase='select',round={at}}}]"
        changes = [kill, f"algorithm.select_solver={solver}", "algorithm.step_noise=0.0", WIDE, *ONE]
        result = choose(tmp_path / solver, "wine", "rfe", *changes).result
        sites = [step["sites"] for step in result["selection"]["ranking"]["steps"]]
        assert sites == [5] * 4 + [4] * 8
        assert result["model"]["sites"] == ["site-1", "site-3", "site-4", "site-5"]


@pytest.mark.long
def test_a_scenario_runs_predicts_and_reports(tmp_path: Path) -> None:
    small = ["data.source=wine", "data.positive=class_0", "data.folds=2", "algorithm.landmarks=20"]
    result = run("rfe", tmp_path / "run", *small).result
    selection = result["selection"]
    assert selection["equal_positions"] == 13
    assert selection["readings"].keys() == {"nested", "separate", "whole"}
    assert result["metrics"]["accuracy"] > 0.85
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    page = render(tmp_path / "run")
    assert "Order of removal" in page
    predicted = fedsvm("predict", tmp_path / "run", "wine", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 179)


def test_too_many_columns_for_matrices_are_a_sentence(tmp_path: Path, data_folder: Path) -> None:
    words = ["--set", "data.source=colon", "--set", "data.positive=t"]
    done = fedsvm("run", "rfe", *words, folder=tmp_path)
    assert done.returncode == 3
    assert "SVMs on 2000 columns need sums of 2003001 numbers" in done.stderr
    assert 'algorithm.select_solver = "cutting-plane"' in done.stderr


def test_a_site_that_is_started_again_brings_its_rows_back(tmp_path: Path) -> None:
    """Killed before there are moments: they are asked for again when it is there, and bounds hold for its rows."""
    for solver in ("cutting-plane", "interior-point"):
        kill = "faults=[{kind='kill',site=2,phase='select',round=1,rejoin=true}]"
        changes = [kill, f"algorithm.select_solver={solver}", WIDE, *ONE]
        result = choose(tmp_path / solver, "wine", "rfe", *changes).result
        assert result["selection"]["ranking"]["columns"] == pooled_order("wine", 1.0)
        assert len(result["model"]["sites"]) == 5
