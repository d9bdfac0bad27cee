"""The secure sums of this installation, by the name a scenario calls them, and what they can be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from protocols.changing_neighbours_sum import changing_neighbours
from protocols.k_secure_sum import k_secure
from protocols.masked_sum import masked
from protocols.plain_sum import PLAIN
from protocols.ring_sum import RING
from protocols.secure_sum import SecureSum

SUMS: Mapping[str, Callable[..., SecureSum]] = MappingProxyType(
    {
        "plain": lambda: PLAIN,
        "ring": lambda: RING,
        "k-secure": k_secure,
        "changing-neighbours": changing_neighbours,
        "masked": masked,
    }
)
"""Each is called with the options that a scenario sets: `segments` of k-secure, `rings` of
changing-neighbours, `threshold` of masked."""
