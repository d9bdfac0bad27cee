"""Gaussian naive Bayes over sites that hold rows: secure sums of n, and of sum x and sum x^2, of each class.

Means and variances follow from the sums, and are those that scikit-learn's GaussianNB gets of pooled rows: variances
are divided by n, and var_smoothing times the largest variance of a column over all rows is added to each. The decision
value of a row is the difference of the classes' joint log-likelihoods. Variances are differences of sums, and lose
digits where a column's mean is large beside its deviation: on the standard scale none is.

What is disclosed. The coordinator learns each class's number of rows, means and variances, which is the model. Of a
class of one row the mean is that row, and of two the mean and the variances give both but for a swap in each column:
numbers are summed first, and a class of fewer than three rows is refused before anything else is. Models of several
folds are of overlapping rows, and by subtraction give the same sums of each fold, which nothing refuses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from algorithms.contract import Arrays, EvaluationRows, HorizontalAlgorithm, Model, Pooled, TrainingReport
from algorithms.data.horizontal import HorizontalSite, HorizontalTask
from algorithms.data.scaling import Scale
from algorithms.settings import Positive, doc
from federation.arrays import FloatArray
from federation.errors import FederationError
from federation.federation import Federation
from federation.site.program import step

MIN_CLASS_ROWS = 3
MODEL_SHOWS = "the number of rows of each class, and the mean and variance of every column in it"


@dataclass
class NaiveBayesSettings:
    """What a user decides."""

    var_smoothing: Annotated[
        Positive, doc("Share of the largest variance of a column that is added to every variance.")
    ] = 1e-9


@dataclass(frozen=True)
class NaiveBayesModel(Model):
    """counts (2,), means (2, p) and variances (2, p), smoothed, of the classes -1 and +1."""

    counts: FloatArray
    means: FloatArray
    variances: FloatArray
    training: TrainingReport | None = None

    @classmethod
    def of_sums(cls, counts: FloatArray, sums: FloatArray, var_smoothing: float, sites: tuple[str, ...]) -> Self:
        """From n (2,), and sum x and sum x^2 (2, 2, p), of each class."""
        (totals, squares), rows = sums, counts.sum()
        means = totals / counts[:, None]
        of_all = squares.sum(axis=0) / rows - (totals.sum(axis=0) / rows) ** 2
        variances = np.maximum(squares / counts[:, None] - means**2, 0.0) + var_smoothing * of_all.max()
        columns, smallest = means.shape[1], int(counts.min())
        figures = {"smallest_class": smallest, "columns": columns}
        return cls(counts, means, variances, TrainingReport(sites, f"2 classes, {columns} columns", figures=figures))

    def joint_log_likelihood(self, rows: FloatArray) -> FloatArray:
        """(n, 2) of scaled rows (n, p) and the classes."""
        priors = np.log(self.counts / self.counts.sum())
        apart = (rows[:, None, :] - self.means) ** 2 / self.variances
        return np.asarray(priors - 0.5 * (np.log(2 * math.pi * self.variances).sum(axis=1) + apart.sum(axis=2)))

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """(n,) log-odds of scaled rows (n, p); positive for the class +1."""
        likelihood = self.joint_log_likelihood(rows)
        return np.asarray(likelihood[:, 1] - likelihood[:, 0])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """`counts`, `means` and `variances`."""
        return {"counts": self.counts, "means": self.means, "variances": self.variances}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """The model in a file."""
        return cls(arrays["counts"], arrays["means"], arrays["variances"])

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """`class_count_` (2,), `class_prior_` (2,), `theta_` (2, p) and `var_` (2, p), of scaled columns."""
        prior = self.counts / self.counts.sum()
        return {"class_count_": self.counts, "class_prior_": prior, "theta_": self.means, "var_": self.variances}


class NaiveBayesSite(HorizontalSite):
    """The site half."""

    @property
    def _members(self) -> FloatArray:
        """(2, n) of 0 and 1: which training rows are of the classes -1 and +1."""
        return np.stack([self.labels[0] < 0, self.labels[0] > 0]).astype(np.float64)

    @step
    def class_counts(self) -> FloatArray:
        """(2,) training rows of each class."""
        return np.asarray(self._members.sum(axis=1))

    @step
    def class_sums(self) -> FloatArray:
        """(2, 2, p): sum x and sum x^2 of this site's training rows of each class."""
        return np.stack([self._members @ self.rows, self._members @ self.rows**2])


class NaiveBayes(HorizontalAlgorithm[NaiveBayesSettings, NaiveBayesModel]):
    """Gaussian naive Bayes over sites that hold rows, from secure sums over each class."""

    name = "naive-bayes"
    estimator = "FederatedGaussianNB"
    Settings, Site, Model = NaiveBayesSettings, NaiveBayesSite, NaiveBayesModel
    figures = {"smallest_class": "rows of the smaller class", "columns": "of a row"}

    def fit(self, federation: Federation, task: HorizontalTask, settings: NaiveBayesSettings) -> NaiveBayesModel:
        """Count the classes' rows, then sum x and x^2 over those of each."""

        def stage() -> tuple[FloatArray, FloatArray]:
            prepared = task.prepare(federation)
            with federation.phase("train"):
                counts = np.rint(federation.sum("class_counts", shape=(2,), bound=float(prepared.rows)))
                _check_counts(counts)
                return counts, federation.sum("class_sums", shape=(2, 2, prepared.columns), bound=math.inf)

        counts, sums = federation.until_stable(stage)
        federation.disclose("coordinator", "class_sums", MODEL_SHOWS, sums.shape)
        return NaiveBayesModel.of_sums(counts, sums, settings.var_smoothing, federation.sites)

    def pooled(self, model: NaiveBayesModel, settings: NaiveBayesSettings, rows: EvaluationRows) -> Pooled:
        """scikit-learn's GaussianNB on all rows together."""
        from sklearn.naive_bayes import GaussianNB  # sites share this module, and need none of it

        likelihood = GaussianNB(var_smoothing=settings.var_smoothing).fit(*rows.train)
        scores = likelihood.predict_joint_log_proba(rows.test.rows)
        return Pooled(scores[:, 1] - scores[:, 0])


def _check_counts(counts: FloatArray) -> None:
    """Raise FederationError for a class whose means and variances would show its rows."""
    if (smallest := int(counts.min())) < MIN_CLASS_ROWS:
        raise FederationError(
            f"A class must have {MIN_CLASS_ROWS} rows or more over all sites, got {smallest}: its means and variances "
            "would show them. Have more rows, or another data.positive."
        )
