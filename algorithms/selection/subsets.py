"""SVMs on subsets of the columns and of the rows, many of them trained in the same rounds.

The SVMs are linear in the columns, or in the features of landmarks that all problems share. Each problem has columns of
its own and, of an inner cross-validation, a fold whose rows are left out; a half-sample leaves out half of the rows. A
round carries what all unfinished problems ask for, so that rounds do not grow with their number, and vectors do. Which
problems there are rides on the first order of cuts. Rows are dealt to inner folds by their sites, class by class, and
to the groups of grouped cuts, both the same way each time.

What is shown is what the cutting plane shows of each problem (see `optimization.cutting_plane`), and to the sites the
columns of each, the points, and of held-out rows how many are classified rightly, and the sum of their losses, to the
coordinator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsvm.algorithms.data.classes import members, numbers
from fedsvm.algorithms.data.columns import column_sets
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.mapped_rows import MappedRows
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization.cutting_plane import Line, Points
from fedsvm.algorithms.optimization.hinge_sums import CUT_ARGUMENTS, LINE_ARGUMENTS, FederatedOracle, HingeSums
from fedsvm.algorithms.optimization.single_rows import lone_rows, rows_apart
from fedsvm.algorithms.selection.filters import ClassMoments, bin_counts
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.federation.errors import OrderRefused, StepRefused
from fedsvm.federation.site.program import CHECKED, SitePart, free, step
from fedsvm.federation.transport.keys import COORDINATOR

ALL_ROWS = -1
"""In place of an inner fold: no row is left out."""

ROWS_APART = (
    "columns of a single row, by which two cuts of its group differ: so many differences count one row that is on the "
    "right side of the margin at one of both points and not at the other, of the problem with the most of them"
)
ALONE_IN_CUTS = "columns of a single row, which is the only one of its group in a cut"


COLUMN_ARGUMENTS = {
    "columns": free("numbers of columns", "problems on columns of its choice, down to one"),
    "lengths": free("whole numbers", "problems on columns of its choice, down to one"),
    "folds": free("numbers of inner folds or halves", "sums without folds of its choice"),
    "kinds": free("numbers of classes", "only a choice of problems"),
}
"""Of steps with problems on columns."""

_FIRST = np.zeros(1, dtype=np.int64)
"""The number of the one problem of a `HingeSums`."""


def check_columns(columns: IntArray, count: int) -> None:
    """Raise OrderRefused unless these are different numbers of so many columns."""
    if len(set(columns.tolist())) < len(columns) or not set(columns.tolist()) <= set(range(count)):
        raise OrderRefused(f"columns must be different numbers from 0 to {count - 1}, got {columns.tolist()}")


def half_sample(number: int) -> int:
    """Return the fold number of half of the rows; pairs 0 and 1, 2 and 3, … are complementary."""
    return -2 - number


@dataclass(frozen=True)
class Subset:
    """A problem: its columns (m,), and the inner fold that is left out, `ALL_ROWS` or a `half_sample`.

    label: of several classes, the one that is separated from the rest.
    """

    columns: IntArray
    fold: int = ALL_ROWS
    label: int = 0


@dataclass(frozen=True)
class SubsetProblems:
    """Problems, in how many groups of cuts their rows are, and of how many inner folds.

    maps (q,): the features of each problem; none of linear ones.
    """

    subsets: Sequence[Subset]
    groups: int
    inner_folds: int
    maps: Sequence[NystromMap] = ()

    @property
    def dimensions(self) -> list[int]:
        """(q,), the features of each problem."""
        return [each.dimensions for each in self.maps] or [len(each.columns) for each in self.subsets]

    def to_arguments(self) -> dict[str, Any]:
        """Return what sites are sent of them, once."""
        mapped = {}
        if self.maps:
            numbers = column_sets([each.columns for each in self.subsets])
            each_set = [self.maps[place].mapping for place in np.unique(numbers, return_index=True)[1]]
            mapped = {
                "mappings": np.concatenate([mapping.ravel() for mapping in each_set]),
                "ranks": np.array([mapping.shape[1] for mapping in each_set]),
            }
        return {
            **mapped,
            "groups": self.groups,
            "columns": np.concatenate([each.columns for each in self.subsets]),
            "lengths": np.array([len(each.columns) for each in self.subsets]),
            "folds": np.array([each.fold for each in self.subsets]),
            "kinds": np.array([each.label for each in self.subsets]),
            "inner_folds": self.inner_folds,
        }


class ClassSums(SitePart):
    """Sums of the columns over each class, and the columns that a site's rows keep."""

    def __init__(self, site: HorizontalSite) -> None:
        self._site = site

    @step(
        remembered=True,
        told={
            "columns": free("numbers of columns", "a model of columns of its choice"),
        },
    )
    def keep_columns(self, columns: IntArray) -> None:
        """Reduce the rows to these of their columns."""
        if self._site.is_scaled:  # else this is of an earlier fold, and the site was restarted
            self._site.narrow(columns)

    @step
    def class_sizes(self) -> FloatArray:
        """Return the (K,) rows of each class."""
        return np.asarray(self._members.sum(axis=1))

    @step(bound=math.inf)
    def class_moments(self) -> FloatArray:
        """Return the (K, 2p + 1) rows of each class, the sums of its columns, and of their squares."""
        return ClassMoments.of(self._site.scaled, self._members).pack()

    @step(
        bound=math.inf,
        told={
            "column": free("the number of a column", "only a choice of products"),
        },
    )
    def column_products(self, column: int) -> FloatArray:
        """Return the (p,) sums over the rows of a column's value times every column's."""
        return np.asarray(self._site.scaled[:, column] @ self._site.scaled)

    @step(
        told={
            "edges": free("any numbers", "bins that hold few rows"),
        }
    )
    def class_bins(self, edges: FloatArray) -> FloatArray:
        """Return the (K, p, bins) rows of each class in each bin of each column."""
        return bin_counts(self._site.scaled, self._members, edges)

    @property
    def _members(self) -> FloatArray:
        return members(self._site.labels)


