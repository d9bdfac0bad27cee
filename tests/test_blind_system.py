"""A system that nobody sees: the right solution at its cost, and what each coalition has of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.contract import Channel
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.errors import BoundExceeded, FederationError, RoundAborted, StepRefused, Transient
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols import blind_system
from fedsvm.protocols.analysis.execution import Execution, site_names
from fedsvm.protocols.arithmetic.residue_numbers import symmetric, upper
from fedsvm.protocols.blind_parameters import BlindSystem
from fedsvm.protocols.blind_system import blind_systems_cost, contribute_to_systems, solve_blind_systems
from fedsvm.protocols.common_seed import SHAPE
from fedsvm.protocols.sums.contract import SecureSum
from fedsvm.protocols.sums.registry import SUMS

RING = SUMS["ring"]()
Committee = tuple[str, str, str]


@dataclass
class Posed:
    """A system over some sites, and their parts."""

    system: BlindSystem
    entries: dict[str, FloatArray]
    matrix: FloatArray
    right: FloatArray

    @classmethod
    def random(cls, sites: int, size: int, problems: int = 1, condition: float = 1e3, seed: int = 0) -> Posed:
        random = np.random.default_rng(seed)
        turn = np.linalg.qr(random.standard_normal((size, size)))[0]
        roots = turn * np.logspace(0, np.log10(condition) / 2, size)
        parts = [roots[:, place::sites] @ roots[:, place::sites].T for place in range(sites)]
        rights = random.standard_normal((sites, problems, size))
        matrix, right = np.sum(parts, axis=0), rights.sum(axis=0)
        scale = 2.0 ** math.frexp(max(float(np.abs(matrix).max()), float(np.abs(rights).sum(axis=0).max())))[1]
        rows = np.triu_indices(size)
        names = site_names(sites)
        entries = {
            name: np.concatenate([part[rows], of_site.ravel()])
            for name, part, of_site in zip(names, parts, rights, strict=True)
        }
        return cls(BlindSystem(size, problems, scale, 0.5, 1), entries, matrix, right)

    @property
    def whole(self) -> FloatArray:
        """With the penalty."""
        penalties = np.full(len(self.matrix), 0.5)
        penalties[-1] = 0.0
        return self.matrix + np.diag(penalties)

    @property
    def solution(self) -> FloatArray:
        return np.asarray(np.linalg.solve(self.whole, self.right.T).T)


def solved(
    posed: Posed,
    total: SecureSum = RING,
    network: InMemoryNetwork | None = None,
    coordinator: Callable[[Any], FloatArray] | None = None,
) -> tuple[FloatArray, InMemoryNetwork]:
    network = network or InMemoryNetwork(tuple(posed.entries))

    def part(channel: Channel) -> Any:
        return contribute_to_systems(channel, total, [posed.system], [posed.entries[channel.me]])

    parties: dict[str, Callable[[Any], Any]] = dict.fromkeys(posed.entries, part)
    parties[COORDINATOR] = coordinator or (lambda channel: solve_blind_systems(channel, total, [posed.system])[0].found)
    return network.run(parties)[COORDINATOR], network


def committee_of(network: InMemoryNetwork) -> Committee:
    (told,) = [m.array for m in network.sent if m.receiver == COORDINATOR and m.array.shape == (1, 3)][:1]
    first, second, dealer = (network.sites[int(place)] for place in told[0])
    return first, second, dealer


def between(network: InMemoryNetwork, sender: str, receiver: str) -> list[Any]:
    return [m.array for m in network.sent if (m.sender, m.receiver) == (sender, receiver)]


# The solution and its cost.


@pytest.mark.parametrize(("sites", "size", "problems"), [(3, 2, 1), (4, 7, 3), (8, 5, 2)])
@pytest.mark.parametrize("name", ["ring", "masked"])
def test_the_solution_is_that_of_the_system_at_the_cost_of_the_formula(
    name: str, sites: int, size: int, problems: int
) -> None:
    posed, total = Posed.random(sites, size, problems), SUMS[name]()
    found, network = solved(posed, total)
    np.testing.assert_allclose(found, posed.solution, rtol=1e-7, atol=1e-9)
    cost, stated = Execution({}, None, network).cost, blind_systems_cost(total, sites, [posed.system])
    assert (cost.messages, cost.payload_bytes) == (stated.messages, stated.payload_bytes)
    assert cost.hops <= stated.hops


@pytest.mark.parametrize("condition", [1e2, 1e8, 1e12])
def test_the_opened_system_is_masked_exactly(condition: float, monkeypatch: pytest.MonkeyPatch) -> None:
    posed, masks = Posed.random(3, 6, 2, condition, seed=1), {}
    drawn = blind_system._drawn_mask

    def noted(channel: Channel, system: BlindSystem, widest: float) -> Any:
        masks[channel.me] = drawn(channel, system, widest)
        return masks[channel.me]

    monkeypatch.setattr(blind_system, "_drawn_mask", noted)
    found, network = solved(posed)
    first, second, _ = committee_of(network)
    system, numbers = posed.system, posed.system.numbers
    parts = [system.encoded(each) for each in posed.entries.values()]
    held = numbers.reduced(system.matrix(numbers.reduced(np.sum(parts, axis=0))) + system.diagonal())
    for site in (first, second):
        mask = masks[site].residues(system)
        held = numbers.product(numbers.product(mask, held), mask.transpose(0, 2, 1))
    shape = (1, system.triangle)
    shares = [
        numbers.unpacked(each, shape)
        for site in (first, second)
        for each in between(network, site, COORDINATOR)
        if each.shape == (1, numbers.words(shape))
    ]
    np.testing.assert_array_equal(numbers.reduced(shares[0] + shares[1]), upper(held))
    residual = posed.whole @ found.T - posed.right.T
    assert np.abs(residual).max() <= 1e-10 * np.abs(posed.whole).max() * np.abs(found).max()


def test_masks_stretch_and_are_no_rotations() -> None:
    (mask,) = InMemoryNetwork(("site-1",)).run(
        {"site-1": lambda channel: blind_system._drawn_mask(channel, BlindSystem(40, 3, 1.0, 0.0, 0), 2.0)}
    ).values()  # fmt: skip
    singular = np.linalg.svd(mask.around, compute_uv=False)
    assert 0.49 < singular[-1] < singular[0] < 2.01
    assert len(set(mask.factors.tolist())) > 1
    gram = mask.around.T @ mask.around
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=0.02)  # Q S, never S Q
    assert np.abs(mask.around @ mask.around.T - np.eye(40)).max() > 0.1


# Who learns what.


class Pair:
    """Two members of a committee, and the system that they compute from what they drew and received."""

    def __init__(self, posed: Posed, network: InMemoryNetwork) -> None:
        self.network, self.system, self.numbers = network, posed.system, posed.system.numbers
        self.first, self.second, self.dealer = committee_of(network)
        self.square, self.triangle = (self.system.extended,) * 2, (1, self.system.triangle)

    def uniform(self, seed: Any, shape: tuple[int, int]) -> FloatArray:
        drawn = InMemoryNetwork(("x",)).run({"x": lambda channel: self.numbers.uniform(channel, seed, shape)})
        return drawn["x"]

    def received(self, sender: str, receiver: str, shape: tuple[int, int]) -> FloatArray:
        words = (1, self.numbers.words(shape))
        found = next(each for each in between(self.network, sender, receiver) if each.shape == words)
        matrix = self.numbers.unpacked(found, shape)
        return matrix if shape == self.square else symmetric(matrix, self.system.extended)

    def dealt_symmetric(self, other: str) -> FloatArray:
        """V, which the dealer knows."""
        seeds = [each for each in between(self.network, self.dealer, other) if each.shape == SHAPE]
        return symmetric(upper(self.uniform(seeds[-1], self.square)), self.system.extended)

    def of_first(self) -> FloatArray:
        """R, with the penalty."""
        from_sites = [between(self.network, site, self.first) for site in self.network.sites if site != self.first]
        own = [each for each in self.network.drawn[self.first] if each.shape == SHAPE][1]
        seeds = [own, *(next(each for each in arrays if each.shape == SHAPE) for arrays in from_sites)]
        parts = np.sum([self.uniform(each, (1, self.system.entries)) for each in seeds], axis=0)
        return self.numbers.reduced(self.system.matrix(self.numbers.reduced(parts)) + self.system.diagonal())

    def first_and_second(self) -> FloatArray:
        (blinded,) = between(self.network, COORDINATOR, self.second)[:1]
        blind = next(each for each in self.network.drawn[self.second] if each.shape == blinded.shape)
        theirs = self.system.matrix(self.numbers.unpacked((blinded - blind)[:, :-1], (1, self.system.entries)))
        return self.decoded(self.of_first() + theirs)

    def first_and_dealer(self) -> FloatArray:
        """The dealer takes V off T - V."""
        theirs = self.received(self.second, self.first, self.triangle) + self.dealt_symmetric(self.second)
        return self.decoded(self.of_first() + theirs)

    def second_and_dealer(self) -> FloatArray:
        """The dealer's U gives the first's mask, and its second V the first's share."""
        numbers = self.numbers
        seeds = next(each for each in between(self.network, self.dealer, self.first) if each.shape == (3, 4))
        hidden = self.received(self.first, self.second, self.square)
        mask = numbers.reduced(hidden + self.uniform(seeds[0], self.square))
        twice, product = (self.received(self.dealer, self.second, shape) for shape in (self.triangle, self.square))
        cross = numbers.product(product, hidden.transpose(0, 2, 1))
        turned = numbers.product(numbers.product(hidden, self.dealt_symmetric(self.second)), hidden.transpose(0, 2, 1))
        own = numbers.reduced(twice + cross + cross.transpose(0, 2, 1) + turned)
        theirs = self.received(self.first, self.second, self.triangle) + self.dealt_symmetric(self.first)
        masked = np.ldexp(numbers.decoded(numbers.reduced(own + theirs)), -60 - 24) * self.system.scale
        undone = np.linalg.inv(np.ldexp(numbers.decoded(mask), -12))
        d = self.system.size
        return np.asarray((undone @ masked @ undone.T)[:d, :d])

    def decoded(self, residues: FloatArray) -> FloatArray:
        d = self.system.size
        return np.ldexp(self.numbers.decoded(self.numbers.reduced(residues)), -60)[:d, :d] * self.system.scale


