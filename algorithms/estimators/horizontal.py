"""Estimators whose sites hold rows and agree on everything by secure sums: PAN-SVM, and what else is trained so."""

from __future__ import annotations

import math
import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

import numpy as np
from annotated_types import Gt, Le
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from fedsvm.algorithms.algorithm import Premises
from fedsvm.algorithms.calibration import MIN_OF_CLASS
from fedsvm.algorithms.data.columns import Schema
from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.data.statistics import wants_explained, wants_products
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.estimators.base import FederatedClassifier, FederatedEstimator, estimator
from fedsvm.algorithms.estimators.frames import Frame, read
from fedsvm.algorithms.pan_svm import PanSettings
from fedsvm.algorithms.settings import Portion, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.transport.keys import COORDINATOR

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(kw_only=True, eq=False, repr=False)
class RowsEstimator(FederatedEstimator):
    """An estimator over sites that hold rows."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Learn from rows that sites hold.

        Parameters
        ----------
        X : array-like or data frame of shape (n, p)
            Columns of text become one 0/1 column for each value, which the sites agree on by a secure sum.
        y : array-like of shape (n,)
            Labels of two classes or, where the algorithm tells more apart, of more.
        groups : array-like of shape (n,), optional
            Which site holds each row, by a name or a number; without it rows are dealt to `sites` at random.
            `GridSearchCV` passes them on only with metadata routing and `set_fit_request(groups=True)`.

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
        rows, labels = self._check_rows(X, y)
        self._train(rows, labels, groups, self._seed())
        return self

    @abstractmethod
    def _train(self, rows: Frame, labels: FloatArray, groups: Any, seed: int) -> None:
        """Train on checked rows and labels (n,), see `LabeledRows`, and keep the result."""

    def _deal_rows(self, indices: IntArray, groups: Any, rows: int, seed: int) -> dict[str, IntArray]:
        """Return which of the rows `indices`, of `rows` in all, each site holds."""
        if groups is None:
            sites = self._parameter("sites")
            if len(indices) < sites:
                raise ValueError(f"n_samples={len(indices)} rows cannot be split over {sites} sites; use fewer sites.")
            dealt = np.random.default_rng([seed, 1]).permutation(indices)
            parts = np.array_split(dealt, sites)
            return {f"site-{number}": np.sort(part) for number, part in enumerate(parts, start=1)}
        names = _names(groups, rows)
        held = {_site_name(name): indices[names[indices] == name] for name in np.unique(names).tolist()}
        if empty := [name for name, mine in held.items() if not len(mine)]:
            raise ValueError(f"groups: no row is left to {', '.join(empty)} when public rows are set apart; remove it.")
        return held

    def _partitions(
        self, held: Mapping[str, IntArray], rows: Frame, labels: FloatArray, **by_row: Any
    ) -> dict[str, Partition]:
        """Return what each site holds. by_row: other arrays that have an entry for each row, or None."""
        classes = len(self.classes_)

        def part(mine: IntArray) -> Partition:
            others: dict[str, Any] = {name: None if each is None else each[mine] for name, each in by_row.items()}
            return site_partition(
                rows.numeric[mine],
                labels[mine],
                names=rows.numeric_names,
                categorical=rows.text[mine],
                categorical_names=rows.text_names,
                classes=classes,
                **others,
            )

        return {site: part(mine) for site, mine in held.items()}


@dataclass(kw_only=True, eq=False, repr=False)
class HorizontalClassifier(RowsEstimator, FederatedClassifier):
    """A classifier whose sites hold rows and agree on the scale of columns by secure sums."""

    statistics_privacy: Annotated[
        Annotated[float, Gt(0), Le(100)] | None,
        doc(
            "Privacy of scale, means and drawn landmarks: mu of Gaussian differential privacy for one row, in one "
            "noisy release. None takes exact values, with which the model can name rows."
        ),
    ] = None
    ranges: Annotated[
        Mapping[str, Sequence[float]] | None,
        doc(
            "With `statistics_privacy`: lowest and highest value of numeric columns, by name (x0, x1, … of an array). "
            "A column without a range spends a part of mu on the search for one."
        ),
    ] = None

    def _train(
        self,
        rows: Frame,
        labels: FloatArray,
        groups: Any,
        seed: int,
        weights: FloatArray | None = None,
        apart: NDArray[np.bool_] | None = None,
    ) -> None:
        """Train on checked rows. weights (n,): of their losses. apart (n,): those that calibrate the model."""
        chosen = self._settings()
        held = self._deal_rows(np.arange(len(rows)), groups, len(rows), seed)
        weighted, calibrated = weights is not None, apart is not None
        conditions, classes = Conditions(self._secure_sum(len(held))), self._class_names(chosen)
        premises = Premises(len(held), len(classes), 1, conditions, len(rows), self._mu)
        chosen, remarks = self._algorithm.resolve_settings(chosen, premises)
        ranges, agreed = self._agreed_ranges(rows.numeric_names), asdict(chosen)
        task = HorizontalTask(
            Schema(rows.numeric_names, rows.text_names),
            self._parameter("scale"),
            seed,
            classes=classes,
            weighted=weighted,
            calibrated=calibrated,
            conditions=conditions,
            plan=StatisticsPlan(
                self._mu,
                ranges,
                wants_products(agreed),
                wants_explained(agreed),
                by_class=self._algorithm.model_is_statistics,
            ),
        )
        model = self._learn(
            self._partitions(held, rows, labels, weights=weights, apart=apart),
            seed,
            chosen,
            lambda federation: self._algorithm.fit(federation, task, chosen),
            weight=weighted,
            calibration=calibrated,
            **({"statistics_privacy": self._mu, "ranges": ranges} if self._mu else {}),
        )
        self.columns_ = task.columns
        self._keep(model, task.columns.scale, remarks=remarks)

    @property
    def _mu(self) -> float:
        return float(self._parameter("statistics_privacy") or 0.0)

    def _agreed_ranges(self, names: Sequence[str]) -> dict[str, list[float]]:
        """Return the ranges of columns with these names. Raises ValueError for invalid ones."""
        if self.ranges is None:
            return {}
        if not self._mu:
            raise ValueError("ranges apply to noisy statistics; set statistics_privacy above 0, for example to 0.5.")
        if not isinstance(self.ranges, Mapping) or not set(self.ranges) <= set(names):
            raise ValueError(f"ranges must be a dict by names of numeric columns such as {names[0]}.")
        found = {}
        for name, ends in self.ranges.items():
            try:
                low, high = map(float, ends)
            except (TypeError, ValueError):
                low = high = math.nan
            if not -math.inf < low < high < math.inf:
                raise ValueError(f"ranges: of {name!r} must be its lowest and its highest value, got {ends!r}.")
            found[name] = [low, high]
        return found

    def _scale(self, rows: Frame) -> FloatArray:
        if rows.text_names != list(self.columns_.vocabulary.values):
            trained = ", ".join(self.columns_.vocabulary.values) or "none"
            raise ValueError(f"X: columns of text must be those of fit, {trained}, got {rows.text_names}.")
        return self.columns_(rows.numeric, rows.text)


def _names(groups: Any, rows: int) -> NDArray[np.str_]:
    """Return (n,) the site of each row, as text. Raises ValueError for a row without one."""
    sites = np.asarray(groups)
    if sites.shape != (rows,):
        raise ValueError(f"groups must name a site for each of {rows} rows, got shape {sites.shape}.")
    if any(value is None or value != value for value in sites.tolist()):  # noqa: PLR0124 - as NaN is not
        raise ValueError("groups: a row has no site; every row must have one.")
    return sites.astype(str)


def _site_name(name: str) -> str:
    """Return the name if it is valid for a site."""
    if not _NAME.fullmatch(name) or name == COORDINATOR:
        raise ValueError(
            f"groups: the name of a site must be made of at most 64 letters, digits, dots, hyphens and underscores, "
            f"start with a letter or digit, and not be the word {COORDINATOR}, got {name!r}."
        )
    return name


@estimator
class PanSVC(HorizontalClassifier, PanSettings):
    """A kernel SVM over sites that hold rows, none of which leaves its site (PAN-SVM; Lu 2016, chapter 3).

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Of a data frame's columns.
    columns_ : Columns
        Its `names` are those of the encoded columns: the numeric ones, then one for each value of a column of text.
    scaling_ : Scale
        `offset` and `scale` of the encoded columns, both (p,), that the sites agreed on.
    landmarks_ : ndarray of shape (l, p)
        Scaled.
    dual_coef_ : ndarray of shape (P, l)
        Of P problems, one of two classes: the decision value of a scaled row x is k(x, landmarks_) · dual_coef_ +
        intercept_. Of `multiclass = "ovo"` votes are made of them.
    intercept_ : ndarray of shape (P,)
    coef_ : ndarray of shape (P, p)
        Of a linear kernel only; then X · coef_ + intercept_ is the decision value of rows as they are.
    n_iter_ : int
    gap_ : float
        The certified relative gap.
    model_ : PanModel
        All that was trained.
    result_ : dict
        What training cost, who took part and what was disclosed, named as in a run's result.json.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from fedsvm import PanSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = PanSVC(sites=4, landmarks=60).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    >>> len(model.result_["sites"])
    4
    """

    algorithm = "pan-svm"

    calibration: Annotated[
        Portion, doc("Share of the rows that are not trained on, but fit probabilities and the threshold; 0 is none.")
    ] = 0.0

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows that sites hold.

        Parameters
        ----------
        X : array-like or data frame of shape (n, p)
            Columns of text become one 0/1 column for each value, which the sites agree on by a secure sum.
        y : array-like of shape (n,)
            Labels of two classes or more.
        groups : array-like of shape (n,), optional
            Which site holds each row, by a name or a number; without it rows are dealt to `sites` at random.
        sample_weight : array-like of shape (n,), optional
            From 0; what C of each row is multiplied by, on top of `class_weight`. Scale and landmarks are of all rows.

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
        rows, labels = self._check_rows(X, y)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, rows.numeric, ensure_non_negative=True)
            if not self._algorithm.takes_weights(self._settings()):
                raise ValueError('sample_weight needs solver="interior-point"; cutting planes add up equal losses.')
        seed = self._seed()
        apart = self._apart(labels, seed) if self._is_calibrated else None
        self._train(rows, labels, groups, seed, weights, apart)
        found, classes = self.model_.calibrated, self.classes_.tolist()
        if found is not None and (caution := found.caution(classes)) is not None:
            warnings.warn(caution, UserWarning, stacklevel=2)
        return self

    @property
    def predict_proba(self) -> Callable[[Any], FloatArray]:
        """The method that returns probabilities of the classes. Requires `calibration` above 0.

        It takes `X`, array-like of shape (n, p), and returns an array of shape (n, K) in the order of `classes_`. A
        sigmoid is fitted on rows set apart. Of more than two classes each binary problem has a sigmoid. The class of
        the largest probability can then differ from that of `predict`, as with scikit-learn's SVC.

        Raises
        ------
        AttributeError
            If `calibration` is 0.
        """
        if not self._is_calibrated:
            raise AttributeError(
                "predict_proba needs rows to fit probabilities on; set calibration, for example to 0.2."
            )
        return self._probabilities

    def _probabilities(self, X: Any) -> FloatArray:
        """Return (n, K) probabilities of the classes, in the order of `classes_`."""
        check_is_fitted(self)
        found = self.model_.probabilities(self._scale(read(self, X, reset=False)))
        if found is None:
            raise ValueError("This model was fitted with calibration=0; fit it again.")
        return found if found.ndim == 2 else np.column_stack([1 - found, found])

    @property
    def _is_calibrated(self) -> bool:
        return bool(self._parameter("calibration") > 0)

    def _apart(self, labels: FloatArray, seed: int) -> NDArray[np.bool_]:
        """Return (n,) a share of the rows of each class. Raises ValueError if a class has too few."""
        random, share = np.random.default_rng([seed, 8]), self._parameter("calibration")
        apart = np.zeros(len(labels), dtype=np.bool_)
        for label in np.unique(labels):
            of_class = np.flatnonzero(labels == label)
            count = round(share * len(of_class))
            if not MIN_OF_CLASS <= count < len(of_class):
                raise ValueError(
                    f"calibration={share:g} of {len(of_class)} rows of a class is {count}, and must be {MIN_OF_CLASS} "
                    "or more, and leave some to train on; use more rows."
                )
            apart[random.permutation(of_class)[:count]] = True
        return apart

    def _settings(self, public_rows: int = 0) -> PanSettings:
        chosen: PanSettings = super()._settings(public_rows)
        if chosen.release == "sites":
            raise ValueError(
                'release: must be "everyone" here, since the sites of an estimator keep no files; a scenario\'s do.'
            )
        return chosen
