"""Kernel functions, with LIBSVM's names and parameters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from federation.arrays import FloatArray

KernelName = Literal["linear", "rbf", "poly", "sigmoid"]


@dataclass(frozen=True)
class Kernel:
    """linear x.y; rbf exp(-gamma |x - y|^2); poly (gamma x.y + coef0)^degree; sigmoid tanh(gamma x.y + coef0)."""

    name: KernelName
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """The (n, l) kernel matrix of rows x (n, p) and y (l, p)."""
        if self.name == "rbf":
            return np.asarray(np.exp(-self.gamma * squared_distances(x, y)))
        inner = x @ y.T
        if self.name == "linear":
            return np.asarray(inner)
        scaled = self.gamma * inner + self.coef0
        return np.asarray(scaled**self.degree if self.name == "poly" else np.tanh(scaled))

    def to_fields(self) -> dict[str, Any]:
        """Plain values, for a message or a file."""
        return asdict(self)


def squared_distances(x: FloatArray, y: FloatArray) -> FloatArray:
    """(n, l) squared Euclidean distances between rows x (n, p) and y (l, p), never below 0."""
    squares = np.einsum("ij,ij->i", x, x)[:, None] + np.einsum("ij,ij->i", y, y)[None, :]
    return np.asarray(np.maximum(squares - 2.0 * (x @ y.T), 0.0))
