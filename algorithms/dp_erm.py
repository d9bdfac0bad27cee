"""Private empirical risk minimisation by output and objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011).

    J(f) = (1/n) sum_i l(y_i f.x_i) + lambda/2 |f|^2,   |x_i| <= 1,   no intercept,

for logistic loss (c = 1/4), Huber's hinge of half-width h (c = 1/(2h)) or any other convex loss (`losses`), where k
bounds the loss's first derivative, which is 1 for these two, and c its second. The sites' gradients and Hessians are
summed, and the coordinator takes Newton's steps.

output     f + b, b of density exp(-epsilon |b| n lambda / 2k): one row moves the minimiser by 2k/(n lambda) at most.
objective  the minimiser of J(f) + b.f/n + Delta/2 |f|^2, with epsilon' = epsilon - 2 log(1 + c/(n lambda)), or half of
           epsilon where nothing is left of that, and Delta to make up for it; b of density exp(-epsilon' |b| / 2k).

Both hold for exact minimisers. Training goes on until the gradient is so small that the rest is far below the noise,
and for output perturbation that rest is in the sensitivity. The proof of objective perturbation has no room for it, and
its b is no point of a lattice: what it releases is what floating point makes of it.

Each of K classes is separated from the others, all in the same rounds. One row moves each of K minimisers by 2k/(n
lambda), and all together by sqrt(K) times as much: output perturbation has noise for one vector of them. Objective
perturbation has each of the K models of epsilon / K, which add up. With multiclass = "joint" the K weight vectors are
of one problem, multinomial logistic regression: its loss log sum_k exp((w_k - w_y).x) has a slope of sqrt(2) in all of
them, and one row moves them by 2 sqrt(2)/(n lambda), whatever K is. That is for output perturbation; rows of a class
that nobody named have no loss in it.

Noise protects the model against everyone who gets it, not against the coordinator, which saw exact sums, nor the sites,
which saw the points that they were taken at. Both proofs need the exact minimizer over all rows, so no site can add a
share of noise before the end. A site whose policy sets `max_epsilon` therefore refuses the run before any step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, Model, Outline, PublicAlgorithm, TrainingReport
from fedsvm.algorithms.data.classes import log_odds, members, one_against_rest
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.horizontal_task import count_rows
from fedsvm.algorithms.data.public_rows import PubliclyScaledSite, PublicTask, each_private_model
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.fourier import FourierSettings, choose_frequencies, paired_features
from fedsvm.algorithms.losses import LOSSES, Loss, loss_named
from fedsvm.algorithms.optimization.loss_sums import (
    GRADIENT_TOLERANCE,
    MAX_STEPS,
    Plan,
    erm_sums,
    joint_erm_sums,
    minimize_together,
    minimum,
    softmax_loss,
)
from fedsvm.algorithms.pooled import Baseline, EvaluationRows, Pooled
from fedsvm.algorithms.privacy.accountant import Once, Release
from fedsvm.algorithms.privacy.budget import BudgetSettings, pairs_problem
from fedsvm.algorithms.privacy.mechanisms import Noise, PrivacyParameters, noise_for, spherical
from fedsvm.algorithms.settings import Natural, Positive, doc, shorten_value
from fedsvm.algorithms.sklearn_parts import NotExportable, Steps, linear_step, sampler
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import AGREED, CHECKED, free, step
from fedsvm.federation.site.script import Script, repeat, stage
from fedsvm.federation.site.terms import Terms

Perturbation = Literal["objective", "output", "none"]


IN_FLOATING_POINT = (
    "Objective perturbation is done in float64: its noise and what it releases lie on no lattice, and the proof is of "
    f"exact minimisers, while training stops at a gradient of {GRADIENT_TOLERANCE:g}; epsilon is that of real numbers."
)

EXCESS = 0.1
"""The mean loss above that of weights of length 1 for which a result says how many rows suffice."""

_LENGTH_ROUNDING = 1e-12


@dataclass
class ErmSettings(BudgetSettings, FourierSettings):
    """The settings of a user."""

    regularisation: Annotated[
        Positive, doc("lambda of (1/n) sum of losses + lambda/2 |f|^2, without an intercept.")
    ] = 0.01
    _: KW_ONLY
    loss: Annotated[
        str, doc("Logistic regression (logistic), Huber's SVM (huber), or a loss of another package by its name.")
    ] = "logistic"
    half_width: Annotated[Positive, doc("For huber: half the width over which the hinge is rounded.")] = 0.5
    perturbation: Annotated[
        Perturbation,
        doc(
            'Where noise is added: to the objective or the output. "none" trains without noise and gives no privacy'
            " guarantee."
        ),
    ] = "objective"
    features: Annotated[Natural, doc("Number of frequencies of Fourier features; 0 trains a linear model.")] = 0
    clip_norm: Annotated[
        bool,
        doc("For linear features: scale down rows whose L2 norm exceeds that of the public rows. false refuses them."),
    ] = True

    multiclass: Annotated[
        Literal["ovr", "joint"],
        doc("Multi-class method: one class against the rest (ovr), or one joint problem (joint)."),
    ] = "ovr"

    def is_joint(self, problems: int) -> bool:
        """Return whether the weight vectors belong to one problem; for two classes there is one vector."""
        return problems > 1 and self.multiclass == "joint"

    @property
    def loss_function(self) -> Loss:
        """The loss with its width."""
        return loss_named(self.loss, self.half_width)

    @property
    def is_private(self) -> bool:
        """True if there is a privacy guarantee."""
        return self.perturbation != "none"


@dataclass(frozen=True)
class ErmModel(Model):
    """Weights (d,) as released, of points that `feature_map` makes of scaled rows; of more than two classes (K, d).

    noise: of output perturbation. jointly: whether the weights of K classes are those of one problem.
    training: it has the number of rounds only without noise, since that number depends on private rows.
    """

    feature_map: UnitBallMap
    weights: FloatArray
    noise: Noise | None = None
    training: TrainingReport | None = None
    jointly: bool = False

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values for scaled rows (n, d), (n, K) for more than two classes."""
        return scores_of(self.feature_map(rows) @ self.weights.T, jointly=self.jointly)

    def sklearn_steps(self, classes: NDArray[Any]) -> Steps:
        """Return the steps of a pipeline; see `Model`."""
        if self.jointly or not len(self.feature_map.rho):
            raise NotExportable("scikit-learn has no part for joint decision values, or for rows cut to a length")
        return [("features", sampler(self.feature_map.rho)), linear_step(self.weights, 0.0, classes)]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the file.

        The decision value of a scaled row x is (x / longest) w of a linear model, and otherwise
        [cos(rho x), sin(rho x)] / sqrt(D) w.

        Returns
        -------
        rho : (D, d)
            Frequencies; D is 0 for a linear model.
        longest : ()
            Length that rows of a linear model are divided by.
        w : (d,) or (K, d)
            Weights as released; of K > 2 classes, one row for each class.
        b : ()
            0: the model has no intercept.
        scheme : text
            "joint", if the weights of K classes are those of one problem.
        """
        feature_map = self.feature_map
        longest = np.array(feature_map.longest)
        scheme: dict[str, NDArray[Any]] = {"scheme": np.asarray("joint")} if self.jointly else {}
        return {"rho": feature_map.rho, "longest": longest, "w": self.weights, "b": np.array(0.0), **scheme}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file."""
        feature_map = UnitBallMap(arrays["rho"], float(arrays["longest"]), arrays["w"].shape[-1])
        return cls(feature_map, arrays["w"], jointly="scheme" in arrays)

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return `coef_` (P, d) for the points that `feature_map_(rows)` makes of scaled rows."""
        return {"coef_": np.atleast_2d(self.weights), "feature_map_": self.feature_map}


def scores_of(values: FloatArray, *, jointly: bool) -> FloatArray:
    """Return (n,) or (n, K) decision values from w.x; for a joint problem log odds of each class against the others."""
    return log_odds(values) if jointly else np.asarray(values)


class ErmSite(PubliclyScaledSite):
    """The site half. points: the rows, as they are trained on."""

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.points: FloatArray = np.zeros((0, 0))

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `DpErm.fit`.

        Training takes a sum at the start and one for each point that Newton's method tries. No step follows the model.
        """
        joint = terms.settings["multiclass"] == "joint"
        steps = repeat("joint_erm_sums" if joint else "erm_sums", 1, 1 + MAX_STEPS)
        return each_private_model(terms, stage("row_count", "take_rows", steps))

    @step(
        told={
            "rho": free("as many frequencies as agreed", "features of its choice, in which sums can isolate rows"),
            "longest": free("any number", "rows on another scale; longer ones are refused or clipped"),
            "clip": CHECKED,
        }
    )
    def take_rows(self, rho: FloatArray, longest: float, clip: bool) -> None:
        """Map rows to Fourier features if there are frequencies; otherwise divide them by `longest`.

        Raises StepRefused if a divided row is longer than 1, unless `clip` is set.
        """
        self.check_agreed(features=len(rho), clip_norm=clip)
        self.points = paired_features(self.rows, rho) if len(rho) else at_most_one(self.rows / longest, clip=clip)

    @step(
        told={
            "f": free("any point", "sums of losses or gradients at points of its choice: can isolate rows"),
            "loss, half_width": AGREED,
            "problems": free("numbers of problems", "only a choice of problems"),
        }
    )
    def erm_sums(self, f: FloatArray, loss: str, half_width: float, problems: Sequence[int] = (0,)) -> FloatArray:
        """Return (k, 1 + d + d^2): this site's part of the sum of losses, its gradient and its Hessian at f (k, d).

        problems: whose points these are, each a class against the others.
        """
        kind = loss_named(loss, half_width)
        return np.stack([erm_sums(self.points, self.labels[k], at, kind) for k, at in zip(problems, f, strict=True)])

    @step(
        told={
            "f": free("any point", "sums of losses or gradients at points of its choice: can isolate rows"),
        }
    )
    def joint_erm_sums(self, f: FloatArray) -> FloatArray:
        """Return (1, 1 + K d + (K d)^2): the same sums of the multinomial logistic loss of all K classes, at f (1, K
        d)."""
        return joint_erm_sums(self.points, members(self.labels), f[0])[None]


