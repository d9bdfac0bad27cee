"""Sets, one for each record, encrypted by all sites: who compares them learns how much any two have in common.

Every site hashes the items of each of its records to points, shuffles them within the record, and encrypts them; every
site's records go round the ring until all have encrypted them, and then to the coordinator. Equal items are equal
points in the end, so that |S_i ∩ S_j|, the inner product of two binary vectors, can be counted.

Cost, of n sites whose records have m_1 … m_n items in all: n messages a site, n hops, n times all items, 32 bytes each;
and a message of each site with the sizes of its records, 8 bytes each. A point that occurs often is encrypted once.

Security. The coordinator sees of every record which encrypted items it has: all but the items' names. Names follow from
how often each item occurs, where that is known; and from any records whose items it knows, so that one site that
colludes is enough, or one that makes up a record for each item. Sites see the sizes of records and which encrypted
items they have in common, behind the keys of those before them. It is the paper's protocol, there to compare with.

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
        The items of each of the site's records, none of them twice in one.
    items : mapping of site to int
        How many items the records of each site have in all.
    salt : bytes
        The same at all sites; the coordinator must not know it.
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
    channel.send(COORDINATOR, travelling)  # they are the successor's


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
        How many records each site has.
    items : mapping of site to int
        How many items these have in all.

    Returns
    -------
    int64 array of shape (records, encrypted items)
        1 where a record has an item, of all sites' records in the sites' order; items in the order of their bytes.
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
    """Return (n, k) of 0 and 1: which of k distinct points each of n records has; sizes (n,), points concatenated."""
    distinct, places = np.unique(points, axis=0, return_inverse=True)
    table = np.zeros((len(sizes), len(distinct)), dtype=np.int64)
    table[np.repeat(np.arange(len(sizes)), sizes), places.reshape(-1)] = 1
    return table
