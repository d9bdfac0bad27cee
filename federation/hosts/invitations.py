"""The invitations of sites to a run over several hosts: which requests are accepted, the offer, and the answer.

The coordinator sends an offer to each site that asks to join and may take part. The site answers that it is ready, or
that it declines.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fedsvm.federation.errors import Malformed, PeerDropped
from fedsvm.federation.hosts.held_data import HeldColumn
from fedsvm.federation.hosts.listening_endpoint import Call, ListeningEndpoint
from fedsvm.federation.hosts.messages import PROTOCOL_VERSION, Begin, Declined, Offer, Ready, SiteRefused
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.addresses import is_tcp
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import Party
from fedsvm.federation.transport.wire import Message

MAX_SHOWN = 500
"""Maximum number of characters of another party's text that are printed."""


@dataclass(frozen=True)
class JoinedSite:
    """A site that is ready to take part.

    Parameters
    ----------
    party : Party
        Its name, address and keys.
    columns : tuple of HeldColumn
        Its columns, in the order of its file.
    """

    party: Party
    columns: tuple[HeldColumn, ...]


class Invitations:
    """The invitations to one run.

    Parameters
    ----------
    endpoint : ListeningEndpoint
        The coordinator's endpoint. Its roster has the keys that are admitted.
    run : bytes
        The run's 8 random bytes.
    terms : Terms
        The terms in every offer.
    version : str
        The version of the coordinator's installation.
    tell : callable
        Receives a sentence on each event.

    Attributes
    ----------
    endpoint, run, terms, tell
        The parameters.
    declined : dict of str to Declined
        The sites that declined, until they ask again.
    """

    def __init__(
        self, endpoint: ListeningEndpoint, run: bytes, terms: Terms, version: str, tell: Callable[[str], None]
    ) -> None:
        self.endpoint = endpoint
        self.run = run
        self.terms = terms
        self.tell = tell
        self.declined: dict[str, Declined] = {}
        self._version = version
        self._calls: dict[str, Call] = {}

    def invite(self, call: Call) -> None:
        """Send the offer to a site that asks to join."""
        self._calls[call.peer] = call
        self.declined.pop(call.peer, None)
        self.send(call.peer, Offer(self.run, self.endpoint.invite(call), self.terms.to_fields()))

    def turn_away(self, call: Call, why: str) -> None:
        """Send a site that asks to join the reason why it cannot take part."""
        self.endpoint.turn_away(call, why)
        self.tell(f"{call.peer} was turned away: {why}")

    def reason_against(self, call: Call) -> str:
        """Return in a sentence why a site cannot be admitted, or "" if it can."""
        peer, join, named = call.peer, call.join, call.join.name[:MAX_SHOWN]
        if self.endpoint.is_connected(peer):
            return (
                f"another process with the same key is connected as {peer} already; end it, or make a separate key "
                "for this site (fedsvm keys new)."
            )
        if join.name != peer:
            return (
                f"its key was made for {named}, and the coordinator admits it as {peer}; rename the file in the "
                f"coordinator's folder to {named}.key."
            )
        if join.address and not is_tcp(join.address):
            return (
                f"its address for other sites must be like tcp://north.example:7101, got {join.address[:MAX_SHOWN]!r}; "
                "change --advertise."
            )
        if join.protocol != PROTOCOL_VERSION:
            return (
                f"it has fedsvm {join.version[:MAX_SHOWN]}, which uses protocol {join.protocol}, and the coordinator "
                f"{self._version}, which uses protocol {PROTOCOL_VERSION}; install versions with the same protocol."
            )
        if self.terms.routing == "direct" and not join.address:
            return (
                "sites of this run connect to each other directly, and it has no address; start it with --listen and "
                '--advertise, or set protocol.routing = "via-coordinator" in the scenario.'
            )
        return ""

    def read_answer(self, site: str, message: Message) -> Ready | None:
        """Return the answer of a site that is ready; None after any other message, which is recorded."""
        try:
            if message.kind == Ready.kind:
                return Ready.from_message(message)
            if message.kind == Declined.kind:
                self.declined[site] = Declined.from_message(message)
                self.tell(self.describe_decline(site))
            else:
                self.endpoint.refused["not an answer to an offer"] += 1
        except Malformed as error:
            self.endpoint.refused[f"malformed: {error}"] += 1
        return None

    def joined_site(self, site: str, ready: Ready) -> JoinedSite:
        """Return a site, as described by its request and its answer."""
        public_key, address = self.endpoint.roster[site].public_key, self._calls[site].join.address
        party = Party(site, address, public_key, ready.agreement_key, ready.voucher)
        return JoinedSite(party, tuple(HeldColumn(name, categorical) for name, categorical in ready.columns))

    def describe_decline(self, site: str) -> str:
        """Return a sentence with the reason of a site that declined."""
        return f"{site} declines: {self.declined[site].reason[:MAX_SHOWN]}"

    def describe_declines(self) -> str:
        """Return the reasons of all sites that declined, without a final period."""
        return "; ".join(map(self.describe_decline, self.declined)).rstrip(".")

    def send(self, site: str, message: Offer | SiteRefused | Begin) -> None:
        """Send a message to a site, unless it left meanwhile."""
        with suppress(PeerDropped):
            self.endpoint.send(site, message.to_message(self.endpoint.round), Deadline(0))
