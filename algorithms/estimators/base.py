"""The base of the estimators: scikit-learn's contract, with sites in processes of their own.

An estimator has all rows in hand, deals them to sites on this machine, and trains as a federation would: what leaves a
site, and what it costs, is in `result_`. When `fit` returns, or is interrupted, its processes are gone.

An estimator's class is the settings of its algorithm and the parameters of its family, as one dataclass: `__init__`,
the checks and the documentation of parameters follow from the fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from fedsvm.algorithms import SITE_MODULE
from fedsvm.algorithms.algorithm import Algorithm, Model, Outline
from fedsvm.algorithms.data.classes import predict_class
from fedsvm.algorithms.data.scaling import Scale, ScaleName
from fedsvm.algorithms.estimators.frames import Frame, read
from fedsvm.algorithms.estimators.progress import ProgressPrinter
from fedsvm.algorithms.features.kernels import KernelSettings
from fedsvm.algorithms.privacy.accountant import PrivacyReport
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.algorithms.remarks import Remark
from fedsvm.algorithms.settings import Count, Natural, Seconds, Setting, check_settings, doc, settings
from fedsvm.federation import report
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.startup import local_federation
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.secure_sum import SecureSum

_SEEDS = 2**31

E = TypeVar("E", bound=type[Any])
T = TypeVar("T")


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """An estimator that sites in processes of their own train on labeled rows."""

    scale: Annotated[ScaleName, doc("The common scale of columns.")] = "standard"
    sites: Annotated[Count, doc("Number of sites to split into, unless groups or columns assign them.")] = 3
    sum: Annotated[str, doc("The secure sum: any that `fedsvm check-sum` knows.")] = "ring"
    sum_options: Annotated[
        Mapping[str, float] | None,
        doc(
            "`segments` of k-secure, `rings` of changing-neighbours, `threshold` of masked, `helpers` of "
            "additive-shares."
        ),
    ] = None
    round_timeout_s: Annotated[Seconds, doc("Seconds of silence after which a site is taken for dropped.")] = 30.0
    verbose: Annotated[bool | Natural, doc("Print a line for each phase and each iteration of `fit`.")] = False
    random_state: Annotated[
        int | np.random.RandomState | None,
        doc("Of the deal and the experiment's own generators; never of masks, keys or noise."),
    ] = 0

    # For `fit`.

    @property
    @abstractmethod
    def _algorithm(self) -> Algorithm[Any, Any, Any]:
        """The algorithm to run over the sites."""

    def _check_rows(self, X: Any, y: Any) -> tuple[Frame, FloatArray]:
        """Return rows and labels (n,): +1 for the second of two classes and -1 for the first, or numbers of more.

        Removes the attributes of an earlier fit. Raises ValueError.
        """
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        rows = read(self, X)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        labels = column_or_1d(y, warn=True)
        check_consistent_length(rows, labels)
        check_classification_targets(labels)
        if (kind := type_of_target(labels, input_name="y")) != "binary" and not self._algorithm.multiclass:
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has 1 class, {self.classes_[0]!r}; two are needed.")
        return rows, np.where(numbers == 1, 1.0, -1.0) if len(self.classes_) == 2 else numbers.astype(np.float64)

    def _numbers(self, rows: Frame) -> FloatArray:
        """Return rows (n, p) of columns that are all numeric. Raises ValueError if a column holds text."""
        if rows.text_names:
            raise ValueError(
                f"X: column {rows.text_names[0]!r} holds text, and {type(self).__name__} takes numbers; encode it "
                "before, for example with OneHotEncoder."
            )
        return rows.numeric

    def _parameter(self, name: str) -> Any:
        """Return one of the family's parameters. Raises ValueError if it is invalid."""
        (setting,) = [setting for setting in settings(type(self)) if setting.name == name]
        try:
            return setting.check(getattr(self, name))
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None

    def _seed(self) -> int:
        """Return a seed for the experiment from `random_state`, or draw one."""
        state = self.random_state
        if state is None:
            return int(np.random.default_rng().integers(_SEEDS))
        if isinstance(state, np.random.RandomState):
            return int(state.randint(_SEEDS))
        if isinstance(state, bool) or not isinstance(state, Integral) or int(state) < 0:
            raise ValueError(f"random_state must be a whole number from 0, a RandomState or None, got {state!r}")
        return int(state)

    def _secure_sum(self, sites: int) -> SecureSum:
        """Return the requested sum. Raises ValueError for one that this number of sites cannot run."""
        if not isinstance(self.sum, str) or self.sum not in SUMS:
            raise ValueError(f"sum must be one of {', '.join(SUMS)}, got {self.sum!r}")
        make, given = SUMS[self.sum], {} if self.sum_options is None else self.sum_options
        known = list(inspect.signature(make).parameters)
        if not isinstance(given, Mapping) or not set(given) <= set(known):
            allowed = f"a dict of {', '.join(known)}" if known else f"left out, as a {self.sum} sum has none"
            raise ValueError(f"sum_options must be {allowed}, got {given!r}.")
        options = {key: value.item() if isinstance(value, np.generic) else value for key, value in given.items()}
        try:
            made = make(**options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"sum_options must be options of a {self.sum} sum, got {options!r}: {error}.") from None
        if sites < made.min_sites:
            raise ValueError(
                f"A {self.sum} sum needs {made.min_sites} sites or more and there are {sites}; with fewer it hides"
                " nothing. Add sites, or choose another sum."
            )
        return made

    def _class_names(self, chosen: Any) -> tuple[str, ...]:
        """Return the names of the classes. Raises ValueError if the settings do not fit them."""
        classes = tuple(str(name) for name in self.classes_.tolist())
        for problem in self._algorithm.class_problems(chosen, classes):
            raise ValueError(f"{problem}.")
        return classes

    def _learn(
        self,
        partitions: Mapping[str, Partition],
        seed: int,
        chosen: Any,
        learn: Callable[[Federation], T],
        **reading: Any,
    ) -> T:
        """Train by `learn` over sites with these partitions and set `result_`; a site that drops ends the fit.

        chosen: the settings of the algorithm. reading: the options of a scenario's [data] table.
        """
        made, patience_s = self._secure_sum(len(partitions)), self._parameter("round_timeout_s")
        algorithm = self._algorithm
        terms = Terms(
            algorithm.name,
            dataclasses.asdict(chosen),
            made.name,
            dict(made.options),
            made.min_sites,
            shown=algorithm.shown_steps(chosen),
            seed=seed,
            reading={"scale": self._parameter("scale"), **reading},
        )
        with local_federation(
            SITE_MODULE,
            algorithm.name,
            partitions,
            made,
            settings={"seed": seed},
            terms=terms,
            round_timeout_s=patience_s,
            observer=ProgressPrinter(type(self).__name__) if self._parameter("verbose") else None,
        ) as federation:
            learned = learn(federation)
        self.result_ = {
            "status": "completed",
            "cost": _plain(report.cost(federation)),
            "sites": [_site(site, partitions[site.name]) for site in report.sites(federation)],
            "disclosures": [_plain(each) for each in report.disclosures(federation)],
            "timing": {"total_s": time.monotonic() - federation.record.began},
        }
        return learned


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]
    """A classifier that is trained by sites in processes of their own.

    `result_` holds what the training was: `model` (its certificate), `cost` (rounds, bytes, by phase and protocol),
    `sites`, `disclosures`, `privacy`. The names are those of a run's result.json.
    """

    algorithm: ClassVar[str]
    """The name of the algorithm in a scenario."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._algorithm.multiclass
        return tags

    def decision_function(self, X: Any) -> FloatArray:
        """Return decision values of rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n, p)
            Rows as they are; the model scales them.

        Returns
        -------
        ndarray of shape (n,), or (n, K) of more than two classes
            Positive for `classes_[1]`; of more, the largest of a row is that of its class.
        """
        check_is_fitted(self)
        values: FloatArray = self.model_.decision_function(self._scale(read(self, X, reset=False)))
        return values

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row.

        Parameters
        ----------
        X : array-like of shape (n, p)

        Returns
        -------
        ndarray of shape (n,)
        """
        scores = self.decision_function(X)  # first, so that what is not fitted says so
        calibration = self.model_.calibrated
        threshold = 0.0 if calibration is None else calibration.threshold
        return np.asarray(self.classes_[predict_class(scores, threshold)])

    def _scale(self, rows: Frame) -> FloatArray:
        """Return rows (n, p) on the common scale."""
        return np.asarray(self.scaling_(self._numbers(rows)))

    # For `fit`.

    @property
    def _is_calibrated(self) -> bool:
        """True if rows are set apart to calibrate the model."""
        return False

    @property
    def _mu(self) -> float:
        """The mu of noisy statistics; 0 of exact ones."""
        return 0.0

    @property
    def _algorithm(self) -> Algorithm[Any, Any, Any]:
        return ALGORITHMS[self.algorithm]

    def _settings(self, public_rows: int = 0) -> Any:
        """Return the algorithm's settings. Raises ValueError for an invalid parameter."""
        algorithm = self._algorithm
        chosen = check_settings(algorithm.Settings, self)
        outline = Outline(public_rows, models=1, calibrated=self._is_calibrated, statistics_privacy=self._mu)
        for problem in algorithm.problems(chosen, outline):
            raise ValueError(f"{problem}.")
        if isinstance(chosen, KernelSettings):
            for problem in chosen.scale_problems(self._parameter("scale")):
                raise ValueError(f"{problem}.")
        return chosen

    def _keep(
        self, model: Model, scaling: Scale, privacy: PrivacyReport | None = None, remarks: tuple[Remark, ...] = ()
    ) -> None:
        """Set the attributes of a trained model, by scikit-learn's names, and add it to `result_` with remarks."""
        self.model_, self.scaling_ = model, scaling
        for name, value in model.attributes(scaling).items():
            setattr(self, name, value)
        training = model.training
        if training is None:
            raise TypeError(f"{self.algorithm} must give a model with a training report, got none")
        training = dataclasses.replace(training, remarks=(*training.remarks, *remarks))
        if training.iterations is not None:
            self.n_iter_ = max(1, training.iterations)
        if training.gap is not None:
            self.gap_ = training.gap
        self.result_ |= {
            "model": {"algorithm": self.algorithm, **_plain(training), "classes": self.classes_.tolist()},
            "privacy": None if privacy is None else _plain(privacy),
        }


