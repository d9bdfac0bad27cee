"""Predictions of a finished run's model for new rows, in the columns and on the scale of the run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Model
from fedsvm.algorithms.data.classes import predict_class as called_classes
from fedsvm.algorithms.data.columns import INDICATED
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.text import quote_names
from fedsvm.scenarios.data import corrections, sources
from fedsvm.scenarios.data.notation import is_number
from fedsvm.scenarios.data.text_form import TextForm
from fedsvm.scenarios.drift import ColumnDrift, drift, sparse_rows
from fedsvm.scenarios.run import measuring
from fedsvm.scenarios.run.metrics import Metrics
from fedsvm.scenarios.run.outcome import SITE_MODELS
from fedsvm.scenarios.run.result import RunResult, read_result
from fedsvm.scenarios.schema.errors import ScenarioError, nearest


@dataclass(frozen=True)
class Predictions:
    """decisions: (n,) positive for the second of two classes, or (n, K) of more. predicted (n,): the classes' names.

    classes: all of them, in the order of the decision values.
    called: what rows are told apart by, and by that of each of them (n,).
    probabilities (n,): of the second class, or (n, K) of more; None of a model that gives none. doubts: what of the
    rows' text may be meant otherwise than it was read, and warnings about values, in sentences. threshold: the decision
    value from which a row is predicted as the second of two classes. drift: how each column differs from the training
    rows. measured: the measures, if the rows have labels. version: of fedsvm that trained the model; "" if not known.
    """

    decisions: FloatArray
    predicted: NDArray[np.str_]
    called: tuple[str, Sequence[str]]
    probabilities: FloatArray | None = None
    classes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    threshold: float = 0.0
    drift: tuple[ColumnDrift, ...] = ()
    measured: Metrics | None = None
    version: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the predictions as lines of comma-separated text."""
        head, names = self.called
        if self.decisions.ndim == 2:
            shares = np.zeros((len(self.decisions), 0)) if self.probabilities is None else self.probabilities
            heads = [_quote(f"probability {each}") for each in self.classes[: shares.shape[1]]]
            values_of = [_quote(f"decision {each}") for each in self.classes]
            yield ",".join([_quote(head), *values_of, "predicted", *heads])
            several = zip(names, self.decisions.tolist(), self.predicted.tolist(), shares.tolist(), strict=True)
            for name, values, predicted, of_classes in several:
                yield ",".join([_quote(name), *map(repr, values), _quote(predicted), *map(repr, of_classes)])
            return
        chances = [""] * len(self.decisions)
        if self.probabilities is not None:
            chances = [f",{chance!r}" for chance in self.probabilities.tolist()]
        yield f"{_quote(head)},decision,predicted{',probability' if self.probabilities is not None else ''}"
        rows = zip(names, self.decisions.tolist(), self.predicted.tolist(), chances, strict=True)
        for name, decision, predicted, chance in rows:
            yield f"{_quote(name)},{decision!r},{_quote(predicted)}{chance}"


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\r\n') else text


