"""Columns by three wrappers and their vote, and a PAN-SVM on the best: PPFSVW (Lu 2016, chapter 5).

An SVM is trained, and three scores say which column it would miss least: of them the lowest goes.

    rfe    s_j = w_j^2                                                  (Guyon and others 2002; equation 5.1)
    rsvm   s_j = w_j (m+_j - m-_j), means of the classes                (Zhang and others 2006; equation 5.2)
    svm-t  s_j = |mu+_j - mu-_j| / sqrt(s+_j^2 / n+ + s-_j^2 / n-), over the rows that support the model
                                                                        (Tsai and others 2012; equation 5.3)

Where two of the three name the same column it is removed. Otherwise that one is whose removal leaves the highest
accuracy by inner cross-validation, all candidates and folds trained in the same rounds. Columns are ranked in the
reverse order of their removal. The vote is between three lists of one model, all of them the coordinator's: sites rank
nothing and vote on nothing.

Corrections to the dissertation. Its weights (5.1), w = sum alpha y x, are of a linear SVM and not of one with the RBF
kernel. So SVMs on the way are linear by default, whatever the model is trained with afterwards. `wrapper = "pan-svm"`
trains PAN-SVMs and takes (5.1) to the letter; since sum alpha y = 0, w then compares class means weighted by alpha. Its
SVM-t takes the rows that support the PAN-SVM. Most candidates tie in accuracy (on the colon data 96 of 100). The
dissertation does not mention ties; here the lowest held-out hinge loss decides, then the lowest sum of ranks, then the
higher column. Scores within 1e-9 of the largest are equal. Constant columns are removed first. Many columns are removed
by halves: each that is in the lowest half of two lists.

Disclosures. The class moments of all columns; the weights of every model (or, of cutting planes, what cuts show)
and, of a PAN-SVM, the landmarks and the sum of alpha y x of each class; numbers of held-out rows that are right, and
their loss; and class sums over support rows. The last hand out rows where support sets differ by few: see
`selection.support_sums` for the guard, and `rows_determined` in the result for what is left of them.

References
----------
X. Zhang and others, "Recursive SVM feature selection and sample classification for mass-spectrometry and microarray
data", BMC Bioinformatics 7, 2006. C.-A. Tsai and others, "Sample size and feature selection by support vector machines
with t-statistics", 2012. Y. Lu, "Privacy-preserving SVM" (the PAN-SVM dissertation), 2016.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge, Le

from fedsvm.algorithms.algorithm import Outline
from fedsvm.algorithms.leakage import WholeRunLeakage
from fedsvm.algorithms.optimization.solution import Solution
from fedsvm.algorithms.ranking import DecidedBy, RankingStep
from fedsvm.algorithms.selection.elimination import Remove, removed_count
from fedsvm.algorithms.selection.filters import in_grains, welch
from fedsvm.algorithms.selection.held_out import held_out, removal_of
from fedsvm.algorithms.selection.model import Choice, SelectionAlgorithm, SelectionInput
from fedsvm.algorithms.selection.moments import class_moments
from fedsvm.algorithms.selection.site import SelectionSite
from fedsvm.algorithms.selection.support_sums import SupportSets, SupportSums
from fedsvm.algorithms.selection.training import ShrinkingSvm, SubsetTraining
from fedsvm.algorithms.selection.wrapper import WrapperSettings, wrapper_attacks, wrapper_training
from fedsvm.algorithms.settings import Tolerance, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.site.program import steps_of
from fedsvm.federation.site.terms import Terms

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack

Criterion = Literal["rfe", "rsvm", "svm-t"]
CRITERIA: tuple[Criterion, ...] = ("rfe", "rsvm", "svm-t")


@dataclass
class VotedSettings(WrapperSettings):
    """The settings of a user."""

    _: KW_ONLY
    criteria: Annotated[
        Literal["vote", "rfe", "rsvm", "svm-t"],
        doc("Score that decides which columns to remove, or the vote of all three."),
    ] = "vote"
    remove: Annotated[
        Remove, doc("Columns to remove per step: one, half, a share, or auto (half while more than 64 are left).")
    ] = "auto"
    min_change: Annotated[
        int,
        Ge(0),
        Le(1000),
        doc("Minimum number of rows by which two released support sets of a class differ; 0 reveals rows."),
    ] = 3
    select_tolerance: Annotated[Tolerance, doc("Certified relative gap of the SVMs that select columns.")] = 1e-6


@dataclass(frozen=True)
class CriterionScores:
    """Scores of the columns that are left (m,), by criterion."""

    scores: Mapping[str, FloatArray]

    def order(self, criterion: str) -> IntArray:
        """Return (m,) places, the lowest score first; of equal ones the last is removed first."""
        scores = self.scores[criterion]
        return np.lexsort((-np.arange(len(scores)), in_grains(scores)))

    @property
    def lowest(self) -> list[int]:
        """The place that each names."""
        return [int(self.order(criterion)[0]) for criterion in self.scores]

    @property
    def rank_sums(self) -> IntArray:
        """(m,) over all lists, 0 of the lowest in each."""
        return np.asarray(np.sum([np.argsort(self.order(criterion)) for criterion in self.scores], axis=0))


class SupportSite(SelectionSite):
    """The site half."""

    @classmethod
    def choosing_steps(cls, terms: Terms) -> frozenset[str]:
        """Return the steps of SVMs and, by the agreed criteria, of sums over support rows and of a vote's tests."""
        criteria = terms.settings["criteria"]
        counted = {"held_out_rows"} if criteria == "vote" else set[str]()
        supported = steps_of(SupportSets) if criteria in ("vote", "svm-t") else frozenset[str]()
        return super().choosing_steps(terms) | counted | supported


