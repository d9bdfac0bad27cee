"""Attacks where rows are in some of their columns: what a wrapped attack says of these, and the rest unknown.

Rows of a claim have nan in the columns that nothing is known of; an audit compares the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import scale_of
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.protocols.analysis.views import RoundView, RunView

SAME_WITHIN = 1e-6
"""In units of the scaled columns."""


def between_scalings(view: RunView) -> list[tuple[RoundView, ...]]:
    """Return the rounds from each scaling of the rows to the next, the scaling first."""
    found: list[list[RoundView]] = []
    for each in view.rounds:
        if each.step == "rescale":
            found.append([])
        if found:
            found[-1].append(each)
    return [tuple(rounds) for rounds in found]


@dataclass(frozen=True)
class PartialRows:
    """Rows (n, p) with labels (n,), with nan in columns that are not known."""

    rows: FloatArray
    labels: FloatArray

    def distinct(self, unit: FloatArray) -> PartialRows:
        """Return each row once. Of rows that agree in their known columns, keep the one with more of them. unit:
        (p,)."""
        kept: list[int] = []
        for place in np.argsort(np.isnan(self.rows).sum(axis=1), kind="stable").tolist():
            away = np.abs(self.rows[kept] - self.rows[place]) / unit
            same = (np.isnan(away) | (away < SAME_WITHIN)).all(axis=1) & (self.labels[kept] == self.labels[place])
            if not same.any():
                kept.append(place)
        return PartialRows(self.rows[kept], self.labels[kept])


def spread(rows: FloatArray, columns: IntArray, width: int) -> FloatArray:
    """Return (n, p) rows from some of their columns (n, k), NaN in the others."""
    found = np.full((len(rows), width), np.nan)
    found[:, columns] = rows
    return found


class OnChosenColumns(Attack):
    """An attack on what is trained once columns are chosen, fold by fold."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self.name = attack.name  # type: ignore[misc]  # what a result calls it is the wrapped one's
        self.is_of_problems = attack.is_of_problems  # type: ignore[misc]

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack each fold separately, in the columns that it kept. Rows found in one are unknown in the next."""
        for rounds in between_scalings(view):
            kept = [place for place, each in enumerate(rounds) if each.step == "keep_columns"]
            if not kept:
                continue
            columns = np.asarray(rounds[kept[-1]].parameters["columns"])
            scale = scale_of(rounds[0])
            width = len(scale.offset)
            narrow = {**rounds[0].parameters, **vars(scale.of_columns(columns))}
            part = replace(view, rounds=(replace(rounds[0], parameters=narrow), *rounds[kept[-1] + 1 :]))
            for outcome in self._attack(part, _narrow(prior, columns)):
                if isinstance(outcome, CandidateScores):
                    continue  # candidates that agree in the kept columns are one to it
                yield replace(outcome, rows=spread(outcome.rows, columns, width))


def _narrow(prior: Prior, columns: IntArray) -> Prior:
    def cut(rows: LabeledRows | None) -> LabeledRows | None:
        return None if rows is None else LabeledRows(rows.rows[:, columns], rows.labels)

    return replace(prior, own=cut(prior.own), candidates=cut(prior.candidates), found=None)


def concatenate_rows(parts: Sequence[PartialRows], width: int) -> PartialRows:
    """Return all rows of several sets."""
    rows = np.concatenate([np.zeros((0, width)), *(part.rows for part in parts)])
    return PartialRows(rows, np.concatenate([np.zeros(0), *(part.labels for part in parts)]))
