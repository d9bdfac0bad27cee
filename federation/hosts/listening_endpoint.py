"""The coordinator's endpoint, to which sites connect; it connects to nobody.

Every site has two connections to it. One carries orders and answers, the other protocols. The site declares the kind of
a connection with the ticket that it received when it joined, so that a second process with a copy of its key can
neither answer nor listen in its place. A new connection replaces the last one of its kind.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import zmq

from fedsvm.federation.errors import DeadlineExpired, Malformed, PeerDropped
from fedsvm.federation.hosts.messages import Hello, Join, SiteRefused
from fedsvm.federation.transport import wire
from fedsvm.federation.transport.connection import DISCONNECTED, Stream
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.endpoint import Endpoint, decode_frame
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Roster
from fedsvm.federation.transport.message_transport import Received
from fedsvm.federation.transport.poller import is_readable
from fedsvm.federation.transport.wire import JOINING_KINDS

TICKET_BYTES = 16
_CONNECTIONS_PER_SITE = 2
_UNKNOWN_TICKET = "another coordinator admitted it, or another process took its place; start fedsvm site again."


@dataclass(frozen=True)
class Call:
    """A site that asks to join, and its connection."""

    peer: str
    routing_id: bytes
    join: Join


@dataclass
class _SiteConnections:
    """The open connections of a site with a ticket, each by its routing id."""

    ticket: bytes
    orders: bytes | None
    protocols: bytes | None = None


@dataclass
class _MeteredConnection:
    """A connection from another party, and its traffic."""

    peer: str
    stream: Stream
    known: bool = False


class ListeningEndpoint(Endpoint):
    """The transport of a coordinator whose sites are on other hosts.

    Parameters
    ----------
    listen : str
        A tcp address, whose port may be `*`.
    keys : KeyPair
        The coordinator's key pair.
    admitted : Roster
        The parties that may connect.

    Attributes
    ----------
    on_call : callable
        Receives each site that asks to join.
    on_answer : callable
        Receives a site's answer to an offer.
    on_closed : callable
        Receives each site whose connection for orders broke.
    on_back : callable
        Receives each site whose connection for orders is open again.

    Raises
    ------
    EndpointError
        The endpoint cannot listen on the address.
    """

    def __init__(self, listen: str, keys: KeyPair, admitted: Roster) -> None:
        super().__init__(COORDINATOR, listen, keys, peers=_CONNECTIONS_PER_SITE * len(admitted))
        self._admitted = admitted
        self.admit(admitted)
        self.on_call: Callable[[Call], None] = lambda call: None
        self.on_answer: Callable[[str, wire.Message], None] = lambda peer, message: None
        self.on_closed: Callable[[str], None] = lambda peer: None
        self.on_back: Callable[[str], None] = lambda peer: None
        self._lines: dict[bytes, _MeteredConnection] = {}
        self._sites: dict[str, _SiteConnections] = {}

    def admit(self, roster: Roster) -> None:
        """Admit these parties, and those that were admitted at the start, so that late sites receive a refusal."""
        late = [party for party in self._admitted if party.name not in roster]
        super().admit(Roster([*roster, *late]))

    def invite(self, call: Call) -> bytes:
        """Use the connection of this call for orders to the site. Return the new ticket of the site."""
        ticket = secrets.token_bytes(TICKET_BYTES)
        self._sites[call.peer] = _SiteConnections(ticket, call.routing_id)
        self._lines[call.routing_id].known = True
        return ticket

    def expect(self, tickets: Mapping[str, bytes]) -> None:
        """Admit sites that have these tickets from an earlier process of this coordinator."""
        self._sites = {site: _SiteConnections(ticket, None) for site, ticket in tickets.items()}

    @property
    def tickets(self) -> dict[str, bytes]:
        """The tickets of the admitted sites, by name."""
        return {name: site.ticket for name, site in self._sites.items()}

    def serve(self, deadline: Deadline) -> None:
        """Wait until something happens, even if messages wait already. Raises DeadlineExpired."""
        if deadline.expired:
            raise DeadlineExpired
        self._serve(deadline.remaining_ms())

    def turn_away(self, call: Call, reason: str) -> None:
        """Send a site that asks to join the reason why it is refused."""
        self._send_to(call.routing_id, SiteRefused(reason).to_message(self.round))

    def is_connected(self, peer: str) -> bool:
        """Return whether a site has a connection for orders."""
        site = self._sites.get(peer)
        return site is not None and site.orders is not None

    def connect(self, peer: str) -> None:
        """Ignore the call, since sites connect by themselves."""

    def send(
        self, peer: str, message: wire.Message, deadline: Deadline, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Send over the connection that `peer` opened for orders, and wait for it if necessary. Raises PeerDropped."""
        while not self.is_connected(peer):
            if deadline.expired:
                raise PeerDropped(f"{self.name} cannot reach {peer}: it has no connection here.")
            self._serve(deadline.remaining_ms())
            meanwhile()
        orders = self._sites[peer].orders
        if orders is None or not self._send_to(orders, message):
            raise PeerDropped(f"{self.name} cannot reach {peer}: its connection is gone or full.")

    def reply(self, peer: str, message: wire.Message) -> None:
        """Send over the connection that `peer` opened for protocols. Raises PeerDropped if there is none."""
        site = self._sites.get(peer)
        if site is None or site.protocols is None or not self._send_to(site.protocols, message):
            raise PeerDropped(f"{self.name} cannot answer {peer}: its connection is gone or full.")

    def _send_to(self, routing_id: bytes, message: wire.Message) -> bool:
        """Send a message. Return whether it could be sent."""
        try:
            self._poller.send(self._router, message.frame, routing_id)
        except zmq.ZMQError:
            return False
        self._lines[routing_id].stream.count(message, len(message.frame), sent=True)
        return True

    def _take(self, peer: str, frame: zmq.Frame, routing_id: bytes | None) -> None:
        """Process a message: one that declares a connection, or one over a declared connection."""
        if (message := decode_frame(frame, self.refused)) is None:
            return
        try:
            if routing_id is None or not self._is_welcome(peer, frame, routing_id, message):
                self.refused["no ticket"] += 1
                return
        except Malformed as error:
            self.refused[f"malformed: {error}"] += 1
            return
        self._lines[routing_id].stream.count(message, len(frame), sent=False)
        if message.kind == Join.kind:
            self.on_call(Call(peer, routing_id, Join.from_message(message)))
        elif message.kind in JOINING_KINDS:
            self.on_answer(peer, message)
        elif message.kind != Hello.kind:
            answer = self._sites[peer].orders == routing_id
            self._pending.append(Received(peer, message, answer=answer))

    def _is_welcome(self, peer: str, frame: zmq.Frame, routing_id: bytes, message: wire.Message) -> bool:
        """Return whether a message may use its connection; the first one declares its purpose. Raises Malformed."""
        line = self._lines.get(routing_id)
        if message.kind == Join.kind:
            Join.from_message(message)
            if line is None:
                self._open_line(peer, frame, routing_id, control=True)
            return line is None
        if message.kind != Hello.kind:
            return line is not None and line.known and line.peer == peer
        hello, site = Hello.from_message(message), self._sites.get(peer)
        if line is not None or site is None or not hmac.compare_digest(hello.ticket, site.ticket):
            if line is None and hello.control:
                self._open_line(peer, frame, routing_id, control=True)
                self._send_to(routing_id, SiteRefused(_UNKNOWN_TICKET).to_message(self.round))
            return False
        self._open_line(peer, frame, routing_id, control=hello.control).known = True
        if hello.control:
            site.orders = routing_id
            self.on_back(peer)
        else:
            site.protocols = routing_id
            self._pending.append(Received(peer, message, answer=False))
        return True

    def _open_line(self, peer: str, frame: zmq.Frame, routing_id: bytes, *, control: bool) -> _MeteredConnection:
        line = self._lines[routing_id] = _MeteredConnection(peer, self._streams.accept(peer, frame, control=control))
        return line

    def _note_stranger(self, event: int, value: int) -> None:
        """Remove broken connections too, after reading their last messages."""
        while event == DISCONNECTED and is_readable(self._router):
            self._read_router()
        super()._note_stranger(event, value)
        if event != DISCONNECTED:
            return
        for routing_id, line in list(self._lines.items()):
            if line.stream.ended:
                del self._lines[routing_id]
                self._forget(line.peer, routing_id)

    def _forget(self, peer: str, routing_id: bytes) -> None:
        site = self._sites.get(peer)
        if site is not None and site.orders == routing_id:
            site.orders = None
            self.interrupted.add(peer)
            self.on_closed(peer)
        elif site is not None and site.protocols == routing_id:
            site.protocols = None
            self.interrupted.add(peer)
