"""The admission of orders: whether a site may carry out an order now.

An order must satisfy the site's policy, have a valid signature, follow the chain of orders, and be the next one of the
script or a repetition that it allows. A refused order changes nothing here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from fedsvm.federation.control import GatherTerms, MissedOrders, Order, SumTerms
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.chain import ChainRound, OrderChain
from fedsvm.federation.site.program import Installation, StepMark, SumProtocol
from fedsvm.federation.site.script import END, Script
from fedsvm.federation.site.script_position import ScriptPosition
from fedsvm.federation.site.signed import SignatureCheck


class OrderAdmission:
    """The admission of orders at one site in one run.

    Parameters
    ----------
    assignment : Assignment
        The site's assignment, with its policy and the coordinator's key for signatures.
    installation : Installation
        The sums that the site can run.

    Attributes
    ----------
    signatures : SignatureCheck
        The check of the coordinator's signatures.
    script : Script
        The script of the agreed terms; empty until `begin`.
    """

    def __init__(self, assignment: Assignment, installation: Installation) -> None:
        policy = assignment.policy
        self._site = assignment.name
        self._policy = policy
        self._installation = installation
        self._chain = OrderChain(assignment.run, policy.sites, policy.terms)
        self.signatures = SignatureCheck(
            assignment.coordinator_signing_key, assignment.run, each=not assignment.encrypted
        )
        self.script: Script = END
        self._position = ScriptPosition(END)
        self._exceeded = False

    @property
    def chain_start(self) -> bytes:
        """The first link of the chain of orders: a digest of the run, its sites and its terms."""
        return self._chain.start

    @functools.cached_property
    def agreed_sum(self) -> SumProtocol:
        """The sum of the agreed terms, the only one that an order may name."""
        terms = self._policy.terms
        return self._installation.sums[terms.sum_name](**terms.sum_options)

    def check_colluders(self) -> None:
        """Raise OrderRefused for a sum of which the colluders in the operator's rules could open parts."""
        terms, count, rules = self._policy.terms, len(self._policy.sites), self._policy.rules
        if rules.colluders and terms.sum_name in self._installation.sums:
            rules.check_colluders(self.agreed_sum.withstands(count), count)

    def begin(self, script: Script) -> None:
        """Set the script of the agreed terms, at its start."""
        self.script = script
        self._position = ScriptPosition(script, self._policy.rules.max_repeats)

    def note_exceeded(self) -> None:
        """Record that a value of this site was beyond the bound of its sum, which ends the run here."""
        self._exceeded = True

    def note_change(self) -> None:
        """Record that sites left or joined since the last order."""
        self._position.note_change()

    def note_opened(self) -> None:
        """Record that the coordinator may have opened this site's value of the last order."""
        self._position.note_opened()

    def check_round(self, order: Order, number: int, last: int) -> None:
        """Raise OrderRefused for an order whose round was begun or left before, and after a value beyond its bound.

        Without the second check, a coordinator could find all values of the site by bisection. With it, a coordinator
        still finds one value, by lowering a bound until this site fails.

        Parameters
        ----------
        order : Order
        number : int
            Its round.
        last : int
            The latest round that this site knows.
        """
        if self._exceeded:
            raise OrderRefused("a value of this site was beyond the bound of an earlier round, which ends the run")
        self._policy.check_round(order, self._site, number, last)

    def check_signature(self, order: Order, number: int, mark: StepMark) -> ChainRound | None:
        """Return the link of an order. Raise OrderRefused if a due signature is not valid, or it is not in this chain.

        This check comes before `check_order` and `admit`: an order that fails it changes neither the script nor the
        chain, and is not written to the journal, whose orders are carried out again without this check. A signature
        that is not due is verified later, see `SignatureCheck`.

        Return None for an order that this site missed, because it is part of the chain already.
        """
        if self._is_missed(order):
            return None
        link = self._chain.link_of(order, number)
        at_once = self._leaves_in_clear(order) or bool(mark.shown) or mark.public or mark.noisy
        self.signatures.take(order, link, at_once=at_once)
        return link

    def check_order(self, order: Order, mark: StepMark) -> None:
        """Raise OrderRefused for an order beyond the policy. See `SitePolicy.check_order`."""
        self._policy.check_order(order, self._site, mark)

    def check_step(self, step: str) -> None:
        """Raise OrderRefused for a step that the script does not have."""
        self._policy.check_step(step, self.script)

    def admit(self, order: Order, number: int, link: ChainRound | None) -> bytes:
        """Move on in the script and in the chain by an order.

        Parameters
        ----------
        order : Order
        number : int
            Its round.
        link : ChainRound or None
            The value of `check_signature`; None for an order that this site missed.

        Returns
        -------
        bytes
            The link of its round.

        Raises
        ------
        OrderRefused
            The order may not come now.
        """
        if link is None:
            if not self._chain.has(order):
                raise OrderRefused(f"step {order.step!r} must have the arguments of an order that this site missed")
            self._position.admit_missed(order.step)
            return self._chain.head
        self._chain.enter(order, link)
        self._position.admit(order.step, link.content, order.sites, number)
        return link.digest

    def miss(self, missed: MissedOrders) -> None:
        """Move on by orders that only others received. Raises OrderRefused, also for a signature that is not valid."""
        self._miss(missed, self.signatures.require)

    def retrace(self, order: Order, number: int) -> None:
        """Move on by an order of the site's own journal, which does not record when sites left or joined."""
        try:
            self.admit(order, number, self._link_of(order, number))
        except OrderRefused:
            self._position.note_change()
            self.admit(order, number, self._link_of(order, number))

    def retrace_missed(self, missed: MissedOrders) -> None:
        """Move on by missed orders of the site's own journal, whose signatures were verified before."""
        self._miss(missed, lambda order, link: None)

    def _miss(self, missed: MissedOrders, check: Callable[[Order, ChainRound], None]) -> None:
        self._chain.miss(missed.orders, check)
        self._position.miss([link.round for link in self._chain], [link.step for link in self._chain])

    def _link_of(self, order: Order, number: int) -> ChainRound | None:
        return None if self._is_missed(order) else self._chain.link_of(order, number)

    def _is_missed(self, order: Order) -> bool:
        return self._policy.is_missed(order, self._site)

    def _leaves_in_clear(self, order: Order) -> bool:
        """Return whether an order takes a value in the clear: by itself, or in a sum that hides none."""
        if isinstance(order.terms, SumTerms):
            return self.agreed_sum.discloses != "sum"
        return isinstance(order.terms, GatherTerms)
