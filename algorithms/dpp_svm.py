"""DPP-SVM (Que, Jiang and Ohno-Machado 2012): the exact SVM over a vertical partition, with any additive kernel.

The sites' partial kernels are summed, the coordinator solves the dual as LIBSVM does, and the rows to predict are
scored by sums of the sites' parts again. The model equals the one that pooled rows give: the paper shows it for linear
kernels, and its server sees every site's matrix; here it is any kernel of inner products or distances, and the
coordinator sees sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms.kernels import Kernel
from algorithms.vertical import VerticalSite
from federation.arrays import FloatArray, IntArray
from federation.coordinator import Federation
from federation.program import step
from protocols.kernel_exchange import packed_size, partial_kernel, row_blocks, unpack

LIBSVM_TOLERANCE = 1e-10
_CACHE_MB = 500
_TEST_ELEMENTS = 1 << 18


@dataclass(frozen=True)
class DppModel:
    """The dual solution: indices of the support rows (s,) among the training rows, alpha y (s,), and b.

    reach: a bound on the squared length of any row.
    """

    kernel: Kernel
    support: IntArray
    coefficients: FloatArray
    intercept: float
    reach: float


class DppSite(VerticalSite):
    """The site half."""

    @step
    def kernel_rows(self, first: int, last: int, distances: bool) -> FloatArray:
        """This site's part of some rows of the kernel of the training rows, packed."""
        return partial_kernel(self.rows[self.training], first, last, distances=distances)

    @step
    def receive_support(self, support: IntArray, coefficients: FloatArray) -> None:
        """Keep the support rows, and with them this site's weights: W_p = sum alpha y x_p."""
        self.support = self.rows[self.training][support]
        self.weights = coefficients @ self.support

    @step
    def partial_scores(self) -> FloatArray:
        """(n held out,): this site's part of the linear scores."""
        return np.asarray(self.rows[~self.training] @ self.weights)

    @step
    def support_kernel(self, first: int, last: int, distances: bool) -> FloatArray:
        """(rows, s): this site's part of the kernel between some held out rows and the support rows."""
        rows = self.rows[~self.training][first:last]
        inner = rows @ self.support.T
        if not distances:
            return np.asarray(inner)
        return np.asarray((rows**2).sum(axis=1)[:, None] + (self.support**2).sum(axis=1)[None, :] - 2.0 * inner)


def exchange_kernel(federation: Federation, kernel: Kernel, rows: int, reach: float) -> FloatArray:
    """The (n, n) kernel of the training rows. `reach` bounds the squared length of any row."""
    sums = np.empty((rows, rows))
    for first, last in row_blocks(rows):
        shape = (packed_size(rows, first, last),)
        terms = {"first": first, "last": last, "distances": kernel.of_distances}
        unpack(federation.sum("kernel_rows", shape=shape, bound=4.0 * reach, **terms), first, last, sums)
    return kernel.of_sums(sums)


def train(federation: Federation, kernel: Kernel, C: float, rows: int) -> DppModel:
    """The exact dual solution over the training rows that the sites hold ready."""
    from sklearn.svm import SVC  # noqa: PLC0415 - sites share this module and have no use for it

    reach = reach_of(federation)
    matrix = exchange_kernel(federation, kernel, rows, reach)
    labels = np.sign(federation.sum("labels_of_training", shape=(rows,), bound=float(len(federation.sites))))
    solved = SVC(C=C, kernel="precomputed", tol=LIBSVM_TOLERANCE, cache_size=_CACHE_MB).fit(matrix, labels)
    support, intercept = solved.support_.astype(np.int64), float(solved.intercept_[0])
    model = DppModel(kernel, support, solved.dual_coef_[0], intercept, reach)
    federation.run("receive_support", remember=True, support=model.support, coefficients=model.coefficients)
    return model


def decision_values(federation: Federation, model: DppModel, rows: int) -> FloatArray:
    """(n,) for the rows that the sites hold out. Of a linear kernel the coordinator learns the scores alone."""
    if model.kernel.name == "linear":
        bound = max(1.0, float(np.abs(model.coefficients).sum()) * model.reach)
        return federation.sum("partial_scores", shape=(rows,), bound=bound) + model.intercept
    height = max(1, _TEST_ELEMENTS // max(1, len(model.support)))
    scores = []
    for first in range(0, rows, height):
        last = min(rows, first + height)
        terms = {"first": first, "last": last, "distances": model.kernel.of_distances}
        shape = (last - first, len(model.support))
        sums = federation.sum("support_kernel", shape=shape, bound=4.0 * model.reach, **terms)
        scores.append(model.kernel.of_sums(sums) @ model.coefficients + model.intercept)
    return np.concatenate(scores) if scores else np.zeros(0)


def reach_of(federation: Federation) -> float:
    """A bound on the squared length of any row: the sum of the sites' longest parts."""
    return float(federation.sum("longest", shape=(), bound=np.inf)) * (1 + 1e-9) + 1e-9
