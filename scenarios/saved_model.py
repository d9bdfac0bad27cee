"""The model in the folder of a finished run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Algorithm, Arrays, Model
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.scenarios.run.outcome import SITE_MODELS
from fedsvm.scenarios.run.result import RunResult, read_result
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.table_rows import TableRows


@dataclass(frozen=True)
class SavedModel:
    """The model in a run's folder, with everything needed to apply it to new rows.

    Attributes
    ----------
    result : RunResult
        The run's result.
    model : Model
        The model.
    columns : list of str
        The model's columns.
    scale : Scale
        Scale of these columns.
    classes : (K,) array of str
        Names of the classes.
    filled : dict of str to float
        Replacement of missing numbers, by column.
    left_out : list of str
        Columns of the run that the model does not use.
    scaling : str
        The kind of the scale, as in `data.scale`.
    ranges : dict of str to sequence of float
        Declared ranges of columns.
    version : str
        Version of fedsvm that trained it.
    complete : bool
        True if the coordinator's file has the whole model, with its columns.
    """

    result: RunResult
    model: Model
    columns: list[str]
    scale: Scale
    classes: NDArray[np.str_]
    filled: dict[str, float]
    left_out: list[str]
    scaling: str
    ranges: dict[str, Sequence[float]]
    version: str
    complete: bool

    def rows(
        self,
        source: str,
        table: dict[str, NDArray[Any]],
        *,
        spare: Collection[str] = (),
        takes_unknown: bool = False,
    ) -> TableRows:
        """Return a table as rows for the model; see `TableRows`. spare: additional columns that it may have."""
        beside = _spare(self.result) | set(spare)
        return TableRows(source, table, beside, self.filled, self.left_out, takes_unknown)


def read_model(folder: Path) -> SavedModel:
    """Return the model in a run's folder. Raises ScenarioError if there is none that can be read."""
    result = read_result(folder)
    if result.model is None:
        raise ScenarioError([f"The run in {folder} has no model: {result.error}"])
    arrays = read_arrays(folder / "model.npz")
    algorithm = _algorithm(folder, arrays)
    parts = [read_arrays(path) for path in _parts(folder, result)]
    holders = [arrays] if "columns" in arrays else parts
    if not holders:
        raise ScenarioError(
            [
                f"The model in {folder} has no columns: each site keeps the part for its columns. Ask the sites for "
                f"predictions (fedsvm coordinate --predict {folder}), or copy their parts to {SITE_MODELS!r} in the "
                "folder."
            ]
        )
    columns = [name for each in holders for name in each["columns"].tolist()]
    offset, unit = (np.concatenate([each[name] for each in holders]) for name in ("offset", "scale"))
    scale = Scale(offset, unit, arrays.get("window"))
    try:
        model = algorithm.Model.from_arrays(arrays, parts)
    except KeyError:
        raise _written_earlier(folder) from None
    if model.kept_by_sites and not parts:
        raise ScenarioError(
            [
                f"The model in {folder} has no weights: only the sites have them. Copy a site's model file to "
                f"{SITE_MODELS!r} in the folder."
            ]
        )
    ranged = zip(arrays["ranged"].tolist(), arrays["ranges"].tolist(), strict=True) if "ranged" in arrays else ()
    return SavedModel(
        result,
        model,
        columns,
        scale,
        arrays["classes"],
        filled=_replacements(arrays, columns),
        left_out=[column for each in [arrays, *parts] if "left_out" in each for column in each["left_out"].tolist()],
        scaling=str(arrays["scaling"]) if "scaling" in arrays else result.scenario["data"]["scale"],
        ranges=dict(ranged),
        version=str(arrays.get("version", result.environment.fedsvm)),
        complete="columns" in arrays,
    )


def _algorithm(folder: Path, arrays: Arrays) -> Algorithm[Any, Any, Any]:
    """Return the algorithm of a model file. Raises ScenarioError if it is not installed."""
    if "algorithm" not in arrays:
        raise _written_earlier(folder)
    if (name := str(arrays["algorithm"])) not in ALGORITHMS:
        raise ScenarioError([f"The model in {folder} is of {name!r}, which is not installed; install its package."])
    return ALGORITHMS[name]


def _written_earlier(folder: Path) -> ScenarioError:
    return ScenarioError([f"The model in {folder} was written by an earlier version of fedsvm; run it again."])


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file. Raises ScenarioError if it cannot be read."""
    try:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        said = f"{path} cannot be read ({error.strerror}); predictions need the files that the run wrote."
        raise ScenarioError([said]) from None
    except (ValueError, EOFError, BadZipFile):
        raise ScenarioError([f"{path} is not a file of a model, or is damaged; name one that a run wrote."]) from None


def _replacements(arrays: Arrays, columns: list[str]) -> dict[str, float]:
    """Return the replacement of missing numbers, by numeric column. A file without `filled` has these first."""
    if "filling" not in arrays:
        return {}
    numeric = arrays["filled"].tolist() if "filled" in arrays else columns
    return dict(zip(numeric, arrays["filling"].tolist(), strict=False))


def _parts(folder: Path, result: RunResult) -> list[Path]:
    """Return the files of the sites' own parts of a model, if sites keep some."""
    if result.model is None or not (folder / SITE_MODELS).is_dir():
        return []
    return [folder / SITE_MODELS / f"{site}.npz" for site in result.model.sites]


def _spare(result: RunResult) -> set[str]:
    """Return columns that rows may have in addition to the model's: label, identifier and ignored columns."""
    data = result.scenario["data"]
    beside = [data[name] for name in ("identifier", "site", "weight") if data.get(name)]
    return {data["label"], *data["ignore"], *beside}
