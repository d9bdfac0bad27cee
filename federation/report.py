"""The reports of a federation after a run: its cost, who took part, and what was disclosed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedsvm.federation.federation import Federation
from fedsvm.federation.traffic_ledger import DirectedLink, RoundRecord, Traffic


@dataclass(frozen=True, kw_only=True)
class TrafficReport:
    """Messages, the bytes of their arrays, and the bytes on the wire as predicted and as the kernel counted them.

    Attributes
    ----------
    messages : int
        Protocol messages.
    payload_bytes : int
        Bytes of the arrays in them.
    wire_bytes : int, optional
        Bytes that TCP carried, handshakes and encryption included, as the kernel of the receiver counts them. None if
        nothing was measured: off Linux, and without TCP.
    predicted_wire_bytes : int
        The same, computed from the sizes of messages alone.
    unmeasured_bytes : int
        Predicted bytes of messages to sites that were lost, which nobody measured.
    """

    messages: int
    payload_bytes: int
    wire_bytes: int | None
    predicted_wire_bytes: int
    unmeasured_bytes: int


@dataclass(frozen=True, kw_only=True)
class ProtocolCost(TrafficReport):
    """The cost of one protocol over all of its rounds."""

    rounds: int
    hops: int


@dataclass(frozen=True, kw_only=True)
class PhaseCost(ProtocolCost):
    """The cost of one phase.

    Attributes
    ----------
    seconds : float
        Duration of the phase.
    rounds_s : float, optional
        The seconds of it in rounds; in the others the coordinator computes. None if they were not counted.
    """

    seconds: float
    rounds_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class LinkCost(TrafficReport):
    """The traffic from one party to another."""

    sender: str
    receiver: str


@dataclass(frozen=True, kw_only=True)
class CostReport(TrafficReport):
    """The cost of a run.

    Attributes
    ----------
    rounds : int
        Orders to all sites, aborted ones among them.
    aborted : int
        Rounds that were aborted and run again.
    hops : int
        The length of the longest chain of messages in a round, summed over the rounds.
    control : TrafficReport
        The traffic of orders and answers, which the other counts omit.
    by_phase, by_protocol : mapping of str to cost
        The cost of each phase and of each protocol.
    by_link : tuple of LinkCost
        The traffic from each party to each other party.
    """

    rounds: int
    aborted: int
    hops: int
    control: TrafficReport
    by_phase: Mapping[str, PhaseCost]
    by_protocol: Mapping[str, ProtocolCost]
    by_link: tuple[LinkCost, ...]


def cost(federation: Federation) -> CostReport:
    """Return rounds, hops, messages and bytes, by phase, protocol and link, with control separate."""
    accounts, seconds = federation.accounts, federation.record.phase_seconds
    protocols = list(accounts.select(control=False))
    rounds = list(accounts.rounds.values())
    phases = list(dict.fromkeys([*(record.phase for record in rounds), *seconds]))
    by_phase = _group(protocols, lambda link: accounts.record_of(link).phase)
    by_protocol = _group(protocols, lambda link: accounts.record_of(link).protocol)
    by_link = _group(protocols, lambda link: f"{link.sender} {link.receiver}")

    def rounds_of(which: Callable[[RoundRecord], bool]) -> dict[str, int]:
        hops = [record.hops for record in rounds if which(record)]
        return {"rounds": len(hops), "hops": sum(hops)}

    return CostReport(
        **_total(traffic for _, traffic in protocols),
        rounds=len(rounds),
        aborted=sum(record.aborted for record in rounds),
        hops=sum(record.hops for record in rounds),
        control=TrafficReport(**_total(traffic for _, traffic in accounts.select(control=True))),
        by_phase={
            phase: PhaseCost(
                **_total(by_phase[phase]),
                **rounds_of(lambda record, phase=phase: record.phase == phase),  # type: ignore[misc]
                seconds=seconds.get(phase, 0.0),
                rounds_s=sum(record.seconds for record in rounds if record.phase == phase),
            )
            for phase in phases
        },
        by_protocol={
            protocol: ProtocolCost(
                **_total(by_protocol[protocol]),
                **rounds_of(lambda record, protocol=protocol: record.protocol == protocol),  # type: ignore[misc]
            )
            for protocol in dict.fromkeys(record.protocol for record in rounds)
            if any(traffic.messages for traffic in by_protocol[protocol])  # a local step is no protocol
        },
        by_link=tuple(
            LinkCost(**_total(traffic), sender=ends.split()[0], receiver=ends.split()[1])
            for ends, traffic in sorted(by_link.items())
        ),
    )


def _group(links: list[tuple[DirectedLink, Traffic]], key: Callable[[DirectedLink], str]) -> dict[str, list[Traffic]]:
    groups: dict[str, list[Traffic]] = defaultdict(list)
    for link, traffic in links:
        groups[key(link)].append(traffic)
    return groups


def _total(traffic: Iterable[Traffic]) -> dict[str, Any]:
    """Return the fields of a TrafficReport."""
    counts = list(traffic)
    measured = [each.wire_bytes for each in counts if each.wire_bytes is not None]
    return {
        "messages": sum(each.messages for each in counts),
        "payload_bytes": sum(each.payload_bytes for each in counts),
        "predicted_wire_bytes": sum(each.predicted_wire_bytes for each in counts),
        "wire_bytes": sum(measured) if measured or not counts else None,
        "unmeasured_bytes": sum(each.predicted_wire_bytes for each in counts if each.wire_bytes is None),
    }


@dataclass(frozen=True)
class DisclosureReport:
    """Something that a party learned.

    Attributes
    ----------
    to : str
        The party.
    step : str
        The step that it comes from.
    kind : {"sum", "value", "parameter", "difference", "single-row", "row-difference", "design"}
        See `disclosures.Kind`.
    detail : str
        A description in a sentence, if the kind alone does not explain it.
    shape : tuple of int
        The shape of the array.
    times : int
        The number of times that it was disclosed.
    """

    to: str
    step: str
    kind: str
    detail: str
    shape: tuple[int, ...]
    times: int


def disclosures(federation: Federation) -> tuple[DisclosureReport, ...]:
    """Return the values that left a site unmasked or were revealed by design: to whom, from which step, how often."""
    return tuple(
        DisclosureReport(each.to, each.step, each.kind, each.detail, each.shape, each.times)
        for each in federation.disclosures
    )


@dataclass(frozen=True)
class ProgressReport:
    """The progress of a run, with the algorithm's latest figures."""

    phase: str
    round: int
    figures: Mapping[str, float]


