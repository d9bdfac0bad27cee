"""The public rows of a task with private training: a file in the folder of its run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from fedsvm.scenarios.hosts import public_rows
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario, resolved_toml

FILE = "public.csv"
"""The name of the file in a task's scenario."""


def placed_in(folder: Path, scenario: Scenario, text: str) -> Scenario:
    """Write a task's public rows to a folder, and return the scenario that reads them there.

    Parameters
    ----------
    folder : Path
    scenario : Scenario
        The stored scenario of the task. Without public rows, it is returned as it is.
    text : str
        The rows, as CSV.

    Returns
    -------
    Scenario
    """
    if scenario.data.public_source is None:
        return scenario
    path = folder / FILE
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    given = tomllib.loads(resolved_toml(scenario))
    given["data"]["public_source"] = str(path.resolve())
    return spec.validate(given)


def require_readable(scenario: Scenario, text: str) -> None:
    """Raise ScenarioError if private training cannot take scale and features from these rows."""
    if scenario.data.public_source is None:
        if text:
            raise ScenarioError([f"Public rows: {scenario.algorithm.name} does not use them; remove them."])
        return
    with TemporaryDirectory() as folder:
        try:
            public_rows.read(placed_in(Path(folder), scenario, text))
        except ScenarioError as error:
            raise ScenarioError([_in_words_of_form(problem, Path(folder)) for problem in error.problems]) from error


def _in_words_of_form(problem: str, folder: Path) -> str:
    """Return a problem without the hub's own folder and the names of settings that the form does not have."""
    said = problem.replace("data.public_source", "Public rows").replace("Public rows: data.source:", "Public rows:")
    return said.replace(f"{folder.resolve()}/", "")
