"""An attack on the steps of the interior point, which every site knows: which candidates are in the training data.

A step x at a point v solves (D + M) x = q - D v but for the dither, which is normal and isotropic in the metric of
D + M, and q and M are sums over rows whose weights follow from the path. So

    D (x + v) + sum_i c_i f~_i (d_i f~_i.x - alpha*_i) = noise,    noise ~ N(0, (eta lambda)^2 / d (D + M)),

is linear in how often each candidate occurs, c_i, and its noise has a covariance that is linear in c_i, too. The attack
whitens the equations of all rounds by its estimate of D + M, finds the posterior of c (`binary_counts`), and so on from
there; eta is known but for how often it was halved, which the residuals say; lambda is the length of the step in that
metric. The site's own rows are known to be there. While counts leave more than the dither can have made, the equations
are believed less.

Behind a committee the noise is normal with a known variance on the equation itself. So nothing is whitened, and the
search begins with more noise. Nothing is claimed unless the counts leave what noise and their own uncertainty explain.

With noise in the objective rows have secret barriers, and another way finds the chances: see `secret_barriers`. A site
knows its own draw of the noise, and its own barriers.

No dither hides what the optimum itself says: w is the sum of alpha_i f~_i, so the last steps tell of rows at the margin
or within, as the released model does.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.binary_counts import posterior
from fedsvm.algorithms.attacks.epochs import Epoch, epochs
from fedsvm.algorithms.attacks.finite_domain import combinations
from fedsvm.algorithms.attacks.newton_path import ViewedPath, newton_paths, signed_features
from fedsvm.algorithms.attacks.own_noise import own_noise
from fedsvm.algorithms.attacks.secret_barriers import HiddenTerms, StepSums, chances_of, steps_taken
from fedsvm.algorithms.attacks.support_rows import split_candidates
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.protocols.analysis.views import RunView

MAX_CANDIDATES = 2_000
"""Of more the posterior would take minutes."""

SURE = 0.999
"""Candidates with a posterior above are claimed."""

_STAGES, _SETTLED = 12, 0.02
"""D + M is estimated anew so often, or until no posterior changes by more."""

_SPARE = 1.2
"""The factor by which variance may exceed the dither's."""

_HASTES = (0.3, 1.0)
"""The share of larger residuals that is allowed for while D + M is unknown."""

MOST_LEFT = 2.0
"""Counts that leave more than so much of the dither's variance are not right, and nothing is claimed."""

_MOST_HALVINGS = 8

_FALLING = (16.0, 4.0, 1.0)
"""The factors of known noise with which its posterior is sought one after the other."""

_KEPT = 0.8
"""The share of the first steps that is tried next if counts do not explain all of them."""

LEAST_NOISE = 1e-3
"""The noise assumed without dither."""


class NewtonSteps(Attack):
    """Candidates ranked by the posterior that they are in the data; those that are as good as certain are claimed.

    Parameters
    ----------
    step_noise : float
        The dither's size, which is public.
    objective_noise : float, default 0.0
        The size of the noise in the objective, which is public.
    """

    name = "Newton steps"
    is_of_problems = True

    def __init__(self, step_noise: float, objective_noise: float = 0.0) -> None:
        self._step_noise, self._objective_noise = step_noise, objective_noise
        self._found: dict[bytes, Members] = {}

    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Attack the last training. For those who know the sums there is a better attack."""
        parts = [(epoch, path) for epoch in epochs(view) for path in newton_paths(epoch, prior.posed)]
        if not view.coalition.sites or not parts or any(each.sums for each in parts[-1][1].rounds):
            return
        epoch, path = parts[-1]
        candidates = prior.candidates or combinations(epoch)
        if candidates is None or epoch.features is None or len(candidates.rows) > MAX_CANDIDATES:
            return
        others, own = split_candidates(candidates, prior.own, epoch)
        asked = _digest(path, others, own)
        if asked not in self._found:  # a site alone and with the coordinator have the same
            step_noise = max(self._step_noise, LEAST_NOISE)
            if self._objective_noise:
                drawn = own_noise(epoch, prior.posed, len(path.prior))
                noise = self._objective_noise * drawn.share_left(prior.sites)
                known = KnownNoise(drawn.draw, noise, drawn.key, prior.posed.number)
                self._found[asked] = members_behind_barriers(path, epoch, others, own, step_noise, known)
            else:
                self._found[asked] = members(path, epoch, others, own, step_noise)
        yield from claims_of(others, self._found[asked])


def _digest(path: ViewedPath, others: LabeledRows, own: LabeledRows) -> bytes:
    """Return a digest of what differs between coalitions, and between problems of a run."""
    digest = hashlib.sha256()
    dithers = [each.dither for each in path.rounds if each.dither is not None]
    for array in (*others, *own, *(each.step for each in path.rounds), *dithers):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


@dataclass(frozen=True)
class Members:
    """chances (n,): posteriors that candidates are in the data.

    left: the most that the counts leave of a round's equations, as a share of the dither's variance; about 1 where the
    counts are right.
    """

    chances: FloatArray
    left: float


def claims_of(others: LabeledRows, found: Members) -> Iterator[RowClaim | CandidateScores]:
    """Yield the scores of candidates, and those that are as good as certain."""
    yield CandidateScores(others, found.chances)
    sure = (found.chances > SURE) & (found.left < MOST_LEFT)
    yield RowClaim(others.rows[sure], others.labels[sure], float((1 - found.chances[sure]).max(initial=0.0)))


def members(path: ViewedPath, epoch: Epoch, others: LabeledRows, own: LabeledRows, step_noise: float) -> Members:
    """Return the members among candidates that are not the coalition's own."""
    problem = _problem(path, epoch, others, own)
    rows, steps = signed_features(problem), step_equations(path, problem)
    return members_of(steps, rows, path.ridge, path.rows, len(others.rows), step_noise)


