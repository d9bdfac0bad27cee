"""The sockets of one party: a ROUTER to which others connect, and a DEALER for each peer to which it connects.

A connection carries messages in both directions: the party that opened it sends on its DEALER, and the other answers
through its ROUTER. The coordinator opens the connections that carry orders and answers; the sites open those that carry
protocols.

Security. On tcp every link is encrypted by CURVE, and every party is identified by its key, see `auth`. So nobody can
send under another party's name. An oversized frame ends the connection before memory is allocated for it, and malformed
messages are dropped; both are counted in `refused`. A connection of a stranger who sends nothing uses a descriptor
until the handshake times out. A process raises its limit of descriptors for this reason.
"""

from __future__ import annotations

import errno
import functools
import os
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Self

import zmq

from fedsvm.federation.errors import DeadlineExpired, EndpointError, Malformed, PeerDropped
from fedsvm.federation.traffic_ledger import Ledger
from fedsvm.federation.transport import wire
from fedsvm.federation.transport.addresses import needs_ipv6
from fedsvm.federation.transport.auth import Authenticator
from fedsvm.federation.transport.connection import (
    DISCONNECTED,
    HANDSHAKE_FAILURES,
    MONITORED,
    REDIAL_S,
    Dialler,
    Streams,
)
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.descriptors import descriptors_explained, raise_descriptor_limit
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from fedsvm.federation.transport.message_transport import Received
from fedsvm.federation.transport.poller import LINGER_MS, Poller, next_frame, only_frame

_FLUSH_S = 0.1
_FLUSH_LOOK_S = 1e-4
_UNRECOGNISED = "not a ZeroMQ peer of ours"
_DESCRIPTORS_PER_PEER = 5
"""Descriptors of a connection that this party opens: the stream, its duplicate, and libzmq's signals for the socket and
for both ends of its monitor. A connection that the peer opens takes two more."""

_DESCRIPTORS_TO_SPARE = 128
_HANDSHAKE_MS = 5000
"""Milliseconds after which a connection without a completed handshake is closed. A peer whose handshake takes longer,
because this party is computing, connects again."""
_BACKLOG = 4096
"""Maximum number of connections that the kernel queues until they are accepted. If strangers fill the queue, a peer's
connection is lost, and is tried again only a second later."""

_LISTEN_PROBLEMS = {
    errno.EADDRINUSE: "the port is in use; name another by federation.port or --listen",
    errno.EADDRNOTAVAIL: "this machine has no such address; name one of its own, or 0.0.0.0 for all",
}


