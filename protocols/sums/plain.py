"""The sum that hides nothing: every site sends its vector to the coordinator. The one to compare with.

Cost: n messages, 1 hop, n * d residues.

Security. The coordinator alone learns every input.
"""

from __future__ import annotations

import numpy as np

from federation.arrays import Residues
from federation.channel.contract import Channel
from federation.transport.keys import COORDINATOR
from protocols.arithmetic.fixed_point import accumulate
from protocols.sums.contract import RESIDUE_BYTES, Cost, SecureSum


def plain_contribute(channel: Channel, vector: Residues) -> None:
    """A site's part: send the vector as it is.

    Parameters
    ----------
    channel : Channel
    vector : Residues of shape (limbs, d)
        The site's own.
    """
    channel.send(COORDINATOR, vector)


def plain_reveal(channel: Channel, shape: tuple[int, int]) -> Residues:
    """The coordinator's part: add what the sites send; those that are lost or late are left out.

    Parameters
    ----------
    channel : Channel
    shape : (limbs, d)
        Of the vectors.

    Returns
    -------
    Residues of shape (limbs, d)
    """
    total = np.zeros(shape, dtype=np.uint64)
    for vector in channel.collect(dict.fromkeys(channel.sites, shape)).values():
        accumulate(total, vector)
    return total


def plain_cost(sites: int, shape: tuple[int, int]) -> Cost:
    """What it costs: n messages of the whole vector, all at once.

    Parameters
    ----------
    sites : int
    shape : (limbs, d)
        Of the vectors.

    Returns
    -------
    Cost
    """
    limbs, length = shape
    return Cost(messages=sites, hops=1, payload_bytes=sites * limbs * length * RESIDUE_BYTES)


PLAIN = SecureSum(
    "plain",
    plain_contribute,
    plain_reveal,
    plain_cost,
    smallest_coalition=lambda sites: 0,
    discloses="value",
    sends_to=lambda me, sites: (COORDINATOR,),
)
