"""A selector of columns in scikit-learn's sense, around sites that hold rows: choose, and hand on the chosen ones.

What it chooses by is any algorithm of this installation that chooses columns; the PAN-SVM that follows the choice is
left out, for what comes next in a pipeline is the user's. Cross-validating a pipeline of the two is the honest reading:
columns are chosen within each fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from fedsvm.algorithms.algorithm import Premises
from fedsvm.algorithms.data.columns import Schema
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.estimators import classifier
from fedsvm.algorithms.estimators.base import _plain, estimator
from fedsvm.algorithms.estimators.frames import Frame
from fedsvm.algorithms.estimators.horizontal import RowsEstimator
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.algorithms.selection.model import SelectionAlgorithm
from fedsvm.algorithms.settings import ShareOrCount, doc
from fedsvm.federation.arrays import FloatArray


@estimator
@dataclass(kw_only=True, eq=False, repr=False)
class FederatedSelector(SelectorMixin, RowsEstimator):  # type: ignore[misc]
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

    method: Annotated[str, doc("Name of the selecting algorithm in scenarios: filter, rfe, sparse-svm, …")] = "filter"
    size: Annotated[
        Literal["significant", "best", "one-se"] | ShareOrCount | None,
        doc("How many columns are chosen, by a rule, a count or a share; None is what the method does by itself."),
    ] = None
    options: Annotated[
        Mapping[str, Any] | None,
        doc("Other settings of the method, by their names in a scenario; of filter, statistic."),
    ] = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _train(self, rows: Frame, labels: FloatArray, groups: Any, seed: int) -> None:
        self._numbers(rows)  # a column of text cannot be chosen
        algorithm, chosen, names = self._algorithm, self._settings(), rows.numeric_names
        held = self._deal_rows(np.arange(len(rows)), groups, len(rows), seed)
        classes = self._class_names(chosen)
        chosen, _ = algorithm.resolve_settings(chosen, Premises(len(held), len(classes), rows=len(rows)))
        task = HorizontalTask(Schema(names), self._parameter("scale"), seed, classes=classes)
        partitions = self._partitions(held, rows, labels)
        found = self._learn(partitions, seed, chosen, lambda federation: algorithm.select(federation, task, chosen))
        choice = found.choice
        self.support_ = np.isin(np.arange(len(names)), found.columns)
        others = [column for column in choice.order.tolist() if not self.support_[column]]
        self.ranking_ = np.ones(len(names), dtype=np.int64)
        self.ranking_[others] = np.arange(2, len(others) + 2)
        self.scores_ = np.where(np.isfinite(choice.scores), choice.scores, np.nan)
        self.n_features_ = int(self.support_.sum())
        self.result_["selection"] = {"ranking": _plain(found.ranking)}

    @property
    def _algorithm(self) -> SelectionAlgorithm[Any]:
        """The method. Raises ValueError for one that chooses no columns."""
        if self.method not in ALGORITHMS or not isinstance(ALGORITHMS[self.method], SelectionAlgorithm):
            known = [name for name, algorithm in ALGORITHMS.loadable() if isinstance(algorithm, SelectionAlgorithm)]
            raise ValueError(f"method must be one of {', '.join(known)}, got {self.method!r}")
        return cast("SelectionAlgorithm[Any]", ALGORITHMS[self.method])

    def _settings(self) -> Any:
        """Return the method's settings. Raises ValueError for invalid ones."""
        told: dict[str, Any] = {"statistic": "f"} if self.method == "filter" else {}
        told |= {} if self.options is None else dict(self.options)
        told |= {} if self.size is None else {"size": self.size}
        known = {field.name for field in fields(self._algorithm.Settings)}
        if unknown := [name for name in told if name not in known]:
            raise ValueError(f"options must be settings of {self.method}, got {self.options!r}: {unknown[0]} is none")
        return classifier(self.method)(**told)._settings()

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return np.asarray(self.support_)
