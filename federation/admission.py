"""Admission of sites to a run: at launch, after a restart, during a wait, and on return.

A site that joins receives the roster first and then, step by step, the public state: what earlier steps left at every
site.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from fedsvm.federation.control import Abort, MissedOrders, Order, RosterUpdate
from fedsvm.federation.control_exchange import Dispatcher, Exchange
from fedsvm.federation.disclosures import Disclosures
from fedsvm.federation.errors import DeadlineExpired
from fedsvm.federation.site_messages import StepDone
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import Party, Roster

_MAX_MISSED_BYTES = 1 << 27
"""Maximum size of the orders in one message, in estimated bytes."""
_MAX_PLAIN_BYTES = 1 << 14
"""Estimate of the size of an order without its arrays."""


@dataclass(frozen=True)
class RecoveredSites:
    """The sites that dropped in a round and still take part.

    Parameters
    ----------
    stayed : tuple of str
        Sites whose processes kept running and left the round.
    joined : tuple of str
        Sites that received the public state again.
    """

    stayed: tuple[str, ...]
    joined: tuple[str, ...]


class Admission:
    """Admits sites.

    Parameters
    ----------
    dispatcher : Dispatcher
        Sends the messages.
    roster : Roster
        All parties, with the addresses that they listen on.
    views : callable
        Returns the roster with the addresses at which a party reaches the others, given its name and the roster.
    start : callable
        Starts the process of a site that the policy restarts; returns None if the earlier process is back.
    disclosures : Disclosures
        Records the arrays that newcomers receive.
    round_timeout_s : float
        Maximum duration of each wait below.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        roster: Roster,
        views: Callable[[str, Roster], Roster],
        start: Callable[[str], Party | None],
        disclosures: Disclosures,
        round_timeout_s: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._membership = dispatcher.membership
        self._roster = roster
        self._views = views
        self._start = start
        self._disclosures = disclosures
        self._round_timeout_s = round_timeout_s
        self._public_state: dict[str, Order] = {}
        self._completed: list[tuple[int, Order]] = []

    @property
    def last_completed(self) -> int:
        """The number of the last complete round; 0 for none."""
        return self._completed[-1][0] if self._completed else 0

    def note_completed(self, round_number: int, order: Order) -> None:
        """Record a complete round and its order; sites that did not take part receive it as missed when they join."""
        self._completed.append((round_number, order))

    def remember(self, order: Order) -> None:
        """Keep an order that sites carry out first if they join from now on.

        A repeated step, for example in the next fold, replaces its earlier order and all later ones.
        """
        if order.step in self._public_state:
            known = list(self._public_state)
            for later in known[known.index(order.step) :]:
                del self._public_state[later]
        self._public_state[order.step] = order

    def assemble(self, work_s: float = 0.0) -> dict[str, str]:
        """Send the roster to every site and wait for answers. Sites load their partition first; allow `work_s` more for
        that.

        Return the sites that do not answer, and why. Raises EndpointError if descriptors are lacking.
        """
        endpoint, deadline = self._dispatcher.mailbox.endpoint, Deadline(self._round_timeout_s + work_s)
        endpoint.admit(self._views(endpoint.name, self._roster))
        for site in self._membership.sites:
            endpoint.connect(site)
        exchange = self._introduce(self._membership.sites, deadline)
        if dropped := exchange.find_dropped(deadline):
            endpoint.check_descriptors()
        return dropped

    def replace_dropped(self, dropped: Mapping[str, str], round_: Exchange) -> RecoveredSites:
        """Wait for the sites that dropped in a round, as long as the policy allows.

        A site whose process ended is restarted. A late site is awaited if the policy says so. If it does not and the
        run needs the site, it is awaited as long as a round.
        """
        how_ended, policy = self._membership.how_ended, self._membership.policy
        late = [site for site in dropped if not how_ended(site)]
        stayed: tuple[str, ...] = ()
        joined: tuple[str, ...] = ()
        if late and policy.on_dropout == "continue" and policy.silence_s:
            policy.on_silence(late)
            stayed = self._wait_for(late, round_, policy.silence_s)
        elif policy.on_dropout == "continue" and (needed := self._membership.find_needed(late)):
            answered = self._wait_for(needed, round_, self._round_timeout_s)
            joined = tuple(site for site in answered if self.catch_up(site))
        for site in dropped:
            if site in stayed or not how_ended(site):
                continue
            if self._restart(site):
                joined += (site,) if self.catch_up(site) else ()
            elif not how_ended(site):
                stayed += self._wait_for([site], round_, self._round_timeout_s)
        return RecoveredSites(stayed, joined)

    def readmit(self) -> tuple[str, ...]:
        """Admit the dropped sites that answer again, probe the others, and return the admitted ones."""
        if self._membership.why_needed:
            return ()
        back = tuple(
            site for site in self._membership.dropped if site in self._membership.returned and self.catch_up(site)
        )
        self._dispatcher.send_once(self._membership.dropped, Abort())
        return back

    def _restart(self, site: str) -> bool:
        """Restart a site, and return whether it is a new process; if not, `Membership` has the state of the old one.

        The others receive the roster, so that they drop connections that the new process refused before it had one.
        """
        policy = self._membership.policy
        if site not in policy.restartable or not policy.restart(site):
            return False
        party = self._start(site)
        self._membership.note_restarted(site)
        if party is None:
            return False
        self._roster = self._roster.replace(party)
        endpoint = self._dispatcher.mailbox.endpoint
        endpoint.admit(self._views(endpoint.name, self._roster))
        self._introduce(
            tuple(other for other in self._membership.sites if other != site), Deadline(self._round_timeout_s)
        )
        return True

    def _wait_for(self, late: Sequence[str], round_: Exchange, seconds: float) -> tuple[str, ...]:
        """Wait for late sites and return those that answer. Repeat the abort for a site whose connection broke."""
        dispatcher = self._dispatcher
        interrupted = dispatcher.mailbox.endpoint.interrupted
        untold = {site for site in late if site not in round_.answers}

        def all_answered() -> bool:
            for site in interrupted.intersection(late) - round_.answers.keys():
                dispatcher.allow_repeat(site)
                untold.add(site)
            interrupted.difference_update(late)
            untold.difference_update(dispatcher.send_once(untold, Abort()))
            return all(site in round_.answers or self._membership.how_ended(site) for site in late)

        with suppress(DeadlineExpired):
            round_.wait_until(all_answered, Deadline(seconds))
        return tuple(site for site in late if site in round_.answers and not self._membership.how_ended(site))

    def catch_up(self, site: str) -> bool:
        """Send a site the roster and the orders of the public state. Return whether it carried them out."""
        deadline = Deadline(self._round_timeout_s)
        if not isinstance(self._introduce((site,), deadline).answers.get(site), StepDone):
            return False
        if not all(self._tell(site, missed, deadline) for missed in self._missed_orders()):
            return False
        for remembered in self._public_state.values():
            order = replace(remembered, sites=(site,), phase="", phase_round=0, everyone=False)
            self._disclosures.record_parameters(order)
            if not self._tell(site, order, deadline):
                return False
        return True

    def _missed_orders(self) -> Iterator[MissedOrders]:
        """Yield the orders of all complete rounds, in messages of bounded length; at least one message."""
        part: list[tuple[int, Order]] = []
        length = 0
        for number, order in self._completed:
            size = _MAX_PLAIN_BYTES + sum(array.nbytes for array in order.arrays.values())
            if part and length + size > _MAX_MISSED_BYTES:
                yield MissedOrders(tuple(part))
                part, length = [], 0
            part.append((number, order))
            length += size
        yield MissedOrders(tuple(part))

    def announce(self, sites: tuple[str, ...]) -> None:
        """Send sites the roster again, since others have joined: the stage that they are in starts again."""
        self._introduce(sites, Deadline(self._round_timeout_s))

    def _tell(self, site: str, message: MissedOrders | Order, deadline: Deadline) -> bool:
        """Send a message to one site, and return whether the site answered StepDone."""
        exchange = Exchange(self._dispatcher, (site,))
        exchange.send(message, Deadline(self._round_timeout_s))
        self._wait_for_answers(exchange, deadline)
        return isinstance(exchange.answers.get(site), StepDone)

    def _introduce(self, sites: tuple[str, ...], deadline: Deadline) -> Exchange:
        """Send sites the roster, with the addresses at which each reaches the others, and wait for answers."""
        exchange = Exchange(self._dispatcher, sites)
        for roster, alike in itertools.groupby(sites, lambda site: self._views(site, self._roster)):
            exchange.send(RosterUpdate(roster), Deadline(self._round_timeout_s), tuple(alike))
        self._wait_for_answers(exchange, deadline)
        return exchange

    def _wait_for_answers(self, exchange: Exchange, deadline: Deadline) -> None:
        with suppress(DeadlineExpired):
            exchange.wait_until(lambda: not (exchange.unanswered_sites() - exchange.unreachable.keys()), deadline)
