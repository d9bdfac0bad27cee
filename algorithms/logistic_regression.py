"""Logistic regression in common features by Newton's method on secure sums, without privacy noise.

    min over v = (w, b) of  sum_i log(1 + exp(-y_i v.z_i)) + lambda/2 |w|^2,   z_i = (f_i, 1),

is scikit-learn's with C = 1 / lambda. A round opens, at a point v, the loss, its gradient and its Hessian, which are
d (d + 1)/2 + d + 1 numbers, and the coordinator takes Newton's step, half of it where the objective has not fallen: six
to ten rounds from 0. Training stops when the next step promises less than `tolerance` of the objective. Of more than
two classes each is told from the others, and all of these problems are in the same rounds, which each leaves when it is
done. `dp-erm` is the same with noise, for models that are released.

What is disclosed. The coordinator learns every point and what is summed there, of all rows; the sites the points. At
v = 0 the Hessian is a quarter of the second moments, and the gradient half of their products with the labels: what
`least-squares` shows, and with the same consequence (`attacks.second_moments`).

References
----------
Y. Wu, X. Jiang, J. Kim and L. Ohno-Machado, "Grid binary logistic regression (GLORE)", JAMIA 19, 2012, which adds up
the same sums without hiding the addends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from fedsvm.algorithms.algorithm import TrainingReport
from fedsvm.algorithms.attacks.attack import Attack
from fedsvm.algorithms.attacks.cluster_rounds import ClusterRounds
from fedsvm.algorithms.attacks.landmark_copies import LandmarkCopies
from fedsvm.algorithms.attacks.second_moments import SecondMoments
from fedsvm.algorithms.calibration import ThresholdSettings, calibration
from fedsvm.algorithms.data.horizontal import HorizontalTask, each_model, preparation
from fedsvm.algorithms.features.choice import FeatureSettings
from fedsvm.algorithms.features.mapped_rows import map_rows, mapping
from fedsvm.algorithms.leakage import WholeRunLeakage
from fedsvm.algorithms.least_squares import moments_leakage, with_ones
from fedsvm.algorithms.linear_model import PanModel, with_calibration
from fedsvm.algorithms.mapped_site import MappedAlgorithm, MappedSite
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.weighting import (
    ClassWeightSettings,
    Factors,
    Weighting,
    agreement_on_factors,
)
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.remarks import Remark, opened_exactly
from fedsvm.algorithms.settings import Count, Positive, Tolerance, doc
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import AGREED, CHECKED, free, step
from fedsvm.federation.site.script import Script, repeat, stage
from fedsvm.federation.site.terms import Terms

_ROOM = 1 + 1e-9
"""Bounds on sums, with room for what rounding does to them."""

_MAX_EXPONENT = 500.0
"""Of margins in exponentials, which float64 holds."""

NEWTON_SUMS = (
    "the loss of all rows, its gradient and its Hessian at every point: at the first, the second moments of all rows "
    "in their features, and of few possible records which are there"
)


@dataclass
class LogisticSettings(FeatureSettings, ClassWeightSettings, ThresholdSettings):
    """The settings of a user."""

    regularisation: Annotated[Positive, doc("lambda of sum of losses + lambda/2 |w|^2.")] = 1.0
    intercept: Annotated[bool, doc("Add a constant term to the decision value.")] = True
    tolerance: Annotated[
        Tolerance, doc("Share of the objective that Newton's next step may promise when training stops.")
    ] = 1e-9
    max_iterations: Annotated[Count, doc("Maximum number of rounds, even if the tolerance is not reached.")] = 100


def newton_terms(
    rows: FloatArray, labels: FloatArray, point: FloatArray, prices: FloatArray | float = 1.0
) -> tuple[float, FloatArray, FloatArray]:
    """Return the loss of rows Z (n, d) with labels (n,) at v (d,), its gradient (d,) and its Hessian (d, d).

    prices (n,): by which each row's loss is multiplied, or one number of all.
    """
    margins = labels * (rows @ point)
    chance = 1 / (1 + np.exp(np.clip(margins, -_MAX_EXPONENT, _MAX_EXPONENT)))
    hessian = (rows * (prices * chance * (1 - chance))[:, None]).T @ rows
    return float((prices * np.logaddexp(0.0, -margins)).sum()), -(prices * chance * labels) @ rows, hessian


class LogisticSite(MappedSite):
    """The site half."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `LogisticRegression.fit`."""
        steps = repeat("newton_sums", 0, terms.settings["max_iterations"])
        trained = stage("squared_norms", agreement_on_factors(terms), steps)
        return each_model(terms, stage(preparation(terms), mapping(terms)), trained, calibration(terms))

    @step(
        told={
            "points": free("any point", "sums of losses or gradients at points of its choice, which can isolate rows"),
            "scales": free("three numbers", "nothing; the sums in another unit"),
            "intercept": AGREED,
            "problems": free("numbers of problems", "nothing beyond a choice of which problems are summed"),
            "factors": CHECKED,
        }
    )
    def newton_sums(
        self,
        points: FloatArray,
        scales: FloatArray,
        intercept: bool,
        problems: Sequence[int] = (0,),
        factors: Sequence[float] = (),
    ) -> FloatArray:
        """Return the (k, 1 + d + d (d + 1)/2) loss, gradient and Hessian's upper triangle at points (k, d), over scales
        (3,).

        problems: whose points these are; of more than two classes, each against the others. factors: of the losses of
        the classes; all 1 without. Raises OrderRefused for others than were agreed on.
        """
        self.row_weights.check_factors(factors)
        z, prices, found = (
            with_ones(self.mapped.features, intercept=intercept),
            self.row_weights.prices(1.0, factors),
            [],
        )
        for labels, point in zip(self.labels[list(problems)], points, strict=True):
            loss, gradient, hessian = newton_terms(z, labels, point, prices)
            triangle = hessian[np.triu_indices(len(point))]
            found.append(np.concatenate([[loss / scales[0]], gradient / scales[1], triangle / scales[2]]))
        return np.stack(found)


