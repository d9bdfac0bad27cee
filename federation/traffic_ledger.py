"""Counts of messages, payload bytes and wire bytes of every link in every round, as sent and as received.

Each process keeps a `Ledger` of its own messages. The coordinator combines them in the `Accounts` of the run. There,
two parties report every link of every round: its sender and its receiver.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple


class DirectedLink(NamedTuple):
    """One direction between two parties in one round. `control` marks orders and answers, apart from protocols."""

    round: int
    control: bool
    sender: str
    receiver: str


@dataclass(slots=True)
class Traffic:
    """The traffic of a link. `wire_bytes` is the kernel's count, None if the kernel has none."""

    messages: int = 0
    payload_bytes: int = 0
    predicted_wire_bytes: int = 0
    wire_bytes: int | None = 0

    def add(self, other: Traffic) -> None:
        """Add `other` to this; an unknown count makes the sum unknown."""
        self.messages += other.messages
        self.payload_bytes += other.payload_bytes
        self.predicted_wire_bytes += other.predicted_wire_bytes
        known = self.wire_bytes is not None and other.wire_bytes is not None
        self.wire_bytes = (self.wire_bytes or 0) + (other.wire_bytes or 0) if known else None


class Ledger:
    """The messages that one party sent and received, by link and round."""

    def __init__(self) -> None:
        self._traffic: dict[tuple[int, bool, str, str], Traffic] = {}

    def traffic(self, round_number: int, control: bool, sender: str, receiver: str, measured: bool = True) -> Traffic:
        """Return the traffic of a link in a round since the last `take`, for the caller to add to.

        measured: whether this party measures its wire bytes; otherwise they are unknown.
        """
        link = (round_number, control, sender, receiver)
        if (known := self._traffic.get(link)) is None:
            known = self._traffic[link] = Traffic()
        if not measured:
            known.wire_bytes = None
        return known

    def take(self) -> list[list[Any]]:
        """Return all entries since the last call as plain values for a message."""
        rows = [
            [*link, entry.messages, entry.payload_bytes, entry.predicted_wire_bytes, entry.wire_bytes]
            for link, entry in self._traffic.items()
        ]
        self._traffic = {}
        return rows


@dataclass
class RoundRecord:
    """One order of the coordinator, as it was carried out by the sites that took part.

    An aborted round counts too. Its repetition is a round of its own.

    Attributes
    ----------
    round : int
        Number in the run, from 1.
    phase : str
    verb : {"run", "gather", "sum", "sum-at"}
    step : str
    protocol : str
        The name under which its messages are counted.
    phase_round : int
        Number within the phase, from 1.
    sites : int
        The number of sites that took part.
    hops : int
        The length of the longest chain of messages in which each waits for the one before.
    seconds : float
    aborted : bool
    missing : dict of str to int
        The sites that the round continued without, each with the number of its messages that the coordinator received.
    """

    round: int
    phase: str
    verb: str
    step: str
    protocol: str
    phase_round: int = 0
    sites: int = 0
    hops: int = 0
    seconds: float = 0.0
    aborted: bool = False
    missing: dict[str, int] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The phase and the number within it, in the form of faults in scenarios: "train round 5"."""
        return f"{self.phase} round {self.phase_round}"


CONTROL = "control"
"""The name under which orders and answers are counted."""

LAUNCH = RoundRecord(0, "launch", "run", "join", "roster")


@dataclass(slots=True)
class WitnessedLink:
    """A link in a round with its two witnesses."""

    sent: Traffic | None = None
    received: Traffic | None = None

    @property
    def agreed(self) -> Traffic:
        """The receiver's count, or the sender's if the receiver did not report."""
        witness = self.received if self.received is not None else self.sent
        return witness if witness is not None else Traffic()


class Accounts:
    """The ledgers of all parties, and the rounds they belong to.

    Reports are combined when they are needed, not in the round in which they arrive.

    Attributes
    ----------
    rounds : dict of int to RoundRecord
    on_entered : callable
        Receives each report: the party, and its rows.
    """

    def __init__(self) -> None:
        self.rounds: dict[int, RoundRecord] = {}
        self.on_entered: Callable[[str, list[list[Any]]], None] | None = None
        self._reported: list[tuple[str, list[list[Any]]]] = []
        self._entries: dict[DirectedLink, WitnessedLink] = {}
        self._payload_bytes = 0

    @property
    def entries(self) -> Mapping[DirectedLink, WitnessedLink]:
        """Every link in every round, in the order in which they were first reported."""
        self._combine_reports()
        return self._entries

    @property
    def payload_bytes(self) -> int:
        """Bytes of the arrays in all protocol messages so far."""
        self._combine_reports()
        return self._payload_bytes

    def enter(self, witness: str, rows: list[list[Any]]) -> None:
        """Add the report of `witness`. Ignore rows about links that it is not part of."""
        if self.on_entered is not None:
            self.on_entered(witness, rows)
        self._reported.append((witness, rows))

    def _combine_reports(self) -> None:
        reported, self._reported = self._reported, []
        for witness, rows in reported:
            for row in rows:
                link, traffic = DirectedLink(*row[:4]), Traffic(*row[4:])
                if (entry := self._entries.get(link)) is None:
                    entry = self._entries[link] = WitnessedLink()
                if witness == link.receiver:
                    entry.received = _sum(entry.received, traffic)
                    self._payload_bytes += 0 if link.control else traffic.payload_bytes
                elif witness == link.sender:
                    entry.sent = _sum(entry.sent, traffic)

    def select(self, *, control: bool) -> Iterator[tuple[DirectedLink, Traffic]]:
        """Yield every link of protocols, or of control, with its agreed traffic."""
        return ((link, entry.agreed) for link, entry in self.entries.items() if link.control == control)

    def record_of(self, link: DirectedLink) -> RoundRecord:
        """Return the round of a link; before the first round, the launch."""
        return self.rounds.get(link.round, LAUNCH)

    def rows(self) -> list[dict[str, Any]]:
        """Return the ledger as a table: one row per round and link, as counted by both ends."""
        return [self._row(link, entry) for link, entry in sorted(self.entries.items(), key=operator.itemgetter(0))]

    def _row(self, link: DirectedLink, entry: WitnessedLink) -> dict[str, Any]:
        record = self.record_of(link)
        place = {
            "round": link.round,
            "aborted": record.aborted,
            "phase": record.phase,
            "step": record.step,
            "protocol": CONTROL if link.control else record.protocol,
            "from": link.sender,
            "to": link.receiver,
        }
        return place | asdict(entry.agreed) | _prefix("sent", entry.sent) | _prefix("received", entry.received)


def _sum(known: Traffic | None, more: Traffic) -> Traffic:
    if known is None:
        return more
    known.add(more)
    return known


def _prefix(witness: str, traffic: Traffic | None) -> dict[str, int | None]:
    return {f"{witness}_{item.name}": getattr(traffic, item.name, None) for item in fields(Traffic)}
