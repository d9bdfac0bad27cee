"""The coordinator: drives the rounds of an algorithm with four verbs, and holds no data.

    total  = federation.sum(step, shape=…, bound=…, **params)      # secure sum of what `step` returns at every site
             federation.sum(step, receiver=site, shape=…, …)      # the same, opened by that site
    values = federation.gather(step, shape=…, **params)            # every site's value, written down as a disclosure
             federation.run(step, **params)                        # a local step everywhere, nothing comes back

`shape` and `bound` are public parameters of the round: a site reveals nothing of another shape, and refuses values
beyond the bound. `params` are arrays and scalars that every site receives.

When a site is lost, a round that cannot do without it is aborted everywhere and run again by the others with fresh
randomness; what a round revealed before stands, so that a sum is revealed once or never, and never for two different
sets of sites. Rounds that build on each other stand in `with federation.fixed_membership()`. Where no site can be done
without, `federation.need_every_site()` has lost ones waited for.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from federation.arrays import FloatArray
from federation.channel.socket import Mailbox, SocketChannel
from federation.channel.transcript import Transcript
from federation.errors import (
    DeadlineExpired,
    EndpointError,
    MembershipChanged,
    RoundFailed,
    SiteFailed,
    SitesLost,
)
from federation.ledger import LAUNCH, Accounts, RoundRecord
from federation.membership import DropoutPolicy, Membership
from federation.site.program import SumProtocol
from federation.transport.deadline import Deadline
from federation.transport.endpoint import Endpoint
from federation.transport.keys import Roster
from federation.transport.wire import Message

T = TypeVar("T")

_GRACE_S = 2.0
"""How long sites may stay silent at least when a round is aborted, or the run is over."""

_PATIENCE = 4
"""Sites wait this many times as long as the coordinator, who judges what is late and aborts the round."""

_MAX_REPEATS = 10
"""How often a round is run again, within the sites' patience, though no site was lost: messages can be, with their
connection."""


@dataclass(frozen=True)
class Ended:
    """A site process that ended, how ("exited with status 1", "was killed by signal 9"), and whether as it should."""

    site: str
    how: str
    well: bool


class Launcher(Protocol):
    """Starts site processes and watches them."""

    def fileno(self) -> int:
        """A descriptor that is readable when a process ended."""

    @property
    def pids(self) -> Mapping[str, int]:
        """The process of each site, the latest where it was started again."""

    def ended(self) -> list[Ended]:
        """The processes that ended since the last call. Raises LaunchError if the launcher itself is gone."""


@dataclass
class Disclosure:
    """Something that left its site and was not masked: to whom, from which step, in which form, how often."""

    to: str
    step: str
    form: str
    shape: tuple[int, ...]
    times: int = 0


@dataclass
class Progress:
    """What a spectator may show: where the run is, and the latest figures of the algorithm."""

    phase: str = "launch"
    round: int = 0
    figures: dict[str, float] = field(default_factory=dict)


class _Verb(NamedTuple):
    """One call of a verb: what every site is asked to do, on which terms, and the coordinator's own part.

    work_s: seconds of computing, on top of what a round may take.
    """

    name: str
    step: str
    protocol: str
    terms: dict[str, Any]
    params: Mapping[str, Any]
    take_part: Callable[[SocketChannel], Any]
    work_s: float = 0.0

    @property
    def ends_at_sites(self) -> bool:
        """Whether it is complete when every site has done its part, and not when the coordinator has a value."""
        return self.name in ("run", "sum-at")


class _Attempt(NamedTuple):
    """How a round ended: what it revealed, if it is `complete`, and the sites that were lost in it."""

    complete: bool
    value: Any
    left: dict[str, str]


class Federation:
    """The live sites of a run, and the verbs that make them work.

    `on_round` is called before the order of each round goes out, with the phase and the round's number in it.
    `on_progress` is called after every round and whenever the algorithm has new figures. `log` is all of that in the
    order it happened, as plain values. `views` gives each party the addresses that it reaches the others by.
    `transcript` is the coordinator's own, if it colludes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        roster: Roster,
        run: bytes,
        launcher: Launcher,
        sum_protocol: SumProtocol,
        round_timeout_s: float,
        on_progress: Callable[[Federation], None],
        *,
        survival: DropoutPolicy | None = None,
        on_round: Callable[[str, int], None] = lambda phase, phase_round: None,
        views: Callable[[str, Roster], Roster] = lambda party, roster: roster,
        transcript: Transcript | None = None,
    ) -> None:
        sites = tuple(party.name for party in roster if party.name != endpoint.name)
        self.membership = Membership(sites, survival or DropoutPolicy())
        self.accounts = Accounts()
        self.progress = Progress()
        self.log: list[dict[str, Any]] = []
        self.final_reports: dict[str, dict[str, Any]] = {}
        self.phase_seconds: dict[str, float] = defaultdict(float)
        self._endpoint = endpoint
        self._roster = roster
        self._run = run
        self._launcher = launcher
        self._protocol = sum_protocol
        self._round_timeout_s = round_timeout_s
        self._on_progress = on_progress
        self._on_round = on_round
        self._views = views
        self._transcript = transcript
        self._mailbox = Mailbox(endpoint, run, self._control)
        self._disclosures: dict[tuple[str, str, str, tuple[int, ...]], Disclosure] = {}
        self._answers: dict[str, Message] = {}
        self._losses: dict[str, str] = {}
        self._remembered: dict[str, _Verb] = {}
        self._summed: dict[tuple[str, bytes], set[frozenset[str]]] = defaultdict(set)
        self._asked: tuple[str, ...] = ()
        self._told: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._phase_rounds: Counter[str] = Counter()
        self._record = LAUNCH
        self.began = time.monotonic()
        self._fixed = self._aborting = self._over = self._phase_is_new = False
        endpoint.watch(launcher.fileno(), self._watch)

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that take part, in ring order."""
        return self.membership.sites

    @property
    def pids(self) -> Mapping[str, int]:
        """The process of each site."""
        return self._launcher.pids

    @property
    def shows_inputs(self) -> bool:
        """Whether the secure sum in use is none, and shows the coordinator each site's own value."""
        return self._protocol.discloses == "value"

    # The verbs.

    @overload
    def sum(self, step: str, *, receiver: str, shape: Sequence[int], bound: float, **params: Any) -> None: ...

    @overload
    def sum(self, step: str, *, shape: Sequence[int], bound: float, **params: Any) -> FloatArray: ...

    def sum(
        self, step: str, *, receiver: str | None = None, shape: Sequence[int], bound: float, **params: Any
    ) -> FloatArray | None:
        """The sum over all live sites of what `step` returns there.

        shape: of the value. bound: no entry of the sum can exceed it in size; math.inf where nothing is known.
        receiver: a site that opens the sum in place of the coordinator, which learns nothing of it.
        Raises FederationError, naming the site and the round, when a site fails or too few are left.
        """
        if receiver is not None:
            self._sum_for(receiver, step, shape=shape, bound=bound, **params)
            return None
        self.disclose("coordinator", step, self._protocol.discloses, shape)

        def reveal(channel: SocketChannel) -> FloatArray:
            return self._protocol.reveal(channel, shape, bound)

        terms = self._terms_of_sum(shape, bound, opened_by=self._endpoint.name)
        total: FloatArray = self._round(_Verb("sum", step, self._protocol.name, terms, params, reveal))
        return total

    def _sum_for(self, site: str, step: str, *, shape: Sequence[int], bound: float, **params: Any) -> None:
        """The sum, opened by `site`, where it is `opened` in later steps. The coordinator learns nothing of it.

        The site blinds its own input, and the coordinator forwards it a sum that is uniform to everyone else. A plain
        sum still shows the coordinator the other sites' values.
        """
        self.disclose(site, step, "sum", shape)
        if self.shows_inputs:
            self.disclose("coordinator", step, "value of every site but the one that opens the sum", shape)

        def forward(channel: SocketChannel) -> None:
            self._protocol.forward(channel, site, shape, bound)

        terms = self._terms_of_sum(shape, bound, opened_by=site)
        self._round(_Verb("sum-at", step, self._protocol.name, terms, params, forward))

    def _terms_of_sum(self, shape: Sequence[int], bound: float, opened_by: str) -> dict[str, Any]:
        options = dict(self._protocol.options)
        return {"shape": list(shape), "bound": float(bound), "options": options, "opened_by": opened_by}

    def gather(self, step: str, *, shape: Sequence[int], **params: Any) -> dict[str, FloatArray]:
        """Every live site's value in the clear."""
        self.disclose("coordinator", step, "value", shape)

        def collect(channel: SocketChannel) -> dict[str, FloatArray]:
            return channel.collect(dict.fromkeys(channel.sites, shape), np.float64)

        terms = {"shape": list(shape)}
        values: dict[str, FloatArray] = self._round(_Verb("gather", step, "gather", terms, params, collect))
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
        """Run a local step everywhere. `step` may run a protocol among the sites.

        remember: it is part of the public state, which a site that joins later is told first; of each step the last.
        take_part: the coordinator's own part in the step's protocol, whose value is returned. work_s: seconds that the
        sites may compute for, on top of what a round may take.
        """
        verb = _Verb("run", step, step, {}, params, take_part, work_s)
        value = self._round(verb)
        if remember:
            self._remembered.pop(step, None)
            self._remembered[step] = verb
        return value

    def disclose(self, to: str, step: str, form: str, shape: Sequence[int], times: int = 1) -> None:
        """Write down something that a party learns."""
        key = (to, step, form, tuple(shape))
        self._disclosures.setdefault(key, Disclosure(*key)).times += times

    @property
    def disclosures(self) -> list[Disclosure]:
        """All that was written down, in the order it first happened."""
        return list(self._disclosures.values())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the rounds within under `name`. Sites that were lost and came back are let in before the first."""
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
        before, self._fixed = self._fixed, True
        try:
            yield
        finally:
            self._fixed = before

    def until_stable(self, stage: Callable[[], T]) -> T:
        """Run a stage whose rounds build on each other; again from its start when sites leave or join meanwhile.

        Raises FederationError when a site fails or too few are left.
        """
        while True:
            with suppress(MembershipChanged), self.fixed_membership():
                return stage()

    def need_every_site(self, why: str) -> None:
        """From now on a site that is lost is waited for, as long as for a round, and no other joins.

        Without it the run ends. why: a sentence that says what the others cannot do without.
        """
        self.membership.why_needed = why

    def log_metrics(self, **figures: float) -> None:
        """Let spectators know the algorithm's latest figures."""
        self.progress.figures.update(figures)
        self._write("figures", round=self.progress.round, **figures)
        self._on_progress(self)

    # The life of a federation.

    def assemble(self) -> None:
        """Send everybody the roster; every site takes in its partition and answers.

        Raises SitesLost, naming the sites, when some do not.
        """
        deadline = Deadline(self._round_timeout_s)
        self._endpoint.admit(self._views(self._endpoint.name, self._roster))
        for site in self.sites:
            self._endpoint.connect(site)
        with suppress(DeadlineExpired, EndpointError):
            self._send_roster(self.sites, deadline)
        if left := self._left({}, deadline):
            raise SitesLost(left, self._label, "Every site must be there when a run begins.")
        self._close_books()

    def dismiss(self) -> None:
        """Tell the sites to stop and take in their final reports; the launcher ends those that do not answer."""
        self._aborting = self._over = True
        self._tell(self.membership.reachable, "stop")
        with suppress(DeadlineExpired):  # whoever is silent now is ended by the launcher
            while awaited := self.membership.responsive - self.final_reports.keys():
                self._await(
                    lambda: awaited - (self.membership.responsive - self.final_reports.keys()), Deadline(_GRACE_S)
                )
        self._close_books()

    # How a round is carried out.

    def _round(self, verb: _Verb) -> Any:
        """Carry out a verb, as often as it takes until it is complete with the sites that are there."""
        if self._phase_is_new:
            self._phase_is_new = False
            self._readmit()
        in_vain, hope = 0, Deadline(_PATIENCE * self._round_timeout_s)
        while not in_vain or not (hope.expired or in_vain == _MAX_REPEATS):
            attempt = self._once(verb)
            if attempt.left:
                self._go_on_without(attempt.left)
                in_vain, hope = 0, Deadline(_PATIENCE * self._round_timeout_s)
            if attempt.complete:
                return attempt.value
            in_vain += 0 if attempt.left else 1
        waiting = {site: str(answer.fields.get("waiting", "")) for site, answer in self._answers.items()}
        raise RoundFailed(self._label, in_vain, waiting)

    def _once(self, verb: _Verb) -> _Attempt:
        began = time.monotonic()
        record = self._open_round(verb)
        self._order(self.sites, verb, record.phase, record.phase_round)
        attempt, hop = self._see_through(verb)
        if attempt.complete and verb.name == "sum":
            self._disclose_differences(verb)
        record.hops = max([hop, *(int(answer.fields.get("hop", 0)) for answer in self._answers.values())])
        record.seconds, record.aborted = time.monotonic() - began, not attempt.complete
        self._close_books()
        self._write("round", **asdict(record))
        self._on_progress(self)
        return attempt

    def _open_round(self, verb: _Verb) -> RoundRecord:
        phase = self.progress.phase
        self.progress.round += 1
        self._phase_rounds[phase] += 1
        number, phase_round = self.progress.round, self._phase_rounds[phase]
        self._record = RoundRecord(number, phase, verb.name, verb.step, verb.protocol, phase_round, len(self.sites))
        self.accounts.rounds[number] = self._record
        self._asked = self.sites
        self._mailbox.enter(number)
        self._losses.clear()
        self._on_round(phase, phase_round)
        return self._record

    def _order(self, sites: Sequence[str], verb: _Verb, phase: str, phase_round: int) -> None:
        """Tell `sites` what to do together, and where in the run this is."""
        arrays = {name: value for name, value in verb.params.items() if isinstance(value, np.ndarray)}
        for name, array in arrays.items():
            self.disclose("sites", verb.step, f"parameter {name}", array.shape)
        fields = verb.terms | {
            "verb": verb.name,
            "step": verb.step,
            "protocol": verb.protocol,
            "phase": phase,
            "phase_round": phase_round,
            "sites": list(sites),
            "parameters": {name: value for name, value in verb.params.items() if name not in arrays},
            "timeout_s": _PATIENCE * (self._round_timeout_s + verb.work_s),
        }
        self._answers = {}
        self._send_all(sites, "order", fields, arrays)

    def _see_through(self, verb: _Verb) -> tuple[_Attempt, int]:
        """The coordinator's own part in the protocol, then everybody's answer."""
        deadline = Deadline(self._round_timeout_s + verb.work_s)
        channel = self._channel(deadline, self._losses)
        value, revealed = None, False
        with suppress(DeadlineExpired, EndpointError):
            value, revealed = verb.take_part(channel), True
            deadline = Deadline(self._round_timeout_s + verb.work_s)  # the protocol may have used up its own
            self._await(lambda: self._in_vain(verb) or not self._unanswered(channel.missing), deadline)
        if self._unanswered(channel.missing):
            self._abort(deadline, channel.missing)
        self._tell(channel.missing, "abort")
        self._record.missing = {site: channel.taken[site] for site in channel.missing}
        if not revealed and not channel.taken:
            value, revealed = self._revealed_nevertheless(verb)
        left = self._left(channel.missing, deadline)
        done = all(answer.kind == "done" for site, answer in self._answers.items() if site not in left)
        return _Attempt(revealed and (done or not verb.ends_at_sites), value, left), channel.hop

    def _channel(self, deadline: Deadline, losses: dict[str, str]) -> SocketChannel:
        order = Message("order", self._run, self._record.round)
        observers = [self._transcript.begin_round(order.round)] if self._transcript is not None else []
        return SocketChannel(self._mailbox, self.sites, order, deadline, losses=losses, observers=observers)

    def _abort(self, deadline: Deadline, missing: Mapping[str, str]) -> None:
        """Somebody waits in vain: a site that waits for another answers, one that hangs does not.

        Who is only late may still answer within the round's deadline.
        """
        self._aborting = True
        untold = set(self.sites)

        def all_answered() -> bool:
            untold.difference_update(self._tell(untold, "abort"))  # some can be reached a little later only
            return not self._unanswered(missing)

        with suppress(DeadlineExpired):
            self._await(all_answered, Deadline(max(_GRACE_S, deadline.remaining_ms() / 1000)))
        self._aborting = False

    def _in_vain(self, verb: _Verb) -> bool:
        """Whether sites may wait for one that is lost, or for a message that is. A sum that is revealed is over."""
        return verb.ends_at_sites and bool(self._losses or self._endpoint.interrupted & set(self.sites))

    def _revealed_nevertheless(self, verb: _Verb) -> tuple[Any, bool]:
        """A sum that a site sent before the round was aborted stands; it must not be revealed for others too."""
        if any(int(answer.fields.get("sent_to_coordinator", 0)) for answer in self._answers.values()):
            with suppress(DeadlineExpired, EndpointError):
                return verb.take_part(self._channel(Deadline(_GRACE_S), {})), True
        return None, False

    def _disclose_differences(self, verb: _Verb) -> None:
        """The same sum over other sites gives away, by subtraction, what those put in that are in one of them only."""
        contributed = frozenset(self._asked).difference(self._record.missing)
        earlier = self._summed[verb.step, _digest(verb.params)]
        for others in earlier if contributed not in earlier else ():
            named = ", ".join(site for site in self.membership.all_sites if site in others ^ contributed)
            form = f"the difference of two sums, which is that of {named}"
            self.disclose("coordinator", verb.step, form, verb.terms["shape"])
        earlier.add(contributed)

    def _unanswered(self, missing: Mapping[str, str]) -> set[str]:
        """Sites whose answer is still to come."""
        return set(self.sites) - self._answers.keys() - self.membership.ended.keys() - missing.keys()

    def _left(self, missing: Mapping[str, str], deadline: Deadline) -> dict[str, str]:
        """The sites that this round lost, and why."""
        silent = dict.fromkeys(self._unanswered(missing), f"it did not answer within {deadline.seconds:g} s")
        ended = {site: self.membership.ended[site] for site in self.sites if site in self.membership.ended}
        return {site: why for site, why in {**missing, **silent, **ended}.items() if site in self.sites}

    # Sites that leave and join.

    def _go_on_without(self, left: Mapping[str, str]) -> None:
        """Raises SitesLost if the others cannot or must not, MembershipChanged if rounds build on each other."""
        joined = tuple(site for site in left if site in self.membership.ended and self._revive(site))
        if self.membership.why_needed and self.membership.survival.on_dropout == "continue":
            joined += self._wait_for([site for site in left if site not in {*joined, *self.membership.ended}])
        self._change_membership(left, joined)

    def _wait_for(self, late: Sequence[str]) -> tuple[str, ...]:
        """The sites that answer within the time of a round after all, and took in the public state."""
        untold = set(late)

        def all_answered() -> bool:
            untold.difference_update(self._tell(untold, "abort"))
            return all(site in self._answers or site in self.membership.ended for site in late)

        with suppress(DeadlineExpired):
            self._await(all_answered, Deadline(self._round_timeout_s))
        return tuple(site for site in late if site in self._answers and self._catch_up(site))

    def _revive(self, site: str) -> bool:
        """Start a lost site again, as a new process with new keys. Whether it is ready to take part."""
        party = self.membership.survival.revive(site)
        if party is None:
            return False
        del self.membership.ended[site]
        self._losses.pop(site, None)
        self._roster = self._roster.replaced(party)
        self._endpoint.admit(self._views(self._endpoint.name, self._roster))
        others = tuple(other for other in self.sites if other != site)
        with suppress(DeadlineExpired):
            self._send_roster(others, Deadline(self._round_timeout_s))
        return self._catch_up(site)

    def _readmit(self) -> None:
        """Let in the sites that answer again, and ask those that do not."""
        if self.membership.why_needed:
            return
        back = tuple(site for site in self.membership.out if site in self.membership.returned and self._catch_up(site))
        self._tell(self.membership.out, "abort")
        if back:
            self._change_membership({}, back)

    def _change_membership(self, left: Mapping[str, str], joined: tuple[str, ...]) -> None:
        self._write("membership", round=self.progress.round, left=dict(left), joined=list(joined))
        try:
            self.membership.change(self.progress.round, self.progress.phase, left, joined, self._label)
        finally:
            self._on_progress(self)
        if self._fixed:
            raise MembershipChanged

    def _catch_up(self, site: str) -> bool:
        """Tell a site who takes part and all that the public state consists of. Whether it took it in."""
        deadline = Deadline(self._round_timeout_s)
        try:
            self._send_roster((site,), deadline)
            self._await_done(site, deadline)
            for verb in self._remembered.values():
                self._order((site,), verb, phase="", phase_round=0)
                self._await_done(site, deadline)
        except (DeadlineExpired, EndpointError):
            return False
        return True

    def _await_done(self, site: str, deadline: Deadline) -> None:
        """Raises EndpointError if the site ends, or answers anything but done."""
        self._await(lambda: site in self._answers or site in self._unreachable, deadline)
        if site not in self._answers or self._answers[site].kind != "done":
            raise EndpointError(f"{site} did not take in the public state")

    # Messages to sites, and what comes of them.

    def _send_roster(self, sites: Sequence[str], deadline: Deadline) -> None:
        """Tell sites who takes part and wait until they know. Raises DeadlineExpired."""
        self._answers = {}
        for site in sites:
            view = self._views(site, self._roster)
            self._send_all((site,), "roster", {"parties": view.to_fields()}, {})
        self._await(lambda: all(site in self._answers or site in self._unreachable for site in sites), deadline)

    @property
    def _unreachable(self) -> set[str]:
        return self.membership.ended.keys() | self._losses.keys()

    def _send_all(
        self, sites: Sequence[str], kind: str, fields: dict[str, Any], arrays: dict[str, NDArray[Any]]
    ) -> None:
        """Send to all of these sites. One that cannot be reached is lost to this round."""
        message = Message(kind, self._run, self._record.round, fields=fields, arrays=arrays)
        deadline = Deadline(self._round_timeout_s)
        for site in sites:
            try:
                self._mailbox.send(site, message, deadline, self.membership.ended)
            except EndpointError as error:
                self._losses[site] = str(error).rstrip(".")

    def _tell(self, sites: Iterable[str], kind: str) -> set[str]:
        """Send word to those of the sites that can be reached without waiting, once; those that were sent it."""
        message = Message(kind, self._run, self._record.round)
        told = self._told[kind, self._record.round]
        for site in sorted(set(sites) - told):
            with suppress(EndpointError):
                self._mailbox.send(site, message, Deadline(0), self.membership.ended)
                told.add(site)
        return told & set(sites)

    def _await(self, condition: Callable[[], object], deadline: Deadline) -> None:
        while not condition():
            self._mailbox.pump(deadline)

    def _control(self, peer: str, message: Message, answer: bool) -> None:
        """Take note of what a site answers, and believe nothing of its form."""
        try:
            self._note_answer(peer, message, answer)
        except (KeyError, TypeError, ValueError) as error:
            raise SiteFailed(peer, self._label, f"its {message.kind} answer makes no sense ({error!r})") from error

    def _note_answer(self, peer: str, message: Message, answer: bool) -> None:
        if peer not in self.membership.all_sites or not answer:
            self._mailbox.refused["answer from a stranger"] += 1
            return
        self.accounts.enter(peer, message.fields.get("ledger", []))
        if message.kind == "final_report":
            self.final_reports[peer] = message.fields
        elif message.kind not in {"done", "aborted", "failed"}:
            self._mailbox.refused["order from a site"] += 1
        else:
            self._note_outcome(peer, message)

    def _note_outcome(self, peer: str, message: Message) -> None:
        """How a step ended at a site. One that is out shows by answering that it is back."""
        if peer in self.membership.out:
            self.membership.returned.add(peer)
        if message.round != self._record.round:
            self._mailbox.refused["stale"] += 1
            return
        self._answers.setdefault(peer, message)
        if message.kind == "failed" and peer in self.sites and not self._aborting:
            if not message.fields["cut_off"]:
                raise SiteFailed(peer, self._label, message.fields["reason"], message.fields["traceback"])
            self._losses[peer] = message.fields["reason"]

    def _watch(self) -> None:
        for ended in self._launcher.ended():
            if self._over and ended.well:  # its final_report may still be on its way
                continue
            self.membership.ended[ended.site] = f"its process {ended.how}"
            if ended.site in self.sites:
                self._losses[ended.site] = self.membership.ended[ended.site]

    def _write(self, event: str, **values: Any) -> None:
        self.log.append({"event": event, "at_s": round(time.monotonic() - self.began, 6), **values})

    def _close_books(self) -> None:
        self._endpoint.measure(self._record.round)
        self.accounts.enter(self._endpoint.name, self._endpoint.ledger.take())

    @property
    def _label(self) -> str:
        record = self._record
        return f"round {record.round} ({record.phase}, step {record.step})"


def _digest(params: Mapping[str, Any]) -> bytes:
    """What tells the parameters of two rounds apart."""
    found = hashlib.sha256()
    for name, value in sorted(params.items()):
        content = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
        found.update(f"{name} {len(content)} ".encode() + content)
    return found.digest()
