"""Columns of a source, and how rows in them become the scaled rows that a model is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algorithms.data.encoding import Vocabulary
from algorithms.data.scaling import Scale
from federation.arrays import FloatArray


class Labelled(NamedTuple):
    """Rows (n, p) on the common scale, and their labels (n,) of +1 and -1."""

    rows: FloatArray
    labels: FloatArray


@dataclass(frozen=True)
class Schema:
    """Names of numeric and of categorical columns, and the values of those whose values are declared."""

    numeric: Sequence[str]
    categorical: Sequence[str] = ()
    declared: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Columns:
    """What rows become: numeric columns, then a 0/1 column for each value of a categorical one, on the common scale."""

    numeric: Sequence[str]
    vocabulary: Vocabulary
    scale: Scale

    @property
    def names(self) -> list[str]:
        """Names of the columns, of which those of categories are "column=value"."""
        return [*self.numeric, *self.vocabulary.columns]

    def __call__(self, numeric: FloatArray, categorical: NDArray[np.str_]) -> FloatArray:
        """(n, p) scaled rows of numeric columns (n, q) and categorical ones (n, r) as text."""
        return self.scale(self.vocabulary.encode(numeric, categorical))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Their part of a model's file."""
        return {"offset": self.scale.offset, "scale": self.scale.scale, "columns": np.array(self.names)}
