"""The model: the kernel, the coefficients of the support records, and these records if all columns are here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, TrainingReport, VerticalModel
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.kernel_expansion import KernelExpansion
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.federation.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class DppModel(VerticalModel):
    """The model f(x) = sum over s support records of coefficient * k(x, record), plus the intercept.

    With the low-rank variant the landmarks take the place of the support records.

    Attributes
    ----------
    kernel : Kernel
        The kernel k.
    support_indices : (s,)
        Numbers of the training records that are the support, or the landmarks.
    dual_coef : (s,) or (K, s)
        Their coefficients; for K > 2 classes, one row for each class.
    intercept : float or (K,)
        Intercepts.
    fitted : (n,) or (n, K)
        Decision values of the training records; empty for a model that was read from a file.
    max_squared_norm : float
        Upper bound on the squared length of any record.
    training : TrainingReport, optional
        Report of the training.
    reference : (s, p), optional
        Support records, scaled, which the sites keep, split by columns; None unless all columns are here.
    """

    kernel: Kernel
    support_indices: IntArray
    dual_coef: FloatArray
    intercept: float | FloatArray
    fitted: FloatArray
    max_squared_norm: float
    training: TrainingReport | None = None
    reference: FloatArray | None = None

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p) with all columns; (n, K) for more than two classes."""
        if self.reference is None:
            raise ValueError("the model must be joined with the sites' parts, got the coordinator's alone")
        return np.asarray(self.kernel(rows, self.reference) @ self.dual_coef.T + self.intercept)

    def join_parts(self, rows: FloatArray, held: IntArray | None = None) -> DppModel:
        """Return the whole model, for a caller with all columns; see `VerticalModel.join_parts`."""
        return replace(self, reference=rows[self.support_indices])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the coordinator's file, with the kernel. The records stay at the sites, split by columns.

        The decision value of a scaled row x is k(x, reference) dual_coef + b. The sites hold `reference`.

        Returns
        -------
        support_indices : (s,)
            Numbers of the training records that are the support, or the landmarks.
        dual_coef : (s,) or (K, s)
            Their coefficients; of K > 2 classes, one row for each class.
        b : () or (K,)
            Intercepts.
        """
        arrays = {"support_indices": self.support_indices, "dual_coef": self.dual_coef, "b": np.array(self.intercept)}
        return {**arrays, **self.kernel.to_arrays()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in the coordinator's file and the sites' files."""
        kernel, reference = Kernel.from_arrays(arrays), np.hstack([part["reference"] for part in parts])
        indices, weights, b = arrays["support_indices"], arrays["dual_coef"], arrays["b"]
        intercept = b if b.ndim else float(b)
        return cls(kernel, indices, weights, intercept, np.zeros(0), float("inf"), None, reference)

    @classmethod
    def expansion_of(cls, arrays: Arrays) -> KernelExpansion:
        """Return the decision values as sums of kernel values; see `VerticalModel.expansion_of`."""
        return KernelExpansion(Kernel.from_arrays(arrays), arrays["dual_coef"], arrays["b"])

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return `support_` (s,), `dual_coef_` (P, s), `intercept_` (P,), and with all columns `reference_` (s, p).

        With a linear kernel, also `coef_`; both are then in the units of the unscaled columns.
        """
        weights, intercept = np.atleast_2d(self.dual_coef), np.atleast_1d(self.intercept)
        shown: dict[str, Any] = {"support_": self.support_indices, "dual_coef_": weights, "intercept_": intercept}
        if self.reference is None:
            return shown
        shown["reference_"] = self.reference
        if self.kernel.name != "linear":
            return shown
        return shown | scaling.linear(weights @ self.reference, self.intercept)
