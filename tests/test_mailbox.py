"""Mailboxes and channels over stored messages: what a party takes in, from whom, of which round, and how much."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.federation.channel import mailbox as mailboxes
from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.channel.envelope import Sealer
from fedsvm.federation.channel.generator import KeyedRandom, drawn_generator, drawn_key
from fedsvm.federation.channel.mailbox import Mailbox
from fedsvm.federation.channel.socket import SocketChannel
from fedsvm.federation.channel.transcript import Transcript, read_transcript
from fedsvm.federation.errors import NothingDue, PeerDropped, PeerLate, ProtocolError, StepRefused
from fedsvm.federation.offline.endpoint import StoredArrival, StoredEndpoint
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster
from fedsvm.federation.transport.wire import DATA_KIND, ENVELOPE_KIND, HELLO_KIND, Message
from tests.test_sealing import ARRAY, OTHER_RUN, ROUND, RUN, SITES, changed, message, sealers

AGREEMENTS = {site: KeyAgreement(RUN) for site in SITES}


def mailbox_of(
    name: str, *arrivals: tuple[str, Message], sealer: Sealer | None = None, unconnected: Collection[str] = ()
) -> tuple[Mailbox, list[tuple[str, Message]]]:
    """A party's mailbox in round 7 that took in some messages, and what it passed on."""
    passed_on: list[tuple[str, Message]] = []

    def store(receiver: str, passed: Message) -> None:
        if receiver in unconnected:
            raise PeerDropped(f"{receiver} has no connection")
        passed_on.append((receiver, passed))

    parties = (Party(site, "", site.encode().ljust(32), AGREEMENTS[site].public) for site in SITES)
    roster = Roster([Party(COORDINATOR, "", None), *parties])
    stored = (StoredArrival(peer, arrived) for peer, arrived in arrivals)
    mailbox = Mailbox(StoredEndpoint(name, roster, stored, store), RUN)
    mailbox.sealer = sealer
    mailbox.enter(ROUND)
    for _ in arrivals:
        mailbox.wait(Deadline(1))
        assert mailbox.next_control() is None
    return mailbox, passed_on


def take_in(mailbox: Mailbox, *arrivals: tuple[str, Message]) -> None:
    """Have a mailbox take in more messages."""
    mailbox.endpoint._arrivals = iter([StoredArrival(*each) for each in arrivals])  # type: ignore[attr-defined]
    for _ in arrivals:
        mailbox.wait(Deadline(1))
        assert mailbox.next_control() is None


def test_mailbox_keeps_arrays_of_its_run_and_round_alone() -> None:
    old, foreign, due = message(ROUND - 1), message(run=OTHER_RUN), message()
    mailbox, _ = mailbox_of("north", ("south", old), ("south", foreign), ("south", due))
    assert mailbox.refused == {"stale": 1, "another run": 1}
    assert mailbox.next_array("south") is due
    assert mailbox.next_array("south") is None


def test_mailbox_refuses_orders_of_another_run() -> None:
    order = (COORDINATOR, Message("order", OTHER_RUN, ROUND))
    mailbox, _ = mailbox_of("north", order, order)
    assert mailbox.refused == {"another run": 2}


def test_coordinator_passes_envelopes_on_for_their_true_sender_alone() -> None:
    honest = sealers()["north"].seal("south", message())
    forged, lost = changed(honest, sender="west"), changed(honest, receiver="stranger")
    mailbox, passed_on = mailbox_of(COORDINATOR, ("north", forged), ("north", lost), ("north", honest))
    assert passed_on == [("south", honest)]
    assert mailbox.refused == {"envelope of another": 2}
    assert mailbox.senders() == set()


def test_sites_open_envelopes_that_come_from_the_coordinator_alone() -> None:
    by_site = sealers()
    envelopes = [by_site["north"].seal("south", numbered(place, 5)) for place in range(2)]
    arrivals = (("west", envelopes[0]), (COORDINATOR, envelopes[1]))
    mailbox, passed_on = mailbox_of("south", *arrivals, sealer=by_site["south"])
    assert mailbox.refused == {"envelope of another": 1}
    assert mailbox.senders() == {"north"}
    kept = mailbox.next_array("north")
    assert kept is not None
    assert kept.sequence == 1, "the one that the coordinator passed on"
    assert passed_on == []


def test_sites_count_envelopes_that_do_not_open() -> None:
    by_site = sealers()
    forged = changed(by_site["west"].seal("south", message()), sender="north")
    mailbox, _ = mailbox_of("south", (COORDINATOR, forged), (COORDINATOR, forged), sealer=by_site["south"])
    assert mailbox.refused == {"malformed: an envelope that north did not seal": 2}
    assert mailbox.senders() == set()


