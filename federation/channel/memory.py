"""Protocols without processes: the parties are threads, the network is a set of queues.

A protocol function cannot tell a rehearsal from a run, so its arithmetic, its cost and what it reveals can be
examined quickly for many parties, and parties can be made to die at any message.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from federation.arrays import Residues
from federation.channel.agreement import KeyAgreement, keystream
from federation.channel.socket import uniform_residues
from federation.errors import EndpointError, RoundAborted

T = TypeVar("T")


@dataclass(frozen=True)
class Sent:
    """One message of a rehearsal."""

    sender: str
    receiver: str
    array: NDArray[Any]
    hop: int


class Died(Exception):
    """A party came to the message before which it was to die."""


@dataclass
class InMemoryNetwork:
    """The network of one rehearsed round, and the record of all that went over it.

    deaths: the message, counted from 1, before which a party dies.
    """

    sites: tuple[str, ...]
    timeout_s: float = 30.0
    deaths: Mapping[str, int] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    drawn: dict[str, list[Residues]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._queues: dict[tuple[str, str], deque[Sent]] = defaultdict(deque)
        self._news = threading.Condition()
        self._failed = False
        self._gone: set[str] = set()
        self.agreements = {site: KeyAgreement(bytes(8)) for site in self.sites}

    def play(self, parts: Mapping[str, Callable[[MemoryChannel], T]]) -> dict[str, T]:
        """Run each party's part in a thread of its own; what it returns, by party, of those that did not die.

        The first error is raised.
        """
        with ThreadPoolExecutor(max_workers=len(parts)) as pool:
            futures = {name: pool.submit(self._part, name, part) for name, part in parts.items()}
        errors = {name: error for name, future in futures.items() if (error := future.exception()) is not None}
        for error in sorted(errors.values(), key=lambda error: isinstance(error, RoundAborted)):
            if not isinstance(error, Died):
                raise error
        return {name: future.result() for name, future in futures.items() if name not in errors}

    @property
    def payload_bytes(self) -> int:
        """Bytes of all arrays that were sent."""
        return sum(message.array.nbytes for message in self.sent)

    @property
    def hops(self) -> int:
        """Length of the longest chain of messages each of which had to wait for the one before."""
        return max((message.hop for message in self.sent), default=0)

    def _part(self, name: str, part: Callable[[MemoryChannel], T]) -> T:
        try:
            return part(self._channel(name))
        except BaseException as error:
            with self._news:
                if isinstance(error, Died):
                    self._gone.add(name)
                else:
                    self._failed = True
                self._news.notify_all()
            raise

    def _channel(self, name: str) -> MemoryChannel:
        return MemoryChannel(self, name)

    def _put(self, message: Sent) -> None:
        with self._news:
            self.sent.append(message)
            self._queues[message.sender, message.receiver].append(message)
            self._news.notify_all()

    def _get(self, sender: str, receiver: str) -> Sent | None:
        """The next message, or None if the sender died before it sent one."""
        with self._news:
            arrived = self._queues[sender, receiver]
            self._news.wait_for(lambda: arrived or self._failed or sender in self._gone, self.timeout_s)
            if arrived:
                return arrived.popleft()
            if self._failed:
                raise RoundAborted
            if sender in self._gone:
                return None
        raise EndpointError(f"{receiver} waited {self.timeout_s:g} s in vain for {sender}")


class MemoryChannel:
    """A channel of a rehearsal."""

    def __init__(self, rehearsal: InMemoryNetwork, me: str) -> None:
        self.me = me
        self.sites = rehearsal.sites
        self._rehearsal = rehearsal
        self._hop = 0
        self._sent = 0

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Send a copy of `array` to `peer`."""
        self._sent += 1
        if self._sent == self._rehearsal.deaths.get(self.me):
            raise Died
        self._rehearsal._put(Sent(self.me, peer, array.copy(), self._hop + 1))

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """The next array from `peer`. Raises EndpointError if it has another shape or type, or does not come."""
        message = self._rehearsal._get(peer, self.me)
        if message is None:
            raise RoundAborted
        return self._open(peer, message, shape, dtype)

    def collect(self, shapes: Mapping[str, Sequence[int]], dtype: Any = np.uint64) -> dict[str, NDArray[Any]]:
        """The next array from each of these peers; those that died are left out."""
        messages = {peer: self._rehearsal._get(peer, self.me) for peer in shapes}
        return {
            peer: self._open(peer, message, shapes[peer], dtype)
            for peer, message in messages.items()
            if message is not None
        }

    def random(self, shape: Sequence[int]) -> Residues:
        """Uniform residues, remembered as drawn by this party."""
        return self._drawn(uniform_residues(shape))

    def shared_secret(self, peer: str, purpose: str) -> bytes:
        """256 bits that this site and `peer` alone can derive."""
        agreements = self._rehearsal.agreements
        pair = " ".join(sorted((self.me, peer)))
        return agreements[self.me].secret(agreements[peer].public, f"{purpose} {pair}")

    def expand(self, secret: bytes, shape: Sequence[int]) -> Residues:
        """The keystream of a secret, remembered as drawn by this party."""
        return self._drawn(keystream(secret, shape))

    def _drawn(self, residues: Residues) -> Residues:
        self._rehearsal.drawn[self.me].append(residues)
        return residues

    def _open(self, peer: str, message: Sent, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        self._hop = max(self._hop, message.hop)
        if message.array.shape != tuple(shape) or message.array.dtype != np.dtype(dtype):
            raise EndpointError(f"{peer} sent {message.array.dtype} {message.array.shape} to {self.me}")
        return message.array
