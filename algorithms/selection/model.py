"""The model of chosen columns, the settings that all methods of choosing share, and a fit: choose, then PAN-SVM.

What an algorithm of this family says is how columns are ordered (`SelectionAlgorithm.choose`). How many of them are
kept follows from the curve of accuracy against size, or is told. The curve is measured by inner cross-validation of
SVMs on the best columns, all sizes and folds in the same rounds. Its columns were ranked on the rows that it
counts on, so that its accuracies are too good (Ambroise and McLachlan 2002): they choose a size, and nothing else.

References
----------
C. Ambroise and G. J. McLachlan, "Selection bias in gene extraction on the basis of microarray gene-expression data",
PNAS 99, 2002. Y. Lu, "Privacy-preserving SVM" (the PAN-SVM dissertation), 2016, chapters 5 and 6.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, HorizontalAlgorithm, Model, Outline, Premises, TrainingReport
from fedsvm.algorithms.calibration import Calibration, ClassCalibration
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.horizontal_task import HorizontalTask, PreparedRows
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.mapped_rows import map_rows
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.leakage import WholeRunLeakage
from fedsvm.algorithms.linear_model import PanModel, with_calibration
from fedsvm.algorithms.optimization.linear_svm_settings import without_committee, without_objective_noise
from fedsvm.algorithms.optimization.solution import Solution
from fedsvm.algorithms.optimization.weighting import Weighting
from fedsvm.algorithms.pan_svm import PanSvm, train
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.ranking import CurvePoint, FeatureRanking, RankingStep
from fedsvm.algorithms.remarks import Remark, opened_exactly
from fedsvm.algorithms.selection.elimination import MANY_COLUMNS
from fedsvm.algorithms.selection.filters import membership_auc
from fedsvm.algorithms.selection.moments import MOMENTS
from fedsvm.algorithms.selection.site import SelectionSite
from fedsvm.algorithms.selection.subsets import Subset
from fedsvm.algorithms.selection.training import SubsetTraining, TrainingSettings
from fedsvm.algorithms.settings import ShareOrCount, doc
from fedsvm.algorithms.sklearn_parts import Steps
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.federation import Federation

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack
    from fedsvm.protocols.analysis.views import Coalition

_DENSE, _GROWTH = 10, 1.25
"""Sizes of a curve: each up to the first, then by this factor, and by 2 from `MANY_COLUMNS` on."""

CURVE_TOLERANCE = 1e-3
"""Certified relative gap of the models that a size is chosen by."""

SHOWN_COLUMNS = "which columns are kept, and in which order others were dropped"


@dataclass
class SelectionSettings(TrainingSettings):
    """The settings of a user, in addition to those of PAN-SVM on the selected columns."""

    _: KW_ONLY
    size: Annotated[
        Literal["best", "one-se"] | ShareOrCount,
        doc(
            "Number of columns to keep: the best inner accuracy (best), the fewest within a standard error of it "
            "(one-se), a count, or a share."
        ),
    ] = "one-se"


def chosen_count(size: int | float, columns: int) -> int:
    """Return the number of columns for a count or a share."""
    return max(1, min(columns, size if isinstance(size, int) else round(size * columns)))


def curve_sizes(columns: int) -> list[int]:
    """Return the sizes at which a curve is measured."""
    sizes = list(range(1, min(columns, _DENSE) + 1))
    while sizes[-1] < columns:
        growth = _GROWTH if sizes[-1] < MANY_COLUMNS else 2.0
        sizes.append(min(columns, math.ceil(sizes[-1] * growth)))
    return sizes


@dataclass(frozen=True)
class SizeModel:
    """An SVM on some columns: their numbers (m,), w (m,) and b; of K > 2 classes w (K, m) and b (K,).

    map: the features that w weighs; None for a linear SVM.
    """

    columns: IntArray
    w: FloatArray
    b: float | FloatArray
    map: NystromMap | None = None

    @classmethod
    def of(cls, columns: IntArray, model: Sequence[Solution], feature_map: NystromMap | None = None) -> SizeModel:
        """Return the model of one problem, or of one for each class."""
        if len(model) == 1:
            return cls(columns, model[0].w, model[0].b, feature_map)
        return cls(columns, np.array([each.w for each in model]), np.array([each.b for each in model]))

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p), or (n, K)."""
        features = rows[:, self.columns] if self.map is None else self.map(rows[:, self.columns])
        return np.asarray(features @ self.w.T + self.b)


