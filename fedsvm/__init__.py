"""The public names of fedsvm, each imported from where it lives when it is first asked for.

    from fedsvm import PanSVC, run

The packages behind it are floors: `federation` (processes and sockets), `protocols` (secure sums), `algorithms` (what
is learnt) and `scenarios` (what a user runs).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algorithms.contract import HorizontalAlgorithm, Model, PublicAlgorithm, TrainingReport, VerticalAlgorithm
    from algorithms.estimators import classifier
    from algorithms.estimators.horizontal import PanSVC
    from algorithms.estimators.public_rows import HybridSVC, PrivateErmClassifier
    from algorithms.estimators.selector import FederatedSelector
    from algorithms.estimators.vertical import DppSVC
    from algorithms.registry import ALGORITHMS
    from federation.assemble import local_federation
    from federation.errors import FederationError
    from federation.site.partition import Partition
    from federation.site.program import Installation, SiteProgram, step
    from protocols.analysis.conformance import check_sum
    from protocols.sums.contract import Cost, SecureSum
    from protocols.sums.registry import SUMS
    from scenarios.api import RunProgress, run
    from scenarios.schema.errors import ScenarioError

    __version__: str
else:

    def __getattr__(name: str) -> Any:
        return _load(name)


BEGAN = time.monotonic()
"""When this process first heard of fedsvm; of a command, its beginning."""

__all__ = [  # noqa: RUF022 - in the order of the floors, from the top
    # what a user runs
    "run",
    "RunProgress",
    "ScenarioError",
    # what is learnt
    "DppSVC",
    "FederatedSelector",
    "HybridSVC",
    "PanSVC",
    "PrivateErmClassifier",
    "classifier",
    "ALGORITHMS",
    "HorizontalAlgorithm",
    "PublicAlgorithm",
    "VerticalAlgorithm",
    "Model",
    "TrainingReport",
    # what adds
    "SUMS",
    "Cost",
    "SecureSum",
    "check_sum",
    # what carries it
    "FederationError",
    "Installation",
    "Partition",
    "SiteProgram",
    "local_federation",
    "step",
    "__version__",
]

_HOMES = {
    "run": "scenarios.api",
    "RunProgress": "scenarios.api",
    "ScenarioError": "scenarios.schema.errors",
    "DppSVC": "algorithms.estimators",
    "FederatedSelector": "algorithms.estimators",
    "HybridSVC": "algorithms.estimators",
    "PanSVC": "algorithms.estimators",
    "PrivateErmClassifier": "algorithms.estimators",
    "classifier": "algorithms.estimators",
    "ALGORITHMS": "algorithms.registry",
    "HorizontalAlgorithm": "algorithms.contract",
    "PublicAlgorithm": "algorithms.contract",
    "VerticalAlgorithm": "algorithms.contract",
    "Model": "algorithms.contract",
    "TrainingReport": "algorithms.contract",
    "SUMS": "protocols.sums.registry",
    "Cost": "protocols.sums.contract",
    "SecureSum": "protocols.sums.contract",
    "check_sum": "protocols.analysis.conformance",
    "FederationError": "federation.errors",
    "Installation": "federation.site.program",
    "Partition": "federation.site.partition",
    "SiteProgram": "federation.site.program",
    "local_federation": "federation.assemble",
    "step": "federation.site.program",
}
_PACKAGES = ("federation", "protocols", "algorithms", "scenarios")


def refuse_shadows() -> None:
    """Raise ImportError if Python finds a stranger's module under the name of one of this project's packages."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib is slow to import
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            continue  # importing it will say so
        places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or [])
        if not any(_is_inside(place, os.path.join(ours, name)) for place in places):  # noqa: PTH118
            raise ImportError(
                f"fedsvm needs its own package {name!r}, and Python finds {places[0]} first; rename that, or run from "
                "another folder, without the one it is in on PYTHONPATH.",
                name=name,
                path=places[0],
            )


def _is_inside(place: str, folder: str) -> bool:
    return os.path.realpath(place).startswith(os.path.realpath(folder) + os.sep)


def _load(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("fedsvm")
    elif name in _HOMES:
        refuse_shadows()
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'fedsvm' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
