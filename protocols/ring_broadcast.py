"""One site's array at every site, without the coordinator.

The site that has it sends it to its successor on the ring, and every site passes it on over its own encrypted link.
Passing on, instead of sending to all from one site, needs no connection that a ring sum does not need anyway.

Cost: n - 1 messages of the array's size, n - 1 hops.

Security. Every site learns the array, the coordinator nothing of it but its size; any site that colludes with the
coordinator gives it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.channel.interface import Channel


def pass_on(
    channel: Channel, origin: str, array: NDArray[Any] | None, shape: Sequence[int], dtype: Any = np.uint64
) -> NDArray[Any]:
    """Run a site's part; the coordinator has none.

    Parameters
    ----------
    channel : Channel
    origin : str
        The site that has the array.
    array : ndarray or None
        At the origin, the array; elsewhere it is not looked at.
    shape : sequence of int
        Of the array.
    dtype : numpy dtype, default uint64
        Of the array.

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
