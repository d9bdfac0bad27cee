"""The choice of features for a linear model: the settings of a user, and what the sites agree on for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from fedsvm.algorithms.data.horizontal_task import PreparedRows
from fedsvm.algorithms.data.statistics import NoisyStatistics
from fedsvm.algorithms.features.drawn_landmark_sums import describe_rows, drawn_points, open_shares, tried_counts
from fedsvm.algorithms.features.drawn_landmarks import smallest_enough
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.algorithms.features.kernels import KernelSettings
from fedsvm.algorithms.features.landmarks import (
    LandmarkMethod,
    Landmarks,
    asked_count,
    choose_landmarks,
    noise_times,
)
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.leakage import Extent
from fedsvm.algorithms.settings import Count, Dimension, Renamed, Share, ShareOrCount, doc
from fedsvm.federation.federation import Federation

if TYPE_CHECKING:
    from fedsvm.protocols.analysis.views import Coalition

FEATURE_MAPS: Mapping[str, type[FeatureMap]] = {each.name: each for each in (NystromMap, FourierMap, IdentityMap)}

_KEYS_OF = {
    "landmarks": (
        "landmarks",
        "landmark_method",
        "max_landmarks",
        "landmark_noise",
        "min_cluster_size",
        "rank_tolerance",
    ),
    "fourier": ("frequencies",),
    "identity": (),
}
"""The settings that only one kind of features has."""

_LOW_SHARE = 0.55
"""The explained share below which a linear kernel is often as good, by experiments (docs/features.md)."""

TYPICAL_LANDMARKS = 200
"""Landmarks to expect where they are a share of rows whose number nobody knows before the run."""


@dataclass(kw_only=True)
class FeatureSettings(KernelSettings):
    """The settings of features and their kernel."""

    features: Annotated[
        Literal["landmarks", "fourier", "identity"],
        doc(
            "Feature map: kernel values at landmarks, random features of the rbf kernel, or (for a linear kernel) "
            "the columns themselves. The latter two reveal nothing about any row."
        ),
    ] = "landmarks"
    landmarks: Annotated[
        ShareOrCount,
        doc(
            "Number of landmarks: a share of the rows, or a count. k-means gives at most rows / min_cluster_size "
            "landmarks."
        ),
    ] = 0.25
    landmark_method: Annotated[
        LandmarkMethod,
        doc(
            "How to make landmarks: drawn from noisy statistics, which reveals no row (drawn); by k-means at each site "
            "(local), or over all sites (global); drawn if the explained share is large enough, otherwise local with "
            "noise, and local without noise if statistics are exact (auto)."
        ),
        Renamed({"gaussian": "drawn"}),
    ] = "auto"
    max_landmarks: Annotated[
        Dimension,
        doc("Largest number of drawn landmarks: auto doubles their number until the explained share is large enough."),
    ] = 300
    landmark_noise: Annotated[
        Annotated[float, Ge(0), Le(10)] | None,
        doc("Noise of local landmarks in standard deviations of a column. Default: 0.5 for auto, 0 for local."),
    ] = None
    min_cluster_size: Annotated[
        Count,
        doc(
            "Minimum number of rows averaged into a landmark. A share of landmarks above 1 / min_cluster_size cannot "
            "be met. With 1, single records can be disclosed."
        ),
    ] = 3
    rank_tolerance: Annotated[Share, doc("Eigenvalues below this share of the largest are dropped.")] = 1e-10
    frequencies: Annotated[
        Count, doc("For fourier: number of random frequencies. Each gives a cosine and a sine feature.")
    ] = 100

    def feature_problems(self, statistics_privacy: float) -> Iterator[str]:
        """Yield contradictions in these settings; see `Algorithm.problems`."""
        if self.features == "identity" and self.kernel != "linear":
            yield f'kernel: must be "linear" with features = "identity", which has no other, got "{self.kernel}"'
        if self.features == "fourier" and self.kernel != "rbf":
            yield (
                f'kernel: must be "rbf" with features = "fourier", got "{self.kernel}"; or set features = "landmarks"'
            )
        for features, names in _KEYS_OF.items():
            for name in names if features != self.features else ():
                if self._is_set(name):
                    yield f'{name}: applies to features = "{features}", got "{self.features}"; remove it'
        if self.features == "landmarks":
            yield from self._landmark_problems(statistics_privacy)

    def _landmark_problems(self, statistics_privacy: float) -> Iterator[str]:
        if self.landmark_method == "drawn" and not statistics_privacy:
            yield (
                "landmark_method: drawn landmarks follow from noisy statistics, and these are exact; set "
                "data.statistics_privacy above 0"
            )
        if self.landmark_noise and not statistics_privacy:
            yield (
                "landmark_noise: is in noisy standard deviations, and statistics are exact; set "
                "data.statistics_privacy above 0"
            )
        if self.landmark_method == "drawn" and self._is_set("min_cluster_size"):
            yield "min_cluster_size: drawn landmarks are no means of clusters; remove it"
        if self.landmark_method in ("drawn", "global") and self.landmark_noise is not None:
            yield f"landmark_noise: applies to local landmarks, got {self.landmark_method}; remove it"

    def expected_features(self, rows: int | None = None) -> int | None:
        """Return the number of features to expect before the run; None if it depends on the data alone.

        rows: that are trained on. If None, a share of them is taken to be TYPICAL_LANDMARKS.
        """
        if self.features == "fourier":
            return 2 * self.frequencies
        if self.features == "identity":
            return None
        if isinstance(self.landmarks, int):
            return self.landmarks
        expected = TYPICAL_LANDMARKS if rows is None else max(1, round(self.landmarks * rows))
        return min(expected, self.max_landmarks) if self.landmark_method in ("auto", "drawn") else expected

    @property
    def has_exact_landmarks(self) -> bool:
        """True if landmarks are exact means of rows even if statistics are noisy."""
        local = self.landmark_method == "local" and not self.landmark_noise
        return self.features == "landmarks" and (local or self.landmark_method == "global")

    def landmark_rows(self, *, with_site: bool) -> Extent | None:
        """Return what landmarks give the coordinator: copies, or with a site differences of the rounds it opens."""
        if self.features != "landmarks" or self.landmark_method == "drawn":
            return None
        return "some rows" if with_site and self.landmark_method == "global" else "copies"

    def landmark_remarks(self, coalition: Coalition) -> list[str]:
        """Return what the coordinator and one site can tell of landmarks together, and what a site that opens sums has.

        See `Algorithm.remarks`.
        """
        method = self.landmark_method if self.features == "landmarks" else None
        if method in ("auto", "local") and coalition.coordinator and coalition.sites:
            return [
                f"{coalition.sites[0]} knows the order in which sites fill the table of landmarks, and the coordinator "
                'the table: together they can tell whose each landmark is. algorithm.landmark_method = "global" avoids '
                "that."
            ]
        if method == "global" and coalition.sites:
            return [
                "The site with the fewest rows opens the sums of every round of k-means, and the others learn the "
                "centres: if it colludes, what the coalition does not hold itself is in the differences of these sums."
            ]
        return []

    def _is_set(self, name: str) -> bool:
        return bool(getattr(self, name) != getattr(FeatureSettings, name))


@dataclass(frozen=True)
class Features:
    """The map that all sites have, and its description in a result.

    description: its size, in a phrase. figures: numbers by name. remarks: sentences by the name of their line.
    """

    map: FeatureMap
    description: str
    figures: Mapping[str, float]
    remarks: Mapping[str, str] = field(default_factory=dict)

    def with_explained_share(self, share: float) -> Features:
        """Return the same with an explained share, and advice where landmarks miss much of the kernel."""
        sentence = f"{self.remarks['landmarks']}; explained share {share:.2f}"
        if share < _LOW_SHARE:
            sentence += (
                f", below {_LOW_SHARE:g}: compare with --set algorithm.kernel=linear --set "
                "algorithm.features=identity, which needs no landmarks, or with a smaller gamma or more landmarks"
            )
        figures = {**self.figures, "explained_share": round(share, 3)}
        return replace(self, figures=figures, remarks={**self.remarks, "landmarks": sentence})

    def with_lengths(self, mean_square: float | None) -> Features:
        """Return the same with the explained share that follows from the features' lengths, if none is known.

        mean_square: mean over rows of the squared lengths, which training opens. Of rbf alone it is the share.
        """
        of_rbf = isinstance(self.map, NystromMap) and self.map.kernel.name == "rbf"
        if mean_square is None or not of_rbf or "explained_share" in self.figures:
            return self
        return self.with_explained_share(min(1.0, mean_square))


def read_map(fields: Mapping[str, Any]) -> FeatureMap:
    """Return the map that was sent to sites, or that a model's file holds."""
    values = {name: value if np.ndim(value) else np.asarray(value).item() for name, value in fields.items()}
    return FEATURE_MAPS[values["features"]].of_parts(values)


