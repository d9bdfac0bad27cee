"""Checks before a run: a policy against a scenario, and a site's files and network."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from fedsvm.algorithms.site_process import INSTALLATION
from fedsvm.federation.errors import FederationError, StepRefused
from fedsvm.federation.site.program import exact_steps, script_of
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.data import file_join, sources
from fedsvm.scenarios.hosts.site_data import hold
from fedsvm.scenarios.schema.corrections import Corrections
from fedsvm.scenarios.schema.data import DataSpec
from fedsvm.scenarios.schema.errors import ScenarioError

_REACHED_WITHIN_S = 5.0
_BY_POLICY = "by this site's policy "


def refusals(rules: SiteRules, terms: Terms, data: str | None = None, own: Corrections | None = None) -> list[str]:
    """Return a clause for each thing that a site with these rules would refuse before anything is computed.

    Raises ScenarioError for a file that cannot be used with these terms, whatever the rules are.

    Parameters
    ----------
    rules : SiteRules
        Those of the site's operator.
    terms : Terms
        Those of the run.
    data : str, optional
        The file of the site's rows. Without it rows and columns are not checked.
    own : Corrections, optional
        Those of the file.
    """
    found = rules.refusals(terms)
    program = INSTALLATION.programs[terms.program]
    policy = SitePolicy(("site",), terms, rules)
    try:
        policy.check_exact(exact_steps(program, script_of(program, terms)), program.noisy_settings)
    except StepRefused as error:
        found.append(str(error).rpartition(_BY_POLICY)[2])
    try:
        rules.check_budget(terms)
    except StepRefused as error:
        found.append(str(error).rpartition(_BY_POLICY)[2])
    if data is not None:
        try:
            held = hold("site", data, terms, own)
        except StepRefused as error:
            raise ScenarioError([f"--data: {str(error).removeprefix('data.source: ')}"]) from None
        try:
            rules.check_held(held.rows, [column.name for column in held.columns])
        except StepRefused as error:
            found.append(str(error).rpartition(_BY_POLICY)[2])
    return found


def require_files(data: str, rules: SiteRules) -> None:
    """Check, without reading it, that a site may read its data, and that it may write the records of its policy.

    Parameters
    ----------
    data : str
        The file of the site's rows.
    rules : SiteRules
        Those of the site's operator.

    Raises
    ------
    ScenarioError
        With everything that is missing or not allowed.
    """
    problems: list[str] = []
    try:
        path = sources.require_source(data, Path())
    except ScenarioError as error:
        problems += [each.replace("data.source:", "--data:", 1) for each in error.problems]
    else:
        if path is not None and not os.access(path, os.R_OK):
            problems.append(f"--data: {path} may not be read by the user of this process; allow it.")
    for key, name in {"ledger": rules.ledger, "answers": rules.answers}.items():
        if name and not _may_write(Path(name)):
            problems.append(f"--policy: {key}: {name} cannot be written; allow it, or name another file.")
    if problems:
        raise ScenarioError(problems)


def _may_write(path: Path) -> bool:
    """Return whether this process may write a file, or make it if it is missing."""
    return os.access(path, os.R_OK | os.W_OK) if path.exists() else os.access(path.parent, os.W_OK | os.X_OK)


def readiness(coordinator: str, data: str, own: Corrections | None = None) -> str:
    """Read a site's file and connect to its coordinator; return a clause on both.

    Parameters
    ----------
    coordinator : str
        Its address, such as tcp://host:7100.
    data : str
        The file of the site's rows.
    own : Corrections, optional
        Its corrections.

    Raises
    ------
    ScenarioError
        If the file cannot be read.
    FederationError
        If nothing listens at the address.
    """
    table = file_join.read_table(DataSpec(source=data), Path(), own)
    host, _, port = coordinator.removeprefix("tcp://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACHED_WITHIN_S).close()
    except OSError as error:
        raise FederationError(
            f"The coordinator at {coordinator} could not be reached: {error}; see whether it runs, and whether a "
            "firewall lets this site connect to it."
        ) from error
    return f"{data} has {table.rows} rows and {len(table.columns)} columns, and {coordinator} accepts connections"
