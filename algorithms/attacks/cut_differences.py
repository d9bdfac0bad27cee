"""Rows by subtracting cuts of the cutting plane (`optimization.cutting_plane`) from each other, and peeling.

A cut of a group at a point (w, b) is the sum of (y f, y, 1) over the rows of the group with y (w.f + b) < 1. Two cuts
of one group differ by the rows that crossed the margin between their points: where that is one row, the difference is
its features and its label; and where three cuts are those of two sets and of their union less a row, so is what is
left. A cut alone in which one row is active is a difference from a cut at a point where none is.

Whether it is one row is known from the row: see `features.inversion`. A row that is known is then subtracted from every
cut of its group in which it must be active, which leaves cuts of fewer rows, and so on until nothing new comes out.

So, Ali, Güler, Jiao and Avestimehr 2021 isolate users by differences of rounds of aggregated gradients; here they are
rows, since the points at which a row counts are known, and it counts in full or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, BinaryTask, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.row_counts import SAME_WITHIN, RowCounts, ShownRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.inversion import NystromInverse
from fedsvm.algorithms.optimization.cutting_plane import Points
from fedsvm.algorithms.optimization.hinge_sums import cuts_at_zero
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.protocols.analysis.views import RoundView, RunView

COUNT_ROUNDING = 2.0**-15
"""Counts come out of secure sums as whole numbers, up to this."""

AT_THE_MARGIN = 1e-7
"""The distance of a row's margin from 1 within which its features do not tell whether it is active."""

_LONGEST = 1.0 + 1e-3
"""Features of the rbf kernel are no longer than 1."""

_MAX_TRIPLES = 2_000_000
"""Of cuts of one group; where there are more, they are not tried."""


@dataclass(frozen=True)
class GroupedCuts:
    """Cuts of the same rows, dealt to the same groups, of one binary problem: (T, g, m + 2), see `HingeSums.cuts`."""

    points: Points
    sums: FloatArray


def series(rounds: Sequence[RoundView], posed: BinaryTask) -> list[GroupedCuts]:
    """Return the cuts of a problem in some rounds, grouped by rows.

    Sums of each class are those at 0, on either side.
    """
    taken: dict[tuple[str, ...], list[tuple[FloatArray, float, FloatArray]]] = {}
    for each in rounds:
        told = each.parameters
        for sites, sums in each.sums.items():
            cuts: list[tuple[FloatArray, float, FloatArray]] = []
            if each.step == "starting_sums":
                cuts = [(np.zeros(sums.shape[2] - 1), b, cuts_at_zero(sums, posed.signs, b)) for b in (-1.0, 1.0)]
            elif each.step == "cuts":
                places = np.flatnonzero(told["problems"] == posed.number)
                cuts = [(told["w"][place], float(told["b"][place]), sums[place]) for place in places]
            if cuts:
                taken.setdefault(sites, []).extend(cuts)
    found = []
    for cuts in taken.values():
        w, b, sums = (np.array(each) for each in zip(*cuts, strict=True))
        found.append(GroupedCuts(Points(w, b), sums))
    return found


@dataclass(frozen=True)
class SingleRows:
    """Single rows among differences: features (k, m), labels (k,), and rows (k, p), scaled.

    residuals: (k,) by how much features computed again from the rows differ from those that were seen.
    """

    features: FloatArray
    labels: FloatArray
    rows: FloatArray
    residuals: FloatArray

    def __getitem__(self, which: IntArray) -> SingleRows:
        return SingleRows(self.features[which], self.labels[which], self.rows[which], self.residuals[which])

    def __add__(self, other: SingleRows) -> SingleRows:
        return SingleRows(
            np.vstack([self.features, other.features]),
            np.concatenate([self.labels, other.labels]),
            np.vstack([self.rows, other.rows]),
            np.concatenate([self.residuals, other.residuals]),
        )

    def distinct(self) -> SingleRows:
        """Return each row once."""
        new: list[int] = []
        for place, (row, label) in enumerate(zip(self.rows, self.labels, strict=True)):
            same = (np.abs(self.rows[new] - row) < SAME_WITHIN).all(axis=1) & (self.labels[new] == label)
            if not same.any():
                new.append(place)
        return self[np.array(new, dtype=np.int64)]


