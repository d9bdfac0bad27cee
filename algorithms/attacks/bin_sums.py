"""Which of the records that one can think of are there, by sums over rows in the bins of random grids.

The sum of y z over rows, and that of z (z.p) for a direction p that is known, are linear in how often each candidate
occurs. They have ten thousands of numbers, of which as many are taken as it needs. Counts are whole numbers though
nothing asked for that, and the sums computed again from them are those that were seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from algorithms.attacks.contract import Attack, Claim, Prior, Ranking
from algorithms.attacks.epochs import Epoch, epochs
from algorithms.attacks.finite_domain import MAX_CANDIDATES, Counts, checked, combinations, distinct, least_squares
from algorithms.attacks.row_counts import SAME_WITHIN, RowCounts
from algorithms.features.random_bins import RandomBins, to_matrix, values
from federation.arrays import FloatArray, IntArray
from protocols.analysis.views import RunView

_EQUATIONS = 3.0
"""Bins per candidate, of each of two sums."""


class BinSums(Attack):
    """Counts of candidates by least squares over sums of bins."""

    name = "sums of bins"
    is_of_problems = True

    def __call__(self, view: RunView, prior: Prior) -> Iterator[Claim | Ranking]:
        """Every training by itself; folds add up."""
        counts: RowCounts | None = None
        residual = 0.0
        for epoch in epochs(view):
            candidates = prior.candidates or combinations(epoch)
            if candidates is None or not epoch.of("receive_grids") or len(candidates.rows) > MAX_CANDIDATES:
                continue
            grids = RandomBins.of_parts(epoch.of("receive_grids")[-1].parameters)
            places = grids(epoch.scale(candidates.rows))
            for first, direction, second in _sums(epoch, prior.posed.number):
                counts = counts or RowCounts(epoch.columns)
                if (solved := solve(places, candidates.labels, first, direction, second)) is not None:
                    rows = np.repeat(np.arange(len(candidates.rows)), solved.counts)
                    resolution = SAME_WITHIN * epoch.scale.scale
                    counts.take(candidates.rows[rows], candidates.labels[rows], resolution)
                    residual = max(residual, solved.residual)
        if counts is not None:
            yield Claim(*counts.repeated, residual)


def _sums(epoch: Epoch, problem: int) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Of a problem: the sum of y z, the first direction, and the sum of z (z.p), (P B,) each, over the same sites."""
    for labelled, product in zip(epoch.of("label_sums"), epoch.of("products")[:1], strict=False):
        for sites in labelled.sums.keys() & product.sums.keys():
            for place in np.flatnonzero(product.parameters["problems"] == problem):
                yield labelled.sums[sites][problem], product.parameters["directions"][place], product.sums[sites][place]


def solve(
    places: IntArray, labels: FloatArray, first: FloatArray, direction: FloatArray, second: FloatArray
) -> Counts | None:
    """How often candidates in places (n, P) with labels (n,) occur; None where they cannot make up the sums."""
    different = distinct(np.column_stack([places, labels]))
    taken = places[different]
    used = np.unique(taken)
    enough = int(_EQUATIONS * len(different)) + 1
    some = np.sort(np.random.default_rng(0).permutation(used)[:enough])
    z = to_matrix(taken, len(first))[:, some].T.toarray()
    (along,) = values(taken, direction[None])
    design = np.vstack([z * labels[different], z * along])
    seen = np.concatenate([first[some], second[some]])
    found, determined = least_squares(design, seen)
    return checked(design, seen, found, determined, different, len(labels))
