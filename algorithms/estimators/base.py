"""What the estimators have in common: scikit-learn's contract, around sites in processes of their own.

An estimator has all rows in hand, deals them to sites on this machine, and trains as a federation would: what leaves a
site, and what it costs, is in `result_`. When `fit` returns, or is interrupted, its processes are gone.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from algorithms.estimators import parameters
from algorithms.features.kernels import Kernel, KernelName
from algorithms.figures import Figures
from federation import report
from federation.arrays import FloatArray, IntArray
from federation.assemble import local_federation
from federation.federation import Federation
from federation.site.partition import Partition
from federation.transport.keys import COORDINATOR
from protocols.sums.contract import SecureSum
from protocols.sums.registry import SUMS

SITE_MODULE = "algorithms.site_process"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class FederatedClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A binary classifier that is trained by sites in processes of their own.

    Those that derive from it have the parameters below, and score rows in `_scores`. `result_` holds what the training
    was: `model` (its certificate), `cost` (rounds, bytes, by phase and protocol), `sites`, `disclosures`, `privacy`.
    The names are those of a run's result.json.
    """

    program: ClassVar[str]
    """What site processes do, by the name that a scenario has for the algorithm."""

    sites: int
    sum: str
    sum_options: Mapping[str, float] | None
    round_timeout_s: float
    random_state: int | np.random.RandomState | None
    classes_: np.ndarray
    result_: dict[str, Any]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def decision_function(self, X: Any) -> FloatArray:
        """(n,) decision values of rows X (n, p); positive for `classes_[1]`."""
        check_is_fitted(self)
        return self._scores(validate_data(self, X, dtype=np.float64, reset=False))

    def predict(self, X: Any) -> np.ndarray:
        """(n,) the class of each row of X (n, p)."""
        scores = self.decision_function(X)  # first, so that what is not fitted says so
        return np.asarray(self.classes_[(scores >= 0).astype(int)])

    @abstractmethod
    def _scores(self, rows: FloatArray) -> FloatArray:
        """(n,) decision values of checked rows (n, p)."""

    # For `fit`.

    def _binary(self, X: Any, y: Any) -> tuple[FloatArray, FloatArray]:
        """Rows (n, p), and (n,) +1 for the second of two classes and -1 for the first. Raises ValueError."""
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        if (kind := type_of_target(labels, input_name="y")) != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise ValueError(f"y has 1 class, {self.classes_[0]!r}; two are needed.")
        return rows, np.where(labels == self.classes_[1], 1.0, -1.0)

    def _secure_sum(self, sites: int) -> SecureSum:
        """The sum that is asked for. Raises ValueError for one that so many sites cannot run."""
        name, options = parameters.choice("sum", self.sum, list(SUMS)), dict(self.sum_options or {})
        plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in options.items()}
        try:
            chosen = SUMS[name](**plain)
        except (TypeError, ValueError) as error:
            raise ValueError(f"sum_options={options!r} will not do for a {name} sum: {error}.") from None
        if sites < chosen.min_sites:
            raise ValueError(
                f"A {self.sum} sum needs {chosen.min_sites} sites or more and there are {sites}; with fewer it hides"
                " nothing. Have more sites, or another sum."
            )
        return chosen

    @contextmanager
    def _federation(self, partitions: Mapping[str, Partition], seed: int) -> Iterator[Federation]:
        """Sites that hold these partitions, for as long as training takes."""
        chosen = self._secure_sum(len(partitions))
        patience_s = parameters.positive("round_timeout_s", self.round_timeout_s)
        with local_federation(
            SITE_MODULE, self.program, partitions, chosen, settings={"seed": seed}, round_timeout_s=patience_s
        ) as federation:
            yield federation

    def _result(
        self,
        federation: Federation,
        partitions: Mapping[str, Partition],
        figures: Figures,
        privacy: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """What the training was, when its processes are gone."""
        shapes = {site: held.arrays["numeric"].shape for site, held in partitions.items()}
        return {
            "status": "completed",
            "model": {"algorithm": self.program, **figures.to_fields(), "classes": self.classes_.tolist()},
            "cost": report.cost(federation),
            "sites": [
                {**site, "rows": shapes[site["name"]][0], "columns": shapes[site["name"]][1]}
                for site in report.sites(federation)
            ],
            "disclosures": report.disclosures(federation),
            "privacy": privacy,
            "timing": {"total_s": time.monotonic() - federation.began},
        }


class HorizontalClassifier(FederatedClassifier):
    """A classifier whose sites hold rows."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train on rows X (n, p) with labels y (n,) of two classes.

        groups (n,): which site holds each row, by a name or a number; without it rows are dealt to `sites` at random.
        Raises ValueError for data or parameters that will not do, and FederationError where a site fails.
        """
        rows, signs = self._binary(X, y)
        self._train(rows, signs, groups, parameters.seed_of(self.random_state))
        return self

    @abstractmethod
    def _train(self, rows: FloatArray, signs: FloatArray, groups: Any, seed: int) -> None:
        """Train on checked rows (n, p) and signs (n,) of +1 and -1, and keep what was learnt."""

    def _dealt(self, indices: IntArray, groups: Any, rows: int, seed: int) -> dict[str, IntArray]:
        """Which of the rows `indices`, of `rows` in all, each site holds."""
        if groups is None:
            sites = parameters.whole("sites", self.sites)
            if len(indices) < sites:
                raise ValueError(f"n_samples={len(indices)} rows cannot be dealt to {sites} sites; have fewer.")
            dealt = np.random.default_rng([seed, 1]).permutation(indices)
            parts = np.array_split(dealt, sites)
            return {f"site-{number}": np.sort(part) for number, part in enumerate(parts, start=1)}
        names = _names(groups, rows)
        held = {_named(name): indices[names[indices] == name] for name in np.unique(names).tolist()}
        if empty := [name for name, mine in held.items() if not len(mine)]:
            raise ValueError(
                f"groups: no row is left to {', '.join(empty)} when public rows are set apart; leave it out."
            )
        return held


def _names(groups: Any, rows: int) -> NDArray[np.str_]:
    """(n,) the site of each row, as text. Raises ValueError for a row without one."""
    given = np.asarray(groups)
    if given.shape != (rows,):
        raise ValueError(f"groups has shape {given.shape}, and there are {rows} rows; it must say a site for each.")
    if any(value is None or value != value for value in given.tolist()):  # noqa: PLR0124 - as NaN is not
        raise ValueError("groups: a row has no site; every row must have one.")
    return given.astype(str)


def _named(name: str) -> str:
    """The name, if a site can have it."""
    if not _NAME.fullmatch(name) or name == COORDINATOR:
        raise ValueError(
            f"groups: {name!r} cannot be the name of a site; it must be made of at most 64 letters, digits, dots, "
            f"hyphens and underscores, start with a letter or digit, and not be the word {COORDINATOR}."
        )
    return name


def partition_of(rows: FloatArray, signs: FloatArray | None) -> Partition:
    """What a site holds: numeric columns (n, p) of its rows, and their labels (n,) of +1 and -1, if it has them."""
    count, width = rows.shape
    arrays = {
        "numeric": np.ascontiguousarray(rows),
        "codes": np.zeros((count, 0), dtype=np.int64),
        "labels": np.zeros((0, count)) if signs is None else np.ascontiguousarray(signs[None, :]),
        "folds": np.full(count, -1),
    }
    return Partition(arrays, {"numeric": [f"x{j}" for j in range(width)], "categorical": [], "categories": []})


def kernel_of(estimator: Any, columns: int) -> Kernel:
    """The kernel of an estimator's parameters, over so many columns. Raises ValueError."""
    return Kernel(
        parameters.choice("kernel", estimator.kernel, get_args(KernelName)),
        parameters.auto_or_positive("gamma", estimator.gamma, auto=1.0 / columns),
        parameters.whole("degree", estimator.degree),
        parameters.finite("coef0", estimator.coef0),
    )