class DpErm(PublicAlgorithm[ErmSettings, ErmModel]):
    """A model of logistic, Huber's or another loss by output or objective perturbation (Chaudhuri and others 2011)."""

    name = "dp-erm"
    estimator = "PrivateErmClassifier"
    Settings, Site, Model = ErmSettings, ErmSite, ErmModel
    figures = {
        "rank": "weights of the model",
        "rows_by_objective": "sufficient by theorem 4, up to a constant, for a loss 0.1 above that of unit weights",
        "rows_by_output": "the same of output perturbation, by theorem 5",
    }
    multiclass = True

    def fit(self, federation: Federation, task: PublicTask, settings: ErmSettings) -> ErmModel:
        """Choose columns, scale and features from public rows, then train on private ones, and add noise."""
        task.prepare(federation)
        with federation.phase("train"):
            return train(federation, settings, task)

    def is_private(self, settings: ErmSettings) -> bool:
        """Return True with any perturbation."""
        return settings.is_private

    def problems(self, settings: ErmSettings, outline: Outline) -> Iterator[str]:
        """Yield what the public rows and the budget do not allow, and an unknown loss."""
        if settings.loss not in LOSSES:
            yield f"loss: must be one of {', '.join(LOSSES)}, got {shorten_value(settings.loss)}"
        if settings.multiclass == "joint" and settings.loss != "logistic":
            yield 'multiclass: "joint" needs loss = "logistic"'
        if settings.multiclass == "joint" and settings.perturbation == "objective":
            yield 'multiclass: "joint" needs perturbation = "output"; the other is proven for one weight vector'
        yield from pairs_problem(settings.features, outline.public_rows)
        yield from settings.budget_problems(outline.models, 0.0, private=settings.is_private)

    def class_problems(self, settings: ErmSettings, classes: tuple[str, ...]) -> Iterator[str]:
        """Yield an error for a joint problem of two classes."""
        if settings.multiclass == "joint" and len(classes) == 2:
            yield 'multiclass: "joint" applies to more than two classes; remove it'

    def foreseen(self, settings: ErmSettings, rows: int, columns: int, classes: int) -> Iterator[str]:
        """Yield a warning if noise exceeds the length of f: lambda/2 |f|^2 <= J(0), lambda |f| <= k; for each class.

        Of a joint problem J(0) = log K, and its loss has a slope of sqrt(2).
        """
        size, problems = 2 * settings.features or columns, 1 if classes == 2 else classes
        noise, (lam, scale) = _output_noise(settings, size, rows, problems), _objective_terms(settings, rows, problems)
        moved = noise.length if noise is not None else math.sqrt(problems) * size * (scale or 0.0) / (rows * lam)
        loss = settings.loss_function
        longest = math.sqrt(problems) * min(math.sqrt(2 * loss.at_zero / lam), loss.slope / lam)
        if settings.is_joint(problems):
            longest = min(math.sqrt(2 * math.log(classes) / lam), math.sqrt(2) / lam)
        if settings.is_private and moved > longest:
            by = "by" if noise is not None else "by up to"
            yield (
                f"Noise for epsilon {settings.epsilon:g} over {rows} private rows moves {size} weights {by} {moved:.3g}"
                f", and without it they are {longest:.3g} long at most: the model will hardly be better than a guess. "
                "Use more rows, allow a larger epsilon, raise regularisation, or learn fewer weights."
            )

    def warnings(self, model: ErmModel, settings: ErmSettings, rows: EvaluationRows, fold: int) -> list[str]:
        """Return a warning with the number of clipped rows; none for a private model, whose noise does not cover it."""
        longer = model.feature_map.longer(rows.train.rows)
        if settings.is_private or not longer:
            return []
        count = len(rows.train.rows)
        return [f"{longer} of {count} rows were longer than the longest public one, and clipped to it."]

    def train_pooled(self, model: ErmModel, settings: ErmSettings, rows: EvaluationRows) -> Pooled:
        """Return the minimizer of J on all private rows together, without noise."""
        minimiser, objective = _minimize_locally(model, settings, rows.train, len(rows.classes))
        scores = scores_of(model.feature_map(rows.test.rows) @ minimiser.T, jointly=model.jointly)
        return Pooled(scores, objective)

    def public_baseline(self, model: ErmModel, settings: ErmSettings, rows: EvaluationRows) -> Baseline | None:
        """Return the minimizer of J on the public rows."""
        if rows.public is None:
            return None
        minimiser, _ = _minimize_locally(model, settings, rows.public, len(rows.classes))
        count, scores = len(rows.public.labels), model.feature_map(rows.test.rows) @ minimiser.T
        return Baseline("public", f"{count} public rows alone", scores_of(scores, jointly=model.jointly))


