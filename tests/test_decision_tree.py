"""Trees from summed cross-tables: that of pooled rows, scikit-learn's where only ties may differ, and the holes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from fedsvm import classifier
from fedsvm.algorithms.attacks.attack import Prior, RowClaim
from fedsvm.algorithms.attacks.cross_tables import CrossTables
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.horizontal_task import PreparedRows
from fedsvm.algorithms.data.scaling import ScaleName
from fedsvm.algorithms.data.statistics import statistics_of
from fedsvm.algorithms.decision_tree import (
    LEAF,
    Tree,
    TreeModel,
    TreeSettings,
    best_split,
    bin_by_edges,
    cross_tables,
    edges_of,
    grow,
    impurity,
    noisy_edges,
)
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import FederationError
from tests.commands import fedsvm
from tests.tasks import table
from tests.test_runs import run
from tests.views import WrittenDown, scaled

ROWS, LABELS = table(400, seed=8)
USUAL = TreeSettings(min_class_rows=1)


def members(labels: FloatArray) -> FloatArray:
    """(2, n) of 0 and 1."""
    return np.stack([labels < 0, labels > 0]).astype(float)


def model_of(rows: FloatArray, labels: FloatArray, settings: TreeSettings) -> TreeModel:
    """The tree of rows that are here."""
    edges = edges_of(np.stack([rows.sum(axis=0), (rows**2).sum(axis=0)]), len(rows), settings.bins)
    of_bins, counted = bin_by_edges(rows, edges), members(labels)
    return TreeModel(
        grow(lambda tree, nodes: cross_tables(tree, nodes, of_bins, counted, settings.bins), settings), edges
    )


@pytest.mark.parametrize("name", ["standard", "minmax", "none"])
def test_noisy_statistics_without_noise_give_the_same_edges(name: ScaleName) -> None:
    low, high = np.abs(ROWS).max(axis=0) * [[-1.0], [1.0]]
    moved = (ROWS - (low + high) / 2) / ((high - low) / 2)
    totals = {"classes": np.array([200.0, 200.0]), "sums": moved.sum(axis=0), "squares": (moved**2).sum(axis=0)}
    found = statistics_of(totals, dict.fromkeys(totals, 0.0), np.array([low, high]), [], 0.5)
    scale = found.scale(name)
    prepared = PreparedRows(ROWS.shape[1], {"site-1": 400}, scale, found)
    scaled_rows = scale(ROWS)
    expected = edges_of(np.stack([scaled_rows.sum(axis=0), (scaled_rows**2).sum(axis=0)]), 400, 8)
    np.testing.assert_allclose(noisy_edges(prepared, found, 8), expected, rtol=1e-9, atol=1e-9)


def test_a_run_with_noisy_statistics_opens_tables_alone_and_says_so(tmp_path: Path) -> None:
    changes = ["data.statistics_privacy=100", "compare.centralised=false", "algorithm.max_depth=2"]
    result = run("decision-tree", tmp_path / "run", *changes).result
    opened = {each["step"] for each in result["disclosures"] if each["kind"] == "sum"}
    assert {"noisy_statistics", "class_counts", "cross_tables"} <= opened
    assert not opened & {"column_moments", "column_sums", "column_squares"}
    (remark,) = result["model"]["remarks"]
    assert remark["name"] == "exact sums"
    assert remark["sentence"].endswith("; the noise of data.statistics_privacy does not cover these sums")


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
@pytest.mark.parametrize("depth", [1, 3, 6])
def test_it_is_scikit_learns_tree_of_the_bins(criterion: str, depth: int) -> None:
    """Of rows that are bins to begin with, with both trees' limits the same. Ties may be broken otherwise."""
    settings = TreeSettings(max_depth=depth, criterion=criterion, min_class_rows=1)  # type: ignore[arg-type]
    ours = model_of(ROWS, LABELS, settings)
    bins = bin_by_edges(ROWS, ours.edges)
    theirs = DecisionTreeClassifier(
        criterion=criterion, max_depth=depth, min_samples_split=10, min_samples_leaf=5, random_state=0
    ).fit(bins, LABELS)
    probabilities = theirs.predict_proba(bins)
    counts = ours.tree.counts[ours.tree.nodes_of(bins)]
    same = np.isclose(counts[:, 1] / counts.sum(axis=1), probabilities[:, 1])
    assert same.mean() > 0.95
    assert ours.tree.depth == theirs.get_depth()


