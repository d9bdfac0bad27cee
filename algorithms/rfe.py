"""Columns by recursive feature elimination, certified step by step, and a PAN-SVM on the best (Guyon and others 2002).

A linear SVM is trained, the column with the smallest weight is removed, and so on until one is left; columns are ranked
in the reverse order of their removal. With more than two classes, each is separated from the rest, in the same rounds,
and a column's weight is the length of its weights in all these models, as in scikit-learn. The SVM is that of all rows
together: sites do not rank or vote. Each step is trained until it is certain that the optimum removes the same column
(`selection.elimination`), and begins with the cuts of the one before. So elimination costs fewer rounds than new
trainings, and gives the order that LIBSVM gives on pooled rows.

The PAN-SVM dissertation (Lu 2016, chapter 5) takes the weights of equation 5.1, of a linear SVM, from one with the RBF
kernel. Here they are a linear SVM's, on the columns themselves, or what a column is worth to the kernel SVM, by one of
the scores of `selection.kernel_scores`; then nothing is certified, and each step trains anew.

Disclosures. The coordinator learns class means and variances of all columns and, by the interior point, the
weights of each step and what its rounds show (`optimization.path_sums`); by cutting planes every cut, which is a sum of
rows in their columns as they are, without any map between. A cut of one row is the row, and so is a difference of two
cuts that count one; the result counts both. Fewer groups show less and take more rounds. The sites learn the columns
and the point of each step.

References
----------
I. Guyon, J. Weston, S. Barnhill and V. Vapnik, "Gene selection for cancer classification using support vector
machines", Machine Learning 46, 2002.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Literal

import numpy as np

from fedsvm.algorithms.algorithm import Outline
from fedsvm.algorithms.data.classes import members, one_against_rest
from fedsvm.algorithms.features.choice import choose_features
from fedsvm.algorithms.features.mapped_rows import landmark_script
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.linear_svm import train_linear
from fedsvm.algorithms.optimization.path_sums import newton_path
from fedsvm.algorithms.optimization.solution import Solution
from fedsvm.algorithms.pooled import EvaluationRows
from fedsvm.algorithms.ranking import RankingStep
from fedsvm.algorithms.selection.elimination import TOLERANCES, Remove, is_certain, lowest, removed_count
from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.algorithms.selection.kernel_scores import expansion_scores, input_scores, kernel_scores
from fedsvm.algorithms.selection.model import (
    Choice,
    SelectedModel,
    SelectionAlgorithm,
    SelectionInput,
    SelectionSettings,
)
from fedsvm.algorithms.selection.moments import class_moments
from fedsvm.algorithms.selection.site import MOMENTS, SelectionSite, has_curve
from fedsvm.algorithms.selection.training import ShrinkingSvm, SubsetTraining, strengths
from fedsvm.algorithms.settings import doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.site.script import Script, repeat, seq, stage
from fedsvm.federation.site.terms import Terms


@dataclass
class RfeSettings(SelectionSettings):
    """The settings of a user."""

    _: KW_ONLY
    remove: Annotated[
        Remove, doc("Columns to remove per step: one, half, a share, or auto (half while more than 64 are left).")
    ] = "auto"
    weights: Annotated[
        Literal["linear", "expansion", "kernel", "input"],
        doc("Score of columns: weights of a linear SVM (linear), or one of three scores of PAN-SVM itself."),
    ] = "linear"
    gamma_rule: Annotated[
        Literal["per-column", "fixed"],
        doc(
            "For non-linear weights: keep gamma times the number of columns constant (per-column), or keep gamma "
            "constant as in the paper (fixed)."
        ),
    ] = "per-column"


class KernelScoreSite(SelectionSite):
    """The site half."""

    @classmethod
    def choosing(cls, terms: Terms) -> Script:
        """Return the script for the agreed weights; PAN-SVM's interior point computes all but linear ones."""
        weights = terms.settings["weights"]
        if weights == "linear":
            return super().choosing(terms)
        scored = {"kernel": ["dual_kernels"], "input": ["dual_columns"]}.get(weights, [])
        trained = stage("keep_columns", "receive_map", newton_path(terms, "released"), *scored)
        curve = super().choosing(terms) if has_curve(terms) else seq()
        return seq(stage(*MOMENTS), stage(landmark_script(terms)), repeat(trained), curve)

    def check_gamma(self, gamma: float) -> None:
        """Raise OrderRefused for another gamma than was agreed on; other weights than linear ones change it."""
        if self.terms.settings.get("weights") == "linear":
            super().check_gamma(gamma)


