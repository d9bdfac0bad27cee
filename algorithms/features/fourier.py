"""Fourier features of the RBF kernel, drawn at random or fitted to public rows (Li et al. 2014, equations 5 to 7).

k(x, y) = exp(-|x - y|^2 / sigma^2) is the mean of cos(rho.(x - y)) over rho from N(0, 2/sigma^2 I). The paired map
z(x) = 1/sqrt(D) [cos rho.x, sin rho.x] (equation 7) has z(x).z(y) = mean over D frequencies of cos(rho.(x - y)), and
|z| = 1 whatever rho is, which is what sensitivities rest on.

Correction. The paper fits the frequencies to equation 5's cosine map with random offsets, by equation 6, and then
trains in the paired map, which equation 6 does not describe. Fitting the paired map itself is the better-posed choice;
both are here.
Equation 6 prints absolute values and a factor 2/D on a map that has it already. `paper` reads it as a sum of squares
with one factor, as the gradient that L-BFGS needs asks for; `printed` takes it to the letter, with a subgradient.

`FourierMap` is the same map with frequencies that are drawn and fitted to nothing (Rahimi and Recht 2007): they depend
on no row, and say nothing of any.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np

from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.kernels import Kernel, squared_distances
from fedsvm.algorithms.settings import Positive, doc
from fedsvm.federation.arrays import FloatArray

FitName = Literal["paired", "paper", "printed", "random"]
_MAX_ITERATIONS = 300

ErrorOf = Callable[..., tuple[float, FloatArray]]
"""Frequencies (D, d) to the error of a fit, and its gradient (D, d)."""


@dataclass(kw_only=True)
class FourierSettings:
    """The settings of frequencies."""

    sigma: Annotated[
        Positive | Literal["auto"],
        doc(
            'Width of the kernel exp(-|x - y|^2 / sigma^2) in scaled columns. "auto" is the square root of the '
            "number of columns."
        ),
    ] = "auto"
    fit_to: Annotated[
        FitName,
        doc(
            "Frequencies fitted to public rows in the map used for training (paired), in the paper's map by least "
            "squares (paper) or by equation 6 to the letter (printed), or drawn at random (random)."
        ),
    ] = "paired"

    def sigma_of(self, columns: int) -> float:
        """Return sigma for this number of columns."""
        return math.sqrt(columns) if self.sigma == "auto" else self.sigma


@dataclass(frozen=True)
class Frequencies:
    """rho (D, d), and the error of equation 6 over the public rows, as drawn and as fitted."""

    rho: FloatArray
    error_as_drawn: float
    error: float

    def features(self, rows: FloatArray) -> FloatArray:
        """Return (n, 2 D) paired features of rows (n, d)."""
        return paired_features(rows, self.rho)


@dataclass(frozen=True)
class FourierMap(FeatureMap):
    """Paired features by frequencies rho (D, p), of the kernel exp(-gamma |x - y|^2)."""

    gamma: float
    rho: FloatArray

    name = "fourier"

    @classmethod
    def draw(cls, gamma: float, count: int, columns: int, seed: int) -> Self:
        """Draw `count` frequencies from the spectral density of the kernel over `columns` columns, in orthogonal
        blocks.

        Within a block of as many as there are columns they are orthogonal, of the lengths that independent ones have:
        the approximation is as unbiased, and closer (Yu, Suresh, Choromanski, Holtmann-Rice and Kumar 2016).
        """
        random = np.random.default_rng([seed, count])
        blocks = [_orthogonal(columns, random) for _ in range(math.ceil(count / columns))]
        return cls(gamma, math.sqrt(2.0 * gamma) * np.vstack(blocks)[:count])

    @property
    def kernel(self) -> Kernel:
        """The one that is approximated."""
        return Kernel("rbf", self.gamma)

    @property
    def dimensions(self) -> int:
        """A cosine and a sine of each frequency."""
        return 2 * len(self.rho)

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return (n, 2 D) features: see `paired_features`."""
        return paired_features(rows, self.rho)

    def parts(self) -> dict[str, Any]:
        """Return what makes up the map.

        The features of a scaled row x are F(x) = [cos(rho x), sin(rho x)] / sqrt(D).

        Returns
        -------
        rho : (D, p)
            Random frequencies, which come from no row.
        gamma : ()
            Parameter of the kernel exp(-gamma |x - y|^2) that the features approximate.
        """
        return {"rho": self.rho, "gamma": self.gamma}

    @classmethod
    def of_parts(cls, fields: Mapping[str, Any]) -> Self:
        """Return the map of the fields of `parts`."""
        return cls(fields["gamma"], fields["rho"])

    def attributes(self, w: FloatArray, b: float | FloatArray, scaling: Scale) -> dict[str, Any]:
        """Return `frequencies_` (D, p), `feature_coef_` (P, 2 D) of [cos, sin] of frequencies_ x over √D,
        `intercept_`."""
        return {"frequencies_": self.rho, "feature_coef_": np.atleast_2d(w), "intercept_": np.atleast_1d(b)}


