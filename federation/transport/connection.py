"""Connections: the state of those that this party opened, and the traffic of all, by formula and by the kernel's count.

A `Stream` is one TCP connection from its handshake to its end. A `Dialler` is this party's connection to one peer:
libzmq connects again when a stream breaks, so a dialler outlives its streams.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import zmq

from fedsvm.federation.errors import PeerDropped
from fedsvm.federation.traffic_ledger import Ledger
from fedsvm.federation.transport import counters, zmtp
from fedsvm.federation.transport.auth import REFUSED
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import Party
from fedsvm.federation.transport.poller import Poller
from fedsvm.federation.transport.wire import Message

REDIAL_S = 0.3
"""Seconds for libzmq to report that it connects again. It does not after bytes that violate the protocol, so this party
then reconnects."""
_CONNECTED = int(zmq.EVENT_CONNECTED)
"""Plain numbers: the enumeration's Python code would cost every site half a megabyte of unshared memory."""
_CONNECT_RETRIED = int(zmq.EVENT_CONNECT_RETRIED)
_HANDSHAKE_SUCCEEDED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
DISCONNECTED = int(zmq.EVENT_DISCONNECTED)
_REFUSED_KEY = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
HANDSHAKE_FAILURES = {
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): "handshake broken off",
    _REFUSED_KEY: REFUSED,
}
# Without EVENT_HANDSHAKE_FAILED_PROTOCOL: if a monitor asks for it, libzmq 4.3.5 loses the error, and a connection with
# changed bytes stays open and silent instead of being closed.
MONITORED = _CONNECTED | _CONNECT_RETRIED | _HANDSHAKE_SUCCEEDED | DISCONNECTED | sum(HANDSHAKE_FAILURES)


class Stream:
    """One end of a TCP connection, which records its traffic in the ledger.

    A connection carries control messages or protocols, never both. Within one machine, those that the coordinator
    opened carry control messages; across hosts, a site opens one for each (`fedsvm.federation.hosts`). So the kernel's
    byte count of a stream belongs to one of them. Only the receiver measures: at the time of measuring, all messages to
    it have arrived, while its own messages may still wait to be sent.

    Parameters
    ----------
    party : Streams
        All streams of this party.
    opener, peer : str
        The party that opened the connection, and the one at the other end.
    descriptor : int
        The descriptor of libzmq, which is duplicated to read the kernel's counts.
    control : bool
        Whether it carries orders and answers instead of protocols.
    """

    def __init__(self, party: Streams, opener: str, peer: str, descriptor: int, *, control: bool) -> None:
        self.descriptor = descriptor
        self._opened_here, self._opener = opener == party.me, opener
        self._encrypted = party.encrypted
        self._ledger = party.ledger
        self._kernel: socket.socket | None = counters.duplicate(descriptor)
        self._ends = {
            True: (control, party.me, peer, False),  # whether the kernel measures these messages here
            False: (control, peer, party.me, self._kernel is not None),
        }
        self._in_use = self._was_heard = False
        self._received_bytes = self._entered_bytes = self._sent_bytes = self._expected_bytes = 0

    @property
    def ended(self) -> bool:
        return self._kernel is None

    @property
    def is_out(self) -> bool:
        """Return whether all sent bytes have left this process. Return True if the kernel does not report it."""
        out = counters.bytes_sent(self._kernel) if self._kernel is not None else None
        return out is None or out >= self._sent_bytes

    def count(self, message: Message, size: int, *, sent: bool) -> None:
        """Enter a message with a frame of this size in the ledger; with the first one, also the handshake.

        At that time both ends know of the handshake, in the same round. A handshake without a later message is entered
        by neither end.
        """
        if not self._in_use:
            self._in_use = self._was_heard = True
            self._enter_handshake(message.round)
        predicted_bytes = zmtp.frame_bytes(size, self._encrypted)
        traffic = self._ledger.traffic(message.round, *self._ends[sent])
        traffic.messages += 1
        traffic.predicted_wire_bytes += predicted_bytes
        if message.arrays:
            traffic.payload_bytes += message.payload_bytes
        if sent:
            self._sent_bytes += predicted_bytes
        else:
            self._was_heard = True
            self._expected_bytes += predicted_bytes

    def measure(self, round_number: int, *, whole: bool) -> None:
        """Enter the kernel's count of bytes received since the last call; unless `whole`, only if a message arrived."""
        if not self._in_use or not (self._was_heard or whole):
            return
        self._was_heard = False
        self._read_kernel()
        arrived, self._entered_bytes = self._received_bytes - self._entered_bytes, self._received_bytes
        if arrived:
            traffic = self._ledger.traffic(round_number, *self._ends[False])
            traffic.wire_bytes = None if traffic.wire_bytes is None else traffic.wire_bytes + arrived

    def end(self) -> None:
        """Close the handle, which would keep the stream open for the other end."""
        if self._kernel is not None:
            self._read_kernel()
            self._was_heard = True
            self._kernel.close()
            self._kernel = None

    def _read_kernel(self) -> None:
        received = None if self._kernel is None else counters.bytes_received(self._kernel, self._expected_bytes)
        self._received_bytes = self._received_bytes if received is None else received

    def _enter_handshake(self, round_number: int) -> None:
        by_opener = zmtp.opener_handshake_bytes(b"" if self._encrypted else self._opener.encode(), self._encrypted)
        by_acceptor = zmtp.acceptor_handshake_bytes(self._encrypted)
        sizes = (by_opener, by_acceptor) if self._opened_here else (by_acceptor, by_opener)
        for ends, size in zip((self._ends[True], self._ends[False]), sizes, strict=True):
            self._ledger.traffic(round_number, *ends).predicted_wire_bytes += size
        self._sent_bytes += sizes[0]
        self._expected_bytes += sizes[1]


