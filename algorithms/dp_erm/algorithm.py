"""The site half, the checks of settings, and comparison methods."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedsvm.algorithms.algorithm import Outline, PublicAlgorithm
from fedsvm.algorithms.data.classes import members, one_against_rest
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.public_rows import PubliclyScaledSite, PublicTask, each_private_model
from fedsvm.algorithms.dp_erm.model import ErmModel, at_most_one, scores_of
from fedsvm.algorithms.dp_erm.perturbation import objective_terms, output_noise
from fedsvm.algorithms.dp_erm.settings import ErmSettings
from fedsvm.algorithms.dp_erm.training import train
from fedsvm.algorithms.features.fourier import paired_features
from fedsvm.algorithms.losses import LOSSES, loss_named
from fedsvm.algorithms.optimization.loss_sums import MAX_STEPS, erm_sums, joint_erm_sums, minimum, softmax_loss
from fedsvm.algorithms.pooled import Baseline, EvaluationRows, Pooled
from fedsvm.algorithms.privacy.budget import pairs_problem
from fedsvm.algorithms.settings import shorten_value
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import AGREED, CHECKED, free, step
from fedsvm.federation.site.script import Script, repeat, stage
from fedsvm.federation.site.terms import Terms


class ErmSite(PubliclyScaledSite):
    """The site half.

    Attributes
    ----------
    points : (n, size)
        The rows of training as points of the unit ball; see `UnitBallMap`.
    """

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

        problems: the k problems that these points belong to, each a class against the others.
        """
        kind = loss_named(loss, half_width)
        return np.stack([erm_sums(self.points, self.labels[k], at, kind) for k, at in zip(problems, f, strict=True)])

    @step(
        told={
            "f": free("any point", "sums of losses or gradients at points of its choice: can isolate rows"),
        }
    )
    def joint_erm_sums(self, f: FloatArray) -> FloatArray:
        """Return (1, 1 + K d + (K d)^2): the same sums of multinomial logistic loss of K classes, at f (1, K d)."""
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
        """Yield errors for an unknown loss, and for settings that the loss, the public rows or the budget exclude."""
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
        """Yield a warning if the expected noise is longer than the weights without noise can be."""
        if not settings.is_private:
            return
        size, problems = 2 * settings.features or columns, 1 if classes == 2 else classes
        noise, (lam, scale) = output_noise(settings, size, rows, problems), objective_terms(settings, rows, problems)
        moved = noise.length if noise is not None else math.sqrt(problems) * size * (scale or 0.0) / (rows * lam)
        longest = _longest_weights(settings, lam, problems)
        if moved > longest:
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
        minimizer, objective = _minimize_locally(model, settings, rows.train, len(rows.classes))
        scores = scores_of(model.feature_map(rows.test.rows) @ minimizer.T, jointly=model.jointly)
        return Pooled(scores, objective)

    def public_baseline(self, model: ErmModel, settings: ErmSettings, rows: EvaluationRows) -> Baseline | None:
        """Return the minimizer of J on the public rows."""
        if rows.public is None:
            return None
        minimizer, _ = _minimize_locally(model, settings, rows.public, len(rows.classes))
        count, scores = len(rows.public.labels), model.feature_map(rows.test.rows) @ minimizer.T
        return Baseline("public", f"{count} public rows alone", scores_of(scores, jointly=model.jointly))


def _longest_weights(settings: ErmSettings, lam: float, problems: int) -> float:
    """Return the largest possible length of all weights without noise, from lambda/2 |f|^2 <= J(0) and lambda |f| <= k.

    Of the joint problem of K classes J(0) is log K, and the slope of the loss is at most sqrt(2).
    """
    if settings.is_joint(problems):
        return min(math.sqrt(2 * math.log(problems) / lam), math.sqrt(2) / lam)
    loss = settings.loss_function
    return math.sqrt(problems) * min(math.sqrt(2 * loss.at_zero / lam), loss.slope / lam)


def _minimize_locally(
    model: ErmModel, settings: ErmSettings, rows: LabeledRows, classes: int
) -> tuple[FloatArray, float]:
    """Return the weights (d,) or (K, d) that minimize J over local rows, by L-BFGS, and J; summed over the problems."""
    points, problems = model.feature_map(rows.rows), one_against_rest(rows.labels, classes)
    if model.jointly:
        total = functools.partial(softmax_loss, points, members(problems))
        weights, value = minimum(total, classes * points.shape[1], len(points), settings.regularisation)
        return weights.reshape(classes, -1), value
    loss = settings.loss_function

    def binary_loss(labels: FloatArray, f: FloatArray) -> tuple[float, FloatArray]:
        values, slopes, _ = loss(labels * (points @ f))
        return float(values.sum()), (slopes * labels) @ points

    totals = [functools.partial(binary_loss, labels) for labels in problems]
    minima = [minimum(total, points.shape[1], len(points), settings.regularisation) for total in totals]
    weights = np.stack([minimizer for minimizer, _ in minima])
    return weights[0] if classes == 2 else weights, sum(value for _, value in minima)
