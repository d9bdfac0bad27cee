"""The settings of the hybrid SVM."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from fedsvm.algorithms.features.fourier import FourierSettings
from fedsvm.algorithms.optimization.linear_svm_settings import SolverSettings
from fedsvm.algorithms.privacy.budget import BudgetSettings
from fedsvm.algorithms.privacy.mechanisms import PrivacyParameters
from fedsvm.algorithms.settings import Dimension, Positive, Share, Tolerance, doc


@dataclass
class HybridSettings(BudgetSettings, FourierSettings, SolverSettings):
    """The settings of a user."""

    C: Annotated[Positive, doc("C of min 1/2 |w - w0|^2 + C/n sum of hinge losses, without an intercept.")] = 300.0
    _: KW_ONLY
    features: Annotated[Dimension, doc("Number of frequencies; a model has twice as many weights.")] = 60
    mechanism: Annotated[
        Literal["laplace", "gaussian", "spherical", "none"],
        doc('Distribution of the noise. "none" trains without noise and gives no privacy guarantee.'),
    ] = "spherical"
    delta: Annotated[
        Share | None, doc("The delta of (epsilon, delta)-privacy. Required by the gaussian mechanism only.")
    ] = None
    sensitivity: Annotated[
        Literal["tight", "paper"],
        doc("Bound on the change of the model by one row: 2C/n (tight), or the paper's 4C/n."),
    ] = "tight"
    prior: Annotated[
        Literal["none", "public"], doc("The w0 of the objective: 0, or the model of the public rows alone.")
    ] = "none"
    variant: Annotated[
        Literal["joint", "one-shot"],
        doc(
            "joint: training over all sites, which see the model without noise. one-shot: each site's own model, "
            "summed with noise."
        ),
    ] = "joint"
    multiclass: Annotated[
        Literal["ovr", "joint"],
        doc("Multi-class method: one class against the rest (ovr), or one joint problem (joint)."),
    ] = "ovr"
    tolerance: Annotated[
        Tolerance, doc("Certified relative gap at which training stops. The noise accounts for it.")
    ] = 1e-11

    def is_joint(self, problems: int) -> bool:
        """Return whether the weight vectors belong to one problem; for two classes there is one vector."""
        return problems > 1 and self.multiclass == "joint"

    @property
    def privacy(self) -> PrivacyParameters | None:
        """The privacy guarantee of the model; None without noise."""
        if self.mechanism == "none":
            return None
        return PrivacyParameters(self.mechanism, self.epsilon, self.delta or 0.0)