class Rfe(SelectionAlgorithm[RfeSettings]):
    """PAN-SVM on columns that recursive feature elimination keeps, each step certified (Guyon and others 2002)."""

    name = "rfe"
    estimator = "RfeSVC"
    Settings, Site = RfeSettings, KernelScoreSite
    multiclass = True

    def choose(self, selecting: SelectionInput, settings: RfeSettings) -> Choice:
        """Train and remove, until one column is left; constant ones go first, and without training."""
        if settings.weights != "linear":
            return _by_kernel(selecting, settings)
        federation, names = selecting.federation, selecting.names
        columns, classes = selecting.prepared.columns, selecting.classes
        moments = federation.until_stable(lambda: class_moments(federation, columns, classes))
        training = SubsetTraining(federation, moments, settings)
        removed: list[int] = np.flatnonzero(moments.constant).tolist()
        svm = ShrinkingSvm(training, np.flatnonzero(~moments.constant), labels=training.problems)
        scores = np.zeros(len(names))
        steps = []
        while len(svm.columns) > 1:
            before, count = federation.progress.round, removed_count(settings.remove, len(svm.columns))

            def certain(found: Sequence[Solution], count: int = count) -> bool:
                return is_certain(found, lowest(strengths(found), count))

            solutions = svm.train(TOLERANCES[settings.select_solver], certain)
            gone = svm.columns[lowest(strengths(solutions), count)]
            scores[svm.columns] = strengths(solutions)
            rounds, told = federation.progress.round - before, tuple(names[column] for column in gone)
            gap = max(solution.gap for solution in solutions)
            steps.append(RankingStep(told, "score", certain(solutions), gap, rounds, len(federation.sites)))
            federation.log_metrics(columns=len(svm.columns), step_gap=gap)
            removed += gone.tolist()
            svm.drop(gone)
        order = np.array([*svm.columns, *reversed(removed)])
        ranks = np.arange(1, len(order) + 1)
        return Choice(order, scores, "|w| when it was removed", ranks, training, steps=tuple(steps))

    def class_problems(self, settings: RfeSettings, classes: tuple[str, ...]) -> Iterator[str]:
        """Yield the problems of PAN-SVM, and scores of one kernel SVM."""
        yield from super().class_problems(settings, classes)
        if len(classes) > 2 and settings.weights != "linear":
            yield f'weights: "{settings.weights}" needs two classes, got {len(classes)}; set "linear"'

    def problems(self, settings: RfeSettings, outline: Outline) -> Iterator[str]:
        """Yield weights that the features, or the solver, do not have."""
        yield from super().problems(settings, outline)
        if settings.weights != "linear" and settings.features != "landmarks":
            yield f'weights: "{settings.weights}" needs features = "landmarks", got "{settings.features}"'
        if settings.weights in ("kernel", "input") and settings.solver == "cutting-plane":
            yield f'weights: "{settings.weights}" needs solver = "interior-point", whose dual variables sites keep'
        if settings.weights != "linear" and settings.release == "sites":
            yield (
                f'release: weights = "{settings.weights}" shows the coordinator a model at each step; '
                'have release = "everyone", or weights = "linear"'
            )

    def pooled_order(self, model: SelectedModel, settings: RfeSettings, rows: EvaluationRows) -> IntArray | None:
        """Return the order by LIBSVM's weights on all rows together, with the same number of columns removed per
        step."""
        if settings.weights != "linear":
            return None
        train, problems = rows.train.rows, one_against_rest(rows.train.labels, len(rows.classes))
        moments = ClassMoments.of(train, members(problems))
        removed, left = np.flatnonzero(moments.constant).tolist(), np.flatnonzero(~moments.constant)
        while len(left) > 1:
            w = [libsvm.linear(train[:, left], labels, settings.select_penalty).coef_[0] for labels in problems]
            places = lowest(np.linalg.norm(w, axis=0), removed_count(settings.remove, len(left)))
            removed += left[places].tolist()
            left = np.delete(left, places)
        return np.array([*left, *reversed(removed)])


