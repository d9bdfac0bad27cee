"""PAN-SVM (Lu 2016, chapter 3): a kernel SVM over horizontal partitions from which no row is sent.

Landmarks span the feature space of a Nystroem approximation of the kernel. In this space the sites
train a linear SVM, and the coordinator sees only sums over sites and rows. Features that come from no row
(random Fourier features, or the columns themselves) may replace landmarks (`features.choice`).

What the paper overlooks: sums of nearly the same rows, over and over, give rows away. Its cutting planes let a
coordinator that knows the map rebuild the training rows, whatever the secure sum; they are here to compare with. By
default the sites train by an interior point whose system the coordinator solves blindly (`optimization.linear_svm`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedsvm.algorithms.algorithm import Outline, Premises, TrainingReport
from fedsvm.algorithms.calibration import (
    ThresholdSettings,
    calibration,
)
from fedsvm.algorithms.data.classes import (
    Scheme,
    above_others,
    numbers,
    one_against_one,
    one_against_rest,
)
from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.data.horizontal import each_model, preparation
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.features.choice import Features, FeatureSettings
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.inversion import NystromInverse
from fedsvm.algorithms.features.mapped_rows import map_rows, mapping
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.leakage import LISTED, Recovery, WholeRunLeakage
from fedsvm.algorithms.linear_model import PanModel, score_classes, with_calibration
from fedsvm.algorithms.mapped_site import MappedAlgorithm, MappedSite
from fedsvm.algorithms.optimization import joint_hinge, libsvm
from fedsvm.algorithms.optimization.blind_path import BlindNewton
from fedsvm.algorithms.optimization.duration_forecast import NEWTON_ROUNDS, NOISY_ROUNDS
from fedsvm.algorithms.optimization.hinge_sums import HingeCuts
from fedsvm.algorithms.optimization.joint_hinge import JointHingeCuts
from fedsvm.algorithms.optimization.linear_svm import (
    NOTHING_TOLD,
    RowsTold,
    pooled_prices,
    pooled_solution,
    train_linear,
    training,
)
from fedsvm.algorithms.optimization.linear_svm_settings import (
    LinearSvmSettings,
    resolve_solver,
    with_objective_noise,
    without_objective_noise,
)
from fedsvm.algorithms.optimization.masking_choice import MaskedRounds, choice, obstacle
from fedsvm.algorithms.optimization.path_sums import NewtonPath
from fedsvm.algorithms.optimization.solution import NOISY_TOLERANCE
from fedsvm.algorithms.optimization.weighting import Weighting
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.remarks import Remark
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import PartTypes
from fedsvm.federation.site.script import Script, stage
from fedsvm.federation.site.terms import Terms

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack
    from fedsvm.algorithms.attacks.support_rows import SupportRows
    from fedsvm.algorithms.optimization.cutting_plane import Points


@dataclass
class PanSettings(FeatureSettings, LinearSvmSettings, ThresholdSettings):
    """The settings of a user."""


_KINDS: Mapping[Scheme, str] = {
    "ovr": "{} problems, each class against the others",
    "ovo": "{} problems, every two classes",
    "joint": "{} joint problem of all classes",
}


class PanSite(MappedSite):
    """The site half: rows in common features, and the parts of both solvers."""

    part_types: ClassVar[PartTypes] = (*MappedSite.part_types, NewtonPath, BlindNewton, HingeCuts, JointHingeCuts)

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.path = NewtonPath(self, self.mapped, self.row_weights, self._check_problem)
        self.blind = BlindNewton(self, self.path)
        self.hinge = HingeCuts(self, self.mapped)
        self.joint = JointHingeCuts(self, self.mapped)

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `PanSvm.fit`."""
        mapped = stage(preparation(terms), mapping(terms))
        return each_model(terms, mapped, training(terms), calibration(terms))

    def require_released(self, model: PanModel) -> None:
        """Raise OrderRefused for other weights than this site opened, in a run whose released sums the sites verify."""
        if not self.terms.sum_options.get("verify") or model.w is None or model.b is None:
            return
        claimed = np.column_stack([np.atleast_2d(model.w), np.atleast_1d(model.b), np.ones(np.size(model.b))])
        if not np.array_equal(getattr(self, "opened", None), claimed):  # type: ignore[arg-type]
            raise OrderRefused("the model must have the weights that the sites opened, and has others")

    def _check_problem(self, prior: FloatArray, price: float) -> None:
        """Raise OrderRefused for another penalty than was agreed on, or for a prior.

        The loss around a point of the coordinator's choice would tell which rows are there.
        """
        self.check_agreed(C=price)
        if prior.any():
            raise OrderRefused("the prior of begin_path must be 0")


