"""A site on a host of its own: it joins, takes part on terms that it agrees to, and leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.errors import (
    DeadlineExpired,
    FederationError,
    Malformed,
    OrderRefused,
    PeerDropped,
    SiteStopped,
    StepRefused,
)
from fedsvm.federation.hosts.certificates import KeyCertificate
from fedsvm.federation.hosts.held_data import SiteData, describe_terms
from fedsvm.federation.hosts.messages import PROTOCOL_VERSION, Begin, Declined, Join, Offer, Ready, SiteRefused
from fedsvm.federation.hosts.outbound_endpoint import OUTBOUND_ONLY, OutboundEndpoint
from fedsvm.federation.hosts.reminders import Reminders
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.faults import OwnFaults
from fedsvm.federation.site.logs import SILENT
from fedsvm.federation.site.program import Installation
from fedsvm.federation.site.receipt import Receipt
from fedsvm.federation.site.rules import ANYTHING, SiteRules
from fedsvm.federation.site.site import Site
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.addresses import is_unknown
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.descriptors import descriptors_explained
from fedsvm.federation.transport.keys import COORDINATOR, Party, voucher_content
from fedsvm.federation.transport.message_transport import Received
from fedsvm.federation.transport.signing import PARTY
from fedsvm.federation.transport.wire import Message

_MAX_FAILED_HANDSHAKES = 5
"""Consecutive failed handshakes after which the coordinator counts as having another key than this site expects. After
fewer, the coordinator may still be starting."""

_PARTING_S = 5.0
"""Maximum time for a site to send the reason why it leaves."""


@dataclass(frozen=True)
class SiteLocation:
    """The addresses and keys of a site, and of the coordinator that it joins.

    Parameters
    ----------
    certificate : KeyCertificate
        The site's keys.
    coordinator : str
        The address at which this site reaches the coordinator.
    coordinator_key : bytes
        The coordinator's public key for sockets.
    listen : str, default ""
        A tcp address to listen on for other sites; empty if no site connects to this one.
    advertise : str, default ""
        The address at which other sites reach this one, if it differs from `listen`.
    pins : mapping of str to bytes, optional
        The public keys for signatures of other sites; None if they are not pinned.
    coordinator_signing_key : bytes, optional
        The coordinator's public key for signatures; None in a file of an earlier version.
    """

    certificate: KeyCertificate
    coordinator: str
    coordinator_key: bytes
    listen: str = ""
    advertise: str = ""
    pins: Mapping[str, bytes] | None = None
    coordinator_signing_key: bytes | None = None


@dataclass
class SiteSession:
    """One site's part in one run.

    Parameters
    ----------
    place : SiteLocation
        The addresses and keys.
    installation : Installation
        The programs and secure sums of the site.
    version : str
        The version of the installation.
    hold : callable
        Returns the site's data, given the terms. Raises StepRefused if the site does not take part on these terms.
    tell : callable
        Receives a sentence on each event.
    rules : SiteRules
        The rules of the site's operator.
    settings : mapping, default {}
        Plain values for the program, in addition to the run's seed.
    receipts : str, default ""
        The folder of the site's receipts, see `site.receipt`; empty for none.
    faults : sequence of dict, default ()
        Faults that the site inflicts on itself, see `site.faults`.
    wait_s : float, default 3600.0
        Seconds that it tries to reach a coordinator, and then waits for the run to begin. If the run fails because
        sites dropped, it waits as long for the run to be resumed.
    patience_s : float, default 600.0
        Maximum silence of the coordinator during a run, in seconds.
    """

    place: SiteLocation
    installation: Installation
    version: str
    hold: Callable[[Terms], SiteData]
    tell: Callable[[str], None]
    rules: SiteRules = ANYTHING
    settings: Mapping[str, Any] = field(default_factory=dict)
    receipts: str = ""
    faults: Sequence[dict[str, Any]] = ()
    wait_s: float = 3600.0
    patience_s: float = 600.0
    _endpoint: OutboundEndpoint | None = field(default=None, init=False)
    _run: bytes | None = field(default=None, init=False)

    @property
    def position(self) -> tuple[str | None, int | None]:
        """The run, in hexadecimal, and the last round that this site received; None before the run begins."""
        if self._run is None or self._endpoint is None:
            return None, None
        return self._run.hex(), self._endpoint.round

    @property
    def name(self) -> str:
        """The name of the site."""
        return self.place.certificate.name

    def take_part(self) -> None:
        """Join, and carry out orders until the run is over.

        Raises FederationError if the run failed or did not begin. The message says whether the coordinator refused the
        site, or the site declined the terms.
        """
        place = self.place
        keys, coordinator = place.certificate.keys, Party(COORDINATOR, place.coordinator, place.coordinator_key)
        with (
            descriptors_explained(self.name),
            OutboundEndpoint(self.name, place.listen or OUTBOUND_ONLY, keys, coordinator) as endpoint,
            Reminders(self.tell) as reminders,
        ):
            self._endpoint = endpoint
            self._join(endpoint, reminders)

    def _join(self, endpoint: OutboundEndpoint, reminders: Reminders) -> None:
        deadline, tell = Deadline(self.wait_s), reminders.tell
        reminders.activity = lambda: self._describe_wait(endpoint)
        offer = self._ask(endpoint, deadline)
        terms = _read_terms(offer)
        self._run, endpoint.ticket = offer.run, offer.ticket
        tell(f"{COORDINATOR} asks: {describe_terms(terms, self.installation.default_settings(terms.program))}")
        reminders.activity = lambda: "reads its data"
        receipt, held = self._agree(endpoint, offer.run, terms)
        agreement = KeyAgreement(offer.run) if terms.needs_pairwise_keys or _is_via_coordinator(terms) else None
        public = agreement.public if agreement is not None else None
        columns = [[column.name, column.categorical] for column in held.columns]
        endpoint.send_control(Ready(columns, public, self._voucher(offer.run, public, terms)).to_message(), deadline)
        tell(f"{self.name} is ready, and waits for the others")
        reminders.activity = lambda: "waits for the others, before the run begins"
        begin = Begin.from_message(self._receive(endpoint, Begin.kind, deadline))
        self._check_begin(begin, held)
        partition = held.partition(begin.columns).as_read()
        tell(f"the run begins, with {', '.join(begin.sites)}")
        endpoint.admit_myself(public)
        endpoint.has_begun = True
        failures: list[str] = []
        site = Site(
            self._assignment(offer.run, terms, begin.sites, endpoint.address),
            self.installation,
            endpoint,
            agreement,
            OwnFaults(self.faults, _schedule_continue),
            failures.append,
            on_pause=lambda failure: tell(self._describe_pause(failure)),
            partition=partition,
            receipt=receipt,
        )
        reminders.activity = lambda: site.activity
        end = site.serve()
        if failures:
            raise FederationError(f"{self.name} ended the run: {failures[-1]}")
        self._check_end(end)
        tell("the run is completed" + (f"; its receipt is {receipt.path}" if receipt is not None else ""))

    def _describe_wait(self, endpoint: OutboundEndpoint) -> str:
        if endpoint.orders.established:
            return "waits for the coordinator's terms"
        return f"waits for the coordinator at {self.place.coordinator}, which does not answer"

    def _describe_pause(self, failure: str) -> str:
        """Return the sentence for a run that failed and may be resumed; without a failure it is resumed."""
        if not failure:
            return "the run is resumed"
        return f"the run failed: {_end_with_period(failure)} {self.name} waits {self.wait_s:g} s for it to be resumed"

    def _agree(self, endpoint: OutboundEndpoint, run: bytes, terms: Terms) -> tuple[Receipt | None, SiteData]:
        """Return the run's receipt and the site's data. Raises FederationError after declining terms it cannot meet."""
        receipt: Receipt | None = None
        try:
            receipt = self._receipt(run, terms)
            self.rules.check_terms(terms)
            held = self.hold(terms)
            self.rules.check_held(held.rows, [column.name for column in held.columns])
        except StepRefused as error:
            if receipt is not None:
                receipt.record_declined(error.shared)
            self._decline(endpoint, error.shared, by_policy=isinstance(error, OrderRefused))
            raise FederationError(f"{self.name} does not take part: {error}") from error
        return receipt, held

    def _assignment(self, run: bytes, terms: Terms, sites: Sequence[str], address: str) -> Assignment:
        place = self.place
        return Assignment(
            name=self.name,
            run=run,
            listen=address,
            peers=len(sites),
            encrypted=True,
            coordinator_address=place.coordinator,
            coordinator_key=place.coordinator_key,
            coordinator_signing_key=place.coordinator_signing_key,
            program=terms.program,
            partition_path="",
            policy=SitePolicy(tuple(sites), terms, self.rules, pins=place.pins),
            settings={**self.settings, "seed": terms.seed},
            needs_pairwise_keys=terms.needs_pairwise_keys,
            via_coordinator=_is_via_coordinator(terms),
            log_level=SILENT,
            shares_errors=False,
            patience_s=self.patience_s,
            resume_s=self.wait_s,
        )

    def _voucher(self, run: bytes, agreement_key: bytes | None, terms: Terms) -> bytes | None:
        """Return the site's signature of its keys and the terms; None without a signing key."""
        keys, signing = self.place.certificate.keys, self.place.certificate.signing
        if signing is None:
            return None
        me = Party(self.name, "", keys.public, agreement_key)
        return signing.sign(PARTY, voucher_content(run, me, terms.content))

    def _receipt(self, run: bytes, terms: Terms) -> Receipt | None:
        """Return the receipt of a run, with the terms recorded in it. Raises StepRefused if it cannot be written."""
        if not self.receipts:
            return None
        path = Path(self.receipts) / f"{self.name}-{run.hex()}.receipt"
        place = self.place
        receipt = Receipt(
            str(path), self.version, key=place.certificate.signing, coordinator_key=place.coordinator_signing_key
        )
        receipt.record_asked(run, self.name, terms.to_fields(), asdict(self.rules))
        return receipt

    def _check_end(self, end: SiteStopped | None) -> None:
        """Raise FederationError if the run failed or its coordinator fell silent."""
        if end is None:
            raise FederationError(
                f"{self.name} left, since the coordinator was silent for {self.patience_s:g} s; check whether it still "
                "runs, or increase --patience."
            )
        if end.failure:
            left = f" It was not resumed within {self.wait_s:g} s." if end.resumable else ""
            raise FederationError(f"{self.name} left, since the run failed: {_end_with_period(end.failure)}{left}")

    def _ask(self, endpoint: OutboundEndpoint, deadline: Deadline) -> Offer:
        """Ask to join, and return the coordinator's offer. Raises FederationError, which names the party that refused.

        If the coordinator ends before its offer, the site asks the next coordinator at the same address.
        """
        place = self.place
        address = place.advertise or (endpoint.address if place.listen else "")
        asks = Join(PROTOCOL_VERSION, self.version, self.name, address)

        def check() -> None:
            if endpoint.orders.failed_handshakes >= _MAX_FAILED_HANDSHAKES:
                raise FederationError(
                    f"The party that listens at {place.coordinator} has another key than {self.name} expects of the "
                    "coordinator; ask for its current public key (--coordinator-key), or check the address."
                )

        while True:
            try:
                endpoint.send_control(asks.to_message(), deadline, check)
            except (PeerDropped, DeadlineExpired) as error:
                raise FederationError(self._why_unreachable(endpoint)) from error
            connection = endpoint.orders, endpoint.orders.losses
            while connection == (endpoint.orders, endpoint.orders.losses):
                if (received := endpoint.received()) is not None:
                    return Offer.from_message(self._read(received, Offer.kind))
                self._wait(endpoint, deadline)

    def _why_unreachable(self, endpoint: OutboundEndpoint) -> str:
        if endpoint.orders.rejected:
            return (
                f"The coordinator at {self.place.coordinator} does not admit the key of {self.name}; send its public "
                f"key, {self.name}.key, to the coordinator's operator, for the folder of sites."
            )
        if is_unknown(self.place.coordinator):
            return (
                f"{self.name} could not reach the coordinator at {self.place.coordinator} within {self.wait_s:g} s, "
                "since this machine cannot resolve the name; check the address and this machine's DNS."
            )
        return (
            f"{self.name} could not reach the coordinator at {self.place.coordinator} within {self.wait_s:g} s; see "
            "whether it runs, and whether a firewall lets this site connect to it."
        )

    def _receive(self, endpoint: OutboundEndpoint, kind: str, deadline: Deadline) -> Message:
        """Return the coordinator's next message before the run, which must be of this kind. Raises FederationError."""
        while (received := endpoint.received()) is None:
            self._wait(endpoint, deadline)
        return self._read(received, kind)

    def _wait(self, endpoint: OutboundEndpoint, deadline: Deadline) -> None:
        """Wait until something happens on the connections. Raises FederationError when the wait is over."""
        try:
            endpoint.wait(deadline)
        except DeadlineExpired:
            raise FederationError(
                f"The run did not begin within {self.wait_s:g} s; ask the coordinator's operator, or increase --wait."
            ) from None
        if endpoint.orders.rejected:
            raise FederationError(self._why_unreachable(endpoint))

    def _read(self, received: Received, kind: str) -> Message:
        """Return the message if it is of this kind. Raises FederationError otherwise, with the reason of a refusal."""
        try:
            if received.message.kind == SiteRefused.kind:
                reason = SiteRefused.from_message(received.message).reason
                raise FederationError(f"The coordinator does not let {self.name} take part: {reason}")
            if received.message.kind != kind:
                raise Malformed(f"{received.message.kind} where {kind} was due")
        except Malformed as error:
            raise FederationError(
                f"The party at {self.place.coordinator} sends messages that no coordinator sends: {error}."
            ) from error
        return received.message

    def _check_begin(self, begin: Begin, held: SiteData) -> None:
        """Raise FederationError if the run would begin without this site, or with other columns than it has."""
        mine = sorted(column.name for column in held.columns)
        if not all(type(name) is str for name in [*begin.sites, *begin.columns]) or self.name not in begin.sites:
            raise FederationError(f"The coordinator begins a run without {self.name}; ask its operator.")
        if len(set(begin.sites)) < len(begin.sites) or sorted(begin.columns) != mine:
            raise FederationError(
                f"The coordinator begins a run with other columns than {self.name} has, or with a site twice; ask its "
                "operator to install a version with the same protocol, and start fedsvm site again."
            )

    def _decline(self, endpoint: OutboundEndpoint, reason: str, *, by_policy: bool) -> None:
        """Send the reason for declining to the coordinator."""
        try:
            endpoint.send_control(Declined(reason, by_policy).to_message(), Deadline(_PARTING_S))
        except (PeerDropped, DeadlineExpired):
            self.tell("the reason could not be sent to the coordinator")


def _end_with_period(sentence: str) -> str:
    return f"{sentence.rstrip('.')}."


def _is_via_coordinator(terms: Terms) -> bool:
    return terms.routing == "via-coordinator"


def _read_terms(offer: Offer) -> Terms:
    try:
        return Terms.from_fields(offer.terms)
    except Malformed as error:
        raise FederationError(f"The coordinator's terms cannot be read: {error}.") from error


def _schedule_continue(report: Mapping[str, Any]) -> None:
    """Start a process that continues this one some seconds after it stops itself."""
    if report["for_s"] is not None:
        waits = f"import os, signal, time; time.sleep({report['for_s']}); os.kill({os.getpid()}, signal.SIGCONT)"
        subprocess.Popen([sys.executable, "-c", waits], start_new_session=True)
