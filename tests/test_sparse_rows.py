"""Rows held sparse and rows scaled when they are read: the same numbers as from rows in full, in less memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.data import scaled_rows, sparse_rows
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.data.partition import numbers_of, rows_and_columns, site_partition
from fedsvm.algorithms.data.sparse_rows import SparseRows
from fedsvm.algorithms.features import drawn_landmark_sums
from fedsvm.algorithms.features.drawn_landmarks import explained_shares
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.row_blocks import RowBlocks
from fedsvm.algorithms.pan_svm import PanSite
from fedsvm.algorithms.small_run import run_steps
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.site.partition import Partition, read_partition
from fedsvm.federation.transport import framefile


def few_numbers(rows: int, columns: int, of_row: int) -> FloatArray:
    """Return rows (n, p) with so many numbers other than 0 at most."""
    random = np.random.default_rng(columns)
    found = np.zeros((rows, columns))
    found[np.arange(rows)[:, None], random.integers(columns, size=(rows, of_row))] = random.normal(size=(rows, of_row))
    found[3] = 0.0
    return found


def held(rows: FloatArray, **others: Any) -> Partition:
    """Return a site's partition of rows of two classes, in columns that may be sparse."""
    labels = np.where(np.arange(len(rows)) % 2 > 0, 1.0, -1.0)
    return site_partition(rows, labels, names=[f"f{j}" for j in range(rows.shape[1])], may_be_sparse=True, **others)


def site_of(partition: Partition) -> HorizontalSite:
    """Return a site that has agreed on nothing."""
    return PanSite("site-1", partition, {})


def test_any_of_the_rows_are_as_they_were() -> None:
    rows = few_numbers(40, 30, 3)
    rows[5, 2] = np.nan
    sparse = SparseRows.of(rows)
    assert (sparse.shape, len(sparse)) == (rows.shape, 40)
    for some in (
        slice(None),
        slice(3, 9),
        slice(39, 80),
        np.array([7, 3, 3]),
        rows[:, 0] == 0,
        np.zeros(40, dtype=bool),
    ):
        np.testing.assert_array_equal(sparse[some], rows[some])


@pytest.mark.parametrize("sparse", [True, False])
def test_a_partition_keeps_them_through_a_file(sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_rows, "LEAST_NUMBERS", 100)
    rows = few_numbers(40, 30, 3 if sparse else 29)
    partition = held(rows)
    assert isinstance(numbers_of(partition), SparseRows) == sparse
    partition.write(str(tmp_path / "partition"))
    read = read_partition(str(tmp_path / "partition"))
    np.testing.assert_array_equal(numbers_of(read)[:], rows)
    assert rows_and_columns(read) == (40, [f"f{j}" for j in range(30)])


def test_a_site_computes_the_same_of_sparse_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, apart = few_numbers(400, 30, 3), np.arange(400) % 7 == 0
    folds = np.arange(400) % 5
    whole = site_of(held(rows, apart=apart, folds=folds))
    monkeypatch.setattr(sparse_rows, "LEAST_NUMBERS", 100)
    monkeypatch.setattr(scaled_rows, "_BLOCK_NUMBERS", 1000)
    sparse = site_of(held(rows, apart=apart, folds=folds))
    assert isinstance(sparse.encoded, SparseRows)
    for site in (whole, sparse):
        site.training, site.tested = (folds != 2) & ~apart, folds == 2
    mean = rows.mean(axis=0)
    np.testing.assert_allclose(sparse.totals.column_sums(), whole.totals.column_sums(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sparse.totals.column_squares(mean), whole.totals.column_squares(mean), rtol=1e-12)
    for site in (whole, sparse):
        site.rescale(mean, rows.std(axis=0))
    for name in ("rows", "scaled", "rows_apart", "rows_tested", "all_rows"):
        np.testing.assert_array_equal(getattr(sparse, name), getattr(whole, name), err_msg=name)
    np.testing.assert_array_equal(whole.rows, ((rows - mean) / rows.std(axis=0))[whole.training])
    chosen = np.array([4, 1])
    for site in (whole, sparse):
        site.narrow(chosen)
    np.testing.assert_array_equal(sparse.rows, whole.scaled[:, chosen])
    np.testing.assert_array_equal(sparse.rows_apart, whole.rows_apart)


def test_features_need_no_copy_of_the_rows_in_full() -> None:
    columns, features, count = 2_000, 10, 3_000
    rows = few_numbers(count, columns, 5)
    in_full = rows.nbytes
    site = site_of(held(rows))
    mean, deviation, kept = rows.mean(axis=0), rows.std(axis=0) + 1, np.arange(count) % 2 == 0
    feature_map = FourierMap.draw(0.01, features // 2, columns, 1)
    expected = feature_map((rows - mean) / deviation)
    del rows
    tracemalloc.start()
    try:
        site.rescale(mean, deviation)
        blocks = RowBlocks.of(site.training_rows, feature_map)
        found, some = blocks.to_array(), blocks.keep_rows(kept).keep_rows(np.arange(kept.sum()) > 2).to_array()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(some, expected[kept][3:], rtol=1e-12)
    assert sum(array.nbytes for array in site.partition.arrays.values()) < in_full / 50
    assert most < in_full


def test_rows_are_held_once_however_often_they_are_scaled() -> None:
    rows = np.random.default_rng(0).normal(size=(200_000, 10))
    site = site_of(held(rows))
    tracemalloc.start()
    try:
        site.encode([])
        site.totals.column_sums()
        site.totals.column_squares(np.ones(10))
        for _ in range(3):
            site.rescale(np.ones(10), np.full(10, 2.0))
        kept, _ = tracemalloc.get_traced_memory()
        assert site.rows.shape == rows.shape
        site.forget_rows()
        assert tracemalloc.get_traced_memory()[0] - kept < rows.nbytes / 10
        assert kept < rows.nbytes / 10
    finally:
        tracemalloc.stop()


def test_a_large_partition_stays_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framefile, "_MAPPED_BYTES", 1 << 20)
    rows, path = np.random.default_rng(0).normal(size=(20_000, 10)), tmp_path / "partition"
    held(rows).write(str(path))
    tracemalloc.start()
    try:
        partition = read_partition(str(path))
        path.unlink()
        assert tracemalloc.get_traced_memory()[1] < rows.nbytes / 10
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(numbers_of(partition)[:], rows)


def test_what_landmarks_explain_is_computed_for_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[FloatArray] = []

    def shares_of(kernel: Kernel, rows: FloatArray, *others: Any) -> FloatArray:
        asked.append(rows)
        return explained_shares(kernel, rows, *others)

    monkeypatch.setattr(drawn_landmark_sums, "explained_shares", shares_of)
    run_steps()
    monkeypatch.setattr(scaled_rows, "_BLOCK_NUMBERS", 8)
    run_steps()
    whole, *parts = asked
    assert len(parts) > 1
    np.testing.assert_array_equal(np.concatenate(parts), whole)
