"""The coordinator: drives the rounds of an algorithm with a few verbs, and holds no data.

    total  = federation.sum(step, shape=…, bound=…, **params)      # secure sum of what `step` returns at every site
             federation.sum(step, receiver=site, shape=…, …)      # the same, opened by that site
    values = federation.gather(step, shape=…, **params)            # every site's value, recorded as a disclosure
             federation.run(step, **params)                        # a local step at every site, without a value

`shape` and `bound` are public parameters of the round: a site reveals nothing of another shape, and refuses values
beyond the bound. `params` are arrays and scalars that every site receives.

When a site drops, a round that needs it is aborted everywhere and run again by the others with fresh randomness. A sum
that was revealed before is final, so a sum is revealed once or never, and never for two different sets of sites. Rounds
that depend on each other form a stage: `federation.until_stable(stage)`. If every site is needed,
`federation.require_all_sites()` waits for late ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar, overload

import numpy as np

from fedsvm.federation.admission import Admission
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.mailbox import Mailbox
from fedsvm.federation.channel.socket import SocketChannel
from fedsvm.federation.control import GatherTerms, Order, RunOver, SumTerms
from fedsvm.federation.control_exchange import Dispatcher
from fedsvm.federation.disclosures import Disclosure, Disclosures, Kind
from fedsvm.federation.errors import DeadlineExpired, MembershipChanged, SitesDropped
from fedsvm.federation.links import SiteLinks
from fedsvm.federation.membership import DropoutPolicy, Membership
from fedsvm.federation.record import Progress, RunRecord
from fedsvm.federation.replay import JournaledRounds
from fedsvm.federation.round import GRACE_S
from fedsvm.federation.rounds import RoundObserver, RoundRunner, TakePart
from fedsvm.federation.run_journal import Journal
from fedsvm.federation.site.program import SumProtocol
from fedsvm.federation.site_messages import FinalReport, LogRecord
from fedsvm.federation.traffic_ledger import Accounts
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, Party

T = TypeVar("T")
Revision = Callable[[], Mapping[str, Any]]
"""Returns the step arguments that change when a sum is repeated over different sites."""


class RunObserver(RoundObserver):
    """An observer of a run; its methods do nothing unless a subclass overrides them."""

    def party_listens(self, party: Party) -> None:
        """Take note of a party that listens: the coordinator first, and a site again each time it is started."""

    def progress_made(self, federation: Federation) -> None:
        """Take note of a round that ended, of new metrics, of a site's log record or of a change of the membership."""


