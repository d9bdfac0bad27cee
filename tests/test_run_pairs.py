"""Two runs whose data differ by one row: their exact scales give the row, and noisy ones nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.attacks.run_differences import DifferingRow, differing_row, row_of_class, values_beyond
from fedsvm.algorithms.data.scaling import Scale, ScaleName
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.two_runs import audit_pair
from tests.commands import fedsvm

ROWS = np.random.default_rng(4).normal(50, 10, size=(91, 6)).round(2)


def _agreed(rows: FloatArray, noise: float = 0.0) -> Scale:
    """The scale that a run agrees on, to twelve digits."""
    scale = Scale.of(rows, "standard")
    offset = scale.offset + noise
    return Scale(*(np.array([float(f"{value:.12g}") for value in each]) for each in (offset, scale.scale)))


def test_the_difference_of_two_exact_scales_is_the_row_and_says_which_run_has_it() -> None:
    for first, second, is_in_second in ((ROWS[:-1], ROWS, True), (ROWS, ROWS[:-1], False)):
        found = differing_row(_agreed(first), _agreed(second), 2000)
        assert isinstance(found, DifferingRow)
        np.testing.assert_allclose(found.row, ROWS[-1], atol=1e-6)
        assert (found.rows, found.is_in_second, found.checked) == (91, is_in_second, 6)


@pytest.mark.parametrize("noise", [1e-6, 0.01, 1.0])
def test_noise_leaves_no_row(noise: float) -> None:
    assert differing_row(_agreed(ROWS[:-1]), _agreed(ROWS, noise), 2000) is None


def test_equal_rows_and_more_than_one_other_row_give_none() -> None:
    assert differing_row(_agreed(ROWS), _agreed(ROWS), 2000) is None
    assert differing_row(_agreed(ROWS[:-2]), _agreed(ROWS), 2000) is None
    assert differing_row(_agreed(ROWS[:, :4]), _agreed(ROWS), 2000) is None


def _arrays(scale: Scale) -> dict[str, FloatArray]:
    return {"offset": scale.offset, "scale": scale.scale}


def _write(folder: Path, **arrays: Any) -> Path:
    folder.mkdir()
    np.savez(folder / "model.npz", **arrays)
    return folder


def test_the_command_names_the_row(tmp_path: Path) -> None:
    columns = np.array([f"c{number}" for number in range(6)])
    for name, rows in (("a", ROWS[:-1]), ("b", ROWS)):
        _write(tmp_path / name, columns=columns, scaling=np.array("standard"), **_arrays(_agreed(rows)))
    said = fedsvm("audit", "a", "b", folder=tmp_path)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("difference of sums  1 rows recovered: b has a row that a lacks, confirmed by 6 ")
    assert f"c0 = {ROWS[-1, 0]:.6g}" in said.stdout
    found = json.loads(fedsvm("audit", "a", "b", "--json", folder=tmp_path).stdout)
    assert found["recovered"] == 1
    assert list(found["row"].values()) == pytest.approx(ROWS[-1].tolist(), abs=1e-6)


def _bayes(rows: FloatArray, method: ScaleName) -> dict[str, FloatArray]:
    """The arrays of a naive Bayes model of rows whose classes take turns, with its smoothing."""
    scale = Scale.of(rows, method)
    classes = [scale(rows)[kind::2] for kind in range(2)]
    variances = np.array([each.var(axis=0) for each in classes])
    found = {"counts": np.array([float(len(each)) for each in classes]), "variances": variances + 1e-9}
    return {**found, "means": np.array([each.mean(axis=0) for each in classes]), **_arrays(scale)}


@pytest.mark.parametrize("method", ["standard", "minmax", "none"])
def test_means_of_classes_give_the_row_on_every_scale(method: ScaleName, tmp_path: Path) -> None:
    columns = np.array([f"c{number}" for number in range(6)])
    folders = [
        _write(tmp_path / name, columns=columns, scaling=np.array(method), **_bayes(rows, method))
        for name, rows in (("a", ROWS), ("b", ROWS[:-1]))
    ]
    found = audit_pair(*folders)
    assert (found.recovered, found.confirmed_by) == (1, 6)
    assert list(found.row.values()) == pytest.approx(ROWS[-1].tolist(), abs=1e-6)
    assert found.said.startswith(f"{folders[0]} has a row")


def test_noisy_means_of_classes_and_two_other_rows_give_none() -> None:
    exact, other = _bayes(ROWS[:-1], "none"), _bayes(ROWS, "none")
    assert row_of_class(exact, exact) is None
    assert row_of_class(_bayes(ROWS[:-2], "none"), other) is None
    assert row_of_class(exact, {**other, "means": other["means"] + 1e-3}) is None
    assert row_of_class(exact, {**other, "counts": other["counts"] + 0.3}) is None
    assert row_of_class(exact, {**other, "means": other["means"][:, :4]}) is None


def test_a_row_beyond_the_ends_gives_its_values(tmp_path: Path) -> None:
    far = np.vstack([ROWS, ROWS[-1]])
    far[-1, [1, 4]] = 120.25, -3.5
    for first, second, is_in_second in ((ROWS, far, True), (far, ROWS, False)):
        in_second, values = values_beyond(Scale.of(first, "minmax"), Scale.of(second, "minmax"))
        assert in_second is is_in_second
        assert {column: round(value, 9) for column, value in values.items()} == {1: 120.25, 4: -3.5}
    both = ROWS * np.array([1.0, 1.0, 2.0, 0.5, 1.0, 1.0])
    assert values_beyond(Scale.of(ROWS, "minmax"), Scale.of(both, "minmax"))[1] == {}
    columns = np.array([f"c{number}" for number in range(6)])
    ends = [_arrays(Scale.of(rows, "minmax")) for rows in (ROWS, far)]
    folders = [
        _write(tmp_path / name, columns=columns, scaling=np.array("minmax"), **each)
        for name, each in zip("ab", ends, strict=True)
    ]
    told = audit_pair(*folders)
    assert told.recovered == 0
    assert {name: round(value, 9) for name, value in told.row.items()} == {"c1": 120.25, "c4": -3.5}
    assert audit_pair(folders[0], folders[0]).row == {}
    noisy = _write(tmp_path / "noisy", columns=columns, scaling=np.array("minmax"), window=np.zeros((2, 6)), **ends[1])
    assert audit_pair(folders[0], noisy).row == {}


def test_other_models_are_refused_or_not_attacked(tmp_path: Path) -> None:
    columns, scale = np.array([f"c{number}" for number in range(6)]), _arrays(_agreed(ROWS))
    plain = _write(tmp_path / "plain", columns=columns, scaling=np.array("none"), **scale)
    assert audit_pair(plain, plain).said.startswith("neither file has a mean")
    same = _write(tmp_path / "same", columns=columns, scaling=np.array("standard"), **scale)
    assert audit_pair(same, same).recovered == 0
    other = _write(tmp_path / "other", columns=columns[::-1], scaling=np.array("standard"), **scale)
    with pytest.raises(ScenarioError, match="models of the same columns"):
        audit_pair(same, other)
    bare = _write(tmp_path / "bare", weights=np.zeros(2))
    with pytest.raises(ScenarioError, match="its model has no columns or offset or scale"):
        audit_pair(same, bare)