def test_coordinator_holds_envelopes_for_a_site_until_it_has_a_connection() -> None:
    north, unconnected = sealers()["north"], {"south"}
    old, due = north.seal("south", message()), north.seal("south", message(ROUND + 1))
    mailbox, passed_on = mailbox_of(COORDINATOR, ("north", old), ("north", due), unconnected=unconnected)
    assert passed_on == []
    unconnected.clear()
    mailbox.enter(ROUND + 1)
    hello = Message(HELLO_KIND, RUN, 0)
    for site in ("west", "south", "south"):
        take_in(mailbox, (site, hello))
    assert passed_on == [("south", due)]
    assert not mailbox.refused


def test_coordinator_holds_so_many_envelopes_and_bytes_for_one_site(monkeypatch: pytest.MonkeyPatch) -> None:
    north = sealers()["north"]
    envelopes = [north.seal("south", message()) for _ in range(5)]
    size, beyond = envelopes[0].payload_bytes, "envelope beyond what is held"
    for count, limits in ((3, (3, 9 * size)), (2, (9, 2 * size)), (2, (9, 3 * size - 1))):
        monkeypatch.setattr(mailboxes, "MAX_HELD", limits[0])
        monkeypatch.setattr(mailboxes, "MAX_HELD_BYTES", limits[1])
        unconnected = {"south"}
        arrivals = [("north", envelope) for envelope in envelopes]
        mailbox, passed_on = mailbox_of(COORDINATOR, *arrivals, unconnected=unconnected)
        assert mailbox.refused == {beyond: 5 - count}
        unconnected.clear()
        take_in(mailbox, ("south", Message(HELLO_KIND, RUN, 0)))
        assert passed_on == [("south", envelope) for envelope in envelopes[:count]]


def test_mailbox_waits_for_the_last_round_that_a_peer_speaks_of_alone() -> None:
    rounds = [message(ROUND + 2), message(ROUND + 3), message(ROUND + 1), message()]
    mailbox, _ = mailbox_of("north", *(("south", each) for each in rounds), ("west", message(ROUND + 1)))
    assert mailbox.refused == {"stale": 2}
    assert mailbox.next_array("south") is rounds[3]
    assert mailbox.next_array("south") is None
    mailbox.enter(ROUND + 1)
    assert mailbox.senders() == {"west"}
    mailbox.enter(ROUND + 3)
    assert mailbox.refused == {"stale": 3}
    assert mailbox.next_array("south") is rounds[1]
    mailbox.enter(ROUND)
    assert mailbox.endpoint.round == ROUND + 3, "an older round does not begin"


def test_mailbox_keeps_all_arrays_of_this_round_and_of_the_last_that_a_peer_speaks_of() -> None:
    due, later, last = ([message(ROUND + ahead) for _ in range(2)] for ahead in range(3))
    mailbox, _ = mailbox_of("north", *(("south", each) for each in (*due, *later, *last)))
    assert mailbox.refused == {"stale": 2}
    assert set(mailbox._waiting) == {ROUND, ROUND + 2}, "of rounds that passed nothing is left"
    assert [mailbox.next_array("south") for _ in range(3)] == [*due, None]
    mailbox.enter(ROUND + 2)
    assert [mailbox.next_array("south") for _ in range(3)] == [*last, None]


def test_mailbox_keeps_so_many_arrays_and_bytes_of_one_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailboxes, "MAX_WAITING", 3)
    mailbox, _ = mailbox_of("north", *[("south", message())] * 5, ("west", message()))
    beyond = "array beyond what is kept of one peer"
    assert mailbox.refused == {beyond: 2}
    taken = []
    while (array := mailbox.next_array("south")) is not None:
        taken.append(array)
    assert len(taken) == 3
    assert mailbox.next_array("west") is not None
    monkeypatch.setattr(mailboxes, "MAX_WAITING_BYTES", 2 * ARRAY.nbytes)
    mailbox, _ = mailbox_of("north", *[("south", message())] * 3)
    assert mailbox.refused == {beyond: 1}
    mailbox.enter(ROUND + 1)
    assert mailbox.refused == {beyond: 1, "stale": 2}


