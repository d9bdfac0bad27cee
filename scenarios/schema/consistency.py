"""The contradictions between valid tables of a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from fedsvm.algorithms.algorithm import Algorithm, HorizontalAlgorithm, Outline
from fedsvm.algorithms.baselines import OF_CHOSEN, POOLED_BASELINES
from fedsvm.algorithms.features.kernels import KernelSettings
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.algorithms.settings import MAX_COUNT
from fedsvm.federation.site.program import mark_of, step_methods
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.schema.algorithm import AlgorithmTable
from fedsvm.scenarios.schema.base import resolve
from fedsvm.scenarios.schema.data import ALL, DataSpec
from fedsvm.scenarios.schema.federation import FederationSpec
from fedsvm.scenarios.schema.policy import PolicySpec
from fedsvm.scenarios.schema.protocol import ProtocolSpec, hiding_sum, sums_with
from fedsvm.scenarios.schema.split import (
    BY_FEATURE,
    BY_VALUE,
    COLUMNS,
    DIRICHLET,
    LABEL_SKEW,
    SIZES,
    columns_of,
    sizes_of,
)
from fedsvm.scenarios.schema.threats import CollusionSpec, FaultSpec, NetworkSpec, contradictions

MAX_RELAYED_SITES = 100  # every two parties have a relay, with a port of its own


@dataclass(frozen=True)
class Tables:
    """The tables of a scenario, as far as they are valid; faults with their numbers in the file."""

    federation: FederationSpec | None = None
    data: DataSpec | None = None
    algorithm: AlgorithmTable | None = None
    protocol: ProtocolSpec | None = None
    network: NetworkSpec | None = None
    collusion: CollusionSpec | None = None
    faults: dict[int, FaultSpec] = field(default_factory=dict)
    wants_baselines: bool = False
    wants_chosen: bool = False
    wants_own: bool = False
    policies: Sequence[PolicySpec] = ()


def impossible(tables: Tables) -> Iterator[str]:
    """Yield contradictions between tables that are valid by themselves."""
    federation, data, algorithm, protocol = tables.federation, tables.data, tables.algorithm, tables.protocol
    if federation and protocol and federation.sites < protocol.secure_sum.min_sites:
        yield (
            f"protocol.sum: a {protocol.secure_sum.described} sum needs {protocol.secure_sum.min_sites} sites or more "
            f"and there are {federation.sites}; with fewer it hides nothing. Add sites, or set protocol.sum = "
            f'"{hiding_sum(federation.sites)}".'
        )
    if federation and protocol:
        yield from _threats(tables, federation, protocol)
    if federation and data:
        yield from _check_split(federation, data)
    if federation and federation.launcher != "local":
        yield from _on_a_cluster(tables)
    if federation:
        for number, policy in enumerate(tables.policies, start=1):
            if resolve(policy.site, federation.site_names) is None:
                there = ", ".join(federation.site_names)
                yield f"policy.{number}: there is no site {policy.site!r}; there are {there}."
    if algorithm and data:
        yield from _of_algorithm(algorithm, data)
        yield from _own_models(algorithm, data) if tables.wants_own else ()
        yield from _forbid_verification(algorithm, data, protocol) if protocol and protocol.wants_verified else ()
    if algorithm and tables.wants_baselines and type(algorithm.implementation).baselines is Algorithm.baselines:
        named = ", ".join(f'"{name}"' for name in POOLED_BASELINES if name != OF_CHOSEN)
        yield f"compare.baselines: {algorithm.name} has none; name some, as [{named}], or remove it."
    if (algorithm and data and tables.wants_chosen) and not (
        algorithm.implementation.chooses_columns and data.partition == "horizontal"
    ):
        yield f"compare.baselines: {algorithm.name} trains on no chosen columns; leave {OF_CHOSEN} out."
    if tables.collusion and tables.collusion.known_records is not None and data and data.partition != "vertical":
        yield "collusion.known_records: applies to vertical partitions, whose kernel matrices are attacked; remove it."
    if tables.collusion and tables.collusion.candidates is not None and data and data.partition != "horizontal":
        yield "collusion.candidates: applies to horizontal partitions, whose sums over rows are attacked; remove it."


def _forbid_verification(algorithm: AlgorithmTable, data: DataSpec, protocol: ProtocolSpec) -> Iterator[str]:
    """Yield why no sum can be verified."""
    if not protocol.secure_sum.verifies:
        able = " or ".join(f'"{name}"' for name in sums_with("verify"))
        yield f'protocol.verify: protocol.sum must be {able}, got "{protocol.sum}"; change it, or remove verify.'
        return
    settings, site = algorithm.settings, algorithm.implementation.Site
    reading = data.model_dump(mode="json", exclude_none=True)
    ordered = site.script(Terms(algorithm.name, asdict(settings), protocol.sum, {}, 1, reading=reading)).steps
    if not any(mark_of(method).public for name, method in step_methods(site).items() if name in ordered):
        yield f"protocol.verify: {algorithm.name} with these settings opens no model that sites can verify; remove it."


def _own_models(algorithm: AlgorithmTable, data: DataSpec) -> Iterator[str]:
    """Yield why no site's own model can be compared with the federated one."""
    if data.partition != "horizontal":
        yield "compare.sites: needs sites that hold rows, since columns alone make no model; set it to false."
    elif algorithm.implementation.is_private(algorithm.settings):
        yield f"compare.sites: {algorithm.name} promises privacy, and no noise covers own models; set it to false."
    elif data.folds is None and not data.test_fraction and data.test_source is None:
        yield "compare.sites: needs test rows; set data.test_fraction or data.folds, or compare.sites = false."


