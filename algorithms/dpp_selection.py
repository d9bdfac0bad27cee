"""Columns chosen over sites that hold columns of the same records, and a DPP-SVM on those: a filter, or elimination.

What a column says by itself is its site's own business, but for the labels: told these, a site computes the share of
the column's variance that is between the classes, eta^2, from which F follows,

    filter   F = (n - K) eta^2 / ((K - 1) (1 - eta^2)), of any number K of classes

so that n labels go to the sites and one number of each column comes back. Elimination asks a model of all columns:

    rfe      the coordinator solves the dual of the linear kernel of the columns that are left, each site computes its
             weights w_j = sum_i alpha_i y_i x_ij from the coefficients, and the smallest of all go (Guyon and others
             2002). Of more than two classes a weight is the length of the weights in the models of each class.

Which are the smallest is found by secure sums of counts: how many columns have a weight of at most t, for some t at a
time, until as many are below one of them as are to go. No site shows a weight, and the coordinator learns counts, and
which columns went.

Disclosures. By `filter` the labels of all training records, to every site, and eta^2 of every column, to the
coordinator. By `rfe` the kernel matrix of the columns that are left, before and after a step, to the coordinator, and
which records support each model, to the sites. The difference of two such matrices is that of the columns between them:
of one column alone it is x x^T, which is the column, up to its sign. Three or more are removed per step, unless the
user sets `remove = "one"`, or fewer are left to remove. The matrix of those that are removed then tells what DPP-SVM's
matrix tells of all columns: they follow for one who knows as many of the records as columns went. Constant columns are
in no matrix, and are not told from others there.

References
----------
J. Que, X. Jiang and L. Ohno-Machado, "A collaborative framework for distributed privacy-preserving support vector
machine learning", AMIA Annual Symposium Proceedings, 2012.
I. Guyon, J. Weston, S. Barnhill and V. Vapnik, "Gene selection for cancer classification using support vector
machines", Machine Learning 46, 2002.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Annotated, Any, Literal

import numpy as np

from fedsvm.algorithms.algorithm import Outline, TrainingReport
from fedsvm.algorithms.data.classes import members, one_against_rest
from fedsvm.algorithms.data.scaling import Scale, ScaleName
from fedsvm.algorithms.data.vertical import Records, VerticalTask, alignment_script, max_squared_norm
from fedsvm.algorithms.dpp_svm.algorithm import DppAlgorithm
from fedsvm.algorithms.dpp_svm.model import DppModel
from fedsvm.algorithms.dpp_svm.settings import DppSettings
from fedsvm.algorithms.dpp_svm.site import FOLD, DppSite, kernel_test, kernel_training
from fedsvm.algorithms.dpp_svm.training import COEFFICIENTS_DISCLOSE, train
from fedsvm.algorithms.features.kernel_exchange import EXCHANGED, KernelExchange, exchange_kernel
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.kernel_dual import Dual, check_memory
from fedsvm.algorithms.pooled import EvaluationRows
from fedsvm.algorithms.ranking import FeatureRanking, RankingStep, column_of
from fedsvm.algorithms.selection.elimination import Remove, lowest, removed_count
from fedsvm.algorithms.selection.filters import ClassMoments, best_first, ranks_of
from fedsvm.algorithms.selection.model import SHOWN_COLUMNS, chosen_count
from fedsvm.algorithms.settings import Positive, ShareOrCount, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import CHECKED, free, step
from fedsvm.federation.site.script import Script, once, repeat, seq
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.federation.transport.wire import MAX_ARRAY_BYTES

MIN_TOGETHER = 3
"""Columns that go in a step, where the user does not say one: of fewer the matrices before and after show them."""

THRESHOLDS = 15
"""At which columns are counted in a round: four bits of the one that is looked for."""

_FINEST = 2.0**-48
"""Weights that differ by less than this share of the longest possible are equal."""

LABELS_SHOWN = "the labels of all records that are trained on"
SHARES_SHOWN = "of every column the share of its variance that is between the classes"
COUNTS_SHOWN = "how many columns have weights below each of some thresholds"
DIFFERENCE_SHOWN = (
    "inner products of the columns that went in a step, by the difference of the matrices before and after: these "
    "columns follow for one who knows as many of the records"
)
ALONE_SHOWN = "a column that went by itself, up to its sign, by the difference of the matrices before and after"


@dataclass
class DppSelectionSettings(DppSettings):
    """The settings of a user, in addition to those of DPP-SVM on the selected columns."""

    _: KW_ONLY
    method: Annotated[
        Literal["filter", "rfe"],
        doc("Select by the F statistic of each column (filter), or by recursive elimination with a linear SVM (rfe)."),
    ] = "filter"
    size: Annotated[ShareOrCount, doc("Number of columns to keep over all sites: a share or a count.")] = 0.5
    remove: Annotated[
        Remove,
        doc(
            "For rfe: columns to remove per step: one, half, a share, or auto. With one, the coordinator learns the"
            " order of columns."
        ),
    ] = "half"
    select_penalty: Annotated[Positive, doc("For rfe: C of the linear SVMs.")] = 1.0


@dataclass(frozen=True)
class ChosenDppModel(DppModel):
    """A DPP-SVM of chosen columns: their numbers (k,) among all, one site's behind the other's; None of these alone.

    ranked: names are those of the sites, and the column's number there, until somebody knows better.
    """

    selected: IntArray | None = None
    ranking: FeatureRanking | None = None

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p) of all columns, positive for the class +1; (n, K) for
        more."""
        return super().decision_function(rows if self.selected is None else rows[:, self.selected])

    def join_parts(self, rows: FloatArray, held: IntArray | None = None) -> ChosenDppModel:
        """Return the whole model, for a caller with all columns; see `VerticalModel.join_parts`."""
        selected = self.selected if held is None or self.selected is None else np.sort(held[self.selected])
        reference = rows[self.support_indices] if selected is None else rows[np.ix_(self.support_indices, selected)]
        return replace(self, reference=reference, selected=selected)

    @property
    def ranked(self) -> FeatureRanking | None:
        """As it was found; None of a model that was read from a file."""
        return self.ranking

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return the attributes of the DPP-SVM for the selected columns, whose numbers are `selected_`."""
        if self.selected is None:
            return super().attributes(scaling)
        scale = scaling.of_columns(self.selected)
        return {"selected_": self.selected, **super().attributes(scale)}


def _choosing(terms: Terms) -> Script:
    """Return the script of `_by_filter`, or of `_by_elimination`."""
    if terms.settings["method"] == "filter":
        return once("shares_between")
    removed = seq("weigh_columns", repeat("columns_below"), "which_below")
    return repeat(seq("keep_columns", "longest", repeat(EXCHANGED, 1), removed))


class DppSelectionSite(DppSite):
    """A site whose columns may become fewer."""

    first = 0
    strengths: FloatArray

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `DppSelection.fit` and its test; how long elimination takes is up to the columns."""
        return alignment_script(
            terms, *FOLD, "column_count", _choosing(terms), "keep_columns", kernel_training(terms), kernel_test(terms)
        )

    @step(
        told={
            "fold": CHECKED,
            "scale": free("one of three scales", "a kernel of columns on another scale"),
        }
    )
    def prepare_fold(self, fold: int | None, scale: ScaleName) -> None:
        """Hold the records of a fold out, and have all columns to choose from."""
        super().prepare_fold(fold, scale)
        self.scaled, self.whole_scale = self.rows, self.scale
        self.kept = np.arange(self.scaled.shape[1])

    @step(opens="value")
    def column_count(self) -> FloatArray:
        """Number of columns that are left."""
        return np.array(float(len(self.kept)))

    @step(
        told={
            "columns": free("numbers of columns", "a kernel of columns of its choice, down to one"),
            "first": free("whole numbers by site", "another division of the same sums among the sites"),
        }
    )
    def keep_columns(self, columns: IntArray, first: Mapping[str, int]) -> None:
        """Keep only these of all sites' columns. first: the number of each site's first column."""
        own = columns - first[self.site]
        self.first, self.kept = first[self.site], own[(own >= 0) & (own < self.scaled.shape[1])]
        self.rows = self.scaled[:, self.kept]
        self.scale = self.whole_scale.of_columns(self.kept)

    @step(
        told={
            "labels": free(
                "any numbers", "shares of the variance for labels of its choice, which can single out one record"
            ),
            "classes": free("a whole number", "shares of the variance for labels of its choice"),
            "first": free("whole numbers by site", "another division of the same sums among the sites"),
            "columns": free("a whole number", "nothing; only empty cells of the table change"),
        }
    )
    def shares_between(self, labels: FloatArray, classes: int, first: Mapping[str, int], columns: int) -> FloatArray:
        """Return the (p,) share of the variance of own columns that is between the classes of records with labels
        (n,)."""
        found: FloatArray = _empty_table(1, columns)[0]
        rows = self.scaled[self.training]
        moments = ClassMoments.of(rows, members(one_against_rest(labels, classes)))
        whole = moments.total.scatter[0]
        within = moments.scatter.sum(axis=0)
        share = np.where(whole > 0, 1.0 - within / np.where(whole > 0, whole, 1.0), 0.0)
        found[first[self.site] : first[self.site] + rows.shape[1]] = np.clip(share, 0.0, 1.0)
        return found

    @step(
        told={
            "dual_coef": free(
                "any coefficients", "lengths of weights by coefficients of its choice, which can be those of one record"
            ),
        }
    )
    def weigh_columns(self, dual_coef: FloatArray) -> None:
        """Take down the lengths of own columns' weights by coefficients (P, n) of the training records."""
        self.strengths = np.linalg.norm(dual_coef @ self.rows[self.training], axis=0)

    @step(
        told={
            "thresholds": free("any numbers", "the order of the columns' weights, which it may search anyway"),
        }
    )
    def columns_below(self, thresholds: FloatArray) -> FloatArray:
        """Return the (q,) number of own columns with weights of at most each threshold."""
        return np.asarray((self.strengths[:, None] <= thresholds).sum(axis=0), dtype=np.float64)

    @step(
        told={
            "thresholds": free("any numbers", "which columns have the weights that it searched for"),
            "columns": free("a whole number", "nothing; only empty cells of the table change"),
        }
    )
    def which_below(self, thresholds: FloatArray, columns: int) -> FloatArray:
        """Return the (q, p) of 0 and 1: which of own columns have weights of at most each threshold."""
        found = _empty_table(len(thresholds), columns)
        found[:, self.first + self.kept] = self.strengths <= thresholds[:, None]
        return found

    def _part(self) -> dict[str, Any]:
        part = super()._part()
        names = part["columns"]
        others = np.setdiff1d(np.arange(len(names)), self.kept)
        return {**part, "columns": names[self.kept], "left_out": names[others], "held": names}