def test_impurities_are_those_of_their_names() -> None:
    counts = np.array([[2.0, 6.0], [5.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(impurity(counts, "gini"), [8 * (1 - 1 / 16 - 9 / 16), 0, 0])
    np.testing.assert_allclose(impurity(counts, "entropy"), [-8 * (np.log(0.25) / 4 + 3 * np.log(0.75) / 4), 0, 0])


def test_no_split_leaves_less_than_is_allowed() -> None:
    for settings in (TreeSettings(), TreeSettings(min_samples_leaf=20, min_class_rows=7), USUAL):
        tree = model_of(ROWS, LABELS, settings).tree
        assert tree.counts.sum(axis=1).min() >= settings.min_samples_leaf
        assert ((tree.counts == 0) | (tree.counts >= settings.min_class_rows)).all()
        assert tree.counts[tree.column != LEAF].sum(axis=1).min() >= settings.min_samples_split
        assert tree.counts[tree.column == LEAF].sum() == 400


def test_what_no_split_helps_is_a_leaf() -> None:
    one_class = np.zeros((2, 4, 2))
    one_class[:, 1, 0] = 30
    assert best_split(one_class, USUAL) is None
    alike = np.full((2, 4, 2), 5.0)
    assert best_split(alike, USUAL) is None


def test_a_constant_column_is_in_one_bin() -> None:
    rows = np.column_stack([np.full(40, 3.0), np.arange(40.0)])
    labels = np.where(rows[:, 1] > 19, 1.0, -1.0)
    model = model_of(rows, labels, TreeSettings())
    assert set(model.tree.column.tolist()) == {1, LEAF}
    assert ((model.decision_function(rows) > 0) == (labels > 0)).all()


# Whole runs.


def test_sites_grow_the_tree_of_all_rows() -> None:
    pooled = model_of(ROWS, LABELS, TreeSettings())
    for sum_, sites in (("ring", 3), ("masked", 5)):
        model = classifier("decision-tree")(scale="none", sum=sum_, sites=sites).fit(ROWS, LABELS)
        for name, value in pooled.to_arrays().items():
            np.testing.assert_allclose(model.model_.to_arrays()[name], value, atol=1e-9)


def test_a_scenario_takes_a_round_a_level(tmp_path: Path) -> None:
    result = run("decision-tree", tmp_path / "run").result
    figures = result["model"]["figures"]
    tables = [each for each in result["disclosures"] if (each["step"], each["kind"]) == ("cross_tables", "sum")]
    assert sum(each["times"] for each in tables) == figures["depth"]
    assert result["cost"]["by_phase"]["train"]["rounds"] == figures["depth"] + 2
    assert result["centralised"]["max_decision_difference"] == 0
    assert result["metrics"]["accuracy"] > 0.9
    assert figures["smallest_leaf"] >= 5
    predicted = fedsvm("predict", tmp_path / "run", "wdbc", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 570)


@pytest.mark.parametrize(("phase", "number"), [("setup", 2), ("train", 1), ("train", 4)])
def test_a_site_that_drops_is_done_without(phase: str, number: int, tmp_path: Path) -> None:
    kill = f"faults=[{{kind='kill',site=2,phase='{phase}',round={number}}}]"
    result = run("decision-tree", tmp_path / "run", kill).result
    assert result["model"]["sites"] == ["site-1", "site-3", "site-4", "site-5"]
    assert result["centralised"]["max_decision_difference"] == 0


def test_a_bad_setting_is_a_sentence(tmp_path: Path) -> None:
    done = fedsvm("run", "decision-tree", "--set", "algorithm.bins=1", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "algorithm.bins: must be a whole number from 2 to 256, got 1." in done.stderr


# What tables give away.


def categories(count: int, seed: int) -> LabeledRows:
    """Rows of six categorical columns of three values each, as 0/1 columns."""
    random = np.random.default_rng(seed)
    values: IntArray = random.integers(3, size=(count, 6))
    labels = np.where((values[:, 0] == values[:, 1]) ^ (random.random(count) < 0.1), 1.0, -1.0)
    return LabeledRows(np.hstack([np.eye(3)[column] for column in values.T]), labels)


def view_of(data: LabeledRows, settings: TreeSettings) -> WrittenDown:
    """The tables of a tree of these rows, as the coordinator has them."""
    written = WrittenDown()
    rows = scaled(written, data.rows, [["a", "b", "c"]] * 6)
    edges = edges_of(np.stack([rows.sum(axis=0), (rows**2).sum(axis=0)]), len(rows), settings.bins)
    written.add("receive_edges", edges=edges)

    def ask(tree: Tree, nodes: IntArray) -> FloatArray:
        tables = cross_tables(tree, nodes, bin_by_edges(rows, edges), members(data.labels), settings.bins)
        grown = {"column": tree.column, "bin": tree.bin, "children": tree.children}
        written.add("cross_tables", tables, nodes=nodes, **grown)
        return tables

    grow(ask, settings)
    return written


def claimed(data: LabeledRows, settings: TreeSettings) -> RowClaim:
    """Return the claim of the coordinator alone."""
    (claim,) = CrossTables()(view_of(data, settings).view(), Prior())
    assert isinstance(claim, RowClaim)
    return claim


def test_a_deep_tree_shows_rows_and_one_that_is_careful_none() -> None:
    data = categories(300, seed=1)
    deep = {"max_depth": 12, "min_samples_split": 2, "min_samples_leaf": 1}
    claim = claimed(data, TreeSettings(**deep, min_class_rows=1))  # type: ignore[arg-type]
    assert len(claim.rows) > 50
    there = {(*row, label) for row, label in zip(data.rows.tolist(), data.labels.tolist(), strict=True)}
    assert {(*row, label) for row, label in zip(claim.rows.tolist(), claim.labels.tolist(), strict=True)} <= there
    assert len(claimed(data, TreeSettings(**deep)).rows) == 0  # type: ignore[arg-type]


def test_rows_of_several_classes_are_told_with_their_class() -> None:
    """A row of the second class and two of the third are equal."""
    written, data = WrittenDown(), np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    rows, edges = scaled(written, data, [["a", "b"]]), np.array([[0.0], [0.0]])
    written.add("receive_edges", edges=edges)
    of_class = np.equal.outer(np.arange(3), [0, 1, 2, 2]).astype(float)
    root = Tree(np.array([LEAF]), np.array([0]), np.array([[0, 0]]), np.zeros((1, 3)))
    tables = cross_tables(root, np.array([0]), bin_by_edges(rows, edges), of_class, 2)
    written.add("cross_tables", tables, nodes=np.array([0]), children=root.children)
    (claim,) = CrossTables()(written.view(), Prior(classes=3))
    assert isinstance(claim, RowClaim)
    assert sorted(claim.labels.tolist()) == [0.0, 1.0, 2.0, 2.0]
    assert sorted(claim.rows.tolist()) == sorted(data.tolist())


@pytest.mark.parametrize(("least", "recovered"), [(1, 9), (3, 0)])
def test_a_coordinator_recovers_boards_of_a_tree_without_limits(least: int, recovered: int, tmp_path: Path) -> None:
    changes = [
        "data.source=tic-tac-toe",
        "data.positive=positive",
        "data.scale=none",
        f"algorithm.min_class_rows={least}",
    ]
    changes += ["algorithm.max_depth=12", "algorithm.min_samples_split=2", "algorithm.min_samples_leaf=1"]
    changes += ["collusion={sites=[], coordinator=true}"]
    (audit,) = run("decision-tree", tmp_path / "run", *changes).result["audit"]
    assert (audit["recovered"], audit["false_claims"]) == (recovered, 0)


def test_a_class_whose_rows_the_root_would_show_is_refused() -> None:
    y = np.where(np.arange(len(ROWS)) < 2, "rare", np.where(LABELS > 0, "one", "other"))
    with pytest.raises(FederationError, match=r"Class 'rare' has 2 of the training rows, fewer than .*min_class_rows"):
        classifier("decision-tree")(sites=3).fit(ROWS, y)
    model = classifier("decision-tree")(sites=3, min_class_rows=2).fit(ROWS, y)
    assert model.score(ROWS, y) > 0.8


def test_of_numbers_nothing_is_claimed() -> None:
    written = WrittenDown()
    scaled(written, ROWS, [])
    written.add("receive_edges", edges=np.zeros((4, 3)))
    assert list(CrossTables()(written.view(), Prior())) == []
