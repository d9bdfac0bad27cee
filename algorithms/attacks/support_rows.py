"""An attack on the trained point, which is a combination of training rows: which possible records are in the data.

At the optimum w = sum_i a_i y_i f_i and 0 = sum_i a_i y_i over the training rows, with 0 <= a_i <= C, and a_i = 0 of
rows beyond the margin. Whoever knows w and has a list of candidates computes the posterior of the a_i of those that are
at the margin or within (`support_posterior`): those in the training data have a part in w, and others have none. Nobody
needs a sum for this. Every site is sent points near the optimum, and everybody has them whom the model is given to.

With noise in the objective w lacks the sum of the sites' draws, and the margins of rows at the margin are not exactly
1 but their secret targets. Sites know their own draws, which they add to w, and the targets of their own rows. Released
weights have a little noise in addition.

Membership inference in the sense of Shokri et al. 2017; that an SVM's weights are a combination of training rows is why
it needs no shadow models. Of candidates beyond the margin the point says nothing, and they are not ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, BinaryTask, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.newton_path import newton_paths
from fedsvm.algorithms.attacks.own_noise import own_noise
from fedsvm.algorithms.attacks.row_counts import SAME_WITHIN
from fedsvm.algorithms.attacks.support_posterior import Posterior, SupportEquation, chances_by_margin
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.optimization.barrier import TARGET_DEVIATION, secret_offsets
from fedsvm.algorithms.optimization.objective_noise import released_deviation
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.protocols.analysis.views import RunView

MAX_SUPPORT = 1_500
"""Of more candidates the search would take minutes."""

SURE = 0.999
"""Candidates with a posterior above are claimed."""

_MOST_BY_MARGIN, _SURE_BY_MARGIN = 0.99, 0.9999
"""The largest chance by the margin alone with which the search begins, and that above which a candidate is claimed
without the equation; the densities of margins are approximate."""

_CHANCE = 0.5
"""The chance that a candidate is in the data, before w is known."""

_MARGIN_ERRORS, _LEAST_MARGIN_ERROR = (0.02, 0.05, 0.1), 5e-4
"""The deviation of a margin from that at the optimum, as shares of the weights' deviation that are tried in this order,
and at least."""

_CONSTANT_ERROR = 0.005
"""The deviation of sum_i a_i y_i from 0, as a share of C."""

_DEVIATIONS = 4.0
"""Margins above 1 by more deviations than this are beyond."""


@dataclass(frozen=True)
class TrainedPoint:
    """A trained point: weights (m + 1,), w and b.

    own_noise: (m,) draws of noise in the objective that the coalition knows, or 0. share_left: the noise that it does
    not know, as a share of the agreed size. target_deviation: of targets that it does not know. own_offsets: of the
    targets of its own rows, if it knows them. is_released: whether the point has the noise of released weights.
    """

    weights: FloatArray
    own_noise: FloatArray | float = 0.0
    share_left: float = 1.0
    target_deviation: float = 0.0
    own_offsets: FloatArray | None = None
    is_released: bool = False


class SupportRows(Attack):
    """Candidates ranked by the posterior that they have a part in the last point; those as good as certain are claimed.

    Parameters
    ----------
    C : float
        Of the SVM, which is public.
    tolerance : float
        The relative gap to which it is trained.
    objective_noise : float, default 0.0
        The agreed size of the noise in the objective (see `optimization.objective_noise`).
    regularised : bool, default False
        True if the intercept is regularized as the weights are: then it is sum_i a_i y_i, which is 0 otherwise.
    weighted : bool, default False
        True if classes have weights. Then nothing is claimed, since the prices of rows are unknown.
    is_joint : bool, default False
        True if more than two classes are one problem, which has no binary problems to attack.
    """

    name = "support rows"
    is_of_problems = True

    def __init__(
        self,
        C: float,
        tolerance: float,
        objective_noise: float = 0.0,
        *,
        regularised: bool = False,
        weighted: bool = False,
        is_joint: bool = False,
    ) -> None:
        self._C, self._tolerance, self._noise = C, tolerance, objective_noise
        self._regularised, self._weighted, self._is_joint = regularised, weighted, is_joint

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack the last trained model. The coalition's own rows may contribute, and are not ranked."""
        if prior.candidates is None or not (parts := epochs(view)) or (self._is_joint and prior.classes > 2):
            return
        if prior.candidates.rows.shape[1] != parts[-1].columns:  # a model of chosen columns
            return
        others, own = split_candidates(prior.candidates, prior.own, parts[-1])
        features, scale = parts[-1].features, parts[-1].scale
        if features is None:
            return
        found = [
            self.chances(point, lambda rows: features(scale(rows)), others, own)
            for point in self._points(parts[-1], prior)
        ]
        yield from self._outcomes([each for each in found if each is not None], others)

    def _outcomes(self, ranked: Sequence[Posterior], others: LabeledRows) -> Iterator[RowClaim | CandidateScores]:
        """Yield the best rank of each candidate in several points, and those as good as certain in one."""
        if not ranked:
            return
        chances = np.fmax.reduce([each.chances for each in ranked])
        near = np.flatnonzero(~np.isnan(chances))
        yield CandidateScores(LabeledRows(others.rows[near], others.labels[near]), chances[near])
        if not self._weighted:
            certain = [each.least for each in ranked if each.least is not None]
            least = np.fmax.reduce([np.zeros(len(others.rows)), *certain])
            sure = least > SURE
            left = float((1 - least[sure]).max(initial=0.0))
            yield RowClaim(others.rows[sure], others.labels[sure], left)

    def _points(self, epoch: Epoch, prior: Prior) -> list[TrainedPoint]:
        """Return the points that are known."""
        path = path_end(epoch, prior.posed)
        if (point := last_point(epoch, prior.posed) if path is None else path) is None:
            return []
        if not self._noise:
            return [TrainedPoint(point)]
        noise = own_noise(epoch, prior.posed, len(point) - 1)
        own = len(prior.own.rows) if prior.own is not None else 0
        offsets = None if noise.key is None else secret_offsets(noise.key, prior.posed.number, own)
        share = noise.share_left(prior.sites)
        return [TrainedPoint(point, noise.draw, share, TARGET_DEVIATION, offsets, is_released=path is None)]

    def chances(
        self,
        point: TrainedPoint,
        features_of: Callable[[FloatArray], FloatArray],
        others: LabeledRows,
        own: LabeledRows,
    ) -> Posterior | None:
        """Return the posterior of each candidate, given a point, to which own rows may contribute too.

        It is nan for candidates beyond the margin, which contribute nothing. None if there are no candidates near, or
        too many.
        """
        w, b = point.weights[:-1], float(point.weights[-1])
        rows, labels = np.vstack([others.rows, own.rows]), np.concatenate([others.labels, own.labels])
        features = features_of(rows)
        margins, lengths = labels * (features @ w + b), np.linalg.norm(features, axis=1)
        objective = (w @ w) / 2 + self._C * np.maximum(1 - margins, 0).sum()  # or less, if not all candidates are there
        error = float((2 * self._tolerance * objective / len(w)) ** 0.5)
        usual = float((lengths**2).mean())
        blur = released_deviation(usual) if point.is_released else 0.0
        noise = float(np.hypot(point.share_left * self._noise * self._C * usual**0.5, blur))
        terms, total = labels[:, None] * features, w + point.own_noise
        deviations = np.full(len(w), np.hypot(noise, error) or 1.0)
        if b:
            terms, total = np.column_stack([terms, labels]), np.append(total, b if self._regularised else 0.0)
            deviations = np.append(deviations, _CONSTANT_ERROR * self._C)
        unknown = np.full(len(rows), point.target_deviation)
        if point.own_offsets is not None:
            margins[len(others.rows) :] -= point.own_offsets
            unknown[len(others.rows) :] = 0.0
        told = chances_by_margin(margins, np.hypot(blur * lengths, unknown), _CHANCE)
        chances = np.where(np.arange(len(rows)) < len(others.rows), np.minimum(told, _MOST_BY_MARGIN), SURE)
        found = np.full((2, len(rows)), np.nan)
        for share in _MARGIN_ERRORS:
            spread = np.hypot(np.hypot(blur, share * error) * lengths, unknown) + _LEAST_MARGIN_ERROR
            near = np.flatnonzero(margins < 1 + _DEVIATIONS * spread)
            if not 0 < len(near) <= MAX_SUPPORT:
                return None
            equation = SupportEquation(terms[near], total, deviations, margins[near], spread[near])
            posterior = equation.posterior(chances[near], self._C)
            if posterior.least is not None:
                found[1, near] = posterior.least
                break
        found[0, near] = posterior.chances
        of_all, least = found[:, : len(others.rows)]
        return Posterior(of_all, np.fmax(least, np.where(told > _SURE_BY_MARGIN, told, 0.0)[: len(others.rows)]))