def _empty_table(rows: int, columns: int) -> FloatArray:
    """Return a table of zeros. Raises OrderRefused for one that no message could carry."""
    if type(columns) is not int or not 0 <= rows * columns * 8 <= MAX_ARRAY_BYTES:
        raise OrderRefused(f"columns must be a number whose table fits into a message, got {columns!r:.20}")
    return np.zeros((rows, columns))


class DppSelection(DppAlgorithm[DppSelectionSettings, ChosenDppModel]):
    """DPP-SVM on columns chosen over sites that hold columns: by a filter, or by elimination with secure minima."""

    name = "dpp-selection"
    estimator = "DppSelectionSVC"
    phases = ("setup", "select", "train", "evaluate")
    Settings, Site, Model = DppSelectionSettings, DppSelectionSite, ChosenDppModel
    chooses_columns = True
    figures = {
        "columns_selected": "columns that the model is of",
        "select_rounds": "rounds until they were chosen",
        **DppAlgorithm.figures,
    }

    def fit(self, federation: Federation, task: VerticalTask, settings: DppSelectionSettings) -> ChosenDppModel:
        """Choose columns, have the sites keep these, and train on them."""
        records, began = task.prepare(federation), federation.progress.round
        federation.require_all_sites("Its columns are among those that are chosen from, and no other site has them.")
        with federation.phase("select"):
            columns = _columns_of(federation)
            size = chosen_count(settings.size, columns.count)
            choose = _by_filter if settings.method == "filter" else _by_elimination
            ranking, selected = choose(federation, columns, records, task.classes, settings, size)
            columns.keep(federation, selected)
        federation.disclose("sites", "keep_columns", SHOWN_COLUMNS, selected.shape)
        rounds = federation.progress.round - began
        with federation.phase("train"):
            model = train(federation, settings, records.labels, task.seed, task.classes)
        known = {field.name: getattr(model, field.name) for field in fields(DppModel)}
        known["training"] = _report_selection(model.training, len(selected), columns.count, rounds)
        return ChosenDppModel(**known, selected=selected, ranking=ranking)

    def problems(self, settings: DppSelectionSettings, outline: Outline) -> Iterator[str]:
        """Yield the problems of DPP-SVM, and what has no curve."""
        yield from super().problems(settings, outline)
        if outline.needs_curve:
            yield 'method: has no curve of accuracy against size here; set data.evaluation = "nested"'

    def pooled_order(
        self, model: ChosenDppModel, settings: DppSelectionSettings, rows: EvaluationRows
    ) -> IntArray | None:
        """Return the same order for all columns together; for elimination by LIBSVM's weights."""
        train_rows, problems = rows.train.rows, one_against_rest(rows.train.labels, len(rows.classes))
        moments = ClassMoments.of(train_rows, members(problems))
        if settings.method == "filter":
            within, whole = moments.scatter.sum(axis=0), moments.total.scatter[0]
            return best_first(1.0 - within / np.where(whole > 0, whole, 1.0), moments.constant)
        left, removed = np.arange(train_rows.shape[1]), np.zeros(0, dtype=np.int64)
        size = chosen_count(settings.size, len(left))
        while len(left) > size:
            w = [libsvm.linear(train_rows[:, left], labels, settings.select_penalty).coef_[0] for labels in problems]
            places = lowest(np.linalg.norm(w, axis=0), going(settings.remove, len(left), size))
            removed = np.concatenate([np.sort(left[places]), removed])
            left = np.delete(left, places)
        return np.concatenate([left, removed])


