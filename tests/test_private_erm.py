"""Output and objective perturbation: the right minimiser, noise of the promised size, another library's errors."""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.dp_erm.model import ErmModel, at_most_one
from fedsvm.algorithms.dp_erm.perturbation import perturb_objective, sufficient_rows
from fedsvm.algorithms.dp_erm.settings import ErmSettings, Perturbation
from fedsvm.algorithms.dp_erm.training import train
from fedsvm.algorithms.losses import LOGISTIC, LOSSES, Loss, huber, require_sound
from fedsvm.algorithms.optimization.loss_sums import Plan, erm_sums, minimize_together
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant
from fedsvm.algorithms.privacy.mechanisms import PrivacyParameters, noise_for
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError, StepRefused
from tests.conftest import drill
from tests.tasks import partitions, public_task, table
from tests.test_runs import run

HUBER = huber(0.5)
PUBLIC = LabeledRows(np.array([[4.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]), np.array([1.0, -1.0]))
"""Rows are divided by the length of the longer one."""


@pytest.mark.parametrize("loss", [LOGISTIC, HUBER, huber(0.1)], ids=["logistic", "huber", "sharp huber"])
def test_losses_have_the_derivatives_that_the_proofs_need(loss: Loss) -> None:
    require_sound(loss)
    assert np.isfinite(np.concatenate(loss(np.array([-1e6, 1e6])))).all()


def squared_root(margins: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return sqrt(1 + (1 - z)^2) - 1, a pseudo-Huber loss, with a slope and a curvature of 1 at most."""
    root = np.sqrt(1 + (1 - margins) ** 2)
    return root - 1, (margins - 1) / root, root**-3


PSEUDO_HUBER = Loss("pseudo-huber", squared_root, 1.0, 1.0)


def part(place: int, change: Callable[[FloatArray], FloatArray]) -> Any:
    """Return the pseudo-Huber loss with one of its three arrays changed."""

    def changed(margins: FloatArray) -> Any:
        arrays = list(squared_root(margins))
        arrays[place] = change(arrays[place])
        return arrays

    return changed


@pytest.mark.parametrize(
    ("evaluate", "slope", "curvature", "sentence"),
    [
        (squared_root, 0.9, 1.0, "first derivative must be 0.9 at most"),
        (squared_root, 1.0, 0.9, "second derivative must be 0.9 at most, got 1"),
        (squared_root, 1.0, np.inf, "finite numbers above 0"),
        (part(0, np.negative), 1.0, 1.0, "must be convex"),
        (part(1, lambda slopes: 1.001 * slopes), 1.1, 1.0, "must be convex"),
        (part(2, lambda curvatures: 0.9 * curvatures), 1.0, 1.0, "must be that of its values"),
        (part(2, lambda curvatures: curvatures[:-1]), 1.0, 1.0, "three arrays with a number for each margin"),
        (part(0, lambda values: np.where(values > 5000, np.inf, values)), 1.0, 1.0, "must be finite"),
        (part(0, lambda values: values - values.mean()), 1.0, 1.0, "each margin by itself"),
        (part(0, lambda values: values - 1.0), 1.0, 1.0, "nowhere negative; add a constant"),
    ],
)
def test_a_loss_whose_parts_or_bounds_disagree_is_refused(
    evaluate: Any, slope: float, curvature: float, sentence: str
) -> None:
    require_sound(PSEUDO_HUBER)
    with pytest.raises(ValueError, match=sentence):
        require_sound(Loss("wrong", evaluate, slope, curvature))


def test_noise_grows_with_the_slope_of_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    def thrice(margins: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        value, slope, curvature = squared_root(margins)
        return 3 * value, 3 * slope, 3 * curvature

    steep = Loss("steep", thrice, 3.0, 3.0)
    require_sound(steep)
    settings = ErmSettings(0.1, loss="steep", perturbation="objective", epsilon=1.0)
    monkeypatch.setitem(LOSSES._own, "steep", lambda: lambda half_width: steep)
    left = 1.0 - 2 * math.log(1 + 3.0 / (1000 * 0.1))
    assert perturb_objective(settings, 3, 1000).scale == pytest.approx(2 * 3.0 / left)


def test_sufficient_rows_are_those_of_theorems_4_and_5() -> None:
    settings = ErmSettings(0.1, epsilon=0.5)
    assert sufficient_rows(settings, 40, 2) == {"rows_by_objective": 800, "rows_by_output": 2530}
    assert sufficient_rows(ErmSettings(0.1, epsilon=100.0), 3, 2) == {"rows_by_objective": 100, "rows_by_output": 100}
    assert sufficient_rows(ErmSettings(0.1, perturbation="none"), 40, 2) == {}


def federated(settings: ErmSettings, private: LabeledRows, accountant: PrivacyAccountant | None = None) -> ErmModel:
    task = public_task(PUBLIC, accountant)
    with drill(3, program="dp-erm", partitions=partitions(private, 3)) as federation:
        task.prepare(federation)
        return train(federation, settings, task)


def test_without_noise_a_federation_finds_scikit_learns_logistic_regression() -> None:
    private = table(500)
    model = federated(ErmSettings(0.02, perturbation="none"), private)
    points = at_most_one(private.rows / 4.0, clip=True)
    other = LogisticRegression(C=1 / (500 * 0.02), fit_intercept=False, tol=1e-10, max_iter=10_000)
    np.testing.assert_allclose(model.weights, other.fit(points, private.labels).coef_[0], atol=1e-6)
    assert model.noise is None


def test_without_noise_hubers_svm_is_at_its_minimum() -> None:
    private = table(500)
    model = federated(ErmSettings(0.02, loss="huber", perturbation="none"), private)
    points = at_most_one(private.rows / 4.0, clip=True)
    sums = erm_sums(points, private.labels, model.weights, HUBER) / 500
    assert np.linalg.norm(sums[1:5] + 0.02 * model.weights) < 1e-9


@pytest.mark.parametrize("perturbation", ["output", "objective"])
def test_a_release_is_noisy_and_accounted_for(perturbation: Perturbation) -> None:
    private, accountant = table(300), PrivacyAccountant(1.0)
    settings = ErmSettings(0.05, perturbation=perturbation, epsilon=1.0)
    exact = federated(ErmSettings(0.05, perturbation="none"), private).weights
    model = federated(settings, private, accountant)
    assert np.linalg.norm(model.weights - exact) > 1e-4
    (release,) = accountant.releases
    assert (release.epsilon, release.mechanism) == (1.0, f"{perturbation} perturbation")
    with pytest.raises(FederationError, match="would exceed the budget"):
        federated(settings, private, accountant)


def test_output_noise_is_what_the_paper_says() -> None:
    """Norm Gamma(d, 2 / (n lambda epsilon)), but for what is left of the gradient, and rounding."""
    noise = noise_for(PrivacyParameters("spherical", 0.5), 6, 2 / (400 * 0.05), 0.0)
    assert noise.scale == pytest.approx(2 / (400 * 0.05 * 0.5), rel=1e-4)
    norms = np.linalg.norm([noise.released(np.zeros(6)) for _ in range(4000)], axis=1)
    assert norms.mean() == pytest.approx(6 * noise.scale, rel=0.05)


@pytest.mark.parametrize(("epsilon", "regularisation"), [(1.0, 0.1), (0.01, 0.001), (4.0, 0.01)])
def test_the_perturbed_objective_is_the_papers(epsilon: float, regularisation: float) -> None:
    plan = perturb_objective(ErmSettings(regularisation, perturbation="objective", epsilon=epsilon), 3, 100)
    left = epsilon - 2 * math.log(1 + 0.25 / (100 * regularisation))
    if left > 0:
        assert plan.regularisation == regularisation
        assert plan.scale == pytest.approx(2 / left)
    else:
        assert plan.regularisation == pytest.approx(0.25 / (100 * (math.exp(epsilon / 4) - 1)))
        assert plan.scale == pytest.approx(4 / epsilon)


def test_rows_that_are_too_long_are_refused_or_clipped() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4]])
    np.testing.assert_allclose(np.linalg.norm(at_most_one(rows, clip=True), axis=1), [1.0, 0.5])
    with pytest.raises(StepRefused, match=r"one of its rows or more exceeds .* set algorithm\.clip_norm = true"):
        at_most_one(rows, clip=False)


# Beside diffprivlib.


@functools.cache
def diffprivlibs_mechanisms() -> Any:
    """diffprivlib.mechanisms alone: its models do not import beside current versions of scikit-learn."""
    found = importlib.util.find_spec("diffprivlib")
    assert found is not None
    package = types.ModuleType("diffprivlib")
    package.__path__ = list(found.submodule_search_locations or [])
    sys.modules["diffprivlib"] = package
    return importlib.import_module("diffprivlib.mechanisms")


def tumours() -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Rows of length 1 at most to train and to test on, with labels."""
    rows, target = load_breast_cancer(return_X_y=True)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    points, labels = at_most_one(rows / 10.0, clip=True), 2.0 * target - 1.0
    order = np.random.default_rng(0).permutation(len(rows))
    return points[order[:400]], labels[order[:400]], points[order[400:]], labels[order[400:]]


LAMBDA = 0.1
DRAWS = 60


def errors(fit: Callable[[], FloatArray]) -> FloatArray:
    """(DRAWS,) test errors of as many models."""
    _, _, test, labels = tumours()
    return np.array([float(np.mean(np.sign(test @ fit()) != labels)) for _ in range(DRAWS)])


def minimizer(points: FloatArray, labels: FloatArray, plan: Plan) -> FloatArray:
    """Return the minimizer (d,) of one problem over rows in one place."""

    def sums(_active: list[int], at: FloatArray) -> FloatArray:
        return erm_sums(points, labels, at[0], LOGISTIC)[None]

    (found,) = minimize_together(sums, [plan], len(points))
    return found


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0])
def test_mean_errors_are_those_of_diffprivlib(epsilon: float, record_property: Callable[..., None]) -> None:
    points, labels, _, _ = tumours()
    rows, size = points.shape
    vector = diffprivlibs_mechanisms().Vector(
        epsilon=epsilon, dimension=size, alpha=rows * LAMBDA, function_sensitivity=0.25, n=rows
    )

    def theirs() -> FloatArray:
        def loss(f: FloatArray) -> tuple[float, FloatArray]:
            values, slopes, _ = LOGISTIC(labels * (points @ f))
            return float(values.mean() + 0.5 * LAMBDA * f @ f), (slopes * labels) @ points / rows + LAMBDA * f

        return np.asarray(minimize(vector.randomise(loss), np.zeros(size), jac=True, method="L-BFGS-B").x)

    def ours(perturbation: Perturbation) -> FloatArray:
        plan = perturb_objective(ErmSettings(LAMBDA, perturbation=perturbation, epsilon=epsilon), size, rows)
        f = minimizer(points, labels, plan)
        if perturbation == "objective":
            return f
        return noise_for(PrivacyParameters("spherical", epsilon), size, 2 / (rows * LAMBDA), 0.0).released(f)

    found = {"theirs": errors(theirs), "ours": errors(partial(ours, "objective"))}
    record_property("mean_errors", {name: float(each.mean()) for name, each in found.items()})
    apart = abs(found["ours"].mean() - found["theirs"].mean())
    assert apart <= 5 * math.sqrt((found["ours"].var() + found["theirs"].var()) / DRAWS) + 0.005
    by_output = errors(partial(ours, "output"))
    assert by_output.mean() <= 0.5 + 5 * by_output.std() / math.sqrt(DRAWS)
    if epsilon >= 4:
        assert by_output.mean() < 0.12


