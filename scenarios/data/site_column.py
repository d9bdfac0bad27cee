"""Scenarios whose sites are named by a column of the data: who takes part is known once that was read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedsvm.scenarios.data.file_join import read_table
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario


def resolve_site_names(scenario: Scenario, base_folder: Path) -> Scenario:
    """Return the scenario with the names of the sites in `data.site`, if it has that key.

    Raises ScenarioError for data that cannot be read, and for what does not go together now that sites have names.
    """
    if scenario.data.site is None:
        return scenario
    found = sorted(set(read_table(scenario.data, base_folder).sites.tolist()) - {""})
    federation = scenario.federation
    if federation.names is not None:
        _require_same(federation.names, found, scenario.data.site)
        return scenario
    if "sites" in federation.model_fields_set and federation.sites != len(found):
        listed = ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
        raise ScenarioError(
            [
                f"federation.sites: column {scenario.data.site!r} names {len(found)} sites ({listed}), got "
                f"{federation.sites}; remove it."
            ]
        )
    given = scenario.model_dump(mode="json", exclude_none=True, by_alias=True)
    return spec.validate({**given, "federation": {**given["federation"], "names": found, "sites": len(found)}})


def _require_same(named: Iterable[str], found: Iterable[str], column: str) -> None:
    if without := sorted(set(named) - set(found)):
        raise ScenarioError([f"federation.names: column {column!r} has no row of {without[0]!r}; remove the name."])
    if unnamed := sorted(set(found) - set(named)):
        raise ScenarioError([f"federation.names: column {column!r} has rows of {unnamed[0]!r}; name it too."])
