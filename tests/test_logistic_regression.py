"""Logistic regression by Newton's method on secure sums: scikit-learn's of pooled rows, in few rounds, and its hole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fedsvm import classifier
from fedsvm.algorithms.attacks.attack import CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.logistic_steps import LogisticSteps
from fedsvm.algorithms.attacks.second_moments import SecondMoments
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.logistic_regression.systems import newton_terms
from tests.commands import fedsvm
from tests.tasks import NAMES, table
from tests.test_runs import run
from tests.views import WrittenDown, scaled

Federated = classifier("logistic-regression")
ROWS, LABELS = table(150, seed=2)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("regularisation", [1e-4, 0.5, 30.0])
def test_it_is_scikit_learns_of_pooled_rows(regularisation: float, intercept: bool) -> None:
    settings = {"regularisation": regularisation, "intercept": intercept, "tolerance": 1e-13}
    model = Federated(kernel="linear", features="identity", scale="none", **settings).fit(ROWS, LABELS)
    expected = LogisticRegression(C=1 / regularisation, fit_intercept=intercept, tol=1e-12, solver="newton-cholesky")
    expected.fit(ROWS, LABELS)
    np.testing.assert_allclose(model.model_.w, expected.coef_[0], atol=1e-6)
    assert model.model_.b == pytest.approx(float(expected.intercept_[0]) if intercept else 0.0, abs=1e-6)
    assert model.n_iter_ <= 12


def test_classes_that_can_be_told_apart_for_certain_have_an_optimum_all_the_same() -> None:
    """Newton's full steps go too far there, and are halved."""
    labels = np.where(ROWS[:, 0] > 0.3, 1.0, -1.0)
    model = Federated(kernel="linear", features="identity", scale="none", regularisation=1e-6).fit(ROWS * 50, labels)
    assert model.score(ROWS * 50, labels) == 1
    assert model.result_["model"]["converged"]


def test_terms_are_derivatives_of_the_loss() -> None:
    point, ahead = np.array([0.3, -1.0, 0.2, 0.5]), 1e-5
    loss, gradient, hessian = newton_terms(ROWS, LABELS, point)
    assert loss == pytest.approx(np.log1p(np.exp(-LABELS * (ROWS @ point))).sum())
    for place, unit in enumerate(np.eye(4)):
        up, down = (newton_terms(ROWS, LABELS, point + sign * ahead * unit) for sign in (1, -1))
        assert gradient[place] == pytest.approx((up[0] - down[0]) / (2 * ahead), rel=1e-6)
        np.testing.assert_allclose(hessian[place], (up[1] - down[1]) / (2 * ahead), rtol=1e-5)


def test_a_scenario_takes_a_round_an_iteration(tmp_path: Path) -> None:
    result = run("logistic-regression", tmp_path / "run").result
    assert result["model"]["converged"]
    assert result["cost"]["by_phase"]["train"]["rounds"] == result["model"]["iterations"] + 1 <= 12
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    assert result["centralised"]["max_decision_difference"] < 1e-3
    assert result["metrics"]["accuracy"] > 0.95
    predicted = fedsvm("predict", tmp_path / "run", "wdbc", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 570)


@pytest.mark.parametrize(("phase", "number"), [("setup", 2), ("landmarks", 1), ("train", 1), ("train", 4)])
def test_a_site_that_drops_is_done_without(phase: str, number: int, tmp_path: Path) -> None:
    kill = f"faults=[{{kind='kill',site=2,phase='{phase}',round={number}}}]"
    result = run("logistic-regression", tmp_path / "run", kill).result
    assert result["model"]["sites"] == ["site-1", "site-3", "site-4", "site-5"]
    assert result["centralised"]["max_decision_difference"] < 1e-3


