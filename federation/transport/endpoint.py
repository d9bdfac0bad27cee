"""The sockets of one party: a ROUTER that others connect to, and a DEALER for each peer it calls itself.

A connection carries messages both ways: the party that opened it sends on its DEALER, the other answers through
its ROUTER. The coordinator opens the connections that carry orders and answers, the sites those that carry
protocols.

Security. On tcp every link is CURVE encrypted and every party known by its key, see `auth`, so nobody can speak under
another's name. Oversized frames end the connection before they are allocated, malformed messages are dropped; both are
counted in `refused`. Connections of strangers who say nothing cost a descriptor each for as long as a handshake may
take; of these a party has as many as the system allows.
"""

from __future__ import annotations

import errno
import os
import resource
import selectors
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import zmq

from fedsvm.federation.errors import DeadlineExpired, EndpointError, Malformed, PeerDropped
from fedsvm.federation.ledger import Ledger
from fedsvm.federation.transport import wire
from fedsvm.federation.transport.auth import ZAP_FRAMES, Authenticator
from fedsvm.federation.transport.connection import (
    DISCONNECTED,
    EVENT,
    HANDSHAKE_FAILURES,
    MONITORED,
    REDIAL_S,
    Dialler,
    Stream,
    end_stream,
)
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Party, Roster

LINGER_MS = 1000
_FLUSH_S = 0.1
_FLUSH_LOOK_S = 1e-4
_UNRECOGNISED = "not a ZeroMQ peer of ours"
_DESCRIPTORS_PER_PEER = 5
"""Of a connection that this party opens: the stream, a handle of our own on it, and what libzmq wakes this process by,
for the socket and for both ends of its monitor. One that a peer opens takes two more, where there is one."""

_DESCRIPTORS_TO_SPARE = 128
_MAX_DESCRIPTORS = 1 << 16
"""As many a process asks for at most, where it needs no more: strangers take some while they are not known for such."""
_HANDSHAKE_MS = 5000
"""After which who has connected, and not said who they are, is hung up on. A peer whose handshake takes longer, since
this party computes and does not answer, connects again."""
_BACKLOG = 4096
"""Connections that the kernel keeps until they are accepted. With too few a peer's is lost among those of strangers,
and is tried again a second later only."""
_KEEPALIVE = {zmq.TCP_KEEPALIVE: 1, zmq.TCP_KEEPALIVE_IDLE: 60, zmq.TCP_KEEPALIVE_INTVL: 15, zmq.TCP_KEEPALIVE_CNT: 4}
"""In seconds: a peer whose machine is gone without a word is noticed within two minutes."""
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_EVENTS, _POLLIN, _NOBLOCK = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE) | _NOBLOCK
"""Plain numbers: to join two members of an enumeration takes as long as to send a message."""


class Received(NamedTuple):
    """A valid message and who sent it. `answer`: it came back on a connection that this party opened."""

    peer: str
    message: wire.Message
    answer: bool


