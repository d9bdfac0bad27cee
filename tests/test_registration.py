"""The registration of sites at a coordinator, over an endpoint in memory that records what is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fedsvm.federation.errors import DeadlineExpired, FederationError, LaunchError
from fedsvm.federation.hosts.invitations import Invitations
from fedsvm.federation.hosts.listening_endpoint import Call
from fedsvm.federation.hosts.messages import PROTOCOL_VERSION, Begin, Declined, Join, Ready
from fedsvm.federation.hosts.registered_sites import RegisteredSites
from fedsvm.federation.hosts.registration import Quorum, SiteRegistration
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, KEY_BYTES, Party, Roster
from fedsvm.federation.transport.wire import Message

NAMES = ("north", "east", "south")
KEY = bytes([1]) * KEY_BYTES
ADDRESS = "tcp://site.example:7101"


class RecordingEndpoint:
    """The part of a `ListeningEndpoint` that a registration uses. `events` happen one at a time while it serves."""

    def __init__(self) -> None:
        self.roster = Roster([Party(COORDINATOR, ADDRESS, KEY), *(Party(name, "", KEY) for name in NAMES)])
        self.refused: Counter[str] = Counter()
        self.round = 0
        self.connected: set[str] = set()
        self.sent: list[tuple[str, Message | str]] = []
        self.events: list[Callable[[], None]] = []
        self.on_call: Callable[[Call], None]
        self.on_answer: Callable[[str, Message], None]
        self.on_closed: Callable[[str], None]

    def invite(self, call: Call) -> bytes:
        self.connected.add(call.peer)
        return b"ticket"

    def turn_away(self, call: Call, reason: str) -> None:
        self.sent.append((call.peer, reason))

    def is_connected(self, peer: str) -> bool:
        return peer in self.connected

    def send(self, peer: str, message: Message, deadline: Deadline) -> None:
        self.sent.append((peer, message))

    def serve(self, deadline: Deadline) -> None:
        if not self.events:
            raise DeadlineExpired
        self.events.pop(0)()

    def received(self) -> None:
        return None

    def joins(self, site: str) -> None:
        self.connected.discard(site)
        self.on_call(Call(site, b"", Join(PROTOCOL_VERSION, "1", site, ADDRESS)))

    def answers(self, site: str, answer: Ready | Declined) -> None:
        self.on_answer(site, answer.to_message())

    def breaks(self, site: str) -> None:
        self.connected.discard(site)
        self.on_closed(site)


class OfferedTerms:
    """Terms of which a registration reads four fields."""

    routing = "direct"
    restartable = NAMES
    committee: tuple[str, ...] = ()

    def to_fields(self) -> dict[str, Any]:
        return {}


def ready(*columns: str, key: int = 1) -> Ready:
    return Ready([[name, False] for name in columns or ("age",)], bytes([key]) * KEY_BYTES, None)


@pytest.fixture
def endpoint() -> RecordingEndpoint:
    return RecordingEndpoint()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def begun(endpoint: RecordingEndpoint, said: list[str]) -> RegisteredSites:
    """Return three sites that take part in a run."""
    registration = registered(endpoint, said)
    for site in NAMES:
        endpoint.joins(site)
        endpoint.answers(site, ready())
    sites = registration.wait(Deadline(1), Quorum(3, 3, is_chosen=False), "1s")
    endpoint.sent.clear()
    return sites


def registered(endpoint: RecordingEndpoint, said: list[str]) -> SiteRegistration:
    return SiteRegistration(invited(endpoint, said))


def invited(endpoint: RecordingEndpoint, said: list[str]) -> Invitations:
    return Invitations(endpoint, bytes(8), OfferedTerms(), "1", said.append)  # type: ignore[arg-type]


def test_answer_of_a_site_in_the_middle_of_a_run_is_refused(
    endpoint: RecordingEndpoint, begun: RegisteredSites
) -> None:
    before = begun.joined
    endpoint.answers("north", ready("years", key=9))
    endpoint.answers("east", Declined("no", by_policy=True))
    assert begun.joined == before
    assert endpoint.sent == []
    assert endpoint.refused["an answer without an offer"] == 2


def test_restarted_site_is_taken_back_once_with_its_new_keys(
    endpoint: RecordingEndpoint, begun: RegisteredSites
) -> None:
    endpoint.breaks("north")
    endpoint.events = [lambda: endpoint.joins("north"), lambda: endpoint.answers("north", ready(key=9))]
    party = begun.wait_for("north", Deadline(1))
    assert party is not None
    assert party.agreement_key == bytes([9]) * KEY_BYTES
    endpoint.answers("north", ready(key=7))
    assert begun.take_back_restarted() == {}


def test_restarted_site_that_declines_ends_the_wait_with_its_reason(
    endpoint: RecordingEndpoint, begun: RegisteredSites, said: list[str]
) -> None:
    endpoint.breaks("north")
    decline = Declined("min_rows must be at most 10.", by_policy=True)
    endpoint.events = [lambda: endpoint.joins("north"), lambda: endpoint.answers("north", decline)]
    with pytest.raises(LaunchError, match=r"north was started again and declines: min_rows must be at most 10"):
        begun.wait_for("north", Deadline(1))
    assert "north declines: min_rows must be at most 10." in said
    endpoint.events = [lambda: endpoint.joins("north"), lambda: endpoint.answers("north", ready(key=9))]
    assert begun.wait_for("north", Deadline(1)) is not None


def test_resumption_names_the_reason_of_a_site_that_declines(
    endpoint: RecordingEndpoint, begun: RegisteredSites, said: list[str]
) -> None:
    resumed = RegisteredSites(invited(endpoint, said), begun.joined)
    endpoint.connected.clear()
    decline = Declined("no time.", by_policy=False)
    endpoint.events = [lambda: endpoint.joins("north"), lambda: endpoint.answers("north", decline)]
    missing = resumed.resume(Deadline(1))
    assert missing == list(NAMES)
    assert resumed.explain_missing(missing, "1s").startswith("north declines: no time. The run cannot continue")


def test_expired_wait_names_the_reason_of_a_site_that_declines(endpoint: RecordingEndpoint, said: list[str]) -> None:
    registration = registered(endpoint, said)
    for site, answer in (("north", ready()), ("east", Declined("no time.", by_policy=False))):
        endpoint.joins(site)
        endpoint.answers(site, answer)
    with pytest.raises(FederationError) as raised:
        registration.wait(Deadline(1), Quorum(2, 2, is_chosen=True), "1s")
    assert "needed: east declines: no time; south did not come." in str(raised.value)
    assert "east did not come" not in str(raised.value)


def test_run_does_not_begin_without_a_named_member_of_the_committee(
    endpoint: RecordingEndpoint, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OfferedTerms, "committee", ("east", "south"))
    registration = registered(endpoint, said)
    for site in ("north", "east"):
        endpoint.joins(site)
        endpoint.answers(site, ready())
    with pytest.raises(FederationError, match=r"2 are needed, among them the committee \(east, south\): south did not"):
        registration.wait(Deadline(1), Quorum(2, 2, is_chosen=True), "1s")
    assert not any(isinstance(message, Message) and message.kind == Begin.kind for _, message in endpoint.sent)


def test_resumption_takes_back_sites_that_waited_and_one_that_was_started_again(
    endpoint: RecordingEndpoint, begun: RegisteredSites, said: list[str]
) -> None:
    resumed = RegisteredSites(invited(endpoint, said), begun.joined)
    endpoint.connected.clear()
    endpoint.events = [
        lambda: endpoint.connected.update(("east", "south")),
        lambda: endpoint.joins("north"),
        lambda: endpoint.answers("north", ready(key=9)),
    ]
    assert resumed.resume(Deadline(1)) == []
    assert {site: party.agreement_key for site, party in resumed.take_back_restarted().items()} == {
        "north": bytes([9]) * KEY_BYTES
    }
    assert resumed.joined[0].party.agreement_key == bytes([9]) * KEY_BYTES
    assert "north is back" in said
