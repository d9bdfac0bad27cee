"""Estimators whose sites hold columns: DPP-SVM, and what else is trained so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np

from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.data.vertical import VerticalTask, align
from fedsvm.algorithms.dpp_svm.settings import DppSettings
from fedsvm.algorithms.estimators.base import FederatedClassifier, estimator
from fedsvm.algorithms.settings import Count, doc
from fedsvm.federation.federation import Federation


@dataclass(kw_only=True, eq=False, repr=False)
class VerticalClassifier(FederatedClassifier):
    """A classifier whose sites hold columns of the same rows; the first site holds the labels."""

    sites: Annotated[Count, doc("Number of sites to split columns into, in order, unless `columns` assigns them.")] = 2
    sum: Annotated[str, doc("The secure sum: any that `fedsvm check-sum` knows.")] = "masked"
    columns: Annotated[
        Sequence[Sequence[int | str]] | None,
        doc("Which site holds which columns: lists of their numbers or, of a data frame, of their names."),
    ] = None

    def fit(self, X: Any, y: Any) -> Self:
        """Train on columns that sites hold.

        Parameters
        ----------
        X : array-like of shape (n, p)
        y : array-like of shape (n,)
            Labels of two classes or, where `algorithm` tells more apart, of more.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For data or parameters that will not do.
        FederationError
            Where a site fails.
        """
        frame, labels = self._check_rows(X, y)
        rows = self._numbers(frame)
        seed, chosen, method = self._seed(), self._settings(), self._parameter("scale")
        names = [str(name) for name in self._names(rows.shape[1])]
        parts = self._columns_of_sites(rows.shape[1])
        task, scale = VerticalTask(method, seed, classes=len(self.classes_)), Scale.of(rows, method)
        partitions = {
            f"site-{number}": site_partition(
                rows[:, held],
                labels if number == 1 else None,
                names=[names[place] for place in held],
                classes=task.classes,
            )
            for number, held in enumerate(parts, start=1)
        }

        def learn(federation: Federation) -> Any:
            with federation.phase("setup"):
                align(federation, "position")
            return self._algorithm.fit(federation, task, chosen)

        model = self._learn(partitions, seed, chosen, learn, align="position")
        self._keep(model.join_parts(scale(rows), np.concatenate(parts)), scale)
        return self

    def _names(self, width: int) -> list[Any]:
        return list(getattr(self, "feature_names_in_", range(width)))

    def _columns_of_sites(self, width: int) -> list[list[int]]:
        """Return which columns each site holds. Raises ValueError unless each of `width` is held once."""
        if self.columns is None:
            sites = self._parameter("sites")
            if width < sites:
                raise ValueError(f"n_features={width} columns cannot be split over {sites} sites; use fewer sites.")
            return [part.tolist() for part in np.array_split(np.arange(width), sites)]
        names = self._names(width)
        wanted = f"columns must be lists with each of {', '.join(map(str, names))} in one of them, got {self.columns!r}"
        try:
            held = [[names.index(name) for name in listed] for listed in self.columns]
        except (TypeError, ValueError):
            raise ValueError(wanted) from None
        if not all(held) or sorted(place for listed in held for place in listed) != list(range(width)):
            raise ValueError(wanted)
        return held


@estimator
class DppSVC(VerticalClassifier, DppSettings):
    """An SVM over sites that hold columns of the same rows: the model of all columns together (DPP-SVM; Que 2012).

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Of a data frame's columns.
    scaling_ : Scale
        `offset` and `scale`, both (p,).
    support_ : ndarray of shape (s,)
        Indices of the support rows or, of the low-rank variant, the landmarks.
    reference_ : ndarray of shape (s, p)
        These rows, scaled.
    dual_coef_ : ndarray of shape (1, s)
        The decision value of a scaled row x is k(x, reference_) · dual_coef_ + intercept_. Of more than two classes
        (K, s), and so on.
    intercept_ : ndarray of shape (1,)
    coef_ : ndarray of shape (1, p)
        Of a linear kernel only; then X · coef_ + intercept_ is the decision value of rows as they are.
    model_ : DppModel
    result_ : dict
        As of PanSVC.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from fedsvm import DppSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DppSVC(sites=3, sum="ring").fit(X, y)
    >>> [site["columns"] for site in model.result_["sites"]]
    [10, 10, 10]
    """

    algorithm = "dpp-svm"
