"""Rows of a table in the columns of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.columns import INDICATED
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.text import quote_names
from fedsvm.scenarios.schema.errors import ScenarioError


@dataclass(frozen=True)
class TableRows:
    """The rows of a table, for a model that takes some of its columns.

    Attributes
    ----------
    source : str
        Name of the table in error messages.
    table : dict of str to array
        Columns (n,): float64 with NaN, or text with "", for missing values.
    spare : set of str
        Columns that the table may have in addition to those of the model.
    filled : dict of str to float
        Replacement of missing numbers, by column, if the run filled them; text may then be missing too.
    left_out : sequence of str
        Columns of the run that the model does not use. The table may have them.
    takes_unknown : bool
        Whether a category that the model does not know counts as missing.
    """

    source: str
    table: dict[str, NDArray[Any]]
    spare: set[str]
    filled: dict[str, float]
    left_out: Sequence[str] = ()
    takes_unknown: bool = False

    def origins(self, wanted: Sequence[str]) -> dict[str, str]:
        """Return for each of the model's columns the column of the table from which it is computed."""
        return {name: self._origin(name) for name in wanted}

    def categories(self, wanted: Sequence[str]) -> dict[str, list[str]]:
        """Return the categories that the run knew, by column."""
        categories: dict[str, list[str]] = {}
        for name in (*wanted, *self.left_out):
            if (of := self._origin(name)) != name and not self._is_indicator(name):
                categories.setdefault(of, []).append(name.partition("=")[2])
        return categories

    def take(self, wanted: list[str]) -> FloatArray:
        """Return the model's columns (n, p); "column=value" is 0 or 1, unless the table has a column of that name.

        Raises ScenarioError for columns that are missing, unexpected, or of another kind than in the run.
        """
        if problems := list(self._misfits(self.origins(wanted))):
            raise ScenarioError(problems)
        return np.column_stack([self._column(name) for name in wanted]).astype(np.float64)

    def _origin(self, name: str) -> str:
        """Return the column of the table from which a column of the model is computed."""
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