class PanSvm(MappedAlgorithm[PanSettings, PanModel]):
    """A kernel SVM over sites that hold rows, none of which leaves its site (PAN-SVM; Lu 2016, chapter 3)."""

    name = "pan-svm"
    estimator = "PanSVC"
    Settings, Site, Model = PanSettings, PanSite, PanModel
    figures = {
        **MappedAlgorithm.figures,
        "bundles": "of cuts; each change of membership during training begins a new one",
        "problems": "binary ones, of more than two classes",
        "objective_noise": "size of the sites' noise in the objective, whose optimum the model is",
    }
    multiclass = True

    def fit(self, federation: Federation, task: HorizontalTask, settings: PanSettings) -> PanModel:
        """Choose features from the sites' rows, then train on them. Sites lost before training restart both."""
        features = federation.until_stable(lambda: map_rows(federation, settings, task.prepare(federation), task.seed))
        model = train(
            federation,
            settings,
            features,
            settings.weighting_of(task),
            classes=len(task.classes),
            conditions=task.conditions,
        )
        return with_calibration(federation, task, model, settings)

    def resolve_settings(self, settings: PanSettings, premises: Premises) -> tuple[PanSettings, tuple[Remark, ...]]:
        """Resolve `masking = "auto"` and the defaults of noise and tolerance."""
        noise = settings.noise_among(premises.sites, premises.statistics_privacy)
        settings = replace(settings, objective_noise=noise)
        settings = with_objective_noise(settings) if noise else without_objective_noise(settings)
        if settings.masking != "auto":
            return settings, ()
        unless = obstacle(premises.sites, premises.min_sites, premises.conditions)
        weighted = settings.class_weight is not None
        if resolve_solver(settings.solver, settings.release, weighted=weighted) != "interior-point":
            unless = "solver is or may become cutting planes, and cutting planes have no system to mask"
        rounds = (
            None
            if (m := settings.expected_features(premises.rows)) is None
            else _expected_rounds(settings, premises, m)
        )
        is_taken, sentence = choice("congruence", rounds, unless)
        return replace(settings, masking="committee" if is_taken else "congruence"), (Remark("masking", sentence),)

    def problems(self, settings: PanSettings, outline: Outline) -> Iterator[str]:
        """Yield problems of features and thresholds, and solvers that do not support other settings."""
        yield from super().problems(settings, outline)
        yield from settings.solver_problems()

    def takes_weights(self, settings: PanSettings) -> bool:
        """Return whether the interior point trains."""
        return settings.solver != "cutting-plane"

    def can_calibrate(self, settings: PanSettings) -> bool:
        """Return whether the coordinator has the weights, which it sends to the sites."""
        return settings.release == "everyone"

    def class_problems(self, settings: PanSettings, classes: tuple[str, ...]) -> Iterator[str]:
        """Yield settings that do not fit the classes."""
        yield from super().class_problems(settings, classes)
        if settings.multiclass == "joint" and len(classes) == 2:
            yield 'multiclass: "joint" applies to more than two classes; remove it'

    def train_pooled(self, model: PanModel, settings: PanSettings, rows: EvaluationRows) -> Pooled | None:
        """Train LIBSVM on pooled, scaled rows: the same problem in the same features, and the exact kernel.

        The first must give the same optimum as the federation; the second says what approximating the kernel costs.
        """
        train_features, test_features = model.features(rows.train.rows), model.features(rows.test.rows)
        prices = pooled_prices(settings, rows.train.labels, rows.weights, rows.classes)
        if len(rows.classes) > 2 and settings.multiclass == "joint":
            return _pooled_jointly(settings, rows, (train_features, test_features), prices)
        if len(rows.classes) > 2:
            return _pooled_classes(model, settings, rows, (train_features, test_features), prices)
        w, b, objective = pooled_solution(settings, train_features, rows.train.labels, prices)
        exact = libsvm.exact_scores(model.feature_map, prices, rows.train, rows.test.rows)
        return Pooled(scores=test_features @ w + b, objective=objective, exact=exact)

    def whole_run(self, settings: PanSettings) -> WholeRunLeakage:
        """Return the most that an attack recovers from the training sums. With masks the coordinator needs a site."""
        # No attack inverts random frequencies, so without a list nothing follows from sums of these features.
        found = Recovery("every row", LISTED, None if settings.features == "fourier" else "some rows")
        copies = settings.landmark_rows(with_site=False)
        has_weights = settings.release == "everyone" and not settings.objective_noise
        is_copied = copies is not None  # clusters of rows: their means have few subsets
        by_a_site = Recovery("every row" if settings.usual_step_noise == 0 else "some rows", LISTED, copies)
        solver = resolve_solver(settings.solver, settings.release, weighted=settings.class_weight is not None)
        if solver != "interior-point" or settings.masking == "none":
            return WholeRunLeakage(found, found, by_a_site, is_copied, has_weights)
        alone = Recovery("some rows", LISTED, copies) if has_weights else Recovery(copies) if copies else None
        if settings.masking == "committee":
            return WholeRunLeakage(by_a_site, alone, by_a_site, is_copied, has_weights, with_members=found)
        return WholeRunLeakage(found, alone, by_a_site, is_copied, has_weights)

    def attacks(self, settings: PanSettings) -> list[Attack]:
        """Return the attacks on landmarks, cuts, Newton's systems and steps, and the trained point."""
        from fedsvm.algorithms.attacks.cluster_rounds import ClusterRounds
        from fedsvm.algorithms.attacks.cut_differences import CutDifferences
        from fedsvm.algorithms.attacks.finite_domain import FiniteDomain
        from fedsvm.algorithms.attacks.fold_differences import FoldDifferences
        from fedsvm.algorithms.attacks.joint_blocks import JointBlocks, JointCounts, JointSupportRows
        from fedsvm.algorithms.attacks.joint_systems import JointNewtonSystems
        from fedsvm.algorithms.attacks.landmark_copies import LandmarkCopies
        from fedsvm.algorithms.attacks.newton_steps import NewtonSteps
        from fedsvm.algorithms.attacks.newton_systems import NewtonSystems
        from fedsvm.algorithms.attacks.opened_scalars import OpenedScalars
        from fedsvm.algorithms.attacks.plain_cuts import JointPlainCuts, PlainCuts

        return [
            LandmarkCopies(),
            FoldDifferences(settings.min_cluster_size),
            ClusterRounds(),
            CutDifferences(),
            JointBlocks(),
            PlainCuts(),
            JointPlainCuts(),
            FiniteDomain(),
            JointCounts(),
            NewtonSystems(is_noisy=bool(settings.objective_noise)),
            JointNewtonSystems(is_noisy=bool(settings.objective_noise)),
            NewtonSteps(settings.usual_step_noise, settings.objective_noise or 0.0),
            _support_rows(settings),
            JointSupportRows(settings.C, settings.stopping.tolerance),
            # secrets of rows and noise leave nobody a candidate's part in these numbers
            *([] if settings.objective_noise else [OpenedScalars()]),
        ]

    def file_attacks(self, settings: PanSettings) -> list[Attack]:
        """Return the attacks on landmarks and digits of the scale, and on the weights."""
        from fedsvm.algorithms.attacks.joint_blocks import JointSupportRows

        jointly = [JointSupportRows(settings.C, settings.stopping.tolerance)] if settings.multiclass == "joint" else []
        return [*super().file_attacks(settings), _support_rows(settings), *jointly]


