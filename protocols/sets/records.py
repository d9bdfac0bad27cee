"""Comparison of records as sets of encrypted items: the coordinator learns how many items any two have in common.

Every site hashes the items of each of its records to points, shuffles them within the record, and encrypts them. The
records go around the ring until all sites have encrypted them, and then to the coordinator. Equal items become equal
points, so the coordinator can count |S_i ∩ S_j|, the inner product of two binary vectors.

Cost for n sites whose records have m_1 … m_n items in total: n messages of each site, n hops, n times all items of 32
bytes; and a message of each site with the sizes of its records, 8 bytes each. A site encrypts equal points only once.

Security. The coordinator sees the encrypted items of every record, that is, everything except the names of the items.
It can infer the names from known frequencies of items, or from records whose items it knows. One colluding site is
enough, which may invent a record for each item. Sites see the sizes of records, and which items they have in common,
encrypted by the sites before them. This is the protocol of the paper, implemented for comparison.

References
----------
H. Yu, X. Jiang and J. Vaidya, "Privacy-preserving SVM using nonlinear kernels on horizontally partitioned data",
SAC 2006, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsvm.federation.arrays import IntArray
from fedsvm.federation.channel.generator import drawn_generator
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.commutative import P256, Cipher, CurvePoints

POINT_BYTES = P256.point_bytes


def encrypt_records(channel: Channel, records: Sequence[Sequence[str]], items: Mapping[str, int], salt: bytes) -> None:
    """Run a site's part.

    Parameters
    ----------
    channel : Channel
    records : sequence of sequence of str
        The items of each of the site's records, without duplicates in a record.
    items : mapping of site to int
        The total number of items in the records of each site.
    salt : bytes
        Random bytes, the same at all sites and unknown to the coordinator.
    """
    names = sorted({item for record in records for item in record})
    place_of = {name: place for place, name in enumerate(names)}
    points, source = P256.hash_identifiers(names, salt), drawn_generator(channel)
    order = [place_of[item] for record in records for item in source.sample(list(record), len(record))]
    cipher, sites = Cipher(P256, source), channel.sites
    position, count = sites.index(channel.me), len(sites)
    successor, predecessor = sites[(position + 1) % count], sites[position - 1]
    channel.send(COORDINATOR, np.array([len(record) for record in records], dtype=np.int64))
    travelling = cipher.encrypt(points)[order]
    for step in range(1, count):
        channel.send(successor, travelling)
        owner = sites[(position - step) % count]
        arrived = channel.receive(predecessor, (items[owner], POINT_BYTES), np.uint8)
        travelling = _encrypted_once(cipher, arrived)
    channel.send(COORDINATOR, travelling)  # these are the successor's records


def _encrypted_once(cipher: Cipher, points: CurvePoints) -> CurvePoints:
    """Encrypt each point, equal ones only once."""
    distinct, places = np.unique(points, axis=0, return_inverse=True)
    return cipher.encrypt(distinct)[places.reshape(-1)]


def compare_records(channel: Channel, records: Mapping[str, int], items: Mapping[str, int]) -> IntArray:
    """Run the coordinator's part.

    Parameters
    ----------
    channel : Channel
    records : mapping of site to int
        The number of records of each site.
    items : mapping of site to int
        The total number of items in the records of each site.

    Returns
    -------
    int64 array of shape (records, encrypted items)
        1 if a record has an item, otherwise 0. The records are in the order of the sites, the items in that of their
        bytes.
    """
    sites = channel.sites
    sizes = [channel.receive(site, (records[site],), np.int64) for site in sites]
    arrived = {
        sites[(place + 1) % len(sites)]: channel.receive(
            site, (items[sites[(place + 1) % len(sites)]], POINT_BYTES), np.uint8
        )
        for place, site in enumerate(sites)
    }
    return incidence(np.concatenate(sizes), np.concatenate([arrived[site] for site in sites]))


def incidence(sizes: IntArray, points: CurvePoints) -> IntArray:
    """Return an array (n, k) of 0 and 1: which of k distinct points each of n records has.

    sizes: the number of points of each record, of shape (n,). points: those of all records, concatenated.
    """
    distinct, places = np.unique(points, axis=0, return_inverse=True)
    table = np.zeros((len(sizes), len(distinct)), dtype=np.int64)
    table[np.repeat(np.arange(len(sizes)), sizes), places.reshape(-1)] = 1
    return table
