"""The secure sum on a ring.

The initiator draws R uniform over the whole modulus and sends R + v1 to its successor; each site adds its vector and
passes it on; the initiator takes R off what comes back and reveals the sum to the coordinator. Long vectors go round
in chunks, so that the hops of one chunk overlap with those of the next.

The sum is revealed in one message: all of it or, when the initiator is lost, nothing, so that the sum over the other
sites may be revealed instead.

Cost: n messages a chunk and one for the sum, n + 1 hops, (n + 1) * d residues.

Security. Against semi-honest parties, everything a single site sees is uniform whatever the inputs are. The two ring
neighbours of a site learn its vector together, by subtraction, and nothing smaller does; the initiator is no
exception, for its neighbours hold R + v1 and R + S, and S is public. With two sites the initiator would learn the
other's vector from the sum, so three is the fewest.

References
----------
C. Clifton, M. Kantarcioglu, J. Vaidya, X. Lin and M. Y. Zhu, "Tools for privacy preserving distributed data mining",
SIGKDD Explorations 4 (2), 2002, section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from federation.arrays import Residues
from federation.channel.contract import Channel
from federation.transport.keys import COORDINATOR
from protocols.arithmetic.fixed_point import add, subtract
from protocols.sums.contract import RESIDUE_BYTES, Cost, SecureSum

CHUNK = 1 << 16
"""Residues a message carries at most, for each limb."""


def ring_contribute(channel: Channel, vector: Residues) -> None:
    """A site's part: the first site of the ring is the initiator, and reveals the sum to the coordinator.

    Parameters
    ----------
    channel : Channel
    vector : Residues of shape (limbs, d)
        The site's own.
    """
    sum_chunks = list(round_the_ring(channel, channel.sites, vector))
    if channel.me == channel.sites[0]:
        channel.send(COORDINATOR, np.concatenate([vector[:, :0], *sum_chunks], axis=1))


def round_the_ring(channel: Channel, ring: tuple[str, ...], vector: Residues) -> Iterator[Residues]:
    """Add a vector to what goes round a ring.

    Parameters
    ----------
    channel : Channel
    ring : tuple of str
        All sites, in the order in which it goes round.
    vector : Residues of shape (limbs, d)
        The site's own.

    Yields
    ------
    Residues of shape (limbs, at most CHUNK)
        At the first site of the ring the sum, by chunks; nothing elsewhere.
    """
    position = ring.index(channel.me)
    predecessor = ring[position - 1]
    successor = ring[(position + 1) % len(ring)]
    if position > 0:
        for own in chunks(vector):
            channel.send(successor, add(channel.receive(predecessor, own.shape), own))
        return
    mask = channel.random(vector.shape)
    for masked in chunks(add(mask, vector)):
        channel.send(successor, masked)
    for share in chunks(mask):
        yield subtract(channel.receive(predecessor, share.shape), share)


def ring_reveal(channel: Channel, shape: tuple[int, int]) -> Residues:
    """The coordinator's part: take the sum from the initiator.

    Parameters
    ----------
    channel : Channel
    shape : (limbs, d)
        Of the vectors.

    Returns
    -------
    Residues of shape (limbs, d)
    """
    return channel.receive(channel.sites[0], shape)


def ring_cost(sites: int, shape: tuple[int, int]) -> Cost:
    """What it costs: n messages round the ring for each chunk, and one to the coordinator.

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
    count = chunk_count(length)
    return Cost(
        messages=sites * count + 1,
        hops=sites + 1 if count else 1,
        payload_bytes=(sites + 1) * limbs * length * RESIDUE_BYTES,
    )


def chunk_count(length: int) -> int:
    """How many chunks a vector goes round in.

    Parameters
    ----------
    length : int
        d.

    Returns
    -------
    int
    """
    return -(-length // CHUNK)


def chunks(vector: Residues) -> Iterator[Residues]:
    """Views of a vector, of at most CHUNK columns each.

    Parameters
    ----------
    vector : Residues of shape (limbs, d)

    Yields
    ------
    Residues of shape (limbs, at most CHUNK)
    """
    for start in range(0, vector.shape[1], CHUNK):
        yield vector[:, start : start + CHUNK]


def ring_sends_to(me: str, sites: tuple[str, ...]) -> tuple[str, ...]:
    """The successor, and of the first site the coordinator."""
    successor = sites[(sites.index(me) + 1) % len(sites)]
    return (successor, COORDINATOR) if me == sites[0] else (successor,)


RING = SecureSum(
    "ring",
    ring_contribute,
    ring_reveal,
    ring_cost,
    smallest_coalition=lambda sites: 2,
    min_sites=3,
    sends_to=ring_sends_to,
)
