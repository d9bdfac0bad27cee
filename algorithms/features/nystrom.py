"""Nystroem features: rows become vectors whose inner products approximate the kernel (Lu 2016, equation 3.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError

_CHANGE = "change algorithm.kernel, or its gamma, degree or coef0."


def nystrom_map(among_landmarks: FloatArray, rank_tolerance: float) -> FloatArray:
    """Return the (l, m) map U Lambda^(-1/2) of A = k(L, L) = U Lambda U^T, shape (l, l).

    The paper divides by every eigenvalue; A is often rank-deficient, so those below `rank_tolerance` of the largest
    are dropped, and with them the negative ones of a kernel that is not positive semidefinite. Raises FederationError
    for a kernel that is beyond float64 between some landmarks, or has no positive eigenvalue.
    """
    if not np.isfinite(among_landmarks).all():
        raise FederationError(f"The kernel is beyond float64 between some landmarks; {_CHANGE}")
    eigenvalues, eigenvectors = np.linalg.eigh(among_landmarks)
    kept = eigenvalues > rank_tolerance * eigenvalues[-1]
    if not kept.any():
        raise FederationError(f"The kernel matrix of the landmarks has no positive eigenvalue; {_CHANGE}")
    return np.asarray(eigenvectors[:, kept] / np.sqrt(eigenvalues[kept]))


def nystrom_features(kernel: Kernel, rows: FloatArray, landmarks: FloatArray, mapping: FloatArray) -> FloatArray:
    """Return F = k(X, L) U Lambda^(-1/2), shape (n, m), for rows X (n, p)."""
    return np.asarray(kernel(rows, landmarks) @ mapping)


@dataclass(frozen=True)
class NystromMap(FeatureMap):
    """Kernel values at landmarks (l, p), times a mapping (l, m)."""

    base_kernel: Kernel
    landmarks: FloatArray
    mapping: FloatArray

    name = "landmarks"

    @classmethod
    def span(cls, kernel: Kernel, landmarks: FloatArray, rank_tolerance: float) -> Self:
        """Return the map that landmarks span; see `nystrom_map`.

        Every site could compute it from the landmarks, but eigenvectors of repeated eigenvalues differ between linear
        algebra libraries, and sites with different maps would train nonsense: it is computed once.
        """
        return cls(kernel, landmarks, nystrom_map(kernel(landmarks, landmarks), rank_tolerance))

    @property
    def kernel(self) -> Kernel:
        """The one that is approximated."""
        return self.base_kernel

    @property
    def dimensions(self) -> int:
        """The rank of the landmarks' kernel matrix."""
        return int(self.mapping.shape[1])

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return (n, m) F of `nystrom_features`."""
        return nystrom_features(self.base_kernel, rows, self.landmarks, self.mapping)

    def parts(self) -> dict[str, Any]:
        """Return what makes up the map, with the name and the parameters of the kernel.

        The features of a scaled row x are F(x) = k(x, landmarks) map.

        Returns
        -------
        landmarks : (l, p)
            Points of the space of scaled rows. Drawn ones follow from noisy statistics. Local and global ones are means
            of clusters of rows, and local ones may have noise.
        map : (l, m)
            Matrix that turns kernel values into features.
        """
        return {"landmarks": self.landmarks, "map": self.mapping, **self.base_kernel.to_named_fields()}

    @classmethod
    def of_parts(cls, fields: Mapping[str, Any]) -> Self:
        """Return the map of the fields of `parts`."""
        return cls(Kernel.from_named_fields(fields), fields["landmarks"], fields["map"])

    def attributes(self, w: FloatArray, b: float | FloatArray, scaling: Scale) -> dict[str, Any]:
        """Return `landmarks_` (l, p), scaled, `dual_coef_` (P, l), `intercept_` (P,); for a linear kernel `coef_` (P,
        p)."""
        weights = np.atleast_2d((self.mapping @ w.T).T)
        shown = {"landmarks_": self.landmarks, "dual_coef_": weights, "intercept_": np.atleast_1d(b)}
        return shown if self.base_kernel.name != "linear" else shown | scaling.linear(weights @ self.landmarks, b)
