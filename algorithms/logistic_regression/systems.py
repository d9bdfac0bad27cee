"""Newton's equation of the logistic loss, and its system behind a committee."""

from __future__ import annotations

import numpy as np

from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.blind_parameters import BlindSystem, OpenedSums

_MAX_EXPONENT = 500.0
"""Bound on margins in exponentials, so that these do not overflow in float64."""


def newton_terms(
    rows: FloatArray, labels: FloatArray, point: FloatArray, prices: FloatArray | float = 1.0
) -> tuple[float, FloatArray, FloatArray]:
    """Return the loss of rows z (n, d) with labels (n,) at the point v (d,), its gradient (d,) and its Hessian (d, d).

    prices: weights (n,) of the rows' losses, or one number for all.
    """
    margins = labels * (rows @ point)
    chance = 1 / (1 + np.exp(np.clip(margins, -_MAX_EXPONENT, _MAX_EXPONENT)))
    hessian = (rows * (prices * chance * (1 - chance))[:, None]).T @ rows
    return float((prices * np.logaddexp(0.0, -margins)).sum()), -(prices * chance * labels) @ rows, hessian


def penalties_of(d: int, regularisation: float, *, intercept: bool) -> FloatArray:
    """Return the penalties (d,) on the squares of a point: lambda for each weight, and 0 for the intercept."""
    penalties = np.full(d, regularisation)
    if intercept:
        penalties[-1] = 0.0
    return penalties


def newton_systems(
    d: int, scales: FloatArray, noises: FloatArray, dithers: FloatArray, regularisation: float, *, intercept: bool
) -> list[BlindSystem]:
    """Return the public parameters of the system of each of k problems, and of the loss that is opened with it.

    Parameters
    ----------
    d : int
        Dimension of the points, including the intercept.
    scales : (3,)
        Units of the losses, the gradients and the Hessians in the sites' parts.
    noises : (k,)
        Largest noise of a member of the committee on a loss.
    dithers : (k, 2)
        Standard deviation of the noise on the right-hand sides of the weights, and of the intercept.
    regularisation : float
        lambda.
    intercept : bool
        True if the last number of a point is the intercept.
    """
    return [
        BlindSystem(
            d,
            problems=1,
            scale=1.0,
            penalty=regularisation / scales[2],
            free=int(intercept),
            dither=of_w / scales[1],
            free_dither=of_intercept / scales[1],
            sums=OpenedSums(noises=(noise / scales[0],)),
        )
        for noise, (of_w, of_intercept) in zip(noises.tolist(), dithers.tolist(), strict=True)
    ]
