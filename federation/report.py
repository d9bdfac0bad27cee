"""What a federation says of itself afterwards, as plain values: what it cost, who took part, what was disclosed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from federation.federation import Federation
from federation.ledger import Link, Traffic

_COUNTS = ("messages", "payload_bytes", "wire_bytes", "predicted_wire_bytes")


def cost(federation: Federation) -> dict[str, Any]:
    """Rounds, hops, messages and bytes, by phase, protocol and link; control apart."""
    accounts, phase_seconds = federation.accounts, federation.phase_seconds
    protocols = list(accounts.select(control=False))
    rounds = list(accounts.rounds.values())
    phases = list(dict.fromkeys([*(record.phase for record in rounds), *phase_seconds]))
    by_phase = _grouped(protocols, lambda link: accounts.record_of(link).phase)
    by_protocol = _grouped(protocols, lambda link: accounts.record_of(link).protocol)
    return {
        "rounds": len(rounds),
        "aborted": sum(record.aborted for record in rounds),
        "hops": sum(record.hops for record in rounds),
        **_total(traffic for _, traffic in protocols),
        "control": _total(traffic for _, traffic in accounts.select(control=True)),
        "by_phase": {
            phase: {
                **_rounds_and_hops(record for record in rounds if record.phase == phase),
                **_total(by_phase[phase]),
                "seconds": phase_seconds.get(phase, 0.0),
            }
            for phase in phases
        },
        "by_protocol": {
            protocol: {
                **_rounds_and_hops(record for record in rounds if record.protocol == protocol),
                **_total(by_protocol[protocol]),
            }
            for protocol in dict.fromkeys(record.protocol for record in rounds)
            if any(traffic.messages for traffic in by_protocol[protocol])  # a local step is no protocol
        },
        "by_link": _by_link(protocols),
    }


def _grouped(links: list[tuple[Link, Traffic]], key: Callable[[Link], str]) -> dict[str, list[Traffic]]:
    groups: dict[str, list[Traffic]] = defaultdict(list)
    for link, traffic in links:
        groups[key(link)].append(traffic)
    return groups


def _rounds_and_hops(records: Iterable[Any]) -> dict[str, int]:
    hops = [record.hops for record in records]
    return {"rounds": len(hops), "hops": sum(hops)}


def _total(traffic: Iterable[Traffic]) -> dict[str, int | None]:
    """Sums of counts. What went to a site that dropped nobody measured: its predicted bytes are told apart.

    `wire_bytes` is None where nothing was measured at all.
    """
    total, parts = Traffic(), list(traffic)
    measured, unmeasured = None if parts else 0, 0
    for part in parts:
        total.add(part)
        if part.wire_bytes is None:
            unmeasured += part.predicted_wire_bytes
        else:
            measured = (measured or 0) + part.wire_bytes
    counts = {name: getattr(total, name) for name in _COUNTS}
    return counts | {"wire_bytes": measured, "unmeasured_bytes": unmeasured}


def _by_link(links: list[tuple[Link, Traffic]]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Traffic]] = defaultdict(list)
    for link, traffic in links:
        groups[link.sender, link.receiver].append(traffic)
    return [{"from": sender, "to": receiver, **_total(group)} for (sender, receiver), group in sorted(groups.items())]


def disclosures(federation: Federation) -> list[dict[str, Any]]:
    """What left its site unmasked, or was revealed by design: to whom, from which step, how often."""
    return [
        {
            "to": each.to,
            "step": each.step,
            "kind": each.kind,
            "form": each.form,
            "shape": list(each.shape),
            "times": each.times,
        }
        for each in federation.disclosures
    ]


def progress(federation: Federation) -> dict[str, Any]:
    """How far the run came, with the algorithm's latest figures."""
    now = federation.progress
    return {"phase": now.phase, "round": now.round, "figures": dict(now.figures)}


def memberships(federation: Federation) -> list[dict[str, Any]]:
    """Who took part from when on, and why sites left."""
    first = {"round": 0, "phase": "launch", "left": {}, "joined": [], "sites": list(federation.membership.all_sites)}
    changes = [asdict(change) for change in federation.membership.changes]
    return [
        first,
        *({**change, "joined": list(change["joined"]), "sites": list(change["sites"])} for change in changes),
    ]


NO_REPORT: dict[str, Any] = {
    "pid": None,
    "status": "dropped",
    "unique_memory_bytes": None,
    "cpu_s": None,
    "refused": {},
}
"""Of a site that sent no final report."""


def sites(federation: Federation) -> list[dict[str, Any]]:
    """Each site's process, what became of it, and what it says of itself in the end."""
    return [
        {"name": name, **NO_REPORT, "pid": federation.pids.get(name), **_said(name, federation)}
        for name in federation.membership.all_sites
    ]


def _said(site: str, federation: Federation) -> dict[str, Any]:
    final_report = federation.final_reports.get(site)
    if final_report is None:
        return {}
    return {
        "status": _status(site, federation),
        "unique_memory_bytes": final_report.unique_memory_bytes,
        "cpu_s": final_report.cpu_s,
        "refused": dict(final_report.refused),
    }


def _status(site: str, federation: Federation) -> str:
    """finished, dropped if it was out in the end, rejoined if it was out in between."""
    if site not in federation.sites:
        return "dropped"
    return "rejoined" if any(site in change.joined for change in federation.membership.changes) else "finished"
