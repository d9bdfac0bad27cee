"""Rows from Newton's systems of the joint problem of all classes, by who has them without their masks and a list.

As `newton_systems`, with the blocks of each row: the matrix is the sum of H_i (x) f~_i f~_i^T, and the right-hand side
that of (C e_y - alpha*_i) (x) f~_i, where H_i and alpha*_i follow from the path (`optimization.joint_barrier`). Both
are linear in how often each candidate occurs. Two members of a committee have the matrices of all rows, and subtract
the part of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
from fedsvm.algorithms.attacks.newton_path import (
    EVERYONE,
    PathRound,
    RowTotals,
    ViewedTraining,
    joint_rounds,
    trainings,
)
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.optimization.barrier import DualState
from fedsvm.algorithms.optimization.joint_barrier import JointProblem
from fedsvm.algorithms.optimization.weighting import row_prices
from fedsvm.federation.arrays import FloatArray, IntArray

MappedRows = tuple[FloatArray, IntArray]
"""Features (n, m) and classes (n,) of rows."""

_ROUNDS = 3
"""The number of first rounds whose systems are equations."""

_EQUATIONS = 1.5
"""Of matrices, per candidate, of every two rounds."""


class JointNewtonSystems(CandidateCounting):
    """Counts of candidates by least squares.

    Parameters
    ----------
    is_noisy : bool, default False
        True if the objective has noise, and with it the right-hand sides; then the matrices alone are read.
    """

    name = "Newton systems, jointly"

    def __init__(self, *, is_noisy: bool = False) -> None:
        self._is_noisy = is_noisy

    def solutions(self, epoch: Epoch, candidates: LabeledRows, prior: Prior) -> Iterator[Counts | None]:
        """Solve the systems of every training separately. A candidate has the class of its label."""
        if (features := epoch.features) is None:
            return
        mapped, own = (
            None if rows is None else (features(epoch.scale(rows.rows)), rows.labels.astype(np.int64))
            for rows in (candidates, prior.own)
        )
        for training in trainings(epoch):
            if training.is_joint and mapped is not None:
                yield from self._solutions(training, mapped, own, prior.classes)

    def _solutions(
        self, training: ViewedTraining, mapped: MappedRows, own: MappedRows | None, classes: int
    ) -> Iterator[Counts]:
        """Yield how often candidates occur among the rows of some sites."""
        problem, rounds = _problem(training, mapped, classes), joint_rounds(training, classes)
        if own is not None:
            rounds = _without_own(_problem(training, own, classes), rounds)
        pairs = list(zip(rounds, _standings(problem, rounds), strict=True))
        for sites in dict.fromkeys(sites for each in rounds for sites in each.sums):
            systems = [(each.sums[sites], standing) for each, standing in pairs if sites in each.sums]
            if (solved := self._solve(problem, systems[:_ROUNDS])) is not None:
                yield solved

    def _solve(self, problem: JointProblem, systems: list[tuple[RowTotals, DualState]]) -> Counts | None:
        first = distinct(np.column_stack([problem.features, problem.of_class]))
        random = np.random.default_rng(0)
        shape = int(_EQUATIONS * len(first) / 2) + 1, problem.dimensions
        forms = random.standard_normal(shape) / problem.dimensions**0.5
        parts = [self._equations(problem, *system, forms) for system in systems]
        design, seen = np.vstack([design for design, _ in parts])[:, first], np.concatenate([seen for _, seen in parts])
        found, determined = least_squares(design, seen)
        return verify_counts(design, seen, found, determined, first, len(problem.features))

    def _equations(
        self, problem: JointProblem, total: RowTotals, standing: DualState, forms: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return (e, n) the contributions of candidates to the numbers (e,) of a round, of order 1."""
        slopes, classes = standing.slopes, problem.of_class.shape[1]
        steepest = float(slopes.max()) or 1.0
        along = forms.reshape(len(forms), classes, -1) @ problem.features.T  # (e, K, n)
        weighted = slopes.T * along
        sums = np.maximum(slopes.sum(axis=1), np.finfo(float).tiny)
        quadratic = ((weighted * along).sum(axis=1) - weighted.sum(axis=1) ** 2 / sums) / steepest
        of_matrix = ((forms @ total.matrix) * forms).sum(axis=1) / steepest
        if self._is_noisy or not len(total.gradient):
            return quadratic, of_matrix
        pull = problem.prices[:, None] * problem.of_class - standing.alpha - standing.lag
        highest = float(np.abs(pull).max()) or 1.0
        terms = (pull.T[:, None, :] * problem.features.T[None]).reshape(problem.dimensions, -1)
        return np.vstack([quadratic, terms / highest]), np.concatenate([of_matrix, total.gradient / highest])


def _problem(training: ViewedTraining, mapped: MappedRows, classes: int) -> JointProblem:
    """Return the joint problem of some rows."""
    begun, (features, labels) = training.begun, mapped
    prices = row_prices(begun["price"], labels, begun.get("factors") or (1.0,) * classes, None)
    return JointProblem.of_classes(features, np.eye(classes)[labels].T, prices, intercept=begun["lever"] > 0)


def _without_own(own: JointProblem, rounds: list[PathRound]) -> list[PathRound]:
    """Return rounds whose systems of every site lack the coalition's own rows."""
    found = []
    for each, standing in zip(rounds, _standings(own, rounds), strict=True):
        sums = {
            sites: replace(total, matrix=total.matrix - own.curvature_of(standing.slopes))
            if sites == EVERYONE
            else total
            for sites, total in each.sums.items()
        }
        found.append(replace(each, sums=sums))
    return found


def _standings(problem: JointProblem, rounds: list[PathRound]) -> Iterator[DualState]:
    """Yield the state of candidates after each round, if they were present from the beginning."""
    nothing = np.zeros(problem.dimensions)
    standing = problem.stand_at(0, nothing, nothing)
    for number, each in enumerate(rounds, start=1):
        standing = problem.move(standing, number, each.step, each.mu, keep=each.keep, still=each.still)
        yield standing
