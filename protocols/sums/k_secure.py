"""The distributed k-secure sum.

Each site splits its vector into k additive segments, all but one uniform over the whole modulus, keeps one, and sends
the others to k - 1 different sites. Every site then adds what it kept and what it received, and these blocks go through
the ring sum. The papers do not mention that segments must be residues: if they are merely smaller numbers, a coalition
can estimate the vector.

Cost: n k messages for each chunk, n (k - 1) of these for the segments, and one for the sum; n + 2 hops; (n k + 1) d
residues.

Security. Against semi-honest parties. To learn a site's vector takes its two ring neighbours, which know its block, and
every site to which it sent a segment or from which it received one. If one of these does not collude, the vector is
uniform to the others. Segments go to sites at distances 2, 3, … along the ring, so that these sites are others than the
ring neighbours. With k = n a site sends a segment to every other, and the protocol withstands n - 2 colluders; n - 1
learn the last input from the sum itself.

References
----------
R. Sheikh, B. Kumar and D. K. Mishra, "A distributed k-secure sum protocol for secure multi-party computations",
Journal of Computing 2 (3), 2010.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Annotated

from annotated_types import Ge, Le, doc

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.fixed_point import accumulate
from fedsvm.protocols.sums.ring import chunks, exchange_cost, random_chunks, ring_reveal, ring_sends_to, round_the_rings
from fedsvm.protocols.sums.secure_sum import MAX_PARTS, Cost, SecureSum, require_whole_number

MIN_SITES = 3

Segments = Annotated[
    int, Ge(2), Le(MAX_PARTS), doc("For k-secure: number of segments that a site cuts its vector into.")
]


def k_secure_contribute(segments: int, channel: Channel, vector: Residues) -> None:
    """Run a site's part: exchange segments, then send the block around the ring."""
    count, position = len(channel.sites), channel.sites.index(channel.me)
    block = vector.copy()
    for distance in distances(count, segments):
        for chunk, segment in zip(chunks(block), random_chunks(channel, vector), strict=True):
            accumulate(chunk, segment, -1)
            channel.send(channel.sites[(position + distance) % count], segment)
    owners = [channel.sites[(position - distance) % count] for distance in distances(count, segments)]
    total = round_the_rings(channel, [channel.sites], [_with_segments(channel, owners, block)], vector.shape)
    if total is not None:
        channel.send(COORDINATOR, total)


def _with_segments(channel: Channel, owners: Sequence[str], block: Residues) -> Iterator[Residues]:
    """Yield the chunks of a block, each as soon as the segments of other sites are added.

    The arrays of one peer arrive in the order in which it sent them. So the whole segment of the predecessor in the
    ring must be received before the first chunk of the ring.
    """
    predecessor = channel.sites[channel.sites.index(channel.me) - 1]
    for chunk in chunks(block) if predecessor in owners else ():
        accumulate(chunk, channel.receive(predecessor, chunk.shape))
    for chunk in chunks(block):
        for owner in owners:
            if owner != predecessor:
                accumulate(chunk, channel.receive(owner, chunk.shape))
        yield chunk


def distances(sites: int, segments: int) -> list[int]:
    """Return the distance along the ring from a site to the receiver of each of its segments.

    Parameters
    ----------
    sites : int
    segments : int
        k.

    Returns
    -------
    list of k - 1 int
        The distances of the ring neighbours, 1 and n - 1, are the last.
    """
    return [*range(2, sites - 1), 1, sites - 1][: segments - 1]


def partners(sites: int, segments: int) -> set[int]:
    """Return the smallest coalition that learns a site's vector, with or without the coordinator.

    Parameters
    ----------
    sites : int
    segments : int
        k.

    Returns
    -------
    set of int
        The distances of its members along the ring from the site.
    """
    sent = set(distances(sites, segments))
    return sent | {sites - distance for distance in sent} | {1, sites - 1}


def k_secure_cost(segments: int, sites: int, shape: tuple[int, int]) -> Cost:
    """Return the cost: the segments, in one hop, and then a ring."""
    return exchange_cost(sites * segments, sites + 2, shape)


def k_secure_sends_to(segments: int, me: str, sites: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sites to which a site sends a segment, and the parties to which it sends in the ring sum."""
    position = sites.index(me)
    ahead = (sites[(position + distance) % len(sites)] for distance in distances(len(sites), segments))
    return tuple(dict.fromkeys((*ahead, *ring_sends_to(me, sites))))


def k_secure(segments: Segments = 3) -> SecureSum:
    """Return the protocol, which needs as many sites as segments, and at least three.

    Parameters
    ----------
    segments : int, default 3
        k, from 2.

    Returns
    -------
    SecureSum

    Raises
    ------
    ValueError
        `segments` is not a whole number from 2.
    """
    require_whole_number("segments", segments, 2)
    return SecureSum(
        "k-secure",
        functools.partial(k_secure_contribute, segments),
        ring_reveal,
        functools.partial(k_secure_cost, segments),
        smallest_coalition=lambda sites: len(partners(sites, segments)),
        min_sites=max(MIN_SITES, segments),
        options={"segments": segments},
        sends_to=functools.partial(k_secure_sends_to, segments),
    )
