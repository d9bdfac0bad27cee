"""The requests of a scenario to sites on other hosts, and which scenarios can run across hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedsvm.algorithms.algorithm import VerticalAlgorithm
from fedsvm.scenarios.data.label_classes import ABOVE_MEDIAN, declared_classes
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.data import DataSpec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario
from fedsvm.scenarios.schema.split import EVEN

HELD_BY_SITE = "held by the site"
"""In place of the files of the sites, in a scenario that is run across hosts."""


MIN_SITES = 3
"""Across hosts fewer sites are enough only where the scenario says so: of two, each learns what the other puts in."""


def read(
    scenario: str | Path, overrides: Sequence[str], admitted: Sequence[str], unset: Sequence[str] = ()
) -> Scenario:
    """Return a scenario whose sites are the admitted ones, each with a file of its own. unset: keys removed first.

    Raises ScenarioError for one that names rows, or that cannot be run across hosts.
    """
    changes: dict[str, Any] = {"compare.centralised": False, "compare.baselines": False}
    if not spec.says_min_sites(scenario, overrides, unset):
        changes["federation.min_sites"] = min(MIN_SITES, len(admitted))
    is_vertical = spec.partition_of(scenario, overrides, unset) == "vertical"
    if is_vertical:
        changes |= {"data.source": HELD_BY_SITE, "federation.names": list(admitted), "federation.sites": len(admitted)}
    else:
        changes["data.sources"] = dict.fromkeys(admitted, HELD_BY_SITE)
    try:
        first, base = spec.read(scenario, overrides=overrides, unset=unset, changes=changes)
        if (public := first.data.public_source) is not None:
            changes |= {"data.public_source": str(_absolute(public, base))}
        if not is_vertical:
            changes |= {"data.test_fraction": 0.0} if _is_blind(first) else {"data.tested_by": "sites"}
        chosen, _ = spec.read(scenario, overrides=overrides, unset=unset, changes=changes)
    except ScenarioError as error:
        raise ScenarioError([in_words_of_hosts(problem, admitted) for problem in error.problems]) from None
    if problems := list(_problems(chosen)):
        raise ScenarioError(problems)
    return chosen


def _is_blind(scenario: Scenario) -> bool:
    """Return whether private rows choose nothing. Noise does not cover test rows at sites, so they have none."""
    return scenario.algorithm.implementation.scaling == "public-rows"


def _absolute(file: str, base: Path) -> Path:
    """Return the absolute path of a file next to the scenario. Other files are searched for as sites search for
    theirs."""
    path = base / file
    return path.resolve() if path.is_file() else Path(file)


def in_words_of_hosts(problem: str, admitted: Sequence[str]) -> str:
    """Return a problem in terms of a run across hosts, in which each site brings and tests its own rows."""
    if problem.startswith("data.source:"):
        return "data.source: across hosts each site brings a file of its own; remove it."
    if problem.startswith("data.sources:"):
        return f"federation.names: must be the sites whose keys are admitted ({', '.join(admitted)}), or left out."
    if problem.startswith("data.tested_by:"):
        reason = problem.partition(": ")[2].partition(";")[0]
        return f"data.test_fraction: must be 0; {reason}, and only the sites have rows."
    return problem


def _problems(scenario: Scenario) -> Iterator[str]:
    """Yield what a run across hosts does not support."""
    data, algorithm = scenario.data, scenario.algorithm.implementation
    if isinstance(algorithm, VerticalAlgorithm):
        yield from _problems_of_columns(data)
    if not algorithm.Site.is_replayable:
        yield (
            f"algorithm.name: {scenario.algorithm.name} cannot be run across hosts: its sites draw at random by "
            "themselves, and could not do again what they did."
        )
    if _is_blind(scenario) and data.public_source is None:
        yield (
            "data.public: across hosts there is nothing to set rows apart from; name the coordinator's file of public "
            "rows by data.public_source."
        )
    if _is_blind(scenario) and data.folds is not None:
        yield "data.folds: no noise covers what sites would find of their test rows; remove it."
    if data.positive is None and not data.classes and data.partition == "horizontal":
        yield (
            "data.positive: is missing; nobody sees all labels, so the scenario must name the one that is +1, or all "
            "of them by data.classes."
        )
    if data.positive == ABOVE_MEDIAN:
        yield "data.positive: nobody sees all labels, and there is no median of them; name the label that is +1."
    yield from class_problems(scenario)
    if data.test_source is not None:
        yield "data.test_source: nobody has test rows apart across hosts; remove it."
    if data.calibration:
        yield "data.calibration: across hosts no rows are set apart to calibrate models; remove it."
    for name, table in {
        "faults": scenario.faults,
        "network": scenario.network,
        "collusion": scenario.collusion,
    }.items():
        if table:
            yield f"{name}: applies to simulations; remove it (a site may test a fault: fedsvm site --fault)."


def class_problems(scenario: Scenario) -> Iterator[str]:
    """Yield how the declared classes do not fit the algorithm."""
    algorithm, settings = scenario.algorithm.implementation, scenario.algorithm.settings
    if len(classes := declared_classes(scenario.data)) > 2 and not algorithm.multiclass:
        yield f"data.classes: {scenario.algorithm.name} tells two apart; say which one is +1 by data.positive."
    elif classes:
        yield from (f"algorithm.{said}." for said in algorithm.class_problems(settings, classes))


def _problems_of_columns(data: DataSpec) -> Iterator[str]:
    """Yield what sites with columns of the same records do not support, or must be told."""
    if len(data.classes) < 2:
        yield "data.classes: is missing; most sites see no labels, so the scenario must name all that there are."
    if data.align == "identifier" and data.identifier is None:
        yield "data.identifier: is missing; name the column that tells which records are the same."
    if data.split != EVEN:
        yield "data.split: across hosts each site brings columns of its own; remove it."
    if data.overlap < 1:
        yield "data.overlap: across hosts each site's own file has its records; remove it."
