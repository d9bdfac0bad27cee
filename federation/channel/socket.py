"""What a protocol function sees of the network: its name, its fellow sites, send, receive, and secrets.

`Channel` is the contract. `SocketChannel` keeps it over an endpoint; `federation.channel.memory` keeps it in memory, so
that the very same protocol function runs in a test without processes.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from federation.arrays import Residues
from federation.channel.agreement import KeyAgreement, keystream
from federation.errors import DeadlineExpired, EndpointError
from federation.transport.deadline import Deadline
from federation.transport.endpoint import Endpoint, Received
from federation.transport.keys import COORDINATOR
from federation.transport.wire import DATA_KIND, Message

_ARRAY = "value"


class Channel(Protocol):
    """One party's view of one round. `sites` are the live sites in ring order, the same at every party."""

    me: str
    sites: tuple[str, ...]

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Send `array` to `peer`."""

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """The next array from `peer`, which must have this shape and type."""

    def collect(self, shapes: Mapping[str, Sequence[int]], dtype: Any = np.uint64) -> dict[str, NDArray[Any]]:
        """The next array from each of these peers, of these shapes; those that are lost or late are left out."""

    def random(self, shape: Sequence[int]) -> Residues:
        """Residues uniform over the whole modulus, from the operating system's generator."""

    def shared_secret(self, peer: str, purpose: str) -> bytes:
        """256 bits that this site and `peer` alone can derive, fresh for this round and purpose."""

    def expand(self, secret: bytes, shape: Sequence[int]) -> Residues:
        """The keystream of a 256-bit secret as residues: uniform to everyone who does not know it."""


class Observer(Protocol):
    """Something that watches one party's channel: a transcript, or a fault that waits for its moment."""

    def sending(self, peer: str, array: NDArray[Any]) -> None:
        """Called before an array leaves."""

    def received(self, peer: str, array: NDArray[Any]) -> None:
        """Called with every array that a protocol takes in."""

    def drew(self, residues: Residues) -> None:
        """Called with every random vector and every keystream."""


def uniform_residues(shape: Sequence[int]) -> Residues:
    """uint64 array of `shape`, every bit from the operating system's generator."""
    return np.frombuffer(os.urandom(8 * int(np.prod(shape))), dtype=np.uint64).reshape(shape)


class Mailbox:
    """Sorts what an endpoint receives: protocol messages wait here for their round, control goes to `on_control`.

    A message of another run, of an older round, or from further ahead than the next round is refused and counted. A
    site may be one round behind a faster peer, never more, since the coordinator waits for all.
    """

    def __init__(self, endpoint: Endpoint, run: bytes, on_control: Callable[[str, Message, bool], None]) -> None:
        self.endpoint = endpoint
        self.run = run
        self._on_control = on_control
        self._now = 0
        self._waiting: dict[tuple[int, str], deque[Message]] = defaultdict(deque)

    @property
    def refused(self) -> Counter[str]:
        return self.endpoint.refused

    def enter(self, round_number: int) -> None:
        """Begin a round: what older ones left is dropped."""
        self._now = round_number
        self.endpoint.round = round_number
        self.endpoint.interrupted.clear()
        for key in [key for key in self._waiting if key[0] < round_number]:
            if late := len(self._waiting.pop(key)):
                self.refused["stale"] += late

    def take(self, peer: str) -> Message | None:
        """The next protocol message of the current round from `peer`, if it is there."""
        queue = self._waiting[self._now, peer]
        return queue.popleft() if queue else None

    def pump(self, deadline: Deadline) -> None:
        """Wait until something happens and take in what came, perhaps nothing.

        Raises DeadlineExpired, and whatever `on_control` raises.
        """
        self.endpoint.wait(deadline)
        self._take_in_all()

    def send(self, peer: str, message: Message, deadline: Deadline, ended: Container[str] = ()) -> None:
        """Send on the connection opened to `peer`; what comes in while that must be waited for is taken in.

        So a site that waits for a lost neighbour still hears that the round is aborted. Raises EndpointError when
        the peer cannot be reached, at once if it is known to have ended.
        """

        def meanwhile() -> None:
            self._take_in_all()
            if peer in ended:
                raise EndpointError(f"{self.endpoint.name} cannot reach {peer}: its process ended.")

        if peer in ended:
            meanwhile()
        self.endpoint.send(peer, message, deadline, meanwhile)

    def _take_in_all(self) -> None:
        while (received := self.endpoint.received()) is not None:
            self._take_in(received)

    def _take_in(self, received: Received) -> None:
        peer, message, answer = received
        if message.run != self.run:
            self.refused["another run"] += 1
        elif message.kind != DATA_KIND:
            self._on_control(peer, message, answer)
        elif not self._now <= message.round < self._now + 2:
            self.refused["stale"] += 1
        else:
            self._waiting[message.round, peer].append(message)


