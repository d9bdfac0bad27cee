"""Naive Bayes over sites that hold rows: secure sums of n, and of sum x and sum x^2, of each class.

Columns of numbers are normal in each class, and a categorical column has each of its V values with a probability of its
own, (count + 1) / (n + V), as in scikit-learn's CategoricalNB. The counts are in the same sums, as those of the 0/1
columns that a categorical one becomes. A value that was not there in training says nothing.

Means and variances follow from the sums, and equal those of scikit-learn's GaussianNB on pooled rows: variances
are divided by n, and var_smoothing times the largest variance of a column over all rows is added to each. The decision
value of a row is the difference of two classes' joint log-likelihoods, or for more classes the log-odds of each.
Variances are differences of sums, and lose digits if a column's mean is large compared with its deviation, which does
not occur on the standard scale.

Disclosures. The coordinator learns each class's number of rows, means and variances, and how often it has each
value of a categorical column, which is the model. Of a class of one row the mean is that row, and of two the mean and
the variances give both but for a swap in each column: numbers are summed first, and a class of fewer than three rows is
refused before anything else is. Models of several folds are of overlapping rows, and by subtraction give the same sums
of each fold, which nothing refuses.

With `data.statistics_privacy` above 0, the coordinator learns none of this. Sums of each class and fold are in the one
release of noisy statistics, and the model follows from it alone. Variances are shrunk towards those of all classes by
what the noise hides, and counts of values are smoothed by their noise. Of a column with gaps, known values count alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, HorizontalAlgorithm, Model, TrainingReport
from fedsvm.algorithms.data.class_statistics import ClassStatistics
from fedsvm.algorithms.data.classes import log_odds, members
from fedsvm.algorithms.data.columns import Columns
from fedsvm.algorithms.data.horizontal import HorizontalSite, each_model, preparation
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.settings import Positive, doc
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import step
from fedsvm.federation.site.script import Script, stage
from fedsvm.federation.site.terms import Terms

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack

MIN_CLASS_ROWS = 3
MODEL_SHOWS = (
    "the number of rows of each class, the mean and variance of every column in it, and how often it has each category"
)


@dataclass
class NaiveBayesSettings:
    """The settings of a user."""

    var_smoothing: Annotated[Positive, doc("Share of the largest column variance added to every variance.")] = 1e-9


@dataclass(frozen=True)
class Categories:
    """The 0/1 columns that categorical columns became: the number of each one's column (p,), -1 of numbers.

    middle: (p,) between a scaled 0 and a scaled 1.
    """

    column: IntArray
    middle: FloatArray

    @classmethod
    def of(cls, columns: Columns) -> Self:
        """Return the categories of the agreed columns: categories follow numbers, and columns of gaps follow these.

        A column of 0 and 1 that says where there was a gap counts as one of numbers.
        """
        values = columns.vocabulary.values.values()
        of_values = np.repeat(np.arange(len(values)), [len(each) for each in values])
        indicators = len(columns.filling.indicated) if columns.filling is not None else 0
        numbers = [np.full(count, -1) for count in (len(columns.numeric), indicators)]
        column = np.concatenate([numbers[0], of_values, numbers[1]]).astype(np.int64)
        return cls(column, (0.5 - columns.scale.offset) / columns.scale.scale)

    @property
    def numeric(self) -> BoolArray:
        """(p,) which columns are numbers."""
        return np.asarray(self.column < 0)

    def members(self, rows: FloatArray) -> FloatArray:
        """Return (n, p) of 0 and 1: which values scaled rows have; 0 for numbers."""
        return np.asarray((rows > self.middle) & ~self.numeric, dtype=np.float64)

    def log_shares(self, counts: FloatArray, added: float = 1.0) -> FloatArray:
        """Return (K, p) log (count + a) / (n + a V) of counts (K, p) of each class and value; 0 for numbers.

        added: a, larger than 1 where counts have noise.
        """
        found = np.zeros(counts.shape)
        for column in range(self.column.max(initial=-1) + 1):
            values = self.column == column
            smoothed = counts[:, values] + added
            found[:, values] = np.log(smoothed / smoothed.sum(axis=1, keepdims=True))
        return found


@dataclass(frozen=True)
class NaiveBayesModel(Model):
    """counts (K,), means (K, p) and variances (K, p), smoothed, of the classes, of two -1 and then +1.

    log_shares: (K, p) of the values of categorical columns, 0 of numbers; their means and variances are not used.
    """

    counts: FloatArray
    means: FloatArray
    variances: FloatArray
    log_shares: FloatArray
    categories: Categories
    training: TrainingReport | None = None

    @classmethod
    def of_sums(
        cls, counts: FloatArray, sums: FloatArray, var_smoothing: float, columns: Columns, sites: tuple[str, ...]
    ) -> Self:
        """Return the model for n (K,), and sum x and sum x^2 (2, K, p), of each class."""
        (totals, squares), rows, categories = sums, counts.sum(), Categories.of(columns)
        means = totals / counts[:, None]
        of_all = squares.sum(axis=0) / rows - (totals.sum(axis=0) / rows) ** 2
        widest = of_all[categories.numeric].max(initial=0.0)
        variances = np.maximum(squares / counts[:, None] - means**2, 0.0) + var_smoothing * widest
        of_values = np.rint(totals * columns.scale.scale + counts[:, None] * columns.scale.offset)
        return cls(
            counts, means, variances, categories.log_shares(of_values), categories, _report(counts, means, sites)
        )

    @classmethod
    def of_statistics(
        cls, found: ClassStatistics, var_smoothing: float, columns: Columns, sites: tuple[str, ...]
    ) -> Self:
        """Return the model for noisy statistics of each class."""
        categories, scale, rows = Categories.of(columns), columns.scale, found.rows[:, None]
        gaps = found.missing[:, list(columns.filling.indicated)] if columns.filling else np.zeros((len(rows), 0))
        shares = np.hstack([found.counts / rows, gaps])
        means = (np.hstack([found.mean, shares]) - scale.offset) / scale.scale
        spread = np.maximum(shares * (1 - shares), np.minimum(0.25, 1 / rows))
        variances = np.hstack([found.variance, spread]) / scale.scale**2
        prior = found.rows / found.rows.sum()
        of_all = prior @ (variances + means**2) - (prior @ means) ** 2
        variances = variances + var_smoothing * of_all[categories.numeric].max(initial=0.0)
        numbers = np.zeros((len(rows), found.mean.shape[1]))
        of_values = np.hstack([numbers, found.counts, np.zeros(gaps.shape)])
        log_shares = categories.log_shares(of_values, max(1.0, found.counts_noise))
        return cls(found.rows, means, variances, log_shares, categories, _report(found.rows, means, sites))

    def joint_log_likelihood(self, rows: FloatArray) -> FloatArray:
        """Return (n, K) for scaled rows (n, p) and the classes."""
        numeric, priors = self.categories.numeric, np.log(self.counts / self.counts.sum())
        variances = self.variances[:, numeric]
        apart = (rows[:, None, numeric] - self.means[:, numeric]) ** 2 / variances
        normal = priors - 0.5 * (np.log(2 * math.pi * variances).sum(axis=1) + apart.sum(axis=2))
        return np.asarray(normal + self.categories.members(rows) @ self.log_shares.T)

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) log-odds of scaled rows (n, p), positive for the class +1; (n, K) for more than two classes."""
        return log_odds(self.joint_log_likelihood(rows))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the file.

        Returns
        -------
        counts : (K,)
            Training rows of each class.
        means, variances : (K, p)
            Of each class and scaled column.
        log_shares : (K, p)
            Logarithms of the shares of the values of categorical columns.
        category : (p,)
            Number of the categorical column that each column belongs to.
        middle : (p,)
            Point between a scaled 0 and a scaled 1 of each column.
        """
        normal = {"counts": self.counts, "means": self.means, "variances": self.variances}
        category, middle = self.categories.column, self.categories.middle
        return {**normal, "log_shares": self.log_shares, "category": category, "middle": middle}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file."""
        normal = arrays["counts"], arrays["means"], arrays["variances"]
        return cls(*normal, arrays["log_shares"], Categories(arrays["category"], arrays["middle"]))

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return `class_count_` (K,), `class_prior_` (K,), `theta_` (K, p) and `var_` (K, p), of scaled columns."""
        prior = self.counts / self.counts.sum()
        return {"class_count_": self.counts, "class_prior_": prior, "theta_": self.means, "var_": self.variances}


def _report(counts: FloatArray, means: FloatArray, sites: tuple[str, ...]) -> TrainingReport:
    """Return the report of a model with these counts (K,) and means (K, p)."""
    smallest, width = round(float(counts.min())), means.shape[1]
    figures = {"smallest_class": smallest, "columns": width}
    return TrainingReport(sites, f"{len(counts)} classes, {width} columns", figures=figures)


class NaiveBayesSite(HorizontalSite):
    """The site half."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `NaiveBayes.fit`: with noisy statistics nothing follows these."""
        summed = [] if StatisticsPlan.of(terms).mu else ["class_counts", "class_sums"]
        return each_model(terms, stage(preparation(terms), *summed))

    @step
    def class_counts(self) -> FloatArray:
        """Return the (K,) training rows of each class."""
        return np.asarray(members(self.labels).sum(axis=1))

    @step
    def class_sums(self) -> FloatArray:
        """Return the (2, K, p) sum x and sum x^2 of this site's training rows of each class."""
        of_class = members(self.labels)
        return np.stack([of_class @ self.rows, of_class @ self.rows**2])


