"""Listed rows that are named by the digits of the scale, which is computed from exact sums over all training rows.

The training rows on the standard scale have the sum 0, and in each column squares whose sum is their number. Both are
linear in how often each candidate occurs, 0 or 1, and few of the 2^n choices satisfy so many equations.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.attacks.attack import Attack, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import epochs
from fedsvm.algorithms.attacks.row_counts import SAME_WITHIN
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RunView

MOST_UNDECIDED = 300
"""Candidates that a program decides, at most."""

_WITHIN = 1e-7
"""Sums of n candidates of the training data are off by less, times the root of n."""

_DEPENDENT = 1e-9
"""Equations whose singular values are smaller, as a share of the largest, follow from the others."""

_MOST_NODES = 300


class ScaleDigits(Attack):
    """A 0/1 program for the candidates that attacks before this one did not name; claimed if it has one solution."""

    name = "digits of the scale"

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Yield what the last scale says."""
        parts = epochs(view)
        if not parts or prior.candidates is None or not np.any(parts[-1].scale.offset):
            return
        scale, (rows, labels) = parts[-1].scale, prior.candidates
        if rows.shape[1] != len(scale.offset):  # a model of chosen columns: the candidates have all columns
            return
        scaled = scale(rows)
        known = np.zeros(len(rows), dtype=np.bool_)
        if prior.found is not None:
            known = _among(scaled, scale(prior.found.rows))
        equations = np.hstack([scaled, scaled**2 - 1.0])
        if not 0 < (~known).sum() <= MOST_UNDECIDED:
            return
        chosen = one_solution(equations[~known], -equations[known].sum(axis=0))
        found = np.flatnonzero(~known)[chosen]
        yield RowClaim(*LabeledRows(rows[found], labels[found]), _WITHIN)


def _among(rows: FloatArray, others: FloatArray) -> NDArray[np.bool_]:
    """Return (n,): which rows are there among others, once for each."""
    found = np.zeros(len(rows), dtype=np.bool_)
    for other in others:
        same = np.flatnonzero((np.abs(rows - other) < SAME_WITHIN).all(axis=1) & ~found)
        found[same[:1]] = True
    return found


def one_solution(rows: FloatArray, total: FloatArray) -> NDArray[np.bool_]:
    """Return which of the rows (n, q) have this sum (q,); none if several sets of them have, or too many were tried."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # an audit alone has a use for it

    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    kept = right[sizes > _DEPENDENT * sizes.max(initial=0.0)]
    within = _WITHIN * len(rows) ** 0.5
    sums = LinearConstraint(kept @ rows.T, kept @ total - within, kept @ total + within)

    def solve_with(*others: LinearConstraint) -> tuple[int, NDArray[np.bool_] | None]:
        """Return the status, 2 of no solution, and a solution."""
        answer = milp(
            np.zeros(len(rows)),
            constraints=[sums, *others],
            integrality=np.ones(len(rows)),
            bounds=Bounds(0, 1),
            options={"node_limit": _MOST_NODES},
        )
        return answer.status, None if answer.x is None else np.asarray(answer.x > 0.5)

    none = np.zeros(len(rows), dtype=np.bool_)
    _, first = solve_with()
    if first is None or np.abs(rows[first].sum(axis=0) - total).max(initial=0.0) > within * 10:
        return none
    status, _ = solve_with(LinearConstraint(np.where(first, -1.0, 1.0)[None], 1.0 - first.sum(), np.inf))
    return first if status == 2 else none
