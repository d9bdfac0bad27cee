"""The measures of two classes: scikit-learn's figures, and warnings about models that are not worth their cost."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from sklearn import metrics as reference

from fedsvm import HybridSVC, PrivateErmClassifier, run
from fedsvm.algorithms.algorithm import TrainingReport
from fedsvm.algorithms.pooled import Pooled
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.predict import predict
from fedsvm.scenarios.report.summary import print_summary
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.curves import ThresholdCurve
from fedsvm.scenarios.run.measuring import compare, evaluate, mean_metrics
from fedsvm.scenarios.run.metrics import FoldMetrics
from fedsvm.scenarios.run.model_warnings import cautions
from fedsvm.scenarios.run.outcome import Fold
from fedsvm.scenarios.run.shortfalls import shortfalls
from fedsvm.scenarios.schema import spec

REFERENCES = {
    "accuracy": reference.accuracy_score,
    "sensitivity": reference.recall_score,
    "specificity": lambda true, called: reference.recall_score(true, called, pos_label=-1),
    "ppv": reference.precision_score,
    "npv": lambda true, called: reference.precision_score(true, called, pos_label=-1),
    "balanced_accuracy": reference.balanced_accuracy_score,
    "f1": reference.f1_score,
    "mcc": reference.matthews_corrcoef,
}


def drawn(seed: int, rows: int = 60, share: float = 0.3) -> tuple[FloatArray, FloatArray]:
    """Decision values (n,) and labels (n,), of which both are there."""
    random = np.random.default_rng(seed)
    labels = np.where(random.random(rows) < share, 1.0, -1.0)
    labels[:2] = 1.0, -1.0
    return 0.8 * labels + random.normal(size=rows), labels


@given(st.integers(0, 2**32 - 1), st.floats(-1.5, 1.5))
def test_measures_are_those_of_scikit_learn(seed: int, threshold: float) -> None:
    decisions, labels = drawn(seed)
    found = evaluate(decisions, labels, threshold=threshold)
    called = np.where(decisions >= threshold, 1.0, -1.0)
    table = reference.confusion_matrix(labels, called, labels=[-1.0, 1.0])
    assert found.confusion is not None
    counts = found.confusion
    assert [[counts.true_negative, counts.false_positive], [counts.false_negative, counts.true_positive]] == (
        table.tolist()
    )
    for name, measure in REFERENCES.items():
        if (value := getattr(found, name)) is not None:
            assert value == pytest.approx(measure(labels, called), abs=1e-12), name
    assert found.auc == pytest.approx(reference.roc_auc_score(labels, decisions), abs=1e-12)
    assert found.average_precision == pytest.approx(reference.average_precision_score(labels, decisions), abs=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_curves_are_those_of_scikit_learn(seed: int, decimals: int) -> None:
    decisions, labels = drawn(seed)
    scores = np.round(decisions, decimals)
    ranking = ThresholdCurve.of(scores, labels > 0)
    false, true, _ = reference.roc_curve(labels, scores, drop_intermediate=False)
    np.testing.assert_allclose(ranking.false / ranking.false[-1], false, atol=1e-12)
    np.testing.assert_allclose(ranking.true / ranking.true[-1], true, atol=1e-12)
    corners = ranking.roc()
    assert np.trapezoid(corners[1], corners[0]) == pytest.approx(reference.roc_auc_score(labels, scores), abs=1e-12)
    precision, recall, _ = reference.precision_recall_curve(labels, scores)
    np.testing.assert_allclose(ranking.precision_recall(), (precision[::-1], recall[::-1]), atol=1e-12)


def test_probabilities_are_judged_as_scikit_learn_judges_them() -> None:
    decisions, labels = drawn(1, rows=500)
    probabilities = 1 / (1 + np.exp(-2 * decisions))
    found = evaluate(decisions, labels, probabilities=probabilities)
    assert found.brier == pytest.approx(reference.brier_score_loss(labels, probabilities), abs=1e-12)
    assert found.calibration is not None
    assert sum(found.calibration.rows) == 500
    from sklearn.calibration import calibration_curve

    observed, predicted = calibration_curve(labels > 0, probabilities, n_bins=10)
    assert found.calibration.predicted == pytest.approx(tuple(predicted), abs=1e-12)
    assert found.calibration.observed == pytest.approx(tuple(observed), abs=1e-12)


def test_curves_go_from_end_to_end_and_have_the_operating_point() -> None:
    decisions, labels = drawn(2, rows=1000)
    found = evaluate(decisions, labels, threshold=0.5)
    roc, curve = found.roc, found.precision_recall
    assert roc is not None and curve is not None
    assert (roc.false_positive_rate[0], roc.false_positive_rate[-1]) == (0, 1)
    assert (curve.sensitivity[0], curve.sensitivity[-1]) == (0, 1)
    assert max(len(roc.true_positive_rate), len(curve.ppv)) <= 200
    assert found.specificity is not None
    assert roc.operating_point == (1 - found.specificity, found.sensitivity)
    assert curve.operating_point == (found.sensitivity, found.ppv)


def test_a_share_of_no_rows_is_none() -> None:
    found = evaluate(np.array([-1.0, -2.0]), np.array([-1.0, -1.0]))
    assert (found.sensitivity, found.ppv, found.balanced_accuracy, found.f1, found.auc) == (None,) * 5
    assert (found.specificity, found.npv, found.mcc) == (1.0, 1.0, 0.0)


def test_folds_have_a_mean_and_a_deviation() -> None:
    folds = [evaluate(*drawn(seed)) for seed in range(5)]
    found = mean_metrics(folds)
    assert found is not None
    values = [fold.mcc for fold in folds]
    assert found.mcc == pytest.approx(np.mean(np.array(values, dtype=float)))
    assert found.deviations["mcc"] == pytest.approx(np.std(np.array(values, dtype=float), ddof=1))
    assert found.confusion is not None
    assert found.confusion.true_positive == sum(fold.confusion.true_positive for fold in folds if fold.confusion)
    alone = mean_metrics(folds[:1])
    assert alone is not None
    assert alone.deviations == {}


def test_a_model_that_calls_all_rows_alike_is_told_so() -> None:
    scenario, _ = spec.read("quickstart")

    def said(*folds: FoldMetrics) -> list[str]:
        metrics = mean_metrics(list(folds))
        assert metrics is not None
        return list(shortfalls(scenario, ("survived", "died"), metrics, []))

    labels = np.array([1.0] + [-1.0] * 9)
    (sentence,) = said(evaluate(np.full(10, -1.0), labels))
    assert "90.00 % of calling every row 'survived'" in sentence
    assert said(evaluate(labels, labels)) == []


def test_pooled_rows_are_judged_at_the_models_threshold() -> None:
    labels, decisions = np.array([1.0, 1.0, -1.0, -1.0]), np.array([-0.2, 0.5, -0.4, -3.0])
    pooled = Pooled(scores=decisions, exact=decisions - 0.3)
    found = compare(pooled, decisions, labels, threshold=-0.3)
    assert found.accuracy == evaluate(decisions, labels, threshold=-0.3).accuracy == 1.0
    assert found.exact_kernel is not None
    assert found.exact_kernel.accuracy == 0.75
    assert compare(pooled, decisions, labels).accuracy == 0.75


def of_fold(test: FoldMetrics) -> Fold:
    return Fold(fold=None, training=TrainingReport((), ""), arrays={}, test=test)


def test_a_model_that_predicts_one_class_for_all_test_rows_warns() -> None:
    labels, calls = np.array([1.0] + [-1.0] * 9), np.array([1.0] + [-1.0] * 9)
    constant, right = evaluate(np.full(10, -1.0), labels), evaluate(calls, labels)
    of_one_class = evaluate(np.full(9, -1.0), labels[1:])
    (single,) = cautions([of_fold(constant)], ("no", "yes"))
    assert single.startswith("The model predicts 'no' for every test row")
    (folds,) = cautions([of_fold(each) for each in (constant, right, constant)], ("no", "yes"))
    assert folds.startswith("2 of 3 models predict 'no' for every test row")
    assert not list(cautions([of_fold(right), of_fold(of_one_class)], ("no", "yes")))
    several = evaluate(np.tile([0.0, 2.0, 1.0], (6, 1)), np.array([0.0, 1.0, 2.0] * 2))
    (third,) = cautions([of_fold(several)], ("a", "b", "c"))
    assert third.startswith("The model predicts 'b' for every test row")


def test_a_run_of_a_constant_model_warns_in_result_and_summary(tmp_path: Path) -> None:
    changes: dict[str, object] = {"data.source": "wdbc", "data.positive": "malignant"}
    changes |= {"algorithm.regularisation": 1e12}
    result = run("least-squares", changes=changes, out=tmp_path / "run")
    (warning,) = [each for each in result.warnings if "for every test row" in each]
    console = Console(width=100, record=True, file=io.StringIO())
    print_summary(console, result, tmp_path / "run")
    assert warning in console.export_text()


def test_a_run_reports_them_over_its_folds(tmp_path: Path) -> None:
    changes: dict[str, object] = {"data.source": "wine", "data.positive": "class_1", "algorithm.landmarks": 20}
    changes |= {"data.folds": 3, "data.test_fraction": 0}
    result = run("quickstart", changes=changes, out=tmp_path / "run").to_dict()
    metrics = result["metrics"]
    table = metrics["confusion"]
    assert sum(table.values()) == 178
    assert table["true_positive"] + table["false_negative"] == 71
    assert metrics["majority_accuracy"] == pytest.approx(107 / 178, abs=0.01)
    assert set(metrics["deviations"]) >= {"accuracy", "sensitivity", "mcc", "average_precision"}
    assert {"sensitivity", "ppv", "confusion", "precision_recall"} <= set(metrics["folds"][0])


def test_a_private_model_below_public_rows_alone_says_so_and_why(tmp_path: Path) -> None:
    """Noise on 150 rows at epsilon 0.1 leaves nothing of them; a note says so before anything starts, too."""
    changes = {"data.source": "wdbc", "data.positive": "malignant", "data.public": 60, "algorithm.epsilon": 0.1}
    changes |= {"algorithm.prior": "none", "algorithm.features": 30}
    result = run("hybrid-stand-in", changes=changes, out=tmp_path / "run")
    assert result.status == "completed", result.error
    assert result.metrics is not None
    said = " ".join(result.metrics.shortfalls)
    assert "of 60 public rows alone, which spend no privacy. At this epsilon, noise hides the signal" in said
    assert result.warnings[0].startswith("Noise for epsilon 0.1 over ")
    assert result.baselines is None or set(result.baselines) >= {"public"}


def test_an_estimator_warns_before_it_spends() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(120, 3)), random.integers(0, 2, 120)
    with pytest.warns(
        UserWarning, match="Noise for epsilon 1 over 84 private rows is .* hardly be better than a guess"
    ):
        HybridSVC(public=0.3, features=10, C=30.0).fit(X, y)


@pytest.mark.parametrize("perturbation", ["output", "objective"])
@pytest.mark.parametrize("features", [0, 10])
def test_perturbation_on_few_rows_warns_before_it_spends_and_on_many_does_not(
    perturbation: Literal["output", "objective"], features: int
) -> None:
    """Models that it warns of are little better than a guess, on rows that many noiseless ones tell apart.

    The accuracy of one of them has a deviation of 0.2, so that the mean of six is above 0.85 once in thousands of runs.
    """
    scores, warned = {}, {}
    for count, public, fits in (
        (60, 0.3, 6),
        (6000, 0.03, 3),
    ):  # fitting features takes time as the square of public rows
        random = np.random.default_rng(0)
        X = random.normal(size=(count, 5))
        y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
        model = PrivateErmClassifier(public=public, perturbation=perturbation, features=features, random_state=1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scores[count] = float(np.mean([model.fit(X, y).score(X, y) for _ in range(fits)]))
        warned[count] = [str(each.message) for each in caught if "private rows moves" in str(each.message)]
    assert len(warned[60]) == 6 and not warned[6000]
    assert warned[60][0].startswith(f"Noise for epsilon 1 over 42 private rows moves {2 * features or 5} weights by")
    assert scores[60] < 0.85
    assert scores[6000] > 0.85


def test_a_runs_measures_are_scikit_learns_on_the_pooled_test_rows(tmp_path: Path) -> None:
    """Of decision values that the model in the run's folder gives the same rows."""
    changes = {"data.source": "wdbc", "data.positive": "malignant", "data.scale": "standard"}
    changes |= {"algorithm.landmarks": "30", "algorithm.tolerance": "1e-3"}
    overrides = [f"{key}={value}" for key, value in changes.items()]
    scenario, base = spec.read("quickstart", overrides=overrides)
    data = dataset.prepare(scenario, base)
    (tmp_path / "run").mkdir()
    found = runner.run(scenario, data, tmp_path / "run").result.metrics
    assert found is not None
    tested = data.test(None)
    decisions, labels = predict(tmp_path / "run", "wdbc").decisions[tested], data.rows.labels[tested]
    called = np.where(decisions >= 0, 1.0, -1.0)
    for name, measure in REFERENCES.items():
        assert getattr(found, name) == pytest.approx(measure(labels, called), abs=1e-12), name
    assert found.auc == pytest.approx(reference.roc_auc_score(labels, decisions), abs=1e-12)
    assert found.average_precision == pytest.approx(reference.average_precision_score(labels, decisions), abs=1e-12)
    assert found.folds[0].roc is not None
    false, true, _ = reference.roc_curve(labels, np.round(decisions, 9))
    ours = found.folds[0].roc
    theirs = list(zip(false.round(12), true.round(12), strict=True))  # with one more point, on a straight line
    for point in zip(ours.false_positive_rate, ours.true_positive_rate, strict=True):
        assert tuple(np.round(point, 12)) in theirs
