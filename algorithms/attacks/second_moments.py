"""Which of the records that one can think of are there, by the second moments of all rows in known features.

A sum of z z^T and of y z over rows is linear in how often each candidate occurs. It has d (d + 1)/2 + d numbers, so a
few hundred features are enough for ten thousands of equations, of which random quadratic forms are taken, as many as
it needs. Counts are whole numbers though nothing asked for that, and the forms computed again from them are those that
were seen. Where features are fewer, only those candidates are counted whose counts every solution agrees on.

Logistic regression by Newton's method opens the same at its first point, v = 0, where the Hessian of every row's loss
is z z^T / 4, and its gradient -y z / 2.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from algorithms.attacks.contract import Attack, Claim, Prior, Ranking
from algorithms.attacks.epochs import epochs
from algorithms.attacks.finite_domain import MAX_CANDIDATES, Counts, checked, combinations, distinct, least_squares
from algorithms.attacks.row_counts import SAME_WITHIN, RowCounts
from federation.arrays import FloatArray
from protocols.analysis.views import RoundView, RunView

_EQUATIONS = 1.5
"""Quadratic forms per candidate."""


class SecondMoments(Attack):
    """Counts of candidates by least squares over sums of squares."""

    name = "second moments"

    def __call__(self, view: RunView, prior: Prior) -> Iterator[Claim | Ranking]:
        """Every sum of moments by itself; folds add up."""
        counts: RowCounts | None = None
        residual = 0.0
        for epoch in epochs(view):
            candidates = prior.candidates or combinations(epoch)
            if (features := epoch.features) is None or candidates is None or len(candidates.rows) > MAX_CANDIDATES:
                continue
            for each in epoch.rounds:
                for moments in _moments(each):
                    rows = features(epoch.scale(candidates.rows))
                    if each.parameters["intercept"]:
                        rows = np.column_stack([rows, np.ones(len(rows))])
                    counts = counts or RowCounts(epoch.columns)
                    factors = np.array(each.parameters.get("factors", (1.0, 1.0)))
                    prices = factors[(candidates.labels > 0).astype(int)]
                    if (solved := solve(moments, rows, candidates.labels, prices)) is not None:
                        places = np.repeat(np.arange(len(rows)), solved.counts)
                        resolution = SAME_WITHIN * epoch.scale.scale
                        counts.take(candidates.rows[places], candidates.labels[places], resolution)
                        residual = max(residual, solved.residual)
        if counts is not None:
            yield Claim(*counts.repeated, residual)


def _moments(each: RoundView) -> list[FloatArray]:
    """What a round opens of them, as `solve` takes it."""
    if each.step == "moments":
        return list(each.sums.values())
    if each.step == "newton_sums" and not each.parameters["points"].any():
        (_, gradient, hessian), d = each.parameters["scales"], each.parameters["points"].shape[1]
        totals = [total[0] for total in each.sums.values()]
        return [np.append(4 * hessian * total[1 + d :], -2 * gradient * total[1 : 1 + d]) for total in totals]
    return []


def solve(moments: FloatArray, rows: FloatArray, labels: FloatArray, prices: FloatArray) -> Counts | None:
    """How often candidates Z (n, d) with labels (n,) occur; None where they cannot make up the moments.

    moments: (d (d + 1)/2 + K d,) the upper triangle of the sum of p z z^T, and the sum of p y z of K problems, of which
    the first is taken. prices (n,): p.
    """
    d = rows.shape[1]
    triangle = np.triu_indices(d)
    products = moments[len(triangle[0]) :][:d]
    gram = np.zeros((d, d))
    gram[triangle] = moments[: len(triangle[0])]
    gram += np.triu(gram, 1).T
    terms = np.column_stack([rows, labels])
    first = distinct(terms)
    random = np.random.default_rng(0)
    forms = random.standard_normal((int(_EQUATIONS * len(first)) + 1, d)) / d**0.5
    design = np.vstack([(forms @ rows[first].T) ** 2, (labels[first, None] * rows[first]).T]) * prices[first]
    seen = np.concatenate([np.einsum("ij,ij->i", forms @ gram, forms), products])
    found, determined = least_squares(design, seen)
    return checked(design, seen, found, determined, first, len(rows))
