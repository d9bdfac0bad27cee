"""Sites that drop: killed, stalled, restarted, in the middle of real rounds over real sockets."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import MembershipChanged, PeerDropped, RoundFailed, SiteFailed, SitesDropped
from fedsvm.federation.federation import Federation
from fedsvm.federation.membership import DropoutPolicy, Membership
from fedsvm.federation.processes.launcher import LocalLauncher
from fedsvm.federation.round import Round
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.faults import OwnFaults
from fedsvm.federation.site.program import Installation
from fedsvm.federation.site.site import Site
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair
from fedsvm.federation.transport.message_transport import Received
from fedsvm.federation.transport.wire import Message
from fedsvm.protocols.sums.consent import MISSING, OPEN
from fedsvm.protocols.sums.masked import SEALED_WORDS, SECRET_WORDS, requests
from fedsvm.protocols.sums.neighbourhoods import neighbourhoods
from fedsvm.protocols.sums.ring import ring_reveal
from tests.conftest import ROWS, drill, long_but_for, sum_protocol

SUMS = ["plain", "ring", "k-secure", "changing-neighbours", "masked", "additive-shares"]


def fault(kind: str, round_number: int, message: int = 0, for_s: float | None = None) -> list[dict[str, Any]]:
    """A fault that a site does to itself in phase train."""
    place = {"phase": "train", "round": round_number, "message": message}
    return [{"number": 0, "kind": kind, "for_s": for_s, **place}]


def total_of(sites: Iterable[str]) -> FloatArray:
    """Return the sum of the drill's step `total` over these sites."""
    return np.asarray(np.sum([(ROWS + int(site.removeprefix("site-")) - 1).sum(axis=0) for site in sites], axis=0))


def total(federation: Federation) -> FloatArray:
    return federation.sum("total", shape=(3,), bound=1e3)


def is_total_of(value: FloatArray, sites: Iterable[str]) -> bool:
    return bool(np.allclose(value, total_of(sites), rtol=0, atol=1e-9))


@pytest.mark.parametrize("protocol", long_but_for(SUMS, "ring", "masked"))
@pytest.mark.parametrize("site", long_but_for(["site-1", "site-3", "site-5"], "site-1", "site-3"))
@pytest.mark.parametrize("message", [0, 1, 2, 3])
def test_a_site_is_killed_before_any_of_its_messages(protocol: str, site: str, message: int) -> None:
    """The sum is that of all or of the survivors, the next one that of the survivors, and nobody waits in vain."""
    with drill(6, protocol=protocol, faults={site: fault("kill", 2, message)}) as federation:
        everyone = federation.sites
        survivors = tuple(name for name in everyone if name != site)
        with federation.phase("train"):
            assert is_total_of(total(federation), everyone)
            second, after = total(federation), federation.sites
            assert is_total_of(second, everyone) or is_total_of(second, survivors)
            third = total(federation)
    if after == survivors:
        assert is_total_of(third, survivors)
        (change,) = federation.membership.changes
        assert change.left == {site: "its process was killed by signal 9"}
    else:  # the site does not send so many messages in a round
        assert after == everyone
    assert set(federation.final_reports) == set(federation.sites)
    off = [record.round for record in federation.accounts.rounds.values() if record.aborted]
    assert off == ([2] if len(federation.accounts.rounds) == 4 else [])
    assert not (off and protocol in {"plain", "masked"})


@pytest.mark.parametrize("protocol", ["ring", "masked"])
def test_a_killed_site_is_started_again_and_takes_part_from_the_next_round(protocol: str) -> None:
    with drill(4, protocol=protocol, faults={"site-2": fault("kill", 2, 1)}, rejoin=True) as federation:
        with federation.phase("train"):
            values = [total(federation) for _ in range(3)]
        sites = federation.sites
    assert sites == federation.membership.all_sites
    assert is_total_of(values[1], [site for site in sites if protocol == "ring" or site != "site-2"])
    assert is_total_of(values[2], sites)
    (change,) = federation.membership.changes
    assert (set(change.left), change.joined) == ({"site-2"}, ("site-2",))
    assert set(federation.final_reports) == set(sites)


def test_a_site_that_joins_later_is_told_the_public_state_first() -> None:
    with drill(4, faults={"site-2": fault("kill", 3)}, rejoin=True) as federation, federation.phase("train"):
        federation.run("keep", remember=True, number=5.0)
        federation.run("keep", remember=True, number=7.0)
        total(federation)
        kept = federation.gather("kept", shape=())
    assert {site: float(number) for site, number in kept.items()} == dict.fromkeys(federation.sites, 7.0)


