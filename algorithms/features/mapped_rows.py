"""Rows in the features that a model is trained in: what a site does with the map, and how the sites come by it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite, Prepared
from fedsvm.algorithms.features.choice import Features, FeatureSettings, choose_features, read_map
from fedsvm.algorithms.features.landmarks import LandmarkSite
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import step


class FeatureSite(HorizontalSite):
    """A site that has its training rows' features (n, m) ready."""

    features: FloatArray

    @step(bound=math.inf)
    def squared_norms(self) -> FloatArray:
        """(2,): the sum of the features' squared lengths, from which bounds on later sums follow, and their number."""
        return np.array([float((self.features**2).sum()), float(len(self.features))])


class MappedSite(LandmarkSite, FeatureSite):
    """A site that maps its rows as all sites do."""

    @step
    def receive_map(self, **feature_map: Any) -> None:
        """Map this site's rows. Raises OrderRefused for other features, or another kernel, than were agreed on."""
        if not self.is_scaled:  # of an earlier fold, told to a site that was restarted: this one's is still to come
            self.features = np.zeros((int(self.training.sum()), 0))
            return
        self.check_agreed(features=feature_map["features"])
        self.check_agreed(**{name: feature_map[name] for name in ("kernel", "degree", "coef0") if name in feature_map})
        if "gamma" in feature_map:
            self.check_gamma(feature_map["gamma"])
        self.map = read_map(feature_map)
        self.features = self.map(self.rows)

    def check_gamma(self, gamma: float) -> None:
        """Raise OrderRefused for another gamma than was agreed on: a narrow kernel sees single rows."""
        if self.terms.settings.get("gamma") == "auto" and gamma == 1.0 / self.rows.shape[1]:
            return
        self.check_agreed(gamma=gamma)


def map_rows(federation: Federation, settings: FeatureSettings, prepared: Prepared, seed: int) -> Features:
    """Choose the features of the scaled rows that the sites hold ready, and have the sites map their rows.

    The rounds are of phase "landmarks".
    """
    with federation.phase("landmarks"):
        features = choose_features(federation, settings, prepared, seed)
        federation.run("receive_map", remember=True, **features.map.to_fields())
    return features
