"""Random binning features (Rahimi and Recht 2007, section 4): which bins of random grids a row falls into.

A grid has for each column a pitch and a shift, and a row's bin is that of all its columns together. With pitches drawn
from delta k''(delta), for k(d) = exp(-gamma d) a Gamma distribution of shape 2 and scale 1/gamma, two rows share a bin
with the chance of the Laplacian kernel exp(-gamma sum_j |x_j - y_j|). So P grids give features z of one 1/sqrt(P) each,
with z(x).z(y) its estimate. Bins are hashed to B places of each grid, since nobody knows before which are taken.

Drawn from a public seed, they show nothing of any row. Of a Gaussian kernel delta k''(delta) is no density.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, IntArray

_HIGH_BITS = np.uint64(24)
"""Of a hash by multiplication the low bits are the worse ones."""


@dataclass(frozen=True)
class RandomBins:
    """Pitches and shifts (P, p) of P grids over p columns, keys (P, p) of their hashes, and B places of each."""

    pitches: FloatArray
    shifts: FloatArray
    keys: IntArray
    places: int

    @classmethod
    def draw(cls, gamma: float, grids: int, places: int, columns: int, seed: int) -> Self:
        """Draw bins for the Laplacian kernel with gamma."""
        random = np.random.default_rng([seed, 8])
        pitches = random.gamma(2.0, 1.0 / gamma, size=(grids, columns))
        shifts = random.uniform(0.0, pitches)
        return cls(pitches, shifts, 2 * random.integers(2**62, size=(grids, columns)) + 1, places)

    @classmethod
    def of_parts(cls, parts: Mapping[str, Any]) -> Self:
        """Return the bins from a message, or from a model's file."""
        return cls(parts["pitches"], parts["shifts"], parts["keys"], int(parts["places"]))

    def equals(self, other: RandomBins) -> bool:
        """Return whether a row falls into the same places of both, but for rounding errors of the grids."""
        pairs = ((self.pitches, other.pitches), (self.shifts, other.shifts))
        is_close = all(np.shape(own) == np.shape(others) and np.allclose(own, others) for own, others in pairs)
        return is_close and self.places == other.places and np.array_equal(self.keys, other.keys)

    def to_fields(self) -> dict[str, Any]:
        """Return arrays and numbers by name; see `of_parts`."""
        return {"pitches": self.pitches, "shifts": self.shifts, "keys": self.keys, "places": self.places}

    @property
    def dimensions(self) -> int:
        """P B."""
        return len(self.pitches) * self.places

    def __call__(self, rows: FloatArray) -> IntArray:
        """Return (n, P) which of the P B features of scaled rows (n, p) are 1/sqrt(P); the others are 0."""
        found = np.empty((len(rows), len(self.pitches)), dtype=np.int64)
        for grid, (pitches, shifts, keys) in enumerate(zip(self.pitches, self.shifts, self.keys, strict=True)):
            bins = np.ceil((rows - shifts) / pitches).astype(np.int64).view(np.uint64)
            hashes = (bins * keys.view(np.uint64)).sum(axis=1, dtype=np.uint64) >> _HIGH_BITS
            found[:, grid] = grid * self.places + (hashes % np.uint64(self.places)).astype(np.int64)
        return found


def values(features: IntArray, weights: FloatArray) -> FloatArray:
    """Return (K, n) w.z of rows with features (n, P), for weights (K, P B)."""
    return np.asarray(weights[:, features].sum(axis=2) / features.shape[1] ** 0.5)


def added_up(features: IntArray, amounts: FloatArray, dimensions: int) -> FloatArray:
    """Return (K, P B) sums of amount * z over rows with features (n, P), for amounts (K, n)."""
    grids = features.shape[1]
    places = features.ravel()
    sums = np.stack([np.bincount(places, np.repeat(each, grids), dimensions) for each in amounts])
    return np.asarray(sums / grids**0.5)


def to_matrix(features: IntArray, dimensions: int) -> Any:
    """Return (n, P B) the features as a sparse matrix of scipy's."""
    from scipy.sparse import csr_array

    rows, grids = features.shape
    ends = np.arange(0, rows * grids + 1, grids)
    data: NDArray[np.float64] = np.full(rows * grids, grids**-0.5)
    return csr_array((data, features.ravel(), ends), shape=(rows, dimensions))
