"""DPP-SVM as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, get_args

import numpy as np

from algorithms.data.horizontal import Scale, ScaleName
from algorithms.data.vertical import align, hold_out, scale_of
from algorithms.dpp_svm import DppModel, DppSettings, train
from algorithms.estimators import parameters
from algorithms.estimators.base import FederatedClassifier, kernel_of, partition_of
from algorithms.features.kernels import KernelName
from algorithms.features.landmarks import landmark_count
from federation.arrays import FloatArray

_NO_FOLD = 0
"""Rows of the partition are in fold -1, so that holding out fold 0 holds out none."""


class DppSVC(FederatedClassifier):
    """An SVM over sites that hold columns of the same rows: the model of all columns together (DPP-SVM; Que 2012).

    Parameters
    ----------
    C, kernel, gamma, degree, coef0: as in scikit-learn's SVC; gamma "auto" is 1 / columns. They are of scaled columns.
    scale: of columns, by the site that holds them: "standard", "minmax" or "none".
    columns: which site holds which columns, as a list of lists of numbers or, of a data frame, of names; without it
    columns are dealt evenly to `sites`, as they come. The first site holds the labels.
    landmarks: None is exact; else the low-rank variant, with a share of the rows (float) or a count (int) as landmarks,
    and cut_groups, tolerance, max_iterations and rank_tolerance as in PanSVC.
    sum, sum_options, round_timeout_s, random_state: as in PanSVC.

    Attributes
    ----------
    classes_ (2,), n_features_in_, feature_names_in_. scaling_: `offset` and `scale` (p,). support_ (s,): which rows are
    weighed, the support or the landmarks, reference_ (s, p) these rows, scaled, dual_coef_ (1, s), intercept_ (1,): the
    decision value of a scaled row x is k(x, reference_) · dual_coef_ + intercept_. coef_ (1, p): of a linear kernel
    only; then X · coef_ + intercept_ is the decision value of rows as they are. model_: the coordinator's part.
    result_: as in PanSVC.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from algorithms import DppSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DppSVC(sites=3, sum="ring").fit(X, y)
    >>> [site["columns"] for site in model.result_["sites"]]
    [10, 10, 10]
    """

    program = "dpp-svm"

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: KernelName = "rbf",
        gamma: float | Literal["auto"] = "auto",
        degree: int = 3,
        coef0: float = 0.0,
        scale: ScaleName = "standard",
        columns: Sequence[Sequence[int | str]] | None = None,
        landmarks: float | None = None,
        cut_groups: int = 32,
        tolerance: float = 1e-4,
        max_iterations: int = 500,
        rank_tolerance: float = 1e-10,
        sites: int = 2,
        sum: str = "masked",
        sum_options: Mapping[str, float] | None = None,
        round_timeout_s: float = 30.0,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.scale = scale
        self.columns = columns
        self.landmarks = landmarks
        self.cut_groups = cut_groups
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.rank_tolerance = rank_tolerance
        self.sites = sites
        self.sum = sum
        self.sum_options = sum_options
        self.round_timeout_s = round_timeout_s
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X (n, p) with labels y (n,) of two classes.

        Raises ValueError for data or parameters that will not do, and FederationError where a site fails.
        """
        rows, signs = self._binary(X, y)
        seed = parameters.seed_of(self.random_state)
        settings, scale = self._settings(rows, seed), parameters.choice("scale", self.scale, get_args(ScaleName))
        partitions = {
            f"site-{number}": partition_of(rows[:, held], signs if number == 1 else None)
            for number, held in enumerate(self._held(rows.shape[1]), start=1)
        }
        with self._federation(partitions, seed) as federation:
            with federation.phase("setup"):
                align(federation, "position")
                records = hold_out(federation, _NO_FOLD, scale)
            with federation.phase("train"):
                self.model_ = train(federation, settings, records.labels)
        self.scaling_ = Scale(*scale_of(rows, scale))
        self._describe(self.model_, self.scaling_(rows))
        self.result_ = self._result(federation, partitions, self.model_.figures(tuple(partitions)))
        return self

    def _held(self, width: int) -> list[list[int]]:
        """Which columns each site holds. Raises ValueError unless each of `width` is held once."""
        if self.columns is None:
            sites = parameters.whole("sites", self.sites)
            if width < sites:
                raise ValueError(f"n_features={width} columns cannot be dealt to {sites} sites; have fewer.")
            return [part.tolist() for part in np.array_split(np.arange(width), sites)]
        names = list(getattr(self, "feature_names_in_", range(width)))
        wanted = f"lists with each of {', '.join(map(str, names))} in one of them"
        try:
            held = [[names.index(name) for name in listed] for listed in self.columns]
        except (TypeError, ValueError):
            parameters.refuse("columns", self.columns, wanted)
        if not all(held) or sorted(place for listed in held for place in listed) != list(range(width)):
            parameters.refuse("columns", self.columns, wanted)
        return held

    def _settings(self, rows: FloatArray, seed: int) -> DppSettings:
        """Raises ValueError for a parameter that will not do."""
        landmarks = None
        if self.landmarks is not None:
            landmarks = landmark_count(parameters.share_or_count("landmarks", self.landmarks), len(rows))
        return DppSettings(
            kernel=kernel_of(self, rows.shape[1]),
            C=parameters.positive("C", self.C),
            landmarks=landmarks,
            groups=parameters.whole("cut_groups", self.cut_groups),
            tolerance=parameters.positive("tolerance", self.tolerance, below=1.0),
            max_iterations=parameters.whole("max_iterations", self.max_iterations),
            rank_tolerance=parameters.positive("rank_tolerance", self.rank_tolerance, below=1.0),
            seed=seed,
        )

    def _describe(self, model: DppModel, rows: FloatArray) -> None:
        """What scikit-learn's users look for in an SVM, of scaled rows (n, p)."""
        self.support_, self.reference_ = model.weighed, rows[model.weighed]
        self.dual_coef_, self.intercept_ = model.coefficients[None, :], np.array([model.intercept])
        self.__dict__.pop("coef_", None)  # of an earlier fit
        if self.kernel == "linear":
            self.coef_ = self.dual_coef_ @ self.reference_ / self.scaling_.scale
            self.intercept_ = self.intercept_ - self.coef_ @ self.scaling_.offset

    def _scores(self, rows: FloatArray) -> FloatArray:
        """As the sites' sums over their columns add up to."""
        against = self.model_.kernel(self.scaling_(rows), self.reference_)
        return np.asarray(against @ self.model_.coefficients + self.model_.intercept)
