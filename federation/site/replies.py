"""A site's replies to the coordinator: how each round ended, log records, and the report at the end.

If the coordinator may not receive text of this site's exceptions, the site's operator receives it instead.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fedsvm.federation.channel.socket import SocketChannel
from fedsvm.federation.errors import (
    SEE_SITE,
    EndpointError,
    OrderRefused,
    PeerDropped,
    ProtocolError,
    StepRefused,
    Transient,
)
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.logs import SILENT, LogForwarder
from fedsvm.federation.site.receipt import Receipt
from fedsvm.federation.site.resources import free_unused_memory, resources
from fedsvm.federation.site_messages import Aborted, FinalReport, LogRecord, RoundProgress, StepDone, StepFailure
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.federation.transport.message_transport import MessageTransport

_LOGGER = logging.getLogger(__name__)

_MAX_TRACEBACK = 16_000
"""Maximum number of characters of a traceback that is sent."""


class SiteReplies:
    """The replies of one site in one run.

    Parameters
    ----------
    assignment : Assignment
        The run, the level of log records, and whether the texts of exceptions are shared.
    endpoint : MessageTransport
        Sends the replies, and counts the traffic.
    receipt : Receipt
        Records rounds that were not completed, and log records.
    on_failure : callable
        Receives the reason why an order was refused or a step failed, for the site's operator.
    """

    def __init__(
        self, assignment: Assignment, endpoint: MessageTransport, receipt: Receipt, on_failure: Callable[[str], None]
    ) -> None:
        self._run = assignment.run
        self._shares_errors = assignment.shares_errors
        self._endpoint = endpoint
        self._receipt = receipt
        self._on_failure = on_failure
        self._logs = LogForwarder(assignment.log_level, self._send_record) if assignment.log_level != SILENT else None

    @contextmanager
    def forwarding_logs(self) -> Iterator[None]:
        """Send the log records of this process while the context lasts, unless the assignment has no level."""
        if self._logs is None:
            yield
            return
        self._logs.install()
        try:
            yield
        finally:
            self._logs.remove()

    def report_done(self, number: int, channel: SocketChannel | None) -> None:
        """Report that a round is complete here. channel: the round's channel, if it has one."""
        self._reply(StepDone(*self._account(number, channel, whole=False)), number)

    def report_aborted(self, number: int, channel: SocketChannel | None) -> None:
        """Report that a round was aborted here. channel: the round's channel, if it has one."""
        self._reply(Aborted(*self._account(number, channel)), number)

    def report_failed(self, number: int, channel: SocketChannel | None, error: Exception, protocol: str) -> None:
        """Report that an order failed.

        Parameters
        ----------
        number : int
            Its round.
        channel : SocketChannel or None
            The round's channel, if it has one.
        error : Exception
            The reason.
        protocol : str
            The name of the order's sum; "" for none.
        """
        is_refused, is_cut_off, trace = isinstance(error, OrderRefused), isinstance(error, Transient), ""
        reason = shared = str(error)
        if isinstance(error, ProtocolError):
            reason = shared = f"the {protocol} protocol: {error}"
        elif isinstance(error, StepRefused | EndpointError):
            self._endpoint.refused["order beyond what was agreed"] += is_refused
            shared = error.shared if isinstance(error, StepRefused) else reason
        elif not is_cut_off:
            reason = f"{type(error).__name__}: {error}"
            shared = f"a step raised {type(error).__name__}; {SEE_SITE}"
            trace = "".join(traceback.format_exception(error))[-_MAX_TRACEBACK:]
        self.note_broken(number, shared, refused=is_refused)
        if not is_cut_off:
            self._on_failure(reason)
        if not self._shares_errors:
            if trace:
                _LOGGER.error("%s", trace)
            reason, trace = shared, ""
        self._reply(StepFailure(*self._account(number, channel), reason, trace, is_cut_off), number)

    def note_broken(self, number: int, reason: str, *, refused: bool = False) -> None:
        """Record a round that was refused or not completed in the receipt, if it can be written."""
        with suppress(StepRefused):  # the reply has the reason why the receipt cannot be written
            self._receipt.record_broken(number, reason, refused=refused)

    def report_end(self) -> None:
        """Send the traffic and the resources of the whole run, if the coordinator can be reached."""
        endpoint = self._endpoint
        if self._logs is not None:
            self._logs.end_round()
        endpoint.measure(endpoint.round, whole=True)
        free_unused_memory()
        report = FinalReport(endpoint.ledger.take(), refused=dict(endpoint.refused), **resources())
        with suppress(PeerDropped):
            endpoint.reply(COORDINATOR, report.to_message(self._run, endpoint.round))

    def _account(
        self, number: int, channel: SocketChannel | None, *, whole: bool = True
    ) -> tuple[list[list[Any]], RoundProgress | None]:
        """Return the traffic of this site's connections since the last call, and its progress in the round.

        whole: see `Endpoint.measure`.
        """
        self._endpoint.measure(number, whole=whole)
        progress = None
        if channel is not None:
            progress = RoundProgress(channel.hop, channel.waiting_for, channel.sent_to.get(COORDINATOR, 0))
        return self._endpoint.ledger.take(), progress

    def _reply(self, answer: StepDone | Aborted | StepFailure, number: int) -> None:
        """Report how the round ended here. If the report cannot be sent now, the coordinator asks for it again."""
        if self._logs is not None:
            self._logs.end_round()
        try:
            self._endpoint.reply(COORDINATOR, answer.to_message(self._run, number))
        except PeerDropped:
            self._endpoint.refused["answer that could not be delivered"] += 1
            _LOGGER.warning("its answer of round %d could not be delivered: the coordinator's connection broke", number)

    def _send_record(self, record: LogRecord) -> None:
        """Send a log record, and wait until it has left this process. Raises PeerDropped."""
        endpoint = self._endpoint
        with suppress(StepRefused):
            self._receipt.record_logged(record.text)
        endpoint.reply(COORDINATOR, record.to_message(self._run, endpoint.round))
        endpoint.flush(COORDINATOR)