class SocketChannel:
    """A channel over sockets for one round.

    `losses` is what is known, at any moment, of sites that the round must do without, and why: `collect` leaves them
    out, `receive` gives up. `missing` are those that `collect` left out. `waiting_for` is the peer whose message or
    connection is waited for; `sent_to` counts the messages to each, `taken` those taken in.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        sites: tuple[str, ...],
        order: Message,
        deadline: Deadline,
        *,
        losses: Mapping[str, str] | None = None,
        agreement: KeyAgreement | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.me = mailbox.endpoint.name
        self.sites = sites
        self.hop = 0
        self.waiting_for = ""
        self.missing: dict[str, str] = {}
        self.sent_to: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self._mailbox = mailbox
        self._order = order
        self._deadline = deadline
        self._losses = {} if losses is None else losses
        self._agreement = agreement
        self._observers = observers

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Send `array` to `peer`. Raises EndpointError when it cannot be reached within the round's deadline."""
        for observer in self._observers:
            observer.sending(peer, array)
        message = Message(
            DATA_KIND,
            self._order.run,
            self._order.round,
            sequence=self.sent_to[peer],
            hop=self.hop + 1,
            arrays={_ARRAY: array},
        )
        self.sent_to[peer] += 1
        self.waiting_for = peer
        if self.me == COORDINATOR:
            with suppress(EndpointError):  # a site without a connection is lost, or late: `collect` will tell
                self._mailbox.endpoint.reply(peer, message)
        else:
            self._mailbox.send(peer, message, self._deadline)

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """The next array from `peer`. Raises EndpointError if it has another shape or type, or cannot come."""
        self.waiting_for = peer
        try:
            while (message := self._next(peer)) is None:
                self._require_hope()
                self._mailbox.pump(self._deadline)
        except DeadlineExpired as error:
            raise EndpointError(f"{self.me} waited {self._deadline.seconds:g} s in vain for {peer}") from error
        return self._open(peer, message, shape, dtype)

    def collect(self, shapes: Mapping[str, Sequence[int]], dtype: Any = np.uint64) -> dict[str, NDArray[Any]]:
        """The next array from each of these peers; those that are lost, or late by the round's deadline, are left out.

        Each call has the whole time of a round for itself. Raises EndpointError for one of another shape or type.
        """
        deadline = Deadline(self._deadline.seconds)
        found: dict[str, NDArray[Any]] = {}
        try:
            while not self._take_each(shapes, dtype, found):
                self._mailbox.pump(deadline)
        except DeadlineExpired:
            late = f"it was silent for {deadline.seconds:g} s"
            self.missing |= {peer: late for peer in shapes if peer not in found and peer not in self._losses}
        self.missing |= {peer: why for peer, why in self._losses.items() if peer in shapes and peer not in found}
        return {peer: found[peer] for peer in shapes if peer in found}

    def random(self, shape: Sequence[int]) -> Residues:
        """Residues uniform over the whole modulus, from the operating system's generator."""
        return self._drawn(uniform_residues(shape))

    def shared_secret(self, peer: str, purpose: str) -> bytes:
        """256 bits that this site and `peer` alone can derive, fresh for this round and purpose."""
        public = self._mailbox.endpoint.roster[peer].agreement_key
        if self._agreement is None or public is None:
            raise EndpointError(f"{self.me} and {peer} have no keys to agree on a secret with")
        pair = " ".join(sorted((self.me, peer)))
        return self._agreement.secret(public, f"fedsvm {purpose} {self._order.round} {pair}")

    def expand(self, secret: bytes, shape: Sequence[int]) -> Residues:
        """The keystream of a 256-bit secret as residues."""
        return self._drawn(keystream(secret, shape))

    def _drawn(self, residues: Residues) -> Residues:
        for observer in self._observers:
            observer.drew(residues)
        return residues

    def _require_hope(self) -> None:
        """Raise EndpointError where what is waited for may never come, long before its time is up."""
        if self._losses:
            raise EndpointError(f"{self.me} cannot go on without {', '.join(sorted(self._losses))}")
        interrupted = self._mailbox.endpoint.interrupted
        if broken := sorted(interrupted & (set(self.sites) if self.me == COORDINATOR else self.sent_to.keys())):
            raise EndpointError(f"the connection of {self.me} to {broken[0]} broke, perhaps with a message on its way")

    def _take_each(self, shapes: Mapping[str, Sequence[int]], dtype: Any, found: dict[str, NDArray[Any]]) -> bool:
        """Take what is there of each peer's message; whether nothing is left to wait for."""
        for peer in shapes:
            if peer not in found and (message := self._next(peer)) is not None:
                found[peer] = self._open(peer, message, shapes[peer], dtype)
        return all(peer in found or peer in self._losses for peer in shapes)

    def _next(self, peer: str) -> Message | None:
        """The message that follows the last one; one that was seen before, or skips ahead, is refused."""
        while (message := self._mailbox.take(peer)) is not None:
            if message.sequence == self.taken[peer]:
                self.taken[peer] += 1
                return message
            self._mailbox.refused["out of sequence"] += 1
        return None

    def _open(self, peer: str, message: Message, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        self.hop = max(self.hop, message.hop)
        array = message.arrays.get(_ARRAY)
        if array is None or array.shape != tuple(shape) or array.dtype != np.dtype(dtype):
            got = "nothing" if array is None else f"{array.dtype} {array.shape}"
            raise EndpointError(f"{peer} sent {got} to {self.me} where {np.dtype(dtype)} {tuple(shape)} is due")
        for observer in self._observers:
            observer.received(peer, array)
        return array
