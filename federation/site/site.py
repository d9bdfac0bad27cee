"""The site process: receives an order, runs the step, runs the protocol, answers."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from federation.arrays import FloatArray
from federation.channel.agreement import KeyAgreement
from federation.channel.socket import Mailbox, Observer, SocketChannel
from federation.channel.transcript import Transcript
from federation.errors import (
    BoundExceeded,
    DeadlineExpired,
    EndpointError,
    FederationError,
    RoundAborted,
    StepRefused,
    Stopped,
)
from federation.site.faults import OwnFaults
from federation.site.partition import read_partition
from federation.site.program import Installation, SiteProgram
from federation.transport.deadline import Deadline
from federation.transport.endpoint import Endpoint
from federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from federation.transport.wire import Message

MAX_SILENCE_S = 3600.0
"""A coordinator that gave no order for this long is taken for dead."""

_MAX_TRACEBACK = 16_000
_TERMS = ("step", "protocol", "options", "sites", "bound", "shape", "opened_by")
"""What of an order says how a secure sum was made."""


@dataclass(frozen=True)
class Assignment:
    """What a launcher tells a site process. Plain values only: it crosses a process boundary.

    faults: those that this site does to itself, see `faults`. transcript_path: where it writes its transcript, see
    `transcript`; empty in a run that nobody audits. needs_pairwise_keys: whether it makes a key pair to agree on
    secrets with.
    """

    name: str
    run: bytes
    listen: str
    peers: int
    encrypted: bool
    coordinator_address: str
    coordinator_key: bytes | None
    program: str
    partition_path: str
    settings: dict[str, Any] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    transcript_path: str = ""
    colludes: bool = False
    needs_pairwise_keys: bool = False

    def to_fields(self) -> dict[str, Any]:
        """Plain values for the launcher's pipe."""
        return asdict(self)

    @property
    def coordinator(self) -> Party:
        return Party(COORDINATOR, self.coordinator_address, self.coordinator_key)


def run_site(
    assignment: Assignment, installation: Installation, report: Callable[[dict[str, Any]], None], lifeline: int
) -> None:
    """Live the life of one site: open the endpoint, report in, carry out orders until told to stop.

    `report` tells the launcher: first who this site is, then what faults it does to itself. `lifeline` is a
    descriptor that becomes readable when the launcher is gone. Raises EndpointError when the address cannot be had.
    """
    keys = KeyPair.generate() if assignment.encrypted else None
    with Endpoint(assignment.name, assignment.listen, keys, assignment.peers) as endpoint:
        endpoint.watch(lifeline, _orphaned)
        endpoint.admit(Roster([assignment.coordinator]))
        agreement = KeyAgreement(assignment.run) if assignment.needs_pairwise_keys else None
        public = agreement.public if agreement is not None else None
        me = Party(assignment.name, endpoint.address, keys.public if keys else None, public)
        report({"party": astuple(me), "pid": os.getpid()})
        Site(assignment, installation, endpoint, agreement, OwnFaults(assignment.faults, report)).serve()


def _orphaned() -> None:
    os._exit(1)