def test_the_exact_minimiser_is_the_plans() -> None:
    points, labels, _, _ = tumours()
    plan = Plan(0.05, np.full(points.shape[1], 3.0), None)
    f = minimizer(points, labels, plan)
    sums = erm_sums(points, labels, f, LOGISTIC) / len(points)
    assert np.linalg.norm(sums[1 : 1 + len(f)] + 0.05 * f + plan.b / len(points)) <= 1e-10


@pytest.mark.parametrize("seed", [17, 197, 303])
def test_the_minimiser_is_reached_where_large_noise_cancels(seed: int) -> None:
    points, labels, _, _ = tumours()
    b = np.random.default_rng(seed).normal(size=(points.shape[1],))
    plan = Plan(LAMBDA, b * (155 / np.linalg.norm(b)), None)
    minimizer(points, labels, plan)


# Runs.


@pytest.mark.parametrize("changes", [[], ["algorithm.perturbation=output"], ["algorithm.loss=huber"]])
def test_a_run_releases_one_model_and_says_how(changes: list[str], tmp_path: Path) -> None:
    result = run("dp-logistic", tmp_path / "run", *changes, "algorithm.epsilon=50.0", "algorithm.budget=50.0").result
    assert result["metrics"]["accuracy"] > 0.8
    assert result["privacy"]["epsilon"] == 50.0
    assert result["privacy"]["drawn_by"] == "the coordinator"
    assert result["model"]["objective"] is None
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]


