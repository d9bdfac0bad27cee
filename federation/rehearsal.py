"""Protocols without processes: the parties are threads, the network is a set of queues.

A protocol function cannot tell a rehearsal from a run, so its arithmetic, its cost and what it reveals can be
tested quickly for many parties.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from federation.arrays import Residues
from federation.channel import uniform_residues
from federation.errors import EndpointError, RoundAborted

T = TypeVar("T")


@dataclass(frozen=True)
class Sent:
    """One message of a rehearsal."""

    sender: str
    receiver: str
    array: NDArray[Any]
    hop: int


@dataclass
class Rehearsal:
    """The network of one rehearsed round, and the record of all that went over it."""

    sites: tuple[str, ...]
    timeout_s: float = 30.0
    sent: list[Sent] = field(default_factory=list)
    drawn: dict[str, list[Residues]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._queues: dict[tuple[str, str], queue.Queue[Sent]] = defaultdict(queue.Queue)
        self._lock = threading.Lock()
        self._failed = threading.Event()

    def play(self, parts: Mapping[str, Callable[[MemoryChannel], T]]) -> dict[str, T]:
        """Run each party's part in a thread of its own; what it returns, by party. The first error is raised."""
        with ThreadPoolExecutor(max_workers=len(parts)) as pool:
            futures = {name: pool.submit(self._part, name, part) for name, part in parts.items()}
        errors = [error for future in futures.values() if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, RoundAborted)):
            raise error
        return {name: future.result() for name, future in futures.items()}

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
            return part(MemoryChannel(self, name))
        except BaseException:
            self._failed.set()
            raise

    def _put(self, message: Sent) -> None:
        with self._lock:
            self.sent.append(message)
            queue_of_link = self._queues[message.sender, message.receiver]
        queue_of_link.put(message)

    def _get(self, sender: str, receiver: str) -> Sent:
        with self._lock:
            queue_of_link = self._queues[sender, receiver]
        polls = int(self.timeout_s / 0.05)
        for _ in range(polls):
            try:
                return queue_of_link.get(timeout=0.05)
            except queue.Empty:
                if self._failed.is_set():
                    raise RoundAborted from None
        raise EndpointError(f"{receiver} waited {self.timeout_s:g} s in vain for {sender}")


class MemoryChannel:
    """A channel of a rehearsal."""

    def __init__(self, rehearsal: Rehearsal, me: str) -> None:
        self.me = me
        self.sites = rehearsal.sites
        self._rehearsal = rehearsal
        self._hop = 0

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Send a copy of `array` to `peer`."""
        self._rehearsal._put(Sent(self.me, peer, array.copy(), self._hop + 1))

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """The next array from `peer`. Raises EndpointError if it has another shape or type, or does not come."""
        message = self._rehearsal._get(peer, self.me)
        self._hop = max(self._hop, message.hop)
        if message.array.shape != tuple(shape) or message.array.dtype != np.dtype(dtype):
            raise EndpointError(f"{peer} sent {message.array.dtype} {message.array.shape} to {self.me}")
        return message.array

    def random(self, shape: Sequence[int]) -> Residues:
        """Uniform residues, remembered as drawn by this party."""
        drawn = uniform_residues(shape)
        self._rehearsal.drawn[self.me].append(drawn)
        return drawn
