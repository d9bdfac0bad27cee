"""Sites that received different orders open no sum together: it is noise, or the run ends and names two of them.

Every attack succeeds against sites whose masks are bound to no order, and fails against those of the product.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.agreement import keystream
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.control import Order, SumTerms
from fedsvm.federation.errors import FederationError, ProtocolError, SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.startup import Deployment
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.secure_sum import SecureSum
from tests.conftest import OPTIONS, drill, long_but_for, sum_protocol
from tests.lying_coordinator import Opened, opening, telling
from tests.test_additive_shares import CHI_SQUARE, WIDTH, chi_square
from tests.test_dropouts import total, total_of
from tests.test_offline_sites import SITES as VISITORS
from tests.test_offline_sites import Store, made

BOUND, UNBOUND = "tests.site_process", "tests.unbound_site_process"
SECURE = ("ring", "k-secure", "changing-neighbours", "masked")
NOISE = "additive-shares"
"""The sum in which sites send each other nothing, so that none finds the difference."""
VICTIM = "site-3"
SITES = tuple(f"site-{number}" for number in range(1, 6))


def zero_but_of_the_victim(site: str, order: Order) -> Order:
    """Have everybody but one site put in zeros."""
    if order.step != "total":
        return order
    return replace(order, parameters={"factor": 1.0 if site == VICTIM else 0.0})


@pytest.mark.parametrize("via_coordinator", [False, True], ids=["direct", "relayed"])
@pytest.mark.parametrize("protocol", long_but_for((*SECURE, NOISE), "ring", "masked", NOISE))
def test_another_order_to_one_site_opens_its_value_only_without_the_chain(
    protocol: str, *, via_coordinator: bool
) -> None:
    values = np.random.default_rng(3).normal(size=(5, WIDTH))
    held = [Partition({"rows": row[None]}) for row in values]

    def opened(module: str) -> Residues:
        with (
            drill(5, protocol=protocol, module=module, partitions=held, via_coordinator=via_coordinator) as federation,
            telling(zero_but_of_the_victim),
            opening(),
            pytest.raises(Opened) as caught,
        ):
            federation.sum("total", shape=(WIDTH,), bound=1e3, factor=1.0)
        return caught.value.residues

    of_the_victim = sum_protocol(protocol).decode(opened(UNBOUND), (WIDTH,), 1e3, 5)
    assert np.allclose(of_the_victim, values[2], rtol=0, atol=1e-9)
    if protocol == NOISE:
        assert chi_square(opened(BOUND)) < CHI_SQUARE
        return
    with pytest.raises(SiteFailed) as failed:
        opened(BOUND)
    named = {site for site in SITES if site in str(failed.value)}
    assert VICTIM in named
    assert len(named) == 2


def other_members(site: str, order: Order) -> Order:
    if site != VICTIM:
        return order
    return replace(order, sites=tuple(each for each in order.sites if each != "site-5"), everyone=False)


def other_timeouts(site: str, order: Order) -> Order:
    return replace(order, timeout_s=order.timeout_s + (site == VICTIM))


def another_receiver(site: str, order: Order) -> Order:
    if site != VICTIM or not isinstance(order.terms, SumTerms):
        return order
    return replace(order, terms=replace(order.terms, receiver="site-1"))


LIES: dict[str, Callable[[str, Order], Order]] = {
    "other members": other_members,
    "another receiver": another_receiver,
    "another argument": zero_but_of_the_victim,
    "another step": lambda site, order: replace(order, step="ahead", parameters={}) if site == VICTIM else order,
    "another bound": lambda site, order: (
        replace(order, terms=replace(order.terms, bound=1e4))
        if site == VICTIM and isinstance(order.terms, SumTerms)
        else order
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_whatever_differs_between_the_orders_of_a_round_ends_the_run(lie: str) -> None:
    with drill(5) as federation, telling(LIES[lie]), pytest.raises(SiteFailed, match="received different orders"):
        federation.sum("total", shape=(3,), bound=1e3, factor=1.0)


@pytest.mark.parametrize("protocol", ["ring", "masked"])
def test_other_terms_for_one_site_end_the_run_at_the_first_sum(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Deployment.assignment

    def lying(deployment: Deployment, site: str, *told: Any) -> Assignment:
        assignment = honest(deployment, site, *told)
        if site != VICTIM:
            return assignment
        terms = replace(assignment.policy.terms, min_sites=2)
        return replace(assignment, policy=replace(assignment.policy, terms=terms))

    monkeypatch.setattr(Deployment, "assignment", lying)
    with drill(5, protocol=protocol) as federation, pytest.raises(SiteFailed) as caught:
        total(federation)
    assert VICTIM in str(caught.value)


@pytest.mark.parametrize("protocol", ["ring", "masked"])
def test_a_difference_in_an_earlier_round_ends_the_run_at_the_next_sum(protocol: str) -> None:
    def earlier(site: str, order: Order) -> Order:
        return replace(order, parameters={"seconds": 0.001}) if (site, order.step) == (VICTIM, "work") else order

    with drill(5, protocol=protocol) as federation, telling(earlier):
        federation.run("work", seconds=0.0)
        with pytest.raises(SiteFailed, match=f"{VICTIM}"):
            total(federation)


def test_what_no_site_acts_by_is_no_difference() -> None:
    with drill(5) as federation, telling(other_timeouts):
        assert np.allclose(total(federation), total_of(federation.sites), rtol=0, atol=1e-9)


def aborted_at_some(federation: Federation) -> FloatArray:
    """A sum that one site never hears of in its first attempt, since it is killed then, and the sum of the others."""
    federation.sum("die", shape=(3,), bound=1.0, site="site-5")
    return total(federation)


@pytest.mark.parametrize("protocol", long_but_for(SECURE, "ring", "masked"))
@pytest.mark.parametrize("rejoin", [False, True])
def test_aborted_rounds_and_rejoining_sites_leave_the_chains_equal(protocol: str, *, rejoin: bool) -> None:
    with drill(6, protocol=protocol, rejoin=rejoin) as federation:
        total(federation)
        survivors = tuple(site for site in federation.sites if site != "site-5")
        if rejoin:
            os.kill(federation.pids["site-5"], signal.SIGKILL)
            survivors = federation.sites
            total(federation)
        else:
            aborted_at_some(federation)
        assert np.allclose(total(federation), total_of(survivors), rtol=0, atol=1e-9)


# Masked sums in memory: what a coordinator that knows every site's own mask could open.


def peeled(protocol: SecureSum, vectors: dict[str, Residues], links: dict[str, bytes]) -> Residues:
    """The sum of what sites send less their own masks, so that only masks of pairs are on it."""
    network = InMemoryNetwork(tuple(vectors), links=links, timeout_s=20.0)

    def contribute(channel: MemoryChannel) -> None:
        protocol.contribute_residues(channel, vectors[channel.me])

    parties = dict.fromkeys(vectors, contribute)
    with pytest.raises(ProtocolError, match="sealed for") if len(set(links.values())) > 1 else nullcontext():
        network.run(
            {**parties, COORDINATOR: lambda channel: protocol.reveal_residues(channel, vectors["site-1"].shape)}
        )
    sent = {message.sender: message.array for message in network.sent if message.array.shape[-1:] == (WIDTH,)}
    total_sent = np.zeros((1, WIDTH), dtype=np.uint64)
    for site, masked_vector in sent.items():
        own = next(iter(network.expanded[site]))
        total_sent = total_sent + masked_vector - keystream(own, (1, WIDTH))
    return total_sent


def test_a_masked_sum_of_unequal_orders_is_noise_even_without_the_own_masks() -> None:
    vectors = {site: np.full((1, WIDTH), number, dtype=np.uint64) for number, site in enumerate(SITES)}
    protocol = SUMS["masked"](**OPTIONS.get("masked", {}))
    equal = peeled(protocol, vectors, dict.fromkeys(SITES, b"one order"))
    assert (equal == 10).all()
    unequal = peeled(protocol, vectors, {**dict.fromkeys(SITES, b"one order"), VICTIM: b"another"})
    assert chi_square(unequal) < CHI_SQUARE


# By visits, where a hub stores the messages.


def test_a_hub_that_tells_sites_different_orders_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub signs both orders. The next signature is bound to the other order, which one site never received."""
    sign, signed = OrderSigner.sign_order, list[tuple[OrderSigner, int]]()

    def watched(signer: OrderSigner, order: Order, number: int) -> Order:
        signed.append((signer, number))
        return sign(signer, order, number)

    def lie(site: str, order: Order) -> Order:
        if (site, order.step) != ("south", "prepare_fold"):
            return order
        signer, number = copy(signed[-1][0]), signed[-1][1]
        signer._chain = deepcopy(signer._chain)  # for the others it goes on from the honest order
        return sign(signer, replace(order, parameters={**order.parameters, "fold": None, "scale": "minmax"}), number)

    monkeypatch.setattr(OrderSigner, "sign_order", watched)
    parts, _, _ = made()
    store = Store(tmp_path)
    with telling(lie), pytest.raises(FederationError, match=r"south|north|clinic") as caught:
        store.advance()
        for _ in range(9):
            for site in VISITORS:
                store.visit(site, parts[site])
    assert "south failed in round 3 (setup, step fold_counts)" in str(caught.value)
    assert "must have the coordinator's signature, bound to the run and to all orders before it" in str(caught.value)