class SiteSupportRows(SupportRows):
    """The same of models that are each of one site's rows: a candidate's part is the largest that it has in one."""

    name = "support rows of sites"

    def _points(self, epoch: Epoch, prior: Prior) -> list[TrainedPoint]:
        tables = [table for each in epoch.of("model_table") for table in each.sums.values()]
        length = 0 if epoch.features is None else epoch.features.dimensions + 1
        own = slice(prior.posed.number * length, (prior.posed.number + 1) * length)
        return [TrainedPoint(row[own]) for table in tables[-1:] for row in table if row[-1]]


def last_point(epoch: Epoch, posed: BinaryTask) -> FloatArray | None:
    """Return (m + 1,) w and b of a problem: the last point sent (cutting planes) or released (interior point)."""
    sent = [each.parameters for each in epoch.rounds if {"w", "b"} <= each.parameters.keys()]
    points = [(each, int(place)) for each in sent for place in np.flatnonzero(_problems(each) == posed.number)]
    if points:
        told, place = points[-1]
        return np.append(np.atleast_2d(told["w"])[place], np.atleast_1d(told["b"])[place])
    released = [total[posed.number] for each in epoch.of("released") for total in each.sums.values()]
    return np.asarray(released[-1][:-1]) if released and released[-1].any() else None


