"""An attack on sums over rows in the bins of random grids: which of the possible records are in the data.

The sum of y z over rows, and those of z (z.p) for known directions p, are linear in how often each candidate
occurs. With wide bins, rows share bins, and the attack needs several rounds. With narrow bins, one round has tens of
thousands of numbers, and the attack takes as many random combinations of them as it needs. Counts are claimed if they
are whole numbers, which nothing enforces, and reproduce the combinations. Candidates that share all bins cannot be
distinguished, and are not claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsvm.algorithms.attacks.attack import Prior
from fedsvm.algorithms.attacks.epochs import Epoch
from fedsvm.algorithms.attacks.finite_domain import (
    CandidateCounting,
    Counts,
    distinct,
    least_squares,
    verify_counts,
)
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.random_bins import RandomBins, to_matrix, values
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray

_EQUATIONS = 3.0
"""Per candidate."""


class BinSums(CandidateCounting):
    """Counts of candidates by least squares over sums of bins."""

    name = "sums of bins"
    is_of_problems = True

    def solutions(self, epoch: Epoch, candidates: LabeledRows, prior: Prior) -> Iterator[Counts | None]:
        """Solve the sums of every training separately; candidates that no sum distinguishes are not counted."""
        if not (sent := epoch.of("receive_grids")):
            return
        places = RandomBins.of_parts(sent[-1].parameters)(epoch.scale(candidates.rows))
        for seen in _sums(epoch, prior.posed.number):
            solved = solve(places, candidates.labels, seen)
            yield solved and replace(solved, counts=np.where(_alike(places, candidates), 0, solved.counts))


def _alike(places: IntArray, candidates: LabeledRows) -> BoolArray:
    """Return (n,) the candidates in the same bins as others with their label, which no sum distinguishes."""
    _, groups = np.unique(np.column_stack([places, candidates.labels]), axis=0, return_inverse=True)
    _, rows = np.unique(candidates.rows, axis=0, return_inverse=True)
    different = np.unique(np.column_stack([groups.ravel(), rows.ravel()]), axis=0)
    return np.asarray(np.bincount(different[:, 0])[groups.ravel()] > 1)


@dataclass(frozen=True)
class SeenSums:
    """Of a problem, over the same rows: the sum of y z (P B,), directions p (r, P B), and sums of z (z.p) (r, P B)."""

    labelled: FloatArray
    directions: FloatArray
    products: FloatArray


def _sums(epoch: Epoch, problem: int) -> Iterator[SeenSums]:
    """Yield the sums of all rounds."""
    for labelled in epoch.of("label_sums"):
        for sites, sums in labelled.sums.items():
            found = [
                (each.parameters["directions"][place], each.sums[sites][place])
                for each in epoch.of("products")
                if sites in each.sums
                for place in np.flatnonzero(each.parameters["problems"] == problem)
            ]
            if found:
                yield SeenSums(sums[problem], *(np.array(each) for each in zip(*found, strict=True)))


def solve(places: IntArray, labels: FloatArray, seen: SeenSums) -> Counts | None:
    """Return how often candidates in bins (n, P) with labels (n,) occur; None if they cannot make up the sums."""
    different = distinct(np.column_stack([places, labels]))
    used = np.unique(places[different])
    z = to_matrix(places[different], len(seen.labelled))[:, used].T
    enough = int(_EQUATIONS * len(different)) + 1
    rounds = min(len(seen.products), -(-enough // len(used)))
    along = [labels[different], *values(places[different], seen.directions[:rounds])]
    totals = [seen.labelled, *seen.products[:rounds]]
    parts = [
        _combine(np.random.default_rng(number), z.multiply(each[None, :]), total[used], enough)
        for number, (each, total) in enumerate(zip(along, totals, strict=True))
    ]
    design, right = np.vstack([part for part, _ in parts]), np.concatenate([total for _, total in parts])
    found, determined = least_squares(design, right)
    return verify_counts(design, right, found, determined, different, len(labels))


def _combine(random: np.random.Generator, terms: Any, seen: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return equations with sparse terms (e, n) unchanged, or combined with random signs to a smaller number."""
    from scipy.sparse import csr_array

    equations = len(seen)
    if equations <= count:
        return terms.toarray(), seen
    signs = random.choice([-1.0, 1.0], size=equations)
    adding = csr_array(
        (signs, (random.integers(count, size=equations), np.arange(equations))), shape=(count, equations)
    )
    return (adding @ terms).toarray(), adding @ seen