@dataclass
class _LogisticProgress:
    """One problem: the best point (d,) so far, its objective, and the step that is tried from it."""

    best: FloatArray
    step: FloatArray
    objective: float = math.inf
    converged: bool = False

    @property
    def point(self) -> FloatArray:
        """(d,) what is tried."""
        return self.best + self.step

    def restart(self) -> None:
        """Keep the point after rows changed, and request its value again."""
        self.step, self.objective, self.converged = np.zeros(len(self.best)), math.inf, False

    def take(
        self, loss: float, gradient: FloatArray, hessian: FloatArray, penalties: FloatArray, tolerance: float
    ) -> bool:
        """Move to the tried point, or try half the step. Return whether it was better."""
        point = self.point
        objective = loss + 0.5 * float(penalties @ point**2)
        if objective > self.objective:
            self.step = self.step / 2
            return False
        self.best, self.objective = point, objective
        slope = gradient + penalties * point
        self.step = np.asarray(-np.linalg.solve(hessian + np.diag(penalties), slope))
        self.converged = -0.5 * float(slope @ self.step) <= tolerance * objective
        return True


@dataclass
class _Newton:
    """The state of training: a trail for each problem, and the number of rounds."""

    federation: Federation
    settings: LogisticSettings
    weighting: Weighting
    trails: list[_LogisticProgress]
    iterations: int = 0
    factors: Factors = field(default_factory=Factors)
    mean_square: float = 0.0

    @property
    def penalties(self) -> FloatArray:
        """(d,) lambda of each weight; 0 of the intercept."""
        found = np.full(len(self.trails[0].best), self.settings.regularisation)
        if self.settings.intercept:
            found[-1] = 0.0
        return found

    @property
    def converged(self) -> bool:
        """True if every problem has converged."""
        return all(trail.converged for trail in self.trails)

    def stage(self) -> None:
        """Take Newton's steps until they promise too little. Over other rows it goes on from where it stands."""
        squares, count = self.federation.sum("squared_norms", shape=(2,), bound=math.inf)
        rows = max(1.0, round(float(count)))
        self.mean_square = max(0.0, float(squares)) / rows
        squares = (max(0.0, float(squares)) + rows) * _ROOM
        self.factors = Factors.agreed(self.federation, self.weighting, max(2, len(self.trails)))
        for trail in self.trails:
            trail.restart()
        while self.iterations < self.settings.max_iterations and not self.converged:
            active = [k for k, trail in enumerate(self.trails) if not trail.converged]
            sums = self._sums(active, rows, squares)
            self.iterations += 1
            better = [
                self.trails[k].take(*terms, self.penalties, self.settings.tolerance)
                for k, terms in zip(active, sums, strict=True)
            ]
            if any(better):
                objective = sum(trail.objective for trail in self.trails)
                self.federation.log_metrics(iteration=self.iterations, objective=objective)

    def _sums(self, active: list[int], rows: float, squares: float) -> list[tuple[float, FloatArray, FloatArray]]:
        """Return loss, gradient and Hessian at the tried points, by one secure sum whose parts are scaled to at
        most 1."""
        points = np.stack([self.trails[k].point for k in active])
        d, lengths = points.shape[1], math.sqrt(rows * squares)
        longest = max(float(np.linalg.norm(point)) for point in points)
        scales = np.array([rows + longest * lengths, lengths, squares]) * _ROOM * self.factors.largest
        told: dict[str, Any] = {"problems": active} if len(self.trails) > 1 else {}
        totals = self.federation.sum(
            "newton_sums",
            shape=(len(active), 1 + d + d * (d + 1) // 2),
            bound=1.0,
            points=points,
            scales=scales,
            intercept=self.settings.intercept,
            **told,
            **self.factors.told,
        )
        found = []
        for total in totals:
            hessian = np.zeros((d, d))
            hessian[np.triu_indices(d)] = total[1 + d :] * scales[2]
            symmetric = hessian + np.triu(hessian, 1).T
            found.append((float(total[0] * scales[0]), total[1 : 1 + d] * scales[1], symmetric))
        return found


class LogisticRegression(MappedAlgorithm[LogisticSettings, PanModel]):
    """Logistic regression in common features, by Newton's method on secure sums (GLORE; Wu and others 2012)."""

    name = "logistic-regression"
    estimator = "FederatedLogisticRegression"
    Settings, Site, Model = LogisticSettings, LogisticSite, PanModel
    multiclass = True

    def fit(self, federation: Federation, task: HorizontalTask, settings: LogisticSettings) -> PanModel:
        """Map the rows, then Newton's steps; sites lost meanwhile have the others go on from the point."""
        features = federation.until_stable(lambda: map_rows(federation, settings, task.prepare(federation), task.seed))
        weighting = settings.weighting_of(task)
        start = np.zeros(features.map.dimensions + int(settings.intercept))
        newton = _Newton(
            federation, settings, weighting, [_LogisticProgress(start, start) for _ in range(task.problems)]
        )
        with federation.phase("train"):
            federation.until_stable(newton.stage)
        features = features.with_lengths(newton.mean_square)
        federation.disclose("coordinator", "newton_sums", NEWTON_SUMS, start.shape)
        found = np.stack([trail.best for trail in newton.trails])
        found = found if settings.intercept else np.column_stack([found, np.zeros(len(found))])
        named = (Remark(name, sentence) for name, sentence in features.remarks.items())
        report = TrainingReport(
            federation.sites,
            features.description,
            iterations=newton.iterations,
            converged=newton.converged,
            figures=features.figures,
            remarks=(*named, *opened_exactly(task.statistics, NEWTON_SUMS)),
        )
        model = PanModel.of_weights(features.map, found, report, classes=len(task.classes))
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
        """Return what the first round's second moments give away."""
        return moments_leakage(settings)

    def attacks(self, settings: LogisticSettings) -> list[Attack]:
        """Return the attacks on landmarks, and on the first round's moments."""
        return [LandmarkCopies(), ClusterRounds(), SecondMoments()]
