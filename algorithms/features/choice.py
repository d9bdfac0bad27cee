"""Which features a linear model is trained in: what a user decides, and what the sites agree on for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from fedsvm.algorithms.data.horizontal import Prepared
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.algorithms.features.kernels import KernelSettings
from fedsvm.algorithms.features.landmarks import LandmarkMethod, asked_count, choose_landmarks, landmark_count
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.leakage import Extent
from fedsvm.algorithms.settings import Count, Share, ShareOrCount, doc
from fedsvm.federation.federation import Federation
from fedsvm.protocols.analysis.views import Coalition

FEATURE_MAPS: Mapping[str, type[FeatureMap]] = {each.name: each for each in (NystromMap, FourierMap, IdentityMap)}

_KEYS_OF = {
    "landmarks": ("landmarks", "landmark_method", "min_cluster_size", "rank_tolerance"),
    "fourier": ("frequencies",),
    "identity": (),
}
"""The settings that only one kind of features has."""


@dataclass(kw_only=True)
class FeatureSettings(KernelSettings):
    """Which features, of which kernel."""

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
            "How to make landmarks: by k-means at each site (local), by k-means over all sites through sums "
            "(global), or by normal draws with the rows' mean and covariance (gaussian)."
        ),
    ] = "local"
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

    def feature_problems(self) -> Iterator[str]:
        """What of these settings does not go together; see `Algorithm.problems`."""
        if self.features == "identity" and self.kernel != "linear":
            yield f'kernel: must be "linear" with features = "identity", which has no other, got "{self.kernel}"'
        if self.features == "fourier" and self.kernel != "rbf":
            yield (
                f'kernel: must be "rbf" with features = "fourier", got "{self.kernel}"; or have features = "landmarks"'
            )
        for features, names in _KEYS_OF.items():
            for name in names if features != self.features else ():
                if self._is_set(name):
                    yield f'{name}: is of features = "{features}", and these are "{self.features}"; leave it out'
        if self.features == "landmarks" and self.landmark_method == "gaussian" and self._is_set("min_cluster_size"):
            yield "min_cluster_size: gaussian landmarks are no means of clusters; leave it out"

    def landmark_rows(self, *, with_site: bool) -> Extent | None:
        """Return what landmarks give the coordinator: copies, or with a site differences of the rounds it opens."""
        if self.features != "landmarks" or self.landmark_method == "gaussian":
            return None
        return "some rows" if with_site and self.landmark_method == "global" else "copies"

    def landmark_remarks(self, coalition: Coalition) -> list[str]:
        """Whose a landmark is, the coordinator and one site know together; what a site that opens sums has.

        See `Algorithm.remarks`.
        """
        method = self.landmark_method if self.features == "landmarks" else None
        if method == "local" and coalition.coordinator and coalition.sites:
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
    """The map that all sites have, and what a result says of it.

    description: its size, in a phrase. figures: numbers by name. remarks: sentences by the name of their line.
    """

    map: FeatureMap
    description: str
    figures: Mapping[str, int]
    remarks: Mapping[str, str] = field(default_factory=dict)


def read_map(fields: Mapping[str, Any]) -> FeatureMap:
    """The map that sites were told of, or that a model's file holds."""
    values = {name: value if np.ndim(value) else np.asarray(value).item() for name, value in fields.items()}
    return FEATURE_MAPS[values["features"]].of_parts(values)


def choose_features(federation: Federation, settings: FeatureSettings, prepared: Prepared, seed: int) -> Features:
    """The map of the scaled rows that sites hold ready. The rounds, if it takes any, are those of landmarks."""
    kernel = settings.kernel_of(prepared.columns)
    if settings.features == "identity":
        return Features(IdentityMap(prepared.columns), f"{prepared.columns} columns", {"rank": prepared.columns})
    if settings.features == "fourier":
        fourier = FourierMap.drawn(kernel.gamma, settings.frequencies, prepared.columns, seed)
        figures = {"frequencies": settings.frequencies, "rank": fourier.dimensions}
        return Features(fourier, f"{settings.frequencies} random frequencies", figures)
    asked = asked_count(settings.landmarks, prepared.rows)
    landmarks = choose_landmarks(
        federation,
        settings.landmark_method,
        landmark_count(settings.landmarks, prepared.rows),
        settings.min_cluster_size,
        prepared.site_rows,
        prepared.columns,
        seed,
    )
    nystrom = NystromMap.spanned(kernel, landmarks.points, settings.rank_tolerance)
    count, exposed = len(landmarks.points), landmarks.records_exposed
    return Features(
        nystrom,
        f"{count} landmarks, rank {nystrom.dimensions}",
        {"landmarks": count, "landmarks_asked": asked, "rank": nystrom.dimensions, "records_exposed": exposed},
        {"landmarks": _shortfall(settings, count, asked, prepared.rows) + _exposure(settings, count, exposed)},
    )


def _shortfall(settings: FeatureSettings, count: int, asked: int, rows: int) -> str:
    """Return a clause that says why there are fewer landmarks than asked for; "" if there are not."""
    if count >= asked:
        return ""
    least = 1 if settings.landmark_method == "gaussian" else settings.min_cluster_size
    if asked > rows:
        why = f"there are {rows} rows"
    elif asked > rows // least:
        why = f"{rows} rows make at most {rows // least} clusters of {least} (algorithm.min_cluster_size)"
    elif least > 1:
        why = f"each is of {least} rows or more (algorithm.min_cluster_size), and equal rows share one"
    else:
        why = "equal rows share one"
    return f"{count} of the {asked} asked for: {why}; "


def _exposure(settings: FeatureSettings, count: int, exposed: int) -> str:
    """Whether landmarks are records."""
    if settings.landmark_method == "gaussian":
        return "normal draws: none is a row or a mean of rows"
    if exposed:
        return f"{exposed} of {count} are a single row's copy (algorithm.min_cluster_size = 3 avoids that)"
    return "none is a single row's copy"
