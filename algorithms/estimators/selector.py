"""A selector of columns in scikit-learn's sense, around sites that hold rows: choose, and hand on the chosen ones.

What it chooses by is any algorithm of this installation that chooses columns; the PAN-SVM that follows the choice is
left out, for what comes next in a pipeline is the user's. Cross-validating a pipeline of the two is the honest reading:
columns are chosen within each fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from algorithms.data.columns import Schema
from algorithms.data.horizontal import HorizontalTask
from algorithms.data.partition import site_partition
from algorithms.data.scaling import ScaleName
from algorithms.estimators import classifier
from algorithms.estimators.base import _plain, _site, estimator
from algorithms.registry import ALGORITHMS
from algorithms.selection.model import SelectionAlgorithm
from algorithms.settings import Count, Natural, Seconds, ShareOrCount, doc
from federation import report
from federation.arrays import FloatArray


@estimator
@dataclass(kw_only=True, eq=False, repr=False)
class FederatedSelector(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Columns chosen by sites that hold rows, none of which leaves its site.

    Attributes
    ----------
    support_ : ndarray of shape (p,)
        True where a column is chosen.
    ranking_ : ndarray of shape (p,)
        1 for every chosen column, and from 2 on in the order in which the others follow.
    scores_ : ndarray of shape (p,)
        What columns were ordered by; nan where there is no finite score.
    n_features_ : int
        How many are chosen.
    classes_ : ndarray of shape (K,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Of a data frame's columns.
    result_ : dict
        The ranking, what choosing cost, who took part and what was disclosed, named as in a run's result.json.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from fedsvm import FederatedSelector
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> FederatedSelector(size=3).fit(X, y).get_support(indices=True).tolist()
    [7, 22, 27]
    """

    method: Annotated[str, doc("What a scenario calls the algorithm that chooses: filter, rfe, sparse-svm, …")] = (
        "filter"
    )
    size: Annotated[
        Literal["significant", "best", "one-se"] | ShareOrCount | None,
        doc("How many columns are chosen, by a rule, a count or a share; None is what the method does by itself."),
    ] = None
    options: Annotated[
        Mapping[str, Any] | None,
        doc("Other settings of the method, by their names in a scenario; of filter, statistic."),
    ] = None
    scale: Annotated[ScaleName, doc("The common scale of columns.")] = "standard"
    sites: Annotated[Count, doc("To how many sites rows are dealt, where nothing says who holds what.")] = 3
    sum: Annotated[str, doc("The secure sum: any that `fedsvm check-sum` knows.")] = "ring"
    sum_options: Annotated[Mapping[str, float] | None, doc("Options of the sum.")] = None
    round_timeout_s: Annotated[Seconds, doc("Seconds of silence after which a site is taken for dropped.")] = 30.0
    verbose: Annotated[bool | Natural, doc("Whether `fit` prints a line for each phase and step.")] = False
    random_state: Annotated[
        int | np.random.RandomState | None,
        doc("Of the deal and the experiment's own generators; never of masks, keys or noise."),
    ] = 0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Choose columns of rows that sites hold.

        Parameters
        ----------
        X : array-like of shape (n, p)
        y : array-like of shape (n,)
            Labels of two classes; of filter, by F, and of rfe of more.
        groups : array-like of shape (n,), optional
            Which site holds each row, by a name or a number; without it rows are dealt to `sites` at random.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For data or parameters that will not do.
        FederationError
            Where a site fails, or a class has too few rows to be summed.
        """
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, kinds = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has 1 class, {self.classes_[0]!r}; two are needed.")
        count = len(self.classes_)
        labels_of = np.where(kinds == 1, 1.0, -1.0) if count == 2 else kinds.astype(np.float64)
        self._select(rows, labels_of, count, groups)
        return self

    def _select(self, rows: FloatArray, labels: FloatArray, classes: int, groups: Any) -> None:
        host = self._host()
        algorithm = cast("SelectionAlgorithm[Any]", ALGORITHMS[self.method])
        settings, seed = host._settings(), host._seed()
        if classes > 2 and not algorithm.of_many_classes(settings):
            raise ValueError(
                f"Only binary classification is supported by method={self.method!r} with these options, and y has "
                f'{classes} classes: have method="filter" or "rfe" with a size that is a count or a share.'
            )
        names = [str(name) for name in getattr(self, "feature_names_in_", [f"x{j}" for j in range(rows.shape[1])])]
        held = host._dealt(np.arange(len(rows)), groups, len(rows), seed)
        partitions = {
            site: site_partition(rows[mine], labels[mine], names=names, classes=classes) for site, mine in held.items()
        }
        task = HorizontalTask(Schema(names), self.scale, seed, classes=tuple(map(str, self.classes_.tolist())))
        with host._federation(partitions, seed) as federation:
            chosen = algorithm.select(federation, task, settings, classes)
        ranking, choice = chosen.ranking, chosen.choice
        self.support_ = np.isin(np.arange(len(names)), chosen.columns)
        others = [column for column in choice.order.tolist() if not self.support_[column]]
        self.ranking_ = np.ones(len(names), dtype=np.int64)
        self.ranking_[others] = np.arange(2, len(others) + 2)
        self.scores_ = np.where(np.isfinite(choice.scores), choice.scores, np.nan)
        self.n_features_ = int(self.support_.sum())
        self.result_ = {
            "status": "completed",
            "selection": {"ranking": _plain(ranking)},
            "cost": _plain(report.cost(federation)),
            "sites": [_site(site, partitions[site.name]) for site in report.sites(federation)],
            "disclosures": [_plain(each) for each in report.disclosures(federation)],
        }

    def _host(self) -> Any:
        """An estimator of the method, with what this one is told. Raises ValueError for what will not do."""
        if self.method not in ALGORITHMS or not ALGORITHMS[self.method].chooses_columns:
            known = [name for name, algorithm in ALGORITHMS.loadable() if algorithm.chooses_columns]
            raise ValueError(f"method must be one of {', '.join(known)}, got {self.method!r}")
        told: dict[str, Any] = {"statistic": "f"} if self.method == "filter" else {}
        told |= {} if self.options is None else dict(self.options)
        told |= {} if self.size is None else {"size": self.size}
        shared = ("scale", "sites", "sum", "sum_options", "round_timeout_s", "verbose", "random_state")
        try:
            return classifier(self.method)(**told, **{name: getattr(self, name) for name in shared})
        except TypeError as error:
            raise ValueError(f"options must be settings of {self.method}, got {self.options!r}: {error}") from None

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return np.asarray(self.support_)
