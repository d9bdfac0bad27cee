"""An order that all sites know and the coordinator does not, drawn from their common seed.

Sites can sum a table in which each site fills its own rows. The coordinator sees every row. If it does not know the
order of the rows, it does not learn which site filled each row.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedsvm.federation.arrays import IntArray, Residues


def secret_order(seed: Residues, purpose: str, count: int) -> IntArray:
    """Return a permutation that depends on the common seed and on its purpose.

    SHAKE-256 of both gives each position 64 bits, and the positions are sorted by them. The permutation is uniform
    except for ties, whose probability is below count^2 / 2^65.

    Parameters
    ----------
    seed : Residues of shape (1, 4)
        The secret of `common_seed`.
    purpose : str
        Orders for different purposes are independent.
    count : int
        The number of positions.

    Returns
    -------
    int64 array of shape (count,)
        A permutation of 0 … count - 1.
    """
    bits = hashlib.shake_256(seed.tobytes() + purpose.encode()).digest(8 * count)
    return np.argsort(np.frombuffer(bits, dtype="<u8"), kind="stable").astype(np.int64)
