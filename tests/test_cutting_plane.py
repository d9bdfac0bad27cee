"""The cutting plane: the right optimum, a bound that holds, and few rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.svm import SVC

from fedsvm.algorithms.features.k_means import local_centres
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import nystrom_features, nystrom_map
from fedsvm.algorithms.optimization import cutting_plane
from fedsvm.algorithms.optimization.cutting_plane import solve
from fedsvm.algorithms.optimization.line_search import (
    GRID,
    Parabola,
    fixed_step_search,
    grid_search,
    line_search,
    printed_search,
)
from fedsvm.algorithms.optimization.solution import Solution, StoppingRule, relative_gap
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.data import sources
from tests.pooled import PooledOracle, solve_pooled
from tests.tables import tic_tac_toe


def features_of(rows: FloatArray, gamma: float, count: int) -> FloatArray:
    kernel = Kernel("rbf", gamma)
    landmarks, _ = local_centres(rows, count, 1, np.random.default_rng(0))
    return nystrom_features(kernel, rows, landmarks, nystrom_map(kernel(landmarks, landmarks), 1e-10))


def objective(features: FloatArray, labels: FloatArray, w: FloatArray, b: float, C: float) -> float:
    """1/2 |w|^2 + C sum of hinge losses, for features (n, m)."""
    hinge = np.maximum(0.0, 1.0 - labels * (features @ w + b))
    return float(0.5 * w @ w + C * hinge.sum())


@pytest.fixture(scope="module")
def boards() -> tuple[FloatArray, FloatArray]:
    rows, labels = tic_tac_toe()
    return features_of(rows, 0.05, 190), labels


@pytest.fixture(scope="module")
def tumours() -> tuple[FloatArray, FloatArray]:
    rows, target = load_breast_cancer(return_X_y=True)
    return features_of((rows - rows.mean(axis=0)) / rows.std(axis=0), 1 / 30, 114), 2.0 * target - 1.0


@pytest.fixture
def patients(data_folder: Path) -> tuple[FloatArray, FloatArray]:
    data = sources.load("pima_diabetes", label="label", base_folder=data_folder)
    rows = np.column_stack([feature.values for feature in data.features]).astype(float)
    low, high = rows.min(axis=0), rows.max(axis=0)
    return features_of(2 * (rows - low) / (high - low) - 1, 0.0078125, 154), np.where(data.labels == "1", 1.0, -1.0)


@pytest.mark.parametrize(("data", "C"), [("boards", 10.0), ("tumours", 10.0), ("patients", 512.0)])
def test_the_optimum_is_that_of_libsvm(data: str, C: float, request: pytest.FixtureRequest) -> None:
    features, labels = request.getfixturevalue(data)
    (found,) = solve_pooled(PooledOracle(features, labels[None], 32), C=C, tolerance=1e-6)
    gram = features @ features.T
    libsvm = SVC(kernel="precomputed", C=C, tol=1e-8).fit(gram, labels)
    weights = np.zeros(len(labels))
    weights[libsvm.support_] = libsvm.dual_coef_[0]
    theirs = objective(features, labels, features.T @ weights, float(libsvm.intercept_[0]), C)
    assert found.converged
    assert found.gap <= 1e-6
    assert found.objective == pytest.approx(objective(features, labels, found.w, found.b, C), rel=1e-12)
    assert found.objective == pytest.approx(theirs, rel=1e-5)
    decisions = features @ found.w + found.b
    np.testing.assert_array_equal(np.sign(decisions), libsvm.predict(gram))


def test_grouped_cuts_need_few_rounds(boards: tuple[FloatArray, FloatArray]) -> None:
    features, labels = boards
    oracle = PooledOracle(features, labels[None], 32)
    (found,) = solve_pooled(oracle, C=100.0, tolerance=1e-5)
    assert found.converged
    assert found.iterations <= 40
    assert oracle.rounds <= 1 + 2 * found.iterations, "one round for the starting cuts, then two at most"


@pytest.mark.long
def test_a_new_bundle_over_fewer_rows_starts_where_the_old_one_stood(boards: tuple[FloatArray, FloatArray]) -> None:
    """Nothing of the old bundle but its point counts: objective and bound are those of the rows that are left."""
    features, labels = boards
    old = solve_pooled(PooledOracle(features, labels[None], 32), C=10.0, tolerance=1e-2)
    left = PooledOracle(features[200:], labels[None, 200:], 32)
    (afresh,) = solve_pooled(PooledOracle(features[200:], labels[None, 200:], 32), C=10.0, tolerance=1e-6)
    (found,) = solve_pooled(left, C=10.0, tolerance=1e-6, resume=old)
    assert found.objective == pytest.approx(afresh.objective, rel=1e-5)
    assert found.objective < old[0].objective
    assert found.lower_bound <= afresh.objective * (1 + 1e-9)
    assert found.iterations > old[0].iterations


def test_the_bound_never_falls_and_never_passes_the_optimum(tumours: tuple[FloatArray, FloatArray]) -> None:
    features, labels = tumours
    (exact,) = solve_pooled(PooledOracle(features, labels[None], 8), C=10.0, tolerance=1e-9)
    seen: list[Solution] = []
    solve(
        PooledOracle(features, labels[None], 8),
        problems=1,
        dimensions=features.shape[1],
        groups=8,
        C=10.0,
        stopping=StoppingRule(1e-7, 200),
        search=grid_search,
        on_iteration=lambda iteration, solutions: seen.extend(solutions),
    )
    bounds = [solution.lower_bound for solution in seen]
    objectives = [solution.objective for solution in seen]
    assert bounds == sorted(bounds)
    assert objectives == sorted(objectives, reverse=True)
    assert max(bounds) <= exact.objective * (1 + 1e-12)
    assert min(objectives) >= exact.lower_bound * (1 - 1e-12)


def test_several_problems_at_once_are_the_same_as_one_at_a_time(tumours: tuple[FloatArray, FloatArray]) -> None:
    features, labels = tumours
    several = np.stack([labels, -labels, np.where(features[:, 0] > np.median(features[:, 0]), 1.0, -1.0)])
    together = solve_pooled(PooledOracle(features, several, 16), C=1.0, tolerance=1e-6)
    for problem, found in zip(several, together, strict=True):
        (alone,) = solve_pooled(PooledOracle(features, problem[None], 16), C=1.0, tolerance=1e-6)
        assert found.converged
        assert found.objective == pytest.approx(alone.objective, rel=2e-6)


def test_fixed_steps_find_the_same_optimum_in_more_rounds(tumours: tuple[FloatArray, FloatArray]) -> None:
    features, labels = tumours
    grid, fixed = PooledOracle(features, labels[None], 16), PooledOracle(features, labels[None], 16)
    (by_grid,) = solve_pooled(grid, C=10.0, tolerance=1e-5)
    (by_steps,) = solve_pooled(fixed, C=10.0, tolerance=1e-5, search=fixed_step_search(0.1))
    assert by_steps.objective == pytest.approx(by_grid.objective, rel=2e-5)
    assert fixed.rounds > grid.rounds


def test_running_out_of_iterations_is_said(boards: tuple[FloatArray, FloatArray]) -> None:
    features, labels = boards
    (found,) = solve_pooled(PooledOracle(features, labels[None], 1), C=100.0, tolerance=1e-5, most=3)
    assert not found.converged
    assert found.iterations == 3
    assert found.gap > 1e-5


@settings(max_examples=25)
@given(
    rows=st.integers(2, 30),
    columns=st.integers(1, 5),
    groups=st.integers(1, 40),
    seed=st.integers(0, 99),
    C=st.floats(0.01, 100),
)
def test_any_small_problem_is_solved(rows: int, columns: int, groups: int, seed: int, C: float) -> None:
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, columns))
    labels = np.where(np.arange(rows) % 2 == 0, 1.0, -1.0)
    (found,) = solve_pooled(PooledOracle(features, labels[None], groups), C=C, tolerance=1e-6)
    assert found.converged
    assert found.lower_bound <= found.objective * (1 + 1e-9)


@pytest.mark.parametrize(("C", "groups"), [(1.0, 1), (1e3, 1), (1e6, 1), (1e6, 8), (1e6, 32)])
def test_masters_are_solved_however_hard(
    C: float, groups: int, tumours: tuple[FloatArray, FloatArray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few cuts and many, one group and many, a large C: the value of each is certified by its own multipliers."""
    solved, gaps = cutting_plane.Master.solve, []

    def checked(master: cutting_plane.Master, *, intercept: bool) -> tuple[FloatArray, float, FloatArray]:
        w, b, z = solved(master, intercept=intercept)
        cuts, group, slack = master.cuts, master.group, np.zeros(groups)
        np.maximum.at(slack, group, cuts[:, -1] - cuts[:, :-2] @ w - cuts[:, -2] * b)
        value = float(0.5 * w @ w + C * slack.sum())
        feasible = cutting_plane._feasible(z, cuts[:, -2], group, groups, C)
        bound = float(feasible @ cuts[:, -1]) - master.penalty.conjugate(feasible @ cuts[:, :-2])
        gaps.append(relative_gap(value, bound))
        return w, b, z

    monkeypatch.setattr(cutting_plane.Master, "solve", checked)
    features, labels = tumours
    solve_pooled(PooledOracle(features, labels[None], groups), C=C, tolerance=1e-3, most=30)
    assert len(gaps) > 2
    assert max(gaps) < 1e-3


