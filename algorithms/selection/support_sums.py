"""Class sums over support rows, released so that no two of them differ by a row or two.

Support rows of successive models differ by few. The difference of two sums over them is then a row, and its squares
prove it: released without a guard, they hand out patients. So sites keep the support sets whose sums were released, and
a class is released again only if its set differs from every one of them by `min_change` rows or more, and has as many:
otherwise the old sums stand, less the columns that were dropped, and nothing is sent. What is asked for to decide that
are numbers of rows, in a sum. The first of the released sets is the class itself, whose sums the class moments are: of
a model that all but one of a class's rows support, the difference would be that one.

A row is determined by the sums, whoever knows which rows are in which, where its unit vector is a combination of the
sets' 0/1 vectors m. With G = sum m m^T over all rows (from the same numbers) that is where m_i^T G^+ m_i = 1, for the
vector m_i of the sets that row i is in: sites count such rows of theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fedsvm.algorithms.data.classes import members
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.optimization.solution import Solution
from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.algorithms.selection.moments import MIN_OF_CLASS
from fedsvm.algorithms.selection.subsets import ColumnSubsets
from fedsvm.algorithms.settings import MAX_COUNT
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SitePart, free, step
from fedsvm.federation.transport.keys import COORDINATOR

SLACK = 1e-3
"""Rows whose margin is at most 1 and this support a model that is trained to a gap of 1e-6."""

SUPPORT_SUMS = "class means and variances over the rows that support a model"
DETERMINED = (
    "rows that follow from the sums over support sets that were released, for one who knows which rows are in which"
)
_ONE_WITHIN = 1e-6


class SupportSets(SitePart):
    """The rows of a site that support models, and the sets of them whose sums were released, class by class."""

    def __init__(self, site: HorizontalSite, subsets: ColumnSubsets) -> None:
        self._site, self._subsets = site, subsets
        self.released: list[dict[int, BoolArray]] = []
        self._supporting: list[BoolArray] = []

    @step(
        told={
            "number": free("a whole number", "counts against none of the earlier sets"),
            "columns": free("numbers of columns", "support rows of a model of its choice"),
            "w": free("any weights", "support rows of a model of its choice"),
            "b": free("any number", "support rows of a model of its choice"),
            "releases": free("a whole number", "nothing; only empty cells of the table change"),
        }
    )
    def support_changes(self, number: int, columns: IntArray, w: FloatArray, b: float, releases: int) -> FloatArray:
        """Return the (2, r + 1) support rows of each class, and how many differ from each earlier release.

        number: of this model, from 1; the first forgets all releases but that of the class, which may have been of
        other rows, where another fold was held out. releases: r, the most there are of a class.
        """
        if number == 1:
            self.released = [{0: member > 0} for member in members(self._site.labels)]
        margins = self._site.labels[0] * (self._subsets.features_in(columns) @ w + b)
        found = np.zeros((2, releases + 1))
        self._supporting = []
        for kind, member in enumerate(members(self._site.labels)):
            now = (member > 0) & (margins <= 1 + SLACK)
            self._supporting.append(now)
            before = [mask for told, mask in self.released[kind].items() if told < number]
            found[kind, 0] = now.sum()
            found[kind, 1 : len(before) + 1] = [(now ^ mask).sum() for mask in before]
        return found

    @step(
        bound=math.inf,
        told={
            "number": free("a whole number", "sums of a set under another number"),
            "columns": free("numbers of columns", "sums of the support rows in columns of its choice"),
            "released": free(
                "true or false of each class", "the sums of a set of few rows, or close to an earlier one"
            ),
        },
    )
    def support_moments(self, number: int, columns: IntArray, released: list[bool]) -> FloatArray:
        """Return the (2, 2m + 1) support rows of each released class, their sums and sums of squares; otherwise
        zeros."""
        found = np.zeros((2, 2 * len(columns) + 1))
        for kind, is_released in enumerate(released):
            if is_released:
                now = self._supporting[kind]
                self.released[kind][number] = now
                rows = self._site.scaled[np.ix_(now, columns)]
                found[kind] = ClassMoments.of(rows, np.ones((1, len(rows)))).pack()[0]
        return found

    @step(
        told={
            "releases": free("a whole number", "nothing; only empty cells of the table change"),
        }
    )
    def support_overlaps(self, releases: int) -> FloatArray:
        """Return the (2, r, r) number of rows of each class that are in each two of the released sets."""
        found = np.zeros((2, releases, releases))
        for kind, masks in enumerate(self.released):
            sets = np.array(list(masks.values()), dtype=np.float64).reshape(len(masks), len(self._site.scaled))
            found[kind, : len(masks), : len(masks)] = sets @ sets.T
        return found

    @step(
        told={
            "inverses": free("any matrices", "a count of rows by another rule"),
        }
    )
    def rows_determined(self, inverses: FloatArray) -> FloatArray:
        """Return the number of rows whose unit vectors are combinations of the released sets. inverses (2, r, r): of
        the overlaps."""
        count = 0
        for masks, inverse in zip(self.released, inverses, strict=True):
            sets = np.array(list(masks.values()), dtype=np.float64).reshape(len(masks), len(self._site.scaled))
            shares = np.einsum("in,ij,jn->n", sets, inverse[: len(masks), : len(masks)], sets)
            count += int((np.abs(shares - 1.0) < _ONE_WITHIN).sum())
        return np.array(float(count))


@dataclass
class SupportSums:
    """The coordinator's knowledge of support rows: for each class its last sums, in the columns of their release.

    min_change: rows by which two released sets of a class differ at least, and rows of one.
    """

    federation: Federation
    min_change: int
    number: int = 0
    releases: list[int] = field(default_factory=lambda: [1, 1])
    _known: list[tuple[IntArray, FloatArray]] = field(default_factory=list)
    _changes: int = -1

    def moments(self, columns: IntArray, solution: Solution, of_all: ClassMoments) -> ClassMoments:
        """Return the moments of the support rows of a model of some columns, or of an earlier one, by class.

        of_all: the moments of all rows, which stand for a class until it is released. Raises MembershipChanged.
        """
        changes = len(self.federation.membership.changes)
        if changes != self._changes:
            self._changes, self.number, self.releases = changes, 0, [1, 1]
            every = np.arange(of_all.sums.shape[1])
            self._known = [(every, packed) for packed in of_all.pack()]
        self.number += 1
        most = max(self.releases)
        counts = np.rint(
            self.federation.sum(
                "support_changes",
                shape=(2, most + 1),
                bound=float(MAX_COUNT),
                number=self.number,
                columns=columns,
                w=solution.w,
                b=solution.b,
                releases=most,
            )
        )
        released = [
            bool(counts[kind, 0] >= max(MIN_OF_CLASS, self.min_change))
            and bool((counts[kind, 1 : self.releases[kind] + 1] >= self.min_change).all())
            for kind in range(2)
        ]
        if any(released):
            self._release(columns, released)
        return ClassMoments.unpack(np.array([_only(*each, columns) for each in self._known]))

    def _release(self, columns: IntArray, released: list[bool]) -> None:
        sums = self.federation.sum(
            "support_moments",
            shape=(2, 2 * len(columns) + 1),
            bound=math.inf,
            number=self.number,
            columns=columns,
            released=released,
        )
        self.federation.disclose(COORDINATOR, "support_moments", SUPPORT_SUMS, (), times=sum(released))
        for kind, is_released in enumerate(released):
            if is_released:
                self.releases[kind] += 1
                self._known[kind] = columns, sums[kind]

    def rows_determined(self) -> int:
        """Return how many rows follow from releases over the present sites. Raises MembershipChanged."""
        most = max(self.releases)
        if most == 1:  # the class itself
            return 0
        bound = float(MAX_COUNT)
        overlaps = np.rint(self.federation.sum("support_overlaps", shape=(2, most, most), bound=bound, releases=most))
        inverses = np.array([np.linalg.pinv(each, hermitian=True) for each in overlaps])
        count = round(float(self.federation.sum("rows_determined", shape=(), bound=bound, inverses=inverses)))
        if count:
            self.federation.disclose(COORDINATOR, "support_moments", DETERMINED, (), count, kind="row-difference")
        return count


def _only(columns: IntArray, packed: FloatArray, wanted: IntArray) -> FloatArray:
    """Return (2m + 1,) sums that were released in some columns, in fewer of them."""
    places = np.searchsorted(columns, wanted)
    width = len(columns)
    return np.concatenate([packed[:1], packed[1 : 1 + width][places], packed[1 + width :][places]])
