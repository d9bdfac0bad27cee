"""Rows from cuts of plain columns: where the features are the columns themselves, a cut of one row is the row.

How many rows a cut of a group has is in the cut. A row that is alone in one is taken off every other cut of its group
that it must be in, by the points, which leaves cuts of fewer rows, and so on. Nothing is inverted, and so nothing could
tell one row from a sum of several: differences of cuts, which may be either, are not tried.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedsvm.algorithms.attacks.attack import Prior
from fedsvm.algorithms.attacks.cut_differences import AT_THE_MARGIN, COUNT_ROUNDING, GroupedCuts, series, take_off
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.joint_blocks import JointCuts, JointRow
from fedsvm.algorithms.attacks.joint_blocks import series as joint_series
from fedsvm.algorithms.attacks.row_counts import CountingAttack, ShownRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.protocols.analysis.views import RunView


class PlainCuts(CountingAttack):
    """Cuts of one row of a binary problem, and those that are left when it is taken off."""

    name = "cuts of plain columns"
    is_of_problems = True

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows of each series of cuts."""
        for epoch in _plain(view):
            for cuts in series(epoch.rounds, prior.posed):
                rows, labels = lone_rows(cuts)
                yield ShownRows.of(epoch, epoch.unscale(rows), labels)


class JointPlainCuts(CountingAttack):
    """The same of the joint problem of all classes."""

    name = "joint cuts of plain columns"

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows of each series of cuts."""
        for epoch in _plain(view):
            for groups in joint_series(epoch.of("joint_cuts"), prior.classes):
                intercept = groups[0].blocks.shape[2] > epoch.columns
                found = [row for cuts in groups for row in lone_joint_rows(cuts, intercept=intercept)]
                rows = np.array([each.features[: epoch.columns] for each in found]).reshape(-1, epoch.columns)
                labels = np.array([each.label for each in found], dtype=np.float64)
                yield ShownRows.of(epoch, epoch.unscale(rows), labels)


def _plain(view: RunView) -> Iterator[Epoch]:
    """Yield the epochs whose features are the columns."""
    return (epoch for epoch in epochs(view) if isinstance(epoch.features, IdentityMap))


def lone_rows(cuts: GroupedCuts) -> LabeledRows:
    """Return rows (k, m) with labels (k,) that follow from a series of cuts; a row that occurs twice is returned
    twice."""
    rows, labels = [cuts.points.w[:0]], list[float]()
    for group in range(cuts.sums.shape[1]):
        rest = cuts.sums[:, group].copy()
        while len(alone := _of_one(rest[:, -1])):
            *signed, label, _ = rest[alone[0]]
            y = float(np.rint(label))
            row = y * np.array(signed)
            if take_off(cuts.points, rest, row, y):
                rows.append(row[None])
                labels.append(y)
            rest[alone[0]] = np.nan
    return LabeledRows(np.vstack(rows), np.array(labels))


def lone_joint_rows(cuts: JointCuts, *, intercept: bool) -> list[JointRow]:
    """Return the same for the joint cuts of a group, and subtract these rows from them."""
    found = list[JointRow]()
    while len(alone := _of_one(cuts.counts)):
        for own, features in _only_row(cuts, int(alone[0]), intercept=intercept):
            row = JointRow(features, own, features, 0.0)
            cuts.counts[_unsure(cuts, features, own)] = np.nan
            if cuts.take_off(row):
                found.append(row)
        cuts.counts[alone[0]] = np.nan
    return found


def _of_one(counts: FloatArray) -> IntArray:
    """Return the counts (T,) that are one; NaN marks cuts that are no longer used."""
    return np.flatnonzero(np.abs(counts - 1.0) < COUNT_ROUNDING)


def _only_row(cuts: JointCuts, place: int, *, intercept: bool) -> list[tuple[int, FloatArray]]:
    """Return the class and features f~ (m',) of the row of a cut of one row.

    The blocks of a row of one class taken for another are those of its negative of the other class taken for the one,
    but for the constant of an intercept. Nothing where neither that nor a third class tells which it is.
    """
    blocks, possible = cuts.blocks[place], list[tuple[int, FloatArray]]()
    for own in np.flatnonzero(np.abs(blocks).max(axis=1) > COUNT_ROUNDING).tolist():
        features = -blocks[own]
        made = cuts.parts(features, own, [place])[0][:, None] * features
        if np.abs(made - blocks).max() < COUNT_ROUNDING and not (intercept and features[-1] < 0):
            possible.append((own, features))
    return possible if len(possible) == 1 else []


def _unsure(cuts: JointCuts, features: FloatArray, own: int) -> BoolArray:
    """Return (T,) the cuts in which rounding decides whether, or in which blocks, a row of a class is."""
    scores = cuts.points @ features
    brackets = scores + 1.0 - scores[:, own : own + 1]
    brackets[:, own] = 0.0
    second, first = np.sort(brackets, axis=1)[:, -2:].T
    return np.asarray(first - second < AT_THE_MARGIN)
