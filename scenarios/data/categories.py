"""Columns of text, whose values become columns of 0 and 1: how many that may be, and what was not meant so."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.encoding import MAX_VALUE_BYTES, MAX_VALUES
from fedsvm.federation.arrays import IntArray
from fedsvm.federation.processes.memory import available_bytes
from fedsvm.federation.text import quote_names
from fedsvm.scenarios.data import notation
from fedsvm.scenarios.data.sources import spelled_alike
from fedsvm.scenarios.data.tables import Dataset, Feature
from fedsvm.scenarios.schema.errors import QuotingProblem, ScenarioError

_IDENTIFYING = 0.5
"""A column of texts that differ in more than this share of the rows tells rows apart."""

_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( .*)?")
_IDENTIFIER_NAME = re.compile(
    r"(.*[\W_])?(id|nr|no|number|nummer|identifier|index|key|mrn)|.*[a-z](Id|ID|Nr|No)", re.ASCII
)
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
        if name not in declared:
            problems += [*_not_meant(data, name, values)] or [*_problem_of_agreeing(data, name, values, agreed=agreed)]
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


def _not_meant(data: Dataset, name: str, values: NDArray[np.str_]) -> Iterator[str]:
    """Yield a sentence for a column that is probably not categorical: dates, identifiers, numbers with a mistake."""
    known = [value for value in values.tolist() if value]
    if len(known) <= _FEW_VALUES:
        return
    way_out = "or declare its values in data.categories if they are meant"
    if odd := notation.odd_among_numbers(known, _decimals(data)):
        yield QuotingProblem(
            f"data.source: {_as_text(data, name, odd)}; add the column to data.ignore only if it is not wanted.",
            f"data.source: column {name!r} has cells that are no numbers",
        )
    elif is_date(known):
        yield QuotingProblem(
            f"data.ignore: column {name!r} holds dates, {len(known)} different ones, and each would become a column of "
            f"0 and 1; put numbers such as days in their place, add it to data.ignore, {way_out}.",
            f"data.ignore: column {name!r} holds dates",
        )
    elif len(known) > _IDENTIFYING * data.rows:
        yield QuotingProblem(
            f"data.ignore: column {name!r} has {len(known)} different values in {data.rows} rows: it looks like an "
            f"identifier; add it to data.ignore, {way_out}.",
            f"data.ignore: column {name!r} looks like an identifier",
        )


def is_date(values: Collection[str]) -> bool:
    """Return whether most of some texts are dates."""
    return sum(_DATE.fullmatch(value) is not None for value in values) > _MOSTLY * len(values)


def numbers_rows(feature: Feature) -> bool:
    """Return whether a numeric column looks like a row number: whole, all different, and named so, or consecutive.

    Counted: without a number left out.
    """
    values = feature.values
    if feature.categorical or len(values) <= _FEW_VALUES or not (known := values[~np.isnan(values)]).size:
        return False
    whole = bool((known == np.rint(known)).all()) and len(np.unique(known)) == len(known)
    is_counted = known.max() - known.min() == len(known) - 1
    return whole and bool(is_counted or _IDENTIFIER_NAME.fullmatch(feature.name))


def looks_identifying(data: Dataset, feature: Feature) -> bool:
    """Return whether `require_few` refuses a column as an identifier, or `warnings` suspects it to be one."""
    if not feature.categorical:
        return numbers_rows(feature)
    known = _known_values(feature)
    many = len(known) > max(_FEW_VALUES, _IDENTIFYING * len(feature.values))
    return many and not notation.odd_among_numbers(known, _decimals(data))


def _known_values(feature: Feature) -> list[str]:
    return [value for value in np.unique(feature.values).tolist() if value]


def _decimals(data: Dataset) -> Collection[str]:
    """Return the decimal marks of the files of the data."""
    forms = data.table.forms.values() if data.table is not None else ()
    return {form.decimal for form in forms if form.decimal is not None} or notation.POINT


def _as_text(data: Dataset, name: str, odd: dict[str, list[str]]) -> str:
    """Return a clause for a column of numbers that these cells made text."""
    values = next(feature.values for feature in data.features if feature.name == name)
    first = dict(zip(*map(np.ndarray.tolist, np.unique(values, return_index=True)), strict=True))
    in_order = {kind: sorted(cells, key=first.__getitem__) for kind, cells in odd.items()}
    place = {value: data.place(row) for value, row in first.items()}
    said = notation.cells(in_order, place)
    mended = ", and ".join(notation.ways_out(odd, _decimals(data)))
    return f"column {name!r} is read as text because of {said} among numbers; {mended}"


def _problem_of_agreeing(data: Dataset, name: str, values: NDArray[np.str_], *, agreed: bool) -> Iterator[str]:
    if not agreed:
        return
    if len(values) > MAX_VALUES:
        yield QuotingProblem(
            f"data.ignore: column {name!r} has {len(values)} different texts in {data.rows} rows, and sites can agree "
            f"on {MAX_VALUES}; if it is an identifier, ignore it: data.ignore = [{name!r}].",
            f"data.ignore: column {name!r} has more different texts than the {MAX_VALUES} that sites can agree on",
        )
    elif long := next((value for value in values.tolist() if len(value.encode()) > MAX_VALUE_BYTES), None):
        yield QuotingProblem(
            f"data.categories.{name}: a value has {len(long.encode())} bytes, and sites can agree on "
            f"{MAX_VALUE_BYTES}; declare the values of the column, shorten them, or add it to data.ignore.",
            f"data.categories.{name}: a value has more than the {MAX_VALUE_BYTES} bytes that sites can agree on",
        )


def mistakes(data: Dataset) -> Iterator[str]:
    """Yield a sentence for each column of numbers that a typing mistake, or another notation, made text."""
    for feature in data.features:
        if feature.categorical and (odd := notation.odd_among_numbers(_known_values(feature), _decimals(data))):
            sentence = _as_text(data, feature.name, odd)
            yield f"{sentence[0].upper()}{sentence[1:]}."


def warnings(data: Dataset, declared: Mapping[str, Collection[str]] | None = None) -> Iterator[str]:
    """Yield a sentence for each column that may be meant as something else.

    declared: the values of categorical columns, by name, which may differ in capitals or blanks alone.
    """
    yield from mistakes(data)
    for feature in data.features:
        if feature.categorical:
            yield from _warning(data, feature, (declared or {}).get(feature.name, ()))
        elif numbers_rows(feature):
            yield (
                f"Column {feature.name!r} has a different whole number in each row: it looks like an identifier; add "
                "it to data.ignore."
            )


def warn_unopened(
    data: Dataset, sites: Sequence[tuple[IntArray, int]], declared: Collection[str] = ()
) -> Iterator[str]:
    """Yield a sentence for each column with values that no site opens, since each has too few rows of them.

    Parameters
    ----------
    data : Dataset
        The rows of all sites.
    sites : sequence of (array, int)
        The numbers of each site's rows, and its `min_cell`.
    declared : collection of str, default ()
        Columns whose values are declared, and need not be opened.
    """
    for feature in data.features:
        if not feature.categorical or feature.name in declared:
            continue
        held, opened = {""}, {""}
        for rows, min_cell in sites:
            values, counts = np.unique(feature.values[rows], return_counts=True)
            held |= set(values.tolist())
            opened |= set(values[counts >= min_cell].tolist())
        if few := sorted(held - opened):
            yield (
                f"Column {feature.name!r}: no site has min_cell rows of {quote_names(few)}, so no column of 0 and 1 is "
                f"made of them; list them in data.categories.{feature.name}, or lower min_cell in a [[policy]]."
            )


def _warning(data: Dataset, feature: Feature, declared: Collection[str]) -> Iterator[str]:
    values = _known_values(feature)
    is_numbers = bool(notation.odd_among_numbers(values, _decimals(data)))
    if not is_numbers and len(values) > _FEW_VALUES and data.rows < _ROWS_PER_VALUE * len(values):
        yield (
            f"Column {feature.name!r} has {len(values)} different texts in {data.rows} rows, and becomes as many "
            "columns of 0 and 1; if it is an identifier or a date, add it to data.ignore."
        )
    if several := spelled_alike(values, declared):
        first = " and ".join(
            f"{value!r} ({data.place(int(np.argmax(feature.values == value)))})" for value in several[0]
        )
        more = f", and {len(several) - 1} more values," if len(several) > 1 else ""
        yield (
            f"Column {feature.name!r} writes {first}{more} in ways that differ in capitals or blanks alone; each "
            "becomes a column of its own. Give each value one spelling, or list all values in "
            f"data.categories.{feature.name} if these are different ones."
        )