def test_a_bad_setting_is_a_sentence(tmp_path: Path) -> None:
    done = fedsvm("run", "logistic-regression", "--set", "algorithm.tolerance=0", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "algorithm.tolerance: must be a number from 1e-15 and below 1, got 0." in done.stderr


def test_the_first_round_says_which_records_are_there() -> None:
    candidates, feature_map = table(300, seed=5), FourierMap.draw(0.3, 25, len(NAMES), seed=1)
    rows, labels = candidates.rows[:200], candidates.labels[:200]
    written = WrittenDown()
    z = feature_map(scaled(written, rows, []))
    written.add("receive_map", **feature_map.to_fields())
    loss, gradient, hessian = newton_terms(z, labels, np.zeros(50))
    scales = np.array([200.0, 200.0, 400.0])
    triangle = hessian[np.triu_indices(50)]
    total = np.concatenate([[loss / scales[0]], gradient / scales[1], triangle / scales[2]])[None]
    written.add("newton_sums", total, points=np.zeros((1, 50)), scales=scales, intercept=False)
    (claim,) = SecondMoments()(written.view(), Prior(candidates=candidates))
    assert isinstance(claim, RowClaim)
    assert {tuple(row) for row in claim.rows.tolist()} == {tuple(row) for row in rows.tolist()}
    assert len(claim.rows) == 200


# Behind a committee.


@pytest.mark.parametrize("intercept", [True, False])
def test_behind_a_committee_the_model_is_the_same(intercept: bool) -> None:
    classes = np.where(ROWS[:, 2] > 0, LABELS, 3)
    known = {"kernel": "linear", "features": "identity", "scale": "none", "intercept": intercept, "tolerance": 1e-13}
    clear = Federated(**known).fit(ROWS, classes)
    blind = Federated(**known, masking="committee", step_noise=0).fit(ROWS, classes)
    np.testing.assert_allclose(
        blind.model_.w, clear.model_.w, atol=1e-4
    )  # noise on the loss may end it a round earlier
    assert np.shape(blind.model_.w)[0] == 3
    assert abs(blind.n_iter_ - clear.n_iter_) <= 2
    noisy = Federated(**known, masking="committee").fit(ROWS, classes)
    np.testing.assert_allclose(noisy.model_.w, clear.model_.w, atol=0.01)


def test_behind_a_committee_steps_that_go_too_far_are_halved() -> None:
    labels = np.where(ROWS[:, 0] > 0.3, 1.0, -1.0)
    known = {"kernel": "linear", "features": "identity", "scale": "none", "regularisation": 1e-6}
    model = Federated(**known, masking="committee", step_noise=0).fit(ROWS * 50, labels)
    assert model.score(ROWS * 50, labels) == 1
    assert model.result_["model"]["converged"]


@pytest.mark.parametrize(
    ("masking", "sites", "recovered"),
    [
        ("none", "[]", {"second moments": 766}),
        ("committee", '["site-2"]', {}),
        pytest.param("committee", "[]", {}, marks=pytest.mark.long),
    ],
)
def test_a_list_of_records_yields_no_board_behind_a_committee(
    masking: str, sites: str, recovered: dict[str, int], tmp_path: Path
) -> None:
    changes = ["algorithm.name=logistic-regression", "algorithm.features=fourier", "algorithm.frequencies=25"]
    collusion = f"collusion={{sites={sites}, coordinator=true}}"
    result = run("quickstart", tmp_path / "run", *changes, f"algorithm.masking={masking}", collusion).result
    (audit,) = result["audit"]
    found = {each["attack"]: each["recovered"] for each in audit["attacks"] if each["recovered"]}
    assert found.pop("logistic steps", 0) < 30  # seldom any: the steps have random noise
    assert found == recovered
    assert result["model"]["converged"]


def test_a_site_that_drops_behind_a_committee_is_done_without(tmp_path: Path) -> None:
    kill = "faults=[{kind='kill',site=2,phase='train',round=4}]"
    changes = ("algorithm.masking=committee", "algorithm.tolerance=1e-13")
    result = run("logistic-regression", tmp_path / "run", kill, *changes).result
    assert result["model"]["sites"] == ["site-1", "site-3", "site-4", "site-5"]
    assert result["model"]["converged"]
    assert result["centralised"]["max_decision_difference"] < 0.01


def test_points_with_little_noise_say_who_is_there() -> None:
    candidates, feature_map = table(60, seed=5), FourierMap.draw(0.3, 25, len(NAMES), seed=1)
    written, random, dither = WrittenDown(), np.random.default_rng(0), 1e-6
    rows, labels = candidates.rows[:40], candidates.labels[:40]
    z = feature_map(scaled(written, rows, []))
    written.add("receive_map", **feature_map.to_fields())
    point, scales = np.zeros(50), np.array([40.0, 1.0, 1.0])
    told: dict[str, Any] = {"scales": scales, "dithers": np.full((1, 2), dither), "intercept": False}
    for _ in range(5):
        written.add("blind_steps", points=point[None], **told)
        _, gradient, hessian = newton_terms(z, labels, point)
        noise = dither * random.standard_normal(50)
        point = point + np.linalg.solve(hessian + np.eye(50), noise - gradient - point)
    found = list(LogisticSteps(0.1, 1.0)(written.view(coordinator=True), Prior(candidates=candidates)))
    scores, claim = found
    assert isinstance(scores, CandidateScores)
    assert isinstance(claim, RowClaim)
    assert {tuple(row) for row in claim.rows.tolist()} <= {tuple(row) for row in rows.tolist()}
    assert len(claim.rows) >= 35
