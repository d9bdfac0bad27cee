"""Hybrid SVM (Li, Xiong, Ohno-Machado and Jiang 2014): features from public rows, training on private ones, noise.

    min over w of  1/2 |w - w0|^2 + (C / n) sum_i max(0, 1 - y_i w.z(x_i)),   |z(x)| = 1,   no intercept.

What one row can change. Between data sets that differ in one of n rows the gradient of the second term differs by at
most 2C/n, and the objective is 1-strongly convex, so that its minimisers are within 2C/n of each other in L2 ("tight";
it is attained). The paper takes 4C/n from Rubinstein et al. (2012, corollary 15), loose by 2 ("paper"). A prior w0 of
public rows alone changes neither.

Corrections. (1) The paper prints C times the sum, not C/n, with noise for C/n: with that its epsilon is false by a
factor of n. n, the number of private rows, is public. (2) No intercept: what regularises nothing has no such bound.
(3) The bound is for the exact minimiser: an objective within g of its minimum adds 2 sqrt(2 g), for both neighbours.
What is accounted for is the tolerance, which is public, and not the gap that training happened to reach.

Who sees what. `cutting-plane` shows the coordinator exact sums while it trains, and the sites the points they are taken
at: noise protects the model against everyone who gets it, not against these. In `one-shot` every site trains on its own
rows, and one secure sum adds the models, weighted by n_s / n, and shares of the noise: nobody sees anything without
noise. One row changes its site's minimiser by 2C/n_s at most, and what is released by n_s/n of that: 2C/n again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from algorithms.data.public_rows import PubliclyScaledSite
from algorithms.features.fourier import Fit, Frequencies, choose_frequencies, paired_features
from algorithms.figures import Figures
from algorithms.optimisation.cutting_plane import Oracle, Solution, Stopping, solve
from algorithms.optimisation.hinge_sums import FederatedOracle, HingeSite, HingeSums
from algorithms.optimisation.line_search import grid_search
from algorithms.privacy.discrete_noise import gaussian_share, laplace_share
from algorithms.privacy.mechanisms import Noise, PrivacyAccountant, PrivacyParameters, Release, noise_for
from federation.arrays import FloatArray, IntArray
from federation.errors import FederationError, MembershipChanged, StepRefused
from federation.federation import Federation
from federation.site.program import step

ONE_SHOT_GROUPS = 32
C_GRID = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of a public row's loss, among which the public rows choose."""

_PRIOR_FOLDS = 5
_PRIOR_TOLERANCE = 1e-6
_MAX_ITERATIONS = 500


@dataclass(frozen=True)
class HybridSettings:
    """What a user decides. promise: None trains without noise, and promises nothing.

    parts: how many shares make up the noise; a site knows its own.
    """

    frequencies: int
    sigma: float
    fit: Fit
    C: float
    promise: PrivacyParameters | None
    sensitivity: Literal["paper", "tight"]
    prior: Literal["none", "public"]
    variant: Literal["cutting-plane", "one-shot"]
    groups: int
    tolerance: float
    max_iterations: int
    parts: int
    seed: int


@dataclass(frozen=True)
class HybridModel:
    """What is released: rho and weights (2 D,). `solution` is how training went, of a model without noise only."""

    frequencies: Frequencies
    prior: FloatArray
    weights: FloatArray
    noise: Noise | None
    solution: Solution | None
    rows: int
    sites: tuple[str, ...]

    def decision_values(self, rows: FloatArray) -> FloatArray:
        """(n,) for scaled rows (n, d)."""
        return np.asarray(self.frequencies.features(rows) @ self.weights)

    @property
    def figures(self) -> Figures:
        """What a result says of it. How training ended depends on private rows, and is told without noise only."""
        told = self.solution
        return Figures(
            objective=told.objective if told else None,
            lower_bound=told.lower_bound if told else None,
            gap=told.gap if told else None,
            converged=True,
            iterations=told.iterations if told else None,
            sites=self.sites,
            rank=len(self.weights),
            frequencies=len(self.frequencies.rho),
            fit_error={"as_drawn": self.frequencies.error_as_drawn, "fitted": self.frequencies.error},
        )