def test_multipliers_made_feasible_are() -> None:
    random = np.random.default_rng(0)
    group = np.arange(40) % 4
    d = random.normal(size=40)
    z = cutting_plane._feasible(random.normal(size=40) * 3, d, group, 4, 1.0)
    assert (z >= 0).all()
    assert (np.bincount(group, z) <= 1 + 1e-12).all()
    assert abs(z @ d) < 1e-12


def test_an_objective_of_zero_has_no_gap() -> None:
    assert relative_gap(0.0, 0.0) == 0.0


# Line search.


def hinge_line(seed: int) -> tuple[Parabola, FloatArray, FloatArray]:
    """A parabola and the breakpoints and slopes of 20 hinges, for one line."""
    random = np.random.default_rng(seed)
    parabola = Parabola(np.array([1.0]), np.array([random.normal()]), np.array([random.uniform(0.1, 3)]))
    return parabola, random.normal(size=20), random.normal(size=20)


@given(st.integers(0, 10_000))
def test_the_best_step_tried_is_taken_and_its_value_is_right(seed: int) -> None:
    parabola, offset, slope = hinge_line(seed)

    def evaluate(steps: FloatArray) -> FloatArray:
        slack = offset + steps[:, :, None] * slope
        return np.stack([np.maximum(slack, 0).sum(axis=2), (slope * (slack > 0)).sum(axis=2)], axis=2)

    def phi(step: float) -> float:
        return float(parabola.value(np.array([[step]]))[0, 0] + 2.0 * evaluate(np.array([[step]]))[0, 0, 0])

    for search in (grid_search, fixed_step_search(0.25), printed_search(0.25)):
        found = search(evaluate, parabola, 2.0)
        assert found.value[0] == pytest.approx(phi(found.step[0]), rel=1e-12)
    assert grid_search(evaluate, parabola, 2.0).value[0] == pytest.approx(min(map(phi, GRID)), rel=1e-12)


