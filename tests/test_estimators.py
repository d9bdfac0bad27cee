"""Estimators: scikit-learn's contract, who holds what, the same model as pooled rows give, and nothing left behind."""

from __future__ import annotations

import doctest
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from fedsvm import DppSVC, HybridSVC, PanSVC, PrivateErmClassifier, classifier, run
from fedsvm.algorithms.estimators import horizontal, vertical
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.linear_model import PanModel
from fedsvm.algorithms.optimization.linear_svm import SINGLETON_CUTS
from fedsvm.algorithms.registry import ALGORITHMS, OWN_ALGORITHMS
from fedsvm.federation.errors import FederationError
from fedsvm.federation.startup import local_federation
from fedsvm.protocols.sums.ring import RING
from tests.conftest import ROOT, long_but_for, site_processes, wait_until

BLOBS = make_blobs(60, centers=2, n_features=3, cluster_std=2.5, random_state=1)
WHERE = np.array(["north", "south", "east"])[np.arange(60) % 3]


FEW_PUBLIC_ROWS = {"hybrid-svm": {"features": 3, "public": 0.4}, "dp-erm": {"public": 0.4}}
"""Of estimators that take columns and scale from public rows: enough of the few that scikit-learn's checks have."""
WITHOUT_NOISE: dict[str, dict[str, Any]] = {
    "pan-svm": {"masking": "none", "step_noise": 0.0},
    "hybrid-svm": {"mechanism": "none", "masking": "none", "step_noise": 0.0},
    "dp-erm": {"perturbation": "none"},
}
FEW_ROUNDS: dict[str, dict[str, Any]] = {"svm-admm": {"max_iterations": 10}}
"""Of one that takes a hundred in each of a hundred fits."""

ALL_COLUMNS: dict[str, dict[str, Any]] = {"dpp-selection": {"size": 100}}
"""Of one that chooses half of the columns, of which scikit-learn's checks have as few as two."""

NARROW: dict[str, dict[str, Any]] = {"binned-least-squares": {"gamma": 1.0}}
"""Of bins that are as wide as the clouds of points to be told apart."""

CHOOSING: dict[str, dict[str, Any]] = {
    "filter": {"size": 2, "statistic": "f"},
    "rfe": {"size": 2},
    "sparse-svm": {"l1": 0.1},
    "voted-wrappers": {"size": 2, "criteria": "rfe"},
    "filter-wrapper": {"size": 1, "filter_keep": 1},
}
"""Of estimators that choose columns: without the folds that a dozen rows cannot have."""


NOT_KEPT = {
    "pan-svm": {
        "check_sample_weight_equivalence_on_dense_data": "scale, landmarks and sites are of rows, not of weights"
    }
}


@pytest.mark.long
@pytest.mark.parametrize("name", OWN_ALGORITHMS)
def test_scikit_learns_checks_pass(name: str, temporary_folder: Path) -> None:
    """Of models without noise and masks: some checks ask for the same model twice, to the last digits."""
    settings = (
        FEW_PUBLIC_ROWS.get(name, {})
        | WITHOUT_NOISE.get(name, {})
        | FEW_ROUNDS.get(name, {})
        | ALL_COLUMNS.get(name, {})
        | NARROW.get(name, {})
    )
    if name in CHOOSING:
        settings |= CHOOSING[name] | WITHOUT_NOISE["pan-svm"]
    estimator = classifier(name)(**settings)
    checks = check_estimator(estimator, expected_failed_checks=NOT_KEPT.get(name, {}), on_fail=None, on_skip=None)
    assert len(checks) > 50
    assert [check for check in checks if check["status"] == "failed"] == []
    wait_until(lambda: not site_processes(temporary_folder))  # the server waits a moment for another fit


TELLING = {
    "check_dont_overwrite_attributes",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_fit1d",
    "check_fit2d_1sample",
    "check_n_features_in",
    "check_parameters_default_constructible",
    "check_readonly_memmap_input",
    "check_classifier_not_supporting_multiclass",
}


