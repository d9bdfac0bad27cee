"""The classifier that wrappers train on columns: a linear SVM, or a PAN-SVM as in the dissertation (Lu 2016).

All PAN-SVMs of a selection share landmarks, which are chosen once, of all columns. On some columns the kernel is that
of the landmarks in these columns, with the C and gamma of the model that is trained at the end. The landmarks are of
all training rows, also of those that an inner fold leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from fedsvm.algorithms.features.choice import choose_features
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.algorithms.selection.model import SelectionInput, SelectionSettings
from fedsvm.algorithms.selection.training import SubsetTraining
from fedsvm.algorithms.settings import doc

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack


@dataclass
class WrapperSettings(SelectionSettings):
    """The settings of a user."""

    _: KW_ONLY
    wrapper: Annotated[
        Literal["linear", "pan-svm"],
        doc(
            "SVMs that rank and compare columns: linear, also for thousands of columns; or pan-svm, as the "
            "dissertation prints it, with C and gamma of the model."
        ),
    ] = "linear"

    def wrapper_problems(self) -> Iterator[str]:
        """Yield features, kernels and solvers that PAN-SVMs on columns do not have."""
        if self.wrapper == "linear":
            return
        if self.features != "landmarks" or self.kernel != "rbf":
            yield (
                'wrapper: "pan-svm" needs features = "landmarks" and kernel = "rbf", got '
                f'"{self.features}" and "{self.kernel}"; set wrapper = "linear"'
            )
        if self.select_solver != "interior-point":
            yield 'wrapper: "pan-svm" needs select_solver = "interior-point", whose dual variables weight the columns'


def wrapper_attacks(settings: WrapperSettings) -> list[Attack]:
    """Return the attack on the weights of the wrapper's PAN-SVMs; none on linear SVMs, whose cuts are attacked."""
    from fedsvm.algorithms.attacks.wrapper_models import WrapperSupportRows

    if settings.wrapper == "linear":
        return []
    named = isinstance(settings.gamma, str)
    return [WrapperSupportRows(settings.C, settings.select_tolerance, is_gamma_named=named)]


def wrapper_training(selecting: SelectionInput, moments: ClassMoments, settings: WrapperSettings) -> SubsetTraining:
    """Return the training of the wrapper's SVMs, whose landmarks the sites have."""
    federation, prepared = selecting.federation, selecting.prepared
    if settings.wrapper == "linear":
        return SubsetTraining(federation, moments, settings)

    def share() -> NystromMap:
        rows = {site: prepared.site_rows.get(site, 0) for site in federation.sites}
        found = choose_features(federation, settings, replace(prepared, site_rows=rows), selecting.seed).map
        if not isinstance(found, NystromMap):
            raise AssertionError("problems() lets landmarks through alone")
        federation.run("receive_map", remember=True, **found.to_fields())
        return found

    return SubsetTraining(federation, moments, settings, federation.until_stable(share))