class HybridSite(HingeSite, PubliclyScaledSite):
    """The site half."""

    @step
    def receive_frequencies(self, rho: FloatArray, groups: int) -> None:
        """Map this site's rows; the features never leave it."""
        features = paired_features(self.rows, rho)
        self.sums = HingeSums.dealt(features, self.labels, groups, self.random("groups"))

    @step
    def train_alone(self, prior: FloatArray, C: float, tolerance: float, rows: int) -> None:
        """This site's own minimiser, weighted by its share of all rows. Raises StepRefused if it is not reached."""
        own = len(self.sums.features)
        self.part = np.zeros(len(prior))
        if own:
            solution = minimised(self.sums, prior, C / own, Stopping(tolerance, _MAX_ITERATIONS))
            if not solution.converged:
                raise StepRefused(f"training did not reach tolerance {tolerance:g}; raise algorithm.tolerance")
            self.part = own / rows * (prior + solution.w)

    @step
    def own_part(self) -> FloatArray:
        """(2 D,) this site's part of the model, without noise."""
        return self.part

    @step
    def noisy_part(self, lattice: float, mechanism: str, steps: int, parts: int, with_model: bool) -> FloatArray:
        """(2 D,) a share of the noise, on top of this site's part of the model if so asked, on the lattice."""
        size = self.sums.features.shape[1]
        if mechanism == "gaussian":
            share = gaussian_share(Fraction(steps) ** 2, parts, size)
        else:
            share = laplace_share(steps, parts, size)
        part = np.rint(self.part / lattice) if with_model else np.zeros(size)
        return np.asarray((part + share) * lattice)


# Training.


def train(
    federation: Federation,
    settings: HybridSettings,
    public: tuple[FloatArray, FloatArray],
    rows: Callable[[], int],
    account: PrivacyAccountant,
) -> HybridModel:
    """Train on the rows that the sites hold ready, and release the model.

    public: scaled public rows (m, d) and labels (m,). rows: counts the private ones at the sites that are there, whose
    number is public. Raises FederationError where the budget has no room, before private rows are touched.
    """
    if settings.promise is not None:
        account.require(settings.promise.epsilon, settings.promise.delta)
    random = np.random.default_rng([settings.seed, 4])
    frequencies = choose_frequencies(public[0], settings.frequencies, settings.sigma, settings.fit, random)
    prior = np.zeros(2 * settings.frequencies)
    if settings.prior == "public":
        prior = public_weights(frequencies.features(public[0]), public[1], random)
    while True:
        with suppress(MembershipChanged), federation.fixed_membership():
            count = rows()
            federation.run("receive_frequencies", remember=True, rho=frequencies.rho, groups=settings.groups)
            solution = _trained(federation, settings, prior, count)
            break
    noise = _noise(settings, prior, count)
    if noise is not None:  # before anything is revealed, with the delta that shares add
        account.spend(_release(settings, noise, hidden=not federation.shows_inputs))
    weights = _released(federation, settings, prior, solution, noise)
    exact = solution if noise is None else None  # else it would be released with the model
    return HybridModel(frequencies, prior, weights, noise, exact, count, federation.sites)


def _trained(federation: Federation, settings: HybridSettings, prior: FloatArray, rows: int) -> Solution | None:
    """The minimiser, less the prior; None where each site has its own. Raises FederationError if it is not reached."""
    if settings.variant == "one-shot":
        terms: dict[str, Any] = {"C": settings.C, "tolerance": settings.tolerance, "rows": rows}
        federation.run("train_alone", remember=True, prior=prior, **terms)
        return None
    oracle = FederatedOracle(federation, settings.groups, rows, reach=float(rows) * (1 + 1e-9))
    stopping = Stopping(settings.tolerance, settings.max_iterations)

    def note(iteration: int, solutions: Sequence[Solution]) -> None:
        if settings.promise is None:  # else nothing is written down that noise does not cover
            federation.log_metrics(iteration=iteration, objective=solutions[0].objective, gap=solutions[0].gap)

    solution = minimised(oracle, prior, settings.C / rows, stopping, note, groups=settings.groups)
    if not solution.converged:
        raise FederationError(
            f"Training did not reach the gap of {settings.tolerance:g} that noise is sized for in {solution.iterations}"
            " iterations; nothing is released. Raise algorithm.tolerance, or algorithm.max_iterations."
        )
    return solution


def minimised(
    oracle: Oracle,
    prior: FloatArray,
    C: float,
    stopping: Stopping,
    note: Callable[[int, Sequence[Solution]], None] = lambda iteration, solutions: None,
    groups: int = ONE_SHOT_GROUPS,
) -> Solution:
    """The minimum over v of 1/2 |v|^2 + C sum of hinge losses at prior + v, without intercept."""
    if isinstance(oracle, HingeSums):
        groups = len(oracle.members)
    (solution,) = solve(
        _Shifted(oracle, prior),
        problems=1,
        dimensions=len(prior),
        groups=groups,
        C=C,
        stopping=stopping,
        search=grid_search,
        on_iteration=note,
        intercept=False,
    )
    return solution


