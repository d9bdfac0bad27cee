"""Tables of rows: columns as read, and data sets with labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.scenarios.data.text_form import TextForm


@dataclass(frozen=True)
class Feature:
    """One column: float64 values, or text for a categorical one; (n,)."""

    name: str
    values: FloatArray | NDArray[np.str_]

    @property
    def categorical(self) -> bool:
        return self.values.dtype.kind == "U"


@dataclass(frozen=True)
class Dataset:
    """A table. labels (n,) are text, also where the source has numbers.

    dropped: rows removed for missing values. unlabeled: rows removed beforehand because they have no label.
    identifiers (n,): text that tells which rows of different tables are the same; empty where none were asked for.
    sites (n,): the site that each row is of; empty where the source does not say. tested (n,): whether it is of the
    source of test rows; empty where there is none. elsewhere (n,): whether it is of the population of public rows;
    empty where that is the one of private rows. weights (n,): of losses; empty where all are 1. origin (n,): which
    row of `table`, counted from 0, each row is.
    """

    name: str
    features: tuple[Feature, ...]
    labels: NDArray[np.str_]
    dropped: int = 0
    unlabeled: int = 0
    identifiers: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, dtype=np.str_))
    sites: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, dtype=np.str_))
    tested: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    elsewhere: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    origin: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    table: Table | None = None

    @property
    def rows(self) -> int:
        return len(self.labels)

    def place(self, row: int) -> str:
        """Return the location of a row, given from 0, in its source, counted from 1."""
        return f"row {row + 1}" if self.table is None else self.table.place(int(self.origin[row]))

    @property
    def classes(self) -> list[str]:
        """The distinct labels, sorted."""
        return sorted(set(self.labels.tolist()))

    def take(self, indices: IntArray | NDArray[np.bool_]) -> Dataset:
        """Return the table with only these rows."""
        features = tuple(Feature(feature.name, feature.values[indices]) for feature in self.features)
        by_row = {
            name: getattr(self, name) for name in ("identifiers", "sites", "tested", "elsewhere", "weights", "origin")
        }
        kept = {name: values[indices] if len(values) else values for name, values in by_row.items()}
        return replace(self, features=features, labels=self.labels[indices], **kept)


@dataclass(frozen=True)
class Table:
    """Columns as read, before a label is chosen: float64 with NaN, or text with "" for missing values.

    parts: names and numbers of rows of the tables that it is put together from. forms: how text was read, by the name
    of the file. sites, tested, elsewhere: see `Dataset`.
    """

    name: str
    columns: dict[str, NDArray[Any]]
    parts: tuple[tuple[str, int], ...] = ()
    forms: Mapping[str, TextForm] = field(default_factory=dict)
    sites: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, dtype=np.str_))
    tested: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    elsewhere: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def place(self, row: int) -> str:
        """Return the location of a row, given from 0, in its source, counted from 1."""
        for name, rows in self.parts:
            if row < rows:
                return f"row {row + 1} of {name}"
            row -= rows
        return f"row {row + 1}"