class Streams:
    """The streams of one party, earlier ones included.

    Parameters
    ----------
    me : str
        This party.
    encrypted : bool
        Whether sockets use CURVE.
    ledger : Ledger
        Receives the traffic.

    Attributes
    ----------
    opened, accepted : dict of str to list of Stream
        The streams that this party opened, and those that its peers opened, by the name of the connection.
    """

    def __init__(self, me: str, *, encrypted: bool, ledger: Ledger) -> None:
        self.me = me
        self.opened: dict[str, list[Stream]] = defaultdict(list)
        self.accepted: dict[str, list[Stream]] = defaultdict(list)
        self.encrypted = encrypted
        self.ledger = ledger
        self._descriptors: set[int] = set()

    def __iter__(self) -> Iterator[Stream]:
        for streams in (*self.opened.values(), *self.accepted.values()):
            yield from streams

    def open(self, name: str, peer: str, descriptor: int, *, control: bool) -> None:
        """Add a stream that this party opened to `peer`."""
        self.opened[name].append(Stream(self, self.me, peer, descriptor, control=control))

    def accept(self, peer: str, frame: zmq.Frame, *, control: bool) -> Stream:
        """Add a stream that `peer` opened, given the first frame that arrived on it."""
        source = frame.get(zmq.SRCFD)
        descriptor = source if isinstance(source, int) else -1
        self._descriptors.add(descriptor)
        stream = Stream(self, peer, peer, descriptor, control=control)
        self.accepted[peer].append(stream)
        return stream

    def end_opened(self, name: str, descriptor: int) -> None:
        """End the stream of this descriptor that this party opened."""
        _end(self.opened[name], descriptor)

    def end_accepted(self, descriptor: int) -> bool:
        """End the stream of this descriptor that a peer opened, and return whether there is one."""
        if descriptor not in self._descriptors:
            return False
        self._descriptors.remove(descriptor)
        _end([stream for streams in self.accepted.values() for stream in streams], descriptor)
        return True

    def have_ended(self, peer: str) -> bool:
        """Return whether every stream to and from `peer` has ended."""
        return all(stream.ended for held in (self.opened, self.accepted) for stream in held.get(peer, ()))