def test_a_declared_range_is_the_scale_whatever_public_rows_are(tmp_path: Path) -> None:
    finished = run("dp-logistic", tmp_path / "run", "data.ranges={mean-radius=[5.0, 25.0]}", "algorithm.epsilon=1.0")
    model = np.load(finished.folder / "model.npz")
    place = model["columns"].tolist().index("mean-radius")
    assert (model["offset"][place], model["scale"][place]) == (15.0, 10.0)
    assert model["scale"][place + 1] not in (1.0, 10.0)


def test_a_kernel_comes_from_public_features(tmp_path: Path) -> None:
    changes = ["algorithm.features=20", "algorithm.sigma=6.0", "algorithm.epsilon=50.0", "algorithm.budget=50.0"]
    finished = run("dp-logistic", tmp_path / "run", *changes)
    model = np.load(finished.folder / "model.npz")
    assert (model["rho"].shape, model["w"].shape) == ((20, 30), (40,))
    assert not any("longer" in warning for warning in finished.result["warnings"])


@pytest.mark.parametrize("perturbation", ["objective", "output"])
def test_a_private_run_that_is_audited_ends_with_what_colluders_learnt(perturbation: str, tmp_path: Path) -> None:
    changes = ["collusion.sites=[1, 3]", "collusion.coordinator=true", f"algorithm.perturbation={perturbation}"]
    result = run("dp-logistic", tmp_path / "run", *changes).result
    assert {victim["site"] for victim in result["collusion"]["victims"] if victim["recovered"]} == {"site-2"}
    assert result["privacy"]["not_covered"][-1] == "collusion, transcripts: what colluding parties saw of sums"
    remarks = result["privacy"]["releases"][0]["remarks"]
    assert bool(remarks) == (perturbation == "objective")
    assert result["privacy"]["delta"] == 0.0 if perturbation == "objective" else 0 < result["privacy"]["delta"] < 1e-30
