"""All classes in one problem: the joint hinge against LIBLINEAR, over real processes, its hole, and its noise."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from fedsvm import HybridSVC, PanSVC, PrivateErmClassifier, ScenarioError
from fedsvm.algorithms.attacks.attack import BinaryTask
from fedsvm.algorithms.attacks.every_problem import problems_of
from fedsvm.algorithms.attacks.joint_blocks import JointCuts
from fedsvm.algorithms.attacks.plain_cuts import lone_joint_rows
from fedsvm.algorithms.data.classes import above_others, log_odds
from fedsvm.algorithms.hybrid_svm.minimizer import minimize_jointly
from fedsvm.algorithms.hybrid_svm.noise import noise_of
from fedsvm.algorithms.optimization import cutting_plane, interior_point
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.joint_barrier import JointProblem, on_the_curve
from fedsvm.algorithms.optimization.joint_hinge import JointSums, as_cuts, train_pooled
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.algorithms.optimization.local_path import LocalPath
from fedsvm.algorithms.optimization.loss_sums import joint_erm_sums
from fedsvm.algorithms.optimization.path_rounds import Layout
from fedsvm.algorithms.optimization.solution import Solution, StoppingRule
from fedsvm.algorithms.privacy.mechanisms import PrivacyParameters, noise_for
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import Coalition, RunView
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.predict import predict
from fedsvm.scenarios.schema import spec
from tests.test_privacy import lower_bounds
from tests.test_run_attacks import audit, recovered
from tests.test_runs import run
from tests.test_several_classes import NAMES, NO_NOISE, WINE, by_round, private, single_rows

JOINT = [*WINE, "algorithm.multiclass=joint", "algorithm.solver=cutting-plane"]
NEWTON = [*WINE, "algorithm.multiclass=joint", "algorithm.solver=interior-point"]


def wine() -> tuple[FloatArray, FloatArray]:
    """Scaled rows (n, 13), and classes (3, n) of 0 and 1."""
    X, y = load_wine(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.equal.outer(np.arange(3), y).astype(float)


def solved(sums: JointSums, C: float, tolerance: float = 1e-6) -> Solution:
    """The one problem of rows that are here."""
    (found,) = cutting_plane.solve(
        sums,
        problems=1,
        dimensions=len(sums.classes) * sums.features.shape[1],
        groups=len(sums.members),
        C=C,
        stopping=StoppingRule(tolerance, 500),
        search=grid_search,
        on_iteration=lambda iteration, solutions: None,
        intercept=False,
    )
    return found


# The mathematics.


@pytest.mark.parametrize("C", [0.03, 1.0, 10.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_optimum_is_liblinears(C: float, intercept: bool) -> None:
    rows, classes = wine()
    features = np.column_stack([rows, np.ones(len(rows))]) if intercept else rows
    sums = JointSums.deal(features, classes, 16, np.random.default_rng(0))
    found = solved(sums, C)
    machine = LinearSVC(C=C, multi_class="crammer_singer", fit_intercept=intercept, tol=1e-9, max_iter=10**6)
    machine.fit(rows, classes.argmax(axis=0))
    w = np.column_stack([machine.coef_, machine.intercept_]) if intercept else machine.coef_
    scores = w @ features.T
    losses = (scores + 1.0 - classes - (classes * scores).sum(axis=0)).max(axis=0)
    theirs = 0.5 * (w**2).sum() + C * np.maximum(losses, 0.0).sum()
    assert found.converged
    assert found.objective == pytest.approx(theirs, rel=1e-4)
    assert found.lower_bound <= theirs * (1 + 1e-9)
    np.testing.assert_allclose(found.w.reshape(w.shape), w, atol=5e-3)


@pytest.mark.parametrize("C", [0.03, 1.0, 10.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_interior_point_has_liblinears_optimum(C: float, intercept: bool) -> None:
    """Rows of unequal prices, and one of price 0, which is not there."""
    rows, classes = wine()
    prices: FloatArray = C * (1.0 + np.arange(len(rows), dtype=np.float64) % 3)
    prices[7] = 0.0
    problem = JointProblem.of_classes(rows, classes, prices, intercept=intercept)
    path = LocalPath([problem])
    (found,) = interior_point.solve(
        path,
        problems=1,
        dimensions=problem.dimensions,
        intercept=False,
        stopping=StoppingRule(1e-8, 100),
        barriers=3,
    )
    at = path.standings[0]
    point = at.v if found.keep else at.best
    weights = problem.weights(point)
    test, objective = train_pooled(rows, rows, classes.argmax(axis=0), prices, intercept=intercept)
    certificate = found.certificate
    assert certificate.converged and certificate.iterations <= 30
    assert certificate.objective == pytest.approx(objective, rel=1e-6)
    assert certificate.lower_bound <= objective * (1 + 1e-9)
    of_point = 0.5 * point @ point + problem.prices @ problem.brackets(point).max(axis=1)
    assert certificate.objective == pytest.approx(of_point, rel=1e-12)
    np.testing.assert_allclose(rows @ weights[:, :-1].T + weights[:, -1], test, atol=5e-3)


def test_with_two_classes_it_is_the_binary_interior_point() -> None:
    """The same dual variables, and a matrix of which each block is the binary one or minus it."""
    random = np.random.default_rng(2)
    features, labels = random.normal(size=(30, 4)), np.where(np.arange(30) % 3 == 0, 1.0, -1.0)
    prices, mu = random.uniform(0.5, 2.0, size=30), 0.03
    binary = Problem.of(features, labels, prices, lever=0.0)
    joint = JointProblem.of_classes(features, np.stack([labels < 0, labels > 0]).astype(float), prices, intercept=False)
    nothing, step = np.zeros(4), random.normal(size=4)
    twice = np.concatenate([-step, step]) / 2  # w_2 - w_1 is the step
    one, other = binary.stand_at(0, nothing, nothing), joint.stand_at(0, np.zeros(8), np.zeros(8))
    for number, mu_of_round in enumerate((1.0, mu, mu / 20), start=1):
        sums, one = binary.advance(one, number, step / number, mu_of_round, keep=False, still=number == 1)
        jointly, other = joint.advance(other, number, twice / number, mu_of_round, keep=False, still=number == 1)
        others_class = 1 - joint.of_class
        np.testing.assert_allclose((other.alpha * others_class).sum(axis=1), one.alpha, rtol=1e-9)
        np.testing.assert_allclose(jointly.matrix, np.kron([[1, -1], [-1, 1]], sums.matrix), rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(jointly.gradient, np.concatenate([-sums.gradient, sums.gradient]), rtol=1e-9)
        assert jointly.loss == pytest.approx(sums.loss)
        np.testing.assert_allclose(jointly.alphas, sums.alphas)


def test_dual_variables_on_the_curve_add_up_to_the_price() -> None:
    random = np.random.default_rng(3)
    for mu in (1.0, 1e-4, 1e-9):
        brackets, prices = random.normal(size=(50, 5)), random.uniform(0.1, 10.0, size=50)
        brackets[0] = 0.0  # all equal
        star = on_the_curve(brackets, prices, mu)
        np.testing.assert_allclose(star.sum(axis=1), prices, rtol=1e-12)
        slacks = mu / star
        np.testing.assert_allclose(slacks + brackets, (slacks + brackets)[:, :1] + np.zeros(5), rtol=1e-6, atol=1e-9)


def test_the_matrix_is_that_of_each_rows_own() -> None:
    """Added up row by row, as the sum of H (x) f f^T."""
    random = np.random.default_rng(4)
    features, classes = random.normal(size=(12, 3)), np.eye(4)[random.integers(4, size=12)].T
    problem = JointProblem.of_classes(features, classes, np.ones(12), intercept=True)
    slopes = random.uniform(0.1, 1.0, size=(12, 4))
    expected = np.zeros((16, 16))
    for q, f in zip(slopes, problem.features, strict=True):
        expected += np.kron(np.diag(q) - np.outer(q, q) / q.sum(), np.outer(f, f))
    np.testing.assert_allclose(problem.curvature_of(slopes), expected, atol=1e-12)


def test_cuts_are_below_the_loss_and_the_line_is_its() -> None:
    random = np.random.default_rng(1)
    features, classes = random.normal(size=(40, 5)), np.eye(4)[random.integers(4, size=40)].T
    sums, nothing = JointSums.deal(features, classes, 6, random), np.zeros(20)
    for _ in range(20):
        at, other = random.normal(size=20), random.normal(size=20)
        cuts = as_cuts(sums.joint_cuts(at))
        ((loss, _),) = sums.joint_line(other, nothing, np.zeros(1))
        below = np.maximum(0.0, cuts[:, -1] - cuts[:, :-2] @ other).sum()
        assert below <= loss + 1e-9
        ((tight, _),) = sums.joint_line(at, nothing, np.zeros(1))
        assert np.sum(cuts[:, -1] - cuts[:, :-2] @ at) == pytest.approx(tight)
        steps = np.array([0.3, 0.3 + 1e-7])
        (one, slope), (next_one, _) = sums.joint_line(at, other, steps)
        assert slope == pytest.approx((next_one - one) / 1e-7, rel=1e-4, abs=1e-4)


def test_a_row_of_no_class_has_no_loss() -> None:
    rows, classes = wine()
    unnamed = classes.copy()
    unnamed[:, :30] = 0.0
    group = np.ones((1, len(rows)))
    one, other = JointSums(rows, unnamed, group), JointSums(rows[30:], classes[:, 30:], group[:, 30:])
    w = np.random.default_rng(0).normal(size=39)
    np.testing.assert_allclose(one.joint_cuts(w), other.joint_cuts(w))
    np.testing.assert_allclose(one.joint_line(w, w, np.array([0.5])), other.joint_line(w, w, np.array([0.5])))
    f = w / 10
    np.testing.assert_allclose(
        joint_erm_sums(rows, unnamed, f), joint_erm_sums(rows[30:], classes[:, 30:], f), atol=1e-9
    )


def test_a_score_is_above_0_where_its_class_is_called() -> None:
    values = np.random.default_rng(0).normal(size=(50, 4))
    found = above_others(values)
    np.testing.assert_array_equal(found.argmax(axis=1), values.argmax(axis=1))
    assert ((found > 0).sum(axis=1) == 1).all()
    assert found[0, values[0].argmax()] == pytest.approx(np.diff(np.sort(values[0]))[-1])


# Over real processes.


def test_all_classes_in_one_problem(tmp_path: Path) -> None:
    """LIBLINEAR's objective in the same features, what a round carries, and blocks of one row among the disclosures."""
    finished = run("digits", tmp_path / "run", *JOINT)
    result, model = finished.result, finished.result["model"]
    assert model["gap"] <= 1e-6
    assert len(model["gaps"]) == model["figures"]["problems"] == 1
    assert model["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-4)
    assert result["centralised"]["max_decision_difference"] < 5e-3
    assert result["metrics"]["accuracy"] >= 0.95
    rank, groups = model["figures"]["rank"], 4  # of the 38 rows of the smallest class that are trained on, 8 a group
    (shape,) = {tuple(each["shape"]) for each in result["disclosures"] if (each["step"], each["kind"]) == CUTS}
    assert shape == (groups, 3 * (rank + 1) + 1)
    assert groups * (3 * (rank + 1) + 1) * 8 * 6 in by_round(finished.folder)
    assert single_rows(result) > 0
    assert "1 joint problem of all classes" in model["description"]
    decisions = predict(finished.folder, "wine").decisions
    assert decisions.shape == (178, 3)
    assert ((decisions > 0).sum(axis=1) == 1).all()


@pytest.mark.parametrize("masking", ["none", "congruence", "committee"])
def test_the_interior_point_trains_all_classes_in_one_problem(masking: str, tmp_path: Path) -> None:
    """One secure sum a round, of a system of K (m + 1) weights; no cut is shown, and no row alone."""
    finished = run("digits", tmp_path / "run", *NEWTON, f"algorithm.masking={masking}")
    result, model = finished.result, finished.result["model"]
    assert model["gap"] <= 1e-6
    assert len(model["gaps"]) == model["figures"]["problems"] == 1
    assert model["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-5)
    assert result["centralised"]["max_decision_difference"] < 5e-3
    assert model["iterations"] <= 40
    assert result["metrics"]["accuracy"] >= 0.95
    assert not single_rows(result)
    weights = 3 * (model["figures"]["rank"] + 1)
    if masking != "committee":
        length = Layout(weights, weights).length
        assert any(each["step"] == "newton" and each["shape"] == [length] for each in result["disclosures"])
    assert "1 joint problem of all classes" in model["description"]
    assert predict(finished.folder, "wine").decisions.shape == (178, 3)


def test_both_solvers_reach_the_same_joint_optimum(tmp_path: Path) -> None:
    """And the interior point in fewer rounds."""
    by_path = run("digits", tmp_path / "path", *NEWTON, "algorithm.masking=congruence").result
    by_cuts = run("digits", tmp_path / "cuts", *JOINT).result
    assert by_path["model"]["objective"] == pytest.approx(by_cuts["model"]["objective"], rel=1e-5)
    rounds = [each["cost"]["by_phase"]["train"]["rounds"] for each in (by_path, by_cuts)]
    assert rounds[0] < rounds[1]


def test_a_killed_site_takes_its_rows_from_the_joint_interior_point(tmp_path: Path) -> None:
    kill = "faults=[{kind='kill',site=2,phase='train',round=9}]"
    result = run("digits", tmp_path / "run", *NEWTON, "algorithm.masking=congruence", kill).result
    assert result["sites"][1]["status"] == "dropped"
    assert result["model"]["gap"] <= 1e-6
    assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        ["algorithm.class_weight=balanced"],
        ["algorithm.intercept=false"],
        ["algorithm.objective_noise=0.2", "compare.centralised=false"],
    ],
)
def test_the_joint_interior_point_takes_weights_and_noise(changes: list[str], tmp_path: Path) -> None:
    result = run("digits", tmp_path / "run", *NEWTON, "algorithm.masking=congruence", *changes).result
    assert result["model"]["gap"] <= 1e-6
    assert result["metrics"]["accuracy"] >= 0.9
    if "objective_noise" not in changes[0]:
        assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-5)


