"""Weights of classes and of rows: the problem that LIBSVM solves with the same ones."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC

from fedsvm import PanSVC, ScenarioError, run
from fedsvm.algorithms.optimization.weighting import (
    EXPONENTS,
    ClassWeightSettings,
    Factors,
    Weighting,
    agreement_on_factors,
    bound_of,
    mark_power_of_two,
)
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.schema import spec
from tests.conftest import long_but_for

TOLERANCE = 1e-6
SMALL: dict[str, Any] = {
    "data.source": "wdbc",
    "data.positive": "malignant",
    "data.scale": "standard",
    "algorithm.features": "identity",
    "algorithm.kernel": "linear",
    "algorithm.C": 0.5,
    "algorithm.tolerance": TOLERANCE,
}


def weighted_file(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Rows of two overlapping classes, of which few are positive, each with a weight."""
    random = np.random.default_rng(3)
    signs = np.where(random.random(400) < 0.15, 1, 0)
    points = random.normal(size=(400, 3)) + signs[:, None]
    weights = random.gamma(1.0, 2.0, size=400).round(3) + 0.001
    lines = [
        ",".join(map(str, [*point, weight, sign])) for point, weight, sign in zip(points, weights, signs, strict=True)
    ]
    path = folder / "p.csv"
    path.write_text("\n".join(["a,b,c,importance,label", *lines, ""]))
    return path, SMALL | {"data.source": str(path), "data.positive": "1"}


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "class_weight", long_but_for(["balanced", {"1": 7.5, "0": 0.5}, {"1": 3.0}, None], {"1": 7.5, "0": 0.5}, None)
)
def test_the_objective_is_that_of_libsvm_with_the_same_weights(
    class_weight: Any, intercept: bool, tmp_path: Path
) -> None:
    _, changes = weighted_file(tmp_path)
    changes |= {"algorithm.intercept": intercept, "data.weight": "importance"}
    if class_weight is not None:
        changes["algorithm.class_weight"] = class_weight
    result = run("quickstart", changes=changes, out=tmp_path / "run")
    assert result.status == "completed", result.error
    assert result.model is not None and result.centralised is not None and result.cost is not None
    assert result.model.objective == pytest.approx(result.centralised.objective, rel=3e-6)
    assert result.cost.wire_bytes == result.cost.predicted_wire_bytes
    steps = {each.step for each in result.disclosures if each.kind == "sum"}
    assert ("class_counts" in steps) == (class_weight == "balanced")
    assert "largest_weight" in steps


def test_balanced_is_what_scikit_learn_calls_so(tmp_path: Path) -> None:
    """By its own LIBSVM, on the rows that the run trained on, and with class_weight instead of prices."""
    _, changes = weighted_file(tmp_path)
    changes |= {"data.ignore": ["importance"], "algorithm.class_weight": "balanced"}
    result = run("quickstart", changes=changes, out=tmp_path / "run")
    chosen, base = spec.read("quickstart", changes=changes)
    data = dataset.prepare(chosen, base)
    training = data.training(None, data.names)
    rows, signs = data.rows.numeric[training], data.rows.labels[training]
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    svm = SVC(kernel="linear", C=0.5, class_weight="balanced", tol=1e-8).fit(scaled, signs)
    prices = 0.5 * np.where(signs > 0, svm.class_weight_[1], svm.class_weight_[0])
    weights, hinge = svm.coef_[0], np.maximum(0, 1 - signs * svm.decision_function(scaled))
    assert result.model is not None
    assert result.model.objective == pytest.approx(0.5 * weights @ weights + prices @ hinge, rel=2e-6)
    assert result.metrics is not None and result.metrics.sensitivity is not None
    plain = run("quickstart", changes={**changes, "algorithm.class_weight": {"1": 1.0}}, out=tmp_path / "plain")
    assert plain.metrics is not None and plain.metrics.sensitivity is not None
    assert result.metrics.sensitivity > plain.metrics.sensitivity