@pytest.mark.parametrize("name", long_but_for(OWN_ALGORITHMS, "pan-svm", "dpp-svm", "naive-bayes", "decision-tree"))
def test_those_of_scikit_learns_checks_pass_that_tell_estimators_apart(name: str) -> None:
    """All pass but, of private models, those that ask for the same model twice; a few stand for them here."""
    settings = (
        FEW_PUBLIC_ROWS.get(name, {}) | FEW_ROUNDS.get(name, {}) | ALL_COLUMNS.get(name, {}) | CHOOSING.get(name, {})
    )
    estimator = classifier(name)(**settings)
    checks = [each for each in estimator_checks_generator(estimator) if each[1].func.__name__ in TELLING]
    assert (
        len(checks) >= len(TELLING) - ALGORITHMS[name].multiclass
    )  # who tells more than two apart need not refuse them
    for candidate, check in checks:
        check(candidate)


@pytest.mark.parametrize("module", [horizontal, vertical], ids=lambda module: module.__name__)
def test_examples_in_docstrings_are_true(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_a_budget_holds_for_the_noise_that_is_drawn() -> None:
    X, y = BLOBS
    shares = HybridSVC(mechanism="laplace", variant="one-shot", features=5, public=0.2, budget=1.0, budget_delta=1e-300)
    with pytest.raises(FederationError, match="would exceed the budget of 1 and 1e-300; nothing is released"):
        shares.fit(X, y)


def test_groups_say_who_holds_which_row() -> None:
    X, y = BLOBS
    model = PanSVC(sum="k-secure", sum_options={"segments": 2}).fit(X, y, groups=WHERE)
    assert {site["name"]: site["rows"] for site in model.result_["sites"]} == {"east": 20, "north": 20, "south": 20}
    assert len({site["pid"] for site in model.result_["sites"]} | {os.getpid()}) == 4
    assert set(model.result_["cost"]["by_protocol"]) == {"agree_secret", "gather", "share_path", "k-secure"}
    assert model.result_["cost"]["wire_bytes"] == model.result_["cost"]["predicted_wire_bytes"]


def test_a_fit_is_the_run_of_a_scenario(tmp_path: Path) -> None:
    """The same rows at the same sites: the model that `fedsvm run` writes."""
    X, y = load_breast_cancer(return_X_y=True)
    changes: dict[str, Any] = {"data.test_fraction": 0.0, "data.source": "wdbc", "data.positive": "benign"}
    changes |= {"data.scale": "standard", "compare.centralised": False}
    changes |= {"algorithm.landmark_method": "global", "algorithm.landmarks": 20, "algorithm.tolerance": 1e-7}
    result = run("quickstart", sites=3, changes=changes, out=tmp_path / "run").to_dict()
    chosen = result["scenario"]["algorithm"]
    model = PanSVC(
        chosen["C"],
        gamma=chosen["gamma"],
        landmarks=20,
        landmark_method="global",
        tolerance=chosen["tolerance"],
        random_state=result["scenario"]["seed"],
    ).fit(X, y)
    with np.load(tmp_path / "run" / "model.npz") as written:
        np.testing.assert_allclose(model.landmarks_, written["landmarks"], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(model.scaling_.offset, written["offset"])
    assert model.model_.training is not None
    assert model.model_.training.objective == pytest.approx(result["model"]["objective"], rel=1e-6)
    assert {**model.result_["model"], "classes": 0}.keys() <= result["model"].keys()


def test_columns_at_sites_give_the_model_of_all_columns() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = DppSVC(10.0, gamma=0.03, columns=[[*range(5)], [5, 29], [*range(6, 29)]], sum="ring").fit(X, y)
    pooled = make_pipeline(StandardScaler(), SVC(C=10.0, gamma=0.03, tol=1e-10)).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), pooled.decision_function(X), rtol=0, atol=1e-7)
    assert [site["columns"] for site in model.result_["sites"]] == [5, 2, 23]
    low_rank = DppSVC(10.0, gamma=0.03, landmarks=0.2).fit(X, y)
    assert low_rank.score(X, y) > 0.97
    assert low_rank.dual_coef_.shape == (1, 114)


@pytest.mark.parametrize("estimator", [PanSVC(kernel="linear", landmarks=1.0), DppSVC(kernel="linear")], ids=str)
def test_a_linear_model_has_coefficients_of_the_columns_as_they_are(estimator: Any) -> None:
    X, y = BLOBS
    model = estimator.fit(X, y)
    np.testing.assert_allclose(X @ model.coef_[0] + model.intercept_, model.decision_function(X), atol=1e-9)


def test_pickled_it_predicts_the_same() -> None:
    X, y = BLOBS
    model = PanSVC().fit(X, y)
    again = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert not hasattr(clone(model), "result_")


