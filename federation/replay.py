"""Rounds of a run with a journal: verbs of an earlier process are replayed, and new ones are recorded."""

from __future__ import annotations

from typing import Any

from fedsvm.federation.control import Order
from fedsvm.federation.errors import MembershipChanged
from fedsvm.federation.rounds import RoundRunner, TakePart
from fedsvm.federation.run_journal import Journal, JournaledVerb
from fedsvm.federation.traffic_ledger import Accounts


class JournaledRounds:
    """The coordinator's rounds, with a journal.

    Parameters
    ----------
    runner : RoundRunner
        Carries out the verbs that the journal does not have.
    journal : Journal
        Journal of the run.
    accounts : Accounts
        Traffic of the run; the journal keeps what parties report to it.
    skipped_rounds : int
        Number of rounds to skip at the end of the journal: the previous process may have begun them. 0 if this
        process continues the round that the previous one had begun.
    """

    def __init__(self, runner: RoundRunner, journal: Journal, accounts: Accounts, skipped_rounds: int) -> None:
        self._runner = runner
        self._journal = journal
        self._accounts = accounts
        self._skipped_rounds = skipped_rounds
        self._restarted = journal.awaited
        accounts.on_entered = lambda witness, rows: journal.history.ledger.append((witness, rows))

    def complete(self, order: Order, take_part: TakePart, work_s: float, *, again: bool) -> Any:
        """Return the value of an order from the journal, or carry it out and record it; see `RoundRunner`."""
        verb = self._journal.replay(order)
        if verb is not None:
            return self._replay(order, verb)
        try:
            if self._journal.goes_live():
                self._go_live(again=again)
            value = self._runner.complete(order, take_part, work_s, again=again)
        except MembershipChanged:
            self._journal.write(order, None, changed=True)
            raise
        self._journal.write(order, value, changed=False)
        return value

    def _replay(self, order: Order, verb: JournaledVerb) -> Any:
        for event in verb.history.events:
            self._runner.repeat(order, event, verb.value)
        for witness, rows in verb.history.ledger:
            self._accounts.enter(witness, rows)
        self._journal.history.clear()
        if verb.changed:
            raise MembershipChanged
        return verb.value

    def _go_live(self, *, again: bool) -> None:
        """Skip rounds that the journal may not know of, exclude sites that had dropped, and replace restarted ones."""
        journal = self._journal
        if not self._skipped_rounds:
            self._runner.continue_round(journal.idle_s)
        self._runner.skip_to(max(journal.last_round + self._skipped_rounds, journal.skipped_to), journal.dropped)
        if self._restarted:
            self._runner.replace_restarted(self._restarted)
            if not again:
                raise MembershipChanged
