"""The conditions of a round: its secure sum and its links."""

from __future__ import annotations

from dataclasses import dataclass

from fedsvm.protocols.sums.ring import RING
from fedsvm.protocols.sums.secure_sum import SecureSum

MACHINE_BYTES_PER_S = 5e8
"""The speed of this machine's own network, unless a condition is slower."""


@dataclass(frozen=True)
class Conditions:
    """By which secure sum, over which links: seconds one way, and bytes a second."""

    secure_sum: SecureSum = RING
    latency_s: float = 0.0
    bytes_per_s: float = MACHINE_BYTES_PER_S

    def sum_s(self, sites: int, numbers: int, told: int) -> float:
        """Return the seconds of a sum of this many numbers, including the order with `told` numbers to each site.

        Messages on the critical path wait for each other; where long vectors go in chunks, one behind the other, a
        site's share of all bytes is what takes longest.
        """
        cost = self.secure_sum.cost(sites, (numbers,), 1.0)
        carried = max(cost.hops * cost.payload_bytes / max(1, cost.messages), cost.payload_bytes / sites)
        return (1 + cost.hops) * self.latency_s + (8 * told + carried) / self.bytes_per_s
