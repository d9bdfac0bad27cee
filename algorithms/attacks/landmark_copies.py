"""Landmarks that are a single row's copy, recognised by whoever is sent them, which is everybody.

Of categorical columns a row has a 1 in one of each column's 0/1 columns and zeros in the others. The mean of rows that
are not equal is no such row. Where columns are numbers, a mean looks like a row, and nothing is claimed. Nor is it of
landmarks by noisy statistics: drawn ones have the form of a row, and equal one by chance alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedsvm.algorithms.attacks.attack import Prior
from fedsvm.algorithms.attacks.epochs import epochs
from fedsvm.algorithms.attacks.row_counts import SAME_WITHIN, CountingAttack, ShownRows
from fedsvm.protocols.analysis.views import RunView

_EXACTLY = 1e-9


class LandmarkCopies(CountingAttack):
    """Landmarks that have the form of a record, less those that are the coalition's own rows."""

    name = "landmarks"

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows that landmarks of each fold copy."""
        if any(each.step == "describe_rows" for each in view.rounds):
            return
        for epoch in epochs(view):
            if epoch.inverse is None or epoch.category_columns < epoch.columns:
                continue
            points = epoch.unscale(epoch.inverse.landmarks)
            apart = np.abs(points - np.rint(points)).max(axis=1)
            edges = np.cumsum([len(values) for values in epoch.categories])[:-1]
            ones = np.stack([block.sum(axis=1) for block in np.split(np.rint(points), edges, axis=1)], axis=1)
            copies = np.flatnonzero((apart < _EXACTLY) & (ones == 1).all(axis=1))
            if len(copies) == len(points):
                copies = copies[:0]  # landmarks that were drawn look like rows, all of them
            elif prior.own is not None:
                own = {row.tobytes() for row in prior.own.rows}
                copies = np.array([place for place in copies if np.rint(points[place]).tobytes() not in own], dtype=int)
            rows = np.rint(points[copies])
            residual = float(apart[copies].max(initial=0.0))
            yield ShownRows(rows, np.full(len(rows), np.nan), np.full(epoch.columns, SAME_WITHIN), residual)
