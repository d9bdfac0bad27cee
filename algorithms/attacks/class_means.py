"""Listed rows that are named by exact means and variances of classes, as a naive Bayes has them.

In each class, the number of its rows and the sums of their columns and squares are linear in how often each candidate
occurs, 0 or 1. Few of the 2^n choices satisfy so many equations.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import epochs
from fedsvm.algorithms.attacks.scale_digits import MOST_UNDECIDED, one_solution
from fedsvm.protocols.analysis.views import RunView

CLASSES = "class_means"
"""The step under which a file's view has the means of classes."""

_WITHIN = 1e-7


class ClassMeans(Attack):
    """A 0/1 program for the candidates of each class; claimed if it has one solution.

    Parameters
    ----------
    var_smoothing : float
        The agreed share of the largest variance that every variance has in addition.
    """

    name = "means of classes"

    def __init__(self, var_smoothing: float) -> None:
        self._share = var_smoothing / (1 + var_smoothing)

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Yield the rows of each class that is decided."""
        parts = epochs(view)
        told = parts[-1].of(CLASSES) if parts else []
        if not told or prior.candidates is None:
            return
        counts, means, variances = (np.asarray(told[-1].parameters[name]) for name in ("counts", "means", "variances"))
        rows, labels = prior.candidates
        scaled = parts[-1].scale(rows)
        share = counts / counts.sum()
        widest = (share @ (variances + means**2) - (share @ means) ** 2).max()
        squares = variances - self._share * widest + means**2
        unit = np.maximum(np.abs(scaled).max(axis=0), 1.0)
        for kind, label in enumerate((-1.0, 1.0) if len(counts) == 2 else range(len(counts))):
            places = np.flatnonzero(labels == label)
            if not 0 < len(places) <= MOST_UNDECIDED:
                continue
            own = scaled[places] / unit
            equations = np.hstack([np.ones((len(own), 1)), own, own**2])
            totals = counts[kind] * np.concatenate([[1.0], means[kind] / unit, squares[kind] / unit**2])
            found = places[one_solution(equations, totals)]
            if len(found):
                yield RowClaim(rows[found], labels[found], _WITHIN)