@dataclass(frozen=True)
class Choice:
    """The result of a method: the ranking, without the number of columns to keep, by numbers of columns.

    order: the best first. scores (p,): of each column. score: what they are. ranks (p,): of the ordered columns.
    most: how many are ranked, where it is not all. size, size_rule: how many are kept, where the method says so. curve,
    by_size: accuracy against size, where it measured that. stability (p,): see `FeatureRanking`. figures: own numbers.
    """

    order: IntArray
    scores: FloatArray
    score: str
    ranks: IntArray
    training: SubsetTraining
    steps: tuple[RankingStep, ...] = ()
    most: int | None = None
    size: int | None = None
    size_rule: str = ""
    curve: tuple[CurvePoint, ...] = ()
    by_size: tuple[SizeModel, ...] = ()
    rows_determined: int | None = None
    stability: tuple[float, ...] = ()
    remarks: tuple[Remark, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SelectionInput:
    """The input of a choice: sites whose rows are on the common scale, the number of classes, and weights of rows."""

    federation: Federation
    prepared: PreparedRows
    names: Sequence[str]
    seed: int
    classes: int = 2
    weighting: Weighting | None = None


@dataclass(frozen=True)
class SelectionOutcome:
    """The result of a choice: the ranking, the kept columns (k,), in rising order, and models by size.

    prepared: the rows as sites hold them ready, of all columns. rounds: that the choice took.
    """

    prepared: PreparedRows
    choice: Choice
    ranking: FeatureRanking
    columns: IntArray
    by_size: tuple[SizeModel, ...]
    rounds: int


@dataclass(frozen=True)
class SelectedModel(Model):
    """A PAN-SVM of chosen columns: their numbers among those of the rows it is asked about, in rising order.

    by_size: models of the best columns by their number, on the way to the size that was chosen: of each number
    those of the inner folds.
    """

    inner: PanModel
    selected: IntArray
    ranking: FeatureRanking | None = None
    by_size: tuple[SizeModel, ...] = ()
    training: TrainingReport | None = None

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p) of all columns; positive for the class +1; (n, K) for
        more."""
        return self.inner.decision_function(rows[:, self.selected])

    @property
    def calibrated(self) -> Calibration | ClassCalibration | None:
        """As of the inner model."""
        return self.inner.calibrated

    def probabilities(self, rows: FloatArray) -> FloatArray | None:
        """Return those of the inner model."""
        return self.inner.probabilities(rows[:, self.selected])

    @property
    def kept_by_sites(self) -> bool:
        """True if only the sites have the weights."""
        return self.inner.kept_by_sites

    @property
    def selected_columns(self) -> IntArray:
        """Those that a file has."""
        return self.selected

    @property
    def ranked(self) -> FeatureRanking | None:
        """As it was found; None of a model that was read from a file."""
        return self.ranking

    def decisions_by_size(self, rows: FloatArray) -> dict[int, list[FloatArray]]:
        """Return decision values (n,), or (n, K), of scaled rows (n, p) by each model of the best columns, by size."""
        found: dict[int, list[FloatArray]] = {}
        for model in self.by_size:
            found.setdefault(len(model.columns), []).append(model.decision_function(rows))
        return found

    def sklearn_steps(self, classes: NDArray[Any]) -> Steps:
        """Return the steps of a pipeline; see `Model`."""
        return self.inner.sklearn_steps(classes)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a pan-svm file of the chosen columns, and their numbers.

        Returns
        -------
        selected : (k,)
            Numbers of the chosen columns among all.
        """
        return {**self.inner.to_arrays(), "selected": self.selected}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file for rows of the selected columns; without names of columns, for rows of all."""
        inner = PanModel.from_arrays(arrays, parts)
        return cls(inner, np.arange(len(arrays["columns"])) if "columns" in arrays else arrays["selected"])

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return those of the PAN-SVM, and `support_`; `selected_` are the numbers of the selected columns."""
        scale = Scale(scaling.offset[self.selected], scaling.scale[self.selected])
        return {"selected_": self.selected, **self.inner.attributes(scale)}


S = TypeVar("S", bound=SelectionSettings)


