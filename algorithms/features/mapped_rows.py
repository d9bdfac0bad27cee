"""Rows in the features that a model is trained in: what a site does with the map, and how the sites come by it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite, Prepared
from fedsvm.algorithms.features.choice import Features, FeatureSettings, choose_features, read_map
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.landmarks import LandmarkSite, landmark_script
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import step
from fedsvm.federation.site.script import Script, seq
from fedsvm.federation.site.terms import Terms


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
        """Map this site's rows.

        Raises OrderRefused for other features, another kernel, other frequencies, or more landmarks than were agreed
        on. Landmarks themselves, and the number of them that a share of all rows is, are as the coordinator says.
        """
        if not self.is_scaled:  # of an earlier fold, told to a site that was restarted: this one's is still to come
            self.features = np.zeros((int(self.training.sum()), 0))
            return
        self.check_agreed(features=feature_map["features"])
        self.check_agreed(**{name: feature_map[name] for name in ("kernel", "degree", "coef0") if name in feature_map})
        if "gamma" in feature_map:
            self.check_gamma(feature_map["gamma"])
        self._check_map(feature_map)
        self.map = read_map(feature_map)
        self.features = self.map(self.rows)

    def _check_map(self, feature_map: Mapping[str, Any]) -> None:
        """Raise OrderRefused for other frequencies than the seed draws, or more landmarks than an agreed count."""
        settings, columns = self.terms.settings, self.rows.shape[1]
        if feature_map["features"] == "fourier" and "frequencies" in settings:
            drawn = FourierMap.drawn(feature_map["gamma"], settings["frequencies"], columns, self.terms.seed).rho
            rho = feature_map["rho"]
            if np.shape(rho) != drawn.shape or not np.allclose(rho, drawn):
                count = settings["frequencies"]
                raise OrderRefused(f"rho must be the {count} frequencies that the agreed seed draws, and is not")
        held, most = len(feature_map.get("landmarks", ())), settings.get("landmarks")
        if type(most) is int and held > most:
            raise OrderRefused(f"landmarks must be {most} or fewer, as agreed, got {held}")

    def check_gamma(self, gamma: float) -> None:
        """Raise OrderRefused for another gamma than was agreed on: a narrow kernel sees single rows."""
        if self.terms.settings.get("gamma") == "auto" and gamma == 1.0 / self.rows.shape[1]:
            return
        self.check_agreed(gamma=gamma)


def mapping(terms: Terms) -> Script:
    """Return the script of `map_rows`."""
    landmarks = [landmark_script(terms)] if terms.settings["features"] == "landmarks" else []
    return seq(*landmarks, "receive_map")


def map_rows(federation: Federation, settings: FeatureSettings, prepared: Prepared, seed: int) -> Features:
    """Choose the features of the scaled rows that the sites hold ready, and have the sites map their rows.

    The rounds are of phase "landmarks".
    """
    with federation.phase("landmarks"):
        features = choose_features(federation, settings, prepared, seed)
        federation.run("receive_map", remember=True, **features.map.to_fields())
    return features
