"""The coordinator's control messages to sites, and their answers.

A `Dispatcher` exists for the whole run: it numbers messages, sends them, and separates valid answers from others. An
`Exchange` is one message to some sites and the answers to it; a round is an exchange with a protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedsvm.federation.channel.mailbox import Mailbox
from fedsvm.federation.control import Abort, ControlMessage, RunOver
from fedsvm.federation.errors import Malformed, PeerDropped, SiteFailed
from fedsvm.federation.membership import Membership
from fedsvm.federation.site_messages import Aborted, FinalReport, LogRecord, Outcome, StepFailure, read_answer
from fedsvm.federation.traffic_ledger import LAUNCH, Accounts, RoundRecord
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.wire import Message

FINAL_ANSWERS_S = 1.0
"""Maximum time for final answers of ended sites to arrive, if their host cannot announce the end."""


class Dispatcher:
    """The coordinator's side of the control messages.

    Parameters
    ----------
    mailbox : Mailbox
        The coordinator's.
    membership : Membership
        Receives the sites that answer, and reports whose process ended.
    on_log : callable, optional
        Called with a site and what it logged.

    Attributes
    ----------
    accounts : Accounts
        The traffic that all parties report.
    final_reports : dict of str to FinalReport
        The final reports of sites.
    record : RoundRecord
        The current round; before the first, the launch.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        membership: Membership,
        on_log: Callable[[str, LogRecord], None] = lambda site, log: None,
    ) -> None:
        self.mailbox = mailbox
        self.membership = membership
        self._on_log = on_log
        self.accounts = Accounts()
        self.final_reports: dict[str, FinalReport] = {}
        self.record = LAUNCH
        self._sent_once: set[tuple[type[Abort] | type[RunOver], str]] = set()

    @property
    def label(self) -> str:
        """The current round with its phase and step, for messages."""
        return f"round {self.record.round} ({self.record.phase}, step {self.record.step})"

    def begin(self, record: RoundRecord) -> None:
        """Assign the following messages to this round."""
        self.record = record
        self.accounts.rounds[record.round] = record
        self._sent_once.clear()
        self.mailbox.enter(record.round)

    def encode_control(self, message: ControlMessage) -> Message:
        """Return a control message encoded for the current round."""
        return message.to_message(self.mailbox.run, self.record.round)

    def send(self, site: str, message: Message, deadline: Deadline) -> None:
        """Send to a site. Raises PeerDropped if it cannot be reached in time, at once if its process ended.

        Answers that arrive meanwhile wait until they are read.
        """

        def check_process() -> None:
            if self.membership.how_ended(site):
                raise PeerDropped(f"{self.mailbox.endpoint.name} cannot reach {site}: its process ended.")

        if site in self.membership.ended:
            check_process()
        self.mailbox.endpoint.send(site, message, deadline, check_process)

    def send_once(self, sites: Iterable[str], message: Abort | RunOver) -> set[str]:
        """Send a message to every site that can be reached without waiting, at most once per round. Return the sites
        reached."""
        kind, told, wired = type(message), set(), self.encode_control(message)
        for site in sorted(set(sites)):
            if (kind, site) not in self._sent_once:
                try:
                    self.send(site, wired, Deadline(0))
                except PeerDropped:
                    continue
                self._sent_once.add((kind, site))
            told.add(site)
        return told

    def allow_repeat(self, site: str) -> None:
        """Allow repeating the messages of this round to a site: they may be lost with its broken connection."""
        self._sent_once = {(kind, receiver) for kind, receiver in self._sent_once if receiver != site}

    def next_answer(self) -> tuple[str, Outcome] | None:
        """Return the next answer in the current round, or None. Raises SiteFailed for a malformed one."""
        while (received := self.mailbox.next_control()) is not None:
            site, message, is_answer = received
            if site not in self.membership or not is_answer:
                self.mailbox.refused["answer from a stranger"] += 1
                continue
            try:
                answer = read_answer(message)
            except Malformed as error:
                raise SiteFailed(site, self.label, f"its answer is malformed: {error}") from error
            if answer is None:
                self.mailbox.refused["order from a site"] += 1
                continue
            if isinstance(answer, LogRecord):
                self._on_log(site, answer)
                continue
            self.accounts.enter(site, answer.ledger)
            if isinstance(answer, FinalReport):
                self.final_reports[site] = answer
                continue
            self.membership.note_answer(site)
            if message.round == self.record.round:
                return site, answer
            self.mailbox.refused["stale"] += 1
        return None

    def close_books(self, *, whole: bool = False) -> None:
        """Record the coordinator's own traffic; see `Endpoint.measure`."""
        endpoint = self.mailbox.endpoint
        endpoint.measure(self.record.round, whole=whole)
        self.accounts.enter(endpoint.name, endpoint.ledger.take())


