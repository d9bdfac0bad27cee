"""Linear SVMs on subsets of the columns and of the rows, many of them trained in the same rounds.

Each problem has columns of its own and, of an inner cross-validation, a fold whose rows are left out; a half-sample
leaves out half of the rows. A round carries what all unfinished problems ask for, so that rounds do not grow with their
number, and vectors do. Which problems there are rides on the first order of cuts. Rows are dealt to inner folds by
their sites, class by class, and to the groups of grouped cuts, both the same way each time.

What is shown is what the cutting plane shows of each problem (see `optimisation.cutting_plane`), and to the sites the
columns of each, the points, and of held-out rows how many are classified rightly, and the sum of their losses, to the
coordinator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsvm.algorithms.data.classes import members, numbers
from fedsvm.algorithms.optimisation.hinge_sums import HingeSums, Points, line_bound
from fedsvm.algorithms.optimisation.single_rows import lone_rows, rows_apart
from fedsvm.algorithms.pan_svm import PanSite
from fedsvm.algorithms.selection.filters import ClassMoments, bin_counts
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import step
from fedsvm.federation.transport.keys import COORDINATOR

ALL_ROWS = -1
"""In place of an inner fold: no row is left out."""

ROWS_APART = (
    "columns of a single row, by which two cuts of its group differ: so many differences count one row that is on the "
    "right side of the margin at one of both points and not at the other, of the problem with the most of them"
)
ALONE_IN_CUTS = "columns of a single row, which is the only one of its group in a cut"


def half_sample(number: int) -> int:
    """In place of an inner fold: half of the rows, of which the pairs 0 and 1, 2 and 3, … are complementary."""
    return -2 - number


@dataclass(frozen=True)
class Subset:
    """A problem: its columns (m,), and the inner fold that is left out, `ALL_ROWS` or a `half_sample`.

    label: of several classes, which of them is told from the rest.
    """

    columns: IntArray
    fold: int = ALL_ROWS
    label: int = 0


@dataclass(frozen=True)
class Posed:
    """Problems, in how many groups of cuts their rows are, and of how many inner folds."""

    subsets: Sequence[Subset]
    groups: int
    inner_folds: int

    def told(self) -> dict[str, Any]:
        """What sites are told of them, once."""
        return {
            "groups": self.groups,
            "columns": np.concatenate([each.columns for each in self.subsets]),
            "lengths": np.array([len(each.columns) for each in self.subsets]),
            "folds": np.array([each.fold for each in self.subsets]),
            "kinds": np.array([each.label for each in self.subsets]),
            "inner_folds": self.inner_folds,
        }


class SubsetSite(PanSite):
    """What a site does for the choice of columns."""

    subsets: list[Subset]

    @step
    def rescale(self, offset: FloatArray, scale: FloatArray) -> None:
        """Put the training rows on the common scale; all columns are there to choose from."""
        super().rescale(offset, scale)
        self.scaled, self.scaled_apart = self.rows, self.rows_apart

    @step
    def keep_columns(self, columns: IntArray) -> None:
        """From now on rows are these columns of them."""
        if self.is_scaled:  # or of an earlier fold, told to a site that was restarted
            self.rows, self.rows_apart = self.scaled[:, columns], self.scaled_apart[:, columns]

    @step
    def class_sizes(self) -> FloatArray:
        """(K,) rows of each class."""
        return np.asarray(members(self.labels).sum(axis=1))

    @step(bound=math.inf)
    def class_moments(self) -> FloatArray:
        """(K, 2p + 1): of each class its rows, the sums of its columns, and of their squares."""
        return ClassMoments.of(self.scaled, members(self.labels)).packed()

    @step(bound=math.inf)
    def column_products(self, column: int) -> FloatArray:
        """(p,) sums over the rows of a column's value times every column's."""
        return np.asarray(self.scaled[:, column] @ self.scaled)

    @step
    def class_bins(self, edges: FloatArray) -> FloatArray:
        """(K, p, bins) rows of each class in each bin of each column."""
        return bin_counts(self.scaled, members(self.labels), edges)

    # Problems of columns and rows.

    @step
    def subset_cuts(
        self,
        problems: IntArray,
        w: FloatArray,
        b: FloatArray,
        **posed: Any,
    ) -> FloatArray:
        """(sum of g (m + 2),): grouped cuts of problems at points w, b, one behind the other. posed: see `_take`."""
        self._take(**posed)
        parts = []
        for problem, point, at_b in zip(problems.tolist(), self._points(problems, w), b, strict=True):
            found = self._sums(problem).cuts(np.zeros(1, dtype=np.int64), point[None, :], np.array([at_b]))
            parts.append(found.ravel())
        return np.concatenate(parts)

    @step
    def subset_line(
        self,
        problems: IntArray,
        w: FloatArray,
        b: FloatArray,
        dw: FloatArray,
        db: FloatArray,
        steps: FloatArray,
        **posed: Any,
    ) -> FloatArray:
        """(k, s, 2): losses and their derivatives along lines. posed: see `_take`."""
        self._take(**posed)
        found = np.empty((*steps.shape, 2))
        lines = zip(problems.tolist(), self._points(problems, w), b, self._points(problems, dw), db, steps, strict=True)
        for place, (problem, point, at_b, towards, by_b, along) in enumerate(lines):
            first = np.zeros(1, dtype=np.int64)
            line = (point[None, :], np.array([at_b]), towards[None, :], np.array([by_b]), along[None, :])
            found[place] = self._sums(problem).line(first, *line)[0]
        return found

    @step
    def held_out_rows(self, w: FloatArray, b: FloatArray) -> FloatArray:
        """(q, 3): of the rows that problems leave out how many are right, their hinge loss, and their number.

        w, b: of all problems that were posed; of K > 2 classes each K of them are one model, whose losses are added up.
        """
        together = len(self.labels)
        points = self._points(np.arange(len(self._posed)), w)
        found = np.zeros((len(points) // together, 3))
        for place in range(len(found)):
            of = range(place * together, (place + 1) * together)
            out = ~self._used(self._posed[of[0]].fold)
            values = [self.scaled[np.ix_(out, self._posed[each].columns)] @ points[each] + b[each] for each in of]
            margins = self.labels[:, out] * np.array(values)
            right = margins[0] > 0 if together == 1 else np.argmax(values, axis=0) == numbers(self.labels[:, out])
            found[place] = right.sum(), np.maximum(1.0 - margins, 0.0).sum(), out.sum()
        return found

    def _take(
        self,
        columns: IntArray | None = None,
        lengths: IntArray | None = None,
        folds: IntArray | None = None,
        kinds: IntArray | None = None,
        groups: int = 1,
        inner_folds: int = 0,
    ) -> None:
        """Take down which problems (q,) there are from now on, if they are others, and deal the rows for them.

        columns, lengths (q,), folds (q,), kinds (q,): the columns of each, one behind the other, how many, what is left
        out, and whose labels it has.
        """
        if columns is not None and lengths is not None and folds is not None and kinds is not None:
            self.check_agreed(select_groups=groups, inner_folds=inner_folds)
            cut = np.split(columns, np.cumsum(lengths)[:-1])
            told = zip(cut, folds.tolist(), kinds.tolist(), strict=True)
            self.subsets = [Subset(each, fold, kind) for each, fold, kind in told]
            self._deal(groups, inner_folds)

    @property
    def _posed(self) -> list[Subset]:
        if not hasattr(self, "subsets"):
            raise StepRefused("no problems were posed to this site; run again")
        return self.subsets

    def _deal(self, groups: int, inner_folds: int) -> None:
        rows, random = len(self.scaled), self.random("groups")
        self.group = (random.permutation(rows) + random.integers(groups)) % groups
        self.group_count = groups
        self.inner_fold = np.zeros(rows, dtype=np.int64)
        if inner_folds:
            for kind, member in enumerate(members(self.labels)):
                of_class = self.random(f"inner folds {kind}").permutation(np.flatnonzero(member))
                first = self.random(f"first fold {kind}").integers(inner_folds)
                self.inner_fold[of_class] = (np.arange(len(of_class)) + first) % inner_folds
        self._cached: dict[int, HingeSums] = {}

    def _used(self, fold: int) -> BoolArray:
        """(n,) the rows of a problem."""
        if fold == ALL_ROWS:
            return np.ones(len(self.scaled), dtype=np.bool_)
        if fold >= 0:
            return np.asarray(self.inner_fold != fold)
        pair, side = divmod(half_sample(fold), 2)
        drawn = np.zeros(len(self.scaled), dtype=np.bool_)
        for kind, member in enumerate(members(self.labels)):
            of_class = self.random(f"half {pair} {kind}").permutation(np.flatnonzero(member))
            more = int(self.random(f"odd {pair} {kind}").integers(2))
            drawn[of_class[: (len(of_class) + more) // 2]] = True
        return drawn if side == 0 else ~drawn

    def _sums(self, problem: int) -> HingeSums:
        """The rows of a problem, in its columns."""
        if problem not in self._cached:
            subset = self._posed[problem]
            used = self._used(subset.fold)
            members = np.equal.outer(np.arange(self.group_count), self.group[used]).astype(np.float64)
            features = self.scaled[np.ix_(used, subset.columns)]
            self._cached[problem] = HingeSums(features, self.labels[subset.label, used][None, :], members)
        return self._cached[problem]

    def _points(self, problems: IntArray, flat: FloatArray) -> list[FloatArray]:
        lengths = [len(self._posed[problem].columns) for problem in problems.tolist()]
        return np.split(flat, np.cumsum(lengths)[:-1])


@dataclass
class SubsetOracle:
    """The sums that cutting planes ask for, of problems that are posed with the first of them.

    norm_sum: no sum over rows of their length is larger.
    """

    federation: Federation
    posed: Posed
    rows: int
    norm_sum: float
    _is_posed: bool = False
    opened: dict[int, list[tuple[FloatArray, float, FloatArray]]] = field(default_factory=dict)

    def cuts(self, problems: IntArray, w: FloatArray, b: FloatArray) -> FloatArray:
        """One secure sum; see `Oracle.cuts`. Points and cuts have zeros where a problem has fewer columns."""
        lengths = self._lengths(problems)
        shape = (sum(self.posed.groups * (each + 2) for each in lengths),)
        bound = max(float(self.rows), self.norm_sum)
        found = self.federation.sum(
            "subset_cuts",
            shape=shape,
            bound=bound,
            problems=problems,
            w=self._flat(w, lengths),
            b=b,
            **self._pose(),
        )
        self._is_posed = True
        cuts = np.zeros((len(problems), self.posed.groups, w.shape[1] + 2))
        ends = np.cumsum([self.posed.groups * (each + 2) for each in lengths])[:-1]
        for place, (part, length) in enumerate(zip(np.split(found, ends), lengths, strict=True)):
            grouped = part.reshape(self.posed.groups, length + 2)
            cuts[place, :, :length], cuts[place, :, -2:] = grouped[:, :-2], grouped[:, -2:]
            opened = (w[place, :length], float(b[place]), grouped)
            self.opened.setdefault(int(problems[place]), []).append(opened)
        return cuts

    def line(
        self, problems: IntArray, w: FloatArray, b: FloatArray, dw: FloatArray, db: FloatArray, steps: FloatArray
    ) -> FloatArray:
        """One secure sum; see `Oracle.line`."""
        lengths = self._lengths(problems)
        found: FloatArray = self.federation.sum(
            "subset_line",
            shape=(*steps.shape, 2),
            bound=line_bound(w, b, dw, db, steps, self.rows, self.norm_sum),
            problems=problems,
            w=self._flat(w, lengths),
            b=b,
            dw=self._flat(dw, lengths),
            db=db,
            steps=steps,
            **self._pose(),
        )
        self._is_posed = True
        return found

    def disclose(self) -> None:
        """Write down what the cuts of each problem say of single rows, of the problem whose cuts say most."""
        alone = apart = 0
        for cuts in self.opened.values():
            w, b, sums = (np.array(each) for each in zip(*cuts, strict=True))
            alone = max(alone, len(lone_rows(sums)[1]))
            apart = max(apart, len(rows_apart(Points(w, b), sums)[1]))
        if alone:
            self.federation.disclose(COORDINATOR, "subset_cuts", ALONE_IN_CUTS, (), alone, kind="single-row")
        if apart:
            self.federation.disclose(COORDINATOR, "subset_cuts", ROWS_APART, (), apart, kind="row-difference")

    def _pose(self) -> dict[str, Any]:
        """Which problems there are, for sites that were not told yet."""
        return {} if self._is_posed else self.posed.told()

    def _lengths(self, problems: IntArray) -> list[int]:
        return [len(self.posed.subsets[problem].columns) for problem in problems.tolist()]

    def _flat(self, padded: FloatArray, lengths: list[int]) -> FloatArray:
        return np.concatenate([each[:length] for each, length in zip(padded, lengths, strict=True)])
