"""Landmarks that every site draws itself, and secure sums of the shares of its rows that they explain.

The coordinator sends the sites a noisy description of all rows, and another one only when the sites change. The
landmarks and their numbers follow from it, the public seed and the agreed settings. A site gives the same answer, with
the same noise, to the same question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.data.horizontal_task import PreparedRows
from fedsvm.algorithms.data.scaled_rows import ScaledRows, places_of
from fedsvm.algorithms.data.statistics import NoisyStatistics
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.features.drawn_landmarks import (
    RowDescription,
    drawn_landmarks,
    explained_shares,
    increments,
    landmark_counts,
)
from fedsvm.algorithms.features.kernels import KernelSettings
from fedsvm.algorithms.privacy.noisy_sums import NoisyBlock
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.generator import drawn_generator
from fedsvm.federation.errors import OrderRefused, StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SitePart, free, step
from fedsvm.federation.site.terms import Terms

_TOLERANCE = 1e-6
"""Maximum difference of a site's draws from the coordinator's, since their linear algebra may differ."""

_VERSION = 1
"""The version of the computation; an answer of another version is not given again."""

_KERNEL = ("kernel", "gamma", "degree", "coef0")


def draws(terms: Terms) -> bool:
    """Return whether landmarks are drawn from noisy statistics, as "auto" does if statistics are noisy."""
    return StatisticsPlan.of(terms).mu > 0 and terms.settings.get("landmark_method") in ("auto", "drawn")


def tried_counts(settings: Mapping[str, Any], rows: float) -> tuple[int, ...]:
    """Return the numbers of landmarks whose explained shares are opened: with "drawn" only the agreed one."""
    counts = landmark_counts(settings["landmarks"], rows, settings["max_landmarks"])
    return counts if settings["landmark_method"] == "auto" else counts[:1]


class DrawnLandmarks(SitePart):
    """A site's own copy of the landmarks, and the shares of its rows that they explain.

    Attributes
    ----------
    replaced : bool
        True once means of clusters have replaced them.
    """

    def __init__(self, site: HorizontalSite) -> None:
        self._site = site
        self._described: RowDescription | None = None
        self._first: tuple[Any, ...] = ()
        self.replaced = False

    @property
    def is_exact(self) -> bool:
        """True if statistics are exact, so that nothing is drawn."""
        return StatisticsPlan.of(self._site.terms).mu == 0

    @property
    def deviation(self) -> float:
        """The public deviation of a column on the common scale."""
        return self._description.mean_deviation(self._site.scale)

    @step(
        remembered=True,
        told={
            "low, high, mean, covariance, noise, frequencies, gaps, rows": free(
                "of the agreed columns, fixed while the same sites take part",
                "other landmarks than those of the opened sums",
            )
        },
    )
    def describe_rows(self, frequencies: list[list[float]], rows: float, **arrays: FloatArray) -> None:
        """Store the noisy description of all rows; see `RowDescription`.

        Raises OrderRefused for one of other columns, and for a second one that differs while the same sites take part.
        """
        blocks = [np.array(each, dtype=np.float64) for each in frequencies]
        described = RowDescription(rows=rows, frequencies=blocks, **arrays)
        columns, held = len(self._site.partition.values["numeric"]), self._site.encoded.shape[1]
        if described.shape != (columns, held):
            raise OrderRefused(f"the description must be of the {held} columns, {columns} of them numeric")
        named = sorted((name, each.shape, each.tobytes()) for name, each in arrays.items())
        asked = (self._site.channel.sites, rows, frequencies, named)
        if self._first and self._first != asked and self._first[0] == asked[0]:
            raise OrderRefused("the description of all rows must stay the same while the same sites take part")
        self._described, self._first = described, asked

    @step(bound=math.inf)
    def explained_shares(self) -> FloatArray:
        """Return (c,) the noisy sum over all rows of the explained shares with each number of landmarks."""
        site, settings = self._site, self._site.terms.settings
        counts = tried_counts(settings, self._description.rows)
        points = self.points(counts[-1])
        budget = StatisticsPlan.of(site.terms).budget(site.partition.values["numeric"])
        block = NoisyBlock("explained", len(counts), 1.0, budget.explained)
        source = drawn_generator(site.channel)  # drawn each time: a step that is carried out again draws as often
        question = {
            "step": "explained_shares",
            "version": _VERSION,
            "points": points.tolist(),
            "scale": [each.tolist() for each in vars(site.scale).values() if each is not None],
            "sites": site.channel.sites,
            "terms": site.terms.to_fields(),
        }

        def draw() -> FloatArray:
            kernel = KernelSettings(**{name: settings[name] for name in _KERNEL}).kernel_of(points.shape[1])
            every = ScaledRows(site.encoded, site.scale)
            some = (every[place][:, site.columns] for place in places_of(len(every), max(points.shape)))
            shares = (explained_shares(kernel, rows, points, counts, settings["rank_tolerance"]) for rows in some)
            return block.add_noise(map(increments, shares), source)

        return site.answers.answer(question, site.partition, block.mu, draw)

    @step(remembered=True)
    def use_means(self) -> None:
        """Record that noisy means of clusters replace the drawn landmarks, which explain too little of the rows."""
        self.replaced = True

    def points(self, count: int) -> FloatArray:
        """Return the first landmarks (count, p) on the common scale, in the columns that rows have."""
        drawn = drawn_landmarks(self._description, count, self._site.terms.seed)
        return np.asarray(self._site.scale(drawn)[:, self._site.columns])

    def require_drawn(self, landmarks: FloatArray) -> None:
        """Raise OrderRefused for landmarks other than those that this site draws."""
        own = self.points(len(landmarks))
        if landmarks.shape != own.shape or not np.allclose(landmarks, own, rtol=0, atol=_TOLERANCE):
            raise OrderRefused("landmarks must be those that the agreed seed draws from noisy statistics, and are not")

    @property
    def _description(self) -> RowDescription:
        """The description of all rows. Raises StepRefused without one."""
        if self._described is None:
            raise StepRefused("this site has no description of all rows yet, from which landmarks are drawn")
        return self._described


# The coordinator.


def describe_rows(federation: Federation, prepared: PreparedRows, statistics: NoisyStatistics) -> RowDescription:
    """Send the sites the noisy description of all rows, and return it."""
    described = RowDescription.of(statistics, prepared.indicated)
    fields = {**vars(described), "frequencies": [each.tolist() for each in described.frequencies]}
    federation.run("describe_rows", remember=True, **fields)
    return described


def drawn_points(prepared: PreparedRows, described: RowDescription, count: int, seed: int) -> FloatArray:
    """Return landmarks (count, p) on the common scale, in the columns that are trained on."""
    drawn = prepared.scale(drawn_landmarks(described, count, seed))
    return drawn if prepared.selected is None else drawn[:, prepared.selected]


def open_shares(federation: Federation, described: RowDescription, counts: Sequence[int]) -> FloatArray:
    """Return the explained share (c,) of all rows by each number of landmarks, with noise."""
    added = federation.sum("explained_shares", shape=(len(counts),), bound=math.inf)
    return np.asarray(np.clip(np.cumsum(added) / described.rows, 0.0, 1.0))