@dataclass(frozen=True)
class _Shifted:
    """The sums of an oracle around a prior: its losses at v are those at prior + v."""

    oracle: Oracle
    prior: FloatArray

    def cuts(self, problems: IntArray, w: FloatArray, b: FloatArray) -> FloatArray:
        found = self.oracle.cuts(problems, w + self.prior, b)
        found[..., -1] -= found[..., :-2] @ self.prior
        return found

    def line(
        self,
        problems: IntArray,
        w: FloatArray,
        b: FloatArray,
        dw: FloatArray,
        db: FloatArray,
        steps: FloatArray,
    ) -> FloatArray:
        return self.oracle.line(problems, w + self.prior, b, dw, db, steps)


# Noise.


def _noise(settings: HybridSettings, prior: FloatArray, rows: int) -> Noise | None:
    if settings.promise is None:
        return None
    sensitivity = (4.0 if settings.sensitivity == "paper" else 2.0) * settings.C / rows
    return noise_for(settings.promise, len(prior), sensitivity, _gap(settings, prior), settings.parts)


def _gap(settings: HybridSettings, prior: FloatArray) -> float:
    """The objective at the prior is at most C (1 + |w0|), so the tolerance bounds the gap, whatever the rows are.

    In `one-shot` it is the same at every site, and counts n_s/n there; the largest share counts as all.
    """
    return settings.tolerance * settings.C * (1.0 + float(np.linalg.norm(prior)))


def _released(
    federation: Federation, settings: HybridSettings, prior: FloatArray, solution: Solution | None, noise: Noise | None
) -> FloatArray:
    """The model with its noise. A sum that is run again has fresh noise, and the one before was not revealed."""
    shape = (len(prior),)
    if noise is None or not noise.in_shares:
        found = federation.sum("own_part", shape=shape, bound=math.inf) if solution is None else prior + solution.w
        return found if noise is None else noise.released(found)
    terms: dict[str, Any] = {"lattice": noise.step, "mechanism": noise.promise.mechanism, "steps": noise.steps}
    terms |= {"parts": noise.parts, "with_model": solution is None}
    noisy: FloatArray = federation.sum("noisy_part", shape=shape, bound=math.inf, **terms)
    return noisy if solution is None else noise.on_lattice(prior + solution.w) + noisy


def _release(settings: HybridSettings, noise: Noise, *, hidden: bool) -> Release:
    if settings.variant == "cutting-plane":
        others = "not the coordinator and the sites, which saw it trained"
    elif noise.in_shares and hidden:
        others = "the coordinator, and every site but the row's own"
    else:
        others = "not the coordinator, which saw what has no noise, or not all of it"
    return Release(
        what="weights of the model",
        epsilon=noise.promise.epsilon,
        delta=noise.delta,
        mechanism=noise.promise.mechanism,
        sensitivity=noise.sensitivity,
        noise_scale=noise.scale,
        protects_against=("everyone who gets the model", others),
    )


# What public rows decide.


def public_weights(features: FloatArray, labels: FloatArray, random: np.random.Generator) -> FloatArray:
    """(2 D,) the model of public rows alone, at the price of losses that cross-validation on them prefers."""
    dealt = random.permutation(len(labels)) % _PRIOR_FOLDS
    losses = [
        sum(_held_out_loss(features, labels, dealt == fold, price) for fold in range(_PRIOR_FOLDS)) for price in C_GRID
    ]
    return _public_model(features, labels, C_GRID[int(np.argmin(losses))])


def _held_out_loss(features: FloatArray, labels: FloatArray, held_out: np.ndarray, price: float) -> float:
    if held_out.all() or not held_out.any():
        return 0.0
    weights = _public_model(features[~held_out], labels[~held_out], price)
    return float(np.maximum(0.0, 1.0 - labels[held_out] * (features[held_out] @ weights)).sum())


def _public_model(features: FloatArray, labels: FloatArray, price: float) -> FloatArray:
    rows = HingeSums.dealt(features, labels[None, :], min(ONE_SHOT_GROUPS, len(labels)), np.random.default_rng(0))
    nothing = np.zeros(features.shape[1])
    return minimised(rows, nothing, price, Stopping(_PRIOR_TOLERANCE, _MAX_ITERATIONS)).w
