"""Drawn landmarks at the sites: each draws them itself, and the explained shares of a few numbers of them are summed.

Sites are told the noisy description of all rows once. From it, the public seed and the settings of the terms follow the
landmarks, and how many of them are tried; no order has anything else to say. A site answers once in a run: the same
landmarks get the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite, PreparedRows
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
"""The most by which a site's own draws may differ from the coordinator's, where the linear algebra is another."""

_KERNEL = ("kernel", "gamma", "degree", "coef0")


def draws(terms: Terms) -> bool:
    """Return whether landmarks are made by noisy statistics, which auto does where there are some."""
    return StatisticsPlan.of(terms).mu > 0 and terms.settings.get("landmark_method") in ("auto", "drawn")


def tried_counts(settings: Mapping[str, Any], rows: float) -> tuple[int, ...]:
    """Return the numbers of landmarks whose explained shares are opened: of `drawn` the one that is asked for."""
    counts = landmark_counts(settings["landmarks"], rows, settings["max_landmarks"])
    return counts if settings["landmark_method"] == "auto" else counts[:1]


class DrawnLandmarks(SitePart):
    """A site's own copy of the landmarks, and how well they reach its rows.

    Attributes
    ----------
    replaced : bool
        True once means of clusters took their place.
    """

    def __init__(self, site: HorizontalSite) -> None:
        self._site = site
        self._described: RowDescription | None = None
        self._told: tuple[Any, ...] = ()
        self.replaced = False

    @property
    def is_exact(self) -> bool:
        """True if statistics are exact, so that nothing is drawn."""
        return StatisticsPlan.of(self._site.terms).mu == 0

    @property
    def deviation(self) -> float:
        """The public deviation of a column on the common scale."""
        return self._rows.mean_deviation(self._site.scale)

    @step(
        remembered=True,
        told={
            "low, high, mean, covariance, noise, frequencies, gaps, rows": free(
                "of the agreed columns, and the same while the same sites take part",
                "where landmarks are, in place of those that the opened sums give",
            )
        },
    )
    def describe_rows(self, frequencies: list[list[float]], rows: float, **arrays: FloatArray) -> None:
        """Take the noisy description of all rows; see `RowDescription`.

        Raises OrderRefused for one of other columns, and for a second one that differs while the same sites take part.
        """
        blocks = [np.array(each, dtype=np.float64) for each in frequencies]
        described = RowDescription(rows=rows, frequencies=blocks, **arrays)
        columns, held = len(self._site.partition.values["numeric"]), self._site.encoded.shape[1]
        if described.shape != (columns, held):
            raise OrderRefused(f"the description must be of the {held} columns, {columns} of them numeric")
        named = sorted((name, each.shape, each.tobytes()) for name, each in arrays.items())
        told = (self._site.channel.sites, rows, frequencies, named)
        if self._told and self._told != told and self._told[0] == told[0]:
            raise OrderRefused("the description of all rows must stay the same while the same sites take part")
        self._described, self._told = described, told

    @step(bound=math.inf)
    def explained_shares(self) -> FloatArray:
        """Return (c,) the noisy sum over all rows of the explained shares with each number of landmarks."""
        site, settings = self._site, self._site.terms.settings
        counts = tried_counts(settings, self._rows.rows)
        points = self.points(counts[-1])
        budget = StatisticsPlan.of(site.terms).budget(site.partition.values["numeric"])
        block = NoisyBlock("explained", len(counts), 1.0, budget.explained)
        source = drawn_generator(site.channel)  # drawn each time: a step that is carried out again draws as often
        question = {
            "step": "explained_shares",
            "points": points.tolist(),
            "scale": [each.tolist() for each in vars(site.scale).values() if each is not None],
            "sites": site.channel.sites,
            "terms": site.terms.to_fields(),
        }

        def draw() -> FloatArray:
            kernel = KernelSettings(**{name: settings[name] for name in _KERNEL}).kernel_of(points.shape[1])
            rows = site.all_rows[:, site.columns]
            shares = explained_shares(kernel, rows, points, counts, settings["rank_tolerance"])
            return block.add_noise([increments(shares)], source)

        return site.answers.answer(question, site.partition, block.mu, draw)

    @step(remembered=True)
    def use_means(self) -> None:
        """Take it that means of clusters with noise replace drawn landmarks, which do not reach the rows."""
        self.replaced = True

    def points(self, count: int) -> FloatArray:
        """Return the first landmarks (count, p) on the common scale, in the columns that rows have."""
        drawn = drawn_landmarks(self._rows, count, self._site.terms.seed)
        return np.asarray(self._site.scale(drawn)[:, self._site.columns])

    def require_drawn(self, landmarks: FloatArray) -> None:
        """Raise OrderRefused for landmarks other than those that this site draws."""
        own = self.points(len(landmarks))
        if landmarks.shape != own.shape or not np.allclose(landmarks, own, rtol=0, atol=_TOLERANCE):
            raise OrderRefused("landmarks must be those that the agreed seed draws from noisy statistics, and are not")

    @property
    def _rows(self) -> RowDescription:
        """The description of all rows. Raises StepRefused without one."""
        if self._described is None:
            raise StepRefused("this site has no description of all rows yet, from which landmarks are drawn")
        return self._described


# The coordinator.


def describe_rows(federation: Federation, prepared: PreparedRows, statistics: NoisyStatistics) -> RowDescription:
    """Tell the sites the noisy description of all rows, and return it."""
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