class Post(Protocol):
    """What carries one party's messages, as the floors above its sockets know it: an `Endpoint`, or one that stores.

    Attributes and methods are as `Endpoint` says.
    """

    name: str
    round: int
    ledger: Ledger
    refused: Counter[str]
    interrupted: set[str]

    @property
    def roster(self) -> Roster:
        """The parties that can be reached."""

    def admit(self, roster: Roster) -> None:
        """From now on these parties can be reached."""

    def watch(self, descriptor: Any, handler: Callable[[], None]) -> None:
        """Call `handler` whenever what `descriptor` stands for has something to say."""

    def connect(self, peer: str) -> None:
        """Begin to open the connection to `peer`, where one is needed."""

    def send(
        self, peer: str, message: wire.Message, deadline: Deadline, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Send to `peer`. Raises PeerDropped."""

    def stay_reachable(self, peer: str, greeting: wire.Message, deadline: Deadline) -> None:
        """Keep a connection to `peer`, where one is needed. Raises PeerDropped."""

    def reply(self, peer: str, message: wire.Message) -> None:
        """Answer what `peer` said. Raises PeerDropped."""

    def flush(self, peer: str) -> None:
        """Wait until what was sent to `peer` has left this process."""

    def wait(self, deadline: Deadline) -> None:
        """Wait until something comes in. Raises DeadlineExpired."""

    def received(self) -> Received | None:
        """A valid message that came in already, or None."""

    def hear_out(self, peer: str, deadline: Deadline) -> None:
        """Take in what a party that is gone said last."""

    def measure(self, round_number: int, *, whole: bool) -> None:
        """Enter in the ledger what came in since the last call."""

    def check_descriptors(self) -> None:
        """Raise EndpointError where there are too few open files."""


class Endpoint:
    """Everything one party sends and receives.

    Parameters
    ----------
    name : str
        This party's.
    listen : str
        A tcp address, whose port may be `*`, or an ipc address.
    keys : KeyPair or None
        None switches encryption off.
    peers : int
        How many parties it may have to talk to.

    Attributes
    ----------
    address : str
        Where it listens.
    round : int
        The round under way.
    interrupted : set of str
        The peers whose connection, opened by this party, broke since whoever reads it last cleared it.
    ledger : Ledger
        What went over the connections.
    refused : Counter of str
        What was refused, by reason.

    Raises
    ------
    EndpointError
        When the address cannot be had or the system allows too few open files.
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
        self._opened: dict[str, list[Stream]] = defaultdict(list)
        self._accepted: dict[str, list[Stream]] = defaultdict(list)
        self._routing_ids: dict[str, bytes] = {}
        self._descriptors: set[int] = set()
        self._failure = _UNRECOGNISED
        self._selector = selectors.DefaultSelector()
        self._monitors: dict[zmq.Socket[bytes], zmq.Socket[bytes]] = {}
        self._readers: dict[zmq.Socket[bytes], Callable[[], bool]] = {}
        self._unread: dict[zmq.Socket[bytes], Callable[[], bool]] = {}
        self._broken: set[str] = set()
        raise_descriptor_limit(peers * _DESCRIPTORS_PER_PEER + _DESCRIPTORS_TO_SPARE)
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, max(1023, 4 * peers + 16))
        try:
            if (zap := self._authenticator.listen(self._context)) is not None:
                self._poll(zap, lambda: self._answer_zap(zap))
            self._router = self._listen(listen)
        except BaseException:
            self._selector.close()
            self._context.destroy(linger=0)
            raise
        self.address = self._router.getsockopt_string(zmq.LAST_ENDPOINT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def roster(self) -> Roster:
        """The parties that may connect, and can be reached."""
        return self._authenticator.roster

    def admit(self, roster: Roster) -> None:
        """From now on exactly the parties in `roster` may connect, and can be reached.

        The connection to a party that was restarted, with another address or key, is opened anew; so is one that the
        party refused, which it does before it knows whom to admit.
        """
        for peer, dialler in list(self._diallers.items()):
            if dialler.peer not in roster or roster[dialler.peer] != dialler.party or dialler.rejected:
                self._hang_up(peer)
        self._authenticator.roster = roster

    def watch(self, descriptor: Any, handler: Callable[[], None]) -> None:
        """Call `handler` whenever `descriptor` is readable while this endpoint waits; what it raises ends the wait."""
        self._selector.register(descriptor, selectors.EVENT_READ, handler)

    def connect(self, peer: str) -> None:
        """Begin to open the connection to `peer`, unless it is there, so that `send` need not wait for it later."""
        if peer not in self._diallers:
            self._diallers[peer] = self._dial(peer)

    def send(
        self, peer: str, message: wire.Message, deadline: Deadline, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Send on the connection this party opens to `peer`, opening it if need be.

        `meanwhile` is called whenever something came in while it waits for the connection; what it raises ends the
        wait. Raises PeerDropped, saying why, when the peer cannot be reached within the deadline.
        """
        self.connect(peer)
        while not (dialler := self._diallers[peer]).established:
            dialler.check_reachable(deadline)
            self._serve(deadline.remaining_ms())
            meanwhile()
        self._write(peer, dialler, message)

    def stay_reachable(self, peer: str, greeting: wire.Message, deadline: Deadline) -> None:
        """Keep a connection to `peer` by which it can answer at any time; the greeting is said first on it, each time.

        Raises PeerDropped when the peer cannot be reached within the deadline.
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
        """Send back over the connection that `peer` opened. Raises PeerDropped if it has none any more."""
        try:
            self._send(self._router, self._read_router, message.frame, self._routing_ids[peer])
        except (KeyError, zmq.Again, zmq.ZMQError) as error:
            raise PeerDropped(f"{self.name} cannot answer {peer}: its connection is gone or full.") from error
        self._accepted[peer][-1].count(message, len(message.frame), sent=True)

    def flush(self, peer: str) -> None:
        """Wait until what was sent back to `peer` has left this process, a tenth of a second at most.

        libzmq sends in a thread of its own, which dies with the process; what the kernel has is sent whatever comes.
        Only Linux says what that is, and of tcp: elsewhere this does not wait.
        """
        deadline = Deadline(_FLUSH_S)
        while not (self._accepted[peer][-1].is_out or deadline.expired):
            time.sleep(_FLUSH_LOOK_S)  # nothing can be waited on for this

    def wait(self, deadline: Deadline) -> None:
        """Wait until something happens on a socket or a watched descriptor. Raises DeadlineExpired."""
        if not self._pending:
            if deadline.expired:
                raise DeadlineExpired
            self._serve(deadline.remaining_ms())

    def received(self) -> Received | None:
        """A valid message that came in already, or None."""
        return self._pending.popleft() if self._pending else None

    def hear_out(self, peer: str, deadline: Deadline) -> None:
        """Take in what a party that is gone said last: all there is when its connections end, or until the deadline.

        That its process ended may be known before libzmq has read what the kernel holds.
        """
        streams = (self._opened, self._accepted)
        while not (deadline.expired or all(stream.ended for held in streams for stream in held.get(peer, ()))):
            self._serve(deadline.remaining_ms())
        self._serve(0)

    def measure(self, round_number: int, *, whole: bool) -> None:
        """Enter in the ledger what the kernel says came in since the last call.

        whole: also what came in without a message that was taken in, as when a round was aborted, or at the end. In a
        round that is complete there is no such thing.
        """
        if whole:
            self._serve(0)
        for stream in self._streams():
            stream.measure(round_number, whole=whole)

    def check_descriptors(self) -> None:
        """Raise EndpointError if this process can open nothing more.

        libzmq does not say so: connections in either direction are tried again, in silence.
        """
        with descriptors_explained(self.name):
            os.close(os.dup(self._router.FD))

    def close(self) -> None:
        """Close every socket; what was sent gets a second to leave."""
        for dialler in self._diallers.values():
            dialler.dealer.disable_monitor()
        self._router.disable_monitor()
        for stream in self._streams():
            stream.end()
        self._selector.close()
        self._context.destroy(linger=LINGER_MS)

    # Opening sockets.

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        opened = self._context.socket(kind)
        opened.setsockopt(zmq.LINGER, LINGER_MS)
        opened.setsockopt(zmq.MAXMSGSIZE, wire.MAX_FRAME_BYTES)
        opened.setsockopt(zmq.SNDHWM, 0)
        for option, value in _KEEPALIVE.items():
            opened.setsockopt(option, value)
        return opened

    def _listen(self, address: str) -> zmq.Socket[bytes]:
        router = self._socket(zmq.ROUTER)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        router.setsockopt(zmq.BACKLOG, _BACKLOG)
        self._authenticator.secure_listener(router)
        self._monitor(router, self._note_stranger)
        self._poll(router, self._read_router)
        try:
            router.bind(address)
        except zmq.ZMQError as error:
            in_use = "the port is in use; choose another federation.port, or 0 for any"
            why = in_use if error.errno == errno.EADDRINUSE else error.strerror
            raise EndpointError(f"{self.name} cannot listen on {address}: {why}.") from error
        return router

    def _dial(self, peer: str) -> Dialler:
        return self._dial_party(peer, self.roster[peer], control=self.name == COORDINATOR)

    def _dial_party(self, peer: str, party: Party, *, control: bool) -> Dialler:
        """Open a connection to `party`, under the name `peer` among this party's own."""
        dealer = self._socket(zmq.DEALER)
        self._authenticator.secure_dialler(dealer, party)

        dialler = Dialler(
            self.name,
            party,
            dealer,
            lambda: self._read_dealer(peer, dealer),
            self._opened[peer],
            control=control,
            encrypted=self._authenticator.encrypted,
            ledger=self.ledger,
        )

        def note(event: int, value: int) -> None:
            was_established = dialler.established
            if dialler.note(event, value):
                self.interrupted.add(peer)
            (self._broken.add if dialler.broken else self._broken.discard)(peer)
            if dialler.established and not was_established:
                self._greet(peer, dialler)

        self._monitor(dealer, note)
        self._poll(dealer, dialler.read)
        dealer.connect(party.address)
        return dialler

    def _greet(self, peer: str, dialler: Dialler) -> None:
        """A connection of our own stands: say on it first what is to be said, where anything is."""
        if peer in self._greetings:
            self._write(peer, dialler, self._greetings[peer])

    def _write(self, name: str, dialler: Dialler, message: wire.Message) -> None:
        """Send by a connection of our own that stands."""
        self._send(dialler.dealer, dialler.read, message.frame)
        self._opened[name][-1].count(message, len(message.frame), sent=True)

    def _send(
        self, opened: zmq.Socket[bytes], read: Callable[[], bool], frame: bytes, routing_id: bytes | None = None
    ) -> None:
        """Send one frame by a socket, which is read before it is waited for again, see `_poll`; to whom, by a ROUTER.

        Raises zmq.ZMQError where it cannot be sent now.
        """
        # Copied: to send large frames without a copy pyzmq would start a thread, and memory for it, in every site.
        self._unread[opened] = read
        if routing_id is not None:
            opened.send(routing_id, _MORE)
        opened.send(frame, _NOBLOCK)

    def _hang_up(self, peer: str) -> None:
        """Close the connection to a party that is not there any more as it was."""
        dealer = self._diallers.pop(peer).dealer
        self._routing_ids.pop(peer, None)
        self._broken.discard(peer)
        for closed in (dealer, self._monitors.pop(dealer)):
            self._selector.unregister(closed.FD)
            self._unread.pop(closed, None)
            del self._readers[closed]
        dealer.disable_monitor()
        dealer.close(linger=0)

    def _poll(self, opened: zmq.Socket[bytes], read: Callable[[], bool]) -> None:
        """Call `read` when there may be something to read.

        libzmq signals on a socket's descriptor what has come since it was used last, so whoever sends by a socket, and
        so uses it, is to read it before waiting: see `_serve`.
        """
        self._selector.register(opened.FD, selectors.EVENT_READ, read)
        self._readers[opened] = self._unread[opened] = read

    def _monitor(self, watched: zmq.Socket[bytes], note: Callable[[int, int], None]) -> None:
        address = f"inproc://monitor-{watched.FD}"
        watched.monitor(address, MONITORED)
        monitor = self._context.socket(zmq.PAIR)
        monitor.setsockopt(zmq.RCVHWM, 0)  # with a full one libzmq waits, and serves no connection, until it is read
        monitor.connect(address)

        def read() -> bool:
            came = False
            for frames in _drain(monitor):
                came = True
                note(*EVENT.unpack(frames[0].buffer))
            return came

        self._poll(monitor, read)
        self._monitors[watched] = monitor

    # Serving sockets while waiting.

    def _serve(self, timeout_ms: int) -> None:
        if self._broken:
            timeout_ms = min(timeout_ms, int(REDIAL_S * 1000))
        came = False
        try:
            if self._unread:
                unread, self._unread = self._unread, {}
                for read in unread.values():
                    came = read() or came
            for key, _ in self._selector.select(0 if came else timeout_ms / 1000):  # reading may have ended the wait
                key.data()
        except BaseException:  # as Ctrl-C: what was being read is not signalled again
            self._unread.update(self._readers)
            raise
        if self._broken:
            for peer in [peer for peer in self._broken if self._diallers[peer].to_redial]:
                self._hang_up(peer)
                self.connect(peer)

    def _answer_zap(self, zap: zmq.Socket[bytes]) -> bool:
        came = False
        for frames in _drain(zap):
            came = True
            if len(frames) == ZAP_FRAMES:  # else Ctrl-C came while it was read
                zap.send_multipart(self._authenticator.answer([frame.bytes for frame in frames]))
        return came

    def _note_stranger(self, event: int, value: int) -> None:
        """Count connections that ended before a message came by them; libzmq does not always say why they failed."""
        if event in HANDSHAKE_FAILURES:
            self._failure = HANDSHAKE_FAILURES[event]
        elif event == DISCONNECTED and value in self._descriptors:
            self._descriptors.remove(value)
            end_stream([stream for streams in self._accepted.values() for stream in streams], value)
        elif event == DISCONNECTED:
            self.refused[self._failure] += 1
            self._failure = _UNRECOGNISED

    def _read_router(self) -> bool:
        came, router = False, self._router
        while int(router.getsockopt(_EVENTS)) & _POLLIN:  # an exception for each end would cost more than a message
            came = True
            first = router.recv(_NOBLOCK, copy=False)
            if not first.more:  # Ctrl-C came while the message was read
                continue
            if (frame := self._frame(router)) is None:
                continue
            routing_id = first.bytes
            peer = self._authenticator.sender(routing_id, frame)
            if peer is None:
                self.refused["unknown sender"] += 1
            else:
                self._take(peer, frame, routing_id)
        return came

    def _read_dealer(self, peer: str, dealer: zmq.Socket[bytes]) -> bool:
        came = False
        while int(dealer.getsockopt(_EVENTS)) & _POLLIN:
            came = True
            if (frame := self._frame(dealer)) is not None:
                self._take(peer, frame, None)
        return came

    def _frame(self, opened: zmq.Socket[bytes]) -> zmq.Frame | None:
        """The one frame of the message that is next; None of one that has more, which is refused."""
        frame = opened.recv(_NOBLOCK, copy=False)
        if not frame.more:
            return frame
        while opened.recv(_NOBLOCK, copy=False).more:
            pass
        self.refused["malformed: more than one frame"] += 1
        return None

    def _take(self, peer: str, frame: zmq.Frame, routing_id: bytes | None) -> None:
        """Take in a message that came by the connection with this routing id, or, with None, by one of our own."""
        if (message := self._decoded(frame)) is None:
            return
        if routing_id is None:
            stream = self._opened[peer][-1]
        else:
            if self._routing_ids.get(peer) != routing_id:
                self._accept(peer, routing_id, frame)
            stream = self._accepted[peer][-1]
        stream.count(message, len(frame), sent=False)
        self._pending.append(Received(peer, message, routing_id is None))

    def _decoded(self, frame: zmq.Frame) -> wire.Message | None:
        """The message in a frame; None of one that is malformed, which is refused."""
        try:
            return wire.decode(frame.buffer)
        except Malformed as error:
            self.refused[f"malformed: {error}"] += 1
            return None

    def _accept(self, peer: str, routing_id: bytes, frame: zmq.Frame) -> None:
        """Keep account of the connection this frame came by, the first by it."""
        self._routing_ids[peer] = routing_id
        self._accepted_stream(peer, frame, control=peer == COORDINATOR)

    def _accepted_stream(self, peer: str, frame: zmq.Frame, *, control: bool) -> Stream:
        descriptor = frame.get(zmq.SRCFD)
        descriptor = descriptor if isinstance(descriptor, int) else -1
        self._descriptors.add(descriptor)
        stream = Stream(
            self.name,
            peer,
            peer,
            control=control,
            encrypted=self._authenticator.encrypted,
            ledger=self.ledger,
            descriptor=descriptor,
        )
        self._accepted[peer].append(stream)
        return stream

    def _streams(self) -> Iterator[Stream]:
        for streams in (*self._opened.values(), *self._accepted.values()):
            yield from streams


def raise_descriptor_limit(needed: int) -> None:
    """Let this process open `needed` files, and more where that is allowed, since strangers' connections take some.

    Raises EndpointError where the system's hard limit forbids it.
    """
    soft, hard = (sys.maxsize if each == resource.RLIM_INFINITY else each for each in _descriptor_limits())
    if hard < needed:
        raise EndpointError(
            f"This many sites need {needed} open files in one process and the system allows {hard}: "
            "raise the hard limit (ulimit -Hn) or run fewer sites."
        )
    if soft < (wanted := min(hard, max(needed, _MAX_DESCRIPTORS))):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, _descriptor_limits()[1]))


class descriptors_explained:  # noqa: N801 - a context, written as one that is made of a generator
    """Say in words what it means that a file or a socket could not be opened for lack of descriptors.

    Raises EndpointError for that, and leaves other errors as they are. party: who this process is.
    """

    def __init__(self, party: str) -> None:
        self._party = party

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError | zmq.ZMQError) and error.errno in _NO_DESCRIPTORS:
            raise EndpointError(
                f"{self._party} has no file descriptor left, of {_descriptor_limits()[0]} that its process may have: "
                "raise the limit (ulimit -n), and see who else connects to its port."
            ) from error


def _descriptor_limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _drain(opened: zmq.Socket[bytes]) -> Iterator[list[zmq.Frame]]:
    """Every message that waits on a socket."""
    while int(opened.getsockopt(_EVENTS)) & _POLLIN:
        frame = opened.recv(_NOBLOCK, copy=False)
        frames = [frame]
        while frame.more:
            frame = opened.recv(_NOBLOCK, copy=False)
            frames.append(frame)
        yield frames
