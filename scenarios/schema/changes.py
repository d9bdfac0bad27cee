"""Changes of a scenario's values before they are validated: --set, --unset, --fault and --sites."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from fedsvm.scenarios.schema.errors import ScenarioError


def apply_overrides(given: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set the values of all overrides. Raises ScenarioError with all that are wrong."""
    problems: list[str] = []
    for override in overrides:
        try:
            _apply(given, override)
        except ScenarioError as error:
            problems += error.problems
    if problems:
        raise ScenarioError(problems)


def _apply(given: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise ScenarioError([f"--set {override}: write it as key.path=value, such as algorithm.C=10."])
    put_value(given, key.strip(), value_of(text.strip()), said=f"--set {override}")


def put_value(given: dict[str, Any], key: str, value: Any, said: str) -> None:
    """Set the value at a key path. Raises ScenarioError, with what the user said, if there is no table for it."""
    place, path = given, key.split(".")
    for part in path[:-1]:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise ScenarioError([f"{said}: {part} is not a table."])
    place[path[-1]] = value


def override_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the values that overrides give, by their keys."""
    parts = (override.partition("=") for override in overrides)
    return {key.strip(): value_of(text.strip()) for key, _, text in parts}


def unset_key(given: dict[str, Any], key: str) -> None:
    """Remove the value at a key path. Raises ScenarioError if there is none."""
    *path, last = key.split(".")
    place: Any = given
    for part in path:
        place = place.get(part) if isinstance(place, dict) else None
    if not isinstance(place, dict) or last not in place:
        raise ScenarioError([f"--unset {key}: the scenario does not set this key; remove the option."])
    del place[last]


def add_fault(given: dict[str, Any], text: str) -> None:
    """Add a fault to the list of faults. Raises ScenarioError for text of another form."""
    listed = given.setdefault("faults", [])
    if not isinstance(listed, list):
        raise ScenarioError([f"--fault {text}: faults of the scenario must be a list of tables."])
    listed.append(fault_fields(text))


def fault_fields(text: str) -> dict[str, Any]:
    """Return the keys of a fault such as "kill:site=3,phase=train,round=5"; commas within brackets do not separate.

    Raises ScenarioError for text of another form.
    """
    kind, _, rest = text.partition(":")
    fault: dict[str, Any] = {"kind": kind.strip()}
    for part in re.findall(r"(?:\[[^=]*\]|[^,])+", rest):
        key, equals, value = part.partition("=")
        if not equals:
            raise ScenarioError(
                [f"--fault {text}: write it as kind:key=value,…, such as kill:site=3,phase=train,round=5."]
            )
        fault[key.strip()] = value_of(value.strip())
    return fault


def value_of(text: str) -> Any:
    """Return the value of a bare word or a TOML value."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def override_sites(given: dict[str, Any], sites: int) -> None:
    """Set the number of sites. Raises ScenarioError for a scenario that names them."""
    federation = given.setdefault("federation", {})
    if isinstance(federation, dict):
        if "names" in federation:
            raise ScenarioError(["--sites: this scenario names its sites; change federation.names instead."])
        federation["sites"] = sites