@dataclass(frozen=True)
class SavedModel:
    """A model in a run's folder, with what it takes to apply it to new rows.

    Attributes
    ----------
    result : RunResult
        The run's result.
    model : Model
        The model.
    columns : list of str
        Its columns.
    scale : Scale
        Of these.
    classes : (K,) array of str
        Names of the classes.
    filled : dict of str to float
        What replaces missing numbers, by column.
    left_out : list of str
        Columns that the run knew and the model does not use.
    scaling : str
        Kind of the scale, as `data.scale` names it.
    ranges : dict of str to sequence of float
        Declared ranges of columns.
    version : str
        Of fedsvm that trained it.
    complete : bool
        Whether the coordinator's file has all of the model, with its columns.
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
        """Return a table that was read as rows for the model. spare: more columns that it may have."""
        beside = _spare(self.result) | set(spare)
        return TableRows(source, table, beside, self.filled, self.left_out, takes_unknown)


def read_model(folder: Path) -> SavedModel:
    """Return the model in a run's folder. Raises ScenarioError if there is none that can be read."""
    result = read_result(folder)
    if result.model is None:
        raise ScenarioError([f"The run in {folder} has no model: {result.error}"])
    arrays = read_arrays(folder / "model.npz")
    earlier = f"The model in {folder} was written by an earlier version of fedsvm; run it again."
    if "algorithm" not in arrays:
        raise ScenarioError([earlier])
    if (name := str(arrays["algorithm"])) not in ALGORITHMS:
        raise ScenarioError([f"The model in {folder} is of {name!r}, which is not installed; install its package."])
    parts = [read_arrays(path) for path in _parts(folder, result)]
    holders = [arrays] if "columns" in arrays else parts
    if not holders:
        raise ScenarioError(
            [
                f"The model in {folder} has no columns: each site keeps the part of its own. Ask the sites for "
                f"predictions (fedsvm coordinate --predict {folder}), or add their parts to the folder, in "
                f"{SITE_MODELS!r}."
            ]
        )
    columns = [name for each in holders for name in each["columns"].tolist()]
    offset, unit = (np.concatenate([each[name] for each in holders]) for name in ("offset", "scale"))
    scale = Scale(offset, unit, arrays.get("window"))
    try:
        model = ALGORITHMS[name].Model.from_arrays(arrays, parts)
    except KeyError:
        raise ScenarioError([earlier]) from None
    if model.kept_by_sites and not parts:
        raise ScenarioError(
            [
                f"The model in {folder} has no weights: only the sites have them. Predict in the folder of a run that "
                f"holds a site's file too, in {SITE_MODELS!r}."
            ]
        )
    filling, numeric = arrays.get("filling"), arrays.get("filled")
    of = columns if numeric is None else numeric.tolist()
    ranged = zip(arrays["ranged"].tolist(), arrays["ranges"].tolist(), strict=True) if "ranged" in arrays else ()
    return SavedModel(
        result,
        model,
        columns,
        scale,
        arrays["classes"],
        filled={} if filling is None else dict(zip(of, filling.tolist(), strict=False)),
        left_out=[column for each in [arrays, *parts] if "left_out" in each for column in each["left_out"].tolist()],
        scaling=str(arrays["scaling"]) if "scaling" in arrays else result.scenario["data"]["scale"],
        ranges=dict(ranged),
        version=str(arrays.get("version", result.environment.fedsvm)),
        complete="columns" in arrays,
    )


Unknown = Literal["refuse", "missing"]
"""The treatment of categories that the model does not know."""


def predict(
    folder: Path,
    source: str,
    identifier: str | None = None,
    site: str | None = None,
    *,
    unknown: Unknown = "missing",
    judge: bool = False,
    decide: Callable[[FloatArray], FloatArray] | None = None,
) -> Predictions:
    """Return the predictions of the model in a run's folder for the rows of `source`, a path or the name of a data set.

    Parameters
    ----------
    folder : Path
        The run's.
    source : str
        The rows.
    identifier : str, optional
        The column that rows are told apart by; without it they are numbered from 1.
    unknown : {"missing", "refuse"}
        The treatment of a category that the model does not know.
    judge : bool
        True to measure the predictions against the labels of the rows that have one.
    decide : callable, optional
        Returns the decision values of scaled rows. Without it the model does.

    Raises
    ------
    ScenarioError
        The folder has no model, the rows do not have the model's columns, or a label is not one of the run's.
    """
    saved = read_model(folder)
    form = _form(saved.result)
    data = saved.result.scenario["data"]
    table = corrections.correct_as_in_run(sources.read(source, Path(), form=form), data, site)
    read = {
        column: _without_text(values) if column in saved.columns else values for column, values in table.columns.items()
    }
    columns, scale, model, classes = saved.columns, saved.scale, saved.model, saved.classes
    taken = saved.rows(source, read, spare={identifier or ""}, takes_unknown=unknown == "missing")
    origins, categories = taken.origins(columns), taken.categories(columns)
    scaled = scale(taken.take(columns))
    decisions = (decide or model.decision_function)(scaled)
    drifted = drift(read, columns, origins, scale, saved.scaling, saved.ranges, categories)
    calibration = model.calibrated
    threshold = 0.0 if calibration is None else calibration.threshold
    predicted = classes[called_classes(decisions, threshold)]
    called = ("row", [str(number) for number in range(1, len(decisions) + 1)])
    if identifier is not None:
        called = (identifier, _identifiers(source, form, identifier))
    chances = model.probabilities(scaled)
    sparse = sparse_rows(read, list(dict.fromkeys(taken.origins(columns).values())))
    doubts = (
        *(each.doubt for each in table.forms.values() if each.doubt),
        *(sentence for each in drifted for sentence in each.warnings()),
        *([sparse] if sparse else []),
    )
    names = tuple(classes.tolist())
    measured = None
    if judge:
        labels = _labels(source, read, data["label"], names)
        if unlabeled := int(np.isnan(labels).sum()):
            doubts += (_describe_unlabeled(unlabeled, len(labels), data["label"]),)
        if unlabeled < len(labels):
            measured = _measure(decisions, labels, threshold, chances)
    return Predictions(
        decisions, predicted, called, chances, names, doubts, threshold, drifted, measured, saved.version
    )


