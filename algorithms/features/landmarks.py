"""Landmarks: the few points that stand for all rows in the kernel approximation (Lu 2016, section 3.2.2.1).

local: each site clusters its own rows and contributes its share of the centres. The table of all centres is
assembled by a secure sum in which each site fills rows that only it was assigned, in an order the coordinator does
not know; the coordinator hands the table on sorted. So neither it nor a site can tell whose a centre is.
global: k-means over all sites, every Lloyd iteration one secure sum of per-cluster sums and counts, so that no
single site's centres are ever seen.

The paper overlooks that with many landmarks a cluster may hold a single row, and its "centre" is a patient's record.
Such centres are counted, and `min_cluster_size` merges clusters that are too small into their nearest. In the global
method the coordinator sees the sums of clusters before they are merged; those of a single row are disclosures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from algorithms.data.horizontal import HorizontalSite
from algorithms.features.cluster_differences import ClusterMoments, differing_rows
from algorithms.features.kernels import squared_distances
from federation.arrays import FloatArray, IntArray
from federation.disclosures import Kind
from federation.errors import FederationError
from federation.federation import Federation
from federation.site.program import step
from protocols.secret_order import secret_order

LOCAL_ITERATIONS = 20
SPLIT_ITERATIONS = 2
FINAL_ITERATIONS = 10
SINGLETON_CLUSTERS = "a single row, where a cluster on the way to the landmarks has no other"
CLUSTERS_THAT_DIFFER = "a single row, by which two clusters of successive rounds on the way to the landmarks differ"
GRID = 2.0**-16
"""Rows and centres of the global method lie on this grid: their distances are then exact in float64, so that ties
fall the same way however the rows are spread over the sites."""


@dataclass(frozen=True)
class Landmarks:
    """points (l, p) in lexicographic order; `records_exposed` of them are a single row's copy."""

    points: FloatArray
    records_exposed: int


def landmark_count(wanted: float, rows: int) -> int:
    """How many landmarks there are for so many rows: a share of them, or a count where `wanted` is an int."""
    return max(1, min(wanted if isinstance(wanted, int) else round(wanted * rows), rows))


class LandmarkSite(HorizontalSite):
    """What a site does towards the landmarks."""

    @step
    def cluster(self, quotas: list[int], min_cluster_size: int) -> None:
        """Cluster this site's rows into at most its quota of centres."""
        quota = quotas[self.channel.sites.index(self.site)]
        self.centres, self.sizes = local_centres(self.rows, quota, min_cluster_size, self.random("cluster"))

    @step
    def local_landmarks(self, quotas: list[int]) -> FloatArray:
        """(l, p + 1): this site's centres in its secret places, each with a 1 that says the place is taken."""
        position = self.channel.sites.index(self.site)
        order = secret_order(self.secret, "landmarks", sum(quotas))
        places = order[sum(quotas[:position]) :][: len(self.centres)]
        table = np.zeros((sum(quotas), self.rows.shape[1] + 1))
        table[places, :-1] = self.centres
        table[places, -1] = 1.0
        return table

    @step
    def records_exposed(self) -> FloatArray:
        """How many of this site's centres are a single row's copy."""
        return np.array(float((self.sizes == 1).sum()))

    @step
    def cluster_sums(self, centres: FloatArray) -> FloatArray:
        """(l, p + 2) per cluster: sum of its rows, sum of their squared distances, their number."""
        rows = on_grid(self.rows)
        distances = squared_distances(rows, centres)
        nearest = distances.argmin(axis=1)
        members = np.eye(len(centres))[nearest]
        spread = distances[np.arange(len(rows)), nearest]
        return np.asarray(members.T @ np.column_stack([rows, spread, np.ones(len(rows))]))


