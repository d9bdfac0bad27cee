"""Secure sums: one conformance check, a line per sum, and what each reveals."""

from __future__ import annotations

import functools
import hashlib
import math
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.agreement import keystreams
from fedsvm.federation.channel.interface import Channel, uniform_residues
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.errors import PeerDropped, PeerLate, ProtocolError, StepRefused
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis import sum_conformance
from fedsvm.protocols.analysis.execution import Execution, execute, site_names
from fedsvm.protocols.arithmetic import shamir
from fedsvm.protocols.arithmetic.fixed_point import add, subtract
from fedsvm.protocols.common_seed import common_seed
from fedsvm.protocols.secret_order import secret_order
from fedsvm.protocols.sums import masked as masked_sum
from fedsvm.protocols.sums import registry
from fedsvm.protocols.sums.additive_shares import additive_shares
from fedsvm.protocols.sums.changing_neighbours import changing_neighbours, edge_disjoint_rings
from fedsvm.protocols.sums.consent import LIST, MISSING, OPEN, Consent
from fedsvm.protocols.sums.k_secure import distances, k_secure, partners
from fedsvm.protocols.sums.masked import SEALED_WORDS, SECRET_WORDS, masked, requests
from fedsvm.protocols.sums.neighbourhoods import MAX_NEIGHBOURS, DropoutThreshold, neighbourhood, neighbourhoods
from fedsvm.protocols.sums.plain import PLAIN
from fedsvm.protocols.sums.ring import CHUNK, RING
from fedsvm.protocols.sums.secure_sum import Cost, SecureSum
from tests.conftest import drill, sum_protocol

PROTOCOLS = [
    PLAIN,
    RING,
    pytest.param(k_secure(2), marks=pytest.mark.long),
    k_secure(3),
    pytest.param(k_secure(5), marks=pytest.mark.long),
    pytest.param(changing_neighbours(1), marks=pytest.mark.long),
    changing_neighbours(2),
    masked(0.6),
    additive_shares(2),
]
ALL = pytest.mark.parametrize(
    "protocol", PROTOCOLS, ids=lambda protocol: "-".join(map(str, (protocol.name, *protocol.options.values())))
)


def run_sum(protocol: SecureSum, vectors: Sequence[Residues], network: InMemoryNetwork | None = None) -> Execution:
    """One sum in memory of the vectors of site-1, site-2, …"""
    return execute(protocol, dict(zip(site_names(len(vectors)), vectors, strict=True)), network)


@ALL
def test_every_sum_keeps_what_it_must(protocol: SecureSum) -> None:
    assert len(list(sum_conformance.check_sum(protocol))) == 5


@ALL
def test_a_site_sends_to_those_that_it_says_it_does(protocol: SecureSum) -> None:
    """So that all connections are made at once, and none that no message needs."""
    sites = site_names(max(protocol.min_sites, 6))
    record = run_sum(protocol, [uniform_residues((1, 4)) for _ in sites]).record
    sent = {(label.peer, label.party) for label in record if label.what == "received" and label.peer != COORDINATOR}
    assert sent == {(site, peer) for site in sites for peer in protocol.sends_to(site, sites)}


@ALL
@settings(max_examples=40)
@given(count=st.integers(1, 40), limbs=st.sampled_from([1, 2]), length=st.integers(1, 50))
def test_sums_are_exact_and_cost_what_they_promise(protocol: SecureSum, count: int, limbs: int, length: int) -> None:
    sum_conformance.check_exact(protocol, max(count, protocol.min_sites), (limbs, length))


@ALL
@pytest.mark.parametrize("length", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 1_000_000])
def test_sums_of_any_length(protocol: SecureSum, length: int) -> None:
    sum_conformance.check_exact(protocol, 5, (1, length))


@pytest.mark.parametrize(
    ("protocol", "count"),
    [
        (changing_neighbours(2), 6),
        (changing_neighbours(3), 7),
        (changing_neighbours(3), 8),
        (changing_neighbours(4), 11),
        (k_secure(5), 5),
        (k_secure(4), 5),
    ],
    ids=lambda each: each.described if isinstance(each, SecureSum) else str(each),
)
def test_sums_of_some_chunks_cost_what_they_promise(protocol: SecureSum, count: int) -> None:
    """Check sums in which a site has other places in each ring, or two vectors of one peer."""
    sum_conformance.check_exact(protocol, count, (2, 3 * CHUNK + 1))


