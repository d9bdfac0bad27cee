"""Rows from Newton's systems of the interior point, by who has them without their masks and so the path too.

That is the coordinator together with any one site, or alone where masking = "none". It knows q and M of

    M = sum_i d_i f~_i f~_i^T,    q = sum_i alpha*_i f~_i,

and of every row that it can think of d_i and alpha*_i, in every round. Two ways to rows:

- *candidates*: both are linear in how often each occurs, and one round or two have more equations than there are
  candidates of a finite domain. Counts are whole numbers though nothing asked for that, and the sums computed again are
  those that were seen. Of M it takes random quadratic forms, which is as good and smaller.
- *no candidates*: late in training M is that of the few rows at the margin, whose d is larger by orders of magnitude,
  and these are fewer than features. Two such matrices M = F diag(d) F^T and M' = F diag(d') F^T of the same rows have
  the columns of F as their generalised eigenvectors (Leurgans, Ross and Abel 1993; "Jennrich's algorithm"). The
  intercept's column says how long each is, features give the row (`features.inversion`), and its label follows from its
  side of the margin. The row is then moved to where f~ M^-1 f~ is least, and has to pass a check that needs no truth:
  its leverage d f~ M^-1 f~, with the d that the path gives it, is next to 1 in three rounds, which it is of rows that
  are all there is in their direction of M. Of what is no row of M it is greater by orders of magnitude.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedsvm.algorithms.attacks.attack import Prior
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.finite_domain import (
    MAX_CANDIDATES,
    Counts,
    combinations,
    distinct,
    least_squares,
    verify_counts,
)
from fedsvm.algorithms.attacks.newton_path import EVERYONE, RowTotals, ViewedPath, newton_paths, signed_features
from fedsvm.algorithms.attacks.row_counts import SAME_WITHIN, CountingAttack, ShownRows
from fedsvm.algorithms.attacks.support_rows import split_candidates
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.inversion import CHECKED_WITHIN, NystromInverse
from fedsvm.algorithms.optimization.barrier import DualState, Problem
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RunView

_FEW_EQUATIONS, _MANY_EQUATIONS = 0.75, 1.5
"""Per candidate, of each round: of several together, and of one alone."""

_SOLVED = 3
"""The number of rounds that are solved, together and then one by one. A late one spoils the equations of an early one:
rows beyond the margin have next to no part in it."""

_NEARLY_WHOLE = 0.1
"""Counts that are all determined and come this close to whole numbers are these, if the sums agree."""

_LAST_ROUNDS = 4
"""In which rows at the margin stand out; all pairs of them are tried."""

_LEAST_GAP = 2.0
"""Between the eigenvalues of rows at the margin and of others."""

_NEAR = 0.1
"""Features that differ by more from all rows' are nobody's."""

_PRESENT = 0.01
"""A row with a secret barrier is in a system if its weight is above this share of what mu alone would give it."""

_REFINEMENTS = 20
_CHECKED_ROUNDS = 3

_LEVERAGE_WITHIN = 0.005
"""The maximum distance of a row's leverage from 1."""


class NewtonSystems(CountingAttack):
    """Counts of candidates by least squares, or rows at the margin by two rounds' common eigenvectors.

    Parameters
    ----------
    is_noisy : bool, default False
        True if the objective has noise, and with it the right-hand sides. Then rows have secret barriers too: the
        matrices alone are read, the weights of candidates in them are unknown, and each that is there is claimed once.
    """

    name = "Newton systems"
    is_of_problems = True

    def __init__(self, *, is_noisy: bool = False) -> None:
        self._is_noisy = is_noisy

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows of each training."""
        for epoch in epochs(view):
            paths = newton_paths(epoch, prior.posed)
            if not self._is_noisy:
                paths = [_without_own(epoch, each, prior.own) for each in paths]
            for path, sites in [(each, some) for each in paths for some in _sites(each)]:
                found, residual = self._rows(epoch, path, sites, prior)
                if self._is_noisy and sites == EVERYONE:
                    found = split_candidates(found, prior.own, epoch)[0]
                yield ShownRows.of(epoch, *found, residual)

    def _rows(self, epoch: Epoch, path: ViewedPath, sites: tuple[str, ...], prior: Prior) -> tuple[LabeledRows, float]:
        """Return rows of some sites, and the residual of the attack's own check."""
        candidates = prior.candidates or combinations(epoch)
        if candidates is not None and len(candidates.rows) <= MAX_CANDIDATES:
            problem = path.problem(epoch, candidates)
            solved = None if problem is None else (solve_weights if self._is_noisy else solve)(path, sites, problem)
            if solved is not None:
                return solved.repeat(candidates), solved.residual
        if epoch.inverse is not None and path.lever and not self._is_noisy:
            return at_the_margin(epoch, epoch.inverse, path, sites)
        return LabeledRows(np.zeros((0, epoch.columns)), np.zeros(0)), 0.0