class ColumnSubsets(SitePart):
    """The problems of columns and rows that were posed to a site, and the cuts of their rows."""

    def __init__(self, site: HorizontalSite, mapped: MappedRows) -> None:
        self._site, self._mapped = site, mapped
        self._subsets: list[Subset] = []
        self._maps: list[NystromMap] = []
        self._group = self._inner_fold = np.zeros(0, dtype=np.int64)
        self._group_count = 1
        self._cached: dict[int, HingeSums] = {}

    @step(told={**CUT_ARGUMENTS, **COLUMN_ARGUMENTS, "groups, inner_folds": CHECKED})
    def subset_cuts(self, problems: IntArray, w: FloatArray, b: FloatArray, **posed: Any) -> FloatArray:
        """Return grouped cuts of problems at points w, b, one behind the other. posed: see `pose`."""
        self.pose(**posed)
        points = zip(problems.tolist(), self._points(problems, w), b, strict=True)
        cuts = [self._sums(problem).cuts(_FIRST, Points(at_w[None], at_b[None])) for problem, at_w, at_b in points]
        return np.concatenate([each.ravel() for each in cuts])

    @step(told={**LINE_ARGUMENTS, **COLUMN_ARGUMENTS, "groups, inner_folds": CHECKED})
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
        """Return the (k, s, 2) losses and their derivatives along lines. posed: see `pose`."""
        self.pose(**posed)
        lines = zip(self._points(problems, w), b, self._points(problems, dw), db, steps, strict=True)
        pairs = zip(problems.tolist(), lines, strict=True)
        return np.concatenate([self._sums(k).line(_FIRST, Line(*(part[None] for part in line))) for k, line in pairs])

    @step(
        told={
            "w": free("any weights", "counts and losses of inner held-out rows by models of its choice"),
            "b": free("any numbers", "counts and losses of inner held-out rows by models of its choice"),
        }
    )
    def held_out_rows(self, w: FloatArray, b: FloatArray) -> FloatArray:
        """Return the (q, 3) correct rows among those that problems leave out, their hinge loss, and their number.

        w, b: of all problems that were posed; of K > 2 classes each K of them are one model, whose losses are added up.
        """
        together = len(self._site.labels)
        points = self._points(np.arange(len(self.posed)), w)
        found = np.zeros((len(points) // together, 3))
        for place in range(len(found)):
            of = range(place * together, (place + 1) * together)
            out = ~self.used_rows(self.posed[of[0]].fold)
            values = [self.features(each, out) @ points[each] + b[each] for each in of]
            margins = self._site.labels[:, out] * np.array(values)
            right = margins[0] > 0 if together == 1 else np.argmax(values, axis=0) == numbers(self._site.labels[:, out])
            found[place] = right.sum(), np.maximum(1.0 - margins, 0.0).sum(), out.sum()
        return found

    def pose(
        self,
        columns: IntArray | None = None,
        lengths: IntArray | None = None,
        folds: IntArray | None = None,
        kinds: IntArray | None = None,
        groups: int = 1,
        inner_folds: int = 0,
        mappings: FloatArray | None = None,
        ranks: IntArray | None = None,
    ) -> None:
        """Take down which problems (q,) there are from now on, if they are others, and deal the rows for them.

        columns, lengths (q,), folds (q,), kinds (q,): the columns of each, one behind the other, how many, what is left
        out, and whose labels it has. mappings, ranks: of each set of columns in turn the mapping of the landmarks'
        kernel to features, one behind the other, and their number.
        """
        if columns is not None and lengths is not None and folds is not None and kinds is not None:
            self._site.check_agreed(select_groups=groups, inner_folds=inner_folds)
            self._check_posed(columns, lengths, folds, kinds, inner_folds)
            cut = np.split(columns, np.cumsum(lengths)[:-1])
            told = zip(cut, folds.tolist(), kinds.tolist(), strict=True)
            self._subsets = [Subset(each, fold, kind) for each, fold, kind in told]
            self._maps = [] if mappings is None or ranks is None else self._read_maps(cut, mappings, ranks)
            self._deal(groups, inner_folds)

    def _check_posed(
        self, columns: IntArray, lengths: IntArray, folds: IntArray, kinds: IntArray, inner_folds: int
    ) -> None:
        """Raise OrderRefused for problems on columns, folds or labels that there are not."""
        if not len(lengths) == len(folds) == len(kinds) > 0:
            raise OrderRefused("lengths, folds and kinds must have one number for each problem")
        if min(lengths) < 1 or sum(lengths) != len(columns):
            raise OrderRefused(
                f"lengths must be 1 or more and add up to the {len(columns)} columns, got {sum(lengths)}"
            )
        for each in np.split(columns, np.cumsum(lengths)[:-1]):
            check_columns(each, self._site.scaled.shape[1])
        if max(folds) >= inner_folds and max(folds) >= 0:
            raise OrderRefused(f"folds must be below {inner_folds}, got {max(folds)}")
        if not set(kinds.tolist()) <= set(range(len(self._site.labels))):
            raise OrderRefused(f"kinds must be from 0 to {len(self._site.labels) - 1}, got {kinds.tolist()}")

    def _read_maps(self, columns: Sequence[IntArray], mappings: FloatArray, ranks: IntArray) -> list[NystromMap]:
        """Return (q,) the map of each problem: the agreed kernel at the landmarks, in the problem's columns."""
        shared = self._mapped.map
        if not isinstance(shared, NystromMap):
            raise StepRefused("the site has no landmarks; run again")
        count = len(shared.landmarks)
        cut = np.split(mappings, np.cumsum(count * ranks)[:-1])
        each_set = [flat.reshape(count, rank) for flat, rank in zip(cut, ranks.tolist(), strict=True)]
        kernels = [self._kernel(shared.kernel, len(each)) for each in columns]
        told = zip(kernels, columns, column_sets(columns), strict=True)
        return [NystromMap(kernel, shared.landmarks[:, each], each_set[number]) for kernel, each, number in told]

    def _kernel(self, kernel: Kernel, columns: int) -> Kernel:
        """Return the kernel of some columns; a gamma that was agreed on by name depends on their number."""
        return replace(kernel, gamma=1.0 / columns) if isinstance(self._site.terms.settings["gamma"], str) else kernel

    def features(self, problem: int, used: BoolArray) -> FloatArray:
        """Return the features of some rows in a problem: its columns, or the kernel at landmarks in its columns."""
        rows = self._site.scaled[np.ix_(used, self.posed[problem].columns)]
        return self._maps[problem](rows) if self._maps else rows

    def features_in(self, columns: IntArray) -> FloatArray:
        """Return all rows in the features of the first problem, or in some columns if problems are linear."""
        return self.features(0, self.used_rows(ALL_ROWS)) if self._maps else self._site.scaled[:, columns]

    @property
    def posed(self) -> list[Subset]:
        """The problems. Raises StepRefused if there are none, as at a site that was restarted."""
        if not self._subsets:
            raise StepRefused("no problems were posed to this site; run again")
        return self._subsets

    def _deal(self, groups: int, inner_folds: int) -> None:
        rows, random = len(self._site.scaled), self._site.random("groups")
        self._group = (random.permutation(rows) + random.integers(groups)) % groups
        self._group_count = groups
        self._inner_fold = np.zeros(rows, dtype=np.int64)
        if inner_folds:
            for kind, member in enumerate(members(self._site.labels)):
                of_class = self._site.random(f"inner folds {kind}").permutation(np.flatnonzero(member))
                first = self._site.random(f"first fold {kind}").integers(inner_folds)
                self._inner_fold[of_class] = (np.arange(len(of_class)) + first) % inner_folds
        self._cached = {}

    def used_rows(self, fold: int) -> BoolArray:
        """Return (n,) the rows of a problem."""
        if fold == ALL_ROWS:
            return np.ones(len(self._site.scaled), dtype=np.bool_)
        if fold >= 0:
            return np.asarray(self._inner_fold != fold)
        pair, side = divmod(half_sample(fold), 2)
        drawn = np.zeros(len(self._site.scaled), dtype=np.bool_)
        for kind, member in enumerate(members(self._site.labels)):
            of_class = self._site.random(f"half {pair} {kind}").permutation(np.flatnonzero(member))
            more = int(self._site.random(f"odd {pair} {kind}").integers(2))
            drawn[of_class[: (len(of_class) + more) // 2]] = True
        return drawn if side == 0 else ~drawn

    def _sums(self, problem: int) -> HingeSums:
        """Return the rows of a problem, in its columns."""
        if problem not in self._cached:
            subset = self.posed[problem]
            used = self.used_rows(subset.fold)
            members = np.equal.outer(np.arange(self._group_count), self._group[used]).astype(np.float64)
            self._cached[problem] = HingeSums(
                self.features(problem, used), self._site.labels[subset.label, used][None, :], members
            )
        return self._cached[problem]

    def _points(self, problems: IntArray, flat: FloatArray) -> list[FloatArray]:
        sizes = [each.dimensions for each in self._maps] or [len(each.columns) for each in self.posed]
        return np.split(flat, np.cumsum([sizes[problem] for problem in problems.tolist()])[:-1])


@dataclass(kw_only=True)
class SubsetOracle(FederatedOracle):
    """The sums that cutting planes ask for, of problems that are posed with the first of them.

    Points and cuts have zeros where a problem has fewer columns than others.
    """

    posed: SubsetProblems
    opened: dict[int, list[tuple[FloatArray, float, FloatArray]]] = field(default_factory=dict)
    _is_posed: bool = False

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        """Open losses and derivatives by one secure sum; see `Oracle.line`."""
        bound, shape = line.bound(self.rows, self.norm_sum), (*line.steps.shape, 2)
        return self._sum("subset_line", shape, bound, problems, line)

    def _open_cuts(self, problems: IntArray, at: Points, bound: float) -> FloatArray:
        sizes = [(self.groups, each + 2) for each in self._lengths(problems)]
        ends = np.cumsum([math.prod(size) for size in sizes])
        found = self._sum("subset_cuts", (int(ends[-1]),), bound, problems, at)
        cuts = np.zeros((len(problems), self.groups, at.w.shape[1] + 2))
        for place, (part, size) in enumerate(zip(np.split(found, ends[:-1]), sizes, strict=True)):
            grouped, length = part.reshape(size), size[1] - 2
            cuts[place, :, :length], cuts[place, :, -2:] = grouped[:, :-2], grouped[:, -2:]
            opened = (at.w[place, :length], float(at.b[place]), grouped)
            self.opened.setdefault(int(problems[place]), []).append(opened)
        return cuts

    def _sum(self, step: str, shape: tuple[int, ...], bound: float, problems: IntArray, at: Points) -> FloatArray:
        """Order the sum of a step at points without their zeros, with the problems if sites do not know them yet."""
        lengths, posed = self._lengths(problems), {} if self._is_posed else self.posed.to_arguments()
        self._is_posed = True
        order: dict[str, Any] = {
            name: np.concatenate([w[:length] for w, length in zip(part, lengths, strict=True)])
            if name in ("w", "dw")
            else part
            for name, part in vars(at).items()
        }
        return np.asarray(self.federation.sum(step, shape=shape, bound=bound, problems=problems, **order, **posed))

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

    def _lengths(self, problems: IntArray) -> list[int]:
        return [len(self.posed.subsets[problem].columns) for problem in problems.tolist()]
