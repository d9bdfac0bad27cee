"""No map: a linear SVM in the scaled columns, which reveals nothing but the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.federation.arrays import FloatArray


@dataclass(frozen=True)
class IdentityMap(FeatureMap):
    """The features of a row are its scaled columns, so many."""

    columns: int

    name = "identity"
    exact = True

    @property
    def kernel(self) -> Kernel:
        """Inner products of rows."""
        return Kernel("linear")

    @property
    def dimensions(self) -> int:
        """p: a feature for each column."""
        return self.columns

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return the rows (n, p)."""
        return rows

    def parts(self) -> dict[str, Any]:
        """Return what makes up the map: the features of a scaled row are its columns.

        Returns
        -------
        dimensions : ()
            Number of columns.
        """
        return {"dimensions": self.columns}

    @classmethod
    def of_parts(cls, fields: Mapping[str, Any]) -> Self:
        """Return the map of the fields of `parts`."""
        return cls(fields["dimensions"])

    def attributes(self, w: FloatArray, b: float | FloatArray, scaling: Scale) -> dict[str, Any]:
        """Return `coef_` (P, p) and `intercept_` (P,) for unscaled rows."""
        return scaling.linear(np.atleast_2d(w), b)
