"""Floor 3: what is learnt, each algorithm written as a half for sites and a half for the coordinator.

The estimators are imported when they are asked for, since scikit-learn is nothing that a site process should carry.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algorithms.estimators.dpp_svc import DppSVC as DppSVC
    from algorithms.estimators.pan_svc import PanSVC as PanSVC
    from algorithms.estimators.private_classifiers import HybridSVC as HybridSVC
    from algorithms.estimators.private_classifiers import PrivateErmClassifier as PrivateErmClassifier

_ESTIMATORS = {
    "PanSVC": "algorithms.estimators.pan_svc",
    "DppSVC": "algorithms.estimators.dpp_svc",
    "HybridSVC": "algorithms.estimators.private_classifiers",
    "PrivateErmClassifier": "algorithms.estimators.private_classifiers",
}


def __getattr__(name: str) -> Any:
    if name not in _ESTIMATORS:
        raise AttributeError(f"module 'algorithms' has no attribute {name!r}")
    return getattr(importlib.import_module(_ESTIMATORS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_ESTIMATORS])
