"""Columns by recursive feature elimination, certified step by step, and a PAN-SVM on the best (Guyon and others 2002).

A linear SVM is trained, the column with the smallest weight is removed, and so on until one is left; columns are ranked
in the reverse order of their removal. The SVM is the one of all rows together: sites rank nothing, and vote on nothing.
Each step is trained until it is certain that the optimum has the same column removed (`selection.elimination`), and
begins with the cuts of the one before: so elimination costs fewer rounds than training anew, and gives the order that
LIBSVM gives on pooled rows.

The PAN-SVM dissertation (Lu 2016, chapter 5) takes the weights of equation 5.1, of a linear SVM, from one with the RBF
kernel. Here they are a linear SVM's, on the columns themselves.

What is disclosed. The coordinator learns class means and variances of all columns, and every cut: sums of rows in their
columns as they are, without any map between. A cut of one row is the row, and so is a difference of two cuts that count
one; the result counts both. Fewer groups show less and take more rounds. The sites learn the columns and the point of
each step.

References
----------
I. Guyon, J. Weston, S. Barnhill and V. Vapnik, "Gene selection for cancer classification using support vector
machines", Machine Learning 46, 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import numpy as np

from algorithms.contract import EvaluationRows
from algorithms.optimisation import libsvm
from algorithms.optimisation.solution import Solution
from algorithms.ranking import RankingStep
from algorithms.selection.elimination import TOLERANCES, Remove, is_certain, lowest, removed_count
from algorithms.selection.filters import ClassMoments, class_members
from algorithms.selection.model import (
    Choice,
    SelectedModel,
    Selecting,
    SelectionAlgorithm,
    SelectionSettings,
    class_moments,
)
from algorithms.selection.training import ShrinkingSvm, SubsetTraining, strengths
from algorithms.settings import doc
from federation.arrays import IntArray


@dataclass
class RfeSettings(SelectionSettings):
    """What a user decides."""

    _: KW_ONLY
    remove: Annotated[
        Remove, doc("Columns that go in a step: one, half, a share, or auto: half while there are more than 64.")
    ] = "auto"


class Rfe(SelectionAlgorithm[RfeSettings]):
    """PAN-SVM on columns that recursive feature elimination keeps, each step certified (Guyon and others 2002)."""

    name = "rfe"
    estimator = "RfeSVC"
    Settings = RfeSettings

    def choose(self, selecting: Selecting, settings: RfeSettings) -> Choice:
        """Train and remove, until one column is left; constant ones go first, and without training."""
        federation, names = selecting.federation, selecting.names
        columns, classes = selecting.prepared.columns, selecting.classes
        moments = federation.until_stable(lambda: class_moments(federation, columns, classes))
        training = SubsetTraining.of(federation, moments, settings)
        removed: list[int] = np.flatnonzero(moments.constant).tolist()
        svm = ShrinkingSvm(training, np.flatnonzero(~moments.constant), labels=classes if classes > 2 else 1)
        scores = np.zeros(len(names))
        steps = []
        while len(svm.columns) > 1:
            before, count = federation.progress.round, removed_count(settings.remove, len(svm.columns))

            def certain(found: Sequence[Solution], count: int = count) -> bool:
                return is_certain(found, lowest(strengths(found), count))

            solutions = svm.trained(TOLERANCES[settings.select_solver], certain)
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

    def of_many_classes(self, settings: RfeSettings) -> bool:
        """By the lengths of a column's weights in the models of each class against the rest, as scikit-learn has it."""
        return settings.size not in ("best", "one-se")

    def pooled_order(self, model: SelectedModel, settings: RfeSettings, rows: EvaluationRows) -> IntArray:
        """LIBSVM's weights of all rows together, with as many columns removed in each step."""
        train = rows.train
        moments = ClassMoments.of(train.rows, class_members(train.labels[None, :]))
        removed, left = np.flatnonzero(moments.constant).tolist(), np.flatnonzero(~moments.constant)
        while len(left) > 1:
            w = libsvm.linear(train.rows[:, left], train.labels, settings.select_penalty).coef_[0]
            places = lowest(np.abs(w), removed_count(settings.remove, len(left)))
            removed += left[places].tolist()
            left = np.delete(left, places)
        return np.array([*left, *reversed(removed)])
