"""Which candidates are in the training data, by the steps of the interior point, which every site knows.

A step x at a point v solves (D + M) x = q - D v but for the dither, which is normal and isotropic in the metric of
D + M, and q and M are sums over rows whose weights follow from the path. So

    D (x + v) + sum_i c_i f~_i (d_i f~_i.x - alpha*_i) = noise,    noise ~ N(0, (eta lambda)^2 / d (D + M)),

is linear in how often each candidate occurs, c_i, and its noise has a covariance that is linear in c_i, too. The attack
whitens the equations of all rounds by its estimate of D + M, finds the posterior of c (`binary_counts`), and so on from
there; eta is known but for how often it was halved, which the residuals say; lambda is the length of the step in that
metric. The site's own rows are known to be there. It starts with more noise than there is, since D + M is not known.

No dither hides what the optimum itself says: w is the sum of alpha_i f~_i, so the last steps tell of rows at the margin
or within, as the released model does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from algorithms.attacks.binary_counts import posterior
from algorithms.attacks.contract import Attack, Claim, Prior, Ranking
from algorithms.attacks.epochs import Epoch, epochs
from algorithms.attacks.finite_domain import combinations
from algorithms.attacks.newton_path import NewtonPath, newton_paths, signed
from algorithms.attacks.support_rows import among
from algorithms.data.columns import Labelled
from algorithms.optimisation.barrier import Problem
from federation.arrays import FloatArray
from protocols.analysis.views import RunView

MAX_CANDIDATES = 2_000
"""Of more the posterior would take minutes."""

SURE = 0.999
"""Candidates with a posterior above are claimed."""

_COOLING = (30.0, 5.0, 1.2)
"""How much more noise than there is, in variance, each time that D + M is estimated anew."""

_LEAST_NOISE = 1e-3
"""Where there is no dither."""

_MOST_HALVINGS = 8


class NewtonSteps(Attack):
    """Candidates ranked by the posterior that they are in the data; those that are as good as certain are claimed.

    Parameters
    ----------
    step_noise : float
        The dither's size, which is public.
    """

    name = "Newton steps"

    def __init__(self, step_noise: float) -> None:
        self._step_noise = step_noise

    def __call__(self, view: RunView, prior: Prior) -> Iterator[Claim | Ranking]:
        """The last training; of who knows the sums too there is a better attack."""
        parts = [(epoch, path) for epoch in epochs(view) for path in newton_paths(epoch)]
        if not view.coalition.sites or not parts or any(each.sums for each in parts[-1][1].rounds):
            return
        epoch, path = parts[-1]
        candidates = prior.candidates or combinations(epoch)
        if candidates is None or epoch.features is None or len(candidates.rows) > MAX_CANDIDATES:
            return
        own = prior.own or Labelled(candidates.rows[:0], candidates.labels[:0])
        theirs = ~among(candidates, own, epoch)
        others = Labelled(candidates.rows[theirs], candidates.labels[theirs])
        chances = members(path, epoch, others, own, max(self._step_noise, _LEAST_NOISE))
        yield Ranking(others, chances)
        sure = chances > SURE
        yield Claim(others.rows[sure], others.labels[sure], float((1 - chances[sure]).max(initial=0.0)))


def members(path: NewtonPath, epoch: Epoch, others: Labelled, own: Labelled, step_noise: float) -> FloatArray:
    """(n,) posteriors of candidates that are not the coalition's own."""
    problem = path.problem(
        epoch, Labelled(np.vstack([others.rows, own.rows]), np.concatenate([others.labels, own.labels]))
    )
    if problem is None:
        raise AssertionError("there is a map")
    steps = step_equations(path, problem)
    unknown = len(others.rows)
    chance = float(np.clip((path.rows - len(own.rows)) / max(unknown, 1), 0.02, 0.98))
    counts = np.concatenate([np.full(unknown, chance), np.ones(len(own.rows))])
    halvings = np.zeros(len(steps))
    for heat in _COOLING:
        G, h = np.zeros((unknown, unknown)), np.zeros(unknown)
        for place, step in enumerate(steps):
            design, right = step.whitened(signed(problem), path.ridge, counts)
            noise = step_noise * 0.5 ** halvings[place]
            variance = heat * noise**2 / (1 + noise**2)  # of each whitened equation, whose step has the length 1
            rest = right - design[:, unknown:].sum(axis=1)
            G += design[:, :unknown].T @ design[:, :unknown] / variance
            h += design[:, :unknown].T @ rest / variance
        counts[:unknown] = posterior(G, h, chance)
        halvings = _halvings(steps, signed(problem), path.ridge, counts, step_noise)
    return counts[:unknown]


@dataclass(frozen=True)
class StepEquation:
    """One step: its terms (n, d) of each candidate, slopes (n,), what is right of the equation (d,), and x (d,)."""

    terms: FloatArray
    slopes: FloatArray
    right: FloatArray
    step: FloatArray

    def whitened(self, rows: FloatArray, ridge: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Design (d, n) and right side (d,), whose noise has the variance eta^2 / (1 + eta^2) in each, about."""
        metric = np.diag(ridge) + (rows.T * (self.slopes * counts)) @ rows
        metric[np.diag_indices(len(metric))] += 1e-14 * np.trace(metric) / len(metric)
        lower = np.linalg.cholesky(metric)
        unit = float(np.linalg.norm(lower.T @ self.step)) / len(metric) ** 0.5
        solved = np.linalg.solve(lower, np.column_stack([self.terms.T, self.right])) / unit
        return solved[:, :-1], solved[:, -1]


def step_equations(path: NewtonPath, problem: Problem) -> list[StepEquation]:
    """Of each round from which a step was made."""
    rows, found = signed(problem), list[StepEquation]()
    for standing, after in zip(path.standings(problem)[:-1], path.rounds[1:], strict=True):
        if after.step.any():
            weights = standing.slopes * (rows @ after.step) - (standing.alpha + standing.lag)
            right = -path.ridge * (after.step + standing.v)
            found.append(StepEquation(weights[:, None] * rows, standing.slopes, right, after.step))
    return found


def _halvings(
    steps: list[StepEquation], rows: FloatArray, ridge: FloatArray, counts: FloatArray, step_noise: float
) -> FloatArray:
    """(rounds,) how often the dither was halved by then, as far as the residuals say."""
    found = []
    for step in steps:
        design, right = step.whitened(rows, ridge, counts)
        variance = float(((design @ counts - right) ** 2).mean()) * (1 + step_noise**2) / step_noise**2
        found.append(np.clip(np.rint(-np.log2(max(variance, 1e-300)) / 2), 0, _MOST_HALVINGS))
    return np.maximum.accumulate(np.array(found)) if found else np.zeros(0)
