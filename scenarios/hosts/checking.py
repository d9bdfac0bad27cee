"""A policy and a scenario compared before a run."""

from __future__ import annotations

from fedsvm.federation.errors import StepRefused
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.hosts.holding import hold

_BY_POLICY = "by this site's policy "


def refusals(rules: SiteRules, terms: Terms, data: str | None = None) -> list[str]:
    """Return a clause for each thing that a site with these rules would refuse before anything is computed.

    Parameters
    ----------
    rules : SiteRules
        Those of the site's operator.
    terms : Terms
        Those of the run.
    data : str, optional
        The file of the site's rows. Without it rows and columns are not checked.
    """
    found = rules.refusals(terms)
    try:
        rules.check_budget(terms)
    except StepRefused as error:
        found.append(str(error).rpartition(_BY_POLICY)[2])
    if data is not None:
        try:
            held = hold("site", data, terms)
            rules.check_held(held.rows, [column.name for column in held.columns])
        except StepRefused as error:
            found.append(str(error).rpartition(_BY_POLICY)[2])
    return found
