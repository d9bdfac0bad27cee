"""A committee that the terms name: who serves, what a round costs, and what happens where a member is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.channel.memory import InMemoryNetwork
from fedsvm.federation.errors import SitesDropped, StepRefused
from fedsvm.federation.membership import DropoutPolicy, Membership
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis.execution import Execution
from fedsvm.protocols.blind_system import blind_systems_cost, contribute_to_systems, solve_blind_systems
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.scenarios import description
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.hosts import NAMES, hosts
from tests.small_runs import run
from tests.test_blind_path import BOARDS
from tests.test_blind_system import Posed
from tests.test_explanation import explained
from tests.test_hosts import resumed
from tests.test_interior_runs import kill

NAMED = 'protocol.committee=["site-2","site-4","site-1"]'


def solved(posed: Posed, members: tuple[str, ...], name: str) -> tuple[Any, InMemoryNetwork]:
    network, total = InMemoryNetwork(tuple(posed.entries)), SUMS[name]()

    def part(channel: Channel) -> Any:
        return contribute_to_systems(channel, total, [posed.system], [posed.entries[channel.me]], members)

    parties: dict[str, Any] = dict.fromkeys(posed.entries, part)
    parties[COORDINATOR] = lambda channel: solve_blind_systems(channel, total, [posed.system], members)[0].found
    return network.run(parties)[COORDINATOR], network


@pytest.mark.parametrize("name", ["ring", "masked"])
def test_the_named_sites_serve_and_nothing_is_drawn_to_choose_them(name: str) -> None:
    posed, members = Posed.random(5, 6, 2), ("site-2", "site-5", "site-3")
    found, network = solved(posed, members, name)
    np.testing.assert_allclose(found, posed.solution, rtol=1e-7, atol=1e-9)
    cost = Execution({}, None, network).cost
    stated = blind_systems_cost(SUMS[name](), 5, [posed.system], is_drawn=False)
    assert (cost.messages, cost.payload_bytes) == (stated.messages, stated.payload_bytes)
    assert cost.hops <= stated.hops
    senders = Counter(message.sender for message in network.sent if message.array.dtype == np.float64)
    assert senders.keys() == {COORDINATOR, "site-2", "site-5"}, "only these two hold a solution"


def test_a_site_refuses_a_round_without_a_named_member() -> None:
    posed = Posed.random(4, 5)
    with pytest.raises(StepRefused, match="site-9 of the committee that the terms name does not take part"):
        solved(posed, ("site-1", "site-9", "site-2"), "ring")


def test_a_lost_member_ends_the_run_and_another_site_does_not() -> None:
    membership = Membership(("a", "b", "c", "d"), DropoutPolicy(committee=("a", "b", "c")))
    membership.change(1, "train", {"d": "it was killed"}, (), "round 1")
    membership.change(2, "train", {"b": "it was killed"}, ("b",), "round 2")
    with pytest.raises(SitesDropped, match=r"c dropped in round 3: it was killed\. The terms name it") as lost:
        membership.change(3, "train", {"c": "it was killed"}, (), "round 3")
    assert lost.value.dropped == {"c": "it was killed"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (['protocol.committee=["site-1","site-2","west"]'], "there is no site 'west'; there are site-1, "),
        (
            ['protocol.committee=["site-1","site-2"]'],
            "must be 3 sites, two that hold shares and then the dealer, got 2",
        ),
        (['protocol.committee=[1,2,"site-1"]'], "site-1 is listed twice; name three different sites"),
        ([NAMED, "algorithm.masking=auto"], 'needs algorithm.masking = "committee", got "auto"'),
        ([NAMED, "algorithm.name=naive-bayes"], "the algorithm has no masking"),
    ],
)
def test_an_impossible_committee_is_refused(changes: list[str], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        spec.read("committee", overrides=changes)


def test_the_terms_and_the_explanation_name_the_members() -> None:
    scenario, _ = spec.read("committee", overrides=["protocol.committee=[2,4,1]"])
    terms = terms_of(scenario)
    assert terms.committee == ("site-2", "site-4", "site-1")
    assert Terms.from_fields(terms.to_fields()) == terms
    assert terms_of(spec.read("committee")[0]).committee == ()
    assert any(
        "The committee is site-2, site-4 and, as its dealer, site-1," in each
        for each in explained("committee", NAMED).asks
    )


def test_a_description_of_columns_needs_no_committee() -> None:
    scenario, _ = spec.read("committee", overrides=[NAMED])
    chosen = description.describable(scenario)
    assert (chosen.committee, description.terms_to_describe(chosen).committee) == ((), ())


@pytest.mark.parametrize(
    ("sites", "has_systems"),
    [(("site-2", "site-4"), True), pytest.param(("site-3", "site-1"), False, marks=pytest.mark.long)],
)
def test_a_run_has_the_named_roles_in_every_round(sites: tuple[str, str], has_systems: bool, tmp_path: Path) -> None:
    """The coordinator with both sites that hold shares has all rows, and with the dealer and another site fewer."""
    told = f'collusion={{sites=["{sites[0]}","{sites[1]}"],coordinator=true}}'
    result = run(tmp_path / "run", [*BOARDS, "federation.sites=4", NAMED, told], []).result
    assert result["error"] is None
    (audit,) = result["audit"]
    assert (audit["recovered"] == audit["rows"]) == has_systems


@pytest.mark.parametrize(("site", "completes"), [(3, True), (2, False), (1, False)])
def test_a_run_ends_where_a_named_member_is_killed_and_says_the_way_out(
    site: int, completes: bool, tmp_path: Path
) -> None:
    result = run(
        tmp_path / "run", [*BOARDS, "federation.sites=4", NAMED], [kill(site, "train", 9, rejoin=False)]
    ).result
    assert (result["error"] is None) == completes
    if not completes:
        assert f"site-{site} dropped in " in result["error"]
        assert "start again with another site in protocol.committee" in result["error"]


@pytest.mark.long
def test_across_hosts_a_run_without_a_named_member_is_resumed_when_it_is_back(tmp_path: Path) -> None:
    named = ("--set", 'protocol.committee=["south","east","north"]', "--set", "algorithm.masking=committee")
    with hosts(tmp_path) as there:
        coordinator = there.coordinator(*named, "--set", "algorithm.tolerance=1e-4")
        kill_north = ("--fault", "kill:phase=train,round=6")
        sites = {name: there.site(name, coordinator, *(kill_north if name == "north" else ())) for name in NAMES}
        assert (sites["north"].ends(), coordinator.ends()) == (-9, 3)
        assert "resume the run when it is back, or start again with another site" in coordinator.said
        assert "committee south, east, north" in sites["east"].said
        again = resumed(there, coordinator)
        sites["north"] = there.site("north", coordinator)
        assert [each.ends() for each in (again, *sites.values())] == [0] * 4, [x.said for x in (again, *sites.values())]