def path_end(epoch: Epoch, posed: BinaryTask) -> FloatArray | None:
    """Return (m + 1,) w and b where the interior point ended; None if its path is unknown."""
    paths = [path for path in newton_paths(epoch, posed) if path.known]
    return paths[-1].end if paths else None


def _problems(told: Mapping[str, Any]) -> IntArray:
    """Return (k,) the problems of points w (k, m)."""
    return np.asarray(told.get("problems", np.zeros(len(np.atleast_2d(told["w"])), dtype=np.int64)))


def split_candidates(candidates: LabeledRows, own: LabeledRows | None, epoch: Epoch) -> tuple[LabeledRows, LabeledRows]:
    """Return the candidates that are no rows of the coalition's own, and its own rows."""
    own = own or LabeledRows(candidates.rows[:0], candidates.labels[:0])
    theirs = ~_among(candidates, own, epoch)
    return LabeledRows(candidates.rows[theirs], candidates.labels[theirs]), own


def _among(candidates: LabeledRows, own: LabeledRows, epoch: Epoch) -> BoolArray:
    """Return (n,) which candidates are rows of the coalition's own."""
    same = np.zeros(len(candidates.rows), dtype=np.bool_)
    for row, label in zip(*own, strict=True):
        near = (np.abs(candidates.rows - row) <= SAME_WITHIN * epoch.scale.scale).all(axis=1)
        same |= near & (candidates.labels == label)
    return same
