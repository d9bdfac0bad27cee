"""The site's half of an interior-point round, for rows whose features are read block by block.

A step moves the state of each row alone, and all results are sums over rows. So a round reads the features once, each
block for all of its sums while the cache holds it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedsvm.algorithms.features.row_blocks import KeptBlocks, RowBlocks
from fedsvm.algorithms.optimization.barrier import DualState, Problem, RowSums
from fedsvm.federation.arrays import FloatArray, IntArray

_MOST_IN_SINGLE = 2.0**20
"""The trace of what is computed in single precision of a site's part of Newton's matrix.

Its rounding adds up to a norm of 2^-24 of that, 0.06, or less, where the penalty adds 1 to the diagonal; with 200,000
rows and 200 features to 0.003. It is an error of the step and of no certificate.
"""

_OF_ROWS = ("residuals", "alpha", "rest", "slopes", "lag")
"""The fields of `DualState` that have a value for each row."""


@dataclass(frozen=True)
class BlockedProblem(Problem):
    """A binary problem whose features are in blocks. features: (0, m), empty.

    Inherited methods that read the features of all rows, `weigh`, `curvature` and `roots`, do not apply.
    """

    blocks: KeptBlocks | RowBlocks

    @classmethod
    def of_blocks(
        cls,
        blocks: KeptBlocks | RowBlocks,
        labels: FloatArray,
        prices: FloatArray,
        *,
        prior: FloatArray,
        lever: float,
    ) -> Self:
        """Return the problem of rows, without those of weight 0; see `Problem.of`."""
        targets = 1.0 - labels * blocks.times(prior) if prior.any() else np.ones(len(labels))
        none, used = np.zeros((0, blocks.width)), prices > 0
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
        matrix, total = np.zeros((self.dimensions, self.dimensions)), None
        for place, features in self.blocks:
            labels, prices, targets = self.labels[place], self.prices[place], self.targets[place]
            some = Problem(features, labels, prices, targets, self.lever)
            known = replace(before, **{name: getattr(before, name)[place] for name in _OF_ROWS})
            moved = known.move(some, iteration, step, mus[place], keep=keep, still=still)
            for name in _OF_ROWS:
                getattr(after, name)[place] = getattr(moved, name)
            sums = RowSums.of(some, moved)
            matrix += some.curvature_in_single(sums.slopes, _MOST_IN_SINGLE * len(labels) / len(self.labels))
            total = sums if total is None else _add_sums(total, sums)
        if total is None:
            none = Problem(self.features, self.labels, self.prices, self.targets, self.lever, tilt=self.tilt)
            return RowSums.of(none, after), after
        return replace(total, problem=self, slopes=after.slopes, known=matrix), after


def _add_sums(one: RowSums, other: RowSums) -> RowSums:
    """Return the sums over the rows of two blocks, without their matrix."""
    return replace(
        other,
        gradient=one.gradient + other.gradient,
        loss=one.loss + other.loss,
        alphas=one.alphas + other.alphas,
        extra=one.extra + other.extra,
        vectors=one.vectors + other.vectors,
        rows=one.rows + other.rows,
    )
