"""Ring sums over rings that share no edge, so that every site has other neighbours in each.

The vector is split into r additive segments, all but one uniform over the whole modulus, and each goes round a ring
of its own. The rings are edge-disjoint Hamiltonian cycles (Walecki's construction). There are (n - 1) // 2 of them over
n sites. With the schedule of the protocol's paper, three colluders suffice.

Cost: r n messages a chunk and one for the sum; n + 1 hops, and 2 (r - 1) for each chunk but the first; (r n + 1) d
residues.

Security. Against semi-honest parties. A site has 2 r different neighbours, and all of them together learn its vector;
2 r - 1 do not, since the segment between two of them that do not collude is uniform to the others. The initiator of all
rings is one site, which reveals only the sum of the segments' sums.

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
from fedsvm.protocols.sums.ring import chunk_count, chunks, random_chunks, ring_reveal, ring_sends_to, round_the_rings
from fedsvm.protocols.sums.secure_sum import MAX_PARTS, RESIDUE_BYTES, Cost, SecureSum

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
    """Return Hamiltonian cycles of the complete graph over the sites, no two of which share an edge.

    The first site stays in place; the others, in a circle, are visited in a zigzag j, j + 1, j - 1, j + 2, … that
    starts one further in each ring.

    Parameters
    ----------
    sites : tuple of str
    rings : int
        How many, at most (n - 1) // 2.

    Returns
    -------
    list of tuple of str
        Each with the first site first.
    """
    first, *circle = sites
    count = len(circle)
    zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(count)]
    return [(first, *(circle[(j + offset) % count] for offset in zigzag)) for j in range(rings)]


def changing_neighbours_cost(rings: int, sites: int, shape: tuple[int, int]) -> Cost:
    """Return the cost: all rings at the same time, and then the sum.

    A site has a chunk of all rings before the next of any, and its places in two rings differ by 2 (r - 1) at most:
    by so many hops each further chunk comes later.
    """
    limbs, length = shape
    count = chunk_count(length)
    return Cost(
        messages=rings * sites * count + 1,
        hops=sites + 1 + 2 * (rings - 1) * (count - 1) if count else 1,
        payload_bytes=(rings * sites + 1) * limbs * length * RESIDUE_BYTES,
    )


def changing_neighbours_sends_to(rings: int, me: str, sites: tuple[str, ...]) -> tuple[str, ...]:
    """Return the successor in each ring, and for the first site the coordinator."""
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
    """
    if not isinstance(rings, int) or rings < 1:
        raise ValueError(f"rings must be a whole number from 1, got {rings!r}")
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