def _end(streams: Sequence[Stream], descriptor: int) -> None:
    """End the first stream of this descriptor that has not ended: the number may have been used before."""
    held = (stream for stream in streams if stream.descriptor == descriptor and not stream.ended)
    if (stream := next(held, None)) is not None:
        stream.end()


class Dialler:
    """This party's connection to one peer: a DEALER socket that libzmq reconnects, and the events of its monitor.

    Parameters
    ----------
    party : Party
        The peer, with its address.
    dealer : zmq.Socket
        Connects to it.
    poller : Poller
        Serves the socket.
    streams : Streams
        Streams of this party; new ones are added.
    name : str
        Name of the connection among this party's own.
    control : bool
        Whether it is for orders and answers.

    Attributes
    ----------
    established : bool
        Whether the connection is open.
    rejected : str
        The reason why the peer refuses this party permanently; empty if it does not.
    failed_handshakes : int
        Number of consecutive failures: the peer is starting, or it has another key than in the roster.
    losses : int
        Number of times that an open connection broke.
    """

    def __init__(
        self,
        party: Party,
        dealer: zmq.Socket[bytes],
        poller: Poller,
        streams: Streams,
        name: str,
        *,
        control: bool,
    ) -> None:
        self.dealer = dealer
        self.party = party
        self.peer = party.name
        self.established = False
        self._poller = poller
        self._streams = streams
        self._name = name
        self._control = control
        self.rejected = ""
        self.failed_handshakes = 0
        self.losses = 0
        self._trouble = ""
        self._broken_at: float | None = None

    def send(self, message: Message) -> None:
        """Send a message; the connection is established."""
        frame = message.frame
        self._poller.send(self.dealer, frame)
        self._streams.opened[self._name][-1].count(message, len(frame), sent=True)

    def note(self, event: int, value: int) -> bool:
        """Record an event of the connection from libzmq's monitor. Return whether an open connection broke."""
        if event in (_CONNECTED, _CONNECT_RETRIED):
            self._broken_at = None
        if event == _CONNECTED:
            self._streams.open(self._name, self.peer, value, control=self._control)
        elif event == _HANDSHAKE_SUCCEEDED:
            self.established, self._trouble, self.failed_handshakes = True, "", 0
        elif event == DISCONNECTED:
            self._streams.end_opened(self._name, value)
            broke, self.established = self.established, False
            self.losses += broke
            self._broken_at = time.monotonic()
            self._trouble = self._trouble or "it closed the connection"
            return broke
        elif event == _CONNECT_RETRIED:
            self._trouble = self._trouble or "nobody listens there"
        elif event == _REFUSED_KEY:
            self.rejected = "it does not know our key"
        elif event in HANDSHAKE_FAILURES:  # the peer may be starting or have ended: libzmq tries again
            self._trouble = f"the handshake failed ({HANDSHAKE_FAILURES[event]})"
            self.failed_handshakes += 1
        return False

    @property
    def broken(self) -> bool:
        """True if the connection broke, and libzmq has not yet reported that it connects again."""
        return self._broken_at is not None

    @property
    def to_redial(self) -> bool:
        """True if libzmq should have reported a new connection by now."""
        return self._broken_at is not None and time.monotonic() - self._broken_at > REDIAL_S

    def check_reachable(self, deadline: Deadline) -> None:
        """Raise PeerDropped with the reason if the peer refuses this party or the deadline has expired."""
        if deadline.expired or self.rejected:
            why = self.rejected or self._trouble or "it does not answer"
            raise PeerDropped(f"{self._streams.me} cannot reach {self.peer} at {self.party.address}: {why}.")
