"""The sum by additive shares: dropouts, refusals of helpers, and unequal orders. Conformance is in test_sums."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel, uniform_residues
from fedsvm.federation.channel.memory import InMemoryNetwork
from fedsvm.federation.errors import PeerDropped, StepRefused
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis.execution import site_names
from fedsvm.protocols.arithmetic.fixed_point import add, subtract
from fedsvm.protocols.sums.additive_shares import additive_shares, helpers_of
from tests.test_sums import run_sum

WIDTH, BYTES = 4096, 256
CHI_SQUARE = 390.25
"""The quantile of chi-square with 255 degrees of freedom that noise exceeds once in ten million times."""


def chi_square(residues: Residues) -> float:
    """Return the distance of the bytes of residues from a uniform distribution."""
    counts = np.bincount(np.frombuffer(residues.tobytes(), dtype=np.uint8), minlength=BYTES)
    expected = counts.sum() / BYTES
    return float(((counts - expected) ** 2 / expected).sum())


@settings(max_examples=25)
@given(count=st.integers(4, 12), helpers=st.integers(2, 3), data=st.data())
def test_lost_sites_cost_nothing(count: int, helpers: int, data: st.DataObject) -> None:
    sites = site_names(count)
    others = [site for site in sites if site not in helpers_of(sites, helpers)]
    lost = data.draw(st.lists(st.sampled_from(others), unique=True, max_size=(count - 1) // 2))
    inputs = [uniform_residues((2, 5)) for _ in sites]
    execution = run_sum(additive_shares(helpers), inputs, InMemoryNetwork(sites, deaths=dict.fromkeys(lost, 1)))
    expected = [vector for site, vector in zip(sites, inputs, strict=True) if site not in lost]
    np.testing.assert_array_equal(execution.total, functools.reduce(add, expected))
    assert len(execution.network.sent) == count - len(lost) + 2 * helpers


@pytest.mark.parametrize("message", [1, 2])
def test_nothing_is_revealed_without_a_helper(message: int) -> None:
    sites = site_names(6)
    network = InMemoryNetwork(sites, deaths={helpers_of(sites, 2)[0]: message})
    with pytest.raises(PeerDropped):
        run_sum(additive_shares(2), [uniform_residues((1, 3))] * 6, network)


@pytest.mark.parametrize(("run_sites", "min_sites", "needed"), [(5, 5, 5), (9, 1, 5)])
def test_nothing_is_revealed_of_too_few_sites(run_sites: int, min_sites: int, needed: int) -> None:
    sites = site_names(5)
    lost = next(site for site in sites if site not in helpers_of(sites, 2))
    network = InMemoryNetwork(sites, deaths={lost: 1}, run_sites=run_sites, min_sites=min_sites)
    with pytest.raises(PeerDropped, match=f"^4 sites are left and a sum by additive shares needs {needed}$"):
        run_sum(additive_shares(2), [uniform_residues((1, 3))] * 5, network)


def test_helpers_depend_on_all_names_and_not_on_their_order() -> None:
    sites = site_names(40)
    chosen = helpers_of(sites, 3)
    assert len(chosen) == 3
    assert set(helpers_of(sites[::-1], 3)) == set(chosen)
    assert {helpers_of((*sites[:-1], f"another-{number}"), 3) for number in range(20)} != {chosen}


def ask_a_helper(present: set[str], beyond: int = 0) -> None:
    """Have a coordinator send a helper of five sites this list. Raises what the helper raises."""
    sites = site_names(5)
    helper = helpers_of(sites, 2)[0]
    flags = sum(1 << place for place, site in enumerate(sites) if site in present) | beyond

    def ask(channel: Channel) -> None:
        channel.receive(helper, (1, 3))
        channel.send(helper, np.array([flags], dtype=np.uint64))

    def contribute(channel: Channel) -> None:
        additive_shares(2).contribute_residues(channel, uniform_residues((1, 3)))

    InMemoryNetwork(sites, timeout_s=9).run({helper: contribute, COORDINATOR: ask})


def test_a_helper_refuses_to_open_what_a_lying_coordinator_asks_for() -> None:
    sites = set(site_names(5))
    helper = helpers_of(site_names(5), 2)[0]
    victim = next(site for site in site_names(5) if site != helper)
    with pytest.raises(StepRefused, match=r"^2 of 5 sites are in the sum and 3 must be; nothing was opened$"):
        ask_a_helper({helper, victim})
    with pytest.raises(StepRefused, match="a sum that it is not in"):
        ask_a_helper(sites - {helper})
    with pytest.raises(StepRefused, match="sites that are not in the round"):
        ask_a_helper(sites, beyond=1 << 5)
    with pytest.raises(StepRefused, match="sites that are not in the round"):
        ask_a_helper(sites, beyond=1 << 63)


def test_vectors_and_totals_are_uniform_to_the_coordinator() -> None:
    zeros = [np.zeros((1, WIDTH), dtype=np.uint64)] * 4
    sent = [message.array for message in run_sum(additive_shares(2), zeros).network.sent if message.array.ndim == 2]
    assert len(sent) == 6
    assert all(chi_square(array) < CHI_SQUARE for array in sent)


def test_two_helpers_mask_each_other_with_different_keystreams() -> None:
    """Otherwise the difference of their vectors would have one mask less."""
    sites = site_names(4)
    network = run_sum(additive_shares(2), [np.zeros((1, WIDTH), dtype=np.uint64)] * 4).network
    first, second = helpers_of(sites, 2)
    assert len(set(network.expanded[first])) == len(set(network.expanded[second])) == 4
    assert len(set(network.expanded[first]) & set(network.expanded[second])) == 2


def test_a_sum_of_unequal_orders_is_noise() -> None:
    sites, victim = site_names(5), "site-3"
    vectors = [np.full((1, WIDTH), number, dtype=np.uint64) for number in range(5)]
    equal = run_sum(additive_shares(2), vectors, InMemoryNetwork(sites, links=dict.fromkeys(sites, b"one order")))
    assert equal.total is not None
    assert (equal.total == 10).all()
    links = {**dict.fromkeys(sites, b"one order"), victim: b"another"}
    unequal = run_sum(additive_shares(2), vectors, InMemoryNetwork(sites, links=links))
    assert unequal.total is not None
    assert chi_square(unequal.total) < CHI_SQUARE


def test_different_lists_for_two_helpers_open_noise() -> None:
    sites, protocol = site_names(5), additive_shares(2)
    first, second = helpers_of(sites, 2)
    victim = next(site for site in sites if site not in (first, second))

    def lie(channel: Channel) -> tuple[Residues, Residues]:
        masked = {site: channel.receive(site, (1, WIDTH)) for site in sites}
        for helper, present in ((first, set(sites)), (second, set(sites) - {victim})):
            flags = sum(1 << place for place, site in enumerate(sites) if site in present)
            channel.send(helper, np.array([flags], dtype=np.uint64))
        opened = add(channel.receive(first, (1, WIDTH)), channel.receive(second, (1, WIDTH)))
        whole = functools.reduce(add, masked.values())
        return subtract(whole, opened), subtract(subtract(whole, masked[victim]), opened)

    def contribute(channel: Channel) -> None:
        protocol.contribute_residues(channel, np.zeros((1, WIDTH), dtype=np.uint64))

    parties = {**dict.fromkeys(sites, contribute), COORDINATOR: lie}
    totals = InMemoryNetwork(sites, timeout_s=9).run(parties)[COORDINATOR]
    assert totals is not None
    for total in totals:
        assert chi_square(total) < CHI_SQUARE


def test_helpers_out_of_range_are_refused() -> None:
    for value in (1, 0, -1, 2.0, "3"):
        with pytest.raises(ValueError, match=f"^helpers must be a whole number from 2, got {value!r}$"):
            additive_shares(value)  # type: ignore[arg-type]


def test_a_run_needs_a_majority_and_all_helpers() -> None:
    protocol = additive_shares(3)
    assert (protocol.smallest_coalition(9), protocol.min_sites, protocol.needs_pairwise_keys) == (3, 4, True)
    assert [protocol.min_remaining(sites) for sites in (4, 5, 6)] == [3, 3, 4]
    assert protocol.sends_to("site-1", site_names(5)) == (COORDINATOR,)
