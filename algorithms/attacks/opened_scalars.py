"""Training rows from the numbers that are opened with a committee, by lattice reduction.

With each system the coordinator opens the objective and the sums of dual variables of each class, with noise, and the
number of rows of each class. Each is a sum over the training rows, and whoever knows the path can compute the part of
every candidate: the loss, or alpha. So the coordinator together with any one site has a knapsack problem: which
candidates add up to all of these numbers?

    A c = t + e,   c_i = 0 or 1,   with e no larger than the known bound of the noise.

The rows of (2 I, A^T / s) and (-1, -t / s), for deviations s of the noise, span a lattice with the short vector
(2 c - 1, e / s) (Lagarias and Odlyzko 1985, with the centered unknowns of Coster et al. 1992 and several equations).
LLL reduction finds it where the numbers have many more bits than there are candidates.

The check needs no truth: c is of zeros and ones, and e within the bound. Noise leaves other vectors within the bound,
mostly pairs of rows that contribute next to nothing: a candidate is decided only if no vector of the reduced basis
whose sums stay within twice the bound changes it. Inner products of class vectors are not linear in c, and the noise
that a site draws as a member is not taken off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsvm.algorithms.attacks.attack import TWO_CLASSES, Attack, BinaryTask, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.every_problem import problems_of
from fedsvm.algorithms.attacks.newton_path import ViewedPath, newton_paths
from fedsvm.algorithms.attacks.row_counts import SAME_WITHIN
from fedsvm.algorithms.attacks.support_rows import split_candidates
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import BoolArray, FloatArray
from fedsvm.protocols.analysis.views import RunView

MAX_CANDIDATES = 1_000
"""Of more, reduction takes minutes."""

_RESOLUTION = 4
"""Units of the lattice in one deviation of the noise, and in half of an unknown."""

_ROUNDING, _MOST_ROUNDING = 3e-13, 1e-10
"""Errors of float64 in a number, as shares of the sum of all parts: by which it is weighed, and at most."""

_DEVIATION = 6**-0.5
"""Of the sum of two equal uniform numbers, over its bound."""

NOT_INSTALLED = "not run: needs python-flint, pip install fedsvm[lattice]"


class OpenedScalars(Attack):
    """Candidates that the numbers opened with the systems decide, where the objective has no noise of the sites."""

    name = "lattice reduction"

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack the last training, together with what was found before, and without it."""
        parties = view.coalition
        if not (parties.coordinator and parties.sites) or prior.candidates is None or not (parts := epochs(view)):
            return
        epoch, posed = parts[-1], [TWO_CLASSES] if prior.classes == 2 else problems_of(view, prior.classes)
        others, own = split_candidates(prior.candidates, prior.own, epoch)
        everyone = LabeledRows(np.vstack([others.rows, own.rows]), np.concatenate([others.labels, own.labels]))
        numbers = _numbers(epoch, posed, everyone, is_multiclass=prior.classes > 2)
        if numbers is None or not len(others.rows):
            return
        ours = np.arange(len(everyone.rows)) >= len(others.rows)
        present = ours if len(parts) == 1 else np.zeros_like(ours)  # in a fold some of them are not
        found = _among(everyone, prior.found, epoch) & ~ours
        note = ""
        for known in [present | found, present] if found.any() else [present]:
            unknown = int((~known).sum())
            if unknown > MAX_CANDIDATES:
                note = note or f"not run: {unknown} candidates are unknown, more than {MAX_CANDIDATES}"
                continue
            try:
                decided = numbers.without(known).decide()
            except ModuleNotFoundError:
                note = NOT_INSTALLED
                break
            values = np.full(len(everyone.rows), np.nan)
            values[~known] = decided
            note = f"decides {int((~np.isnan(decided)).sum())} of {unknown} unknown candidates"
            if not np.isnan(decided).all():
                yield from _claims(everyone, values, others=~ours, note=note)
                return
        yield RowClaim(others.rows[:0], others.labels[:0], 0.0, note=note)


def _claims(
    candidates: LabeledRows, values: FloatArray, *, others: BoolArray, note: str
) -> Iterator[RowClaim | CandidateScores]:
    told, there = others & ~np.isnan(values), others & (values == 1)
    yield CandidateScores(LabeledRows(candidates.rows[told], candidates.labels[told]), values[told])
    yield RowClaim(candidates.rows[there], candidates.labels[there], 0.0, note=note)


def _among(candidates: LabeledRows, found: LabeledRows | None, epoch: Epoch) -> BoolArray:
    """Return (n,) which candidates were found before, with their labels."""
    same = np.zeros(len(candidates.rows), dtype=np.bool_)
    for row, label in zip(*found, strict=True) if found is not None else ():
        near = (np.abs(candidates.rows - row) <= SAME_WITHIN * epoch.scale.scale).all(axis=1)
        same |= near & (candidates.labels == label)
    return same


