"""A decision tree from summed cross-tables: ID3 over sites that hold rows, and CART (Quinlan 1986; Breiman 1984).

Columns are cut into bins, whose edges are equally far apart within three deviations of the mean, by one sum, or by
noisy statistics. Then the tree grows level by level: of every node of a level one secure sum opens the cross-table of
columns, bins and classes,

    T[node, j, bin, class] = how many rows of the class in the node have column j in the bin,

from which follows how pure every split would leave its two sides: by Gini's index (CART) or by entropy (ID3). Rounds
follow the depth, not the number of nodes. It is the histogram tree of today's libraries, over sites.

Disclosures. The coordinator learns the tables, whole numbers that add up to few in deep nodes. A class of one row
in a node shows the bin of each of its columns, that is the row, to the width of the bins, and columns of 0 and 1
exactly; and the table of a node that is not asked for is its parent's less its sibling's. `min_class_rows` keeps every
split from leaving fewer rows of a class on a side, but for none, and a class with fewer rows in all is refused before
any table is asked for: since nodes are within each other or apart, no table and no difference of tables is of fewer
then. Over folds, or sites that leave, differences are. With 1 the tree is the usual one, and `attacks.cross_tables`
finds rows.
Whoever takes off rows of its own, as a site may that colludes with the coordinator, is left with fewer all the same.
The sites learn the tree.

References
----------
J. R. Quinlan, "Induction of decision trees", Machine Learning 1, 1986. L. Breiman, J. Friedman, R. Olshen and C. Stone,
"Classification and regression trees", 1984.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, HorizontalAlgorithm, Model, TrainingReport
from fedsvm.algorithms.data.classes import log_odds, members, one_against_rest
from fedsvm.algorithms.data.horizontal import HorizontalSite, each_model, preparation
from fedsvm.algorithms.data.horizontal_task import HorizontalTask, PreparedRows
from fedsvm.algorithms.data.statistics import NoisyStatistics
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.leakage import Recovery, WholeRunLeakage
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.remarks import opened_exactly
from fedsvm.algorithms.settings import Count, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import FederationError, OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import free, step
from fedsvm.federation.site.script import Script, repeat, stage
from fedsvm.federation.site.terms import Terms

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack

LEAF = -1
"""In place of the column of a node that is not split."""

_REACH = 3.0
"""Deviations from the mean within which edges lie."""

TABLES = "of every node how many rows of each class have each column in each bin"


@dataclass
class TreeSettings:
    """The settings of a user."""

    max_depth: Annotated[int, Ge(1), Le(16), doc("Maximum number of splits from the root to a leaf.")] = 6
    bins: Annotated[int, Ge(2), Le(256), doc("Number of intervals per column.")] = 32
    criterion: Annotated[Literal["gini", "entropy"], doc("Impurity of a node: Gini index (CART) or entropy (ID3).")] = (
        "gini"
    )
    min_samples_split: Annotated[Count, doc("Minimum number of rows of a node to split it.")] = 10
    min_samples_leaf: Annotated[Count, doc("Minimum number of rows on each side of a split.")] = 5
    min_class_rows: Annotated[
        Count,
        doc(
            "Minimum number of rows of a class on a side of a split, if there are any. With 1, tables can reveal "
            "single rows."
        ),
    ] = 3


@dataclass(frozen=True)
class Tree:
    """Nodes, the root first: column (t,), or LEAF, bin (t,), and children (t, 2), lower values on the left.

    counts (t, K): rows of each class.
    """

    column: IntArray
    bin: IntArray
    children: IntArray
    counts: FloatArray

    @property
    def depth(self) -> int:
        """Splits on the longest way to a leaf."""
        depths = np.zeros(len(self.column), dtype=np.int64)
        for node in np.flatnonzero(self.column != LEAF):  # parents come first
            depths[self.children[node]] = depths[node] + 1
        return int(depths.max())

    def nodes_of(self, binned: IntArray) -> IntArray:
        """Return (n,) the leaf in which each row of bins (n, p) ends."""
        at, rows = np.zeros(len(binned), dtype=np.int64), np.arange(len(binned))
        while len(rows := rows[self.column[at[rows]] != LEAF]):
            here = at[rows]
            right = binned[rows, self.column[here]] > self.bin[here]
            at[rows] = self.children[here, right.astype(np.int64)]
        return at


def bin_by_edges(rows: FloatArray, edges: FloatArray) -> IntArray:
    """Return (n, p) the bin of each value of rows (n, p): how many of its column's edges (p, B - 1) it is not below."""
    found = [np.searchsorted(edge, column, side="right") for edge, column in zip(edges, rows.T, strict=True)]
    return np.stack(found, axis=1) if found else np.zeros(rows.shape, dtype=np.int64)


