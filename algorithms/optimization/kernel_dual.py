"""The dual of a kernel SVM, solved by LIBSVM at whoever has the kernel matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.solution import relative_gap
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import FederationError
from fedsvm.federation.processes.memory import available_bytes


@dataclass(frozen=True)
class Dual:
    """One dual, solved: the support and its coefficients (s,), and what is certified of it."""

    support: IntArray
    coefficients: FloatArray
    intercept: float
    objective: float
    bound: float
    iterations: int
    converged: bool

    @property
    def gap(self) -> float:
        """(objective - bound) / objective."""
        return relative_gap(self.objective, self.bound)

    @classmethod
    def of(cls, matrix: FloatArray, labels: FloatArray, C: float) -> Self:
        """Solve the dual by LIBSVM for a kernel matrix (n, n). Labels of one class need no solution."""
        if len(np.unique(labels)) < 2:
            return cls(np.zeros(0, dtype=np.int64), np.zeros(0), float(labels[0]), 0.0, 0.0, 0, converged=True)
        solver = libsvm.dual(matrix, labels, C)
        support, dual_coef, intercept = solver.support_, solver.dual_coef_[0], float(solver.intercept_[0])
        without_intercept = matrix[:, support] @ dual_coef
        squared_norm = float(dual_coef @ without_intercept[support])
        hinge = float(np.maximum(0.0, 1.0 - labels * (without_intercept + intercept)).sum())
        objective, bound = 0.5 * squared_norm + C * hinge, float(np.abs(dual_coef).sum()) - 0.5 * squared_norm
        iterations, converged = int(np.max(solver.n_iter_)), solver.fit_status_ == 0
        return cls(support.astype(np.int64), dual_coef, intercept, objective, bound, iterations, converged)


def check_memory(rows: int) -> None:
    """Raise FederationError where the (n, n) matrix and LIBSVM's cache do not fit the memory at hand."""
    needed, at_hand = kernel_bytes(rows), available_bytes()
    if needed > at_hand:
        raise FederationError(
            f"The kernel matrix of {rows} records takes {needed / 2**30:.1f} GiB and {at_hand / 2**30:.1f} GiB are at "
            "hand; train the low-rank variant, by algorithm.landmarks = 500 or so."
        )


def kernel_bytes(rows: int) -> int:
    """Return the memory of the exact dual for this number of records at the coordinator."""
    return 8 * rows * rows + (libsvm.CACHE_MB << 20)
