"""Two runs whose data differ by one row: their exact scales give the row, and noisy ones nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.attacks.run_differences import DifferingRow, differing_row
from fedsvm.algorithms.data.scaling import Scale
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


def test_other_models_are_refused_or_not_attacked(tmp_path: Path) -> None:
    columns, scale = np.array([f"c{number}" for number in range(6)]), _arrays(_agreed(ROWS))
    plain = _write(tmp_path / "plain", columns=columns, scaling=np.array("minmax"), **scale)
    assert "nothing was tried" in audit_pair(plain, plain).said
    same = _write(tmp_path / "same", columns=columns, scaling=np.array("standard"), **scale)
    assert audit_pair(same, same).recovered == 0
    other = _write(tmp_path / "other", columns=columns[::-1], scaling=np.array("standard"), **scale)
    with pytest.raises(ScenarioError, match="models of the same columns"):
        audit_pair(same, other)
    bare = _write(tmp_path / "bare", weights=np.zeros(2))
    with pytest.raises(ScenarioError, match="its model has no columns or offset or scale"):
        audit_pair(same, bare)
