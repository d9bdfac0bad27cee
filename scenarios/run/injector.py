"""Applies a scenario's network conditions and faults, and reports the outcome of each fault.

Sites inflict kills and stalls on themselves (`fedsvm.federation.site.faults`). Faults on links are requested from the
relays before the orders of the round are sent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedsvm.federation.federation import Federation
from fedsvm.federation.membership import MembershipChange
from fedsvm.federation.processes.launcher_interface import SiteLauncher
from fedsvm.federation.relays.client import LinkEffect, Relays
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster
from fedsvm.scenarios.schema.base import resolve
from fedsvm.scenarios.schema.spec import Scenario
from fedsvm.scenarios.schema.threats import FaultSpec, LinkSpec, NetworkSpec


@dataclass(frozen=True)
class FaultReport:
    """A fault at a round of a phase, and its outcome.

    site: the affected sites. at_round: the round of the run. start_s, end_s: in seconds of the run; None if the fault
    did not occur, or did not end.
    """

    kind: str
    site: str
    phase: str
    round: int
    outcome: str
    at_round: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    healed: bool = False


class Injector:
    """The network between the parties of one run, and the faults that wait for their round."""

    def __init__(self, scenario: Scenario, launcher: SiteLauncher) -> None:
        self._names = scenario.federation.site_names
        self._faults = scenario.faults
        self._launcher = launcher
        self._began: dict[int, float] = {}
        self._relay_numbers: dict[int, int] = {}
        self._relays = Relays(scenario.seed) if scenario.relayed else None
        self._addresses: Mapping[tuple[str, str], str] = {}
        self._outcomes: dict[int, dict[str, Any]] = {}
        if self._relays is not None:
            self._addresses = self._relays.open(conditions(scenario.network or NetworkSpec(), self._names))

    def __enter__(self) -> Injector:
        return self

    def __exit__(self, *error: object) -> None:
        if self._relays is not None:
            self._relays.close()

    def own_faults(self, site: str) -> list[dict[str, Any]]:
        """Return the faults that this site applies to itself and has not applied yet."""
        return [
            vars(fault.own(number))
            for number, fault in enumerate(self._faults)
            if not fault.on_links and fault.sites(self._names) == [site] and number not in self._launcher.struck
        ]

    @property
    def rejoining(self) -> tuple[str, ...]:
        """Sites that some fault starts again."""
        return tuple(name for fault in self._faults if fault.restarts for name in fault.sites(self._names))

    def rejoins(self, site: str) -> bool:
        """Return whether the fault that killed the site restarts it."""
        struck = [number for number in self._launcher.struck if self._faults[number].sites(self._names) == [site]]
        return bool(struck) and self._faults[max(struck, key=self._launcher.struck.__getitem__)].restarts

    def reach(self, party: Party) -> None:
        """Connect the relays to the address of this party."""
        if self._relays is not None:
            self._relays.point(party.name, party.address)

    def view(self, party: str, roster: Roster) -> Roster:
        """Return the roster with the addresses at which `party` reaches the others."""
        if self._relays is None:
            return roster
        return Roster(
            Party(other.name, self._addresses[party, other.name], other.public_key, other.agreement_key)
            if other.name != party
            else other
            for other in roster
        )

    def strike(self, phase: str, phase_round: int) -> None:
        """Begin the faults on links that are due."""
        for number, fault in enumerate(self._faults):
            if self._relays is not None and fault.on_links and (fault.phase, fault.round) == (phase, phase_round):
                links = fault.links(self._names)
                self._relay_numbers[number] = self._relays.disturb(fault.kind, links, fault.for_s, **fault.own_terms)
                self._began[number] = time.monotonic()

    def settle(self) -> None:
        """Read the outcomes of faults on links from the relays, before these end."""
        if self._relays is not None:
            self._outcomes = self._relays.outcomes()

    # Outcomes.

    def describe_struck(self) -> list[str]:
        """Return the faults so far in words, in order."""
        began = self._began | self._launcher.struck
        return [
            f"{self._faults[number].kind} {', '.join(self._affected_sites(self._faults[number]))} in "
            f"{self._faults[number].phase} round {self._faults[number].round}"
            for number in sorted(began, key=began.__getitem__)
        ]

    def reports(self, federation: Federation) -> tuple[FaultReport, ...]:
        """Return each fault with its start and end in seconds of the run, whether it healed, and its outcome in
        words."""
        return tuple(self._report(number, fault, federation) for number, fault in enumerate(self._faults))

    def _report(self, number: int, fault: FaultSpec, federation: Federation) -> FaultReport:
        began = self._began.get(number, self._launcher.struck.get(number))
        site = ", ".join(self._affected_sites(fault))
        if began is None:
            return FaultReport(fault.kind, site, fault.phase, fault.round, "not reached")
        at_round = _round_of(fault, federation)
        ended = self._end_of(number, fault, began)
        changes = self._changes(fault, at_round, federation)
        return FaultReport(
            kind=fault.kind,
            site=site,
            phase=fault.phase,
            round=fault.round,
            outcome=_outcome(changes, at_round, federation),
            at_round=at_round,
            start_s=round(federation.record.age_at(began), 6),
            end_s=None if ended is None else round(federation.record.age_at(ended), 6),
            healed=any(back for _, back, _ in changes) if fault.ends_process else ended is not None,
        )

    def _changes(self, fault: FaultSpec, at_round: int, federation: Federation) -> list[_InjectedChange]:
        """Return the changes in which affected sites left or came back, until another fault affects one of them."""
        struck = set(self._affected_sites(fault))
        others = [_round_of(other, federation) for other in self._faults if struck & set(self._affected_sites(other))]
        until = min((number for number in others if number > at_round), default=sys.maxsize)
        return [
            _InjectedChange(sorted(struck & change.left.keys()), sorted(struck & set(change.joined)), change)
            for change in federation.membership.changes
            if at_round <= change.round < until
        ]

    def _affected_sites(self, fault: FaultSpec) -> list[str]:
        """Return the sites that a fault affects or cuts off from the coordinator."""
        if fault.groups is None:
            return fault.sites(self._names)
        away = [group for group in fault.parties(self._names) if COORDINATOR not in group]
        return [name for name in self._names if any(name in group for group in away)]

    def _end_of(self, number: int, fault: FaultSpec, began: float) -> float | None:
        if fault.ends_process:
            return began
        if not fault.on_links:
            later = [when for site, when in self._launcher.continued if site in fault.sites(self._names)]
            return next((when for when in later if when > began), None)
        if not self._outcomes.get(self._relay_numbers[number], {}).get("healed"):
            return None
        return began + (fault.for_s or 0.0)


def _round_of(fault: FaultSpec, federation: Federation) -> int:
    """Return the round of the run at which a fault occurs; 0 if the run did not reach it."""
    for record in federation.accounts.rounds.values():
        if (record.phase, record.phase_round) == (fault.phase, fault.round):
            return record.round
    return 0


class _InjectedChange(NamedTuple):
    left: list[str]
    back: list[str]
    change: MembershipChange


def _outcome(changes: list[_InjectedChange], at_round: int, federation: Federation) -> str:
    rounds, parts = federation.accounts.rounds, []
    for left, back, change in changes:
        place = rounds[change.round].place
        parts += [f"{', '.join(left)} dropped in {place}"] if left else []
        parts += [f"{', '.join(back)} back after {place}"] if back else []
    if parts:
        return "; ".join(parts)
    if rounds[at_round].aborted:
        return "the round was aborted and run again, and all went on"
    return "all went on"


def conditions(network: NetworkSpec, names: list[str]) -> dict[tuple[str, str], LinkEffect]:
    """Return the conditions of every directed link."""
    everyone = [COORDINATOR, *names]
    of_all = LinkEffect(network.latency_ms, network.jitter_ms, network.bandwidth_mbit)
    links = {(a, b): of_all for a in everyone for b in everyone if a != b}
    for link in network.links:
        ends = [party if party == COORDINATOR else resolve(party, names) for party in (link.sender, link.receiver)]
        links[str(ends[0]), str(ends[1])] = _own_conditions(link, network)
    return links


def _own_conditions(link: LinkSpec, network: NetworkSpec) -> LinkEffect:
    def choose_value(name: str) -> Any:
        own = getattr(link, name)
        return own if own is not None else getattr(network, name)

    return LinkEffect(choose_value("latency_ms"), choose_value("jitter_ms"), choose_value("bandwidth_mbit"))
