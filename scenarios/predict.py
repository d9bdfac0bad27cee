"""Predictions of a finished run's model for new rows, in the columns and on the scale of the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.dp_erm import at_most_one
from algorithms.features.fourier import paired_features
from algorithms.features.kernels import Kernel, squared_distances
from federation.arrays import FloatArray
from scenarios.data import sources
from scenarios.run.outcome import PARTS
from scenarios.schema.errors import ScenarioError

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Predictions:
    """decisions (n,): positive for the second class. predicted (n,): the classes' names."""

    decisions: FloatArray
    predicted: NDArray[np.str_]

    def lines(self) -> Iterator[str]:
        """As comma-separated text, rows counted from 1."""
        yield "row,decision,predicted"
        for number, (decision, name) in enumerate(
            zip(self.decisions.tolist(), self.predicted.tolist(), strict=True), start=1
        ):
            quoted = '"' + name.replace('"', '""') + '"' if set(name) & set(',"\n') else name
            yield f"{number},{decision!r},{quoted}"


def predict(folder: Path, source: str) -> Predictions:
    """What the model in a run's folder says of the rows of `source`, a path or the name of a data set.

    Raises ScenarioError for a folder without a model, and for rows that do not have the model's columns.
    """
    result = _result(folder)
    model = _arrays(folder / "model.npz")
    parts = [_arrays(path) for path in _parts(folder, result)]
    wanted = [name for part in parts or [model] for name in part["columns"].tolist()]
    table = sources.read_columns(source, Path())
    rows = _Rows(source, table, _spare(result)).take(wanted)
    scored = _SCORES[result["model"]["algorithm"]](model, parts, rows)
    classes = model["classes"]
    return Predictions(scored, np.where(scored >= 0, classes[1], classes[0]))


def _result(folder: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError):
        raise ScenarioError(
            [f"{folder} is not the folder of a run: it holds no result.json that can be read."]
        ) from None
    if result["model"] is None:
        raise ScenarioError([f"The run in {folder} has no model: {result['error']}"])
    return result


def _arrays(path: Path) -> Arrays:
    try:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise ScenarioError([f"{path} cannot be read: {error}; a model is predicted with where its run was."]) from None


def _parts(folder: Path, result: dict[str, Any]) -> list[Path]:
    """The sites' own parts of a vertical model."""
    if result["scenario"]["data"]["partition"] != "vertical":
        return []
    return [folder / PARTS / f"{site}.npz" for site in result["model"]["sites"]]


def _spare(result: dict[str, Any]) -> set[str]:
    """Columns that rows may have though the model does not: the label, the identifier and what the run left out."""
    data = result["scenario"]["data"]
    return {data["label"], *data["ignore"], *([data["identifier"]] if data["identifier"] else [])}


@dataclass(frozen=True)
class _Rows:
    """A table that was read: float64 with NaN, or text with "" for missing values, by column."""

    source: str
    table: dict[str, NDArray[Any]]
    spare: set[str]

    def take(self, wanted: list[str]) -> FloatArray:
        """(n, p) the model's columns, 0/1 for "column=value" where the table has no column of that whole name."""
        origin = {name: name if name in self.table else name.partition("=")[0] for name in wanted}
        if problems := list(self._misfits(origin)):
            raise ScenarioError(problems)
        columns = [
            (self.table[origin[name]] == name.partition("=")[2]) if origin[name] != name else self.table[name]
            for name in wanted
        ]
        return np.column_stack(columns).astype(np.float64)

    def _misfits(self, origin: dict[str, str]) -> Iterator[str]:
        used = list(dict.fromkeys(origin.values()))
        if missing := [name for name in used if name not in self.table]:
            yield f"{self.source} lacks {_listed(missing)}, which the model was trained on; add {_them(missing)}."
        if unexpected := [name for name in self.table if name not in used and name not in self.spare]:
            them = _them(unexpected)
            yield f"{self.source} has {_listed(unexpected)}, which the model does not know; leave {them} out."
        for name in used:
            if name in self.table:
                yield from self._misfit(
                    name, [key.partition("=")[2] for key, of in origin.items() if of == name != key]
                )

    def _misfit(self, name: str, categories: list[str]) -> Iterator[str]:
        values = self.table[name]
        text = values.dtype.kind == "U"
        gaps = np.flatnonzero(values == "" if text else np.isnan(values))
        if text != bool(categories):
            kinds = ("text", "numbers") if text else ("numbers", "text")
            yield f"Column {name!r} of {self.source} holds {kinds[0]}, and in the run it held {kinds[1]}."
        elif len(gaps):
            yield f"{self.source} has no value in row {gaps[0] + 1}, column {name!r}; fill it."
        elif text and (unknown := sorted(set(values.tolist()) - set(categories))):
            known = _listed(categories)
            yield f"Column {name!r} of {self.source} has {_listed(unknown)}, which the run had not; it had {known}."


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:8]))
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown


def _them(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"


# What each algorithm makes of scaled rows.


def _of_pan(model: Arrays, parts: list[Arrays], rows: FloatArray) -> FloatArray:
    scaled = (rows - model["offset"]) / model["scale"]
    return np.asarray(_kernel(model)(scaled, model["landmarks"]) @ model["map"] @ model["w"] + model["b"])


def _of_dpp(model: Arrays, parts: list[Arrays], rows: FloatArray) -> FloatArray:
    """Sums over the sites' columns, as the sites would add them up."""
    kernel, start = _kernel(model), 0
    sums = np.zeros((len(rows), len(model["coefficients"])))
    for part in parts:
        width = len(part["columns"])
        own = (rows[:, start : start + width] - part["offset"]) / part["scale"]
        sums = sums + (squared_distances(own, part["reference"]) if kernel.of_distances else own @ part["reference"].T)
        start += width
    return np.asarray(kernel.of_sums(sums) @ model["coefficients"] + model["b"])


def _of_hybrid(model: Arrays, parts: list[Arrays], rows: FloatArray) -> FloatArray:
    return np.asarray(paired_features((rows - model["offset"]) / model["scale"], model["rho"]) @ model["w"])


def _of_erm(model: Arrays, parts: list[Arrays], rows: FloatArray) -> FloatArray:
    if len(model["rho"]):
        return _of_hybrid(model, parts, rows)
    scaled = (rows - model["offset"]) / model["scale"]
    return np.asarray(at_most_one(scaled / float(model["longest"]), clip=True) @ model["w"])


def _kernel(model: Arrays) -> Kernel:
    name: Any = str(model["kernel"])
    return Kernel(name, float(model["gamma"]), int(model["degree"]), float(model["coef0"]))


_SCORES: dict[str, Callable[[Arrays, list[Arrays], FloatArray], FloatArray]] = {
    "pan-svm": _of_pan,
    "dpp-svm": _of_dpp,
    "hybrid-svm": _of_hybrid,
    "dp-erm": _of_erm,
}