def _minimize_locally(
    model: ErmModel, settings: ErmSettings, rows: LabeledRows, classes: int
) -> tuple[FloatArray, float]:
    """Return weights, (d,) or (K, d), and J of local rows, without noise, by L-BFGS; summed over several problems."""
    points, problems = model.feature_map(rows.rows), one_against_rest(rows.labels, classes)
    if model.jointly:
        of_classes = members(problems)
        total = functools.partial(softmax_loss, points, of_classes)
        weights, value = minimum(total, classes * points.shape[1], len(points), settings.regularisation)
        return weights.reshape(classes, -1), value
    loss = settings.loss_function

    def of_two(labels: FloatArray, f: FloatArray) -> tuple[float, FloatArray]:
        values, slopes, _ = loss(labels * (points @ f))
        return float(values.sum()), (slopes * labels) @ points

    totals = [functools.partial(of_two, labels) for labels in problems]
    found = [minimum(total, points.shape[1], len(points), settings.regularisation) for total in totals]
    weights = np.stack([each for each, _ in found])
    return weights[0] if classes == 2 else weights, sum(value for _, value in found)


def at_most_one(rows: FloatArray, *, clip: bool) -> FloatArray:
    """Return rows (n, d) of L2 norm at most 1. Raises StepRefused for longer ones, unless they are clipped."""
    lengths = np.linalg.norm(rows, axis=1)
    if not clip and (lengths > 1 + _LENGTH_ROUNDING).any():
        raise StepRefused(
            "the L2 norm of one of its rows or more exceeds the largest of public ones, and noise covers rows of norm "
            "1 at most; set algorithm.clip_norm = true, or more public rows apart"
        )
    return np.asarray(rows / np.maximum(1.0, lengths)[:, None])


