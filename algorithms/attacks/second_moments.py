"""An attack on the second moments of all rows in known features: which of the possible records are in the data.

A sum of z z^T and of y z over rows is linear in how often each candidate occurs. It has d (d + 1)/2 + d numbers, so a
few hundred features give tens of thousands of equations. The attack takes as many random quadratic forms of them as it
needs. Counts are claimed if they are whole numbers, which nothing enforces, and reproduce the forms. With fewer
features, only candidates whose counts agree in every solution are counted.

With K classes, each is separated from the others. Where these have factors of their own, what follows is the
sum of a candidate's factors, and of the rows that may have made it up the fewest are claimed.

Logistic regression by Newton's method opens the same at its first point, v = 0, where the Hessian of every row's loss
is z z^T / 4, and its gradient -y z / 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Self

import numpy as np

from fedsvm.algorithms.attacks.attack import BinaryTask, Prior
from fedsvm.algorithms.attacks.epochs import Epoch
from fedsvm.algorithms.attacks.finite_domain import (
    CandidateCounting,
    Counts,
    distinct,
    least_squares,
    verify_counts,
)
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RoundView

_EQUATIONS = 1.5
"""Quadratic forms per candidate."""

_MOST_ALIKE = 3
"""Rows that are one candidate's, where these have different factors."""

_SAME_SUM = 1e-4
"""Of factors; finer than counts are, since different ones may add up to nearly the same."""

_NOT_WHOLE = 0.5


class SecondMoments(CandidateCounting):
    """Counts of candidates by least squares over sums of squares."""

    name = "second moments"
    is_of_problems = True

    def solutions(self, epoch: Epoch, candidates: LabeledRows, prior: Prior) -> Iterator[Counts | None]:
        """Solve every sum of moments separately."""
        if (features := epoch.features) is None:
            return
        number = prior.posed.number
        for each in epoch.rounds:
            for moments in _moments(each, number):
                rows = features(epoch.scale(candidates.rows))
                if each.parameters["intercept"]:
                    rows = np.column_stack([rows, np.ones(len(rows))])
                prices = _Prices.of(each.parameters.get("factors"), prior.posed)
                yield solve(moments, rows, candidates.labels, prices, number)


@dataclass(frozen=True)
class _Prices:
    """Factors of a row with the label +1, and of one with -1, which may have one of several."""

    first: float = 1.0
    others: tuple[float, ...] = (1.0,)

    @classmethod
    def of(cls, factors: Sequence[float] | None, posed: BinaryTask) -> Self:
        """Return the weights of the classes, if there are any."""
        if factors is None:
            return cls()
        each = np.asarray(factors)
        return cls(float(each[posed.signs > 0][0]), tuple(sorted(set(each[posed.signs < 0].tolist()))))

    def counts(self, sums: FloatArray, labels: FloatArray) -> FloatArray:
        """Return (n,) the minimum number of rows whose factors add up to each sum; a fraction if none do.

        Of others with different factors more than _MOST_ALIKE are none.
        """
        if len(self.others) == 1:
            return np.asarray(sums / np.where(labels > 0, self.first, self.others[0]))
        found = np.where(labels > 0, sums / self.first, np.where(np.abs(sums) < _SAME_SUM, sums, _NOT_WHOLE))
        for count in range(_MOST_ALIKE, 0, -1):
            made = np.array([sum(each) for each in combinations_with_replacement(self.others, count)], dtype=float)
            near = (np.abs(np.subtract.outer(sums, made)) < _SAME_SUM).any(axis=1)
            found[near & (labels < 0)] = count
        return found


def _moments(each: RoundView, problem: int) -> list[FloatArray]:
    """Return the moments that a round opens for a problem, as `solve` takes them."""
    if each.step == "moments":
        return list(each.sums.values())
    if each.step == "newton_sums" and not each.parameters["points"].any():
        (_, gradient, hessian), d = each.parameters["scales"], each.parameters["points"].shape[1]
        (place,) = np.flatnonzero(np.asarray(each.parameters.get("problems", (0,))) == problem)
        totals = [total[place] for total in each.sums.values()]
        return [np.append(4 * hessian * total[1 + d :], -2 * gradient * total[1 : 1 + d]) for total in totals]
    return []


def solve(
    moments: FloatArray, rows: FloatArray, labels: FloatArray, prices: _Prices | None = None, problem: int = 0
) -> Counts | None:
    """Return how often candidates Z (n, d) with labels (n,) occur; None if they cannot make up the moments.

    moments: (d (d + 1)/2 + K d,) the upper triangle of the sum of p z z^T, and the sums of p y z of K problems.
    prices: the possible values of p; 1 by default. problem: the problem to take.
    """
    d = rows.shape[1]
    triangle = np.triu_indices(d)
    every = moments[len(triangle[0]) :].reshape(-1, d)
    products = every[problem if len(every) > 1 else 0]
    gram = np.zeros((d, d))
    gram[triangle] = moments[: len(triangle[0])]
    gram += np.triu(gram, 1).T
    terms = np.column_stack([rows, labels])
    first = distinct(terms)
    random = np.random.default_rng(0)
    forms = random.standard_normal((int(_EQUATIONS * len(first)) + 1, d)) / d**0.5
    design = np.vstack([(forms @ rows[first].T) ** 2, (labels[first, None] * rows[first]).T])
    seen = np.concatenate([np.einsum("ij,ij->i", forms @ gram, forms), products])
    sums, determined = least_squares(design, seen)
    counts = (prices or _Prices()).counts(sums, labels[first])
    design = design * np.where(counts != 0, sums / np.where(counts != 0, counts, 1.0), 1.0)
    return verify_counts(design, seen, counts, determined, first, len(rows))
