"""The channel over sockets: one party's view of one round, over its endpoint. See `interface` for its guarantees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.agreement import KeyAgreement, keystreams, round_keys
from fedsvm.federation.channel.interface import Draw, KeyedChannel, Observer, check_array, uniform_residues
from fedsvm.federation.channel.mailbox import Mailbox
from fedsvm.federation.errors import DeadlineExpired, OrdersDiffer, PeerDropped, PeerLate, StepRefused
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.federation.transport.wire import DATA_KIND, LINK, Message

_ARRAY = "value"


class SocketChannel(KeyedChannel):
    """A channel over sockets for one round.

    Parameters
    ----------
    mailbox : Mailbox
        The messages that arrived.
    sites : tuple of str
        The sites of the round in ring order.
    run_sites : int
        The number of sites that the run began with.
    round_number : int
        The round, which every message carries.
    deadline : Deadline
        The deadline of the round.
    notice : callable
        Reads the control messages that arrived; called after every wait. It may raise RoundAborted or another error
        that ends the round here, or remove sites from the round by `drop`.
    agreement : KeyAgreement or None
        The key pair for secrets shared with other sites; None if the party has none.
    observers : sequence of Observer
        The observers of this channel.
    draw : callable
        Returns a random vector, given its shape; by default from the operating system's generator.
    link : bytes, default b""
        The round's link in the chain of orders, at a site. Messages between sites carry it, and their keys are derived
        from it.
    min_sites : int, default 1
        The minimum number of sites of a sum in which this party takes part.

    Attributes
    ----------
    hop : int
        The length of the longest chain of messages that ended here.
    waiting_for : str
        The peer whose message or connection this party waits for.
    sent_to, taken : dict of str to int
        Messages sent to each peer, and received from it.
    dropped, left_out : dict of str
        The reasons, by site: why it is missing in the round, as far as is known, and why `collect` omitted it.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        sites: tuple[str, ...],
        run_sites: int,
        round_number: int,
        deadline: Deadline,
        notice: Callable[[], None],
        *,
        agreement: KeyAgreement | None = None,
        observers: Sequence[Observer] = (),
        draw: Draw = uniform_residues,
        link: bytes = b"",
        min_sites: int = 1,
    ) -> None:
        self.me = mailbox.endpoint.name
        self.sites = sites
        self.run_sites = run_sites
        self.min_sites = min_sites
        self.hop = 0
        self.waiting_for = ""
        self.sent_to: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        self.dropped: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self._mailbox = mailbox
        self._round = round_number
        self._deadline = deadline
        self._notice = notice
        self._agreement = agreement
        self._observers = observers
        self._draw = draw
        self._link = link
        self._fields = {LINK: link} if link else {}
        self._round_keys: dict[str, dict[str, bytes]] = {}
        self._streams: dict[bytes, str] = {}

    def drop(self, site: str, why: str) -> None:
        """Mark a site as dropped: from now on `collect` omits it, and `receive` raises PeerDropped."""
        self.dropped[site] = why

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Send `array` to `peer`. Raises PeerDropped when a site cannot be reached within the round's deadline."""
        for observer in self._observers:
            observer.sending(peer, array)
        place = self.sent_to.get(peer, 0)
        fields = self._fields if self._is_linked(peer) else {}
        message = Message(DATA_KIND, self._mailbox.run, self._round, place, self.hop + 1, fields, {_ARRAY: array})
        self.sent_to[peer] = place + 1
        self.waiting_for = peer
        if self.me == COORDINATOR:
            with suppress(PeerDropped):  # a site without a connection dropped or is late: `collect` finds out
                self._mailbox.endpoint.reply(peer, message)
        elif peer != COORDINATOR and (sealer := self._mailbox.sealer) is not None:
            self._mailbox.endpoint.send(COORDINATOR, sealer.seal(peer, message), self._deadline, self._notice)
        else:
            self._mailbox.endpoint.send(peer, message, self._deadline, self._notice)

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """Return the next array from `peer`. Raises ProtocolError, PeerDropped, PeerLate, and what `notice` raises."""
        self.waiting_for = peer
        try:
            while (message := self._next(peer)) is None:
                self._check_reachable()
                self._mailbox.wait(self._deadline, for_answers=self.me != COORDINATOR)
                self._notice()
        except DeadlineExpired as error:
            raise PeerLate(f"{self.me} waited {self._deadline.seconds:g} s without a message from {peer}") from error
        return self._open(peer, message, shape, dtype)

    def collect(self, shapes: Mapping[str, Sequence[int]], dtype: Any = np.uint64) -> dict[str, NDArray[Any]]:
        """Return the next array from each of these peers. Omit peers that dropped or are late.

        Raises ProtocolError, and what `notice` raises.
        """
        deadline = Deadline(self._deadline.seconds)
        arrays: dict[str, NDArray[Any]] = {}
        awaited = set(shapes)
        while True:
            for peer in awaited & self._mailbox.senders():
                if (message := self._next(peer)) is not None:
                    arrays[peer] = self._open(peer, message, shapes[peer], dtype)
                    awaited.discard(peer)
            if awaited <= self.dropped.keys():
                break
            try:
                self._mailbox.wait(deadline)
            except DeadlineExpired:
                break
            self._notice()
        late = f"it was silent for {deadline.seconds:g} s"
        self.left_out |= {peer: self.dropped.get(peer, late) for peer in shapes if peer in awaited}
        return {peer: arrays[peer] for peer in shapes if peer in arrays}

    def random(self, shape: Sequence[int]) -> Residues:
        """Return residues uniform over the whole modulus."""
        residues = self._draw(shape)
        for observer in self._observers:
            observer.drew(residues)
        return residues

    def expand(self, secrets: Sequence[bytes], shape: Sequence[int], part: int = 0) -> Residues:
        """Return the keystreams of 256-bit secrets as residues."""
        rows = keystreams(secrets, shape, part)
        for observer in self._observers:
            for secret, row in zip(secrets, rows, strict=True):
                observer.drew(row, self._streams.setdefault(secret, f"keystream {len(self._streams) + 1}"))
        return rows

    def joint_seed(self) -> bytes:
        """Return a digest of the keys by which all sites of the run agree on secrets."""
        return self._mailbox.joint_seed()

    def _keys_of(self, peers: Iterable[str], purpose: str) -> list[bytes]:
        """Return the keys shared with each of these peers in this round. Raises StepRefused for a peer without keys."""
        known = self._round_keys.setdefault(purpose, {})
        new = [peer for peer in peers if peer not in known]
        for peer, public in zip(new, self._mailbox.agreement_keys(new), strict=True):
            if self._agreement is None or public is None:
                raise StepRefused(
                    f"{self.me} and {peer} have no keys to agree on a secret; a sum that uses secrets must set "
                    "needs_pairwise_keys"
                )
            pair_key = self._agreement.pair_key(self.me, peer, public, purpose)
            known[peer] = round_keys(pair_key, self._round, self._link)
        return [known[peer] for peer in peers]

    def _check_reachable(self) -> None:
        """Raise PeerDropped early if the awaited message may never come."""
        if self.dropped:
            raise PeerDropped(f"{self.me} cannot continue without {', '.join(sorted(self.dropped))}")
        interrupted = self._mailbox.endpoint.interrupted
        by_way_of = () if self._mailbox.sealer is None else (COORDINATOR,)
        spoken_to = self.sites if self.me == COORDINATOR else (*self.sent_to, *by_way_of)
        if broken := sorted(interrupted.intersection(spoken_to) if interrupted else ()):
            raise PeerDropped(f"the connection of {self.me} to {broken[0]} broke, perhaps with a message on its way")

    def _next(self, peer: str) -> Message | None:
        """Return the message that follows the last one. Refuse one that was received before or skips ahead."""
        while (message := self._mailbox.next_array(peer)) is not None:
            expected = self.taken.get(peer, 0)
            if message.sequence == expected:
                self.taken[peer] = expected + 1
                return message
            self._mailbox.refused["out of sequence"] += 1
        return None

    def _is_linked(self, peer: str) -> bool:
        """Return whether messages to and from a peer carry the round's link, as those between sites do."""
        return COORDINATOR not in (self.me, peer)

    def _open(self, peer: str, message: Message, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        if self._is_linked(peer) and message.fields.get(LINK, b"") != self._link:
            raise OrdersDiffer(self.me, peer)
        self.hop = max(self.hop, message.hop)
        array = check_array(peer, self.me, message.arrays.get(_ARRAY), shape, dtype)
        for observer in self._observers:
            observer.received(peer, array)
        return array
