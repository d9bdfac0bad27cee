"""Landmarks: the few points that stand for all rows in the kernel approximation (Lu 2016, section 3.2.2.1).

local: each site clusters its own rows and contributes its share of the centres. The table of all centres is
assembled by a secure sum in which each site fills rows that only it was assigned, in an order the coordinator does
not know; the coordinator hands the table on sorted. So neither it nor a site can tell whose a centre is.
global: k-means over all sites, every Lloyd iteration one secure sum of per-cluster sums and counts. A site opens it,
drops clusters that are too small and passes the next centres on to the other sites; the coordinator gets those of the
end alone, and how many rounds there are depends on no row.
Landmarks that are drawn from noisy statistics are in `features.drawn_landmarks`.

With noise, local centres are made once in a run, of all rows that a site holds, and the same for all models. Each
gets isotropic normal noise before it leaves the site. The generator of both is the site's secret.

The paper overlooks that with many landmarks a cluster may hold a single row, and its "centre" is a patient's record;
`min_cluster_size` merges clusters that are too small into their nearest, and centres that are copies are counted. It
overlooks too that whoever sees every round of global k-means can subtract: a cluster that gained or lost one row since
the last round gives the row away. Here that is not the coordinator but the site that opens the sums. It sees less of
others the more rows of others there are in each sum: it is the site with the fewest rows, the first of the ring among
equals. The other sites see the centres of every round, without the sizes of their clusters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features import k_means
from fedsvm.algorithms.features.drawn_landmark_sums import DrawnLandmarks
from fedsvm.algorithms.settings import MAX_DIMENSION
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.generator import drawn_generator
from fedsvm.federation.errors import FederationError, StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import AGREED, SitePart, free, step
from fedsvm.federation.site.script import Script, repeat, seq
from fedsvm.federation.site.terms import Terms
from fedsvm.protocols.ring_broadcast import broadcast_ring
from fedsvm.protocols.secret_order import secret_order

LandmarkMethod = Literal["auto", "drawn", "local", "global"]

ROUNDS_OPENED = (
    "sums over every cluster of every round of k-means: less its own rows they are of the other sites', and where a "
    "cluster gains or loses one row from a round to the next, or holds one of theirs, they give the row away"
)
ROUNDS_PASSED_ON = "the centres of every round of k-means, without how many rows they are the mean of"
LONE_ROWS = "a single row, where a cluster on the way to the landmarks holds one that is not its own"

DEFAULT_NOISE = 0.5
"""Noise of local landmarks where drawn ones do not reach the rows, in deviations of a column."""

_WIDEST = 10.0
"""Times the public deviation of a column that a site's rows may have."""


@dataclass(frozen=True)
class Landmarks:
    """Landmarks, and how they came about.

    Parameters
    ----------
    points : (l, p) array
    method : {"drawn", "local", "global"}
    asked : int
        The number that was asked for.
    records_exposed : int, default 0
        Of them are a single row's copy.
    noise : float, default 0.0
        Of each local landmark, in deviations of a column.
    explained : float, optional
        Explained share of drawn landmarks, with noise.
    drawn_reach : float, optional
        The largest explained share of drawn landmarks, where local ones took their place.
    """

    points: FloatArray
    method: Literal["drawn", "local", "global"]
    asked: int
    records_exposed: int = 0
    noise: float = 0.0
    explained: float | None = None
    drawn_reach: float | None = None


def asked_count(wanted: float, rows: int) -> int:
    """Return how many landmarks are asked for: a share of so many rows, or a count if `wanted` is an int."""
    return max(1, wanted if isinstance(wanted, int) else round(wanted * rows))


def landmark_count(wanted: float, rows: int) -> int:
    """Return the number of landmarks for `rows` rows: a share of them, or a count if `wanted` is an int.

    Raises FederationError for more than a message can carry the kernel matrix of.
    """
    count = min(asked_count(wanted, rows), max(1, rows))
    if count > MAX_DIMENSION:
        raise FederationError(
            f"{wanted:g} of {rows} rows are {count} landmarks, and at most {MAX_DIMENSION} go into a message with "
            "what is computed between them; lower algorithm.landmarks."
        )
    return count


