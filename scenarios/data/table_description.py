"""A data set in figures: its columns, its classes, what is missing, and what sites would hold of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import IntArray
from fedsvm.scenarios.data import categories, proposals, sources, splits, text_form
from fedsvm.scenarios.data.categories import require_few, warnings
from fedsvm.scenarios.data.file_join import site_names
from fedsvm.scenarios.data.label_classes import obvious_positive
from fedsvm.scenarios.data.tables import Dataset, Feature, Table
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.split import require_split

Line = tuple[str, ...]
_MAX_VALUES = 8
_MAX_COLUMNS, _MAX_CLASSES, _MAX_SITES = 100, 100, 100
"""Of more, the others are counted."""

_AND_MORE = "others"


@dataclass(frozen=True)
class TableDescription:
    """Tables of text, a head first: of columns, of classes, and of the sites of a partition.

    width: the number of columns without the label. warnings: sentences about columns that may not be meant so.
    """

    rows: int
    width: int
    columns: list[Line]
    classes: list[Line]
    sites: list[Line]
    warnings: tuple[str, ...]


def describe(
    source: str, label: str, split: str, sites: int, base_folder: Path, site: str | None = None
) -> TableDescription:
    """Return figures of `source` and of a horizontal split into this number of sites, or by the column `site`.

    Raises ScenarioError, saying what to change.
    """
    try:
        require_split(split, "horizontal")
    except ValueError as error:
        raise ScenarioError([f"--split: {error}."]) from None
    table = sources.read(source, base_folder)
    if label not in table.columns:
        raise ScenarioError([f"--label: {sources.lacks(table, label)}"])
    if site is not None and site not in table.columns:
        raise ScenarioError([f"--site: {sources.lacks(table, site)}"])
    data, obstacles = _rows_to_count(table, label, site)
    names_of_sites, parts = _parts(data, split, sites, site)
    names = [name for name in table.columns if name != label]
    classes = sorted(_counts(data.labels))
    shown = [name for name, _ in classes[:_MAX_VALUES]]
    return TableDescription(
        rows=data.rows + data.dropped + data.unlabeled,
        width=len(names),
        columns=[
            ("column", "holds", "missing", "values"),
            *(_column(name, table.columns[name]) for name in names[:_MAX_COLUMNS]),
            *_others([table.columns[name] for name in names[_MAX_COLUMNS:]]),
        ],
        classes=[
            ("class", "rows"),
            *((name, str(count)) for name, count in classes[:_MAX_CLASSES]),
            *_more_classes(classes[_MAX_CLASSES:]),
        ],
        sites=[
            ("site", "rows", *shown, *([_AND_MORE] if len(classes) > len(shown) else [])),
            *_sites(data, names_of_sites, parts, shown),
        ],
        warnings=tuple(_notes(data, label, site, obstacles)),
    )


def _rows_to_count(table: Table, label: str, site: str | None) -> tuple[Dataset, tuple[str, ...]]:
    """Return the rows to count classes and sites over, and the obstacles to using all of them, in sentences.

    These are the complete rows, or where they will not do, all that have a class.
    """
    try:
        return sources.choose(table, label=label, missing="drop", classes=None), ()
    except ScenarioError as error:
        return _classify(table, label, site), error.problems


def _classify(table: Table, label: str, site: str | None) -> Dataset:
    """Return the rows that have a class, complete or not. Raises ScenarioError if there are none."""
    known = ~np.logical_or.reduce([sources.gaps(table.columns[name]) for name in {label, site or label}])
    part = replace(table, columns={name: values[known] for name, values in table.columns.items()})
    return replace(sources.choose(part, label=label, missing="mean", classes=None), dropped=int((~known).sum()))


def _parts(data: Dataset, split: str, sites: int, site: str | None) -> tuple[list[str], list[IntArray]]:
    """Return the names of the sites, and the rows of each; as many sites as there are rows, if these are fewer."""
    if site is None:
        sites = min(sites, data.rows)
        parts = splits.horizontal(split, data, sites, np.random.default_rng([0, 1]))
        return [f"site-{number}" for number in range(1, sites + 1)], parts
    values = next(feature.values for feature in data.features if feature.name == site)
    named = site_names(sources.as_text(values))
    names = sorted(set(named.tolist()))
    return names, splits.by_site(named, names)


def _notes(data: Dataset, label: str, site: str | None, obstacles: Sequence[str]) -> Iterator[str]:
    """Yield how text was read, which class would be +1, and suspicious columns."""
    if data.table is not None:
        yield from text_form.notes(data.table.forms)
    spelling = sources.spelling_problem(data, label)
    yield from (f"To be refused: {problem}" for problem in [*obstacles, *([spelling] if spelling else [])])
    if data.unlabeled:
        yield f"{data.unlabeled} rows have no label; data.unlabeled decides about them."
    if obstacles:
        yield f"Classes and sites are counted over the {data.rows} rows that have a class, complete or not."
    elif data.dropped:
        yield (
            f"{data.rows} of {data.rows + data.dropped + data.unlabeled} rows are complete, and classes and sites are "
            "counted over these alone; data.missing decides about the others."
        )
    if len(data.classes) == 2:
        chosen = obvious_positive(data.classes)
        plain = f"Class {chosen!r} is +1, unless data.positive names another."
        yield plain if chosen is not None else "data.positive must name the class that is +1."
    yield from _notes_on_columns(data if data.table is None else _classify(data.table, label, site), label, site)


def _notes_on_columns(data: Dataset, label: str, site: str | None) -> Iterator[str]:
    """Yield columns that would be refused, and then suspicious ones."""
    doubts: list[str] = []
    named = next((feature.values for feature in data.features if feature.name == site), np.full(data.rows, ""))
    sites = sources.as_text(named)
    for feature in data.features:
        if feature.name != site:
            alone = replace(data, features=(feature,))
            try:
                require_few(alone, (), agreed=True)
            except ScenarioError as error:
                yield from (f"To be refused: {problem}" for problem in error.problems)
            else:
                doubts += warnings(alone)
                parts = _by_site(feature, sites)
                if not categories.looks_identifying(data, feature):
                    doubts += proposals.notes(feature.name, parts)
                if clause := proposals.constant(parts):
                    doubts.append(f"Column {feature.name!r} {clause}.")
    if len(data.labels):
        doubts += proposals.notes(label, _by_site(Feature(label, data.labels), sites), is_label=True)
    yield from doubts


def _by_site(feature: Feature, sites: NDArray[np.str_]) -> dict[str, NDArray[Any]]:
    """Return the values of a column by the site whose rows they are; in one part without sites."""
    return {site: feature.values[sites == site] for site in np.unique(sites).tolist()}


def _others(columns: Sequence[NDArray[Any]]) -> Iterator[Line]:
    """Yield lines for the columns that are not shown one by one, by content."""
    for kind, holds in (("f", "numbers"), ("U", "text")):
        of_kind = [values for values in columns if values.dtype.kind == kind]
        missing = sum(int(sources.gaps(values).sum()) for values in of_kind)
        if of_kind:
            yield f"and {len(of_kind)} more", holds, str(missing), ""


def _more_classes(classes: Sequence[tuple[str, int]]) -> Iterator[Line]:
    if classes:
        yield f"and {len(classes)} more", str(sum(count for _, count in classes))


def _column(name: str, values: NDArray[Any]) -> Line:
    """Return the content of a column: a range of numbers, or its most frequent values."""
    if values.dtype.kind == "U":
        known = values[values != ""]
        found = [f"{value} ({count})" for value, count in _counts(known)]
        more = [f"and {len(found) - _MAX_VALUES} more"] if len(found) > _MAX_VALUES else []
        return name, "text", str(len(values) - len(known)), ", ".join([*found[:_MAX_VALUES], *more])
    known = values[~np.isnan(values)]
    spread = f"{known.min():g} to {known.max():g}, {len(np.unique(known))} different" if len(known) else ""
    return name, "numbers", str(len(values) - len(known)), spread


def _counts(values: NDArray[Any]) -> list[tuple[str, int]]:
    return [(str(value), count) for value, count in Counter(values.tolist()).most_common()]


def _sites(data: Dataset, names: list[str], parts: list[IntArray], classes: Sequence[str]) -> Iterator[Line]:
    """Yield the rows of each site, by class; other classes together."""
    for name, part in zip(names[:_MAX_SITES], parts, strict=False):
        counts = Counter(data.labels[part].tolist())
        listed = [counts[each] for each in classes]
        others = [len(part) - sum(listed)] if len(data.classes) > len(classes) else []
        yield name, str(len(part)), *map(str, [*listed, *others])
    if len(parts) > _MAX_SITES:
        yield f"and {len(parts) - _MAX_SITES} more", str(sum(map(len, parts[_MAX_SITES:])))
