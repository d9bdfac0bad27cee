"""The coordinator: drives the rounds of an algorithm with a few verbs, and holds no data.

    total  = federation.sum(step, shape=…, bound=…, **params)      # secure sum of what `step` returns at every site
             federation.sum(step, receiver=site, shape=…, …)      # the same, opened by that site
    values = federation.gather(step, shape=…, **params)            # every site's value, written down as a disclosure
             federation.run(step, **params)                        # a local step everywhere, nothing comes back

`shape` and `bound` are public parameters of the round: a site reveals nothing of another shape, and refuses values
beyond the bound. `params` are arrays and scalars that every site receives.

When a site drops, a round that cannot do without it is aborted everywhere and run again by the others with fresh
randomness; what a round revealed before stands, so that a sum is revealed once or never, and never for two different
sets of sites. Rounds that build on each other are a stage: `federation.until_stable(stage)`. Where no site can be done
without, `federation.need_every_site()` has late ones waited for.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, overload

import numpy as np

from fedsvm.federation.admission import Admission
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.mailbox import Mailbox
from fedsvm.federation.channel.socket import SocketChannel
from fedsvm.federation.channel.transcript import Transcript
from fedsvm.federation.control import Done, FinalReport, GatherTerms, LogRecord, Order, Stop, SumTerms
from fedsvm.federation.disclosures import Disclosure, Disclosures, Kind
from fedsvm.federation.errors import DeadlineExpired, MembershipChanged, RoundFailed, SitesDropped
from fedsvm.federation.exchange import Dispatcher
from fedsvm.federation.journal import Journal, Moved, Story, Told, Tried
from fedsvm.federation.ledger import Accounts, RoundRecord
from fedsvm.federation.membership import DropoutPolicy, Membership
from fedsvm.federation.processes.contract import Launcher
from fedsvm.federation.round import GRACE_S, Attempt, Round
from fedsvm.federation.shown import ShownRound
from fedsvm.federation.site.program import SumProtocol
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.endpoint import Post
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster

T = TypeVar("T")
Revision = Callable[[], Mapping[str, Any]]
"""What of a step's arguments is another when its sum is run again over other sites."""

_PATIENCE = 4
"""Sites wait this many times as long as the coordinator, who judges what is late and aborts the round."""

SKIPPED_ROUNDS = 100
"""Numbers of rounds that a resumed run leaves out, since the process before it may have begun some and not said so."""

MAX_LOGGED = 1000
"""Records that are kept of one site; what it says beyond that is refused."""

SITES_LOGGER = "fedsvm.sites"
"""The logger at which the coordinator says again what sites log, for programs that listen to `logging`."""

_MAX_REPEATS = 10
"""How often a round is run again, within the sites' patience, though no site dropped: messages can be lost, with
their connection."""


@dataclass
class Progress:
    """What a spectator may show: where the run is, and the latest metrics of the algorithm."""

    phase: str = "launch"
    round: int = 0
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Logged:
    """What the code of a site logged, by Python's `logging`, and in which round: of which level, by which logger."""

    site: str
    round: int
    level: str
    logger: str
    text: str