class NaiveBayes(HorizontalAlgorithm[NaiveBayesSettings, NaiveBayesModel]):
    """Naive Bayes over sites that hold rows, Gaussian or by categories, from secure sums over each class."""

    name = "naive-bayes"
    own_method = "naive-bayes"
    model_is_statistics = True
    estimator = "FederatedGaussianNB"
    Settings, Site, Model = NaiveBayesSettings, NaiveBayesSite, NaiveBayesModel
    figures = {"smallest_class": "rows of the smallest class", "columns": "of a row"}
    multiclass = True

    def fit(self, federation: Federation, task: HorizontalTask, settings: NaiveBayesSettings) -> NaiveBayesModel:
        """Count the classes' rows, then sum x and x^2 over those of each; or take noisy statistics of each class."""

        def stage() -> tuple[FloatArray, FloatArray] | ClassStatistics:
            prepared = task.prepare(federation)
            if (noisy := prepared.statistics) is not None and noisy.of_classes is not None:
                return noisy.of_classes.without(task.fold)
            with federation.phase("train"):
                kinds = len(task.classes)
                counts = np.rint(federation.sum("class_counts", shape=(kinds,), bound=float(prepared.rows)))
                _check_counts(counts, task.classes)
                return counts, federation.sum("class_sums", shape=(2, kinds, prepared.columns), bound=math.inf)

        found = federation.until_stable(stage)
        if isinstance(found, ClassStatistics):
            return NaiveBayesModel.of_statistics(found, settings.var_smoothing, task.columns, federation.sites)
        counts, sums = found
        federation.disclose("coordinator", "class_sums", MODEL_SHOWS, sums.shape)
        return NaiveBayesModel.of_sums(counts, sums, settings.var_smoothing, task.columns, federation.sites)

    def file_attacks(self, settings: NaiveBayesSettings) -> Sequence[Attack]:
        """Return the attacks on the digits of the scale, and on the means of classes."""
        from fedsvm.algorithms.attacks.class_means import ClassMeans

        return [*super().file_attacks(settings), ClassMeans(settings.var_smoothing)]

    def train_pooled(self, model: NaiveBayesModel, settings: NaiveBayesSettings, rows: EvaluationRows) -> Pooled:
        """Train scikit-learn's GaussianNB on all rows' numbers together, and its CategoricalNB on their categories."""
        from sklearn.naive_bayes import CategoricalNB, GaussianNB  # sites share this module, and need none of it

        categories, (train, labels), test = model.categories, rows.train, rows.test.rows
        scores = np.zeros((len(test), len(model.counts)))
        if (numeric := categories.numeric).any():
            normal = GaussianNB(var_smoothing=settings.var_smoothing).fit(train[:, numeric], labels)
            scores = normal.predict_joint_log_proba(test[:, numeric])
        for column in range(categories.column.max(initial=-1) + 1):
            values = categories.column == column
            held = categories.members(train)[:, values]
            codes, had = held.argmax(axis=1)[held.any(axis=1)], labels[held.any(axis=1)]
            fitted = CategoricalNB(min_categories=int(values.sum())).fit(codes[:, None], had)
            scores = scores + categories.members(test)[:, values] @ fitted.feature_log_prob_[0].T
        if not numeric.any():
            scores = scores + np.log(model.counts / model.counts.sum())
        return Pooled(log_odds(scores))


def _check_counts(counts: FloatArray, classes: Sequence[str]) -> None:
    """Raise FederationError for a class whose means and variances would show its rows."""
    if (smallest := int(counts.min())) < MIN_CLASS_ROWS:
        name = classes[int(counts.argmin())]
        raise FederationError(
            f"A class must have {MIN_CLASS_ROWS} rows or more over all sites, got {smallest} of {name!r}: its means "
            "and variances would reveal them. Add rows, remove this class, or choose another data.positive."
        )