def test_fixed_steps_stop_when_the_derivative_turns_positive() -> None:
    calls = []

    def evaluate(steps: FloatArray) -> FloatArray:
        calls.append(float(steps[0, 0]))
        return np.zeros((*steps.shape, 2))

    parabola = Parabola(np.array([0.0]), np.array([-1.0]), np.array([1.0]))
    assert fixed_step_search(0.3)(evaluate, parabola, 1.0).step[0] == pytest.approx(0.9)
    assert calls == pytest.approx([0.3, 0.6, 0.9, 1.2])


@pytest.mark.parametrize(("slope", "steps"), [(-1.0, [0.0, 0.3, 0.6, 0.9, 1.2]), (0.5, [0.0])])
def test_the_papers_search_takes_the_first_step_where_the_derivative_is_not_negative(
    slope: float, steps: list[float]
) -> None:
    calls = []

    def evaluate(steps: FloatArray) -> FloatArray:
        calls.append(float(steps[0, 0]))
        return np.zeros((*steps.shape, 2))

    found = printed_search(0.3)(evaluate, Parabola(np.array([0.0]), np.array([slope]), np.array([1.0])), 1.0)
    assert calls == pytest.approx(steps)
    assert found.step[0] == pytest.approx(steps[-1])


def test_the_papers_rule_ends_nearer_to_the_optimum_the_smaller_epsilon_is(
    tumours: tuple[FloatArray, FloatArray],
) -> None:
    features, labels = tumours
    (exact,) = solve_pooled(PooledOracle(features, labels[None], 16), C=10.0, tolerance=1e-5)
    above = []
    for epsilon in (1e-2, 1e-3, 1e-4):
        oracle = PooledOracle(features, np.stack([labels, -labels]), 1)
        solutions = solve(
            oracle,
            problems=2,
            dimensions=features.shape[1],
            groups=1,
            C=10.0,
            stopping=StoppingRule(epsilon, 500, printed=True),
            search=printed_search(0.1),
            on_iteration=lambda iteration, solutions: None,
        )
        for found in solutions:
            assert found.converged
            assert found.gap > 1e-4, "the gap is a result, and does not end it"
            assert found.lower_bound <= exact.objective * (1 + 1e-9)
        above.append(solutions[0].objective / exact.objective - 1)
    assert above == sorted(above, reverse=True)
    assert above[-1] < 0.01


def test_an_unknown_line_search_is_named() -> None:
    with pytest.raises(LookupError, match="grid, fixed-step and paper"):
        line_search("exact", 0.1)
