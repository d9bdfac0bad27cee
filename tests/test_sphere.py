"""Rows on a sphere, drawn to measure, and rows to train on that are drawn from those that there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.data import dataset, sources
from fedsvm.scenarios.data.dataset import FederatedDataset
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError


def drawn(source: str) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Points and whether they are above the plane."""
    data = sources.load(source, label="label", base_folder=Path())
    return np.column_stack([each.values for each in data.features]), data.labels == "above"


def test_points_are_on_the_sphere_and_a_plane_tells_them_apart_by_twice_the_margin() -> None:
    rows, above = drawn("made-sphere:rows=3000,columns=4,margin=0.1")
    assert rows.shape == (3000, 4)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)
    assert abs(above.mean() - 0.5) < 0.05
    normal = rows[above].mean(axis=0) - rows[~above].mean(axis=0)
    far = rows @ (normal / np.linalg.norm(normal)) * np.where(above, 1, -1)
    assert far.min() > 0.02  # the estimated plane is a little off the drawn one
    assert np.abs(rows @ np.ones(4) / 2).min() < 0.005  # and no other direction has a gap


def test_a_share_of_classes_is_flipped_and_a_draw_is_another_set() -> None:
    rows, above = drawn("made-sphere:rows=4000,flipped=0.2")
    same, clean = drawn("made-sphere:rows=4000")
    np.testing.assert_array_equal(rows, same)
    assert abs((above ^ clean).mean() - 0.2) < 0.03
    assert not np.array_equal(rows, drawn("made-sphere:rows=4000,draw=2")[0])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("made-sphere:size=3", "must be written made-sphere:rows=10000,columns=10,margin=0.0,flipped=0.0,draw=1"),
        ("made-sphere:rows=many", "must be written"),
        ("made-sphere:rows=1", "must have 2 to 1000000 rows and 2 to 1000 columns"),
        ("made-sphere:margin=0.6", "must have a margin of 0 to 0.5"),
        ("made-sphere:flipped=0.5", "a flipped share below 0.5"),
    ],
)
def test_what_cannot_be_drawn_is_said(source: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        sources.load(source, label="label", base_folder=Path())


def test_a_source_is_there_or_not_without_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my-data.csv").write_text("not read")
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path))
    there = (
        "wdbc",
        "made-sphere",
        "made-sphere:rows=9",
        "openml:61",
        "my_data",
        "my-data",
        str(tmp_path / "my-data.csv"),
    )
    assert all(sources.is_there(each, tmp_path) for each in there)
    assert not any(sources.is_there(each, tmp_path) for each in ("german", "other.csv"))


def prepared(*changes: str) -> FederatedDataset:
    scenario, base = spec.read("quickstart", overrides=["data.source=wine", "data.positive=class_0", *changes])
    return dataset.prepare(scenario, base)


@pytest.mark.parametrize(("wanted", "count"), [("0.5", 71), ("100", 100), ("1", 142)])
def test_rows_to_train_on_are_drawn_and_test_rows_stay(wanted: str, count: int) -> None:
    every, some = prepared(), prepared(f"data.rows={wanted}")
    np.testing.assert_array_equal(some.test(None), every.test(None))
    assert sum(len(shard.rows) for shard in some.shards) == count
    assert set(some.training(None, some.names)) <= set(every.training(None, every.names))


def test_with_folds_all_rows_are_tested_on() -> None:
    folds = ("data.test_fraction=0", "data.folds=3")
    every, some = prepared(*folds), prepared(*folds, "data.rows=0.5")
    for fold in range(3):
        np.testing.assert_array_equal(some.test(fold), every.test(fold))
        trained_on = some.training(fold, some.names)
        assert len(trained_on) < 75
        assert not set(trained_on) & set(some.test(fold))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["data.rows=3"], "data.rows: 3 is 3 rows, of 142 that can be trained on; each of 5 sites needs one"),
        (["data.rows=200"], "data.rows: 200 is 200 rows, of 142"),
        (["data.rows=0"], "data.rows: must be above 0"),
        (["data.rows=0.5", "data.tested_by=sites"], "rows are drawn by the runner"),
    ],
)
def test_other_numbers_of_rows_are_refused(changes: list[str], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        prepared(*changes)
    assert any(said in problem for problem in caught.value.problems)
