"""Secure set intersection and its cardinality.

Every site hashes its identifiers to points, encrypts them, and sends them around the ring until all sites have
encrypted them and they are back. The sites send the results to the coordinator, which returns the points that are in
every set. A site recognizes only its own points.

Cost for sets of m_1 … m_n identifiers: n messages of each site around the ring, one to the coordinator and one back;
n + 2 hops; n + 1 times all sets and n times the intersection, 32 bytes a point. For the cardinality, the sets do not
return to their owners: n messages of each site, n hops, n times all sets.

Security. Against semi-honest parties. The salt makes the points of two runs different. A site learns which of its own
identifiers all sites have (with the cardinality, nothing). The size of every set is public. The coordinator sees how
many points any of the sets have in common, including the pairwise intersections, but learns no identifier, since it
knows neither the salt nor a secret number. Sites that collude with it learn the intersection of their own sets, which
may contain guesses, and the victim's set. The paper's protocol has the same limit.

References
----------
C. Clifton, M. Kantarcioglu, J. Vaidya, X. Lin and M. Y. Zhu, "Tools for privacy preserving distributed data mining",
SIGKDD Explorations 4 (2), 2002, sections 3.2 and 3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np

from fedsvm.federation.arrays import IntArray
from fedsvm.federation.channel.generator import drawn_generator
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.commutative import P256, Cipher, CurvePoints, distinct

POINT_BYTES = P256.point_bytes


def set_intersection(channel: Channel, identifiers: Sequence[str], counts: Mapping[str, int], salt: bytes) -> IntArray:
    """Run a site's part in the intersection.

    Parameters
    ----------
    channel : Channel
    identifiers : sequence of str
        The site's identifiers, without duplicates.
    counts : mapping of site to int
        The number of identifiers of each site.
    salt : bytes
        Random bytes, the same at all sites and unknown to the coordinator.

    Returns
    -------
    int64 array of shape (common,)
        Indices of the identifiers that all sites have, in an order that is the same at every site.
    """
    source = drawn_generator(channel)
    order = source.sample(range(len(identifiers)), len(identifiers))
    points = P256.hash_identifiers([identifiers[place] for place in order], salt)
    successor = _neighbour(channel, 1)
    travelling = _round_the_ring(channel, points, counts, source)
    channel.send(successor, travelling)  # the successor owns these points
    own = _receive(channel, _neighbour(channel, -1), counts[channel.me])
    channel.send(COORDINATOR, own)
    common = channel.receive(COORDINATOR, (int(channel.receive(COORDINATOR, (1,), np.int64)[0]), POINT_BYTES), np.uint8)
    place_of = {point.tobytes(): order[place] for place, point in enumerate(own)}
    return np.array([place_of[point.tobytes()] for point in common], dtype=np.int64)


def intersect(channel: Channel, counts: Mapping[str, int]) -> int:
    """Run the coordinator's part: send every site the points that all sets have.

    Parameters
    ----------
    channel : Channel
    counts : mapping of site to int
        The number of identifiers of each site.

    Returns
    -------
    int
        The number of these points.
    """
    common = _common(channel, counts)
    for site in channel.sites:
        channel.send(site, np.array([len(common)], dtype=np.int64))
        channel.send(site, common)
    return len(common)


def set_cardinality(channel: Channel, identifiers: Sequence[str], counts: Mapping[str, int], salt: bytes) -> None:
    """Run a site's part in counting the intersection. Nobody learns which identifiers are in it.

    Parameters
    ----------
    channel : Channel
    identifiers : sequence of str
        The site's identifiers, without duplicates.
    counts : mapping of site to int
        The number of identifiers of each site.
    salt : bytes
        Random bytes, the same at all sites and unknown to the coordinator.
    """
    points = distinct(P256.hash_identifiers(identifiers, salt))
    channel.send(COORDINATOR, distinct(_round_the_ring(channel, points, counts, drawn_generator(channel))))


def count_common(channel: Channel, counts: Mapping[str, int]) -> int:
    """Run the coordinator's part in counting.

    Parameters
    ----------
    channel : Channel
    counts : mapping of site to int
        The number of identifiers of each site.

    Returns
    -------
    int
        The number of identifiers that all sets have.
    """
    position = {site: place for place, site in enumerate(channel.sites)}
    owners = {site: channel.sites[(position[site] + 1) % len(channel.sites)] for site in channel.sites}
    return len(_common(channel, {site: counts[owners[site]] for site in channel.sites}))


def _round_the_ring(channel: Channel, points: CurvePoints, counts: Mapping[str, int], source: Random) -> CurvePoints:
    """Encrypt this site's points and those of all others on the way. Return the successor's, encrypted by all sites."""
    cipher = Cipher(P256, source)
    count, position = len(channel.sites), channel.sites.index(channel.me)
    travelling = cipher.encrypt(points)
    for step in range(1, count):
        channel.send(_neighbour(channel, 1), travelling)
        owner = channel.sites[(position - step) % count]
        travelling = cipher.encrypt(_receive(channel, _neighbour(channel, -1), counts[owner]))
    return travelling


def _neighbour(channel: Channel, distance: int) -> str:
    return channel.sites[(channel.sites.index(channel.me) + distance) % len(channel.sites)]


def _receive(channel: Channel, peer: str, count: int) -> CurvePoints:
    return channel.receive(peer, (count, POINT_BYTES), np.uint8)


def _common(channel: Channel, counts: Mapping[str, int]) -> CurvePoints:
    """Return the points that all sets have, in the order of their bytes."""
    sets = [{point.tobytes() for point in _receive(channel, site, counts[site])} for site in channel.sites]
    common = b"".join(sorted(set.intersection(*sets)))
    return np.frombuffer(common, dtype=np.uint8).reshape(-1, POINT_BYTES)
