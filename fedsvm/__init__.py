"""The public names of fedsvm, each imported from where it lives when it is first asked for.

    from fedsvm import PanSVC, run

Its four subpackages are floors, each of which imports only from those below it: `fedsvm.federation` (processes and
sockets), `fedsvm.protocols` (secure sums), `fedsvm.algorithms` (training) and `fedsvm.scenarios` (what a user runs). In
a checkout they are links to the folders of the same names at the top of the repository.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsvm.algorithms.algorithm import (
        HorizontalAlgorithm,
        Model,
        PublicAlgorithm,
        TrainingReport,
        VerticalAlgorithm,
    )
    from fedsvm.algorithms.estimators import classifier
    from fedsvm.algorithms.estimators.horizontal import PanSVC
    from fedsvm.algorithms.estimators.public_rows import HybridSVC, PrivateErmClassifier
    from fedsvm.algorithms.estimators.selector import FederatedSelector
    from fedsvm.algorithms.estimators.vertical import DppSVC
    from fedsvm.algorithms.registry import ALGORITHMS
    from fedsvm.federation.errors import FederationError
    from fedsvm.federation.site.partition import Partition
    from fedsvm.federation.site.program import Installation, SiteProgram, step
    from fedsvm.federation.startup import local_federation
    from fedsvm.protocols.analysis.sum_conformance import check_sum
    from fedsvm.protocols.sums.registry import SUMS
    from fedsvm.protocols.sums.secure_sum import Cost, SecureSum
    from fedsvm.scenarios.api import RunProgress, run
    from fedsvm.scenarios.schema.errors import ScenarioError

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
    "run": "fedsvm.scenarios.api",
    "RunProgress": "fedsvm.scenarios.api",
    "ScenarioError": "fedsvm.scenarios.schema.errors",
    "DppSVC": "fedsvm.algorithms.estimators",
    "FederatedSelector": "fedsvm.algorithms.estimators",
    "HybridSVC": "fedsvm.algorithms.estimators",
    "PanSVC": "fedsvm.algorithms.estimators",
    "PrivateErmClassifier": "fedsvm.algorithms.estimators",
    "classifier": "fedsvm.algorithms.estimators",
    "ALGORITHMS": "fedsvm.algorithms.registry",
    "HorizontalAlgorithm": "fedsvm.algorithms.algorithm",
    "PublicAlgorithm": "fedsvm.algorithms.algorithm",
    "VerticalAlgorithm": "fedsvm.algorithms.algorithm",
    "Model": "fedsvm.algorithms.algorithm",
    "TrainingReport": "fedsvm.algorithms.algorithm",
    "SUMS": "fedsvm.protocols.sums.registry",
    "Cost": "fedsvm.protocols.sums.secure_sum",
    "SecureSum": "fedsvm.protocols.sums.secure_sum",
    "check_sum": "fedsvm.protocols.analysis.sum_conformance",
    "FederationError": "fedsvm.federation.errors",
    "Installation": "fedsvm.federation.site.program",
    "Partition": "fedsvm.federation.site.partition",
    "SiteProgram": "fedsvm.federation.site.program",
    "local_federation": "fedsvm.federation.startup",
    "step": "fedsvm.federation.site.program",
}


def _load(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("fedsvm")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'fedsvm' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
