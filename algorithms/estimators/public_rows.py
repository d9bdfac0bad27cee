"""Estimators of models that may be released: columns, scale and features come from rows that are nobody's secret."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedsvm.algorithms.algorithm import Premises
from fedsvm.algorithms.data.columns import Columns, LabeledRows
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.data.public_rows import PublicTask
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.dp_erm.settings import ErmSettings
from fedsvm.algorithms.estimators.base import FederatedClassifier, estimator
from fedsvm.algorithms.estimators.frames import Frame
from fedsvm.algorithms.estimators.horizontal import RowsEstimator
from fedsvm.algorithms.hybrid_svm.settings import HybridSettings
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant
from fedsvm.algorithms.privacy.privacy_ledger import DataIdentity
from fedsvm.algorithms.settings import ShareOrCount, doc
from fedsvm.federation.arrays import FloatArray, IntArray

_CURIOUS_SITES = 1
"""A site knows its own share of the noise."""


@dataclass(kw_only=True, eq=False, repr=False)
class PublicClassifier(RowsEstimator, FederatedClassifier):
    """A classifier whose columns are scaled, and features chosen, by rows that are nobody's secret."""

    public: Annotated[ShareOrCount, doc("Number of rows that are public, as a share or a count, drawn at random.")] = (
        0.1
    )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        return tags

    def _train(self, rows: Frame, labels: FloatArray, groups: Any, seed: int) -> None:
        method, names, numbers = self._parameter("scale"), rows.numeric_names, self._numbers(rows)
        public, private = self._set_apart(labels, seed)
        scale = Scale.of(numbers[public], method)
        chosen = self._settings(public_rows=len(public))
        self._class_names(chosen)
        held = self._deal_rows(private, groups, len(rows), seed)
        task = PublicTask(
            columns=Columns(names, Vocabulary({}), scale),
            public=LabeledRows(scale(numbers[public]), labels[public]),
            accountant=PrivacyAccountant.within(chosen, DataIdentity.of("an estimator's rows", "y", names)),
            noise_shares=max(1, len(held) - _CURIOUS_SITES),
            seed=seed,
            classes=len(self.classes_),
        )
        for sentence in self._algorithm.foreseen(chosen, len(private), len(names), len(self.classes_)):
            warnings.warn(sentence, UserWarning, stacklevel=3)
        partitions = self._partitions(held, rows, labels)
        chosen, _ = self._algorithm.resolve_settings(chosen, Premises(len(held), len(self.classes_)))
        model = self._learn(partitions, seed, chosen, lambda federation: self._algorithm.fit(federation, task, chosen))
        self._keep(model, scale, task.accountant.report())

    def _set_apart(self, labels: FloatArray, seed: int) -> tuple[IntArray, IntArray]:
        """Return the indices of the public rows and of the others. Raises ValueError."""
        wanted = self._parameter("public")
        count = wanted if isinstance(wanted, int) else round(wanted * len(labels))
        shuffled = np.random.default_rng([seed, 5]).permutation(len(labels))
        public, private = np.sort(shuffled[:count]), np.sort(shuffled[count:])
        if len(public) < 2 or len(np.unique(labels[public])) < 2 or not len(private):
            raise ValueError(
                f"public={self.public!r} sets {len(public)} of n_samples={len(labels)} rows apart, and these must hold "
                "two classes or more, and not all rows; use more rows, or set another number apart."
            )
        return public, private


@estimator
class HybridSVC(PublicClassifier, HybridSettings):
    """An SVM in Fourier features of public rows, released with noise (Li, Xiong, Ohno-Machado and Jiang 2014).

    Noise is from the operating system's generator, so that two fits differ.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        Those of y: that there are rows of each is taken for public.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Of a data frame's columns.
    scaling_ : Scale
        `offset` and `scale`, both (p,).
    frequencies_ : ndarray of shape (D, p)
    coef_ : ndarray of shape (P, 2 D)
        Of P problems, one of two classes and of more each against the others: the decision value of a scaled row x is
        [cos, sin] of frequencies_ x, over √D, times coef_. With multiclass="joint" that is the value of each class, and
        its decision value how far that is above the largest of the others.
    result_ : dict
        As of PanSVC, and under `privacy` what was released and whom it protects from whom. The rest of it, such as how
        many rounds training took, is for who ran it: what may be released is coef_, frequencies_ and scaling_.
    """

    algorithm = "hybrid-svm"


@estimator
class PrivateErmClassifier(PublicClassifier, ErmSettings):
    """Logistic regression or Huber's SVM by output or objective perturbation (Chaudhuri and others 2011).

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        Those of y: that there are rows of each is taken for public.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Of a data frame's columns.
    scaling_ : Scale
        `offset` and `scale`, both (p,).
    coef_ : ndarray of shape (P, d)
        Of P problems, one of two classes and of more each against the others: the decision value of a point is
        point · coef_, and `feature_map_(rows)` makes points of scaled rows. With multiclass="joint" exp(point · coef_)
        are what classes are proportionally likely, and decision values the log odds of each against all others.
    feature_map_ : UnitBallMap
    result_ : dict
        As of HybridSVC.
    """

    algorithm = "dp-erm"
