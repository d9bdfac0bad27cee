"""Sums whose code is wrong: a party sends what the protocol does not have at this place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.sums.registry import OWN_SUMS
from fedsvm.protocols.sums.ring import RING, ring
from fedsvm.protocols.sums.secure_sum import SecureSum


class _Misled:
    """A channel that sends something else than it is given, from one site to one peer."""

    def __init__(self, channel: Channel, sender: str, peer: str, wrong: NDArray[Any]) -> None:
        self._channel, self._link, self._wrong = channel, (sender, peer), wrong

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def send(self, peer: str, array: NDArray[Any]) -> None:
        self._channel.send(peer, self._wrong if (self._channel.me, peer) == self._link else array)


def _broken(name: str, sender: str, peer: str, wrong: NDArray[Any]) -> SecureSum:
    def contribute(channel: Channel, vector: Residues) -> None:
        RING.contribute_residues(_Misled(channel, sender, peer, wrong), vector)

    return replace(RING, name=name, contribute_residues=contribute)


LONG_TO_SITE = _broken("long-to-site", "site-2", "site-3", np.zeros((1, 4), dtype=np.uint64))
FLOAT_TO_SITE = _broken("float-to-site", "site-2", "site-3", np.zeros((1, 3)))
LONG_TO_COORDINATOR = _broken("long-to-coordinator", "site-1", COORDINATOR, np.zeros((1, 4), dtype=np.uint64))

ALL_SUMS: dict[str, Callable[..., SecureSum]] = {
    **OWN_SUMS,
    "verified-ring": lambda: ring(verify=True),
    "long-to-site": lambda: LONG_TO_SITE,
    "float-to-site": lambda: FLOAT_TO_SITE,
    "long-to-coordinator": lambda: LONG_TO_COORDINATOR,
}
"""Ours, the one that sites verify, and the broken ones."""