def edges_of(moments: FloatArray, count: float, bins: int) -> FloatArray:
    """Return (p, B - 1) edges from the sums of columns and of their squares (2, p) over `count` rows."""
    mean, square = moments / count
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    return _edges(mean, deviation, bins)


def noisy_edges(prepared: PreparedRows, statistics: NoisyStatistics, bins: int) -> FloatArray:
    """Return (p, B - 1) edges from noisy statistics, of columns on the scale that rows have."""
    standard, scale = statistics.scale("standard", prepared.indicated), prepared.scale
    return _edges((standard.offset - scale.offset) / scale.scale, standard.scale / scale.scale, bins)


def _edges(mean: FloatArray, deviation: FloatArray, bins: int) -> FloatArray:
    return np.asarray(mean[:, None] + deviation[:, None] * np.linspace(-_REACH, _REACH, bins + 1)[None, 1:-1])


def cross_tables(
    tree: Tree, wanted: Sequence[int] | IntArray, rows: IntArray, members: FloatArray, bins: int
) -> FloatArray:
    """Return (a, p, B, K) counts at wanted nodes over rows of bins (n, p), by classes with members (K, n) of 0 and
    1."""
    at, columns = tree.nodes_of(rows), rows.shape[1]
    tables = np.zeros((len(wanted), columns, bins, len(members)))
    for place, node in enumerate(wanted):
        inside = at == node
        for kind, member in enumerate(members):
            of_class = rows[inside & (member > 0)] + bins * np.arange(columns)
            counts = np.bincount(of_class.ravel(), minlength=columns * bins)
            tables[place, :, :, kind] = counts.reshape(columns, bins)
    return tables


def _are_even(edges: FloatArray) -> bool:
    """Return whether edges (p, B - 1) rise by equal steps in each column, apart from rounding."""
    steps, rounding = np.diff(edges), 1e-9 * np.abs(edges).max(initial=1.0)
    return bool((steps >= 0).all() and np.allclose(steps, steps[:, :1], rtol=1e-6, atol=rounding))


class TreeSite(HorizontalSite):
    """The site half."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `DecisionTree.fit`: one tree, level by level."""
        levels = repeat("cross_tables", 1, terms.settings["max_depth"])
        first = "class_counts" if StatisticsPlan.of(terms).mu else "column_moments"
        return each_model(terms, stage(preparation(terms), first, "receive_edges", levels))

    @step
    def column_moments(self) -> FloatArray:
        """Return the (2 p + K,) sums of the scaled columns and of their squares, and the number of rows of each
        class."""
        sums = [self.rows.sum(axis=0), (self.rows**2).sum(axis=0)]
        return np.concatenate([*sums, self.class_counts()])

    @step
    def class_counts(self) -> FloatArray:
        """Return the (K,) number of training rows of each class."""
        return np.asarray(members(self.labels).sum(axis=1))

    @step(
        told={
            "edges": free("as many as agreed, equally far apart in a column", "bins that hold few rows"),
        }
    )
    def receive_edges(self, edges: FloatArray) -> None:
        """Put this site's rows into bins. Raises OrderRefused for other edges than those of equally wide bins."""
        shape = self.rows.shape[1], self.terms.settings["bins"] - 1
        if edges.shape != shape or not _are_even(edges):
            raise OrderRefused(f"edges must be {shape[1]} for each of {shape[0]} columns, equally far apart")
        self.bins, self.binned = edges.shape[1] + 1, bin_by_edges(self.rows, edges)

    @step(
        told={
            "column, bin, children": free(
                "any tree of the agreed depth", "tables of nodes of its choice, which can hold one row"
            ),
            "nodes": free("numbers of nodes", "only a choice of nodes"),
        }
    )
    def cross_tables(self, column: IntArray, bin: IntArray, children: IntArray, nodes: IntArray) -> FloatArray:
        """Return the (a, p, B, K) this site's part of the tables of some nodes of a tree."""
        tree = Tree(column, bin, children, np.zeros((len(column), 2)))
        return cross_tables(tree, nodes, self.binned, members(self.labels), self.bins)


# The coordinator.


