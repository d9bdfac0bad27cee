"""Feature selection by concave minimization (FSV; Bradley and Mangasarian 1998), on rows in one place.

A plane w.x = g separates the rows A of one class from the rows B of the other, with few columns:

    min  (1 - L) (mean(y) + mean(z)) + L sum_j (1 - exp(-a v_j))
    over w, g, y >= 0, z >= 0, v   with   A w - g >= 1 - y,   -(B w - g) >= 1 - z,   -v <= w <= v.

The objective is concave in v, so a vertex minimizes it. Successive linearization puts L a exp(-a v_j) v_j for the last
term at the current v and solves the linear program, until its objective does not fall. It ends at a stationary point
after finitely many programs. It is a method to compare with, and no federated one.

References
----------
P. S. Bradley and O. L. Mangasarian, "Feature selection via concave minimization and support vector machines", ICML
1998, algorithm 2.1.
"""

from __future__ import annotations

import numpy as np

from fedsvm.federation.arrays import FloatArray, IntArray

SUPPRESSION = 0.01
"""L: the weight of the number of columns, which the paper tunes for each set. With 0.05 Pima keeps one of eight."""

STEEPNESS = 5.0
"""a: how quickly 1 - exp(-a v) reaches 1; the paper's value."""

_MOST_PROGRAMS = 50
_NO_WEIGHT = 1e-8
_NO_PROGRESS = 1e-9


def separating_plane(
    rows: FloatArray, labels: FloatArray, weights: FloatArray | None = None
) -> tuple[FloatArray, float, list[float]]:
    """Return w (p,), g and the objective after each linear program.

    rows (n, p), labels (n,): of two classes. weights (n,): of the rows in the means; 1 by default.
    """
    weights = np.ones(len(labels)) if weights is None else weights
    share = (1 - SUPPRESSION) * weights / np.where(labels > 0, weights[labels > 0].sum(), weights[labels < 0].sum())
    w, g, objectives = np.zeros(rows.shape[1]), 0.0, [np.inf]
    while len(objectives) <= _MOST_PROGRAMS:
        slopes = SUPPRESSION * STEEPNESS * np.exp(-STEEPNESS * np.abs(w))
        found = _solve(rows, labels, share, slopes)
        if found is None:
            break
        short = np.maximum(0.0, 1.0 - labels * (rows @ found[0] - found[1]))
        objective = float(share @ short + SUPPRESSION * (1 - np.exp(-STEEPNESS * np.abs(found[0]))).sum())
        if objective >= objectives[-1] - _NO_PROGRESS:
            break
        (w, g), objectives = found, [*objectives, objective]
    return w, g, objectives[1:]


def concave_columns(rows: FloatArray, labels: FloatArray, weights: FloatArray | None = None) -> IntArray:
    """Return the columns whose weights are not 0; the one with the largest difference of class means if none is."""
    w, _, _ = separating_plane(rows, labels, weights)
    kept = np.flatnonzero(np.abs(w) > _NO_WEIGHT)
    if len(kept):
        return kept
    difference = rows[labels > 0].mean(axis=0) - rows[labels < 0].mean(axis=0)
    return np.array([int(np.argmax(np.abs(difference)))])


def _solve(
    rows: FloatArray, labels: FloatArray, share: FloatArray, slopes: FloatArray
) -> tuple[FloatArray, float] | None:
    """Return w and g of the linear program: min share.y + slopes.|w|, with |w| as the sum of two parts.

    None if its numbers are beyond the solver, as slopes of large weights can be.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, eye, hstack

    count, columns = rows.shape
    signed = csr_matrix(labels[:, None] * rows)
    beside = csr_matrix(labels[:, None])
    # Of the variables w+, w-, g, y: labels (rows (w+ - w-) - g) + y >= 1.
    below = -hstack([signed, -signed, -beside, eye(count)], format="csr")
    costs = np.concatenate([slopes, slopes, [0.0], share])
    bounds = [(0, None)] * (2 * columns) + [(None, None)] + [(0, None)] * count
    found = linprog(costs, A_ub=below, b_ub=-np.ones(count), bounds=bounds, method="highs").x
    if found is None:
        return None
    return found[:columns] - found[columns : 2 * columns], float(found[2 * columns])
