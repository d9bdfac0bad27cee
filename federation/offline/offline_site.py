"""A `Site` as far as the stored messages allow: the same site, run again from its start at each visit."""

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
    """The messages of a site that runs again: those in its store, and then new ones, which it adds.

    Parameters
    ----------
    diary : SiteStore
    more, send : callable
        See `OfflineSite.carry_on`.
    """

    diary: SiteStore
    more: Callable[[], Iterator[Message]]
    send: Callable[[int, Message], None]
    _said: int = 0

    def arrivals(self) -> Iterator[StoredArrival]:
        """Yield the received messages, in order."""
        yield from (StoredArrival(COORDINATOR, message) for message in self.diary.received[:])
        for message in self.more():
            self.diary.receive(message)
            yield StoredArrival(COORDINATOR, message)

    def say(self, peer: str, message: Message) -> None:
        """Send the next message, unless the store has it. Raises `_Differs` if the store has another."""
        if self._said == len(self.diary.said):
            self.diary.say(message)
            self.send(self._said, message)
        elif not _is_same(message, self.diary.said[self._said]):
            raise _Differs
        self._said += 1


def agreement_of(secret: bytes, run: bytes) -> KeyAgreement:
    """Return the key pair with which a site agrees on secrets with others in one run, derived from its store."""
    return KeyAgreement(run, derive_key(secret, "agreement"))


@dataclass(frozen=True)
class OfflineSite:
    """One site's part in one run, over many visits.

    Parameters
    ----------
    name : str
        The site's.
    public_key : bytes
        Identifies it at the hub.
    installation : Installation
        What it can be asked to do.
    diary : SiteStore
        The site's store; its facts have `secret`, `run`, and `signing_key`, the key with which the hub signs its
        orders.
    terms : Terms
        The terms of the run, to which the site agreed at its first visit.
    rules : SiteRules
        What the site's own operator allows.
    settings : dict
        Plain values for the program.
    receipt : str
        The file of the site's receipt.
    version : str
        Of the installation.
    key : SigningKey, optional
        The site's, with which it signs its receipt.
    pins : mapping of str to bytes, optional
        The public keys for signatures that the site was given of the others.
    """

    name: str
    public_key: bytes
    installation: Installation
    diary: SiteStore
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
        """Do the work that is due. Return whether the run is over.

        Parameters
        ----------
        sites : sequence of str
            All that take part, in ring order.
        partition : Partition
            What the site holds.
        more : callable
            Yields the messages since the last visit, in order; it ends when nothing is due.
        send : callable
            Forwards a message, given its number among the site's messages. The store has it already.

        Raises
        ------
        FederationError
            The site refused an order or failed, with the reason; or its messages differ from its earlier ones.
        """
        facts, failures = self.diary.facts, list[str]()
        run, secret, signing_key = (bytes(facts[name]) for name in ("run", "secret", "signing_key"))
        agreement = agreement_of(secret, run)
        me = Party(self.name, "", self.public_key, agreement.public)
        receipt = Receipt(self.receipt, self.version, key=self.key, coordinator_key=signing_key, repeats=True)
        receipt.record_asked(run, self.name, self.terms.to_fields(), asdict(self.rules))
        replay = _Replay(self.diary, more, send)
        roster = Roster([Party(COORDINATOR, "", None), me])
        site = Site(
            self._assignment(sites, run, signing_key),
            self.installation,
            StoredEndpoint(self.name, roster, replay.arrivals(), replay.say),
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
                f"{self.name} got other results than at an earlier visit, as with another version of "
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