def _report_selection(training: TrainingReport | None, count: int, of: int, rounds: int) -> TrainingReport:
    """Return the training report, with the number of columns."""
    if training is None:
        raise AssertionError("a trained model has no report of its training")
    figures = {"columns_selected": count, "select_rounds": rounds, **training.figures}
    return replace(training, description=f"{count} of {of} columns, {training.description}", figures=figures)


@dataclass(frozen=True)
class _NumberedColumns:
    """All columns, one site's behind the other's. first: the number of each site's first one."""

    first: Mapping[str, int]
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.names)

    def keep(self, federation: Federation, columns: IntArray) -> None:
        """Keep these columns at the sites."""
        federation.run("keep_columns", columns=columns, first=dict(self.first))

    def name_all(self, columns: IntArray) -> tuple[str, ...]:
        return tuple(self.names[column] for column in columns.tolist())


def _columns_of(federation: Federation) -> _NumberedColumns:
    """Return the number of columns of each site, which they do not hide."""
    first, names = dict[str, int](), list[str]()
    for site, count in federation.gather("column_count", shape=()).items():
        first[site] = len(names)
        names += [column_of(site, number) for number in range(int(count))]
    return _NumberedColumns(first, tuple(names))


# By a statistic of each.


def _by_filter(
    federation: Federation,
    columns: _NumberedColumns,
    records: Records,
    classes: int,
    settings: DppSelectionSettings,
    size: int,
) -> tuple[FeatureRanking, IntArray]:
    """Return the ranking by F, and the best columns."""
    summed = federation.sum(
        "shares_between",
        shape=(columns.count,),
        bound=1.0,
        labels=records.labels,
        classes=classes,
        first=dict(columns.first),
        columns=columns.count,
    )
    shares = np.clip(summed, 0.0, 1.0)
    federation.disclose("sites", "shares_between", LABELS_SHOWN, records.labels.shape)
    federation.disclose(COORDINATOR, "shares_between", SHARES_SHOWN, shares.shape)
    order = best_first(shares, shares == 0.0)
    with np.errstate(divide="ignore"):
        f = (len(records.labels) - classes) * shares / ((classes - 1) * (1.0 - shares))
    selected = np.sort(order[:size])
    ranking = FeatureRanking(
        columns=columns.name_all(order),
        ranks=tuple(ranks_of(shares, order).tolist()),
        scores=tuple(float(each) if math.isfinite(each) else None for each in f[order]),
        score="F",
        selected=columns.name_all(selected),
        size_rule=f"{settings.size:g}, as told",
    )
    return ranking, selected


