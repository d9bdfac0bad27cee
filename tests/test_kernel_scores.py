"""The scores of columns for a kernel SVM: dual variables that stay at the sites, and sums equal to pooled figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import SVC

from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization.linear_svm import train_linear
from fedsvm.algorithms.rfe import KernelScoreSite, RfeSettings
from fedsvm.algorithms.selection.kernel_scores import (
    balance,
    expansion_scores,
    input_scores,
    kernel_scores,
    without_column,
)
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.run.result import read_result
from tests.column_choice import choose, standardised
from tests.commands import fedsvm
from tests.conftest import long_but_for
from tests.in_process import InProcessFederation

C = 1.0


@pytest.fixture(scope="module")
def trained() -> tuple[InProcessFederation, NystromMap, FloatArray, FloatArray, FloatArray]:
    """Four sites that trained to a gap of 1e-8: the sites, the map, w, and the pooled rows and signs."""
    train, names = standardised("wdbc")
    rows, signs = train.rows[::2, :8], train.labels[::2]
    programs = {}
    for number, part in enumerate(np.array_split(np.arange(len(rows)), 4)):
        site = KernelScoreSite(f"site-{number}", site_partition(rows[part], signs[part], names=names[:8]), {"seed": 1})
        site.rescale(np.zeros(8), np.ones(8))
        programs[site.site] = site
    federation = InProcessFederation(programs)
    landmarks = np.random.default_rng(0).normal(size=(12, 8))
    feature_map = NystromMap.span(Kernel("rbf", gamma=0.1), landmarks, 1e-10)
    federation.run("receive_map", **feature_map.to_fields())
    settings = RfeSettings(C=C, tolerance=1e-8, step_noise=0.0)
    found = train_linear(federation, settings, feature_map.dimensions)  # type: ignore[arg-type]
    assert found.weights is not None
    return federation, feature_map, found.weights[0, :-1], rows, signs


def test_dual_variables_are_those_of_libsvm(
    trained: tuple[InProcessFederation, NystromMap, FloatArray, FloatArray, FloatArray],
) -> None:
    federation, feature_map, w, rows, signs = trained
    alpha = np.concatenate([site.path.paths.latest[0].alpha for site in federation.programs.values()])  # type: ignore[attr-defined]
    assert (alpha >= 0).all()
    assert (alpha <= C).all()
    assert abs(alpha @ signs) < 1e-10
    features = feature_map(rows)
    svm = SVC(kernel="linear", C=C, tol=1e-10).fit(features, signs)
    np.testing.assert_allclose(w, svm.coef_[0], atol=1e-6 * np.abs(svm.coef_).max())
    weights = np.zeros(len(signs))
    weights[svm.support_] = svm.dual_coef_[0]
    expected = np.abs(weights @ rows)
    found = np.sqrt(input_scores(federation, 8, np.inf))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, expected, atol=1e-6 * expected.max())


def test_what_columns_are_worth_is_that_of_the_pooled_kernel(
    trained: tuple[InProcessFederation, NystromMap, FloatArray, FloatArray, FloatArray],
) -> None:
    """Of the same dual variables, with the kernel matrix of all rows in the landmarks' approximation."""
    federation, feature_map, w, rows, signs = trained
    alpha = np.concatenate([site.path.paths.latest[0].alpha for site in federation.programs.values()])  # type: ignore[attr-defined]
    by_class = [np.where(signs == sign, alpha, 0.0) for sign in (-1, 1)]
    smaller = min(each.sum() for each in by_class)
    signed = sum(sign * each * smaller / each.sum() for sign, each in zip((-1, 1), by_class, strict=True))
    kernel, landmarks = feature_map.kernel, feature_map.landmarks

    def square(to_landmarks: FloatArray, among: FloatArray) -> float:
        nystrom = to_landmarks @ np.linalg.pinv(among, rcond=1e-10) @ to_landmarks.T
        return float(signed @ nystrom @ signed)

    whole = square(kernel(rows, landmarks), kernel(landmarks, landmarks))
    expected = [
        (whole - square(without_column(kernel, rows, landmarks, j), without_column(kernel, landmarks, landmarks, j)))
        / 2
        for j in range(8)
    ]
    found = kernel_scores(federation, feature_map, np.inf)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    beta = feature_map.mapping @ w
    values = kernel(landmarks, landmarks)
    closer = beta @ values @ beta - beta @ without_column(kernel, landmarks, landmarks, 3) @ beta
    assert expansion_scores(feature_map, w)[3] == pytest.approx(closer / 2)


def test_sums_of_alpha_of_both_classes_are_made_equal() -> None:
    found = balance(np.array([[2.0, -4.0], [1.0, 3.0]]))
    np.testing.assert_allclose(found, [1.0])
    kernel = Kernel("rbf", gamma=0.3)
    x, y = np.ones((2, 3)), np.zeros((1, 3))
    np.testing.assert_allclose(without_column(kernel, x, y, 1), np.exp(-0.3 * 2))
    assert replace(kernel, gamma=0.1).gamma == 0.1


@pytest.mark.parametrize("weights", long_but_for(["expansion", "kernel", "input"], "kernel"))
def test_a_run_ranks_by_what_columns_are_worth(weights: str, tmp_path: Path) -> None:
    changes = [f"algorithm.weights={weights}", "algorithm.size=3", "algorithm.remove=0.5"]
    result = choose(tmp_path / "run", "wine", "rfe", *changes).result
    ranking = result["selection"]["ranking"]
    assert [len(step["removed"]) for step in ranking["steps"]] == [7, 3, 2]
    assert "proline" in [name.replace("_", "-") for name in ranking["selected"]]
    assert all(step["certain"] is None for step in ranking["steps"])
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    assert read_result(tmp_path / "run").selection is not None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["algorithm.solver=cutting-plane"], 'weights: "kernel" needs solver = "interior-point"'),
        (["algorithm.features=fourier"], 'weights: "kernel" needs features = "landmarks"'),
    ],
)
def test_weights_that_are_not_there_are_a_sentence(changes: list[str], sentence: str, tmp_path: Path) -> None:
    words = [word for change in ["algorithm.weights=kernel", *changes] for word in ("--set", change)]
    done = fedsvm("run", "rfe", *words, folder=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
