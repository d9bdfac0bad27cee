"""Rows in the features that a model is trained in: what a site does with the map, and how the sites come by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.data.horizontal_task import PreparedRows
from fedsvm.algorithms.features import row_blocks
from fedsvm.algorithms.features.choice import Features, FeatureSettings, choose_features, read_map
from fedsvm.algorithms.features.drawn_landmark_sums import DrawnLandmarks, draws
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.algorithms.features.landmarks import cluster_script
from fedsvm.algorithms.features.row_blocks import RowBlocks
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import AGREED, CHECKED, SitePart, free, step
from fedsvm.federation.site.script import Script, maybe, seq
from fedsvm.federation.site.terms import Terms


class FeatureRows(SitePart):
    """The features (n, m) of a site's training rows; no rows until `place` is called.

    Attributes
    ----------
    stored : FloatArray or RowBlocks
        The features, or blocks of rows where there are too many to keep.
    """

    def __init__(self) -> None:
        self.stored: FloatArray | RowBlocks = np.zeros((0, 0))

    @property
    def features(self) -> FloatArray:
        """All features at once; from then on they are kept."""
        if isinstance(self.stored, RowBlocks):
            self.stored = self.stored.to_array()
        return self.stored

    def place(self, features: FloatArray | RowBlocks) -> None:
        """Take the features."""
        self.stored = features

    @step(bound=math.inf)
    def squared_norms(self) -> FloatArray:
        """Return the (2,) sum of the features' squared lengths, which bounds later sums, and their number."""
        stored = self.stored
        squares = stored.squares() if isinstance(stored, RowBlocks) else row_blocks.squares_of(stored)
        return np.array([squares, float(len(stored))])


class MappedRows(FeatureRows):
    """A site's training rows and the rows set apart, in the features of a map that all sites share.

    check_gamma: raises OrderRefused for a gamma of the kernel that was not agreed on.
    """

    def __init__(self, site: HorizontalSite, drawn: DrawnLandmarks, check_gamma: Callable[[float], None]) -> None:
        super().__init__()
        self._site, self._drawn, self._check_gamma = site, drawn, check_gamma
        self.features_apart: FloatArray = np.zeros((0, 0))
        self.map: FeatureMap = IdentityMap(0)

    @step(
        remembered=True,
        told={
            "features, kernel, degree, coef0": AGREED,
            "gamma, rho, dimensions": CHECKED,
            "landmarks": free(
                "as many points as agreed; drawn ones: those that the site draws",
                "features in which later sums can isolate rows",
            ),
            "map": free("any matrix", "features in which later sums can isolate rows"),
        },
    )
    def receive_map(self, **feature_map: Any) -> None:
        """Map this site's training rows and its rows set apart.

        Raises OrderRefused for other features, another kernel, other frequencies, another number of columns, or more
        landmarks than were agreed on. The coordinator chooses the landmarks, and their number if the terms give it as a
        share of all rows.
        """
        site = self._site
        if not site.is_scaled:  # a restarted site replays the map of an earlier fold before it scales its rows
            self.place(np.zeros((int(site.training.sum()), 0)))
            return
        kernel = ("features", "kernel", "degree", "coef0")
        site.check_agreed(**{name: feature_map[name] for name in kernel if name in feature_map})
        if "gamma" in feature_map:
            self._check_gamma(feature_map["gamma"])
        self._check_map(feature_map)
        self.map = read_map(feature_map)
        blocks = RowBlocks.of(site.rows if site.is_narrow else site.training_rows, self.map)
        fits = len(blocks) * self.map.dimensions <= row_blocks.MOST_VALUES
        self.place(blocks.to_array() if fits else blocks)
        site.forget_rows()
        self.features_apart = self.map(site.rows_apart)

    def _check_map(self, feature_map: Mapping[str, Any]) -> None:
        """Raise OrderRefused for other columns, other frequencies than the seed draws, or too many landmarks."""
        terms, columns = self._site.terms, len(self._site.columns)
        settings = terms.settings
        if feature_map.get("dimensions", columns) != columns:
            raise OrderRefused(f"dimensions must be {columns}, the number of columns")
        if feature_map["features"] == "fourier" and "frequencies" in settings:
            drawn = FourierMap.draw(feature_map["gamma"], settings["frequencies"], columns, terms.seed).rho
            rho = feature_map["rho"]
            if np.shape(rho) != drawn.shape or not np.allclose(rho, drawn):
                count = settings["frequencies"]
                raise OrderRefused(f"rho must be the {count} frequencies that the agreed seed draws, and is not")
        if feature_map["features"] == "landmarks":
            self._check_landmarks(feature_map["landmarks"])

    def _check_landmarks(self, landmarks: FloatArray) -> None:
        """Raise OrderRefused for more landmarks than an agreed count, and for others than are drawn."""
        settings = self._site.terms.settings
        most = settings.get("landmarks")
        if draws(self._site.terms) and not self._drawn.replaced:
            self._drawn.require_drawn(landmarks)
            return
        if type(most) is int and len(landmarks) > most:
            raise OrderRefused(f"landmarks must be {most} or fewer, as agreed, got {len(landmarks)}")


def mapping(terms: Terms) -> Script:
    """Return the script of `map_rows`."""
    landmarks = [landmark_script(terms)] if terms.settings["features"] == "landmarks" else []
    return seq(*landmarks, "receive_map")


def landmark_script(terms: Terms) -> Script:
    """Return the script of the landmarks; those by noisy statistics are chosen once for all models of a run."""
    settings = terms.settings
    if not draws(terms) and not settings["landmark_noise"]:
        return cluster_script(terms)
    if settings["landmark_method"] == "drawn":
        return maybe("describe_rows", maybe("explained_shares"))
    if settings["landmark_method"] == "auto":
        return maybe("describe_rows", maybe("explained_shares", maybe("use_means", cluster_script(terms))))
    return maybe("describe_rows", cluster_script(terms))


def map_rows(federation: Federation, settings: FeatureSettings, prepared: PreparedRows, seed: int) -> Features:
    """Choose the features of the scaled rows that the sites hold ready, and have the sites map their rows.

    The rounds are of phase "landmarks".
    """
    with federation.phase("landmarks"):
        features = choose_features(federation, settings, prepared, seed)
        federation.run("receive_map", remember=True, **features.map.to_fields())
    return features
