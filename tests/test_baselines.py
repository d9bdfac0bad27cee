"""Methods on pooled rows that a scenario names to stand beside its result: scikit-learn's, on the run's rows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from fedsvm.algorithms.baselines import POOLED_BASELINES, pooled_baselines
from fedsvm.algorithms.concave_selection import concave_columns, separating_plane
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.decision_tree import TreeSettings
from fedsvm.algorithms.kernel_penalty import kernel_widths, optimum_and_slopes
from fedsvm.algorithms.pan_svm import PanSettings
from fedsvm.algorithms.pooled import EvaluationRows
from fedsvm.algorithms.svm_admm import AdmmSettings
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.report.summary import lines
from fedsvm.scenarios.run.model_warnings import linear_hint
from fedsvm.scenarios.run.result import read_result
from tests.commands import fedsvm
from tests.tasks import table
from tests.test_runs import run

ROWS = EvaluationRows(table(120, seed=1), table(60, seed=2))
ALL = list(POOLED_BASELINES)


def _of_fsv(C: float, gamma: float) -> FloatArray:
    kept = concave_columns(*ROWS.train)
    machine = SVC(C=C, gamma=gamma).fit(ROWS.train.rows[:, kept], ROWS.train.labels)
    return np.asarray(machine.predict(ROWS.test.rows[:, kept]))


def _of_kp_svm(C: float, gamma: float) -> FloatArray:
    v = kernel_widths(*ROWS.train, gamma, C)
    return np.asarray(SVC(C=C, gamma=gamma).fit(ROWS.train.rows * v, ROWS.train.labels).predict(ROWS.test.rows * v))


@pytest.mark.parametrize(
    ("settings", "C", "gamma"), [(TreeSettings(), 1.0, 0.25), (AdmmSettings(C=4.0, gamma=0.5), 4.0, 0.5)]
)
def test_they_are_scikit_learns(settings: Any, C: float, gamma: float) -> None:
    """With the run's penalty and gamma, where it has such."""
    expected = [
        SVC(C=C, gamma=gamma).fit(*ROWS.train).predict(ROWS.test.rows),
        SVC(C=C, kernel="linear").fit(*ROWS.train).predict(ROWS.test.rows),
        GaussianNB().fit(*ROWS.train).predict(ROWS.test.rows),
        DecisionTreeClassifier(min_samples_split=10, min_samples_leaf=5, random_state=0)
        .fit(*ROWS.train)
        .predict(ROWS.test.rows),
        np.full(60, -1.0),
        SVC(C=C, gamma=gamma).fit(*ROWS.train).predict(ROWS.test.rows),  # all columns are chosen
        _of_fsv(C, gamma),
        _of_kp_svm(C, gamma),
    ]
    for found, predicted in zip(pooled_baselines(ALL, settings, ROWS), expected, strict=True):
        np.testing.assert_array_equal(np.sign(found.scores), predicted, err_msg=found.name)


@pytest.mark.parametrize("by_row", [False, True], ids=["class", "class and row"])
def test_they_take_the_weights_of_classes_and_rows(by_row: bool) -> None:
    """All but the larger class, whose phrase says so."""
    settings, random = PanSettings(C=4.0, gamma=0.5, class_weight={"1": 6.0}), np.random.default_rng(3)
    weights = random.choice([0.0, 0.5, 2.0], 120) if by_row else np.ones(120)
    price = np.where(ROWS.train.labels > 0, 6.0, 1.0) * weights
    rows = replace(ROWS, weights=weights) if by_row else ROWS
    counted = price > 0
    train, price = LabeledRows(*(each[counted] for each in ROWS.train)), price[counted]
    expected = [
        SVC(C=4.0, gamma=0.5).fit(*train, sample_weight=price).predict(ROWS.test.rows),
        SVC(C=4.0, kernel="linear").fit(*train, sample_weight=price).predict(ROWS.test.rows),
        GaussianNB().fit(*train, sample_weight=price).predict(ROWS.test.rows),
        DecisionTreeClassifier(min_samples_split=10, min_samples_leaf=5, random_state=0)
        .fit(*train, sample_weight=price)
        .predict(ROWS.test.rows),
    ]
    found = pooled_baselines(ALL, settings, rows)
    without = pooled_baselines(ALL, PanSettings(C=4.0, gamma=0.5), ROWS)
    for each, plain, predicted in zip(found, without, expected, strict=False):
        np.testing.assert_array_equal(np.where(each.scores >= 0, 1.0, -1.0), predicted, err_msg=each.name)
        assert not np.array_equal(each.scores, plain.scores), each.name
    phrases = {each.name: each.phrase for each in found}
    assert phrases["majority"] == "the larger class, always, without weights"
    assert "weights" not in phrases["tree"]


def test_concave_minimization_keeps_the_columns_that_separate_and_its_objective_falls() -> None:
    random = np.random.default_rng(1)
    labels = np.repeat([1.0, -1.0], 40)
    rows = random.uniform(-1, 1, (80, 12))
    rows[:, [2, 7]] = labels[:, None] * random.uniform(0.05, 1, (80, 1)) + np.array([1, -1]) * rows[:, [0]]
    w, g, objectives = separating_plane(rows, labels)
    assert concave_columns(rows, labels).tolist() == [2, 7]  # their sum separates, neither alone
    assert (labels * (rows @ w - g) > 0).all()
    assert all(later < earlier for earlier, later in itertools.pairwise(objectives))
    only = np.where(np.arange(80) % 2, 1.0, 0.0)
    np.testing.assert_allclose(
        separating_plane(rows, labels, only)[2], separating_plane(rows[only > 0], labels[only > 0])[2], atol=1e-9
    )


