"""Nystroem features: rows become vectors whose inner products approximate the kernel (Lu 2016, equation 3.6)."""

from __future__ import annotations

import numpy as np

from algorithms.features.kernels import Kernel
from federation.arrays import FloatArray
from federation.errors import FederationError

_CHANGE = "change algorithm.kernel, or its gamma, degree or coef0."


def nystrom_map(among_landmarks: FloatArray, rank_tolerance: float) -> FloatArray:
    """The (l, m) map U Lambda^(-1/2) of A = k(L, L) = U Lambda U^T, shape (l, l).

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
    """F = k(X, L) U Lambda^(-1/2), shape (n, m), for rows X (n, p)."""
    return np.asarray(kernel(rows, landmarks) @ mapping)