def impurity(counts: FloatArray, criterion: str) -> FloatArray:
    """Return (...) rows times the Gini index, or entropy in nats, of counts (..., K) of classes."""
    rows = counts.sum(axis=-1)
    share = counts / np.maximum(rows, 1.0)[..., None]
    if criterion == "gini":
        return np.asarray(rows * (1.0 - (share**2).sum(axis=-1)))
    logarithms = np.log(np.where(share > 0, share, 1.0))
    return np.asarray(-rows * (share * logarithms).sum(axis=-1))


@dataclass(frozen=True)
class Split:
    """The best split of a node: its column, the last bin of the left side, and both sides' counts (K,)."""

    column: int
    bin: int
    left: FloatArray
    right: FloatArray


def _check_counts(counts: FloatArray, classes: Sequence[str], least: int) -> None:
    """Raise FederationError for a class of so few rows (K,) that the root's table would show them."""
    for name, count in zip(classes, counts.astype(np.int64).tolist(), strict=True):
        if 0 < count < least:
            raise FederationError(
                f"Class {name!r} has {count} of the training rows, fewer than algorithm.min_class_rows = {least}: the "
                "root's table would show them. Leave its rows out, or lower algorithm.min_class_rows."
            )


def best_split(table: FloatArray, settings: TreeSettings) -> Split | None:
    """Return the first split of a table (p, B, K) with the purest sides; None if none is allowed, or helps."""
    whole = table[0].sum(axis=0)
    if whole.sum() < settings.min_samples_split or np.count_nonzero(whole) < 2:
        return None
    left = np.cumsum(table, axis=1)[:, :-1]
    right = whole - left
    sides = np.stack([left, right])
    enough = (sides.sum(axis=-1) >= settings.min_samples_leaf).all(axis=0)
    hidden = ((sides == 0) | (sides >= settings.min_class_rows)).all(axis=(0, -1))
    left_over = impurity(left, settings.criterion) + impurity(right, settings.criterion)
    left_over = np.where(enough & hidden, left_over, np.inf)
    place = int(np.argmin(left_over))
    gained = impurity(whole, settings.criterion) - left_over.flat[place]
    if not gained > _LEAST_GAIN * whole.sum():
        return None
    column, bin_ = divmod(place, left_over.shape[1])
    return Split(column, bin_, left[column, bin_], right[column, bin_])


_LEAST_GAIN = 1e-12
"""Of impurity, a row: less is rounding."""

Ask = Callable[[Tree, IntArray], FloatArray]
"""The tables (a, p, B, K) of some nodes of a tree as far as it has grown."""


def grow(ask: Ask, settings: TreeSettings) -> Tree:
    """Grow a tree level by level, asking once a level for the tables of the nodes that may be split."""
    column, bin_, children, counts = [LEAF], [0], [[0, 0]], [np.zeros(2)]

    def tree() -> Tree:
        return Tree(np.array(column), np.array(bin_), np.array(children), np.stack(counts))

    level = [0]
    for _ in range(settings.max_depth):
        tables = ask(tree(), np.array(level))
        if level == [0]:
            counts[0] = tables[0, 0].sum(axis=0)
        below: list[int] = []
        for node, table in zip(level, tables, strict=True):
            if (split := best_split(table, settings)) is None:
                continue
            first = len(column)
            column[node], bin_[node], children[node] = split.column, split.bin, [first, first + 1]
            for side in (split.left, split.right):
                column.append(LEAF)
                bin_.append(0)
                children.append([0, 0])
                counts.append(side)
            below += [first, first + 1]
        level = [
            node
            for node in below
            if counts[node].sum() >= settings.min_samples_split and np.count_nonzero(counts[node]) > 1
        ]
        if not level:
            break
    return tree()