@pytest.mark.parametrize("protocol", long_but_for(["ring", "k-secure", "masked"], "ring", "masked"))
def test_a_stall_that_is_over_in_time_costs_nothing_but_time(protocol: str) -> None:
    with drill(4, protocol=protocol, faults={"site-2": fault("stall", 1, 1, for_s=0.3)}) as federation:
        with federation.phase("train"):
            assert is_total_of(total(federation), federation.sites)
        assert federation.sites == federation.membership.all_sites
    assert [record.aborted for record in federation.accounts.rounds.values()] == [False]


@pytest.mark.parametrize("protocol", long_but_for(["ring", "masked"], "masked"))
def test_a_site_that_stalls_for_too_long_is_out_until_the_next_phase(protocol: str) -> None:
    def continue_it(launcher: LocalLauncher, federation: Federation) -> None:
        continued.append(launcher.pids["site-2"])

    continued: list[int] = []
    stall = fault("stall", 1, 1)
    with drill(4, protocol=protocol, timeout_s=1.5, faults={"site-2": stall}, when_assembled=continue_it) as federation:
        with federation.phase("train"):
            assert is_total_of(total(federation), ["site-1", "site-3", "site-4"])
            os.kill(continued[0], signal.SIGCONT)
            while not federation.membership.returned:  # it answers while others work
                assert is_total_of(total(federation), ["site-1", "site-3", "site-4"])
        with federation.phase("evaluate"):
            assert is_total_of(total(federation), federation.membership.all_sites)
    out, back = federation.membership.changes
    assert (set(out.left), back.joined, back.phase) == ({"site-2"}, ("site-2",), "evaluate")


@pytest.mark.parametrize("stalled", [["site-2"], ["site-1", "site-2", "site-3"]], ids=["one", "all"])
def test_silent_sites_are_waited_for_and_no_stage_begins_anew(stalled: list[str]) -> None:
    """None of them lost its state, and so nobody leaves."""
    faults = {site: fault("stall", 2, 1, for_s=3.5) for site in stalled}
    with drill(3, timeout_s=1.5, silence_s=30.0, faults=faults) as federation, federation.phase("train"):
        with federation.fixed_membership():
            for _ in range(3):
                assert is_total_of(total(federation), federation.membership.all_sites)
        assert federation.membership.changes == []
    assert any(record.aborted for record in federation.accounts.rounds.values())


def test_a_silent_site_that_a_sum_was_completed_without_joins_again_at_once() -> None:
    stall = {"site-2": fault("stall", 2, 1, for_s=3.5)}
    with drill(4, protocol="masked", timeout_s=1.5, silence_s=30.0, faults=stall) as federation:
        with federation.phase("train"):
            values = [total(federation) for _ in range(3)]
        (change,) = federation.membership.changes
    assert (set(change.left), change.joined) == ({"site-2"}, ("site-2",))
    assert is_total_of(values[1], ["site-1", "site-3", "site-4"])
    assert is_total_of(values[2], federation.membership.all_sites)


def test_a_sum_that_was_revealed_before_a_loss_was_noticed_stands() -> None:
    """It is taken from what has come in, and not revealed again for the others."""
    pids: dict[str, int] = {}

    def remember(launcher: LocalLauncher, federation: Federation) -> None:
        pids.update(launcher.pids)

    def reveal(channel: Channel, shape: tuple[int, int]) -> Residues:
        """The ring's, but the first time it looks only when all sites are done and one of them is lost."""
        if pids:
            # The round's own waiting, which the channel is given as what to call after every wait.
            round_: Round = channel._notice.__self__  # type: ignore[attr-defined]
            round_.wait_until(lambda: len(round_.answers) == 5, Deadline(20))
            os.kill(pids.pop("site-3"), signal.SIGKILL)
            pids.clear()
            round_.wait_until(lambda: round_.unreachable, Deadline(20))
            raise PeerDropped("site-3 is lost")
        return ring_reveal(channel, shape)

    with drill(5, when_assembled=remember) as federation:
        federation._protocol = replace(sum_protocol("ring"), reveal_residues=reveal)
        value = total(federation)
        assert is_total_of(value, federation.membership.all_sites)
        assert federation.sites == ("site-1", "site-2", "site-4", "site-5")
    assert [record.aborted for record in federation.accounts.rounds.values()] == [False]


def test_a_local_step_is_taken_by_all_that_are_left() -> None:
    """It is run again only where the loss was noticed before all others had finished, which is a matter of moments."""
    with drill(4, faults={"site-2": fault("kill", 1)}) as federation, federation.phase("train"):
        federation.run("keep", number=1.0)
        aborted = [record.aborted for record in federation.accounts.rounds.values()]
        kept = federation.gather("kept", shape=())
    assert aborted in ([False], [True, False])
    assert {site: float(number) for site, number in kept.items()} == {"site-1": 1.0, "site-3": 1.0, "site-4": 1.0}