def _on_a_cluster(tables: Tables) -> Iterator[str]:
    """Yield what requires all sites on this machine: relays between them, and files shared with the runner."""
    if tables.network is not None or any(fault.on_links for fault in tables.faults.values()):
        yield 'federation.launcher: network conditions and faults on links need "local"; remove them.'
    if tables.collusion is not None:
        yield 'federation.launcher: colluders write down what they see on this machine, which needs "local".'
    if tables.data and tables.data.partition == "vertical":
        yield 'federation.launcher: sites that hold columns keep parts of the model in files, which needs "local".'
    if tables.algorithm and getattr(tables.algorithm.settings, "release", "everyone") != "everyone":
        yield 'federation.launcher: a model that sites alone keep is in files, which needs "local".'


def _check_split(federation: FederationSpec, data: DataSpec) -> Iterator[str]:
    """Yield contradictions between the split and the sites."""
    if data.split.startswith(SIZES) and len(sizes := sizes_of(data.split)) != federation.sites:
        yield f"data.split: {len(sizes)} sizes are given for {federation.sites} sites."
    if data.split.startswith(COLUMNS) and len(lists := columns_of(data.split)) != federation.sites:
        yield f"data.split: {len(lists)} lists of columns are given for {federation.sites} sites."
    if data.partition == "vertical" and federation.sites < 2:
        yield "federation.sites: a vertical partition needs two sites or more."
    if data.sources and (others := set(data.sources) ^ set(federation.site_names)):
        yield f"data.sources: must have a file for each of federation.names and no other; see {sorted(others)[0]!r}."
    if strangers := sorted(set(data.by_site) - set(federation.site_names)):
        there = ", ".join(federation.site_names)
        yield f"data.by_site: there is no site {strangers[0]!r}; there are {there}."
    if data.label_site != ALL and resolve(data.label_site, federation.site_names) is None:
        there = ", ".join(federation.site_names)
        yield f'data.label_site: there is no site {data.label_site!r}; there are {there}, or "{ALL}".'