class SelectionAlgorithm(HorizontalAlgorithm[S, SelectedModel]):
    """A way to choose columns, and a PAN-SVM on those."""

    phases: ClassVar[tuple[str, ...]] = ("setup", "select", "landmarks", "train")
    Site, Model = SelectionSite, SelectedModel
    chooses_columns = True
    figures: ClassVar[Mapping[str, str]] = {
        "columns_selected": "columns that the model is of",
        "select_rounds": "rounds until they were chosen",
        **PanSvm.figures,
    }

    @abstractmethod
    def choose(self, selecting: SelectionInput, settings: S) -> Choice:
        """Order the columns. The rounds are of phase "select"."""

    def select(self, federation: Federation, task: HorizontalTask, settings: S) -> SelectionOutcome:
        """Choose columns, and how many, and have the sites keep these."""
        prepared = federation.until_stable(lambda: task.prepare(federation))
        began, names = federation.progress.round, task.columns.names
        weighting = settings.weighting_of(task)
        selecting = SelectionInput(federation, prepared, names, task.seed, len(task.classes), weighting)
        with federation.phase("select"):
            choice = self.choose(selecting, settings)
            ranking, by_size = _select_size(choice, settings, names)
            columns = np.sort([names.index(name) for name in ranking.selected])
            federation.run("keep_columns", remember=True, columns=columns)
        federation.disclose("sites", "keep_columns", SHOWN_COLUMNS, columns.shape)
        return SelectionOutcome(prepared, choice, ranking, columns, by_size, federation.progress.round - began)

    def fit(self, federation: Federation, task: HorizontalTask, settings: S) -> SelectedModel:
        """Choose columns, then features of them from the sites' rows, then training."""
        chosen = self.select(federation, task, settings)
        prepared, selected = chosen.prepared, chosen.columns

        def map_features() -> Any:
            rows = {site: prepared.site_rows.get(site, 0) for site in federation.sites}
            narrowed = replace(prepared, columns=len(selected), site_rows=rows, selected=selected)
            return map_rows(federation, settings, narrowed, task.seed)

        features = federation.until_stable(map_features)
        weighting = settings.weighting_of(task)
        trained = train(federation, settings, features, weighting, len(task.classes), task.conditions)
        inner = with_calibration(federation, task, trained, settings)
        report = _report_selection(inner, chosen)
        return SelectedModel(inner, selected, chosen.ranking, chosen.by_size, report)

    def resolve_settings(self, settings: S, premises: Premises) -> tuple[S, tuple[Remark, ...]]:
        """Resolve `masking = "auto"`, without a committee, and the defaults of noise and tolerance."""
        return without_objective_noise(without_committee(settings)), ()

    def problems(self, settings: S, outline: Outline) -> Iterator[str]:
        """Yield the problems of PAN-SVM, and sizes without a curve."""
        yield from PanSvm().problems(settings, outline)
        if settings.objective_noise:
            yield "objective_noise: is for pan-svm; choosing columns opens sums that have no such noise; remove it"
        if outline.needs_curve and settings.size not in ("best", "one-se"):
            yield f'size: must be "best" or "one-se" where data.evaluation looks at every size, got {settings.size!r}'

    def takes_weights(self, settings: S) -> bool:
        """Return False, since columns are selected by rows of equal weight."""
        return False

    def can_calibrate(self, settings: S) -> bool:
        """Return whether PAN-SVM can calibrate."""
        return PanSvm().can_calibrate(settings)

    def class_problems(self, settings: S, classes: tuple[str, ...]) -> Iterator[str]:
        """Yield the problems of PAN-SVM."""
        yield from PanSvm().class_problems(settings, classes)

    def warnings(self, model: SelectedModel, settings: S, rows: EvaluationRows, fold: int) -> list[str]:
        """Return what class means of more columns than rows reveal about membership, measured on these rows."""
        return list(_memberships(rows))

    def train_pooled(self, model: SelectedModel, settings: S, rows: EvaluationRows) -> Pooled | None:
        """Train PAN-SVM's reference on the same columns."""
        return PanSvm().train_pooled(model.inner, settings, _only(rows, model.selected))

    def whole_run(self, settings: S) -> WholeRunLeakage:
        """Return what PAN-SVM gives away, and cuts of the SVMs that choose columns."""
        found = PanSvm().whole_run(settings)
        return found.with_rows_alone() if settings.select_solver == "cutting-plane" else found

    def attacks(self, settings: S) -> Sequence[Attack]:
        """Return the attacks on cuts of columns, and those on PAN-SVM, which find rows in the selected columns."""
        from fedsvm.algorithms.attacks.chosen_columns import OnChosenColumns
        from fedsvm.algorithms.attacks.subset_cuts import SubsetCuts

        return [SubsetCuts(), *(OnChosenColumns(attack) for attack in PanSvm().attacks(settings))]

    def remarks(self, settings: S, coalition: Coalition) -> list[str]:
        """Return the remarks of PAN-SVM."""
        return PanSvm().remarks(settings, coalition)


def _only(rows: EvaluationRows, columns: IntArray) -> EvaluationRows:
    """Return the same rows in some columns."""
    train, test = (LabeledRows(each.rows[:, columns], each.labels) for each in (rows.train, rows.test))
    return replace(rows, train=train, test=test)