def _measure(decisions: FloatArray, labels: FloatArray, threshold: float, chances: FloatArray | None) -> Metrics | None:
    """Return the measures of the rows that have a label."""
    known = ~np.isnan(labels)
    probabilities = None if chances is None else chances[known]
    return measuring.mean_metrics(
        [measuring.evaluate(decisions[known], labels[known], threshold=threshold, probabilities=probabilities)]
    )


def _describe_unlabeled(unlabeled: int, rows: int, label: str) -> str:
    """Return a sentence about rows without a label."""
    if unlabeled == rows:
        return f"no row has a label in column {label!r}, so there are no measures."
    of_rows = "1 row has" if unlabeled == 1 else f"{unlabeled} rows have"
    return f"{of_rows} no label in column {label!r}; the measures are those of the other {rows - unlabeled}."


def _labels(source: str, table: Mapping[str, NDArray[Any]], label: str, classes: tuple[str, ...]) -> FloatArray:
    """Return the labels of rows: +1 and -1, or numbers of more classes, and NaN for rows without one."""
    if label not in table:
        return np.full(len(next(iter(table.values()))), np.nan)
    values = table[label]
    missing = values == "" if values.dtype.kind == "U" else np.isnan(values)
    if values.dtype.kind != "U":
        values = np.array([f"{value:g}" for value in values.tolist()])
        named = {f"{float(name):g}": place for place, name in enumerate(classes) if is_number(name)}
    else:
        named = {name: place for place, name in enumerate(classes)}
    unknown = np.flatnonzero(~missing & ~np.isin(values, list(named)))
    if len(unknown):
        raise ScenarioError(
            [
                f"--report: column {label!r} of {source} must hold one of {quote_names(classes)}, "
                f"got another in row {unknown[0] + 1}."
            ]
        )
    places = np.array([named.get(value, np.nan) for value in values.tolist()], dtype=np.float64)
    return places if len(classes) > 2 else 2 * places - 1


def _without_text(values: NDArray[Any]) -> NDArray[Any]:
    """Return NaN for a column without any value, such as for one patient with a gap, since its type is unknown."""
    return np.full(len(values), np.nan) if values.dtype.kind == "U" and not (values != "").any() else values


def _identifiers(source: str, form: TextForm, column: str) -> list[str]:
    """Return the values of a column as they are written. Raises ScenarioError if there is no such column.

    The source is read once more for it, since the model may have the same column as numbers, and 007 is not 7.
    """
    table = sources.read_as_written(source, Path(), column, form).columns
    if column not in table:
        raise ScenarioError([f"--id: {source} has no column {column!r}.{nearest(column, table)}"])
    names: list[str] = table[column].tolist()
    return names


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file. Raises ScenarioError if it cannot be read."""
    try:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise ScenarioError([f"{path} cannot be read: {error}; a model is predicted with where its run was."]) from None


def _parts(folder: Path, result: RunResult) -> list[Path]:
    """Return the files of the sites' own parts of a model, if sites keep some."""
    if result.model is None or not (folder / SITE_MODELS).is_dir():
        return []
    return [folder / SITE_MODELS / f"{site}.npz" for site in result.model.sites]