def _of_algorithm(table: AlgorithmTable, data: DataSpec) -> Iterator[str]:
    """Yield what the algorithm requires of the data, or does not use."""
    algorithm = table.implementation
    if data.partition != algorithm.partition:
        others = " or ".join(f'"{name}"' for name, other in ALGORITHMS.loadable() if other.partition == data.partition)
        yield (
            f'data.partition: {table.name} needs "{algorithm.partition}"; set it to that, or set algorithm.name = '
            f"{others}."
        )
    elif algorithm.scaling == "public-rows" and data.public < 2 and data.public_source is None:
        yield f"data.public: {table.name} takes columns, scale and features from public rows; set some apart."
    else:
        needs_curve = data.evaluation != "nested"
        public_rows = data.public if data.public_source is None else MAX_COUNT  # not known before it is read
        outline = Outline(
            public_rows,
            data.models,
            calibrated=data.calibration > 0,
            needs_curve=needs_curve,
            statistics_privacy=data.statistics_privacy,
        )
        yield from (f"algorithm.{problem}." for problem in algorithm.problems(table.settings, outline))
        if isinstance(table.settings, KernelSettings):
            yield from (f"algorithm.{problem}." for problem in table.settings.scale_problems(data.scale))
    if data.split.startswith((LABEL_SKEW, BY_FEATURE, BY_VALUE, DIRICHLET)) and algorithm.is_private(table.settings):
        yield (
            f"data.split: {data.split} deals rows by what is in them, so that one that changes moves others, and "
            f'{table.name} promises privacy with noise for one; set data.split = "random" or sizes:[…], or train '
            "without noise."
        )
    by_rows = isinstance(algorithm, HorizontalAlgorithm) and type(algorithm).score is HorizontalAlgorithm.score
    if data.tested_at_sites and not by_rows:
        yield f'data.tested_by: a site alone cannot score rows by {table.name}; set it to "runner".'
    if data.evaluation != "nested" and not algorithm.chooses_columns:
        yield f"data.evaluation: {table.name} does not select columns; remove this key."
    if algorithm.scaling != "public-rows" and (data.public or data.public_source is not None):
        yield f"data.public: {table.name} does not use public rows; remove this key."
    if data.calibration and not algorithm.can_calibrate(table.settings):
        yield f"data.calibration: {table.name} as it is set cannot be calibrated by sums over sites; remove it."
    if data.weight is not None and not algorithm.takes_weights(table.settings):
        yield f"data.weight: {table.name} as it is set trains on rows of equal weight; remove it."
    if algorithm.scaling != "secure-sums" and data.missing == "mean":
        yield f'data.missing: {table.name} has no means over all sites to fill gaps with; set it to "refuse" or "drop".'
    yield from _of_statistics(table, data)


def _of_statistics(table: AlgorithmTable, data: DataSpec) -> Iterator[str]:
    """Yield what is wrong with keys of noisy statistics."""
    scaling = table.implementation.scaling
    if scaling != "secure-sums" and data.statistics_privacy:
        yield f"data.statistics_privacy: {table.name} takes no statistics of all rows; remove it."
    if scaling == "secure-sums" and data.ranges and not data.statistics_privacy:
        yield (
            f"data.ranges: {table.name} takes the exact scale of columns from all rows; remove it, or set "
            "data.statistics_privacy above 0."
        )


def _threats(tables: Tables, federation: FederationSpec, protocol: ProtocolSpec) -> Iterator[str]:
    """Yield contradictions in the committee, faults, network and collusion."""
    names, faults = federation.site_names, list(tables.faults.values())
    phases = tables.algorithm.implementation.phases if tables.algorithm else None
    if tables.algorithm:
        yield from protocol.problems(names, getattr(tables.algorithm.settings, "masking", None))
    for number, fault in tables.faults.items():
        yield from (f"faults.{number}: {problem}." for problem in fault.problems(names, phases))
    yield from (f"{problem}." for problem in contradictions(tables.faults, names, phases or ()))
    yield from _too_few(federation, protocol, faults)
    relayed = tables.network is not None or any(fault.on_links for fault in faults)
    if relayed and federation.transport != "tcp":
        yield 'federation.transport: network conditions and faults on links need "tcp".'
    if relayed and federation.sites > MAX_RELAYED_SITES:
        yield f"federation.sites: network conditions and faults on links need {MAX_RELAYED_SITES} sites or fewer."
    if any(fault.needs_encryption for fault in faults) and not federation.encryption:
        yield "faults: without encryption a changed frame is not detected; set federation.encryption = true."
    if tables.network is not None:
        yield from tables.network.problems(names)
    if tables.collusion is not None:
        yield from tables.collusion.problems(names)


def _too_few(federation: FederationSpec, protocol: ProtocolSpec, faults: list[FaultSpec]) -> Iterator[str]:
    killed = {site for fault in faults if fault.is_final for site in fault.sites(federation.site_names)}
    left = federation.sites - len(killed)
    needed = max(federation.min_sites, protocol.min_sites(federation.sites))
    if killed and left < needed and federation.on_dropout == "continue" and federation.sites >= needed:
        yield (
            f"faults: kills leave {left} of {federation.sites} sites, and {needed} are needed (federation.min_sites = "
            f"{federation.min_sites}, and a {protocol.secure_sum.described} sum); kill fewer, or set rejoin = true."
        )
