"""The secure sum on a ring.

The initiator draws R uniformly over the whole modulus and sends R + v1 to its successor. Each site adds its vector and
sends the result to its own successor. The initiator subtracts R from the last result and sends the sum to the
coordinator. Long vectors go round in chunks, so that the hops of one chunk overlap with those of the next.

The sum is revealed in one message. If the initiator is lost, nothing is revealed, so the sum over the other sites may
be revealed instead.

Cost: n messages for each chunk and one for the sum, n + 1 hops, (n + 1) * d residues.

With `verify`, a public sum such as a model's weights goes round once more. The second site is then the initiator, and
sends the sum along the ring to all. The coordinator takes no part in this pass. Each site compares the sum with the
digest of the coordinator's sum. Additional cost: n messages for each chunk and n - 1 for the sum, (2 n - 1) * d
residues, and for each site an empty message and a digest.

Security. Against semi-honest parties. Each site alone sees uniform numbers, whatever the inputs are. The two ring
neighbours of a site together learn its vector by subtraction, and no smaller coalition does. This includes the
initiator, because its neighbours hold R + v1 and R + S, and S is public. With two sites the initiator would learn the
other's vector from the sum, so the protocol needs three.

References
----------
C. Clifton, M. Kantarcioglu, J. Vaidya, X. Lin and M. Y. Zhu, "Tools for privacy preserving distributed data mining",
SIGKDD Explorations 4 (2), 2002, section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from annotated_types import doc

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.fixed_point import accumulate, add
from fedsvm.protocols.ring_broadcast import broadcast_ring
from fedsvm.protocols.sums.secure_sum import RESIDUE_BYTES, Cost, SecureSum

CHUNK = 1 << 16
"""Maximum number of residues of a message, for each limb."""


def ring_contribute(channel: Channel, vector: Residues) -> None:
    """Run a site's part: the first site of the ring is the initiator, and sends the sum to the coordinator."""
    total = round_the_rings(channel, [channel.sites], [chunks(vector)], vector.shape)
    if total is not None:
        channel.send(COORDINATOR, total)


def round_the_rings(
    channel: Channel, rings: Sequence[tuple[str, ...]], vectors: Sequence[Iterable[Residues]], shape: Sequence[int]
) -> Residues | None:
    """Sum vectors around several rings at the same time. All rings begin with the same site.

    For each chunk, a site serves the rings in the order of its positions in them, so that no ring waits for another.
    With a single ring, a chunk is back after n hops.

    Parameters
    ----------
    channel : Channel
    rings : sequence of tuple of str
        The order of all sites in each ring.
    vectors : sequence of iterable of Residues of shape (limbs, at most CHUNK)
        The vector that this site adds in each ring, by chunks.
    shape : (limbs, d)
        The shape of each vector.

    Returns
    -------
    Residues of shape (limbs, d), or None
        The sum over all rings, at the first site; None at the others.
    """
    if channel.me == rings[0][0]:
        return _begin_rings(channel, rings, vectors, shape)
    places = sorted((ring.index(channel.me), number) for number, ring in enumerate(rings))
    for of_rings in zip(*vectors, strict=True):
        for position, number in places:
            ring, own = rings[number], of_rings[number]
            channel.send(ring[(position + 1) % len(ring)], add(channel.receive(ring[position - 1], own.shape), own))
    return None


def _begin_rings(
    channel: Channel, rings: Sequence[tuple[str, ...]], vectors: Sequence[Iterable[Residues]], shape: Sequence[int]
) -> Residues:
    """Send each chunk masked around its ring, and subtract the masks from the results."""
    total = np.zeros(shape, dtype=np.uint64)
    for ring, vector in zip(rings, vectors, strict=True):
        for chunk, own in zip(chunks(total), vector, strict=True):
            mask = channel.random(own.shape)
            channel.send(ring[1], add(mask, own))
            accumulate(chunk, mask, -1)
    for chunk in chunks(total):
        for ring in rings:
            accumulate(chunk, channel.receive(ring[-1], chunk.shape))
    return total


