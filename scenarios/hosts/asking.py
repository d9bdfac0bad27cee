"""What a scenario asks of sites on other hosts, and which scenarios can be run so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from algorithms.contract import HorizontalAlgorithm, PublicAlgorithm
from scenarios.data.dataset import ABOVE_MEDIAN
from scenarios.schema import spec
from scenarios.schema.errors import ScenarioError
from scenarios.schema.spec import Scenario

HELD_BY_SITE = "held by the site"
"""In place of the files of the sites, in a scenario that is run across hosts."""


def read(scenario: str | Path, overrides: Sequence[str], admitted: Sequence[str]) -> Scenario:
    """A scenario whose sites are those that are admitted, each with a file of its own.

    Raises ScenarioError for one that names rows, or that cannot be run across hosts.
    """
    changes: dict[str, Any] = {
        "data.sources": dict.fromkeys(admitted, HELD_BY_SITE),
        "compare.centralised": False,
        "compare.baselines": False,
    }
    try:
        first, base = spec.read(scenario, overrides=overrides, changes=changes)
        if (public := first.data.public_source) is not None:
            changes |= {"data.public_source": str(_absolute(public, base))}
        changes |= {"data.test_fraction": 0.0} if _is_blind(first) else {"data.tested_by": "sites"}
        chosen, _ = spec.read(scenario, overrides=overrides, changes=changes)
    except ScenarioError as error:
        raise ScenarioError([_across_hosts(problem, admitted) for problem in error.problems]) from None
    if problems := list(_problems(chosen)):
        raise ScenarioError(problems)
    return chosen


def _is_blind(scenario: Scenario) -> bool:
    """Whether private rows choose nothing. No noise covers what sites would find of test rows, so they have none."""
    return scenario.algorithm.implementation.scaling == "public-rows"


def _absolute(file: str, base: Path) -> Path:
    """A file beside the scenario, wherever the run is resumed; others are looked for as sites look for theirs."""
    path = base / file
    return path.resolve() if path.is_file() else Path(file)


def _across_hosts(problem: str, admitted: Sequence[str]) -> str:
    """What is wrong, where a user has not written what it is about."""
    if problem.startswith("data.source:"):
        return "data.source: across hosts each site brings a file of its own; leave it out."
    if problem.startswith("data.sources:"):
        return f"federation.names: must be the sites whose keys are admitted ({', '.join(admitted)}), or left out."
    return problem


def _problems(scenario: Scenario) -> Iterator[str]:
    """What a run across hosts cannot do."""
    data, algorithm = scenario.data, scenario.algorithm.implementation
    if not isinstance(algorithm, HorizontalAlgorithm | PublicAlgorithm):
        yield f"algorithm.name: {scenario.algorithm.name} cannot be run across hosts, where sites must hold rows."
    elif not algorithm.Site.is_replayable:
        yield (
            f"algorithm.name: {scenario.algorithm.name} cannot be run across hosts: its sites draw at random what they "
            "would draw again in a run that is resumed."
        )
    if _is_blind(scenario) and data.public_source is None:
        yield (
            "data.public: across hosts there is nothing to set rows apart from; name the coordinator's file of public "
            "rows by data.public_source."
        )
    if _is_blind(scenario) and data.folds is not None:
        yield "data.folds: no noise covers what sites would find of their test rows; leave it out."
    if data.positive is None and len(data.classes) != 2:
        yield (
            "data.positive: is missing; nobody sees all labels, so the scenario must say which one is +1, or name both "
            "by data.classes; across hosts two classes are told apart."
        )
    if data.positive == ABOVE_MEDIAN:
        yield "data.positive: nobody sees all labels, and there is no median of them; name the label that is +1."
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
