"""scikit-learn estimators that train a federation of processes within `fit`.

base        the common base; a class combines the settings of its algorithm and the parameters of its family
frames      input: arrays, and data frames with text columns
horizontal  sites hold rows and agree by secure sums: PanSVC
public_rows  sites hold private rows, and public ones set scale and features: HybridSVC, PrivateErmClassifier
vertical    sites hold columns: DppSVC
selector    column selection for pipelines: FederatedSelector
progress    output of an estimator with `verbose` during training

Every algorithm has an estimator, also those of other packages: `classifier("pan-svm")`, or the name of its class.
Estimators load on first use, so that site processes do not load scikit-learn.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.algorithms.settings import settings
from fedsvm.federation.errors import FederationError

if TYPE_CHECKING:
    from fedsvm.algorithms.estimators.horizontal import PanSVC as PanSVC
    from fedsvm.algorithms.estimators.public_rows import HybridSVC as HybridSVC
    from fedsvm.algorithms.estimators.public_rows import PrivateErmClassifier as PrivateErmClassifier
    from fedsvm.algorithms.estimators.selector import FederatedSelector as FederatedSelector
    from fedsvm.algorithms.estimators.vertical import DppSVC as DppSVC

_FAMILIES = {
    "secure-sums": ("horizontal", "HorizontalClassifier"),
    "public-rows": ("public_rows", "PublicClassifier"),
    "sites": ("vertical", "VerticalClassifier"),
}
"""By where the scale of columns comes from."""


@functools.cache
def classifier(name: str) -> Any:
    """Return the estimator class of an algorithm.

    Parameters
    ----------
    name : str
        What a scenario calls the algorithm.

    Returns
    -------
    type
        A scikit-learn classifier whose parameters are the algorithm's settings and those of its family.

    Raises
    ------
    LookupError
        If no algorithm of this installation has the name.
    FederationError
        If it is of another package and cannot be loaded, or has a setting by the name of a parameter that all have.
    """
    if name not in ALGORITHMS:
        raise LookupError(f"the name must be one of {', '.join(ALGORITHMS)}, got {name!r}")
    algorithm = ALGORITHMS[name]
    module, family_name = _FAMILIES[algorithm.scaling]
    classes = importlib.import_module(f"{__name__}.{module}")
    if written := vars(classes).get(algorithm.estimator):
        return written
    from fedsvm.algorithms.estimators.base import estimator

    family = vars(classes)[family_name]
    taken = {each.name for each in settings(family)} | {each for each in dir(family) if callable(getattr(family, each))}
    if clash := taken & {each.name for each in settings(algorithm.Settings)}:
        raise FederationError(
            f"The setting {', '.join(sorted(clash))} of {name} must be called otherwise: every estimator has a "
            "parameter or method of that name."
        )
    body = {"algorithm": name, "__module__": __name__, "__doc__": type(algorithm).__doc__}
    return estimator(type(algorithm.estimator, (family, algorithm.Settings), body))


def __getattr__(name: str) -> Any:
    if name == "FederatedSelector":
        return importlib.import_module(f"{__name__}.selector").FederatedSelector
    if not name.startswith("_"):
        for known, algorithm in ALGORITHMS.loadable():
            if algorithm.estimator == name:
                return classifier(known)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "FederatedSelector", *(algorithm.estimator for _, algorithm in ALGORITHMS.loadable())])
