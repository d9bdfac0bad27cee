"""A view in parts over which sums are of the same rows on the same scale: between one scaling of rows and the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.choice import read_map
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.inversion import NystromInverse
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RoundView, RunView

_NO_KERNEL = math.nan
"""The gamma of features whose kernel no attack needs."""


@dataclass(frozen=True)
class Epoch:
    """The rounds after sites have put their rows on a scale, until they do so again: one fold, or one attempt at it.

    Parameters
    ----------
    scale : Scale
        Of the columns.
    categories : sequence of sequence of str
        The values of each categorical column; their 0/1 columns stand behind the numeric ones.
    rounds : tuple of RoundView
        In order.
    """

    scale: Scale
    categories: Sequence[Sequence[str]]
    rounds: tuple[RoundView, ...]

    def of(self, step: str) -> list[RoundView]:
        """Return the rounds of one step."""
        return [each for each in self.rounds if each.step == step]

    @cached_property
    def features(self) -> FeatureMap | None:
        """The map that sites were sent last, or frequencies that public rows chose, if they were sent either."""
        if sent := self.of("receive_map"):
            return read_map(sent[-1].parameters)
        chosen = self.of("receive_frequencies")
        return FourierMap(_NO_KERNEL, chosen[-1].parameters["rho"]) if chosen else None

    @cached_property
    def inverse(self) -> NystromInverse | None:
        """The same, and back, if it is by landmarks."""
        sent = self.of("receive_map")
        by_landmarks = sent and isinstance(self.features, NystromMap)
        return NystromInverse.of_parts(sent[-1].parameters) if by_landmarks else None

    def unscale(self, rows: FloatArray) -> FloatArray:
        """Return rows (n, p) before scaling."""
        return np.asarray(rows * self.scale.scale + self.scale.offset)

    @property
    def columns(self) -> int:
        """The number of columns after encoding."""
        return len(self.scale.offset)

    @property
    def category_columns(self) -> int:
        """The number of 0/1 columns of categories."""
        return sum(map(len, self.categories))


def scale_of(told: RoundView) -> Scale:
    """Return the scale that a round of `rescale` or `encode_known` told the sites."""
    return Scale(told.parameters["offset"], told.parameters["scale"], told.parameters.get("window"))


def epochs(view: RunView) -> list[Epoch]:
    """Return the epochs of a view, in order; none if sites keep the scale of their rows to themselves."""
    found: list[Epoch] = []
    categories: Sequence[Sequence[str]] = ()
    scale: Scale | None = None
    rounds: list[RoundView] = []
    for each in view.rounds:
        if each.step in ("encode", "encode_known"):
            categories = each.parameters["values"]
        if each.step in ("rescale", "encode_known"):
            if scale is not None:
                found.append(Epoch(scale, categories, tuple(rounds)))
            scale, rounds = scale_of(each), []
        elif scale is not None:
            rounds.append(each)
    return found if scale is None else [*found, Epoch(scale, categories, tuple(rounds))]
