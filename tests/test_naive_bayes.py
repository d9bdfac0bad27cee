"""Gaussian naive Bayes: the model of pooled rows from two sums, by every way that an algorithm can be asked for."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

from fedsvm import classifier
from fedsvm.federation.errors import FederationError
from fedsvm.scenarios.report.page import render
from fedsvm.scenarios.report.summary import lines
from fedsvm.scenarios.run.result import read_result
from tests.commands import fedsvm
from tests.test_runs import run

NaiveBayes = classifier("naive-bayes")


def test_it_is_scikit_learns_model_of_pooled_rows() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    for scale, pooled in (("standard", StandardScaler().fit_transform(X)), ("none", X)):
        model = NaiveBayes(scale=scale, sites=4, sum="masked").fit(X, y)
        expected = GaussianNB().fit(pooled, y)
        np.testing.assert_allclose(model.theta_, expected.theta_, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(model.var_, expected.var_, rtol=1e-9)
        np.testing.assert_allclose(model.class_prior_, expected.class_prior_, rtol=1e-12)
        joint = expected.predict_joint_log_proba(pooled)
        np.testing.assert_allclose(model.decision_function(X), joint[:, 1] - joint[:, 0], rtol=1e-9, atol=1e-6)
    assert {each["step"] for each in model.result_["disclosures"] if each["kind"] == "sum"} == {
        "class_counts",
        "class_sums",
    }


@pytest.mark.parametrize("scale", ["standard", "none", "minmax"])
def test_categories_have_shares_of_their_own(scale: str, tmp_path: Path) -> None:
    """Numbers and categories, a value that only test rows have among them, as scikit-learn's two models together."""
    random = np.random.default_rng(5)
    wards, ages = random.choice(["a", "b", "c", "d"], size=200, p=[0.5, 0.3, 0.15, 0.05]), random.normal(50, 9, 200)
    sick = np.where(random.random(200) < np.where(wards == "a", 0.2, 0.7), "yes", "no")
    lines_ = [f"{ward},{age},{label}" for ward, age, label in zip(wards, ages, sick, strict=True)]
    (tmp_path / "wards.csv").write_text("\n".join(["ward,age,sick", *lines_]) + "\n")
    table = [f"data.source={tmp_path / 'wards.csv'}", "data.label=sick", "data.positive=yes", f"data.scale={scale}"]
    table.append('data.categories={ward=["a","b","c","d"]}')
    result = run("naive-bayes", tmp_path / "run", *table).result
    assert result["centralised"]["max_decision_difference"] < 1e-6
    with np.load(tmp_path / "run" / "model.npz") as arrays:
        assert arrays["category"].tolist() == [-1, 0, 0, 0, 0]
        shares = np.exp(arrays["log_shares"])
    np.testing.assert_allclose(shares.sum(axis=1) - 1.0, [1.0, 1.0])  # of the number, 1 that stands for nothing


def test_boards_are_told_by_their_marks(tmp_path: Path) -> None:
    changes = ["data.source=tic-tac-toe", "data.positive=positive", "data.folds=3", "data.test_fraction=0"]
    result = run("naive-bayes", tmp_path / "run", *changes).result
    assert result["centralised"]["max_decision_difference"] < 1e-6
    assert result["metrics"]["accuracy"] > 0.68
    predicted = fedsvm("predict", tmp_path / "run", "tic-tac-toe", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 959)


@pytest.mark.parametrize("few", [1, 2])
def test_a_class_whose_rows_would_show_is_refused_before_it_is_summed(few: int) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    y = np.where(np.arange(40) < few, 1, 0)
    with pytest.raises(FederationError, match=f"A class must have 3 rows or more over all sites, got {few}"):
        NaiveBayes().fit(rows, y)


def test_a_scenario_runs_predicts_reports_and_sweeps(tmp_path: Path) -> None:
    result = run("naive-bayes", tmp_path / "run").result
    assert result["model"]["figures"] == {"smallest_class": 170, "columns": 30}
    assert result["metrics"]["accuracy"] == result["centralised"]["accuracy"] > 0.9
    assert result["centralised"]["max_decision_difference"] < 1e-6
    assert result["cost"]["by_phase"]["train"]["rounds"] == 2
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    assert ("model", "naive-bayes, 2 classes, 30 columns") in lines(read_result(tmp_path / "run"))
    assert "naive-bayes, 2 classes, 30 columns" in render(tmp_path / "run")
    predicted = fedsvm("predict", tmp_path / "run", "wdbc", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 570)
    words = ["--vary", "federation.sites=3,4", "--plot", "smallest_class:federation.sites", "--out", "sweep"]
    done = fedsvm("sweep", "naive-bayes", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "sweep" / "sweep.csv").open()))
    assert [(row["federation.sites"], row["smallest_class"]) for row in rows] == [("3", "170"), ("4", "170")]


def test_a_bad_setting_is_a_sentence(tmp_path: Path) -> None:
    done = fedsvm("run", "naive-bayes", "--set", "algorithm.var_smoothing=0", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "algorithm.var_smoothing: must be a number from 1e-12 to 1e12, got 0." in done.stderr


@pytest.mark.parametrize("phase", ["setup", "train"])
def test_a_site_that_drops_is_done_without(phase: str, tmp_path: Path) -> None:
    kill = f"faults=[{{kind='kill',site=2,phase='{phase}',round=2}}]"
    result = run("naive-bayes", tmp_path / "run", kill, "federation.sites=6").result
    assert result["model"]["sites"] == ["site-1", "site-3", "site-4", "site-5", "site-6"]
    assert result["centralised"]["max_decision_difference"] < 1e-6
