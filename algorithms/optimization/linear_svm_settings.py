"""The settings of a linear SVM: the solver, and what each can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Literal, TypeVar

from fedsvm.algorithms.data.classes import Scheme, problems_of
from fedsvm.algorithms.optimization.cutting_plane import CuttingPlaneSettings
from fedsvm.algorithms.optimization.masking import Masking, MaskingSetting
from fedsvm.algorithms.optimization.path_sums import Release
from fedsvm.algorithms.optimization.solution import NOISY_TOLERANCE
from fedsvm.algorithms.optimization.weighting import ClassWeightSettings
from fedsvm.algorithms.settings import Count, HingePenalty, Portion, Positive, doc

OBJECTIVE_NOISE = 0.2
"""At this size the audit's attacks name no row by the released weights of five data sets."""

STEP_NOISE, NOISY_STEP_NOISE = 0.1, 0.2
"""The usual noise on steps, and that with noise in the objective, which ends training at a larger gap."""

CUTS_SHOW = "which shows the coordinator every point and cut"


@dataclass(kw_only=True)
class SolverSettings(CuttingPlaneSettings):
    """By which solver, and what it shows to whom."""

    solver: Annotated[
        Literal["interior-point", "cutting-plane", "auto"],
        doc(
            "interior-point: one sum per round, solved by a coordinator that sees only masked systems. "
            "cutting-plane: the paper's solver, which shows it every point and cut. auto: the one predicted to be "
            "faster."
        ),
    ] = "interior-point"
    masking: Annotated[
        MaskingSetting,
        doc(
            "How Newton's system is masked. congruence hides its eigenvalues up to a factor; orthogonal reveals "
            "them; none reveals the system. committee is congruence with masks that no site knows: the coordinator "
            "needs two of three members to undo them. It needs three sites or more. auto: committee if the run is "
            "predicted to take at most twice as long as with congruence, otherwise congruence."
        ),
    ] = "auto"
    step_noise: Annotated[
        Portion | None,
        doc(
            "Relative size of the noise on each step, which makes other sites less certain of rows. Default: 0.2 with "
            "noise in the objective, otherwise 0.1."
        ),
    ] = None
    step_noise_floor: Annotated[
        Portion,
        doc(
            "Minimum of step_noise, which is halved when the gap stops falling. If the gap still does not fall, "
            "training ends. With a committee, step_noise is never halved."
        ),
    ] = 0.0

    @property
    def resolved_masking(self) -> Masking:
        """The masking. Raises ValueError for "auto", which `Algorithm.resolve_settings` replaces."""
        if self.masking == "auto":
            raise ValueError('masking must be resolved before training, got "auto"')
        return self.masking

    @property
    def usual_step_noise(self) -> float:
        """The noise on each step, by default that without noise in the objective."""
        return STEP_NOISE if self.step_noise is None else self.step_noise

    def step_noise_among(self, sites: Sequence[str]) -> float:
        """Return the size of the noise on each step: none if a site is alone, with only its own rows."""
        return self.usual_step_noise if len(sites) > 1 else 0.0

    def step_noise_floor_among(self, sites: Sequence[str]) -> float:
        """Return the least noise on each step."""
        return min(self.step_noise_floor, self.step_noise_among(sites))


