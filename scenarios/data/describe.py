"""A data set in figures: its columns, its classes, what is missing, and what sites would hold of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.data import sources, splits
from scenarios.data.sources import Dataset
from scenarios.schema.errors import ScenarioError, nearest
from scenarios.schema.split import require_split

Line = tuple[str, ...]
_MAX_VALUES = 8


@dataclass(frozen=True)
class Description:
    """Tables of text, a head first: of columns, of classes, and of the sites of a partition."""

    rows: int
    columns: list[Line]
    classes: list[Line]
    sites: list[Line]


def describe(source: str, label: str, split: str, sites: int, base_folder: Path) -> Description:
    """Figures of `source` and of a horizontal split into so many sites. Raises ScenarioError, saying what to change."""
    try:
        require_split(split, "horizontal")
    except ValueError as error:
        raise ScenarioError([f"--split: {error}."]) from None
    table = sources.read_columns(source, base_folder)
    if label not in table:
        raise ScenarioError([f"--label: {source} has no column {label!r}.{nearest(label, table)}"])
    data = sources.load(source, label=label, missing="drop", base_folder=base_folder)
    parts = splits.horizontal(split, data, sites, np.random.default_rng([0, 1]))
    return Description(
        rows=len(table[label]),
        columns=[
            ("column", "holds", "missing", "values"),
            *(_column(name, table[name]) for name in table if name != label),
        ],
        classes=[("class", "rows"), *((name, str(count)) for name, count in sorted(_counts(data.labels)))],
        sites=[("site", "rows", *data.classes), *_sites(data, parts)],
    )


def _column(name: str, values: NDArray[Any]) -> Line:
    """What a column holds: a range of numbers, or its most frequent values."""
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


def _sites(data: Dataset, parts: list[Any]) -> Iterator[Line]:
    for number, part in enumerate(parts, start=1):
        counts = Counter(data.labels[part].tolist())
        yield f"site-{number}", str(len(part)), *(str(counts[name]) for name in data.classes)