def _without_own(epoch: Epoch, path: ViewedPath, own: LabeledRows | None) -> ViewedPath:
    """Return a path whose systems of every site lack the coalition's own rows."""
    problem = None if own is None else path.problem(epoch, own)
    if problem is None or not any(EVERYONE in each.sums for each in path.rounds):
        return path
    rounds = []
    for each, standing in zip(path.rounds, path.standings(problem), strict=True):
        rest = {
            sites: replace(total, matrix=total.matrix - problem.curvature(standing.slopes))
            for sites, total in each.sums.items()
        }
        rounds.append(replace(each, sums=rest))
    return replace(path, rounds=rounds)


def _sites(path: ViewedPath) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(sites for each in path.rounds for sites in each.sums))


# Of candidates.


def solve(path: ViewedPath, sites: tuple[str, ...], problem: Problem) -> Counts | None:
    """Return how often candidates occur among the rows of some sites; None if they cannot make up the sums."""
    terms, rounds = signed_features(problem), _rounds_of(path, sites, problem)
    first = distinct(terms)
    best: Counts | None = None
    for chosen, share in [
        (rounds[:_SOLVED], _FEW_EQUATIONS),
        *(([each], _MANY_EQUATIONS) for each in rounds[:_SOLVED]),
    ]:
        forms = _forms(share, len(first), terms)
        parts = [_equations(total, standing, terms, forms) for total, standing in chosen]
        design, seen = np.vstack([design for design, _ in parts])[:, first], np.concatenate([seen for _, seen in parts])
        found, determined = least_squares(design, seen)
        if determined.all() and np.abs(found - np.rint(found)).max() < _NEARLY_WHOLE:
            found = np.rint(found)  # has to make up the sums, too
        solved = verify_counts(design, seen, found, determined, first, len(terms))
        if solved is not None and (best is None or solved.counts.sum() > best.counts.sum()):
            best = solved
        if best is not None and determined.all():
            break
    return best


def solve_weights(path: ViewedPath, sites: tuple[str, ...], problem: Problem) -> Counts | None:
    """Return which candidates have a weight in the matrices of some sites; None if they cannot make up any."""
    terms, rounds = signed_features(problem), _rounds_of(path, sites, problem)
    first = distinct(terms)
    best: Counts | None = None
    for total, standing in rounds[:_SOLVED]:
        forms = _forms(_MANY_EQUATIONS, len(first), terms)
        design, seen = _of_matrix(total, standing.slopes[first], terms[first], forms)
        found, determined = least_squares(design, seen)
        residual = float(np.abs(design @ found - seen).max(initial=0.0))
        if residual > CHECKED_WITHIN or found[determined].min(initial=0.0) < -_PRESENT:
            continue
        counts = np.zeros(len(terms), dtype=np.int64)
        counts[first[determined & (found > _PRESENT)]] = 1
        if best is None or counts.sum() > best.counts.sum():
            best = Counts(counts, residual)
    return best


def _rounds_of(path: ViewedPath, sites: tuple[str, ...], problem: Problem) -> list[tuple[RowTotals, DualState]]:
    """Return the totals of some sites in each round that has them, with the state of candidates."""
    pairs = zip(path.rounds, path.standings(problem), strict=True)
    return [(each.sums[sites], standing) for each, standing in pairs if sites in each.sums]


def _forms(share: float, candidates: int, terms: FloatArray) -> FloatArray:
    """Return (e, d) random vectors, so many a candidate."""
    drawn = np.random.default_rng(0).standard_normal((int(share * candidates) + 1, terms.shape[1]))
    return np.asarray(drawn / terms.shape[1] ** 0.5)


