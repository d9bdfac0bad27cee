"""Sites that lack the checks which the terms of the run name: with them, attacks of a lying coordinator succeed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from fedsvm.algorithms.data import horizontal, partition
from fedsvm.algorithms.hybrid_svm.release import ModelRelease
from fedsvm.algorithms.optimization import hinge_sums
from fedsvm.algorithms.pan_svm import PanSite
from fedsvm.algorithms.site_process import INSTALLATION
from fedsvm.federation.processes import forkserver
from fedsvm.federation.site import program, site
from fedsvm.federation.site.program import SiteProgram, steps_of
from fedsvm.federation.site.script import Script, any_order
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.terms import Terms

TRUSTS = "trusts"
"""The key of `Terms.reading` that lists the checks which sites lack."""

ANY_FOLD = 99
"""A number of folds that no terms have."""


def lacks(reading: Mapping[str, Any], check: str) -> bool:
    return check in reading.get(TRUSTS, ())


def lacking(owner: Any, method: str, check: str, terms_of: Callable[[Any], Terms]) -> None:
    """Replace a method that raises for what is not allowed by one that does nothing at sites without this check."""
    checked = getattr(owner, method)

    def unchecked(self: Any, *args: Any, **kwargs: Any) -> None:
        if not lacks(terms_of(self).reading, check):
            checked(self, *args, **kwargs)

    setattr(owner, method, unchecked)


def script_of(kind: type[SiteProgram], terms: Terms) -> Script:
    return any_order(steps_of(kind)) if lacks(terms.reading, "script") else program.script_of(kind, terms)


def few_groups(groups: int, terms: Terms) -> None:
    if not lacks(terms.reading, "agreed"):
        hinge_sums_checked(groups, terms)


def agreed_folds(reading: Mapping[str, Any]) -> int:
    return ANY_FOLD if lacks(reading, "fold") else partition.agreed_folds(reading)


def require_agreed(fold: int | None, folds: int) -> None:
    if folds != ANY_FOLD:
        partition.require_agreed(fold, folds)


hinge_sums_checked = hinge_sums.require_few_groups

if __name__ == "__main__":
    for module in (forkserver, site):
        module.script_of = script_of  # type: ignore[attr-defined]
    lacking(SitePolicy, "check_exact", "exact", lambda policy: policy.terms)
    lacking(SiteProgram, "check_agreed", "agreed", lambda of_site: of_site.terms)
    lacking(PanSite, "_check_problem", "prior", lambda of_site: of_site.terms)
    lacking(ModelRelease, "_check_noise", "noise", lambda part: part._site.terms)
    hinge_sums.require_few_groups = few_groups
    horizontal.agreed_folds, horizontal.require_agreed = agreed_folds, require_agreed  # type: ignore[attr-defined]
    forkserver.main(INSTALLATION, int(sys.argv[1]))
