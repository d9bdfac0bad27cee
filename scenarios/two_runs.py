"""The audit of two runs: finds the row by which their training data differ, from both model files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.attacks.run_differences import (
    MOST_ROWS,
    DifferingRow,
    differing_row,
    row_of_class,
    values_beyond,
)
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.scenarios.saved_model import read_arrays
from fedsvm.scenarios.schema.errors import ScenarioError

ATTACK = "difference of sums"


@dataclass(frozen=True)
class PairAudit:
    """The result of an attack on two model files.

    Parameters
    ----------
    recovered : int
        1 if a whole row follows from the two files, otherwise 0.
    said : str
        A sentence on the result.
    row : mapping of str to float
        The recovered values of the row, by column, as sites encode them. Empty if there are none.
    confirmed_by : int
        The number of columns whose sums of squares confirm the row.
    residual : float, optional
        The largest difference in this check, in standard deviations of a column.
    """

    recovered: int
    said: str
    row: Mapping[str, float]
    confirmed_by: int = 0
    residual: float | None = None


def audit_pair(first: Path, second: Path) -> PairAudit:
    """Attack the model files of two runs together. Raises ScenarioError for folders without a model."""
    files = [read_arrays(folder / "model.npz") for folder in (first, second)]
    for folder, arrays in zip((first, second), files, strict=True):
        if missing := {"offset", "scale", "columns"} - arrays.keys():
            raise ScenarioError([f"{folder}: its model has no {' or '.join(sorted(missing))}; name two other runs."])
    if files[0]["columns"].tolist() != files[1]["columns"].tolist():
        raise ScenarioError([f"{first} and {second} must have models of the same columns."])
    columns, folders = [str(name) for name in files[0]["columns"]], (first, second)
    if all("means" in arrays for arrays in files) and (found := row_of_class(*files)) is not None:
        return _of_row(found, columns, folders)
    methods = {str(arrays.get("scaling", "standard")) for arrays in files}
    if methods == {"standard"}:
        return _of_sums(files, columns, folders)
    if methods == {"minmax"}:
        return _of_ends(files, columns, folders)
    return PairAudit(0, "neither file has a mean, a deviation or an end of a column in common with the other", {})


def _of_sums(files: Sequence[Mapping[str, NDArray[Any]]], columns: Sequence[str], folders: Sequence[Path]) -> PairAudit:
    """Return the result for two standard scales."""
    scales = [Scale(arrays["offset"], arrays["scale"]) for arrays in files]
    if np.array_equal(scales[0].offset, scales[1].offset):
        return PairAudit(0, "both have the same scale, so that no difference reveals a row", {})
    if (found := differing_row(scales[0], scales[1], MOST_ROWS)) is None:
        return PairAudit(0, "no single row explains the difference of their scales", {})
    return _of_row(found, columns, folders)


def _of_row(found: DifferingRow, columns: Sequence[str], folders: Sequence[Path]) -> PairAudit:
    """Return the result for a whole row."""
    lacks, has = folders if found.is_in_second else reversed(folders)
    said = f"{has} has a row that {lacks} lacks, confirmed by {found.checked} columns"
    return PairAudit(1, said, dict(zip(columns, found.row.tolist(), strict=True)), found.checked, found.residual)


def _of_ends(files: Sequence[Mapping[str, NDArray[Any]]], columns: Sequence[str], folders: Sequence[Path]) -> PairAudit:
    """Return the result for two minmax scales: single values, which no other column confirms."""
    if any("window" in arrays for arrays in files):
        return PairAudit(0, "the ends of columns are ranges or noisy, and no values of rows", {})
    is_in_second, values = values_beyond(*(Scale(arrays["offset"], arrays["scale"]) for arrays in files))
    if not values:
        return PairAudit(0, "no row that one has more explains the difference of their ends", {})
    lacks, has = folders if is_in_second else reversed(folders)
    said = f"but {has} has values beyond the ends of {lacks}, which are single rows' in {len(values)} columns"
    return PairAudit(0, said, {columns[column]: value for column, value in values.items()})
