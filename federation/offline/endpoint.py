"""An endpoint that receives stored messages, and stores those that it sends."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fedsvm.federation.errors import DeadlineExpired, NothingDue, PeerDropped
from fedsvm.federation.traffic_ledger import Ledger, Traffic
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, Roster
from fedsvm.federation.transport.message_transport import Received
from fedsvm.federation.transport.wire import CONTROL_KINDS, Message


@dataclass(frozen=True)
class StoredArrival:
    """A stored message, and its sender."""

    peer: str
    message: Message


@dataclass(frozen=True)
class Departure:
    """An event among the messages: a site no longer takes part, with the reason, such as "it withdrew"."""

    site: str
    how: str


class StoredEndpoint:
    """An endpoint without sockets, which sends and receives through a store. It behaves like `Endpoint`.

    Messages are read one by one, whenever the party waits. So a party that runs again with the same messages repeats
    its work, and then continues with later messages.

    Parameters
    ----------
    name : str
        The name of this party.
    roster : Roster
        The parties that it can reach.
    arrivals : iterator
        Received messages, in order. After the last one, a wait raises NothingDue.
    send : callable
        Stores a message, given its receiver.

    Attributes
    ----------
    round, ledger, refused, interrupted
        See `Endpoint`.
    left : deque of Departure
        Sites that left, for observers.
    is_closing : bool
        True if the party needs no more messages: a wait then raises DeadlineExpired.
    """

    def __init__(
        self,
        name: str,
        roster: Roster,
        arrivals: Iterator[StoredArrival | Departure],
        send: Callable[[str, Message], None],
    ) -> None:
        self.name = name
        self.round = 0
        self.ledger = Ledger()
        self.refused: Counter[str] = Counter()
        self.interrupted: set[str] = set()
        self._roster = roster
        self._arrivals = arrivals
        self._store = send
        self._pending: deque[Received] = deque()
        self._on_left: Callable[[], None] = lambda: None
        self.is_closing = False
        self.left: deque[Departure] = deque()

    @property
    def roster(self) -> Roster:
        """The parties that can be reached."""
        return self._roster

    def admit(self, roster: Roster) -> None:
        """Allow contact with these parties."""
        self._roster = roster

    def watch(self, descriptor: Any, handler: Callable[[], None]) -> None:
        """Call `handler` whenever a site leaves; `left` has the site."""
        self._on_left = handler

    def connect(self, peer: str) -> None:
        """Do nothing, since there is nothing to open."""

    def stay_reachable(self, peer: str, greeting: Message, deadline: Deadline) -> None:
        """Do nothing, since messages to this party are stored."""

    def send(
        self, peer: str, message: Message, deadline: Deadline, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Store a message for `peer`. Raises PeerDropped for a party that is not in the roster."""
        self.reply(peer, message)

    def reply(self, peer: str, message: Message) -> None:
        """Store a message for `peer`. Raises PeerDropped for a party that is not in the roster."""
        if peer not in self._roster:
            raise PeerDropped(f"{self.name} cannot reach {peer}, which is not in its roster.")
        self._count(peer, message, sent=True)
        self._store(peer, message)

    def flush(self, peer: str) -> None:
        """Do nothing, since sent messages are stored at once."""

    def wait(self, deadline: Deadline, *, for_answers: bool = True) -> None:
        """Read the next message. Raises NothingDue if there is none, DeadlineExpired if nobody waits for it."""
        if self._pending:
            return
        arrived = next(self._arrivals, None)
        if arrived is None:
            raise DeadlineExpired if self.is_closing else NothingDue
        if isinstance(arrived, Departure):
            self.left.append(arrived)
            self._on_left()
            return
        peer, message = arrived.peer, arrived.message
        self._count(peer, message, sent=False)
        is_answer = self.name == COORDINATOR and message.kind in CONTROL_KINDS
        self._pending.append(Received(peer, message, is_answer))

    def received(self) -> Received | None:
        """Return a message that was received, or None."""
        return self._pending.popleft() if self._pending else None

    def read_remaining(self, peer: str, deadline: Deadline) -> None:
        """Do nothing, since messages are stored."""

    def measure(self, round_number: int, *, whole: bool) -> None:
        """Do nothing, since messages are counted as they are stored."""

    def check_descriptors(self) -> None:
        """Do nothing, since nothing is open."""

    def _count(self, peer: str, message: Message, *, sent: bool) -> None:
        """Record one message. It is sealed later, so only the size of its frame is known."""
        sender, receiver = (self.name, peer) if sent else (peer, self.name)
        traffic = self.ledger.traffic(message.round, message.kind in CONTROL_KINDS, sender, receiver)
        traffic.add(Traffic(1, message.payload_bytes, len(message.frame), None))