def _support_rows(settings: PanSettings) -> SupportRows:
    from fedsvm.algorithms.attacks.support_rows import SupportRows

    return SupportRows(
        settings.C,
        settings.stopping.tolerance,
        settings.objective_noise or 0.0,
        weighted=settings.class_weight is not None,
        is_joint=settings.multiclass == "joint",
    )


def _expected_rounds(settings: PanSettings, premises: Premises, features: int) -> MaskedRounds:
    if settings.multiclass == "joint" and premises.classes > 2 and settings.landmark_method == "auto":
        features = max(features, settings.max_landmarks)  # as many may be drawn, and the cost is cubic in all classes'
    problems, weights = settings.problem_shape(features, premises.classes)
    intercept = settings.intercept and weights == features
    return MaskedRounds.of_path(
        premises.sites,
        weights,
        problems,
        premises.models,
        premises.conditions,
        intercept=intercept,
        rows=premises.rows if weights == features else None,
        iterations=NOISY_ROUNDS if settings.stopping.tolerance >= NOISY_TOLERANCE else NEWTON_ROUNDS,
    )


def train(
    federation: Federation,
    settings: PanSettings,
    features: Features,
    weighting: Weighting | None = None,
    classes: int = 2,
    conditions: Conditions | None = None,
) -> PanModel:
    """Train on the features of the live sites' rows, to the certified gap of every problem.

    Of several problems the objectives are added up, which is the objective of all together; the gap is the worst one's.
    """
    with federation.phase("train"):
        told = _rows_told_by(features.map)
        trained = train_linear(federation, settings, features.map.dimensions, told, weighting, classes, conditions)
    features = features.with_lengths(trained.mean_square)
    certificates, description, figures = trained.certificates, features.description, dict(trained.figures)
    if classes > 2:
        figures["problems"] = len(certificates)
        description = f"{description}, {_KINDS[settings.multiclass].format(len(certificates))}"
    report = TrainingReport(
        sites=federation.sites,
        description=description,
        objective=sum(each.objective for each in certificates),
        lower_bound=sum(each.lower_bound for each in certificates),
        gap=max(each.gap for each in certificates),
        iterations=max(each.iterations for each in certificates),
        converged=all(each.converged for each in certificates),
        figures={**features.figures, **figures},
        remarks=(*(Remark(name, sentence) for name, sentence in features.remarks.items()), *trained.remarks),
        gaps=tuple(each.gap for each in certificates) if classes > 2 else (),
    )
    return PanModel.of_weights(features.map, trained.weights, report, settings.multiclass, classes)


