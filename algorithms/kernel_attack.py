"""What a site's kernel matrix gives away to someone who knows some of its records (Que et al. 2012, played down there).

Inner products of a record with r known ones are r linear equations for its columns; as soon as the known records span
the site's columns there is one solution. Squared distances give the same equations by differences, for one known
record more.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from algorithms.contract import Reconstruction
from federation.arrays import FloatArray

RECOVERED_WITHIN = 1e-6
"""In units of the scaled columns."""


def attack(
    step: str,
    sites: tuple[str, ...],
    matrix: FloatArray,
    rows: Mapping[str, FloatArray],
    columns_of: tuple[str, ...],
    known_records: int | None,
    distances: bool,
    random: np.random.Generator,
) -> Reconstruction:
    """Rebuild records from the kernel matrix (n, n) of the columns of `sites`, knowing those of some records.

    rows: of each site, (n, p); the truth, of which the attacker knows some records' columns. known_records: how many;
    None is as many as there are columns, and one. distances: the matrix has squared distances, not inner products.
    """
    truth = np.hstack([rows[site] for site in columns_of])
    count = min(len(truth), known_records if known_records is not None else truth.shape[1] + 1)
    known = random.permutation(len(truth))[:count]
    others = np.setdiff1d(np.arange(len(truth)), known)
    solve = _from_distances if distances else _from_inner_products
    errors = np.abs(solve(matrix[np.ix_(others, known)], truth[known]) - truth[others]).max(axis=1, initial=0.0)
    return Reconstruction(
        step=step,
        sites=sites,
        columns_of=columns_of,
        known_records=count,
        rank=int(np.linalg.matrix_rank(truth)),
        held_back=len(others),
        recovered=int(np.count_nonzero(errors < RECOVERED_WITHIN)),
        max_error=float(errors.max()) if len(errors) else None,
    )


def _from_inner_products(inner: FloatArray, known: FloatArray) -> FloatArray:
    """Rows x (m, p) whose inner products with known rows (r, p) are `inner` (m, r), by least squares."""
    return np.asarray(np.linalg.lstsq(known, inner.T, rcond=None)[0].T)


def _from_distances(squared: FloatArray, known: FloatArray) -> FloatArray:
    """The same from squared distances: |x - s|^2 - |x - t|^2 - |s|^2 + |t|^2 = -2 x.(s - t)."""
    squares = (known**2).sum(axis=1)
    inner = -0.5 * (squared[:, 1:] - squared[:, :1] - squares[1:] + squares[0])
    return _from_inner_products(inner, known[1:] - known[0])
