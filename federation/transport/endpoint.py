"""The sockets of one party: a ROUTER that others connect to, and a DEALER for each peer it calls itself.

A connection carries messages both ways: the party that opened it sends on its DEALER, the other answers through
its ROUTER. The coordinator opens the connections that carry orders and answers, the sites those that carry
protocols, so the kernel's byte count of a connection belongs to one or the other and never to both.

Security. On tcp every link is CURVE encrypted; a key that is not in the roster is refused in the handshake, and a
peer's name is the one its key stands for, so nobody can speak under another's name. Without encryption (`ipc`, or
tcp by choice) the name is what the peer claims. Oversized frames end the connection before they are allocated,
malformed messages are dropped; both are counted in `refused`.
"""

from __future__ import annotations

import errno
import resource
import socket
import struct
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

import zmq

from federation.errors import DeadlineExpired, EndpointError, Malformed
from federation.ledger import Ledger, Link, Traffic
from federation.transport import counters, wire, zmtp
from federation.transport.deadline import Deadline
from federation.transport.keys import COORDINATOR, KeyPair, Roster

LINGER_MS = 1000
_REDIAL_S = 0.3
"""How long libzmq has to say that it connects again. After bytes that break the protocol it does not, and we do."""
_ZAP_ADDRESS = "inproc://zeromq.zap.01"
_EVENT = struct.Struct("=Hi")
"""A monitor's first frame (zmq_socket_monitor): the event and its value. Plain numbers throughout: an enumeration's
Python code would cost every site half a megabyte of memory of its own."""
_CONNECTED = int(zmq.EVENT_CONNECTED)
_CONNECT_RETRIED = int(zmq.EVENT_CONNECT_RETRIED)
_HANDSHAKE_SUCCEEDED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_DISCONNECTED = int(zmq.EVENT_DISCONNECTED)
_REFUSED_KEY = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_UNRECOGNISED = "not a ZeroMQ peer of ours"
_HANDSHAKE_FAILURES = {
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): "handshake broken off",
    _REFUSED_KEY: "key not in the roster",
}
# Never EVENT_HANDSHAKE_FAILED_PROTOCOL: telling a monitor of it, libzmq (4.3.5) forgets the error, and a connection on
# which bytes were changed stays open and silent instead of being closed.
_MONITORED = _CONNECTED | _CONNECT_RETRIED | _HANDSHAKE_SUCCEEDED | _DISCONNECTED | sum(_HANDSHAKE_FAILURES)
_DESCRIPTORS_PER_PEER = 8
_DESCRIPTORS_TO_SPARE = 128


class Received(NamedTuple):
    """A valid message and who sent it. `answer`: it came back on a connection that this party opened."""

    peer: str
    message: wire.Message
    answer: bool


@dataclass
class _Connection:
    """One stream, seen from this end; `measured` unless its bytes cannot be.

    `descriptor` is libzmq's own, `kernel` our handle on the same stream for its counters.
    """

    opener: str
    peer: str
    descriptor: int = -1
    kernel: socket.socket | None = None
    measured: bool = False
    received_bytes: int = 0
    entered_bytes: int = 0

    def begin(self, descriptor: int) -> None:
        """From now on count what comes in by this descriptor."""
        self.descriptor = descriptor
        self.kernel = counters.duplicate(descriptor)
        self.measured = self.kernel is not None

    def end(self) -> None:
        """Let go of the stream, which our handle would keep open to the other end's harm."""
        if self.kernel is not None:
            self._count()
            self.kernel.close()
            self.kernel = None

    @property
    def control(self) -> bool:
        return self.opener == COORDINATOR

    def advance(self) -> int:
        """Bytes received since the last call; 0 where they cannot be measured."""
        self._count()
        step, self.entered_bytes = self.received_bytes - self.entered_bytes, self.received_bytes
        return step

    def _count(self) -> None:
        received = counters.bytes_received(self.kernel) if self.kernel is not None else None
        self.received_bytes = self.received_bytes if received is None else received


