"""Control messages: what goes in comes out, and nothing of another form is believed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsvm.federation.control import (
    Abort,
    GatherTerms,
    Order,
    RosterUpdate,
    RunOver,
    SumTerms,
    read_interrupt,
    read_order,
)
from fedsvm.federation.errors import Malformed
from fedsvm.federation.site_messages import (
    Aborted,
    FinalReport,
    LogRecord,
    RoundProgress,
    StepDone,
    StepFailure,
    read_answer,
)
from fedsvm.federation.transport.keys import COORDINATOR, SIGNATURE_BYTES, Party, Roster
from fedsvm.federation.transport.wire import Message, decode, encode

RUN = bytes(8)
ROW = [3, False, "site-1", "site-2", 1, 24, 120, None]
STANDING = RoundProgress(3, "site-2", 1)
ORDER = Order("cuts", "ring", None, {"factor": 2.0}, {"w": np.ones(3)}, "train", 4, ("site-1", "site-2"), 80.0)
TERMS = [
    None,
    GatherTerms((2, 3)),
    SumTerms((2,), 1e3, {"segments": 3}, COORDINATOR),
    SumTerms((), float("inf"), {}, "site-2"),
]
ANSWERS: list[StepDone | Aborted | StepFailure | FinalReport | LogRecord] = [
    StepDone([ROW]),
    StepDone([], STANDING),
    Aborted([ROW], STANDING),
    StepFailure([], None, "it does not add up", "", cut_off=False),
    StepFailure([ROW], STANDING, "a peer is gone", "", cut_off=True),
    FinalReport([ROW], 0.5, None, {"stale": 2}),
    LogRecord("error", "drill", "it does not add up"),
]


def over_the_wire(message: Message) -> Message:
    return decode(encode(message))


@pytest.mark.parametrize("terms", TERMS, ids=["run", "gather", "sum", "sum-at"])
def test_an_order_survives_the_wire(terms: SumTerms | GatherTerms | None, request: pytest.FixtureRequest) -> None:
    sent = replace(ORDER, terms=terms)
    received = read_order(over_the_wire(sent.to_message(RUN, 7)))
    assert isinstance(received, Order)
    assert sent.verb == received.verb == request.node.callspec.id
    assert sent.reveals == received.reveals == (sent.verb in ("gather", "sum"))
    np.testing.assert_array_equal(received.arrays["w"], sent.arrays["w"])
    assert {**vars(received), "arrays": None} == {**vars(sent), "arrays": None}


@pytest.mark.parametrize("stop", [RunOver(), RunOver("north dropped in round 3", resumable=True)])
def test_sites_learn_what_came_of_the_run(stop: RunOver) -> None:
    assert RunOver.from_message(over_the_wire(stop.to_message(RUN, 7))) == stop


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, r"the fields of stop must be \['failure', 'resumable'\]"),
        ({"failure": "", "resumable": 1}, "resumable of stop must be bool"),
        ({"failure": "x" * 501, "resumable": True}, "failure of stop must have 500 characters or fewer, got 501"),
        ({"failure": "\x1b[2J", "resumable": True}, "failure of stop must be printable"),
    ],
)
def test_a_malformed_end_of_a_run_is_refused(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(Malformed, match=sentence):
        RunOver.from_message(over_the_wire(Message("stop", RUN, 7, fields=fields)))


def test_an_order_to_everyone_names_nobody() -> None:
    """A thousand names to each of a thousand sites would be most of what a round says."""
    sent = replace(ORDER, everyone=True)
    message = over_the_wire(sent.to_message(RUN, 7))
    assert message.fields["sites"] is None
    received = read_order(message, ORDER.sites)
    assert isinstance(received, Order)
    assert (received.sites, received.everyone) == (ORDER.sites, True)
    with pytest.raises(Malformed, match="sites of order must be list or missing"):
        read_order(with_fields(message, {**message.fields, "sites": "everyone"}))


def test_chain_and_signature_add_at_most_64_bytes_to_an_order() -> None:
    """An order of a ring round took 206 bytes before it named the round that it follows, and was signed."""
    terms = SumTerms((300,), 1.0, {}, COORDINATOR)
    order = Order("numbers", "ring", terms, {"length": 300}, phase="train", phase_round=3, timeout_s=120.0)
    signed = replace(order, after=60_000, everyone=True, signature=bytes(SIGNATURE_BYTES))
    assert len(signed.to_message(RUN, 60_001).frame) <= 206 + 64


@given(st.lists(st.binary(min_size=32, max_size=32).filter(any), min_size=1, max_size=6))
def test_a_roster_finds_a_party_by_its_whole_key_alone(keys: list[bytes]) -> None:
    roster = Roster(Party(f"site-{number}", "", key) for number, key in enumerate(keys))
    for key in keys:
        assert roster.name_of(key) == f"site-{keys.index(key)}"
    joined = b"".join(keys)
    for start in range(1, len(joined) - 32):
        between = joined[start : start + 32]
        assert (roster.name_of(between) is not None) == (between in keys)
    assert roster.name_of(bytes(32)) is None
    assert roster.shares_keys == (len(set(keys)) < len(keys))


NAMES = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(
    st.dictionaries(NAMES, st.tuples(NAMES, st.none() | st.binary(min_size=32, max_size=32).filter(any)), max_size=9)
)
def test_a_roster_gives_back_its_parties(given_parties: dict[str, tuple[str, bytes | None]]) -> None:
    parties = [Party(name, *rest) for name, rest in given_parties.items()]
    roster = Roster(parties)
    assert list(roster) == [roster[party.name] for party in parties] == parties
    assert (len(roster), list(roster.names)) == (len(parties), list(given_parties))
    assert list(Roster.from_columns(*roster.to_columns())) == parties or not parties
    assert not list(roster.others_keys(Roster(reversed(parties))))


def test_a_name_of_two_lines_is_nobody() -> None:
    roster = Roster([Party("site-1", "tcp://a", None), Party("site-2", "tcp://b", None)])
    assert "site-2" in roster
    for claimed in ("site-1\nsite-2", "", "ite-1", "site-"):
        assert claimed not in roster
        with pytest.raises(KeyError):
            roster[claimed]


def test_a_key_that_changed_is_found_among_few_and_many() -> None:
    parties = [Party(f"site-{number}", "", bytes([number + 1] * 32)) for number in range(40)]
    now = Roster(parties).replace(parties[7]._replace(public_key=b"k" * 32))
    assert list(now.others_keys(Roster(parties))) == ["site-7"]
    assert list(now.others_keys(Roster(parties[5:9]))) == ["site-7"]
    assert not list(now.others_keys(Roster(parties[8:])))


def test_keys_that_begin_alike_are_not_the_same() -> None:
    begin = b"begins so"
    parties = [Party(f"site-{number}", "", begin.ljust(31) + bytes([number])) for number in range(1, 4)]
    assert not Roster(parties).shares_keys
    assert Roster([*parties, Party("other", "", None, parties[0].public_key)]).shares_keys
    zeros = [Party(f"site-{number}", "", bytes(8) + bytes([number] * 24)) for number in (1, 2)]
    assert not Roster(zeros).shares_keys
    assert Roster([*zeros, zeros[0]._replace(name="other")]).shares_keys


@pytest.mark.parametrize("all_sites", [(), ("site-1", "site-2")])
def test_a_roster_that_lists_one_twice_is_malformed(all_sites: tuple[str, ...]) -> None:
    message = RosterUpdate(Roster([Party("coordinator", "a", None), Party("site-1", "b", None)])).to_message(RUN, 0)
    twice = with_fields(message, {"names": "site-1\nsite-1", "addresses": "a\nb"})
    with pytest.raises(Malformed, match="must be listed once"):
        read_order(twice, all_sites)


@pytest.mark.parametrize("key", [b"k" * 31, b"k" * 33, bytes(32)])
def test_a_key_of_another_form_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="a key must be 32 bytes, and not all of them zero"):
        Roster([Party("site-1", "", key)])


def test_a_roster_survives_the_wire() -> None:
    parties = [Party("site-1", "tcp://127.0.0.1:5", b"k" * 32, b"a" * 32), Party("coordinator", "ipc:///a", None)]
    received = read_order(over_the_wire(RosterUpdate(Roster(parties[1:])).to_message(RUN, 0)))
    assert isinstance(received, RosterUpdate)
    assert list(received.parties) == parties[1:]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_survives_the_wire(answer: StepDone | Aborted | StepFailure | FinalReport | LogRecord) -> None:
    assert read_answer(over_the_wire(answer.to_message(RUN, 7))) == answer


def test_what_no_site_may_send_is_no_answer() -> None:
    assert read_answer(ORDER.to_message(RUN, 1)) is None


MESSAGES: list[Message] = [
    *(replace(ORDER, terms=terms).to_message(RUN, 7) for terms in TERMS),
    RosterUpdate(Roster([Party("a", "b", bytes([7] * 32))])).to_message(RUN, 7),
    *(answer.to_message(RUN, 7) for answer in ANSWERS),
    RunOver("it was stopped", resumable=True).to_message(RUN, 7),
]
PLAIN = [*(message for message in MESSAGES if message.kind != "order"), Abort().to_message(RUN, 7)]


def read(message: Message) -> Any:
    if message.kind in ("stop", "abort"):
        return read_interrupt(message)
    return read_order(message) if message.kind in ("order", "roster") else read_answer(message)


def with_fields(message: Message, fields: dict[str, Any]) -> Message:
    return Message(message.kind, message.run, message.round, fields=fields, arrays=message.arrays)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
def test_a_field_that_is_missing_or_of_another_type_is_malformed(message: Message) -> None:
    for name in message.fields:
        without = {other: value for other, value in message.fields.items() if other != name}
        for fields in (without, {**message.fields, name: {1}}, {**message.fields, "more": 1}):
            with pytest.raises(Malformed):
                read(with_fields(message, fields))


@pytest.mark.parametrize("message", PLAIN, ids=lambda message: message.kind)
def test_an_array_that_a_message_does_not_name_is_malformed(message: Message) -> None:
    more = Message(message.kind, RUN, 7, fields=message.fields, arrays={**message.arrays, "more": np.ones(1)})
    with pytest.raises(Malformed, match=f"the arrays of {message.kind} must be"):
        read(more)
    with pytest.raises(Malformed, match=f"the fields of {message.kind} must be"):
        read(with_fields(message, {**message.fields, "more": 1}))


@given(st.sampled_from(MESSAGES), st.data())
def test_nothing_else_is_raised_whatever_the_fields_are(message: Message, data: st.DataObject) -> None:
    plain = st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    )
    name = data.draw(st.sampled_from(sorted(message.fields)))
    try:
        read(with_fields(message, {**message.fields, name: data.draw(plain)}))
    except Malformed as error:
        assert message.kind in str(error) or "ledger" in str(error) or "roster" in str(error) or "verb" in str(error)


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("order", {"verb": "exec"}, "the verb of an order must be run, gather, sum or sum-at, got 'exec'"),
        ("order", {"turn": True}, "turn of order must be int, got True"),
        ("order", {"sites": ["site-1", 2]}, "each of sites of order must be str, got 2"),
        ("done", {"ledger": [ROW[:7]]}, "a row of a ledger must have 8 values"),
        ("done", {"ledger": [[*ROW[:7], 0.5]]}, "a value of a ledger must be int or missing, got 0.5"),
        ("final_report", {"refused": {"stale": "2"}}, "each of refused of final_report must be int, got '2'"),
        ("log_record", {"level": "loud"}, "level of log_record must be one of debug, info, warning, error, got 'loud'"),
        ("log_record", {"text": "x" * 501}, "text of log_record must have 500 characters or fewer, got 501"),
        ("log_record", {"logger": "x" * 101}, "logger of log_record must have 100 characters or fewer, got 101"),
        ("log_record", {"text": "a\n\x1b[2J"}, "text of log_record must be printable, got"),
        ("roster", {"names": "a\nb", "addresses": "c"}, "must have an address for each of 2 parties, got 1"),
        ("roster", {"names": "a\nb", "addresses": "c\nd"}, "public_keys of a roster must be 32 bytes for each party"),
    ],
)
def test_what_is_wrong_is_said(kind: str, changes: dict[str, Any], says: str) -> None:
    message = next(message for message in MESSAGES if message.kind == kind)
    with pytest.raises(Malformed, match=says):
        read(with_fields(message, message.fields | changes))


def test_a_sum_for_the_coordinator_is_not_opened_by_a_site() -> None:
    message = replace(ORDER, terms=TERMS[2]).to_message(RUN, 1)
    with pytest.raises(Malformed, match="an order to sum must not be opened by site-1"):
        read_order(with_fields(message, message.fields | {"opened_by": "site-1"}))
