"""Rows from cuts of the joint problem of all classes (`optimization.joint_hinge`): blocks of one row, and differences.

A cut of a group has a block for each class: the features of rows that are taken for the class, less those of the
class's own rows that are taken for another. A block may be one row's where the group has many, and two blocks of a
class, from two points, may differ by one. Whether it is one row's is known from the row: see `features.inversion`. Of
which class it is follows from the points: a row of that class must be in just these blocks.

A row that is known is then taken off every cut of its group that it must be in, which leaves blocks of fewer rows, and
so on until nothing new comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.attacks.attack import TWO_CLASSES, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.cut_differences import COUNT_ROUNDING, distinct
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.finite_domain import CandidateCounting, Counts, least_squares, verify_counts
from fedsvm.algorithms.attacks.finite_domain import distinct as distinct_terms
from fedsvm.algorithms.attacks.newton_path import joint_end
from fedsvm.algorithms.attacks.own_noise import own_noise
from fedsvm.algorithms.attacks.row_counts import SAME_WITHIN, CountingAttack, ShownRows
from fedsvm.algorithms.attacks.support_rows import MAX_SUPPORT, SupportRows, split_candidates
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.inversion import NystromInverse
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.protocols.analysis.views import RoundView, RunView

_NEAR_THE_MARGIN = 0.01
"""Brackets that are lower than the highest by less may have a part: the last point is near the optimum, not at it."""

_EQUATIONS = 3.0
"""Per candidate."""


@dataclass(frozen=True)
class JointCuts:
    """Cuts of one group: points (T, K, m'), blocks (T, K, m') and counts (T,); m' is m + 1 with an intercept."""

    points: FloatArray
    blocks: FloatArray
    counts: FloatArray

    @classmethod
    def of(cls, points: FloatArray, sums: FloatArray, classes: int) -> JointCuts:
        """Return joint cuts from points (T, K m') and what is opened there (T, K m' + 1); see
        `JointSums.joint_cuts`."""
        shape = (len(points), classes, -1)
        return cls(points.reshape(shape), sums[:, :-1].reshape(shape).copy(), sums[:, -1].copy())

    def parts(self, features: FloatArray, own: int, at: Sequence[int] | None = None) -> FloatArray:
        """Return (T, K) of -1, 0 and 1: the sign with which a row with features f~ (m',) of a class is in the blocks.

        at: of some points only.
        """
        scores = (self.points if at is None else self.points[at]) @ features
        brackets = scores + 1.0 - scores[:, own : own + 1]
        brackets[:, own] = 0.0
        found = np.zeros(scores.shape)
        found[np.arange(len(scores)), brackets.argmax(axis=1)] = 1.0
        found[:, own] -= 1.0
        return found

    def take_off(self, row: JointRow) -> bool:
        """Subtract a row from the cuts that it must be in; False where a cut has not so many rows."""
        if row.label is None:
            return False
        parts = self.parts(row.features, row.label)
        active = parts.any(axis=1)
        if (self.counts[active] < 0.5).any():
            return False
        self.blocks[...] -= parts[:, :, None] * row.features
        self.counts[...] -= active
        return True


@dataclass(frozen=True)
class JointRow:
    """One row: features f~ (m',), its class where that is known, its columns (p,), scaled, and what inverting left."""

    features: FloatArray
    label: int | None
    row: FloatArray
    residual: float


@dataclass(frozen=True)
class _Vectors:
    """Vectors (n, m'): blocks of a class at points first (n,), less those at points second (n,) if there are."""

    left: FloatArray
    block: int
    first: IntArray
    second: IntArray | None = None

    def sign_of(self, cuts: JointCuts, features: FloatArray, own: int, place: int) -> float:
        """Return the sign with which a row with features (m',) of a class is in one of the vectors."""
        at = [self.first[place]] if self.second is None else [self.first[place], self.second[place]]
        there, *taken = cuts.parts(features, own, at)[:, self.block]
        return float(there - sum(taken))


def lone_blocks(cuts: JointCuts) -> Iterator[_Vectors]:
    """Yield all blocks, by class."""
    for block in range(cuts.blocks.shape[1]):
        yield _Vectors(cuts.blocks[:, block], block, np.arange(len(cuts.blocks)))


def block_differences(cuts: JointCuts) -> Iterator[_Vectors]:
    """Yield the differences of every two blocks of a class."""
    first, second = np.triu_indices(len(cuts.blocks), 1)
    for block in range(cuts.blocks.shape[1]):
        of_class = cuts.blocks[:, block]
        yield _Vectors(of_class[first] - of_class[second], block, first, second)


