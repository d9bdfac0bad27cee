"""Rounds that are repeated until complete: attempts, timeouts, and the sites that leave and join between attempts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fedsvm.federation.admission import Admission
from fedsvm.federation.channel.interface import Observer
from fedsvm.federation.channel.socket import SocketChannel
from fedsvm.federation.control import Order, SumTerms
from fedsvm.federation.control_exchange import Dispatcher
from fedsvm.federation.disclosed_round import DisclosedRound
from fedsvm.federation.disclosures import Disclosures
from fedsvm.federation.errors import MembershipChanged, RoundFailed, SitesDropped
from fedsvm.federation.record import RunRecord
from fedsvm.federation.round import Attempt, Round
from fedsvm.federation.run_journal import AttemptRecord, MembershipRecord
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.site_messages import StepDone
from fedsvm.federation.traffic_ledger import RoundRecord
from fedsvm.federation.transport.deadline import Deadline

TakePart = Callable[[SocketChannel], Any]
"""The coordinator's part in the protocol of a round, given its channel."""

_PATIENCE = 4
"""Sites wait this many times as long as the coordinator, because the coordinator decides which site is late."""

_MAX_REPEATS = 10
"""Maximum number of failed attempts at a round in which no site dropped. A broken connection loses messages, so one
failure is no reason to end the run."""


class RoundObserver:
    """An observer of rounds; its methods do nothing unless a subclass overrides them."""

    def round_begins(self, phase: str, phase_round: int) -> None:
        """Observe a round, given its phase and its number in that phase, before its order is sent."""

    def round_completed(self, shown: DisclosedRound) -> None:
        """Observe a complete round, given its disclosures."""

    def channel_observers(self, round_number: int) -> Sequence[Observer]:
        """Return the observers of the coordinator's channel in a round."""
        return ()


