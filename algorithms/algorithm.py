"""The contract of algorithms with the upper floor: settings, a site half, a coordinator half, a model, and a reference.

An algorithm of this project or of another package is one class that derives from `HorizontalAlgorithm` or
`VerticalAlgorithm`. From it follow the `[algorithm]` table of a scenario, the parameters of an estimator, the model
file, prediction, the lines of summary and report, the measures of a sweep, and what a site process may run. Nothing
above this floor knows an algorithm by name.

A setting is a field of a plain dataclass, spelt once, with its bounds and its sentence (see `settings`):

    @dataclass
    class RidgeSettings:
        penalty: Annotated[Positive, doc("Factor of the squared weights.")] = 1.0
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

from numpy.typing import NDArray

from fedsvm.algorithms.calibration import Calibration, ClassCalibration
from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.data.public_rows import PublicTask
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.data.vertical import VerticalTask
from fedsvm.algorithms.features.kernel_expansion import KernelExpansion
from fedsvm.algorithms.leakage import WholeRunLeakage
from fedsvm.algorithms.own_models import own_counts
from fedsvm.algorithms.pooled import Baseline, EvaluationRows, Pooled
from fedsvm.algorithms.ranking import FeatureRanking
from fedsvm.algorithms.remarks import Remark
from fedsvm.algorithms.sklearn_parts import NotExportable, Steps
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SiteProgram

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack
    from fedsvm.protocols.analysis.views import Coalition

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class TrainingReport:
    """The entries of a result about a trained model, whatever trained it.

    Parameters
    ----------
    sites : tuple of str
        Over whose rows or columns all of this holds.
    description : str
        The model's size in a phrase, such as "192 landmarks, rank 180".
    objective, lower_bound, gap : float, optional
        The certificate: the objective that was reached, a bound that it cannot fall below, and the relative difference.
        None where it does not apply, or where noise does not cover it.
    iterations : int, optional
        How many training took; None where noise does not cover it.
    converged : bool, default True
        Whether training came to its tolerance.
    gaps : tuple of float
        The gap of each of several problems that are trained in the same rounds; `gap` is the largest.
    figures : mapping
        Numbers that only this algorithm has, by the names in `Algorithm.figures`.
    remarks : tuple of Remark
        Lines of the summary in addition to the common ones.
    """

    sites: tuple[str, ...]
    description: str
    objective: float | None = None
    lower_bound: float | None = None
    gap: float | None = None
    iterations: int | None = None
    converged: bool = True
    figures: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    gaps: tuple[float, ...] = ()


class Model(ABC):
    """A trained classifier: what is known of its training, its decision values, and its arrays in a file."""

    training: TrainingReport | None
    """The entries of a result about the model; None for a model that was read from a file."""

    @abstractmethod
    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p), positive for the class +1; (n, K) for more than two
        classes.

        Of these the largest is that of the row's class. One is positive where its class is called against all others.
        """

    @property
    def calibrated(self) -> Calibration | ClassCalibration | None:
        """The calibration, which turns decision values into probabilities, and the threshold; None without."""
        return None

    def probabilities(self, rows: FloatArray) -> FloatArray | None:
        """Return (n,) probabilities of the class +1 of scaled rows (n, p), or (n, K) of more classes; None without."""
        found = self.calibrated
        return None if found is None else found.probabilities(self.decision_function(rows))

    @property
    def selected_columns(self) -> IntArray | None:
        """(k,) the columns of its rows that the model is of, which alone a file has; None of a model of all."""
        return None

    @property
    def ranked(self) -> FeatureRanking | None:
        """The columns in their order, of a model that chose among them."""
        return None

    def decisions_by_size(self, rows: FloatArray) -> Mapping[int, Sequence[FloatArray]]:
        """Return decision values of scaled rows (n, p) by models of the best columns, for each size of the curve.

        The arrays are (n,), or (n, K), and as many as there are models of a size in `ranked`.
        """
        return {}

    @property
    def kept_by_sites(self) -> bool:
        """True if only the sites' own files have a part that prediction needs; see `from_arrays`.

        Sites that test the model refuse this unless the setting `release` is "sites".
        """
        return False

    def sklearn_steps(self, classes: NDArray[Any]) -> Steps:
        """Return the steps of a scikit-learn pipeline that classify scaled rows as this model does.

        Parameters
        ----------
        classes : (K,) array of str
            Names of the classes.

        Raises
        ------
        NotExportable
            No parts of scikit-learn make up such a model, or only other parties have all of it.
        """
        raise NotExportable(f"scikit-learn has no public parts that make up a {type(self).__name__}")

    @abstractmethod
    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the coordinator's file, by name."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file. parts: the sites' own files, in their order, if sites keep a part of it."""

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return the attributes of a fitted estimator, by scikit-learn's names, each of which ends in "_".

        scaling: of the rows that the model is of, for what is told of rows as they are.
        """
        return {}


