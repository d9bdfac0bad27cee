"""Rows from the PAN-SVMs that wrappers train on the way to the columns that are kept.

The weights of each such model are opened to the coordinator, and those of `voted-wrappers` are sent to the sites, too.
They are as exact as select_tolerance has them, without the noise in the objective that the last model has.
A model with fewer columns has the same rows in another kernel, so that a candidate that is beyond the margin in one
may have a part in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsvm.algorithms.attacks.attack import CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.chosen_columns import between_scalings
from fedsvm.algorithms.attacks.epochs import Epoch, scale_of
from fedsvm.algorithms.attacks.support_posterior import Posterior
from fedsvm.algorithms.attacks.support_rows import SupportRows, TrainedPoint, split_candidates
from fedsvm.algorithms.data.columns import column_sets
from fedsvm.algorithms.features.choice import read_map
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.protocols.analysis.views import RoundView, RunView

_MODELS = 4
"""The number of models that are attacked: the first, with the most columns."""


@dataclass(frozen=True)
class WrapperModel:
    """A model of all rows, or all but an inner fold's, in some columns: w and b (m + 1,), and its features' map."""

    columns: IntArray
    feature_map: NystromMap
    point: FloatArray


class WrapperSupportRows(SupportRows):
    """Candidates that have a part in the models of a wrapper; see `SupportRows`.

    Parameters
    ----------
    C : float
    tolerance : float
        select_tolerance.
    is_gamma_named : bool
        Whether gamma is 1 / columns, and so another of each model.
    """

    name = "support rows of wrappers"
    is_of_problems = False

    def __init__(self, C: float, tolerance: float, *, is_gamma_named: bool) -> None:
        super().__init__(C, tolerance)
        self._is_gamma_named = is_gamma_named

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack the models of the last fold. The coalition's own rows may contribute, and are not ranked."""
        folds = between_scalings(view)
        if prior.candidates is None or not folds:
            return
        rounds = folds[-1]
        epoch = Epoch(scale_of(rounds[0]), (), rounds)
        if prior.candidates.rows.shape[1] != epoch.columns:
            return
        others, own = split_candidates(prior.candidates, prior.own, epoch)
        ranked: list[Posterior] = []
        for model in wrapper_models(rounds, is_gamma_named=self._is_gamma_named)[:_MODELS]:

            def features_of(rows: FloatArray, model: WrapperModel = model) -> FloatArray:
                return model.feature_map(epoch.scale(rows)[:, model.columns])

            found = self.chances(TrainedPoint(model.point), features_of, others, own)
            ranked += [] if found is None else [found]
        yield from self._outcomes(ranked, others)


def wrapper_models(rounds: Sequence[RoundView], *, is_gamma_named: bool) -> list[WrapperModel]:
    """Return the models whose weights a coalition has, by its sums or as received by a site, in order."""
    shared: NystromMap | None = None
    posed: list[WrapperModel] = []
    found: list[WrapperModel] = []
    for each in rounds:
        told = each.parameters
        if each.step == "receive_map":
            read = read_map(told)
            shared = read if isinstance(read, NystromMap) else None
        elif each.step == "subset_newton" and "mappings" in told and shared is not None:
            posed = _posed_models(told, shared, is_gamma_named=is_gamma_named)
        elif each.step == "subset_weights":
            found += (model for total in each.sums.values() for model in _with_weights(posed, total))
        elif each.step == "support_changes" and posed:
            found += _with_weights(posed[:1], np.append(told["w"], told["b"]))
    return found


def _with_weights(posed: Sequence[WrapperModel], weights: FloatArray) -> list[WrapperModel]:
    """Return models with their parts of weights, one behind the other; none by a sum without the holder's part."""
    if not weights.any():
        return []
    ends = np.cumsum([each.feature_map.dimensions + 1 for each in posed])
    return [replace(each, point=point) for each, point in zip(posed, np.split(weights, ends[:-1]), strict=True)]


def _posed_models(told: Mapping[str, Any], shared: NystromMap, *, is_gamma_named: bool) -> list[WrapperModel]:
    """Return the problems of an order, without their weights."""
    columns = np.split(np.asarray(told["columns"]), np.cumsum(told["lengths"])[:-1])
    count = len(shared.landmarks)
    flat = np.split(np.asarray(told["mappings"]), np.cumsum(count * np.asarray(told["ranks"]))[:-1])
    found = []
    for each, number in zip(columns, column_sets(columns), strict=True):
        kernel = replace(shared.kernel, gamma=1.0 / len(each)) if is_gamma_named else shared.kernel
        mapped = NystromMap(kernel, shared.landmarks[:, each], flat[number].reshape(count, -1))
        found.append(WrapperModel(each, mapped, np.zeros(0)))
    return found