@pytest.mark.parametrize(("count", "size"), [(3, 99), (99, 3)])
def test_mailbox_has_room_again_for_what_was_taken_or_dropped(
    count: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailboxes, "MAX_WAITING", count)
    monkeypatch.setattr(mailboxes, "MAX_WAITING_BYTES", size * ARRAY.nbytes)
    mailbox, _ = mailbox_of("north", *[("south", message())] * 3)
    beyond = "array beyond what is kept of one peer"
    for _ in range(2):
        assert mailbox.next_array("south") is not None
    take_in(mailbox, *[("south", message())] * 3)
    assert mailbox.refused == {beyond: 1}
    mailbox.enter(ROUND + 1)
    assert mailbox.refused == {beyond: 1, "stale": 3}
    take_in(mailbox, *[("south", message(ROUND + 1))] * 5)
    assert mailbox.refused == {beyond: 3, "stale": 3}


def test_mailbox_takes_agreement_keys_from_the_roster_that_holds_now() -> None:
    mailbox, _ = mailbox_of("north")
    assert mailbox.agreement_keys([COORDINATOR, "south"]) == [None, AGREEMENTS["south"].public]
    for key in (AGREEMENTS["west"].public, AGREEMENTS["south"].public):
        mailbox.endpoint.admit(Roster([Party("south", "", b"south".ljust(32), key)]))
        assert [mailbox.agreement_keys(["south"]) for _ in range(2)] == [[key], [key]]


def test_mailbox_refuses_arrays_with_fields() -> None:
    with_fields = Message(DATA_KIND, RUN, ROUND, fields={"more": 1}, arrays={"value": ARRAY})
    mailbox, _ = mailbox_of("north", ("south", with_fields), ("south", with_fields))
    assert mailbox.refused == {"malformed: an array with fields": 2}
    assert mailbox.senders() == set()


def channel_of(name: str, *arrivals: tuple[str, Message], round_number: int = ROUND, **options: Any) -> SocketChannel:
    """A party's channel of a round, whose mailbox takes in what arrives as the channel waits."""
    mailbox, _ = mailbox_of(name)
    mailbox.endpoint._arrivals = iter([StoredArrival(peer, each) for peer, each in arrivals])  # type: ignore[attr-defined]
    mailbox.enter(round_number)

    def notice() -> None:
        assert mailbox.next_control() is None

    options = {"agreement": AGREEMENTS.get(name)} | options
    return SocketChannel(mailbox, SITES, len(SITES), round_number, Deadline(1), notice, **options)


def numbered(sequence: int, value: int) -> Message:
    """The array of one number that a peer sends in a place of the round."""
    return Message(DATA_KIND, RUN, ROUND, sequence, arrays={"value": np.full(1, value, dtype=np.uint64)})


def test_channel_takes_every_array_once_and_in_order() -> None:
    sent = [numbered(0, 10), numbered(0, 11), numbered(2, 12), numbered(1, 13)]
    channel = channel_of("north", *(("south", each) for each in sent))
    assert [channel.receive("south", (1,))[0] for _ in range(2)] == [10, 13]
    assert channel._mailbox.refused == {"out of sequence": 2}


@pytest.mark.parametrize(("shape", "dtype"), [((2,), np.uint64), ((1,), np.float64), ((1, 1), np.uint64)])
def test_channel_refuses_arrays_of_another_shape_or_type(shape: tuple[int, ...], dtype: Any) -> None:
    with pytest.raises(ProtocolError, match=r"south sent uint64 \(1,\) to north"):
        channel_of("north", ("south", numbered(0, 1))).receive("south", shape, dtype)


def test_secrets_of_sites_differ_by_pair_purpose_and_round_and_agree_within() -> None:
    known: dict[tuple[frozenset[str], str, int], set[bytes]] = {}
    for me in SITES:
        peers = [site for site in SITES if site != me]
        for number in (ROUND, ROUND + 1):
            channel = channel_of(me, round_number=number)
            for purpose in ("masks", "shares"):
                for peer, secret in zip(peers, channel.shared_secrets(peers, purpose), strict=True):
                    known.setdefault((frozenset((me, peer)), purpose, number), set()).add(secret)
    assert len(known) == 3 * 2 * 2
    assert all(len(secrets) == 1 for secrets in known.values())
    assert len(set.union(*known.values())) == len(known)


def test_what_sites_seal_opens_at_the_other_in_its_round_for_its_purpose_alone() -> None:
    north, south = channel_of("north"), channel_of("south")
    (sealed,) = north.seal({"south": b"content"}, "shares")
    assert south.unseal({"north": sealed}, "shares") == [b"content"]
    later = channel_of("south", round_number=ROUND + 1)
    for channel, sender, purpose in (
        (south, "north", "masks"),
        (south, "west", "shares"),
        (north, "south", "shares"),
        (channel_of("west"), "north", "shares"),
        (later, "north", "shares"),
    ):
        with pytest.raises(ProtocolError, match="bytes that it did not"):
            channel.unseal({sender: sealed}, purpose)