@pytest.mark.parametrize("protocol", [PLAIN, masked(0.6)], ids=lambda protocol: protocol.name)
@pytest.mark.parametrize("message", range(1, 6))
def test_a_site_that_dies_among_its_chunks_is_not_in_the_sum(protocol: SecureSum, message: int) -> None:
    """Three chunks, and then the shares."""
    inputs = [uniform_residues((1, 2 * CHUNK + 9)) for _ in range(5)]
    total = run_sum(protocol, inputs, InMemoryNetwork(site_names(5), deaths={"site-2": message})).total
    stays = message > (3 if protocol is PLAIN else 4)
    expected = [vector for number, vector in enumerate(inputs) if stays or number != 1]
    np.testing.assert_array_equal(total, functools.reduce(add, expected))


@pytest.mark.parametrize("protocol", [PLAIN, masked(0.6)], ids=lambda protocol: protocol.name)
@pytest.mark.parametrize("message", range(1, 9))
def test_some_sums_are_recovered_when_a_site_dies(protocol: SecureSum, message: int) -> None:
    inputs = [uniform_residues((1, 3)) for _ in range(5)]
    everyone = functools.reduce(add, inputs)
    for number, site in enumerate(site_names(5)):
        total = run_sum(protocol, inputs, InMemoryNetwork(site_names(5), deaths={site: message})).total
        assert total is not None
        assert any(np.array_equal(total, right) for right in (everyone, subtract(everyone, inputs[number])))


def _leaky(channel: Channel, vector: Residues) -> None:
    """A ring whose first site forgets to mask."""
    ring = channel.sites
    place = ring.index(channel.me)
    received = channel.receive(ring[place - 1], vector.shape) if place else np.zeros_like(vector)
    channel.send(ring[place + 1] if place + 1 < len(ring) else COORDINATOR, add(received, vector))


def _at_the_last(channel: Channel, shape: tuple[int, int]) -> Residues:
    return channel.receive(channel.sites[-1], shape)


def _nothing(channel: Channel, shape: tuple[int, int]) -> Any:
    RING.reveal_residues(channel, shape)


def _one_way(sites: int, shape: tuple[int, int]) -> Cost:
    return Cost(sites, sites, sites * math.prod(shape) * 8)


LEAKY = SecureSum("leaky", _leaky, _at_the_last, _one_way, lambda sites: 1, min_sites=2)


@pytest.mark.parametrize(
    ("protocol", "says"),
    [
        (replace(RING, cost_of=lambda sites, shape: Cost(1, 1, 1)), "costs Cost.* and cost_of says Cost"),
        (replace(RING, reveal_residues=lambda channel, shape: np.zeros(shape, dtype=np.uint64)), "is not that of the"),
        (replace(RING, smallest_coalition=lambda sites: 3), "2 of 4 sites .* and smallest_coalition says 3"),
        (LEAKY, "site-2 alone learns the input of site-1, and nothing in a result would say so"),
        (replace(LEAKY, min_sites=1), "min_sites must be 2 or more, got 1"),
        (
            replace(PLAIN, discloses="sum", min_sites=2),
            "discloses must be 'value', got 'sum': the coordinator alone learns the",
        ),
        (
            replace(RING, discloses="value"),
            "discloses must be 'sum', got 'value': the coordinator alone learns no",
        ),
        (replace(RING, reveal_residues=_nothing), "returns nothing; it must return the sum"),
    ],
    ids=["cost", "sum", "secrecy", "leak", "alone", "shown", "hidden", "nothing"],
)
def test_a_sum_that_keeps_something_not_is_found_out(protocol: SecureSum, says: str) -> None:
    with pytest.raises(sum_conformance.ConformanceError, match=says):
        list(sum_conformance.check_sum(protocol))


def test_a_vector_of_another_length_is_refused() -> None:
    network = InMemoryNetwork(site_names(3))
    lengths = dict(zip(network.sites, (3, 3, 4), strict=True))
    parts: dict[str, Callable[[MemoryChannel], None]] = {
        name: functools.partial(lambda vector, channel: RING.contribute_residues(channel, vector), vector)
        for name, vector in ((name, uniform_residues((1, length))) for name, length in lengths.items())
    }
    with pytest.raises(ProtocolError, match="site-2 sent") as caught:
        network.run(parts)
    error = caught.value
    assert (error.sender, error.receiver) == ("site-2", "site-3")
    assert (error.expected, error.got) == ("uint64 (1, 4)", "uint64 (1, 3)")


