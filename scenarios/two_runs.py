"""The audit of two runs: the row by which their training data differ, as whoever holds both model files can tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsvm.algorithms.attacks.run_differences import MOST_ROWS, differing_row
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.scenarios.predict import read_arrays
from fedsvm.scenarios.schema.errors import ScenarioError

ATTACK = "difference of sums"


@dataclass(frozen=True)
class PairAudit:
    """The result of an attack on two model files.

    Parameters
    ----------
    recovered : int
        1 if a row follows from the two files, otherwise 0.
    said : str
        A sentence on the result.
    row : mapping of str to float
        The columns of the row, as sites encode them. Empty if there is none.
    confirmed_by : int
        The columns whose sums of squares confirm the row.
    residual : float, optional
        The largest difference that this check left, in deviations of a column.
    """

    recovered: int
    said: str
    row: Mapping[str, float]
    confirmed_by: int = 0
    residual: float | None = None


def audit_pair(first: Path, second: Path) -> PairAudit:
    """Return what the model files of two runs reveal together. Raises ScenarioError for folders without a model."""
    files = [read_arrays(folder / "model.npz") for folder in (first, second)]
    for folder, arrays in zip((first, second), files, strict=True):
        if missing := {"offset", "scale", "columns"} - arrays.keys():
            raise ScenarioError([f"{folder}: its model has no {' or '.join(sorted(missing))}; name two other runs."])
    if files[0]["columns"].tolist() != files[1]["columns"].tolist():
        raise ScenarioError([f"{first} and {second} must have models of the same columns."])
    if any(str(arrays.get("scaling", "standard")) != "standard" for arrays in files):
        return PairAudit(0, 'nothing was tried: only data.scale = "standard" has sums over rows', {})
    scales = [Scale(arrays["offset"], arrays["scale"]) for arrays in files]
    if np.array_equal(scales[0].offset, scales[1].offset):
        return PairAudit(0, "both have the same scale, so that no difference reveals a row", {})
    if (found := differing_row(scales[0], scales[1], MOST_ROWS)) is None:
        return PairAudit(0, "no single row explains the difference of their scales", {})
    has, lacks = (second, first) if found.is_in_second else (first, second)
    said = f"{has} has a row that {lacks} lacks, confirmed by {found.checked} columns"
    row = dict(zip(map(str, files[0]["columns"]), found.row.tolist(), strict=True))
    return PairAudit(1, said, row, found.checked, found.residual)