@dataclass
class LinearSvmSettings(ClassWeightSettings, SolverSettings):
    """The settings of training."""

    C: HingePenalty = 1.0
    _: KW_ONLY
    multiclass: Annotated[
        Scheme,
        doc(
            "Multi-class method: one class against the rest (ovr), votes of all pairs (ovo), or one joint problem "
            "of all classes (joint)."
        ),
    ] = "ovr"
    min_group_rows: Annotated[
        Count | None,
        doc(
            "Minimum number of rows of the smallest class in a group of cuts. Default: 8 with more than two "
            "classes, otherwise 1."
        ),
    ] = None
    intercept: Annotated[bool, doc("Add a constant term to the decision value.")] = True
    release: Annotated[Release, doc("Who receives the weights: the coordinator and the sites, or only the sites.")] = (
        "everyone"
    )
    objective_noise: Annotated[
        Portion | None,
        doc(
            "Size of the noise that the sites add to the objective, as a share of the largest part that a usual row "
            "can have in the weights. It makes rows harder to name by the released model. With it, each row has a "
            "random barrier parameter and a random target that its site keeps secret (not with multiclass joint), so "
            "that other sites name fewer rows by the steps. It is not differential privacy. Default: 0.2 for "
            "pan-svm with noisy statistics and masks among two sites or more; 0 for algorithms that choose columns."
        ),
    ] = None
    line_search: Annotated[
        Literal["grid", "fixed-step", "paper"],
        doc(
            "For cutting planes: evaluate all steps in one round and take the best (grid), one per round (fixed-step), "
            "or the paper's step and its stopping rule, by which tolerance is its epsilon (paper)."
        ),
    ] = "grid"
    line_search_step: Annotated[Positive, doc("For fixed-step and paper: the paper's lambda.")] = 0.1

    def noise_among(self, sites: int, statistics_privacy: float) -> float:
        """Return the size of the noise in the objective, by default only where something else hides rows, too."""
        if self.objective_noise is not None:
            return self.objective_noise
        is_hidden = self.solver == "interior-point" and self.masking != "none" and statistics_privacy > 0
        return OBJECTIVE_NOISE if is_hidden and sites > 1 else 0.0

    def problem_shape(self, features: int, classes: int) -> tuple[int, int]:
        """Return the number of problems, and of weights that each has besides an intercept without a penalty."""
        joint = classes > 2 and self.multiclass == "joint"
        return problems_of(classes, self.multiclass), classes * (features + int(self.intercept)) if joint else features

    def solver_problems(self) -> Iterator[str]:
        """Yield contradictions in these settings; see `Algorithm.problems`."""
        if self.objective_noise and self.solver != "interior-point":
            yield 'objective_noise: needs solver = "interior-point"; cuts are of the objective without noise'
        elif self.objective_noise and self.masking == "none":
            yield 'objective_noise: needs a masking other than "none", which shows the coordinator the noise'
        if self.release == "sites" and self.solver == "cutting-plane":
            yield 'release: "sites" needs solver = "interior-point"; cutting planes show the coordinator every point'
        elif self.release == "sites" and self.masking == "none":
            yield 'release: "sites" needs a masking other than "none", which shows the coordinator every step'
        if self.masking == "committee" and self.solver != "interior-point":
            yield 'masking: "committee" needs solver = "interior-point"; cutting planes have no system to mask'
        if self.line_search == "paper" and self.solver != "cutting-plane":
            yield f'line_search: "paper" needs solver = "cutting-plane", {CUTS_SHOW}'
        if self.class_weight is not None and self.solver == "cutting-plane":
            yield 'class_weight: needs solver = "interior-point"; cutting planes add up losses of equal weight'


V = TypeVar("V", bound=SolverSettings)


def with_objective_noise(settings: V) -> V:
    """Return settings with the defaults of training with noise in the objective."""
    step_noise = NOISY_STEP_NOISE if settings.step_noise is None else settings.step_noise
    return replace(settings, step_noise=step_noise, tolerance=settings.tolerance or NOISY_TOLERANCE)


def without_objective_noise(settings: V) -> V:
    """Return settings with the defaults of training without noise in the objective."""
    return replace(settings, step_noise=settings.usual_step_noise, tolerance=settings.stopping.tolerance)


def without_committee(settings: V) -> V:
    """Return settings with congruence in place of "auto", of an algorithm whose rounds cannot be predicted."""
    return replace(settings, masking="congruence") if settings.masking == "auto" else settings


def resolve_solver(solver: str, release: str, *, weighted: bool) -> str:
    """Return the solver of some settings; "auto" only if more than one solver supports the release and the weights."""
    return "interior-point" if solver == "auto" and (release == "sites" or weighted) else solver