class VotedWrappers(SelectionAlgorithm[VotedSettings]):
    """PAN-SVM on columns that three wrappers vote for: SVM-RFE, RSVM and SVM-t (PPFSVW; Lu 2016, chapter 5)."""

    name = "voted-wrappers"
    estimator = "VotedWrappersSVC"
    Settings, Site = VotedSettings, SupportSite

    def choose(self, selecting: SelectionInput, settings: VotedSettings) -> Choice:
        """Train, score and remove, until one column is left."""
        federation, names = selecting.federation, selecting.names
        moments = federation.until_stable(lambda: class_moments(federation, selecting.prepared.columns))
        training = wrapper_training(selecting, moments, settings)
        support = SupportSums(federation, settings.min_change)
        removed: list[int] = np.flatnonzero(moments.constant).tolist()
        svm = ShrinkingSvm(training, np.flatnonzero(~moments.constant))
        steps, scores = [], np.zeros(len(names))
        while len(svm.columns) > 1:
            before = federation.progress.round
            (solution,) = svm.train((settings.select_tolerance,), lambda found: True)
            told_of = functools.partial(_lists, svm.columns, solution, training, support, settings.criteria)
            lists = federation.until_stable(told_of)
            count = removed_count(settings.remove, len(svm.columns))
            places, decided_by = _choose_removals(lists, count, svm, training)
            scores[svm.columns] = next(iter(lists.scores.values()))
            gone = svm.columns[places]
            told, rounds = tuple(names[column] for column in gone), federation.progress.round - before
            steps.append(RankingStep(told, decided_by, None, solution.gap, rounds, len(federation.sites)))
            federation.log_metrics(columns=len(svm.columns), step_gap=solution.gap)
            removed += gone.tolist()
            svm.drop(gone)
        order = np.array([*svm.columns, *reversed(removed)])
        determined = (
            federation.until_stable(support.rows_determined) if "svm-t" in requested_scores(settings.criteria) else None
        )
        score = "SVM-RFE's score when it was removed" if settings.criteria == "vote" else "score when it was removed"
        return Choice(
            order,
            scores,
            score,
            np.arange(1, len(order) + 1),
            training,
            steps=tuple(steps),
            rows_determined=determined,
        )

    def whole_run(self, settings: VotedSettings) -> WholeRunLeakage:
        """Return what PAN-SVM gives away, and differences of support sums of sets that differ by few rows."""
        found = super().whole_run(settings)
        differs_by_few = settings.min_change < VotedSettings.min_change
        return found.with_rows_alone() if differs_by_few and "svm-t" in requested_scores(settings.criteria) else found

    def attacks(self, settings: VotedSettings) -> Sequence[Attack]:
        """Return also the attacks on differences of support sums, and on the models of the wrapper."""
        from fedsvm.algorithms.attacks.support_differences import SupportDifferences

        return [SupportDifferences(), *wrapper_attacks(settings), *super().attacks(settings)]

    def problems(self, settings: VotedSettings, outline: Outline) -> Iterator[str]:
        """Yield gaps that do not determine support rows."""
        yield from super().problems(settings, outline)
        yield from settings.wrapper_problems()
        if "svm-t" in requested_scores(settings.criteria) and settings.select_tolerance > 1e-5:
            yield "select_tolerance: must be 1e-5 or less for support rows to be distinguished from others"


