"""The site half that algorithms in common features begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsvm.algorithms.calibration import CalibrationRows
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.landmarks import LandmarkSums
from fedsvm.algorithms.features.mapped_rows import MappedRows
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import SitePart
from fedsvm.federation.site.terms import Terms


class MappedSite(HorizontalSite):
    """A site that maps its rows as all sites do, and may have rows set apart to calibrate a model by."""

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.landmarks = LandmarkSums(self)
        self.mapped = MappedRows(self, self.check_gamma)
        self.calibration = CalibrationRows(self, self.mapped)

    @classmethod
    def agreed_parts(cls, terms: Terms) -> tuple[type[SitePart], ...]:
        """Return the parts that map rows, and those of a calibration if rows are set apart for it."""
        return (*super().agreed_parts(terms), LandmarkSums, MappedRows, CalibrationRows)

    def check_gamma(self, gamma: float) -> None:
        """Raise OrderRefused for another gamma than was agreed on: a narrow kernel sees single rows."""
        if self.terms.settings.get("gamma") == "auto" and gamma == 1.0 / self.rows.shape[1]:
            return
        self.check_agreed(gamma=gamma)
