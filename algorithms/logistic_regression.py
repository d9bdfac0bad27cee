"""Logistic regression in common features by Newton's method on secure sums, without privacy noise.

    min over v = (w, b) of  sum_i log(1 + exp(-y_i v.z_i)) + lambda/2 |w|^2,   z_i = (f_i, 1),

is scikit-learn's with C = 1 / lambda. A round opens, at a point v, the loss, its gradient and its Hessian, which are
d (d + 1)/2 + d + 1 numbers, and the coordinator takes Newton's step, half of it where the objective has not fallen: six
to ten rounds from 0. Training stops when the next step promises less than `tolerance` of the objective. Of more than
two classes each is told from the others, and all of these problems are in the same rounds, which each leaves when it is
done. `dp-erm` is the same with noise, for models that are released.

Disclosures. The coordinator learns every point and what is summed there, of all rows; the sites the points. At
v = 0 the Hessian is a quarter of the second moments, and the gradient half of their products with the labels: what
`least-squares` shows, and with the same consequence (`attacks.second_moments`).

With `masking = "committee"` the coordinator solves each system behind the masks of two sites, and no party has both
(`protocols.blind_system`). It learns Newton's step and the loss, each with noise of both sites. The step's noise is on
the right-hand side of its equation, and costs about `step_noise` squared of what the step before promised. The loss has
noise of a share of the objective; a step is halved only if the objective rose by more. Sites learn the points, as
without masks.

References
----------
Y. Wu, X. Jiang, J. Kim and L. Ohno-Machado, "Grid binary logistic regression (GLORE)", JAMIA 19, 2012, which adds up
the same sums without hiding the addends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedsvm.algorithms.algorithm import Premises, TrainingReport
from fedsvm.algorithms.calibration import ThresholdSettings, calibration
from fedsvm.algorithms.data.classes import problems_of
from fedsvm.algorithms.data.horizontal import each_model, preparation
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.features.choice import FeatureSettings
from fedsvm.algorithms.features.mapped_rows import map_rows, mapping
from fedsvm.algorithms.leakage import WholeRunLeakage
from fedsvm.algorithms.least_squares import committee_leakage, moments_leakage, with_ones
from fedsvm.algorithms.linear_model import PanModel, with_calibration
from fedsvm.algorithms.mapped_site import MappedAlgorithm, MappedSite
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.committee import (
    LEAN,
    BlindSystemSettings,
    check_committee,
    contribute,
    dither_size,
    solve_with_committee,
)
from fedsvm.algorithms.optimization.masking_choice import MaskedRounds, choice, obstacle
from fedsvm.algorithms.optimization.weighting import (
    ClassWeightSettings,
    Factors,
    Weighting,
    agreement_on_factors,
)
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.remarks import Remark, opened_exactly
from fedsvm.algorithms.settings import Count, Portion, Positive, Tolerance, doc
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import AGREED, CHECKED, free, step
from fedsvm.federation.site.script import Script, repeat, stage
from fedsvm.federation.site.terms import Terms
from fedsvm.protocols.blind_parameters import STRETCH, BlindSystem, OpenedSums
from fedsvm.protocols.blind_system import BlindSolution

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack

_ROOM = 1 + 1e-9
"""Bounds on sums, with room for what rounding does to them."""

_MAX_EXPONENT = 500.0
"""Of margins in exponentials, which float64 holds."""

_LEAST_OBJECTIVE = 1e-6
"""The least objective that noise is sized by, as a share of the largest."""

_LOSS_NOISE = 1e-3
"""The largest noise of a member on a loss, as a share of the objective before."""

_ROUNDS = 8
"""Of a training, about."""

_SPREAD = 32.0
"""No normal number of 53 bits is larger, by a factor of three."""

_SMALLEST = 2.0**-30
"""The least scale of right-hand sides, over that of the matrix, so that solutions are not too large for the check."""

_MOST_PROMISED = 0.5 * (STRETCH * (1 + 2.0**-10)) ** 2
"""Of what a step promises behind a mask, by the largest factor of its right-hand side."""

BLIND_STEPS = (
    "at every point Newton's step and the loss of all rows, each with noise, and Newton's system behind the secret "
    "matrices of two sites"
)

NEWTON_SUMS = (
    "the loss of all rows, its gradient and its Hessian at every point: at the first, the second moments of all rows "
    "in their features, and of few possible records which are there"
)


@dataclass
class LogisticSettings(FeatureSettings, ClassWeightSettings, ThresholdSettings, BlindSystemSettings):
    """The settings of a user."""

    regularisation: Annotated[Positive, doc("lambda of sum of losses + lambda/2 |w|^2.")] = 1.0
    intercept: Annotated[bool, doc("Add a constant term to the decision value.")] = True
    tolerance: Annotated[
        Tolerance, doc("Share of the objective that Newton's next step may promise when training stops.")
    ] = 1e-9
    max_iterations: Annotated[Count, doc("Maximum number of rounds, even if the tolerance is not reached.")] = 100
    step_noise: Annotated[
        Portion,
        doc("Relative size of the noise on steps behind a committee. It hides rows from whoever knows the points."),
    ] = 0.1


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
        round_ = "blind_steps" if terms.settings["masking"] == "committee" else "newton_sums"
        steps = repeat(round_, 0, terms.settings["max_iterations"])
        trained = stage("squared_norms", agreement_on_factors(terms), steps)
        return each_model(terms, stage(preparation(terms), mapping(terms)), trained, calibration(terms))

    @step(
        told={
            "points": free("any point", "sums of losses or gradients at points of its choice: can isolate rows"),
            "scales": free("three numbers", "nothing; the sums in another unit"),
            "intercept": AGREED,
            "problems": free("numbers of problems", "only a choice of problems"),
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
        return self._newton_sums(points, scales, problems, factors, intercept=intercept)

    def _newton_sums(
        self,
        points: FloatArray,
        scales: FloatArray,
        problems: Sequence[int],
        factors: Sequence[float],
        *,
        intercept: bool,
    ) -> FloatArray:
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

    @step(
        shown=BLIND_STEPS,
        told={
            "points": free("any point", "Newton's steps, and losses with noise, at points of its choice"),
            "scales": free("three numbers", "nothing; the sums in another unit"),
            "noises": free("any numbers", "losses without noise"),
            "dithers": free("any numbers", "steps without noise"),
            "intercept, regularisation": AGREED,
            "problems": free("numbers of problems", "only a choice of problems"),
            "factors": CHECKED,
        },
    )
    def blind_steps(
        self,
        points: FloatArray,
        scales: FloatArray,
        noises: FloatArray,
        dithers: FloatArray,
        intercept: bool,
        regularisation: float,
        problems: Sequence[int] = (0,),
        factors: Sequence[float] = (),
    ) -> None:
        """Take part in solving Newton's systems at points (k, d), and in adding up the losses there.

        noises (k,): the largest of a member on a loss. dithers (k, 2): the deviation of noise on the right-hand sides,
        of w and of the intercept. Others: as in `newton_sums`. Raises OrderRefused for other factors than were agreed
        on.
        """
        sums = self._newton_sums(points, scales, problems, factors, intercept=intercept)
        d = points.shape[1]
        pulls = penalties_of(d, regularisation, intercept=intercept) * points / scales[1] / len(self.channel.sites)
        entries = [
            np.concatenate([total[1 + d :], -(total[1 : 1 + d] + pull), total[:1]])
            for total, pull in zip(sums, pulls, strict=True)
        ]
        contribute(self, newton_systems(d, scales, noises, dithers, regularisation, intercept=intercept), entries)


def penalties_of(d: int, regularisation: float, *, intercept: bool) -> FloatArray:
    """Return (d,) lambda of each weight; 0 of the intercept."""
    found = np.full(d, regularisation)
    if intercept:
        found[-1] = 0.0
    return found


def newton_systems(
    d: int, scales: FloatArray, noises: FloatArray, dithers: FloatArray, regularisation: float, *, intercept: bool
) -> list[BlindSystem]:
    """Return the public parameters of each problem's system of Newton's equation, and of the loss opened with it."""
    return [
        BlindSystem(
            d,
            problems=1,
            scale=1.0,
            penalty=regularisation / scales[2],
            free=int(intercept),
            dither=of_w / scales[1],
            free_dither=of_intercept / scales[1],
            sums=OpenedSums(noises=(noise / scales[0],)),
        )
        for noise, (of_w, of_intercept) in zip(noises.tolist(), dithers.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class _Tried:
    """A tried point: its objective, to within `error`, Newton's step (d,) from there and the most that it promises."""

    objective: float
    step: FloatArray
    promise: float
    error: float = 0.0