def test_a_sum_of_another_package_is_accepted_by_its_own_name_alone() -> None:
    make = registry._accept(RING, "ring")
    assert make is not None
    assert make() is RING
    assert registry._accept(RING, "masked") is registry._accept(object(), "ring") is None


# What the ring reveals.


def bits_seen(view: list[Residues]) -> np.ndarray:
    """Return how often each of the 64 bits is set, over all residues of a view."""
    residues = np.concatenate([array.ravel() for array in view])
    return np.array([np.count_nonzero(residues >> np.uint64(bit) & np.uint64(1)) / residues.size for bit in range(64)])


def views_of_a_ring() -> list[Residues]:
    """Return what the second site of four receives, when every input is zero."""
    zero = np.zeros((1, 4000), dtype=np.uint64)
    network = run_sum(RING, [zero] * 4).network
    return [message.array for message in network.sent if message.receiver == "site-2"]


def is_uniform(view: list[Residues]) -> bool:
    """Every bit is set in half of the residues, within five standard deviations."""
    count = sum(array.size for array in view)
    return bool(np.abs(bits_seen(view) - 0.5).max() < 5 * 0.5 / math.sqrt(count))


def test_what_one_site_of_a_ring_sees_is_uniform_whatever_the_inputs_are() -> None:
    assert is_uniform(views_of_a_ring())


@dataclass
class WeakNetwork(InMemoryNetwork):
    """A network whose parties draw fewer bits than they should: the test double of a careless implementation."""

    bits: int = 64

    def _channel(self, name: str) -> MemoryChannel:
        return _WeakChannel(self, name)


class _WeakChannel(MemoryChannel):
    _network: WeakNetwork

    def random(self, shape: Sequence[int]) -> Residues:
        return super().random(shape) >> np.uint64(64 - self._network.bits)


@pytest.mark.parametrize("bits", [64, 63, 40])
def test_the_uniformity_test_sees_a_mask_of_63_bits(bits: int) -> None:
    zero = np.zeros((1, 4000), dtype=np.uint64)
    network = run_sum(RING, [zero] * 4, WeakNetwork(site_names(4), bits=bits)).network
    view = [message.array for message in network.sent if message.receiver == "site-2"]
    assert is_uniform(view) == (bits == 64)


@pytest.mark.parametrize("bits", [64, 63, 40])
def test_the_uniformity_test_sees_segments_that_are_not_residues(bits: int) -> None:
    zero = np.zeros((1, 4000), dtype=np.uint64)
    network = run_sum(k_secure(3), [zero] * 5, WeakNetwork(site_names(5), bits=bits)).network
    view = [message.array for message in network.sent if message.sender == "site-2" and message.receiver == "site-4"]
    assert is_uniform(view) == (bits == 64)


def test_the_two_neighbours_of_a_site_learn_its_vector_and_one_does_not() -> None:
    inputs = [uniform_residues((1, 5)) for _ in range(5)]
    network = run_sum(RING, inputs).network
    (from_first,) = [m.array for m in network.sent if m.sender == "site-2"]
    (from_victim,) = [m.array for m in network.sent if m.sender == "site-3"]
    np.testing.assert_array_equal(subtract(from_victim, from_first), inputs[2])
    assert not np.array_equal(from_victim, inputs[2])


