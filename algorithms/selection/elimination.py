"""The removal of columns by the weights of a linear SVM over fewer and fewer columns, and what these weights prove.

Cuts of a linear SVM survive a column: a cut (a, d, m) bounds the loss of every (w, b) over its rows, so that without
the column's entry of a it is a cut of the problem without the column. The dual variables of the interior point survive
it too. So each step begins where the one before ended (`training.ShrinkingSvm`).

The objective is 1-strongly convex in w: with a certified gap, |w - w*| <= rho = sqrt(2 (objective - lower bound)). If
|w| of the lowest column that is kept exceeds |w| of the highest that is removed by more than sqrt(2) rho, the optimum
itself has the same columns removed: the step is certain, however roughly it was trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedsvm.algorithms.optimization.solution import Solution
from fedsvm.algorithms.selection.training import certain_radius, strengths
from fedsvm.algorithms.settings import Share
from fedsvm.federation.arrays import FloatArray, IntArray

Remove = Literal["auto", "one", "half"] | Share
"""The number of columns to remove in a step: one, half of them, a share of them, or half while there are many and then
one."""

MANY_COLUMNS = 64
"""Of more, columns go by halves where nothing else is said."""

TOLERANCES = {
    "cutting-plane": (1e-3, 1e-4, 1e-5, 1e-6, 1e-7),
    "interior-point": (1e-4, 1e-6, 1e-8),
}
"""Relative gaps to which a step is trained until it is certain; each costs the interior point a round to look."""


def removed_count(remove: Remove, columns: int) -> int:
    """Return how many of `columns` columns to remove in a step; one stays."""
    if remove == "one" or (remove == "auto" and columns <= MANY_COLUMNS):
        return 1
    share = 0.5 if isinstance(remove, str) else remove
    return max(1, min(columns - 1, math.ceil(share * columns)))


def lowest(scores: FloatArray, count: int) -> IntArray:
    """Return the places of the lowest scores, the lowest first; of equal ones the last is removed first."""
    return np.lexsort((-np.arange(len(scores)), scores))[:count]


def is_certain(solutions: Sequence[Solution], removed: IntArray) -> bool:
    """Return whether the optima themselves have the same lowest places (r,), by the length of their weights."""
    scores = strengths(solutions)
    kept = np.delete(scores, removed)
    return not len(kept) or bool(kept.min() - scores[removed].max() > math.sqrt(2) * certain_radius(solutions))