class Site:
    """Carries out the coordinator's orders, one at a time."""

    def __init__(
        self,
        assignment: Assignment,
        installation: Installation,
        endpoint: Endpoint,
        agreement: KeyAgreement | None,
        faults: OwnFaults,
    ) -> None:
        self._assignment = assignment
        self._installation = installation
        self._endpoint = endpoint
        self._agreement = agreement
        self._faults = faults
        path = assignment.transcript_path
        self._transcript = Transcript(path, colludes=assignment.colludes) if path else None
        self._mailbox = Mailbox(endpoint, assignment.run, self._control)
        self._orders: list[Message] = []
        self._current: Message | None = None
        self._channel: SocketChannel | None = None
        self._half: SiteProgram | None = None

    def serve(self) -> None:
        """Carry out orders until the coordinator says stop, then say final_report."""
        try:
            while True:
                self._carry_out(self._next_order())
        except (Stopped, DeadlineExpired):
            self._send_final_report()

    def _next_order(self) -> Message:
        silence = Deadline(MAX_SILENCE_S)
        while not self._orders:
            self._mailbox.pump(silence)
        return self._orders.pop(0)

    def _control(self, peer: str, message: Message, answer: bool) -> None:
        """Take note of what the coordinator says, also in the middle of a protocol."""
        if peer != COORDINATOR or answer:
            self._mailbox.refused["order from a site"] += 1
        elif message.kind == "stop":
            raise Stopped
        elif message.kind == "abort":
            self._abort(message)
        else:
            self._orders.append(message)

    def _abort(self, abort: Message) -> None:
        """Leave the round that is aborted, or one before it whose end this site missed.

        Its order may have come in just before: then this site begins and ends it now, so that it is not a round too far
        behind for what faster peers send it in the next.
        """
        self._mailbox.enter(abort.round)
        self._orders = [order for order in self._orders if order.round > abort.round]
        if self._current is not None and self._current.round <= abort.round:
            raise RoundAborted(abort.round)
        self._answer("aborted", abort.round)

    def _carry_out(self, order: Message) -> None:
        self._current, self._channel = order, None
        self._mailbox.enter(order.round)
        try:
            if order.kind == "roster":
                self._join(order)
            else:
                self._run_round(order)
            self._answer("done", order.round)
        except RoundAborted as aborted:
            self._answer("aborted", aborted.round)
        except (StepRefused, EndpointError) as error:
            cut_off = isinstance(error, EndpointError)
            self._answer("failed", order.round, reason=str(error), traceback="", cut_off=cut_off)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a step raises is the coordinator's to report
            trace = _shortened_traceback()
            self._answer("failed", order.round, reason=_reason(error), traceback=trace, cut_off=False)
        self._current = self._channel = None

    def _join(self, order: Message) -> None:
        """Learn who takes part; the first time also take in the partition, whose file is not needed any longer."""
        self._endpoint.admit(Roster.from_fields(order.fields["parties"]))
        if self._half is None:
            program = self._installation.programs[self._assignment.program]
            partition = read_partition(self._assignment.partition_path)
            os.unlink(self._assignment.partition_path)  # noqa: PTH108 - see read_partition
            self._half = program(self._assignment.name, partition, self._assignment.settings)

    def _run_round(self, order: Message) -> None:
        fields = order.fields
        if self._half is None:
            raise FederationError("An order came before the roster.")
        channel = self._open_channel(order)
        value = self._half.find_step(fields["step"])(**fields["parameters"], **order.arrays)
        if fields["verb"] in ("sum", "sum-at"):
            self._contribute(channel, fields, _shaped(value, fields["shape"], fields["step"]))
        elif fields["verb"] == "gather":
            channel.send(COORDINATOR, _shaped(value, fields["shape"], fields["step"]))

    def _contribute(self, channel: SocketChannel, terms: dict[str, Any], value: FloatArray) -> None:
        protocol = self._installation.sums[terms["protocol"]](**terms["options"])
        residues = protocol.encoded(value, terms["bound"], len(channel.sites))
        opens = terms["opened_by"] == channel.me
        residues, blind = protocol.blinded(residues) if opens else (residues, residues)
        if self._transcript is not None:
            self._transcript.put_in(residues, {name: terms[name] for name in _TERMS})
        protocol.contribute(channel, residues)
        if opens and self._half is not None:
            self._half.opened = protocol.unblinded(channel, blind, terms["shape"], terms["bound"])

    def _open_channel(self, order: Message) -> SocketChannel:
        """The round's channel, for the protocol and for steps that run one."""
        fields = order.fields
        observers: list[Observer] = [self._faults.begin_round(fields["phase"], fields["phase_round"])]
        if self._transcript is not None:
            observers.append(self._transcript.begin_round(order.round))
        deadline = Deadline(fields["timeout_s"])
        sites = tuple(fields["sites"])
        channel = SocketChannel(self._mailbox, sites, order, deadline, agreement=self._agreement, observers=observers)
        self._channel = channel
        if self._half is not None:
            self._half.channel = channel
        return channel

    def _answer(self, kind: str, round_number: int, **fields: Any) -> None:
        """Say how the round ended here. If that cannot be said now, the coordinator will ask again."""
        self._endpoint.measure(round_number)
        if (channel := self._channel) is not None:
            sent = channel.sent_to[COORDINATOR]
            fields |= {"hop": channel.hop, "waiting": channel.waiting_for, "sent_to_coordinator": sent}
        fields |= {"ledger": self._endpoint.ledger.take()}
        try:
            self._endpoint.reply(COORDINATOR, Message(kind, self._assignment.run, round_number, fields=fields))
        except EndpointError:
            self._mailbox.refused["answer that could not be delivered"] += 1

    def _send_final_report(self) -> None:
        endpoint = self._endpoint
        endpoint.measure(endpoint.round)
        fields = resources() | {"refused": dict(endpoint.refused), "ledger": endpoint.ledger.take()}
        with suppress(EndpointError):  # nobody is there to hear it
            endpoint.reply(COORDINATOR, Message("final_report", self._assignment.run, endpoint.round, fields=fields))


def resources() -> dict[str, Any]:
    """What this process used: CPU seconds, and the memory that is its own alone (None where Linux does not say)."""
    times = os.times()
    return {"cpu_s": times.user + times.system, "unique_memory_bytes": _unique_memory_bytes()}


def _unique_memory_bytes() -> int | None:
    try:
        with open("/proc/self/smaps_rollup", "rb", buffering=0) as file:  # noqa: PTH123 - see read_partition
            lines = file.read().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Private_"))


def _shaped(value: NDArray[Any] | float, shape: list[int], step: str) -> FloatArray:
    """`value` as float64 of the announced shape; nothing else leaves the site."""
    array = np.asarray(value, dtype=np.float64)
    if array.shape != tuple(shape):
        raise BoundExceeded(f"step {step!r} computed shape {array.shape} where {tuple(shape)} was announced")
    return array


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _shortened_traceback() -> str:
    return traceback.format_exc()[-_MAX_TRACEBACK:]
