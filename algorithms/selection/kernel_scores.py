"""The scores of columns for a kernel SVM in the landmarks' features, by its weights and by its dual variables.

With L the landmarks, A = k(L, L), M the map, and k without column j marked by j, a column's score is how much of
|w|^2 it carries, |w|^2 / 2 with it less |w|^2 / 2 without (Guyon and others 2002, for kernels):

    kernel     u_j = sum_i alpha_i y_i k_j(x_i, L),   DJ_j = (u^T A^+ u - u_j^T A_j^+ u_j) / 2,   may be negative
    expansion  the same with the weights beta = M w at the landmarks in place of alpha y at the rows:
               (beta^T A beta - beta^T A_j beta) / 2, which asks no site
    input      (sum_i alpha_i y_i x_ij)^2, equation 5.1 of the PAN-SVM dissertation to the letter; since sum alpha y = 0
               it compares class means weighted by alpha, and is no weight of f

alpha are the dual variables of the interior point, which stay at the sites. Sums over each class are asked for, with
the sum of its alphas: those of the class with more are scaled down, so that sum alpha y = 0 holds exactly.
"""

from __future__ import annotations

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.mapped_rows import MappedRows
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization.path_sums import NewtonPath
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SitePart, step


class DualScores(SitePart):
    """Sums over a site's rows, weighted by their dual variables, of what columns are worth."""

    def __init__(self, site: HorizontalSite, mapped: MappedRows, path: NewtonPath) -> None:
        self._site, self._mapped, self._path = site, mapped, path

    @step
    def dual_columns(self) -> FloatArray:
        """Return the (2, m + 1) sum of alpha of each class, and of alpha y times each column."""
        return self._by_class(self._site.rows)

    @step
    def dual_kernels(self) -> FloatArray:
        """Return the (2, (m + 1) l + 1) sum of alpha of each class, and of alpha y times the kernel at the landmarks:

        with all m columns, and then without each of them.
        """
        if not isinstance(self._mapped.map, NystromMap):
            raise StepRefused("the features are no kernel values at landmarks")
        kernel, landmarks = self._mapped.map.kernel, self._mapped.map.landmarks
        blocks = [kernel(self._site.rows, landmarks)]
        blocks += [without_column(kernel, self._site.rows, landmarks, j) for j in range(self._site.rows.shape[1])]
        return self._by_class(np.hstack(blocks))

    def _by_class(self, values: FloatArray) -> FloatArray:
        """Return for each class the sum of its rows' alpha, and of alpha y times values (n, q)."""
        if self._path.paths is None:
            raise StepRefused("the site lost the path when it was restarted; run again")
        return sums_by_class(self._path.paths.latest[0].alpha, self._site.labels[0], values)


def sums_by_class(alpha: FloatArray, labels: FloatArray, values: FloatArray) -> FloatArray:
    """Return (2, q + 1) for each class the sum of its rows' alpha (n,), and of alpha y times values (n, q)."""
    parts = [(alpha * (labels == sign), sign) for sign in (-1.0, 1.0)]
    return np.array([np.append(share.sum(), sign * (share @ values)) for share, sign in parts])


def without_column(kernel: Kernel, x: FloatArray, y: FloatArray, column: int) -> FloatArray:
    """Return the (n, l) kernel matrix of rows without a column."""
    return kernel(np.delete(x, column, axis=1), np.delete(y, column, axis=1))


def balance(by_class: FloatArray) -> FloatArray:
    """Return (q,) sums of alpha y times something, from those of each class (2, q + 1), with sum alpha y = 0."""
    alphas = np.maximum(by_class[:, 0], np.finfo(float).tiny)
    return np.asarray((alphas.min() / alphas) @ by_class[:, 1:])


def input_scores(federation: Federation, columns: int, bound: float) -> FloatArray:
    """Return (m,) scores of `input`, from one sum."""
    sums = federation.sum("dual_columns", shape=(2, columns + 1), bound=bound)
    return np.asarray(balance(sums) ** 2)


def kernel_scores(federation: Federation, feature_map: NystromMap, bound: float) -> FloatArray:
    """Return (m,) scores of `kernel`, from one sum."""
    count, columns = feature_map.landmarks.shape
    sums = federation.sum("dual_kernels", shape=(2, (columns + 1) * count + 1), bound=bound)
    u = balance(sums).reshape(columns + 1, count)
    kernel, landmarks = feature_map.kernel, feature_map.landmarks
    norms = [_norm(u[0], kernel(landmarks, landmarks))]
    norms += [_norm(u[j + 1], without_column(kernel, landmarks, landmarks, j)) for j in range(columns)]
    return (norms[0] - np.array(norms[1:])) / 2


def _norm(u: FloatArray, among: FloatArray) -> float:
    """Return u^T A^+ u."""
    return float(u @ np.linalg.lstsq(among, u, rcond=1e-10)[0])


def expansion_scores(feature_map: NystromMap, w: FloatArray) -> FloatArray:
    """Return (m,) scores of `expansion`, for weights w in the features."""
    beta, kernel, landmarks = feature_map.mapping @ w, feature_map.kernel, feature_map.landmarks
    whole = beta @ kernel(landmarks, landmarks) @ beta
    columns = range(landmarks.shape[1])
    return np.array([whole - beta @ without_column(kernel, landmarks, landmarks, j) @ beta for j in columns]) / 2