def choose_landmarks(
    federation: Federation,
    method: str,
    count: int,
    min_cluster_size: int,
    rows: Mapping[str, int],
    columns: int,
    seed: int,
) -> Landmarks:
    """At most `count` landmarks by the `local` or the `global` method, the same at every site.

    rows: training rows at each site. Raises FederationError when clusters of the wanted size leave none.
    """
    if method == "local":
        landmarks = _local_landmarks(federation, count, min_cluster_size, rows, columns)
    else:
        landmarks = _global_landmarks(federation, count, min_cluster_size, columns, seed)
    if len(landmarks.points) == 0:
        raise FederationError("No cluster is large enough: lower algorithm.min_cluster_size or algorithm.landmarks.")
    return landmarks


def _local_landmarks(
    federation: Federation, count: int, min_cluster_size: int, rows: Mapping[str, int], columns: int
) -> Landmarks:
    quotas = shares(count, [rows[site] for site in federation.sites])
    federation.run("agree_secret")
    federation.run("cluster", quotas=quotas, min_cluster_size=min_cluster_size)
    table = federation.sum("local_landmarks", shape=(sum(quotas), columns + 1), bound=math.inf, quotas=quotas)
    exposed = federation.sum("records_exposed", shape=(), bound=float(count))
    points = np.unique(table[table[:, -1] > 0.5, :-1], axis=0)
    return Landmarks(points, round(float(exposed)))


def _global_landmarks(federation: Federation, count: int, min_cluster_size: int, columns: int, seed: int) -> Landmarks:
    """Binary splitting (Linde, Buzo and Gray 1980), which needs no row to start from."""
    random = np.random.default_rng([seed, count])
    lloyd = _Lloyd(federation)
    clusters = lloyd.update(np.zeros((1, columns)), 1)
    while len(clusters.centres) < count:
        split = clusters.split(count, 2 * min_cluster_size, random)
        if len(split) == len(clusters.centres):
            break
        previous = len(clusters.centres)
        clusters = lloyd.iterate(split, SPLIT_ITERATIONS, min_cluster_size)
        if len(clusters.centres) <= previous:
            break
    clusters = lloyd.iterate(clusters.centres, FINAL_ITERATIONS, min_cluster_size)
    return Landmarks(np.unique(clusters.centres, axis=0), int((clusters.sizes == 1).sum()))


@dataclass(frozen=True)
class _Clusters:
    """centres (l, p), spreads (l,) sums of squared distances, sizes (l,)."""

    centres: FloatArray
    spreads: FloatArray
    sizes: FloatArray

    def split(self, count: int, fewest: int, random: np.random.Generator) -> FloatArray:
        """The centres, with those of the widest clusters of at least `fewest` rows split in two, `count` at most."""
        splittable = np.flatnonzero((self.sizes >= fewest) & (self.spreads > 0))
        widest = splittable[np.argsort(-self.spreads[splittable], kind="stable")][: count - len(self.centres)]
        deviation = np.sqrt(self.spreads / np.maximum(self.sizes, 1) / self.centres.shape[1])
        signs = random.choice([-1.0, 1.0], size=self.centres.shape)
        step_away = 0.5 * deviation[:, None] * signs
        stay = np.setdiff1d(np.arange(len(self.centres)), widest)
        halves = [self.centres[widest] - step_away[widest], self.centres[widest] + step_away[widest]]
        return on_grid(np.vstack([self.centres[stay], *halves]))


