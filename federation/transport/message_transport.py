"""The interface of a party's transport, which an `Endpoint` with sockets and others without sockets implement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fedsvm.federation.traffic_ledger import Ledger
from fedsvm.federation.transport import wire
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import Roster


class Received(NamedTuple):
    """A valid message and its sender. `answer`: it arrived on a connection that this party opened."""

    peer: str
    message: wire.Message
    answer: bool


class MessageTransport(Protocol):
    """The transport of one party's messages: an `Endpoint`, or one that stores them.

    Attributes and methods are those of `Endpoint`.
    """

    name: str
    round: int
    ledger: Ledger
    refused: Counter[str]
    interrupted: set[str]

    @property
    def roster(self) -> Roster:
        """The parties that can be reached."""

    def admit(self, roster: Roster) -> None:
        """Allow contact with these parties."""

    def watch(self, descriptor: Any, handler: Callable[[], None]) -> None:
        """Call `handler` whenever `descriptor` is readable."""

    def connect(self, peer: str) -> None:
        """Begin to open the connection to `peer`, if one is needed."""

    def send(
        self, peer: str, message: wire.Message, deadline: Deadline, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Send to `peer`. Raises PeerDropped."""

    def stay_reachable(self, peer: str, greeting: wire.Message, deadline: Deadline) -> None:
        """Keep a connection to `peer` open, if one is needed. Raises PeerDropped."""

    def reply(self, peer: str, message: wire.Message) -> None:
        """Send an answer to `peer`. Raises PeerDropped."""

    def flush(self, peer: str) -> None:
        """Wait until all messages to `peer` have left this process."""

    def wait(self, deadline: Deadline, *, for_answers: bool = True) -> None:
        """Wait until a message arrives. Raises DeadlineExpired."""

    def received(self) -> Received | None:
        """Return a valid message that has arrived, or None."""

    def read_remaining(self, peer: str, deadline: Deadline) -> None:
        """Read the last messages of a party whose process ended."""

    def measure(self, round_number: int, *, whole: bool) -> None:
        """Enter in the ledger the bytes received since the last call."""

    def check_descriptors(self) -> None:
        """Raise EndpointError if this process has no free descriptor."""
