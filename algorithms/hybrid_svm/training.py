"""Training over the sites by one of two solvers, or at each site alone, and the release of the model."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsvm.algorithms.algorithm import TrainingReport
from fedsvm.algorithms.data.classes import one_against_rest
from fedsvm.algorithms.data.horizontal_task import count_rows
from fedsvm.algorithms.data.public_rows import PublicTask
from fedsvm.algorithms.features.fourier import Frequencies, choose_frequencies
from fedsvm.algorithms.hybrid_svm.minimizer import ShiftedOracle, public_weights
from fedsvm.algorithms.hybrid_svm.model import HybridModel
from fedsvm.algorithms.hybrid_svm.noise import longest_of, noise_for_settings
from fedsvm.algorithms.hybrid_svm.release import privacy_statement, release_model
from fedsvm.algorithms.hybrid_svm.settings import HybridSettings
from fedsvm.algorithms.optimization import cutting_plane, interior_point
from fedsvm.algorithms.optimization.blind_path import BlindPath
from fedsvm.algorithms.optimization.cutting_plane import Oracle
from fedsvm.algorithms.optimization.hinge_sums import FederatedOracle
from fedsvm.algorithms.optimization.joint_hinge import JointOracle
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.algorithms.optimization.path_sums import FederatedPath, choose_points, newton_path
from fedsvm.algorithms.optimization.solution import Certificate
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError, MembershipChanged
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.script import Script, maybe, once, repeat, seq
from fedsvm.federation.site.terms import Terms


def training_script(terms: Terms) -> Script:
    """Return the script of `_minimize`."""
    settings = terms.settings
    if settings["variant"] == "one-shot":
        return once("train_alone")
    if settings["solver"] == "interior-point":
        return newton_path(terms, "take_best")
    joint = settings["multiclass"] == "joint"
    deal, cuts, line = ("deal_joint_groups", "joint_cuts", "joint_line") if joint else ("deal_groups", "cuts", "line")
    return seq(deal, cuts, repeat(seq(line, maybe(cuts)), 0, settings["max_iterations"]))


def train(federation: Federation, settings: HybridSettings, task: PublicTask) -> HybridModel:
    """Train on the rows that the sites hold ready, and release the model.

    Raises FederationError where the budget has no room, before private rows are touched.
    """
    privacy, public = settings.privacy, task.public
    if privacy is not None:
        task.accountant.check_budget(privacy.epsilon, privacy.delta)
    random = np.random.default_rng([task.seed, 4])
    sigma = settings.sigma_of(public.rows.shape[1])
    frequencies = choose_frequencies(public.rows, settings.features, sigma, settings.fit_to, random)
    prior = np.zeros((task.problems, 2 * settings.features))
    if settings.prior == "public":
        features = frequencies.features(public.rows)
        problems = one_against_rest(public.labels, task.classes)
        prior = np.stack([public_weights(features, labels, random) for labels in problems])
    prior = prior[0] if task.classes == 2 else prior

    def stage() -> tuple[int, _Minimum]:
        count = sum(count_rows(federation).values())  # the number of private rows is public
        federation.run("receive_frequencies", remember=True, rho=frequencies.rho)
        return count, _minimize(federation, settings, prior, count)

    count, trained = federation.until_stable(stage)
    noise = noise_for_settings(settings, prior, count, task.noise_shares)
    if noise is not None:  # before anything is revealed, with the delta that shares add
        task.accountant.spend(privacy_statement(settings, noise, federation), federation.journaled_random)
    weights = release_model(federation, settings, trained.weights, noise, task.accountant, prior.size)
    jointly = settings.is_joint(task.problems)
    training = _report(frequencies, trained if noise is None else None, prior, federation.sites, jointly=jointly)
    return HybridModel(frequencies.rho, weights.reshape(prior.shape), prior, noise, training, jointly)


def _report(
    frequencies: Frequencies, trained: _Minimum | None, prior: FloatArray, sites: tuple[str, ...], *, jointly: bool
) -> TrainingReport:
    """Return the training report. trained: None if the model has noise, which does not cover the course of training."""
    known = trained.certificates if trained is not None else ()
    of_classes = f", {len(prior)} problems, each class against the others" if prior.ndim > 1 else ""
    of_classes = f", 1 joint problem of {len(prior)} classes" if jointly else of_classes
    return TrainingReport(
        sites=sites,
        description=f"{prior.shape[-1]} features{of_classes}",
        objective=sum(each.objective for each in known) if known else None,
        lower_bound=sum(each.lower_bound for each in known) if known else None,
        gap=max(each.gap for each in known) if known else None,
        iterations=max(each.iterations for each in known) if known else None,
        gaps=tuple(each.gap for each in known) if len(known) > 1 else (),
        figures={
            "frequencies": len(frequencies.rho),
            "rank": prior.size,
            "fit_error_as_drawn": frequencies.error_as_drawn,
            "fit_error": frequencies.error,
        },
    )


@dataclass(frozen=True)
class _Minimum:
    """The result of training.

    certificates: one for each problem; none if each site trained alone. weights (2 D,), of more than two classes
    (K 2 D,): None if only sites have them: each its part, or all of them the whole.
    """

    certificates: tuple[Certificate, ...]
    weights: FloatArray | None


def _minimize(federation: Federation, settings: HybridSettings, prior: FloatArray, rows: int) -> _Minimum:
    """Return the minimizer over all rows, or have each site train alone for the variant "one-shot".

    Raises FederationError if the minimizer is not reached.
    """
    if settings.variant == "one-shot":
        terms: dict[str, Any] = {"C": settings.C, "tolerance": settings.tolerance, "rows": rows}
        federation.run("train_alone", remember=True, prior=prior, **terms)
        return _Minimum((), None)
    by = _by_interior_point if settings.solver == "interior-point" else _by_cutting_planes
    trained = by(federation, settings, prior, rows)
    if short := [each for each in trained.certificates if not each.converged]:
        raise FederationError(
            f"Training did not reach the gap of {settings.tolerance:g} that noise is sized for in "
            f"{short[0].iterations} iterations; nothing is released. Raise algorithm.tolerance or "
            "algorithm.max_iterations, or lower algorithm.step_noise."
        )
    return trained


def _note(federation: Federation, settings: HybridSettings, iteration: int, found: Sequence[Certificate]) -> None:
    if settings.privacy is None:  # otherwise nothing is recorded that noise does not cover
        worst = max(found, key=lambda certificate: certificate.gap)
        federation.log_metrics(iteration=iteration, objective=worst.objective, gap=worst.gap)


def _by_interior_point(federation: Federation, settings: HybridSettings, prior: FloatArray, rows: int) -> _Minimum:
    """Train so that in the end the sites have the minimizer, and the coordinator has not.

    Raises MembershipChanged if sites left or joined before it begins: the price C/n counts the rows of these sites.
    """
    counted, problems = federation.sites, len(np.atleast_2d(prior))
    noise, is_blind = settings.step_noise_among(federation.sites), settings.masking == "committee"
    posed: dict[str, Any] = {
        "problems": problems,
        "classes": max(2, problems),
        "prior": prior,
        "price": settings.C / rows,
        "intercept": False,
        "target": 1.0 + longest_of(prior),
    }
    if is_blind:
        path: FederatedPath = BlindPath(federation, step_noise=noise, **posed)
    else:
        path = FederatedPath(federation, masking=settings.resolved_masking, **posed)
    if federation.sites != counted:
        raise MembershipChanged
    outcomes = interior_point.solve(
        path,
        problems=problems,
        dimensions=path.dimensions,
        intercept=False,
        stopping=settings.stopping,
        step_noise=0.0 if is_blind else noise,
        # With a floor training ends where the gap stands still. Behind a committee it has none: without the tolerance
        # nothing is released.
        step_noise_floor=0.0 if is_blind else settings.step_noise_floor_among(federation.sites),
        on_iteration=functools.partial(_note, federation, settings),
    )
    keep, constants = choose_points(outcomes)
    federation.run("take_best", keep=keep, constants=constants)
    return _Minimum(tuple(outcome.certificate for outcome in outcomes), None)


def _by_cutting_planes(federation: Federation, settings: HybridSettings, prior: FloatArray, rows: int) -> _Minimum:
    groups, lengths = settings.cut_groups, float(rows) * (1 + 1e-9)
    if prior.ndim > 1:
        federation.run("deal_joint_groups", remember=True, groups=groups, intercept=False)
        oracle: Oracle = JointOracle(federation, groups, rows, norm_sum=lengths)
    else:
        federation.run("deal_groups", remember=True, groups=groups)
        oracle = FederatedOracle(federation, groups, rows, norm_sum=lengths)
    (solution,) = cutting_plane.solve(
        ShiftedOracle(oracle, prior.ravel()),
        problems=1,
        dimensions=prior.size,
        groups=settings.cut_groups,
        C=settings.C / rows,
        stopping=settings.stopping,
        search=grid_search,
        on_iteration=functools.partial(_note, federation, settings),
        intercept=False,
    )
    return _Minimum((solution,), prior.ravel() + solution.w)
