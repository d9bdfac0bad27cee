"""A broadcast of one site's array to all sites along the ring, without the coordinator.

The origin sends the array to its successor on the ring, and every site forwards it. This uses only connections that a
ring sum also needs.

Cost: n - 1 messages of the array's size, n - 1 hops.

Security. Every site learns the array; the coordinator learns only its size. Any site that colludes with the coordinator
reveals it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.channel.interface import Channel


def broadcast_ring(
    channel: Channel, origin: str, array: NDArray[Any] | None, shape: Sequence[int], dtype: Any = np.uint64
) -> NDArray[Any]:
    """Run a site's part; the coordinator has none.

    Parameters
    ----------
    channel : Channel
    origin : str
        The site that has the array.
    array : ndarray or None
        The array, at the origin; ignored at other sites.
    shape : sequence of int
        The shape of the array.
    dtype : numpy dtype, default uint64
        The type of the array.

    Returns
    -------
    ndarray
        The origin's array.
    """
    sites, me = channel.sites, channel.me
    if me != origin or array is None:
        array = channel.receive(sites[sites.index(me) - 1], shape, dtype)
    if (successor := sites[(sites.index(me) + 1) % len(sites)]) != origin:
        channel.send(successor, array)
    return array