@pytest.mark.parametrize("class_weight", ['"balanced"', '{ "1" = 3.0, "0" = 0.5 }', '{ "1" = 1.0 }'])
@pytest.mark.parametrize("name", ["logistic-regression", "least-squares"])
def test_other_losses_are_weighted_as_pooled_rows_are(name: str, class_weight: str, tmp_path: Path) -> None:
    """By scikit-learn's logistic regression with the same sample weights, and by least squares on weighted rows."""
    weighted_file(tmp_path)
    text = f'name = "w"\n[algorithm]\nname = "{name}"\nfeatures = "identity"\nkernel = "linear"\n'
    text += f'class_weight = {class_weight}\n[data]\nsource = "p.csv"\npositive = 1\n'
    results: list[RunResult] = []
    for use in ('weight = "importance"', 'ignore = ["importance"]'):
        (tmp_path / "w.toml").write_text(f"{text}{use}\n")
        result = run(tmp_path / "w.toml", out=tmp_path / f"run-{len(results)}")
        assert result.status == "completed", result.error
        assert result.centralised is not None and result.cost is not None and result.metrics is not None
        assert result.centralised.max_decision_difference < 1e-4
        assert result.cost.wire_bytes == result.cost.predicted_wire_bytes
        results.append(result)
        sensitivity = result.metrics.sensitivity or 0.0
    steps = [{each.step for each in result.disclosures if each.kind == "sum"} for result in results]
    assert ["largest_weight" in each for each in steps] == [True, False]
    assert all(("class_counts" in each) == ("balanced" in class_weight) for each in steps)
    assert (sensitivity > 0.6) == ("1.0" not in class_weight)  # without weights of rows


def test_balanced_factors_follow_from_noisy_statistics() -> None:
    """None of the numbers of rows is below its noise, and sites take the factors."""
    statistics = SimpleNamespace(classes=np.array([400.0, 0.0]), sigma={"classes": 10.0})
    task: Any = SimpleNamespace(classes=("no", "yes"), weighted=False, statistics=statistics)
    settings = ClassWeightSettings(class_weight="balanced")
    found = settings.weighting_of(task)
    assert found == Weighting((410 / 800, 410 / 20))
    federation: Any = None  # no sum is asked for
    factors = Factors.agreed(federation, found, 2)
    assert sum(1 / each for each in factors.by_class) == pytest.approx(2)
    task.statistics = None
    assert settings.weighting_of(task) == Weighting("balanced")
    reading = {"statistics_privacy": 0.5}
    asked = [Terms("pan-svm", {"class_weight": "balanced"}, "ring", {}, 1, reading=each) for each in ({}, reading)]
    assert ["class_counts" in str(agreement_on_factors(terms)) for terms in asked] == [True, False]


