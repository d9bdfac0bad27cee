"""Secure sums: one conformance check, a line per sum, and what each reveals."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.arrays import Residues
from federation.channel import Channel, uniform_residues
from federation.errors import BoundExceeded, EndpointError, RoundAborted
from federation.keys import COORDINATOR
from federation.rehearsal import MemoryChannel, Rehearsal
from protocols.changing_neighbours_sum import changing_neighbours, edge_disjoint_rings
from protocols.common_seed import common_seed
from protocols.fixed_point import add, subtract
from protocols.k_secure_sum import distances, k_secure, partners
from protocols.plain_sum import PLAIN
from protocols.ring_sum import CHUNK, RING
from protocols.secret_order import secret_order
from protocols.secure_sum import SecureSum
from tests.conftest import drill, sum_protocol

PROTOCOLS = [
    PLAIN,
    RING,
    k_secure(2),
    k_secure(3),
    k_secure(5),
    changing_neighbours(1),
    changing_neighbours(2),
]
ALL = pytest.mark.parametrize(
    "protocol", PROTOCOLS, ids=lambda protocol: "-".join(map(str, (protocol.name, *protocol.options.values())))
)


def sites(count: int) -> tuple[str, ...]:
    """site-1, site-2, …"""
    return tuple(f"site-{i + 1}" for i in range(count))


def rehearse(protocol: SecureSum, inputs: list[Residues]) -> tuple[Residues, Rehearsal]:
    """The residues that the coordinator learns, and the record of the round."""
    rehearsal = Rehearsal(sites(len(inputs)))
    parts: dict[str, Callable[[MemoryChannel], Residues | None]] = {
        name: functools.partial(_contribute, protocol, vector)
        for name, vector in zip(rehearsal.sites, inputs, strict=True)
    }
    limbs, length = inputs[0].shape
    parts[COORDINATOR] = lambda channel: protocol.reveal_residues(channel, (limbs, length))
    total = rehearsal.play(parts)[COORDINATOR]
    assert total is not None
    return total, rehearsal


def _contribute(protocol: SecureSum, vector: Residues, channel: Channel) -> None:
    protocol.contribute_residues(channel, vector)


def check_sum(protocol: SecureSum, count: int, limbs: int, length: int) -> None:
    """The sum is that of the integers, and costs what the formula says."""
    inputs = [uniform_residues((limbs, length)) for _ in range(count)]
    total, rehearsal = rehearse(protocol, inputs)
    np.testing.assert_array_equal(total, functools.reduce(add, inputs))
    cost = protocol.cost_of(count, (limbs, length))
    assert (len(rehearsal.sent), rehearsal.hops, rehearsal.payload_bytes) == (
        cost.messages,
        cost.hops,
        cost.payload_bytes,
    )


@ALL
@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 40), limbs=st.sampled_from([1, 2]), length=st.integers(1, 50))
def test_sums_are_exact_and_cost_what_they_promise(protocol: SecureSum, count: int, limbs: int, length: int) -> None:
    check_sum(protocol, max(count, protocol.fewest_sites), limbs, length)


@ALL
@pytest.mark.parametrize("length", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 1_000_000])
def test_sums_of_any_length(protocol: SecureSum, length: int) -> None:
    check_sum(protocol, 5, 1, length)


@ALL
def test_a_float_sum_equals_the_sum_of_what_was_encoded(protocol: SecureSum) -> None:
    values = [np.array([[0.1, -2.5, 1e-9]]) * (i + 1) for i in range(5)]
    rehearsal = Rehearsal(sites(5))
    parts: dict[str, Callable[[MemoryChannel], object]] = {
        name: functools.partial(lambda value, channel: protocol.contribute(channel, value, 100.0), value)
        for name, value in zip(rehearsal.sites, values, strict=True)
    }
    parts[COORDINATOR] = lambda channel: protocol.reveal(channel, (1, 3), 100.0)
    np.testing.assert_allclose(rehearsal.play(parts)[COORDINATOR], sum(values), rtol=0, atol=1e-14)  # type: ignore[call-overload]


@ALL
def test_a_value_beyond_the_bound_is_refused_before_anything_is_sent(protocol: SecureSum) -> None:
    rehearsal = Rehearsal(sites(5))

    def contribute(channel: MemoryChannel) -> None:
        protocol.contribute(channel, np.array([math.nan]), 1.0)

    with pytest.raises(BoundExceeded):
        rehearsal.play(dict.fromkeys(rehearsal.sites, contribute))
    assert rehearsal.sent == []


@ALL
@pytest.mark.parametrize("failing", [*sites(5), COORDINATOR])
def test_a_party_that_fails_ends_the_round_for_all(protocol: SecureSum, failing: str) -> None:
    rehearsal = Rehearsal(sites(5))
    vector = uniform_residues((1, 3))

    def part(name: str, channel: MemoryChannel) -> None:
        if name == failing:
            raise ZeroDivisionError
        if name == COORDINATOR:
            protocol.reveal_residues(channel, (1, 3))
        else:
            protocol.contribute_residues(channel, vector)

    with pytest.raises((ZeroDivisionError, RoundAborted)):
        rehearsal.play({name: functools.partial(part, name) for name in (*rehearsal.sites, COORDINATOR)})


def test_a_vector_of_another_length_is_refused() -> None:
    rehearsal = Rehearsal(sites(3))
    lengths = dict(zip(rehearsal.sites, (3, 3, 4), strict=True))
    parts: dict[str, Callable[[MemoryChannel], None]] = {
        name: functools.partial(_contribute, RING, uniform_residues((1, length))) for name, length in lengths.items()
    }
    with pytest.raises(EndpointError, match="site-2 sent"):
        rehearsal.play(parts)


# What the ring reveals.


def bits_seen(view: list[Residues]) -> np.ndarray:
    """How often each of the 64 bits is set, over all residues of a view."""
    residues = np.concatenate([array.ravel() for array in view])
    return np.array([np.count_nonzero(residues >> np.uint64(bit) & np.uint64(1)) / residues.size for bit in range(64)])


def views_of_a_ring() -> list[Residues]:
    """What the second site of four receives, when every input is zero."""
    zero = np.zeros((1, 4000), dtype=np.uint64)
    _, rehearsal = rehearse(RING, [zero] * 4)
    return [message.array for message in rehearsal.sent if message.receiver == "site-2"]


def is_uniform(view: list[Residues]) -> bool:
    """Every bit is set in half of the residues, within five standard deviations."""
    count = sum(array.size for array in view)
    return bool(np.abs(bits_seen(view) - 0.5).max() < 5 * 0.5 / math.sqrt(count))


def test_what_one_site_of_a_ring_sees_is_uniform_whatever_the_inputs_are() -> None:
    assert is_uniform(views_of_a_ring())


def test_the_uniformity_test_sees_a_mask_of_63_bits() -> None:
    assert not is_uniform([uniform_residues((1, 4000)) >> np.uint64(1)])


def test_the_two_neighbours_of_a_site_learn_its_vector_and_one_does_not() -> None:
    inputs = [uniform_residues((1, 5)) for _ in range(5)]
    _, rehearsal = rehearse(RING, inputs)
    (from_first,) = [m.array for m in rehearsal.sent if m.sender == "site-2"]
    (from_victim,) = [m.array for m in rehearsal.sent if m.sender == "site-3"]
    np.testing.assert_array_equal(subtract(from_victim, from_first), inputs[2])
    assert not np.array_equal(from_victim, inputs[2])


def test_a_mask_is_drawn_afresh_for_every_ring() -> None:
    first, second = (rehearse(RING, [np.zeros((1, 9), dtype=np.uint64)] * 3)[1].drawn for _ in range(2))
    assert list(first) == ["site-1"]
    assert not np.array_equal(first["site-1"][0], second["site-1"][0])


# What k-secure and changing neighbours reveal.


@given(st.integers(3, 60), st.data())
def test_segments_go_to_different_sites_and_to_the_ring_neighbours_last(count: int, data: st.DataObject) -> None:
    segments = data.draw(st.integers(2, count))
    chosen = distances(count, segments)
    assert len(set(chosen)) == len(chosen) == segments - 1
    assert 0 not in chosen
    if segments <= count - 2:
        assert not {1, count - 1} & set(chosen)
    assert len(partners(count, count)) == count - 1


@given(st.integers(3, 60))
def test_rings_share_no_edge_and_visit_every_site(count: int) -> None:
    names = sites(count)
    rings = edge_disjoint_rings(names, (count - 1) // 2)
    edges = [frozenset(edge) for ring in rings for edge in zip(ring, (*ring[1:], ring[0]), strict=True)]
    assert all(sorted(ring) == sorted(names) and ring[0] == names[0] for ring in rings)
    assert len(set(edges)) == len(edges) == len(rings) * count


@pytest.mark.parametrize("protocol", [k_secure(5), changing_neighbours(2)], ids=["k-secure", "changing-neighbours"])
def test_the_two_ring_neighbours_alone_no_longer_learn_a_vector(protocol: SecureSum) -> None:
    """The attack that breaks the ring: what went out less what came in, over every pair of messages seen."""
    inputs = [uniform_residues((1, 5)) for _ in range(5)]
    _, rehearsal = rehearse(protocol, inputs)
    seen = [m.array for m in rehearsal.sent if {m.sender, m.receiver} & {"site-2", "site-4"}]
    for one in seen:
        assert not any(np.array_equal(subtract(one, other), inputs[2]) for other in seen)


def test_all_partners_of_a_site_together_learn_its_vector() -> None:
    """Its block, which its ring neighbours know, plus what it gave away, less what it was given."""
    inputs = [uniform_residues((1, 5)) for _ in range(6)]
    _, rehearsal = rehearse(k_secure(3), inputs)
    by_link = {(m.sender, m.receiver): m.array for m in rehearsal.sent}
    assert distances(6, 3) == [2, 3]
    learnt = subtract(by_link["site-3", "site-4"], by_link["site-2", "site-3"])
    for partner in ("site-5", "site-6"):
        learnt = add(learnt, by_link["site-3", partner])
    for partner in ("site-1", "site-6"):
        learnt = subtract(learnt, by_link[partner, "site-3"])
    np.testing.assert_array_equal(learnt, inputs[2])


@pytest.mark.parametrize("protocol", [k_secure(3), changing_neighbours(2)], ids=["k-secure", "changing-neighbours"])
def test_what_one_site_sees_of_the_others_is_uniform(protocol: SecureSum) -> None:
    zero = np.zeros((1, 4000), dtype=np.uint64)
    _, rehearsal = rehearse(protocol, [zero] * 5)
    assert is_uniform([message.array for message in rehearsal.sent if message.receiver == "site-2"])


# Seeds and orders that only the sites know.


def test_sites_share_a_seed_that_the_coordinator_is_not_sent() -> None:
    rehearsal = Rehearsal(sites(5))
    seeds = rehearsal.play(dict.fromkeys(rehearsal.sites, common_seed))
    assert len({seed.tobytes() for seed in seeds.values()}) == 1
    assert len(seeds["site-1"].tobytes()) == 32
    assert len(rehearsal.sent) == rehearsal.hops == 4
    assert all(message.receiver != COORDINATOR for message in rehearsal.sent)


@given(st.integers(0, 200), st.text(max_size=5))
def test_a_secret_order_is_a_permutation_that_seed_and_purpose_decide(count: int, purpose: str) -> None:
    seed = uniform_residues((1, 4))
    order = secret_order(seed, purpose, count)
    assert sorted(order.tolist()) == list(range(count))
    np.testing.assert_array_equal(order, secret_order(seed, purpose, count))
    if count > 20:
        assert not np.array_equal(order, secret_order(seed, purpose + "!", count))
        assert not np.array_equal(order, secret_order(uniform_residues((1, 4)), purpose, count))


# The same functions over real processes and sockets.


@pytest.mark.parametrize(
    ("protocol", "transport", "encrypted"),
    [
        ("ring", "tcp", True),
        ("ring", "tcp", False),
        ("ring", "ipc", False),
        ("plain", "tcp", True),
        ("k-secure", "tcp", True),
        ("changing-neighbours", "tcp", True),
        ("plain", "ipc", False),
    ],
)
def test_sums_over_sockets_equal_the_formula_and_the_prediction(protocol: str, transport: str, encrypted: bool) -> None:
    with drill(5, protocol=protocol, transport=transport, encrypted=encrypted) as federation:
        long = np.linspace(-1, 1, CHUNK + 7)
        np.testing.assert_allclose(federation.sum("total", shape=(3,), bound=1e3), [130.0, 150.0, 170.0], atol=1e-9)
        np.testing.assert_allclose(
            federation.sum("echo", shape=long.shape, bound=9.0, vector=long), 5 * long, atol=1e-12
        )
        costs = [sum_protocol(protocol).cost(5, (3,), 1e3), sum_protocol(protocol).cost(5, long.shape, 9.0)]
    links = list(federation.accounts.select(control=False))
    for number, cost in enumerate(costs, start=1):
        of_round = [traffic for link, traffic in links if link.round == number]
        assert sum(traffic.messages for traffic in of_round) == cost.messages
        assert sum(traffic.payload_bytes for traffic in of_round) == cost.payload_bytes
        assert federation.accounts.rounds[number].hops == cost.hops
    every = [*links, *federation.accounts.select(control=True)]
    for link, traffic in every:
        assert traffic.wire_bytes == (traffic.predicted_wire_bytes if transport == "tcp" else None), link
    for entry in (entry for link, entry in federation.accounts.entries.items() if not link.control):
        assert entry.sent is not None
        assert entry.received is not None
        assert entry.sent.payload_bytes == entry.received.payload_bytes
        assert entry.sent.predicted_wire_bytes == entry.received.predicted_wire_bytes
