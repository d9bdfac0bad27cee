"""Decision values that are sums of kernel values against some records."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.federation.arrays import FloatArray


def digest_of(dual_coef: FloatArray) -> str:
    """Return a name of a model among others: a digest of its coefficients."""
    return hashlib.sha256(np.ascontiguousarray(dual_coef).tobytes()).hexdigest()


@dataclass(frozen=True)
class KernelExpansion:
    """f(x) = sum over s records of coefficient * k(x, record), plus the intercept.

    dual_coef: (s,), and the intercept one number; of K > 2 classes (K, s) and (K,).
    """

    kernel: Kernel
    dual_coef: FloatArray
    intercept: FloatArray

    @property
    def largest(self) -> float:
        """The largest sum of absolute coefficients of a class."""
        return float(np.abs(self.dual_coef).sum(axis=-1).max())

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of the decision values of this number of rows."""
        return (rows, *self.dual_coef.shape[:-1])

    def scores_of_sums(self, sums: FloatArray) -> FloatArray:
        """Return decision values without the intercept, from (n, s) inner products or squared distances."""
        return np.asarray(self.kernel.of_sums(sums) @ self.dual_coef.T)

    def to_settings(self) -> dict[str, Any]:
        """Return the kernel, the intercept and the digest as settings of agreed terms."""
        return {
            **self.kernel.to_named_fields(),
            "intercept": self.intercept.tolist(),
            "model": digest_of(self.dual_coef),
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], dual_coef: FloatArray) -> Self:
        """Return the expansion from settings and the coefficients, which a site has."""
        return cls(Kernel.from_named_fields(settings), dual_coef, np.array(settings["intercept"]))