def ring_reveal(channel: Channel, shape: tuple[int, int]) -> Residues:
    """Run the coordinator's part: receive the sum from the initiator."""
    return channel.receive(channel.sites[0], shape)


def ring_cost(sites: int, shape: tuple[int, int]) -> Cost:
    """Return the cost: n messages around the ring for each chunk, and one to the coordinator."""
    return exchange_cost(sites, sites + 1, shape)


def exchange_cost(vectors: int, hops: int, shape: tuple[int, int]) -> Cost:
    """Return the cost of vectors sent between sites by chunks, and of the sum, which one site sends to the coordinator.

    Parameters
    ----------
    vectors : int
        The number of vectors that are sent between sites.
    hops : int
        The number of hops, unless the vectors are empty.
    shape : (limbs, d)
        The shape of each vector.

    Returns
    -------
    Cost
    """
    limbs, length = shape
    count = chunk_count(length)
    return Cost(
        messages=vectors * count + 1,
        hops=hops if count else 1,
        payload_bytes=(vectors + 1) * limbs * length * RESIDUE_BYTES,
    )


def ring_open(channel: Channel, vector: Residues) -> Residues:
    """Run a site's part of opening the sum at all sites. The second site is the initiator, and sends the sum to all.

    Each site has the neighbours that it has in `ring_contribute`.
    """
    first, *others = channel.sites
    ring = (*others, first)
    return broadcast_ring(
        channel, ring[0], round_the_rings(channel, [ring], [chunks(vector)], vector.shape), vector.shape
    )


def ring_open_cost(sites: int, shape: tuple[int, int]) -> Cost:
    """Return the cost of `ring_open`. Its hops include those of the ring sum before it."""
    limbs, length = shape
    count = chunk_count(length)
    messages, residues = sites * count + sites - 1, (2 * sites - 1) * limbs * length
    return Cost(messages, 2 * sites, residues * RESIDUE_BYTES)


def chunk_count(length: int) -> int:
    """Return the number of chunks of a vector.

    Parameters
    ----------
    length : int
        d.

    Returns
    -------
    int
    """
    return -(-length // CHUNK)


def chunk_widths(length: int) -> list[int]:
    """Return the number of columns of each chunk.

    Parameters
    ----------
    length : int
        d.

    Returns
    -------
    list of int
    """
    return [min(CHUNK, length - start) for start in range(0, length, CHUNK)]


def chunks(vector: Residues) -> Iterator[Residues]:
    """Yield views of a vector, of at most CHUNK columns each.

    Parameters
    ----------
    vector : Residues of shape (limbs, d)

    Yields
    ------
    Residues of shape (limbs, at most CHUNK)
    """
    for start in range(0, vector.shape[1], CHUNK):
        yield vector[:, start : start + CHUNK]


def random_chunks(channel: Channel, vector: Residues) -> Iterator[Residues]:
    """Yield as many chunks of random residues as a vector has.

    Parameters
    ----------
    channel : Channel
    vector : Residues of shape (limbs, d)

    Yields
    ------
    Residues of shape (limbs, at most CHUNK)
        Uniform over the whole modulus.
    """
    for chunk in chunks(vector):
        yield channel.random(chunk.shape)


def ring_sends_to(me: str, sites: tuple[str, ...]) -> tuple[str, ...]:
    """Return the successor of a site, and for the first site also the coordinator."""
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

Verify = Annotated[bool, doc("For ring: let all sites open a released model's weights too, and compare digests.")]


def ring(verify: Verify = False) -> SecureSum:
    """Return the protocol, which needs three sites.

    Parameters
    ----------
    verify : bool, default False
        Whether all sites also open each public sum, and compare it with the coordinator's.

    Returns
    -------
    SecureSum

    Raises
    ------
    ValueError
        `verify` is not a boolean.
    """
    if verify not in (False, True):
        raise ValueError(f"verify must be true or false, got {verify!r}")
    if not verify:
        return RING
    return replace(RING, options={"verify": 1}, open_at_sites=ring_open, cost_at_sites=ring_open_cost)
