"""Expectation propagation for unknowns that are 0 or 1: which of some rows are present, from noisy sums of them.

The posterior of counts c in {0, 1}, each 1 with a given chance beforehand, after a Gaussian likelihood

    exp(-1/2 c.G c + h.c),

is approximated by a Gaussian whose every coordinate has the mean and variance that the true prior gives it together
with what all other coordinates say (Minka 2001; as a detector of binary symbols Cespedes et al., IEEE Trans. Commun.
62, 2014).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsvm.federation.arrays import FloatArray

_MOST_ITERATIONS = 60
_DAMPING = 0.3
_SETTLED = 2e-3
"""No posterior changes by more in an iteration that is the last."""

_LEAST_VARIANCE = 1e-5
_LEAST_PRECISION = 1e-6
_MOST_LOGIT = 30.0

_ROUNDING = 2.0**-50
"""The share of its trace that G may be off by, and lack to be positive semidefinite."""


def posterior(G: FloatArray, h: FloatArray, chance: float, levels: Sequence[float] = (1.0,)) -> FloatArray:
    """Return (n,) the probability that each is 1; G (n, n) positive semidefinite, h (n,), and the prior probability.

    levels: the factors by which variance is taken to be larger, one after the other; each search begins where the last
    one ended.
    """
    from scipy.linalg import lapack  # an audit alone has a use for it

    logit = np.log(chance / (1 - chance))
    precision = np.full(len(h), 1 / (chance * (1 - chance)))
    shift = precision * chance
    found, rounding = np.full(len(h), chance), _ROUNDING * float(np.trace(G))
    for level in levels:
        for _ in range(_MOST_ITERATIONS):
            lower, failed = lapack.dpotrf(G / level + np.diag(precision + rounding / level), lower=1)
            if failed:
                raise np.linalg.LinAlgError("the precision matrix is not positive definite")
            mean, _ = lapack.dpotrs(lower, h / level + shift, lower=1)
            variance = np.diagonal(lapack.dpotri(lower, lower=1)[0])
            cavity = 1 / np.maximum(1 / variance - precision, _LEAST_PRECISION)
            centre = cavity * (mean / variance - shift)
            before, odds = found, np.clip(logit + (centre - 0.5) / cavity, -_MOST_LOGIT, _MOST_LOGIT)
            found = 1 / (1 + np.exp(-odds))
            spread = np.maximum(found * (1 - found), _LEAST_VARIANCE)
            # where what others say is wider than the prior there is no such Gaussian, and the old one stays
            wanted = np.where(1 / spread - 1 / cavity > _LEAST_PRECISION, 1 / spread - 1 / cavity, precision)
            moved = np.where(wanted == precision, shift, found / spread - centre / cavity)
            precision = (1 - _DAMPING) * precision + _DAMPING * wanted
            shift = (1 - _DAMPING) * shift + _DAMPING * moved
            if np.abs(found - before).max() < _SETTLED:
                break
    return np.asarray(found)