def choose_features(federation: Federation, settings: FeatureSettings, prepared: PreparedRows, seed: int) -> Features:
    """Choose the map of the scaled rows that sites hold ready. Only landmarks take rounds."""
    kernel = settings.kernel_of(prepared.columns)
    if settings.features == "identity":
        return Features(IdentityMap(prepared.columns), f"{prepared.columns} columns", {"rank": prepared.columns})
    if settings.features == "fourier":
        fourier = FourierMap.draw(kernel.gamma, settings.frequencies, prepared.columns, seed)
        figures = {"frequencies": settings.frequencies, "rank": fourier.dimensions}
        return Features(fourier, f"{settings.frequencies} random frequencies", figures)
    landmarks = _landmarks(federation, settings, prepared, seed)
    nystrom = NystromMap.span(kernel, landmarks.points, settings.rank_tolerance)
    count = len(landmarks.points)
    figures = {
        "landmarks": count,
        "landmarks_asked": landmarks.asked,
        "rank": nystrom.dimensions,
        "records_exposed": landmarks.records_exposed,
    }
    remark = _shortfall(settings, landmarks, prepared.rows) + _origin(landmarks)
    features = Features(nystrom, f"{count} landmarks, rank {nystrom.dimensions}", figures, {"landmarks": remark})
    return features if landmarks.explained is None else features.with_explained_share(landmarks.explained)