def test_a_mask_is_drawn_afresh_for_every_ring() -> None:
    first, second = (run_sum(RING, [np.zeros((1, 9), dtype=np.uint64)] * 3).network.drawn for _ in range(2))
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
    everyone = site_names(count)
    rings = edge_disjoint_rings(everyone, (count - 1) // 2)
    edges = [frozenset(edge) for ring in rings for edge in zip(ring, (*ring[1:], ring[0]), strict=True)]
    assert all(sorted(ring) == sorted(everyone) and ring[0] == everyone[0] for ring in rings)
    assert len(set(edges)) == len(edges) == len(rings) * count


@pytest.mark.parametrize("protocol", [k_secure(5), changing_neighbours(2)], ids=["k-secure", "changing-neighbours"])
def test_the_two_ring_neighbours_alone_no_longer_learn_a_vector(protocol: SecureSum) -> None:
    """The attack that breaks the ring: what went out less what came in, over every pair of messages seen."""
    inputs = [uniform_residues((1, 5)) for _ in range(5)]
    network = run_sum(protocol, inputs).network
    seen = [m.array for m in network.sent if {m.sender, m.receiver} & {"site-2", "site-4"}]
    for one in seen:
        assert not any(np.array_equal(subtract(one, other), inputs[2]) for other in seen)


def test_all_partners_of_a_site_together_learn_its_vector() -> None:
    """Its block, which its ring neighbours know, plus what it gave away, less what it was given."""
    inputs = [uniform_residues((1, 5)) for _ in range(6)]
    network = run_sum(k_secure(3), inputs).network
    by_link = {(m.sender, m.receiver): m.array for m in network.sent}
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
    network = run_sum(protocol, [zero] * 5).network
    assert is_uniform([message.array for message in network.sent if message.receiver == "site-2"])


# The masked sum.


@settings(max_examples=25)
@given(count=st.integers(4, 12), data=st.data())
def test_a_masked_sum_is_that_of_the_sites_that_stay(count: int, data: st.DataObject) -> None:
    """Sites die before any of their messages, as many as the threshold allows."""
    protocol = masked(0.6)
    most = count - DropoutThreshold(0.6, count).neighbourhood
    dying = data.draw(st.lists(st.sampled_from(site_names(count)), unique=True, max_size=most))
    deaths = {site: data.draw(st.integers(1, 4)) for site in dying}
    inputs = [uniform_residues((2, 5)) for _ in range(count)]
    total = run_sum(protocol, inputs, InMemoryNetwork(site_names(count), deaths=deaths)).total
    in_the_sum = {site for site in site_names(count) if deaths.get(site, 9) > 2}
    message = 3  # each question for the seeds of the missing is answered by one more message
    while len(in_the_sum) < count and any(deaths.get(site) == message for site in in_the_sum):
        in_the_sum -= {site for site in in_the_sum if deaths.get(site) == message}
        message += 1
    expected = [vector for site, vector in zip(site_names(count), inputs, strict=True) if site in in_the_sum]
    np.testing.assert_array_equal(total, functools.reduce(add, expected))


def test_a_masked_sum_with_too_few_sites_left_reveals_nothing() -> None:
    deaths = {"site-1": 1, "site-2": 2, "site-3": 1}
    with pytest.raises(PeerDropped, match=r"2 sites around .* are left and a masked sum needs 3; nothing was revealed"):
        run_sum(masked(0.6), [uniform_residues((1, 3))] * 5, InMemoryNetwork(site_names(5), deaths=deaths))


@pytest.mark.parametrize("left", [4, 3])
def test_a_masked_sum_counts_its_threshold_from_the_sites_of_the_run(left: int) -> None:
    """Of six sites four must be in a sum, whether the others drop in this round or dropped before it."""
    inputs = [uniform_residues((1, 3)) for _ in range(4)]
    network = InMemoryNetwork(site_names(4), deaths={"site-2": 1} if left == 3 else {}, run_sites=6)
    if left == 4:
        np.testing.assert_array_equal(run_sum(masked(0.6), inputs, network).total, functools.reduce(add, inputs))
        return
    with pytest.raises(PeerDropped, match=r"3 sites around .* are left and a masked sum needs 4; nothing was revealed"):
        run_sum(masked(0.6), inputs, network)


def test_a_masked_sum_of_fewer_sites_than_the_run_needs_reveals_nothing() -> None:
    """The threshold of five sites would be three."""
    network = InMemoryNetwork(site_names(5), deaths={"site-2": 1}, min_sites=5)
    with pytest.raises(PeerDropped, match="4 sites are left and a masked sum needs 5; nothing was revealed"):
        run_sum(masked(0.6), [uniform_residues((1, 3))] * 5, network)


def test_what_the_coordinator_sees_of_a_masked_site_is_uniform() -> None:
    zero = np.zeros((1, 4000), dtype=np.uint64)
    network = run_sum(masked(0.6), [zero] * 3).network
    assert is_uniform([message.array for message in network.sent if message.array.shape == (1, 4000)])


@example(50)
@example(51)
@example(52)
@given(st.integers(2, 130))
def test_neighbourhoods_are_mutual_and_of_one_size(count: int) -> None:
    groups = neighbourhoods(site_names(count)).all
    assert {len(group) for group in groups.values()} == {min(count, MAX_NEIGHBOURS + 1)}
    assert all(site in groups[peer] for site, group in groups.items() for peer in group)


def test_neighbours_are_the_nearest_on_a_circle_that_the_keys_of_all_sites_shuffle() -> None:
    """In ring order. Nobody's name decides who the neighbours are, and neither does who dropped."""
    sites, seed = site_names(60), bytes(range(32))
    circle = sorted(sites, key=lambda site: hashlib.sha256(seed + site.encode()).digest())
    confirming = tuple(sorted(circle[:51], key=sites.index))
    for turn, site in enumerate(circle):
        near = {circle[(turn + step) % 60] for step in range(-25, 26)}
        assert neighbourhoods(sites, seed).of(site) == tuple(each for each in sites if each in near)
        assert neighbourhood(sites, site, seed) == (neighbourhoods(sites, seed).of(site), confirming)
    assert neighbourhoods(sites, bytes(32)).all != neighbourhoods(sites, seed).all
    gone = circle[30]
    near_first = neighbourhoods(tuple(site for site in sites if site != gone), seed).of(circle[0])
    assert set(neighbourhoods(sites, seed).of(circle[0])) <= {*near_first, gone}


def test_a_sparse_masked_sum_takes_the_messages_of_its_formula() -> None:
    run = run_sum(masked(), [uniform_residues((1, 4)) for _ in range(60)])
    sent = run.network.sent
    assert masked_sum.masked_cost(60, (1, 4)) == Cost(
        len(sent), run.network.hops, sum(message.array.nbytes for message in sent)
    )


@pytest.mark.parametrize("count", [52, 70])
def test_a_sparse_masked_sum_survives_dropouts(count: int) -> None:
    inputs = [uniform_residues((1, 4)) for _ in range(count)]
    total = run_sum(masked(0.6), inputs, InMemoryNetwork(site_names(count), deaths={"site-7": 1, "site-30": 2})).total
    expected = [vector for number, vector in enumerate(inputs, start=1) if number not in (7, 30)]
    np.testing.assert_array_equal(total, functools.reduce(add, expected))


GROUP = frozenset(site_names(5))


@pytest.mark.parametrize(
    ("requests", "refusal"),
    [
        ([(MISSING, GROUP - {"site-3"}), (OPEN, GROUP)], "both masks of site-3"),
        ([(OPEN, GROUP), (MISSING, GROUP - {"site-3"})], "opened already; it opens no second set"),
        ([(OPEN, GROUP), (OPEN, GROUP - {"site-3"})], "opened already"),
        ([(MISSING, GROUP - {"site-3"}), (MISSING, GROUP - {"site-4"})], "both masks of site-3"),
        ([(OPEN, GROUP - {"site-1"})], "a sum that it is not in"),
        ([(OPEN, GROUP - {"site-3", "site-4"})], "3 of 5 sites are in the sum and 4 must be"),
    ],
)
def test_a_site_refuses_what_would_open_both_halves(requests: list[tuple[int, frozenset[str]]], refusal: str) -> None:
    consent = Consent("site-1", site_names(5), threshold=4)
    *allowed, (stage, present) = requests
    for request in allowed:
        consent.agree(*request)
    with pytest.raises(StepRefused, match=refusal):
        consent.agree(stage, present)


def test_a_site_helps_with_a_list_of_the_missing_that_grows() -> None:
    consent = Consent("site-1", site_names(5), threshold=3)
    for stage, present in [(MISSING, GROUP - {"site-3"}), (MISSING, GROUP - {"site-3", "site-4"})]:
        consent.agree(stage, present)
    consent.agree(LIST, GROUP - {"site-3", "site-4"})
    consent.listed = b"digest"
    consent.agree(OPEN, GROUP - {"site-3", "site-4"})
    consent.confirm(b"digest", [b"digest"] * 2)
    assert consent.opened


@pytest.mark.parametrize(
    ("sealed", "listed", "digests", "refusal"),
    [
        (b"digest", b"digest", [b"digest"], "2 sites confirm the list of the sites in the sum and 3 must"),
        (b"", b"digest", [b"digest"] * 2, "2 sites confirm the list of the sites in the sum and 3 must"),
        (b"", b"digest", [], "0 sites confirm"),
        (b"digest", b"digest", [b"digest", b"other"], "sent others another list"),
        (b"digest", b"other", [b"other"] * 4, "sent others another list"),
    ],
)
def test_a_site_opens_shares_by_one_list_that_others_confirm(
    sealed: bytes, listed: bytes, digests: list[bytes], refusal: str
) -> None:
    """Also a site that confirms no list itself, since it sealed none."""
    consent = Consent("site-1", site_names(5), threshold=3, listed=sealed)
    with pytest.raises(StepRefused, match=refusal):
        consent.confirm(listed, digests)


@pytest.mark.parametrize(("stage", "gone"), [(LIST, {"site-3"}), (MISSING, {"site-3"}), (OPEN, {"site-3", "site-4"})])
def test_a_site_that_confirmed_a_list_takes_no_second_one(stage: int, gone: set[str]) -> None:
    consent = Consent("site-1", site_names(5), threshold=3)
    consent.agree(LIST, GROUP - {"site-3"})
    consent.listed = b"digest"
    with pytest.raises(StepRefused, match="it accepts no second one"):
        consent.agree(stage, GROUP - gone)


def uniform_elements(count: int) -> shamir.Elements:
    """(count, 8), uniform below the prime."""
    return np.array([[secrets.randbelow(shamir.PRIME) for _ in range(8)] for _ in range(count)], dtype=np.uint32)


@given(st.integers(1, 60), st.data())
def test_any_threshold_of_shares_gives_the_secret_and_fewer_do_not(holders: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, holders))
    coefficients = uniform_elements(threshold)
    shares = shamir.split(coefficients, holders)
    chosen = tuple(data.draw(st.permutations(range(1, holders + 1))))[:threshold]
    known = shares[[holder - 1 for holder in chosen]]
    np.testing.assert_array_equal(shamir.combine(chosen, known), coefficients[0])
    if threshold > 1:
        assert not np.array_equal(shamir.combine(chosen[:-1], known[:-1]), coefficients[0])


