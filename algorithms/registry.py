"""The algorithms of this installation, by the name a scenario calls them.

Another package adds its own by an entry point of the group `fedsvm.algorithms` whose name is the algorithm's and whose
object is its class. It must be installed wherever a site runs: a coordinator names an algorithm, and cannot send one.
The names of ours stay ours.
"""

from __future__ import annotations

import functools
import importlib
from inspect import isabstract
from typing import Any

from fedsvm.algorithms.algorithm import Algorithm
from fedsvm.algorithms.settings import settings
from fedsvm.federation.plugins import Registry

GROUP = "fedsvm.algorithms"
DEFAULT_ALGORITHM = "pan-svm"
"""Of a scenario that names none."""

OWN_ALGORITHMS = {
    "pan-svm": "fedsvm.algorithms.pan_svm:PanSvm",
    "dpp-svm": "fedsvm.algorithms.dpp_svm.algorithm:DppSvm",
    "hybrid-svm": "fedsvm.algorithms.hybrid_svm.algorithm:HybridSvm",
    "dp-erm": "fedsvm.algorithms.dp_erm.algorithm:DpErm",
    "svm-admm": "fedsvm.algorithms.svm_admm:SvmAdmm",
    "voting-ensemble": "fedsvm.algorithms.voting_ensemble:VotingEnsemble",
    "least-squares": "fedsvm.algorithms.least_squares:LeastSquares",
    "binned-least-squares": "fedsvm.algorithms.binned_least_squares:BinnedLeastSquares",
    "logistic-regression": "fedsvm.algorithms.logistic_regression.algorithm:LogisticRegression",
    "decision-tree": "fedsvm.algorithms.decision_tree:DecisionTree",
    "pp-svm": "fedsvm.algorithms.pp_svm:PpSvm",
    "naive-bayes": "fedsvm.algorithms.naive_bayes:NaiveBayes",
    "dpp-selection": "fedsvm.algorithms.dpp_selection:DppSelection",
    "filter": "fedsvm.algorithms.filter_selection:Filter",
    "rfe": "fedsvm.algorithms.rfe:Rfe",
    "sparse-svm": "fedsvm.algorithms.sparse_svm:SparseSvm",
    "voted-wrappers": "fedsvm.algorithms.voted_wrappers:VotedWrappers",
    "filter-wrapper": "fedsvm.algorithms.filter_wrapper:FilterWrapper",
}

_PARTS = ("partition", "scaling", "phases", "estimator", "Settings", "Site", "Model")


@functools.cache
def _own(place: str) -> Algorithm[Any, Any, Any]:
    module, _, name = place.partition(":")
    made: Algorithm[Any, Any, Any] = getattr(importlib.import_module(module), name)()
    return made


def _accept(offered: Any, name: str) -> Algorithm[Any, Any, Any] | None:
    """Raise TypeError for a class that lacks a part, or has an invalid setting."""
    if not (isinstance(offered, type) and issubclass(offered, Algorithm) and getattr(offered, "name", None) == name):
        return None
    if isabstract(getattr(offered, "Model", None)):
        raise TypeError(f"its Model must define {', '.join(sorted(offered.Model.__abstractmethods__))}")
    if missing := [part for part in _PARTS if not hasattr(offered, part)]:
        raise TypeError(f"it must have {', '.join(_PARTS)}, and lacks {', '.join(missing)}")
    for setting in settings(offered.Settings):
        if setting.name == "name":
            raise TypeError("no setting can be called name, which is the algorithm's own")
        setting.require_sound()
    return offered()


ALGORITHMS: Registry[Algorithm[Any, Any, Any]] = Registry(
    GROUP,
    "algorithm",
    {name: functools.partial(_own, place) for name, place in OWN_ALGORITHMS.items()},
    _accept,
)