@dataclass(frozen=True)
class Combinations:
    """Cuts of one group added and taken off: what is left (n, m + 2), and which cuts, as indices into the points.

    plus, minus: tuples of (n,) indices; a known row that was taken off too is in neither.
    """

    left: FloatArray
    plus: tuple[IntArray, ...]
    minus: tuple[IntArray, ...]

    def __getitem__(self, which: IntArray | BoolArray) -> Combinations:
        plus, minus = (tuple(each[which] for each in part) for part in (self.plus, self.minus))
        return Combinations(self.left[which], plus, minus)


def single_rows(points: Points, combinations: Combinations, features: NystromInverse) -> SingleRows:
    """Return the rows of those combinations of a group's cuts that are a single row; each row once.

    Of one row's are those whose features are a row's, and whose row is active, by the points, in just the cuts that it
    must then be in. The second tells it from two rows with other labels, whose features cancel out.
    """
    rounded = np.rint(combinations.left[:, -2:])
    one = (np.abs(rounded) == 1).all(axis=1)
    one &= (np.abs(combinations.left[:, -2:] - rounded) < COUNT_ROUNDING).all(axis=1)
    combinations = combinations[one]
    d, m = rounded[one].T
    labels = d * m
    of_row = combinations.left[:, :-2] * d[:, None]  # m y f, with m = 1 where it joined and -1 where it left
    each = distinct(np.column_stack([of_row, labels, m]))
    combinations, of_row, labels, m = combinations[each], of_row[each], labels[each], m[each]
    found = features.invert(of_row)
    active = points.active(of_row[found.of], labels[found.of])
    rows, combinations = np.arange(len(found.of)), combinations[found.of]
    times = sum((active[cut, rows] for cut in combinations.plus), start=np.zeros(len(rows)))
    times = times - sum((active[cut, rows] for cut in combinations.minus), start=np.zeros(len(rows)))
    right = times == m[found.of]
    which = found.of[right]
    return SingleRows(of_row[which], labels[which], found.rows[right], found.residuals[right]).distinct()


def distinct(rows: FloatArray) -> IntArray:
    """Return the indices of rows (n, q), without most of those that are copies up to rounding."""
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    direction = np.random.default_rng(0).normal(size=rows.shape[1])
    _, first = np.unique(np.rint(rows @ direction * 1e6), return_index=True)
    return np.sort(first)


def pair_differences(cuts: FloatArray) -> Combinations:
    """Return differences of two cuts of a group (T, m + 2) that count one row."""
    first, second = np.triu_indices(len(cuts), 1)
    one = np.abs(np.abs(cuts[first, -1] - cuts[second, -1]) - 1.0) < COUNT_ROUNDING
    first, second = first[one], second[one]
    return Combinations(cuts[first] - cuts[second], (first,), (second,))


def lone_rows(cuts: FloatArray) -> Combinations:
    """Return the cuts of a group (T, m + 2) that count one row."""
    (one,) = np.nonzero(np.abs(cuts[:, -1] - 1.0) < COUNT_ROUNDING)
    return Combinations(cuts[one], (one,), ())


def triple_differences(cuts: FloatArray) -> Combinations:
    """Return the sums of two cuts of a group (T, m + 2) minus a third that count one row."""
    if len(cuts) ** 3 > _MAX_TRIPLES:
        return pair_differences(cuts[:0])
    first, second = np.triu_indices(len(cuts), 1)
    together = cuts[first, -1] + cuts[second, -1]
    pair, third = np.nonzero(np.abs(np.abs(together[:, None] - cuts[:, -1]) - 1.0) < COUNT_ROUNDING)
    left = cuts[first[pair]] + cuts[second[pair]] - cuts[third]
    return Combinations(left, (first[pair], second[pair]), (third,))


@dataclass(frozen=True)
class KnownRows:
    """Rows that are in the data, in a group that is not known: features (k, m), labels (k,)."""

    features: FloatArray
    labels: FloatArray

    @classmethod
    def of(cls, known: LabeledRows, epoch: Epoch, features: NystromInverse) -> KnownRows:
        """Return known rows from unscaled ones. A row with unknown label (NaN) is tried with both labels."""
        mapped = features(epoch.scale(known.rows))
        unknown = np.isnan(known.labels)
        labels = [known.labels[~unknown], np.ones(unknown.sum()), -np.ones(unknown.sum())]
        return cls(np.vstack([mapped[~unknown], mapped[unknown], mapped[unknown]]), np.concatenate(labels))