@dataclass
class _Lloyd:
    """Lloyd iterations over the sites, each one secure sum, and what they show of single rows."""

    federation: Federation
    _last: ClusterMoments | None = None
    _shown: set[bytes] = field(default_factory=set)

    def iterate(self, centres: FloatArray, iterations: int, min_cluster_size: int) -> _Clusters:
        """Until the centres stay where they are, but not more than `iterations`."""
        for _ in range(iterations):
            clusters = self.update(centres, min_cluster_size)
            if np.array_equal(clusters.centres, centres):
                break
            centres = clusters.centres
        return clusters

    def update(self, centres: FloatArray, min_cluster_size: int) -> _Clusters:
        """Means of the clusters around `centres`; those with too few rows are given up to their nearest."""
        shape = (len(centres), centres.shape[1] + 2)
        sums = self.federation.sum("cluster_sums", shape=shape, bound=math.inf, centres=centres)
        sizes = np.rint(sums[:, -1])
        self._disclose(SINGLETON_CLUSTERS, centres.shape[1], int(np.count_nonzero(sizes == 1)), "single-row")
        self._disclose(
            CLUSTERS_THAT_DIFFER,
            centres.shape[1],
            self._differ(ClusterMoments.of_sums(centres, sums)),
            "row-difference",
        )
        kept = sizes >= max(1, min_cluster_size)
        means = sums[kept, :-2] / sizes[kept, None]
        return _Clusters(on_grid(means), sums[kept, -2], sizes[kept])

    def _differ(self, clusters: ClusterMoments) -> int:
        """How many rows this round gives away by its difference from the last, that none before it gave away so."""
        last, self._last = self._last, clusters
        rows = on_grid(differing_rows(last, clusters)) if last is not None else clusters.centres[:0]
        before = len(self._shown)
        self._shown |= {row.tobytes() for row in rows + 0.0}  # there is one zero
        return len(self._shown) - before

    def _disclose(self, detail: str, columns: int, times: int, kind: Kind) -> None:
        if times:
            self.federation.disclose("coordinator", "cluster_sums", detail, (columns,), times=times, kind=kind)


def local_centres(
    rows: FloatArray, quota: int, min_cluster_size: int, random: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """At most `quota` k-means centres (l, p) of rows (n, p) and the sizes (l,) of their clusters.

    Clusters of fewer than `min_cluster_size` rows are merged into their nearest, the smallest first.
    """
    wanted = min(quota, len(rows))
    centres = _k_means(rows, wanted, random) if wanted else rows[:0]
    while True:
        nearest = squared_distances(rows, centres).argmin(axis=1) if len(centres) else np.zeros(0, dtype=np.int64)
        sizes = np.bincount(nearest, minlength=len(centres)).astype(np.int64)
        if len(centres) == 0 or sizes.min() >= max(1, min_cluster_size):
            break
        centres = np.delete(centres, sizes.argmin(), axis=0)
    members = np.eye(len(centres))[nearest] if len(centres) else np.zeros((len(rows), 0))
    return (members.T @ rows) / np.maximum(sizes, 1)[:, None], sizes


def _k_means(rows: FloatArray, count: int, random: np.random.Generator) -> FloatArray:
    """Lloyd's iterations from k-means++ seeds (Arthur and Vassilvitskii 2007); at most `count` centres (l, p).

    Our own twenty lines, since those of a library take a megabyte of memory in every site.
    """
    centres = _seeds(rows, count, random)
    for _ in range(LOCAL_ITERATIONS):
        nearest = squared_distances(rows, centres).argmin(axis=1)
        taken, members = np.unique(nearest, return_inverse=True)
        means = np.eye(len(taken))[members].T @ rows / np.bincount(members)[:, None]
        if np.array_equal(means, centres):
            break
        centres = means
    return centres


def _seeds(rows: FloatArray, count: int, random: np.random.Generator) -> FloatArray:
    """Rows drawn with a chance that grows with the squared distance to those drawn before, until none is left."""
    chosen = [int(random.integers(len(rows)))]
    distances = squared_distances(rows, rows[chosen])[:, 0]
    while len(chosen) < count and distances.max() > 0:
        chosen.append(int(random.choice(len(rows), p=distances / distances.sum())))
        distances = np.minimum(distances, squared_distances(rows, rows[chosen[-1:]])[:, 0])
        distances[chosen] = 0.0
    return rows[chosen]


def shares(count: int, weights: list[int]) -> list[int]:
    """`count` split in proportion to `weights`, by largest remainder; nobody gets more than its weight."""
    total = sum(weights)
    wanted = min(count, total)
    exact = [wanted * weight / total for weight in weights]
    parts = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: (parts[i] - exact[i], i))
    for i in by_remainder[: wanted - sum(parts)]:
        parts[i] += 1
    return parts


def on_grid(values: FloatArray) -> FloatArray:
    """The nearest multiples of 2^-16."""
    return np.asarray(np.rint(values / GRID) * GRID)
