"""Kernels, features, landmarks, vocabulary and scale: the parts of PAN-SVM, by themselves and over real sites."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import pairwise_kernels

from fedsvm.algorithms.data import encoding
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.features.k_means import GRID, Clusters, local_centres, on_grid
from fedsvm.algorithms.features.kernels import Kernel, squared_distances
from fedsvm.algorithms.features.landmarks import shares
from fedsvm.algorithms.features.nystrom import nystrom_features, nystrom_map
from fedsvm.federation.errors import StepRefused

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(30, 4)), RANDOM.normal(size=(20, 4))


@pytest.mark.parametrize(
    ("kernel", "parameters"),
    [
        (Kernel("linear"), {}),
        (Kernel("rbf", gamma=0.3), {"gamma": 0.3}),
        (Kernel("poly", gamma=0.5, degree=2, coef0=1.0), {"gamma": 0.5, "degree": 2, "coef0": 1.0}),
        (Kernel("sigmoid", gamma=0.1, coef0=0.2), {"gamma": 0.1, "coef0": 0.2}),
    ],
)
def test_kernels_are_those_of_scikit_learn(kernel: Kernel, parameters: dict[str, float]) -> None:
    np.testing.assert_allclose(kernel(X, Y), pairwise_kernels(X, Y, metric=kernel.name, **parameters), atol=1e-12)


def test_with_every_row_a_landmark_the_features_give_the_kernel_back() -> None:
    kernel = Kernel("rbf", gamma=0.2)
    features = nystrom_features(kernel, X, X, nystrom_map(kernel(X, X), 1e-12))
    np.testing.assert_allclose(features @ features.T, kernel(X, X), atol=1e-8)


def test_repeated_landmarks_lose_their_rank_and_nothing_else() -> None:
    kernel = Kernel("rbf", gamma=0.2)
    twice = np.vstack([Y, Y])
    once = nystrom_features(kernel, X, Y, nystrom_map(kernel(Y, Y), 1e-10))
    mapping = nystrom_map(kernel(twice, twice), 1e-10)
    features = nystrom_features(kernel, X, twice, mapping)
    assert mapping.shape == (40, 20)
    np.testing.assert_allclose(features @ features.T, once @ once.T, atol=1e-7)


def test_a_kernel_that_is_not_positive_keeps_its_positive_part() -> None:
    mapping = nystrom_map(Kernel("sigmoid", gamma=1.0, coef0=-1.0)(X, X), 1e-10)
    assert np.isfinite(mapping).all()
    assert 0 < mapping.shape[1] < len(X)


@given(st.integers(1, 60), st.integers(0, 40), st.integers(1, 6), st.integers(0, 50))
def test_local_centres_are_means_of_clusters_that_are_large_enough(
    rows: int, quota: int, least: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    data = random.integers(0, 3, size=(rows, 2)).astype(float)
    centres, sizes = local_centres(data, quota, least, random)
    assert len(centres) == len(sizes) <= min(quota, rows)
    if len(centres):
        assert sizes.min() >= least
        assert sizes.sum() == rows
        np.testing.assert_allclose(sizes @ centres, data.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize(("seed", "count", "quota"), [(1, 20, 6), (7, 20, 6), (9, 20, 12), (96, 20, 6)])
def test_local_centres_that_lose_a_row_in_the_last_assignment_are_merged(seed: int, count: int, quota: int) -> None:
    """Of these rows, those nearest to one centre are fewer than the rows that it was the mean of."""
    rows = np.random.default_rng(seed).exponential(size=(count, 1)) ** 2
    _, sizes = local_centres(rows, quota, 2, np.random.default_rng(seed))
    assert sizes.min() >= 2
    assert sizes.sum() == count


def test_k_means_finds_clusters_that_are_there() -> None:
    corners = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    rows = np.repeat(corners, 25, axis=0) + RANDOM.normal(scale=0.1, size=(100, 2))
    for least in (1, 25):
        centres, sizes = local_centres(rows, 4, least, np.random.default_rng(1))
        assert squared_distances(corners, centres).min(axis=1).max() < 0.1
        assert sizes.tolist() == [25] * 4
    _, sizes = local_centres(rows, 4, 26, np.random.default_rng(1))
    assert len(sizes) < 4
    assert sizes.min() >= 26


@pytest.mark.parametrize(("least", "kept"), [(0, [1, 2, 3, 5]), (1, [1, 2, 3, 5]), (3, [3, 5]), (4, [5]), (6, [])])
def test_clusters_that_are_too_small_have_no_mean(least: int, kept: list[int]) -> None:
    sizes = np.array([0, 1, 2, 3, 5])
    sums = np.column_stack([np.arange(5.0) * sizes, 2.0 * sizes, 10.0 + sizes, sizes])
    clusters = Clusters.of_sums(sums, least)
    assert clusters.sizes.tolist() == kept
    assert clusters.spreads.tolist() == [10.0 + size for size in kept]
    np.testing.assert_array_equal(
        clusters.centres, [[sizes.tolist().index(size), 2.0] for size in kept] or np.zeros((0, 2))
    )


def test_clusters_are_split_that_are_wide_and_have_rows_enough() -> None:
    clusters = Clusters(np.arange(4.0)[:, None], np.array([9.0, 8.0, 0.0, 7.0]), np.array([4.0, 3.0, 9.0, 4.0]))
    for count, least, split in ((9, 4, {0, 3}), (9, 3, {0, 1, 3}), (5, 3, {0}), (9, 5, set()), (4, 1, set())):
        centres = clusters.split(count, least, np.random.default_rng(0))
        assert len(centres) == 4 + len(split)
        assert set(centres[:, 0]) & set(range(4)) == set(range(4)) - split


@given(st.integers(1, 500), st.lists(st.integers(0, 60), min_size=1, max_size=9).filter(any))
def test_shares_add_up_and_exceed_nobody(count: int, weights: list[int]) -> None:
    parts = shares(count, weights)
    assert sum(parts) == min(count, sum(weights))
    assert all(0 <= part <= weight for part, weight in zip(parts, weights, strict=True))


def test_distances_on_the_grid_are_exact_in_any_order() -> None:
    rows = on_grid(RANDOM.normal(scale=3, size=(50, 40)))
    assert (rows / GRID == np.rint(rows / GRID)).all()
    order = RANDOM.permutation(40)
    np.testing.assert_array_equal(
        squared_distances(rows, rows[:7]), squared_distances(rows[:, order], rows[:7][:, order])
    )


# Vocabulary.

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.lists(st.sets(WORDS, max_size=5), min_size=1, max_size=4))
def test_the_union_comes_out_of_the_sum_of_tables_or_it_is_said_that_slots_collide(held: list[set[str]]) -> None:
    union = sorted(set().union(*held))
    results = []
    for slots in (4, 64, 4096, 4 * 4096):
        total = sum(encoding.table_of(sorted(values), slots, str(slots)) for values in held)
        results.append(encoding._values_in(np.asarray(total), slots, str(slots)))
    assert all(found is None or list(found) == union for found in results)
    assert any(found is not None for found in results)


def test_the_sum_shows_how_many_sites_hold_a_value_and_not_which() -> None:
    tables = [encoding.table_of(values, 3 << 10, "s") for values in (["a", "b"], ["b"], ["b"])]
    assert sorted(np.asarray(sum(tables))[:, 0].tolist())[-7:] == [0.0, *[1.0] * 3, *[3.0] * 3]


@pytest.mark.parametrize("count", [1, 400, encoding.MAX_VALUES])
def test_as_many_values_as_are_promised_come_out_of_the_largest_table(count: int) -> None:
    held = [[f"v{number}" for number in range(count) if number % 3 != site] for site in range(3)]
    total = np.asarray(sum(encoding.table_of(values, encoding.MAX_SLOTS, "1:16384") for values in held))
    found = encoding._values_in(total, encoding.MAX_SLOTS, "1:16384")
    assert found == {f"v{number}": 2 for number in range(count)}


def test_a_site_with_too_many_values_for_a_table_stays_within_the_bound_and_has_a_larger_one_tried() -> None:
    table = encoding.table_of([f"v{number}" for number in range(20_000)], 64, "s")
    assert table.max() <= 255 * encoding.MAX_LOAD
    assert encoding._values_in(table + encoding.table_of(["a"], 64, "s"), 64, "s") is None


def test_a_value_too_long_to_agree_on_is_refused() -> None:
    with pytest.raises(StepRefused, match=r"65 bytes.*data\.categories"):
        encoding.table_of(["x" * 65], 64, "s")


def test_one_hot_columns_and_a_value_that_is_unknown() -> None:
    codes = np.array([1, 0, 1])
    np.testing.assert_array_equal(
        encoding.one_hot(codes, ["x", "y"], ["o", "x", "y"]), [[0, 0, 1], [0, 1, 0], [0, 0, 1]]
    )
    np.testing.assert_array_equal(encoding.one_hot(codes, ["x", "y"], ["y"]), [[1], [0], [1]])
    with pytest.raises(
        StepRefused, match=r"must be among the declared ones, got 1 others; add them to data\.categories"
    ):
        encoding.require_declared(["x", "y"], ["y"])
    encoding.require_declared(["x", "y"], ["o", "x", "y"])
    agreed = Vocabulary({"c": ["x", "y"]})
    assert agreed.columns == ("c=x", "c=y")
    np.testing.assert_array_equal(agreed.encode(np.ones((2, 1)), np.array([["y"], ["z"]])), [[1, 0, 1], [1, 0, 0]])