@given(st.integers(1, 51), st.sampled_from([0, 1, 2**16 - 1, 2**16, shamir.PRIME - 1]))
def test_shares_are_the_values_of_a_polynomial_over_the_integers_modulo_the_prime(threshold: int, entry: int) -> None:
    """Also where every product is as large as it can be."""
    coefficients = np.full((threshold, 8), entry, dtype=np.uint32)
    shares = shamir.split(coefficients, 51)
    expected = [sum(entry * pow(x, k, shamir.PRIME) for k in range(threshold)) % shamir.PRIME for x in range(1, 52)]
    np.testing.assert_array_equal(shares, np.array([expected] * 8).T)
    many = np.stack([shares[:threshold]] * 3)
    np.testing.assert_array_equal(
        shamir.combine(tuple(range(1, threshold + 1)), many), coefficients[:1].repeat(3, axis=0)
    )


# Seeds and orders that only the sites know.


def test_sites_share_a_seed_that_the_coordinator_is_not_sent() -> None:
    network = InMemoryNetwork(site_names(5))
    seeds = network.run(dict.fromkeys(network.sites, common_seed))
    assert len({seed.tobytes() for seed in seeds.values()}) == 1
    assert len(seeds["site-1"].tobytes()) == 32
    assert len(network.sent) == network.hops == 4
    assert all(message.receiver != COORDINATOR for message in network.sent)


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
        ("masked", "tcp", True),
        ("masked", "tcp", False),
        ("masked", "ipc", False),
        ("plain", "ipc", False),
    ],
)
def test_sums_over_sockets_equal_the_formula_and_the_prediction(
    protocol: str, transport: Literal["tcp", "ipc"], encrypted: bool
) -> None:
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


