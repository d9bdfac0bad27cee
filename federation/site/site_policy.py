"""The policy of a site in one run: the site refuses every order and roster that it does not allow.

The policy comes from the party that starts the site, never over the network. So a coordinator cannot make a site use a
weaker sum than the agreed one, reveal a value that is only summed, or take part with other sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from fedsvm.federation.control import GatherTerms, Order, SumTerms
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.program import SiteProgram, StepMark, exact_steps
from fedsvm.federation.site.rules import ANYTHING, SiteRules
from fedsvm.federation.site.script import Script
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR, Roster, voucher_content
from fedsvm.federation.transport.signing import PARTY, is_signed


@dataclass(frozen=True)
class SitePolicy:
    """The policy of one site.

    Parameters
    ----------
    sites : tuple of str
        All sites that may ever take part, in ring order.
    terms : Terms
        The terms of the run: its program, settings and sum, the minimum number of sites, and the sites that may be
        restarted.
    rules : SiteRules
        The rules of the site's operator.
    script : Script, optional
        The script of the program on these terms, if it was derived before sites were forked, so that they share it.
    pins : mapping of str to bytes, optional
        The public keys for signatures of other sites, from the site's operator; None if they are not pinned.
    """

    sites: tuple[str, ...]
    terms: Terms
    rules: SiteRules = ANYTHING
    script: Script | None = None
    pins: Mapping[str, bytes] | None = None

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return a policy from the fields of `dataclasses.asdict`, in which a pipe turned tuples into lists."""
        rules, terms = SiteRules.from_fields(fields["rules"]), Terms.from_fields(fields["terms"])
        return cls(tuple(fields["sites"]), terms, rules)

    def to_record(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the terms and the operator's rules in plain values, for a receipt."""
        return self.terms.to_fields(), asdict(self.rules)

    def agree(self, run: bytes, program: type[SiteProgram], script: Script) -> None:
        """Agree to take part. Raises OrderRefused for terms, or exact steps, that the rules do not allow."""
        self.rules.check_terms(self.terms)
        if self.rules.max_epsilon is not None:  # otherwise a site need not read every class of the program
            self.check_exact(exact_steps(program, script), program.noisy_settings)
        self.charge(run)

    def charge(self, run: bytes) -> None:
        """Charge the epsilon of the terms to the operator's budget. Raises OrderRefused beyond it."""
        self.rules.charge(self.terms, run)

    def check_settings(self, known: Mapping[str, Any] | None) -> None:
        """Raise OrderRefused for terms whose settings are not exactly the known ones; None allows any."""
        if known is None or known.keys() == self.terms.settings.keys():
            return
        asked = self.terms.settings.keys()
        missing, unknown = sorted(known.keys() - asked), sorted(asked - known.keys())
        found = [*(f"{name} is missing" for name in missing), *(f"{name!r:.80} is none of them" for name in unknown)]
        raise OrderRefused(f"the terms must have all settings of {self.terms.program}: {'; '.join(found)}")

    def check_exact(self, steps: Sequence[str], noisy_settings: str = "") -> None:
        """Raise OrderRefused if there are steps that give exact values of rows, and the site's rules limit epsilon.

        noisy_settings: the settings that prevent it; see `SiteProgram`.
        """
        if self.rules.max_epsilon is None or not steps:
            return
        listed = ", ".join(steps[:4]) + (", …" if len(steps) > 4 else "")
        raise OrderRefused(
            f"by this site's policy max_epsilon allows only sums of values with the noise of the sites, and "
            f"{self.terms.program} with the agreed settings sums exact ones ({listed})"
            + (f"; set {noisy_settings}" if noisy_settings else "")
        )

    def check_step(self, step: str, script: Script) -> None:
        """Raise OrderRefused for a step that the script of the agreed terms does not name."""
        if step not in script.steps:
            raise OrderRefused(f"{self.terms.program} with the agreed settings has no step {step!r}")

    def check_round(self, order: Order, me: str, number: int, last: int) -> None:
        """Raise OrderRefused for an order whose round was begun or left before.

        A repeated round has a new number. If a round were carried out twice, its masks would be used twice, and the
        second contribution would reveal the first.

        Parameters
        ----------
        order : Order
        me : str
            This site.
        number : int
            The round of the order.
        last : int
            The latest round that this site knows.
        """
        if number < last or (number == last and not self.is_missed(order, me)):
            raise OrderRefused(f"its round must be above {last}, the last one here, got {number}")

    def check_order(self, order: Order, me: str, mark: StepMark) -> None:
        """Raise OrderRefused for an order that reveals more than the policy allows, or reveals it to other parties.

        Parameters
        ----------
        order : Order
        me : str
            This site.
        mark : StepMark
            The declaration of the step.
        """
        if order.sites != self.sites and not self._is_among(order.sites, me):
            raise OrderRefused(
                f"its sites must be {me} and others of {', '.join(self.sites)}, in this order, "
                f"got {', '.join(order.sites) or 'none'}"
            )
        if len(order.sites) < self.terms.min_sites and not self.is_missed(order, me):
            raise OrderRefused(f"it must be for {self.terms.min_sites} sites or more, got {len(order.sites)}")
        if isinstance(order.terms, GatherTerms) and mark.opens != "value" and order.step not in self.terms.shown:
            raise OrderRefused(
                f"the value of step {order.step!r} must go into a sum, and the order takes it in the clear"
            )
        if isinstance(order.terms, SumTerms):
            self._check_sum(order, order.terms, mark)
        if self.is_missed(order, me) and not mark.remembered:
            raise OrderRefused(f"step {order.step!r} must be ordered of several sites, got {me} alone")
        self.rules.check_order(order, self.terms.program)
        if isinstance(order.terms, SumTerms) and not mark.noisy:
            self.check_exact([order.step])

    def check_roster(self, roster: Roster, known: Roster, me: str) -> None:
        """Raise OrderRefused for a roster with other parties, or with other keys than the known ones.

        Parameters
        ----------
        roster : Roster
            The new roster.
        known : Roster
            The current roster; before the first, it has the coordinator and this site.
        me : str
            This site.
        """
        in_order = "\n".join((COORDINATOR, "\n".join(self.sites)))  # a reference to each name would write to its page
        if roster.names_column != in_order and set(roster.names) != {COORDINATOR, *self.sites}:
            expected, named = {COORDINATOR, *self.sites}, set(roster.names)
            strangers, missing = sorted(named - expected), sorted(expected - named)
            found = [*(f"{name} is none of them" for name in strangers), *(f"{name} is missing" for name in missing)]
            raise OrderRefused(f"its parties must be {COORDINATOR} and {', '.join(self.sites)}: {'; '.join(found)}")
        for name in roster.others_keys(known):
            if name not in self.terms.restartable or name == me:
                raise OrderRefused(f"the keys of {name} must stay, since it is not to be started again")
        if roster.shares_keys:
            raise OrderRefused("every party must have a key of its own, and two parties of the roster share one")

    def check_pins(self, roster: Roster, run: bytes, me: str) -> None:
        """Raise OrderRefused for a party whose keys are not signed with its pinned key."""
        if self.pins is None:
            if self.rules.pinned:
                raise OrderRefused(
                    "by this site's policy the keys of all sites must be pinned, and none are; start it with fedsvm "
                    "site --sites"
                )
            return
        for party in roster:
            if party.name in (COORDINATOR, me):
                continue  # the site has both keys from its operator, and `check_roster` compares them
            if (pin := self.pins.get(party.name)) is None:
                raise OrderRefused(
                    f"the key of {party.name} is not among the pinned keys; if this site belongs to the run, add "
                    f"{party.name}.key to the folder of --sites"
                )
            content = voucher_content(run, party, self.terms.content)
            if party.voucher is None or not is_signed(pin, party.voucher, PARTY, content):
                raise OrderRefused(
                    f"the keys of {party.name} are not signed with its pinned key; compare "
                    f"{party.name}.key with that site: the coordinator may have changed its keys or the terms"
                )

    def _check_sum(self, order: Order, terms: SumTerms, mark: StepMark) -> None:
        agreed, bound = self.terms, mark.bound
        if (order.protocol, dict(terms.options)) != (agreed.sum_name, dict(agreed.sum_options)):
            wanted = _describe(agreed.sum_name, agreed.sum_options)
            raise OrderRefused(f"the sum must be {wanted}, got {_describe(order.protocol, terms.options)}")
        if terms.receiver != COORDINATOR and terms.receiver not in order.sites:
            raise OrderRefused(f"a sum must be opened by the coordinator or a site in it, got {terms.receiver}")
        if mark.receiver == "site" and terms.receiver == COORDINATOR:
            raise OrderRefused(f"a sum of step {order.step!r} must be opened by a site, got {COORDINATOR}")
        bounds = bound if isinstance(bound, tuple) else (bound,)
        if bound is not None and terms.bound not in bounds:
            allowed = " or ".join(f"{each:g}" for each in bounds)
            raise OrderRefused(f"a sum of step {order.step!r} must have the bound {allowed}, got {terms.bound:g}")

    def _is_among(self, sites: tuple[str, ...], me: str) -> bool:
        """Return whether these are some of the sites, in their order, including this one."""
        taking_part = set(sites)
        return me in taking_part and list(sites) == [site for site in self.sites if site in taking_part]

    @staticmethod
    def is_missed(order: Order, me: str) -> bool:
        """Return whether an order is for this site alone and its value stays there: a step that it missed."""
        return order.terms is None and order.sites == (me,) and not order.phase_round


def _describe(name: str, options: Mapping[str, float]) -> str:
    listed = ", ".join(f"{option} = {value}" for option, value in options.items())
    return f"{name} ({listed})" if listed else name
