"""The selector in scikit-learn's sense: its checks, pipelines and searches, more classes than two, what it refuses."""

from __future__ import annotations

import doctest
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.feature_selection import RFE, SelectKBest, f_classif
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from fedsvm import FederatedSelector
from fedsvm.algorithms.estimators import selector
from tests.conftest import site_processes, wait_until

X, Y = load_wine(return_X_y=True)
SOME = np.flatnonzero(Y < 2)
TWO = np.where(Y[SOME] == 1, "b", "a")


@pytest.mark.long
def test_scikit_learns_checks_pass(temporary_folder: Path) -> None:
    """All of them, three classes among them."""
    checks = check_estimator(FederatedSelector(), on_fail=None, on_skip=None)
    assert len(checks) >= 45
    assert [check for check in checks if check["status"] == "failed"] == []
    wait_until(lambda: not site_processes(temporary_folder))


def test_examples_in_docstrings_are_true() -> None:
    found = doctest.testmod(selector)
    assert (found.attempted > 0, found.failed) == (True, 0)


def test_of_three_classes_it_chooses_what_pooled_rows_do() -> None:
    chosen = FederatedSelector(size=5, sites=4, sum="masked").fit(X, Y)
    pooled = SelectKBest(f_classif, k=5).fit(X, Y)
    np.testing.assert_array_equal(chosen.get_support(), pooled.get_support())
    np.testing.assert_allclose(chosen.scores_, pooled.scores_, rtol=1e-9)
    assert chosen.transform(X).shape == (178, 5)
    assert chosen.result_["cost"]["wire_bytes"] == chosen.result_["cost"]["predicted_wire_bytes"]


@pytest.mark.parametrize("solver", ["interior-point", "cutting-plane"])
def test_elimination_of_three_classes_is_scikit_learns(solver: str) -> None:
    """By the sum of squared weights of each class against the rest, all three trained in the same rounds."""
    options = {"select_solver": solver, "select_groups": 32}
    chosen = FederatedSelector(method="rfe", size=7, options=options).fit(X, Y)

    def importance(model: OneVsRestClassifier) -> Any:
        return np.sum([each.coef_[0] ** 2 for each in model.estimators_], axis=0)

    rows = StandardScaler().fit_transform(X)
    svm = OneVsRestClassifier(SVC(kernel="linear", C=1.0, tol=1e-8))
    expected = RFE(svm, n_features_to_select=7, importance_getter=importance).fit(rows, Y)
    np.testing.assert_array_equal(chosen.ranking_, expected.ranking_)
    steps = chosen.result_["selection"]["ranking"]["steps"]
    assert all(step["certain"] for step in steps)


def test_pipelines_searches_and_pickles() -> None:
    pipeline = make_pipeline(FederatedSelector(), StandardScaler(), SVC())
    search = GridSearchCV(pipeline, {"federatedselector__size": [2, 6]}, cv=2).fit(X, Y)
    assert search.best_score_ > 0.85
    assert cross_val_score(pipeline.set_params(federatedselector__size=6), X, Y, cv=2).mean() > 0.85
    fitted = FederatedSelector(size=4).fit(X, Y)
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301 - written a moment ago
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    assert clone(fitted).get_params()["size"] == 4
    back = fitted.inverse_transform(fitted.transform(X))
    assert back.shape == X.shape
    assert sorted(fitted.ranking_.tolist()) == [1, 1, 1, *range(1, 11)]


def test_sites_are_those_that_groups_name() -> None:
    where = np.array(["north", "south", "east"])[np.arange(len(SOME)) % 3]
    chosen = FederatedSelector(size="significant", options={"statistic": "welch"}).fit(X[SOME], TWO, groups=where)
    assert sorted(site["name"] for site in chosen.result_["sites"]) == ["east", "north", "south"]
    assert 1 <= chosen.n_features_ <= 13
    assert set(chosen.classes_) == {"a", "b"}


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"method": "pan-svm"}, "method must be one of filter, rfe"),
        ({"options": {"colour": "red"}}, "options must be settings of filter"),
        ({"options": {"statistics_privacy": 0.5}}, "options must be settings of filter.*statistics_privacy is none"),
        ({"options": {"statistic": "welch"}}, 'statistic: "welch" needs two classes, got 3'),
        ({"method": "rfe", "options": {"weights": "kernel"}}, 'weights: "kernel" needs two classes'),
        ({"method": "sparse-svm"}, "Only binary classification is supported. The type of the target is multiclass"),
        ({"size": 0}, "size must be"),
        ({"sites": 0}, "sites must be"),
    ],
)
def test_what_will_not_do_is_a_sentence(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        FederatedSelector(**parameters).fit(X, Y)
