"""Columns by filters, and by what accuracy loses without them, and a PAN-SVM on the best: PPFSIFW (Lu 2016, chapter 6).

One secure sum gives the class moments, and with them every filter. Columns that pass all of them are the candidates.
From these one column is removed at a time: the one without which the accuracy of an inner cross-validation is highest,
all candidates and folds trained in the same rounds. The candidates are ranked in the reverse order of their removal;
all other columns share the last rank.

Corrections to the dissertation. Its three filters (equations 6.1 to 6.3) are, on columns of one scale, one and the same
but for the weights of the classes: two that have p-values vote here, Welch's t and F, and Fisher's ratio by rank, not
worse than the number that F passes. `min_fisher` and `min_scatter_ratio` take equations 6.1 and 6.3 with thresholds of
the user, as printed, in the place of F and of the rank. Its comparison with the accuracy of all candidates (step 4)
changes nothing: both branches remove the same column. It does not mention equal accuracies. Here the held-out hinge
loss decides them, then the lowest |t|, then the higher column is removed. While there are too many candidates, the half
with the lower |weight| in one SVM is removed. The SVMs are linear by default, and as
printed with `wrapper = "pan-svm"` (see `voted_wrappers`).

Disclosures. The class moments; of every candidate and fold the weights (or what cuts show), and how many held-out
rows are right, with their loss; of PAN-SVMs the landmarks.

References
----------
Y. Lu, "Privacy-preserving SVM" (the PAN-SVM dissertation), 2016, chapter 6.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Le

from fedsvm.algorithms.algorithm import Outline
from fedsvm.algorithms.ranking import RankingStep
from fedsvm.algorithms.selection import filters
from fedsvm.algorithms.selection.elimination import lowest
from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.algorithms.selection.held_out import held_out, removal_of
from fedsvm.algorithms.selection.model import Choice, SelectionAlgorithm, SelectionInput
from fedsvm.algorithms.selection.moments import class_moments
from fedsvm.algorithms.selection.site import SelectionSite
from fedsvm.algorithms.selection.training import ShrinkingSvm, SubsetTraining
from fedsvm.algorithms.selection.wrapper import WrapperSettings, wrapper_attacks, wrapper_training
from fedsvm.algorithms.settings import Count, Positive, Share, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.site.terms import Terms

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack


@dataclass
class FilterWrapperSettings(WrapperSettings):
    """The settings of a user."""

    _: KW_ONLY
    filter_p: Annotated[Share, doc("Maximum p-value of candidate columns by Welch's t and F.")] = 0.01
    filter_keep: Annotated[
        Count | None,
        doc("Number of best columns by Welch's t, F and Fisher's ratio that become candidates, instead of filter_p."),
    ] = None
    min_fisher: Annotated[
        Positive | None,
        doc("Minimum Fisher score of candidates as the paper prints it: |difference of means| / sum of variances."),
    ] = None
    min_scatter_ratio: Annotated[
        Positive | None,
        doc("Minimum of the ratio of between to within class scatter of candidates, as the paper prints it."),
    ] = None
    most_candidates: Annotated[
        int,
        Ge(0),
        Le(500),
        doc(
            "Maximum number of candidates; 0 takes all. While there are more, the half with the smaller |weight| is "
            "removed."
        ),
    ] = 64

    @property
    def has_printed_filters(self) -> bool:
        """True if the paper's own scores have thresholds."""
        return self.min_fisher is not None or self.min_scatter_ratio is not None


class FilterWrapperSite(SelectionSite):
    """The site half."""

    @classmethod
    def choosing_steps(cls, terms: Terms) -> frozenset[str]:
        """Return the steps of SVMs, and of the counts by which columns are removed."""
        return super().choosing_steps(terms) | {"held_out_rows"}