def requested_scores(criteria: str) -> Sequence[Criterion]:
    """Return the requested scores."""
    return CRITERIA if criteria == "vote" else [each for each in CRITERIA if each == criteria]


def _lists(
    columns: IntArray, solution: Solution, training: SubsetTraining, support: SupportSums, criteria: str
) -> CriterionScores:
    """Return the scores of the remaining columns. Raises MembershipChanged if sites leave or join."""
    training.refresh()
    weights = training.column_weights(columns, solution)
    found: dict[str, FloatArray] = {}
    for criterion in requested_scores(criteria):
        if criterion == "rfe":
            found[criterion] = weights**2
        elif criterion == "rsvm":
            means = training.moments.only(columns).means
            found[criterion] = weights * (means[1] - means[0])
        else:
            found[criterion] = welch(support.moments(columns, solution, training.moments)).statistic
    return CriterionScores(found)


def _choose_removals(
    lists: CriterionScores, count: int, svm: ShrinkingSvm, training: SubsetTraining
) -> tuple[IntArray, DecidedBy]:
    """Return the places to remove, and what decided."""
    if len(lists.scores) == 1:
        (criterion,) = lists.scores
        return lists.order(criterion)[:count], "score"
    if count > 1:
        return _removed_together(lists, count)
    named = lists.lowest
    agreed = [place for place in named if named.count(place) > 1]
    if agreed:
        return np.array(agreed[:1]), "vote"
    places = sorted(set(named))
    return _by_accuracy(places, lists, svm, training)


def _removed_together(lists: CriterionScores, count: int) -> tuple[IntArray, DecidedBy]:
    """Return every place among the lowest of two lists, or the one with the lowest sum of ranks."""
    times = np.zeros(len(lists.rank_sums))
    for criterion in lists.scores:
        times[lists.order(criterion)[:count]] += 1
    (places,) = np.nonzero(times >= 2)
    in_order = np.lexsort((-np.arange(len(times)), lists.rank_sums))
    if len(places):
        return np.array([place for place in in_order if times[place] >= 2][: len(times) - 1]), "vote"
    return in_order[:1], "rank"


def _by_accuracy(
    places: Sequence[int], lists: CriterionScores, svm: ShrinkingSvm, training: SubsetTraining
) -> tuple[IntArray, DecidedBy]:
    """Return the place without which accuracy is highest."""
    settings = training.settings
    columns = [np.delete(svm.columns, place) for place in places]
    right, loss = held_out(training, columns, settings.select_tolerance)
    svm.begin_anew()
    return removal_of(places, right, loss, lists.rank_sums[list(places)])
