"""Landmarks by noisy statistics in real federations: what sites are asked, what they refuse, and what results say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.attacks.attack import Prior, RowClaim
from fedsvm.algorithms.attacks.landmark_copies import LandmarkCopies
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.drawn_landmark_sums import DrawnLandmarks
from fedsvm.algorithms.features.drawn_landmarks import ENOUGH, RowDescription, drawn_landmarks
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.federation.errors import OrderRefused
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.conftest import long_but_for
from tests.test_runs import run

NOISY = ("data.statistics_privacy=0.5", "compare.centralised=false")
QUICK = ("algorithm.tolerance=1e-2",)


def landmarks_of(folder: Path) -> Any:
    """The landmarks in a model's file."""
    with np.load(folder / "model.npz") as file:
        return file["landmarks"]


def times(result: dict[str, Any], step: str) -> int:
    """Return the number of times that a sum was opened."""
    shown = (each for each in result["disclosures"] if (each["kind"], each["step"]) == ("sum", step))
    return sum(each["times"] for each in shown)


def sentence(result: dict[str, Any]) -> str:
    """Return the remark of a result on landmarks."""
    return next(str(each["sentence"]) for each in result["model"]["remarks"] if each["name"] == "landmarks")


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The quickstart with noisy statistics."""
    return run("quickstart", tmp_path_factory.mktemp("quickstart") / "run", *NOISY)


def test_the_quickstart_draws_boards_from_noisy_statistics_and_loses_no_accuracy(quickstart: Any) -> None:
    """No seed of twenty gave less than 96 %; noise that moves the figure by three points has never been seen."""
    assert quickstart.result["metrics"]["accuracy"] >= 0.94
    points = landmarks_of(quickstart.folder)
    assert points.shape[1] == 27
    assert set(np.unique(points)) == {0.0, 1.0}
    np.testing.assert_array_equal(points.reshape(-1, 9, 3).sum(axis=2), 1.0)
    figures = quickstart.result["model"]["figures"]
    assert figures["explained_share"] >= ENOUGH
    assert sentence(quickstart.result).startswith("drawn from noisy statistics, so that none reveals a row")


def test_sites_are_asked_for_two_noisy_vectors_and_for_no_mean_of_rows(quickstart: Any) -> None:
    asked = {each["step"] for each in quickstart.result["disclosures"] if each["kind"] == "sum"}
    assert {"noisy_statistics", "explained_shares"} <= asked
    assert not asked & {"local_landmarks", "cluster_sums", "column_sums"}


def test_where_drawn_landmarks_do_not_reach_the_rows_means_with_noise_take_their_place(tmp_path: Path) -> None:
    """A kernel so narrow that no drawn board is near another one: the share is 300 of 3^9 boards at most."""
    changes = [*NOISY, *QUICK, "algorithm.gamma=20", "algorithm.landmarks=40", "algorithm.max_landmarks=40"]
    outcome = run("quickstart", tmp_path / "run", *changes, "data.test_fraction=0", "data.folds=2")
    result = outcome.result
    assert sentence(result).startswith("means of rows with noise of 0.5 deviations, for which no mu is claimed")
    assert times(result, "local_landmarks") == times(result, "explained_shares") == 1 < times(result, "squared_norms")
    points = landmarks_of(outcome.folder)
    assert len(np.unique(points)) == points.size


def test_a_killed_site_leaves_the_landmarks_of_all_folds_as_they_are(tmp_path: Path) -> None:
    changes = [*NOISY, *QUICK, "algorithm.landmarks=40", "data.test_fraction=0", "data.folds=2"]
    fault = "faults=[{kind='kill',site=3,phase='train',round=3,rejoin=true}]"
    outcome = run("quickstart", tmp_path / "run", *changes, fault)
    assert len(outcome.result["memberships"]) > 1
    assert times(outcome.result, "explained_shares") == 1 < times(outcome.result, "squared_norms")


@pytest.mark.parametrize(
    "name", long_but_for(["svm-admm", "least-squares", "logistic-regression", "voting-ensemble"], "voting-ensemble")
)
def test_all_algorithms_with_landmarks_draw_them(name: str, tmp_path: Path) -> None:
    changes = [*NOISY, "algorithm.landmark_method=drawn", "algorithm.landmarks=30"]
    changes += ["algorithm.features=landmarks", "algorithm.kernel=rbf", "algorithm.gamma=0.1"]
    table = f"algorithm={{name='{name}'}}"
    result = run("quickstart", tmp_path / "run", table, *changes).result
    assert result["model"]["figures"]["landmarks"] == 30
    assert 0 < result["model"]["figures"]["explained_share"] <= 1


def test_landmarks_depend_on_totals_alone_and_not_on_whose_rows_are_where() -> None:
    """The same totals give the same landmarks to the last bit, whichever site contributed what."""
    random = np.random.default_rng(1)
    rows = np.rint(random.normal(size=(60, 3)) * 64) / 64  # sums of these are exact in any order

    def described(parts: list[Any]) -> RowDescription:
        total = np.sum([part.sum(axis=0) for part in parts], axis=0)
        products = np.sum([part.T @ part for part in parts], axis=0)
        mean, wide = total / 60, np.full(3, 100.0)
        return RowDescription(
            60.0, -wide, wide, mean, products / 60 - np.outer(mean, mean), np.full((3, 3), 0.1), [], np.zeros(0)
        )

    one = drawn_landmarks(described(np.array_split(rows, 3)), 20, seed=1)
    other = drawn_landmarks(described([rows[::2], rows[1:6:2], rows[7::2]]), 20, seed=1)
    np.testing.assert_array_equal(one, other)


def test_nobody_claims_that_a_drawn_landmark_is_a_row() -> None:
    feature_map = NystromMap.span(Kernel("rbf", 0.5), np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), 1e-10)
    rounds = [
        SimpleNamespace(step="encode", parameters={"values": [["a", "b"]]}),
        SimpleNamespace(step="rescale", parameters={"offset": np.zeros(2), "scale": np.ones(2)}),
        SimpleNamespace(step="receive_map", parameters=feature_map.to_fields()),
    ]
    view: Any = SimpleNamespace(rounds=rounds)
    (claim,) = LandmarkCopies()(view, Prior())
    assert isinstance(claim, RowClaim)
    assert len(claim.rows) == 2
    rounds.insert(2, SimpleNamespace(step="describe_rows", parameters={}))
    assert list(LandmarkCopies()(view, Prior())) == []


# What is refused.


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["landmark_method=drawn"], "algorithm.landmark_method: drawn landmarks follow from noisy statistics"),
        (["landmark_method=local", "landmark_noise=0.5"], "algorithm.landmark_noise: is in noisy standard deviations"),
    ],
)
def test_noise_and_draws_need_noisy_statistics(changes: list[str], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        spec.read("quickstart", overrides=[f"algorithm.{each}" for each in changes])


def test_a_site_refuses_landmarks_that_it_does_not_draw_and_a_second_description() -> None:
    site: Any = SimpleNamespace(
        encoded=np.zeros((5, 4)),
        partition=SimpleNamespace(values={"numeric": ["a", "b"]}),
        channel=SimpleNamespace(sites=("site-1", "site-2")),
        terms=SimpleNamespace(seed=3),
        scale=Scale.none(4),
        columns=np.arange(4),
    )
    half = DrawnLandmarks(site)
    arrays: dict[str, Any] = {name: np.zeros(2) for name in ("low", "mean")} | {"high": np.ones(2)}
    arrays |= {"covariance": np.eye(2), "noise": np.zeros((2, 2)), "gaps": np.zeros(0)}
    half.describe_rows([[0.5, 0.5]], 10.0, **arrays)
    half.describe_rows([[0.5, 0.5]], 10.0, **arrays)
    points = half.points(6)
    half.require_drawn(points)
    for other in (points + 1e-3, points[:, :2], points[::-1]):
        with pytest.raises(OrderRefused, match="landmarks must be those that the agreed seed draws"):
            half.require_drawn(other)
    with pytest.raises(OrderRefused, match="must stay the same"):
        half.describe_rows([[0.5, 0.5]], 10.0, **arrays | {"mean": np.ones(2)})
    with pytest.raises(OrderRefused, match="must be of the 4 columns, 2 of them numeric"):
        half.describe_rows([[0.2, 0.3, 0.5]], 10.0, **arrays)
