"""Rows by subtracting cuts of linear SVMs on columns: without a map between, a difference of one row is the row.

Of each problem, among the cuts that were taken while it had the same columns. A difference that counts one row is it if
the row is on the wrong side of the margin at one of both points and not at the other. Unlike differences of features,
which are a row's or are not, any numbers can be a row's columns: some claims are of several rows, and false.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.chosen_columns import PartialRows, between_scalings, concatenate_rows, spread
from fedsvm.algorithms.optimization.cutting_plane import Points
from fedsvm.algorithms.optimization.single_rows import rows_of_cuts
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.protocols.analysis.views import RoundView, RunView

Series = dict[int, list[tuple[FloatArray, float, FloatArray]]]


class SubsetCuts(Attack):
    """Cuts of one row, and differences of two cuts of a group that count one."""

    name = "cuts of columns"
    is_of_problems = True

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack all folds together, each row once."""
        found, unit = [], np.ones(0)
        for rounds in between_scalings(view):
            offset, unit = rounds[0].parameters["offset"], rounds[0].parameters["scale"]
            for columns, problems in _posed_problems(rounds, prior.posed.number):
                for problem, cuts in problems.items():
                    w, b, sums = (np.array(each) for each in zip(*cuts, strict=True))
                    rows, labels = rows_of_cuts(Points(w, b), sums)
                    known = spread(rows, columns[problem], len(offset)) * unit + offset
                    found.append(PartialRows(known, labels))
        if found:
            every = concatenate_rows(found, len(unit)).distinct(unit)
            yield RowClaim(every.rows, every.labels, 0.0)


def _posed_problems(rounds: tuple[RoundView, ...], kind: int) -> Iterator[tuple[list[IntArray], Series]]:
    """Yield problems of a kind as they were posed: the columns of each, and its cuts: w (m,), b and sums (g, m + 2)."""
    columns: list[IntArray] = []
    groups, series, kinds = 1, Series(), [0]
    for each in rounds:
        told = each.parameters
        if each.step not in ("subset_cuts", "subset_line"):
            continue
        if "columns" in told:
            if series:
                yield columns, series
            columns = np.split(np.asarray(told["columns"]), np.cumsum(told["lengths"])[:-1])
            groups, series, kinds = int(told["groups"]), Series(), told["kinds"].tolist()
        if each.step == "subset_cuts" and columns:
            problems = told["problems"].tolist()
            lengths = [len(columns[problem]) for problem in problems]
            points = np.split(told["w"], np.cumsum(lengths)[:-1])
            for sums in each.sums.values():
                parts = np.split(sums, np.cumsum([groups * (length + 2) for length in lengths])[:-1])
                for problem, w, b, part in zip(problems, points, told["b"].tolist(), parts, strict=True):
                    if kinds[problem] == kind:
                        series.setdefault(problem, []).append((w, b, part.reshape(groups, -1)))
    if series:
        yield columns, series
