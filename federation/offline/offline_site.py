"""A `Site` over stored messages: at each visit it runs again from its start, as far as the messages allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.errors import FederationError, NothingDue
from fedsvm.federation.offline.endpoint import StoredArrival, StoredEndpoint
from fedsvm.federation.offline.sealing import Draws, derive_key
from fedsvm.federation.offline.site_store import SiteStore
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.faults import OwnFaults
from fedsvm.federation.site.logs import SILENT
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import Installation
from fedsvm.federation.site.receipt import Receipt
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.site import Site
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster
from fedsvm.federation.transport.signing import SigningKey
from fedsvm.federation.transport.wire import CONTROL_KINDS, Message


class _Differs(BaseException):
    """A message of the site differs from what it sent before in this place. Like `NothingDue`, not an `Exception`."""


def _is_same(message: Message, earlier: Message) -> bool:
    """Return whether a message equals an earlier one, ignoring sizes and times in control messages."""
    if message.kind in CONTROL_KINDS:
        return (message.kind, message.round) == (earlier.kind, earlier.round)
    return message.frame == earlier.frame


@dataclass
class _Replay:
    """The messages of a site that runs again: those in its store, and then new ones, which it adds to the store.

    Parameters
    ----------
    store : SiteStore
        The site's store.
    more, send : callable
        See `OfflineSite.carry_on`.
    """

    store: SiteStore
    more: Callable[[], Iterator[Message]]
    send: Callable[[int, Message], None]
    _sent: int = 0

    def arrivals(self) -> Iterator[StoredArrival]:
        """Yield the received messages, in order."""
        yield from (StoredArrival(COORDINATOR, message) for message in self.store.received[:])
        for message in self.more():
            self.store.add_received(message)
            yield StoredArrival(COORDINATOR, message)

    def send_next(self, peer: str, message: Message) -> None:
        """Send the next message, unless the store has it. Raises `_Differs` if the store has another."""
        if self._sent == len(self.store.sent):
            self.store.add_sent(message)
            self.send(self._sent, message)
        elif not _is_same(message, self.store.sent[self._sent]):
            raise _Differs
        self._sent += 1


def agreement_of(secret: bytes, run: bytes) -> KeyAgreement:
    """Return the key pair with which a site agrees on secrets with others in one run, derived from its store."""
    return KeyAgreement(run, derive_key(secret, "agreement"))


@dataclass(frozen=True)
class OfflineSite:
    """One site's part in one run, over many visits.

    Parameters
    ----------
    name : str
        The name of the site.
    public_key : bytes
        The key by which the hub identifies the site.
    installation : Installation
        The programs and secure sums of the site.
    store : SiteStore
        The site's store; its facts have `secret`, `run`, and `signing_key`, the key with which the hub signs its
        orders.
    terms : Terms
        The terms of the run, to which the site agreed at its first visit.
    rules : SiteRules
        The rules of the site's operator.
    settings : dict
        Plain values for the program.
    receipt : str
        The file of the site's receipt.
    version : str
        The version of the installation.
    key : SigningKey, optional
        The key with which the site signs its receipt.
    pins : mapping of str to bytes, optional
        The public keys for signatures of the other sites, from the site's operator.
    """

    name: str
    public_key: bytes
    installation: Installation
    store: SiteStore
    terms: Terms
    rules: SiteRules
    settings: dict[str, Any]
    receipt: str
    version: str
    key: SigningKey | None = None
    pins: Mapping[str, bytes] | None = None

    def carry_on(
        self,
        sites: Sequence[str],
        partition: Partition,
        more: Callable[[], Iterator[Message]],
        send: Callable[[int, Message], None],
    ) -> bool:
        """Process the stored messages. Return whether the run is over.

        Parameters
        ----------
        sites : sequence of str
            All sites that take part, in ring order.
        partition : Partition
            The site's data.
        more : callable
            Yields the messages since the last visit, in order.
        send : callable
            Sends a message, given its number among the site's messages. The store has it already.

        Raises
        ------
        FederationError
            The site refused an order or failed, with the reason; or its messages differ from its earlier ones.
        """
        facts, failures = self.store.facts, list[str]()
        run, secret, signing_key = (bytes(facts[name]) for name in ("run", "secret", "signing_key"))
        agreement = agreement_of(secret, run)
        me = Party(self.name, "", self.public_key, agreement.public)
        receipt = Receipt(self.receipt, self.version, key=self.key, coordinator_key=signing_key, repeats=True)
        receipt.record_asked(run, self.name, self.terms.to_fields(), asdict(self.rules))
        replay = _Replay(self.store, more, send)
        roster = Roster([Party(COORDINATOR, "", None), me])
        site = Site(
            self._assignment(sites, run, signing_key),
            self.installation,
            StoredEndpoint(self.name, roster, replay.arrivals(), replay.send_next),
            agreement,
            OwnFaults((), lambda report: None),
            failures.append,
            Draws(secret).of_round,
            partition=partition.as_read(),
            receipt=receipt,
        )
        try:
            is_over = site.serve() is not None
        except NothingDue:
            is_over = False
        except _Differs:
            raise FederationError(
                f"{self.name} computed other results than at an earlier visit, as happens with another version of "
                "fedsvm or numpy, or on another machine; use the machine and the versions of the earlier visits."
            ) from None
        finally:
            receipt.release()
        if failures:
            raise FederationError(f"{self.name} ended the run: {failures[-1]}")
        return is_over

    def _assignment(self, sites: Sequence[str], run: bytes, signing_key: bytes) -> Assignment:
        terms = self.terms
        return Assignment(
            name=self.name,
            run=run,
            listen="",
            peers=len(sites),
            encrypted=False,
            coordinator_address="",
            coordinator_key=None,
            program=terms.program,
            partition_path="",
            policy=SitePolicy(tuple(sites), terms, self.rules, pins=self.pins),
            settings={**self.settings, "seed": terms.seed},
            needs_pairwise_keys=True,
            via_coordinator=True,
            log_level=SILENT,
            coordinator_signing_key=signing_key,
            shares_errors=False,
        )