@pytest.mark.parametrize("pair", ["first_and_second", "first_and_dealer", "second_and_dealer"])
def test_two_members_of_the_committee_learn_the_system(pair: str) -> None:
    posed = Posed.random(5, 4, 2, seed=3)
    _, network = solved(posed)
    found = getattr(Pair(posed, network), pair)()
    np.testing.assert_allclose(found, posed.whole, rtol=1e-9, atol=1e-9)


def test_each_message_to_a_site_or_the_coordinator_is_uniform_whatever_the_rows_are() -> None:
    """The top bits of residues, by a bound of 7 deviations: a false alarm in 10^10."""
    sites, size = 5, 24
    system = BlindSystem(size, 1, 1.0, 0.0, 0)
    entries = np.concatenate([np.eye(size)[np.triu_indices(size)] / sites, np.ones(size) / sites])
    posed = Posed(system, dict.fromkeys(site_names(sites), entries), np.eye(size), np.ones((1, size)))
    _, network = solved(posed)
    numbers, shapes = system.numbers, [(1, system.triangle), (system.extended, system.extended)]
    judged = 0
    for message in network.sent:
        for shape in shapes:
            if message.array.shape == (1, numbers.words(shape)):
                residues = numbers.unpacked(message.array, shape)
                halves = residues > np.array(numbers.primes)[:, None, None] / 2
                assert abs(halves.mean() - 0.5) < 7 * 0.5 / math.sqrt(halves.size), (message.sender, message.receiver)
                judged += 1
    assert judged == 10


