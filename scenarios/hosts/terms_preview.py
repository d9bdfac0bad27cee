"""The terms that a scenario asks sites to accept, for commands that look at them before a run."""

from __future__ import annotations

from collections.abc import Sequence

from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.hosts import host_scenario
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.spec import Scenario

DEFAULT_NAMES = ("site-1", "site-2", "site-3")
"""Sites of a scenario that names neither sites nor data."""


def read_asked(
    scenario: str, overrides: Sequence[str] = (), names: Sequence[str] = (), unset: Sequence[str] = ()
) -> tuple[Scenario, Terms]:
    """Return a scenario and its terms, without reading any rows.

    Parameters
    ----------
    scenario : str
        A file, or a name of the catalogue.
    overrides : sequence of str, default ()
        Changes, as "key.path=value".
    names : sequence of str, default ()
        The sites of a run across hosts. A scenario that names no data is of such a run.
    unset : sequence of str, default ()
        Keys that are removed first.

    Raises
    ------
    ScenarioError
        The scenario is wrong.
    """
    if names or not spec.says_source(scenario, overrides, unset):
        chosen = host_scenario.read(scenario, overrides, names or DEFAULT_NAMES, unset)
    else:
        chosen, _ = spec.read(scenario, overrides=overrides, unset=unset)
    return chosen, terms_of(chosen)