class VerticalModel(Model):
    """A model whose parts stay at the sites: each keeps the part of its own columns."""

    fitted: FloatArray
    """(n,) decision values of the training records."""

    @abstractmethod
    def join_parts(self, rows: FloatArray, held: IntArray | None = None) -> Self:
        """Return the whole model, for a caller with all columns. rows: scaled training rows (n, p).

        held (p,): which of these columns each of the sites' is, one site's behind the other's; None where the rows have
        them so.
        """

    @classmethod
    def expansion_of(cls, arrays: Arrays) -> KernelExpansion | None:
        """Return the decision values as sums of kernel values, by the coordinator's file; None if they are not such.

        Sites can then be asked for those of new records, see `column_prediction`.
        """
        return None


@dataclass(frozen=True)
class Outline:
    """The facts of a run that are known before it starts: public rows, and the number of released models.

    calibrated: whether rows are set apart to calibrate models by. needs_curve: whether the run is judged by the
    accuracy of every size of the chosen columns. statistics_privacy: mu of the noisy statistics; 0 of exact ones.
    """

    public_rows: int
    models: int
    calibrated: bool = False
    needs_curve: bool = False
    statistics_privacy: float = 0.0


@dataclass(frozen=True)
class Premises:
    """The facts of a run by which settings with the value "auto" are resolved.

    sites, classes, models: how many there are. conditions: of the network. rows: that are trained on, None if no party
    knows their number before the run. statistics_privacy: mu of noisy statistics; 0 of exact ones. min_sites: the
    number with which the run may begin or go on, None if it is only for the sum to say.
    """

    sites: int
    classes: int = 2
    models: int = 1
    conditions: Conditions = field(default_factory=Conditions)
    rows: int | None = None
    statistics_privacy: float = 0.0
    min_sites: int | None = None


S = TypeVar("S")
M = TypeVar("M", bound=Model)
T = TypeVar("T")
V = TypeVar("V", bound=VerticalModel)


