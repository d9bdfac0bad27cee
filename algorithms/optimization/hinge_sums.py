"""The sums over rows that the cutting plane asks for: of rows that are here, or over a federation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.data.classes import Scheme, members, signs_of
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.mapped_rows import FeatureRows
from fedsvm.algorithms.optimization.cutting_plane import Line, Points, Taken, starts_of
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import CHECKED, SitePart, free, step
from fedsvm.federation.site.terms import Terms

_PROBLEMS = free("numbers of problems", "only a choice of problems")
_POINT = free("any point", "sums of losses or gradients at points of its choice: can isolate rows")

CUT_ARGUMENTS = {"problems": _PROBLEMS, "w, b": _POINT}
LINE_ARGUMENTS = {"problems": _PROBLEMS, "w, b, dw, db, steps": _POINT}
"""Of the steps that sum cuts and losses along lines."""


def groups_of(rows: int, groups: int, random: np.random.Generator) -> FloatArray:
    """Return (g, n) of 0 and 1: n rows dealt at random to groups whose sizes differ by at most one."""
    group = (random.permutation(rows) + random.integers(groups)) % groups
    return np.asarray(np.equal.outer(np.arange(groups), group), dtype=np.float64)


def require_few_groups(groups: int, terms: Terms) -> None:
    """Raise OrderRefused for more groups than were agreed on, or none: groups of one row show it."""
    if type(groups) is not int or groups < 1:
        raise OrderRefused(f"groups must be a whole number from 1 on, got {groups!r}")
    if groups > terms.settings.get("cut_groups", groups):
        raise OrderRefused(f"groups must be {terms.settings['cut_groups']} or fewer, as agreed, got {groups}")


@dataclass(frozen=True)
class HingeSums:
    """Rows with features (n, m) and labels (K, n) of +1 and -1, dealt to g groups: members (g, n) of 0 and 1.

    A row with a label of 0 is not part of the problem, and counts in none of its sums.
    It is an `Oracle` of the cutting plane where these are all rows, and a site's part of one where they are its own.
    """

    features: FloatArray
    labels: FloatArray
    members: FloatArray

    @classmethod
    def deal(cls, features: FloatArray, labels: FloatArray, groups: int, random: np.random.Generator) -> HingeSums:
        """Return rows dealt at random to groups whose sizes differ by at most one."""
        return cls(features, labels, groups_of(len(features), groups, random))

    def cuts(self, problems: IntArray, at: Points) -> FloatArray:
        """Return (k, g, m + 2) per problem and group: a = sum c y f, d = sum c y, m = sum c (Lu 2016, algorithm 2)."""
        y = self.labels[problems]
        c = (y * (at.w @ self.features.T + at.b[:, None]) < 1) & (y != 0)
        cy = c * y
        sums = np.empty((len(problems), len(self.members), self.features.shape[1] + 2))
        for k in range(len(problems)):
            sums[k, :, :-2] = (self.members * cy[k]) @ self.features
            sums[k, :, -2] = self.members @ cy[k]
            sums[k, :, -1] = self.members @ c[k]
        return sums

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        """Return (k, s, 2) the loss and its derivative along lines at each step (Lu 2016, algorithm 3)."""
        y = self.labels[problems]
        start = y * (line.w @ self.features.T + line.b[:, None])
        slope = y * (line.dw @ self.features.T + line.db[:, None])
        slack = 1 - start[:, None, :] - line.steps[:, :, None] * slope[:, None, :]
        violated = (slack > 0) & (y != 0)[:, None, :]
        return np.stack([(slack * violated).sum(axis=2), -(violated * slope[:, None, :]).sum(axis=2)], axis=2)


def cuts_at_zero(class_sums: FloatArray, signs: FloatArray, b: float) -> FloatArray:
    """Return (g, m + 2) the cuts at w = 0 and b of -1, 0 or 1, for a problem with labels `signs` (K,) of the classes.

    class_sums (K, g, m + 1): of each class and group the sum of f, and how many rows there are.
    """
    active = (signs * b < 1) & (signs != 0)
    signed = np.tensordot(signs * active, class_sums, axes=1)
    counts = np.tensordot(active.astype(np.float64), class_sums[..., -1], axes=1)
    return np.column_stack([signed, counts])


class HingeCuts(SitePart):
    """A site's part of the cuts and line searches of binary problems."""

    def __init__(self, site: HorizontalSite, rows: FeatureRows) -> None:
        self._site, self._rows = site, rows
        self._sums = HingeSums(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0)))

    @step(
        remembered=True,
        told={
            "groups, scheme": CHECKED,
        },
    )
    def deal_groups(self, groups: int, scheme: Scheme = "ovr") -> None:
        """Assign this site's rows at random to the groups of the grouped cuts, the same in all problems.

        Raises OrderRefused for more groups, or another scheme, than were agreed on.
        """
        site = self._site
        require_few_groups(groups, site.terms)
        self._sums = HingeSums.deal(self._rows.features, site.labels_by(scheme), groups, site.random("groups"))

    @step
    def starting_sums(self) -> FloatArray:
        """Return the (K, g, m + 1) sum of the features of each class and group, and the number of rows."""
        with_ones = np.column_stack([self._rows.features, np.ones(len(self._rows.features))])
        return np.stack([(self._sums.members * of_class) @ with_ones for of_class in members(self._site.labels)])

    @step(told=CUT_ARGUMENTS)
    def cuts(self, problems: IntArray, w: FloatArray, b: FloatArray) -> FloatArray:
        """Return this site's part of the grouped cuts."""
        return self._sums.cuts(problems, Points(w, b))

    @step(told=LINE_ARGUMENTS)
    def line(self, problems: IntArray, **line: FloatArray) -> FloatArray:
        """Return this site's part of the losses along lines; line: the fields of a `Line`."""
        return self._sums.line(problems, Line(**line))