def test_a_protocol_among_the_sites_is_run_again_by_the_others() -> None:
    with drill(5, faults={"site-3": fault("kill", 1)}) as federation, federation.phase("train"):
        federation.run("agree")
        seeds = federation.gather("agreed", shape=(1, 4))
    assert len({seed.tobytes() for seed in seeds.values()}) == 1
    assert len(seeds) == 4
    assert [record.aborted for record in federation.accounts.rounds.values()] == [True, False, False]


def test_rounds_that_build_on_each_other_are_told_of_a_change() -> None:
    with drill(4, faults={"site-2": fault("kill", 2)}) as federation, federation.phase("train"):
        with pytest.raises(MembershipChanged), federation.fixed_membership():
            assert is_total_of(total(federation), federation.sites)
            total(federation)
        assert is_total_of(total(federation), ["site-1", "site-3", "site-4"])


def test_a_stage_begins_anew_when_a_site_drops_within_it() -> None:
    stages: list[list[FloatArray]] = []

    with drill(4, faults={"site-2": fault("kill", 2)}) as federation, federation.phase("train"):

        def stage() -> list[FloatArray]:
            stages.append([])
            for _ in range(3):
                stages[-1].append(total(federation))
            return stages[-1]

        of_survivors = federation.until_stable(stage)
        survivors = federation.sites
    assert [len(each) for each in stages] == [1, 3]
    assert all(is_total_of(value, survivors) for value in of_survivors)


def test_an_inner_stage_begins_anew_by_itself_and_leaves_the_outer_one_protected() -> None:
    """The first site drops in the inner stage, the second after it: the outer one is told of the second alone."""
    begun: list[str] = []

    faults = {"site-2": fault("kill", 2), "site-4": fault("kill", 4)}
    with drill(5, faults=faults) as federation, federation.phase("train"):

        def inner() -> None:
            begun.append("inner")
            total(federation)

        def outer() -> FloatArray:
            begun.append("outer")
            total(federation)
            federation.until_stable(inner)
            return total(federation)

        value = federation.until_stable(outer)
        assert is_total_of(value, ["site-1", "site-3", "site-5"])
        assert [sorted(change.left) for change in federation.membership.changes] == [["site-2"], ["site-4"]]
        total(federation)  # no stage protects this one
    assert begun == ["outer", "inner", "inner", "outer", "inner"]


@pytest.mark.parametrize("receiver", [COORDINATOR, "site-3"])
def test_what_the_difference_of_two_sums_gives_away_is_written_down(receiver: str) -> None:
    with drill(4, faults={"site-2": fault("kill", 2)}) as federation, federation.phase("train"):
        for _ in range(3):
            federation.sum("total", receiver=receiver, shape=(3,), bound=1e3)
        federation.sum("total", receiver="site-4", shape=(3,), bound=1e3)  # who has the one has not the other
        federation.sum("total", receiver=receiver, shape=(3,), bound=1e4, factor=2.0)
    (found,) = [each for each in federation.disclosures if each.kind == "difference"]
    assert (found.to, found.step, found.times) == (receiver, "total", 1)
    assert found.form == "the difference of two sums, which is that of site-2"


def test_too_few_sites_end_the_run_by_name() -> None:
    lost = pytest.raises(
        SitesDropped, match=r"site-2 dropped in round 1 \(train, step total\): .* 2 sites are left, and 3"
    )
    with drill(3, faults={"site-2": fault("kill", 1)}) as federation, federation.phase("train"), lost as caught:
        total(federation)
    assert caught.value.dropped == {"site-2": "its process was killed by signal 9"}


def test_masked_sums_end_the_run_when_too_few_of_its_sites_are_left() -> None:
    """One site after the other drops: each round has enough of the sites of the round before, but not of the run's."""
    faults = {f"site-{number}": fault("kill", number, 1) for number in (2, 3, 4)}
    lost = pytest.raises(SitesDropped, match=r"site-4 dropped in round 4 .* 2 sites are left, and 3 are needed")
    with drill(5, protocol="masked", faults=faults) as federation, federation.phase("train"), lost:
        while True:
            total(federation)


def test_a_membership_that_shrinks_below_the_fewest_says_so_and_keeps_its_history() -> None:
    membership = Membership(("a", "b", "c"), DropoutPolicy(min_sites=2))
    membership.change(4, "train", {"a": "it slept"}, (), "round 4")
    with pytest.raises(SitesDropped, match=r"b dropped in round 5: it slept. 1 site is left, and 2 are needed."):
        membership.change(5, "train", {"b": "it slept"}, (), "round 5")
    assert [change.sites for change in membership.changes] == [("b", "c"), ("c",)]


