"""An attack on the trained point, which is a combination of training rows: which possible records are in the data.

At the optimum w = sum_i a_i y_i f_i and 0 = sum_i a_i y_i over the training rows, with 0 <= a_i <= C, and a_i = 0 of
rows beyond the margin. Whoever knows w and has a list of candidates solves for the a_i of those that are at the margin
or within: those in the training data have a part in w, and others have none. Nobody needs a sum for this: every site is
sent points near the optimum, and so is everybody whom the model is given to.

Membership inference in the sense of Shokri et al. 2017; that an SVM's weights are a combination of training rows is why
it needs no shadow models. Of candidates beyond the margin the point says nothing, and they are not ranked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, BinaryTask, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.newton_path import newton_paths
from fedsvm.algorithms.attacks.row_counts import SAME_WITHIN
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.protocols.analysis.views import RunView

NEAR_THE_MARGIN = 0.01
"""Candidates with a margin of less than 1 and this may have a part: the last point is near the optimum, not at it."""

MAX_SUPPORT = 1_500
"""Of more candidates the least squares would take minutes."""


class SupportRows(Attack):
    """Candidates ranked by the part that they can have in the last point of training.

    Parameters
    ----------
    C : float
        Of the SVM, which is public.
    """

    name = "support rows"
    is_of_problems = True

    def __init__(self, C: float) -> None:
        self._C = C

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack the last trained model. The coalition's own rows may contribute, and are not ranked."""
        if prior.candidates is None or not (parts := epochs(view)):
            return
        own = prior.own or LabeledRows(prior.candidates.rows[:0], prior.candidates.labels[:0])
        others = LabeledRows(*(each[~among(prior.candidates, own, parts[-1])] for each in prior.candidates))
        found = [parts_in(point, self._C, parts[-1], others, own) for point in self._points(parts[-1], prior.posed)]
        if ranked := [each for each in found if each is not None]:
            shares = np.fmax.reduce(ranked)
            near = np.flatnonzero(~np.isnan(shares))
            yield CandidateScores(LabeledRows(others.rows[near], others.labels[near]), shares[near])

    def _points(self, epoch: Epoch, posed: BinaryTask) -> list[FloatArray]:
        """Return w and b of each point, (m + 1,)."""
        return [] if (point := last_point(epoch, posed)) is None else [point]


class SiteSupportRows(SupportRows):
    """The same of models that are each of one site's rows: a candidate's part is the largest that it has in one."""

    name = "support rows of sites"

    def _points(self, epoch: Epoch, posed: BinaryTask) -> list[FloatArray]:
        tables = [table for each in epoch.of("model_table") for table in each.sums.values()]
        length = 0 if epoch.features is None else epoch.features.dimensions + 1
        own = slice(posed.number * length, (posed.number + 1) * length)
        return [row[own] for table in tables[-1:] for row in table if row[-1]]


def parts_in(point: FloatArray, C: float, epoch: Epoch, others: LabeledRows, own: LabeledRows) -> FloatArray | None:
    """Return (n,) the share of each candidate in a point (m + 1,), to which own rows may contribute too.

    nan of those beyond the margin, of which it says nothing; None where there are none near, or too many.
    """
    from scipy.optimize import lsq_linear

    if epoch.features is None:
        return None
    w, b = point[:-1], float(point[-1])
    rows, labels = np.vstack([others.rows, own.rows]), np.concatenate([others.labels, own.labels])
    features = epoch.features(epoch.scale(rows))
    near = np.flatnonzero(labels * (features @ w + b) < 1 + NEAR_THE_MARGIN)
    if not 0 < len(near) <= MAX_SUPPORT:
        return None
    design = np.vstack([(labels[near, None] * features[near]).T, labels[near]])
    parts = np.full(len(rows), np.nan)
    parts[near] = lsq_linear(design, np.append(w, 0.0), bounds=(0.0, C), method="bvls").x
    return parts[: len(others.rows)]


def last_point(epoch: Epoch, posed: BinaryTask) -> FloatArray | None:
    """Return (m + 1,) w and b of a problem: the last point sent (cutting planes) or released (interior point)."""
    sent = [each.parameters for each in epoch.rounds if {"w", "b"} <= each.parameters.keys()]
    points = [(each, int(place)) for each in sent for place in np.flatnonzero(_problems(each) == posed.number)]
    if points:
        told, place = points[-1]
        return np.append(np.atleast_2d(told["w"])[place], np.atleast_1d(told["b"])[place])
    released = [total[posed.number] for each in epoch.of("released") for total in each.sums.values()]
    if released and released[-1].any():
        return np.asarray(released[-1][:-1])
    paths = [path for path in newton_paths(epoch, posed) if path.known]
    return paths[-1].end if paths else None


def _problems(told: Mapping[str, Any]) -> IntArray:
    """Return (k,) the problems of points w (k, m)."""
    return np.asarray(told.get("problems", np.zeros(len(np.atleast_2d(told["w"])), dtype=np.int64)))


def among(candidates: LabeledRows, own: LabeledRows, epoch: Epoch) -> BoolArray:
    """Return (n,) which candidates are rows of the coalition's own."""
    same = np.zeros(len(candidates.rows), dtype=np.bool_)
    for row, label in zip(*own, strict=True):
        near = (np.abs(candidates.rows - row) <= SAME_WITHIN * epoch.scale.scale).all(axis=1)
        same |= near & (candidates.labels == label)
    return same
