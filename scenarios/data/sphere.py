"""Rows on a sphere that a plane through its centre tells apart, drawn to measure: `made-sphere:rows=2000,margin=0.03`.

As in Monteleoni's slides on private learning, which name dimension, margin and whether rows are separable, and no more:
x uniform on the unit sphere of `columns` dimensions, without those nearer to the plane than `margin`; the class is the
side of it, and a share of `flipped` has the other one. `draw` is the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.scenarios.schema.errors import ScenarioError

NAME = "made-sphere"
PREFIX = f"{NAME}:"

_MAX_ROWS, _MAX_COLUMNS, _MAX_MARGIN = 1_000_000, 1000, 0.5


@dataclass(frozen=True)
class Sphere:
    """The parameters of a draw."""

    rows: int = 10_000
    columns: int = 10
    margin: float = 0.0
    flipped: float = 0.0
    draw: int = 1

    @classmethod
    def read(cls, source: str) -> Sphere:
        """Parse a source such as "made-sphere:rows=2000,margin=0.03". Raises ScenarioError for anything else."""
        kinds: dict[str, Callable[[str], Any]] = {each.name: type(each.default) for each in fields(cls)}
        given: dict[str, Any] = {}
        for part in source.removeprefix(PREFIX).split(","):
            name, _, text = part.partition("=")
            try:
                given[name] = kinds[name](text)
            except (KeyError, ValueError):
                raise ScenarioError([f"data.source: {source!r} must be written {cls._form()}."]) from None
        found = cls(**given)
        if problem := found._problem():
            raise ScenarioError([f"data.source: {source!r} must have {problem}."])
        return found

    @classmethod
    def _form(cls) -> str:
        return f"{PREFIX}{','.join(f'{each.name}={each.default}' for each in fields(cls))}, each of them if need be"

    def _problem(self) -> str:
        if not 2 <= self.rows <= _MAX_ROWS or not 2 <= self.columns <= _MAX_COLUMNS:
            return f"2 to {_MAX_ROWS} rows and 2 to {_MAX_COLUMNS} columns"
        if not 0 <= self.margin <= _MAX_MARGIN or not 0 <= self.flipped < 0.5 or self.draw < 0:
            return f"a margin of 0 to {_MAX_MARGIN}, a flipped share below 0.5, and a draw from 0"
        return ""

    def columns_by_name(self) -> dict[str, NDArray[Any]]:
        """Return the columns x1 …, and the label: above or below the plane."""
        random = np.random.default_rng([2011, self.draw])
        normal = _on_sphere(random.normal(size=(1, self.columns)))[0]
        found = np.zeros((0, self.columns))
        while len(found) < self.rows:
            drawn = _on_sphere(random.normal(size=(self.rows, self.columns)))
            found = np.vstack([found, drawn[np.abs(drawn @ normal) >= self.margin]])
        rows = found[: self.rows]
        above = (rows @ normal > 0) ^ (random.random(self.rows) < self.flipped)
        columns = {f"x{number}": rows[:, number - 1] for number in range(1, self.columns + 1)}
        return columns | {"label": np.where(above, "above", "below")}


def _on_sphere(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
