"""The control messages of a site: the results of an order, its final report, and its log records.

See `control` for the table of all messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedsvm.federation.control import MAX_LOG_TEXT
from fedsvm.federation.control_fields import LedgerRows, check_all, check_ledger, check_text, read_fields
from fedsvm.federation.errors import Malformed
from fedsvm.federation.transport.wire import Message

MAX_LOGGER_NAME = 100

LOG_LEVELS = ("debug", "info", "warning", "error")
"""Levels of Python's `logging`; a critical record counts as an error."""


@dataclass(slots=True)
class RoundProgress:
    """The progress of a site in a round's protocol: the longest chain of messages that ended there, the peer that it
    last waited for, and the number of messages it sent to the coordinator."""

    hop: int = 0
    waiting: str = ""
    sent_to_coordinator: int = 0


@dataclass(frozen=True)
class StepDone:
    """The order was carried out. `progress` is None if no protocol could run, as with a roster."""

    kind: ClassVar[str] = "done"

    ledger: LedgerRows
    progress: RoundProgress | None = None

    def to_message(self, run: bytes, round_number: int) -> Message:
        """Encode with field ledger and, if a protocol could run, hop, waiting and sent_to_coordinator."""
        return Message(self.kind, run, round_number, fields=_answer_fields(self))

    @classmethod
    def from_message(cls, message: Message) -> StepDone:
        """Decode a message. Raises Malformed."""
        fields, progress = _answer(message)
        return cls(fields["ledger"], progress)


@dataclass(frozen=True)
class Aborted:
    """The round was left before its end, or was over already."""

    kind: ClassVar[str] = "aborted"

    ledger: LedgerRows
    progress: RoundProgress | None = None

    def to_message(self, run: bytes, round_number: int) -> Message:
        """Encode with the fields of StepDone."""
        return Message(self.kind, run, round_number, fields=_answer_fields(self))

    @classmethod
    def from_message(cls, message: Message) -> Aborted:
        """Decode a message. Raises Malformed."""
        fields, progress = _answer(message)
        return cls(fields["ledger"], progress)


@dataclass(frozen=True)
class StepFailure:
    """The order failed. `cut_off`: a peer could not be reached or was late, so the cause may be at another party."""

    kind: ClassVar[str] = "failed"

    ledger: LedgerRows
    progress: RoundProgress | None
    reason: str
    traceback: str
    cut_off: bool

    def to_message(self, run: bytes, round_number: int) -> Message:
        """Encode with the fields of StepDone, and reason, traceback and cut_off."""
        own = {"reason": self.reason, "traceback": self.traceback, "cut_off": self.cut_off}
        return Message(self.kind, run, round_number, fields=own | _answer_fields(self))

    @classmethod
    def from_message(cls, message: Message) -> StepFailure:
        """Decode a message. Raises Malformed."""
        fields, progress = _answer(message, reason=(str,), traceback=(str,), cut_off=(bool,))
        return cls(fields["ledger"], progress, fields["reason"], fields["traceback"], fields["cut_off"])


@dataclass(frozen=True)
class FinalReport:
    """The final report of a site: CPU seconds, bytes of memory that it shares with no other process (None if the system
    does not measure it), and the number of messages that it refused, by reason."""

    kind: ClassVar[str] = "final_report"

    ledger: LedgerRows
    cpu_s: float
    unique_memory_bytes: int | None
    refused: Mapping[str, int]

    def to_message(self, run: bytes, round_number: int) -> Message:
        """Encode with fields ledger, cpu_s, unique_memory_bytes and refused."""
        fields = {
            "cpu_s": self.cpu_s,
            "unique_memory_bytes": self.unique_memory_bytes,
            "refused": dict(self.refused),
            "ledger": self.ledger,
        }
        return Message(self.kind, run, round_number, fields=fields)

    @classmethod
    def from_message(cls, message: Message) -> FinalReport:
        """Decode a message. Raises Malformed."""
        fields = read_fields(
            message, ledger=(list,), cpu_s=(float,), unique_memory_bytes=(int, type(None)), refused=(dict,)
        )
        check_ledger(fields["ledger"])
        check_all(message.kind, "refused", list(fields["refused"].values()), (int,))
        return cls(**fields)


@dataclass(frozen=True)
class LogRecord:
    """A log record of a site's code, see `site.logs`: its level, logger and text.

    Parameters
    ----------
    level : {"debug", "info", "warning", "error"}
    logger : str
        MAX_LOGGER_NAME printable characters or fewer.
    text : str
        MAX_LOG_TEXT printable characters or fewer.
    """

    kind: ClassVar[str] = "log_record"

    level: str
    logger: str
    text: str

    def to_message(self, run: bytes, round_number: int) -> Message:
        """Encode with fields level, logger and text."""
        return Message(self.kind, run, round_number, fields=dict(vars(self)))

    @classmethod
    def from_message(cls, message: Message) -> LogRecord:
        """Decode a message. Raises Malformed."""
        fields = read_fields(message, level=(str,), logger=(str,), text=(str,))
        if fields["level"] not in LOG_LEVELS:
            raise Malformed(f"level of {cls.kind} must be one of {', '.join(LOG_LEVELS)}, got {fields['level']!r:.80}")
        for name, most in (("logger", MAX_LOGGER_NAME), ("text", MAX_LOG_TEXT)):
            check_text(cls.kind, name, fields[name], most)
        return cls(**fields)


Outcome = StepDone | Aborted | StepFailure
"""The results of an order at a site."""

_ANSWERS: Mapping[str, type[StepDone | Aborted | StepFailure | FinalReport | LogRecord]] = {
    kind.kind: kind for kind in (StepDone, Aborted, StepFailure, FinalReport, LogRecord)
}


def read_answer(message: Message) -> Outcome | FinalReport | LogRecord | None:
    """Decode a message of a site. Return None for a kind that no site may send. Raises Malformed."""
    kind = _ANSWERS.get(message.kind)
    return None if kind is None else kind.from_message(message)


_WITHOUT: Mapping[str, tuple[type, ...]] = {"ledger": (list,)}
_WITH_STANDING = {**_WITHOUT, "hop": (int,), "waiting": (str,), "sent_to_coordinator": (int,)}


def _answer_fields(answer: Outcome) -> dict[str, Any]:
    if (progress := answer.progress) is None:
        return {"ledger": answer.ledger}
    reached = {"hop": progress.hop, "waiting": progress.waiting, "sent_to_coordinator": progress.sent_to_coordinator}
    return {**reached, "ledger": answer.ledger}


def _answer(message: Message, **own: tuple[type, ...]) -> tuple[dict[str, Any], RoundProgress | None]:
    """Return the fields of an answer, and its progress if it has one."""
    stands = "hop" in message.fields
    fields = read_fields(message, **own, **(_WITH_STANDING if stands else _WITHOUT))
    check_ledger(fields["ledger"])
    progress = RoundProgress(fields["hop"], fields["waiting"], fields["sent_to_coordinator"]) if stands else None
    return fields, progress
