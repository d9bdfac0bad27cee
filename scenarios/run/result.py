"""What a run leaves behind: result.json, the model, the ledger, the resolved scenario."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from federation.ledger import Accounts, RoundRecord, Traffic
from scenarios.schema.threats import NetworkSpec

SCHEMA = 1
_PACKAGES = ("clarabel", "cryptography", "msgpack", "numpy", "pyzmq", "scikit-learn", "scipy")


def environment() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "fedsvm": importlib.metadata.version("fedsvm"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cpus": os.cpu_count(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def network(conditions: NetworkSpec, accounts: Accounts) -> dict[str, Any]:
    """Seconds a round, as measured and as the conditions alone would have it, computing left out.

    A round takes an order, its hops one after the other, and where nothing goes to the coordinator an answer. Over each
    of these hops goes, at the link's bandwidth, what the round's messages carry on average.
    """
    rounds = [record for record in accounts.rounds.values() if not record.aborted]
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
    import pyarrow as pa  # slow to import, needed once
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(accounts.rows()), path)
