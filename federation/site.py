"""The site process: receives an order, runs the step, runs the protocol, answers."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from federation.arrays import FloatArray
from federation.channel import Mailbox, SocketChannel
from federation.deadline import Deadline
from federation.endpoint import Endpoint
from federation.errors import (
    BoundExceeded,
    DeadlineExpired,
    EndpointError,
    FederationError,
    RoundAborted,
    StepRefused,
    Stopped,
)
from federation.keys import COORDINATOR, KeyPair, Party, Roster
from federation.partition import read_partition
from federation.program import Installation, SiteHalf
from federation.wire import Message

LONGEST_SILENCE_S = 3600.0
"""A coordinator that gave no order for this long is taken for dead."""

_LONGEST_TRACEBACK = 16_000


@dataclass(frozen=True)
class Assignment:
    """What a launcher tells a site process. Plain values only: it crosses a process boundary."""

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

    def to_fields(self) -> dict[str, Any]:
        """Plain values for the launcher's pipe."""
        return asdict(self)

    @property
    def coordinator(self) -> Party:
        return Party(COORDINATOR, self.coordinator_address, self.coordinator_key)


def run_site(
    assignment: Assignment, installation: Installation, report: Callable[[Party], None], lifeline: int
) -> None:
    """Live the life of one site: open the endpoint, report in, carry out orders until told to stop.

    `lifeline` is a descriptor that becomes readable when the launcher is gone. Raises EndpointError when the
    address cannot be had.
    """
    keys = KeyPair.generate() if assignment.encrypted else None
    with Endpoint(assignment.name, assignment.listen, keys, assignment.peers) as endpoint:
        endpoint.watch(lifeline, _orphaned)
        endpoint.admit(Roster([assignment.coordinator]))
        report(Party(assignment.name, endpoint.address, keys.public if keys else None))
        Site(assignment, installation, endpoint).serve()


def _orphaned() -> None:
    os._exit(1)


class Site:
    """Carries out the coordinator's orders, one at a time."""

    def __init__(self, assignment: Assignment, installation: Installation, endpoint: Endpoint) -> None:
        self._assignment = assignment
        self._installation = installation
        self._endpoint = endpoint
        self._mailbox = Mailbox(endpoint, assignment.run, self._control)
        self._orders: list[Message] = []
        self._current: Message | None = None
        self._half: SiteHalf | None = None

    def serve(self) -> None:
        """Carry out orders until the coordinator says stop, then say farewell."""
        try:
            while True:
                self._carry_out(self._next_order())
        except (Stopped, DeadlineExpired):
            self._farewell()

    def _next_order(self) -> Message:
        silence = Deadline(LONGEST_SILENCE_S)
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
            self._call_off(message)
        else:
            self._orders.append(message)

    def _call_off(self, abort: Message) -> None:
        current = self._current
        if current is not None and (current.round, current.attempt) == (abort.round, abort.attempt):
            raise RoundAborted
        self._answer("aborted", abort)

    def _carry_out(self, order: Message) -> None:
        self._current = order
        self._mailbox.enter(order.round, order.attempt)
        try:
            hop = self._join(order) if order.kind == "roster" else self._run_round(order)
            self._endpoint.measure(order.round)
            self._answer("done", order, hop=hop, ledger=self._endpoint.ledger.take())
        except RoundAborted:
            self._answer("aborted", order)
        except (StepRefused, EndpointError) as error:
            cut_off = isinstance(error, EndpointError)
            self._answer("failed", order, reason=str(error), traceback="", cut_off=cut_off)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a step raises is the coordinator's to report
            self._answer("failed", order, reason=_reason(error), traceback=_shortened_traceback(), cut_off=False)
        self._current = None

    def _join(self, order: Message) -> int:
        """Learn who takes part, and take in the partition; its file is not needed any longer."""
        self._endpoint.admit(Roster.from_fields(order.fields["parties"]))
        program = self._installation.programs[self._assignment.program]
        partition = read_partition(self._assignment.partition_path)
        os.unlink(self._assignment.partition_path)  # noqa: PTH108 - see read_partition
        self._half = program(self._assignment.name, partition, self._assignment.settings)
        return 0

    def _run_round(self, order: Message) -> int:
        fields = order.fields
        channel = SocketChannel(self._mailbox, tuple(fields["sites"]), order, Deadline(fields["timeout_s"]))
        if self._half is None:
            raise FederationError("An order came before the roster.")
        self._half.channel = channel
        value = self._half.find_step(fields["step"])(**fields["parameters"], **order.arrays)
        if fields["verb"] == "sum":
            protocol = self._installation.sums[fields["protocol"]](**fields["options"])
            protocol.contribute(channel, _shaped(value, fields["shape"], fields["step"]), fields["bound"])
        elif fields["verb"] == "gather":
            channel.send(COORDINATOR, _shaped(value, fields["shape"], fields["step"]))
        return channel.hop

    def _answer(self, kind: str, order: Message, **fields: Any) -> None:
        self._endpoint.reply(COORDINATOR, Message(kind, order.run, order.round, order.attempt, fields=fields))

    def _farewell(self) -> None:
        endpoint = self._endpoint
        endpoint.measure(endpoint.round)
        fields = resources() | {"refused": dict(endpoint.refused), "ledger": endpoint.ledger.take()}
        endpoint.reply(COORDINATOR, Message("farewell", self._assignment.run, endpoint.round, fields=fields))


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
    return traceback.format_exc()[-_LONGEST_TRACEBACK:]
