"""The noise of output and objective perturbation, and the rows that suffice for it. The package has the formulas."""

from __future__ import annotations

import math

import numpy as np

from fedsvm.algorithms.dp_erm.settings import ErmSettings
from fedsvm.algorithms.optimization.loss_sums import GRADIENT_TOLERANCE, Plan
from fedsvm.algorithms.privacy.accountant import Once, Release
from fedsvm.algorithms.privacy.mechanisms import Noise, PrivacyParameters, noise_for, spherical

IN_FLOATING_POINT = (
    "Objective perturbation is done in float64: its noise and what it releases lie on no lattice, and the proof is of "
    f"exact minimisers, while training stops at a gradient of {GRADIENT_TOLERANCE:g}; epsilon is that of real numbers."
)

EXCESS = 0.1
"""Excess of the mean loss over that of any weights of length 1, for which a result gives sufficient numbers of rows."""


def sufficient_rows(settings: ErmSettings, size: int, classes: int) -> dict[str, float]:
    """Return numbers of rows that suffice for a mean loss `EXCESS` above that of any weights of length 1.

    Theorems 4 (objective perturbation) and 5 (output perturbation) of Monteleoni's slides, for logistic regression with
    two classes. The slides leave a constant factor open, which is 1 here. Empty for other losses, for more classes, and
    without noise.
    """
    if not settings.is_private or settings.loss != "logistic" or classes > 2:
        return {}
    without_noise, with_noise = EXCESS**-2, size / (settings.epsilon * EXCESS)
    by_objective = max(without_noise, with_noise)
    return {
        "rows_by_objective": math.ceil(by_objective),
        "rows_by_output": math.ceil(max(by_objective, with_noise / math.sqrt(EXCESS))),
    }


def perturb_objective(
    settings: ErmSettings, size: int, rows: int, problems: int = 1, draw: Once = lambda purpose, draw: draw()
) -> Plan:
    """Return the objective to minimize: with b for objective perturbation, and J itself for the others.

    Parameters
    ----------
    size : int
        Number of weights.
    rows : int
        Number n of private rows.
    problems : int, default 1
        Number of problems that share epsilon.
    draw : callable, optional
        Draws b once for a run, so that a resumed run has the same; by default anew in every call.
    """
    lam, scale = objective_terms(settings, rows, problems)
    return Plan(lam, np.zeros(size) if scale is None else draw("b", lambda: spherical(size, scale)), scale)


def objective_terms(settings: ErmSettings, rows: int, problems: int) -> tuple[float, float | None]:
    """Return lambda + Delta, and the scale 2k / epsilon' of b's norm; (lambda, None) without objective perturbation."""
    c, lam, epsilon = settings.loss_function.curvature, settings.regularisation, settings.epsilon / problems
    if settings.perturbation != "objective":
        return lam, None
    noise_epsilon, delta = epsilon - 2 * math.log1p(c / (rows * lam)), 0.0
    if noise_epsilon <= 0:
        noise_epsilon = epsilon / 2
        delta = c / (rows * math.expm1(epsilon / 4)) - lam
    return lam + delta, 2 * settings.loss_function.slope / noise_epsilon


def output_noise(settings: ErmSettings, size: int, rows: int, problems: int = 1) -> Noise | None:
    """Return the noise of output perturbation for the vector of all problems' weights; None for other perturbations.

    One row moves the minimizer by twice the slope of the loss over n lambda. Each of two neighboring data sets may stop
    `GRADIENT_TOLERANCE` / lambda short of its minimizer.
    """
    if settings.perturbation != "output":
        return None
    slope = math.sqrt(2) if settings.is_joint(problems) else settings.loss_function.slope
    moved = 2 * slope / (rows * settings.regularisation) + 2 * GRADIENT_TOLERANCE / settings.regularisation
    # The joint problem has one gradient for all classes; of separate problems one row moves each.
    together = moved if settings.is_joint(problems) else math.sqrt(problems) * moved
    return noise_for(PrivacyParameters("spherical", settings.epsilon), problems * size, together, gap=0.0)


def release_of(settings: ErmSettings, plan: Plan, noise: Noise | None) -> Release:
    """Return the accountant's entry for a model. noise: of output perturbation; otherwise `plan` has the scale of b."""
    return Release(
        what="weights of the model",
        epsilon=settings.epsilon,
        delta=noise.delta if noise is not None else 0.0,
        mechanism=f"{settings.perturbation} perturbation",
        sensitivity=noise.sensitivity if noise is not None else None,
        noise_scale=noise.scale if noise is not None else plan.scale or 0.0,
        protects_against=("everyone who gets the model", "not the coordinator and the sites, which saw it trained"),
        drawn_by="the coordinator",
        lattice=noise.step if noise is not None else None,
        remarks=() if noise is not None else (IN_FLOATING_POINT,),
    )