@dataclass(frozen=True)
class TreeModel(Model):
    """A tree, and the edges (p, B - 1) of its bins."""

    tree: Tree
    edges: FloatArray
    training: TrainingReport | None = None

    def probabilities(self, rows: FloatArray) -> FloatArray:
        """Return (n, K) for scaled rows (n, p): shares of the classes in a row's leaf, with one more row of each."""
        counts = self.tree.counts[self.tree.nodes_of(bin_by_edges(rows, self.edges))] + 1.0
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) log-odds of scaled rows (n, p), positive for the class +1; (n, K) for more than two classes."""
        return log_odds(np.log(self.probabilities(rows)))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the file. The root is the first node.

        Returns
        -------
        column : (N,)
            Column that each node splits; -1 for a leaf.
        bin : (N,)
            Bin at which each node splits its column.
        children : (N, 2)
            Numbers of the two nodes below each node.
        counts : (N, K)
            Training rows of each class in each node.
        edges : (p, B - 1)
            Edges of the bins of each scaled column.
        """
        tree = self.tree
        nodes = {"column": tree.column, "bin": tree.bin, "children": tree.children, "counts": tree.counts}
        return {**nodes, "edges": self.edges}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file."""
        tree = Tree(arrays["column"], arrays["bin"], arrays["children"], arrays["counts"])
        return cls(tree, arrays["edges"])


def _agreed_edges(
    federation: Federation, task: HorizontalTask, prepared: PreparedRows, settings: TreeSettings
) -> FloatArray:
    """Return the edges of bins, after checking that no class has too few rows."""
    size, classes, statistics = 2 * prepared.columns, len(task.classes), prepared.statistics
    if statistics is not None:
        counts = federation.sum("class_counts", shape=(classes,), bound=float(prepared.rows))
        _check_counts(np.rint(counts), task.classes, settings.min_class_rows)
        return noisy_edges(prepared, statistics, settings.bins)
    moments = federation.sum("column_moments", shape=(size + classes,), bound=math.inf)
    _check_counts(np.rint(moments[size:]), task.classes, settings.min_class_rows)
    return edges_of(moments[:size].reshape(2, -1), prepared.rows, settings.bins)


class DecisionTree(HorizontalAlgorithm[TreeSettings, TreeModel]):
    """A decision tree over sites that hold rows, from secure sums of cross-tables (Quinlan 1986; Breiman 1984)."""

    name = "decision-tree"
    own_method = "tree"
    estimator = "FederatedDecisionTreeClassifier"
    Settings, Site, Model = TreeSettings, TreeSite, TreeModel
    figures = {
        "nodes": "of the tree, leaves among them",
        "depth": "splits on the longest way to a leaf",
        "smallest_leaf": "rows of the smallest leaf",
    }
    multiclass = True

    def fit(self, federation: Federation, task: HorizontalTask, settings: TreeSettings) -> TreeModel:
        """Agree on bins, then grow the tree, a sum a level."""

        def stage() -> TreeModel:
            prepared = task.prepare(federation)
            with federation.phase("train"):
                edges = _agreed_edges(federation, task, prepared, settings)
                federation.run("receive_edges", edges=edges)

                def ask(tree: Tree, nodes: IntArray) -> FloatArray:
                    tables = federation.sum(
                        "cross_tables",
                        shape=(len(nodes), prepared.columns, settings.bins, len(task.classes)),
                        bound=float(prepared.rows),
                        column=tree.column,
                        bin=tree.bin,
                        children=tree.children,
                        nodes=nodes,
                    )
                    return np.asarray(np.rint(tables))

                return TreeModel(grow(ask, settings), edges)

        model = federation.until_stable(stage)
        federation.disclose("coordinator", "cross_tables", TABLES, model.tree.counts.shape)
        leaves = model.tree.counts[model.tree.column == LEAF].sum(axis=1)
        nodes, depth = len(model.tree.column), model.tree.depth
        figures = {"nodes": nodes, "depth": depth, "smallest_leaf": int(leaves.min())}
        remarks = opened_exactly(task.statistics, TABLES)
        report = TrainingReport(federation.sites, f"{nodes} nodes, depth {depth}", figures=figures, remarks=remarks)
        return TreeModel(model.tree, model.edges, report)

    def train_pooled(self, model: TreeModel, settings: TreeSettings, rows: EvaluationRows) -> Pooled:
        """Grow the tree from the same bins of all rows together."""
        train, labels = bin_by_edges(rows.train.rows, model.edges), rows.train.labels
        of_class = members(one_against_rest(labels, len(rows.classes)))
        tree = grow(lambda tree, nodes: cross_tables(tree, nodes, train, of_class, settings.bins), settings)
        return Pooled(TreeModel(tree, model.edges).decision_function(rows.test.rows))

    def whole_run(self, settings: TreeSettings) -> WholeRunLeakage:
        """Return what tables give away in which few rows of a class are left, or are left but for a site's own."""
        found = Recovery("some rows", "all columns are categorical (numeric ones were not attacked)")
        return WholeRunLeakage(found, found if settings.min_class_rows == 1 else None)

    def attacks(self, settings: TreeSettings) -> list[Attack]:
        """Return the attacks on the tables."""
        from fedsvm.algorithms.attacks.cross_tables import CrossTables

        return [CrossTables()]
