"""A `Site` as far as stored messages carry it: the same site, run again from its start at each visit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
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
    """A message of the site that differs from what it sent before in this place. Not an `Exception`, for the reason of
    `NothingDue`."""


def _is_same(message: Message, earlier: Message) -> bool:
    """Return whether a message equals an earlier one, ignoring sizes and times in control messages."""
    if message.kind in CONTROL_KINDS:
        return (message.kind, message.round) == (earlier.kind, earlier.round)
    return message.frame == earlier.frame


def agreement_of(secret: bytes, run: bytes) -> KeyAgreement:
    """Return the key pair by which a site agrees on secrets with others in one run, derived from its diary."""
    return KeyAgreement(run, derive_key(secret, "agreement"))


class OfflineSite:
    """One site's part in one run, over many visits.

    Parameters
    ----------
    name : str
        The site's.
    public_key : bytes
        By which the hub knows it.
    installation : Installation
        What it can be asked to do.
    diary : SiteStore
        What it keeps; its facts have `secret`, `run`, and `signing_key`, the key by which the hub signs its orders.
    terms : Terms
        What the run asks for, as the site agreed to it at its first visit.
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

    def __init__(
        self,
        name: str,
        public_key: bytes,
        installation: Installation,
        diary: SiteStore,
        terms: Terms,
        rules: SiteRules,
        settings: dict[str, Any],
        receipt: str,
        version: str,
        key: SigningKey | None = None,
        pins: Mapping[str, bytes] | None = None,
    ) -> None:
        self._pins = pins
        self._version = version
        self._key = key
        self._receipt = receipt
        self._name = name
        self._public_key = public_key
        self._installation = installation
        self._diary = diary
        self._terms = terms
        self._rules = rules
        self._settings = settings

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
            What came in since the last visit, in order; it ends where nothing is due.
        send : callable
            Sends a message on, given its number among all that the site says. It is in the diary already.

        Raises
        ------
        FederationError
            The site refused what it was asked, or failed, and says why; or it does not come to what it said before.
        """
        diary, said = self._diary, 0

        def arrivals() -> Iterator[StoredArrival]:
            yield from (StoredArrival(COORDINATOR, message) for message in diary.received[:])
            for message in more():
                diary.receive(message)
                yield StoredArrival(COORDINATOR, message)

        def say(peer: str, message: Message) -> None:
            nonlocal said
            if said == len(diary.said):
                diary.say(message)
                send(said, message)
            elif not _is_same(message, diary.said[said]):
                raise _Differs
            said += 1

        run, failures = bytes(diary.facts["run"]), list[str]()
        agreement = agreement_of(bytes(diary.facts["secret"]), run)
        me = Party(self._name, "", self._public_key, agreement.public)
        signing_key = bytes(diary.facts["signing_key"])
        receipt = Receipt(self._receipt, self._version, key=self._key, coordinator_key=signing_key, repeats=True)
        receipt.record_asked(run, self._name, self._terms.to_fields(), asdict(self._rules))
        endpoint = StoredEndpoint(self._name, Roster([Party(COORDINATOR, "", None), me]), arrivals(), say)
        site = Site(
            self._assignment(sites, run, signing_key),
            self._installation,
            endpoint,
            agreement,
            OwnFaults((), lambda report: None),
            failures.append,
            Draws(bytes(diary.facts["secret"])).of_round,
            partition=partition.as_read(),
            receipt=receipt,
        )
        try:
            is_over = site.serve() is not None
        except NothingDue:
            is_over = False
        except _Differs:
            raise FederationError(
                f"{self._name} got other results than at an earlier visit, as with another version of "
                "fedsvm or numpy, or on another machine; use the machine and the versions of the earlier visits."
            ) from None
        finally:
            receipt.release()
        if failures:
            raise FederationError(f"{self._name} ended the run: {failures[-1]}")
        return is_over

    def _assignment(self, sites: Sequence[str], run: bytes, signing_key: bytes) -> Assignment:
        terms = self._terms
        return Assignment(
            name=self._name,
            run=run,
            listen="",
            peers=len(sites),
            encrypted=False,
            coordinator_address="",
            coordinator_key=None,
            program=terms.program,
            partition_path="",
            policy=SitePolicy(tuple(sites), terms, self._rules, pins=self._pins),
            settings={**self._settings, "seed": terms.seed},
            needs_pairwise_keys=True,
            via_coordinator=True,
            log_level=SILENT,
            coordinator_signing_key=signing_key,
            shares_errors=False,
        )
