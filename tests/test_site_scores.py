"""Models judged by the sites, on rows of their own: the counts are those of all rows together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from fedsvm.algorithms.data.score_counts import count_scores
from fedsvm.algorithms.site_scores import SiteScores
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.data import dataset, row_roles, splits
from fedsvm.scenarios.report.summary import lines
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.run_results import simulate


def run(folder: Path, name: str, *changes: str) -> RunResult:
    finished = simulate(name, folder, ["data.tested_by=sites", *changes])
    assert finished.result.status == "completed", finished.result.error
    return finished.result


def scores_of(decisions: FloatArray, labels: FloatArray, bins: int) -> SiteScores:
    counts = count_scores(decisions, labels[None], 0.0, bins).astype(np.int64)
    tp, fp, tn, fn = counts[:4].tolist()
    return SiteScores(tp, fp, tn, fn, counts[4 : 4 + bins], counts[4 + bins :])


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(("quickstart",), marks=pytest.mark.long),
        ("quickstart", "algorithm.release=sites"),
        pytest.param(("naive-bayes", "data.test_fraction=0.3"), marks=pytest.mark.long),
        ("decision-tree", "data.folds=2", "data.repeats=2", "data.test_fraction=0.0"),
    ],
    ids=" ".join,
)
def test_the_sites_find_what_all_rows_in_one_place_show(changes: tuple[str, ...], tmp_path: Path) -> None:
    result = run(tmp_path, *changes)
    exact, found = result.metrics, result.at_sites
    assert exact is not None and found is not None and exact.auc is not None and found.auc is not None
    assert found.confusion == exact.confusion
    assert found.accuracy == pytest.approx(exact.accuracy)
    assert found.auc_resolution is not None
    assert abs(found.auc - exact.auc) <= found.auc_resolution + 1e-9


@pytest.mark.parametrize(
    "changes", [("naive-bayes", "data.source=iris"), ("quickstart", "data.source=wine")], ids=" ".join
)
def test_of_more_classes_the_sites_find_the_same_table(changes: tuple[str, ...], tmp_path: Path) -> None:
    overrides = ["data.tested_by=sites", *changes[1:]]
    finished = simulate(changes[0], tmp_path, overrides, changes={"data.positive": None})
    exact, found = finished.result.metrics, finished.result.at_sites
    assert exact is not None and found is not None, finished.result.error
    assert found.confusion is None and found.confusion_matrix == exact.confusion_matrix
    assert found.accuracy == pytest.approx(exact.accuracy)
    assert found.auc is not None and exact.auc is not None and found.auc_resolution is not None
    assert abs(found.auc - exact.auc) <= found.auc_resolution + 1e-9
    assert found.confusion_matrix is not None
    rows = sum(sum(called) for called in found.confusion_matrix)
    assert f"{found.accuracy * 100:.2f} % of {rows} held-out rows" in dict(lines(finished.result))["at sites"]


@given(st.integers(0, 10**6), st.integers(1, 200))
def test_the_area_is_within_the_stated_resolution(seed: int, bins: int) -> None:
    random = np.random.default_rng(seed)
    labels = np.concatenate([[1.0, -1.0], random.choice([-1.0, 1.0], 40)])
    decisions = random.normal(size=42) * 10.0 ** random.integers(-3, 4) + labels
    found = scores_of(decisions, labels, bins)
    assert found.auc is not None and found.auc_resolution is not None
    assert abs(found.auc - roc_auc_score(labels, decisions)) <= found.auc_resolution + 1e-12


def test_rows_of_one_class_have_no_area() -> None:
    found = scores_of(np.array([-1.0, 2.0]), np.ones(2), 10)
    assert (found.auc, found.auc_resolution, found.accuracy) == (None, None, 0.5)


def test_a_site_deals_its_own_rows_by_class_and_knows_no_others() -> None:
    signs = np.repeat([1.0, -1.0], [30, 60])
    folds = splits.own_folds(signs, "north", 1, fraction=0.0, folds=3, repeats=2)
    assert folds.shape == (90, 2)
    for repeat in range(2):
        for sign, each in ((1.0, 10), (-1.0, 20)):
            assert np.bincount(folds[signs == sign, repeat] - 3 * repeat).tolist() == [each] * 3
    held_out = splits.own_folds(signs, "north", 1, fraction=0.2, folds=None, repeats=1)
    assert [(held_out[signs == sign] == 0).sum() for sign in (1.0, -1.0)] == [6, 12]
    blind = spec.read("quickstart", overrides=["data.test_fraction=0", "data.folds=5", "data.stratify=false"])[0].data
    few = np.repeat([1.0, -1.0], [4, 66])
    dealt = row_roles.own_folds_of(blind, few, "north", 1)
    assert np.bincount(dealt).tolist() == [14] * 5
    np.testing.assert_array_equal(dealt, row_roles.own_folds_of(blind, -few, "north", 1))


def test_folds_that_are_not_stratified_do_not_depend_on_labels() -> None:
    changes = ["data.test_fraction=0", "data.folds=5", "data.stratify=false"]
    scenario, base = spec.read("quickstart", overrides=changes)
    shuffled, _ = spec.read("quickstart", overrides=[*changes, "data.permute_labels=true"])
    assert terms_of(scenario).reading["stratify"] is False
    found, other = (dataset.prepare(each, base).tests for each in (scenario, shuffled))
    for rows, same in zip(found, other, strict=True):
        np.testing.assert_array_equal(rows, same)
    stratified = dataset.prepare(spec.read("quickstart", overrides=changes[:2])[0], base).tests
    assert any(not np.array_equal(rows, apart) for rows, apart in zip(found, stratified, strict=True))
    assert sorted(np.concatenate(found)) == sorted(np.concatenate(stratified))


def test_an_algorithm_that_no_site_alone_can_score_by_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"data\.tested_by: a site alone cannot score rows by voting-ensemble"):
        spec.read("voting-ensemble", overrides=["data.tested_by=sites"])