def _site(site: report.SiteReport, held: Partition) -> dict[str, Any]:
    rows, columns = held.arrays["numeric"].shape
    return {**_plain(site), "rows": rows, "columns": columns}


def _plain(value: Any) -> Any:
    """Return a dataclass as a dictionary, with lists instead of tuples, as in a result."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator(kind: E) -> E:
    """Make the class of an estimator: a dataclass of all its settings, which its documentation lists."""
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(kind)
    made.__init__.__annotations__ |= {
        field.name: get_type_hints(made)[field.name] for field in dataclasses.fields(made)
    }
    listed = settings(made)
    listed.sort(key=lambda setting: setting.name in FederatedEstimator.__dataclass_fields__)
    text = "\n".join(f"{each.name} : {_type_and_default(each)}\n    {each.sentence}" for each in listed)
    summary, heading, rest = inspect.cleandoc(made.__doc__ or "").partition("\nAttributes\n")
    made.__doc__ = f"{summary.rstrip()}\n\nParameters\n----------\n{text}\n{heading}{rest}"
    return kind


def _type_and_default(setting: Setting) -> str:
    """Return type and default, as scikit-learn's documentation writes them."""
    try:
        requirement = setting.requirement
    except KeyError:  # of a type that no scenario file can hold
        requirement = str(setting.annotation.__args__[0]).replace("<class '", "").replace("'>", "")
    return f"{requirement}, default={setting.default!r}"
