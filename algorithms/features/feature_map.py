"""The interface of a feature map, which maps a row to the features in which a linear model is trained.

There are three, by what they are made of: `nystrom` (points that stand for the rows, from data), `fourier` (random
frequencies, from none) and `identity` (nothing: the columns themselves).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.federation.arrays import FloatArray


class FeatureMap(ABC):
    """Rows (n, p) to features (n, m), whose inner products are a kernel's values or approximate them.

    Attributes
    ----------
    name : str
        What a scenario calls it.
    exact : bool
        Whether inner products of features are the kernel itself.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = False

    @property
    @abstractmethod
    def kernel(self) -> Kernel:
        """The kernel that inner products of features stand for."""

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """m: how many features a row has."""

    @abstractmethod
    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return (n, m) features of scaled rows (n, p)."""

    @abstractmethod
    def parts(self) -> dict[str, Any]:
        """Return plain values and float arrays that define the map, with names that are unique in a model's file."""

    @classmethod
    @abstractmethod
    def of_parts(cls, fields: Mapping[str, Any]) -> Self:
        """Return the map of these parts, ignoring other fields."""

    @abstractmethod
    def attributes(self, w: FloatArray, b: float | FloatArray, scaling: Scale) -> dict[str, Any]:
        """Return an estimator's attributes for weights w (m,) and intercept b, or (P, m) and (P,) of P problems.

        See `Model.attributes`.
        """

    def to_fields(self) -> dict[str, Any]:
        """Return what is sent to sites: the parts, and the name as `features`."""
        return {"features": self.name, **self.parts()}

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the map as a model's file holds it, with its parts; plain values are arrays of no dimension.

        Returns
        -------
        features : text
            Which map it is: "landmarks", "fourier" or "identity".
        """
        return {name: np.asarray(value) for name, value in self.to_fields().items()}
