"""The site process: receives an order, runs the step, runs the protocol, answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.channel.envelope import Sealer
from fedsvm.federation.channel.interface import Draw, Observer, uniform_residues
from fedsvm.federation.channel.mailbox import Mailbox
from fedsvm.federation.channel.socket import SocketChannel
from fedsvm.federation.channel.transcript import Transcript
from fedsvm.federation.control import (
    Abort,
    GatherTerms,
    MissedOrders,
    Order,
    RosterUpdate,
    RunOver,
    SumTerms,
    read_interrupt,
    read_order,
)
from fedsvm.federation.errors import (
    BoundExceeded,
    DeadlineExpired,
    Malformed,
    OrderRefused,
    RoundAborted,
    SiteStopped,
    StepRefused,
)
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.faults import OwnFaults
from fedsvm.federation.site.order_admission import OrderAdmission
from fedsvm.federation.site.partition import Partition, read_partition
from fedsvm.federation.site.program import Installation, SiteProgram, StepMark, mark_of, script_of
from fedsvm.federation.site.receipt import IN_CLEAR, IN_SUM, NO_VALUE, Receipt
from fedsvm.federation.site.replies import SiteReplies
from fedsvm.federation.site.resources import free_unused_memory
from fedsvm.federation.site.site_journal import EndOfRecordError, ReplayChannel, SiteJournal
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.descriptors import descriptors_explained
from fedsvm.federation.transport.keys import COORDINATOR, Roster
from fedsvm.federation.transport.message_transport import MessageTransport, Received
from fedsvm.federation.transport.signing import SigningKey
from fedsvm.federation.transport.wire import HELLO_KIND, Message

_LOST = "its journal is incomplete and cannot be replayed; start a new run"
_REACH_S = 30.0
"""Maximum seconds, after a roster, in which a site that communicates through the coordinator must become reachable."""


class Site:
    """A site in one run. It carries out the coordinator's orders, one at a time.

    Parameters
    ----------
    assignment : Assignment
        The site's name, its run, its policy, and its files.
    installation : Installation
        The programs and sums that it can run.
    endpoint : MessageTransport
        Its connections.
    agreement : KeyAgreement or None
        Its key pair for secrets shared with other sites; None if the run needs none.
    faults : OwnFaults
        The faults that it inflicts on itself.
    on_failure : callable, optional
        Receives the reason why an order was refused or a step failed, for the site's operator.
    draws : callable, optional
        Returns the source of random vectors of a round, given its number and its link in the chain of orders; by
        default the operating system's.
    on_pause : callable, optional
        Receives the reason why a run failed that may be resumed, and "" when it is resumed.
    partition : Partition, optional
        The site's data; by default that of the assignment's file.
    receipt : Receipt, optional
        The site's record of the run, if it was begun before; by default one at the assignment's path.
    """

    def __init__(
        self,
        assignment: Assignment,
        installation: Installation,
        endpoint: MessageTransport,
        agreement: KeyAgreement | None,
        faults: OwnFaults,
        on_failure: Callable[[str], None] = lambda reason: None,
        draws: Callable[[int, bytes], Draw] = lambda number, link: uniform_residues,
        on_pause: Callable[[str], None] = lambda failure: None,
        partition: Partition | None = None,
        receipt: Receipt | None = None,
    ) -> None:
        self._assignment = assignment
        self._on_failure = on_failure
        self._on_pause = on_pause
        self._paused: SiteStopped | None = None
        self._draws = draws
        self._partition = partition
        self._policy = assignment.policy
        self._installation = installation
        self._endpoint = endpoint
        self._agreement = agreement
        self._faults = faults
        path = assignment.transcript_path
        self._transcript = Transcript(path, colludes=assignment.colludes) if path else None
        self._journal = SiteJournal(assignment.journal_path) if assignment.journal_path else None
        self._receipt, self._has_asked = receipt or _own_receipt(assignment), receipt is not None
        self._mailbox = Mailbox(endpoint, assignment.run)
        if assignment.via_coordinator and agreement is not None:
            self._mailbox.sealer = Sealer(assignment.name, agreement, lambda peer: endpoint.roster[peer].agreement_key)
        self._orders: list[Message] = []
        self._current: Message | None = None
        self._channel: SocketChannel | None = None
        self._last_step = ""
        self._program: SiteProgram | None = None
        self._admission = OrderAdmission(assignment, installation)
        self._replies = SiteReplies(assignment, endpoint, self._receipt, on_failure)

    @property
    def activity(self) -> str:
        """Return in words what the site does or waits for now. Another thread may call this."""
        current, channel = self._current, self._channel
        if self._paused is not None:
            return "waits for the run to be resumed"
        if current is None:
            return f"waits for the coordinator's next order, after round {self._endpoint.round}"
        waiting_for = "" if channel is None else channel.waiting_for
        return f"waits for {waiting_for} in round {current.round}" if waiting_for else f"computes round {current.round}"

    def serve(self) -> SiteStopped | None:
        """Carry out orders until the run is over, and return how it ended.

        Returns
        -------
        SiteStopped or None
            How the coordinator ended it; None if the coordinator fell silent.
        """
        with self._replies.forwarding_logs():
            return self._serve()

    def _serve(self) -> SiteStopped | None:
        try:
            while True:
                try:
                    self._carry_out(self._next_order())
                except SiteStopped as end:
                    waits = end.resumable and self._assignment.resume_s
                    if not waits:  # before the report, after which the process may be ended
                        self._close_receipt(end.failure or "completed")
                    self._replies.report_end()
                    if not waits:
                        return end
                    self._pause(end)
        except DeadlineExpired:
            self._close_receipt("the coordinator was silent" if self._paused is None else "it was not resumed")
            self._replies.report_end()
            return self._paused

    def _pause(self, end: SiteStopped) -> None:
        """Leave the current round and keep the state: another coordinator may resume the run."""
        self._current = self._channel = None
        self._orders.clear()
        self._paused = end
        self._receipt.record_paused(end.failure)
        self._on_pause(end.failure)

    def _close_receipt(self, outcome: str) -> None:
        try:
            self._admission.signatures.settle()
        except OrderRefused as error:
            outcome = str(error)
            self._on_failure(outcome)
        with suppress(StepRefused):  # the run is over, and the receipt shows that its end is missing
            self._receipt.record_ended(outcome, self._endpoint.refused)

    # Messages of the coordinator.

    def _next_order(self) -> Message:
        self._notice()
        if self._program is not None and not self._orders:
            with suppress(Exception):
                self._program.work_ahead()
        silence = Deadline(self._assignment.patience_s if self._paused is None else self._assignment.resume_s)
        while not self._orders:
            self._mailbox.wait(silence)
            self._notice()
        if self._paused is not None:
            self._paused = None
            self._receipt.record_resumed()
            self._on_pause("")
        return self._orders.pop(0)

    def _notice(self) -> None:
        """Process the control messages that arrived, also during a protocol.

        Raises RoundAborted if the current round was aborted, and SiteStopped if the run is over.
        """
        while (received := self._mailbox.next_control()) is not None:
            self._obey(received)

    def _obey(self, received: Received) -> None:
        peer, message, answer = received
        if peer != COORDINATOR or answer:
            self._mailbox.refused["order from a site"] += 1
        elif message.kind not in (RunOver.kind, Abort.kind):
            self._orders.append(message)
        else:
            try:
                interrupt = read_interrupt(message)
            except Malformed as error:
                self._mailbox.refused[f"malformed: {error}"] += 1
                return
            if isinstance(interrupt, RunOver):
                raise SiteStopped(interrupt.failure, resumable=interrupt.resumable)
            self._abort(message.round)

    def _abort(self, number: int) -> None:
        """Leave the round that is aborted, or one before it whose end this site missed.

        If its order has just arrived, this site begins and ends the round now. Otherwise it would be too far behind for
        messages of faster peers in the next round.
        """
        self._mailbox.enter(number)
        self._orders = [order for order in self._orders if order.round > number]
        if self._current is not None and self._current.round <= number:
            raise RoundAborted(number)
        self._replies.report_aborted(number, self._channel)

    # Carrying out an order.

    def _carry_out(self, message: Message) -> None:
        """Carry out one order, unless the site's own configuration forbids it, and report how it ended."""
        self._current, self._channel = message, None
        number, last, order = message.round, self._endpoint.round, None
        self._mailbox.enter(number)
        try:
            order = read_order(message, self._policy.sites)
            with descriptors_explained(self._endpoint.name):
                if isinstance(order, RosterUpdate):
                    self._join(order)
                elif isinstance(order, MissedOrders):
                    self._miss(order)
                else:
                    self._receipt.record_ordered(order, number)
                    self._admission.check_round(order, number, last)
                    form = self._run_round(order, number)
                    self._receipt.record_left(order, number, form)
            self._replies.report_done(number, self._channel)
        except RoundAborted as aborted:
            self._replies.note_broken(number, "the round was aborted")
            self._replies.report_aborted(aborted.round, self._channel)
        except SiteStopped:
            self._replies.note_broken(number, "the run ended before it was complete")
            raise
        except Exception as error:  # noqa: BLE001 - the coordinator reports any error of a step
            if isinstance(error, BoundExceeded):
                self._admission.note_exceeded()
            self._replies.report_failed(
                number, self._channel, error, order.protocol if isinstance(order, Order) else ""
            )
        self._current = self._channel = None

    def _join(self, update: RosterUpdate) -> None:
        """Process a roster; the first time also load the partition."""
        if self._program is None and not self._has_asked:
            self._receipt.record_asked(self._assignment.run, self._assignment.name, *self._policy.to_record())
            self._has_asked = True
        self._admit_parties(update.parties)
        self._admission.signatures.require_next()
        if self._program is None:
            self._start_program()
        else:
            self._admission.note_change()

    def _admit_parties(self, parties: Roster) -> None:
        """Accept connections of these parties alone. Raises OrderRefused if they are not those of the policy."""
        self._receipt.record_parties(parties)
        self._policy.check_roster(parties, self._endpoint.roster, self._endpoint.name)
        self._policy.check_pins(parties, self._assignment.run, self._endpoint.name)
        self._endpoint.admit(parties)
        if self._mailbox.sealer is not None:
            hello = Message(HELLO_KIND, self._assignment.run, self._endpoint.round)
            self._endpoint.stay_reachable(COORDINATOR, hello, Deadline(_REACH_S))

    def _start_program(self) -> None:
        """Agree to the run, and bring the program to the state of an earlier process of this site.

        Raises OrderRefused for a run that the policy or the operator's rules forbid.
        """
        program = self._read_program()
        self._policy.rules.check_held(*program.data_summary())
        self._receipt.record_joined(self._policy.sites, *program.data_summary(), self._admission.chain_start)
        self._admission.check_colluders()
        self._policy.agree(self._assignment.run, type(program), self._admission.script)
        self._note_charge()
        if self._journal is not None:
            self._replay(program, self._journal)
        self._program = program

    def _read_program(self) -> SiteProgram:
        """Return the program of the agreed terms over the partition of this site, and derive its script."""
        program_type, policy = self._installation.programs[self._assignment.program], self._policy
        if policy.script is None:  # otherwise the server that derived it has checked the settings
            policy.check_settings(self._installation.default_settings(self._assignment.program))
        name, settings, partition = self._assignment.name, self._assignment.settings, self._taken_partition()
        self._admission.begin(policy.script or script_of(program_type, policy.terms))
        return program_type.under_terms(name, partition, settings, policy.terms, policy.rules, self._charge_again)

    def _charge_again(self) -> None:
        if self._program is not None:  # otherwise the journal is replayed, and its releases are charged already
            self._policy.charge(self._assignment.run)
            self._note_charge()

    def _note_charge(self) -> None:
        if self._policy.terms.epsilon is not None:
            self._receipt.record_charged(self._policy.terms.epsilon)

    def _miss(self, missed: MissedOrders) -> None:
        """Move on in the script by the orders that only other sites received."""
        self._receipt.record_missed(missed)
        self._admission.miss(missed)
        if self._journal is not None:
            self._journal.record_missed(missed.to_message(self._assignment.run, self._endpoint.round))

    def _taken_partition(self) -> Partition:
        """Return this site's partition, and keep neither the file nor a reference."""
        partition, self._partition = self._partition, None
        if partition is None:
            partition = read_partition(self._assignment.partition_path)
            os.unlink(self._assignment.partition_path)  # noqa: PTH108 - see read_partition
        return partition

    def _replay(self, program: SiteProgram, journal: SiteJournal) -> None:
        """Repeat what an earlier process of this site did, to reach its state.

        Raises StepRefused if the journal is incomplete, for example after a power cut at this site alone.
        """
        needed, known = self._assignment.journal_has, {record.order.round for record in journal.earlier}
        if needed and needed not in known:
            raise StepRefused(_LOST)
        for record in journal.earlier:
            if record.order.kind == MissedOrders.kind:
                self._admission.retrace_missed(MissedOrders.from_message(record.order, self._policy.sites))
                continue
            order, number = Order.from_message(record.order, self._policy.sites), record.order.round
            if number <= self._assignment.journal_until:
                self._admission.retrace(order, number)
                channel = ReplayChannel(self._assignment.name, order.sites, len(self._policy.sites), record)
                try:
                    program.run_step(order.step, channel, order.arguments)
                except EndOfRecordError as error:  # it was aborted there
                    if number == needed:
                        raise StepRefused(_LOST) from error
                if may_be_opened(mark_of(program.find_step(order.step)), order):
                    self._admission.note_opened()
                if record.opened is not None:
                    program.take_opened(record.opened)
                elif number == needed and isinstance(order.terms, SumTerms) and order.terms.receiver == program.site:
                    raise StepRefused(_LOST)
            self._mailbox.enter(number)

    def _run_round(self, order: Order, number: int) -> str:
        """Run the step and release its value. Return the form in which the value left, for the receipt."""
        program, admission = self._program, self._admission
        if program is None:
            raise StepRefused("an order came before the roster")
        admission.check_step(order.step)
        mark = mark_of(program.find_step(order.step))
        link, arguments = admission.check_signature(order, number, mark), order.arguments
        self._free_memory(order.step)
        admission.check_order(order, mark)
        program.check_arguments(order.step, mark, arguments)
        if isinstance(order.terms, SumTerms):
            program.check_receiver(order.step, order.terms.receiver, order.sites)
        channel = self._open_channel(order, number, admission.admit(order, number, link))
        value = self._run_step(program, order.step, channel, arguments)
        if self._journal is not None:
            self._journal.end_step()
        if mark.shown:
            admission.note_opened()
        terms = order.terms
        if terms is None:
            return NO_VALUE
        if isinstance(terms, GatherTerms):
            channel.send(COORDINATOR, _as_announced(value, terms.shape, order.step))
            return IN_CLEAR
        protocol = admission.agreed_sum
        for peer in protocol.sends_to(channel.me, channel.sites) if self._mailbox.sealer is None else ():
            self._endpoint.connect(peer)  # all in parallel, before the protocol needs them one by one
        residues = protocol.encode(_as_announced(value, terms.shape, order.step), terms.bound, len(channel.sites))
        del value  # frees as much memory as the residues take, before those of others arrive
        if self._transcript is not None:
            self._transcript.put_in(residues, order.describe())
        opened = self._add_to_sum(channel, residues, terms, public=mark.public)
        if opened is not None:
            program.take_opened(opened)
            if self._journal is not None:
                self._journal.record_opened(opened)
        return IN_SUM if protocol.discloses == "sum" else IN_CLEAR

    def _add_to_sum(
        self, channel: SocketChannel, residues: Residues, terms: SumTerms, *, public: bool
    ) -> FloatArray | None:
        """Run this site's part of the agreed sum. Return the sum if this site receives or verifies it."""
        protocol = self._admission.agreed_sum
        total = protocol.contribute(channel, residues, terms.receiver)
        if terms.receiver == COORDINATOR:
            self._admission.note_opened()
            if public:
                total = protocol.verify(channel, residues)
        return None if total is None else protocol.decode(total, terms.shape, terms.bound, len(channel.sites))

    def _run_step(self, program: SiteProgram, step: str, channel: SocketChannel, arguments: Mapping[str, Any]) -> Any:
        """Run a step and return its value. If its protocol opened a sum, note it, even if the step fails after that."""
        try:
            value = program.run_step(step, channel, arguments)
        finally:
            if channel.has_opened:
                self._admission.note_opened()
        self._receipt.record_answered(program.answers.spent_mu)
        return value

    def _free_memory(self, step: str) -> None:
        """Return unused memory to the system before another step; a repeated step needs as much again."""
        if step != self._last_step:
            free_unused_memory()
            self._last_step = step

    def _open_channel(self, order: Order, number: int, link: bytes) -> SocketChannel:
        """Open the channel of a round, for the protocol and for steps that run one. link: the round's link in the
        chain."""
        observers: list[Observer] = [*self._faults.begin_round(order.phase, order.phase_round)]
        if self._transcript is not None:
            observers.append(self._transcript.begin_round(number))
        observers.append(self._receipt.begin_step(link))
        if self._journal is not None:
            observers.append(self._journal.begin(order.to_message(self._assignment.run, number)))
        self._channel = SocketChannel(
            self._mailbox,
            order.sites,
            len(self._policy.sites),
            number,
            Deadline(order.timeout_s),
            self._notice,
            agreement=self._agreement,
            observers=observers,
            draw=self._draws(number, link),
            link=link,
            min_sites=self._policy.terms.min_sites,
        )
        return self._channel


def _own_receipt(assignment: Assignment) -> Receipt:
    """Return the receipt of a site process, with a new key; one that writes nothing, if the assignment has no path."""
    key = SigningKey() if assignment.receipt_path else None
    coordinator_key = assignment.coordinator_signing_key
    return Receipt(assignment.receipt_path, assignment.version, key=key, coordinator_key=coordinator_key)


def may_be_opened(mark: StepMark, order: Order) -> bool:
    """Return whether the coordinator may have opened a part of this site in a complete round of an order."""
    terms = order.terms
    return bool(mark.shown) or (isinstance(terms, SumTerms) and terms.receiver == COORDINATOR)


def _as_announced(value: NDArray[Any] | float, shape: tuple[int, ...], step: str) -> FloatArray:
    """Return the value of a step as float64. Raises BoundExceeded for a value of another shape than announced."""
    array = np.asarray(value, dtype=np.float64)
    if array.shape != shape:
        raise BoundExceeded(f"step {step!r} computed a value of another shape than {shape}, which was announced")
    return array