class RoundRunner:
    """The coordinator's rounds.

    Parameters
    ----------
    dispatcher : Dispatcher
        Sends orders to sites and receives their answers.
    admission : Admission
        Admits sites.
    disclosures : Disclosures
        List of what parties learn.
    record : RunRecord
        Record of the run.
    observer : RoundObserver
        Sees every round.
    round_timeout_s : float
        Seconds that the coordinator waits for a site.
    signer : OrderSigner, optional
        Signs the orders.

    Attributes
    ----------
    is_fixed : bool
        Whether a change of the membership raises MembershipChanged.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        admission: Admission,
        disclosures: Disclosures,
        record: RunRecord,
        observer: RoundObserver,
        round_timeout_s: float,
        signer: OrderSigner | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._membership = dispatcher.membership
        self._admission = admission
        self._disclosures = disclosures
        self._record = record
        self._observer = observer
        self._round_timeout_s = round_timeout_s
        self._signer = signer
        self._phase_rounds: Counter[str] = Counter()
        self._phase_is_new = False
        self._waited_s = 0.0
        self.is_fixed = False

    def begin_phase(self) -> None:
        """Readmit the sites that dropped and came back, when the next round begins."""
        self._phase_is_new = True

    @contextmanager
    def fixed_membership(self) -> Iterator[None]:
        """Raise MembershipChanged from the rounds within when sites leave or join."""
        before, self.is_fixed = self.is_fixed, True
        try:
            yield
        finally:
            self.is_fixed = before

    def timeout_s(self, work_s: float) -> float:
        """Return the seconds that a site waits for a peer, if sites may compute for `work_s`."""
        return _PATIENCE * (self._round_timeout_s + work_s)

    def complete(self, order: Order, take_part: TakePart, work_s: float, *, again: bool) -> Any:
        """Carry out an order until it is complete with the present sites, and return its value.

        again: whether to repeat the order when sites leave or join before it is complete. If False, raise
        MembershipChanged instead.
        """
        try:
            return self._complete(order, take_part, work_s, again=again)
        except (SitesDropped, RoundFailed):
            self._dispatcher.mailbox.endpoint.check_descriptors()
            raise

    def change_membership(self, left: Mapping[str, str], joined: tuple[str, ...]) -> None:
        """Change who takes part.

        Raises SitesDropped if the others cannot or must not continue, MembershipChanged within a stage.
        """
        self._apply_change(MembershipRecord(self._record.progress.round, self._record.progress.phase, left, joined))
        if joined:
            self._admission.announce(tuple(site for site in self._membership.sites if site not in joined))
        if self.is_fixed:
            raise MembershipChanged

    def replace_restarted(self, sites: Sequence[str]) -> None:
        """Admit sites that were started again before the run was resumed. Raises like `change_membership`."""
        back = tuple(site for site in sites if self._admission.catch_up(site))
        self.change_membership(dict.fromkeys(sites, "it was started again before the run was resumed"), back)

    def skip_to(self, round_number: int, ended: set[str]) -> None:
        """Skip round numbers up to this one, and count these sites as ended."""
        self._record.progress.round = round_number
        for site in ended:
            self._membership.note_ended(site, "was gone before the run was resumed")

    def continue_round(self, waited_s: float) -> None:
        """Count these seconds to the next round, which an earlier process of this run began."""
        self._waited_s = waited_s
        self._record.earlier_s += waited_s

    def repeat(self, order: Order, event: AttemptRecord | MembershipRecord, value: Any) -> None:
        """Apply an event of an earlier process of this run, without sending anything."""
        self._phase_is_new = False
        if isinstance(event, MembershipRecord):
            self._apply_change(event)
            return
        record = event.record
        self._record.earlier_s += record.seconds
        self._record.progress.round = record.round
        self._record.progress.rounds += 1
        self._phase_rounds[record.phase] = record.phase_round
        self._dispatcher.accounts.rounds[record.round] = record
        self._disclosures.record_parameters(order)
        if event.complete:
            everyone = event.sites == self._membership.all_sites
            unsigned = replace(
                order,
                phase=record.phase,
                phase_round=record.phase_round,
                sites=event.sites,
                after=self._admission.last_completed,
                everyone=everyone,
            )
            self._note_completed(record.round, unsigned, self._sign(unsigned, record.round))
            self._show(order, event, value)
        self._record.add_attempt(event)
        self._record.on_change()

    def _complete(self, order: Order, take_part: TakePart, work_s: float, *, again: bool) -> Any:
        if self._phase_is_new:
            self._phase_is_new = False
            if back := self._admission.readmit():
                self.change_membership({}, back)
        failed_attempts, deadline = 0, Deadline(self.timeout_s(0.0))
        waiting: dict[str, str] = {}  # over all attempts: a site that was too busy to begin one did wait in another
        while True:
            attempt, round_ = self._attempt(order, take_part, work_s)
            waiting |= round_.waiting()
            left: dict[str, str] = {}
            if attempt.dropped:
                left = self._replace_dropped(attempt, round_)
                deadline = Deadline(self.timeout_s(0.0))
            if left:
                failed_attempts = 0
                waiting.clear()
            if attempt.complete:
                return attempt.value
            if left and not again:
                raise MembershipChanged
            failed_attempts += 0 if left else 1
            if failed_attempts and (deadline.expired or failed_attempts == _MAX_REPEATS):
                who = {site: waiting[site] for site in self._membership.sites if site in waiting}
                raise RoundFailed(self._dispatcher.label, failed_attempts, who)

    def _replace_dropped(self, attempt: Attempt, round_: Round) -> dict[str, str]:
        """Wait for dropped sites, if the policy says so, and remove those that do not return.

        A silent site that is reachable again stays a member, unless the round is complete without its part.

        Returns
        -------
        dict of str to str
            Sites that left, or joined as new ones, with the reason why they dropped.
        """
        replaced = self._admission.replace_dropped(attempt.dropped, round_)
        did_part = {site for site, answer in round_.answers.items() if isinstance(answer, StepDone)}
        did_part -= self._dispatcher.record.missing.keys()
        stayed = [site for site in replaced.stayed if not attempt.complete or site in did_part]
        back = tuple(site for site in replaced.stayed if site not in stayed and self._admission.catch_up(site))
        left = {site: why for site, why in attempt.dropped.items() if site not in stayed}
        if left:
            self.change_membership(left, (*replaced.joined, *back))
        return left

    def _attempt(self, order: Order, take_part: TakePart, work_s: float) -> tuple[Attempt, Round]:
        """Run one round; number, count and log it."""
        began, progress = time.monotonic(), self._record.progress
        phase, sites = progress.phase, self._membership.sites
        progress.round += 1
        progress.rounds += 1
        self._phase_rounds[phase] += 1
        number, phase_round = progress.round, self._phase_rounds[phase]
        record = RoundRecord(number, phase, order.verb, order.step, order.protocol, phase_round, len(sites))
        self._dispatcher.begin(record)
        self._observer.round_begins(phase, phase_round)
        self._disclosures.record_parameters(order)
        unsigned = replace(
            order,
            timeout_s=self.timeout_s(work_s),
            phase=phase,
            phase_round=phase_round,
            sites=sites,
            after=self._admission.last_completed,
            everyone=sites == self._membership.all_sites,
        )
        whole = self._sign(unsigned, number)
        round_ = Round(
            self._dispatcher,
            whole,
            reach_s=self._round_timeout_s,
            allowed_s=self._round_timeout_s + work_s,
            observe=self._observer.channel_observers,
        )
        attempt = round_.run(take_part)
        contributed = tuple(site for site in sites if site not in record.missing)
        tried = AttemptRecord(record, sites, attempt.complete, contributed)
        if attempt.complete:
            self._note_completed(number, unsigned, whole)
            self._show(order, tried, attempt.value)
        record.hops, record.aborted = round_.hops, not attempt.complete
        record.seconds, self._waited_s = time.monotonic() - began + self._waited_s, 0.0
        self._dispatcher.close_books(whole=record.aborted)
        self._record.add_attempt(tried)
        self._record.on_change()
        return attempt, round_

    def _note_completed(self, number: int, unsigned: Order, signed: Order) -> None:
        """Record a complete round. Sites that missed it receive its order as it was signed for others."""
        if self._signer is not None:
            self._signer.add_complete(number, unsigned)
        self._admission.note_completed(number, signed)

    def _sign(self, order: Order, number: int) -> Order:
        return order if self._signer is None else self._signer.sign_order(order, number)

    def _show(self, order: Order, attempt: AttemptRecord, value: Any) -> None:
        """Record what a complete round disclosed, and pass it to the observer."""
        receiver = ""
        if isinstance(order.terms, SumTerms):
            receiver, contributed = order.terms.receiver, frozenset(attempt.contributed)
            self._disclosures.record_difference_leakage(order, order.terms, contributed, self._membership.all_sites)
        number, opened = attempt.record.round, value if order.reveals else None
        self._observer.round_completed(
            DisclosedRound(number, order.step, order.verb, receiver, attempt.contributed, order.arguments, opened)
        )

    def _apply_change(self, change: MembershipRecord) -> None:
        self._record.add_change(change)
        try:
            self._membership.change(change.round, change.phase, change.left, change.joined, self._dispatcher.label)
        finally:
            self._record.on_change()