def test_an_estimator_takes_both(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    y = np.where(random.random(300) < 0.2, "ill", "well")
    X = random.normal(size=(300, 2)) + (y == "ill")[:, None]
    weights = random.integers(0, 3, size=300).astype(float)
    model = PanSVC(features="identity", kernel="linear", scale="none", class_weight="balanced", tolerance=TOLERANCE)
    model.fit(X, y, sample_weight=weights)
    svm = SVC(kernel="linear", class_weight="balanced", tol=1e-8).fit(X, y, sample_weight=weights)
    signs = np.where(y == "well", 1.0, -1.0)
    prices = np.where(y == "well", svm.class_weight_[1], svm.class_weight_[0]) * weights
    hinge = np.maximum(0, 1 - signs * svm.decision_function(X))
    best = 0.5 * svm.coef_[0] @ svm.coef_[0] + prices @ hinge
    assert model.result_["model"]["objective"] == pytest.approx(best, rel=1e-5)
    with pytest.raises(ValueError, match="class_weight: 'sick' is not one of the classes 'ill' and 'well'"):
        PanSVC(class_weight={"sick": 2}).fit(X, y)
    with pytest.raises(ValueError, match="sample_weight needs solver"):
        PanSVC(solver="cutting-plane").fit(X, y, sample_weight=weights)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"algorithm.class_weight": {"benin": 2.0}},
            "algorithm.class_weight: 'benin' is not one of the classes 'benign'",
        ),
        (
            {"algorithm.class_weight": {"benign": 0.0}},
            'algorithm.class_weight: must be "balanced" or a table with, for',
        ),
        ({"algorithm.class_weight": "even"}, 'algorithm.class_weight: must be "balanced" or a table'),
        ({"algorithm.class_weight": "balanced", "algorithm.solver": "cutting-plane"}, "needs solver ="),
        ({"data.weight": "mean-radius", "algorithm.solver": "cutting-plane"}, "pan-svm as it is set trains on rows of"),
        ({"data.weight": "radius"}, "data.weight: wdbc has no column 'radius'."),
        ({"data.weight": "label"}, "data.weight: 'label' is the label, or ignored"),
    ],
)
def test_weights_that_will_not_do(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        dataset.prepare(*spec.read("quickstart", changes={**SMALL, **changes}))
    assert says in caught.value.problems[0]


def test_whole_numbers_will_do_for_classes() -> None:
    chosen, _ = spec.read("quickstart", changes={**SMALL, "algorithm.class_weight": {"benign": 1, "malignant": 10}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = chosen.model_dump()["algorithm"]["class_weight"]
    assert {name: repr(each) for name, each in written.items()} == {"benign": "1.0", "malignant": "10.0"}


def test_weights_must_be_numbers_from_0(tmp_path: Path) -> None:
    path, changes = weighted_file(tmp_path)
    path.write_text(path.read_text().replace("label\n", "label\n1,1,1,-2,1\n", 1))
    with pytest.raises(ScenarioError, match="column 'importance' must hold numbers from 0, some above it, got -2"):
        dataset.prepare(*spec.read("quickstart", changes={**changes, "data.weight": "importance"}))


def test_the_largest_weight_is_told_to_a_power_of_two() -> None:
    for weights in ([0.3, 5.0], [4.0], [1e-30], [0.0]):
        bound = bound_of(mark_power_of_two(np.array(weights)) + mark_power_of_two(None))
        assert max(weights) <= bound <= max(2 * max(weights), 2.0 ** EXPONENTS[0])
    with pytest.raises(StepRefused, match=r"a weight of more than 2\^64; divide all weights"):
        mark_power_of_two(np.array([1.0, 1e20]))
    assert Weighting("balanced").factors(np.array([30.0, 10.0])) == (4 / 6, 2.0)
    assert Weighting("balanced").factors(np.array([30.0, 0.0])) == (1.0, 1.0)
    assert Weighting("balanced").factors(np.array([30.0, 0.0, 10.0])) == (4 / 6, 1.0, 2.0)  # of those that there are


def test_the_attack_on_weights_is_not_tried_on_rows_of_different_weights(tmp_path: Path) -> None:
    """Its equations count rows, so that it would claim rows that are not there."""
    weighted_file(tmp_path)
    text = 'name = "w"\n[algorithm]\nname = "least-squares"\nfeatures = "identity"\nkernel = "linear"\n'
    text += '[compare]\ncentralised = false\n[data]\nsource = "p.csv"\npositive = 1\n'
    tried: list[bool] = []
    for use in ('weight = "importance"', 'ignore = ["importance"]'):
        (tmp_path / "w.toml").write_text(f"{text}{use}\n")
        result = run(tmp_path / "w.toml", out=tmp_path / f"run-{len(tried)}", audit=True)
        assert result.status == "completed", result.error
        (listed,) = [each for each in result.audit if each.has_list]
        tried.append("weights" in {attack.attack for attack in listed.attacks})
    assert tried == [False, True]
