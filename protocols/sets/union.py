"""What is in any set, without whose: secure set union (Clifton et al. 2002, section 3.2).

Items are embedded in points, and the sets go round the ring until all have encrypted them. Equal items are then equal
points: the initiator drops the duplicates, and the union goes round once more, everyone taking off its own encryption
and shuffling by sorting. The last to decrypt reads the items and shows them to the coordinator.

Cost, of sets of m_1 … m_n items of which u are different: n - 1 messages a site round the ring and one to the initiator
(but its own), n - 1 for the union and two to the coordinator; 2 n hops; 66 bytes a point.

Security. Against semi-honest parties. The coordinator learns the union, and the last site of the ring, which reads it;
the initiator how many sets every item of the union is in, but not which item; the size of every set is public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from federation.channel.contract import Channel
from federation.transport.keys import COORDINATOR
from protocols.arithmetic.commutative import P521, Cipher, Points, contents_of, distinct
from protocols.sums.contract import Cost

POINT_BYTES = P521.point_bytes
MAX_ITEM_BYTES = P521.longest_content_bytes


def set_union(channel: Channel, items: Sequence[bytes], counts: Mapping[str, int]) -> None:
    """A site's part. counts: how many items each site has, all different.

    Raises ValueError, before anything is sent, for an item of more than 63 bytes.
    """
    cipher = Cipher(P521)
    travelling = cipher.encrypt(distinct(P521.embedded(items)))
    sites, position = channel.sites, channel.sites.index(channel.me)
    predecessor, successor = sites[position - 1], sites[(position + 1) % len(sites)]
    for step in range(1, len(sites)):
        channel.send(successor, travelling)
        owner = sites[position - step]
        travelling = distinct(cipher.encrypt(channel.receive(predecessor, (counts[owner], POINT_BYTES), np.uint8)))
    if position > 0:
        channel.send(sites[0], travelling)
        union = _sized(channel, predecessor)
    else:
        union = distinct(np.vstack([travelling, *_from_others(channel, counts)]))
    _pass_on(channel, successor if position + 1 < len(sites) else COORDINATOR, distinct(cipher.decrypt(union)))


def reveal_union(channel: Channel) -> list[bytes]:
    """The coordinator's part: the items, sorted."""
    return sorted(contents_of(_sized(channel, channel.sites[-1])))


def union_cost(counts: Sequence[int], union: int) -> Cost:
    """Of sets of these sizes, by site in ring order, with so many different items."""
    sites = len(counts)
    points = sites * sum(counts) - counts[1 % sites] + sites * union
    messages = sites * (sites - 1) + (sites - 1) + 2 * sites
    return Cost(messages=messages, hops=2 * sites, payload_bytes=points * POINT_BYTES + 8 * sites)


def _from_others(channel: Channel, counts: Mapping[str, int]) -> list[Points]:
    """At the initiator: the sets that ended at the other sites, each one place before its owner."""
    sites = channel.sites
    sizes = {site: counts[sites[(place + 1) % len(sites)]] for place, site in enumerate(sites)}
    return [channel.receive(site, (sizes[site], POINT_BYTES), np.uint8) for site in sites[1:]]


def _pass_on(channel: Channel, peer: str, points: Points) -> None:
    channel.send(peer, np.array([len(points)], dtype=np.int64))
    channel.send(peer, points)


def _sized(channel: Channel, peer: str) -> Points:
    count = int(channel.receive(peer, (1,), np.int64)[0])
    return channel.receive(peer, (count, POINT_BYTES), np.uint8)
