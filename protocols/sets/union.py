"""Secure set union: the items of all sets, without their owners.

Items are embedded in points, and the sets go around the ring until all sites have encrypted them. Equal items are then
equal points. The initiator removes the duplicates, and the union goes around once more: each site removes its own
encryption, and sorts the points so that their order reveals nothing. The last site decrypts the items and sends them to
the coordinator.

Cost for sets of m_1 … m_n items with u different items: n - 1 messages of each site around the ring and one to the
initiator (except its own), n - 1 for the union and two to the coordinator; 2 n hops; 66 bytes a point.

Security. Against semi-honest parties. The coordinator and the last site of the ring learn the union. The initiator
learns how many sets have each item, but not which item it is. The size of every set is public.

References
----------
C. Clifton, M. Kantarcioglu, J. Vaidya, X. Lin and M. Y. Zhu, "Tools for privacy preserving distributed data mining",
SIGKDD Explorations 4 (2), 2002, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsvm.federation.channel.generator import drawn_generator
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.commutative import P521, Cipher, CurvePoints, contents_of, distinct

POINT_BYTES = P521.point_bytes
MAX_ITEM_BYTES = P521.max_content_bytes


def set_union(channel: Channel, items: Sequence[bytes], counts: Mapping[str, int]) -> None:
    """Run a site's part.

    Parameters
    ----------
    channel : Channel
    items : sequence of bytes
        The site's items, without duplicates.
    counts : mapping of site to int
        The number of items of each site.

    Raises
    ------
    ValueError
        An item has more than `MAX_ITEM_BYTES`, 63; nothing was sent.
    """
    cipher = Cipher(P521, drawn_generator(channel))
    travelling = cipher.encrypt(distinct(P521.embed_contents(items)))
    sites, position = channel.sites, channel.sites.index(channel.me)
    predecessor, successor = sites[position - 1], sites[(position + 1) % len(sites)]
    for step in range(1, len(sites)):
        channel.send(successor, travelling)
        owner = sites[position - step]
        travelling = distinct(cipher.encrypt(channel.receive(predecessor, (counts[owner], POINT_BYTES), np.uint8)))
    if position > 0:
        channel.send(sites[0], travelling)
        union = _receive_size(channel, predecessor)
    else:
        union = distinct(np.vstack([travelling, *_from_others(channel, counts)]))
    _send_points(channel, successor if position + 1 < len(sites) else COORDINATOR, distinct(cipher.decrypt(union)))


def reveal_union(channel: Channel) -> list[bytes]:
    """Run the coordinator's part.

    Parameters
    ----------
    channel : Channel

    Returns
    -------
    list of bytes
        Every item once, sorted.

    Raises
    ------
    ValueError
        A point has no item, so a site does not follow the protocol.
    """
    return sorted(contents_of(_receive_size(channel, channel.sites[-1])))


def _from_others(channel: Channel, counts: Mapping[str, int]) -> list[CurvePoints]:
    """Return the sets that end at the other sites, each at the predecessor of its owner, for the initiator."""
    sites = channel.sites
    sizes = {site: counts[sites[(place + 1) % len(sites)]] for place, site in enumerate(sites)}
    return [channel.receive(site, (sizes[site], POINT_BYTES), np.uint8) for site in sites[1:]]


def _send_points(channel: Channel, peer: str, points: CurvePoints) -> None:
    channel.send(peer, np.array([len(points)], dtype=np.int64))
    channel.send(peer, points)


def _receive_size(channel: Channel, peer: str) -> CurvePoints:
    count = int(channel.receive(peer, (1,), np.int64)[0])
    return channel.receive(peer, (count, POINT_BYTES), np.uint8)
