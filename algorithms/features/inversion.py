"""Rows from their features: what a coordinator that knows the landmarks and the map makes of the features of one row.

Features f = k(x, L) M give the kernel values, k(x, L) = f M^+, as far as the map kept the kernel's eigenvectors. Each
value gives a squared distance to a landmark, or an inner product with it, and these are linear in x (and in |x|^2):

    |x - l|^2 = -log k(x, l) / gamma  =  |x|^2 - 2 x.l + |l|^2

Whoever does this knows whether it came out right: features computed again from the row are those that were given, and
those of two rows or more, added up, are no row's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.federation.arrays import FloatArray

CHECKED_WITHIN = 1e-7
"""Features that are computed again from a row differ by less, in every entry."""

DETERMINED_WITHIN = 1e-5
"""In units of the scaled columns: a difference of the size that is left in the features moves the row by less."""

_LOOSE = 1e-3
"""The tolerance of kernel values for the eigenvectors that the map has dropped."""

_NEAR = 0.03
"""Newton's steps are for rows whose features differ by less."""

_EXACT = 1e-12
"""And by more."""

_NEWTON_STEPS = 4
_RIDGE = 1e-13
"""What is added to least squares, relative to their size, so that they have a solution."""

_NEGLIGIBLE = 1e-8
"""Kernel values below it say nothing of a distance that rounding has not said."""

_BATCH_ELEMENTS = 4_000_000


class InvertedRows(NamedTuple):
    """Rows (k, p), which of the features that were given they are of, indices (k,), and how well these come out again.

    residuals: (k,), the largest difference of an entry.
    """

    rows: FloatArray
    of: NDArray[np.intp]
    residuals: FloatArray


