"""An attack on a site's kernel matrix by someone who knows some records (mentioned by Que et al. 2012).

Inner products of a record with r known ones are r linear equations for its columns; as soon as the known records span
the site's columns there is one solution. Squared distances give the same equations by differences, for one known
record more. Whether the known records span the columns is known from the matrix, whose rank is theirs; and whether it
came out right too: the records' kernel values among each other, computed again, are its entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fedsvm.algorithms.attacks.attack import AlignedRecords, Attack, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.features.kernels import squared_distances
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RunView

_CHECKED_WITHIN = 1e-6
"""Of kernel values of scaled columns, as a share of the largest."""

_MAX_RANK = 500
"""A kernel matrix of more columns is taken for one of so many."""


class KernelMatrix(Attack):
    """Records rebuilt from kernel values between all of them.

    Parameters
    ----------
    step : str
        Where the values were exchanged.
    distances : bool
        The matrix has squared distances, not inner products.
    matrix : callable
        The (n, n) matrix that was exchanged last, from all blocks that were exchanged and n.
    """

    name = "kernel matrix"

    def __init__(
        self, step: str, *, distances: bool, matrix: Callable[[Sequence[FloatArray], int], FloatArray]
    ) -> None:
        self._step, self._distances, self._matrix = step, distances, matrix

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack each set of sites whose values the coalition has: their columns together, and each site's alone."""
        if (known := prior.known_records) is None:
            return
        blocks: dict[tuple[str, ...], list[FloatArray]] = {}
        for each in view.of(self._step):
            for sites, values in each.sums.items():
                blocks.setdefault(sites, []).append(values)
        for sites, exchanged in sorted(blocks.items()):
            matrix = self._matrix(exchanged, known.records)
            for columns_of in dict.fromkeys([sites, *((site,) for site in sites)]):
                indices, rows = known.of(columns_of)
                yield self._claim(matrix, indices, rows, columns_of, sites)

    def _claim(
        self,
        matrix: FloatArray,
        indices: np.ndarray,
        known: FloatArray,
        columns_of: tuple[str, ...],
        sites: tuple[str, ...],
    ) -> RowClaim:
        others = np.setdiff1d(np.arange(len(matrix)), indices)
        solve = _from_distances if self._distances else _from_inner_products
        rows = solve(matrix[np.ix_(others, indices)], known)
        again = squared_distances(rows, rows) if self._distances else rows @ rows.T
        # A record that is wrong is wrong with most others; one that is right is right with all that are.
        apart = np.median(np.abs(again - matrix[np.ix_(others, others)]), axis=1) if len(others) else np.zeros(0)
        kept = apart < _CHECKED_WITHIN * max(1.0, float(np.abs(matrix).max(initial=0.0)))
        kept &= _rank(_inner(matrix) if self._distances else matrix) <= np.linalg.matrix_rank(
            known[1:] - known[0] if self._distances else known
        )
        aligned = AlignedRecords(others[kept], columns_of, sites, len(indices), len(others))
        return RowClaim(rows[kept], np.full(kept.sum(), np.nan), float(apart[kept].max(initial=0.0)), aligned)


def _inner(squared: FloatArray) -> FloatArray:
    """Return (n, n) inner products of centered records, from squared distances (n, n)."""
    centred = squared - squared.mean(axis=0)
    return np.asarray(-0.5 * (centred - centred.mean(axis=1, keepdims=True)))


def _rank(matrix: FloatArray) -> int:
    """Return the rank of a matrix (n, n), as far as a random sketch shows it."""
    sketch = matrix @ np.random.default_rng(0).normal(size=(len(matrix), min(len(matrix), _MAX_RANK)))
    return int(np.linalg.matrix_rank(sketch))


def _from_inner_products(inner: FloatArray, known: FloatArray) -> FloatArray:
    """Return rows x (m, p) whose inner products with known rows (r, p) are `inner` (m, r), by least squares."""
    return np.asarray(np.linalg.lstsq(known, inner.T, rcond=None)[0].T)


def _from_distances(squared: FloatArray, known: FloatArray) -> FloatArray:
    """Return the same from squared distances: |x - s|^2 - |x - t|^2 - |s|^2 + |t|^2 = -2 x.(s - t)."""
    squares = (known**2).sum(axis=1)
    inner = -0.5 * (squared[:, 1:] - squared[:, :1] - squares[1:] + squares[0])
    return _from_inner_products(inner, known[1:] - known[0])
