"""Checks before a run: a policy against a scenario, and a site's data and network."""

from __future__ import annotations

import socket
from pathlib import Path

from fedsvm.algorithms.site_process import INSTALLATION
from fedsvm.federation.errors import FederationError, StepRefused
from fedsvm.federation.site.program import exact_steps, script_of
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.data import file_join
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
