"""The refusals of a site by its own configuration, whatever a coordinator orders: named there, and nothing sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.control import Abort, GatherTerms, Order, SumTerms
from fedsvm.federation.errors import OrderRefused, SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.faults import OwnFaults
from fedsvm.federation.site.program import Installation, SiteProgram, StepMark, mark_of, step
from fedsvm.federation.site.site import Site, may_be_opened
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from fedsvm.federation.transport.message_transport import Received
from fedsvm.protocols.sums.k_secure import k_secure
from fedsvm.protocols.sums.masked import masked
from fedsvm.protocols.sums.plain import PLAIN
from tests.conftest import drill
from tests.test_dropouts import is_total_of, total


def protocol_messages(federation: Federation) -> int:
    """Return the number of protocol messages so far, as their receivers reported it."""
    return sum(traffic.messages for _, traffic in federation.accounts.select(control=False))


@contextmanager
def refused(says: str, sites: int = 4, protocol: str = "ring") -> Iterator[Federation]:
    """A federation in which a sum went well, and what is done next is refused by a site, and nothing sent for it."""
    with drill(sites, protocol=protocol) as federation, federation.phase("train"):
        assert is_total_of(total(federation), federation.sites)
        before = protocol_messages(federation)
        with pytest.raises(SiteFailed, match=rf"^site-\d failed in round \d \(.*\): it refuses the order: {says}"):
            yield federation
    assert set(federation.sites) <= federation.final_reports.keys()  # with them all messages are entered
    assert protocol_messages(federation) == before


# Orders, over real sockets.


@pytest.mark.parametrize("protocol", ["ring", "masked"])
def test_a_replayed_order_is_refused(protocol: str) -> None:
    """Under masks that are used twice two vectors would show their difference."""
    with refused(r"its round must be above 1, the last one here, got 1$", protocol=protocol) as federation:
        federation.progress.round -= 1
        federation.sum("total", shape=(3,), bound=1e3, factor=2.0)


@pytest.mark.parametrize(
    ("protocol", "weaker", "says"),
    [
        ("ring", PLAIN, "the sum must be ring, got plain$"),
        ("masked", PLAIN, r"the sum must be masked \(threshold = 0.6\), got plain$"),
        ("k-secure", k_secure(2), r"the sum must be k-secure \(segments = 3\), got k-secure \(segments = 2\)$"),
        ("masked", masked(0.51), r"the sum must be masked \(threshold = 0.6\), got masked \(threshold = 0.51\)$"),
    ],
    ids=["plain", "plain-for-masked", "segments", "threshold"],
)
def test_a_sum_that_is_weaker_than_the_configuration_is_refused(protocol: str, weaker: Any, says: str) -> None:
    with refused(says, protocol=protocol) as federation:
        federation._protocol = weaker
        total(federation)


def test_a_step_that_is_only_summed_is_not_shown() -> None:
    with refused("the value of step 'total' must go into a sum, and the order takes it in the clear$") as federation:
        federation.gather("total", shape=(3,))


def test_a_sum_over_too_few_sites_is_refused() -> None:
    with refused("it must be for 3 sites or more, got 2$", sites=3) as federation:
        federation.membership._status["site-2"].takes_part = False
        total(federation)


def test_sites_in_another_order_than_agreed_are_refused() -> None:
    """Check that the coordinator cannot choose the neighbors in a ring."""
    with refused("its sites must be site-. and others of site-1, site-2, site-3, site-4, in this order") as federation:
        federation.membership._status = dict(reversed(federation.membership._status.items()))
        total(federation)


def test_a_sum_that_nobody_in_it_opens_is_refused() -> None:
    """Its receiver would not blind it, and the coordinator have it."""
    with refused("a sum must be opened by the coordinator or a site in it, got site-9$") as federation:
        federation.sum("total", receiver="site-9", shape=(3,), bound=1e3)


# Rosters, over real sockets.


def doctored(roster: Roster, change: Callable[[Party], Party | None]) -> Roster:
    changed = (change(party) for party in roster)
    return Roster(party for party in changed if party is not None)


def other_keys(party: Party) -> Party:
    return party._replace(public_key=KeyPair.generate().public) if party.name == "site-3" else party


def other_agreement_key(party: Party) -> Party:
    return party._replace(agreement_key=bytes(31) + b"9") if party.name == "site-3" else party


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (other_keys, "the keys of site-3 must stay, since it is not to be started again$"),
        (other_agreement_key, "the keys of site-3 must stay, since it is not to be started again$"),
        (lambda party: None if party.name == "site-3" else party, "its parties must be .*: site-3 is missing$"),
        (
            lambda party: party._replace(name="mallory") if party.name == "site-3" else party,
            "its parties must be .*: mallory is none of them; site-3 is missing$",
        ),
    ],
    ids=["key", "agreement-key", "left-out", "stranger"],
)
def test_a_doctored_roster_is_refused(change: Callable[[Party], Party | None], says: str) -> None:
    """And changes nothing: with the roster as it was all go on."""
    with drill(4, protocol="masked") as federation:
        first = total(federation)
        admission = federation._admission
        roster, admission._roster = admission._roster, doctored(admission._roster, change)
        with pytest.raises(SiteFailed, match=rf"^site-\d failed in round 1 \(.*\): it refuses the order: {says}"):
            admission._introduce(federation.sites, Deadline(10))
        admission._roster = roster
        np.testing.assert_array_equal(total(federation), first)


def test_a_first_roster_with_another_key_for_the_site_itself_is_refused() -> None:
    def to_sites(party: str, roster: Roster) -> Roster:
        return roster if party == COORDINATOR else doctored(roster, other_keys)

    refuses = pytest.raises(SiteFailed, match=r"^site-3 failed in round 0 .* the keys of site-3 must stay")
    with refuses, drill(4, views=to_sites) as federation:
        raise AssertionError(f"{federation.sites} assembled")


# The same in memory, for whatever an order may say.

SITES = ("a", "b", "d", "e", "g")
AGREED = Terms("shop", {}, "k-secure", {"segments": 3}, min_sites=3, shown=("kernel",), restartable=("e",))
POLICY = SitePolicy(SITES, AGREED)
SUMMED, GATHERED = StepMark(), StepMark("value")
TERMS = SumTerms((2,), 1e3, {"segments": 3}, COORDINATOR)
ORDER = Order("cuts", "k-secure", TERMS, sites=SITES)


@pytest.mark.parametrize(
    ("order", "mark", "may_be"),
    [
        (ORDER, SUMMED, True),
        (replace(ORDER, terms=replace(TERMS, receiver="a")), SUMMED, False),
        (replace(ORDER, terms=None), StepMark("value"), False),
        (replace(ORDER, terms=None), StepMark("value", shown="kernel"), True),
    ],
)
def test_coordinator_may_open_sums_sent_to_it_and_values_that_a_step_shows(
    order: Order, mark: StepMark, may_be: bool
) -> None:
    assert may_be_opened(mark, order) == may_be


subsets = st.sets(st.sampled_from(SITES)).map(lambda chosen: tuple(site for site in SITES if site in chosen))


@given(sites=subsets)
def test_sums_over_enough_of_the_sites_are_carried_out(sites: tuple[str, ...]) -> None:
    order = replace(ORDER, sites=sites)
    for site in sites:
        if len(sites) >= 3:
            POLICY.check_order(order, site, SUMMED)
        else:
            with pytest.raises(OrderRefused, match="3 sites or more"):
                POLICY.check_order(order, site, SUMMED)


@given(st.lists(st.sampled_from([*SITES, "f"]), max_size=6), st.sampled_from(SITES))
def test_no_other_list_of_sites_is_taken(sites: list[str], me: str) -> None:
    in_order = sites == sorted(set(sites)) and "f" not in sites and me in sites
    if in_order:
        return
    for terms in (None, TERMS, GatherTerms((2,))):
        with pytest.raises(OrderRefused, match="in this order"):
            POLICY.check_order(replace(ORDER, terms=terms, sites=tuple(sites)), me, GATHERED)


options = st.dictionaries(st.sampled_from(["segments", "threshold"]), st.integers(0, 5) | st.floats(0, 1), max_size=2)


@given(name=st.sampled_from(["plain", "ring", "k-secure", "masked", "gather", ""]), given_options=options)
def test_no_other_sum_is_taken(name: str, given_options: dict[str, float]) -> None:
    order = replace(ORDER, protocol=name, terms=replace(TERMS, options=given_options))
    if (name, given_options) == ("k-secure", {"segments": 3}):
        POLICY.check_order(order, "a", SUMMED)
        return
    with pytest.raises(OrderRefused, match=r"the sum must be k-secure \(segments = 3\), got"):
        POLICY.check_order(order, "a", SUMMED)


def test_what_is_shown_is_declared_by_the_step_or_the_configuration() -> None:
    gathered = replace(ORDER, protocol="gather", terms=GatherTerms((2,)))
    POLICY.check_order(gathered, "a", GATHERED)
    POLICY.check_order(replace(gathered, step="kernel"), "a", SUMMED)
    with pytest.raises(OrderRefused, match="'cuts' must go into a sum"):
        POLICY.check_order(gathered, "a", SUMMED)
    with pytest.raises(OrderRefused, match="3 sites or more, got 1"):
        POLICY.check_order(replace(gathered, sites=("a",)), "a", GATHERED)


def test_a_step_is_only_summed_unless_it_says_otherwise() -> None:
    class Shop(SiteProgram):
        @step
        def takings(self) -> None: ...

        @step(opens="value")
        def customers(self) -> None: ...

    assert (mark_of(Shop.takings).opens, mark_of(Shop.customers).opens) == ("sum", "value")


def test_a_sum_has_the_bound_that_its_step_declares() -> None:
    POLICY.check_order(ORDER, "a", StepMark(bound=1e3))
    with pytest.raises(OrderRefused, match="a sum of step 'cuts' must have the bound inf, got 1000"):
        POLICY.check_order(ORDER, "a", StepMark(bound=math.inf))


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=12))
def test_whatever_the_numbers_of_rounds_none_is_carried_out_twice(orders: list[tuple[int, bool]]) -> None:
    """But for steps that one site takes by itself, by which a newcomer is told what it missed."""
    last, shared = 0, []
    for number, alone in orders:
        order = replace(ORDER, terms=None, sites=("a",)) if alone else ORDER
        try:
            POLICY.check_round(order, "a", number, last)
        except OrderRefused:
            assert number < last or (number == last and not alone)
            continue
        shared += [] if alone else [number]
        last = max(last, number)
    assert shared == sorted(set(shared))


def party(name: str) -> Party:
    return Party(name, "", name[:1].upper().encode() * 32, None if name == COORDINATOR else name.encode() * 32)


@given(name=st.sampled_from([COORDINATOR, *SITES]), me=st.sampled_from(SITES), as_agreement=st.booleans())
def test_only_the_keys_of_sites_that_may_be_restarted_change(name: str, me: str, as_agreement: bool) -> None:
    changed = {"agreement_key": b"y" * 32} if as_agreement else {"public_key": b"x" * 32}
    known = Roster(party(each) for each in (COORDINATOR, *SITES))
    new = known.replace(known[name]._replace(address="elsewhere", **changed))  # type: ignore[arg-type]
    if name == "e" and me != "e":
        POLICY.check_roster(new, known, me)
    else:
        with pytest.raises(OrderRefused, match=f"the keys of {name} must stay"):
            POLICY.check_roster(new, known, me)
    moved = known.replace(known[name]._replace(address="elsewhere"))
    POLICY.check_roster(moved, known, me)


def test_two_parties_of_one_key_are_refused() -> None:
    """A coordinator that goes by the name of a site as well."""
    parties = [party(name) for name in (COORDINATOR, *SITES)]
    known = Roster([parties[0], parties[1]])
    twice = Roster([*parties[:-1], parties[-1]._replace(public_key=parties[0].public_key)])
    with pytest.raises(OrderRefused, match="a key of its own"):
        POLICY.check_roster(twice, known, "a")


def test_a_round_is_not_gone_back_to() -> None:
    """An abort of an older round, or an older roster, does not make a site take an order for one that is over."""
    keys, run = KeyPair.generate(), bytes(8)
    with Endpoint("a", "tcp://127.0.0.1:*", keys, 2) as endpoint:
        assignment = Assignment("a", run, "", 2, True, "tcp://127.0.0.1:1", keys.public, "drill", "", POLICY)
        site = Site(assignment, Installation({}, {}), endpoint, KeyAgreement(run), OwnFaults([], lambda fields: None))
        for number in (7, 3):
            endpoint._pending.append(Received(COORDINATOR, Abort().to_message(run, number), False))
        site._notice()
        assert endpoint.round == 7
        site._mailbox.enter(5)
        assert endpoint.round == 7