def _equations(
    total: RowTotals, standing: DualState, terms: FloatArray, forms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return (e, n) the contributions of candidates with terms (n, d) to the numbers (e,) of a round, of order 1."""
    quadratic, of_matrix = _of_matrix(total, standing.slopes, terms, forms)
    if not len(total.gradient):
        return quadratic, of_matrix
    star = standing.alpha + standing.lag
    highest = float(star.max())
    return np.vstack([quadratic, terms.T * (star / highest)]), np.concatenate([of_matrix, total.gradient / highest])


def _of_matrix(
    total: RowTotals, slopes: FloatArray, terms: FloatArray, forms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return (e, n) the contributions of candidates with such slopes (n,) to quadratic forms (e,) of a matrix."""
    steepest = float(slopes.max())
    of_matrix = np.einsum("ij,jk,ik->i", forms, total.matrix, forms) / steepest
    return (forms @ terms.T) ** 2 * (slopes / steepest), of_matrix


# Of none.


def at_the_margin(
    epoch: Epoch, inverse: NystromInverse, path: ViewedPath, sites: tuple[str, ...]
) -> tuple[LabeledRows, float]:
    """Return rows of some sites found in their last rounds' matrices, and the largest distance of a leverage from 1."""
    late = [number for number, each in enumerate(path.rounds) if sites in each.sums][-_LAST_ROUNDS:]
    matrices = {number: path.rounds[number].sums[sites].matrix for number in late}
    starts = [
        inverse.nearest(common_eigenvectors(matrices[one], matrices[other], path.lever))
        for one, other in itertools.combinations(late, 2)
    ]
    rows = np.vstack([epoch.scale(np.zeros((0, epoch.columns))), *(rows[apart < _NEAR] for rows, apart in starts)])
    try:
        factors: dict[int, FloatArray] = {number: _factor(matrices[number]) for number in late[-_CHECKED_ROUNDS:]}
    except np.linalg.LinAlgError:  # behind a mask it is no sum of squares of rows
        rows, factors = rows[:0], {}
    for factor in factors.values():
        rows = _refine(rows, inverse, factor, path.lever)
    rows = rows[_first(rows)]
    v = np.sum([each.step for each in path.rounds], axis=0)
    labels = np.sign(inverse(rows) @ v[:-1] + path.lever * v[-1])
    found = LabeledRows(epoch.unscale(rows), labels)
    if not len(rows) or (problem := path.problem(epoch, found)) is None:
        return LabeledRows(found.rows[:0], labels[:0]), 0.0
    standings = path.standings(problem)
    leverages = [
        standings[number].slopes * (np.linalg.solve(factor, signed_features(problem).T) ** 2).sum(axis=0)
        for number, factor in factors.items()
    ]
    off = np.abs(np.array(leverages) - 1).max(axis=0)
    true = off < _LEVERAGE_WITHIN
    return LabeledRows(found.rows[true], labels[true]), float(off[true].max(initial=0.0))


def _refine(rows: FloatArray, inverse: NystromInverse, factor: FloatArray, lever: float) -> FloatArray:
    """Return rows (n, p) moved to a minimum of f~ M^-1 f~, which is steep except along rows at the margin."""
    found = rows.copy()
    for place in range(len(rows)):
        x = found[place : place + 1]
        residual = _whiten(x, inverse, factor, lever)
        for _ in range(_REFINEMENTS):
            slopes = np.vstack([inverse.jacobian(x)[0], np.zeros((1, inverse.basis.shape[1]))])
            direction = np.linalg.lstsq(np.linalg.solve(factor, slopes), -residual, rcond=None)[0] @ inverse.basis.T
            for share in (1.0, 0.25, 0.05):
                moved = _whiten(x + share * direction, inverse, factor, lever)
                if moved @ moved < residual @ residual:
                    x, residual = x + share * direction, moved
                    break
            else:
                break
        found[place] = x[0]
    return found


def _whiten(x: FloatArray, inverse: NystromInverse, factor: FloatArray, lever: float) -> FloatArray:
    """Return (d,) L^-1 f~ of a row (1, p)."""
    return np.asarray(np.linalg.solve(factor, np.append(inverse(x)[0], lever)))


def _factor(matrix: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.cholesky(matrix + 1e-15 * np.trace(matrix) * np.eye(len(matrix))))


def common_eigenvectors(other: FloatArray, matrix: FloatArray, lever: float) -> FloatArray:
    """Return (s, m) features of the rows at the margin, from two rounds' matrices (d, d) of the form F diag(d) F^T."""
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    with np.errstate(over="ignore"):  # above a value that rounding made negative there is no larger gap
        gaps = values[:-1] / np.maximum(values[1:], np.finfo(float).tiny)
    positive = int(np.count_nonzero(values > 0))
    place = int(np.argmax(gaps[: max(1, positive - 1)]))
    if positive < 2 or gaps[place] < _LEAST_GAP:
        return np.zeros((0, len(matrix) - 1))
    root = vectors[:, : place + 1] * np.sqrt(values[: place + 1])
    inverse = vectors[:, : place + 1] / np.sqrt(values[: place + 1])
    turned = np.linalg.eigh(inverse.T @ other @ inverse)[1]
    columns = root @ turned  # f~ sqrt(d), up to the sign
    with np.errstate(divide="ignore", invalid="ignore"):
        features = (columns[:-1] * (lever / columns[-1])).T
    return np.asarray(features[np.isfinite(features).all(axis=1)])


def _first(rows: Sequence[FloatArray] | FloatArray) -> list[int]:
    """Return the indices of rows, only the first of equal ones."""
    new: list[int] = []
    for place, row in enumerate(rows):
        if not any(np.abs(row - rows[other]).max() < SAME_WITHIN for other in new):
            new.append(place)
    return new