def noise_times(settings: Mapping[str, Any], *, is_exact: bool) -> float:
    """Return the agreed noise of local landmarks, in deviations of a column; 0 for exact means.

    is_exact: whether statistics are, so that auto is `local`.
    """
    if (said := settings.get("landmark_noise")) is not None:
        return float(said)
    return DEFAULT_NOISE if settings.get("landmark_method") == "auto" and not is_exact else 0.0


LOCAL_STEPS = ("agree_secret", "cluster", "local_landmarks", "records_exposed")


def cluster_script(terms: Terms) -> Script:
    """Return the script of `choose_landmarks`, locally or globally as agreed."""
    if terms.settings["landmark_method"] != "global":
        return seq(*LOCAL_STEPS)
    wanted = terms.settings["landmarks"]
    most = len(k_means.rounds(wanted if type(wanted) is int else MAX_DIMENSION))
    return seq(repeat(seq("take_centres", "cluster_sums"), 1, most), "last_centres", "rows_isolated")


class LandmarkSums(SitePart):
    """The steps of a site to find landmarks."""

    def __init__(self, site: HorizontalSite, drawn: DrawnLandmarks) -> None:
        self._site, self._drawn = site, drawn
        self._centres: FloatArray = np.zeros((0, 0))
        self._copies = 0
        self._lone_rows: dict[int, int] = {}
        self._own_sizes: FloatArray = np.zeros(0)
        self._noisy_centres: FloatArray | None = None

    # Local: of its own rows.

    @step(
        told={
            "quotas": free("a whole number for each site", "more, and so smaller clusters; none below the agreed size"),
            "min_cluster_size": AGREED,
        }
    )
    def cluster(self, quotas: list[int], min_cluster_size: int) -> None:
        """Cluster this site's rows into at most its quota of centres; noisy ones once in a run, of all its rows."""
        site = self._site
        quota = quotas[site.channel.sites.index(site.site)]
        if times := noise_times(site.terms.settings, is_exact=self._drawn.is_exact):
            if self._noisy_centres is None:
                self._noisy_centres = self._with_noise(times, quota, min_cluster_size)
            self._centres, self._copies = self._noisy_centres[:quota, site.columns], 0
            return
        self._centres, sizes = k_means.local_centres(site.rows, quota, min_cluster_size, site.random("cluster"))
        self._copies = int((sizes == 1).sum())

    def _with_noise(self, times: float, quota: int, min_cluster_size: int) -> FloatArray:
        """Return means of clusters (l, p) of all rows of this site, with normal noise of a secret generator.

        Raises StepRefused for rows that are far wider than the public deviation of a column: noise would not hide them.
        """
        site = self._site
        deviation, rows = self._drawn.deviation, site.all_rows
        if len(rows) and float(np.sqrt(rows.var(axis=0).mean())) > _WIDEST * deviation:
            raise StepRefused("the noisy statistics must have the deviations of the rows, and these are far wider")
        secret = drawn_generator(site.channel)
        random = np.random.default_rng(secret.getrandbits(128))
        centres, _ = k_means.local_centres(rows, quota, min_cluster_size, random)
        noise = [secret.gauss(0.0, times * deviation) for _ in range(centres.size)]
        return np.asarray(centres + np.reshape(noise, centres.shape))

    @step(
        bound=math.inf,
        told={
            "quotas": free("a whole number for each site", "the site of each landmark, by quotas of 0"),
        },
    )
    def local_landmarks(self, quotas: list[int]) -> FloatArray:
        """Return the (l, p + 1) this site's centers in its secret places, each with a 1 that marks the place as
        taken."""
        position = self._site.channel.sites.index(self._site.site)
        order = secret_order(self._site.secret, "landmarks", sum(quotas))
        places = order[sum(quotas[:position]) :][: len(self._centres)]
        table = np.zeros((sum(quotas), len(self._site.columns) + 1))
        table[places, :-1] = self._centres
        table[places, -1] = 1.0
        return table

    @step
    def records_exposed(self) -> FloatArray:
        """Return the number of this site's centers that are copies of a single row."""
        return np.array(float(self._copies))

    # Global: of sums over all sites.

    @step(
        told={
            "opener": free("a site of the run", "nothing; only the opener has the sums"),
            "plan": free("the fields of a round", "another number of clusters; none below the agreed size is opened"),
            "min_cluster_size": AGREED,
            "seed": free("a whole number", "other starting points of the clusters"),
        }
    )
    def take_centres(self, opener: str, plan: dict[str, Any], min_cluster_size: int, seed: int) -> None:
        """Take the centres of a round of k-means from the site that opened the sums of the one before."""
        round_ = k_means.ClusterRound(**plan)
        shape = (round_.slots, len(self._site.columns) + 1)
        if round_.number == 0:
            self._centres, self._lone_rows = np.zeros((1, len(self._site.columns))), {}
            return
        own = None
        if self._site.site == opener:
            self._note_lone_rows(round_.number)
            own = _table(round_.centres(self._site.opened, min_cluster_size, seed), shape)
        table = broadcast_ring(self._site.channel, opener, own, shape, np.float64)
        self._centres = _centers_in(table)

    @step(
        bound=math.inf,
        receiver="site",
        told={
            "number": free("a whole number", "nothing; the site that opens the sums counts the rounds"),
            "slots": free("a whole number", "nothing; only empty cells of the table change"),
        },
    )
    def cluster_sums(self, number: int, slots: int) -> FloatArray:
        """Return the (slots, p + 2) per cluster of a round: sum of its rows, sum of their squared distances, their
        number."""
        sums = np.zeros((slots, len(self._site.columns) + 2))
        sums[: len(self._centres)] = k_means.cluster_sums(self._site.rows, self._centres)
        self._own_sizes = sums[:, -1]
        return sums

    @step(
        bound=math.inf,
        told={
            "opener": free("a site of the run", "nothing; only the opener has the sums"),
            "slots": free("a whole number", "nothing; only empty cells of the table change"),
            "min_cluster_size": AGREED,
        },
    )
    def last_centres(self, opener: str, slots: int, min_cluster_size: int) -> FloatArray:
        """Return the (slots, p + 1) centers from the last sums, each with a 1; zeros except where they were opened."""
        shape = (slots, len(self._site.columns) + 1)
        if self._site.site != opener:
            return np.zeros(shape)
        return _table(k_means.Clusters.of_sums(self._site.opened, min_cluster_size).centres, shape)

    @step(
        told={
            "opener": free("a site of the run", "nothing; only the opener has the sums"),
            "rounds": free("a whole number", "only the count of other rounds"),
            "min_cluster_size": AGREED,
        }
    )
    def rows_isolated(self, opener: str, rounds: int, min_cluster_size: int) -> FloatArray:
        """Return the (2,) number of last centers that are copies of one row, and of clusters with one row of others."""
        if self._site.site != opener:
            return np.zeros(2)
        self._note_lone_rows(rounds)
        sizes = k_means.Clusters.of_sums(self._site.opened, min_cluster_size).sizes
        return np.array([float((sizes == 1).sum()), float(sum(self._lone_rows.values()))])

    def _note_lone_rows(self, rounds: int) -> None:
        """Count the clusters in the last opened sums, after this number of rounds, with one row of another site."""
        of_others = np.rint(self._site.opened[:, -1]) - self._own_sizes
        self._lone_rows[rounds] = int((of_others == 1).sum())


