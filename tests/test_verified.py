"""Sums that all sites open too, so that a coordinator that hands on another model than the trained one is found."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.linear_model import PanModel
from fedsvm.algorithms.site_scores import score_at_sites
from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import uniform_residues
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.errors import SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.fixed_point import add
from fedsvm.protocols.sums.ring import RING, ring
from fedsvm.protocols.sums.secure_sum import SecureSum
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.conftest import drill
from tests.test_agreed_steps import PAN, SITES, fit, sites, terms
from tests.test_dropouts import fault, is_total_of

VERIFIED = ring(verify=True)
TESTED = {"test_fraction": 0.2, "tested_by": "sites"}
FOLDS = np.resize([0, -1, -1, -1, -1], 20)


@pytest.mark.parametrize("count", [3, 6])
@pytest.mark.parametrize("length", [1, 70_000])
def test_every_site_opens_the_sum_at_the_stated_cost(count: int, length: int) -> None:
    names = tuple(f"site-{number}" for number in range(1, count + 1))
    inputs = dict(zip(names, uniform_residues((count, 2, length)), strict=True))
    network = InMemoryNetwork(names)

    def contribute(channel: MemoryChannel) -> Residues | None:
        VERIFIED.contribute(channel, inputs[channel.me])
        return VERIFIED.verify(channel, inputs[channel.me])

    def reveal(channel: MemoryChannel) -> Residues | None:
        total = VERIFIED.forward(channel, (2, length))
        assert total is not None
        VERIFIED.confirm(channel, total)
        return total

    opened = network.run({**dict.fromkeys(names, contribute), COORDINATOR: reveal})
    total = functools.reduce(add, inputs.values())
    assert all(each is not None and np.array_equal(each, total) for each in opened.values())
    cost = VERIFIED.cost_verified(count, (length,), np.inf)
    assert len(network.sent) == cost.messages
    assert sum(message.array.nbytes for message in network.sent) == cost.payload_bytes
    assert max(message.hop for message in network.sent) == cost.hops


@contextmanager
def trained(protocol: SecureSum) -> Iterator[tuple[Federation, PanModel]]:
    """Sites that trained a model with this sum, and hold rows out to test it."""
    agreed = replace(terms("pan-svm", TESTED, **PAN), sum_options=dict(protocol.options))
    with sites(agreed, SiteRules(), protocol=protocol, folds=FOLDS) as federation:
        yield federation, fit("pan-svm", fold=0, **PAN)(federation)


def test_sites_test_the_trained_model_and_no_other() -> None:
    with trained(VERIFIED) as (federation, model):
        assert any(
            (each.to, each.step) == ("sites", "released") and each.kind == "sum" for each in federation.disclosures
        )
        assert score_at_sites(federation, model).rows == 12
    with trained(VERIFIED) as (federation, model):
        assert model.w is not None
        other = replace(model, w=model.w * (1 + 1e-12))
        with pytest.raises(SiteFailed, match="the model must have the weights that the sites opened, and has others"):
            score_at_sites(federation, other)


def test_sites_test_any_model_where_nothing_is_verified() -> None:
    with trained(RING) as (federation, model):
        assert model.w is not None
        assert score_at_sites(federation, replace(model, w=-model.w)).rows == 12


def changed(protocol: SecureSum) -> SecureSum:
    """Return the sum of a coordinator that adds to what it opened, before anybody hears of it."""

    def reveal(channel: Any, shape: tuple[int, int]) -> Residues:
        total = protocol.reveal_residues(channel, shape)
        return add(total, np.ones_like(total)) if shape[1] == 6 else total  # of the model alone

    return replace(protocol, reveal_residues=reveal)


@pytest.mark.parametrize("protocol", [RING, VERIFIED], ids=["not verified", "verified"])
def test_a_coordinator_that_hands_on_another_sum_is_named_with_a_site(protocol: SecureSum) -> None:
    agreed = replace(terms("pan-svm", **PAN), sum_options=dict(protocol.options))
    with sites(agreed, SiteRules(), protocol=protocol) as federation:
        federation._protocol = changed(protocol)
        train = fit("pan-svm", **PAN)
        if protocol is RING:
            assert train(federation).w is not None
            return
        with pytest.raises(SiteFailed, match=r"coordinator opened another sum than site-\d") as caught:
            train(federation)
    assert caught.value.site in SITES


@pytest.mark.parametrize("message", [1, 2])
def test_a_sum_comes_again_if_a_site_is_lost_before_all_others_have_it(message: int) -> None:
    lost = {"site-3": fault("kill", 1, message)}
    with drill(5, protocol="verified-ring", faults=lost) as federation, federation.phase("train"):
        found = federation.sum("model", shape=(3,), bound=1e3, public=True)
        assert "site-3" not in federation.sites
        assert is_total_of(found, federation.sites)
        opened = federation.gather("received", shape=(3,))
        assert all(is_total_of(each, federation.sites) for each in opened.values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["protocol.sum=masked"], r'protocol.verify: protocol.sum must be "ring", got "masked"; change it'),
        (["algorithm.release=sites"], "protocol.verify: pan-svm with these settings opens no model that sites can"),
        (["algorithm.solver=cutting-plane"], "opens no model that sites can verify; remove it"),
        (["algorithm.name=naive-bayes"], "protocol.verify: naive-bayes with these settings opens no model"),
    ],
)
def test_scenarios_that_verify_nothing_are_refused(changes: list[str], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        spec.read("quickstart", overrides=["protocol.verify=true", *changes])
