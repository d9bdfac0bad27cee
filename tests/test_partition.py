"""Partitions: every row at exactly one site, in the sizes that were asked for."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold, train_test_split

from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.scenarios.data import sources, splits
from fedsvm.scenarios.data.tables import Dataset, Feature
from fedsvm.scenarios.schema.errors import ScenarioError


def table(rows: int, seed: int = 0) -> Dataset:
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 10, size=rows).astype(float)
    labels = np.where(random.random(rows) < 0.5, "no", "yes")
    return Dataset("table", (Feature("x", numbers), Feature("c", labels)), labels)


def dealt(split: str, data: Dataset, sites: int, seed: int = 0) -> list[IntArray]:
    parts = splits.horizontal(split, data, sites, np.random.default_rng(seed))
    assert sorted(np.concatenate(parts).tolist()) == list(range(data.rows))
    assert all(len(part) for part in parts)
    return parts


@given(st.integers(1, 200), st.integers(1, 20), st.sampled_from(["random", "label-skew"]), st.integers(0, 99))
def test_rows_are_dealt_once_and_evenly(rows: int, sites: int, split: str, seed: int) -> None:
    data = table(rows, seed)
    if rows < sites:
        with pytest.raises(ScenarioError, match=f"{sites} sites cannot share {rows} training rows; use fewer sites"):
            splits.horizontal(split, data, sites, np.random.default_rng(0))
        return
    sizes = [len(part) for part in dealt(split, data, sites, seed)]
    assert max(sizes) - min(sizes) <= 1


def test_label_skew_leaves_sites_with_one_class_and_says_so() -> None:
    data = table(100)
    parts = dealt("label-skew", data, 5)
    signs = np.where(data.labels == "yes", 1.0, -1.0)
    said = splits.sites_without_a_class([f"s{i}" for i in range(5)], [signs[part] for part in parts], ("no", "yes"))
    assert len(said) >= 4
    assert said[0] == "s0 holds no row of class 'yes'."


@given(st.integers(10, 200), st.integers(1, 10), st.integers(0, 99))
def test_by_feature_gives_each_site_a_range_of_its_own(rows: int, sites: int, seed: int) -> None:
    data = table(rows, seed)
    if len(np.unique(data.features[0].values)) < sites:
        with pytest.raises(ScenarioError, match="too few distinct values"):
            splits.horizontal("by-feature:x", data, sites, np.random.default_rng(0))
        return
    parts = dealt("by-feature:x", data, sites)
    values = [data.features[0].values[part] for part in parts]
    for lower, higher in itertools.pairwise(values):
        assert lower.max() < higher.min()


@given(
    st.integers(1, 200),
    st.integers(1, 20),
    st.sampled_from(["dirichlet", "quantity"]),
    st.sampled_from([1e-3, 0.3, 1.0, 1e6]),
    st.integers(0, 99),
)
def test_skewed_rows_are_dealt_once_and_every_site_has_some(
    rows: int, sites: int, kind: str, alpha: float, seed: int
) -> None:
    if rows >= sites:
        assert min(map(len, dealt(f"{kind}:{alpha}", table(rows, seed), sites, seed))) >= 1


def shares_of_yes(alpha: float, seed: int) -> FloatArray:
    """Of the rows at each of five sites, the share of one class."""
    data = table(5000)
    return np.array([np.mean(data.labels[part] == "yes") for part in dealt(f"dirichlet:{alpha}", data, 5, seed)])


def test_alpha_is_how_alike_sites_are() -> None:
    """A large one deals classes as they are, and a small one leaves sites with one of them."""
    whole = np.mean(table(5000).labels == "yes")
    assert np.abs(shares_of_yes(1e6, 0) - whole).max() < 0.02
    assert np.mean([np.minimum(shares_of_yes(0.05, seed), 1 - shares_of_yes(0.05, seed)) for seed in range(9)]) < 0.1
    spread = [np.mean([shares_of_yes(alpha, seed).std() for seed in range(9)]) for alpha in (0.1, 1.0, 10.0, 100.0)]
    assert spread == sorted(spread, reverse=True)


def test_shares_have_the_deviation_of_dirichlets_distribution() -> None:
    """Of 5 sites and alpha = 0.5: variance (1/5)(4/5)/(5 alpha + 1)."""
    sizes = np.array([[len(part) for part in dealt("quantity:0.5", table(1000), 5, seed)] for seed in range(300)])
    assert (sizes / 1000).std() == pytest.approx(np.sqrt(0.16 / 3.5), rel=0.06)
    assert (sizes.sum(axis=1) == 1000).all()


def test_rows_with_one_value_are_at_one_site() -> None:
    values = np.array(["a"] * 50 + ["b"] * 30 + ["c"] * 25 + ["d"] * 10)
    data = Dataset("table", (Feature("ward", values),), np.resize(np.array(["no", "yes"]), 115))
    parts = dealt("by-value:ward", data, 3)
    assert [set(values[part]) for part in parts] == [{"a"}, {"b"}, {"c", "d"}]


def test_sizes_are_kept() -> None:
    assert [len(part) for part in dealt("sizes:[50, 30, 20]", table(100), 3)] == [50, 30, 20]


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        ("by-feature:y", r"no numeric column 'y' to split by\. It has: x"),
        ("by-feature:c", "no numeric column 'c' to split by"),
        ("by-value:y", "no column 'y' to split by"),
        ("by-value:c", r"column 'c' has too few distinct values \(2\) for 3 sites"),
        ("sizes:[50,40,20]", "add up to 110, but there are 100 training rows"),
        ("sizes:[50,50]", "2 sizes are given for 3 sites"),
    ],
)
def test_what_cannot_be_split_is_refused(split: str, sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        splits.horizontal(split, table(100), 3, np.random.default_rng(0))


def columns(*names: str) -> Dataset:
    return Dataset("table", tuple(Feature(name, np.zeros(4)) for name in names), np.array(["a", "b", "a", "b"]))


@given(st.integers(1, 30), st.integers(1, 10))
def test_columns_are_dealt_once_and_evenly(count: int, sites: int) -> None:
    names = [f"c{number}" for number in range(count)]
    if count < sites:
        with pytest.raises(ScenarioError, match=f"{sites} sites cannot share {count} columns; use fewer sites"):
            splits.vertical("even", columns(*names), [f"s{i}" for i in range(sites)])
        return
    parts = splits.vertical("even", columns(*names), [f"s{i}" for i in range(sites)])
    assert [name for part in parts for name in part] == names
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_columns_are_given_as_listed_with_names_of_any_kind() -> None:
    data = columns("age", "body mass", "a,b", "x[1]", "it's")
    split = """columns:[[ body mass , 'a,b'], ["it's"],[age,"x[1]"]]"""
    assert splits.vertical(split, data, ["s", "t", "u"]) == [("body mass", "a,b"), ("it's",), ("age", "x[1]")]


def test_columns_that_are_claimed_twice_or_by_nobody_are_named_together() -> None:
    with pytest.raises(ScenarioError) as caught:
        splits.vertical("columns:[[age, sex],[age, wieght],[age]]", columns("age", "sex", "weight", "hair"), ["s"] * 3)
    assert caught.value.problems == (
        "data.split: column 'age' is claimed by sites 1 and 2 and 3; give it to one of them.",
        "data.split: table has no column 'wieght'. Did you mean 'weight'?",
        "data.split: no site is given 'weight', 'hair'; add it to one's columns, or to data.ignore.",
    )
    with pytest.raises(ScenarioError, match="column 'age' is claimed by site 1 twice"):
        splits.vertical("columns:[[age, age],[sex]]", columns("age", "sex"), ["s", "t"])


@given(st.integers(1, 100), st.integers(2, 6), st.floats(0.01, 1.0), st.integers(0, 99))
def test_rows_overlap_as_much_as_was_asked_for_and_each_is_somewhere(
    rows: int, sites: int, overlap: float, seed: int
) -> None:
    holds = splits.overlapping(rows, sites, overlap, np.random.default_rng(seed))
    assert holds.all(axis=0).sum() == round(overlap * rows)
    assert holds.any(axis=0).all()


def test_test_rows_and_folds_keep_the_classes_and_the_seed_decides() -> None:
    labels = table(200).labels
    train, test = splits.test_split(labels, 0.25, 7)
    assert len(test) == 50
    assert sorted([*train, *test]) == list(range(200))
    assert abs((labels[test] == "yes").mean() - (labels == "yes").mean()) < 0.02
    np.testing.assert_array_equal(test, splits.test_split(labels, 0.25, 7)[1])
    assert not np.array_equal(test, splits.test_split(labels, 0.25, 8)[1])
    folds = splits.folds(labels, 5, 7)
    assert np.bincount(folds).tolist() == [40] * 5
    np.testing.assert_array_equal(folds, splits.folds(labels, 5, 7))
    assert len(splits.test_split(labels, 0.0, 7)[1]) == 0


@given(st.data())
def test_test_rows_and_folds_are_those_of_scikit_learn(data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, 3), min_size=20, max_size=120))
    labels = np.array(["cadb"[place] for place in [*places, *range(4), *range(4), *range(4)]])
    seed, fraction = data.draw(st.integers(0, 2**63 - 1)), data.draw(st.floats(0.15, 0.5))
    train, test = splits.test_split(labels, fraction, seed)
    both = train_test_split(np.arange(len(labels)), test_size=fraction, random_state=seed % 2**32, stratify=labels)
    np.testing.assert_array_equal(train, np.sort(both[0]))
    np.testing.assert_array_equal(test, np.sort(both[1]))
    held_out = splits.folds(labels, 3, seed)
    theirs = StratifiedKFold(3, shuffle=True, random_state=seed % 2**32).split(labels, labels)
    for fold, (_, rows) in enumerate(theirs):
        np.testing.assert_array_equal(np.flatnonzero(held_out == fold), rows)


def test_too_few_rows_of_a_class_for_folds_or_a_test() -> None:
    labels = np.array(["a"] * 20 + ["b"])
    with pytest.raises(
        ScenarioError, match=r"data\.folds: 5 folds need as many rows of each class; the rarest, 'b', has 1"
    ):
        splits.folds(labels, 5, 0)
    with pytest.raises(ScenarioError, match=r"data\.test_fraction: class 'b' has one row only"):
        splits.test_split(labels, 0.2, 0)
    labels = np.array(["a"] * 20 + ["b"] * 3)
    with pytest.raises(ScenarioError, match="leaves 1 test rows for 2 classes; choose a larger fraction"):
        splits.test_split(labels, 0.01, 0)
    with pytest.raises(ScenarioError, match="leaves 0 training rows for 2 classes; choose a smaller fraction"):
        splits.test_split(labels, 0.99, 0)


def test_any_seed_of_a_scenario_will_do() -> None:
    labels = table(200).labels
    assert len(splits.test_split(labels, 0.2, 2**63 - 1)[1]) == 40
    assert len(splits.folds(labels, 5, 2**63 - 1)) == 200


def numbers(*values: float) -> Dataset:
    labels = np.array(["yes", "no"] * len(values))[: len(values)]
    return Dataset("table", (Feature("x", np.array(values)),), labels)


def test_a_frequent_value_leaves_no_site_without_rows() -> None:
    assert [len(part) for part in dealt("by-feature:x", numbers(*[0.0] * 90, *range(1, 11)), 3)] == [90, 1, 9]
    assert [len(part) for part in dealt("by-feature:x", numbers(*range(10), *[99.0] * 90), 3)] == [9, 1, 90]


def test_fourclass_is_cut_as_near_to_the_paper_as_its_docstring_says(data_folder: Path) -> None:
    data = sources.load("fourclass_scale", label="label", base_folder=data_folder)
    values = [data.features[0].values[part] for part in dealt("by-feature:f1", data, 3)]
    np.testing.assert_allclose([part.max() for part in values], [-0.296703, 0.285714, 1.0])
    assert [len(part) for part in values] == [291, 288, 283]