SCORES = {
    "expansion": "share of |w|^2 by the weights at the landmarks, when it was removed",
    "kernel": "share of |w|^2 by the dual variables, when it was removed",
    "input": "weight of equation 5.1, squared, when it was removed",
}


def _by_kernel(selecting: SelectionInput, settings: RfeSettings) -> Choice:
    """Rank by the scores of PAN-SVM, trained again in each step, on landmarks without the removed columns."""
    federation, names, prepared = selecting.federation, selecting.names, selecting.prepared
    moments = federation.until_stable(lambda: class_moments(federation, prepared.columns))
    features = federation.until_stable(lambda: choose_features(federation, settings, prepared, selecting.seed)).map
    if not isinstance(features, NystromMap):
        raise AssertionError("problems() lets landmarks through alone")
    told = replace(settings, solver="interior-point", tolerance=settings.select_tolerance, release="everyone")
    gamma = features.kernel.gamma * (prepared.columns if settings.gamma_rule == "per-column" else 1)
    removed: list[int] = np.flatnonzero(moments.constant).tolist()
    left, scores, steps = np.flatnonzero(~moments.constant), np.zeros(len(names)), []
    while len(left) > 1:
        before, count = federation.progress.round, removed_count(settings.remove, len(left))
        each = gamma / len(left) if settings.gamma_rule == "per-column" else gamma
        kernel = replace(features.kernel, gamma=each)
        part = NystromMap.span(kernel, features.landmarks[:, left], settings.rank_tolerance)
        values, gap = federation.until_stable(functools.partial(_worth, selecting, told, part, left))
        gone = left[np.lexsort((-left, values))[:count]]
        scores[left] = values
        rounds = federation.progress.round - before
        step = RankingStep(tuple(names[column] for column in gone), "score", None, gap, rounds, len(federation.sites))
        steps.append(step)
        federation.log_metrics(columns=len(left), step_gap=gap)
        removed += gone.tolist()
        left = np.setdiff1d(left, gone)
    order = np.array([*left, *reversed(removed)])
    training = SubsetTraining(federation, moments, settings)
    ranks = np.arange(1, len(order) + 1)
    return Choice(order, scores, SCORES[settings.weights], ranks, training, steps=tuple(steps))


def _worth(
    selecting: SelectionInput, settings: RfeSettings, part: NystromMap, columns: IntArray
) -> tuple[FloatArray, float]:
    """Return the scores (m,) of the columns that are left, and the gap of the model. Raise MembershipChanged."""
    federation = selecting.federation
    federation.run("keep_columns", remember=True, columns=columns)
    federation.run("receive_map", remember=True, **part.to_fields())
    trained = train_linear(federation, settings, part.dimensions, weighting=selecting.weighting)
    if trained.weights is None:
        raise AssertionError("weights that are released are there")
    w, (certificate,) = trained.weights[0, :-1], trained.certificates
    if settings.weights == "expansion":
        scores = expansion_scores(part, w)
    elif settings.weights == "kernel":
        scores = kernel_scores(federation, part, math.inf)
    else:
        scores = input_scores(federation, len(columns), math.inf)
    return scores, certificate.gap