def test_noise_of_the_joint_interior_point_with_rows_of_weight_0(tmp_path: Path) -> None:
    """Such rows have no part in the problem, and none in the noise."""
    X, y = load_iris(return_X_y=True)
    weights = np.arange(len(X)) % 3
    lines = [
        ",".join(map(str, [*row, f"class_{each}", weight])) for row, each, weight in zip(X, y, weights, strict=True)
    ]
    table, scenario = tmp_path / "iris.csv", tmp_path / "iris.toml"
    table.write_text("\n".join(["a,b,c,d,label,weight", *lines]))
    scenario.write_text(
        f'[data]\nsource = "{table}"\nlabel = "label"\nweight = "weight"\n[algorithm]\nname = "pan-svm"\n'
    )
    changes = [
        "algorithm.multiclass=joint",
        "algorithm.solver=interior-point",
        "algorithm.objective_noise=0.2",
        "algorithm.tolerance=1e-4",
    ]
    result = run(str(scenario), tmp_path / "run", *changes, "algorithm.masking=congruence").result
    assert result["model"]["gap"] <= 1e-4
    assert result["metrics"]["accuracy"] >= 0.85


CUTS = ("joint_cuts", "sum")


@pytest.mark.long
def test_dna_is_liblinears_and_its_blocks_of_one_row_are_counted(tmp_path: Path, data_folder: Path) -> None:
    """1,600 rows, 396 landmarks, 32 groups: some 56 of 3,300 blocks are a row's, though hardly a group is."""
    assert data_folder
    dna = ["data.source=dna_train", "data.scale=none", "algorithm.C=8", "algorithm.gamma=0.03125"]
    dna += ["algorithm.landmarks=0.25", "algorithm.tolerance=1e-4", "algorithm.multiclass=joint"]
    result = run("digits", tmp_path / "run", *dna, "algorithm.solver=cutting-plane").result
    assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-4)
    assert result["metrics"]["accuracy"] >= 0.93
    assert 20 < single_rows(result) < 120


