"""Private empirical risk minimisation by output and objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011).

    J(f) = (1/n) sum_i l(y_i f.x_i) + lambda/2 |f|^2,   |x_i| <= 1,   no intercept,

for logistic loss (c = 1/4) or Huber's hinge of half-width h (c = 1/(2h)), where c bounds the loss's second derivative.
The sites' gradients and Hessians are summed, and the coordinator takes Newton's steps.

output     f + b, b of density exp(-epsilon |b| n lambda / 2): one row moves the minimiser by 2/(n lambda) at most.
objective  the minimiser of J(f) + b.f/n + Delta/2 |f|^2, with epsilon' = epsilon - 2 log(1 + c/(n lambda)), or half of
           epsilon where nothing is left of that, and Delta to make up for it; b of density exp(-epsilon' |b| / 2).

Both hold for exact minimisers. Training goes on until the gradient is so small that the rest is far below the noise,
and for output perturbation that rest is in the sensitivity. The proof of objective perturbation has no room for it, and
its b is no point of a lattice: what it releases is what floating point makes of it.

Noise protects the model against everyone who gets it, not against the coordinator, which saw exact sums, nor the sites,
which saw the points that they were taken at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from algorithms.data.public_rows import PubliclyScaledSite
from algorithms.features.fourier import Fit, choose_frequencies, paired_features
from algorithms.figures import Figures
from algorithms.privacy.mechanisms import Noise, PrivacyAccountant, PrivacyParameters, Release, noise_for, spherical
from federation.arrays import FloatArray
from federation.errors import FederationError, MembershipChanged, StepRefused
from federation.federation import Federation
from federation.site.program import step

LossName = Literal["logistic", "huber"]
Perturbation = Literal["output", "objective"]

GRADIENT_TOLERANCE = 1e-10
"""Of J; the minimiser is within this over lambda."""

_MAX_STEPS = 100
_SHORTEST = 2.0**-30
_LENGTH_ROUNDING = 1e-12


@dataclass(frozen=True)
class Loss:
    """A loss of margins z = y f.x, convex, with a slope of at most 1. half_width: of Huber's."""

    name: LossName
    half_width: float = 0.5

    @property
    def curvature(self) -> float:
        """c: the second derivative is at most this."""
        return 0.25 if self.name == "logistic" else 1 / (2 * self.half_width)

    def __call__(self, margins: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values, first and second derivatives, (n,) each."""
        if self.name == "logistic":
            chance = 1 / (1 + np.exp(np.clip(margins, -500, 500)))
            return np.logaddexp(0.0, -margins), -chance, chance * (1 - chance)
        h, short = self.half_width, 1.0 - margins
        near, below = np.abs(short) <= h, short > h
        value = np.where(near, (short + h) ** 2 / (4 * h), np.where(below, short, 0.0))
        slope = np.where(near, -(short + h) / (2 * h), np.where(below, -1.0, 0.0))
        return value, slope, np.where(near, 1 / (2 * h), 0.0)


@dataclass(frozen=True)
class ErmSettings:
    """What a user decides. epsilon: None trains without noise, and promises nothing."""

    loss: Loss
    regularisation: float
    perturbation: Perturbation
    epsilon: float | None


@dataclass(frozen=True)
class ErmModel:
    """Weights (d,) as released. noise: of output perturbation. noise_scale: of the norm of b. rounds: of training,
    without noise only."""

    weights: FloatArray
    noise: Noise | None
    noise_scale: float | None
    rows: int
    rounds: int | None
    sites: tuple[str, ...]

    @property
    def figures(self) -> Figures:
        """What a result says of it; how training ended depends on private rows, and is told without noise only."""
        rank = len(self.weights)
        return Figures(None, None, None, converged=True, iterations=self.rounds, sites=self.sites, rank=rank)


class ErmSite(PubliclyScaledSite):
    """The site half."""

    @step
    def take_rows(self, rho: FloatArray, longest: float, clip: bool) -> None:
        """Map rows to Fourier features where there are frequencies; else divide them by the length of the longest.

        Raises StepRefused for longer ones, unless they are to be clipped.
        """
        self.points = paired_features(self.rows, rho) if len(rho) else at_most_one(self.rows / longest, clip=clip)

    @step
    def erm_sums(self, f: FloatArray, loss: LossName, half_width: float) -> FloatArray:
        """(1 + d + d^2,): this site's part of the sum of losses, its gradient and its Hessian."""
        return erm_sums(self.points, self.labels[0], f, Loss(loss, half_width))


def at_most_one(rows: FloatArray, *, clip: bool) -> FloatArray:
    """Rows (n, d) of length at most 1. Raises StepRefused for longer ones, unless they are to be clipped."""
    lengths = np.linalg.norm(rows, axis=1)
    if not clip and (longer := int(np.count_nonzero(lengths > 1 + _LENGTH_ROUNDING))):
        raise StepRefused(
            f"{longer} of its rows are longer than the longest public one, and noise covers rows of length 1 at most; "
            'set algorithm.long_rows = "clip", or more public rows apart'
        )
    return np.asarray(rows / np.maximum(1.0, lengths)[:, None])


@dataclass(frozen=True)
class Points:
    """How scaled rows become points of length 1 at most; see `ErmSite.take_rows`. `size` is the points' own."""

    rho: FloatArray
    longest: float
    size: int

    @classmethod
    def from_public(cls, public: FloatArray, features: int, sigma: float, fit: Fit, seed: int) -> Points:
        """Of so many Fourier features, chosen from public rows (m, d); of none, by the longest of these rows."""
        if not features:
            longest = float(np.linalg.norm(public, axis=1).max())
            return cls(np.zeros((0, public.shape[1])), longest or 1.0, public.shape[1])
        found = choose_frequencies(public, features, sigma, fit, np.random.default_rng([seed, 4]))
        return cls(found.rho, 1.0, 2 * features)

    def __call__(self, rows: FloatArray) -> FloatArray:
        """(n, size): rows (n, d) as points."""
        return paired_features(rows, self.rho) if len(self.rho) else at_most_one(rows / self.longest, clip=True)

    def longer(self, rows: FloatArray) -> int:
        """How many rows are longer than the longest public one."""
        return 0 if len(self.rho) else int((np.linalg.norm(rows, axis=1) > self.longest).sum())


def erm_sums(points: FloatArray, labels: FloatArray, f: FloatArray, loss: Loss) -> FloatArray:
    """(1 + d + d^2,): the sum of losses of rows (n, d) with labels (n,), its gradient and its Hessian."""
    values, slopes, curvatures = loss(labels * (points @ f))
    hessian = (points * curvatures[:, None]).T @ points
    return np.concatenate([[values.sum()], (slopes * labels) @ points, hessian.ravel()])


def train(
    federation: Federation,
    settings: ErmSettings,
    points: Points,
    rows: Callable[[], int],
    account: PrivacyAccountant,
    *,
    clip: bool,
) -> ErmModel:
    """Train on the rows that the sites hold ready, and release the model.

    clip: see `ErmSite.take_rows`. rows: counts the private ones, whose number is public.
    """
    if settings.epsilon is not None:
        account.require(settings.epsilon, 0.0)
    while True:
        with suppress(MembershipChanged), federation.fixed_membership():
            count = rows()
            federation.run("take_rows", rho=points.rho, longest=points.longest, clip=clip)
            plan = perturbed(settings, points.size, count)
            before = federation.progress.round
            f = minimised(partial(_summed, federation, settings.loss, count), plan, count)
            break
    noise = _output_noise(settings, points.size, count)
    released = f if noise is None else noise.released(f)
    if settings.epsilon is not None:
        account.spend(_release(settings, plan, noise))
    scale = noise.scale if noise is not None else plan.scale
    rounds = federation.progress.round - before if settings.epsilon is None else None
    return ErmModel(released, noise, scale, count, rounds, federation.sites)


@dataclass(frozen=True)
class Plan:
    """The objective that is minimised: J with b.f/n, and lambda + Delta in place of lambda. scale: of the norm of b."""

    regularisation: float
    b: FloatArray
    scale: float | None


def perturbed(settings: ErmSettings, size: int, rows: int) -> Plan:
    """What objective perturbation minimises, with its b drawn; without it, J itself."""
    if settings.epsilon is None or settings.perturbation == "output":
        return Plan(settings.regularisation, np.zeros(size), None)
    c, strength = settings.loss.curvature, settings.regularisation
    left, extra = settings.epsilon - 2 * math.log1p(c / (rows * strength)), 0.0
    if left <= 0:
        extra = c / (rows * math.expm1(settings.epsilon / 4)) - strength
        left = settings.epsilon / 2
    return Plan(strength + extra, spherical(size, 2 / left), 2 / left)


def minimised(total: Callable[[FloatArray], FloatArray], plan: Plan, rows: int) -> FloatArray:
    """The minimiser (d,), by Newton's steps, halved where they go too far.

    total: the sum over all rows of what `erm_sums` computes. Raises FederationError if it is not reached.
    """
    f, length = np.zeros(len(plan.b)), 1.0
    value, gradient, hessian = _objective(total, plan, rows, f)
    for _ in range(_MAX_STEPS):
        if np.linalg.norm(gradient) <= GRADIENT_TOLERANCE:
            return f
        direction = -np.linalg.solve(hessian, gradient)
        candidate = f + length * direction
        found = _objective(total, plan, rows, candidate)
        if found[0] <= value + 1e-4 * length * float(gradient @ direction) + 1e-14 * abs(value):
            (value, gradient, hessian), f, length = found, candidate, 1.0
        elif (length := length / 2) < _SHORTEST:
            break
    raise FederationError(
        f"Training did not reach a gradient of {GRADIENT_TOLERANCE:g} over {len(f)} features; nothing is released. "
        "Raise algorithm.regularisation."
    )


def _objective(
    total: Callable[[FloatArray], FloatArray], plan: Plan, rows: int, f: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Value, gradient and Hessian of what is minimised."""
    size, strength, sums = len(f), plan.regularisation, total(f) / rows
    return (
        float(sums[0] + 0.5 * strength * f @ f + plan.b @ f / rows),
        sums[1 : 1 + size] + strength * f + plan.b / rows,
        sums[1 + size :].reshape(size, size) + strength * np.eye(size),
    )


def _summed(federation: Federation, loss: Loss, rows: int, f: FloatArray) -> FloatArray:
    """One secure sum over all sites' rows."""
    bound = rows * (2.0 + float(np.linalg.norm(f)) + loss.curvature)
    shape = (1 + len(f) + len(f) ** 2,)
    return federation.sum("erm_sums", shape=shape, bound=bound, f=f, loss=loss.name, half_width=loss.half_width)


def _output_noise(settings: ErmSettings, size: int, rows: int) -> Noise | None:
    if settings.epsilon is None or settings.perturbation == "objective":
        return None
    moved = 2 / (rows * settings.regularisation) + 2 * GRADIENT_TOLERANCE / settings.regularisation
    return noise_for(PrivacyParameters("spherical", settings.epsilon), size, moved, gap=0.0)


def _release(settings: ErmSettings, plan: Plan, noise: Noise | None) -> Release:
    return Release(
        what="weights of the model",
        epsilon=settings.epsilon or 0.0,
        delta=0.0,
        mechanism=f"{settings.perturbation} perturbation",
        sensitivity=noise.sensitivity if noise is not None else None,
        noise_scale=noise.scale if noise is not None else plan.scale or 0.0,
        protects_against=("everyone who gets the model", "not the coordinator and the sites, which saw it trained"),
    )
