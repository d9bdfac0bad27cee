"""The solution of a problem: the point that was reached, and a bound on its distance from the optimum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from fedsvm.algorithms.settings import Count, Tolerance, doc
from fedsvm.federation.arrays import FloatArray

TOLERANCE, NOISY_TOLERANCE = 1e-4, 0.2
"""The usual tolerance, and that of an objective with noise, where further training hardly improves the model."""


@dataclass(frozen=True)
class StoppingRule:
    """When to stop: the relative gap that is enough, and the iterations that are too many.

    printed: cutting planes stop by the paper's rule and not by the gap; see `cutting_plane`.
    """

    tolerance: float
    max_iterations: int
    printed: bool = False


@dataclass(kw_only=True)
class StoppingSettings:
    """The settings of the length of training."""

    tolerance: Annotated[
        Tolerance | None,
        doc(
            "Certified relative gap at which training stops. Default: 0.2 with noise in the objective, otherwise 1e-4. "
            "Each step to a smaller gap tells other sites more about the rows."
        ),
    ] = None
    max_iterations: Annotated[Count, doc("Maximum number of iterations, even if the tolerance is not reached.")] = 500

    @property
    def stopping(self) -> StoppingRule:
        """The stopping rule."""
        return StoppingRule(self.tolerance or TOLERANCE, self.max_iterations)


@dataclass(frozen=True)
class Certificate:
    """The objective of the best point, evaluated, a proven lower bound of the optimum, and what it took."""

    objective: float
    lower_bound: float
    iterations: int
    converged: bool

    @property
    def gap(self) -> float:
        """(objective - lower bound) / objective: the objective is at most this share above the optimum."""
        return relative_gap(self.objective, self.lower_bound)


@dataclass(frozen=True)
class Solution(Certificate):
    """The best point itself: w (m,) and b."""

    w: FloatArray
    b: float


def relative_gap(objective: float, lower_bound: float) -> float:
    """Return (objective - lower bound) / objective; 1 for an unknown one, and where it is not above 0 unless proven."""
    if objective == math.inf:
        return 1.0
    return max(0.0, objective - lower_bound) / objective if objective > 0 else float(objective > lower_bound)
