"""The accuracy that noise would cost where sums stay exact: filters of columns, and tables of decision trees.

`python -m benchmarks.noisy_counts [--splits N]` needs FEDSVM_DATA, and prints accuracy in percent, mean and standard
error of splits of four to one, for several mu and five sites that each add all of the noise. A filter keeps the
columns at a false discovery rate of 0.01 by Welch's t, whose denominator counts the noise, or the best one; a kernel
SVM is trained on them. A tree has half of squared mu for its tables; a row adds one to each column of each level.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from scipy import stats
from sklearn.svm import SVC

from benchmarks.landmarks import SETS
from fedsvm.algorithms.data.class_statistics import Cells, ClassTotals
from fedsvm.algorithms.data.classes import members, one_against_rest
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.statistics import Budget, statistics_blocks
from fedsvm.algorithms.decision_tree import Tree, TreeModel, TreeSettings, bin_by_edges, cross_tables, edges_of, grow
from fedsvm.algorithms.privacy.noisy_sums import clip_rows
from fedsvm.algorithms.selection import filters
from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

SITES = 5
MUS = (0.0, 0.5, 1.0, 2.0)
NAMES = ("wdbc", "pima", "heart", "german")
RATE = 0.01
TREES = (TreeSettings(), TreeSettings(max_depth=3, bins=8), TreeSettings(max_depth=2, bins=4))


def split(name: str, seed: int) -> tuple[LabeledRows, LabeledRows]:
    """Return training and test rows of numeric columns, on the scale of the training rows' extremes."""
    words, *overrides = SETS[name]
    scenario, base = spec.read(words, overrides=[*overrides, f"seed={seed}"])
    prepared = dataset.prepare(scenario, base)
    rows, test = prepared.rows, prepared.test(None)
    train = np.setdiff1d(np.arange(len(rows.labels)), test)
    low, high = rows.numeric[train].min(axis=0), rows.numeric[train].max(axis=0)
    moved = np.clip((2 * rows.numeric - low - high) / np.where(high > low, high - low, 1.0), -1.0, 1.0)
    return LabeledRows(moved[train], rows.labels[train]), LabeledRows(moved[test], rows.labels[test])


def kept_columns(train: LabeledRows, mu: float, random: np.random.Generator) -> IntArray:
    """Return the columns that a filter keeps by sums with noise of this mu; 0 of none."""
    of_class, width = members(one_against_rest(train.labels, 2)), train.rows.shape[1]
    if not mu:
        tested = filters.welch(ClassMoments.of(train.rows, of_class))
        return _significant(tested.statistic, tested.p_value)
    budget, cells = Budget.of(mu, searched=False, products=False, explained=True), Cells(2)
    blocks = statistics_blocks(width, [], 2, budget.statistics, filled=False, cells=cells)
    values = {"classes": np.ones((len(train.rows), 1)), "sums": train.rows, "squares": train.rows**2}
    sigma = {block.name: block.sigma * math.sqrt(SITES) for block in blocks}
    totals = {
        block.name: (of_class @ clip_rows(values[block.name], block.length)).ravel()
        + random.normal(0, sigma[block.name], block.size)
        for block in blocks
    }
    found = ClassTotals(cells, totals, sigma, np.array([[-1.0] * width, [1.0] * width])).without(None)
    spread = (found.variance / found.rows[:, None]).sum(axis=0) + (sigma["sums"] ** 2 / found.rows**2).sum()
    t = np.abs(found.mean[1] - found.mean[0]) / np.sqrt(spread)
    return _significant(t, 2 * stats.norm.sf(t))


def _significant(t: FloatArray, p_values: FloatArray) -> IntArray:
    found = np.flatnonzero(filters.adjust_p_values(p_values) <= RATE)
    return found if len(found) else np.array([int(np.argmax(t))])


def tree_accuracy(
    train: LabeledRows, test: LabeledRows, settings: TreeSettings, mu: float, random: np.random.Generator
) -> float:
    """Return the accuracy of a tree by tables with noise of this mu; 0 of none."""
    width = train.rows.shape[1]
    edges = edges_of(np.stack([train.rows.sum(axis=0), (train.rows**2).sum(axis=0)]), len(train.rows), settings.bins)
    binned, of_class = bin_by_edges(train.rows, edges), members(one_against_rest(train.labels, 2))
    sigma = math.sqrt(2 * width * settings.max_depth * SITES) / mu if mu else 0.0

    def ask(tree: Tree, nodes: IntArray) -> FloatArray:
        tables = cross_tables(tree, nodes, binned, of_class, settings.bins)
        return np.maximum(np.rint(tables + random.normal(0, sigma, tables.shape)), 0.0)

    model = TreeModel(grow(ask, settings), edges)
    return float(np.mean(np.where(model.decision_function(test.rows) > 0, 1, -1) == test.labels))


def main() -> None:
    """Print a line for each data set, method and mu."""
    arguments = parser("benchmarks.noisy_counts", __doc__)
    arguments.add_argument("--splits", type=int, default=10, metavar="N", help="number of splits")
    splits, random = arguments.parse_args().splits, np.random.default_rng(1)
    for name in NAMES:
        found = defaultdict[str, list[float]](list)
        for seed in range(1, splits + 1):
            train, test = split(name, seed)
            deviation = train.rows.std(axis=0)
            for mu in MUS:
                kept = kept_columns(train, mu, random)
                unit = np.where(deviation > 0, deviation, 1.0)[kept]
                model = SVC(C=1.0, gamma=1 / len(kept)).fit(train.rows[:, kept] / unit, train.labels)
                found[f"filter, mu {mu:g}"].append(model.score(test.rows[:, kept] / unit, test.labels))
                found[f"columns kept, mu {mu:g}"].append(len(kept) / 100)
                for each in TREES:
                    tree = f"tree of depth {each.max_depth} in {each.bins} bins, mu {mu:g}"
                    found[tree].append(tree_accuracy(train, test, each, mu, random))
        for what, values in found.items():
            error = 100 * np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
            print(f"{name}: {what}: {100 * np.mean(values):.1f} ± {error:.1f}", flush=True)


if __name__ == "__main__":
    main()
