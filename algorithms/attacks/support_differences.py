"""Rows by subtracting class sums over support rows, which differ by few from one model to the next, or from the class.

Two releases of a class whose numbers of rows differ by one may differ by one row: then the difference of their sums is
it, in the columns that both have, and the difference of their sums of squares is its square, column by column. That is
a check which needs no truth, and which differences of two rows or three do not pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.chosen_columns import PartialRows, between_scalings, concatenate_rows, spread
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.protocols.analysis.views import RoundView, RunView

_SQUARE_WITHIN = 1e-6


class SupportDifferences(Attack):
    """Differences of any two releases of a class over support rows."""

    name = "differences of support sums"

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack all folds together, each row once."""
        found, residual, unit = [], 0.0, np.ones(0)
        for rounds in between_scalings(view):
            offset, unit = rounds[0].parameters["offset"], rounds[0].parameters["scale"]
            for kind, label in enumerate((-1.0, 1.0)):
                rows, left = _differences(_releases(rounds, kind), len(offset))
                residual = max(residual, left)
                found.append(PartialRows(rows * unit + offset, np.full(len(rows), label)))
        if found:
            every = concatenate_rows(found, len(unit)).distinct(unit)
            yield RowClaim(every.rows, every.labels, residual)


def _releases(rounds: tuple[RoundView, ...], kind: int) -> list[tuple[IntArray, FloatArray]]:
    """Return the columns (m,) and the sums (2m + 1,) of every release of a class, including all of its rows."""
    found = []
    for each in rounds:
        if each.step == "class_moments":
            found += [(np.arange((sums.shape[1] - 1) // 2), sums[kind]) for sums in each.sums.values()]
        if each.step == "support_moments" and each.parameters["released"][kind]:
            found += [(np.asarray(each.parameters["columns"]), sums[kind]) for sums in each.sums.values()]
    return found


def _differences(releases: list[tuple[IntArray, FloatArray]], width: int) -> tuple[FloatArray, float]:
    """Return (n, p) scaled rows, NaN where unknown, and the largest difference of their squares."""
    rows, residual = [np.zeros((0, width))], 0.0
    for place, (columns, sums) in enumerate(releases):
        for others, other in releases[:place]:
            if abs(round(float(sums[0] - other[0]))) != 1:
                continue
            common, mine, theirs = np.intersect1d(columns, others, return_indices=True)
            more = float(np.sign(sums[0] - other[0]))
            row = more * (sums[1 : len(columns) + 1][mine] - other[1 : len(others) + 1][theirs])
            square = more * (sums[len(columns) + 1 :][mine] - other[len(others) + 1 :][theirs])
            left = float(np.abs(square - row**2).max(initial=0.0))
            if len(common) > 1 and left < _SQUARE_WITHIN * max(1.0, float(np.abs(square).max())):
                rows.append(spread(row[None, :], common, width))
                residual = max(residual, left)
    return np.concatenate(rows), residual