@dataclass(frozen=True)
class UnitBallMap:
    """The map of scaled rows to points of norm at most 1; see `ErmSite.take_rows`. `size` is the dimension of
    points."""

    rho: FloatArray
    longest: float
    size: int

    @classmethod
    def from_public(cls, public: FloatArray, settings: ErmSettings, seed: int) -> UnitBallMap:
        """Return Fourier features chosen from public rows (m, d); without features, a division by the longest row."""
        if not settings.features:
            longest = float(np.linalg.norm(public, axis=1).max())
            return cls(np.zeros((0, public.shape[1])), longest or 1.0, public.shape[1])
        random, sigma = np.random.default_rng([seed, 4]), settings.sigma_of(public.shape[1])
        frequencies = choose_frequencies(public, settings.features, sigma, settings.fit_to, random)
        return cls(frequencies.rho, 1.0, 2 * settings.features)

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return (n, size) rows (n, d) as points."""
        return paired_features(rows, self.rho) if len(self.rho) else at_most_one(rows / self.longest, clip=True)

    def longer(self, rows: FloatArray) -> int:
        """Return how many rows are longer than the longest public one."""
        return 0 if len(self.rho) else int((np.linalg.norm(rows, axis=1) > self.longest).sum())


# Training.


def train(federation: Federation, settings: ErmSettings, task: PublicTask) -> ErmModel:
    """Train on the rows that the sites hold ready, and release the model.

    Raises FederationError where the budget has no room, before private rows are touched.
    """
    if settings.is_private:
        federation.journaled_random("room in the budget", lambda: task.accountant.check_budget(settings.epsilon, 0.0))
    feature_map = UnitBallMap.from_public(task.public.rows, settings, task.seed)
    before, jointly = federation.progress.round, settings.is_joint(task.problems)

    def stage() -> tuple[int, list[Plan], FloatArray]:
        nonlocal before
        count = sum(count_rows(federation).values())  # the number of private rows is public
        clip = settings.clip_norm
        federation.run("take_rows", rho=feature_map.rho, longest=feature_map.longest, clip=clip)
        if jointly:
            plans = [
                perturb_objective(settings, task.problems * feature_map.size, count, draw=federation.journaled_random)
            ]
            total = functools.partial(_summed_jointly, federation, count, task.problems)
        else:
            plans = [
                perturb_objective(settings, feature_map.size, count, task.problems, draw=federation.journaled_random)
                for _ in range(task.problems)
            ]
            total = functools.partial(_sum_at_points, federation, settings, count, task.problems)
        before = federation.progress.round
        found = np.stack(minimize_together(total, plans, count))
        return count, plans, found.reshape(task.problems, -1)

    count, plans, f = federation.until_stable(stage)
    noise = _output_noise(settings, feature_map.size, count, task.problems)
    if settings.is_private:  # before there is anything to release
        task.accountant.spend(_release(settings, plans[0], noise), federation.journaled_random)
    weights = f if noise is None else _release_weights(federation, noise, f)
    weights = weights[0] if task.classes == 2 else weights
    rounds = None if settings.is_private else federation.progress.round - before
    size = weights.size
    of_classes = f", {len(f)} problems, each class against the others" if len(f) > 1 else ""
    of_classes = f", 1 joint problem of {len(f)} classes" if jointly else of_classes
    description = f"{feature_map.size} features{of_classes}"
    figures = {"rank": size, **sufficient_rows(settings, size, task.classes)}
    training = TrainingReport(federation.sites, description, iterations=rounds, figures=figures)
    return ErmModel(feature_map, weights, noise, training, jointly)


def sufficient_rows(settings: ErmSettings, size: int, classes: int) -> dict[str, float]:
    """Return numbers of rows that suffice for a mean loss `EXCESS` above that of any weights of length 1.

    Monteleoni's slides, theorems 4 (objective perturbation) and 5 (output): of logistic regression of two classes, up
    to a factor C that the slides do not give and that is 1 here.
    """
    if not settings.is_private or settings.loss != "logistic" or classes > 2:
        return {}
    without_noise, with_noise = EXCESS**-2, size / (settings.epsilon * EXCESS)
    by_objective = max(without_noise, with_noise)
    return {
        "rows_by_objective": math.ceil(by_objective),
        "rows_by_output": math.ceil(max(by_objective, with_noise / math.sqrt(EXCESS))),
    }


def _release_weights(federation: Federation, noise: Noise, f: FloatArray) -> FloatArray:
    """Return weights (K, d) with noise, which is drawn once: a resumed run releases the same."""
    released: FloatArray = federation.journaled_random("the released weights", lambda: noise.released(f.ravel()))
    return released.reshape(f.shape)


def perturb_objective(
    settings: ErmSettings, size: int, rows: int, problems: int = 1, draw: Once = lambda purpose, draw: draw()
) -> Plan:
    """Return the objective of objective perturbation, with its b drawn, or J itself. problems: those that share
    epsilon.

    draw: draws b, which stays the same in a run that is resumed.
    """
    lam, scale = _objective_terms(settings, rows, problems)
    return Plan(lam, np.zeros(size) if scale is None else draw("b", lambda: spherical(size, scale)), scale)


def _objective_terms(settings: ErmSettings, rows: int, problems: int) -> tuple[float, float | None]:
    """Return the regularization of the objective, and the scale of b's norm; None without b."""
    c, lam, epsilon = settings.loss_function.curvature, settings.regularisation, settings.epsilon / problems
    if settings.perturbation != "objective":
        return lam, None
    left, extra = epsilon - 2 * math.log1p(c / (rows * lam)), 0.0
    if left <= 0:
        extra = c / (rows * math.expm1(epsilon / 4)) - lam
        left = epsilon / 2
    return lam + extra, 2 * settings.loss_function.slope / left


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


