"""The coordinator: drives the rounds of an algorithm with three verbs, and holds no data.

    total  = federation.sum(step, shape=…, bound=…, **params)      # secure sum of what `step` returns at every site
    values = federation.gather(step, shape=…, **params)            # every site's value, written down as a disclosure
             federation.run(step, **params)                        # a local step everywhere, nothing comes back

`shape` and `bound` are public parameters of the round: a site reveals nothing of another shape, and refuses values
beyond the bound. `params` are arrays and scalars that every site receives.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from federation.arrays import FloatArray
from federation.channel import Mailbox, SocketChannel
from federation.deadline import Deadline
from federation.endpoint import Endpoint
from federation.errors import DeadlineExpired, EndpointError, RoundTimeout, SiteFailed, SiteLost
from federation.keys import Roster
from federation.ledger import LAUNCH, Accounts, RoundRecord
from federation.program import SumProtocol
from federation.wire import Message

_GRACE_S = 2.0
"""How long sites may stay silent when a round is called off, or the run is over."""


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


class Federation:
    """The live sites of a run, and the verbs that make them work.

    `on_progress` is called after every round and whenever the algorithm has new figures. `log` is all of that in the
    order it happened, as plain values.
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
    ) -> None:
        self.sites = tuple(party.name for party in roster if party.name != endpoint.name)
        self.accounts = Accounts()
        self.progress = Progress()
        self.log: list[dict[str, Any]] = []
        self.farewells: dict[str, dict[str, Any]] = {}
        self.phase_seconds: dict[str, float] = defaultdict(float)
        self._endpoint = endpoint
        self._roster = roster
        self._run = run
        self._launcher = launcher
        self._protocol = sum_protocol
        self._round_timeout_s = round_timeout_s
        self._on_progress = on_progress
        self._mailbox = Mailbox(endpoint, run, self._control)
        self._disclosures: dict[tuple[str, str, str, tuple[int, ...]], Disclosure] = {}
        self._answers: dict[str, Message] = {}
        self._record = LAUNCH
        self._present = set(self.sites)
        self._calling_off = self._over = False
        endpoint.watch(launcher.fileno(), self._watch)

    # The verbs.

    def sum(self, step: str, *, shape: Sequence[int], bound: float, **params: Any) -> FloatArray:
        """The sum over all live sites of what `step` returns there.

        shape: of the value. bound: no entry of the sum can exceed it in size; math.inf where nothing is known.
        Raises FederationError, naming the site and the round, when a site fails, is lost or is late.
        """
        self.disclose("coordinator", step, self._protocol.discloses, shape)
        terms = {"shape": list(shape), "bound": float(bound), "options": dict(self._protocol.options)}
        total: FloatArray = self._round("sum", step, self._protocol.name, terms, params, self._reveal(shape, bound))
        return total

    def gather(self, step: str, *, shape: Sequence[int], **params: Any) -> dict[str, FloatArray]:
        """Every live site's value in the clear."""
        self.disclose("coordinator", step, "value", shape)

        def collect(channel: SocketChannel) -> dict[str, FloatArray]:
            return {site: channel.receive(site, shape, np.float64) for site in self.sites}

        values: dict[str, FloatArray] = self._round("gather", step, "gather", {"shape": list(shape)}, params, collect)
        return values

    def run(self, step: str, **params: Any) -> None:
        """Run a local step everywhere; nothing comes back. `step` may run a protocol among the sites."""
        self._round("run", step, step, {}, params, lambda channel: None)

    def disclose(self, to: str, step: str, form: str, shape: Sequence[int]) -> None:
        """Write down something that a party learns."""
        key = (to, step, form, tuple(shape))
        self._disclosures.setdefault(key, Disclosure(*key)).times += 1

    @property
    def disclosures(self) -> list[Disclosure]:
        """All that was written down, in the order it first happened."""
        return list(self._disclosures.values())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the rounds within under `name`."""
        self.progress.phase = name
        self._on_progress(self)
        began = time.monotonic()
        try:
            yield
        finally:
            self.phase_seconds[name] += time.monotonic() - began

    def note(self, **figures: float) -> None:
        """Let spectators know the algorithm's latest figures."""
        self.progress.figures.update(figures)
        self.log.append({"event": "figures", "round": self.progress.round, **figures})
        self._on_progress(self)

    # The life of a federation.

    def assemble(self) -> None:
        """Send everybody the roster; every site takes in its partition and answers.

        Raises FederationError, naming the site, when one does not.
        """
        deadline = Deadline(self._round_timeout_s)
        self._endpoint.admit(self._roster)
        for site in self.sites:
            self._endpoint.connect(site)
        try:
            self._broadcast("roster", {"parties": self._roster.to_fields()}, {})
            self._await(self._all_answered, deadline)
        except (DeadlineExpired, EndpointError) as error:
            self._find_culprit(error, deadline)
        self._close_books(0)

    def dismiss(self) -> None:
        """Tell the sites to stop and take in their farewells; those that do not answer are the launcher's to end."""
        self._calling_off = self._over = True
        self._tell_all("stop")
        with suppress(DeadlineExpired):  # whoever is silent now is ended by the launcher
            while awaited := self._present - self.farewells.keys():
                self._await(lambda: awaited & self.farewells.keys(), Deadline(_GRACE_S))
        self._close_books(self._record.round)

    # How a round is carried out.

    def _round(
        self,
        verb: str,
        step: str,
        protocol: str,
        terms: dict[str, Any],
        params: Mapping[str, Any],
        take_part: Callable[[SocketChannel], Any],
    ) -> Any:
        number = self.progress.round + 1
        self.progress.round = number
        self._record = RoundRecord(number, self.progress.phase, verb, step, protocol)
        self.accounts.rounds[number] = self._record
        began = time.monotonic()
        deadline = Deadline(self._round_timeout_s)
        self._order(verb, step, protocol, terms, params)
        result, hops = self._see_through(take_part, deadline)
        self._record.hops, self._record.seconds = hops, time.monotonic() - began
        self._close_books(number)
        self.log.append({"event": "round", **asdict(self._record)})
        self._on_progress(self)
        return result

    def _order(self, verb: str, step: str, protocol: str, terms: dict[str, Any], params: Mapping[str, Any]) -> None:
        arrays = {name: value for name, value in params.items() if isinstance(value, np.ndarray)}
        scalars = {name: value for name, value in params.items() if name not in arrays}
        for name, array in arrays.items():
            self.disclose("sites", step, f"parameter {name}", array.shape)
        self._mailbox.enter(self._record.round, self._record.attempt)
        fields: dict[str, Any] = {"verb": verb, "step": step, "protocol": protocol, "sites": list(self.sites)}
        fields |= {"timeout_s": self._round_timeout_s, "parameters": scalars}
        self._broadcast("order", fields | terms, arrays)

    def _see_through(self, take_part: Callable[[SocketChannel], Any], deadline: Deadline) -> tuple[Any, int]:
        """The coordinator's own part in the protocol, then everybody's answer."""
        order = Message("order", self._run, self._record.round, self._record.attempt)
        channel = SocketChannel(self._mailbox, self.sites, order, deadline)
        try:
            result = take_part(channel)
            self._await(self._all_answered, deadline)
        except (DeadlineExpired, EndpointError, SiteFailed) as error:
            if isinstance(error, SiteFailed) and not error.cut_off:
                raise
            self._find_culprit(error, deadline)
        return result, max([channel.hop, *(int(answer.fields.get("hop", 0)) for answer in self._answers.values())])

    def _reveal(self, shape: Sequence[int], bound: float) -> Callable[[SocketChannel], FloatArray]:
        return lambda channel: self._protocol.reveal(channel, shape, bound)

    def _find_culprit(self, error: Exception, deadline: Deadline) -> NoReturn:
        """Somebody waits in vain. Call the round off: a site that waits for another answers, one that hangs does not.

        Raises SiteLost if a process is found to have ended, RoundTimeout for sites that do not answer, and else
        `error` as it is.
        """
        self._calling_off = True
        self._answers = {}
        self._tell_all("abort")
        with suppress(DeadlineExpired):
            self._await(self._all_answered, Deadline(_GRACE_S))
        silent = tuple(site for site in self.sites if site not in self._answers)
        if silent or deadline.expired:
            raise RoundTimeout(self._label, deadline.seconds, silent) from error
        raise error

    def _broadcast(self, kind: str, fields: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        message = Message(kind, self._run, self._record.round, self._record.attempt, fields=fields, arrays=arrays)
        self._answers = {}
        for site in self.sites:
            self._mailbox.send(site, message, Deadline(self._round_timeout_s))

    def _tell_all(self, kind: str) -> None:
        """Send word to the sites that can be reached without waiting."""
        message = Message(kind, self._run, self._record.round, self._record.attempt)
        for site in sorted(self._present):
            with suppress(EndpointError):
                self._mailbox.send(site, message, Deadline(0))

    def _all_answered(self) -> bool:
        return len(self._answers) == len(self.sites)

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
        current = (message.round, message.attempt) == (self._record.round, self._record.attempt)
        if peer not in self.sites or not answer:
            self._mailbox.refused["answer from a stranger"] += 1
        elif message.kind == "farewell":
            self.farewells[peer] = message.fields
            self.accounts.enter(peer, message.fields["ledger"])
        elif message.kind in {"done", "aborted", "failed"} and current:
            self._answers[peer] = message
            self.accounts.enter(peer, message.fields.get("ledger", []))
            if message.kind == "failed" and not self._calling_off:
                raise self._failure(peer, message.fields)
        else:
            self._mailbox.refused["stale"] += 1

    def _failure(self, site: str, fields: dict[str, Any]) -> SiteFailed:
        return SiteFailed(site, self._label, fields["reason"], fields["traceback"], cut_off=bool(fields["cut_off"]))

    def _watch(self) -> None:
        for ended in self._launcher.ended():
            if not ended.well:  # the farewell of a site that ended well may still be on its way
                self._present.discard(ended.site)
            if not self._over:
                raise SiteLost(ended.site, ended.how, self._label)

    def _close_books(self, round_number: int) -> None:
        self._endpoint.measure(round_number)
        self.accounts.enter(self._endpoint.name, self._endpoint.ledger.take())

    @property
    def _label(self) -> str:
        record = self._record
        return f"round {record.round} ({record.phase}, step {record.step})"