def _table(centres: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Return a table of this shape with the centers on top, each with a 1 that marks the place as taken."""
    table = np.zeros(shape)
    table[: len(centres), :-1], table[: len(centres), -1] = centres, 1.0
    return table


def _centers_in(table: FloatArray) -> FloatArray:
    """Return the centers (l, p) in a table."""
    return np.asarray(table[table[:, -1] > 0.5, :-1])


# The coordinator.


def choose_landmarks(
    federation: Federation,
    method: Literal["local", "global"],
    asked: int,
    min_cluster_size: int,
    rows: Mapping[str, int],
    columns: int,
    seed: int,
    noise: float = 0.0,
) -> Landmarks:
    """Return at most `asked` means of clusters by one of the methods, the same at every site.

    rows: training rows at each site. Raises FederationError when clusters of the wanted size leave none.
    """
    count = landmark_count(asked, sum(rows.values()))
    if method == "global":
        landmarks = _global_landmarks(federation, count, min_cluster_size, rows, columns, seed)
    else:
        landmarks = _local_landmarks(federation, count, min_cluster_size, rows, columns)
    if len(landmarks.points) == 0:
        where = "over all sites" if method == "global" else "of any site"
        raise FederationError(
            f"No cluster {where} has {min_cluster_size} rows: lower algorithm.min_cluster_size or algorithm.landmarks, "
            'or have landmarks that are no means of rows, by algorithm.landmark_method = "drawn".'
        )
    return replace(landmarks, asked=asked, noise=noise)


def _local_landmarks(
    federation: Federation, count: int, min_cluster_size: int, rows: Mapping[str, int], columns: int
) -> Landmarks:
    quotas = shares(count, [rows[site] for site in federation.sites])
    federation.run("agree_secret")
    federation.run("cluster", quotas=quotas, min_cluster_size=min_cluster_size)
    table = federation.sum("local_landmarks", shape=(sum(quotas), columns + 1), bound=math.inf, quotas=quotas)
    exposed = federation.sum("records_exposed", shape=(), bound=float(count))
    return Landmarks(np.unique(_centers_in(table), axis=0), "local", count, round(float(exposed)))


def _global_landmarks(
    federation: Federation, count: int, min_cluster_size: int, rows: Mapping[str, int], columns: int, seed: int
) -> Landmarks:
    """Run Lloyd's iterations at the site that opens the sums. The rounds depend on each other and on that site."""
    opener = min(federation.sites, key=lambda site: rows[site])
    rounds = k_means.rounds(count)
    for plan in rounds:
        federation.disclose("sites", "take_centres", ROUNDS_PASSED_ON, (plan.slots, columns))
        federation.run("take_centres", opener=opener, plan=asdict(plan), min_cluster_size=min_cluster_size, seed=seed)
        terms: dict[str, Any] = {"shape": (plan.slots, columns + 2), "number": plan.number, "slots": plan.slots}
        federation.disclose(opener, "cluster_sums", ROUNDS_OPENED, terms["shape"])
        federation.sum("cluster_sums", receiver=opener, bound=math.inf, **terms)
    last: dict[str, Any] = {"opener": opener, "min_cluster_size": min_cluster_size}
    table = federation.sum("last_centres", shape=(count, columns + 1), bound=math.inf, slots=count, **last)
    most = float(count * len(rounds))
    copies, lone = federation.sum("rows_isolated", shape=(2,), bound=most, rounds=len(rounds), **last)
    if times := round(float(lone)):
        federation.disclose(opener, "cluster_sums", LONE_ROWS, (columns,), times, kind="single-row")
    return Landmarks(np.unique(_centers_in(table), axis=0), "global", count, round(float(copies)))


def shares(count: int, weights: list[int]) -> list[int]:
    """Split `count` in proportion to `weights`, by largest remainders; no share exceeds its weight."""
    total = sum(weights)
    wanted = min(count, total)
    exact = [wanted * weight / total for weight in weights]
    parts = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: (parts[i] - exact[i], i))
    for i in by_remainder[: wanted - sum(parts)]:
        parts[i] += 1
    return parts
