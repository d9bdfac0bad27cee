"""Training over the sites by Newton's method, and the release of the model."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from fedsvm.algorithms.algorithm import TrainingReport
from fedsvm.algorithms.data.horizontal_task import count_rows
from fedsvm.algorithms.data.public_rows import PublicTask
from fedsvm.algorithms.dp_erm.model import ErmModel, UnitBallMap
from fedsvm.algorithms.dp_erm.perturbation import output_noise, perturb_objective, release_of, sufficient_rows
from fedsvm.algorithms.dp_erm.settings import ErmSettings
from fedsvm.algorithms.optimization.loss_sums import Plan, Total, minimize_together
from fedsvm.algorithms.privacy.mechanisms import Noise
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation


def train(federation: Federation, settings: ErmSettings, task: PublicTask) -> ErmModel:
    """Train on the rows that the sites hold ready, and release the model.

    Raises FederationError if the budget has no room, before private rows are touched.
    """
    if settings.is_private:
        federation.journaled_random("room in the budget", lambda: task.accountant.check_budget(settings.epsilon, 0.0))
    feature_map = UnitBallMap.from_public(task.public.rows, settings, task.seed)
    before = federation.progress.round

    def stage() -> tuple[int, list[Plan], FloatArray]:
        nonlocal before
        count = sum(count_rows(federation).values())  # the number of private rows is public
        rho, longest = feature_map.rho, feature_map.longest
        federation.run("take_rows", rho=rho, longest=longest, clip=settings.clip_norm)
        plans, total = _objectives(federation, settings, feature_map.size, count, task.problems)
        before = federation.progress.round
        minimizers = np.stack(minimize_together(total, plans, count))
        return count, plans, minimizers.reshape(task.problems, -1)

    count, plans, f = federation.until_stable(stage)
    noise = output_noise(settings, feature_map.size, count, task.problems)
    if settings.is_private:  # before there is anything to release
        task.accountant.spend(release_of(settings, plans[0], noise), federation.journaled_random)
    weights = f if noise is None else _release_weights(federation, noise, f)
    weights = weights[0] if task.classes == 2 else weights
    jointly = settings.is_joint(task.problems)
    training = TrainingReport(
        federation.sites,
        _describe(feature_map.size, len(f), jointly=jointly),
        iterations=None if settings.is_private else federation.progress.round - before,
        figures={"rank": weights.size, **sufficient_rows(settings, weights.size, task.classes)},
    )
    return ErmModel(feature_map, weights, noise, training, jointly)


def _objectives(
    federation: Federation, settings: ErmSettings, size: int, rows: int, problems: int
) -> tuple[list[Plan], Total]:
    """Return the objectives to minimize, one for each problem or a joint one, and their sums over all sites."""
    draw = federation.journaled_random
    if settings.is_joint(problems):
        total = functools.partial(_sum_jointly, federation, rows, problems)
        return [perturb_objective(settings, problems * size, rows, draw=draw)], total
    plans = [perturb_objective(settings, size, rows, problems, draw=draw) for _ in range(problems)]
    return plans, functools.partial(_sum_at_points, federation, settings, rows, problems)


def _describe(size: int, problems: int, *, jointly: bool) -> str:
    """Return the size of a model in a phrase."""
    if jointly:
        return f"{size} features, 1 joint problem of {problems} classes"
    of_classes = f", {problems} problems, each class against the others" if problems > 1 else ""
    return f"{size} features{of_classes}"


def _release_weights(federation: Federation, noise: Noise, f: FloatArray) -> FloatArray:
    """Return weights (K, d) with noise, which is drawn once: a resumed run releases the same ones."""
    released: FloatArray = federation.journaled_random("the released weights", lambda: noise.released(f.ravel()))
    return released.reshape(f.shape)


def _sum_at_points(
    federation: Federation, settings: ErmSettings, rows: int, problems: int, active: list[int], f: FloatArray
) -> FloatArray:
    """Run one secure sum over all sites' rows, at points (k, d) of the unsolved problems."""
    loss = settings.loss_function
    size, told = f.shape[1], {"problems": active} if problems > 1 else {}
    length = max(float(np.linalg.norm(each)) for each in f)
    bound = rows * (max(2.0, abs(loss.at_zero) + loss.slope) + loss.slope * length + loss.curvature)
    kind: dict[str, Any] = {"loss": settings.loss, "half_width": settings.half_width, **told}
    return np.asarray(federation.sum("erm_sums", shape=(len(f), 1 + size + size**2), bound=bound, f=f, **kind))


def _sum_jointly(federation: Federation, rows: int, classes: int, active: list[int], f: FloatArray) -> FloatArray:
    """Run one secure sum over all sites' rows, at the point (1, K d) of the joint problem of K classes."""
    size = f.shape[1]
    bound = rows * (2.0 + math.log(classes) + math.sqrt(2) * float(np.linalg.norm(f)))
    return np.asarray(federation.sum("joint_erm_sums", shape=(1, 1 + size + size**2), bound=bound, f=f))