def _pooled_classes(
    model: PanModel,
    settings: PanSettings,
    rows: EvaluationRows,
    features: tuple[FloatArray, FloatArray],
    prices: libsvm.Prices,
) -> Pooled:
    """Train the problems of more than two classes on pooled rows. features: of training and of test rows.

    A problem without rows of two classes has their label as its decision value, and -1 without rows.
    """
    (train, test), classes, total = features, len(rows.classes), 0.0
    problems = one_against_rest(rows.train.labels, classes)
    problems = one_against_one(problems) if settings.multiclass == "ovo" else problems
    same = np.empty((len(test), len(problems)))
    exact = None if model.feature_map.exact else np.empty_like(same)
    for place, labels in enumerate(problems):
        of = labels != 0
        paid = prices[of] if isinstance(prices, np.ndarray) else prices
        if len(np.unique(labels[of])) < 2:
            same[:, place] = labels[of][0] if of.any() else -1.0
            if exact is not None:
                exact[:, place] = same[:, place]
            continue
        w, b, objective = pooled_solution(settings, train[of], labels[of], paid)
        same[:, place], total = test @ w + b, total + objective
        if exact is not None:
            svm = libsvm.kernel(model.feature_map.kernel, rows.train.rows[of], labels[of], paid)
            exact[:, place] = svm.decision_function(rows.test.rows)
    of_kernel = None if exact is None else score_classes(exact, settings.multiclass, classes)
    return Pooled(score_classes(same, settings.multiclass, classes), total, of_kernel)


def _pooled_jointly(
    settings: PanSettings, rows: EvaluationRows, features: tuple[FloatArray, FloatArray], prices: libsvm.Prices
) -> Pooled | None:
    """Train LIBLINEAR on the joint problem; LIBSVM has none with the exact kernel. None if a class has no rows."""
    classes = len(rows.classes)
    of_rows = numbers(one_against_rest(rows.train.labels, classes))
    if len(np.unique(of_rows)) < classes:
        return None
    scores, objective = joint_hinge.train_pooled(*features, of_rows, prices, intercept=settings.intercept)
    return Pooled(above_others(scores), objective)


def _rows_told_by(feature_map: FeatureMap) -> RowsTold:
    """Return what a group's cuts reveal of single rows, by inverting their differences and blocks."""
    if not isinstance(feature_map, NystromMap):
        return NOTHING_TOLD
    inverse = NystromInverse(feature_map.base_kernel, feature_map.landmarks, feature_map.mapping)

    def count_by_differences(points: Points, cuts: FloatArray) -> int:
        from fedsvm.algorithms.attacks.cut_differences import pair_differences, single_rows

        return len(single_rows(points, pair_differences(cuts), inverse).labels)

    def count_by_blocks(points: FloatArray, cuts: FloatArray, classes: int) -> tuple[int, int]:
        from fedsvm.algorithms.attacks.joint_blocks import JointCuts, joint_rows_told

        return joint_rows_told(JointCuts.of(points, cuts, classes), inverse)

    return RowsTold(differences=count_by_differences, blocks=count_by_blocks)