def single_rows(
    cuts: JointCuts, vectors: _Vectors, inverse: NystromInverse, *, distinctly: bool = True
) -> list[JointRow]:
    """Return the rows of vectors that are a single row, with or without a minus sign; equal vectors once."""
    found, intercept = list[JointRow](), cuts.blocks.shape[2] > inverse.dimensions
    for sign in (1.0, -1.0):
        features = sign * vectors.left
        if intercept:
            places = np.flatnonzero(np.abs(features[:, -1] - 1.0) < COUNT_ROUNDING)
        else:
            places = np.flatnonzero(np.abs(features).max(axis=1, initial=0.0) > COUNT_ROUNDING)
        places = places[distinct(features[places])] if distinctly else places
        inverted = inverse.invert(features[places, : inverse.dimensions])
        for of, row, residual in zip(places[inverted.of].tolist(), inverted.rows, inverted.residuals, strict=True):
            classes = [
                each for each in range(cuts.blocks.shape[1]) if vectors.sign_of(cuts, features[of], each, of) == sign
            ]
            if classes:
                label = classes[0] if len(classes) == 1 else None
                found.append(JointRow(features[of], label, row, float(residual)))
    return found


def joint_rows_told(cuts: JointCuts, inverse: NystromInverse) -> tuple[int, int]:
    """Return how many blocks of a group are a single row, and how many other rows are differences of two blocks."""
    alone = [single_rows(cuts, vectors, inverse, distinctly=False) for vectors in lone_blocks(cuts)]
    known = [row for rows in alone for row in rows]
    differ = [row for vectors in block_differences(cuts) for row in single_rows(cuts, vectors, inverse)]
    return len(known), len(_each_once(differ, known))


def peel(cuts: JointCuts, inverse: NystromInverse) -> list[JointRow]:
    """Return all rows that follow from the cuts of a group, as often as they occur, and subtract them."""
    found, unsure = list[JointRow](), list[JointRow]()
    while True:
        new = list[JointRow]()
        for way in (lone_blocks, block_differences):
            shown = [row for vectors in way(cuts) for row in single_rows(cuts, vectors, inverse)]
            rows = _each_once(shown)
            unsure += [row for row in rows if row.label is None]
            new = [row for row in rows if cuts.take_off(row)]
            if new:
                break
        if not new:
            return found + _each_once(unsure, found)
        found += new


def _each_once(rows: Sequence[JointRow], known: Sequence[JointRow] = ()) -> list[JointRow]:
    """Return the first of equal rows, without known ones."""
    kept = list[JointRow]()
    for row in rows:
        if not any(np.abs(row.row - other.row).max() < SAME_WITHIN for other in (*kept, *known)):
            kept.append(row)
    return kept