def progress(federation: Federation) -> ProgressReport:
    """Return the progress of the run."""
    now = federation.progress
    return ProgressReport(now.phase, now.round, dict(now.figures))


@dataclass(frozen=True)
class MembershipReport:
    """The sites that left, with reasons, or joined in a round; `sites` take part from then on."""

    round: int
    phase: str
    left: Mapping[str, str]
    joined: tuple[str, ...]
    sites: tuple[str, ...]


def memberships(federation: Federation) -> tuple[MembershipReport, ...]:
    """Return each change of the membership: the sites that left or joined, and those that took part from then on."""
    first = MembershipReport(0, "launch", {}, (), tuple(federation.membership.all_sites))
    changes = federation.membership.changes
    return (first, *(MembershipReport(c.round, c.phase, dict(c.left), c.joined, c.sites) for c in changes))


@dataclass(frozen=True)
class SiteReport:
    """A site's process, its status, and its final report.

    Attributes
    ----------
    name : str
    pid : int, optional
        Its process; None on another host.
    status : {"finished", "dropped", "rejoined"}
        "dropped" if it was missing at the end, "rejoined" if it was missing only in between.
    unique_memory_bytes : int, optional
        The memory that its process shares with no other; None if unknown.
    cpu_s : float, optional
        CPU seconds of its process; None if unknown.
    refused : mapping of str to int
        The number of messages that it refused, by reason.
    logged : mapping of str to int
        The number of log records of its code that the coordinator received, by level.
    """

    name: str
    pid: int | None = None
    status: Literal["finished", "dropped", "rejoined"] = "dropped"
    unique_memory_bytes: int | None = None
    cpu_s: float | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    logged: Mapping[str, int] = field(default_factory=dict)


def sites(federation: Federation) -> tuple[SiteReport, ...]:
    """Return each site's process, its status, and its final report."""
    return tuple(_site(name, federation) for name in federation.membership.all_sites)


def _site(name: str, federation: Federation) -> SiteReport:
    pid, final = federation.pids.get(name), federation.final_reports.get(name)
    logged = dict(Counter(each.level for each in federation.record.logged if each.site == name))
    if final is None:
        return SiteReport(name, pid, logged=logged)
    rejoined = any(name in change.joined for change in federation.membership.changes)
    status: Literal["finished", "dropped", "rejoined"] = "rejoined" if rejoined else "finished"
    if name not in federation.sites:
        status = "dropped"
    return SiteReport(name, pid, status, final.unique_memory_bytes, final.cpu_s, dict(final.refused), logged)