class FilterWrapper(SelectionAlgorithm[FilterWrapperSettings]):
    """PAN-SVM on columns that pass filters and whose removal costs accuracy (PPFSIFW; Lu 2016, chapter 6)."""

    name = "filter-wrapper"
    estimator = "FilterWrapperSVC"
    Settings, Site = FilterWrapperSettings, FilterWrapperSite
    figures = {"candidates": "columns that passed the filters", **SelectionAlgorithm.figures}

    def problems(self, settings: FilterWrapperSettings, outline: Outline) -> Iterator[str]:
        """Yield a problem if thresholds and a number of columns are both set."""
        yield from super().problems(settings, outline)
        yield from settings.wrapper_problems()
        if settings.has_printed_filters and settings.filter_keep is not None:
            yield "filter_keep: excludes min_fisher and min_scatter_ratio; keep one of them"

    def attacks(self, settings: FilterWrapperSettings) -> Sequence[Attack]:
        """Return also the attack on the models of the wrapper."""
        return [*wrapper_attacks(settings), *super().attacks(settings)]

    def choose(self, selecting: SelectionInput, settings: FilterWrapperSettings) -> Choice:
        """Filter, and remove, until one candidate is left."""
        federation, names = selecting.federation, selecting.names
        moments = federation.until_stable(lambda: class_moments(federation, selecting.prepared.columns))
        training = wrapper_training(selecting, moments, settings)
        t = filters.welch(moments).statistic
        passed = candidates(moments, settings)
        left, removed, steps = passed, [], []
        svm = ShrinkingSvm(training, left)
        while len(left) > 1:
            before = federation.progress.round
            if 0 < settings.most_candidates < len(left):
                weights, gap = federation.until_stable(functools.partial(_weights, svm, training))
                places = lowest(np.abs(weights), len(left) // 2)
                step = RankingStep((), "score", None, gap, 0, 0)
            else:
                without = [np.delete(left, place) for place in range(len(left))]
                right, loss = held_out(training, without, settings.select_tolerance)
                places, decided_by = removal_of(range(len(left)), right, loss, t[left])
                step = RankingStep((), decided_by, None, None, 0, 0)
            gone = left[places]
            told, rounds = tuple(names[column] for column in gone), federation.progress.round - before
            steps.append(RankingStep(told, step.decided_by, None, step.gap, rounds, len(federation.sites)))
            removed += gone.tolist()
            left = np.delete(left, places)
            svm.drop(gone)
        others = np.setdiff1d(np.arange(len(names)), passed)
        others = others[np.argsort(-t[others], kind="stable")]
        order = np.array([*left, *reversed(removed), *others])
        ranks = np.minimum(np.arange(1, len(order) + 1), len(passed) + 1)
        return Choice(
            order,
            t,
            "Welch's |t|",
            ranks,
            training,
            most=len(passed),
            steps=tuple(steps),
            figures={"candidates": len(passed)},
        )


def _weights(svm: ShrinkingSvm, training: SubsetTraining) -> tuple[FloatArray, float]:
    """Return the weights (m,) of the columns that are left, and the gap of their SVM. Raises MembershipChanged."""
    (solution,) = svm.train((training.settings.select_tolerance,), lambda found: True)
    return training.column_weights(svm.columns, solution), solution.gap


def candidates(moments: ClassMoments, settings: FilterWrapperSettings) -> IntArray:
    """Return the columns that pass all filters, or the best by Welch's t if none does."""
    if settings.has_printed_filters:
        return _by_thresholds(moments, settings)
    welch, f, fisher = filters.welch(moments), filters.f_statistic(moments), filters.squared_fisher(moments)
    places = [
        np.argsort(filters.best_first(scores, moments.constant)) for scores in (welch.statistic, f.statistic, fisher)
    ]
    if settings.filter_keep is not None:
        passed = np.all([place < settings.filter_keep for place in places], axis=0)
    else:
        by_f = f.p_value <= settings.filter_p
        passed = (welch.p_value <= settings.filter_p) & by_f & (places[2] < by_f.sum())
    passed &= ~moments.constant
    return np.flatnonzero(passed) if passed.any() else np.flatnonzero(places[0] == 0)


def _by_thresholds(moments: ClassMoments, settings: FilterWrapperSettings) -> IntArray:
    """Return the columns that meet the thresholds of equations 6.1 to 6.3, or the best by Welch's t."""
    welch = filters.welch(moments)
    passed = (welch.p_value <= settings.filter_p) & ~moments.constant
    for scores, least in (
        (filters.printed_fisher(moments), settings.min_fisher),
        (filters.scatter_ratio(moments), settings.min_scatter_ratio),
    ):
        passed &= scores >= (least or 0.0)
    best = filters.best_first(welch.statistic, moments.constant)[:1]
    return np.flatnonzero(passed) if passed.any() else best
