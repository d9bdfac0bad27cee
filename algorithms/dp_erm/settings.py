"""The settings of private empirical risk minimization."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from fedsvm.algorithms.features.fourier import FourierSettings
from fedsvm.algorithms.losses import Loss, loss_named
from fedsvm.algorithms.privacy.budget import BudgetSettings
from fedsvm.algorithms.settings import Natural, Positive, doc

Perturbation = Literal["objective", "output", "none"]


@dataclass
class ErmSettings(BudgetSettings, FourierSettings):
    """The settings of a user."""

    regularisation: Annotated[
        Positive, doc("lambda of (1/n) sum of losses + lambda/2 |f|^2, without an intercept.")
    ] = 0.01
    _: KW_ONLY
    loss: Annotated[
        str, doc("Logistic regression (logistic), Huber's SVM (huber), or a loss of another package by its name.")
    ] = "logistic"
    half_width: Annotated[Positive, doc("For huber: half the width over which the hinge is rounded.")] = 0.5
    perturbation: Annotated[
        Perturbation,
        doc(
            'Where noise is added: to the objective or the output. "none" trains without noise and gives no privacy'
            " guarantee."
        ),
    ] = "objective"
    features: Annotated[Natural, doc("Number of frequencies of Fourier features; 0 trains a linear model.")] = 0
    clip_norm: Annotated[
        bool,
        doc("For linear features: scale down rows whose L2 norm exceeds that of the public rows. false refuses them."),
    ] = True

    multiclass: Annotated[
        Literal["ovr", "joint"],
        doc("Multi-class method: one class against the rest (ovr), or one joint problem (joint)."),
    ] = "ovr"

    def is_joint(self, problems: int) -> bool:
        """Return whether the weight vectors belong to one problem; for two classes there is one vector."""
        return problems > 1 and self.multiclass == "joint"

    @property
    def loss_function(self) -> Loss:
        """The loss with its width."""
        return loss_named(self.loss, self.half_width)

    @property
    def is_private(self) -> bool:
        """True if there is a privacy guarantee."""
        return self.perturbation != "none"
