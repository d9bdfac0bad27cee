"""An attack on the exact weights of least squares and logistic regression: which listed records are in the data.

At the optimum the penalty on the weights balances the pull of the training rows,

    D v = sum_i c_i p_i f~_i,    f~_i = y_i (f_i, 1),

with p = 1 - v.f~ of least squares and 1 / (1 + exp(v.f~)) of logistic regression. Whoever has the weights knows each
p_i f~_i of a list, so this is an equation in the counts c_i for each feature. Their posterior follows by expectation
propagation (`binary_counts`). The share of the list that is there is the likeliest one of a normal approximation. The
equations are taken to have noise of a tenth of what the counts make in them, in the metric of the Hessian: with less
noise the approximation errs. If the counts leave more than this noise, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.binary_counts import posterior
from fedsvm.algorithms.attacks.epochs import epochs
from fedsvm.algorithms.attacks.newton_steps import MAX_CANDIDATES, Members, claims_of
from fedsvm.algorithms.attacks.support_rows import last_point
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RunView

Loss = Literal["squared", "logistic"]

_DOUBT = 0.1
"""The deviation of the noise assumed on each equation, as a share of the deviation that unknown counts make."""

_SHARES = np.linspace(0.05, 0.95, 37)
"""Of a list that may be training rows."""


class WeightEquations(Attack):
    """Candidates ranked by the posterior that they are in the data; those that are as good as certain are claimed.

    Parameters
    ----------
    loss : {"squared", "logistic"}
    regularisation : float
        Of the settings, which is public.
    """

    name = "weights"
    is_of_problems = True
    needs_equal_rows = True

    def __init__(self, loss: Loss, regularisation: float) -> None:
        self._loss, self._regularisation = loss, regularisation

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack the weights of a model file."""
        if prior.candidates is None or not (parts := epochs(view)):
            return
        epoch, candidates = parts[-1], prior.candidates
        if epoch.features is None or not 0 < len(candidates.rows) <= MAX_CANDIDATES:
            return
        if (point := last_point(epoch, prior.posed)) is None:
            return
        rows = candidates.labels[:, None] * epoch.features(epoch.scale(candidates.rows))
        ridge = np.full(rows.shape[1], self._regularisation)
        if point[-1]:
            rows, ridge = np.column_stack([rows, candidates.labels]), np.append(ridge, 0.0)
        yield from claims_of(candidates, members_by_weights(rows, point[: len(ridge)], ridge, self._loss))


def members_by_weights(rows: FloatArray, weights: FloatArray, ridge: FloatArray, loss: Loss) -> Members:
    """Return the members among candidates with rows y f~ (n, d); weights (d,), ridge (d,): the penalties on them."""
    pulls, slopes = pulls_of(rows @ weights, loss)
    metric = np.diag(ridge) + (rows.T * slopes) @ rows / 2
    metric[np.diag_indices(len(metric))] += 1e-12 * np.trace(metric) / len(metric)
    lower = np.linalg.cholesky(metric)
    whitened = np.linalg.solve(lower, np.column_stack([(pulls[:, None] * rows).T, ridge * weights]))
    unit = _DOUBT * float(((whitened[:, :-1] ** 2).sum(axis=1).mean() / 4) ** 0.5) or 1.0
    design, right = whitened[:, :-1] / unit, whitened[:, -1] / unit
    chances = posterior(design.T @ design, design.T @ right, _likeliest_share(design, right))
    return Members(chances, float(((design @ chances - right) ** 2).mean()))


def pulls_of(margins: FloatArray, loss: Loss) -> tuple[FloatArray, FloatArray]:
    """Return (n,) the negative first derivative of the loss at these margins, and the second one."""
    if loss == "squared":
        return 1 - margins, np.ones(len(margins))
    chance = 1 / (1 + np.exp(np.clip(margins, -500, 500)))
    return chance, chance * (1 - chance)


def _likeliest_share(design: FloatArray, right: FloatArray) -> float:
    """Return the share of candidates in the data that makes the equations likeliest, if the counts are normal."""
    spectrum, axes = np.linalg.eigh(design @ design.T)
    total, seen = axes.T @ design.sum(axis=1), axes.T @ right
    variances = 1 + np.multiply.outer(_SHARES * (1 - _SHARES), np.maximum(spectrum, 0.0))
    misfit = (seen - np.multiply.outer(_SHARES, total)) ** 2 / variances
    return float(_SHARES[np.argmin((misfit + np.log(variances)).sum(axis=1))])