# By the weights of a model of all that are left.


def going(remove: Remove, left: int, size: int) -> int:
    """Return how many of the remaining columns to remove in a step, until `size` are left; one if the user says so.

    Otherwise three or more, or all that are to go.
    """
    if remove == "one":
        return 1
    count = min(max(removed_count(remove, left), MIN_TOGETHER), left - size)
    return left - size if left - size - count < MIN_TOGETHER else count


def _by_elimination(
    federation: Federation,
    columns: _NumberedColumns,
    records: Records,
    classes: int,
    settings: DppSelectionSettings,
    size: int,
) -> tuple[FeatureRanking, IntArray]:
    """Return the ranking in reverse order of removal, equal within a step, and the remaining columns."""
    check_memory(len(records.labels))
    left, gone, steps = np.arange(columns.count), list[IntArray](), list[RankingStep]()
    problems = one_against_rest(records.labels, classes)
    while len(left) > size:
        before, count = federation.progress.round, going(settings.remove, len(left), size)
        columns.keep(federation, left)
        exchange = KernelExchange(federation, Kernel("linear"), settings.kernel_exchange, max_squared_norm(federation))
        matrix = exchange_kernel(exchange, len(records.labels))
        duals = [Dual.of(matrix, labels, settings.select_penalty) for labels in problems]
        coefficients = np.zeros(problems.shape)
        for place, dual in enumerate(duals):
            coefficients[place, dual.support] = dual.coefficients
        federation.run("weigh_columns", dual_coef=coefficients)
        federation.disclose("sites", "weigh_columns", COEFFICIENTS_DISCLOSE, coefficients.shape)
        longest = math.sqrt(max(0.0, float(np.einsum("ki,ij,kj->", coefficients, matrix, coefficients))))
        removed = _lowest_of_all(federation, columns.count, count, longest * (1 + 1e-9))
        shown = ALONE_SHOWN if count == 1 else DIFFERENCE_SHOWN
        federation.disclose(COORDINATOR, EXCHANGED, shown, (count,))
        gap = max(dual.gap for dual in duals)
        rounds = federation.progress.round - before
        steps.append(RankingStep(columns.name_all(removed), "score", None, gap, rounds, len(federation.sites)))
        federation.log_metrics(columns=len(left), step_gap=gap)
        gone.append(removed)
        left = np.setdiff1d(left, removed)
    order, ranks = [left], [1] * len(left)
    for removed in reversed(gone):
        ranks += [len(ranks) + 1] * len(removed)
        order.append(removed)
    return (
        FeatureRanking(
            columns=columns.name_all(np.concatenate(order)),
            ranks=tuple(ranks),
            scores=(None,) * columns.count,
            score="no site shows a weight",
            selected=columns.name_all(left),
            size_rule=f"{settings.size:g}, as told",
            steps=tuple(steps),
        ),
        left,
    )


