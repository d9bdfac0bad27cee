"""What in a scenario does not go together, though each of its tables is valid by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import ValidationError

from scenarios.schema.base import Part, resolve
from scenarios.schema.split import COLUMNS, SIZES, columns_of, sizes_of
from scenarios.schema.tables import ALL, AlgorithmSpec, DataSpec, FederationSpec, ProtocolSpec
from scenarios.schema.threats import CollusionSpec, FaultSpec, NetworkSpec, contradictions

MAX_RELAYED_SITES = 100  # every two parties have a relay, with a port of its own
MAX_WHOLE_NUMBER = 2**63 - 1  # of TOML

PARTITION_OF = {"pan-svm": "horizontal", "dpp-svm": "vertical", "hybrid-svm": "horizontal", "dp-erm": "horizontal"}
PRIVATE = ("hybrid-svm", "dp-erm")

_P = TypeVar("_P", bound=Part)


def impossible(given: dict[str, Any]) -> Iterator[str]:
    """What does not go together, as far as the parts concerned are valid by themselves."""
    federation = _valid(FederationSpec, given.get("federation", {}))
    protocol = _valid(ProtocolSpec, given.get("protocol", {}))
    data = _valid(DataSpec, given.get("data", {}))
    if federation and protocol and federation.sites < protocol.secure_sum.min_sites:
        yield (
            f"protocol.sum: a {_described(protocol)} sum needs {protocol.secure_sum.min_sites} sites or more and "
            f"there are {federation.sites}; with fewer it hides nothing. Add sites, or set protocol.sum = "
            f'"{"masked" if federation.sites > 1 else "plain"}".'
        )
    if federation and protocol:
        yield from _adverse(given, federation, protocol)
    if federation and data:
        yield from _dealt(federation, data)
    if (algorithm := _valid(AlgorithmSpec, given.get("algorithm", {}))) and data:
        yield from _partitioned(algorithm, data)
    collusion = _valid(CollusionSpec, given["collusion"]) if "collusion" in given else None
    if collusion and collusion.known_records is not None and data and data.partition != "vertical":
        yield "collusion.known_records: is of vertical partitions, whose kernel matrices are attacked; leave it out."
    if algorithm and data and algorithm.name in PRIVATE:
        yield from _private(algorithm, data)
    if algorithm and data and algorithm.name not in PRIVATE and data.public:
        yield f"data.public: {algorithm.name} has no use for public rows; leave it out."
    if algorithm and data and algorithm.name not in PRIVATE and data.ranges:
        yield f"data.ranges: {algorithm.name} takes the scale of columns from all rows, by secure sums; leave it out."
    if algorithm and protocol and algorithm.name != "dpp-svm" and protocol.kernel_exchange != "summed":
        yield f"protocol.kernel_exchange: {algorithm.name} exchanges no kernel; leave it out."


def _dealt(federation: FederationSpec, data: DataSpec) -> Iterator[str]:
    """What of the split does not fit the sites."""
    if data.split.startswith(SIZES) and len(sizes := sizes_of(data.split)) != federation.sites:
        yield f"data.split: {len(sizes)} sizes are given for {federation.sites} sites."
    if data.split.startswith(COLUMNS) and len(lists := columns_of(data.split)) != federation.sites:
        yield f"data.split: {len(lists)} lists of columns are given for {federation.sites} sites."
    if data.partition == "vertical" and federation.sites < 2:
        yield "federation.sites: a vertical partition needs two sites or more."
    if data.label_site != ALL and resolve(data.label_site, federation.site_names) is None:
        there = ", ".join(federation.site_names)
        yield f'data.label_site: there is no site {data.label_site!r}; there are {there}, or "{ALL}".'


def _private(algorithm: AlgorithmSpec, data: DataSpec) -> Iterator[str]:
    """What public rows and the budget do not allow."""
    pairs = data.public * (data.public - 1) // 2
    if data.public < 2:
        yield f"data.public: {algorithm.name} takes columns, scale and features from public rows; set some apart."
    elif pairs < algorithm.features:
        yield (
            f"data.public: {data.public} public rows make {pairs} pairs, too few for algorithm.features = "
            f"{algorithm.features} frequencies; set more rows apart, or lower the number of features."
        )
    releases = data.folds or 1
    for key, one, budget in (
        ("budget", algorithm.epsilon, algorithm.budget),
        ("budget_delta", algorithm.delta, algorithm.budget_delta),
    ):
        if one is not None and budget is not None and one * releases > budget * (1 + 1e-12):
            yield (
                f"algorithm.{key}: {releases} releases of {one:g} would spend {one * releases:g} of a budget of "
                f"{budget:g}; raise it, or promise more of each release, or have fewer folds."
            )


def _partitioned(algorithm: AlgorithmSpec, data: DataSpec) -> Iterator[str]:
    """Which partition the algorithm is for."""
    needed = PARTITION_OF[algorithm.name]
    if data.partition != needed:
        others = ", ".join(name for name, partition in PARTITION_OF.items() if partition == data.partition)
        yield (
            f'data.partition: {algorithm.name} needs "{needed}"; set it to that, or set algorithm.name = "{others}".'
        )


def _adverse(given: dict[str, Any], federation: FederationSpec, protocol: ProtocolSpec) -> Iterator[str]:
    """What cannot be of faults, network and collusion."""
    names = federation.site_names
    listed = given.get("faults", [])
    read_faults = [_valid(FaultSpec, fault) for fault in listed] if isinstance(listed, list) else []
    faults = [fault for fault in read_faults if fault is not None]
    phases = rounds_at_most(_valid(AlgorithmSpec, given.get("algorithm", {})), _valid(DataSpec, given.get("data", {})))
    phases = {phase: most * (1 + len(faults)) for phase, most in phases.items()}  # each fault may start it anew
    for number, fault in enumerate(read_faults, start=1):
        if fault is not None:
            yield from (f"faults.{number}: {problem}." for problem in fault.problems(names, phases))
    yield from (f"{problem}." for problem in contradictions(faults, names, phases))
    yield from _too_few(federation, protocol, faults)
    yield from _needs_tcp(federation, faults, given)
    if (network := _valid(NetworkSpec, given["network"]) if "network" in given else None) is not None:
        yield from network.problems(names)
    if (collusion := _valid(CollusionSpec, given["collusion"]) if "collusion" in given else None) is not None:
        yield from collusion.problems(names)


def _too_few(federation: FederationSpec, protocol: ProtocolSpec, faults: list[FaultSpec]) -> Iterator[str]:
    killed = {
        site
        for fault in faults
        if fault.kind == "kill" and not fault.rejoin
        for site in fault.sites(federation.site_names)
    }
    left = federation.sites - len(killed)
    fewest = max(federation.min_sites, protocol.min_sites(federation.sites))
    if killed and left < fewest and federation.on_dropout == "continue" and federation.sites >= fewest:
        yield (
            f"faults: kills leave {left} of {federation.sites} sites, and {fewest} are needed (federation.min_sites = "
            f"{federation.min_sites}, and a {_described(protocol)} sum); kill fewer, or set rejoin = true."
        )


def _needs_tcp(federation: FederationSpec, faults: list[FaultSpec], given: dict[str, Any]) -> Iterator[str]:
    relayed = "network" in given or any(fault.on_links for fault in faults)
    if relayed and federation.transport != "tcp":
        yield 'federation.transport: network conditions and faults on links need "tcp".'
    if relayed and federation.sites > MAX_RELAYED_SITES:
        yield f"federation.sites: network conditions and faults on links need {MAX_RELAYED_SITES} sites or fewer."
    if any(fault.kind == "corrupt" for fault in faults) and not federation.encryption:
        yield "faults: without encryption nothing can tell that a frame was changed; set federation.encryption = true."


def rounds_at_most(algorithm: AlgorithmSpec | None, data: DataSpec | None) -> dict[str, int]:
    """The phases that have rounds, and how many each can have at most, in a run without restarts."""
    if algorithm is None or data is None:
        return dict.fromkeys(("setup", "landmarks", "train", "evaluate"), MAX_WHOLE_NUMBER)
    folds = data.folds or 1
    if algorithm.name == "dp-erm":
        return {"setup": folds, "train": 202 * folds}
    if algorithm.name == "hybrid-svm":
        return {"setup": folds, "train": (4 + 201 * algorithm.max_iterations) * folds}
    if algorithm.name == "dpp-svm":
        return {"setup": 2 + 3 * folds, "train": MAX_WHOLE_NUMBER, "evaluate": MAX_WHOLE_NUMBER}
    landmarks = 5 if algorithm.landmark_method == "local" else MAX_WHOLE_NUMBER
    return {
        "setup": 6 + 7 * folds,
        "landmarks": landmarks * folds,
        "train": (2 + 201 * algorithm.max_iterations) * folds,
    }


def _described(protocol: ProtocolSpec) -> str:
    options = ", ".join(f"{name} = {value}" for name, value in protocol.secure_sum.options.items())
    return f"{protocol.sum} ({options})" if options else protocol.sum


def _valid(model: type[_P], given: Any) -> _P | None:
    try:
        return model.model_validate(given)
    except ValidationError:
        return None
