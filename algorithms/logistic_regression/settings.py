"""The settings of logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fedsvm.algorithms.calibration import ThresholdSettings
from fedsvm.algorithms.features.choice import FeatureSettings
from fedsvm.algorithms.optimization.committee import BlindSystemSettings
from fedsvm.algorithms.optimization.weighting import ClassWeightSettings
from fedsvm.algorithms.settings import Count, Portion, Positive, Tolerance, doc


@dataclass
class LogisticSettings(FeatureSettings, ClassWeightSettings, ThresholdSettings, BlindSystemSettings):
    """The settings of a user."""

    regularisation: Annotated[Positive, doc("lambda of sum of losses + lambda/2 |w|^2.")] = 1.0
    intercept: Annotated[bool, doc("Add a constant term to the decision value.")] = True
    tolerance: Annotated[
        Tolerance, doc("Share of the objective that Newton's next step may promise when training stops.")
    ] = 1e-9
    max_iterations: Annotated[Count, doc("Maximum number of rounds, even if the tolerance is not reached.")] = 100
    step_noise: Annotated[
        Portion,
        doc("Relative size of the noise on steps behind a committee. It hides rows from whoever knows the points."),
    ] = 0.1