def _lowest_of_all(federation: Federation, columns: int, count: int, longest: float) -> IntArray:
    """Return (count,) the columns with the smallest weights over all sites, ascending; of equal ones the last are
    removed.

    longest: no weight is larger. At most `count` are at or below `low`, and more than that at or below `high`.
    """
    unit = longest or 1.0
    low, high = -_FINEST * unit, longest
    while high - low > _FINEST * unit:
        thresholds = low + (high - low) * np.arange(1, THRESHOLDS + 1) / (THRESHOLDS + 1)
        counts = np.rint(
            federation.sum("columns_below", shape=(THRESHOLDS,), bound=float(columns), thresholds=thresholds)
        )
        exactly = np.flatnonzero(counts == count)
        if len(exactly):
            low = high = float(thresholds[exactly[0]])
            break
        below = thresholds[counts < count]
        above = thresholds[counts > count]
        low, high = float(below.max(initial=low)), float(above.min(initial=high))
    federation.disclose(COORDINATOR, "columns_below", COUNTS_SHOWN, (THRESHOLDS,))
    bounds = np.array([low, high])
    marks = np.rint(
        federation.sum("which_below", shape=(2, columns), bound=1.0, thresholds=bounds, columns=columns)
    ).astype(bool)
    surely, equal = np.flatnonzero(marks[0]), np.flatnonzero(marks[1] & ~marks[0])
    missing = count - len(surely)
    return np.sort(np.concatenate([surely, equal[len(equal) - missing :]]))