class Federation:
    """The live sites of a run, and the verbs that order their work.

    Parameters
    ----------
    links : SiteLinks
        Processes, sockets and identities of the sites.
    sum_protocol : SumProtocol
        The protocol that `sum` runs.
    policy : DropoutPolicy
        The behavior when sites drop out.
    round_timeout_s : float
        Seconds that the coordinator waits for a site.
    observer : RunObserver
        Sees the rounds and the progress of the run.
    journal : Journal or None
        Answers the verbs of an earlier process of this run, and records new ones. None for a run without a journal.

    Attributes
    ----------
    membership : Membership
        The sites that take part.
    record : RunRecord
        Log and figures of the run.
    """

    def __init__(
        self,
        links: SiteLinks,
        sum_protocol: SumProtocol,
        policy: DropoutPolicy,
        round_timeout_s: float,
        observer: RunObserver,
        journal: Journal | None,
    ) -> None:
        sites, journaled = links.sites, None if journal is None else journal.history
        min_sites = max(policy.min_sites, sum_protocol.min_remaining(len(sites)))
        self.membership = Membership(sites, replace(policy, min_sites=min_sites))
        self.record = RunRecord(lambda: observer.progress_made(self), journaled)
        self._disclosures = Disclosures()
        self._dispatcher = Dispatcher(Mailbox(links.endpoint, links.run), self.membership, self._note_logged)
        self._admission = Admission(
            self._dispatcher, links.roster, links.views, links.restart, self._disclosures, round_timeout_s
        )
        self._runner = RoundRunner(
            self._dispatcher, self._admission, self._disclosures, self.record, observer, round_timeout_s, links.signer
        )
        self._rounds: RoundRunner | JournaledRounds = self._runner
        if journal is not None:
            self._rounds = JournaledRounds(self._runner, journal, self.accounts, links.skipped_rounds)
        self._launcher = links.launcher
        self._protocol = sum_protocol
        self._journal = journal
        self._is_over = False
        links.endpoint.watch(links.launcher.fileno(), self._note_ended)

    # The state of the run.

    @property
    def progress(self) -> Progress:
        """The phase and round that the run has reached, and the latest metrics of the algorithm."""
        return self.record.progress

    @property
    def number(self) -> bytes:
        """The number of the run, which every message carries."""
        return self._dispatcher.mailbox.run

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
        """The traffic of every link in every round."""
        return self._dispatcher.accounts

    @property
    def final_reports(self) -> Mapping[str, FinalReport]:
        """The final report of each site that sent one."""
        return self._dispatcher.final_reports

    @property
    def disclosures(self) -> list[Disclosure]:
        """The disclosures to parties, in the order in which they first happened."""
        return self._disclosures.entries

    @property
    def refused(self) -> dict[str, int]:
        """The number of messages that the coordinator refused, by reason."""
        return dict(self._dispatcher.mailbox.refused)

    @property
    def sum_protocol(self) -> SumProtocol:
        """The secure sum in use, for steps that run it as a part of another protocol."""
        return self._protocol

    @property
    def shows_inputs(self) -> bool:
        """True if the sum in use is not secure, and shows the coordinator each site's own value."""
        return self._protocol.discloses == "value"

    # The verbs.

    @overload
    def sum(self, step: str, *, receiver: str, shape: Sequence[int], bound: float, **params: Any) -> None: ...

    @overload
    def sum(
        self,
        step: str,
        *,
        shape: Sequence[int],
        bound: float,
        on_membership_change: Revision | None = None,
        public: bool = False,
        **params: Any,
    ) -> FloatArray: ...

    def sum(
        self,
        step: str,
        *,
        receiver: str = COORDINATOR,
        shape: Sequence[int],
        bound: float,
        on_membership_change: Revision | None = None,
        public: bool = False,
        **params: Any,
    ) -> FloatArray | None:
        """Return the sum over all live sites of what `step` returns there.

        Parameters
        ----------
        step : str
            A step of the site program.
        receiver : str, optional
            The party that opens the sum, by default the coordinator. A site that opens it has it as `opened` in later
            steps, and the coordinator learns nothing of it, except that a plain sum still shows it the other sites'
            values.
        shape : sequence of int
            The shape of the value.
        bound : float
            Maximum absolute value of an entry of the sum; math.inf if it is unknown.
        on_membership_change : callable, optional
            Only outside of stages. Called before the sum is repeated because sites left or joined; returns the
            arguments that change. A site may have seen the sum that was not revealed, so a privacy budget must be
            charged here for the second one, or the repetition refused. It draws random numbers by `journaled_random`.
        public : bool, default False
            Whether the step is declared as public; the sites open its sum too, if the secure sum verifies.
        **params
            Arguments of the step.

        Returns
        -------
        FloatArray of `shape`, or None
            The sum; None if a site opens it.

        Raises
        ------
        FederationError
            A site failed, or too few are left; it names the site and the round.
        """
        protocol = self._protocol
        if receiver == COORDINATOR:
            self._disclosures.add(COORDINATOR, step, protocol.discloses, shape)
            if public and protocol.verifies:
                self._disclosures.add("sites", step, "sum", shape)
        else:
            self._disclosures.add(receiver, step, "sum", shape)
            if self.shows_inputs:
                others = "value of every site but the one that opens the sum"
                self._disclosures.add(COORDINATOR, step, "value", shape, detail=others)

        def reveal(channel: SocketChannel) -> FloatArray | None:
            return protocol.reveal(channel, shape, bound, receiver, public=public)

        terms = SumTerms(tuple(shape), bound, protocol.options, receiver)
        while True:
            order = _order(step, protocol.name, params, terms)
            try:
                total: FloatArray | None = self._rounds.complete(order, reveal, 0.0, again=on_membership_change is None)
            except MembershipChanged:
                if on_membership_change is None or self._runner.is_fixed:
                    raise
                params = {**params, **on_membership_change()}
            else:
                return total

    def gather(self, step: str, *, shape: Sequence[int], **params: Any) -> dict[str, FloatArray]:
        """Return every live site's value of the step in the clear, by site. Raises FederationError."""
        self._disclosures.add(COORDINATOR, step, "value", shape)

        def collect(channel: SocketChannel) -> dict[str, FloatArray]:
            return channel.collect(dict.fromkeys(channel.sites, shape), np.float64)

        order = _order(step, "gather", params, GatherTerms(tuple(shape)))
        values: dict[str, FloatArray] = self._rounds.complete(order, collect, 0.0, again=True)
        return values

    def run(
        self,
        step: str,
        *,
        remember: bool = False,
        take_part: TakePart = lambda channel: None,
        work_s: float = 0.0,
        **params: Any,
    ) -> Any:
        """Run a step at every site; its value stays there. The step may run a protocol among the sites.

        Parameters
        ----------
        step : str
            A step of the site program.
        remember : bool, default False
            Whether the order is part of the public state: a site that joins later receives it first. Of several orders
            of one step the last counts.
        take_part : callable, optional
            Runs the coordinator's part in the step's protocol, given its channel. `run` returns its value.
        work_s : float, default 0.0
            Seconds that the sites may compute, in addition to the time of a round.
        **params
            Arguments of the step.

        Raises
        ------
        FederationError
            A site failed, or too few are left.
        """
        order = _order(step, step, params)
        value = self._rounds.complete(order, take_part, work_s, again=True)
        if remember:
            self._admission.remember(replace(order, timeout_s=self._runner.timeout_s(work_s)))
        return value

    def journaled_random(self, purpose: str, draw: Callable[[], T]) -> T:
        """Draw at random for the coordinator, or return the journaled draw in a resumed run.

        Parameters
        ----------
        purpose : str
            The purpose of the draw. A resumed run must make the same draws for the same purposes.
        draw : callable
            Draws an array or plain values.

        Returns
        -------
        object
            The value of `draw`, from now or from an earlier process of this run.
        """
        if self._journal is None:
            return draw()
        value: T = self._journal.journaled_random(purpose, draw)
        return value

    def disclose(
        self, to: str, step: str, detail: str, shape: Sequence[int], times: int = 1, *, kind: Kind = "design"
    ) -> None:
        """Record something that a party learns in addition to the records of the verbs.

        Parameters
        ----------
        to : str
            A party, or "sites" for all of them.
        step : str
            The step, or the protocol, that it comes from.
        detail : str
            A description of it, in a sentence.
        shape : sequence of int
            The shape of the array.
        times : int, default 1
            The number of times that it is disclosed.
        kind : str, default "design"
            See `disclosures.Kind`.
        """
        self._disclosures.add(to, step, kind, shape, times, detail)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the rounds within under `name`. Sites that dropped and came back are admitted before the first."""
        self._runner.begin_phase()
        with self.record.phase(name):
            yield

    def fixed_membership(self) -> AbstractContextManager[None]:
        """Return a context whose rounds build on each other: verbs raise MembershipChanged when sites leave or join."""
        return self._runner.fixed_membership()

    def until_stable(self, stage: Callable[[], T]) -> T:
        """Run a stage whose rounds build on each other, and restart it when sites leave or join meanwhile.

        Stages may be nested: an inner stage restarts alone, and the outer one continues. Raises FederationError when
        a site fails or too few are left.
        """
        while True:
            with suppress(MembershipChanged), self.fixed_membership():
                return stage()

    def require_all_sites(self, why: str) -> None:
        """Require all sites from now on: wait one more round timeout for a late site, then end the run. Readmit none.

        why: a sentence with the reason why the others cannot continue without every site.
        """
        self.membership.why_needed = why

    def log_metrics(self, **figures: float) -> None:
        """Report the algorithm's latest metrics to observers and to the log."""
        self.record.add_metrics(**figures)

    # Start and end.

    def assemble(self, *, need_all: bool = True) -> None:
        """Introduce the sites to each other. Raises SitesDropped, naming the sites, if some do not answer.

        Sites of a resumed run repeat their steps, so they have additional time: the seconds that its rounds took.
        need_all: whether the run ends if any site is missing. Otherwise it continues if its policy is met.
        """
        dropped = self._admission.assemble(self._journal.seconds if self._journal is not None else 0.0)
        if dropped and need_all:
            raise SitesDropped(dropped, self._dispatcher.label, "Every site must be present when a run begins.")
        if dropped:
            self._runner.change_membership(dropped, ())
        self._dispatcher.close_books()

    def dismiss(self, stop: RunOver) -> None:
        """Send the sites a stop and read their final reports; the launcher ends those that do not answer."""
        self._is_over = True
        dispatcher = self._dispatcher
        dispatcher.send_once(self.membership.with_process, stop)
        with suppress(DeadlineExpired):  # the launcher ends sites that are silent now
            while awaited := self.membership.responsive - dispatcher.final_reports.keys():
                deadline = Deadline(GRACE_S)
                while awaited == self.membership.responsive - dispatcher.final_reports.keys():
                    dispatcher.mailbox.wait(deadline)
                    while dispatcher.next_answer() is not None:
                        pass  # an answer to the last round; final reports are kept by the dispatcher
        dispatcher.close_books(whole=True)

    def _note_ended(self) -> None:
        """Record processes that ended. Raises LaunchError if their launcher ended."""
        for ended in self._launcher.collect_ended():
            if not (self._is_over and ended.well):  # its final report may still be on its way
                self.membership.note_ended(ended.site, ended.how)

    def _note_logged(self, site: str, record: LogRecord) -> None:
        """Record a message that a site logged, unless there were too many."""
        if self.record.add_logged(site, record):
            detail = f"what the code of {site} logs, as text"
            self._disclosures.add(COORDINATOR, "log", "design", (), detail=detail)
        else:
            self._dispatcher.mailbox.refused["log record beyond what is kept"] += 1


def _order(step: str, protocol: str, params: Mapping[str, Any], terms: SumTerms | GatherTerms | None = None) -> Order:
    """Return an order without its round and its sites, which are set later."""
    arrays = {name: value for name, value in params.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in params.items() if name not in arrays}
    return Order(step, protocol, terms, plain, arrays)