@pytest.mark.parametrize("protocol", ["ring", "masked"])
def test_a_killed_site_leaves_a_certificate(protocol: str, tmp_path: Path) -> None:
    kill = "faults=[{kind='kill',site=2,phase='train',round=9}]"
    result = run("digits", tmp_path / "run", *JOINT, kill, f"protocol.sum={protocol}").result
    assert result["sites"][1]["status"] == "dropped"
    assert result["model"]["gap"] <= 1e-6
    assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-4)


@pytest.mark.parametrize("scheme", ["joint", "ovo"])
def test_without_an_intercept_and_in_other_features(scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "linear.toml"
    path.write_text(
        f"""
[data]
source = "wine"
test_fraction = 0.3
[algorithm]
name = "pan-svm"
kernel = "linear"
features = "identity"
intercept = false
multiclass = "{scheme}"
solver = "cutting-plane"
tolerance = 1e-6
"""
    )
    result = run(str(path), tmp_path / "run").result
    assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-4)
    assert result["centralised"]["exact_kernel"] is None  # which is what was trained


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["data.positive=class_0"], 'multiclass: "joint" applies to more than two classes; remove it'),
        (["algorithm.class_weight=balanced"], 'class_weight: needs solver = "interior-point"'),
    ],
)
def test_what_a_joint_problem_cannot_be_is_said(changes: list[str], said: str) -> None:
    with pytest.raises(ScenarioError) as error:
        dataset.prepare(*spec.read("digits", overrides=[*JOINT, *changes]))
    assert said in str(error.value)