def differences_less_known(points: Points, rest: FloatArray, known: KnownRows) -> Combinations:
    """Return differences of two cuts of a group (T, m + 2) minus a known row that must have crossed.

    Of those that count one row then, and could be one row's by their length. Whether the known row is of this group
    nobody knows: where it is not, what is left is no row's.
    """
    first, second = np.triu_indices(len(rest), 1)
    differences = rest[first] - rest[second]
    some = np.isin(np.abs(differences[:, -1]).round(3), (0.0, 2.0))
    some &= np.abs(differences[:, :-2]).max(axis=1, initial=0.0) > COUNT_ROUNDING  # of no row nothing can be taken off
    some[some] = np.isin(np.arange(some.sum()), distinct(differences[some]))
    first, second, differences = first[some], second[some], differences[some]
    active = points.active(known.features, known.labels)
    crossed = active[first] - active[second]
    counts = np.abs(differences[:, -1:] - crossed)
    lengths = (differences[:, :-2] ** 2).sum(axis=1)[:, None] + (known.features**2).sum(axis=1)
    lengths = lengths - 2.0 * crossed * known.labels * (differences[:, :-2] @ known.features.T)
    one = (crossed != 0) & (np.abs(counts - 1.0) < COUNT_ROUNDING) & (lengths < _LONGEST**2)
    pair, row = np.nonzero(one)
    terms = np.column_stack([known.labels[:, None] * known.features, known.labels, np.ones(len(known.labels))])
    left = differences[pair] - crossed[pair, row][:, None] * terms[row]
    return Combinations(left, (first[pair],), (second[pair],))


class CutDifferences(Attack):
    """Differences of two and of three cuts of one group, and the rows in them peeled off."""

    name = "differences of cuts"
    is_of_problems = uses_found = True

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack every series of cuts separately. Results of folds and repetitions over the same rows add up.

        Rows that are known from others are then tried in all series: of differences of two they leave single rows.
        """
        parts = [(epoch, features) for epoch in epochs(view) if (features := epoch.inverse) is not None]
        if not parts:
            return
        counts, residual, known = RowCounts(parts[0][0].columns), 0.0, prior.found
        for _ in range(2 if len(parts) > 1 or known is not None else 1):
            for epoch, features in parts:
                among = KnownRows.of(known, epoch, features) if known is not None else None
                for cuts in series(epoch.rounds, prior.posed):
                    found = peel(cuts, features, among)
                    counts.take(ShownRows.of(epoch, epoch.unscale(found.rows), found.labels))
                    residual = max(residual, float(found.residuals.max(initial=0.0)))
            known = counts.repeated
        yield RowClaim(*counts.repeated, residual)


def peel(cuts: GroupedCuts, features: NystromInverse, known: KnownRows | None = None) -> SingleRows:
    """Return all rows that follow from a series of cuts; a row that occurs twice is returned twice."""
    nothing = cuts.points.b[:0]
    found = SingleRows(cuts.points.w[:0], nothing, features.landmarks[:0], nothing)
    for group in range(cuts.sums.shape[1]):
        rest = cuts.sums[:, group].copy()
        while len((new := _peel(cuts.points, rest, features, known)).labels):
            found = found + new
    return found


def _peel(points: Points, rest: FloatArray, inverse: NystromInverse, known: KnownRows | None) -> SingleRows:
    """Return rows that differences of a group's remaining cuts (T, m + 2) show, and subtract them in place."""
    ways: list[Callable[[FloatArray], Combinations]] = [lone_rows, pair_differences, triple_differences]
    if known is not None:
        ways.append(lambda rest: differences_less_known(points, rest, known))
    for way in ways:
        singles = single_rows(points, way(rest), inverse)
        each = zip(singles.features, singles.labels.tolist(), strict=True)
        taken = [place for place, (features, label) in enumerate(each) if take_off(points, rest, features, label)]
        if taken:
            break
    return singles[np.array(taken, dtype=np.int64)]


def take_off(points: Points, rest: FloatArray, f: FloatArray, y: float) -> bool:
    """Subtract a row with features f (m,) and label y from every cut of a group (T, m + 2) that it must be active in,

    in place; False where a cut has not so many rows.
    """
    excess = y * (points.w @ f + points.b) - 1.0
    unsure = np.abs(excess) < AT_THE_MARGIN
    active = (excess < 0) & ~unsure
    if (rest[active, -1] < 0.5).any():
        return False
    rest[active] -= np.append(y * f, [y, 1.0])
    rest[unsure] = np.nan  # whether it is in these sums is not known, and nothing is made of them any more
    return True