def test_it_works_within_searches_and_pipelines(temporary_folder: Path) -> None:
    """Cross-validation slices the sites' labels, and a search passes them on where routing is asked for."""
    X, y = BLOBS
    piped = make_pipeline(StandardScaler(), PanSVC(landmarks=5))
    assert cross_val_score(piped, X, y, cv=2, params={"pansvc__groups": WHERE}).min() > 0.8
    with config_context(enable_metadata_routing=True):
        estimator = PanSVC(landmarks=5).set_fit_request(groups=True)
        search = GridSearchCV(estimator, {"C": [0.1, 1.0]}, cv=2).fit(X, y, groups=WHERE)
    assert {site["name"] for site in search.best_estimator_.result_["sites"]} == set(WHERE)
    wait_until(lambda: not site_processes(temporary_folder))  # the server waits a moment for another fit


def test_a_private_model_says_what_it_promises_and_no_two_are_alike() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    settings: dict[str, Any] = {"features": 10, "epsilon": 2.0, "variant": "one-shot", "mechanism": "laplace"}
    one, other = (HybridSVC(**settings).fit(X, y) for _ in range(2))
    assert not np.array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.frequencies_, other.frequencies_)
    assert one.result_["privacy"]["epsilon"] == 2.0
    assert one.result_["privacy"]["protects_against"][1] == "the coordinator, and every site but the row's own"
    assert sum(site["rows"] for site in one.result_["sites"]) == len(X) - 57
    exact = HybridSVC(features=10, mechanism="none").fit(X, y)
    assert exact.score(X, y) > 0.9
    assert exact.result_["privacy"] is None