def test_an_estimator_trains_it() -> None:
    X, y = load_iris(return_X_y=True)
    model = PanSVC(10.0, gamma=0.1, landmarks=30, multiclass="joint", solver="cutting-plane").fit(X, y)
    assert model.score(X, y) > 0.96
    assert model.decision_function(X).shape == (150, 3)
    assert model.intercept_.shape == (3,)


def test_estimators_with_noise_say_how_decisions_come_of_their_weights() -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    common: dict[str, Any] = {"multiclass": "joint", "public": 40}
    svm = HybridSVC(30.0, features=20, mechanism="none", solver="cutting-plane", tolerance=1e-6, **common).fit(X, names)
    angles = svm.scaling_(X) @ svm.frequencies_.T
    values = np.hstack([np.cos(angles), np.sin(angles)]) / math.sqrt(20) @ svm.coef_.T
    np.testing.assert_allclose(svm.decision_function(X), above_others(values), atol=1e-9)
    logistic = PrivateErmClassifier(perturbation="none", **common).fit(X, names)
    values = logistic.feature_map_(logistic.scaling_(X)) @ logistic.coef_.T
    np.testing.assert_allclose(logistic.decision_function(X), log_odds(values), atol=1e-9)
    assert set(svm.predict(X)) == set(logistic.predict(X)) == set(names)
    with pytest.raises(ValueError, match='"joint" applies to more than two classes; remove it'):
        PrivateErmClassifier(perturbation="output", **common).fit(X[y < 2], names[y < 2])
    with pytest.raises(ValueError, match='solver: must be "interior-point" for 3 classes'):
        HybridSVC(mechanism="none", solver="cutting-plane", public=40).fit(X, names)