def _spare(result: RunResult) -> set[str]:
    """Return columns that rows may have though the model does not: label, identifier and ignored columns."""
    data = result.scenario["data"]
    beside = [data[name] for name in ("identifier", "site", "weight") if data.get(name)]
    return {data["label"], *data["ignore"], *beside}


def _form(result: RunResult) -> TextForm:
    """Return the form of text that the run declared."""
    data = result.scenario["data"]
    return TextForm(*(data.get(name) for name in ("separator", "decimal", "encoding")))


@dataclass(frozen=True)
class TableRows:
    """A table that was read: float64 with NaN, or text with "" for missing values, by column.

    filled: what stands for missing numbers, by column, where the run filled them; text may then be missing too.
    left_out: columns that the run knew and the model is not of; rows may have them or not. takes_unknown: whether a
    category that the model does not know is taken as missing.
    """

    source: str
    table: dict[str, NDArray[Any]]
    spare: set[str]
    filled: dict[str, float]
    left_out: Sequence[str] = ()
    takes_unknown: bool = False

    def origins(self, wanted: Sequence[str]) -> dict[str, str]:
        """Return the column of the table that each of the model's columns comes from."""
        return {name: self._origin(name) for name in wanted}

    def categories(self, wanted: Sequence[str]) -> dict[str, list[str]]:
        """Return the categories that the run knew, by column."""
        found: dict[str, list[str]] = {}
        for name in (*wanted, *self.left_out):
            if (of := self._origin(name)) != name and not self._is_indicator(name):
                found.setdefault(of, []).append(name.partition("=")[2])
        return found

    def take(self, wanted: list[str]) -> FloatArray:
        """Return (n, p) the model's columns, 0/1 for "column=value" if the table has no column of that whole name."""
        if problems := list(self._misfits(self.origins(wanted))):
            raise ScenarioError(problems)
        return np.column_stack([self._column(name) for name in wanted]).astype(np.float64)

    def _origin(self, name: str) -> str:
        """Return the column that the model's column comes from."""
        if name in self.table:
            return name
        return name.removesuffix(INDICATED) if self._is_indicator(name) else name.partition("=")[0]

    def indicator_of(self, name: str) -> str:
        """Return the name of the 0/1 column that marks missing values of a column."""
        return f"{name}{INDICATED}"

    def _is_indicator(self, name: str) -> bool:
        return name.endswith(INDICATED) and name.removesuffix(INDICATED) in self.filled

    def _column(self, name: str) -> NDArray[Any]:
        values = self.table[self._origin(name)]
        if self._is_indicator(name):
            return np.asarray(np.isnan(values))
        if self._origin(name) != name:
            return np.asarray(values == name.partition("=")[2])
        return np.where(np.isnan(values), self.filled[name], values) if name in self.filled else values

    def _misfits(self, origin: dict[str, str]) -> Iterator[str]:
        used = list(dict.fromkeys(origin.values()))
        if missing := [name for name in used if name not in self.table]:
            yield f"{self.source} lacks {quote_names(missing)}, which the model was trained on; add {_them(missing)}."
        beside = self.spare | {self._origin(name) for name in self.left_out}
        if unexpected := [name for name in self.table if name not in used and name not in beside]:
            them = _them(unexpected)
            yield f"{self.source} has {quote_names(unexpected)}, which the model does not know; remove {them}."
        categories = self.categories(list(origin))
        for name in used:
            if name in self.table:
                yield from self._misfit(name, categories.get(name, []))

    def _misfit(self, name: str, categories: list[str]) -> Iterator[str]:
        values = self.table[name]
        text = values.dtype.kind == "U"
        gaps = np.flatnonzero(values == "" if text else np.isnan(values))
        if text != bool(categories):
            kinds = ("text", "numbers") if text else ("numbers", "text")
            yield f"Column {name!r} of {self.source} holds {kinds[0]}, and in the run it held {kinds[1]}."
        elif len(gaps) and not self.filled:
            yield f"{self.source} has no value in row {gaps[0] + 1}, column {name!r}; fill it."
        elif text and not self.takes_unknown and (unknown := sorted(set(values.tolist()) - {*categories, ""})):
            known, got = quote_names(categories), quote_names(unknown)
            yield f"Column {name!r} of {self.source} must hold one of {known}, as in the run, got {got}."


def _them(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"
