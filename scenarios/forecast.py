"""A forecast of a scenario's cost with more sites than a machine can run, extrapolated from small runs.

For rounds of secure sums, messages, hops and bytes follow from the protocol's formula, with vectors as long as in the
largest small run. For all other rounds, and for orders and their parameters, they are extrapolated by a polynomial in
the number of sites: of the second degree, which no protocol here exceeds, or of the first degree for hops.

The seconds of a round are a nonnegative combination of terms: a round, its sites, hops, messages, bytes and new
connections. The coefficients are fitted to all rounds of the small runs with equal relative errors. Such a fit is below
the mean if seconds vary, so it is scaled to the seconds of the largest small run. The seconds of the launch, and those
of results and report, are fitted with a constant, a term for each site, and a term for the first run of a process. That
run takes longer: it loads libraries, waits for the process from which sites are forked, and prepares the report. So
does the predicted run. Messages between pairs of sites grow with the square of their number, but small runs have too
few to measure their cost. All seconds are those of this machine, whose cores all sites share.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError
from fedsvm.federation.traffic_ledger import CONTROL
from fedsvm.protocols.sums.secure_sum import SecureSum
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.data.site_column import resolve_site_names
from fedsvm.scenarios.report import page
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.log import read_log
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError

MEASURED = (5, 20, 60)
"""Default numbers of sites of the small runs."""


@dataclass(frozen=True)
class RoundCost:
    """The cost of one round.

    Attributes
    ----------
    step : tuple of str
        Its phase, verb and step.
    protocol : str
    hops, messages, payload_bytes, wire_bytes : float
        The cost of its protocol.
    control_bytes : float
        Bytes of orders, with their parameters, and answers.
    connections : float
        The number of connections that its protocol is the first to use.
    seconds : float
    """

    step: tuple[str, str, str]
    protocol: str
    hops: float
    messages: float
    payload_bytes: float
    wire_bytes: float
    control_bytes: float
    connections: float
    seconds: float


class Total(NamedTuple):
    """The cost of a run: rounds, hops, messages, bytes and seconds.

    Attributes
    ----------
    launch_s : float
        Seconds until the sites were started and introduced to each other.
    rounds_s : float
        Seconds in rounds.
    own_s : float
        Seconds of the coordinator between rounds.
    prepare_s : float
        Seconds to load libraries and data, before the launch; in a prediction, also the wait for the process from which
        sites are forked.
    end_s : float
        Seconds to write results and report.
    site_bytes : float
        Unshared memory of a site in bytes.
    """

    sites: int
    rounds: int
    hops: float
    messages: float
    payload_bytes: float
    wire_bytes: float
    control_bytes: float
    launch_s: float
    rounds_s: float
    own_s: float
    prepare_s: float
    end_s: float
    site_bytes: float

    @property
    def seconds(self) -> float:
        """Seconds of the whole command."""
        return self.prepare_s + self.launch_s + self.rounds_s + self.own_s + self.end_s


@dataclass(frozen=True)
class MeasuredRun:
    """A small run: its rounds, its other seconds, and the bytes that were sent before the first round."""

    sites: int
    rounds: tuple[RoundCost, ...]
    launch_bytes: float
    launch_s: float
    own_s: float
    prepare_s: float
    end_s: float
    site_bytes: float

    @property
    def connections(self) -> float:
        """The number of connections that protocols opened."""
        return sum(each.connections for each in self.rounds)

    @property
    def total(self) -> Total:
        """The total over all rounds."""
        beside = (self.launch_s, self.own_s, self.prepare_s, self.end_s)
        return _total(self.sites, self.rounds, self.launch_bytes, *beside, self.site_bytes)


def measure(
    scenario: str,
    sites: int,
    changes: Sequence[str] = (),
    unset: Sequence[str] = (),
    *,
    began: float | None = None,
) -> MeasuredRun:
    """Run a scenario with a number of sites, without comparison with pooled rows.

    Parameters
    ----------
    scenario : str
    sites : int
    changes, unset : sequence of str
        See `spec.read`.
    began : float, optional
        When this process began to load libraries for this run, on the monotonic clock in seconds; by default now.

    Raises
    ------
    ScenarioError
        The scenario cannot be run with this number of sites.
    FederationError
        The run failed.
    KeyboardInterrupt
        The run was interrupted.
    """
    began = time.monotonic() if began is None else began
    overrides = [*changes, "compare.centralised=false"]
    chosen, base = spec.read(scenario, overrides=overrides, unset=unset, sites=sites)
    chosen = resolve_site_names(chosen, base)
    rows = dataset.prepare(chosen, base)
    with tempfile.TemporaryDirectory(prefix="fedsvm-forecast-") as folder:
        finished = runner.run(chosen, rows, Path(folder), began=began, another_follows=True)
        result = finished.result
        if result.status == "interrupted":
            raise KeyboardInterrupt
        if result.status != "completed" or result.cost is None:
            raise FederationError(f"The run with {sites} sites, which a prediction needs, failed: {result.error}")
        page.write_report(Path(folder))
        end_s = time.monotonic() - began - result.timing.total_s
        log = [event for event in read_log(Path(folder)) if event["event"] == "round"]
        ledger = pq.read_table(Path(folder) / "ledger.parquet").to_pylist()
    rounds, launch_bytes = _round_costs(log, ledger)
    own_s = sum(phase.seconds - (phase.rounds_s or 0.0) for phase in result.cost.by_phase.values())
    site_bytes = [site.unique_memory_bytes for site in result.sites if site.unique_memory_bytes is not None]
    return MeasuredRun(
        sites,
        rounds,
        launch_bytes,
        result.timing.launch_s,
        own_s,
        result.timing.prepare_s,
        end_s,
        float(np.mean(site_bytes)) if site_bytes else float("nan"),
    )


def _round_costs(
    log: Sequence[Mapping[str, Any]], ledger: Sequence[Mapping[str, Any]]
) -> tuple[tuple[RoundCost, ...], float]:
    """Return the cost of every round of a run, and the bytes of control messages before the first round."""
    protocols: dict[int, Counter[str]] = defaultdict(Counter)
    control_bytes = Counter[int]()
    connected: set[tuple[str, str]] = set()
    for row in sorted(ledger, key=lambda row: row["round"]):
        if row["protocol"] == CONTROL:
            control_bytes[row["round"]] += row["predicted_wire_bytes"]
            continue
        counts, link = protocols[row["round"]], (row["from"], row["to"])
        for name in ("messages", "payload_bytes", "predicted_wire_bytes"):
            counts[name] += row[name]
        counts["connections"] += link not in connected
        connected.add(link)
    rounds = []
    for event in log:
        counts = protocols[event["round"]]
        rounds.append(
            RoundCost(
                (event["phase"], event["verb"], event["step"]),
                event["protocol"],
                event["hops"],
                counts["messages"],
                counts["payload_bytes"],
                counts["predicted_wire_bytes"],
                control_bytes[event["round"]],
                counts["connections"],
                event["seconds"],
            )
        )
    return tuple(rounds), control_bytes[0]


def secure_sum_of(scenario: str, changes: Sequence[str] = (), unset: Sequence[str] = ()) -> SecureSum:
    """Return the sum that a scenario names. Raises ScenarioError."""
    chosen, _ = spec.read(scenario, overrides=changes, unset=unset)
    return chosen.protocol.secure_sum


def predict(runs: Sequence[MeasuredRun], secure_sum: SecureSum, sites: int) -> Total:
    """Return the cost of a run with a number of sites, from runs with fewer, of at least three different numbers.

    The first of them must be the first of its process. The number of rounds is that of the largest run: iterations of
    training depend on the rows, and little on the number of sites that hold them.
    """
    last = max(runs, key=lambda run: run.sites)
    seconds = _fit_costs([(_terms(run.sites, each), each.seconds) for run in runs for each in run.rounds])
    fitted = sum(float(_terms(last.sites, each) @ seconds) for each in last.rounds)
    seconds *= last.total.rounds_s / fitted
    rounds = [_extrapolate_round(each, runs, last, secure_sum, sites) for each in last.rounds]
    timed = [replace(each, seconds=float(_terms(sites, each) @ seconds)) for each in rounds]
    launch_bytes = _extrapolate(runs, lambda run: run.launch_bytes, sites)
    launch_s, wait_s = _by_sites(runs, lambda run: run.launch_s, sites)
    prepare_s = max(run.prepare_s for run in runs) + wait_s
    end_s = sum(_by_sites(runs, lambda run: run.end_s, sites))
    return _total(sites, timed, launch_bytes, launch_s, last.own_s, prepare_s, end_s, last.site_bytes)


def _total(
    sites: int,
    rounds: Sequence[RoundCost],
    launch_bytes: float,
    launch_s: float,
    own_s: float,
    prepare_s: float,
    end_s: float,
    site_bytes: float,
) -> Total:
    return Total(
        sites,
        len(rounds),
        sum(each.hops for each in rounds),
        sum(each.messages for each in rounds),
        sum(each.payload_bytes for each in rounds),
        sum(each.wire_bytes for each in rounds),
        launch_bytes + sum(each.control_bytes for each in rounds),
        launch_s,
        sum(each.seconds for each in rounds),
        own_s,
        prepare_s,
        end_s,
        site_bytes,
    )


def _extrapolate_round(
    known: RoundCost, runs: Sequence[MeasuredRun], last: MeasuredRun, secure_sum: SecureSum, sites: int
) -> RoundCost:
    def extrapolate(name: str) -> float:
        return _extrapolate(runs, lambda run: _mean(run, known, name), sites)

    def as_counted() -> RoundCost:
        messages, payload, wire = map(extrapolate, ("messages", "payload_bytes", "wire_bytes"))
        hops = _extrapolate(runs, lambda run: _mean(run, known, "hops"), sites, degree=1)  # they vary with the draw
        return RoundCost(known.step, known.protocol, hops, messages, payload, wire, control, connections, 0.0)

    control, connections = extrapolate("control_bytes"), 0.0
    if known.connections:
        of_all = _extrapolate(runs, lambda run: run.connections, sites)
        connections = of_all * known.connections / last.connections
    if known.protocol != secure_sum.name or known.step[1] != "sum":
        return as_counted()
    nothing, one = (secure_sum.cost_of(last.sites, (1, length)).payload_bytes for length in (0, 1))
    length = round((known.payload_bytes - nothing) / (one - nothing))
    if secure_sum.verifies and known.messages != secure_sum.cost_of(last.sites, (1, length)).messages:
        return as_counted()
    cost = secure_sum.cost_of(sites, (1, length))
    around = (known.wire_bytes - known.payload_bytes) / known.messages
    wire = cost.payload_bytes + around * cost.messages
    counted = (cost.hops, cost.messages, cost.payload_bytes, wire, control, connections)
    return RoundCost(known.step, known.protocol, *counted, 0.0)


def _mean(run: MeasuredRun, known: RoundCost, name: str) -> float:
    """Return the mean over the rounds of one step in a run, or NaN without any."""
    found = [getattr(each, name) for each in run.rounds if each.step == known.step]
    return float(np.mean(found)) if found else float("nan")


def _extrapolate(
    runs: Sequence[MeasuredRun], value: Callable[[MeasuredRun], float], sites: int, degree: int = 2
) -> float:
    """Extrapolate a value of runs as a polynomial of at most a degree in the sites, never below 0."""
    known = [(run.sites, value(run)) for run in runs if not np.isnan(value(run))]
    places, values = np.array(known, dtype=float).T
    line = np.polynomial.Polynomial.fit(places, values, min(degree, len(known) - 1))
    return max(0.0, float(line(sites)))


def _fit_costs(measured: Sequence[tuple[FloatArray, float]]) -> FloatArray:
    """Return the nonnegative seconds of one unit of each term, from terms and their total seconds."""
    from scipy.optimize import nnls

    terms, seconds = np.array([each for each, _ in measured]), np.array([each for _, each in measured])
    return np.asarray(nnls(terms / seconds[:, None], np.ones(len(seconds)))[0])


def _by_sites(runs: Sequence[MeasuredRun], seconds: Callable[[MeasuredRun], float], sites: int) -> tuple[float, float]:
    """Return the seconds of a run with a number of sites, and the additional seconds of the first run of a process."""
    costs = _fit_costs([(np.array([1.0, run.sites, run is runs[0]]), seconds(run)) for run in runs])
    return float(np.array([1.0, sites]) @ costs[:2]), float(costs[2])


def _terms(sites: int, known: RoundCost) -> FloatArray:
    counted = (known.hops, known.messages, known.wire_bytes, known.control_bytes, known.connections)
    return np.array([1, sites, *counted], dtype=float)


def check(sites: int, measured: Sequence[int]) -> None:
    """Raise ScenarioError for numbers of sites that do not allow a prediction."""
    if len(set(measured)) < 3:
        raise ScenarioError(["--measure: three different numbers of sites are needed, such as 5,20,60."])
    if sites <= max(measured):
        raise ScenarioError([f"--sites: must exceed {max(measured)}, the sites of the largest run, got {sites}."])