def _problem(path: ViewedPath, epoch: Epoch, *parts: LabeledRows) -> Problem:
    rows = np.vstack([each.rows for each in parts]), np.concatenate([each.labels for each in parts])
    problem = path.problem(epoch, LabeledRows(*rows))
    if problem is None:
        raise AssertionError("there is a map")
    return problem


@dataclass(frozen=True)
class KnownNoise:
    """The knowledge of a coalition about noise in the objective, and about the barriers of its own rows.

    draw (m,): its own draw. size: of the unknown rest. key (1, 4): of the secrets of its rows, None if it does not have
    one key. problem: the number of the problem.
    """

    draw: FloatArray
    size: float
    key: Residues | None
    problem: int


def members_behind_barriers(
    path: ViewedPath, epoch: Epoch, others: LabeledRows, own: LabeledRows, step_noise: float, known: KnownNoise
) -> Members:
    """Return the members among candidates that are not the coalition's own, if rows have secret barriers."""
    problem, ours = _problem(path, epoch, others), _problem(path, epoch, own)
    largest = path.price * math.sqrt(max(problem.squares / len(others.rows) - path.lever**2, 0.0))
    steps = steps_taken(path)
    sums = StepSums.of(path, steps, problem, known.draw, known.size * largest)
    dithers = [path.rounds[number].dither for number in steps]
    if any(each is None for each in dithers):
        sums = replace(sums, noise=sums.noise * step_noise**2 / (1 + step_noise**2))
    chance = _prior_chance(len(others.rows) + len(own.rows), path.rows, len(others.rows))
    hidden, prior = HiddenTerms.sample(path, problem, steps), np.full(len(others.rows), chance)
    if known.key is not None:
        sums = sums.without(path, ours.with_secrets(known.key, known.problem), steps)
    elif len(own.rows):
        hidden = hidden.with_more(HiddenTerms.sample(path, ours, steps))
        prior = np.append(prior, np.ones(len(own.rows)))
    chances, left = chances_of(hidden, sums, prior)
    return Members(chances[: len(others.rows)], left)


def members_of(
    steps: list[StepEquation], rows: FloatArray, ridge: FloatArray, present: int, unknown: int, step_noise: float
) -> Members:
    """Return the members by the equations of steps; the faster way, unless its check fails.

    rows (n, d): y f~ of the candidates, `unknown` of them, then of the coalition's own. ridge (d,): the penalty on the
    diagonal. present: how many rows the training has.
    """
    if all(step.has_known_noise for step in steps):
        return _members_by_known_noise(steps, rows, present, unknown)
    found = _members(steps, rows, ridge, present, unknown, step_noise, _HASTES[0])
    if found.left < MOST_LEFT:
        return found
    slower = _members(steps, rows, ridge, present, unknown, step_noise, _HASTES[1])
    return min(found, slower, key=lambda each: each.left)


def _members_by_known_noise(steps: list[StepEquation], rows: FloatArray, present: int, unknown: int) -> Members:
    """Return the members by the most steps, from the first on, that the counts explain, as far as they are sure."""
    chance = _prior_chance(len(rows), present, unknown)
    design, right = _known_noise_equations(steps, unknown)
    count, places = len(steps), rows.shape[1]
    while True:
        some = slice(count * places)
        G, h = design[some].T @ design[some], design[some].T @ right[some]
        chances = posterior(G, h, chance, [_SPARE * level for level in _FALLING])
        spread = design[some] ** 2 @ (chances * (1 - chances))
        over = (design[some] @ chances - right[some]) ** 2 / (1 + spread)
        left = float(over.reshape(count, places).mean(axis=1).max())
        if left < MOST_LEFT or count == 1:
            return Members(chances, left)
        count = int(_KEPT * count)


