"""Predictions of a finished run's model for new rows, in the columns and on the scale of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.classes import predict_class
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.text import quote_names
from fedsvm.scenarios.data import corrections, sources
from fedsvm.scenarios.data.notation import is_number
from fedsvm.scenarios.data.tables import Table
from fedsvm.scenarios.data.text_form import TextForm
from fedsvm.scenarios.drift import ColumnDrift, drift, sparse_rows
from fedsvm.scenarios.run import measuring
from fedsvm.scenarios.run.metrics import Metrics
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.saved_model import SavedModel, read_model
from fedsvm.scenarios.schema.errors import ScenarioError, nearest
from fedsvm.scenarios.table_rows import TableRows


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for n rows.

    Attributes
    ----------
    decisions : (n,) or (n, K)
        Decision values: positive for the second of two classes; for K > 2 classes, one column for each.
    predicted : (n,) array of str
        Names of the predicted classes.
    called : tuple of str and sequence of str
        Name of the identifier column, and its value for each of the n rows.
    probabilities : (n,) or (n, K), optional
        Probability of the second class, or of each of K > 2 classes; None if the model gives none.
    classes : tuple of str
        Names of all classes, in the order of the decision values.
    doubts : tuple of str
        Sentences on ambiguous text, such as decimal commas, and warnings about values.
    threshold : float
        Decision value from which a row is predicted as the second of two classes.
    drift : tuple of ColumnDrift
        The difference of each column from the training rows.
    measured : Metrics, optional
        Measures over the rows that have labels, if they were asked for.
    version : str
        Version of fedsvm that trained the model; "" if it is not known.
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
    """Return the predictions of a finished run's model for new rows.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    source : str
        The rows: the path of a table, or the name of a data set.
    identifier : str, optional
        Column that identifies rows in the predictions; by default they are numbered from 1.
    site : str, optional
        Site whose corrections (`data.by_site` of the run) apply to the rows; by default only those of all sites do.
    unknown : {"missing", "refuse"}, default "missing"
        Treatment of a category that the model does not know.
    judge : bool, default False
        True to measure the predictions against the labels of the rows that have one.
    decide : callable, optional
        Function that returns the decision values of scaled rows; by default that of the model.

    Raises
    ------
    ScenarioError
        The folder has no model, the rows do not have the model's columns, or a label is not one of the run's.
    """
    saved = read_model(folder)
    data, form = saved.result.scenario["data"], _form(saved.result)
    table = corrections.correct_as_in_run(sources.read(source, Path(), form=form), data, site)
    read = {
        column: _without_text(values) if column in saved.columns else values for column, values in table.columns.items()
    }
    rows = saved.rows(source, read, spare={identifier or ""}, takes_unknown=unknown == "missing")
    scaled = saved.scale(rows.take(saved.columns))
    decisions = (decide or saved.model.decision_function)(scaled)
    calibration = saved.model.calibrated
    threshold = 0.0 if calibration is None else calibration.threshold
    called = ("row", [str(number) for number in range(1, len(decisions) + 1)])
    if identifier is not None:
        called = (identifier, _identifiers(source, form, identifier))
    drifted = _drift(saved, rows)
    predictions = Predictions(
        decisions,
        predicted=saved.classes[predict_class(decisions, threshold)],
        called=called,
        probabilities=saved.model.probabilities(scaled),
        classes=tuple(saved.classes.tolist()),
        doubts=tuple(_doubts(table, rows.origins(saved.columns), read, drifted)),
        threshold=threshold,
        drift=drifted,
        version=saved.version,
    )
    return _judge(predictions, source, read, data["label"]) if judge else predictions


def _drift(saved: SavedModel, rows: TableRows) -> tuple[ColumnDrift, ...]:
    """Return how each column of new rows differs from the training rows."""
    columns = saved.columns
    categories = rows.categories(columns)
    return drift(rows.table, columns, rows.origins(columns), saved.scale, saved.scaling, saved.ranges, categories)


def _doubts(
    table: Table, origins: Mapping[str, str], read: Mapping[str, NDArray[Any]], drifted: Iterable[ColumnDrift]
) -> Iterator[str]:
    """Yield doubts about the text of a table, and warnings about its values."""
    yield from (form.doubt for form in table.forms.values() if form.doubt)
    yield from (sentence for column in drifted for sentence in column.warnings())
    if sparse := sparse_rows(read, list(dict.fromkeys(origins.values()))):
        yield sparse


def _judge(predictions: Predictions, source: str, read: Mapping[str, NDArray[Any]], label: str) -> Predictions:
    """Return predictions with their measures over the rows that have a label in the column `label`."""
    labels = _labels(source, read, label, predictions.classes)
    known = ~np.isnan(labels)
    doubts, measured = predictions.doubts, None
    if not known.all():
        doubts += (_describe_unlabeled(int((~known).sum()), len(labels), label),)
    if known.any():
        probabilities = None if predictions.probabilities is None else predictions.probabilities[known]
        evaluated = measuring.evaluate(
            predictions.decisions[known], labels[known], threshold=predictions.threshold, probabilities=probabilities
        )
        measured = measuring.mean_metrics([evaluated])
    return replace(predictions, doubts=doubts, measured=measured)


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
    """Return NaN for a column without any value, such as one patient with a gap, since its type is unknown."""
    return np.full(len(values), np.nan) if values.dtype.kind == "U" and not (values != "").any() else values


def _identifiers(source: str, form: TextForm, column: str) -> list[str]:
    """Return the values of a column as they are written. Raises ScenarioError if there is no such column.

    The source is read again, since the model may have the same column as numbers, and 007 is not 7.
    """
    table = sources.read_as_written(source, Path(), column, form).columns
    if column not in table:
        raise ScenarioError([f"--id: {source} has no column {column!r}.{nearest(column, table)}"])
    names: list[str] = table[column].tolist()
    return names


def _form(result: RunResult) -> TextForm:
    """Return the form of text that the run declared."""
    data = result.scenario["data"]
    return TextForm(*(data.get(name) for name in ("separator", "decimal", "encoding")))
