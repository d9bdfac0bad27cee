"""A site's endpoint, if it connects to the coordinator and the coordinator connects to nobody."""

from __future__ import annotations

from collections.abc import Callable

import zmq

from fedsvm.federation.errors import Malformed, PeerDropped, SiteStopped
from fedsvm.federation.hosts.messages import Hello, SiteRefused
from fedsvm.federation.transport import wire
from fedsvm.federation.transport.connection import Dialler
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.endpoint import Endpoint, decode_frame
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from fedsvm.federation.transport.message_transport import Received

OUTBOUND_ONLY = "inproc://outbound-only"
"""The address of a site that no other site connects to."""

_ORDERS = "orders of the coordinator"
"""The name of the connection for orders among this site's connections; no party can have it."""

_MAX_PEERS = 100
"""Maximum number of other sites for which a site across hosts reserves descriptors."""


class OutboundEndpoint(Endpoint):
    """The transport of a site on another host than the coordinator.

    Parameters
    ----------
    name : str
        The name of this site.
    listen : str
        A tcp address, or OUTBOUND_ONLY.
    keys : KeyPair
        The key pair of this site.
    coordinator : Party
        The coordinator, with the address at which this site reaches it.

    Attributes
    ----------
    ticket : bytes
        Identifies this site's connections at the coordinator; empty before its offer.
    has_begun : bool
        Whether the run has begun. From then on a refusal by the coordinator raises SiteStopped.

    Raises
    ------
    EndpointError
        The endpoint cannot listen on the address.
    """

    def __init__(self, name: str, listen: str, keys: KeyPair, coordinator: Party) -> None:
        super().__init__(name, listen, keys, _MAX_PEERS)
        self.ticket = b""
        self.has_begun = False
        self._coordinator = coordinator
        self.admit(Roster([coordinator, Party(name, self.address, keys.public)]))
        self.connect(_ORDERS)

    @property
    def orders(self) -> Dialler:
        """The connection for orders."""
        return self._diallers[_ORDERS]

    def admit(self, roster: Roster) -> None:
        """Admit exactly these parties, and use the configured address of the coordinator."""
        known = roster[COORDINATOR]
        super().admit(roster.replace(known._replace(address=self._coordinator.address)))

    def admit_myself(self, agreement_key: bytes | None) -> None:
        """Set the key with which others agree on secrets with this site."""
        self.admit(self.roster.replace(self.roster[self.name]._replace(agreement_key=agreement_key)))

    def send_control(self, message: wire.Message, deadline: Deadline, check: Callable[[], None] = lambda: None) -> None:
        """Send to the coordinator over the connection for orders, as soon as it is open.

        check: called after each event during the wait; an error that it raises ends the wait. Raises PeerDropped.
        """
        while not self.orders.established:
            check()
            self.orders.check_reachable(deadline)
            self._serve(deadline.remaining_ms())
        self._send_orders(message)

    def reply(self, peer: str, message: wire.Message) -> None:
        """Answer the coordinator's orders. Raises PeerDropped if the connection is gone."""
        if not self.orders.established:
            raise PeerDropped(f"{self.name} cannot answer {peer}: its connection is gone.")
        self._send_orders(message)

    def _send_orders(self, message: wire.Message) -> None:
        self.orders.send(message)

    def connect(self, peer: str) -> None:
        """Begin to open the connection to `peer`, or the one for orders, unless it exists."""
        if peer != _ORDERS:
            super().connect(peer)
        elif peer not in self._diallers:
            self._dial(_ORDERS, self._coordinator, control=True)

    def _greet(self, peer: str, dialler: Dialler) -> None:
        """Declare which of this site's connections to the coordinator this is, if it has a ticket."""
        if self.ticket and dialler.peer == COORDINATOR:
            dialler.send(Hello(self.ticket, control=peer == _ORDERS).to_message(self.round))

    def _take(self, peer: str, frame: zmq.Frame, routing_id: bytes | None) -> None:
        """Process a message; messages over the connection for orders are not answers."""
        if peer != _ORDERS:
            super()._take(peer, frame, routing_id)
        elif (message := decode_frame(frame, self.refused)) is not None:
            self._streams.opened[_ORDERS][-1].count(message, len(frame), sent=False)
            if self.has_begun and message.kind == SiteRefused.kind:
                self._leave(message)
                return
            self._pending.append(Received(COORDINATOR, message, answer=False))

    def _leave(self, message: wire.Message) -> None:
        """Raise SiteStopped with the reason why the coordinator no longer admits this site."""
        try:
            reason = SiteRefused.from_message(message).reason
        except Malformed as error:
            self.refused[f"malformed: {error}"] += 1
            return
        raise SiteStopped(f"the coordinator does not let this site take part any more: {reason}")
