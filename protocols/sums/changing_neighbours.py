"""Ring sums over rings that share no edge, so that every site has other neighbours in each.

Each site splits its vector into r additive segments, all but one uniform over the whole modulus. Each segment is summed
around another ring. The rings are edge-disjoint Hamiltonian cycles (Walecki's construction); over n sites there are
(n - 1) // 2 of them. With the schedule of the protocol's paper, three colluders suffice to learn a vector.

Cost: r n messages for each chunk and one for the sum; n + 1 hops, and 2 (r - 1) more for each chunk except the first;
(r n + 1) d residues.

Security. Against semi-honest parties. A site has 2 r different neighbours, and only all of them together learn its
vector: if one does not collude, the segment that goes to or from it is uniform to the others. One site is the initiator
of all rings, and reveals only the total of their sums.

References
----------
R. Sheikh, B. Kumar and D. K. Mishra, "Changing neighbors k secure sum protocol for secure multi party computation",
International Journal of Computer Science and Information Security 7 (1), 2010.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Annotated

from annotated_types import Ge, Le, doc

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.fixed_point import accumulate
from fedsvm.protocols.sums.ring import (
    chunk_count,
    chunks,
    exchange_cost,
    random_chunks,
    ring_reveal,
    ring_sends_to,
    round_the_rings,
)
from fedsvm.protocols.sums.secure_sum import MAX_PARTS, Cost, SecureSum, require_whole_number

Rings = Annotated[
    int,
    Ge(1),
    Le(MAX_PARTS),
    doc("For changing-neighbours: number r of rings that share no edge, for 2 r + 1 sites or more."),
]


def changing_neighbours_contribute(rings: int, channel: Channel, vector: Residues) -> None:
    """Run a site's part: send a segment along each ring. The initiator sends the total to the coordinator."""
    last = vector.copy()
    segments: list[Iterable[Residues]] = []
    for _ in range(rings - 1):
        segment = list(random_chunks(channel, vector))
        for rest, drawn in zip(chunks(last), segment, strict=True):
            accumulate(rest, drawn, -1)
        segments.append(segment)
    segments.append(chunks(last))
    total = round_the_rings(channel, edge_disjoint_rings(channel.sites, rings), segments, vector.shape)
    if total is not None:
        channel.send(COORDINATOR, total)


def edge_disjoint_rings(sites: tuple[str, ...], rings: int) -> list[tuple[str, ...]]:
    """Return edge-disjoint Hamiltonian cycles of the complete graph over the sites.

    Each begins with the first site. The others form a circle, which ring j visits in the zigzag j, j + 1, j - 1,
    j + 2, ….

    Parameters
    ----------
    sites : tuple of str
    rings : int
        The number of cycles, at most (n - 1) // 2.

    Returns
    -------
    list of tuple of str
        The sites of each cycle, in its order.
    """
    first, *circle = sites
    count = len(circle)
    zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(count)]
    return [(first, *(circle[(j + offset) % count] for offset in zigzag)) for j in range(rings)]


def changing_neighbours_cost(rings: int, sites: int, shape: tuple[int, int]) -> Cost:
    """Return the cost: all rings at the same time, and then the sum.

    A site serves a chunk of all rings before the next chunk of any. Its positions in two rings differ by at most
    2 (r - 1), so each further chunk is that many hops later.
    """
    delay = 2 * (rings - 1) * (chunk_count(shape[1]) - 1)
    return exchange_cost(rings * sites, sites + 1 + delay, shape)


def changing_neighbours_sends_to(rings: int, me: str, sites: tuple[str, ...]) -> tuple[str, ...]:
    """Return the successors of a site in all rings, and for the first site also the coordinator."""
    return tuple(dict.fromkeys(peer for ring in edge_disjoint_rings(sites, rings) for peer in ring_sends_to(me, ring)))


def changing_neighbours(rings: Rings = 2) -> SecureSum:
    """Return the protocol, which needs 2 r + 1 sites.

    Parameters
    ----------
    rings : int, default 2
        r, from 1.

    Returns
    -------
    SecureSum

    Raises
    ------
    ValueError
        `rings` is not a whole number from 1.
    """
    require_whole_number("rings", rings, 1)
    return SecureSum(
        "changing-neighbours",
        functools.partial(changing_neighbours_contribute, rings),
        ring_reveal,
        functools.partial(changing_neighbours_cost, rings),
        smallest_coalition=lambda sites: 2 * rings,
        min_sites=2 * rings + 1,
        options={"rings": rings},
        sends_to=functools.partial(changing_neighbours_sends_to, rings),
    )