# What a coordinator makes of it.


@pytest.mark.long
def test_blocks_give_rows_away(tmp_path: Path) -> None:
    """A coordinator has most rows of 32 groups by blocks of one row; a list of records serves it with one group too."""
    exact = ["compare.centralised=false", "algorithm.min_group_rows=1"]
    found = audit("digits", tmp_path / "many", *JOINT, *exact)
    assert sum(each.false_claims for each in found.values()) == 0
    assert recovered(found["coordinator",])["blocks of joint cuts"] > 60
    assert found["site-1",].recovered == 0
    listed = 'collusion={sites=[],coordinator=true,candidates="source"}'
    (alone,) = run("digits", tmp_path / "one", *JOINT, exact[0], "algorithm.cut_groups=1", listed).result["audit"]
    by = {each["attack"]: each for each in alone["attacks"]}
    assert by["finite domain, jointly"]["recovered"] > 100
    assert alone["false_claims"] == 0
    assert by["support rows, jointly"]["auc"] > 0.8


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "least"), [("ovr", 80), ("ovo", 55)])
def test_cuts_of_every_problem_are_attacked(scheme: str, least: int, tmp_path: Path) -> None:
    """The first alone gives 42 and 37 of 142 rows away."""
    cuts = ["algorithm.solver=cutting-plane", "algorithm.min_group_rows=1", f"algorithm.multiclass={scheme}"]
    found = audit("digits", tmp_path / "run", *WINE, *cuts, "compare.centralised=false")
    assert sum(each.false_claims for each in found.values()) == 0
    assert recovered(found["coordinator",])["differences of cuts"] >= least


