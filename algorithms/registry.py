"""The algorithms of this installation, by the name a scenario calls them.

Another package adds its own by an entry point of the group `fedsvm.algorithms` whose name is the algorithm's and whose
object is its class. It must be installed wherever a site runs: a coordinator names an algorithm, and cannot send one.
The names of ours stay ours.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from algorithms.contract import Algorithm
from federation.plugins import Registry

GROUP = "fedsvm.algorithms"
DEFAULT_ALGORITHM = "pan-svm"
"""Of a scenario that names none."""

OWN_ALGORITHMS = {
    "pan-svm": "algorithms.pan_svm:PanSvm",
    "dpp-svm": "algorithms.dpp_svm:DppSvm",
    "hybrid-svm": "algorithms.hybrid_svm:HybridSvm",
    "dp-erm": "algorithms.dp_erm:DpErm",
    "naive-bayes": "algorithms.naive_bayes:NaiveBayes",
}


@functools.cache
def _own(place: str) -> Algorithm[Any, Any, Any]:
    module, _, name = place.partition(":")
    made: Algorithm[Any, Any, Any] = getattr(importlib.import_module(module), name)()
    return made


def _accepted(offered: Any, name: str) -> Algorithm[Any, Any, Any] | None:
    if isinstance(offered, type) and issubclass(offered, Algorithm) and offered.name == name:
        return offered()
    return None


ALGORITHMS: Registry[Algorithm[Any, Any, Any]] = Registry(
    GROUP,
    "an algorithm",
    {name: functools.partial(_own, place) for name, place in OWN_ALGORITHMS.items()},
    _accepted,
)
