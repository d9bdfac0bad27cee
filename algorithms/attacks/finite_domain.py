"""Rows by solving for how often each possible record occurs, where the possible records are few and known.

Of every candidate the coalition knows at which points it is active, and with which features: the cuts are *linear* in
how often each candidate occurs. As soon as there are as many equations as candidates, which a few rounds give, least
squares finds the counts. However the rows are dealt to groups, and however many groups there are, makes no difference:
groups are added up. Where there are too few equations for all, those candidates are counted whose counts every solution
agrees on.

Whether it came out right is known from the counts: they are whole numbers though nothing asked for that, and the cuts
computed again from them are those that were seen.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.attacks.attack import Prior
from fedsvm.algorithms.attacks.cut_differences import GroupedCuts, series
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.row_counts import CountingAttack, ShownRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.inversion import CHECKED_WITHIN
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.protocols.analysis.views import RunView

MAX_CANDIDATES = 4_000
"""Of more, with their labels, the least squares would take minutes."""

_FEW_EQUATIONS, _MANY_EQUATIONS = 1.5, 6.0
"""Per candidate. Few are enough where the points differ; where not, as many as there are up to the second."""

_CONDITION = 1e-12
"""Directions that weigh less than this share of the heaviest are not determined."""

_UNDETERMINED = 1e-7
"""A count is determined if no direction that is not has a larger part in it."""

_WHOLE = 1e-3
"""Counts that are determined come this close to whole numbers."""


@dataclass(frozen=True)
class Counts:
    """The number of occurrences of each candidate, (n,), and the largest difference from a number in the cuts."""

    counts: IntArray
    residual: float

    def repeat(self, candidates: LabeledRows) -> LabeledRows:
        """Return every candidate as often as it occurs."""
        places = np.repeat(np.arange(len(self.counts)), self.counts)
        return LabeledRows(candidates.rows[places], candidates.labels[places])


class CandidateCounting(CountingAttack):
    """Counts of candidates: those of the prior, or all combinations of few categories."""

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the candidates of each set of sums, as often as they occur."""
        for epoch in epochs(view):
            labels = (1.0, -1.0) if self.is_of_problems else range(prior.classes)
            candidates = prior.candidates or combinations(epoch, labels)
            if candidates is None or len(candidates.rows) > MAX_CANDIDATES:
                continue
            for solved in self.solutions(epoch, candidates, prior):
                found = solved or Counts(np.zeros(len(candidates.rows), dtype=np.int64), 0.0)
                yield ShownRows.of(epoch, *found.repeat(candidates), found.residual)

    @abstractmethod
    def solutions(self, epoch: Epoch, candidates: LabeledRows, prior: Prior) -> Iterator[Counts | None]:
        """Yield the counts that each set of sums gives; None if candidates cannot make it up."""


class FiniteDomain(CandidateCounting):
    """Counts of candidates by least squares over cuts."""

    name = "finite domain"
    is_of_problems = True

    def solutions(self, epoch: Epoch, candidates: LabeledRows, prior: Prior) -> Iterator[Counts | None]:
        """Solve every series of cuts separately."""
        if (features := epoch.features) is None:
            return
        yield None  # with no cuts it claims no rows
        for cuts in series(epoch.rounds, prior.posed):
            yield solve(cuts, features(epoch.scale(candidates.rows)), candidates.labels)


def combinations(epoch: Epoch, labels: Sequence[float] = (1.0, -1.0)) -> LabeledRows | None:
    """Return all combinations of categories with every label, if there are no other columns and not too many."""
    sizes = [len(values) for values in epoch.categories]
    many = len(labels) * float(np.prod(sizes, dtype=float))
    if epoch.category_columns < epoch.columns or not sizes or many > MAX_CANDIDATES:
        return None
    chosen = np.array(list(itertools.product(*map(range, sizes))))
    rows = np.hstack([np.eye(size)[column] for size, column in zip(sizes, chosen.T, strict=True)])
    return LabeledRows(np.vstack([rows] * len(labels)), np.repeat(labels, len(rows)))


def solve(cuts: GroupedCuts, features: FloatArray, labels: FloatArray) -> Counts | None:
    """Return how often candidates with features (n, m) and labels (n,) occur, as far as the cuts determine it.

    None where the candidates cannot make up the cuts. Candidates with the same features and label are one, and the
    first of them stands for all; of one that is not determined nothing is said, as if it did not occur.
    """
    terms = np.column_stack([labels[:, None] * features, labels, np.ones(len(labels))])
    first = distinct(terms)
    terms = terms[first]
    for share in (_FEW_EQUATIONS, _MANY_EQUATIONS):
        # The first two see every row once, and the points of early ones differ most.
        design, seen = _equations(cuts, 2 + int(share * len(first) / terms.shape[1]), terms)
        found, determined = least_squares(design, seen)
        if determined.all():
            break
    return verify_counts(design, seen, found, determined, first, len(features))


def verify_counts(
    design: FloatArray, seen: FloatArray, found: FloatArray, determined: BoolArray, places: IntArray, candidates: int
) -> Counts | None:
    """Return counts of candidates at `places` if they make up what was seen, and are whole where determined."""
    residual = float(np.abs(design @ found - seen).max(initial=0.0))
    whole = np.rint(found[determined])
    uneven = float(np.abs(found[determined] - whole).max(initial=0.0))
    if residual > CHECKED_WITHIN or uneven > _WHOLE or whole.min(initial=0.0) < 0:
        return None
    counts = np.zeros(candidates, dtype=np.int64)
    counts[places[determined]] = whole.astype(np.int64)
    return Counts(counts, residual)


def _equations(cuts: GroupedCuts, count: int, terms: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (e, n) the contributions of candidates with terms (n, m + 2) to the numbers (e,) of the first cuts."""
    labels = terms[:, -2]
    active = cuts.points.active(terms[:, :-2] * labels[:, None], labels)[:count]
    design = active[:, None, :] * terms.T[None, :, :]
    return design.reshape(-1, len(terms)), cuts.sums[:count].sum(axis=1).ravel()


def distinct(terms: FloatArray) -> IntArray:
    """Return the indices of terms (n, q), only the first of equal ones."""
    return np.asarray(np.unique(np.rint(terms / CHECKED_WITHIN), axis=0, return_index=True)[1])


def least_squares(design: FloatArray, right: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return a solution (n,), and which of its entries all solutions share.

    Of a triangle with the columns of the design turned into as few rows, columns are taken while they add to the rank;
    what the others do is made up for by these, and determined are those that make up for nothing.
    """
    from scipy.linalg import qr, solve_triangular

    (triangle,) = qr(np.column_stack([design, right]), mode="r", check_finite=False)
    turned, pivoted, order = qr(triangle[:, :-1], mode="economic", pivoting=True, check_finite=False)
    size = np.abs(np.diagonal(pivoted))
    rank = int(np.sum(size > _CONDITION * size.max(initial=0.0)))
    taken, left, leading = order[:rank], order[rank:], pivoted[:rank, :rank]
    found, determined = np.zeros(len(order)), np.zeros(len(order), dtype=np.bool_)
    found[taken] = solve_triangular(leading, turned.T[:rank] @ triangle[:, -1])
    made_up = solve_triangular(leading, pivoted[:rank, rank:]) if len(left) else np.zeros((rank, 0))
    parts = np.abs(made_up) / np.hypot(1.0, np.linalg.norm(made_up, axis=0))
    determined[taken] = parts.max(axis=1, initial=0.0) < _UNDETERMINED
    return found, determined
