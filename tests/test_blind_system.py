"""A system that nobody sees: the right solution at its cost, and what each coalition has of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import isgeneratorfunction
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.channel.transcript import DREW, RECEIVED, SENT, TranscriptEntry
from fedsvm.federation.errors import BoundExceeded, FederationError, RoundAborted, StepRefused, Transient
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols import blind_masks, blind_parameters, blind_system, committee
from fedsvm.protocols.analysis.blind_views import opened_sums, received_solutions, systems_of_pair
from fedsvm.protocols.analysis.execution import Execution, site_names
from fedsvm.protocols.arithmetic.residue_numbers import upper
from fedsvm.protocols.blind_parameters import BlindSystem, OpenedSums, bundles_of
from fedsvm.protocols.blind_system import (
    BlindSolution,
    blind_systems_cost,
    contribute_to_systems,
    solve_blind_systems,
)
from fedsvm.protocols.side_by_side import Steps
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.secure_sum import SecureSum

RING = SUMS["ring"]()
MASKED = SUMS["masked"]()
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
    drawn = blind_masks.draw_mask

    def noted(channel: Channel, system: BlindSystem, widest: float) -> Any:
        masks[channel.me] = drawn(channel, system, widest)
        return masks[channel.me]

    monkeypatch.setattr(blind_system, "draw_mask", noted)
    found, network = solved(posed)
    first, second, _ = committee_of(network)
    system, numbers = posed.system, posed.system.numbers
    parts = [system.encode(each) for each in posed.entries.values()]
    held = numbers.reduce(system.add_penalty(system.matrix(numbers.reduce(np.sum(parts, axis=0)))))
    for site in (first, second):
        mask = masks[site].residues(system)
        held = numbers.product(numbers.product(mask, held), mask.transpose(0, 2, 1))
    shape = (1, system.triangle)
    shares = [
        numbers.unpack(each, shape)
        for site in (first, second)
        for each in between(network, site, COORDINATOR)
        if each.shape == (1, numbers.words(shape))
    ]
    opened = numbers.reduce(shares[0] + shares[1])
    np.testing.assert_array_equal(numbers.pack(opened), numbers.pack(upper(held)))
    residual = posed.whole @ found.T - posed.right.T
    assert np.abs(residual).max() <= 1e-10 * np.abs(posed.whole).max() * np.abs(found).max()


def test_masks_stretch_and_are_no_rotations() -> None:
    (mask,) = InMemoryNetwork(("site-1",)).run(
        {"site-1": lambda channel: blind_masks.draw_mask(channel, BlindSystem(40, 3, 1.0, 0.0, 0), 2.0)}
    ).values()  # fmt: skip
    singular = np.linalg.svd(mask.around, compute_uv=False)
    assert 0.49 < singular[-1] < singular[0] < 2.01
    assert len(set(mask.factors.tolist())) > 1
    gram = mask.around.T @ mask.around
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=0.02)  # Q S, never S Q
    assert np.abs(mask.around @ mask.around.T - np.eye(40)).max() > 0.1


# Who learns what.


def entries_of(network: InMemoryNetwork, *parties: str) -> dict[str, list[TranscriptEntry]]:
    """The transcripts that these parties would have written."""
    found: dict[str, list[TranscriptEntry]] = {}
    for party in parties:
        sent = [(SENT, m.receiver, m.array) for m in network.sent if m.sender == party]
        received = [(RECEIVED, m.sender, m.array) for m in network.sent if m.receiver == party]
        drew = [(DREW, "", array) for array in network.drawn.get(party, ())]
        lines = [*drew, *sent, *received]
        found[party] = [TranscriptEntry(what, 1, peer, 0, array, {}) for what, peer, array in lines]
    return found


@dataclass
class Told:
    """Systems that all sites are told the solutions of, with numbers and inner products beside them."""

    posed: list[Posed]
    network: InMemoryNetwork
    opened: list[BlindSolution]
    found: dict[str, list[FloatArray]]

    @classmethod
    def solved(
        cls,
        sites: int,
        count: int = 1,
        noise: float = 0.0,
        dither: float = 0.0,
        total: SecureSum = RING,
        members: Sequence[str] = (),
    ) -> Told:
        posed = [Posed.random(sites, 4, seed=3 + place) for place in range(count)]
        random = np.random.default_rng(7)
        sums = OpenedSums((noise, 0.0), 2, 3, noise)
        for each in posed:
            each.system = replace(each.system, is_told=True, dither=dither, sums=sums)
            for name, own in each.entries.items():
                each.entries[name] = np.append(own, random.uniform(-1, 1, 8) / sites)
        systems, network = [each.system for each in posed], InMemoryNetwork(site_names(sites))

        def part(channel: Channel) -> Any:
            return contribute_to_systems(channel, total, systems, [each.entries[channel.me] for each in posed], members)

        parties: dict[str, Callable[[Any], Any]] = dict.fromkeys(network.sites, part)
        parties[COORDINATOR] = lambda channel: solve_blind_systems(channel, total, systems, members)
        values = network.run(parties)
        return cls(posed, network, values[COORDINATOR], {site: values[site] for site in network.sites})

    def opened_with(self, place: int) -> tuple[FloatArray, FloatArray]:
        """The numbers and the inner products, without noise."""
        posed = self.posed[place]
        rest = np.sum([own[posed.system.own :] for own in posed.entries.values()], axis=0)
        vectors = rest[2:].reshape(2, 3)
        return rest[:2], vectors @ vectors.T


@pytest.mark.parametrize(("sites", "count"), [(3, 1), (5, 3)])
def test_all_sites_are_told_the_solution_of_every_system(sites: int, count: int) -> None:
    told = Told.solved(sites, count)
    systems = [each.system for each in told.posed]
    for place, posed in enumerate(told.posed):
        for found in told.found.values():
            np.testing.assert_allclose(found[place], posed.solution, rtol=1e-7, atol=1e-9)
        numbers, products = told.opened_with(place)
        np.testing.assert_allclose(told.opened[place].numbers, numbers, atol=1e-15)
        np.testing.assert_allclose(told.opened[place].products, products, atol=1e-14)
    cost, stated = Execution({}, None, told.network).cost, blind_systems_cost(RING, sites, systems)
    assert (cost.messages, cost.payload_bytes) == (stated.messages, stated.payload_bytes)
    assert cost.hops <= stated.hops
    for site in told.network.sites:
        seen = received_solutions(entries_of(told.network, site)[site], systems)
        np.testing.assert_allclose(np.hstack(seen), np.vstack([each.solution for each in told.posed]).T, rtol=1e-7)


def test_noise_of_both_members_is_on_what_is_opened_and_on_right_hand_sides() -> None:
    told = Told.solved(4, noise=0.25, dither=0.5)
    numbers, products = told.opened_with(0)
    off = np.append(told.opened[0].numbers - numbers, (told.opened[0].products - products)[np.triu_indices(2)])
    assert off[1] == pytest.approx(0.0, abs=1e-15)
    assert (off[[0, 2, 3, 4]] != 0).all()
    assert np.abs(off).max() <= 0.5
    found = told.found["site-1"][0][0]
    assert all(np.array_equal(each[0][0], found) for each in told.found.values())
    left = told.posed[0].whole @ found - told.posed[0].right[0]
    assert 0 < np.abs(left).max() < 0.5 * 9 * 2**0.5


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize(("sites", "total"), [(3, RING), (5, RING), (5, MASKED)])
def test_two_members_of_the_committee_learn_every_system(
    pair: tuple[int, ...], count: int, sites: int, total: SecureSum
) -> None:
    told = Told.solved(sites, count, total=total)
    members, systems = committee_of(told.network), [each.system for each in told.posed]
    found = systems_of_pair(entries_of(told.network, *(members[place] for place in pair)), systems)
    assert found is not None
    for each, posed in zip(found, told.posed, strict=True):
        np.testing.assert_allclose(each[:4, :4], posed.whole, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(each[4, :4], posed.right[0], rtol=1e-8, atol=1e-8)


def test_small_systems_of_one_shape_share_messages() -> None:
    small, other, large = (
        BlindSystem(4, 1, 1.0, 0.5, 1),
        BlindSystem(5, 1, 1.0, 0.5, 1),
        BlindSystem(300, 1, 1.0, 0.5, 1),
    )
    together = [small, small, other, small, large, large]
    assert [len(each) for each in bundles_of(together)] == [2, 1, 1, 1, 1]
    assert [each for bundle in bundles_of(together) for each in bundle] == together
    one, three = (blind_systems_cost(RING, 5, [small] * count) for count in (1, 3))
    assert (one.messages, one.hops) == (three.messages, three.hops)


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
def test_systems_in_several_bundles_are_solved_and_two_members_learn_each(
    pair: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blind_parameters, "_BUNDLE", 2 * 6 * 5**2)
    told = Told.solved(5, 5)
    members, systems = committee_of(told.network), [each.system for each in told.posed]
    assert [len(each) for each in bundles_of(systems)] == [2, 2, 1]
    seen = received_solutions(entries_of(told.network, "site-2")["site-2"], systems)
    found = systems_of_pair(entries_of(told.network, *(members[place] for place in pair)), systems)
    opened = opened_sums(entries_of(told.network, COORDINATOR)[COORDINATOR], systems)
    assert found is not None
    for place, posed in enumerate(told.posed):
        np.testing.assert_allclose(seen[place].T, posed.solution, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found[place][:4, :4], posed.whole, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(opened[place][0], told.opened_with(place)[0], atol=1e-14)
    cost, stated = Execution({}, None, told.network).cost, blind_systems_cost(RING, 5, systems)
    assert (cost.messages, cost.payload_bytes) == (stated.messages, stated.payload_bytes)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("total", [RING, MASKED])
def test_two_named_members_learn_every_system(pair: tuple[int, int], count: int, total: SecureSum) -> None:
    """Also if a masked sum draws an array of the shape of the seeds: of five sites four must remain."""
    members = ("site-2", "site-5", "site-3")
    told = Told.solved(5, count, total=total, members=members)
    entries = entries_of(told.network, *(members[place] for place in pair))
    found = systems_of_pair(entries, [each.system for each in told.posed])
    assert found is not None
    for each, posed in zip(found, told.posed, strict=True):
        np.testing.assert_allclose(each[:4, :4], posed.whole, rtol=1e-8, atol=1e-8)


def test_no_other_coalition_has_two_members() -> None:
    told = Told.solved(5)
    members, systems = committee_of(told.network), [told.posed[0].system]
    outside = [site for site in told.network.sites if site not in members]
    for member in members:
        parties = entries_of(told.network, member, *outside, COORDINATOR)
        assert systems_of_pair(parties, systems) is None


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
                halves = numbers.unpack(message.array, shape) < 0  # those above half of their prime
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
    posed, digest = Posed.random(4, 2), committee._digest
    calls = iter(range(10**6))
    monkeypatch.setattr(committee, "_digest", lambda shown: digest(shown) ^ np.uint64(next(calls) == 0))
    with pytest.raises(StepRefused, match="other random bits than it committed to"):
        solved(posed)


@pytest.mark.parametrize(
    ("module", "where"),
    [
        (blind_system, "mask_own"),
        (blind_system, "mask_other"),
        (blind_masks, "_received_symmetric"),
        (blind_system, "_residual"),
    ],
)
def test_a_false_share_of_a_member_or_the_dealer_is_noticed(
    module: ModuleType, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One residue is off by one: the members open no solution."""
    real = getattr(module, where)

    def one_off(share: FloatArray) -> FloatArray:
        found = share.copy()
        found[0, 0, 0] = (found[0, 0, 0] + 1) % 1000
        return found

    def spoilt(*arguments: Any) -> Steps[FloatArray]:
        return one_off((yield from real(*arguments)))

    monkeypatch.setattr(
        module, where, spoilt if isgeneratorfunction(real) else lambda *arguments: one_off(real(*arguments))
    )
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
