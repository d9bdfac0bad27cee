"""Kernel functions, with LIBSVM's names and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.settings import Degree, Finite, Positive, doc
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.program import SiteProgram

KernelName = Literal["linear", "rbf", "poly", "sigmoid"]


@dataclass(frozen=True)
class Kernel:
    """linear x.y; rbf exp(-gamma |x - y|^2); poly (gamma x.y + coef0)^degree; sigmoid tanh(gamma x.y + coef0)."""

    name: KernelName
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return the (n, l) kernel matrix of rows x (n, p) and y (l, p)."""
        return self.of_sums(squared_distances(x, y) if self.of_distances else x @ y.T)

    @property
    def of_distances(self) -> bool:
        """True for a function of squared distances instead of inner products. Both are sums over columns."""
        return self.name == "rbf"

    @property
    def positive_semidefinite(self) -> bool:
        """True if the kernel is positive semidefinite for all rows, so that the dual bounds the primal."""
        return self.name in ("linear", "rbf") or (self.name == "poly" and self.coef0 >= 0)

    def of_sums(self, sums: FloatArray) -> FloatArray:
        """Return the kernel from squared distances or inner products; infinite beyond float64."""
        if self.name == "rbf":
            scaled = np.asarray(-self.gamma * sums)
            return np.asarray(np.exp(scaled, out=scaled))
        if self.name == "linear":
            return sums
        scaled = self.gamma * sums + self.coef0
        with np.errstate(over="ignore"):
            return np.asarray(scaled**self.degree if self.name == "poly" else np.tanh(scaled))

    def to_fields(self) -> dict[str, Any]:
        """Return plain values for a message."""
        return asdict(self)

    def to_named_fields(self) -> dict[str, Any]:
        """Return plain values for a message with others: `kernel`, the name, and its parameters."""
        fields = self.to_fields()
        return {"kernel": fields.pop("name"), **fields}

    @classmethod
    def from_named_fields(cls, fields: Mapping[str, Any]) -> Kernel:
        """Return the kernel from a message with other values."""
        return cls(fields["kernel"], fields["gamma"], fields["degree"], fields["coef0"])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the kernel as a model's file holds it.

        Returns
        -------
        kernel : text
            "linear", "rbf", "poly" or "sigmoid", as LIBSVM defines them.
        gamma, degree, coef0 : ()
            Parameters of the kernel.
        """
        return {name: np.array(value) for name, value in self.to_named_fields().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Kernel:
        """Return the kernel in a model's file."""
        return cls.from_named_fields({name: arrays[name].item() for name in ("kernel", "gamma", "degree", "coef0")})


@dataclass(kw_only=True)
class KernelSettings:
    """The settings of a kernel of scaled columns."""

    kernel: Annotated[
        KernelName,
        doc("Kernel, as defined by LIBSVM."),
    ] = "rbf"
    gamma: Annotated[
        Positive | Literal["auto", "scale"],
        doc(
            'For rbf, poly and sigmoid: kernel coefficient. "auto" and, for a standard scale, "scale" are 1 / columns.'
        ),
    ] = "auto"
    degree: Annotated[Degree, doc("For poly: degree of the polynomial.")] = 3
    coef0: Annotated[Finite, doc("For poly and sigmoid: constant term of the kernel.")] = 0.0

    def kernel_of(self, columns: int) -> Kernel:
        """Return the kernel over this number of columns."""
        gamma = 1.0 / columns if isinstance(self.gamma, str) else self.gamma
        return Kernel(self.kernel, gamma, self.degree, self.coef0)

    def scale_problems(self, scale: str) -> Iterator[str]:
        """Yield a sentence if gamma depends on the variance of columns, and the common scale does not make it 1."""
        if self.gamma == "scale" and scale != "standard":
            yield f'gamma: "scale" needs columns of variance 1, got the scale "{scale}"; use "auto" or a number'


def check_kernel(site: SiteProgram, kernel: Kernel, columns: int | None = None) -> None:
    """Check a kernel against the agreed settings. A width that follows from the columns is checked if a site knows
    their number.

    Raises
    ------
    OrderRefused
    """
    agreed = site.terms.settings.get("gamma")
    site.check_agreed(kernel=kernel.name, degree=kernel.degree, coef0=kernel.coef0)
    if not isinstance(agreed, str):
        site.check_agreed(gamma=kernel.gamma)
    elif columns is not None and kernel.gamma != 1.0 / columns:
        raise OrderRefused(f"gamma must be 1 / {columns}, one by the number of columns, got {kernel.gamma}")


def squared_distances(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return (n, l) squared Euclidean distances between rows x (n, p) and y (l, p), never below 0."""
    found = np.einsum("ij,ij->i", x, x)[:, None] + np.einsum("ij,ij->i", y, y)[None, :]
    products = x @ y.T
    products *= 2.0
    found -= products
    return np.asarray(np.maximum(found, 0.0, out=found))
