"""What a run leaves behind: result.json, the model, the ledger, the resolved scenario."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from federation.coordinator import Disclosure, Federation
from federation.ledger import Accounts, Link, RoundRecord, Traffic
from scenarios.adversity import NetworkSpec

SCHEMA = 1
_PACKAGES = ("clarabel", "cryptography", "msgpack", "numpy", "pyzmq", "scikit-learn", "scipy")
_COUNTS = ("messages", "payload_bytes", "wire_bytes", "predicted_wire_bytes")


def cost(accounts: Accounts, phase_seconds: dict[str, float]) -> dict[str, Any]:
    """Rounds, hops, messages and bytes of a run, by phase, protocol and link; control apart."""
    protocols = list(accounts.select(control=False))
    rounds = list(accounts.rounds.values())
    phases = list(dict.fromkeys([*(record.phase for record in rounds), *phase_seconds]))
    by_phase = _grouped(protocols, lambda link: accounts.record_of(link).phase)
    by_protocol = _grouped(protocols, lambda link: accounts.record_of(link).protocol)
    return {
        "rounds": len(rounds),
        "called_off": sum(record.called_off for record in rounds),
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
    """Sums of counts. What went to a site that was lost nobody measured: its predicted bytes are told apart.

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


def disclosures(written: Iterable[Disclosure]) -> list[dict[str, Any]]:
    """What left its site unmasked, or was revealed by design: to whom, from which step, how often."""
    return [{**vars(disclosure), "shape": list(disclosure.shape)} for disclosure in written]


def environment() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "fedsvm": importlib.metadata.version("fedsvm"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cpus": os.cpu_count(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


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


def network(conditions: NetworkSpec, accounts: Accounts) -> dict[str, Any]:
    """Seconds a round, as measured and as the conditions alone would have it, computing left out.

    A round takes an order, its hops one after the other, and where nothing goes to the coordinator an answer. Over each
    of these hops goes, at the link's bandwidth, what the round's messages carry on average.
    """
    rounds = [record for record in accounts.rounds.values() if not record.called_off]
    sizes: dict[int, Traffic] = defaultdict(Traffic)
    for link, traffic in accounts.select(control=False):
        sizes[link.round].add(traffic)
    predicted = [_predicted_s(conditions, record, sizes[record.round]) for record in rounds]
    count = max(1, len(rounds))
    return {
        "rounds": len(rounds),
        "measured_s_per_round": sum(record.seconds for record in rounds) / count,
        "predicted_s_per_round": sum(predicted) / count,
    }


def _predicted_s(conditions: NetworkSpec, record: RoundRecord, traffic: Traffic) -> float:
    steps = 1 + record.hops + (1 if record.verb == "run" else 0)
    seconds = steps * conditions.latency_ms / 1000
    if conditions.bandwidth_mbit is not None and traffic.messages:
        seconds += record.hops * traffic.predicted_wire_bytes / traffic.messages * 8e-6 / conditions.bandwidth_mbit
    return seconds


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Write result.json as one piece: a reader finds all of it or nothing."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    partial.replace(path)


def write_log(path: Path, log: Iterable[dict[str, Any]]) -> None:
    """Write what happened as one line of JSON each."""
    path.write_text("".join(json.dumps(event) + "\n" for event in log))


def write_ledger(path: Path, accounts: Accounts) -> None:
    """Write the ledger as parquet, one row per round and link."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, needed once
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(pa.Table.from_pylist(accounts.rows()), path)