@dataclass
class FederatedOracle:
    """The sums of cutting planes, over a federation.

    rows: their number. norm_sum: upper bound on the sum of the rows' feature norms. on_cuts: called with the cuts
    of each round.
    """

    federation: Federation
    groups: int
    rows: int
    norm_sum: float
    on_cuts: Callable[[Taken], None] = lambda taken: None

    def cuts(self, problems: IntArray, at: Points) -> FloatArray:
        """Open grouped cuts by one secure sum; see `Oracle.cuts`."""
        found = self._open_cuts(problems, at, max(float(self.rows), self.norm_sum))
        self.on_cuts(Taken(problems, at, found))
        return found

    def first(self, features: int, classes: int, scheme: Scheme, *, intercept: bool) -> Taken:
        """Open the cuts at w = 0 of all problems of K classes, by one secure sum of K g (m + 1) numbers."""
        bound = max(self.rows, self.norm_sum)
        sums = self.federation.sum("starting_sums", shape=(classes, self.groups, features + 1), bound=bound)
        signs = signs_of(classes, scheme)
        problems, b = starts_of(len(signs), intercept=intercept)
        cuts = [cuts_at_zero(sums, signs[problem], at) for problem, at in zip(problems, b.tolist(), strict=True)]
        taken = Taken(problems, Points(np.zeros((len(b), features)), b), np.stack(cuts))
        self.on_cuts(taken)
        return taken

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        """Open losses and derivatives by one secure sum; see `Oracle.line`."""
        bound, shape = line.bound(self.rows, self.norm_sum), (*line.steps.shape, 2)
        return np.asarray(self.federation.sum("line", shape=shape, bound=bound, problems=problems, **vars(line)))

    def _open_cuts(self, problems: IntArray, at: Points, bound: float) -> FloatArray:
        shape = (len(problems), self.groups, at.w.shape[1] + 2)
        return np.asarray(self.federation.sum("cuts", shape=shape, bound=bound, problems=problems, **vars(at)))