def test_sites_without_keys_share_no_secret() -> None:
    for channel, peer in ((channel_of("north", agreement=None), "south"), (channel_of("north"), COORDINATOR)):
        with pytest.raises(StepRefused, match=f"north and {peer} have no keys to agree on a secret"):
            channel.shared_secrets([peer], "masks")


def test_random_vectors_of_a_channel_are_fresh_or_those_of_its_generator() -> None:
    assert len({channel_of("north").random((4,)).tobytes() for _ in range(4)}) == 4
    given = channel_of("north", draw=lambda shape: np.full(shape, 7, dtype=np.uint64))
    assert given.random((2,)).tolist() == [7, 7]


def test_generator_of_a_channel_has_a_key_of_32_bytes_that_the_channel_draws() -> None:
    channel = channel_of("north", draw=lambda shape: np.arange(*shape, dtype=np.uint64))
    key = np.arange(4, dtype="<u8").tobytes()
    assert drawn_key(channel) == key
    assert drawn_generator(channel).randbytes(99) == KeyedRandom(key).randbytes(99)
    assert len({drawn_generator(channel_of("north")).randbytes(9) for _ in range(4)}) == 4


def test_channel_gives_up_where_a_site_of_the_round_dropped() -> None:
    channel = channel_of("north")
    channel.drop("west", "its process ended")
    with pytest.raises(PeerDropped, match="north cannot continue without west"):
        channel.receive("south", (1,))
    with pytest.raises(NothingDue):
        channel_of("north").receive("south", (1,))


def test_channel_collects_one_array_of_each_peer_in_the_order_asked_for() -> None:
    sent = [("west", numbered(0, 5)), ("west", numbered(1, 6)), ("north", numbered(0, 7)), ("south", numbered(0, 4))]
    channel = channel_of(COORDINATOR, *sent)
    collected = channel.collect({"south": (1,), "west": (1,)})
    assert [(peer, array.tolist()) for peer, array in collected.items()] == [("south", [4]), ("west", [5])]
    collected = channel.collect(dict.fromkeys(("west", "north"), (1,)))
    assert [(peer, array.tolist()) for peer, array in collected.items()] == [("west", [6]), ("north", [7])]
    assert channel.left_out == {}
    with pytest.raises(ProtocolError, match=r"south sent uint64 \(1,\) to coordinator"):
        channel_of(COORDINATOR, ("south", numbered(0, 4))).collect({"south": (2,)})
    with pytest.raises(ProtocolError, match=r"south sent uint64 \(1,\) to coordinator"):
        channel_of(COORDINATOR, ("south", numbered(0, 4))).collect({"south": (1,)}, np.float64)


def test_channel_collects_without_sites_that_dropped_or_are_late() -> None:
    channel = channel_of(COORDINATOR, ("south", numbered(0, 4)))
    channel.drop("north", "it withdrew")
    assert list(channel.collect(dict.fromkeys(("north", "south"), (1,)))) == ["south"], "nobody waits for north"
    assert channel.left_out == {"north": "it withdrew"}
    with pytest.raises(NothingDue):
        channel.collect({"north": (1,), "west": (1,)})
    channel._mailbox.endpoint.is_closing = True  # type: ignore[attr-defined]
    assert channel.collect(dict.fromkeys(("north", "west"), (1,))) == {}
    assert channel.left_out == {"north": "it withdrew", "west": "it was silent for 1 s"}


def test_channel_gives_up_a_peer_that_is_late() -> None:
    channel = channel_of("north")
    channel._mailbox.endpoint.is_closing = True  # type: ignore[attr-defined]
    with pytest.raises(PeerLate, match=r"^north waited 1 s without a message from south$"):
        channel.receive("south", (1,))
    assert channel.waiting_for == "south"


def test_channel_gives_up_where_a_connection_that_it_needs_broke() -> None:
    def breaks(channel: SocketChannel, *broken: str) -> bool:
        channel._mailbox.endpoint.interrupted.update(broken)
        try:
            channel.receive("south", (1,))
        except PeerDropped as error:
            assert str(error).startswith(f"the connection of {channel.me} to {broken[0]} broke")
            return True
        except NothingDue:
            return False
        raise AssertionError

    spoken = channel_of("north")
    spoken.send("west", ARRAY)
    by_way_of = channel_of("north")
    by_way_of._mailbox.sealer = sealers()["north"]
    assert breaks(spoken, "west")
    assert not breaks(channel_of("north"), "west")
    assert not breaks(channel_of("north"), COORDINATOR)
    assert breaks(by_way_of, COORDINATOR)
    assert breaks(channel_of(COORDINATOR), "west")
    assert not breaks(channel_of(COORDINATOR), "stranger")


