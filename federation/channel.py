"""What a protocol function sees of the network: its name, its fellow sites, send, receive, and randomness.

`Channel` is the contract. `SocketChannel` keeps it over an endpoint; `federation.rehearsal` keeps it in memory, so
that the very same protocol function runs in a test without processes.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from federation.arrays import Residues
from federation.deadline import Deadline
from federation.endpoint import Endpoint, Received
from federation.errors import DeadlineExpired, EndpointError
from federation.keys import COORDINATOR
from federation.wire import DATA_KIND, Message

_ARRAY = "value"


class Channel(Protocol):
    """One party's view of one round. `sites` are the live sites in ring order, the same at every party."""

    me: str
    sites: tuple[str, ...]

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Send `array` to `peer`."""

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """The next array from `peer`, which must have this shape and type."""

    def random(self, shape: Sequence[int]) -> Residues:
        """Residues uniform over the whole modulus, from the operating system's generator."""


def uniform_residues(shape: Sequence[int]) -> Residues:
    """uint64 array of `shape`, every bit from the operating system's generator."""
    return np.frombuffer(os.urandom(8 * int(np.prod(shape))), dtype=np.uint64).reshape(shape)


class Mailbox:
    """Sorts what an endpoint receives: protocol messages wait here for their round, control goes to `on_control`.

    A message of another run, of an older round or attempt, or from further ahead than the next round is refused
    and counted. A site may be one round behind a faster peer, never more, since the coordinator waits for all.
    """

    def __init__(self, endpoint: Endpoint, run: bytes, on_control: Callable[[str, Message, bool], None]) -> None:
        self.endpoint = endpoint
        self.run = run
        self._on_control = on_control
        self._now = (0, 0)
        self._waiting: dict[tuple[int, int, str], deque[Message]] = defaultdict(deque)

    @property
    def refused(self) -> Counter[str]:
        return self.endpoint.refused

    def enter(self, round_number: int, attempt: int) -> None:
        """Begin a round: what older ones left is dropped."""
        self._now = (round_number, attempt)
        self.endpoint.round = round_number
        for key in [key for key in self._waiting if key[:2] < self._now]:
            if late := len(self._waiting.pop(key)):
                self.refused["stale"] += late

    def data(self, peer: str, deadline: Deadline) -> Message:
        """The next protocol message of the current round from `peer`."""
        queue = self._waiting[*self._now, peer]
        while not queue:
            self.pump(deadline)
        return queue.popleft()

    def pump(self, deadline: Deadline) -> None:
        """Wait for a message and take it in. Raises DeadlineExpired, and whatever `on_control` raises."""
        self._take_in(self.endpoint.receive(deadline))

    def send(self, peer: str, message: Message, deadline: Deadline) -> None:
        """Send on the connection opened to `peer`; what comes in while that must be waited for is taken in.

        So a site that waits for a lost neighbour still hears that the round is called off.
        """
        self.endpoint.send(peer, message, deadline, meanwhile=self._take_in_all)

    def _take_in_all(self) -> None:
        while (received := self.endpoint.received()) is not None:
            self._take_in(received)

    def _take_in(self, received: Received) -> None:
        peer, message, answer = received
        if message.run != self.run:
            self.refused["another run"] += 1
        elif message.kind != DATA_KIND:
            self._on_control(peer, message, answer)
        elif not self._now <= (message.round, message.attempt) < (self._now[0] + 2, 0):
            self.refused["stale"] += 1
        else:
            self._waiting[message.round, message.attempt, peer].append(message)


class SocketChannel:
    """A channel over sockets for one round and attempt."""

    def __init__(self, mailbox: Mailbox, sites: tuple[str, ...], order: Message, deadline: Deadline) -> None:
        self.me = mailbox.endpoint.name
        self.sites = sites
        self.hop = 0
        self._mailbox = mailbox
        self._order = order
        self._deadline = deadline
        self._sent: Counter[str] = Counter()
        self._received: Counter[str] = Counter()

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Send `array` to `peer`. Raises EndpointError when it cannot be reached within the round's deadline."""
        message = Message(
            DATA_KIND,
            self._order.run,
            self._order.round,
            self._order.attempt,
            sequence=self._sent[peer],
            hop=self.hop + 1,
            arrays={_ARRAY: array},
        )
        self._sent[peer] += 1
        if self.me == COORDINATOR:
            self._mailbox.endpoint.reply(peer, message)
        else:
            self._mailbox.send(peer, message, self._deadline)

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """The next array from `peer`. Raises EndpointError if it has another shape or type, or does not come."""
        try:
            message = self._in_sequence(peer)
        except DeadlineExpired as error:
            raise EndpointError(f"{self.me} waited {self._deadline.seconds:g} s in vain for {peer}") from error
        self.hop = max(self.hop, message.hop)
        array = message.arrays.get(_ARRAY)
        if array is None or array.shape != tuple(shape) or array.dtype != np.dtype(dtype):
            got = "nothing" if array is None else f"{array.dtype} {array.shape}"
            raise EndpointError(f"{peer} sent {got} to {self.me} where {np.dtype(dtype)} {tuple(shape)} is due")
        return array

    def random(self, shape: Sequence[int]) -> Residues:
        """Residues uniform over the whole modulus, from the operating system's generator."""
        return uniform_residues(shape)

    def _in_sequence(self, peer: str) -> Message:
        """The message that follows the last one; one that was seen before, or skips ahead, is refused."""
        while (message := self._mailbox.data(peer, self._deadline)).sequence != self._received[peer]:
            self._mailbox.refused["out of sequence"] += 1
        self._received[peer] += 1
        return message