class Endpoint:
    """Everything one party sends and receives.

    `name` is this party's; `listen` a tcp address whose port may be `*`, or an ipc address; `keys` None switches
    encryption off; `peers` is how many parties it may have to talk to. `round` is the round under way: what is no
    message (a handshake) is entered under it. Raises EndpointError when the address cannot be had or the system
    allows too few open files.

    `interrupted` are the peers whose connection, opened by this party, broke since whoever reads it last cleared it.
    """

    def __init__(self, name: str, listen: str, keys: KeyPair | None, peers: int) -> None:
        self.name = name
        self.round = 0
        self.ledger = Ledger()
        self.refused: Counter[str] = Counter()
        self._keys = keys
        self.roster = Roster([])
        self._pending: deque[Received] = deque()
        self._dealers: dict[str, zmq.Socket[bytes]] = {}
        self._established: set[str] = set()
        self._trouble: dict[str, str] = {}
        self._rejected: dict[str, str] = {}
        self._broken: dict[str, float] = {}
        self.interrupted: set[str] = set()
        self._routing_ids: dict[str, bytes] = {}
        self._descriptors: set[int] = set()
        self._failure = _UNRECOGNISED
        self._opened: dict[str, list[_Connection]] = defaultdict(list)
        self._accepted: dict[str, list[_Connection]] = defaultdict(list)
        self._poller = zmq.Poller()
        self._monitors: dict[zmq.Socket[bytes], zmq.Socket[bytes]] = {}
        self._handlers: dict[Any, Callable[[], None]] = {}
        raise_descriptor_limit(peers * _DESCRIPTORS_PER_PEER + _DESCRIPTORS_TO_SPARE)
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, max(1023, 4 * peers + 16))
        try:
            if keys is not None:
                self._zap = self._serve_keys()
            self._router = self._listen(listen)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self.address = self._router.getsockopt_string(zmq.LAST_ENDPOINT)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def admit(self, roster: Roster) -> None:
        """From now on exactly the parties in `roster` may connect, and can be reached.

        The connection to a party that was started again, with another address or key, is opened anew.
        """
        for peer in [peer for peer in self._dealers if peer not in roster or roster[peer] != self.roster[peer]]:
            self._hang_up(peer)
        self.roster = roster

    def watch(self, descriptor: Any, handler: Callable[[], None]) -> None:
        """Call `handler` whenever `descriptor` is readable while this endpoint waits; what it raises ends the wait."""
        self._poller.register(descriptor, zmq.POLLIN)
        self._handlers[descriptor if isinstance(descriptor, int) else descriptor.fileno()] = handler

    def connect(self, peer: str) -> None:
        """Begin to open the connection to `peer`, unless it is there, so that `send` need not wait for it later."""
        if peer not in self._dealers:
            self._dealers[peer] = self._dial(peer)

    def send(
        self, peer: str, message: wire.Message, deadline: Deadline, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Send on the connection this party opens to `peer`, opening it if need be.

        `meanwhile` is called whenever something came in while it waits for the connection; what it raises ends the
        wait. Raises EndpointError, saying why, when the peer cannot be reached within the deadline.
        """
        self.connect(peer)
        while peer not in self._established:
            self._require_hope(peer, deadline)
            self._serve(deadline.remaining_ms())
            meanwhile()
        frames = wire.encode(message)
        # Copied: to send large frames without a copy pyzmq would start a thread, and memory for it, in every site.
        self._dealers[peer].send_multipart(frames, flags=zmq.NOBLOCK)
        self._count(self._opened[peer][-1], message, frames, sent=True)

    def reply(self, peer: str, message: wire.Message) -> None:
        """Send back over the connection that `peer` opened. Raises EndpointError if it has none any more."""
        frames = wire.encode(message)
        try:
            self._router.send_multipart([self._routing_ids[peer], *frames], flags=zmq.NOBLOCK)
        except (KeyError, zmq.Again, zmq.ZMQError) as error:
            raise EndpointError(f"{self.name} cannot answer {peer}: its connection is gone or full.") from error
        self._count(self._accepted[peer][-1], message, frames, sent=True)

    def receive(self, deadline: Deadline) -> Received:
        """The next valid message. Raises DeadlineExpired, or what a watched descriptor's handler raises."""
        while not self._pending:
            self.wait(deadline)
        return self._pending.popleft()

    def wait(self, deadline: Deadline) -> None:
        """Wait until something happens on a socket or a watched descriptor. Raises DeadlineExpired."""
        if not self._pending:
            if deadline.expired:
                raise DeadlineExpired
            self._serve(deadline.remaining_ms())

    def received(self) -> Received | None:
        """A valid message that came in already, or None."""
        return self._pending.popleft() if self._pending else None

    def measure(self, round_number: int) -> None:
        """Enter in the ledger what the kernel says came in since the last call.

        Only the receiver measures: by the time it is asked all that was sent to it has come in, whereas what it
        sent itself may still wait to go out.
        """
        self._serve(0)
        for connection in self._connections():
            if arrived := connection.advance():
                _, inward = self._directions(round_number, connection)
                self.ledger.add(inward, Traffic(wire_bytes=arrived))

    def close(self) -> None:
        """Close every socket; what was sent gets a second to leave."""
        for dealer in self._dealers.values():
            dealer.disable_monitor()
        self._router.disable_monitor()
        for connection in self._connections():
            connection.end()
        self._context.destroy(linger=LINGER_MS)

    # Opening sockets.

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        opened = self._context.socket(kind)
        opened.setsockopt(zmq.LINGER, LINGER_MS)
        opened.setsockopt(zmq.MAXMSGSIZE, wire.MAX_FRAME_BYTES)
        opened.setsockopt(zmq.SNDHWM, 0)
        return opened

    def _listen(self, address: str) -> zmq.Socket[bytes]:
        router = self._socket(zmq.ROUTER)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        if self._keys is not None:
            router.curve_server = True
            router.curve_publickey, router.curve_secretkey = self._keys.public, self._keys.secret
        self._monitor(router, self._note_stranger)
        self._poll(router, self._read_router)
        try:
            router.bind(address)
        except zmq.ZMQError as error:
            raise EndpointError(_cannot_listen(self.name, address, error)) from error
        return router

    def _serve_keys(self) -> zmq.Socket[bytes]:
        """Answer libzmq's question, for every handshake, whether the key may speak (RFC 27)."""
        zap = self._context.socket(zmq.REP)
        zap.setsockopt(zmq.LINGER, 0)
        zap.bind(_ZAP_ADDRESS)
        self._poll(zap, self._answer_zap)
        return zap

    def _dial(self, peer: str) -> zmq.Socket[bytes]:
        party = self.roster[peer]
        dealer = self._socket(zmq.DEALER)
        if self._keys is not None:
            dealer.curve_publickey, dealer.curve_secretkey = self._keys.public, self._keys.secret
            dealer.curve_serverkey = party.public_key or b""
        else:
            dealer.setsockopt(zmq.ROUTING_ID, self._routing_id)
        self._monitor(dealer, lambda event, value: self._note_connecting(peer, event, value))
        self._poll(dealer, lambda: self._read_dealer(peer, dealer))
        dealer.connect(party.address)
        return dealer

    def _hang_up(self, peer: str) -> None:
        """Close the connection to a party that is not there any more as it was."""
        dealer = self._dealers.pop(peer)
        self._established.discard(peer)
        self._rejected.pop(peer, None)
        self._trouble.pop(peer, None)
        self._broken.pop(peer, None)
        self._routing_ids.pop(peer, None)
        for closed in (dealer, self._monitors.pop(dealer)):
            self._poller.unregister(closed)
            del self._handlers[closed]
        dealer.disable_monitor()
        dealer.close(linger=0)

    @property
    def _routing_id(self) -> bytes:
        """Under CURVE the key says who speaks, and a routing id would let one peer shut another out."""
        return b"" if self._keys is not None else self.name.encode()

    def _poll(self, opened: zmq.Socket[bytes], handler: Callable[[], None]) -> None:
        self._poller.register(opened, zmq.POLLIN)
        self._handlers[opened] = handler

    def _monitor(self, watched: zmq.Socket[bytes], note: Callable[[int, int], None]) -> None:
        monitor = watched.get_monitor_socket(_MONITORED)

        def read() -> None:
            for frames in _drain(monitor, copy=True):
                note(*_EVENT.unpack(frames[0]))

        self._poll(monitor, read)
        self._monitors[watched] = monitor

    # Serving sockets while waiting.

    def _serve(self, timeout_ms: int) -> None:
        if self._broken:
            timeout_ms = min(timeout_ms, int(_REDIAL_S * 1000))
        for ready, _ in self._poller.poll(timeout_ms):
            if handler := self._handlers.get(ready):  # an earlier one may have hung up on this
                handler()
        for peer in [peer for peer, since in self._broken.items() if time.monotonic() - since > _REDIAL_S]:
            self._hang_up(peer)
            self.connect(peer)

    def _require_hope(self, peer: str, deadline: Deadline) -> None:
        if deadline.expired or peer in self._rejected:
            why = self._rejected.get(peer) or self._trouble.get(peer, "it does not answer")
            raise EndpointError(f"{self.name} cannot reach {peer} at {self.roster[peer].address}: {why}.")

    def _answer_zap(self) -> None:
        for frames in _drain(self._zap, copy=True):
            version, request, *_, mechanism, key = frames
            name = self.roster.name_of(key) if mechanism == b"CURVE" else None
            verdict = (b"400", b"key not in the roster", b"") if name is None else (b"200", b"OK", name.encode())
            self._zap.send_multipart([version, request, *verdict, b""])

    def _note_stranger(self, event: int, value: int) -> None:
        """Count connections that ended before a message came by them; libzmq does not always say why they failed."""
        if event in _HANDSHAKE_FAILURES:
            self._failure = _HANDSHAKE_FAILURES[event]
        elif event == _DISCONNECTED and value in self._descriptors:
            self._descriptors.remove(value)
            self._end(self._accepted.values(), value)
        elif event == _DISCONNECTED:
            self.refused[self._failure] += 1
            self._failure = _UNRECOGNISED

    def _note_connecting(self, peer: str, event: int, value: int) -> None:
        if event in {_CONNECTED, _CONNECT_RETRIED}:
            self._broken.pop(peer, None)
        if event == _CONNECTED:
            self._begin(self._opened[peer], _Connection(self.name, peer), value, self.round)
        elif event == _HANDSHAKE_SUCCEEDED:
            self._established.add(peer)
            self._trouble.pop(peer, None)
        elif event == _DISCONNECTED:
            self._end([self._opened[peer]], value)
            if peer in self._established:
                self._established.remove(peer)
                self.interrupted.add(peer)
            self._broken[peer] = time.monotonic()
            self._trouble.setdefault(peer, "it closed the connection")
        elif event == _CONNECT_RETRIED:
            self._trouble.setdefault(peer, "nobody listens there")
        elif event == _REFUSED_KEY:
            self._rejected[peer] = "it does not know our key"
        elif event in _HANDSHAKE_FAILURES:  # it may be starting, or gone: libzmq tries again
            self._trouble[peer] = f"the handshake failed ({_HANDSHAKE_FAILURES[event]})"

    def _read_router(self) -> None:
        for routing_id, *frames in _drain(self._router, copy=False):
            peer = self._sender(routing_id, frames)
            if peer is None:
                self.refused["unknown sender"] += 1
                continue
            self._take(peer, frames, routing_id.bytes)

    def _read_dealer(self, peer: str, dealer: zmq.Socket[bytes]) -> None:
        for frames in _drain(dealer, copy=False):
            self._take(peer, frames, None)

    def _sender(self, routing_id: zmq.Frame, frames: Sequence[zmq.Frame]) -> str | None:
        if self._keys is None:
            claimed = routing_id.bytes.decode("utf-8", "replace")
            return claimed if claimed in self.roster else None
        return str(frames[0].get("User-Id")) if frames else None

    def _take(self, peer: str, frames: Sequence[zmq.Frame], routing_id: bytes | None) -> None:
        """Take in a message that came by the connection with this routing id, or, with None, by one of our own."""
        buffers = [frame.buffer for frame in frames]
        try:
            message = wire.decode(buffers)
        except Malformed as error:
            self.refused[f"malformed: {error}"] += 1
            return
        if routing_id is not None:
            self._note_accepted(peer, routing_id, frames, message.round)
        connection = (self._opened if routing_id is None else self._accepted)[peer][-1]
        self._count(connection, message, buffers, sent=False)
        self._pending.append(Received(peer, message, answer=routing_id is None))

    # Counting.

    def _connections(self) -> list[_Connection]:
        known = [*self._opened.values(), *self._accepted.values()]
        return [connection for connections in known for connection in connections]

    def _note_accepted(self, peer: str, routing_id: bytes, frames: Sequence[zmq.Frame], round_number: int) -> None:
        """Keep account of the connection these frames came by, if they are its first.

        It belongs to the round of its first message, which may be one ahead of the round this party is in.
        """
        if self._routing_ids.get(peer) != routing_id:
            self._routing_ids[peer] = routing_id
            self._descriptors.add(_descriptor(frames))
            self._begin(self._accepted[peer], _Connection(peer, peer), _descriptor(frames), round_number)

    def _end(self, connections: Iterable[list[_Connection]], descriptor: int) -> None:
        """Let go of the first connection by this descriptor that is still held: the number may be in use again."""
        held = (one for each in connections for one in each if one.descriptor == descriptor and one.kernel is not None)
        if (ended := next(held, None)) is not None:
            ended.end()

    def _begin(
        self, connections: list[_Connection], connection: _Connection, descriptor: int, round_number: int
    ) -> None:
        connection.begin(descriptor)
        connections.append(connection)
        routing_id = b"" if self._keys is not None else connection.opener.encode()
        by_opener = zmtp.opener_handshake_bytes(routing_id, encrypted=self._keys is not None)
        by_acceptor = zmtp.acceptor_handshake_bytes(encrypted=self._keys is not None)
        sizes = (by_opener, by_acceptor) if connection.opener == self.name else (by_acceptor, by_opener)
        for link, size in zip(self._directions(round_number, connection), sizes, strict=True):
            self.ledger.add(link, Traffic(predicted_wire_bytes=size, wire_bytes=self._unmeasured(connection, link)))

    def _directions(self, round_number: int, connection: _Connection) -> tuple[Link, Link]:
        """The outward and the inward link of a connection in a round."""
        outward = Link(round_number, connection.control, self.name, connection.peer)
        return outward, outward._replace(sender=connection.peer, receiver=self.name)

    def _count(self, connection: _Connection, message: wire.Message, frames: Sequence[Any], *, sent: bool) -> None:
        predicted = zmtp.message_bytes([len(frame) for frame in frames], encrypted=self._keys is not None)
        outward, inward = self._directions(message.round, connection)
        link = outward if sent else inward
        self.ledger.add(link, Traffic(1, message.payload_bytes, predicted, self._unmeasured(connection, link)))

    def _unmeasured(self, connection: _Connection, link: Link) -> int | None:
        """What counts as measured before the kernel is asked: nothing yet, or None where it never will be."""
        return 0 if link.receiver == self.name and connection.measured else None


def raise_descriptor_limit(needed: int) -> None:
    """Let this process open `needed` files. Raises EndpointError where the system's hard limit forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise EndpointError(
                f"This many sites need {needed} open files in one process and the system allows {hard}: "
                "raise the hard limit (ulimit -Hn) or run fewer sites."
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _cannot_listen(name: str, address: str, error: zmq.ZMQError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{name} cannot listen on {address}: the port is in use; choose another federation.port, or 0 for any."
    return f"{name} cannot listen on {address}: {error.strerror}."


def _descriptor(frames: Sequence[zmq.Frame]) -> int:
    descriptor = frames[0].get(zmq.SRCFD) if frames else -1
    return descriptor if isinstance(descriptor, int) else -1


def _drain(opened: zmq.Socket[bytes], copy: bool) -> Any:
    """Every message that waits on a socket."""
    while True:
        try:
            yield opened.recv_multipart(flags=zmq.NOBLOCK, copy=copy)
        except zmq.Again:
            return
