"""The channel in memory: the parties are threads, the network is a set of queues. See `interface` for its guarantees.

A protocol function cannot distinguish it from sockets. So its arithmetic, its cost and what it reveals can be examined
quickly for many parties, and parties can die at any message.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.agreement import KeyAgreement, keystreams, round_keys
from fedsvm.federation.channel.interface import KeyedChannel, check_array, uniform_residues
from fedsvm.federation.errors import OrdersDiffer, PeerDropped, PeerLate, RoundAborted, Transient
from fedsvm.federation.transport.keys import COORDINATOR

T = TypeVar("T")

_ROUND = 1
"""The number of the only round of a network."""


@dataclass(frozen=True)
class MemoryMessage:
    """One message that was sent in memory."""

    sender: str
    receiver: str
    array: NDArray[Any]
    hop: int


class SimulatedDeath(Exception):
    """A party reached the message before which its simulated process ends."""


@dataclass
class InMemoryNetwork:
    """The network of one round in memory, and the record of all its messages.

    Parameters
    ----------
    sites : tuple of str
        The sites, in ring order.
    timeout_s : float, default 30.0
        Seconds that a party waits for another.
    deaths : mapping of str to int, default {}
        For each party that dies: the number of the message, from 1, before which it does.
    run_sites : int, default that of `sites`
        The number of sites that the run began with.
    min_sites : int, default 1
        The minimum number of sites of a sum.
    links : mapping of str to bytes, default {}
        The link of each site in its chain of orders.

    Attributes
    ----------
    sent : list of MemoryMessage
        Every message, in the order in which they were sent.
    drawn : dict of str to list of Residues
        Every random vector, by the party that drew it.
    expanded : dict of str to dict of bytes to list of Residues
        Every keystream, by the party that expanded it and the secret; secrets are in the order of their first use.
    """

    sites: tuple[str, ...]
    timeout_s: float = 30.0
    deaths: Mapping[str, int] = field(default_factory=dict)
    run_sites: int = 0
    min_sites: int = 1
    links: Mapping[str, bytes] = field(default_factory=dict)
    sent: list[MemoryMessage] = field(default_factory=list)
    drawn: dict[str, list[Residues]] = field(default_factory=lambda: defaultdict(list))
    expanded: dict[str, dict[bytes, list[Residues]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def __post_init__(self) -> None:
        self._queues: dict[tuple[str, str], deque[MemoryMessage]] = defaultdict(deque)
        self._news = threading.Condition()
        self._failed = False
        self._dead: set[str] = set()
        self.agreements = {site: KeyAgreement(bytes(8)) for site in self.sites}

    def run(self, parties: Mapping[str, Callable[[MemoryChannel], T]]) -> dict[str, T]:
        """Run each party's function in a thread of its own.

        Parameters
        ----------
        parties : mapping of str to callable
            The function of each party, given its channel. A party that raises SimulatedDeath is dead; any other error
            aborts the round for all.

        Returns
        -------
        dict of str
            The value of each party that did not die.

        Raises
        ------
        Exception
            The error of a party. If several parties raised, the one that caused the others: a wrong shape rather than
            a dropped peer, and a dropped peer rather than RoundAborted.
        """
        with ThreadPoolExecutor(max_workers=len(parties)) as pool:
            try:
                futures = {name: pool.submit(self._run_party, name, party) for name, party in parties.items()}
                wait(futures.values())
            except BaseException:  # such as Ctrl-C: a party may wait for another that was never started
                self._abort()
                raise
        errors = {name: error for name, future in futures.items() if (error := future.exception()) is not None}
        for error in sorted(errors.values(), key=_is_consequence):
            if not isinstance(error, SimulatedDeath):
                raise error
        return {name: future.result() for name, future in futures.items() if name not in errors}

    @property
    def payload_bytes(self) -> int:
        """Bytes of all arrays that were sent."""
        return sum(message.array.nbytes for message in self.sent)

    @property
    def hops(self) -> int:
        """The length of the longest chain of messages in which each waits for the one before."""
        return max((message.hop for message in self.sent), default=0)

    def _run_party(self, name: str, party: Callable[[MemoryChannel], T]) -> T:
        try:
            return party(self._channel(name))
        except BaseException as error:
            if isinstance(error, SimulatedDeath):
                self._mark_dead(name)
            else:
                self._abort()
            raise

    def _abort(self) -> None:
        with self._news:
            self._failed = True
            self._news.notify_all()

    def _mark_dead(self, name: str) -> None:
        with self._news:
            self._dead.add(name)
            self._news.notify_all()

    def _channel(self, name: str) -> MemoryChannel:
        return MemoryChannel(self, name)

    def _put(self, message: MemoryMessage) -> None:
        """Store a message. Raises PeerDropped if a site sends to a dead one."""
        with self._news:
            if message.receiver in self._dead and message.sender != COORDINATOR:
                raise PeerDropped(f"{message.sender} cannot reach {message.receiver}: it died.")
            self.sent.append(message)
            self._queues[message.sender, message.receiver].append(message)
            self._news.notify_all()

    def _get(self, sender: str, receiver: str, deadline: float) -> MemoryMessage:
        """Return the next message. Raises PeerDropped, RoundAborted, and PeerLate at a moment of the monotonic
        clock."""
        with self._news:
            arrived = self._queues[sender, receiver]
            self._news.wait_for(
                lambda: arrived or self._failed or sender in self._dead, max(0.0, deadline - time.monotonic())
            )
            if arrived:
                return arrived.popleft()
            if self._failed:
                raise RoundAborted
            if sender in self._dead:
                raise PeerDropped(f"{receiver} cannot continue without {sender}: it died")
        raise PeerLate(f"{receiver} waited {self.timeout_s:g} s without a message from {sender}")


def _is_consequence(error: BaseException) -> int:
    return 2 if isinstance(error, RoundAborted) else 1 if isinstance(error, Transient) else 0


class MemoryChannel(KeyedChannel):
    """One party's channel in memory."""

    def __init__(self, network: InMemoryNetwork, me: str) -> None:
        self.me = me
        self.sites = network.sites
        self.run_sites = network.run_sites or len(network.sites)
        self.min_sites = network.min_sites
        self._network = network
        self._hop = 0
        self._sent = 0

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Send a copy of `array` to `peer`. Raises PeerDropped where a site sends to one that is dead."""
        self._sent += 1
        if self._sent == self._network.deaths.get(self.me):
            raise SimulatedDeath
        self._network._put(MemoryMessage(self.me, peer, array.copy(), self._hop + 1))

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """Return the next array from `peer`. Raises ProtocolError, PeerDropped, PeerLate and RoundAborted."""
        message = self._network._get(peer, self.me, time.monotonic() + self._network.timeout_s)
        return self._open(peer, message, shape, dtype)

    def collect(self, shapes: Mapping[str, Sequence[int]], dtype: Any = np.uint64) -> dict[str, NDArray[Any]]:
        """Return the next array from each of these peers. Omit peers that dropped or are late."""
        deadline = time.monotonic() + self._network.timeout_s
        arrays: dict[str, NDArray[Any]] = {}
        for peer, shape in shapes.items():
            with suppress(Transient):
                arrays[peer] = self._open(peer, self._network._get(peer, self.me, deadline), shape, dtype)
        return arrays

    def random(self, shape: Sequence[int]) -> Residues:
        """Return uniform residues, recorded as drawn by this party."""
        return self._draw(uniform_residues(shape))

    def expand(self, secrets: Sequence[bytes], shape: Sequence[int], part: int = 0) -> Residues:
        """Return the keystreams of secrets, recorded as this party's."""
        return self._expand(secrets, keystreams(secrets, shape, part))

    def joint_seed(self) -> bytes:
        """Return a digest of the keys by which all sites of the run agree on secrets."""
        publics = b"".join(self._network.agreements[site].public for site in sorted(self._network.agreements))
        return hashlib.sha256(publics).digest()

    def _expand(self, secrets: Sequence[bytes], rows: Residues) -> Residues:
        for secret, row in zip(secrets, rows, strict=True):
            self._network.expanded[self.me][secret].append(row)
        return rows

    def _keys_of(self, peers: Iterable[str], purpose: str) -> list[bytes]:
        agreements, link = self._network.agreements, self._link_of(self.me)
        return [
            round_keys(agreements[self.me].pair_key(self.me, peer, agreements[peer].public, purpose), _ROUND, link)
            for peer in peers
        ]

    def _link_of(self, site: str) -> bytes:
        return self._network.links.get(site, b"")

    def _draw(self, residues: Residues) -> Residues:
        self._network.drawn[self.me].append(residues)
        return residues

    def _open(self, peer: str, message: MemoryMessage, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        if COORDINATOR not in (self.me, peer) and self._link_of(peer) != self._link_of(self.me):
            raise OrdersDiffer(self.me, peer)
        self._hop = max(self._hop, message.hop)
        return check_array(peer, self.me, message.array, shape, dtype)
