"""The settings of DPP-SVM."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from fedsvm.algorithms.features.kernels import KernelSettings
from fedsvm.algorithms.optimization.cutting_plane import CuttingPlaneSettings
from fedsvm.algorithms.optimization.solution import TOLERANCE
from fedsvm.algorithms.settings import Positive, Share, ShareOrCount, Tolerance, doc


@dataclass
class DppSettings(KernelSettings, CuttingPlaneSettings):
    """The settings of a user."""

    C: Annotated[
        Positive, doc("Regularization parameter C, as in scikit-learn's SVC: the weight of each record's hinge loss.")
    ] = 1.0
    _: KW_ONLY
    landmarks: Annotated[
        ShareOrCount | None,
        doc(
            "Number of records that the low-rank variant compares with: a share or a count. Default: the exact kernel."
        ),
    ] = None
    kernel_exchange: Annotated[
        Literal["summed", "plain"],
        doc("Sites send their kernel matrices through the secure sum, or in the clear as in the paper."),
    ] = "summed"
    tolerance: Annotated[Tolerance, doc("Certified relative gap at which training stops.")] = TOLERANCE
    rank_tolerance: Annotated[
        Share, doc("For the low-rank variant: eigenvalues below this share of the largest are dropped.")
    ] = 1e-10