class Federation:
    """The live sites of a run, and the verbs that make them work.

    Parameters
    ----------
    endpoint : Post
        The coordinator's.
    roster : Roster
        All parties; the sites in ring order.
    run : bytes
        The run's 8 random bytes.
    launcher : Launcher
        Started the sites, and says when one ends.
    sum_protocol : SumProtocol
        What `sum` runs.
    round_timeout_s : float
        How long the coordinator waits for a site.
    policy : DropoutPolicy
        What to do when sites drop.
    restart : callable
        Starts the process of a site again that the policy wants back; None where the one that was there is back.
    on_progress : callable, optional
        Called with the federation after every round and whenever the algorithm has new metrics.
    on_round : callable, optional
        Called before the order of each round goes out, with the phase and the round's number in it.
    on_shown : callable, optional
        Called after each complete round with what it showed, for who audits the run.
    views : callable, optional
        The roster with the addresses that a party reaches the others by, given its name and the roster.
    transcript : Transcript, optional
        The coordinator's own, if it colludes.
    journal : Journal, optional
        Where verbs are written down, and by which those of an earlier process are answered.
    skipped_rounds : int, default SKIPPED_ROUNDS
        Numbers of rounds that are left out where the journal ends; 0 where all that was said before is known.
    restarted : sequence of str, default ()
        Sites of a resumed run that have no state any more. They leave where the journal ends, and join again.

    Attributes
    ----------
    membership : Membership
        Who takes part.
    accounts : Accounts
        What went over every link.
    progress : Progress
        Where the run is.
    log : list of dict
        What happened, in order, as plain values.
    logged : list of Logged
        What the code of sites logged, in the order in which it came.
    phase_seconds : dict of str to float
        How long each phase took.
    began : float
        When it began, on the monotonic clock.
    """

    def __init__(
        self,
        endpoint: Post,
        roster: Roster,
        run: bytes,
        launcher: Launcher,
        sum_protocol: SumProtocol,
        round_timeout_s: float,
        *,
        policy: DropoutPolicy,
        restart: Callable[[str], Party | None],
        on_progress: Callable[[Federation], None] = lambda federation: None,
        on_round: Callable[[str, int], None] = lambda phase, phase_round: None,
        on_shown: Callable[[ShownRound], None] = lambda shown: None,
        views: Callable[[str, Roster], Roster] = lambda party, roster: roster,
        transcript: Transcript | None = None,
        journal: Journal | None = None,
        skipped_rounds: int = SKIPPED_ROUNDS,
        restarted: Sequence[str] = (),
    ) -> None:
        self.progress = Progress()
        self.log: list[dict[str, Any]] = []
        self.logged: list[Logged] = []
        self.phase_seconds: dict[str, float] = defaultdict(float)
        self.began = time.monotonic()
        sites = tuple(party.name for party in roster if party.name != endpoint.name)
        min_sites = max(policy.min_sites, sum_protocol.min_remaining(len(sites)))
        self.membership = Membership(sites, replace(policy, min_sites=min_sites))
        self._disclosures = Disclosures()
        self._dispatcher = Dispatcher(Mailbox(endpoint, run), self.membership, self._note_logged)
        self._admission = Admission(self._dispatcher, roster, views, restart, self._disclosures, round_timeout_s)
        self._launcher = launcher
        self._protocol = sum_protocol
        self._round_timeout_s = round_timeout_s
        self._on_progress = on_progress
        self._on_round = on_round
        self._on_shown = on_shown
        self._transcript = transcript
        self._phase_rounds: Counter[str] = Counter()
        self._phase_is_new = self._is_fixed = self._is_over = False
        self._journal = journal
        self._skipped_rounds = skipped_rounds
        self._restarted = tuple(restarted)
        if journal is not None:
            self.accounts.on_entered = lambda witness, rows: journal.story.ledger.append((witness, rows))
        endpoint.watch(launcher.fileno(), self._note_ended)

    # What there is to know.

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that take part, in ring order."""
        return self.membership.sites

    @property
    def pids(self) -> Mapping[str, int]:
        """The process of each site."""
        return self._launcher.pids

    @property
    def accounts(self) -> Accounts:
        """What went over every link in every round."""
        return self._dispatcher.accounts

    @property
    def final_reports(self) -> Mapping[str, FinalReport]:
        """What each site said of itself in the end."""
        return self._dispatcher.final_reports

    @property
    def disclosures(self) -> list[Disclosure]:
        """All that was written down, in the order it first happened."""
        return self._disclosures.entries

    @property
    def refused(self) -> dict[str, int]:
        """How many messages the coordinator refused, by reason."""
        return dict(self._dispatcher.mailbox.refused)

    @property
    def shows_inputs(self) -> bool:
        """Whether the secure sum in use is none, and shows the coordinator each site's own value."""
        return self._protocol.discloses == "value"

    @property
    def isolating_sites(self) -> int:
        """How few of the sites, with the coordinator, may come to hold what another put into a sum."""
        return self._protocol.isolating(len(self.sites))

    # The verbs.

    @overload
    def sum(self, step: str, *, receiver: str, shape: Sequence[int], bound: float, **params: Any) -> None: ...

    @overload
    def sum(
        self, step: str, *, shape: Sequence[int], bound: float, over_others: Revision | None = None, **params: Any
    ) -> FloatArray: ...

    def sum(
        self,
        step: str,
        *,
        receiver: str = COORDINATOR,
        shape: Sequence[int],
        bound: float,
        over_others: Revision | None = None,
        **params: Any,
    ) -> FloatArray | None:
        """The sum over all live sites of what `step` returns there.

        Parameters
        ----------
        step : str
            A step of the site program.
        receiver : str, optional
            A site that opens the sum in place of the coordinator, which learns nothing of it; there it is `opened` in
            later steps. A plain sum still shows the coordinator the other sites' values.
        shape : sequence of int
            Of the value.
        bound : float
            No entry of the sum can exceed it in size; math.inf where nothing is known.
        over_others : callable, optional
            Outside of stages. Called before the sum is run again where sites left or joined, and gives the arguments
            that change then. A site may have seen the sum that was not revealed: this is where a second one is charged,
            or refused; what it draws goes through `drawn`.
        **params
            Arguments of the step.

        Returns
        -------
        FloatArray of `shape`, or None
            The sum, unless a site receives it.

        Raises
        ------
        FederationError
            A site failed, or too few are left; it names the site and the round.
        """
        protocol = self._protocol
        if receiver == COORDINATOR:
            self._disclosures.add(COORDINATOR, step, protocol.discloses, shape)
        else:
            self._disclosures.add(receiver, step, "sum", shape)
            if self.shows_inputs:
                others = "value of every site but the one that opens the sum"
                self._disclosures.add(COORDINATOR, step, "value", shape, detail=others)

        def reveal(channel: SocketChannel) -> FloatArray | None:
            return protocol.reveal(channel, shape, bound, receiver)

        terms = SumTerms(tuple(shape), bound, protocol.options, receiver)
        while True:
            order = _order(step, protocol.name, params, terms)
            try:
                total: FloatArray | None = self._complete(order, reveal, again=over_others is None)
            except MembershipChanged:
                if over_others is None or self._is_fixed:
                    raise
                params = {**params, **over_others()}
            else:
                return total

    def gather(self, step: str, *, shape: Sequence[int], **params: Any) -> dict[str, FloatArray]:
        """Every live site's value in the clear, by site. Raises FederationError."""
        self._disclosures.add(COORDINATOR, step, "value", shape)

        def collect(channel: SocketChannel) -> dict[str, FloatArray]:
            return channel.collect(dict.fromkeys(channel.sites, shape), np.float64)

        values: dict[str, FloatArray] = self._complete(
            _order(step, "gather", params, GatherTerms(tuple(shape))), collect
        )
        return values

    def run(
        self,
        step: str,
        *,
        remember: bool = False,
        take_part: Callable[[SocketChannel], Any] = lambda channel: None,
        work_s: float = 0.0,
        **params: Any,
    ) -> Any:
        """Run a local step everywhere. It may run a protocol among the sites.

        Parameters
        ----------
        step : str
            A step of the site program.
        remember : bool, default False
            The step is part of the public state, which a site that joins later is told first; of each step the last.
        take_part : callable, optional
            The coordinator's own part in the step's protocol, given its channel; its value is returned.
        work_s : float, default 0.0
            Seconds that the sites may compute for, on top of what a round may take.
        **params
            Arguments of the step.

        Raises
        ------
        FederationError
            A site failed, or too few are left.
        """
        order = _order(step, step, params)
        value = self._complete(order, take_part, work_s)
        if remember:
            self._admission.remember(replace(order, timeout_s=self._timeout_s(work_s)))
        return value

    def drawn(self, purpose: str, draw: Callable[[], T]) -> T:
        """What the coordinator draws at random, which a resumed run must not draw anew.

        Parameters
        ----------
        purpose : str
            What for.
        draw : callable
            Draws an array, or plain values.

        Returns
        -------
        What `draw` returned, now or in an earlier process of this run.
        """
        if self._journal is None:
            return draw()
        value: T = self._journal.drawn(purpose, draw)
        return value

    def disclose(
        self, to: str, step: str, detail: str, shape: Sequence[int], times: int = 1, *, kind: Kind = "design"
    ) -> None:
        """Write down something that a party learns beside what the verbs write down.

        Parameters
        ----------
        to : str
            A party, or "sites" for all of them.
        step : str
            The step, or the protocol, that it comes from.
        detail : str
            What it is, in a sentence.
        shape : sequence of int
            Of the array.
        times : int, default 1
            How often.
        kind : str, default "design"
            See `disclosures.Kind`.
        """
        self._disclosures.add(to, step, kind, shape, times, detail)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the rounds within under `name`. Sites that dropped and came back are let in before the first."""
        self.progress.phase = name
        self._phase_is_new = True
        self._on_progress(self)
        began = time.monotonic()
        try:
            yield
        finally:
            self.phase_seconds[name] += time.monotonic() - began

    @contextmanager
    def fixed_membership(self) -> Iterator[None]:
        """Rounds within build on each other: a verb raises MembershipChanged when sites leave or join."""
        before, self._is_fixed = self._is_fixed, True
        try:
            yield
        finally:
            self._is_fixed = before

    def until_stable(self, stage: Callable[[], T]) -> T:
        """Run a stage whose rounds build on each other; again from its start when sites leave or join meanwhile.

        Stages may stand in stages: an inner one begins anew by itself, and the outer one does not hear of it. Raises
        FederationError when a site fails or too few are left.
        """
        while True:
            with suppress(MembershipChanged), self.fixed_membership():
                return stage()

    def need_every_site(self, why: str) -> None:
        """From now on a site that is late is waited for, as long as for a round, and no other joins.

        Without it the run ends. why: a sentence that says what the others cannot do without.
        """
        self.membership.why_needed = why

    def log_metrics(self, **figures: float) -> None:
        """Let spectators know the algorithm's latest metrics."""
        self.progress.figures.update(figures)
        self._write("figures", round=self.progress.round, **figures)
        self._on_progress(self)

    # The life of a federation.

    def assemble(self, *, need_all: bool = True) -> None:
        """Introduce the sites to each other. Raises SitesDropped, naming the sites, when some do not answer.

        Those of a resumed run have as long, beside, as its rounds took: they carry out their steps again. need_all:
        whether the run ends without one of them, or goes on with those that its policy demands.
        """
        dropped = self._admission.assemble(self._journal.seconds if self._journal is not None else 0.0)
        if dropped and need_all:
            raise SitesDropped(dropped, self._dispatcher.label, "Every site must be there when a run begins.")
        if dropped:
            self._change_membership(dropped, ())
        self._dispatcher.close_books()

    def dismiss(self, stop: Stop = Stop()) -> None:  # noqa: B008 - it is frozen
        """Tell the sites to stop and take in their final reports; the launcher ends those that do not answer.

        Parameters
        ----------
        stop : Stop, default that of a run that did not fail
            Tells sites that go on without their launcher what came of the run.
        """
        self._is_over = True
        dispatcher = self._dispatcher
        dispatcher.tell(self.membership.with_process, stop)
        with suppress(DeadlineExpired):  # whoever is silent now is ended by the launcher
            while awaited := self.membership.responsive - dispatcher.final_reports.keys():
                deadline = Deadline(GRACE_S)
                while awaited == self.membership.responsive - dispatcher.final_reports.keys():
                    dispatcher.mailbox.wait(deadline)
                    while dispatcher.next_answer() is not None:
                        pass  # an answer to the last round; final reports are kept by the dispatcher
        dispatcher.close_books(whole=True)

    # How a round is carried out.

    def _complete(
        self,
        order: Order,
        take_part: Callable[[SocketChannel], Any],
        work_s: float = 0.0,
        *,
        again: bool = True,
    ) -> Any:
        """Carry out an order, as often as it takes until it is complete with the sites that are there.

        again: over other sites too. Without it raises MembershipChanged where sites left or joined before it was.
        """
        journal = self._journal
        if journal is not None and (told := journal.told(order)) is not None:
            return self._replayed(order, told)
        if journal is not None and journal.goes_live():
            self._go_live(journal)
        try:
            value = self._complete_with_those_there(order, take_part, work_s, again=again)
        except MembershipChanged:
            if journal is not None:
                journal.write(order, None, changed=True)
            raise
        except (SitesDropped, RoundFailed):
            self._dispatcher.mailbox.endpoint.check_descriptors()
            raise
        if journal is not None:
            journal.write(order, value, changed=False)
        self._admission.note_completed(self.progress.round, order.step)
        return value

    def _replayed(self, order: Order, told: Told) -> Any:
        """What became of an order in an earlier process of this run: all that followed from it follows again."""
        self._phase_is_new = False
        for event in told.story.events:
            if isinstance(event, Moved):
                change = (event.round, event.phase, event.left, event.joined, self._dispatcher.label)
                self._write("membership", round=event.round, left=dict(event.left), joined=list(event.joined))
                self.membership.change(*change)
            else:
                self._replay_attempt(order, event, told.value)
        for witness, rows in told.story.ledger:
            self.accounts.enter(witness, rows)
        if self._journal is not None:
            self._journal.story = Story()
        self._on_progress(self)
        if told.changed:
            raise MembershipChanged
        self._admission.note_completed(self.progress.round, order.step)
        return told.value

    def _replay_attempt(self, order: Order, tried: Tried, value: Any) -> None:
        record = tried.record
        self.progress.round = record.round
        self._phase_rounds[record.phase] = record.phase_round
        self.accounts.rounds[record.round] = record
        self._disclosures.record_parameters(order)
        if tried.complete:
            contributed = frozenset(tried.contributed)
            if isinstance(order.terms, SumTerms):
                everybody = self.membership.all_sites
                self._disclosures.record_difference_leakage(order, order.terms, contributed, everybody)
            self._on_shown(_shown(order, record.round, tried.sites, record, value))
        self._write("round", **vars(record))

    def _go_live(self, journal: Journal) -> None:
        """The journal has ended: rounds that it does not know of may have begun, and their numbers are not used again.

        Sites that had dropped stay out.
        """
        self.progress.round = max(journal.last_round + self._skipped_rounds, journal.skipped_to)
        for site in journal.dropped:
            self.membership.note_ended(site, "was gone before the run was resumed")

    def _complete_with_those_there(
        self,
        order: Order,
        take_part: Callable[[SocketChannel], Any],
        work_s: float,
        *,
        again: bool,
    ) -> Any:
        if self._phase_is_new:
            self._phase_is_new = False
            if back := self._admission.readmit():
                self._change_membership({}, back)
        if self._restarted:
            self._let_restarted_in()
            if not again:
                raise MembershipChanged
        failed_attempts, deadline = 0, Deadline(_PATIENCE * self._round_timeout_s)
        waiting: dict[str, str] = {}  # a site that was too busy to begin an attempt did wait in another
        while True:
            attempt, round_ = self._attempt(order, take_part, work_s)
            waiting |= round_.waiting()
            left: dict[str, str] = {}
            if attempt.dropped:
                left = self._replace_dropped(attempt, round_)
                deadline = Deadline(_PATIENCE * self._round_timeout_s)
            if left:
                failed_attempts = 0
                waiting.clear()
            if attempt.complete:
                return attempt.value
            if left and not again:
                raise MembershipChanged
            failed_attempts += 0 if left else 1
            if failed_attempts and (deadline.expired or failed_attempts == _MAX_REPEATS):
                who = {site: waiting[site] for site in self.sites if site in waiting}
                raise RoundFailed(self._dispatcher.label, failed_attempts, who)

    def _replace_dropped(self, attempt: Attempt, round_: Round) -> dict[str, str]:
        """Wait for sites that dropped, where that is the policy, and change the membership by the others.

        A site that was silent and is there again never left, unless the round was completed and it did not do its part.

        Returns
        -------
        dict of str
            Those that left or joined anew, and why they dropped.
        """
        replaced = self._admission.replace_dropped(attempt.dropped, round_)
        did_part = {site for site, answer in round_.answers.items() if isinstance(answer, Done)}
        did_part -= self._dispatcher.record.missing.keys()
        stayed = [site for site in replaced.stayed if not attempt.complete or site in did_part]
        back = tuple(site for site in replaced.stayed if site not in stayed and self._admission.catch_up(site))
        left = {site: why for site, why in attempt.dropped.items() if site not in stayed}
        if left:
            self._change_membership(left, (*replaced.joined, *back))
        return left

    def _let_restarted_in(self) -> None:
        """Tell sites that were started again since the run ended what the others know."""
        restarted, self._restarted = self._restarted, ()
        back = tuple(site for site in restarted if self._admission.catch_up(site))
        self._change_membership(dict.fromkeys(restarted, "it was started again before the run was resumed"), back)

    def _attempt(self, order: Order, take_part: Callable[[SocketChannel], Any], work_s: float) -> tuple[Attempt, Round]:
        """One round, numbered, counted and logged."""
        began, phase = time.monotonic(), self.progress.phase
        self.progress.round += 1
        self._phase_rounds[phase] += 1
        number, phase_round, sites = self.progress.round, self._phase_rounds[phase], self.sites
        record = RoundRecord(number, phase, order.verb, order.step, order.protocol, phase_round, len(sites))
        self._dispatcher.begin(record)
        self._on_round(phase, phase_round)
        self._disclosures.record_parameters(order)
        round_ = Round(
            self._dispatcher,
            replace(
                order,
                timeout_s=self._timeout_s(work_s),
                phase=phase,
                phase_round=phase_round,
                sites=sites,
                everyone=sites == self.membership.all_sites,
            ),
            reach_s=self._round_timeout_s,
            allowed_s=self._round_timeout_s + work_s,
            transcript=self._transcript,
        )
        attempt = round_.run(take_part)
        if attempt.complete and isinstance(order.terms, SumTerms):
            contributed = frozenset(sites).difference(record.missing)
            self._disclosures.record_difference_leakage(order, order.terms, contributed, self.membership.all_sites)
        if self._journal is not None:
            took_part = tuple(site for site in sites if site not in record.missing)
            self._journal.story.events.append(Tried(record, sites, attempt.complete, took_part))
        if attempt.complete:
            self._on_shown(_shown(order, number, sites, record, attempt.value))
        record.hops, record.aborted = round_.hops, not attempt.complete
        record.seconds = time.monotonic() - began
        self._dispatcher.close_books(whole=record.aborted)
        self._write("round", **vars(record))
        self._on_progress(self)
        return attempt, round_

    def _timeout_s(self, work_s: float) -> float:
        """How long a site waits for a peer."""
        return _PATIENCE * (self._round_timeout_s + work_s)

    def _change_membership(self, left: Mapping[str, str], joined: tuple[str, ...]) -> None:
        """Raises SitesDropped if the others cannot or must not go on, MembershipChanged within a stage."""
        self._write("membership", round=self.progress.round, left=dict(left), joined=list(joined))
        if self._journal is not None:
            moved = Moved(self.progress.round, self.progress.phase, dict(left), joined)
            self._journal.story.events.append(moved)
        try:
            self.membership.change(self.progress.round, self.progress.phase, left, joined, self._dispatcher.label)
        finally:
            self._on_progress(self)
        if joined:
            self._admission.announce(tuple(site for site in self.sites if site not in joined))
        if self._is_fixed:
            raise MembershipChanged

    def _note_ended(self) -> None:
        """Take note of processes that ended. Raises LaunchError when their launcher is gone."""
        for ended in self._launcher.ended():
            if not (self._is_over and ended.well):  # its final report may still be on its way
                self.membership.note_ended(ended.site, ended.how)

    def _note_logged(self, site: str, record: LogRecord) -> None:
        """Write down what a site logged, tell spectators, and say it by `logging` here."""
        if sum(each.site == site for each in self.logged) >= MAX_LOGGED:
            self._dispatcher.mailbox.refused["log record beyond what is kept"] += 1
            return
        self.logged.append(Logged(site, self.progress.round, **vars(record)))
        detail = f"what the code of {site} logs, as text"
        self._disclosures.add(COORDINATOR, "log", "design", (), detail=detail)
        self._write("site_log", **vars(self.logged[-1]))
        logging.getLogger(SITES_LOGGER).log(
            logging.getLevelNamesMapping()[record.level.upper()], "%s: %s", site, record.text
        )
        self._on_progress(self)

    def _write(self, event: str, **values: Any) -> None:
        self.log.append({"event": event, "at_s": round(time.monotonic() - self.began, 6), **values})


def _shown(order: Order, number: int, sites: tuple[str, ...], record: RoundRecord, opened: Any) -> ShownRound:
    receiver = order.terms.receiver if isinstance(order.terms, SumTerms) else ""
    among = tuple(site for site in sites if site not in record.missing)
    parameters = {**order.parameters, **order.arrays}
    return ShownRound(number, order.step, order.verb, receiver, among, parameters, opened if order.reveals else None)


def _order(step: str, protocol: str, params: Mapping[str, Any], terms: SumTerms | GatherTerms | None = None) -> Order:
    """What to do, before it is known when and with whom."""
    arrays = {name: value for name, value in params.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in params.items() if name not in arrays}
    return Order(step, protocol, terms, plain, arrays)