def test_nothing_random_is_used_twice() -> None:
    """Neither within a round nor in the next one: every seed, mask and share differs."""
    posed = Posed.random(4, 3, seed=5)
    drawn: list[bytes] = []
    sent: list[bytes] = []
    for _ in range(2):
        _, network = solved(posed)
        drawn += [each.tobytes() for arrays in network.drawn.values() for each in arrays]
        drawn += [stream.hex().encode() for streams in network.expanded.values() for stream in streams]
        words = [
            m.array for m in network.sent if m.array.dtype == np.uint64 and m.array.size > 4 and m.sender != COORDINATOR
        ]
        sent += [each.tobytes() for each in words if len(each) != len(network.sites)]
    assert len(drawn) > 60
    assert max(Counter(drawn).values()) == 2  # a keystream of two parties
    assert max(Counter(sent).values()) == 1


def test_every_site_has_a_say_in_who_the_committee_is() -> None:
    posed = Posed.random(4, 2)
    drawn = {committee_of(solved(posed)[1]) for _ in range(40)}
    assert len(drawn) > 3  # of 24; 40 draws of 3 have a probability below 10^-30


# Who lies, and who dies.


def test_a_site_that_shows_other_bits_than_it_committed_to_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    posed, digest = Posed.random(4, 2), blind_system._digest
    calls = iter(range(10**6))
    monkeypatch.setattr(blind_system, "_digest", lambda shown: digest(shown) ^ np.uint64(next(calls) == 0))
    with pytest.raises(StepRefused, match="other random bits than it committed itself to"):
        solved(posed)


