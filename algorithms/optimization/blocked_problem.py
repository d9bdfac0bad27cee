"""The site's half of an interior-point round, for rows whose features are computed block by block.

A step moves the state of each row alone, and all results are sums over rows. So a round reads the features once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedsvm.algorithms.features.row_blocks import RowBlocks
from fedsvm.algorithms.optimization.barrier import DualState, Problem, RowSums
from fedsvm.federation.arrays import FloatArray, IntArray

_OF_ROWS = ("residuals", "alpha", "rest", "slopes", "lag")
"""The fields of `DualState` that have a value for each row."""


@dataclass(frozen=True)
class BlockedProblem(Problem):
    """A binary problem whose features are in blocks. features: (0, m), empty.

    Inherited methods that read the features of all rows, `weigh`, `curvature` and `roots`, do not apply.
    """

    blocks: RowBlocks

    @classmethod
    def of_blocks(
        cls,
        blocks: RowBlocks,
        labels: FloatArray,
        prices: FloatArray,
        *,
        prior: FloatArray,
        lever: float,
    ) -> Self:
        """Return the problem of rows, without those of weight 0; see `Problem.of`."""
        targets = 1.0 - labels * blocks.times(prior) if prior.any() else np.ones(len(labels))
        none, used = np.zeros((0, len(blocks.columns))), prices > 0
        if used.all():
            return cls(none, labels, prices, targets, lever, blocks)
        return cls(none, labels[used], prices[used], targets[used], lever, blocks.keep_rows(used))

    def margins(self, v: FloatArray) -> FloatArray:
        """Return (n,) v.f~."""
        if not v.any():
            return np.zeros(len(self.labels))
        values = self.blocks.times(v[:-1]) + self.lever * v[-1] if self.lever else self.blocks.times(v)
        return np.asarray(self.labels * values)

    def keep(self, kept: IntArray) -> Self:
        """Return the problem restricted to the `kept` columns."""
        return replace(super().keep(kept), blocks=self.blocks.keep_columns(kept))

    def advance(
        self, before: DualState, iteration: int, step: FloatArray, mu: float, *, keep: bool, still: bool
    ) -> tuple[RowSums, DualState]:
        """Return the sums after a step, with their matrix, and the state after it; see `Problem.advance`."""
        v, best = before.v + step, before.v if keep else before.best
        mus = np.broadcast_to(self.mus(v, mu), len(self.labels))
        rows = np.empty((len(_OF_ROWS), len(self.labels)))
        after = DualState(iteration, v, best, *rows)
        total: RowSums | None = None
        for place, features in self.blocks:
            labels, prices, targets = self.labels[place], self.prices[place], self.targets[place]
            some = Problem(features, labels, prices, targets, self.lever)
            known = replace(before, **{name: getattr(before, name)[place] for name in _OF_ROWS})
            moved = known.move(some, iteration, step, mus[place], keep=keep, still=still)
            for name in _OF_ROWS:
                getattr(after, name)[place] = getattr(moved, name)
            total = _add_sums(total, RowSums.of(some, moved))
        if total is None:
            none = Problem(self.features, self.labels, self.prices, self.targets, self.lever, tilt=self.tilt)
            return RowSums.of(none, after), after
        return replace(total, problem=self, slopes=after.slopes), after


def _add_sums(one: RowSums | None, other: RowSums) -> RowSums:
    """Return the sums over the rows of two blocks, or of the `other` one if it is the first."""
    if one is None or one.known is None:
        return replace(other, known=other.matrix)
    np.add(one.known, other.matrix, out=one.known)
    return replace(
        other,
        gradient=one.gradient + other.gradient,
        loss=one.loss + other.loss,
        alphas=one.alphas + other.alphas,
        vectors=one.vectors + other.vectors,
        rows=one.rows + other.rows,
        known=one.known,
    )