def _report_selection(inner: PanModel, chosen: SelectionOutcome) -> TrainingReport:
    """Return the training report, with the number of columns."""
    training = inner.training
    if training is None:
        raise AssertionError("a trained model has no report of its training")
    count, of = len(chosen.ranking.selected), len(chosen.ranking.columns)
    figures = {"columns_selected": count, "select_rounds": chosen.rounds, **chosen.choice.figures, **training.figures}
    return replace(
        training,
        description=f"{count} of {of} columns, {training.description}",
        figures=figures,
        remarks=(*training.remarks, *chosen.choice.remarks, *opened_exactly(chosen.prepared.statistics, MOMENTS)),
    )


def _memberships(rows: EvaluationRows) -> Iterator[str]:
    """Yield a sentence for each class with fewer rows than columns, whose means were summed."""
    columns = rows.train.rows.shape[1]
    labels = (-1.0, 1.0) if len(rows.classes) == 2 else range(len(rows.classes))
    for name, label in zip(rows.classes, labels, strict=True):
        inside = rows.train.rows[rows.train.labels == label]
        if columns <= len(inside):
            continue
        others = rows.test.rows[rows.test.labels == label]
        area = None if rows.test is rows.train else membership_auc(inside, others[::2], others[1::2])
        measured = f", here with an AUC of {area:.2f}" if area is not None else ""
        yield (
            f"The means of class {name!r} are of {columns} columns and {len(inside)} rows: who has a record, and "
            f"others to compare it with, can tell whether it is one of them{measured}. No secure sum helps, for the "
            "sum tells."
        )


# How many are kept.


def _select_size(
    choice: Choice, settings: SelectionSettings, names: Sequence[str]
) -> tuple[FeatureRanking, tuple[SizeModel, ...]]:
    """Return the ranking with the selected columns, and the models of the curve, if one was measured."""
    curve, by_size, most = choice.curve, choice.by_size, choice.most or len(names)
    if choice.size is not None:
        size, rule = choice.size, choice.size_rule
    elif isinstance(settings.size, str):
        curve, by_size = accuracy_curve(choice, settings.inner_folds)
        size, rule = size_of(curve, settings.size)
    else:
        size, rule = min(most, chosen_count(settings.size, len(names))), f"{settings.size:g}, as told"
    ranking = FeatureRanking(
        columns=tuple(names[column] for column in choice.order),
        ranks=tuple(choice.ranks.tolist()),
        scores=tuple(float(s) if np.isfinite(s) else None for s in choice.scores[choice.order]),
        score=choice.score,
        selected=tuple(names[column] for column in np.sort(choice.order[:size])),
        size_rule=rule,
        steps=choice.steps,
        curve=curve,
        rows_determined=choice.rows_determined,
        stability=tuple(choice.stability[column] for column in choice.order) if choice.stability else (),
    )
    return ranking, by_size


def accuracy_curve(choice: Choice, inner_folds: int) -> tuple[tuple[CurvePoint, ...], tuple[SizeModel, ...]]:
    """Run inner cross-validation of SVMs on the best columns, for every size of the curve, all in the same rounds.

    Return also the models: one for each size and fold.
    """
    sizes, folds = curve_sizes(choice.most or len(choice.order)), range(inner_folds)
    subsets = [Subset(choice.order[:size], fold) for size in sizes for fold in folds]
    judged = choice.training.judge(subsets, CURVE_TOLERANCE)
    right, rows = (each.reshape(len(sizes), len(folds)).sum(axis=1) for each in (judged.right, judged.rows))
    points, models = [], []
    for place, size in enumerate(sizes):
        points.append(point_of(size, right[place], rows[place]))
        of_size = judged.models[place * len(folds) : (place + 1) * len(folds)]
        feature_map = choice.training.map_of(choice.order[:size])
        models += [SizeModel.of(choice.order[:size], model, feature_map) for model in of_size]
    return tuple(points), tuple(models)


def point_of(size: int, right: float, rows: float) -> CurvePoint:
    """Return the point of a curve for correct rows of all left-out rows."""
    accuracy = float(right / rows)
    return CurvePoint(size, accuracy, math.sqrt(accuracy * (1 - accuracy) / rows))


def size_of(curve: Sequence[CurvePoint], rule: str) -> tuple[int, str]:
    """Return the size by a rule, and the rule in a phrase; among equals the fewest columns."""
    best = max(curve, key=lambda point: (point.accuracy, -point.size))
    if rule == "best":
        return best.size, f"the highest inner accuracy, {100 * best.accuracy:.1f} %"
    floor = best.accuracy - best.standard_error
    fewest = next(point for point in curve if point.accuracy >= floor - 1e-12)
    return fewest.size, (
        f"the fewest within a standard error, {100 * best.standard_error:.1f} points, of the highest inner accuracy, "
        f"{100 * best.accuracy:.1f} %"
    )
