"""Features in blocks: the same sums as with all features in memory, in a fraction of the memory."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from fedsvm.algorithms.features import k_means, row_blocks
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.mapped_rows import FeatureRows
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.features.row_blocks import RowBlocks
from fedsvm.algorithms.optimization import barrier, masking, path_sums
from fedsvm.algorithms.optimization.barrier import DualState, Problem
from fedsvm.algorithms.optimization.masking import Mask, draw_mask
from fedsvm.algorithms.optimization.path_rounds import Layout, RoundOrder, RowPaths
from fedsvm.algorithms.optimization.path_sums import _Start
from fedsvm.federation.arrays import FloatArray

NUMBER_BYTES = 8
OBJECT_BYTES = 200_000
"""Of all that is no array."""

SINGLE = 2.0**-22
"""Error of a product in single precision, as a share of the largest."""


def mapped(rows: int, features: int) -> tuple[FloatArray, NystromMap, FloatArray]:
    """Return rows of four columns, a map to so many features, and labels of two problems, with zeros in the second."""
    random = np.random.default_rng(rows)
    table = random.normal(size=(rows, 4))
    labels = np.where(table[:, 0] + random.normal(size=rows) > 0, 1.0, -1.0)
    return table, NystromMap.span(Kernel("rbf", 0.5), table[:features], 1e-14), np.stack([labels, labels])


def paths_of(features: FloatArray | RowBlocks, labels: FloatArray, prior: FloatArray, lever: float) -> RowPaths:
    """Return the paths of a site at the origin, whose masks are those of a fixed seed."""
    size, seed = prior.shape[-1], np.ones((1, 4), dtype=np.uint64)
    problems = _Start(prior, labels, np.full(labels.shape[1], 2.0), lever, "congruence").problems(features, None)
    origin = np.zeros(problems[0].dimensions)

    def draw(numbers: Sequence[int], iteration: int) -> Iterator[Mask | None]:
        for number in numbers:
            yield draw_mask(seed, f"{number} {iteration}", len(origin), size, "congruence")

    return RowPaths(problems, [DualState.at(each, 0, origin, origin) for each in problems], draw)


def layouts_of(paths: RowPaths) -> list[Layout]:
    return [Layout.of(each) for each in paths.problems]


def rounds_of(paths: RowPaths, rounds: int) -> list[FloatArray]:
    """Return the sums of rounds of small steps, the first of which moves nothing."""
    return list(each_round(paths, rounds))


def each_round(paths: RowPaths, rounds: int) -> Iterator[FloatArray]:
    """Yield what `rounds_of` returns."""
    count, size = len(paths.problems), paths.problems[0].dimensions
    first = RoundOrder(
        iteration=1,
        problems=np.arange(count),
        mus=np.ones(count),
        keep=np.zeros(count),
        still=np.ones(count),
        scales=np.full((count, 5), 100.0),
        rows=100,
        steps=np.zeros(count * size),
    )
    yield paths.sums(first, keeper=True)
    for iteration in range(2, rounds + 1):
        paths.draw_ahead(first.problems.tolist(), iteration)
        steps = np.random.default_rng(iteration).normal(size=count * size) / 50
        order = replace(first, iteration=iteration, still=np.zeros(count), steps=steps)
        yield paths.sums(order, keeper=True)


@pytest.mark.parametrize(("lever", "left"), [(0.0, 600), (2.0, 600), (2.0, 5)])
def test_sums_and_points_are_those_of_features_in_memory(
    monkeypatch: pytest.MonkeyPatch, lever: float, left: int
) -> None:
    monkeypatch.setattr(row_blocks, "_BLOCK_VALUES", 2000)
    rows, feature_map, labels = mapped(1000, 30)
    labels[1, left:] = 0.0  # rows that the second problem does not have
    prior = np.random.default_rng(1).normal(size=(2, feature_map.dimensions))
    whole = paths_of(feature_map(rows), labels, prior, lever)
    blocked = paths_of(RowBlocks.of(rows, feature_map), labels, prior, lever)
    parts = [np.arange(each.length) < each.dimensions * (each.dimensions + 1) // 2 for each in layouts_of(whole)]
    matrix = np.concatenate(parts)
    for one, other in zip(rounds_of(whole, 3), rounds_of(blocked, 3), strict=True):
        np.testing.assert_allclose(other[~matrix], one[~matrix], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(other[matrix], one[matrix], rtol=0, atol=SINGLE * np.abs(one[matrix]).max())
    for ours, theirs in zip(whole.latest, blocked.latest, strict=True):
        np.testing.assert_allclose(theirs.alpha, ours.alpha, rtol=1e-9)
    kept = np.arange(0, feature_map.dimensions, 2)
    fewer = [paths.problems[1].keep(kept) for paths in (whole, blocked)]
    point = np.ones(fewer[0].dimensions)
    np.testing.assert_allclose(fewer[1].margins(point), fewer[0].margins(point), rtol=1e-9)


@pytest.mark.parametrize("lever", [0.0, 2.0])
def test_kept_features_in_blocks_have_the_same_sums(monkeypatch: pytest.MonkeyPatch, lever: float) -> None:
    monkeypatch.setattr(row_blocks, "_KEPT_VALUES", 2000)
    rows, feature_map, labels = mapped(1000, 30)
    features, prior = feature_map(rows), np.zeros(feature_map.dimensions)
    labels[1, 600:] = 0.0
    whole = paths_of(features, labels, prior, lever)
    monkeypatch.setattr(path_sums, "_MANY_VALUES", features.size)
    blocked = paths_of(features, labels, prior, lever)
    assert [len(each.features) for each in (*whole.problems, *blocked.problems)] == [1000, 600, 0, 0]
    for one, other in zip(rounds_of(whole, 3), rounds_of(blocked, 3), strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=SINGLE * np.abs(one).max())
    for ours, theirs in zip(whole.latest, blocked.latest, strict=True):
        np.testing.assert_allclose(theirs.alpha, ours.alpha, rtol=1e-9)


@pytest.mark.parametrize("lever", [0.0, 3.0])
@pytest.mark.parametrize("heavy", [0, 3, 300, 400])
@pytest.mark.parametrize("factor", [1.0, 1e3, 1e30, 1e60])
def test_single_precision_is_left_where_its_error_would_matter(lever: float, heavy: int, factor: float) -> None:
    features, _, (labels, _) = mapped(400, 10)
    problem = Problem.of(features * factor, labels, 1.0, lever=lever * factor)
    weights, most = np.random.default_rng(2).random(400), 2.0**20
    weights *= most / 4 / np.trace(problem.curvature(weights))
    weights[:heavy] *= 1e9
    exact, found = problem.curvature(weights), problem.curvature_in_single(weights, most)
    assert np.linalg.norm(found - exact, 2) <= 2.0**-24 * most + 1e-15 * np.trace(exact)
    is_single = heavy < 300 and factor < 1e30
    assert (found == exact).all() != is_single


def test_other_steps_have_all_features_at_once() -> None:
    rows, feature_map, _ = mapped(600, 20)
    stored, blocked = FeatureRows(), FeatureRows()
    stored.place(feature_map(rows))
    blocked.place(RowBlocks.of(rows, feature_map))
    np.testing.assert_allclose(blocked.squared_norms(), stored.squared_norms(), rtol=1e-12)
    assert isinstance(blocked.stored, RowBlocks)
    np.testing.assert_allclose(blocked.features, stored.features, rtol=1e-12)


def test_features_and_squares_need_little_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocks, "_BLOCK_VALUES", 1 << 16)
    rows, feature_map, _ = mapped(6000, 200)
    tracemalloc.start()
    try:
        features = RowBlocks.of(rows, feature_map).to_array()
        most = 1.3 * features.nbytes
        assert tracemalloc.get_traced_memory()[1] < most
        np.testing.assert_allclose(row_blocks.squares_of(features), np.vdot(features, features), rtol=1e-12)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def test_centres_of_rows_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _, _ = mapped(500, 2)
    centres, sizes = k_means.local_centres(rows, 12, 3, np.random.default_rng(0))
    monkeypatch.setattr(k_means, "_MOST_DISTANCES", 1000)
    in_blocks, same_sizes = k_means.local_centres(rows, 12, 3, np.random.default_rng(0))
    np.testing.assert_allclose(in_blocks, centres, rtol=1e-9)
    assert (sizes == same_sizes).all()


def peak_bytes(features: FloatArray | RowBlocks, labels: FloatArray, size: int) -> int:
    """Return the most that two rounds of one problem allocate at a time, on top of the features."""
    tracemalloc.start()
    try:
        deque(each_round(paths_of(features, labels, np.zeros(size), 1.0), 2), maxlen=0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("rows", [20, 300, 600])
def test_a_round_holds_three_matrices_beside_the_features(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    size, half = 500, 2  # of a thousand features, and of the lengths of blocks
    for module, name in ((masking, "_GROUP"), (masking, "_BLOCK"), (barrier, "_LEAST_ROWS")):
        monkeypatch.setattr(module, name, getattr(module, name) // half)
    monkeypatch.setattr(barrier, "_BLOCK_VALUES", barrier._BLOCK_VALUES // half**2)
    random = np.random.default_rng(0)
    labels = random.choice([-1.0, 1.0], size=(1, rows))
    most = 3 * size**2 + 20 * rows
    assert peak_bytes(random.normal(size=(rows, size)), labels, size) < most * NUMBER_BYTES + OBJECT_BYTES


def test_many_rows_need_a_few_numbers_each_and_some_blocks() -> None:
    rows, feature_map, labels = mapped(40_000, 60)
    size = feature_map.dimensions
    blocks = 8 * row_blocks._BLOCK_VALUES
    most = 40 * len(rows) + blocks + 4 * size**2
    assert peak_bytes(RowBlocks.of(rows, feature_map), labels[:1], size) < most * NUMBER_BYTES
    problem = paths_of(RowBlocks.of(rows, feature_map), labels[:1], np.zeros(size), 1.0).problems[0]
    assert isinstance(problem, Problem)
    assert problem.features.size == 0


def test_paths_whose_masks_were_dropped_hold_less_and_go_on_as_before() -> None:
    rows, feature_map, labels = mapped(100, 90)
    features, prior = feature_map(rows), np.zeros(feature_map.dimensions)
    tracemalloc.start()
    try:
        paths = paths_of(features, labels[:1], prior, 1.0)
        rounds = each_round(paths, 3)
        deque(islice(rounds, 2), maxlen=0)
        held, _ = tracemalloc.get_traced_memory()
        paths.drop_masks()
        matrix = feature_map.dimensions**2 * NUMBER_BYTES
        assert held - tracemalloc.get_traced_memory()[0] > matrix
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(next(rounds), rounds_of(paths_of(features, labels[:1], prior, 1.0), 3)[-1])
