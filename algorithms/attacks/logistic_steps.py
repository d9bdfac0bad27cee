"""An attack on the points of logistic regression behind a committee, which all parties know: who is a training row.

The step x from a point v solves (H + D) x = -g - D v but for the noise of two members, and the gradient g and the
Hessian H are sums over rows whose terms follow from v. So

    D (x + v) + sum_i c_i f~_i (h_i f~_i.x - p_i) = noise

is linear in how often each candidate occurs, c_i, as for the interior point (`newton_steps`), whose posterior is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, BinaryTask, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.finite_domain import combinations
from fedsvm.algorithms.attacks.newton_steps import LEAST_NOISE, MAX_CANDIDATES, StepEquation, claims_of, members_of
from fedsvm.algorithms.attacks.support_rows import split_candidates
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.optimization.weighting import row_prices
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RoundView, RunView


class LogisticSteps(Attack):
    """Candidates ranked by the posterior that they are in the data; those that are as good as certain are claimed.

    Parameters
    ----------
    step_noise, regularisation : float
        Of the settings, which are public.
    """

    name = "logistic steps"
    is_of_problems = True

    def __init__(self, step_noise: float, regularisation: float) -> None:
        self._step_noise, self._regularisation = step_noise, regularisation

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack the last training."""
        trained = [(epoch, rounds) for epoch in epochs(view) if (rounds := _rounds(epoch, prior.posed))]
        if not trained:
            return
        epoch, rounds = trained[-1]
        candidates = prior.candidates or combinations(epoch)
        if candidates is None or epoch.features is None or len(candidates.rows) > MAX_CANDIDATES:
            return
        others, own = split_candidates(candidates, prior.own, epoch)
        both = LabeledRows(np.vstack([others.rows, own.rows]), np.concatenate([others.labels, own.labels]))
        z = epoch.features(epoch.scale(both.rows))
        ridge = np.full(z.shape[1], self._regularisation)
        if rounds[0].parameters["intercept"]:
            z, ridge = np.column_stack([z, np.ones(len(z))]), np.append(ridge, 0.0)
        rows = both.labels[:, None] * z
        factors = rounds[0].parameters.get("factors")
        binary = (1.0, 1.0) if factors is None else prior.posed.factors(factors)
        prices = row_prices(1.0, (both.labels > 0).astype(np.int64), binary, None)
        equations = [each.equation(rows, prices, ridge) for each in _steps(rounds, prior.posed.number)]
        if not equations:
            return
        count = int(rounds[0].parameters["scales"][0] / max(1.0 if factors is None else max(factors), 1e-300))
        noise = max(self._step_noise, LEAST_NOISE)
        yield from claims_of(others, members_of(equations, rows, ridge, count, len(others.rows), noise))


@dataclass(frozen=True)
class _Step:
    """A step x (d,) from a point (d,), and the deviation of noise on its equation (d,)."""

    point: FloatArray
    step: FloatArray
    dither: FloatArray

    def equation(self, rows: FloatArray, prices: FloatArray, ridge: FloatArray) -> StepEquation:
        """Return the equation. rows (n, d): y z of the candidates."""
        chance = 1 / (1 + np.exp(np.clip(rows @ self.point, -500, 500)))
        slopes = prices * chance * (1 - chance)
        terms = (slopes * (rows @ self.step) - prices * chance)[:, None] * rows
        return StepEquation(terms, slopes, -ridge * (self.step + self.point), self.step, self.dither)


def _rounds(epoch: Epoch, posed: BinaryTask) -> list[RoundView]:
    return [each for each in epoch.of("blind_steps") if _place(each, posed.number) is not None]


def _place(each: RoundView, problem: int) -> int | None:
    places = np.flatnonzero(np.asarray(each.parameters.get("problems", (0,))) == problem)
    return int(places[0]) if len(places) else None


def _steps(rounds: Sequence[RoundView], problem: int) -> list[_Step]:
    """Return the steps that were taken since the rows last changed; of one that was halved, the first try."""
    found: list[_Step] = []
    best: FloatArray | None = None
    before: tuple[FloatArray, FloatArray] | None = None
    for each in rounds:
        if (place := _place(each, problem)) is None:
            continue
        point, intercept = np.asarray(each.parameters["points"][place]), int(each.parameters["intercept"])
        of_each = np.repeat(each.parameters["dithers"][place], [len(point) - intercept, intercept])
        if before is not None:
            last, noise = before
            halved = best is not None and np.allclose(point, (best + last) / 2, rtol=1e-12, atol=0.0)
            if np.array_equal(point, last) or (best is not None and np.array_equal(point, best)):
                found, best = [], None
            elif halved:
                before = point, of_each
                continue
            else:
                found.append(_Step(last, point - last, noise))
                best = last
        before = point, of_each
    return found
