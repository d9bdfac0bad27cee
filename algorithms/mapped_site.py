"""The base classes of algorithms that train in shared features: `MappedSite` at a site, and `MappedAlgorithm`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fedsvm.algorithms.algorithm import HorizontalAlgorithm, Model, Outline
from fedsvm.algorithms.calibration import CalibrationRows, ThresholdSettings
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.choice import FeatureSettings
from fedsvm.algorithms.features.drawn_landmark_sums import DrawnLandmarks
from fedsvm.algorithms.features.landmarks import LandmarkSums
from fedsvm.algorithms.features.mapped_rows import MappedRows
from fedsvm.algorithms.optimization.weighting import ClassWeightSettings, RowWeights
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import PartTypes

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack
    from fedsvm.protocols.analysis.views import Coalition

S = TypeVar("S", bound=FeatureSettings)
M = TypeVar("M", bound=Model)


class MappedSite(HorizontalSite):
    """A site that maps its rows as all sites do. It may weight rows and set some apart for calibration."""

    part_types: ClassVar[PartTypes] = (
        *HorizontalSite.part_types,
        DrawnLandmarks,
        LandmarkSums,
        MappedRows,
        CalibrationRows,
        RowWeights,
    )

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.drawn = DrawnLandmarks(self)
        self.landmarks = LandmarkSums(self, self.drawn)
        self.mapped = MappedRows(self, self.drawn, self.check_gamma)
        self.calibration = CalibrationRows(self, self.mapped)
        self.row_weights = RowWeights(self)

    def check_gamma(self, gamma: float) -> None:
        """Raise OrderRefused for another gamma than was agreed on: a narrow kernel separates single rows.

        A gamma that was agreed on by name must be 1 / the number of columns.
        """
        if isinstance(self.terms.settings.get("gamma"), str) and gamma == 1.0 / len(self.columns):
            return
        self.check_agreed(gamma=gamma)


class MappedAlgorithm(HorizontalAlgorithm[S, M]):
    """An algorithm that trains on rows in features which all sites share."""

    phases: ClassVar[tuple[str, ...]] = ("setup", "landmarks", "train")
    statistics_privacy: ClassVar[float] = 0.5
    figures: ClassVar[Mapping[str, str]] = {
        "landmarks": "points that stand for the rows",
        "landmarks_asked": "landmarks that the settings ask for",
        "explained_share": "mean over rows of how much of the kernel at a row the landmarks span, from 0 to 1",
        "frequencies": "of random Fourier features",
        "rank": "features of a row",
        "records_exposed": "landmarks that are a single row's copy",
    }

    def problems(self, settings: S, outline: Outline) -> Iterator[str]:
        """Yield errors: settings of other features, kernels that the features lack, and thresholds without rows."""
        yield from settings.feature_problems(outline.statistics_privacy)
        if isinstance(settings, ThresholdSettings):
            yield from settings.threshold_problems(calibrated=outline.calibrated)

    def can_calibrate(self, settings: S) -> bool:
        """Return whether the settings have a threshold."""
        return isinstance(settings, ThresholdSettings)

    def takes_weights(self, settings: S) -> bool:
        """Return whether the settings have weights of classes; then rows may have weights, too."""
        return isinstance(settings, ClassWeightSettings)

    def class_problems(self, settings: S, classes: tuple[str, ...]) -> Iterator[str]:
        """Yield weights of unknown classes."""
        if isinstance(settings, ClassWeightSettings):
            yield from settings.class_problems(classes)

    def file_attacks(self, settings: S) -> Sequence[Attack]:
        """Return the attacks on landmarks, and on the digits of the scale."""
        from fedsvm.algorithms.attacks.landmark_copies import LandmarkCopies
        from fedsvm.algorithms.attacks.landmark_means import LandmarkMeans

        return [LandmarkCopies(), LandmarkMeans(settings.min_cluster_size), *super().file_attacks(settings)]

    def remarks(self, settings: S, coalition: Coalition) -> list[str]:
        """Return what a coalition learns of landmarks."""
        return settings.landmark_remarks(coalition)
