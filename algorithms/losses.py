"""Losses of margins for private empirical risk minimization: those of this project and of other packages.

Another package adds its own by an entry point of the group `fedsvm.losses` whose name is the loss's and whose object is
a `Loss`. It must be installed wherever a site runs. The proofs of both perturbations need a convex loss and bounds of
its first and second derivative (Chaudhuri, Monteleoni and Sarwate 2011, theorems 6 and 9). Loading a loss therefore
compares its derivatives and its bounds with its values at many margins. Such a check finds mistakes and proves nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError
from fedsvm.federation.plugins import Registry

GROUP = "fedsvm.losses"

_STEP, _NEAR, _FAR = 1e-3, 20.0, 1e4
"""Margins that a loss is checked at: evenly near 0, and ever farther apart beyond."""

_ROUNDING = 1e-9
_MEAN_ERROR = 0.01
_MOST_JUMPS = 8

Evaluate = Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
"""Margins (n,) to values, first and second derivatives, (n,) each."""


@dataclass(frozen=True)
class Loss:
    """A convex loss of margins z = y f.x, nowhere negative.

    Parameters
    ----------
    name : str
    evaluate : callable
        Returns values, first and second derivatives (n,) of margins (n,).
    slope : float
        The largest absolute value of the first derivative.
    curvature : float
        The largest value of the second derivative; called c in the paper.
    """

    name: str
    evaluate: Evaluate
    slope: float
    curvature: float

    def __call__(self, margins: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return values, first and second derivatives, (n,) each."""
        return self.evaluate(margins)

    @property
    def at_zero(self) -> float:
        """The loss of a model without weights."""
        return float(self.evaluate(np.zeros(1))[0][0])


def _logistic(margins: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    probability = 1 / (1 + np.exp(np.clip(margins, -500, 500)))
    return np.logaddexp(0.0, -margins), -probability, probability * (1 - probability)


def _huber(h: float, margins: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    short = 1.0 - margins
    near, below = np.abs(short) <= h, short > h
    value = np.where(near, (short + h) ** 2 / (4 * h), np.where(below, short, 0.0))
    slope = np.where(near, -(short + h) / (2 * h), np.where(below, -1.0, 0.0))
    return value, slope, np.where(near, 1 / (2 * h), 0.0)


LOGISTIC = Loss("logistic", _logistic, 1.0, 0.25)


def huber(half_width: float) -> Loss:
    """Return the hinge loss, rounded over twice the half width."""
    return Loss("huber", functools.partial(_huber, half_width), 1.0, 1 / (2 * half_width))


def require_sound(loss: Loss) -> None:
    """Raise ValueError for a loss that is not convex, or whose derivatives or bounds do not fit its values."""
    if not (0 < loss.slope < math.inf and 0 < loss.curvature < math.inf):
        raise ValueError("its slope and curvature must be finite numbers above 0")
    near = np.arange(-_NEAR, _NEAR + _STEP, _STEP)
    far = np.geomspace(_NEAR, _FAR, 1000)[1:]
    margins = np.concatenate([-far[::-1], near, far])
    values, slopes, curvatures = (np.asarray(each, dtype=float) for each in loss(margins))
    if any(each.shape != margins.shape for each in (values, slopes, curvatures)):
        raise ValueError("it must return three arrays with a number for each margin")
    if not np.isfinite([values, slopes, curvatures]).all():
        raise ValueError("its values and derivatives must be finite")
    place = int(np.argmin(np.abs(margins)))
    if not np.allclose([each[0] for each in loss(margins[[place]])], [values[place], slopes[place], curvatures[place]]):
        raise ValueError("it must treat each margin by itself")
    gaps = np.diff(margins)
    rounding = _ROUNDING * (1 + np.abs(values[1:]) + np.abs(values[:-1]) + loss.slope * gaps)
    risen = np.diff(values)
    if (slopes[:-1] * gaps > risen + rounding).any() or (risen > slopes[1:] * gaps + rounding).any():
        raise ValueError("it must be convex, and its first derivative that of its values")
    if np.abs(slopes).max() > loss.slope * (1 + _ROUNDING):
        raise ValueError(f"its first derivative must be {loss.slope:g} at most, got {np.abs(slopes).max():g}")
    steepened = np.diff(slopes) / gaps
    if max(curvatures.max(), steepened.max()) > loss.curvature * (1 + 1e-6) + _ROUNDING / _STEP:
        steepest = max(curvatures.max(), steepened.max())
        raise ValueError(f"its second derivative must be {loss.curvature:g} at most, got {steepest:g}")
    inner = np.abs(margins) <= _NEAR
    off = np.abs(np.diff(slopes[inner]) - _STEP * (curvatures[inner][1:] + curvatures[inner][:-1]) / 2).sum()
    if curvatures.min() < 0 or off > _MEAN_ERROR * loss.slope + _MOST_JUMPS / 2 * _STEP * loss.curvature:
        raise ValueError("its second derivative must be that of its values, and nowhere negative")
    if values.min() < 0:
        raise ValueError("its values must be nowhere negative; add a constant")


def _accept(offered: object, name: str) -> Callable[[float], Loss] | None:
    if not isinstance(offered, Loss) or offered.name != name:
        return None
    require_sound(offered)
    return lambda half_width: offered


LOSSES: Registry[Callable[[float], Loss]] = Registry(
    GROUP, "loss", {"logistic": lambda: lambda half_width: LOGISTIC, "huber": lambda: huber}, _accept
)
"""The losses of this installation. Each is made with the half width, which only Huber's takes."""


@functools.lru_cache(maxsize=16)
def loss_named(name: str, half_width: float) -> Loss:
    """Return a loss by its name. Raises FederationError if there is none, or if it is not sound."""
    if name not in LOSSES:
        raise FederationError(f"There is no loss {name!r}; there are {', '.join(LOSSES)}.")
    return LOSSES[name](half_width)
