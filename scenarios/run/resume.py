"""Runs with a journal, which can be resumed after their coordinator was killed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedsvm.federation.run_journal import Journal
from fedsvm.scenarios.run.outcome import JOURNAL
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario, resolved_toml

_COORDINATORS = "coordinator.journal"


@contextmanager
def begin_journal(folder: Path, scenario: Scenario, base: Path, **met: Any) -> Iterator[Journal]:
    """Open the journal of a new run in a folder.

    base: the folder to which paths of the scenario are relative. met: for a run across hosts, the registered sites.
    Raises FederationError if it cannot be written.
    """
    (folder / JOURNAL).mkdir(mode=0o700)
    with Journal(folder / JOURNAL / _COORDINATORS) as journal:
        journal.begin({"scenario": resolved_toml(scenario), "base": str(base.resolve()), **met})
        yield journal


@contextmanager
def reopen_journal(
    folder: Path, tell: Callable[[str], None] = lambda sentence: None
) -> Iterator[tuple[Journal, Scenario, Path]]:
    """Open the journal in the folder of a run; yield it, its scenario, and the folder to which its paths are relative.

    tell: receives a sentence for the user, once a second while the journal is read. Raises ScenarioError for a folder
    without a journal, and FederationError if another process writes it.
    """
    path = folder / JOURNAL / _COORDINATORS
    if not path.is_file():
        raise ScenarioError([f"{folder} has no journal; only runs with --journal, and runs across hosts, have one."])
    with Journal(path, tell) as journal:
        if not journal.header:
            raise ScenarioError([f"The journal of {folder} ends before its first record; start a new run."])
        yield journal, spec.validate(tomllib.loads(journal.header["scenario"])), Path(journal.header["base"])


def require_replayable(scenario: Scenario) -> None:
    """Raise ScenarioError for a scenario whose steps cannot be run again as they were."""
    table = scenario.algorithm
    if not table.implementation.Site.is_replayable:
        raise ScenarioError(
            [f"--journal: sites cannot repeat their steps with {table.name}, since they draw at random by themselves."]
        )
