"""The sum that hides nothing: every site sends its vector to the coordinator. The one to compare with.

Cost: n messages, 1 hop, n * d residues.

Security. The coordinator alone learns every input.
"""

from __future__ import annotations

import numpy as np

from federation.arrays import Residues
from federation.channel.contract import Channel
from federation.transport.keys import COORDINATOR
from protocols.arithmetic.fixed_point import add
from protocols.sums.contract import RESIDUE_BYTES, Cost, SecureSum


def plain_contribute(channel: Channel, vector: Residues) -> None:
    """Send the vector as it is."""
    channel.send(COORDINATOR, vector)


def plain_reveal(channel: Channel, shape: tuple[int, int]) -> Residues:
    """Add what the sites send; those that are lost or late are left out."""
    total = np.zeros(shape, dtype=np.uint64)
    for vector in channel.collect(dict.fromkeys(channel.sites, shape)).values():
        total = add(total, vector)
    return total


def plain_cost(sites: int, shape: tuple[int, int]) -> Cost:
    """n messages of the whole vector, all at once."""
    limbs, length = shape
    return Cost(messages=sites, hops=1, payload_bytes=sites * limbs * length * RESIDUE_BYTES)


PLAIN = SecureSum(
    "plain", plain_contribute, plain_reveal, plain_cost, smallest_coalition=lambda sites: 0, discloses="value"
)
