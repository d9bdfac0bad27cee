"""What a feature map is: numbers of a row alone, in which a linear model is trained.

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
        """(n, m) features of scaled rows (n, p)."""

    @abstractmethod
    def parts(self) -> dict[str, Any]:
        """Plain values and float arrays that make it up, by names that a model's file has for nothing else."""

    @classmethod
    @abstractmethod
    def of_parts(cls, fields: Mapping[str, Any]) -> Self:
        """The map of these parts; what else there is among the fields is left alone."""

    @abstractmethod
    def attributes(self, w: FloatArray, b: float | FloatArray, scaling: Scale) -> dict[str, Any]:
        """What an estimator shows of the model with weights w (m,) and intercept b, or (P, m) and (P,) of P problems.

        See `Model.attributes`.
        """

    def to_fields(self) -> dict[str, Any]:
        """What sites are told: its parts, and its name as `features`."""
        return {"features": self.name, **self.parts()}

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the map as a model's file holds it, with its parts; plain values are arrays of no dimension.

        Returns
        -------
        features : text
            Which map it is: "landmarks", "fourier" or "identity".
        """
        return {name: np.asarray(value) for name, value in self.to_fields().items()}