class Algorithm(ABC, Generic[S, M, T]):
    """One method: its settings, what a site does, what the coordinator does, and what pooled rows would have given.

    Attributes
    ----------
    name : str
        What a scenario calls it, and the program that its sites run.
    partition : {"horizontal", "vertical"}
        Whether sites hold different rows or different columns.
    scaling : {"secure-sums", "public-rows", "sites"}
        Where the common scale of columns comes from. "public-rows" also says that private rows choose nothing: no
        columns, no scale, no features, and not which rows are tested on or at which site.
    phases : tuple of str
        The phases that have rounds, in their order: where faults can be placed.
    estimator : str
        The name of its scikit-learn class.
    Settings : type
        A plain dataclass. Its fields are the keys of the scenario's table and the estimator's parameters.
    Site, Model : type
        The site half, and the trained model.
    figures : mapping of str to str
        The numbers that only this algorithm's models have, each with its sentence; a sweep can plot them.
    chooses_columns : bool, default False
        Whether its models are of some columns, which they rank (`Model.ranked`).
    statistics_privacy : float, default 0
        The mu of noisy statistics in scenarios that do not say it; 0 for exact ones.
    own_method : str, default "svm"
        What a site trains on its own rows alone, to compare the federated model with: "svm", which is a support vector
        machine with the run's kernel, or the name of a baseline on pooled rows.
    model_is_statistics : bool, default False
        Whether its models follow from statistics of columns alone: exact ones name listed rows, and the noise of noisy
        ones covers the whole model.
    multiclass : bool
        Whether it tells more than two classes apart; else data of more are refused before anything starts.
    """

    name: ClassVar[str]
    partition: ClassVar[Literal["horizontal", "vertical"]]
    scaling: ClassVar[Literal["secure-sums", "public-rows", "sites"]]
    phases: ClassVar[tuple[str, ...]]
    estimator: ClassVar[str]
    Settings: ClassVar[type[Any]]
    Site: ClassVar[type[SiteProgram]]
    Model: ClassVar[type[Model]]
    figures: ClassVar[Mapping[str, str]] = {}
    chooses_columns: ClassVar[bool] = False
    multiclass: ClassVar[bool] = False
    statistics_privacy: ClassVar[float] = 0.0
    own_method: ClassVar[str] = "svm"
    model_is_statistics: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Set the model type by which sites that hold rows score them, and the model to train on their own rows."""
        super().__init_subclass__()
        site, model = getattr(cls, "Site", None), getattr(cls, "Model", None)
        if site is not None and model is not None and issubclass(site, HorizontalSite):
            site.model_type, site.compare_own = model, staticmethod(partial(own_counts, cls.own_method))
            site.settings_type, site.sums_by_class = getattr(cls, "Settings", None), cls.model_is_statistics

    @property
    def summary(self) -> str:
        """The first line of the docstring, which describes the algorithm in a sentence."""
        return (type(self).__doc__ or "").partition("\n")[0]

    @abstractmethod
    def fit(self, federation: Federation, task: T, settings: S) -> M:
        """Train one model over the sites. Opens its own phases. Raises FederationError where it cannot."""

    def shown_steps(self, settings: S) -> tuple[str, ...]:
        """Return steps whose value every site shows the coordinator under these settings, though it is usually summed.

        Sites are started with these; all others that are not marked by `@step(opens="value")` they refuse to show.
        """
        return ()

    def problems(self, settings: S, outline: Outline) -> Iterator[str]:
        """Yield contradictions in the settings or with the data, as "key: sentence", before anything starts."""
        return iter(())

    def resolve_settings(self, settings: S, premises: Premises) -> tuple[S, tuple[Remark, ...]]:
        """Return the settings that sites are offered and models are trained by, and remarks on what was chosen.

        The same premises give the same settings, and no data has a part in them.
        """
        return settings, ()

    def can_calibrate(self, settings: S) -> bool:
        """Return whether models are calibrated if rows are set apart for it (`HorizontalTask.calibrated`)."""
        return False

    def takes_weights(self, settings: S) -> bool:
        """Return whether rows may have weights, which multiply their losses (`HorizontalTask.weighted`)."""
        return False

    def class_problems(self, settings: S, classes: tuple[str, ...]) -> Iterator[str]:
        """Yield settings that do not fit the classes, of two the negative first: "key: sentence", as `problems`."""
        return iter(())

    def is_private(self, settings: S) -> bool:
        """Return whether noise gives a privacy guarantee for any one row.

        Then nothing on the path from the source to the release may read private rows without noise, and warnings do
        not mention them.
        """
        return False

    def foreseen(self, settings: S, rows: int, columns: int, classes: int) -> Iterator[str]:
        """Yield sentences on what training on this number of rows cannot reach, before anything starts or is spent.

        columns: how many rows have, those of 0 and 1 counted that stand for categories. classes: how many there are.
        """
        return iter(())

    def warnings(self, model: M, settings: S, rows: EvaluationRows, fold: int) -> list[str]:
        """Return sentences about one trained model that a user should read."""
        return []

    # What only a simulation can say.

    def train_pooled(self, model: M, settings: S, rows: EvaluationRows) -> Pooled | None:
        """Train on all data in one place; None if there is nothing to compare with."""
        return None

    def pooled_order(self, model: M, settings: S, rows: EvaluationRows) -> IntArray | None:
        """Return (p,) columns, best first, as all rows in one place order them; None without an order."""
        return None

    def public_baseline(self, model: M, settings: S, rows: EvaluationRows) -> Baseline | None:
        """Return the baseline of public rows alone, with which every private model is compared."""
        return None

    def baselines(self, model: M, settings: S, rows: EvaluationRows, seed: int) -> list[Baseline]:
        """Return other methods on the same rows."""
        return []

    # What an audit looks for.

    def whole_run(self, settings: S) -> WholeRunLeakage | None:
        """Return the most that the attacks of an audit recover from a run with these settings.

        Parameters
        ----------
        settings : Settings

        Returns
        -------
        WholeRunLeakage or None
            None if no whole run was analyzed. A summary then says so.
        """
        return None

    def remarks(self, settings: S, coalition: Coalition) -> list[str]:
        """Return what a coalition learns in addition to single sums, in sentences."""
        return []

    def attacks(self, settings: S) -> Sequence[Attack]:
        """Return the attacks on a coalition's view of a whole run, in order: each may use what those before it
        recovered."""
        return ()

    def file_attacks(self, settings: S) -> Sequence[Attack]:
        """Return what is tried on the model's file alone, in order."""
        return ()


class HorizontalAlgorithm(Algorithm[S, M, HorizontalTask]):
    """An algorithm over sites that hold rows, whose columns are put on a scale that secure sums agree on."""

    partition = "horizontal"
    scaling = "secure-sums"
    phases: ClassVar[tuple[str, ...]] = ("setup", "train")

    def file_attacks(self, settings: S) -> Sequence[Attack]:
        """Return the attack on the digits of the scale, which every file has."""
        from fedsvm.algorithms.attacks.scale_digits import ScaleDigits

        return [ScaleDigits()]

    def score(self, federation: Federation, model: M, rows: FloatArray) -> FloatArray | None:
        """Return (n,) decision values of scaled rows (n, p) by asking the sites, if they keep the model.

        None where `Model.decision_function` needs no site. The rounds are of phase "evaluate".
        """
        return None


class PublicAlgorithm(Algorithm[S, M, PublicTask]):
    """An algorithm over sites that hold rows, whose choices depend on public rows alone."""

    partition = "horizontal"
    scaling = "public-rows"
    phases = ("setup", "train")


class VerticalAlgorithm(Algorithm[S, V, VerticalTask]):
    """An algorithm over sites that hold columns, aligned by record before `fit` in the same stage.

    `fit` must open no stage (`Federation.until_stable`) of its own: sites that join would not hear of the alignment.
    """

    partition = "vertical"
    scaling = "sites"
    phases: ClassVar[tuple[str, ...]] = ("setup", "train", "evaluate")

    @abstractmethod
    def score(self, federation: Federation, model: V, rows: int) -> FloatArray:
        """Return (rows,) decision values of the records that the sites hold out."""