class Exchange:
    """One message to some sites, and their answers to it.

    Attributes
    ----------
    sites : tuple of str
        The receivers of the message.
    answers : dict of str to StepDone, Aborted or StepFailure
        The first answer of each site.
    unreachable : dict of str
        For each site that could not be reached or cannot continue, the reason.
    """

    can_be_aborted = False
    """True if `Aborted` may answer this exchange. Otherwise it is a late answer to the round before."""

    def __init__(self, dispatcher: Dispatcher, sites: tuple[str, ...]) -> None:
        self.sites = sites
        self.answers: dict[str, Outcome] = {}
        self.unreachable: dict[str, str] = {}
        self._dispatcher = dispatcher
        self._silent = set(sites)
        self._aborting = False

    def send(self, message: ControlMessage, deadline: Deadline, to: tuple[str, ...] | None = None) -> None:
        """Send one message to all of the sites, or to some. Note sites that cannot be reached."""
        wired = self._dispatcher.encode_control(message)
        for site in self.sites if to is None else to:
            try:
                self._dispatcher.send(site, wired, deadline)
            except PeerDropped as error:
                self.unreachable[site] = str(error).rstrip(".")

    def unanswered_sites(self) -> set[str]:
        """Return the sites with a running process whose answer is still missing."""
        return self._silent - self._dispatcher.membership.ended

    def wait_until(self, condition: Callable[[], object], deadline: Deadline) -> None:
        """Read answers until a condition holds. Raises DeadlineExpired, and SiteFailed when a site failed."""
        while not condition():
            self._dispatcher.mailbox.wait(deadline)
            self.notice()

    def notice(self) -> None:
        """Read the answers that arrived. Raises SiteFailed when a site that takes part failed for good."""
        while (came := self._dispatcher.next_answer()) is not None:
            site, answer = came
            if isinstance(answer, Aborted) and not self.can_be_aborted:
                continue
            self.answers.setdefault(site, answer)
            self._silent.discard(site)
            if isinstance(answer, StepFailure) and site in self._dispatcher.membership.sites and not self._aborting:
                if not answer.cut_off:
                    raise SiteFailed(site, self._dispatcher.label, answer.reason, answer.traceback)
                self.unreachable[site] = answer.reason

    def find_dropped(self, deadline: Deadline) -> dict[str, str]:
        """Return the sites that dropped, with reasons: those that did not answer, and those whose process ended.

        Their last answers are read first. Raises SiteFailed when a site failed.
        """
        last = Deadline(FINAL_ANSWERS_S)
        for site in self._ended_sites():
            self._dispatcher.mailbox.endpoint.read_remaining(site, last)
            self.notice()
        silent = dict.fromkeys(self.unanswered_sites(), f"it did not answer within {deadline.seconds:g} s")
        return {**silent, **self._ended_sites()}

    def _ended_sites(self) -> dict[str, str]:
        """Return the sites whose process ended, and how."""
        membership = self._dispatcher.membership
        gone = membership.ended.intersection(self.sites)
        return {site: membership.how_ended(site) for site in (self.sites if gone else ()) if site in gone}

    def waiting(self) -> dict[str, str]:
        """Return for each site that answered the peer that it last waited for, in ring order."""
        progress = {site: answer.progress for site, answer in self.answers.items() if answer.progress is not None}
        return {site: progress[site].waiting for site in self.sites if site in progress and progress[site].waiting}