def test_channel_sends_each_array_to_its_peer_with_run_round_place_and_hop() -> None:
    for me, peers in (("north", ("south", COORDINATOR, "south")), (COORDINATOR, ("south", "west", "south"))):
        mailbox, sent = mailbox_of(me, ("west", Message(DATA_KIND, RUN, ROUND, 0, 4, arrays={"value": ARRAY})))
        channel = SocketChannel(mailbox, SITES, len(SITES), ROUND, Deadline(1), lambda: None)
        channel.receive("west", ARRAY.shape)
        for number, peer in enumerate(peers):
            channel.send(peer, ARRAY + np.uint64(number))
            assert channel.waiting_for == peer
        assert tuple(peer for peer, _ in sent) == peers
        for number, (_, each) in enumerate(sent):
            assert (each.kind, each.run, each.round, each.hop) == (DATA_KIND, RUN, ROUND, 5)
            assert (each.sequence, each.fields) == ((0, 0, 1)[number], {})
            np.testing.assert_array_equal(each.arrays["value"], ARRAY + np.uint64(number))


def test_channel_begins_a_chain_and_knows_the_sites_that_a_sum_needs() -> None:
    mailbox, sent = mailbox_of("north")
    channel = SocketChannel(mailbox, SITES, 9, ROUND, Deadline(1), lambda: None, min_sites=5)
    channel.send("south", ARRAY)
    assert (channel.me, channel.sites, channel.run_sites, channel.min_sites) == ("north", SITES, 9, 5)
    assert (sent[0][1].hop, channel.hop) == (1, 0)
    assert channel_of("north").min_sites == 1


@pytest.mark.parametrize("me", ["north", COORDINATOR])
def test_sites_need_whom_they_send_to_and_the_coordinator_does_not(me: str) -> None:
    mailbox, _ = mailbox_of(me, unconnected={"south"})
    channel = SocketChannel(mailbox, SITES, len(SITES), ROUND, Deadline(1), lambda: None)
    if me == COORDINATOR:
        channel.send("south", ARRAY)
        return
    with pytest.raises(PeerDropped, match="south has no connection"):
        channel.send("south", ARRAY)


def test_channel_numbers_what_it_sends_for_each_receiver() -> None:
    channel = channel_of("north")
    for peer in ("south", "south", "west", COORDINATOR):
        channel.send(peer, ARRAY)
    assert channel.sent_to == {"south": 2, "west": 1, COORDINATOR: 1}


@pytest.mark.parametrize("colludes", [True, False])
def test_transcript_of_an_honest_site_has_its_inputs_alone(colludes: bool, tmp_path: Path) -> None:
    path = tmp_path / "transcript"
    transcript = Transcript(str(path), colludes=colludes).begin_round(ROUND)
    channel = channel_of("north", ("south", numbered(0, 5)), observers=[transcript])
    transcript.put_in(ARRAY, {"step": "total"})
    channel.send("south", ARRAY)
    channel.receive("south", (1,))
    channel.random((2,))
    for part in (0, 1, 2):
        channel.expand([bytes(32), b"x" * 32], (2,), part)
    assert path.stat().st_mode & 0o777 == 0o600
    written = [(each.what, each.round, each.peer, each.place) for each in read_transcript(str(path))]
    streams = [("drew", ROUND, f"keystream {number}", place) for place in (0, 1, 2) for number in (1, 2)]
    seen = [("sent", ROUND, "south", 0), ("received", ROUND, "south", 0), ("drew", ROUND, "", 0), *streams]
    assert written == [("input", ROUND, "", 0), *(seen if colludes else [])]


def test_channel_seals_what_sites_send_each_other_through_the_coordinator() -> None:
    by_site = sealers()
    mailbox, sent = mailbox_of("north", sealer=by_site["north"])
    channel = SocketChannel(mailbox, SITES, len(SITES), ROUND, Deadline(1), lambda: None)
    channel.send("south", ARRAY)
    channel.send(COORDINATOR, ARRAY)
    (first, envelope), (second, plain) = sent
    assert (first, envelope.kind, second, plain.kind) == (COORDINATOR, ENVELOPE_KIND, COORDINATOR, DATA_KIND)
    assert ARRAY.tobytes() not in envelope.frame
    opened = by_site["south"].open(envelope)[1]
    np.testing.assert_array_equal(opened.arrays["value"], ARRAY)
