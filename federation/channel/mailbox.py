"""Sorts the messages that an endpoint receives into arrays, which wait for their round, and control messages.

There are no callbacks. After each wait, for an array or an answer, the caller reads the control messages that arrived,
one by one and in their order.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

from fedsvm.federation.channel.envelope import Sealer, ends_of
from fedsvm.federation.errors import Malformed, PeerDropped
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.federation.transport.message_transport import MessageTransport, Received
from fedsvm.federation.transport.wire import (
    DATA_KIND,
    ENVELOPE_KIND,
    HELLO_KIND,
    LINK,
    MAX_FRAME_BYTES,
    MAX_LINK_BYTES,
    Message,
)

MAX_HELD, MAX_HELD_BYTES = 1 << 12, 4 * MAX_FRAME_BYTES
"""Maximum number and bytes of envelopes kept for one site without a connection; others are refused."""

MAX_WAITING, MAX_WAITING_BYTES = 1 << 12, 2 * MAX_FRAME_BYTES
"""Maximum number and bytes of arrays of one peer that wait for their round or to be read; others are refused. In a
round, a party sends another party one vector that fits a frame, whole or in segments, and a few short arrays."""


class Mailbox:
    """The messages of one run that came in at one endpoint.

    A message of another run or of an older round is refused and counted. A site may be at most one round behind a
    faster peer, since the coordinator waits for all sites. So the mailbox stores the arrays of each peer's latest
    round. The number of the next round is unknown here, because a resumed run skips some.

    If sites communicate through the coordinator, its mailbox forwards their envelopes, and keeps those for a site
    without a connection until it connects again. A site's mailbox opens them.

    Attributes
    ----------
    sealer : Sealer or None
        Seals and opens this site's messages through the coordinator; None if sites communicate directly.
    """

    def __init__(self, endpoint: MessageTransport, run: bytes) -> None:
        self.endpoint = endpoint
        self.run = run
        self._now = 0
        self._waiting: dict[int, dict[str, deque[Message]]] = defaultdict(lambda: defaultdict(deque))
        self._kept: Counter[str] = Counter()  # number and bytes of the waiting arrays of each peer
        self._kept_bytes: Counter[str] = Counter()
        self._held: dict[str, list[Message]] = defaultdict(list)
        self.sealer: Sealer | None = None
        self._roster = endpoint.roster
        self._agreement_keys: dict[str, bytes | None] = {}
        self._joint_seed = b""

    @property
    def refused(self) -> Counter[str]:
        return self.endpoint.refused

    def enter(self, round_number: int) -> None:
        """Begin a round and discard arrays of older ones. Do nothing for a round that is older than the last one."""
        if round_number < self._now:
            return
        self._now = round_number
        self.endpoint.round = round_number
        self.endpoint.interrupted.clear()
        for older in [older for older in self._waiting if older < round_number]:
            for peer, late in self._waiting.pop(older).items():
                self._drop(peer, late)

    def next_array(self, peer: str) -> Message | None:
        """Return the next protocol message of the current round from `peer`, or None."""
        of_round = self._waiting.get(self._now)
        if of_round is None or peer not in of_round:
            return None
        message = of_round[peer].popleft()
        self._subtract(peer, message)
        if not of_round[peer]:
            del of_round[peer]
        return message

    def agreement_keys(self, peers: Sequence[str]) -> list[bytes | None]:
        """Return the public key for secrets of each of some peers, or None if the roster has none."""
        self._note_roster()
        known = self._agreement_keys
        for peer in peers:
            if peer not in known:
                known[peer] = self._roster[peer].agreement_key
        return [known[peer] for peer in peers]

    def joint_seed(self) -> bytes:
        """Return a digest of all parties of the roster and their public keys for secrets."""
        self._note_roster()
        if not self._joint_seed:
            self._joint_seed = self._roster.agreement_digest
        return self._joint_seed

    def _note_roster(self) -> None:
        if self._roster is not self.endpoint.roster:
            self._roster, self._agreement_keys, self._joint_seed = self.endpoint.roster, {}, b""

    def senders(self) -> set[str]:
        """Return the senders of waiting protocol messages of the current round."""
        return set(self._waiting[self._now])

    def next_control(self) -> Received | None:
        """Return the next control message that arrived, or None. Store arrays that arrived before it."""
        while (received := self.endpoint.received()) is not None:
            peer, message, _ = received
            kind = message.kind
            if kind == HELLO_KIND:
                self._forward_held(peer)
            elif message.run != self.run:
                self.refused["another run"] += 1
            elif kind == DATA_KIND:
                self._keep(peer, message)
            elif kind == ENVELOPE_KIND:
                self._take_envelope(peer, message)
            else:
                return received
        return None

    def _keep(self, peer: str, message: Message) -> None:
        """Store an array until its round, unless too many of its sender are waiting."""
        if not self._has_known_fields(message):  # other fields would take memory that no limit counts
            self.refused["malformed: an array with fields"] += 1
        elif message.round != self._now and not self._is_of_latest(peer, message.round):
            self.refused["stale"] += 1
        elif self._has_room(peer, message):
            self._waiting[message.round][peer].append(message)
            self._kept[peer] += 1
            self._kept_bytes[peer] += message.payload_bytes
        else:
            self.refused["array beyond what is kept of one peer"] += 1

    @staticmethod
    def _has_known_fields(message: Message) -> bool:
        """Return whether an array message has no fields, or only a short link."""
        link = message.fields.get(LINK)
        return not message.fields or (len(message.fields) == 1 and type(link) is bytes and len(link) <= MAX_LINK_BYTES)

    def _is_of_latest(self, peer: str, round_number: int) -> bool:
        """Return whether a round is not over and is the latest of this peer. Discard its arrays of earlier rounds."""
        ahead = [later for later, of_round in self._waiting.items() if later > self._now and peer in of_round]
        if round_number < max([self._now, *ahead]):
            return False
        for passed in ahead:
            if passed < round_number:
                self._drop(peer, self._waiting[passed].pop(peer))
                if not self._waiting[passed]:  # or a peer that names ever later rounds would fill the memory
                    del self._waiting[passed]
        return True

    def _has_room(self, peer: str, message: Message) -> bool:
        return self._kept[peer] < MAX_WAITING and self._kept_bytes[peer] + message.payload_bytes <= MAX_WAITING_BYTES

    def _drop(self, peer: str, late: deque[Message]) -> None:
        """Discard arrays that were never received by a protocol."""
        self.refused["stale"] += len(late)
        for message in late:
            self._subtract(peer, message)

    def _subtract(self, peer: str, message: Message) -> None:
        self._kept[peer] -= 1
        self._kept_bytes[peer] -= message.payload_bytes

    def _take_envelope(self, peer: str, envelope: Message) -> None:
        """Forward an envelope at the coordinator, or open it at a site."""
        try:
            sender, receiver = ends_of(envelope)
            if self.endpoint.name == COORDINATOR and sender == peer and receiver in self.endpoint.roster:
                self._forward(receiver, envelope)
            elif self.sealer is not None and peer == COORDINATOR:
                sender, message = self.sealer.open(envelope)
                self._keep(sender, message)
            else:
                self.refused["envelope of another"] += 1
        except Malformed as error:
            self.refused[f"malformed: {error}"] += 1

    def _forward(self, receiver: str, envelope: Message) -> None:
        try:
            self.endpoint.reply(receiver, envelope)
        except PeerDropped:
            held = self._held[receiver]
            if (
                sum(each.payload_bytes for each in held) + envelope.payload_bytes > MAX_HELD_BYTES
                or len(held) == MAX_HELD
            ):
                self.refused["envelope beyond what is held"] += 1
            else:
                held.append(envelope)

    def _forward_held(self, receiver: str) -> None:
        """Forward the envelopes that were held for a site until it connected, except those of finished rounds."""
        for envelope in self._held.pop(receiver, []):
            if envelope.round >= self._now:
                self._forward(receiver, envelope)

    def wait(self, deadline: Deadline, *, for_answers: bool = True) -> None:
        """Wait until a message or an event arrives; see `Endpoint.wait`.

        Raises DeadlineExpired.
        """
        self.endpoint.wait(deadline, for_answers=for_answers)
