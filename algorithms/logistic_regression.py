"""Logistic regression in common features by Newton's method on secure sums, without privacy noise.

    min over v = (w, b) of  sum_i log(1 + exp(-y_i v.z_i)) + lambda/2 |w|^2,   z_i = (f_i, 1),

is scikit-learn's with C = 1 / lambda. A round opens, at a point v, the loss, its gradient and its Hessian, which are
d (d + 1)/2 + d + 1 numbers, and the coordinator takes Newton's step, half of it where the objective has not fallen: six
to ten rounds from 0. Training stops when the next step promises less than `tolerance` of the objective. `dp-erm` is the
same with noise, for models that are released.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from algorithms.attacks.cluster_rounds import ClusterRounds
from algorithms.attacks.contract import Attack
from algorithms.attacks.landmark_copies import LandmarkCopies
from algorithms.attacks.second_moments import SecondMoments
from algorithms.calibration import CalibratedMappedSite, ThresholdSettings
from algorithms.contract import EvaluationRows, HorizontalAlgorithm, Outline, Pooled, TrainingReport
from algorithms.data.horizontal import HorizontalTask
from algorithms.features.choice import FeatureSettings
from algorithms.features.mapped_rows import map_rows
from algorithms.least_squares import with_ones
from algorithms.optimisation.weighting import ClassWeightSettings, Factors, WeightedSite, Weighting, row_prices
from algorithms.pan_svm import PanModel, with_calibration
from algorithms.remarks import Remark
from algorithms.settings import Count, Positive, Tolerance, doc
from federation.arrays import FloatArray
from federation.federation import Federation
from federation.site.program import step
from protocols.analysis.views import Coalition

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
    """What a user decides."""

    regularisation: Annotated[Positive, doc("lambda of sum of losses + lambda/2 |w|^2.")] = 1.0
    intercept: Annotated[bool, doc("Whether the decision value has a constant term.")] = True
    tolerance: Annotated[
        Tolerance, doc("Share of the objective that Newton's next step may promise when training stops.")
    ] = 1e-9
    max_iterations: Annotated[Count, doc("Rounds after which training stops short of its tolerance.")] = 100


def newton_terms(
    rows: FloatArray, labels: FloatArray, point: FloatArray, prices: FloatArray | float = 1.0
) -> tuple[float, FloatArray, FloatArray]:
    """The loss of rows Z (n, d) with labels (n,) at v (d,), its gradient (d,) and its Hessian (d, d).

    prices (n,): by which each row's loss is multiplied, or one number of all.
    """
    margins = labels * (rows @ point)
    chance = 1 / (1 + np.exp(np.clip(margins, -_MAX_EXPONENT, _MAX_EXPONENT)))
    hessian = (rows * (prices * chance * (1 - chance))[:, None]).T @ rows
    return float((prices * np.logaddexp(0.0, -margins)).sum()), -(prices * chance * labels) @ rows, hessian


class LogisticSite(CalibratedMappedSite, WeightedSite):
    """The site half."""

    @step
    def newton_sums(
        self, points: FloatArray, scales: FloatArray, intercept: bool, factors: Sequence[float] = (1.0, 1.0)
    ) -> FloatArray:
        """(K, 1 + d + d (d + 1)/2): loss, gradient and Hessian's upper triangle at points (K, d), over scales (3,).

        factors: of the losses of the negative and the positive class.
        """
        z, found = with_ones(self.features, intercept=intercept), []
        for labels, point in zip(self.labels, points, strict=True):
            loss, gradient, hessian = newton_terms(z, labels, point, row_prices(1.0, labels, factors, self.weights))
            triangle = hessian[np.triu_indices(len(point))]
            found.append(np.concatenate([[loss / scales[0]], gradient / scales[1], triangle / scales[2]]))
        return np.stack(found)


@dataclass
class _Newton:
    """Where training stands: the point (d,), the best so far with its objective, and how many rounds it took."""

    federation: Federation
    settings: LogisticSettings
    weighting: Weighting
    point: FloatArray
    iterations: int = 0
    converged: bool = False
    objective: float = math.inf
    factors: Factors = field(default_factory=Factors)

    @property
    def penalties(self) -> FloatArray:
        """(d,) lambda of each weight; 0 of the intercept."""
        found = np.full(len(self.point), self.settings.regularisation)
        if self.settings.intercept:
            found[-1] = 0.0
        return found

    def stage(self) -> None:
        """Take Newton's steps until one promises too little. Over other rows it goes on from where it stands."""
        squares, count = self.federation.sum("squared_norms", shape=(2,), bound=math.inf)
        rows = max(1.0, round(float(count)))
        squares = (max(0.0, float(squares)) + rows) * _ROOM
        self.factors = Factors.agreed(self.federation, self.weighting)
        best, step_ = self.point, np.zeros(len(self.point))
        self.objective, self.converged = math.inf, False
        while self.iterations < self.settings.max_iterations:
            loss, gradient, hessian = self._sums(best + step_, rows, squares)
            self.iterations += 1
            point = best + step_
            objective = loss + 0.5 * float(self.penalties @ point**2)
            if objective > self.objective:
                step_ = step_ / 2
                continue
            best, self.point, self.objective = point, point, objective
            self.federation.log_metrics(iteration=self.iterations, objective=objective)
            slope = gradient + self.penalties * point
            step_ = np.asarray(-np.linalg.solve(hessian + np.diag(self.penalties), slope))
            if -0.5 * float(slope @ step_) <= self.settings.tolerance * objective:
                self.converged = True
                return

    def _sums(self, point: FloatArray, rows: float, squares: float) -> tuple[float, FloatArray, FloatArray]:
        """Loss, gradient and Hessian at a point, by one secure sum whose parts are scaled to at most 1."""
        d, lengths = len(point), math.sqrt(rows * squares)
        scales = np.array([rows + float(np.linalg.norm(point)) * lengths, lengths, squares]) * _ROOM
        scales *= self.factors.largest
        shape = (1, 1 + d + d * (d + 1) // 2)
        intercept, by_class = self.settings.intercept, self.factors.by_class
        weighted: dict[str, Any] = {} if by_class == (1.0, 1.0) else {"factors": list(by_class)}
        (total,) = self.federation.sum(
            "newton_sums", shape=shape, bound=1.0, points=point[None], scales=scales, intercept=intercept, **weighted
        )
        hessian = np.zeros((d, d))
        hessian[np.triu_indices(d)] = total[1 + d :] * scales[2]
        return float(total[0] * scales[0]), total[1 : 1 + d] * scales[1], hessian + np.triu(hessian, 1).T


class LogisticRegression(HorizontalAlgorithm[LogisticSettings, PanModel]):
    """Logistic regression in common features, by Newton's method on secure sums (GLORE; Wu and others 2012)."""

    name = "logistic-regression"
    estimator = "FederatedLogisticRegression"
    phases = ("setup", "landmarks", "train")
    Settings, Site, Model = LogisticSettings, LogisticSite, PanModel
    figures = {
        "landmarks": "points that stand for the rows",
        "frequencies": "of random Fourier features",
        "rank": "features of a row",
        "records_exposed": "landmarks that are a single row's copy",
    }

    def fit(self, federation: Federation, task: HorizontalTask, settings: LogisticSettings) -> PanModel:
        """Map the rows, then Newton's steps; sites lost meanwhile have the others go on from the point."""
        features = federation.until_stable(lambda: map_rows(federation, settings, task.prepare(federation), task.seed))
        weighting = settings.weighting(task.classes, by_row=task.weighted)
        newton = _Newton(federation, settings, weighting, np.zeros(features.map.dimensions + int(settings.intercept)))
        with federation.phase("train"):
            federation.until_stable(newton.stage)
        federation.disclose("coordinator", "newton_sums", NEWTON_SUMS, newton.point.shape)
        w, b = (newton.point[:-1], float(newton.point[-1])) if settings.intercept else (newton.point, 0.0)
        report = TrainingReport(
            federation.sites,
            features.description,
            iterations=newton.iterations,
            converged=newton.converged,
            figures=features.figures,
            remarks=tuple(Remark(name, sentence) for name, sentence in features.remarks.items()),
        )
        return with_calibration(federation, task, PanModel(features.map, w, b, report), settings)

    def problems(self, settings: LogisticSettings, outline: Outline) -> Iterator[str]:
        """Settings of features that these are not, and kernels that they do not have."""
        yield from settings.feature_problems()
        yield from settings.threshold_problems(calibrated=outline.calibrated)

    def takes_weights(self, settings: LogisticSettings) -> bool:
        """Always."""
        return True

    def class_problems(self, settings: LogisticSettings, classes: tuple[str, str]) -> Iterator[str]:
        """Weights of classes that there are not."""
        yield from settings.class_problems(classes)

    def can_calibrate(self, settings: LogisticSettings) -> bool:
        """By the weights, which all may know."""
        return True

    def pooled(self, model: PanModel, settings: LogisticSettings, rows: EvaluationRows) -> Pooled:
        """scikit-learn's on all rows together."""
        from sklearn.linear_model import LogisticRegression as Reference

        features, (_, labels) = model.features(rows.train.rows), rows.train
        reference = Reference(
            C=1 / settings.regularisation,
            fit_intercept=settings.intercept,
            tol=1e-10,
            max_iter=1000,
            solver="newton-cg",
        )
        factors = settings.pooled_factors(labels, rows.weights, rows.classes)
        return Pooled(reference.fit(features, labels, factors).decision_function(model.features(rows.test.rows)))

    def attacks(self, settings: LogisticSettings) -> list[Attack]:
        """On landmarks, and on the first round's moments."""
        return [LandmarkCopies(), ClusterRounds(), SecondMoments()]

    def remarks(self, settings: LogisticSettings, coalition: Coalition) -> list[str]:
        """What is known of landmarks."""
        return settings.landmark_remarks(coalition)