@pytest.mark.parametrize(
    ("masking", "sites", "has_systems"),
    [
        ("none", "[]", True),
        ("congruence", '["site-1"]', True),
        ("congruence", "[]", False),
        ("committee", '["site-1"]', False),
        ("committee", '["site-1", "site-2"]', True),
    ],
)
def test_joint_systems_name_rows_to_who_knows_the_masks(
    masking: str, sites: str, has_systems: bool, tmp_path: Path
) -> None:
    """Every row of the other sites with a list; none behind masks that the attackers do not know."""
    listed = f'collusion={{sites={sites},coordinator=true,candidates="source"}}'
    changes = [*NEWTON, f"algorithm.masking={masking}", "compare.centralised=false", listed]
    if masking == "committee":  # drawn members may never be these two
        changes.append('protocol.committee=["site-1", "site-2", "site-3"]')
    (found,) = run("digits", tmp_path / "run", *changes).result["audit"]
    by = {each["attack"]: each for each in found["attacks"]}
    assert found["false_claims"] == 0
    if has_systems:
        assert by["Newton systems, jointly"]["recovered"] > (100 if "site-2" not in sites else 80)
    else:
        assert "Newton systems, jointly" not in by or not by["Newton systems, jointly"]["recovered"]
    assert not {"Newton systems", "Newton steps"} & by.keys()


@pytest.mark.parametrize(
    ("scheme", "intercept", "attack", "least"),
    [
        ("ovr", True, "cuts of plain columns", 80),
        ("joint", True, "joint cuts of plain columns", 35),
        ("joint", False, "joint cuts of plain columns", 40),
    ],
)
def test_cuts_of_plain_columns_are_rows(scheme: str, intercept: bool, attack: str, least: int, tmp_path: Path) -> None:
    """Check that columns as features need no inversion: 90, 42 and 50 rows of 124, none of them false."""
    path = tmp_path / "plain.toml"
    path.write_text(
        f"""
[data]
source = "wine"
test_fraction = 0.3
[algorithm]
name = "pan-svm"
kernel = "linear"
features = "identity"
intercept = {str(intercept).lower()}
multiclass = "{scheme}"
solver = "cutting-plane"
min_group_rows = 1
[compare]
centralised = false
[collusion]
sites = []
coordinator = true
"""
    )
    (alone,) = run(str(path), tmp_path / "run").result["audit"]
    assert {each["attack"]: each["recovered"] >= least for each in alone["attacks"]} == {attack: True}
    assert alone["false_claims"] == 0