def _numbers(
    epoch: Epoch, posed: Sequence[BinaryTask], rows: LabeledRows, *, is_multiclass: bool
) -> OpenedEquations | None:
    """Return the equations of all problems; None if the coalition does not have both the path and the numbers."""
    found: list[OpenedEquations] = []
    for each in posed:
        paths = [path for path in newton_paths(epoch, each) if path.known]
        signs = each.signs[rows.labels.astype(np.int64)] if is_multiclass else rows.labels
        if not paths or any(round_.opened is None or round_.sums for round_ in paths[-1].rounds):
            return None
        equations = _of_problem(paths[-1], epoch, LabeledRows(rows.rows, signs))
        if equations is None:
            return None
        found.append(equations)
    return OpenedEquations(
        np.vstack([each.parts for each in found]),
        np.concatenate([each.totals for each in found]),
        np.concatenate([each.noise for each in found]),
        np.concatenate([each.rounding for each in found]),
    )


def _of_problem(path: ViewedPath, epoch: Epoch, rows: LabeledRows) -> OpenedEquations | None:
    active, counts = rows.labels != 0, [each.opened.rows for each in path.rounds if each.opened is not None]
    problem = path.problem(epoch, LabeledRows(rows.rows[active], rows.labels[active]))
    if problem is None or any((each != counts[0]).any() for each in counts):  # rows left or joined
        return None
    parts, totals, noise = list[FloatArray](), list[float](), list[float]()
    penalized = path.ridge > 0
    for each, state in zip(path.rounds, path.standings(problem), strict=True):
        if (opened := each.opened) is None:
            return None
        parts.append(problem.prices * np.maximum(0.0, problem.targets - problem.margins(state.v)))
        totals.append(opened.objective - 0.5 * float((state.v[penalized] ** 2).sum()))
        noise.append(opened.objective_noise)
        parts += [members * state.alpha * problem.targets for members in problem.classes]
        totals += opened.alphas.tolist()
        noise += [opened.alpha_noise] * len(problem.classes)
    parts += problem.classes
    totals += counts[0].tolist()
    noise += [0.0] * len(problem.classes)
    whole = np.zeros((len(parts), len(active)))
    whole[:, active] = parts
    return OpenedEquations(whole, np.array(totals), np.array(noise), np.abs(whole).sum(axis=1))


@dataclass(frozen=True)
class OpenedEquations:
    """Opened numbers: parts (e, n) of each candidate, totals (e,), and bounds (e,) of the noise.

    rounding (e,): the number that errors of float64 are a share of.
    """

    parts: FloatArray
    totals: FloatArray
    noise: FloatArray
    rounding: FloatArray

    def without(self, known: BoolArray) -> OpenedEquations:
        """Return the equations of the other candidates, for some (n,) that are known to be there."""
        totals = self.totals - self.parts[:, known].sum(axis=1)
        return replace(self, parts=self.parts[:, ~known], totals=totals)

    def decide(self) -> FloatArray:
        """Return (n,) 0 or 1 for each candidate that the numbers decide, and nan for the others.

        Raises ModuleNotFoundError without python-flint.
        """
        count = self.parts.shape[1]
        units = _RESOLUTION / np.maximum(_DEVIATION * self.noise, _ROUNDING * self.rounding)
        basis = np.hstack([2 * _RESOLUTION * np.eye(count, count + 1), np.rint(units * self.parts.T)])
        target = np.concatenate([np.full(count, -_RESOLUTION), [_RESOLUTION], -np.rint(units * self.totals)])
        reduced = _reduce(np.vstack([basis, target]))
        bound = self.noise + _MOST_ROUNDING * self.rounding
        for row in reduced[np.abs(reduced[:, count]) == _RESOLUTION]:
            solution = row * math.copysign(1.0, row[count])
            values = (solution[:count] / _RESOLUTION + 1) / 2
            left = np.abs(self.parts @ values - self.totals)
            if np.isin(values, (0.0, 1.0)).all() and (left <= bound).all():
                others = reduced - np.outer(reduced[:, count] / _RESOLUTION, solution)
                changes = others[:, :count] / (2 * _RESOLUTION)
                likely = np.maximum(self.noise, np.maximum(2 * left, _ROUNDING * self.rounding))
                within = (np.abs(changes @ self.parts.T) <= 2 * likely).all(axis=1)
                return np.where((changes[within] != 0).any(axis=0), np.nan, values)
        return np.full(count, np.nan)


def _reduce(basis: FloatArray) -> FloatArray:
    """Return the LLL-reduced basis of the lattice that rows of whole numbers span."""
    from flint import fmpz_mat  # of an extra

    whole = fmpz_mat([[int(value) for value in row] for row in basis.tolist()])
    return np.array([[float(int(value)) for value in row] for row in whole.lll().tolist()])