def _summed_jointly(federation: Federation, rows: int, classes: int, active: list[int], f: FloatArray) -> FloatArray:
    """Run one secure sum over all sites' rows, at the point (1, K d) of the joint problem of K classes."""
    size = f.shape[1]
    bound = rows * (2.0 + math.log(classes) + math.sqrt(2) * float(np.linalg.norm(f)))
    return np.asarray(federation.sum("joint_erm_sums", shape=(1, 1 + size + size**2), bound=bound, f=f))


def _output_noise(settings: ErmSettings, size: int, rows: int, problems: int = 1) -> Noise | None:
    """Return the noise of output perturbation, for the models of all problems together, or for a joint one.

    None for other perturbations. One row moves the model of each problem by the same distance at most.
    """
    if settings.perturbation != "output":
        return None
    slope = settings.loss_function.slope
    moved = 2 * slope / (rows * settings.regularisation) + 2 * GRADIENT_TOLERANCE / settings.regularisation
    together = math.sqrt(problems) * moved
    if settings.is_joint(problems):  # by its slope of sqrt(2), and the rest of the gradient is of all together
        together = (2 * math.sqrt(2) / rows + 2 * GRADIENT_TOLERANCE) / settings.regularisation
    return noise_for(PrivacyParameters("spherical", settings.epsilon), problems * size, together, gap=0.0)


def _release(settings: ErmSettings, plan: Plan, noise: Noise | None) -> Release:
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
