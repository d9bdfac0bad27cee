"""Masks, segments and shares of secure sums: each vector is hidden by randomness of its own, and opened by enough."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import uniform_residues
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.errors import PeerDropped, RoundAborted
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis import sum_conformance
from fedsvm.protocols.analysis.execution import execute, site_names
from fedsvm.protocols.arithmetic import shamir
from fedsvm.protocols.sums import masked as masked_sum
from fedsvm.protocols.sums.changing_neighbours import changing_neighbours
from fedsvm.protocols.sums.k_secure import k_secure
from fedsvm.protocols.sums.masked import SEALED_WORDS, SECRET_WORDS, masked
from fedsvm.protocols.sums.neighbourhoods import DropoutThreshold
from fedsvm.protocols.sums.ring import CHUNK, RING
from fedsvm.protocols.sums.secure_sum import SecureSum

HIDING = pytest.mark.parametrize(
    "protocol", [RING, k_secure(3), changing_neighbours(2), masked(0.6)], ids=lambda protocol: protocol.name
)
SITES = site_names(5)
CHUNKS, LIMBS = 3, 2


def network_of_zeros(protocol: SecureSum, receiver: str = COORDINATOR) -> InMemoryNetwork:
    """The network of a sum over sites that put in zeros, so that masks travel bare."""
    zeros = {site: np.zeros((LIMBS, CHUNKS * CHUNK), dtype=np.uint64) for site in SITES}
    return execute(protocol, zeros, receiver=receiver).network


def assert_distinct(vectors: list[Residues]) -> None:
    """No limb of any vector is zeros, or begins like another."""
    beginnings = [tuple(limb[:8].tolist()) for vector in vectors for limb in vector]
    assert all(any(each) for each in beginnings)
    assert len(set(beginnings)) == len(beginnings)


@HIDING
def test_chunks_and_limbs_that_one_site_sends_another_have_masks_of_their_own(protocol: SecureSum) -> None:
    links: dict[tuple[str, str], list[Residues]] = defaultdict(list)
    for each in network_of_zeros(protocol).sent:
        if each.array.shape == (LIMBS, CHUNK):
            links[each.sender, each.receiver].append(each.array)
    assert len(links) >= len(SITES)
    for chunks in links.values():
        assert len(chunks) % CHUNKS == 0
        assert_distinct(chunks)


@HIDING
def test_no_random_vector_is_drawn_twice(protocol: SecureSum) -> None:
    drawn = network_of_zeros(protocol).drawn.values()
    assert_distinct([vector for vectors in drawn for vector in vectors])


@HIDING
def test_the_blind_of_a_sum_that_one_site_receives_covers_every_chunk_and_limb(protocol: SecureSum) -> None:
    """The coordinator forwards it blinded; of zeros it sees the blind itself."""
    network = network_of_zeros(protocol, receiver="site-3")
    (forwarded,) = [each.array for each in network.sent if each.sender == COORDINATOR and each.array.shape[0] == LIMBS]
    assert_distinct([forwarded[:, start : start + CHUNK] for start in range(0, CHUNKS * CHUNK, CHUNK)])


@pytest.mark.parametrize(("fraction", "count"), [(0.6, 5), (0.66, 5), (0.66, 9), (1.0, 4)])
def test_own_masks_are_opened_by_as_many_shares_as_the_threshold_and_not_by_fewer(fraction: float, count: int) -> None:
    sites, threshold = site_names(count), DropoutThreshold(fraction, count).neighbourhood
    owner, *holders = sites
    network = execute(masked(fraction), {site: uniform_residues((1, 3)) for site in sites}).network
    own_seed, *_ = network.expanded[owner]
    (sealed,) = [e.array for e in network.sent if e.sender == owner and e.array.shape == (count - 1, SEALED_WORDS)]
    shares = [e.array for e in network.sent if e.sender == owner and e.array.shape == (count, SECRET_WORDS)][-1][:1]
    for holder, row in zip(holders, sealed, strict=True):
        (share,) = MemoryChannel(network, holder).unseal({owner: row.tobytes()}, "masked sum")
        shares = np.vstack([shares, np.frombuffer(share, dtype=np.uint64)])

    def combined(numbers: tuple[int, ...]) -> bytes:
        return shamir.combine(numbers, shares[np.array(numbers) - 1].view(np.uint32)).tobytes()

    for numbers in itertools.combinations(range(1, count + 1), threshold):
        assert combined(numbers) == own_seed
        for fewer in itertools.combinations(numbers, threshold - 1):
            assert combined(fewer) != own_seed


def sum_with_late_digests(late: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> tuple[Residues, InMemoryNetwork]:
    """Sum the numbers 1 to 5 of five of six sites; some confirm the list of them only after it was given up."""
    given_up, collections = threading.Event(), itertools.count(1)
    list_of, collect_all = masked_sum._list, MemoryChannel.collect
    network = InMemoryNetwork(site_names(6), deaths={"site-6": 1})

    def listed(channel: Any, *told: Any) -> Any:
        assert channel.me not in late or given_up.wait(60)
        return list_of(channel, *told)

    def collect(channel: MemoryChannel, shapes: dict[str, Any], dtype: Any = np.uint64) -> dict[str, Any]:
        if next(collections) != 4:  # vectors, sealed shares, seeds of the missing, digests
            return collect_all(channel, shapes, dtype)
        answers = collect_all(channel, {peer: shape for peer, shape in shapes.items() if peer not in late}, dtype)
        given_up.set()
        return answers

    def contribute(number: int, channel: MemoryChannel) -> Residues | None:
        with suppress(RoundAborted):
            masked_sum.masked_contribute(0.6, channel, np.full((1, 4), number, dtype=np.uint64))
        return None

    def reveal(channel: MemoryChannel) -> Residues | None:
        total = masked_sum.masked_reveal(0.6, channel, (1, 4))
        network._abort()  # ends the wait of the late, as a coordinator does
        return total

    monkeypatch.setattr(masked_sum, "_list", listed)
    monkeypatch.setattr(MemoryChannel, "collect", collect)
    parties: dict[str, Callable[[MemoryChannel], Residues | None]] = {COORDINATOR: reveal}
    parties |= {site: functools.partial(contribute, number) for number, site in enumerate(network.sites, start=1)}
    total = network.run(parties)[COORDINATOR]
    assert total is not None
    return total, network


def test_a_site_that_confirms_the_list_too_late_is_in_the_sum_and_asked_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total, network = sum_with_late_digests(("site-2",), monkeypatch)
    np.testing.assert_array_equal(total, np.full((1, 4), 15))
    sent_to = [message.receiver for message in network.sent if message.sender == COORDINATOR]
    assert {site: sent_to.count(site) for site in ("site-1", "site-2", "site-6")} == {
        "site-1": 6,
        "site-2": 3,
        "site-6": 0,
    }


def test_a_list_that_too_few_confirm_in_time_reveals_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PeerDropped, match=r"3 sites around .* are left and a masked sum needs 4; nothing was revealed"):
        sum_with_late_digests(("site-2", "site-3"), monkeypatch)


@pytest.mark.parametrize(
    ("fraction", "members", "threshold"),
    [(0.66, 2, 2), (0.66, 3, 2), (0.66, 4, 3), (0.66, 5, 4), (0.66, 51, 34), (0.6, 5, 3), (0.51, 2, 2), (1.0, 7, 7)],
)
def test_thresholds_are_rounded_up_and_two_at_least(fraction: float, members: int, threshold: int) -> None:
    assert DropoutThreshold(fraction, members).neighbourhood == threshold


@pytest.mark.parametrize(("run_sites", "threshold"), [(5, 4), (50, 33), (51, 34), (52, 34), (200, 34)])
def test_thresholds_are_of_a_neighbourhood_at_most(run_sites: int, threshold: int) -> None:
    assert DropoutThreshold(0.66, run_sites).neighbourhood == threshold


@pytest.mark.parametrize(
    ("fraction", "run_sites", "needed"),
    [(0.501, 51, 26), (0.501, 52, 31), (0.501, 62, 32), (0.6, 52, 32), (0.66, 200, 132), (1.0, 60, 60)],
)
def test_the_sites_that_a_run_needs_are_as_many_as_a_neighbourhood_at_least(
    fraction: float, run_sites: int, needed: int
) -> None:
    assert masked(fraction).min_remaining(run_sites) == needed >= DropoutThreshold(fraction, run_sites).neighbourhood


# What sums promise.


@pytest.mark.parametrize(
    ("make", "options", "name", "coalition", "min_sites", "sends_to"),
    [
        (k_secure, {}, "k-secure", 6, 3, ("site-4", "site-5", "site-3")),
        (k_secure, {"segments": 2}, "k-secure", 4, 3, ("site-4", "site-3")),
        (k_secure, {"segments": 5}, "k-secure", 6, 5, ("site-4", "site-5", "site-6", "site-7", "site-3")),
        (changing_neighbours, {}, "changing-neighbours", 4, 5, ("site-3", "site-5")),
        (changing_neighbours, {"rings": 1}, "changing-neighbours", 2, 3, ("site-3",)),
        (masked, {}, "masked", 6, 2, (COORDINATOR,)),
        (masked, {"threshold": 1}, "masked", 6, 2, (COORDINATOR,)),
    ],
)
def test_sums_promise_what_follows_from_their_options(
    make: Callable[..., SecureSum],
    options: dict[str, float],
    name: str,
    coalition: int,
    min_sites: int,
    sends_to: tuple[str, ...],
) -> None:
    protocol = make(**options)
    defaults = {"k-secure": {"segments": 3}, "changing-neighbours": {"rings": 2}, "masked": {"threshold": 0.66}}
    assert (protocol.name, protocol.options) == (name, options or defaults[name])
    assert (protocol.smallest_coalition(7), protocol.min_sites) == (coalition, min_sites)
    assert protocol.discloses == "sum"
    assert protocol.needs_pairwise_keys == (name == "masked")
    assert protocol.min_remaining(7) == ({0.66: 5, 1: 7}[protocol.options["threshold"]] if name == "masked" else 1)
    assert protocol.sends_to("site-2", site_names(7)) == sends_to
    sum_conformance.check_exact(protocol, 7, (1, 3))


@pytest.mark.parametrize(
    ("make", "refused", "says"),
    [
        (k_secure, (1, 0, -1, 2.0, "3"), "segments must be a whole number from 2, got"),
        (changing_neighbours, (0, -1, 2.0, "3"), "rings must be a whole number from 1, got"),
        (masked, (0.5, 0.4, 1.01, "1"), "threshold must be above 0.5 and at most 1, got"),
    ],
    ids=["k-secure", "changing-neighbours", "masked"],
)
def test_options_out_of_range_are_refused(
    make: Callable[..., SecureSum], refused: tuple[object, ...], says: str
) -> None:
    for value in refused:
        with pytest.raises(ValueError, match=f"^{says} {value!r}$"):
            make(value)


@pytest.mark.parametrize(
    ("sites", "coalition", "threshold", "isolating"),
    [(5, 9, 1, 4), (5, 2, 1, 2), (9, 8, 2, 2), (9, 8, 6, 6), (9, 3, 6, 3)],
)
def test_the_least_that_isolates_a_site_is_the_least_of_three(
    sites: int, coalition: int, threshold: int, isolating: int
) -> None:
    protocol = replace(RING, smallest_coalition=lambda count: coalition, min_remaining=lambda count: threshold)
    assert protocol.isolating(sites) == isolating
