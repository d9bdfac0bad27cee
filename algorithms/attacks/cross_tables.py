"""Rows from cross-tables of columns, bins and classes: a class of one row in a node shows each of its columns.

Or of several that are equal. The table of a node that was not asked for is its parent's less its sibling's. Of columns
of 0 and 1 a bin is the value, and what it gives is the row; where columns are numbers it is an interval, and nothing is
claimed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedsvm.algorithms.attacks.attack import Prior
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.row_counts import SAME_WITHIN, CountingAttack, ShownRows
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RunView

_CLASSES = (-1.0, 1.0)
"""Labels of two classes; of more they are the numbers."""


class CrossTables(CountingAttack):
    """Rows that are alone of their class in a node."""

    name = "cross tables"

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows of each node of the trees of all folds."""
        for epoch in epochs(view):
            if epoch.category_columns < epoch.columns or not epoch.of("receive_edges"):
                continue
            low, high = _bins_of_0_and_1(epoch)
            for sites in {sites for each in epoch.of("cross_tables") for sites in each.sums}:
                for table in _tables(epoch, sites):
                    kinds = table.shape[2]
                    labels = _CLASSES if kinds == 2 else tuple(map(float, range(kinds)))
                    alike = [_equal_rows(table[:, :, kind], low, high) for kind in range(kinds)]
                    of_kinds = np.repeat(labels, [len(rows) for rows in alike])
                    yield ShownRows(np.vstack(alike), of_kinds, np.full(epoch.columns, SAME_WITHIN))


def _bins_of_0_and_1(epoch: Epoch) -> tuple[FloatArray, FloatArray]:
    """Return (p,) each: the bins of a column's 0 and 1."""
    edges = epoch.of("receive_edges")[-1].parameters["edges"]
    values = [epoch.scale(np.full((1, epoch.columns), value))[0] for value in (0.0, 1.0)]
    low, high = ((edges <= value[:, None]).sum(axis=1) for value in values)
    return low, high


def _tables(epoch: Epoch, sites: tuple[str, ...]) -> list[FloatArray]:
    """Return (p, B, K) of every node of the last tree that is known, requested or by subtraction."""
    known: dict[int, FloatArray] = {}
    for each in epoch.of("cross_tables"):
        if sites not in each.sums:
            continue
        asked, children = each.parameters["nodes"].tolist(), each.parameters["children"]
        if asked == [0]:
            known.clear()
        known.update(zip(asked, np.rint(each.sums[sites]), strict=True))
        for parent in [node for node in known if node < len(children) and children[node].any()]:
            for one, other in (children[parent].tolist(), children[parent].tolist()[::-1]):
                if one in known and other not in known:
                    known[other] = known[parent] - known[one]
    return list(known.values())


def _equal_rows(table: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return (k, p) the k rows of a class in a node if its table (p, B) has them in one bin of every column, otherwise
    none."""
    places = np.arange(len(table))
    rows, highest = table[0].sum(), table[places, high]
    whole = ((highest == rows) | (highest == 0)) & (table[places, low] + highest == rows) & (low != high)
    return np.tile((highest == rows).astype(np.float64), (int(rows) if whole.all() else 0, 1))
