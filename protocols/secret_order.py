"""An order that all sites know and the coordinator does not, drawn from their common seed.

When each site fills rows of a table that only it was assigned, and the table is summed, the coordinator sees every
row; an order it does not know keeps it from seeing whose each row is.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedsvm.federation.arrays import IntArray, Residues


def secret_order(seed: Residues, purpose: str, count: int) -> IntArray:
    """Return a permutation that depends on the common seed and on its purpose.

    SHAKE-256 of both gives each position 64 bits, and the positions are sorted by them: uniform over all
    permutations but for ties, which have a chance below count^2 / 2^65.

    Parameters
    ----------
    seed : Residues of shape (1, 4)
        By `common_seed`.
    purpose : str
        Orders for different purposes are independent.
    count : int
        How many positions there are.

    Returns
    -------
    int64 array of shape (count,)
        Of 0 … count - 1.
    """
    bits = hashlib.shake_256(seed.tobytes() + purpose.encode()).digest(8 * count)
    return np.argsort(np.frombuffer(bits, dtype="<u8"), kind="stable").astype(np.int64)
