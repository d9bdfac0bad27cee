"""One attempt at one round: the order, the coordinator's part in the protocol, and every site's answer.

A `Round` owns the state of the attempt (its channel, the answers, the missing sites) and ends with it. `RoundRunner`
repeats an incomplete round with the remaining sites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fedsvm.federation.channel.interface import Observer
from fedsvm.federation.channel.socket import SocketChannel
from fedsvm.federation.control import Abort, Order
from fedsvm.federation.control_exchange import Dispatcher, Exchange
from fedsvm.federation.errors import DeadlineExpired, ProtocolError, SiteFailed, Transient
from fedsvm.federation.site_messages import StepDone
from fedsvm.federation.transport.deadline import Deadline

GRACE_S = 2.0
"""Minimum silence to allow sites when a round is aborted or the run is over."""


@dataclass(frozen=True)
class Attempt:
    """The outcome of an attempt: whether the round is complete, its value, and the sites that dropped, with reasons."""

    complete: bool
    value: Any
    dropped: dict[str, str]


class Round(Exchange):
    """One attempt at one round.

    Parameters
    ----------
    dispatcher : Dispatcher
        The dispatcher, which has begun the round.
    order : Order
        The order for every site.
    reach_s : float
        Seconds that a site may take to be reached.
    allowed_s : float
        Seconds that the protocol may take, and then the answers.
    observe : callable
        Returns the observers of the coordinator's channel, given the round's number.

    Attributes
    ----------
    channel : SocketChannel
        The coordinator's, once the order is out.
    """

    can_be_aborted = True
    channel: SocketChannel

    def __init__(
        self,
        dispatcher: Dispatcher,
        order: Order,
        *,
        reach_s: float,
        allowed_s: float,
        observe: Callable[[int], Sequence[Observer]],
    ) -> None:
        super().__init__(dispatcher, order.sites)
        self._order = order
        self._reach_s = reach_s
        self._allowed_s = allowed_s
        self._observe = observe

    @property
    def hops(self) -> int:
        """The length of the longest chain of messages, as far as it is known."""
        progress = [answer.progress.hop for answer in self.answers.values() if answer.progress is not None]
        return max([self.channel.hop, *progress])

    def run(self, take_part: Callable[[SocketChannel], Any]) -> Attempt:
        """Send the order, run the coordinator's part and wait for the sites.

        A deadline or a Transient error ends the attempt: the round is aborted, so that each site is free for the next
        one. Raises SiteFailed if a step or a protocol raised, or if the protocol sent an invalid array.
        """
        reach = Deadline(self._reach_s)
        self.send(self._order, reach)
        deadline = Deadline(self._allowed_s)
        self.channel = self._open_channel(deadline)
        self._tell_channel()
        value, revealed = None, False
        with suppress(DeadlineExpired, Transient):
            value, revealed = self._take_part(take_part, self.channel), True
            deadline = Deadline(self._allowed_s)  # the protocol may have used up its own
            self.wait_until(lambda: self._is_stalled() or not self.unanswered_sites(), deadline)
        if self.unanswered_sites():
            self._abort(deadline)
        left_out = self.channel.left_out
        self._dispatcher.send_once(left_out, Abort())
        self._dispatcher.record.missing = {site: self.channel.taken.get(site, 0) for site in left_out}
        if not revealed and not self.channel.taken:
            value, revealed = self._recover_revealed_sum(take_part)
        dropped = self.find_dropped(deadline)
        done = all(isinstance(answer, StepDone) for site, answer in self.answers.items() if site not in dropped)
        return Attempt(revealed and (done or self._order.reveals), value, dropped)

    def unanswered_sites(self) -> set[str]:
        """Return the sites whose answer is missing, except those that the protocol continued without."""
        return super().unanswered_sites() - self.channel.left_out.keys()

    def notice(self) -> None:
        """Read the answers that arrived, and which processes ended. Raises SiteFailed when a site failed for good.

        The channel calls this after every wait, so a protocol that waits for a failed site ends.
        """
        super().notice()
        self.unreachable |= self._ended_sites()
        self._tell_channel()

    def find_dropped(self, deadline: Deadline) -> dict[str, str]:
        """Return the sites that dropped in this round, with reasons."""
        return {**self.channel.left_out, **super().find_dropped(deadline)}

    def _tell_channel(self) -> None:
        for site, why in self.unreachable.items():
            self.channel.drop(site, why)

    def _take_part(self, take_part: Callable[[SocketChannel], Any], channel: SocketChannel) -> Any:
        """Run the coordinator's part. Raises SiteFailed for an array that does not fit the protocol."""
        try:
            return take_part(channel)
        except ProtocolError as error:
            reason = f"the {self._order.protocol} protocol: {error}"
            raise SiteFailed(error.sender, self._dispatcher.label, reason) from error

    def _open_channel(self, deadline: Deadline) -> SocketChannel:
        record, mailbox = self._dispatcher.record, self._dispatcher.mailbox
        membership = self._dispatcher.membership
        return SocketChannel(
            mailbox,
            self.sites,
            len(membership.all_sites),
            record.round,
            deadline,
            self.notice,
            observers=self._observe(record.round),
            min_sites=membership.policy.min_sites,
        )

    def _is_stalled(self) -> bool:
        """Return whether sites may wait for a dropped site or a lost message. After a revealed sum they do not."""
        if self._order.reveals:
            return False
        return bool(self.unreachable) or not self._dispatcher.mailbox.endpoint.interrupted.isdisjoint(self.sites)

    def _abort(self, deadline: Deadline) -> None:
        """Abort the round, and wait for the sites' answers.

        A late site may still answer within the round's deadline.
        """
        self._aborting = True
        untold = set(self.sites)

        def all_answered() -> bool:
            untold.difference_update(self._dispatcher.send_once(untold, Abort()))  # retries those not reachable before
            return not self.unanswered_sites()

        with suppress(DeadlineExpired):
            self.wait_until(all_answered, Deadline(max(GRACE_S, deadline.remaining_ms() / 1000)))
        self._aborting = False

    def _recover_revealed_sum(self, take_part: Callable[[SocketChannel], Any]) -> tuple[Any, bool]:
        """Complete a sum that a site sent to the coordinator before the abort.

        Otherwise it would be repeated over other sites, and the difference of the two would be revealed. Return the
        value, and whether there is one.
        """
        sent = (answer.progress.sent_to_coordinator for answer in self.answers.values() if answer.progress is not None)
        if any(sent):  # a new channel, which does not know of later dropouts, can still read these messages
            with suppress(DeadlineExpired, Transient):
                return self._take_part(take_part, self._open_channel(Deadline(GRACE_S))), True
        return None, False
