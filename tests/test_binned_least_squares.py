"""Least squares in random bins: the kernel they estimate, the pooled solution, and what a list of records says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics.pairwise import laplacian_kernel

from fedsvm import ScenarioError, classifier
from fedsvm.algorithms.binned_least_squares import BinnedModel
from fedsvm.algorithms.features.random_bins import RandomBins, added_up, to_matrix, values
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.predict import predict
from fedsvm.scenarios.schema import spec
from tests.test_runs import run
from tests.test_several_classes import scenario

SMALL = ["data.source=wdbc", "data.positive=malignant", "data.scale=standard", "algorithm.gamma=0.03"]


def test_rows_share_bins_as_often_as_the_kernel_says() -> None:
    rows = np.random.default_rng(0).normal(size=(12, 4))
    features = RandomBins.draw(0.3, 20_000, 50_000, 4, seed=1)(rows)
    shared = (features[:, None] == features[None]).mean(axis=2)
    np.testing.assert_allclose(shared, laplacian_kernel(rows, gamma=0.3), atol=0.015)  # 4 deviations


def test_products_are_those_of_the_matrix() -> None:
    random = np.random.default_rng(0)
    grids = RandomBins.draw(0.5, 7, 20, 3, seed=2)
    features = grids(random.normal(size=(30, 3)))
    matrix = to_matrix(features, 140).toarray()
    weights, amounts = random.normal(size=(2, 140)), random.normal(size=(2, 30))
    np.testing.assert_allclose(values(features, weights), weights @ matrix.T)
    np.testing.assert_allclose(added_up(features, amounts, 140), amounts @ matrix)
    np.testing.assert_allclose((matrix**2).sum(axis=1), 1.0)


def test_it_is_the_ridge_regression_of_pooled_rows(tmp_path: Path) -> None:
    finished = run("binned-least-squares", tmp_path / "run", *SMALL, "algorithm.tolerance=1e-9")
    result, model = finished.result, finished.result["model"]
    assert result["centralised"]["max_decision_difference"] < 1e-6
    assert result["metrics"]["accuracy"] > 0.94
    assert result["cost"]["by_phase"]["train"]["rounds"] == model["iterations"] + 2  # the grids are told, labels summed
    with np.load(finished.folder / "model.npz") as arrays:
        grids = RandomBins.of_parts(arrays)
        again = BinnedModel(grids, arrays["w"])
        assert grids.dimensions == model["figures"]["rank"] == 60_000
    assert again.weights.shape == (60_000,)
    assert len(predict(finished.folder, "wdbc").predicted) == 569


def test_several_classes_and_a_killed_site(tmp_path: Path) -> None:
    path = scenario(tmp_path, "binned-least-squares")
    kill = "faults=[{kind='kill',site=2,phase='train',round=4}]"
    narrow = ["algorithm.gamma=0.05", "algorithm.bins=200", "algorithm.tolerance=1e-9"]
    finished = run(str(path), tmp_path / "run", *narrow, kill)
    assert finished.result["sites"][1]["status"] == "dropped"
    assert finished.result["centralised"]["max_decision_difference"] < 1e-6
    assert finished.result["metrics"]["accuracy"] > 0.94
    assert predict(finished.folder, "wine").decisions.shape == (178, 3)


@pytest.mark.parametrize(("gamma", "least"), [(0.03, 400), (0.1, 455)])
def test_a_list_of_records_says_which_are_there(gamma: float, least: int, tmp_path: Path) -> None:
    """All of them where bins are narrow; of wide ones those that are not in the same bins as others."""
    listed = 'collusion={sites=[],coordinator=true,candidates="source"}'
    changes = [*SMALL, f"algorithm.gamma={gamma}", "compare.centralised=false", listed]
    (found,) = run("binned-least-squares", tmp_path / "run", *changes).result["audit"]
    assert (found["false_claims"], found["rows"]) == (0, 455)
    assert found["recovered"] >= least


def test_an_estimator_tells_several_classes_apart() -> None:
    random = np.random.default_rng(0)
    y = random.integers(3, size=240)
    X = random.normal(size=(240, 4)) + 3 * np.eye(3, 4)[y]
    model = classifier("binned-least-squares")(gamma=0.1, bins=300).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.decision_function(X).shape == (240, 3)


def test_a_sum_of_too_many_numbers_is_refused() -> None:
    with pytest.raises(ScenarioError, match="bins: must be 1000 or fewer for 1000 grids"):
        dataset.prepare(*spec.read("binned-least-squares", overrides=["algorithm.grids=1000"]))


@pytest.mark.long
def test_census_error_is_what_the_paper_has(tmp_path: Path, data_folder: Path) -> None:
    """Rahimi and Recht have 15.3 % on Adult with 30 grids."""
    assert data_folder
    (tmp_path / "a9a.toml").write_text(
        """
[data]
source = "a9a_train"
test_source = "a9a_test"
positive = "1"
scale = "none"
[algorithm]
name = "binned-least-squares"
gamma = 0.1
[compare]
centralised = false
"""
    )
    result = run(str(tmp_path / "a9a.toml"), tmp_path / "run").result
    assert 0.840 < result["metrics"]["accuracy"] < 0.853
