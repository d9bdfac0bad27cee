"""The sum that hides nothing, for comparison: every site sends its vector to the coordinator.

Cost: n messages a chunk, 1 hop, n * d residues.

Security. The coordinator alone learns every input.
"""

from __future__ import annotations

import numpy as np

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.fixed_point import accumulate
from fedsvm.protocols.sums.ring import chunk_count, chunk_widths, chunks
from fedsvm.protocols.sums.secure_sum import RESIDUE_BYTES, Cost, SecureSum


def plain_contribute(channel: Channel, vector: Residues) -> None:
    """Run a site's part: send the vector unmasked."""
    for chunk in chunks(vector):
        channel.send(COORDINATOR, chunk)


def plain_reveal(channel: Channel, shape: tuple[int, int]) -> Residues:
    """Run the coordinator's part: add the vectors of all sites that are neither lost nor late."""
    total = np.zeros(shape, dtype=np.uint64)
    parts, whole = collect_chunks(channel, shape)
    for chunk, of_part in zip(chunks(total), parts, strict=True):
        for site in whole:
            accumulate(chunk, of_part[site])
    return total


def collect_chunks(channel: Channel, shape: tuple[int, int]) -> tuple[list[dict[str, Residues]], list[str]]:
    """Collect the vectors of all sites by chunks. Omit sites that are lost or late.

    Parameters
    ----------
    channel : Channel
    shape : (limbs, d)
        The shape of the vectors.

    Returns
    -------
    list of dict of str to Residues of shape (limbs, at most CHUNK), list of str
        For each chunk, the arrays that arrived, by site. The sites whose chunks all arrived, in ring order.
    """
    parts: list[dict[str, Residues]] = []
    whole = list(channel.sites)
    for width in chunk_widths(shape[1]):
        parts.append(channel.collect(dict.fromkeys(whole, (shape[0], width))))
        whole = list(parts[-1])
    return parts, whole


def plain_cost(sites: int, shape: tuple[int, int]) -> Cost:
    """Return the cost: n messages for each chunk, all at once."""
    limbs, length = shape
    count = chunk_count(length)
    return Cost(messages=sites * count, hops=min(count, 1), payload_bytes=sites * limbs * length * RESIDUE_BYTES)


PLAIN = SecureSum(
    "plain",
    plain_contribute,
    plain_reveal,
    plain_cost,
    smallest_coalition=lambda sites: 0,
    discloses="value",
    sends_to=lambda me, sites: (COORDINATOR,),
)
