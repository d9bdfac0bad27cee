"""Columns chosen over sites that hold columns: the order of pooled columns, what crosses, and what differences show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.feature_selection import f_classif
from sklearn.svm import SVC

from fedsvm import DppSVC, classifier
from fedsvm.algorithms.algorithm import Outline
from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.data.vertical import VerticalTask
from fedsvm.algorithms.dpp_selection import DppSelection, DppSelectionSettings, DppSelectionSite, _lowest_of_all, going
from fedsvm.algorithms.features.partial_kernel import unpack
from fedsvm.federation.errors import OrderRefused
from fedsvm.scenarios.report.page import render
from tests.commands import fedsvm
from tests.in_process import InProcessFederation
from tests.test_runs import run

X, Y = load_wine(return_X_y=True)
SCALED = (X - X.mean(axis=0)) / X.std(axis=0)
TWO = Y < 2


@pytest.mark.parametrize("method", ["filter", "rfe"])
def test_columns_are_ordered_as_all_of_them_together_order_them(method: str, tmp_path: Path) -> None:
    """Over three processes; the model on them is the pooled one, predicts, and has a page."""
    result = run("dpp-selection", tmp_path / "run", f"algorithm.method={method}", "data.folds=2").result
    selection = result["selection"]
    assert selection["equal_positions"] == len(selection["ranking"]["columns"]) == 30
    assert len(selection["ranking"]["selected"]) == result["model"]["figures"]["columns_selected"] == 10
    assert "worst-area" in selection["ranking"]["selected"]
    assert result["centralised"]["max_decision_difference"] < 1e-6
    assert result["metrics"]["accuracy"] > 0.93
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    assert selection["readings"].keys() == {"nested"}
    predicted = fedsvm("predict", tmp_path / "run", "wdbc", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 570), predicted.stderr
    assert "Columns, best first" in render(tmp_path / "run")
    shown = {(each["step"], each["to"]): each["shape"] for each in result["disclosures"] if each["kind"] == "design"}
    if method == "filter":
        assert result["cost"]["by_phase"]["select"]["rounds"] == 2 * 3  # columns, shares, those that are kept
        assert shown["shares_between", "coordinator"] == [30]
        assert shown["shares_between", "sites"] in ([284], [285])  # the labels
    else:
        assert [len(step["removed"]) for step in selection["ranking"]["steps"]] == [15, 5]
        assert selection["ranking"]["ranks"] == [1] * 10 + [11] * 5 + [16] * 15
        assert "inner products of the columns that went" in str(result["disclosures"])
        assert ("shares_between", "sites") not in shown


def federation_of(columns: list[np.ndarray], labels: np.ndarray) -> Any:
    """Sites with these columns each, the first of which has the labels, in this process."""
    programs = {}
    for number, rows in enumerate(columns, start=1):
        names = [f"x{place}" for place in range(rows.shape[1])]
        partition = site_partition(rows, labels if number == 1 else None, names=names, classes=3)
        programs[f"site-{number}"] = DppSelectionSite(f"site-{number}", partition, {})
    return InProcessFederation(programs)


@pytest.mark.parametrize("method", ["filter", "rfe"])
def test_of_three_classes_columns_are_those_of_scikit_learn(method: str) -> None:
    chosen = classifier("dpp-selection")(method=method, size=4, sites=3, kernel="linear", sum="ring").fit(X, Y)
    if method == "filter":
        expected = np.argsort(-f_classif(X, Y)[0])[:4]
    else:
        left = np.arange(13)
        while len(left) > 4:
            signs = [np.where(k == Y, 1.0, -1.0) for k in range(3)]
            w = [SVC(kernel="linear", C=1.0, tol=1e-8).fit(SCALED[:, left], each).coef_[0] for each in signs]
            left = np.delete(left, np.argsort(np.linalg.norm(w, axis=0))[: going("half", len(left), 4)])
        expected = left
    assert chosen.selected_.tolist() == sorted(expected.tolist())
    assert chosen.score(X, Y) > 0.93


def test_an_estimator_whose_sites_hold_columns_in_another_order_is_that_of_the_chosen_columns() -> None:
    x, y = X[TWO], Y[TWO]
    held = [[12, 3, 5], [0, 7, 9, 11], [1, 2, 4, 6, 8, 10]]
    chosen = classifier("dpp-selection")(method="filter", size=5, columns=held, kernel="rbf", gamma=0.2).fit(x, y)
    assert chosen.selected_.tolist() == sorted(np.argsort(-f_classif(x, y)[0])[:5].tolist())
    alone = DppSVC(kernel="rbf", gamma=0.2).fit(x[:, chosen.selected_], y)
    np.testing.assert_allclose(chosen.decision_function(x), alone.decision_function(x[:, chosen.selected_]), atol=1e-6)


def test_three_columns_or_more_go_together_unless_one_is_asked_for() -> None:
    def schedule(remove: Any, left: int, size: int) -> list[int]:
        counts = []
        while left > size:
            counts.append(going(remove, left, size))
            left -= counts[-1]
        return counts

    assert schedule("half", 30, 10) == [15, 5]
    assert schedule("half", 13, 1) == [7, 5]  # 3, and 2 that would be left
    assert schedule(0.1, 30, 22) == [3, 5]
    assert schedule("one", 5, 2) == [1, 1, 1]
    assert schedule("half", 4, 3) == [1]


@pytest.mark.parametrize("count", [1, 3, 6, 8, 11])
def test_the_smallest_of_all_are_found_by_counts(count: int) -> None:
    """Ties among them, and weights of 0; of equal ones the last go."""
    weights = np.array([0.0, 3.0, 1.0, 1.0, 1.0, 2.0, 0.5, 0.0, 1.0, 2.0 + 1e-7, 2.0, 9.0])
    federation = federation_of([np.zeros((178, 4)), np.zeros((178, 3)), np.zeros((178, 5))], Y.astype(float))
    first = {"site-1": 0, "site-2": 4, "site-3": 7}
    federation.run("prepare_fold", fold=None, scale="none")
    federation.run("keep_columns", columns=np.arange(12), first=first)
    for site, program in federation.programs.items():
        program.strengths = weights[first[site] : first[site] + len(program.kept)]
    expected = np.lexsort((-np.arange(12), weights))[:count]
    assert _lowest_of_all(federation, 12, count, 9.0).tolist() == sorted(expected.tolist())
    assert federation.orders["columns_below"] <= 13


def test_all_weights_that_are_zero_end_the_search() -> None:
    federation = federation_of([np.zeros((178, 2)), np.zeros((178, 2))], Y.astype(float))
    federation.run("prepare_fold", fold=None, scale="none")
    federation.run("keep_columns", columns=np.arange(4), first={"site-1": 0, "site-2": 2})
    for program in federation.programs.values():
        program.strengths = np.zeros(2)
    assert _lowest_of_all(federation, 4, 2, 0.0).tolist() == [2, 3]


@pytest.mark.parametrize(("remove", "together"), [("one", 1), ("half", 9)])
def test_a_column_that_goes_by_itself_follows_from_two_matrices(remove: Any, together: int) -> None:
    """Up to its sign, to anybody who sees the kernel matrices; of several together only their inner products do."""
    federation = federation_of([X[:, :5], X[:, 5:9], X[:, 9:]], Y.astype(float))
    settings = DppSelectionSettings(method="rfe", size=4, remove=remove, kernel="linear")
    model = DppSelection().fit(federation, VerticalTask("standard", 1, classes=3), settings)
    matrices = []
    for step, value, _ in federation.opened:
        if step == "kernel_rows":
            matrices.append(np.empty((178, 178)))
            unpack(value, 0, 178, matrices[-1])
    values, vectors = np.linalg.eigh(matrices[0] - matrices[1])
    assert int((values > 1e-6 * values.max()).sum()) == together
    if remove == "one":
        assert model.ranking is not None
        site, _, number = model.ranking.steps[0].removed[0].partition(":")
        gone = SCALED[:, int(number) + {"site-1": 0, "site-2": 5, "site-3": 9}[site]]
        found = np.sqrt(values[-1]) * vectors[:, -1]
        assert min(np.abs(found - gone).max(), np.abs(found + gone).max()) < 1e-6


def test_there_is_no_curve() -> None:
    (problem,) = DppSelection().problems(DppSelectionSettings(), Outline(0, models=1, needs_curve=True))
    assert problem.startswith("method: has no curve of accuracy against size here")


def test_a_site_that_is_lost_ends_the_run_in_a_sentence(tmp_path: Path) -> None:
    kill = "faults=[{kind='kill',site=2,phase='select',round=3}]"
    done = fedsvm("run", "dpp-selection", "--set", kill, "--set", "protocol.sum=plain", folder=tmp_path)
    assert done.returncode == 3
    assert "Its columns are among those that are chosen from, and no other site has them." in done.stderr


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["algorithm.size=0"], "algorithm.size: must be"),
        (["data.partition=horizontal"], 'dpp-selection needs "vertical"'),
    ],
)
def test_what_does_not_go_together_is_a_sentence(changes: list[str], sentence: str, tmp_path: Path) -> None:
    words = [word for change in changes for word in ("--set", change)]
    done = fedsvm("run", "dpp-selection", *words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_a_table_beyond_any_message_is_refused_before_it_is_allocated() -> None:
    site = federation_of([SCALED], Y).programs["site-1"]
    for columns in (1 << 40, -1, True):
        with pytest.raises(OrderRefused, match="columns must be a number whose table fits into a message"):
            site.which_below(np.zeros(2), columns)
        with pytest.raises(OrderRefused, match="columns must be a number whose table fits into a message"):
            site.shares_between(np.zeros(len(Y)), 3, {"site-1": 0}, columns)