@pytest.mark.parametrize("where", ["_mask_own", "_mask_other", "_received_symmetric", "_residual"])
def test_a_false_share_of_a_member_or_the_dealer_is_noticed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One residue is off by one: the members open no solution."""
    real = getattr(blind_system, where)

    def spoilt(*arguments: Any) -> FloatArray:
        share: FloatArray = real(*arguments).copy()
        share[0, 0, 0] = (share[0, 0, 0] + 1) % 1000
        return share

    monkeypatch.setattr(blind_system, where, spoilt)
    network = InMemoryNetwork(site_names(4))
    with pytest.raises(StepRefused, match="sent false numbers"):
        solved(Posed.random(4, 3), network=network)
    first = committee_of(network)[0]
    assert not [each for each in between(network, first, COORDINATOR) if each.dtype == np.float64]


def test_a_member_that_opens_another_solution_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    posed, send, lies = Posed.random(4, 3), MemoryChannel.send, list[str]()

    def lying(channel: MemoryChannel, peer: str, array: Any) -> None:
        is_lie = peer == COORDINATOR and array.dtype == np.float64 and not lies
        lies.extend([channel.me] * is_lie)
        send(channel, peer, array + 1 if is_lie else array)

    monkeypatch.setattr(MemoryChannel, "send", lying)
    with pytest.raises(FederationError, match="opened different solutions"):
        solved(posed)


def test_a_coordinator_that_sends_another_vector_learns_no_row_of_the_masks() -> None:
    posed = Posed.random(4, 3)

    def lying(channel: Channel) -> FloatArray:
        real = np.linalg.solve
        try:
            np.linalg.solve = lambda matrix, right: np.eye(len(matrix))[:, : right.shape[1]]  # type: ignore[assignment]
            return solve_blind_systems(channel, RING, [posed.system])[0].found
        finally:
            np.linalg.solve = real

    network = InMemoryNetwork(tuple(posed.entries))
    with pytest.raises(StepRefused, match="a vector does not solve the blind system"):
        solved(posed, network=network, coordinator=lying)
    first = committee_of(network)[0]
    assert not [each for each in between(network, first, COORDINATOR) if each.dtype == np.float64]


@pytest.mark.parametrize("name", ["ring", "masked"])
@pytest.mark.parametrize("place", range(4))
def test_a_site_that_dies_leaves_no_wrong_solution(place: int, name: str) -> None:
    posed, right = Posed.random(4, 2), Posed.random(4, 2).solution
    for message in range(1, 16):
        network = InMemoryNetwork(tuple(posed.entries), deaths={site_names(4)[place]: message})
        try:
            found, _ = solved(posed, SUMS[name](), network)
        except (Transient, RoundAborted, StepRefused):
            continue
        np.testing.assert_allclose(found, right, rtol=1e-7)


def test_too_few_sites_and_entries_beyond_the_scale_are_refused_before_anything_is_sent() -> None:
    posed = Posed.random(3, 2)
    two = InMemoryNetwork(site_names(2))

    def part(channel: Channel) -> None:
        contribute_to_systems(channel, RING, [posed.system], [posed.entries[channel.me]])

    with pytest.raises(StepRefused, match="a committee needs 3 to 1024 sites, got 2"):
        two.run(dict.fromkeys(two.sites, part))
    assert two.sent == []
    posed.entries["site-1"] = posed.entries["site-1"] * 1e6
    network = InMemoryNetwork(site_names(3))
    with pytest.raises(BoundExceeded, match="beyond the declared bound"):
        network.run({"site-1": part})
    assert network.sent == []