@dataclass(frozen=True)
class NystromInverse(NystromMap):
    """The map by landmarks, and back."""

    def invert(self, features: FloatArray) -> InvertedRows:
        """Return the rows of features (n, m), for those that belong to a single row.

        The check needs no truth: features computed again differ by less than 1e-7, and by so little that they determine
        the row to 1e-5. Of other kernels than rbf a row is found only where the landmarks span all columns, since what
        is orthogonal to them leaves no trace.
        """
        found = [self._invert(features[part], part) for part in self._batches(self._plausible(features))]
        return InvertedRows(
            np.concatenate([self.landmarks[:0], *(each.rows for each in found)]),
            np.concatenate([np.zeros(0, dtype=np.intp), *(each.of for each in found)]),
            np.concatenate([np.zeros(0), *(each.residuals for each in found)]),
        )

    def _batches(self, which: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        size = max(1, _BATCH_ELEMENTS // (len(self.landmarks) * (self.basis.shape[1] + 1)))
        for first in range(0, len(which), size):
            yield which[first : first + size]

    def _plausible(self, features: FloatArray) -> NDArray[np.intp]:
        """Return which features may belong to one row, by the size of its kernel values, which most sums exceed."""
        if not self.kernel.of_distances:
            return np.arange(len(features))
        short = np.flatnonzero(np.einsum("ij,ij->i", features, features) < 1.0 + _LOOSE)
        values = features[short] @ self._to_kernel
        return short[(values > -_LOOSE).all(axis=1) & (values < 1.0 + _LOOSE).all(axis=1)]

    def nearest(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return rows (n, p) with features near those given (n, m), and the differences (n,), unchecked."""
        values = features @ self._to_kernel
        rows = self._from_distances(values) if self.kernel.of_distances else self._from_inner_products(values)
        residuals = self._differ(rows, features)
        for _ in range(_NEWTON_STEPS):
            near = np.flatnonzero((residuals < _NEAR) & (residuals > _EXACT))
            rows[near] = self._newton(rows[near], features[near])
            residuals[near] = self._differ(rows[near], features[near])
        return rows, residuals

    def _invert(self, features: FloatArray, of: NDArray[np.intp]) -> InvertedRows:
        rows, residuals = self.nearest(features)
        kept = np.flatnonzero(residuals < CHECKED_WITHIN)
        if len(kept):
            weakest = np.linalg.svd(self.jacobian(rows[kept]), compute_uv=False)[:, -1]
            kept = kept[residuals[kept] < DETERMINED_WITHIN * weakest]
        return InvertedRows(rows[kept], of[kept], residuals[kept])

    def _differ(self, rows: FloatArray, features: FloatArray) -> FloatArray:
        """Return (n,) the differences between features computed from rows and given ones."""
        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.abs(self(rows) - features).max(axis=1, initial=0.0)
        return np.where(np.isfinite(apart), apart, np.inf)

    @cached_property
    def _to_kernel(self) -> FloatArray:
        """(m, l): from features back to kernel values."""
        return np.asarray(np.linalg.pinv(self.mapping))

    @cached_property
    def _centre(self) -> FloatArray:
        return np.asarray(self.landmarks.mean(axis=0))

    @cached_property
    def basis(self) -> FloatArray:
        """(p, r): orthonormal, of the directions that kernel values tell of: of distances, where landmarks differ."""
        if not self.kernel.of_distances:
            return np.eye(self.landmarks.shape[1])
        apart = self.landmarks - self._centre
        _, sizes, directions = np.linalg.svd(apart, full_matrices=False)
        return np.asarray(directions[sizes > 1e-9 * max(1.0, float(sizes[0]))].T)

    def _from_distances(self, values: FloatArray) -> FloatArray:
        """Return rows (n, p) from rbf kernel values (n, l), by least squares weighted by certainty."""
        points = (self.landmarks - self._centre) @ self.basis
        weights = np.where(values > _NEGLIGIBLE, values, 0.0)
        squared = -np.log(np.clip(values, _NEGLIGIBLE, None)) / self.kernel.gamma
        # |x|^2 - 2 x.l = |x - l|^2 - |l|^2, for the unknowns x in the basis and |x|^2
        design = np.hstack([-2.0 * points, np.ones((len(points), 1))])
        right = squared - (points**2).sum(axis=1)
        weighted = weights[:, :, None] * design
        normal = np.matmul(weighted.transpose(0, 2, 1), weighted)
        products = np.matmul(weighted.transpose(0, 2, 1), (weights * right)[:, :, None])
        size = np.maximum(np.trace(normal, axis1=1, axis2=2), _NEGLIGIBLE**2)
        ridge = _RIDGE * size[:, None, None] * np.eye(normal.shape[1])  # where too few values are left to find a row
        unknown = np.linalg.solve(normal + ridge, products)[:, :, 0]
        return np.asarray(self._centre + unknown[:, :-1] @ self.basis.T)

    def _newton(self, rows: FloatArray, features: FloatArray) -> FloatArray:
        """Take one Gauss-Newton step towards rows with the given features."""
        inverse = np.linalg.pinv(self.jacobian(rows), rcond=1e-10)
        step = np.matmul(inverse, (features - self(rows))[:, :, None])[:, :, 0]
        return np.asarray(rows + step @ self.basis.T)

    def jacobian(self, rows: FloatArray) -> FloatArray:
        """Return (n, m, r) derivatives of features by the row, along the basis."""
        kernel, points = self.kernel, self.landmarks @ self.basis
        values = kernel(rows, self.landmarks)
        if kernel.name == "rbf":  # d k / d x = -2 gamma k (x - l)
            slopes = -2.0 * kernel.gamma * values[:, :, None] * ((rows @ self.basis)[:, None, :] - points)
        elif kernel.name == "linear":
            slopes = np.broadcast_to(points, (len(rows), *points.shape))
        elif kernel.name == "poly":
            scaled = kernel.gamma * rows @ self.landmarks.T + kernel.coef0
            slopes = (kernel.gamma * kernel.degree * scaled ** (kernel.degree - 1))[:, :, None] * points
        else:
            slopes = (kernel.gamma * (1.0 - values**2))[:, :, None] * points
        return np.asarray(np.matmul(slopes.transpose(0, 2, 1), self.mapping).transpose(0, 2, 1))

    def _from_inner_products(self, values: FloatArray) -> FloatArray:
        """Return rows (n, p) from values (n, l) of a kernel of inner products; NaN if the landmarks do not span."""
        if np.linalg.matrix_rank(self.landmarks) < self.landmarks.shape[1]:
            return np.full((len(values), self.landmarks.shape[1]), np.nan)
        kernel = self.kernel
        with np.errstate(invalid="ignore", divide="ignore"):
            if kernel.name == "linear":
                inner = values
            elif kernel.name == "poly":
                roots = np.sign(values) ** kernel.degree * np.abs(values) ** (1.0 / kernel.degree)
                inner = (roots - kernel.coef0) / kernel.gamma
            else:
                inner = (np.arctanh(values) - kernel.coef0) / kernel.gamma
        usable = np.isfinite(inner).all(axis=1)
        rows = np.full((len(values), self.landmarks.shape[1]), np.nan)
        rows[usable] = np.linalg.lstsq(self.landmarks, inner[usable].T, rcond=None)[0].T
        return rows
