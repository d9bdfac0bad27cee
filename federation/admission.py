"""How sites come to take part: at launch, when they are restarted, when they are waited for, and when they come back.

Whoever joins is told the roster first and then, step by step, the public state: what earlier steps left at every site.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from fedsvm.federation.control import Abort, Done, Order, RosterUpdate
from fedsvm.federation.disclosures import Disclosures
from fedsvm.federation.errors import DeadlineExpired
from fedsvm.federation.exchange import Dispatcher, Exchange
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import Party, Roster


class Admission:
    """Lets sites in.

    Parameters
    ----------
    dispatcher : Dispatcher
        Says what has to be said.
    roster : Roster
        All parties, with the addresses that they listen on.
    views : callable
        The roster with the addresses that a party reaches the others by, given its name and the roster.
    start : callable
        Starts the process of a site that the policy has restarted.
    disclosures : Disclosures
        Where arrays are written down that newcomers are told.
    round_timeout_s : float
        How long each of the waits below takes at most.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        roster: Roster,
        views: Callable[[str, Roster], Roster],
        start: Callable[[str], Party],
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

    def remember(self, order: Order) -> None:
        """From now on a site that joins carries out this order first; of each step the last is remembered."""
        self._public_state.pop(order.step, None)
        self._public_state[order.step] = order

    def assemble(self, work_s: float = 0.0) -> dict[str, str]:
        """Tell everybody the roster; every site takes in its partition and answers, `work_s` later than else.

        The sites that do not, and why. Raises EndpointError if that is for lack of descriptors.
        """
        endpoint, deadline = self._dispatcher.mailbox.endpoint, Deadline(self._round_timeout_s + work_s)
        endpoint.admit(self._views(endpoint.name, self._roster))
        for site in self._membership.sites:
            endpoint.connect(site)
        exchange = self._introduce(self._membership.sites, deadline)
        if dropped := exchange.dropped(deadline):
            endpoint.check_descriptors()
        return dropped

    def replace_dropped(self, dropped: Mapping[str, str], round_: Exchange) -> tuple[str, ...]:
        """Of the sites that dropped in a round, those that take part in the next one all the same.

        A site that is late is waited for where the policy says so, or where none can be spared. One whose process ended
        is restarted, if the policy does that.
        """
        how_ended, policy = self._membership.how_ended, self._membership.policy
        late = [site for site in dropped if not how_ended(site)]
        back: tuple[str, ...] = ()
        if late and policy.on_dropout == "continue" and policy.silence_s:
            policy.on_silence(late)
            back = self._wait_for(late, round_, policy.silence_s)
        elif late and policy.on_dropout == "continue" and self._membership.why_needed:
            back = self._wait_for(late, round_, self._round_timeout_s)
        return back + tuple(site for site in dropped if how_ended(site) and self._restart(site, round_))

    def readmit(self) -> tuple[str, ...]:
        """Let in the sites that answer again, ask those that do not, and say who came in."""
        if self._membership.why_needed:
            return ()
        back = tuple(
            site for site in self._membership.dropped if site in self._membership.returned and self.catch_up(site)
        )
        self._dispatcher.tell(self._membership.dropped, Abort())
        return back

    def _restart(self, site: str, round_: Exchange) -> bool:
        """Restart a site, unless the process that was there is back. Whether it is ready to take part."""
        policy, before = self._membership.policy, self._roster[site]
        if site not in policy.restartable or not policy.restart(site):
            return False
        party = self._start(site)
        self._membership.note_restarted(site)
        if party == before:
            self._dispatcher.forget_told(site)
            return bool(self._wait_for([site], round_, self._round_timeout_s))
        self._roster = self._roster.replaced(party)
        endpoint = self._dispatcher.mailbox.endpoint
        endpoint.admit(self._views(endpoint.name, self._roster))
        self._introduce(
            tuple(other for other in self._membership.sites if other != site), Deadline(self._round_timeout_s)
        )
        return self.catch_up(site)

    def _wait_for(self, late: Sequence[str], round_: Exchange, seconds: float) -> tuple[str, ...]:
        """The sites that answer to the round after all, and took in the public state."""
        untold = {site for site in late if site not in round_.answers}

        def all_answered() -> bool:
            untold.difference_update(self._dispatcher.tell(untold, Abort()))
            return all(site in round_.answers or self._membership.how_ended(site) for site in late)

        with suppress(DeadlineExpired):
            round_.wait_until(all_answered, Deadline(seconds))
        return tuple(site for site in late if site in round_.answers and self.catch_up(site))

    def catch_up(self, site: str) -> bool:
        """Tell a site who takes part and all that the public state consists of. Whether it took it in."""
        deadline = Deadline(self._round_timeout_s)
        if not isinstance(self._introduce((site,), deadline).answers.get(site), Done):
            return False
        for remembered in self._public_state.values():
            order = replace(remembered, sites=(site,), phase="", phase_round=0, everyone=False)
            self._disclosures.record_parameters(order)
            exchange = Exchange(self._dispatcher, (site,))
            exchange.say(order, Deadline(self._round_timeout_s))
            self._wait_for_answers(exchange, deadline)
            if not isinstance(exchange.answers.get(site), Done):
                return False
        return True

    def _introduce(self, sites: tuple[str, ...], deadline: Deadline) -> Exchange:
        """Tell sites who takes part, each with the addresses that it reaches the others by, and wait for answers."""
        exchange = Exchange(self._dispatcher, sites)
        for roster, alike in itertools.groupby(sites, lambda site: self._views(site, self._roster)):
            exchange.say(RosterUpdate(roster), Deadline(self._round_timeout_s), tuple(alike))
        self._wait_for_answers(exchange, deadline)
        return exchange

    def _wait_for_answers(self, exchange: Exchange, deadline: Deadline) -> None:
        with suppress(DeadlineExpired):
            exchange.wait_until(lambda: not (exchange.unanswered() - exchange.unreachable.keys()), deadline)