def _known_noise_equations(steps: list[StepEquation], unknown: int) -> tuple[FloatArray, FloatArray]:
    """Return the design and the right side of all steps, whose noise has a variance of 1; own rows are subtracted."""
    parts, rights = list[FloatArray](), list[FloatArray]()
    for step in steps:
        unit = np.asarray(step.dither)
        parts.append(step.terms[:unknown].T / unit[:, None])
        rights.append((step.right - step.terms[unknown:].sum(axis=0)) / unit)
    return np.vstack(parts), np.concatenate(rights)


def _prior_chance(rows: int, present: int, unknown: int) -> float:
    """Return the chance that a candidate is in the data, before anything is known but the number of rows."""
    return float(np.clip((present - (rows - unknown)) / max(unknown, 1), 0.02, 0.98))


def _members(
    steps: list[StepEquation],
    rows: FloatArray,
    ridge: FloatArray,
    present: int,
    unknown: int,
    step_noise: float,
    haste: float,
) -> Members:
    chance = _prior_chance(len(rows), present, unknown)
    counts = np.append(np.full(unknown, chance), np.ones(len(rows) - unknown))
    equations = [step.whiten(rows, ridge, counts, step_noise) for step in steps]
    for _ in range(_STAGES):
        G, h = np.zeros((unknown, unknown)), np.zeros(unknown)
        levels = _levels(_left(equations, counts, step_noise), step_noise, haste)
        for (design, right), level in zip(equations, levels, strict=True):
            rest = right - design[:, unknown:].sum(axis=1)
            G += design[:, :unknown].T @ design[:, :unknown] / level
            h += design[:, :unknown].T @ rest / level
        before = counts[:unknown].copy()
        counts[:unknown] = posterior(G, h, chance)
        equations = [step.whiten(rows, ridge, counts, step_noise) for step in steps]
        if np.abs(counts[:unknown] - before).max(initial=0.0) < _SETTLED:
            break
    left = _left(equations, counts, step_noise)
    return Members(counts[:unknown], max(each * 4**by for each, by in zip(left, _halvings(left), strict=True)))


def _left(equations: list[tuple[FloatArray, FloatArray]], counts: FloatArray, step_noise: float) -> list[float]:
    """Return the residual variance of each round's whitened equations, as a share of the full dither's."""
    full = step_noise**2 / (1 + step_noise**2)
    return [float(((design @ counts - right) ** 2).mean()) / full for design, right in equations]


def _halvings(left: list[float]) -> list[float]:
    """Return how often the dither was halved by each round, estimated from the residual variance."""
    by_round = [np.clip(np.floor(0.3 - np.log2(max(each, 1e-300)) / 2), 0, _MOST_HALVINGS) for each in left]
    return [float(halved) for halved in np.maximum.accumulate(by_round)]


def _levels(left: list[float], step_noise: float, haste: float) -> list[float]:
    """Return the variance to assume for each round's equations: the dither's, or more if residuals are larger."""
    full, halvings = step_noise**2 / (1 + step_noise**2), _halvings(left)
    return [full * max(_SPARE * 0.25**by, haste * each) for by, each in zip(halvings, left, strict=True)]


@dataclass(frozen=True)
class StepEquation:
    """One step: its terms (n, d) of each candidate, slopes (n,), what is right of the equation (d,), and x (d,).

    dither (d,): the standard deviation of the noise on every entry, where it is known.
    """

    terms: FloatArray
    slopes: FloatArray
    right: FloatArray
    step: FloatArray
    dither: FloatArray | None

    @property
    def has_known_noise(self) -> bool:
        """Return whether there is noise of a known deviation on every entry."""
        return self.dither is not None and bool(self.dither.all())

    def whiten(
        self, rows: FloatArray, ridge: FloatArray, counts: FloatArray, step_noise: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return design (d, n) and right side (d,), whose noise has a variance of about eta^2 / (1 + eta^2)."""
        from scipy.linalg import solve_triangular  # an audit alone has a use for it

        metric = np.diag(ridge) + (rows.T * (self.slopes * counts)) @ rows
        metric[np.diag_indices(len(metric))] += 1e-14 * np.trace(metric) / len(metric)
        lower = np.linalg.cholesky(metric)
        unit = float(np.linalg.norm(lower.T @ self.step)) / len(metric) ** 0.5
        solved = solve_triangular(lower, np.column_stack([self.terms.T, self.right]), lower=True) / unit
        return solved[:, :-1], solved[:, -1]


def step_equations(path: ViewedPath, problem: Problem) -> list[StepEquation]:
    """Return the equations of each round from which a step was made."""
    rows, found = signed_features(problem), list[StepEquation]()
    pairs = itertools.pairwise(path.rounds)
    for standing, (before, after) in zip(path.standings(problem)[:-1], pairs, strict=True):
        if after.step.any():
            weights = standing.slopes * (rows @ after.step) - (standing.alpha + standing.lag)
            right = -path.ridge * (after.step + standing.v)
            found.append(StepEquation(weights[:, None] * rows, standing.slopes, right, after.step, before.dither))
    return found
