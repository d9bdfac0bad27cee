"""Columns of text, whose values become columns of 0 and 1: how many that may be, and what was not meant so."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from algorithms.data.encoding import MAX_VALUE_BYTES, MAX_VALUES
from federation.processes.memory import available_bytes
from scenarios.data.sources import Dataset, Feature
from scenarios.schema.errors import ScenarioError

_ROWS_PER_VALUE = 10
_FEW_VALUES = 20
"""Columns of no more, or of values that this many rows have on average, are taken as they are."""

_MOSTLY = 0.9


def require_few(data: Dataset, declared: Collection[str], *, agreed: bool, memory_bytes: int | None = None) -> None:
    """Raise ScenarioError for columns of text that cannot become columns of 0 and 1.

    declared: columns whose values are. agreed: whether sites agree on the values of the others, by sums. memory_bytes:
    how much all columns may take, and else what there is.
    """
    text: dict[str, NDArray[np.str_]] = {
        feature.name: np.unique(feature.values.astype(np.str_)) for feature in data.features if feature.categorical
    }
    problems: list[str] = []
    for name, values in text.items():
        if agreed and name not in declared:
            problems += _problem_of_agreeing(data, name, values)
    width = len(data.features) - len(text) + sum(map(len, text.values()))
    room = available_bytes() if memory_bytes is None else memory_bytes
    if not problems and 8 * width * data.rows > room:
        widest = max(text, key=lambda name: len(text[name]), default="")
        problems.append(
            f"data.ignore: {data.name} becomes {width} columns, {len(text.get(widest, ()))} of them of {widest!r}, and "
            f"{data.rows} rows of them do not fit into memory; leave some out."
        )
    if problems:
        raise ScenarioError(problems)


def _problem_of_agreeing(data: Dataset, name: str, values: NDArray[np.str_]) -> Iterator[str]:
    if len(values) > MAX_VALUES:
        yield (
            f"data.ignore: column {name!r} has {len(values)} different texts in {data.rows} rows, and sites can agree "
            f"on {MAX_VALUES}; if it is an identifier, leave it out: data.ignore = [{name!r}]."
        )
    elif long := next((value for value in values.tolist() if len(value.encode()) > MAX_VALUE_BYTES), None):
        yield (
            f"data.categories.{name}: a value has {len(long.encode())} bytes, and sites can agree on "
            f"{MAX_VALUE_BYTES}; declare the values of the column, shorten them, or leave it out by data.ignore."
        )


def warnings(data: Dataset) -> Iterator[str]:
    """A sentence for each column of text that may be meant as something else."""
    for feature in data.features:
        if feature.categorical:
            yield from _warning(feature, data.rows)


def _warning(feature: Feature, rows: int) -> Iterator[str]:
    values = np.unique(feature.values).tolist()
    if odd := _among_numbers(values):
        yield (
            f"Column {feature.name!r} is read as text because of {odd[0]!r}"
            f"{f' and {len(odd) - 1} more' if len(odd) > 1 else ''} among numbers; mend these, or mark what is missing."
        )
    elif len(values) > _FEW_VALUES and rows < _ROWS_PER_VALUE * len(values):
        yield (
            f"Column {feature.name!r} has {len(values)} different texts in {rows} rows, and becomes as many columns of "
            "0 and 1; if it is an identifier or a date, leave it out by data.ignore."
        )


def _among_numbers(values: list[str]) -> list[str]:
    """The values that are no numbers, where most are."""
    odd = [value for value in values if not _is_number(value)]
    return odd if len(odd) < (1 - _MOSTLY) * len(values) else []


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