def test_a_site_whose_round_is_aborted_before_it_begins_takes_what_comes_for_the_next() -> None:
    """Order and abort may come in together; a faster peer's message of the next round must not be too far ahead."""
    keys = KeyPair.generate()
    with Endpoint("site-1", "tcp://127.0.0.1:*", keys, 2) as endpoint:
        run = bytes(8)
        policy = SitePolicy(("site-1", "site-2"), Terms("drill", {}, "ring", {}, 1))
        assignment = Assignment("site-1", run, "", 2, True, "tcp://127.0.0.1:1", keys.public, "drill", "", policy)
        agreement, faults = KeyAgreement(run), OwnFaults([], lambda fields: None)
        site = Site(assignment, Installation({}, {}), endpoint, agreement, faults)
        for kind in ("order", "abort"):
            endpoint._pending.append(Received(COORDINATOR, Message(kind, run, 7), False))
        endpoint._pending.append(Received("site-2", Message("data", run, 8), False))
        site._notice()
        assert endpoint.refused["stale"] == 0
        site._mailbox.enter(8)
        assert site._mailbox.next_array("site-2") is not None
        assert site._orders == []


# Twenty sites, two of them killed in the middle of a round.


def test_a_masked_round_goes_on_without_two_of_twenty_and_a_ring_is_run_again() -> None:
    """Of a ring one: the other would be spared where the round is aborted before its order gets there."""
    two, one = ("site-4", "site-13"), ("site-4",)
    spent = {}
    for protocol, message, victims in (("masked", 2, two), ("masked", 0, two), ("ring", 0, one)):
        faults = dict.fromkeys(victims, fault("kill", 2, message))
        with drill(20, protocol=protocol, timeout_s=30, faults=faults) as federation:
            survivors = [site for site in federation.sites if site not in victims]
            with federation.phase("train"):
                total(federation)
                assert is_total_of(total(federation), survivors)
            assert federation.sites == tuple(survivors)
        records = list(federation.accounts.rounds.values())[1:]
        links = [traffic for link, traffic in federation.accounts.select(control=False) if link.round > 1]
        spent[protocol] = (len(records), sum(traffic.payload_bytes for traffic in links))
        assert [record.aborted for record in records] == ([False] if protocol == "masked" else [True, False])
    assert spent["masked"][0] == 1
    assert spent["ring"][0] == 2
    assert spent["masked"][1] > spent["ring"][1]  # three numbers do not make up for the shares


# A coordinator that does not keep the protocol.


def ask_for_both_halves(channel: Channel, shape: tuple[int, int]) -> Residues:
    """Act as a curious coordinator: call site-3 missing, and then ask to open its own mask too."""
    sites = channel.sites
    masked = channel.collect(dict.fromkeys(sites, shape))
    channel.collect(dict.fromkeys(sites, (len(sites) - 1, SEALED_WORDS)))
    helper, graph = sites[0], neighbourhoods(sites)
    channel.send(helper, requests(graph, MISSING, np.array([site != "site-3" for site in sites]))[0])
    channel.receive(helper, (1, SECRET_WORDS))
    channel.send(helper, requests(graph, OPEN, np.ones(len(sites), dtype=bool))[0])
    channel.receive(helper, (len(sites), SECRET_WORDS))
    return masked[helper]


def test_a_site_refuses_a_coordinator_that_asks_for_both_halves() -> None:
    refused = pytest.raises(SiteFailed, match=r"site-1 failed in round 1 .*: it is asked for both masks of site-3")
    with drill(5, protocol="masked") as federation, refused:
        federation._protocol = replace(sum_protocol("masked"), reveal_residues=ask_for_both_halves)
        total(federation)


def never_enough(channel: Channel, shape: tuple[int, int]) -> Residues:
    """Wait for a second message of a site that sends one."""
    channel.receive("site-1", shape)
    return np.asarray(channel.receive("site-1", shape))


def test_a_round_that_fails_again_and_again_with_all_sites_there_ends_the_run() -> None:
    failed = pytest.raises(RoundFailed, match=r"aborted, and \d+ times in a row, though every site answers")
    with drill(3) as federation, failed as caught:
        federation._runner._round_timeout_s = 0.2  # from here on, since launching may take longer
        federation._protocol = replace(sum_protocol("ring"), reveal_residues=never_enough)
        total(federation)
    assert caught.value.waiting.keys() == {"site-1", "site-2", "site-3"}
    assert 2 <= len(federation.accounts.rounds) <= 10