class Endpoint:
    """The transport of one party over its sockets.

    Parameters
    ----------
    name : str
        The name of this party.
    listen : str
        A tcp address, whose port may be `*`, or an ipc address.
    keys : KeyPair or None
        Its key pair; None without encryption.
    peers : int
        Maximum number of parties with which it communicates.

    Attributes
    ----------
    address : str
        The address on which it listens.
    round : int
        The current round.
    interrupted : set of str
        The peers to which an open connection broke. The reader of this set clears it.
    ledger : Ledger
        The traffic of the connections.
    refused : Counter of str
        The number of refused messages and connections, by reason.

    Raises
    ------
    EndpointError
        The party cannot listen on the address, or the system allows too few open files.
    """

    def __init__(self, name: str, listen: str, keys: KeyPair | None, peers: int) -> None:
        self.name = name
        self.round = 0
        self.ledger = Ledger()
        self.refused: Counter[str] = Counter()
        self.interrupted: set[str] = set()
        self._authenticator = Authenticator(name, keys)
        self._pending: deque[Received] = deque()
        self._diallers: dict[str, Dialler] = {}
        self._greetings: dict[str, wire.Message] = {}
        self._streams = Streams(name, encrypted=keys is not None, ledger=self.ledger)
        self._routing_ids: dict[str, bytes] = {}
        self._failure = _UNRECOGNISED
        self._broken: set[str] = set()
        raise_descriptor_limit(peers * _DESCRIPTORS_PER_PEER + _DESCRIPTORS_TO_SPARE)
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, max(1023, 4 * peers + 16))
        self._poller = Poller(self._context)
        try:
            if (zap := self._authenticator.listen(self._context)) is not None:
                self._poller.add(zap, lambda: self._authenticator.serve(zap))
            self._router = self._listen(listen)
        except BaseException:
            self._poller.close()
            self._context.destroy(linger=0)
            raise
        self.address = self._router.getsockopt_string(zmq.LAST_ENDPOINT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Close every socket. Messages that are still waiting to be sent have a second to leave."""
        self._poller.close()
        for stream in self._streams:
            stream.end()
        self._context.destroy(linger=LINGER_MS)

    @property
    def roster(self) -> Roster:
        """The parties that may connect, and can be reached."""
        return self._authenticator.roster

    def admit(self, roster: Roster) -> None:
        """Allow connections from and to exactly the parties in `roster`.

        The connection to a party that was restarted with another address or key is opened again. So is one that the
        party refused, since it may have had no roster then.
        """
        for peer, dialler in list(self._diallers.items()):
            if dialler.peer not in roster or roster[dialler.peer] != dialler.party or dialler.rejected:
                self._hang_up(peer)
        self._authenticator.roster = roster

    def watch(self, descriptor: Any, handler: Callable[[], None]) -> None:
        """Call `handler` whenever `descriptor` is readable during a wait; an error that it raises ends the wait."""
        self._poller.watch(descriptor, handler)

    def connect(self, peer: str) -> None:
        """Begin to open the connection to `peer`, unless it exists, so that `send` need not wait for it later."""
        if peer not in self._diallers:
            self._dial(peer, self.roster[peer], control=self.name == COORDINATOR)

    def send(
        self, peer: str, message: wire.Message, deadline: Deadline, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Send on this party's connection to `peer`, and open it if necessary.

        meanwhile: called after each event during the wait for the connection; an error that it raises ends the wait.
        Raises PeerDropped, with the reason, if the peer cannot be reached within the deadline.
        """
        if peer not in self._diallers:
            self.connect(peer)
        while not (dialler := self._diallers[peer]).established:
            dialler.check_reachable(deadline)
            self._serve(deadline.remaining_ms())
            meanwhile()
        dialler.send(message)

    def stay_reachable(self, peer: str, greeting: wire.Message, deadline: Deadline) -> None:
        """Keep a connection to `peer` open, on which it can send at any time. Send the greeting whenever it opens.

        Raises PeerDropped if the peer cannot be reached within the deadline.
        """
        known = self._greetings.get(peer)
        self._greetings[peer] = greeting
        self.connect(peer)
        if known is None and self._diallers[peer].established:
            self._greet(peer, self._diallers[peer])
        while not self._diallers[peer].established:
            self._diallers[peer].check_reachable(deadline)
            self._serve(deadline.remaining_ms())

    def reply(self, peer: str, message: wire.Message) -> None:
        """Send over the connection that `peer` opened. Raises PeerDropped if it is closed."""
        try:
            self._poller.send(self._router, message.frame, self._routing_ids[peer])
        except (KeyError, zmq.Again, zmq.ZMQError) as error:
            raise PeerDropped(f"{self.name} cannot answer {peer}: its connection is gone or full.") from error
        self._streams.accepted[peer][-1].count(message, len(message.frame), sent=True)

    def flush(self, peer: str) -> None:
        """Wait until all replies to `peer` have left this process, at most a tenth of a second.

        libzmq sends in its own thread, which ends with the process; the kernel sends its data even then. Only Linux
        reports how much the kernel has, and only for tcp: otherwise this does not wait.
        """
        deadline = Deadline(_FLUSH_S)
        while not (self._streams.accepted[peer][-1].is_out or deadline.expired):
            time.sleep(_FLUSH_LOOK_S)  # the kernel offers no event to wait for

    def wait(self, deadline: Deadline, *, for_answers: bool = True) -> None:
        """Wait until something happens on a socket or a watched descriptor. Raises DeadlineExpired.

        for_answers: whether a message on a connection that this party opened ends the wait at once. If not, only
        messages on connections that peers opened do.
        """
        if not self._pending:
            if deadline.expired:
                raise DeadlineExpired
            self._serve(deadline.remaining_ms(), first=None if for_answers else self._router)

    def received(self) -> Received | None:
        """Return a valid message that has arrived, or None."""
        return self._pending.popleft() if self._pending else None

    def read_remaining(self, peer: str, deadline: Deadline) -> None:
        """Read the last messages of a party whose process ended, until its connections end or the deadline expires.

        The end of a process may be known before libzmq has read all of its data from the kernel.
        """
        while not (deadline.expired or self._streams.have_ended(peer)):
            self._serve(deadline.remaining_ms())
        self._serve(0)

    def measure(self, round_number: int, *, whole: bool) -> None:
        """Enter in the ledger the kernel's count of bytes received since the last call.

        whole: whether to include bytes without a complete message. There are none after a complete round, but after an
        aborted one, and at the end of the run.
        """
        if whole:
            self._serve(0)
        for stream in self._streams:
            stream.measure(round_number, whole=whole)

    def check_descriptors(self) -> None:
        """Raise EndpointError if this process has no free descriptor.

        libzmq does not report it: it retries connections in both directions without a message.
        """
        with descriptors_explained(self.name):
            os.close(os.dup(self._router.FD))

    # Opening sockets.

    def _listen(self, address: str) -> zmq.Socket[bytes]:
        router = self._poller.open(zmq.ROUTER)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        router.setsockopt(zmq.BACKLOG, _BACKLOG)
        self._authenticator.secure_listener(router)
        self._poller.monitor(router, MONITORED, self._note_stranger)
        self._poller.add(router, self._read_router)
        router.setsockopt(zmq.IPV6, needs_ipv6(address))
        try:
            router.bind(address)
        except zmq.ZMQError as error:
            why = _LISTEN_PROBLEMS.get(error.errno or 0, error.strerror)
            raise EndpointError(f"{self.name} cannot listen on {address}: {why}.") from error
        return router

    def _dial(self, peer: str, party: Party, *, control: bool) -> None:
        """Open a connection to `party`, under the name `peer` among this party's own."""
        dealer = self._poller.open(zmq.DEALER)
        self._authenticator.secure_dialler(dealer, party)

        dialler = Dialler(party, dealer, self._poller, self._streams, peer, control=control)

        def note(event: int, value: int) -> None:
            was_established = dialler.established
            if dialler.note(event, value):
                self.interrupted.add(peer)
            (self._broken.add if dialler.broken else self._broken.discard)(peer)
            if dialler.established and not was_established:
                self._greet(peer, dialler)

        self._poller.monitor(dealer, MONITORED, note)
        self._poller.add(dealer, functools.partial(self._read_dealer, peer, dealer))
        dealer.setsockopt(zmq.IPV6, needs_ipv6(party.address))
        dealer.connect(party.address)
        self._diallers[peer] = dialler

    def _greet(self, peer: str, dialler: Dialler) -> None:
        """Send the greeting, if there is one, on a new connection of this party."""
        if peer in self._greetings:
            dialler.send(self._greetings[peer])

    def _hang_up(self, peer: str) -> None:
        """Close the connection to a party that left or has another address or key."""
        self._poller.remove(self._diallers.pop(peer).dealer)
        self._routing_ids.pop(peer, None)
        self._broken.discard(peer)

    # Serving sockets while waiting.

    def _serve(self, timeout_ms: int, first: zmq.Socket[bytes] | None = None) -> None:
        if self._broken:
            timeout_ms = min(timeout_ms, int(REDIAL_S * 1000))
        self._poller.serve(timeout_ms, first=first)
        if self._broken:
            for peer in [peer for peer in self._broken if self._diallers[peer].to_redial]:
                self._hang_up(peer)
                self.connect(peer)

    def _note_stranger(self, event: int, value: int) -> None:
        """Count connections that ended before their first message; libzmq does not always report why they failed."""
        if event in HANDSHAKE_FAILURES:
            self._failure = HANDSHAKE_FAILURES[event]
        elif event == DISCONNECTED and not self._streams.end_accepted(value):
            self.refused[self._failure] += 1
            self._failure = _UNRECOGNISED

    def _read_router(self) -> None:
        """Read one message, unless another reader of this socket did."""
        try:
            first = next_frame(self._router)
        except zmq.Again:
            return
        if not first.more:  # Ctrl-C came while the message was being read
            return
        if (frame := only_frame(self._router, self.refused)) is None:
            return
        routing_id = first.bytes
        peer = self._authenticator.sender(routing_id, frame)
        if peer is None:
            self.refused["unknown sender"] += 1
        else:
            self._take(peer, frame, routing_id)

    def _read_dealer(self, peer: str, dealer: zmq.Socket[bytes]) -> None:
        """Read one message."""
        if (frame := only_frame(dealer, self.refused)) is not None:
            self._take(peer, frame, None)

    def _take(self, peer: str, frame: zmq.Frame, routing_id: bytes | None) -> None:
        """Process a message of the connection with this routing id; None: of a connection that this party opened."""
        if (message := decode_frame(frame, self.refused)) is None:
            return
        if routing_id is None:
            stream = self._streams.opened[peer][-1]
        else:
            if self._routing_ids.get(peer) != routing_id:
                self._routing_ids[peer] = routing_id
                self._streams.accept(peer, frame, control=peer == COORDINATOR)
            stream = self._streams.accepted[peer][-1]
        stream.count(message, len(frame), sent=False)
        self._pending.append(Received(peer, message, routing_id is None))


def decode_frame(frame: zmq.Frame, refused: Counter[str]) -> wire.Message | None:
    """Return the message in a frame, or None if it is malformed, which is counted."""
    try:
        return wire.decode(frame.buffer)
    except Malformed as error:
        refused[f"malformed: {error}"] += 1
        return None