def test_penalized_widths_keep_the_columns_that_tell_the_classes_apart() -> None:
    random = np.random.default_rng(1)
    rows = random.uniform(-1, 1, (80, 6))
    labels = np.where(rows[:, 1] * rows[:, 4] > 0, 1.0, -1.0)  # neither alone tells them, and no line does
    v = kernel_widths(rows, labels, 2.0, 1.0)
    assert np.flatnonzero(v > 0.5).tolist() == [1, 4]
    assert v.min() >= 0
    assert v.max() <= 1
    away, (_, slopes) = np.eye(6) * 1e-4, optimum_and_slopes(rows, labels, v + 0.1, 2.0, 1.0)
    for number, slope in enumerate(slopes):
        near = [optimum_and_slopes(rows, labels, v + 0.1 + sign * away[number], 2.0, 1.0)[0] for sign in (1, -1)]
        assert (near[0] - near[1]) / 2e-4 == pytest.approx(slope, rel=0.02, abs=0.05), number


def test_one_is_of_the_columns_that_were_chosen() -> None:
    settings, chosen = AdmmSettings(C=4.0, gamma=0.5), np.array([1, 2])
    (found,) = pooled_baselines(["libsvm-rbf-chosen"], settings, ROWS, chosen)
    expected = SVC(C=4.0, gamma=0.5).fit(ROWS.train.rows[:, chosen], ROWS.train.labels)
    np.testing.assert_allclose(found.scores, expected.decision_function(ROWS.test.rows[:, chosen]), atol=1e-9)


@pytest.mark.long
def test_one_of_chosen_columns_stands_beside_a_run_that_chooses(tmp_path: Path) -> None:
    named = 'compare.baselines=["libsvm-rbf", "libsvm-rbf-chosen"]'
    found = run("filter", tmp_path / "run", named, "compare.centralised=false").result["baselines"]
    assert found["libsvm-rbf"]["auc"] != found["libsvm-rbf-chosen"]["auc"]
    done = fedsvm("run", "dpp-selection", "--set", named, folder=tmp_path)
    assert done.returncode == 2
    assert "dpp-selection trains on no chosen columns; leave libsvm-rbf-chosen out" in done.stderr


def test_of_rows_of_one_class_all_say_that_it_is_theirs() -> None:
    ill = LabeledRows(ROWS.train.rows, np.ones(120))
    for found in pooled_baselines(ALL, TreeSettings(), EvaluationRows(ill, ROWS.test)):
        assert (found.scores == 1).all()


def test_they_stand_beside_the_result_as_means_over_folds(tmp_path: Path) -> None:
    named = 'compare.baselines=["tree", "majority", "tree"]'
    result = run("decision-tree", tmp_path / "run", "data.folds=3", "data.test_fraction=0", named).result
    assert list(result["baselines"]) == ["tree", "majority"]
    assert result["baselines"]["majority"]["accuracy"] == pytest.approx(0.627, abs=0.01)
    assert 0.9 < result["baselines"]["tree"]["accuracy"] < 1
    assert 0 < result["baselines"]["tree"]["seconds"] < result["timing"]["total_s"]
    told = dict(lines(read_result(tmp_path / "run")))["baselines"]
    assert told.startswith("on pooled rows a decision tree 9")
    assert told.endswith("the larger class, always 62.74 %")


def test_note_says_that_a_linear_kernel_does_as_well(tmp_path: Path) -> None:
    rows = np.random.default_rng(5).normal(size=(240, 10))
    lines_of_file = [",".join([*map(str, row), "yes" if sum(row) > 0 else "no"]) for row in rows.tolist()]
    head = ",".join([*(f"x{place}" for place in range(10)), "label"])
    (tmp_path / "rows.csv").write_text("\n".join([head, *lines_of_file, ""]))
    named = 'compare.baselines=["libsvm-linear"]'
    of_file = (f"data.source={tmp_path / 'rows.csv'}", "data.positive=yes", "algorithm.gamma=1.0")
    run("quickstart", tmp_path / "run", named, *of_file)
    result = read_result(tmp_path / "run")
    assert result.metrics is not None and result.baselines is not None
    linear = result.baselines["libsvm-linear"]
    assert linear.accuracy >= result.metrics.accuracy
    (note,) = (each for each in result.warnings if each.startswith("A linear SVM of pooled rows is correct on"))
    assert note.endswith("--set algorithm.kernel=linear --set algorithm.features=identity.")
    rbf, better = PanSettings(), replace(result.metrics, accuracy=linear.accuracy + 0.01)
    assert list(linear_hint(rbf, result.metrics, result.baselines)) == [note]
    assert not list(linear_hint(rbf, better, result.baselines))
    assert not list(linear_hint(rbf, replace(result.metrics, threshold=0.3), result.baselines))
    assert not list(linear_hint(replace(rbf, kernel="linear"), result.metrics, result.baselines))
    assert not list(linear_hint(rbf, result.metrics, None))


def test_they_stand_beside_a_vertical_run(tmp_path: Path) -> None:
    named = 'compare.baselines=["libsvm-linear"]'
    result = run("dpp-svm-tic-tac-toe", tmp_path / "run", named).result
    assert result["baselines"]["libsvm-linear"]["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("true", 'decision-tree has none; name some, as ["libsvm-rbf", "libsvm-linear"'),
        ('["knn"]', "compare.baselines: must be true, false or a list of libsvm-rbf, libsvm-linear, naive-bayes, tree"),
        ("3", "compare.baselines: must be true, false or a list of"),
    ],
)
def test_one_that_is_not_there_is_a_sentence(value: str, sentence: str, tmp_path: Path) -> None:
    done = fedsvm("run", "decision-tree", "--set", f"compare.baselines={value}", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