def _landmarks(federation: Federation, settings: FeatureSettings, prepared: PreparedRows, seed: int) -> Landmarks:
    """Return landmarks by the agreed method; with noisy statistics they are chosen once for all models of a run."""
    statistics, method = prepared.statistics, settings.landmark_method
    if statistics is None or method == "global" or (method == "local" and not settings.landmark_noise):
        asked = asked_count(settings.landmarks, prepared.rows)
        return _cluster_means(federation, settings, prepared, asked, seed)
    if prepared.selected is not None:  # columns that a model chose are of this model alone
        return _by_statistics(federation, settings, prepared, statistics, seed)
    if prepared.kept.get("landmarks of") is not statistics:
        prepared.kept["landmarks"] = _by_statistics(federation, settings, prepared, statistics, seed)
        prepared.kept["landmarks of"] = statistics
    landmarks: Landmarks = prepared.kept["landmarks"]
    return landmarks


def _by_statistics(
    federation: Federation, settings: FeatureSettings, prepared: PreparedRows, statistics: NoisyStatistics, seed: int
) -> Landmarks:
    """Return landmarks that are drawn, or local ones with noise where these are agreed or drawn ones do not reach."""
    described = describe_rows(federation, prepared, statistics)
    counts = tried_counts(asdict(settings), statistics.rows)
    if settings.landmark_method == "local":
        return _cluster_means(federation, settings, prepared, counts[0], seed)
    if prepared.selected is not None:
        return Landmarks(drawn_points(prepared, described, counts[0], seed), "drawn", counts[0])
    shares = open_shares(federation, described, counts)
    if settings.landmark_method == "drawn":
        points = drawn_points(prepared, described, counts[0], seed)
        return Landmarks(points, "drawn", counts[0], explained=float(shares[0]))
    if enough := smallest_enough(counts, shares):
        explained = float(shares[counts.index(enough)])
        return Landmarks(drawn_points(prepared, described, enough, seed), "drawn", counts[0], explained=explained)
    federation.run("use_means", remember=True)
    return replace(_cluster_means(federation, settings, prepared, counts[0], seed), drawn_reach=float(shares[-1]))


def _cluster_means(
    federation: Federation, settings: FeatureSettings, prepared: PreparedRows, asked: int, seed: int
) -> Landmarks:
    """Return means of clusters by the settings."""
    return choose_landmarks(
        federation,
        "global" if settings.landmark_method == "global" else "local",
        asked,
        settings.min_cluster_size,
        prepared.site_rows,
        prepared.columns,
        seed,
        noise_times(asdict(settings), is_exact=prepared.statistics is None),
    )


def _shortfall(settings: FeatureSettings, landmarks: Landmarks, rows: int) -> str:
    """Return a clause that says why there are fewer landmarks than asked for; "" if there are not."""
    count, asked, least = len(landmarks.points), landmarks.asked, settings.min_cluster_size
    if count >= asked:
        return ""
    if asked > rows:
        why = f"there are {rows} rows"
    elif asked > rows // least:
        why = f"{rows} rows make at most {rows // least} clusters of {least} (algorithm.min_cluster_size)"
    elif least > 1:
        why = f"each is of {least} rows or more (algorithm.min_cluster_size), and equal rows share one"
    else:
        why = "equal rows share one"
    return f"{count} of the {asked} asked for: {why}; "


def _origin(landmarks: Landmarks) -> str:
    """Return a clause on what landmarks are made of, and what they give away."""
    if landmarks.method == "drawn":
        more = f"; {landmarks.asked} were asked for" if len(landmarks.points) > landmarks.asked else ""
        return f"drawn from noisy statistics, so that none reveals a row{more}"
    if landmarks.noise:
        reach = landmarks.drawn_reach
        why = "" if reach is None else f", since drawn ones have an explained share of {reach:.2f}"
        return f"means of rows with noise of {landmarks.noise:g} deviations, for which no mu is claimed{why}"
    if landmarks.records_exposed:
        return (
            f"{landmarks.records_exposed} of {len(landmarks.points)} are a single row's copy "
            "(algorithm.min_cluster_size = 3 avoids that)"
        )
    return "none is a single row's copy, but exact means of few rows name these to whoever has a list of candidates"
