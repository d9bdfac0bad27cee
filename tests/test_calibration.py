"""Probabilities and thresholds: Platt's sigmoid of pooled rows, by sums, and rules that hold on rows set apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV, _SigmoidCalibration
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.svm import SVC

from fedsvm import PanSVC, ScenarioError, run
from fedsvm.algorithms.calibration import (
    MARKS,
    Calibration,
    ThresholdSettings,
    chosen_threshold,
    couple,
    likelihood,
    sigmoid,
)
from fedsvm.algorithms.data.classes import Scheme, pairs, signs_of
from fedsvm.algorithms.linear_model import PanModel
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios import predict
from fedsvm.scenarios.data import dataset, sources
from fedsvm.scenarios.export import pipeline
from fedsvm.scenarios.saved_model import read_model
from fedsvm.scenarios.schema import spec
from tests import hospitals
from tests.conftest import long_but_for

CHANGES: dict[str, Any] = {
    "data.label": "died",
    "data.positive": "died",
    "data.ignore": ["patient_id", "aufnahme"],
    "data.site": "hospital",
    "data.missing": "drop",
    "data.scale": "standard",
    "data.calibration": 0.3,
    "algorithm.landmarks": 40,
    "algorithm.class_weight": "balanced",
    "algorithm.tolerance": 1e-3,
}


@given(st.integers(0, 2**32 - 1))
@example(125700)  # of a row that is as good as certain
def test_the_sums_are_a_likelihood_with_its_derivatives(seed: int) -> None:
    random = np.random.default_rng(seed)
    decisions, labels = 3 * random.normal(size=30), random.choice([-1.0, 1.0], 30)
    (slope, offset), targets = random.normal(size=2), [0.05, 0.9]
    value, *rest = likelihood(decisions, labels, slope, offset, targets)
    t, z = np.where(labels > 0, 0.9, 0.05), slope * decisions + offset
    assert value == pytest.approx((t * np.logaddexp(0, z) + (1 - t) * np.logaddexp(0, -z)).sum(), rel=1e-9)
    step = 1e-5
    right = likelihood(decisions, labels, slope + step, offset, targets)
    left = likelihood(decisions, labels, slope - step, offset, targets)
    assert rest[0] == pytest.approx((right[0] - left[0]) / (2 * step), rel=1e-4, abs=1e-4)
    assert rest[2:4] == pytest.approx((right[1:3] - left[1:3]) / (2 * step), rel=1e-3, abs=1e-3)


def test_a_sigmoid_is_one_at_any_size() -> None:
    z = np.array([-1e4, -1.0, 0.0, 1.0, 1e4])
    np.testing.assert_allclose(sigmoid(z), [1.0, 1 / (1 + np.exp(-1)), 0.5, 1 / (1 + np.e), 0.0], rtol=1e-15)


def test_rules_choose_what_they_say() -> None:
    random = np.random.default_rng(1)
    negative, positive = random.normal(-1, 1, 300), random.normal(0.5, 1, 60)
    called = np.stack([[(each >= mark).sum() for mark in MARKS] for each in (negative, positive)]).astype(float)

    def chosen(rule: Any, target: float = 0.9) -> float:
        settings = ThresholdSettings(threshold=rule, threshold_target=target)
        return chosen_threshold(settings, np.array([300.0, 60.0]), called)

    high = chosen("sensitivity", 0.95)
    assert (positive >= high).mean() >= 0.95 > (positive >= high + 1 / 16).mean()
    low = chosen("specificity", 0.8)
    assert (negative < low).mean() >= 0.8 > (negative < low - 1 / 16).mean()
    balanced = [(positive >= mark).mean() + (negative < mark).mean() for mark in MARKS]
    best = chosen("balanced")
    assert (positive >= best).mean() + (negative < best).mean() == pytest.approx(max(balanced))


def test_a_run_fits_the_sigmoid_of_pooled_rows(tmp_path: Path) -> None:
    """As scikit-learn fits it on decision values of the same rows, and the same in every prediction."""
    source = hospitals.plain(tmp_path / "p.csv", hospitals.rows(600))
    changes = CHANGES | {"data.source": str(source), "algorithm.threshold": "sensitivity"}
    result = run("quickstart", changes=given_names(changes), out=tmp_path / "run")
    assert result.status == "completed", result.error
    assert result.cost is not None and result.cost.wire_bytes == result.cost.predicted_wire_bytes
    assert {"classes_apart", "sigmoid_sums", "called_positive"} <= {
        each.step for each in result.disclosures if (each.kind, each.to) == ("sum", "coordinator")
    }
    predicted = predict.predict(tmp_path / "run", str(source_without_gaps(source)))
    data = dataset.prepare(*spec.read("quickstart", changes=given_names(changes)))
    reference = _SigmoidCalibration().fit(predicted.decisions[data.apart], data.rows.labels[data.apart])
    assert predicted.probabilities is not None
    np.testing.assert_allclose(predicted.probabilities, reference.predict(predicted.decisions), atol=2e-4)
    assert not set(np.flatnonzero(data.apart)) & set(data.training(None, data.names))
    found = result.metrics
    assert found is not None and found.brier is not None and found.threshold is not None
    tested = data.test(None)
    outcome = data.rows.labels[tested] > 0
    assert found.brier == pytest.approx(((predicted.probabilities[tested] - outcome) ** 2).mean(), abs=1e-12)
    assert found.sensitivity == pytest.approx((predicted.predicted[tested][outcome] == "died").mean(), abs=1e-12)
    positive = data.apart & (data.rows.labels > 0)
    assert (predicted.decisions[positive] >= found.threshold).mean() >= 0.9
    assert result.centralised is not None and result.model is not None
    assert result.model.objective == pytest.approx(result.centralised.objective, rel=1e-3)
    assert found.threshold < -0.1
    assert result.centralised.accuracy == pytest.approx(found.accuracy, abs=0.02)  # at the same threshold
    few = int(positive.sum())
    (warning,) = [each for each in result.warnings if "set apart for calibration" in each]
    assert warning.startswith(f"The threshold and the probabilities rest on only {few} rows of 'died' that were")
    assert warning in (tmp_path / "run" / "report.html").read_text().replace("&#39;", "'")


@pytest.mark.parametrize("name", long_but_for(["logistic-regression", "least-squares", "svm-admm"], "least-squares"))
def test_other_models_with_weights_in_features_are_calibrated_alike(name: str, tmp_path: Path) -> None:
    changes = {"data.source": "wdbc", "data.positive": "malignant", "data.scale": "standard", "data.calibration": 0.3}
    changes |= {"algorithm.threshold": "balanced"}
    result = run(name, changes=changes, out=tmp_path / "run")
    assert result.status == "completed", result.error
    chosen = spec.read(name, changes=changes)
    data = dataset.prepare(*chosen)
    predicted = predict.predict(tmp_path / "run", "wdbc")
    reference = _SigmoidCalibration().fit(predicted.decisions[data.apart], data.rows.labels[data.apart])
    assert predicted.probabilities is not None
    np.testing.assert_allclose(predicted.probabilities, reference.predict(predicted.decisions), atol=2e-4)
    assert result.metrics is not None and result.metrics.brier is not None
    assert result.metrics.brier < 0.06
    assert result.metrics.threshold in MARKS.tolist()
    with pytest.raises(ScenarioError, match='threshold: "balanced" needs rows to fit it'):
        spec.read(name, changes={**changes, "data.calibration": 0.0})


@pytest.mark.parametrize("name", ["naive-bayes", "decision-tree", "voting-ensemble"])
def test_models_of_another_kind_refuse_to_be_calibrated(name: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        spec.read(name, changes={"data.calibration": 0.3})
    assert caught.value.problems == (
        f"data.calibration: {name} as it is set cannot be calibrated by sums over sites; remove it.",
    )


def given_names(changes: dict[str, Any]) -> dict[str, Any]:
    names = ["Koln-Sud", "Nord", "Ost", "St.-Anna", "West"]
    return {**changes, "federation": {"names": names}}


def source_without_gaps(path: Path) -> Path:
    lines = path.read_text().splitlines()
    complete = path.with_name("complete.csv")
    complete.write_text("\n".join(line for line in lines if ",," not in line) + "\n")
    return complete


def test_an_estimator_gives_probabilities() -> None:
    random = np.random.default_rng(2)
    y = np.where(random.random(400) < 0.4, "ill", "well")
    X = random.normal(size=(400, 2)) + 1.5 * (y == "ill")[:, None]
    model = PanSVC(landmarks=30, calibration=0.25, threshold="half").fit(X, y)
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[(chances[:, 1] >= 0.5).astype(int)], model.predict(X))
    assert chances[y == "well", 1].mean() - chances[y == "ill", 1].mean() > 0.3
    assert not hasattr(PanSVC(), "predict_proba")
    with pytest.raises(NotFittedError):
        PanSVC(calibration=0.25).predict_proba(X)
    with pytest.raises(ValueError, match=r'threshold: "half" needs rows to fit it; set data\.calibration'):
        PanSVC(threshold="half").fit(X, y)
    with pytest.raises(ValueError, match=r"calibration=0\.01 of 8 rows of a class is 0, and must be 5 or more"):
        PanSVC(calibration=0.01).fit(X[:16], np.repeat(["a", "b"], 8))


@pytest.mark.parametrize(
    ("rows", "few"), [((30, 30), None), ((400, 29), "29 rows of 'yes'"), ((7, 8), "7 rows of 'no' and 8 rows of 'yes'")]
)
def test_a_calibration_by_few_rows_of_a_class_warns(rows: tuple[int, int], few: str | None) -> None:
    caution = Calibration(-1.0, 0.0, 0.5, rows).caution(("no", "yes"))
    assert caution is None if few is None else f"rest on only {few} that were set apart" in (caution or "")
    at_zero = Calibration(-1.0, 0.0, rows=rows).caution(("no", "yes"))
    assert (at_zero or "The probabilities rest").startswith("The probabilities rest")
    assert Calibration(-1.0, 0.0).caution(("no", "yes")) is None  # read from a file, which does not have the counts


def test_an_estimator_warns_of_a_calibration_by_few_rows() -> None:
    random = np.random.default_rng(2)
    y = np.where(np.arange(200) < 60, "ill", "well")
    X = random.normal(size=(200, 2)) + 1.5 * (y == "ill")[:, None]
    with pytest.warns(UserWarning, match="rest on only 15 rows of 'ill' that were set apart for calibration"):
        PanSVC(landmarks=20, calibration=0.25, threshold="half").fit(X, y)


def test_a_model_that_was_calibrated_is_read_from_its_file() -> None:
    calibration = Calibration(-1.5, 0.25, 0.125)
    assert Calibration.from_arrays(calibration.to_arrays()) == calibration
    assert Calibration.from_arrays({}) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"algorithm.threshold": "half"},
            'algorithm.threshold: "half" needs rows to fit it; set data.calibration',
        ),
        ({"data.calibration": 0.015}, "data.calibration: 0.015 of 265 rows of a class is 4; each class needs 5"),
        ({"data.calibration": 0.2, "algorithm.release": "sites"}, "data.calibration: pan-svm as it is set cannot be"),
    ],
)
def test_what_cannot_be_calibrated_is_told(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        dataset.prepare(*spec.read("quickstart", changes=changes))
    assert says in caught.value.problems[0]


@pytest.mark.parametrize("rejoin", [False, True])
def test_a_site_that_is_lost_while_calibrating_is_done_without_or_waited_for(rejoin: bool, tmp_path: Path) -> None:
    changes = {
        "data.source": "wdbc",
        "data.positive": "malignant",
        "data.scale": "standard",
        "data.calibration": 0.3,
        "algorithm.features": "identity",
        "algorithm.kernel": "linear",
        "algorithm.masking": "none",
        "algorithm.step_noise": 0.0,
        "algorithm.tolerance": 1e-3,
        "compare.centralised": False,
    }
    plain = run("quickstart", changes=changes, out=tmp_path / "plain")
    assert plain.cost is not None
    last = plain.cost.by_phase["train"].rounds - 3
    faults = [{"kind": "kill", "site": 2, "phase": "train", "round": last, "rejoin": rejoin}]
    result = run("quickstart", changes={**changes, "faults": faults}, out=tmp_path / "killed")
    assert result.status == "completed", result.error
    assert result.faults[0].outcome != "not reached"
    assert result.metrics is not None and plain.metrics is not None
    assert result.metrics.brier is not None and plain.metrics.brier is not None
    assert result.metrics.brier == pytest.approx(plain.metrics.brier, abs=1e-6 if rejoin else 0.03)


# More than two classes.


@pytest.mark.parametrize("scheme", ["ovr", "ovo", "joint"])
def test_an_estimator_gives_probabilities_of_several_classes(scheme: Scheme) -> None:
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    solver: Literal["cutting-plane", "interior-point"] = "cutting-plane" if scheme == "joint" else "interior-point"
    model = PanSVC(
        kernel="linear", features="identity", multiclass=scheme, solver=solver, calibration=0.5, random_state=1
    )
    with pytest.warns(UserWarning, match=r"The probabilities rest on only .* that were set apart"):
        model.fit(X, y)
    chances = model.predict_proba(X)
    assert chances.shape == (178, 3)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert ((chances >= 0) & (chances <= 1)).all()
    assert (chances.argmax(axis=1) == y).mean() > 0.95
    reference = CalibratedClassifierCV(SVC(kernel="linear"), ensemble=False).fit(X, y).predict_proba(X)
    assert np.abs(chances - reference).mean() < 0.05


@pytest.mark.parametrize("scheme", ["ovr", "ovo"])
def test_probabilities_of_several_classes_are_those_of_pooled_rows(scheme: Scheme, tmp_path: Path) -> None:
    changes = {"data.source": "wine", "data.scale": "standard", "data.calibration": 0.5, "data.label": "label"}
    changes |= {"algorithm.multiclass": scheme, "algorithm.landmarks": 20}
    changes |= {"compare.centralised": False, "compare.baselines": False}
    result = run("digits", changes=changes, out=tmp_path / "run")
    assert result.status == "completed", result.error
    chosen = spec.read("digits", changes=changes)
    data = dataset.prepare(*chosen)
    saved = read_model(tmp_path / "run")
    predicted = predict.predict(tmp_path / "run", "wine")
    assert predicted.probabilities is not None and isinstance(saved.model, PanModel)
    assert saved.model.w is not None and saved.model.b is not None
    rows = saved.rows("wine", sources.read("wine", Path()).columns)
    values = saved.model.features(saved.scale(rows.take(saved.columns))) @ saved.model.w.T + saved.model.b
    labels, chances = data.rows.labels, []
    for problem, signs in enumerate(signs_of(3, scheme)):
        sign = signs[labels.astype(int)]
        part = data.apart & (sign != 0)
        fitted = _SigmoidCalibration().fit(values[part, problem], sign[part])
        chances.append(fitted.predict(values[:, problem]))
    expected = np.column_stack(chances)
    expected = couple(expected) if scheme == "ovo" else expected / expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(predicted.probabilities, expected, atol=1e-3)
    head = next(iter(predicted.lines()))
    assert head.endswith(",predicted,probability class_0,probability class_1,probability class_2")
    assert result.metrics is not None and result.metrics.brier is not None and result.metrics.brier < 0.3
    with pytest.raises(ScenarioError, match=r"no part (for decision|.* probabilities of more than two classes)"):
        pipeline(tmp_path / "run")


@given(st.lists(st.lists(st.floats(0.001, 1.0), min_size=4, max_size=4), min_size=1, max_size=5))
def test_coupling_finds_probabilities_whose_pairs_agree(weights: list[list[float]]) -> None:
    shares = np.array(weights)
    shares /= shares.sum(axis=1, keepdims=True)
    first, second = pairs(4).T
    agreeing = shares[:, first] / (shares[:, first] + shares[:, second])
    np.testing.assert_allclose(couple(agreeing), shares, atol=1e-6)


def test_coupling_minimizes_the_disagreement_of_pairs() -> None:
    chances = np.random.default_rng(5).uniform(0.05, 0.95, size=(20, 6))
    against = np.zeros((20, 4, 4))
    first, second = pairs(4).T
    against[:, first, second], against[:, second, first] = chances, 1 - chances

    def disagreement(p: FloatArray) -> FloatArray:
        terms = against.transpose(0, 2, 1) * p[:, :, None] - against * p[:, None, :]
        return np.asarray((terms**2).sum(axis=(1, 2)))

    found = couple(chances)
    for moved in np.random.default_rng(6).dirichlet(np.ones(4), size=200):
        assert (disagreement(found) <= disagreement(0.9 * found + 0.1 * moved) + 1e-12).all()