def ask_a_site(rows: Residues, run_sites: int = 5, min_sites: int = 1) -> None:
    """Have a coordinator send site-1 of five this request. Raises what the site raises."""
    network = InMemoryNetwork(site_names(5), timeout_s=9, run_sites=run_sites, min_sites=min_sites)

    def ask(channel: Channel) -> None:
        channel.receive("site-1", (1, 3))
        channel.receive("site-1", (4, SEALED_WORDS))
        channel.send("site-1", rows)

    def contribute(channel: Channel) -> None:
        masked(0.6).contribute_residues(channel, uniform_residues((1, 3)))

    network.run({"site-1": contribute, COORDINATOR: ask})


def request_without(*missing: int, stage: int = MISSING) -> Residues:
    """Return the request to site-1 of five when the sites of these numbers are missing."""
    there = np.array([number not in missing for number in range(5)])
    rows: Residues = requests(neighbourhoods(site_names(5)), stage, there)[0]
    return rows


@pytest.mark.parametrize(("run_sites", "min_sites", "must"), [(5, 5, 5), (8, 1, 5), (8, 4, 5)])
def test_a_site_itself_refuses_a_masked_sum_of_too_few(run_sites: int, min_sites: int, must: int) -> None:
    """Whatever the coordinator lets pass."""
    for stage in (MISSING, OPEN):
        with pytest.raises(StepRefused, match=f"^4 of 5 sites are in the sum and {must} must be$"):
            ask_a_site(request_without(4, stage=stage), run_sites, min_sites)


