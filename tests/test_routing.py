"""Sites that speak through the coordinator: the same protocols, counted on both hops, and nothing that it can read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.channel.envelope import Sealer
from fedsvm.federation.channel.mailbox import MAX_HELD, MAX_WAITING, MAX_WAITING_BYTES, Mailbox
from fedsvm.federation.errors import Malformed
from fedsvm.federation.federation import Federation
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from fedsvm.federation.transport.wire import DATA_KIND, Message
from fedsvm.protocols.sums.registry import SUMS
from tests.capture import captured, may_capture
from tests.conftest import ROWS, drill, long_but_for
from tests.small_runs import check_optimum, run

RUN = b"run-id.."


def sealers() -> dict[str, Sealer]:
    """North, south, east, and a coordinator that tries."""
    agreements = {name: KeyAgreement(RUN) for name in ("north", "south", "east", COORDINATOR)}
    keys = {name: agreement.public for name, agreement in agreements.items()}
    return {name: Sealer(name, agreement, keys.get) for name, agreement in agreements.items()}


def message(round_number: int = 3) -> Message:
    return Message(DATA_KIND, RUN, round_number, arrays={"value": np.arange(5.0)})


def test_who_an_envelope_is_for_opens_it_and_nobody_else() -> None:
    parties = sealers()
    envelope = parties["north"].seal("south", message())
    sender, opened = parties["south"].open(envelope)
    assert sender == "north"
    assert opened.arrays["value"].tolist() == np.arange(5.0).tolist()
    for party in ("east", COORDINATOR):
        posing = replace(envelope, fields={"sender": "north", "receiver": party})
        with pytest.raises(Malformed, match="an envelope that north did not seal"):
            parties[party].open(posing)
        with pytest.raises(Malformed, match="an envelope for south"):
            parties[party].open(envelope)


def test_a_coordinator_keeps_so_much_for_a_site_that_is_away_and_no_more() -> None:
    north = sealers()["north"]
    keys = KeyPair.generate()
    with Endpoint(COORDINATOR, "tcp://127.0.0.1:*", keys, peers=2) as endpoint:
        parties = [Party(name, endpoint.address, keys.public) for name in (COORDINATOR, "south")]
        endpoint.admit(Roster(parties))
        mailbox = Mailbox(endpoint, RUN)
        for _ in range(MAX_HELD + 3):
            mailbox._take_envelope("north", north.seal("south", message()))
        assert mailbox.refused == {"envelope beyond what is held": 3}


def test_a_peer_that_sends_ahead_of_its_time_fills_nobodys_memory() -> None:
    """Of each peer so many arrays wait, and so many bytes, of this round and the next together; others have theirs."""
    large = np.broadcast_to(np.uint64(0), (MAX_WAITING_BYTES // 4 // 8,))
    with Endpoint("south", "tcp://127.0.0.1:*", KeyPair.generate(), peers=2) as endpoint:
        mailbox = Mailbox(endpoint, RUN)
        mailbox.enter(3)
        for number in range(MAX_WAITING + 3):
            mailbox._keep("north", message(3 + number % 2))
        assert mailbox.refused == {"array beyond what is kept of one peer": 3}
        assert mailbox.next_array("north") is not None
        mailbox._keep("north", message(3))
        for _ in range(6):
            mailbox._keep("east", Message(DATA_KIND, RUN, 4, arrays={"value": large}))
        assert mailbox.refused == {"array beyond what is kept of one peer": 5}
        mailbox.enter(4)
        assert sum(mailbox.next_array("east") is not None for _ in range(6)) == 4
        assert sum(mailbox.next_array("north") is not None for _ in range(MAX_WAITING)) == MAX_WAITING // 2


def test_fields_of_an_array_that_nobody_would_read_are_not_kept() -> None:
    with Endpoint("south", "tcp://127.0.0.1:*", KeyPair.generate(), peers=2) as endpoint:
        mailbox = Mailbox(endpoint, RUN)
        mailbox.enter(3)
        mailbox._keep("north", replace(message(3), fields={"tables": [{}] * 1000}))
        assert mailbox.next_array("north") is None
        assert mailbox.refused == {"malformed: an array with fields": 1}


def test_of_a_peer_that_is_ahead_the_last_round_waits_that_it_speaks_of() -> None:
    """Whatever its number: a run that is resumed leaves out a hundred, and a site may not have heard of it yet."""
    with Endpoint("south", "tcp://127.0.0.1:*", KeyPair.generate(), peers=2) as endpoint:
        mailbox = Mailbox(endpoint, RUN)
        mailbox.enter(7)
        for number in (108, 109, 108, 6):
            mailbox._keep("north", message(number))
        mailbox._keep("east", message(108))
        assert mailbox.refused == {"stale": 3}
        mailbox.enter(108)
        assert (mailbox.next_array("north"), mailbox.senders()) == (None, {"east"})
        mailbox.enter(109)
        assert mailbox.next_array("north") is not None


def test_a_peer_that_names_ever_later_rounds_leaves_nothing_behind_of_the_earlier_ones() -> None:
    with Endpoint("south", "tcp://127.0.0.1:*", KeyPair.generate(), peers=2) as endpoint:
        mailbox = Mailbox(endpoint, RUN)
        mailbox.enter(3)
        for number in range(4, 1004):
            mailbox._keep("north", message(number))
        assert mailbox.refused == {"stale": 999}
        assert set(mailbox._waiting) == {1003}
        for _ in range(MAX_WAITING):  # what was dropped takes no room
            mailbox._keep("north", message(1004))
        assert mailbox.refused == {"stale": 1000}


def test_what_a_round_left_takes_no_room_in_the_next() -> None:
    with Endpoint("south", "tcp://127.0.0.1:*", KeyPair.generate(), peers=2) as endpoint:
        mailbox = Mailbox(endpoint, RUN)
        for number in range(1, 4):
            mailbox.enter(number)
            for _ in range(MAX_WAITING):
                mailbox._keep("north", message(number))
            assert mailbox.next_array("north") is not None
            mailbox._keep("north", message(number))
        assert mailbox.refused == {"stale": 2 * MAX_WAITING}


def test_an_envelope_that_is_changed_on_its_way_does_not_open() -> None:
    parties = sealers()
    envelope = parties["north"].seal("south", message())
    sealed = envelope.arrays["sealed"].copy()
    sealed[20] ^= 1
    changed = [
        replace(envelope, arrays={"sealed": sealed}),
        replace(envelope, fields={"sender": "east", "receiver": "south"}),
        replace(envelope, round=4),
        parties["north"].seal("east", message()),
        replace(parties["north"].seal("east", message()), fields=envelope.fields),
        replace(envelope, arrays={"sealed": sealed[:3]}),
        replace(envelope, fields={"sender": 1}),
    ]
    for each in changed:
        with pytest.raises(Malformed):
            parties["south"].open(each)


def test_no_nonce_is_used_twice() -> None:
    north = sealers()["north"]
    sent = [north.seal(receiver, message()).arrays["sealed"] for receiver in ("south", "south", "east", "south")]
    nonces = Counter(each[:12].tobytes() for each in (sent[0], sent[1], sent[3]))
    assert set(nonces.values()) == {1}
    assert len({each[12:].tobytes() for each in sent}) == len(sent)


def links(federation: Federation) -> dict[tuple[str, str], int]:
    """Messages of protocols, by sender and receiver."""
    counted: Counter[tuple[str, str]] = Counter()
    for link, traffic in federation.accounts.select(control=False):
        counted[link.sender, link.receiver] += traffic.messages
    return dict(counted)


def summed(name: str, transport: Literal["tcp", "ipc"], *, via_coordinator: bool) -> Federation:
    """A federation that is over, after one sum."""
    with drill(
        5, protocol=name, via_coordinator=via_coordinator, transport=transport, encrypted=transport == "tcp"
    ) as federation:
        total = federation.sum("total", shape=(3,), bound=1e3)
    assert total.tolist() == (5 * ROWS.sum(axis=0) + 40).tolist()
    return federation


@pytest.mark.parametrize("transport", long_but_for(["tcp", "ipc"], "tcp"))
@pytest.mark.parametrize("name", long_but_for(SUMS, "k-secure", "masked"))
def test_every_sum_runs_unchanged_and_is_counted_on_both_hops(name: str, transport: Literal["tcp", "ipc"]) -> None:
    directly, sealed = (summed(name, transport, via_coordinator=via) for via in (False, True))
    among_sites = sum(count for link, count in links(directly).items() if COORDINATOR not in link)
    assert not [link for link in links(sealed) if COORDINATOR not in link]
    greetings = {True: 5, False: 0}
    for to_sites in (True, False):
        hop = [
            sum(count for (sender, _), count in links(each).items() if (sender == COORDINATOR) == to_sites)
            for each in (directly, sealed)
        ]
        beside = hop[0] - (0 if to_sites else among_sites)
        assert hop[1] == beside + among_sites + greetings[not to_sites]
    for entry in sealed.accounts.entries.values():
        if entry.sent is not None and entry.received is not None:
            assert entry.sent.payload_bytes == entry.received.payload_bytes
        if entry.received is not None and transport == "tcp":
            assert entry.received.wire_bytes == entry.received.predicted_wire_bytes


FAULTS = {
    "kill": "kill:site=2,phase=train,round=6",
    "kill and rejoin": "kill:site=4,phase=train,round=7,rejoin=true",
    "stall": "stall:site=3,phase=train,round=5,for_s=0.5",
    "disconnect": "disconnect:site=2,phase=train,round=5,for_s=0.5",
}


@pytest.mark.parametrize("fault", long_but_for(FAULTS, "kill and rejoin", "disconnect"))
@pytest.mark.parametrize("protocol", long_but_for(["ring", "k-secure"], "ring"))
def test_faults_and_relays_do_what_they_do_without(fault: str, protocol: str, tmp_path: Path) -> None:
    changes = [f"protocol.sum={protocol}", "protocol.routing=via-coordinator"]
    check_optimum(run(tmp_path / "run", changes, [FAULTS[fault]]).result)


@pytest.mark.skipif(not may_capture(), reason="capturing packets needs root and Linux")
@pytest.mark.parametrize("via_coordinator", [False, True])
def test_a_capture_of_unencrypted_sockets_shows_rows_only_where_sites_speak_directly(via_coordinator: bool) -> None:
    with (
        captured("lo") as packets,
        drill(3, via_coordinator=via_coordinator, encrypted=False) as federation,
    ):
        federation.run("tell")
    shown = [
        number
        for number in range(3)
        if any((ROWS + number).tobytes() in data for each in packets.segments.values() for data in each.values())
    ]
    assert shown == ([] if via_coordinator else [0, 1, 2])
