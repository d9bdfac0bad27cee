"""Rows from Newton's systems of the interior point, by who has them without their masks and so the path too.

That is the coordinator together with any one site, or alone where masking = "none". It knows q and M of

    M = sum_i d_i f~_i f~_i^T,    q = sum_i alpha*_i f~_i,

and of every row that it can think of d_i and alpha*_i, in every round. Two ways to rows:

- *candidates*: both are linear in how often each occurs, and two rounds have more equations than there are candidates
  of a finite domain. Counts are whole numbers though nothing asked for that, and the sums computed again are those that
  were seen. Of M it takes random quadratic forms, which is as good and smaller.
- *no candidates*: late in training M is that of the few rows at the margin, whose d is larger by orders of magnitude,
  and these are fewer than features. Two such matrices M = F diag(d) F^T and M' = F diag(d') F^T of the same rows have
  the columns of F as their generalised eigenvectors (Leurgans, Ross and Abel 1993; "Jennrich's algorithm"). The
  intercept's column says how long each is, and features give the row (`features.inversion`), which is checked there;
  its label follows from its side of the margin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from algorithms.attacks.contract import Attack, Claim, Prior, Ranking
from algorithms.attacks.epochs import Epoch, epochs
from algorithms.attacks.finite_domain import MAX_CANDIDATES, Counts, checked, combinations, distinct, least_squares
from algorithms.attacks.newton_path import NewtonPath, RowTotals, newton_paths, signed
from algorithms.attacks.row_counts import SAME_WITHIN, RowCounts
from algorithms.data.columns import Labelled
from algorithms.features.inversion import NystromInverse
from algorithms.optimisation.barrier import Problem, Standing
from federation.arrays import FloatArray
from protocols.analysis.views import RunView

_EQUATIONS = 1.5
"""Per candidate, of every two rounds."""

_LAST_ROUNDS = 4
"""In which rows at the margin stand out; all pairs of them are tried."""

_LEAST_GAP = 3.0
"""Between the eigenvalues of rows at the margin and of others."""


class NewtonSystems(Attack):
    """Counts of candidates by least squares, or rows at the margin by two rounds' common eigenvectors."""

    name = "Newton systems"

    def __call__(self, view: RunView, prior: Prior) -> Iterator[Claim | Ranking]:
        """Every training by itself; folds add up."""
        counts: RowCounts | None = None
        residual = 0.0
        for epoch in epochs(view):
            trainings = [(path, sites) for path in newton_paths(epoch) for sites in _sites(path)]
            for path, sites in trainings:
                counts = counts or RowCounts(epoch.columns)
                found, left = _rows(epoch, path, sites, prior)
                counts.take(found.rows, found.labels, SAME_WITHIN * epoch.scale.scale)
                residual = max(residual, left)
        if counts is not None:
            yield Claim(*counts.repeated, residual)


def _sites(path: NewtonPath) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(sites for each in path.rounds for sites in each.sums))


def _rows(epoch: Epoch, path: NewtonPath, sites: tuple[str, ...], prior: Prior) -> tuple[Labelled, float]:
    """Rows of some sites, and what the attack's own check left."""
    candidates = prior.candidates or combinations(epoch)
    if candidates is not None and len(candidates.rows) <= MAX_CANDIDATES:
        problem = path.problem(epoch, candidates)
        if problem is not None and (solved := solve(path, sites, problem)) is not None:
            places = np.repeat(np.arange(len(candidates.rows)), solved.counts)
            return Labelled(candidates.rows[places], candidates.labels[places]), solved.residual
    if epoch.inverse is not None and path.lever:
        return at_the_margin(epoch, epoch.inverse, path, sites)
    return Labelled(np.zeros((0, epoch.columns)), np.zeros(0)), 0.0


# Of candidates.


def solve(path: NewtonPath, sites: tuple[str, ...], problem: Problem) -> Counts | None:
    """How often candidates occur among the rows of some sites; None where these cannot make up the sums."""
    terms = signed(problem)
    first = distinct(terms)
    pairs = zip(path.rounds, path.standings(problem), strict=True)
    rounds = [(each.sums[sites], standing) for each, standing in pairs if sites in each.sums]
    random = np.random.default_rng(0)
    forms = random.standard_normal((int(_EQUATIONS * len(first) / 2) + 1, terms.shape[1])) / terms.shape[1] ** 0.5
    parts = [_equations(total, standing, terms, forms) for total, standing in rounds[:3]]
    design, seen = np.vstack([design for design, _ in parts])[:, first], np.concatenate([seen for _, seen in parts])
    found, determined = least_squares(design, seen)
    return checked(design, seen, found, determined, first, len(terms))


def _equations(
    total: RowTotals, standing: Standing, terms: FloatArray, forms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(e, n) what each candidate with terms (n, d) adds to the numbers (e,) of a round, which are of the order of 1."""
    steepest, star = float(standing.slopes.max()), standing.alpha + standing.lag
    highest = float(star.max())
    quadratic = (forms @ terms.T) ** 2 * (standing.slopes / steepest)
    of_matrix = np.einsum("ij,jk,ik->i", forms, total.matrix, forms) / steepest
    return np.vstack([quadratic, terms.T * (star / highest)]), np.concatenate([of_matrix, total.gradient / highest])


# Of none.


def at_the_margin(
    epoch: Epoch, inverse: NystromInverse, path: NewtonPath, sites: tuple[str, ...]
) -> tuple[Labelled, float]:
    """Rows that two late rounds of some sites have in common, each once, and the largest residual of their features."""
    points = np.cumsum([each.step for each in path.rounds], axis=0)
    late = [
        (total.matrix, point)
        for each, point in zip(path.rounds, points, strict=True)
        if (total := each.sums.get(sites)) is not None
    ][-_LAST_ROUNDS:]
    counts, residual = RowCounts(epoch.columns), 0.0
    for (other, _), (matrix, point) in itertools.combinations(late, 2):
        features = common_eigenvectors(other, matrix, path.lever)
        found = inverse.invert(features)
        rows, at = found.rows, features[found.of]
        labels = np.sign(at @ point[:-1] + path.lever * point[-1])
        once = _first(rows)
        counts.take(epoch.unscaled(rows[once]), labels[once], SAME_WITHIN * epoch.scale.scale)
        residual = max(residual, float(found.residuals.max(initial=0.0)))
    return counts.repeated, residual


def common_eigenvectors(other: FloatArray, matrix: FloatArray, lever: float) -> FloatArray:
    """(s, m) features of the rows at the margin, by two rounds' matrices (d, d): F of F diag(d) F^T of both."""
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
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
    """Indices of rows, of those that are the same only the first."""
    new: list[int] = []
    for place, row in enumerate(rows):
        if not any(np.abs(row - rows[other]).max() < SAME_WITHIN for other in new):
            new.append(place)
    return new