def test_private_risk_minimisation() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = PrivateErmClassifier(epsilon=20.0).fit(X, y, groups=np.arange(len(X)) % 4)
    assert model.score(X, y) > 0.85
    assert model.result_["privacy"]["mechanism"] == "objective perturbation"
    assert [site["name"] for site in model.result_["sites"]] == ["0", "1", "2", "3"]
    assert PrivateErmClassifier(features=10, perturbation="none").fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize(
    ("estimator", "says"),
    [
        (PanSVC(sum="rign"), "sum must be one of plain, ring"),
        (PanSVC(sites=2), "A ring sum needs 3 sites or more and there are 2"),
        (PanSVC(sites=0), "sites must be a whole number from 1 to 1000000000, got 0"),
        (
            PanSVC(sum="ring", sum_options={"segments": 2}),
            "sum_options must be a dict of verify, got .*segments",
        ),
        (PanSVC(release="sites"), 'release: must be "everyone" here, since the sites of an estimator keep no files'),
        (PanSVC(release="sites", masking="none"), 'release: "sites" needs a masking other than "none"'),
        (PanSVC(release="sites", solver="cutting-plane"), 'release: "sites" needs solver = "interior-point"'),
        (PanSVC(C=-1.0), "C must be a number from 1e-12 to 1e12, got -1.0"),
        (
            PanSVC(landmarks=2.5),
            "landmarks must be a whole number from 1 to 5792 or a number .* up to 1, got 2.5",
        ),
        (PanSVC(kernel="rfb"), 'kernel must be "linear", "rbf"'),  # type: ignore[arg-type]
        (PanSVC(gamma="wide"), 'gamma must be a number from 1e-12 to 1e12, "auto" or "scale", got \'wide\''),  # type: ignore[arg-type]
        (DppSVC(columns=[[0, 1], [1, 2]]), "columns must be lists with each of 0, 1, 2 in one"),
        (DppSVC(sites=4), "n_features=3 columns cannot be split over 4 sites"),
        (HybridSVC(public=1), "public=1 sets 1 of n_samples=60 rows apart"),
        (
            HybridSVC(mechanism="gaussian", features=5),
            'delta: must be given with mechanism = "gaussian": a number above 0 and below 1',
        ),
        (HybridSVC(features=60), "features: must be 15 or less, as 6 public rows have pairs, got 60"),
        (PrivateErmClassifier(epsilon=0.0), "epsilon must be a number from 1e-12 to 1e12, got 0.0"),
        (PrivateErmClassifier(epsilon=float("inf")), "epsilon must be a number from 1e-12 to 1e12, got inf"),
        (PanSVC(C=float("inf")), "C must be a number from 1e-12 to 1e12, got inf"),
        (PanSVC(C=True), "C must be a number from 1e-12 to 1e12, got True"),
        (PanSVC(C=10**400), "C must be a number from 1e-12 to 1e12, got a number of 401 digits"),
        (PanSVC(sum="plain", sum_options=5), "sum_options must be left out, as a plain sum has none, got 5"),  # type: ignore[arg-type]
        (PanSVC(sum="k-secure", sum_options={"k": 3}), "sum_options must be a dict of segments, got {'k': 3}"),
        (PanSVC(degree=2.5), "degree must be a whole number from 1 to 100, got 2.5"),  # type: ignore[arg-type]
        (PanSVC(coef0=float("nan")), "coef0 must be a number from -1e12 to 1e12, got nan"),
        (PanSVC(random_state=-1), "random_state must be a whole number from 0"),
        (PanSVC(sum=["ring"]), "sum must be one of"),  # type: ignore[arg-type]
        (PanSVC(sum="masked", sum_options={"threshold": 0.1}), "threshold must be above 0.5 and at most 1, got 0.1"),
        (PanSVC(sum="k-secure", sum_options={"segments": 1}), "segments must be a whole number from 2, got 1"),
        (PanSVC(sum="changing-neighbours", sum_options={"rings": 0}), "rings must be a whole number from 1, got 0"),
        (PanSVC(round_timeout_s=0.0), "round_timeout_s must be a number from 0.001 to 100000, got 0.0"),
        (DppSVC(columns=3), "columns must be lists"),  # type: ignore[arg-type]
        (PanSVC(statistics_privacy=0.0), "statistics_privacy must be a number above 0 and up to 100, got 0.0"),
        (PanSVC(landmark_method="drawn"), "landmark_method: drawn landmarks follow from noisy statistics"),
        (PanSVC(ranges={"x0": [0, 1]}), "ranges apply to noisy statistics; set statistics_privacy above 0"),
        (PanSVC(statistics_privacy=1.0, ranges={"x9": [0, 1]}), "ranges must be a dict by names of .* such as x0"),
        (PanSVC(statistics_privacy=1.0, ranges={"x0": [1, 0]}), "ranges: of 'x0' must be its lowest and its highest"),
        (PanSVC(statistics_privacy=1.0, ranges={"x0": 5}), "ranges: of 'x0' must be its .*, got 5"),  # type: ignore[dict-item]
        (
            DppSVC(landmarks=1.5),
            "landmarks must be a whole number from 1 to 5792 or a number .* up to 1, got 1.5",
        ),
        (HybridSVC(cut_groups=0, features=5), "cut_groups must be a whole number from 1 to 5792, got 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_parameters_that_will_not_do(estimator: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        estimator.fit(*BLOBS)


def test_noisy_statistics_are_a_parameter() -> None:
    """Exact sums of columns and rows' means are replaced; parameters survive a copy."""
    X, y = BLOBS
    ranges = {f"x{column}": [-20.0, 20.0] for column in range(X.shape[1])}
    model = clone(PanSVC(statistics_privacy=100.0, ranges=ranges, landmark_method="drawn", landmarks=5))
    assert (model.get_params()["statistics_privacy"], PanSVC().statistics_privacy) == (100.0, None)
    opened = {each["step"] for each in model.fit(X, y).result_["disclosures"] if each["kind"] == "sum"}
    assert "noisy_statistics" in opened
    assert not opened & {"column_sums", "column_squares", "local_landmarks", "scale_counts"}
    np.testing.assert_array_equal(model.scaling_.window, [[-20.0] * X.shape[1], [20.0] * X.shape[1]])


def test_groups_that_will_not_do() -> None:
    X, y = BLOBS
    for groups, says in [
        (["a b"] * 60, "the name of a site must be made of .* got 'a b'"),
        ([1] * 59, r"groups must name a site for each of 60 rows, got shape \(59,\)"),
        ([1] * 59 + [None], "a row has no site"),
        (["x" * 65] * 60, "at most 64 letters"),
    ]:
        with pytest.raises(ValueError, match=says):
            PanSVC().fit(X, y, groups=groups)


def test_a_site_whose_rows_are_all_public_is_named() -> None:
    X, y = BLOBS
    public = np.sort(np.random.default_rng([0, 5]).permutation(60)[:20])
    groups = np.where(np.arange(60) == public[0], "tiny", WHERE)
    with pytest.raises(ValueError, match="no row is left to tiny when public rows are set apart"):
        PrivateErmClassifier(public=20).fit(X, y, groups=groups)


def test_numbers_of_numpy_are_numbers() -> None:
    """As a search hands them over: a count stays a count, and nothing of numpy reaches a message."""
    X, y = BLOBS
    settings: dict[str, Any] = {"landmarks": np.int64(5), "cut_groups": np.int32(4), "min_cluster_size": np.int64(1)}
    settings |= {"C": np.float32(2.0), "degree": np.int64(2), "sum": "k-secure"}
    settings["sum_options"] = {"segments": np.int64(2)}
    assert len(PanSVC(**settings).fit(X, y).landmarks_) == 5
    assert len(DppSVC(**{"landmarks": settings["landmarks"]}).fit(X, y).support_) == 5


def test_a_second_fit_leaves_nothing_of_the_first() -> None:
    X, y = BLOBS
    for estimator in (PanSVC(kernel="linear", landmarks=5), DppSVC(kernel="linear")):
        assert hasattr(estimator.fit(X, y), "coef_")
        assert not hasattr(estimator.set_params(kernel="rbf").fit(X, y), "coef_")


def test_nothing_without_noise_leaves_with_a_private_model() -> None:
    """Not with the object that is pickled, either: no weights, objective or iterations of training."""
    X, y = load_breast_cancer(return_X_y=True)
    hybrid = pickle.loads(pickle.dumps(HybridSVC(features=10).fit(X, y)))  # noqa: S301 - our own
    assert hybrid.model_.training.objective is None
    assert hybrid.result_["model"]["iterations"] is None
    assert PrivateErmClassifier().fit(X, y).result_["model"]["iterations"] is None
    exact = HybridSVC(features=10, mechanism="none").fit(X, y)
    assert np.abs(exact.coef_ - hybrid.coef_).max() > 0.1


def test_a_cut_of_one_row_gives_the_row_away_and_is_counted() -> None:
    """Compute the row from what the coordinator knows: landmarks, their map, and features of a row that is alone in its
    cut."""
    X, y = load_breast_cancer(return_X_y=True)
    paper: dict[str, Any] = {"landmarks": 80, "min_cluster_size": 3, "solver": "cutting-plane"}
    model = PanSVC(10.0, **paper).fit(X, y)
    lone = [each for each in model.result_["disclosures"] if each["detail"] == SINGLETON_CUTS]
    assert sum(each["times"] for each in lone) > 0
    row = model.scaling_(X[:1])
    assert isinstance(model.model_, PanModel)
    assert isinstance(model.model_.feature_map, NystromMap)
    points, mapping = model.landmarks_, model.model_.feature_map.mapping
    values = model.model_.features(row)[0] @ np.linalg.pinv(mapping)  # of the kernel, at the landmarks
    squares = -np.log(values) / model.model_.feature_map.kernel.gamma
    right = (points[1:] ** 2).sum(axis=1) - (points[0] ** 2).sum() - squares[1:] + squares[0]
    rebuilt = np.linalg.lstsq(2 * (points[1:] - points[0]), right, rcond=None)[0]
    np.testing.assert_allclose(rebuilt, row[0], rtol=0, atol=1e-5)
    for safer in (PanSVC(10.0, **paper, cut_groups=1), PanSVC(10.0, landmarks=80, min_cluster_size=3)):
        assert not [each for each in safer.fit(X, y).result_["disclosures"] if each["detail"] == SINGLETON_CUTS]


def test_a_federation_of_too_few_sites_is_not_started() -> None:
    with (
        pytest.raises(FederationError, match="A ring sum needs 3 sites or more, and there are 0"),
        local_federation("fedsvm.algorithms.site_process", "pan-svm", {}, RING, settings={"seed": 0}),
    ):
        raise AssertionError("it was started")


def test_nothing_is_left_when_a_fit_is_interrupted(temporary_folder: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from fedsvm import PanSVC\n"
        "X = np.random.default_rng(0).normal(size=(3000, 20)); y = np.sign(X[:, 0] * X[:, 1])\n"
        "try:\n"
        "    PanSVC(1e4, solver='cutting-plane', cut_groups=1, tolerance=1e-9, max_iterations=10**6).fit(X, y)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(7)\n"
    )
    program = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    try:
        wait_until(lambda: len(site_processes(temporary_folder)) == 4)
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 7
    finally:
        program.kill()
        program.wait()
    wait_until(lambda: not site_processes(temporary_folder))


def test_a_verbose_fit_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = PanSVC(landmarks=20, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("[PanSVC] ") for line in lines)
    assert sum(", iteration " in line and ", gap " in line for line in lines) == model.n_iter_
    begun = [line.split()[1] for line in lines if line.endswith("of payload")]
    assert begun == ["setup", "landmarks", "train"]
    PanSVC(landmarks=20).fit(X, y)
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="verbose must be true, false or a whole number"):
        PanSVC(verbose="loud").fit(X, y)  # type: ignore[arg-type]


def patients() -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return 120 rows of two numeric columns and two of text, which decide the class together."""
    random = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "age": random.normal(60, 10, 120),
            "sex": random.choice(["female", "male"], 120),
            "dose": random.normal(0, 1, 120),
            "ward": pd.Categorical(random.choice(["a", "b", "c"], 120)),
        }
    )
    return frame, np.where(frame["dose"] + (frame["sex"] == "male") + (frame["ward"] == "b") > 0.8, 1, 0)


def test_text_columns_of_a_data_frame_become_agreed_categories() -> None:
    X, y = patients()
    model = PanSVC(kernel="linear", C=10.0).fit(X, y)
    encoded = ["age", "dose", "sex=female", "sex=male", "ward=a", "ward=b", "ward=c"]
    assert model.columns_.names == encoded
    assert list(model.feature_names_in_) == ["age", "sex", "dose", "ward"]
    assert model.n_features_in_ == 4
    assert model.score(X, y) > 0.9
    by_hand = np.column_stack(
        [X[name.partition("=")[0]] == name.partition("=")[2] if "=" in name else X[name] for name in encoded]
    ).astype(float)
    np.testing.assert_allclose(model.decision_function(X), by_hand @ model.coef_[0] + model.intercept_[0], atol=1e-8)
    unknown = X.assign(ward=["z"] * 120)  # not among the agreed values: 0 in all of its columns
    by_hand[:, 4:] = 0
    np.testing.assert_allclose(
        model.decision_function(unknown), by_hand @ model.coef_[0] + model.intercept_[0], atol=1e-8
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sex": [None, *["male"] * 119]}, "column 'sex' must hold text in every row, got none in row 0"),
        ({"age": [float("nan"), *[1.0] * 119]}, "column 'age' has NaN or infinite values"),
    ],
)
def test_gaps_of_a_data_frame_with_text_are_refused(change: dict[str, Any], message: str) -> None:
    X, y = patients()
    with pytest.raises(ValueError, match=message):
        PanSVC().fit(X.assign(**change), y)


@pytest.mark.parametrize("model", [HybridSVC(), DppSVC()], ids=lambda model: type(model).__name__)
def test_other_estimators_refuse_text_with_a_way_out(model: Any) -> None:
    with pytest.raises(ValueError, match=r"column 'sex' holds text, and \w+ takes numbers; encode it before"):
        model.fit(*patients())


def test_prediction_refuses_another_type_of_column() -> None:
    X, y = patients()
    model = PanSVC(kernel="linear").fit(X, y)
    with pytest.raises(ValueError, match="columns of text must be those of fit, sex, ward, got"):
        model.predict(X.assign(sex=1.0))


def test_gamma_scale_is_that_of_scikit_learn_on_standard_columns() -> None:
    X, y = BLOBS
    model = PanSVC(gamma="scale").fit(X, y).model_
    assert isinstance(model, PanModel)
    assert isinstance(model.feature_map, NystromMap)
    scaled = StandardScaler().fit_transform(X)
    assert model.feature_map.base_kernel.gamma == pytest.approx(SVC(gamma="scale").fit(scaled, y)._gamma)
    with pytest.raises(ValueError, match='gamma: "scale" needs columns of variance 1, got the scale "minmax"'):
        PanSVC(gamma="scale", scale="minmax").fit(X, y)


def test_probabilities_without_calibration_name_the_parameter() -> None:
    model = PanSVC()
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match=r"set calibration, for example to 0\.2"):
        model.predict_proba(BLOBS[0])


def test_groups_reach_the_sites_in_a_grid_search_by_metadata_routing() -> None:
    X, y = BLOBS
    with config_context(enable_metadata_routing=True):
        model = PanSVC(kernel="linear").set_fit_request(groups=True, sample_weight=False)
        search = GridSearchCV(model, {"C": [1.0]}, cv=2).fit(X, y, groups=WHERE)
    assert {site["name"] for site in search.best_estimator_.result_["sites"]} == set(WHERE)