def test_a_site_refuses_requests_that_the_protocol_does_not_know() -> None:
    unknown = [request_without(stage=4), request_without(4, stage=2**40), request_without(), request_without(4)]
    unknown[2][3, 0], unknown[3][3, 0] = 2, 2**63
    for rows in unknown:
        with pytest.raises(StepRefused, match=r"^the coordinator asks for something that the protocol does not know$"):
            ask_a_site(rows)


def test_coefficients_of_shares_are_below_the_prime_and_uniform() -> None:
    """A draw that is not is drawn again, instead of being reduced."""
    words = [shamir.PRIME, 2**32 - 1, shamir.PRIME - 1, 0, 5, shamir.PRIME + 1, 6, 7]
    draws = [np.array(words, dtype=np.uint32), np.full(8, shamir.PRIME, dtype=np.uint32), np.arange(8, dtype=np.uint32)]

    class Given(MemoryChannel):
        def random(self, shape: Sequence[int]) -> Residues:
            return draws.pop(0).view(np.uint64).reshape(shape)

    drawn = masked_sum._draw(Given(InMemoryNetwork(site_names(3)), "site-1"), 1)
    assert drawn.tolist() == [[0, 1, shamir.PRIME - 1, 0, 5, 5, 6, 7]]
    assert draws == []


@pytest.mark.parametrize("colluders", [0, 1])
def test_a_lying_coordinator_needs_the_threshold_less_one_of_colluders(colluders: int) -> None:
    """It has one site open its share of its own mask, and tells the others that this site is missing."""
    sites, shape = site_names(3), (1, 3)
    first, second, third = sites
    inputs = dict(zip(sites, uniform_residues((3, *shape)), strict=True))
    network, graph = InMemoryNetwork(sites, timeout_s=0.5), neighbourhoods(sites)
    assert DropoutThreshold(0.6, 3).neighbourhood == 2
    learnt: list[Residues] = []

    def contribute(channel: Channel) -> None:
        with suppress(PeerLate, PeerDropped):  # the coordinator ends here
            masked(0.6).contribute(channel, inputs[channel.me], COORDINATOR)

    def lie(channel: Channel) -> None:
        vectors = channel.collect(dict.fromkeys(sites, shape))
        sealed = channel.collect(dict.fromkeys(sites, (2, SEALED_WORDS)))
        by = np.zeros((3, 3, SEALED_WORDS), dtype=np.uint64)
        for place, site in enumerate(sites):
            by[place][graph.members[place] != place] = sealed[site]
        everybody, others = np.ones(3, dtype=bool), np.array([False, True, True])
        channel.send(first, requests(graph, OPEN, everybody, by[graph.members, graph.place_at])[0])
        own = channel.receive(first, (3, SECRET_WORDS))[0]
        channel.send(second, requests(graph, MISSING, others)[1])
        seeds = [channel.receive(second, (1, SECRET_WORDS))[0].tobytes()]
        if colluders:
            accomplice = MemoryChannel(network, third)
            seeds += accomplice.shared_secrets([first], "masked sum")
            content = accomplice.unseal({first: sealed[first][1].tobytes()}, "masked sum")[0]
            shares = np.stack([own.view(np.uint32), np.frombuffer(content, dtype=np.uint32)])
            seeds.append(shamir.combine((1, 3), shares).tobytes())
        total = vectors[first].copy()
        for seed in seeds:
            total = subtract(total, keystreams([seed], shape)[0])
        learnt.append(total)

    network.run({**dict.fromkeys(sites, contribute), COORDINATOR: lie})
    assert np.array_equal(learnt[0], inputs[first]) == bool(colluders)
