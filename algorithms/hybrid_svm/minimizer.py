"""Minimizers of the objective on rows in memory: of one site, of all sites pooled, and of public rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedsvm.algorithms.data.classes import members, one_against_rest
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.fourier import paired_features
from fedsvm.algorithms.hybrid_svm.settings import HybridSettings
from fedsvm.algorithms.optimization import cutting_plane
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.cutting_plane import Line, Oracle, Points
from fedsvm.algorithms.optimization.hinge_sums import groups_of
from fedsvm.algorithms.optimization.joint_hinge import JointSums
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.solution import Solution, StoppingRule
from fedsvm.federation.arrays import FloatArray, IntArray

C_GRID = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Penalties among which the public rows choose."""

_PRIOR_FOLDS = 5

_PRIOR_TOLERANCE = 1e-6

MAX_ITERATIONS = 500

_POOLED_GROUPS = 32


def minimize(features: FloatArray, labels: FloatArray, prior: FloatArray, C: float, stopping: StoppingRule) -> Solution:
    """Return the minimum over v of 1/2 |v|^2 + C sum of hinge losses at prior + v, without intercept, on local rows.

    features (n, m), labels (n,) of +1 and -1, prior (m,).
    """
    (solution,) = solve_pooled([Problem.of(features, labels, C, prior=prior, lever=0.0)], stopping)
    return solution


def minimize_jointly(
    features: FloatArray, classes: FloatArray, prior: FloatArray, C: float, stopping: StoppingRule
) -> Solution:
    """Return the minimum for the joint hinge of K classes, over V (K m,), by cutting planes on local rows.

    features (n, m), classes (K, n) of 0 and 1, prior (K, m).
    """
    groups = min(len(features), _POOLED_GROUPS)
    members = groups_of(len(features), groups, np.random.default_rng(0))
    (solution,) = cutting_plane.solve(
        ShiftedOracle(JointSums(features, classes, members), prior.ravel()),
        problems=1,
        dimensions=prior.size,
        groups=groups,
        C=C,
        stopping=stopping,
        search=grid_search,
        on_iteration=lambda iteration, solutions: None,
        intercept=False,
    )
    return solution


@dataclass(frozen=True)
class ShiftedOracle:
    """The sums of an oracle around a prior: its losses at v are those at prior + v."""

    oracle: Oracle
    prior: FloatArray

    def cuts(self, problems: IntArray, at: Points) -> FloatArray:
        cuts = self.oracle.cuts(problems, replace(at, w=at.w + self.prior))
        cuts[..., -1] -= cuts[..., :-2] @ self.prior
        return cuts

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        return self.oracle.line(problems, replace(line, w=line.w + self.prior))


def pooled_minimizer(
    rho: FloatArray, prior: FloatArray, settings: HybridSettings, train: LabeledRows
) -> tuple[FloatArray, float]:
    """Return weights, of the prior's shape, and objective on all rows together, summed over several problems."""
    features, labels = paired_features(train.rows, rho), train.labels
    stopping, C = settings.stopping, settings.C / len(train.labels)
    if prior.ndim == 1:
        solution = minimize(features, labels, prior, C, stopping)
        return prior + solution.w, solution.objective
    against_rest = one_against_rest(labels, len(prior))
    if settings.is_joint(len(prior)):
        solution = minimize_jointly(features, members(against_rest), prior, C, stopping)
        return prior + solution.w.reshape(prior.shape), solution.objective
    problems = zip(against_rest, prior, strict=True)
    found = [minimize(features, signs, of_class, C, stopping) for signs, of_class in problems]
    return prior + np.stack([each.w for each in found]), sum(each.objective for each in found)


def public_weights(features: FloatArray, labels: FloatArray, random: np.random.Generator) -> FloatArray:
    """Return (2 D,) the model of public rows alone, with the penalty chosen by cross-validation on them."""
    dealt = random.permutation(len(labels)) % _PRIOR_FOLDS
    losses = [
        sum(_held_out_loss(features, labels, dealt == fold, penalty) for fold in range(_PRIOR_FOLDS))
        for penalty in C_GRID
    ]
    return _public_model(features, labels, C_GRID[int(np.argmin(losses))])


def _held_out_loss(features: FloatArray, labels: FloatArray, held_out: np.ndarray, penalty: float) -> float:
    if held_out.all() or not held_out.any():
        return 0.0
    weights = _public_model(features[~held_out], labels[~held_out], penalty)
    return float(np.maximum(0.0, 1.0 - labels[held_out] * (features[held_out] @ weights)).sum())


def _public_model(features: FloatArray, labels: FloatArray, penalty: float) -> FloatArray:
    nothing = np.zeros(features.shape[1])
    return minimize(features, labels, nothing, penalty, StoppingRule(_PRIOR_TOLERANCE, MAX_ITERATIONS)).w