def _orthogonal(columns: int, random: np.random.Generator) -> FloatArray:
    """Return (d, d) orthogonal rows, each distributed as N(0, I)."""
    directions, triangle = np.linalg.qr(random.standard_normal((columns, columns)))
    lengths = np.sqrt(random.chisquare(columns, size=columns))
    return np.asarray(lengths[:, None] * directions * np.sign(np.diag(triangle)))


def paired_features(rows: FloatArray, rho: FloatArray) -> FloatArray:
    """Return (n, 2 D) [cos rho.x, sin rho.x] / sqrt(D), of length 1 each, for rows (n, d) and rho (D, d)."""
    angles = rows @ rho.T
    return np.hstack([np.cos(angles), np.sin(angles)]) / math.sqrt(len(rho))


def rbf(rows: FloatArray, sigma: float) -> FloatArray:
    """Return (n, n) exp(-|x - y|^2 / sigma^2)."""
    return np.asarray(np.exp(-squared_distances(rows, rows) / sigma**2))


def choose_frequencies(
    public: FloatArray, count: int, sigma: float, fit: FitName, random: np.random.Generator
) -> Frequencies:
    """Draw frequencies from the kernel's spectral density and, unless `fit` is random, fit them to public rows (n, d).

    random: fits nothing. paired: fits the map that is trained in. paper: fits equation 5's, by least squares. printed:
    fits it as equation 6 is printed.
    """
    drawn = random.normal(0.0, math.sqrt(2.0) / sigma, (count, public.shape[1]))
    offsets = random.uniform(0.0, 2 * math.pi, count)
    wanted = rbf(public, sigma)
    as_drawn = paired_error(drawn, public, wanted)[0]
    if fit == "random":
        return Frequencies(drawn, as_drawn, as_drawn)
    errors: dict[FitName, ErrorOf] = {
        "paired": paired_error,
        "paper": functools.partial(cosine_error, offsets=offsets),
        "printed": functools.partial(printed_error, offsets=offsets),
    }
    rho = _fit(drawn, functools.partial(errors[fit], rows=public, wanted=wanted))
    return Frequencies(rho, as_drawn, paired_error(rho, public, wanted)[0])


def _fit(start: FloatArray, error_at: ErrorOf) -> FloatArray:
    """Minimize an error of frequencies (D, d) by L-BFGS from `start`."""
    from scipy.optimize import minimize  # sites share this module and have no use for it

    def error(flat: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = error_at(flat.reshape(start.shape))
        return value, gradient.ravel()

    options = {"maxiter": _MAX_ITERATIONS, "maxfun": 10 * _MAX_ITERATIONS, "ftol": 1e-15, "gtol": 1e-10}
    found = minimize(error, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x).reshape(start.shape)


def paired_error(rho: FloatArray, rows: FloatArray, wanted: FloatArray) -> tuple[float, FloatArray]:
    """Return equation 6 for the paired map: sum over pairs of (z(x).z(y) - k(x, y))^2, and its gradient (D, d)."""
    angles = rows @ rho.T
    cosines, sines = np.cos(angles), np.sin(angles)
    rest = (cosines @ cosines.T + sines @ sines.T) / len(rho) - wanted
    inner = sines * (rest @ cosines) - cosines * (rest @ sines)
    return float((rest**2).sum()), np.asarray(-4.0 / len(rho) * inner.T @ rows)


def cosine_error(
    rho: FloatArray, rows: FloatArray, wanted: FloatArray, offsets: FloatArray
) -> tuple[float, FloatArray]:
    """Return the sum of squares for equation 5's map, sqrt(2/D) cos(rho.x + b), and its gradient (D, d)."""
    angles = rows @ rho.T + offsets
    cosines, sines = np.cos(angles), np.sin(angles)
    rest = 2.0 / len(rho) * cosines @ cosines.T - wanted
    return float((rest**2).sum()), np.asarray(-8.0 / len(rho) * (sines * (rest @ cosines)).T @ rows)


def printed_error(
    rho: FloatArray, rows: FloatArray, wanted: FloatArray, offsets: FloatArray
) -> tuple[float, FloatArray]:
    """Return equation 6 as printed: sum over pairs of |2/D z(x).z(y) - k(x, y)|, and a subgradient (D, d)."""
    angles = rows @ rho.T + offsets
    cosines, sines = np.cos(angles), np.sin(angles)
    rest, factor = (2.0 / len(rho)) ** 2 * cosines @ cosines.T - wanted, -2.0 * (2.0 / len(rho)) ** 2
    return float(np.abs(rest).sum()), np.asarray(factor * (sines * (np.sign(rest) @ cosines)).T @ rows)
