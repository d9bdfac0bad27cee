"""What a scenario asks of sites on other hosts, and which scenarios can be run so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from algorithms.contract import HorizontalAlgorithm
from federation.site.terms import Terms
from scenarios.schema import spec
from scenarios.schema.errors import ScenarioError
from scenarios.schema.spec import Scenario

HELD_BY_SITE = "held by the site"
"""In place of the files of the sites, in a scenario that is run across hosts."""

_READING = (
    "label",
    "positive",
    "negative",
    "weight",
    "ignore",
    "missing",
    "separator",
    "decimal",
    "encoding",
    "categories",
    "test_fraction",
    "folds",
    "repeats",
)
"""What a site has to know of the [data] table to read and deal what it holds."""


def read(scenario: str | Path, overrides: Sequence[str], admitted: Sequence[str]) -> Scenario:
    """A scenario whose sites are those that are admitted, each with a file of its own.

    Raises ScenarioError for one that names rows, or that cannot be run across hosts.
    """
    changes: dict[str, Any] = {
        "data.sources": dict.fromkeys(admitted, HELD_BY_SITE),
        "compare.centralised": False,
        "compare.baselines": False,
    }
    chosen, _ = spec.read(scenario, overrides=overrides, changes=changes)
    if problems := list(_problems(chosen)):
        raise ScenarioError(problems)
    return chosen


def _problems(scenario: Scenario) -> Iterator[str]:
    """What a run across hosts cannot do."""
    data, algorithm = scenario.data, scenario.algorithm.implementation
    if not isinstance(algorithm, HorizontalAlgorithm) or algorithm.scaling != "secure-sums":
        yield (
            f"algorithm.name: {scenario.algorithm.name} cannot be run across hosts: sites must hold rows, and agree on "
            "columns by secure sums."
        )
    if data.positive is None:
        yield "data.positive: is missing; nobody sees all labels, so the scenario must say which one is +1."
    if data.test_source is not None:
        yield "data.test_source: nobody has test rows apart across hosts; leave it out."
    if data.calibration:
        yield "data.calibration: across hosts no rows are set apart to calibrate models; leave it out."
    for name, table in {
        "faults": scenario.faults,
        "network": scenario.network,
        "collusion": scenario.collusion,
    }.items():
        if table:
            yield f"{name}: is of simulations; leave it out (a site may rehearse a fault: fedsvm site --fault)."


def terms_of(scenario: Scenario) -> Terms:
    """What every site is asked for."""
    table, protocol, data = scenario.algorithm, scenario.protocol.secure_sum, scenario.data
    settings = table.settings
    said = data.model_dump(mode="json", exclude_none=True)
    return Terms(
        program=table.name,
        settings=asdict(settings),
        sum_name=protocol.name,
        sum_options=dict(protocol.options),
        min_sites=scenario.min_sites,
        shown=table.implementation.shown(settings),
        needs_pairwise_keys=protocol.needs_pairwise_keys,
        releases=getattr(settings, "release", "everyone") == "everyone",
        seed=scenario.seed,
        reading={key: said[key] for key in _READING if key in said},
    )
