"""Logistic regression: the choice of masking, comparison methods and attacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedsvm.algorithms.algorithm import Premises, TrainingReport
from fedsvm.algorithms.data.classes import problems_of
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.features.mapped_rows import map_rows
from fedsvm.algorithms.leakage import WholeRunLeakage
from fedsvm.algorithms.least_squares import committee_leakage, moments_leakage
from fedsvm.algorithms.linear_model import PanModel, with_calibration
from fedsvm.algorithms.logistic_regression.settings import LogisticSettings
from fedsvm.algorithms.logistic_regression.site import BLIND_STEPS, LogisticSite
from fedsvm.algorithms.logistic_regression.systems import newton_systems
from fedsvm.algorithms.logistic_regression.training import LogisticProgress, NewtonTraining
from fedsvm.algorithms.mapped_site import MappedAlgorithm
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.committee import check_committee
from fedsvm.algorithms.optimization.masking_choice import MaskedRounds, choice, obstacle
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.remarks import Remark, opened_exactly
from fedsvm.federation.federation import Federation

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack

_ROUNDS = 8
"""Typical number of rounds of a training."""

NEWTON_SUMS = (
    "the loss of all rows, its gradient and its Hessian at every point: at the first, the second moments of all rows "
    "in their features, and of few possible records which are there"
)


class LogisticRegression(MappedAlgorithm[LogisticSettings, PanModel]):
    """Logistic regression in common features, by Newton's method on secure sums (GLORE; Wu and others 2012)."""

    name = "logistic-regression"
    estimator = "FederatedLogisticRegression"
    Settings, Site, Model = LogisticSettings, LogisticSite, PanModel
    multiclass = True

    def resolve_settings(
        self, settings: LogisticSettings, premises: Premises
    ) -> tuple[LogisticSettings, tuple[Remark, ...]]:
        """Resolve `masking = "auto"`: a committee unless it is predicted to take more than twice as long."""
        if settings.masking != "auto":
            return settings, ()
        rounds = None
        if (m := settings.expected_features(premises.rows)) is not None:
            problems = problems_of(premises.classes, "ovr")
            ones, noises, dithers = np.ones(3), np.zeros(problems), np.zeros((problems, 2))
            d = m + int(settings.intercept)
            systems = newton_systems(d, ones, noises, dithers, 1.0, intercept=settings.intercept)
            numbers = problems * (systems[0].own + 1)
            count = _ROUNDS * premises.models
            rounds = MaskedRounds(premises.sites, tuple(systems), numbers, 0.0, count, premises.conditions)
        is_taken, sentence = choice("none", rounds, obstacle(premises.sites, premises.min_sites, premises.conditions))
        return replace(settings, masking="committee" if is_taken else "none"), (Remark("masking", sentence),)

    def fit(self, federation: Federation, task: HorizontalTask, settings: LogisticSettings) -> PanModel:
        """Map the rows, then take Newton's steps; if sites are lost, the others continue from the best points."""
        if settings.masking == "committee":
            check_committee(federation)
        features = federation.until_stable(lambda: map_rows(federation, settings, task.prepare(federation), task.seed))
        weighting = settings.weighting_of(task)
        start = np.zeros(features.map.dimensions + int(settings.intercept))
        newton = NewtonTraining(
            federation, settings, weighting, [LogisticProgress(start, start) for _ in range(task.problems)]
        )
        with federation.phase("train"):
            federation.until_stable(newton.stage)
        features = features.with_lengths(newton.mean_square)
        shown, shows = ("blind_steps", BLIND_STEPS) if settings.masking == "committee" else ("newton_sums", NEWTON_SUMS)
        federation.disclose("coordinator", shown, shows, start.shape)
        points = np.stack([problem.best for problem in newton.problems])
        points = points if settings.intercept else np.column_stack([points, np.zeros(len(points))])
        named = (Remark(name, sentence) for name, sentence in features.remarks.items())
        report = TrainingReport(
            federation.sites,
            features.description,
            iterations=newton.iterations,
            converged=newton.converged,
            figures=features.figures,
            remarks=(*named, *opened_exactly(task.statistics, shows)),
        )
        model = PanModel.of_weights(features.map, points, report, classes=len(task.classes))
        return with_calibration(federation, task, model, settings)

    def train_pooled(self, model: PanModel, settings: LogisticSettings, rows: EvaluationRows) -> Pooled:
        """Train scikit-learn's logistic regression on all rows together."""
        from sklearn.linear_model import LogisticRegression as Reference

        features, test = model.features(rows.train.rows), model.features(rows.test.rows)
        reference = Reference(
            C=1 / settings.regularisation,
            fit_intercept=settings.intercept,
            tol=1e-10,
            max_iter=1000,
            solver="newton-cg",
        )
        labels, classes = rows.train.labels, len(rows.classes)
        factors = settings.pooled_factors(labels, rows.weights, rows.classes)
        scores = libsvm.against_others(lambda signs: reference.fit(features, signs, factors), labels, classes, test)
        return Pooled(scores)

    def whole_run(self, settings: LogisticSettings) -> WholeRunLeakage:
        """Return what the second moments of the first round give away; behind a committee, what the points may."""
        return committee_leakage(settings) if settings.masking == "committee" else moments_leakage(settings)

    def attacks(self, settings: LogisticSettings) -> list[Attack]:
        """Return the attacks on landmarks, on the first round's moments, and on the points."""
        from fedsvm.algorithms.attacks.cluster_rounds import ClusterRounds
        from fedsvm.algorithms.attacks.landmark_copies import LandmarkCopies
        from fedsvm.algorithms.attacks.logistic_steps import LogisticSteps
        from fedsvm.algorithms.attacks.second_moments import SecondMoments

        steps = LogisticSteps(settings.step_noise, settings.regularisation)
        return [LandmarkCopies(), ClusterRounds(), SecondMoments(), steps]

    def file_attacks(self, settings: LogisticSettings) -> Sequence[Attack]:
        """Return the attacks on landmarks and digits of the scale, and on the weights of equal classes."""
        from fedsvm.algorithms.attacks.weight_equations import WeightEquations

        attacks = list(super().file_attacks(settings))
        if settings.class_weight is None:
            attacks.append(WeightEquations("logistic", settings.regularisation))
        return attacks