@dataclass
class _LogisticProgress:
    """One problem: the best point (d,) so far, its objective, and the step that is tried from it."""

    best: FloatArray
    step: FloatArray
    objective: float = math.inf
    error: float = 0.0
    promise: float = math.inf
    converged: bool = False

    @property
    def point(self) -> FloatArray:
        """(d,) what is tried."""
        return self.best + self.step

    def restart(self) -> None:
        """Keep the point after rows changed, and request its value again."""
        self.step, self.objective, self.promise, self.converged = np.zeros(len(self.best)), math.inf, math.inf, False

    def take(self, tried: _Tried, tolerance: float) -> bool:
        """Move to the tried point, or try half the step. Return whether it was better."""
        if tried.objective - tried.error > self.objective + self.error:
            self.step = self.step / 2
            return False
        self.best, self.objective, self.error = self.point, tried.objective, tried.error
        self.step, self.promise = tried.step, tried.promise
        self.converged = tried.promise <= tolerance * tried.objective
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
    def converged(self) -> bool:
        """True if every problem has converged."""
        return all(trail.converged for trail in self.trails)

    def stage(self) -> None:
        """Take Newton's steps until they promise too little. Over other rows it continues from its current point."""
        squares, count = self.federation.sum("squared_norms", shape=(2,), bound=math.inf)
        rows = max(1.0, round(float(count)))
        self.mean_square = max(0.0, float(squares)) / rows
        squares = (max(0.0, float(squares)) + rows) * _ROOM
        self.factors = Factors.agreed(self.federation, self.weighting, max(2, len(self.trails)))
        for trail in self.trails:
            trail.restart()
        while self.iterations < self.settings.max_iterations and not self.converged:
            active = [k for k, trail in enumerate(self.trails) if not trail.converged]
            tried = self._try(active, rows, squares)
            self.iterations += 1
            better = [self.trails[k].take(each, self.settings.tolerance) for k, each in zip(active, tried, strict=True)]
            if any(better):
                objective = sum(trail.objective for trail in self.trails)
                self.federation.log_metrics(iteration=self.iterations, objective=objective)

    def _try(self, active: list[int], rows: float, squares: float) -> list[_Tried]:
        """Try the points of some problems, in one round whose parts are scaled to at most 1."""
        points, settings = np.stack([self.trails[k].point for k in active]), self.settings
        lengths = math.sqrt(rows * squares)
        longest = max(float(np.linalg.norm(point)) for point in points)
        scales = np.array([rows + longest * lengths, lengths, squares]) * _ROOM * self.factors.largest
        told: dict[str, Any] = {"problems": active} if len(self.trails) > 1 else {}
        told |= {"points": points, "intercept": settings.intercept, **self.factors.told}
        if settings.masking == "committee":
            scales += settings.regularisation * np.array([0.0, longest, 1.0])
            most = rows * self.factors.largest * math.log(2)
            return self._solve_blindly([self.trails[k] for k in active], most, scales, told)
        return self._open(points, scales, told)

    def _open(self, points: FloatArray, scales: FloatArray, told: dict[str, Any]) -> list[_Tried]:
        """Open loss, gradient and Hessian at points (k, d) by one secure sum, and solve."""
        count, d = points.shape
        shape = (count, 1 + d + d * (d + 1) // 2)
        totals = self.federation.sum("newton_sums", shape=shape, bound=1.0, scales=scales, **told)
        penalties = penalties_of(d, self.settings.regularisation, intercept=self.settings.intercept)
        found = []
        for total, point in zip(totals, points, strict=True):
            hessian = np.zeros((d, d))
            hessian[np.triu_indices(d)] = total[1 + d :] * scales[2]
            symmetric = hessian + np.triu(hessian, 1).T
            objective = float(total[0] * scales[0]) + 0.5 * float(penalties @ point**2)
            slope = total[1 : 1 + d] * scales[1] + penalties * point
            step = np.asarray(-np.linalg.solve(symmetric + np.diag(penalties), slope))
            found.append(_Tried(objective, step, -0.5 * float(slope @ step)))
        return found

    def _solve_blindly(
        self, trails: Sequence[_LogisticProgress], most: float, scales: FloatArray, told: dict[str, Any]
    ) -> list[_Tried]:
        """Solve for the steps from the tried points behind a committee.

        most: no objective at a best point exceeds it. Changes the scale of right-hand sides in `scales`.
        """
        settings, d = self.settings, len(trails[0].best)
        # noise on the loss may take an objective below 0
        objectives = np.array([min(max(trail.objective, _LEAST_OBJECTIVE * most), most) for trail in trails])
        promises = np.array([min(trail.promise / STRETCH**2, most) for trail in trails])
        of_w = dither_size(settings.step_noise, promises, d, settings.regularisation)
        of_intercept = of_w * np.minimum(1.0, np.sqrt(objectives / (LEAN * settings.regularisation)))
        scales[1] = max(scales[1], _SPREAD * float(of_w.max()), _SMALLEST * float(scales[2]))
        noises, dithers = _LOSS_NOISE * objectives, np.column_stack([of_w, of_intercept])
        penalties = penalties_of(d, settings.regularisation, intercept=settings.intercept)
        systems = newton_systems(d, scales, noises, dithers, settings.regularisation, intercept=settings.intercept)
        seen = solve_with_committee(
            self.federation,
            "blind_steps",
            systems,
            _numbers_of,
            scales=scales,
            noises=noises,
            dithers=dithers,
            regularisation=settings.regularisation,
            **told,
        )
        found = []
        for trail, noise, numbers in zip(trails, noises.tolist(), seen, strict=True):
            objective = float(numbers[-1] * scales[0]) + 0.5 * float(penalties @ trail.point**2)
            promise = _MOST_PROMISED * float(numbers[-2] * scales[1] ** 2 / scales[2])
            found.append(_Tried(objective, numbers[:d] * scales[1] / scales[2], promise, error=2 * noise))
        return found


def _numbers_of(solved: Sequence[BlindSolution]) -> FloatArray:
    """Return of each solution, in rows, the step, what it promises behind the mask, and the loss."""
    return np.stack([np.hstack([each.found[0], each.decrements, each.numbers]) for each in solved])


class LogisticRegression(MappedAlgorithm[LogisticSettings, PanModel]):
    """Logistic regression in common features, by Newton's method on secure sums (GLORE; Wu and others 2012)."""

    name = "logistic-regression"
    estimator = "FederatedLogisticRegression"
    Settings, Site, Model = LogisticSettings, LogisticSite, PanModel
    multiclass = True

    def resolve_settings(
        self, settings: LogisticSettings, premises: Premises
    ) -> tuple[LogisticSettings, tuple[Remark, ...]]:
        """Resolve `masking = "auto"`."""
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
        """Map the rows, then take Newton's steps; if sites are lost, the others continue from the point."""
        if settings.masking == "committee":
            check_committee(federation)
        features = federation.until_stable(lambda: map_rows(federation, settings, task.prepare(federation), task.seed))
        weighting = settings.weighting_of(task)
        start = np.zeros(features.map.dimensions + int(settings.intercept))
        newton = _Newton(
            federation, settings, weighting, [_LogisticProgress(start, start) for _ in range(task.problems)]
        )
        with federation.phase("train"):
            federation.until_stable(newton.stage)
        features = features.with_lengths(newton.mean_square)
        shown, shows = ("blind_steps", BLIND_STEPS) if settings.masking == "committee" else ("newton_sums", NEWTON_SUMS)
        federation.disclose("coordinator", shown, shows, start.shape)
        found = np.stack([trail.best for trail in newton.trails])
        found = found if settings.intercept else np.column_stack([found, np.zeros(len(found))])
        named = (Remark(name, sentence) for name, sentence in features.remarks.items())
        report = TrainingReport(
            federation.sites,
            features.description,
            iterations=newton.iterations,
            converged=newton.converged,
            figures=features.figures,
            remarks=(*named, *opened_exactly(task.statistics, shows)),
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
        """Return what the first round's second moments give away; behind a committee, what the points may."""
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