def test_without_a_list_all_combinations_of_few_categories_are_candidates_of_every_class(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    sizes, suits, kinds = (random.integers(3, size=90) for _ in range(3))
    table = [
        f"s{size},t{suit},u{kind},c{(size + suit) % 3}" for size, suit, kind in zip(sizes, suits, kinds, strict=True)
    ]
    (tmp_path / "cards.csv").write_text("\n".join(["size,suit,kind,label", *table, ""]))
    path = tmp_path / "cards.toml"
    path.write_text(
        """
[data]
source = "cards.csv"
label = "label"
test_fraction = 0.3
categories = { size = ["s0", "s1", "s2"], suit = ["t0", "t1", "t2"], kind = ["u0", "u1", "u2"] }
[algorithm]
name = "pan-svm"
landmarks = 20
multiclass = "joint"
solver = "cutting-plane"
cut_groups = 1
[compare]
centralised = false
[collusion]
sites = []
coordinator = true
"""
    )
    (alone,) = run(str(path), tmp_path / "run").result["audit"]
    by = {each["attack"]: each["recovered"] for each in alone["attacks"]}
    assert by["finite domain, jointly"] == alone["rows"]
    assert alone["false_claims"] == 0


def test_a_row_is_told_from_its_negative_by_a_third_class() -> None:
    """A row of class 0 taken for 1 has the blocks of its negative of class 1 taken for 0."""
    point, row = np.array([[0.0, 1.0, -0.5]]), np.array([1.0])
    cut = np.array([[-1.0, 1.0, 0.0, 1.0]])
    (found,) = lone_joint_rows(JointCuts.of(point, cut, 3), intercept=False)
    assert found.label == 0
    np.testing.assert_array_equal(found.features, row)
    of_two_ways = np.array([[0.0, 0.0, 0.0]])
    assert not lone_joint_rows(JointCuts.of(of_two_ways, cut, 3), intercept=False)
    assert lone_joint_rows(JointCuts.of(of_two_ways, cut, 3), intercept=True)[0].label == 0


def test_problems_are_posed_as_sites_were_told() -> None:
    empty = RunView(Coalition((), coordinator=True), ())
    against_rest = problems_of(empty, 3)
    np.testing.assert_array_equal([each.signs for each in against_rest], 2 * np.eye(3) - 1)
    posed = BinaryTask(1, np.array([1.0, 0.0, -1.0]))
    assert [posed.class_of(label, otherwise=3) for label in (1.0, -1.0, math.nan)] == [0, 2, 3]
    assert posed.factors([2.0, 5.0, 3.0]) == (3.0, 2.0)


# With noise.

PRICE, KINDS = 0.1, 3


def swapped() -> tuple[FloatArray, FloatArray]:
    """(K,) each: minimisers of one row and of another, which are as far from each other as any.

    The row is of one of two classes that a prior of public rows takes it for alike, and of the other.
    """
    point, prior = np.array([[1.0]]), np.zeros((KINDS, 1))
    prior[:2] = 1.0
    one, other = (
        minimize_jointly(point, np.eye(KINDS)[[label]].T, prior, PRICE, StoppingRule(1e-12, 100)).w for label in (0, 1)
    )
    return one, other


def test_one_row_moves_the_joint_minimiser_by_what_noise_is_for() -> None:
    """2 sqrt(2) C / n whatever K, and no less: it is attained."""
    one, other = swapped()
    assert np.linalg.norm(one - other) == pytest.approx(2 * math.sqrt(2) * PRICE, rel=1e-4)
    random, stopping = np.random.default_rng(0), StoppingRule(1e-10, 500)
    for _ in range(20):
        rows = random.normal(size=(6, 3))
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        classes = np.eye(KINDS)[random.integers(KINDS, size=6)].T
        changed, others = rows.copy(), classes.copy()
        changed[0], others[:, 0] = -rows[0], np.roll(classes[:, 0], 1)
        prior = np.zeros((KINDS, 3))
        pair = [minimize_jointly(*each, prior, 0.5 / 6, stopping).w for each in ((rows, classes), (changed, others))]
        assert np.linalg.norm(pair[0] - pair[1]) <= 2 * math.sqrt(2) * 0.5 / 6 * (1 + 1e-6)


@pytest.mark.long
def test_a_joint_model_gives_away_no_more_than_is_promised() -> None:
    """By 40,000 releases from the worst pair; noise for half as far is found out."""
    privacy, pair, gap = PrivacyParameters("laplace", 1.0), swapped(), 1e-12
    noise = noise_of(privacy, np.zeros((KINDS, 1)), 2 * PRICE, gap, jointly=True)
    assert lower_bounds(noise, pair, noise.released).sure <= 1.0
    too_little = noise_for(privacy, KINDS, math.sqrt(2) * PRICE, gap)
    assert lower_bounds(too_little, pair, too_little.released).sure > 1.0


JOINTLY = ["algorithm.multiclass=joint", "algorithm.solver=cutting-plane", "algorithm.tolerance=1e-8"]


@pytest.mark.parametrize("prior", ["none", "public"])
def test_hybrid_training_is_joint_over_the_sites(prior: str, tmp_path: Path) -> None:
    finished = run(str(private(tmp_path)), tmp_path / "run", *NO_NOISE, *JOINTLY, f"algorithm.prior={prior}")
    result, model = finished.result, finished.result["model"]
    assert model["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-6)
    assert result["centralised"]["max_decision_difference"] < 1e-2
    assert result["metrics"]["accuracy"] > 0.85
    assert "1 joint problem of 3 classes" in model["description"]
    assert ((predict(finished.folder, "wine").decisions > 0).sum(axis=1) == 1).all()


def test_its_noise_is_for_two_classes_whatever_their_number(tmp_path: Path) -> None:
    changes = [*JOINTLY, "algorithm.epsilon=3.0", "compare.baselines=true"]
    result = run(str(private(tmp_path)), tmp_path / "run", *changes).result
    (release,) = result["privacy"]["releases"]
    rows = sum(site["rows"] for site in result["sites"])
    assert release["sensitivity"] == pytest.approx(2 * math.sqrt(2) * 30.0 / rows, rel=1e-2)
    assert release["protects_against"][1].startswith("not the coordinator and the sites")
    assert set(result["baselines"]) == {"public", "private", "no_noise"}


@pytest.mark.parametrize("features", [0, 20])
@pytest.mark.parametrize(("perturbation", "epsilon"), [("none", 1.0), ("output", 300.0)])
def test_private_risk_minimisation_is_multinomial(
    perturbation: str, epsilon: float, features: int, tmp_path: Path
) -> None:
    path = private(tmp_path)
    path.write_text(
        path.read_text().replace('"hybrid-svm"\nC = 30.0\nfeatures = 40', f'"dp-erm"\nfeatures = {features}')
    )
    changes = [f"algorithm.perturbation={perturbation}", f"algorithm.epsilon={epsilon}", "algorithm.multiclass=joint"]
    changes.append("compare.centralised=true")
    result: dict[str, Any] = run(str(path), tmp_path / "run", *changes).result
    assert result["model"]["classes"] == NAMES
    assert result["metrics"]["accuracy"] > 0.75
    assert result["centralised"]["max_decision_difference"] < (1e-3 if perturbation == "none" else 1.0)
    if perturbation == "output":
        (release,), rows = result["privacy"]["releases"], sum(site["rows"] for site in result["sites"])
        assert release["sensitivity"] == pytest.approx(2 * math.sqrt(2) / (rows * 0.01), rel=1e-3)


def test_its_loss_is_scikit_learns() -> None:
    rows, classes = wine()
    rows = rows / np.linalg.norm(rows, axis=1).max()
    reference = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-12, max_iter=10_000)
    reference.fit(rows, classes.argmax(axis=0))
    w = reference.coef_.ravel()
    sums = joint_erm_sums(rows, classes, w)
    np.testing.assert_allclose(sums[1:40] + w, 0.0, atol=1e-4)
    hessian, h = sums[40:].reshape(39, 39), 1e-6
    direction = np.random.default_rng(0).normal(size=39)
    ahead = joint_erm_sums(rows, classes, w + h * direction)
    np.testing.assert_allclose((ahead[1:40] - sums[1:40]) / h, hessian @ direction, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("hybrid-svm", [], 'multiclass: "joint" needs solver = "cutting-plane", which shows'),
        (
            "hybrid-svm",
            ["algorithm.solver=cutting-plane", "algorithm.variant=one-shot"],
            'multiclass: "joint" needs variant = "joint"; with one-shot use "ovr"',
        ),
        ("dp-erm", [], 'multiclass: "joint" needs perturbation = "output"'),
        ("dp-erm", ["algorithm.loss=huber"], 'multiclass: "joint" needs loss = "logistic"'),
    ],
)
def test_what_private_training_cannot_do_jointly_is_said(
    name: str, changes: list[str], said: str, tmp_path: Path
) -> None:
    path = private(tmp_path)
    path.write_text(path.read_text().replace('"hybrid-svm"\nC = 30.0\nfeatures = 40', f'"{name}"\nfeatures = 20'))
    with pytest.raises(ScenarioError) as error:
        dataset.prepare(*spec.read(str(path), overrides=["algorithm.multiclass=joint", *changes]))
    assert said in str(error.value)