class JointBlocks(CountingAttack):
    """Blocks of one row, differences of two blocks, and the rows in them peeled off."""

    name = "blocks of joint cuts"

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows of each series of cuts."""
        for epoch in epochs(view):
            if (inverse := epoch.inverse) is None:
                continue
            for groups in series(epoch.of("joint_cuts"), prior.classes):
                found = [row for cuts in groups for row in peel(cuts, inverse)]
                rows = np.array([each.row for each in found]).reshape(-1, epoch.columns)
                labels = np.array([np.nan if each.label is None else each.label for each in found])
                residual = max((each.residual for each in found), default=0.0)
                yield ShownRows.of(epoch, epoch.unscale(rows), labels, residual)


def series(rounds: Sequence[RoundView], classes: int) -> list[list[JointCuts]]:
    """Return the cuts of some rounds for each group, grouped by rows."""
    taken: dict[tuple[str, ...], list[tuple[FloatArray, FloatArray]]] = {}
    for each in rounds:
        for sites, sums in each.sums.items():
            taken.setdefault(sites, []).append((each.parameters["w"], sums))
    found = []
    for cuts in taken.values():
        points, sums = (np.array(each) for each in zip(*cuts, strict=True))
        found.append([JointCuts.of(points, of_group, classes) for of_group in sums.transpose(1, 0, 2)])
    return found


class JointCounts(CandidateCounting):
    """An attack that counts each possible record by least squares over joint cuts, whatever their groups.

    As `finite_domain`, which takes all combinations of few categories where there is no list: cuts are linear in it,
    counts are whole numbers, and the cuts come out again.
    """

    name = "finite domain, jointly"

    def solutions(self, epoch: Epoch, candidates: LabeledRows, prior: Prior) -> Iterator[Counts | None]:
        """Solve every series of cuts separately. A candidate has the class of its label."""
        if (features := epoch.features) is None:
            return
        for groups in series(epoch.of("joint_cuts"), prior.classes):
            blocks = np.sum([each.blocks for each in groups], axis=0)
            cuts = JointCuts(groups[0].points, blocks, np.sum([each.counts for each in groups], axis=0))
            yield solve(cuts, features(epoch.scale(candidates.rows)), candidates.labels)


def solve(cuts: JointCuts, features: FloatArray, labels: FloatArray) -> Counts | None:
    """Return how often candidates with features (n, m) and classes (n,) occur; None if they cannot make up the cuts."""
    first = distinct_terms(np.column_stack([features, labels]))
    own, classes = features[first], labels[first].astype(np.int64)
    if cuts.blocks.shape[2] > own.shape[1]:
        own = np.column_stack([own, np.ones(len(own))])
    enough = 2 + int(_EQUATIONS * len(first) / (1 + cuts.blocks[0].size))
    some = JointCuts(cuts.points[:enough], cuts.blocks[:enough], cuts.counts[:enough])
    columns = []
    for row, label in zip(own, classes.tolist(), strict=True):
        parts = some.parts(row, label)
        columns.append(np.append((parts[:, :, None] * row).ravel(), parts.any(axis=1)))
    seen = np.append(some.blocks.ravel(), some.counts)
    design = np.column_stack(columns)
    found, determined = least_squares(design, seen)
    return verify_counts(design, seen, found, determined, first, len(features))


class JointSupportRows(SupportRows):
    """The same of the joint problem: W = sum_i sum_k a_ik (e_{y_i} - e_k) f~_i^T, with a_ik >= 0 and sum_k a_ik <= C.

    a_ik is 0 but where the bracket of k is as large as any. What a candidate's add up to is its part.
    """

    name = "support rows, jointly"
    is_of_problems = False

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack the last trained model. The coalition's own rows may contribute, and are not ranked."""
        if prior.candidates is None or prior.classes == 2 or not (parts := epochs(view)):
            return
        epoch = parts[-1]
        if epoch.features is None or (point := last_joint_point(epoch, prior.classes)) is None:
            return
        others, own = split_candidates(prior.candidates, prior.own, epoch)
        rows = np.vstack([others.rows, own.rows])
        shares = self._shares(
            point,
            own_noise(epoch, TWO_CLASSES, point.size).draw.reshape(point.shape),
            epoch.features(epoch.scale(rows)),
            np.concatenate([others.labels, own.labels]).astype(np.int64),
        )[: len(others.rows)]
        if len(near := np.flatnonzero(~np.isnan(shares))):
            yield CandidateScores(LabeledRows(others.rows[near], others.labels[near]), shares[near])

    def _shares(self, point: FloatArray, draw: FloatArray, features: FloatArray, labels: IntArray) -> FloatArray:
        """Return (n,) the share of each row with features (n, m) and classes (n,) in a point (K, m'); NaN beyond the
        margin. draw (K, m'): known noise in the objective."""
        from scipy.optimize import lsq_linear

        own = features if point.shape[1] == features.shape[1] else np.column_stack([features, np.ones(len(features))])
        scores = own @ point.T
        brackets = scores + 1.0 - scores[np.arange(len(labels)), labels][:, None]
        brackets[np.arange(len(labels)), labels] = -np.inf
        highest = np.maximum(brackets.max(axis=1), 0.0)
        of, other = np.nonzero(brackets > highest[:, None] - _NEAR_THE_MARGIN)
        shares = np.full(len(labels), np.nan)
        if not 0 < len(of) <= MAX_SUPPORT:
            return shares
        design = np.zeros((point.size, len(of)))
        for place, (row, block) in enumerate(zip(of.tolist(), other.tolist(), strict=True)):
            moved = np.zeros(point.shape)
            moved[labels[row]], moved[block] = own[row], -own[row]
            design[:, place] = moved.ravel()
        found = lsq_linear(design, (point + draw).ravel(), bounds=(0.0, self._C), method="bvls").x
        shares[of] = 0.0
        np.add.at(shares, of, found)
        return shares


def last_joint_point(epoch: Epoch, classes: int) -> FloatArray | None:
    """Return (K, m') the last weights: sent (cutting planes), where the path ended if it is known, released, or filed.

    None if there are none.
    """
    if (end := joint_end(epoch, classes)) is not None:
        return end
    if sent := epoch.of("joint_cuts") + epoch.of("joint_line"):
        return np.asarray(sent[-1].parameters["w"].reshape(classes, -1))
    opened = [total[:, :-1] for each in epoch.of("released") for total in each.sums.values() if total.any()]
    filed = [each.parameters for each in epoch.of("receive_map") if {"w", "b"} <= each.parameters.keys()]
    opened += [np.column_stack([told["w"], told["b"]]) for told in filed]
    if not opened:
        return None
    return opened[-1] if opened[-1][:, -1].any() else opened[-1][:, :-1]  # without an intercept
