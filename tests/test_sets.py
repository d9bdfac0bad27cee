"""Set intersection, cardinality and union: right, at the promised cost, and without showing what they must not."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from random import SystemRandom

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis.execution import site_names
from fedsvm.protocols.arithmetic.commutative import P256, P521, Cipher, Group, contents_of
from fedsvm.protocols.sets.intersection import (
    count_common,
    intersect,
    set_cardinality,
    set_intersection,
)
from fedsvm.protocols.sets.union import MAX_ITEM_BYTES, reveal_union, set_union

SETS = st.lists(
    st.lists(st.integers(0, 12).map(lambda n: f"patient {n}"), unique=True, max_size=8), min_size=2, max_size=5
)
SALT = b"a salt that sites share"


def play(
    sets: Sequence[Sequence[object]],
    site_part: Callable[..., object],
    coordinator_part: Callable[..., object],
) -> tuple[dict[str, object], InMemoryNetwork]:
    """Both halves with every site's own set, and the sizes of all."""
    network = InMemoryNetwork(site_names(len(sets)))
    counts = {site: len(each) for site, each in zip(network.sites, sets, strict=True)}
    parts: dict[str, Callable[[MemoryChannel], object]] = {
        site: functools.partial(lambda own, channel: site_part(channel, own, counts), own)
        for site, own in zip(network.sites, sets, strict=True)
    }
    parts[COORDINATOR] = lambda channel: coordinator_part(channel, counts)
    return network.run(parts), network


def spent(network: InMemoryNetwork) -> tuple[int, int, int]:
    return len(network.sent), network.hops, network.payload_bytes


def intersection_site(channel: MemoryChannel, own: Sequence[str], counts: dict[str, int]) -> object:
    return set_intersection(channel, own, counts, SALT)


def cardinality_site(channel: MemoryChannel, own: Sequence[str], counts: dict[str, int]) -> None:
    set_cardinality(channel, own, counts, SALT)


@settings(max_examples=30)
@given(SETS)
def test_every_site_learns_which_of_its_rows_all_have_in_one_order(sets: list[list[str]]) -> None:
    found, network = play(sets, intersection_site, intersect)
    common = set.intersection(*map(set, sets))
    assert found[COORDINATOR] == len(common)
    aligned = [[own[place] for place in np.asarray(found[site])] for site, own in zip(network.sites, sets, strict=True)]
    assert all(names == aligned[0] for names in aligned)
    assert set(aligned[0]) == common
    assert len(aligned[0]) == len(common)
    sites, items = len(sets), sum(map(len, sets))
    points = (sites + 1) * items + sites * len(common)
    assert spent(network) == (sites * (sites + 3), sites + 2, 32 * points + 8 * sites)


@settings(max_examples=20)
@given(SETS)
def test_the_cardinality_is_that_of_the_intersection(sets: list[list[str]]) -> None:
    found, network = play(sets, cardinality_site, count_common)
    assert found[COORDINATOR] == len(set.intersection(*map(set, sets)))
    sites, items = len(sets), sum(map(len, sets))
    assert spent(network) == (sites * sites, sites, 32 * sites * items)


@settings(max_examples=15)
@given(st.lists(st.lists(st.binary(max_size=MAX_ITEM_BYTES), unique=True, max_size=5), min_size=2, max_size=4))
def test_the_union_has_every_item_once(sets: list[list[bytes]]) -> None:
    found, network = play(sets, set_union, lambda channel, counts: reveal_union(channel))
    union = sorted(set().union(*sets))
    assert found[COORDINATOR] == union
    sites, items = len(sets), sum(map(len, sets))
    points = sites * items - len(sets[1]) + sites * len(union)  # one set ends at the initiator, and is not sent to it
    assert spent(network) == (sites * (sites - 1) + 3 * sites - 1, 2 * sites, 66 * points + 8 * sites)


def test_no_identifier_and_no_hash_of_one_leaves_its_site() -> None:
    sets = [["Ada", "Grace", "Emmy"], ["Grace", "Ada"], ["Ada", "Sofja", "Grace"]]
    _, network = play(sets, intersection_site, intersect)
    sent = b"".join(message.array.tobytes() for message in network.sent)
    for name in {name for own in sets for name in own}:
        plain_hashes = [
            hashlib.new(kind, part).digest()
            for kind in ("sha256", "sha1")
            for part in (name.encode(), SALT + name.encode())
        ]
        for secret in [name.encode(), P256.hash_identifiers([name], SALT).tobytes(), *plain_hashes]:
            assert secret not in sent


def test_what_others_see_of_a_set_is_not_in_the_order_of_its_rows() -> None:
    """A site's rows may be sorted by something that tells; what it sends is not."""
    names = [f"patient {number}" for number in range(40)]
    found, network = play([names, names], intersection_site, intersect)
    sent = next(m.array for m in network.sent if (m.sender, m.receiver) == ("site-1", COORDINATOR))
    rank = np.argsort(np.lexsort(sent.T[::-1]))
    rows = np.asarray(found["site-1"])[rank]
    assert sorted(rows.tolist()) == list(range(40))
    assert rows.tolist() != list(range(40))


def test_an_item_that_does_not_fit_is_refused_before_anything_is_sent() -> None:
    network = InMemoryNetwork(site_names(2))
    counts = dict.fromkeys(network.sites, 1)
    with pytest.raises(ValueError, match="must have 63 bytes or fewer, got 64"):
        network.run(dict.fromkeys(network.sites, lambda channel: set_union(channel, [b"x" * 64], counts)))
    assert network.sent == []


@pytest.mark.parametrize("group", [P256, P521], ids=["P-256", "P-521"])
def test_encryption_commutes_and_can_be_undone(group: Group) -> None:
    points = group.embed_contents([b"Ulm", b"", b"x" * group.max_content_bytes])
    one, other = Cipher(group, SystemRandom()), Cipher(group, SystemRandom())
    both = one.encrypt(other.encrypt(points))
    np.testing.assert_array_equal(both, other.encrypt(one.encrypt(points)))
    np.testing.assert_array_equal(one.decrypt(other.decrypt(both)), points)
    assert contents_of(points) == [b"Ulm", b"", b"x" * group.max_content_bytes]
    assert not np.array_equal(both, points)


@pytest.mark.parametrize("group", [P256, P521], ids=["P-256", "P-521"])
def test_the_order_of_the_group_is_the_curves(group: Group) -> None:
    """A number and its negative give the same x-coordinates, which with a wrong order they would not."""
    points = group.hash_identifiers(["a", "b"], SALT)
    there, back = (ec.derive_private_key(number, group.curve) for number in (12345, group.order - 12345))
    np.testing.assert_array_equal(group.multiply(points, there), group.multiply(points, back))
