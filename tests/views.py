"""Views of runs made in memory: rows are dealt to groups, trained on or clustered, and each sum is written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features import k_means
from fedsvm.algorithms.features.k_means import local_centres
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization import interior_point
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.cutting_plane import Line, Points, solve
from fedsvm.algorithms.optimization.hinge_sums import HingeSums
from fedsvm.algorithms.optimization.interior_point import NewtonRequest, RoundSums
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.algorithms.optimization.local_path import LocalPath
from fedsvm.algorithms.optimization.masking import Mask, Masking, dither_seed, draw_mask
from fedsvm.algorithms.optimization.path_rounds import Layout
from fedsvm.algorithms.optimization.solution import Solution, StoppingRule
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.channel.interface import uniform_residues
from fedsvm.protocols.analysis.views import Coalition, RoundView, RunView

HONEST = ("site-1", "site-2", "site-3")


@dataclass
class WrittenDown:
    """Rounds of a run, as its coordinator has them."""

    rounds: list[RoundView] = field(default_factory=list)

    def add(self, step: str, total: FloatArray | None = None, heard: Any = (), **parameters: Any) -> None:
        """A round; with a total, a secure sum. heard: what sites told each other in it."""
        sums: dict[tuple[str, ...], FloatArray] = {HONEST: total} if total is not None else {}
        self.rounds.append(RoundView(len(self.rounds) + 1, step, parameters, sums, heard))

    def view(self, *, coordinator: bool = True, site: bool = False) -> RunView:
        """The coordinator's view, or with `site` that of both; or a site's alone, which opens no sums."""
        who = Coalition(("site-4",) if site or not coordinator else (), coordinator=coordinator)
        sees = tuple(
            replace(each, sums=each.sums if coordinator else {}, heard=each.heard if who.sites else ())
            for each in self.rounds
        )
        return RunView(who, sees)


@dataclass(frozen=True)
class _Oracle:
    """The sums of the cutting plane over rows that are here, written down with the points they were asked for at."""

    sums: HingeSums
    written: WrittenDown

    def cuts(self, problems: IntArray, at: Points) -> FloatArray:
        total = self.sums.cuts(problems, at)
        self.written.add("cuts", total, problems=problems, w=at.w, b=at.b)
        return total

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        total = self.sums.line(problems, line)
        self.written.add("line", total, problems=problems, w=line.w, b=line.b)
        return total


def scaled(written: WrittenDown, rows: FloatArray, categories: list[list[str]]) -> FloatArray:
    """Rows on a standard scale that everybody is told."""
    offset, scale = rows.mean(axis=0), np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
    written.add("encode", values=categories)
    written.add("rescale", offset=offset, scale=scale)
    return np.asarray((rows - offset) / scale)


def trained(
    written: WrittenDown,
    data: LabeledRows,
    *,
    landmarks: int,
    groups: int,
    C: float = 10.0,
    kernel: Kernel | None = None,
    categories: list[list[str]] | None = None,
    seed: int = 0,
) -> None:
    """Write down a training by cutting planes of rows that are not scaled."""
    rows = scaled(written, data.rows, categories or [])
    kernel = kernel or Kernel("rbf", 1.0 / rows.shape[1])
    points, _ = local_centres(rows, landmarks, 1, np.random.default_rng(seed))
    feature_map = NystromMap.span(kernel, points, 1e-10)
    written.add("receive_map", **feature_map.to_fields())
    features = feature_map(rows)
    solve(
        _Oracle(HingeSums.deal(features, data.labels[None, :], groups, np.random.default_rng(seed)), written),
        problems=1,
        dimensions=feature_map.dimensions,
        groups=groups,
        C=C,
        stopping=StoppingRule(1e-3, 100),
        search=grid_search,
        on_iteration=lambda iteration, solutions: None,
    )


class _BlindPath(LocalPath):
    """Rows that are here, summed behind masks and written down: what the coordinator solves is what it would see."""

    def __init__(self, problem: Problem, masking: Masking, written: WrittenDown) -> None:
        super().__init__([problem])
        self.seed, self.masking, self.written = uniform_residues((1, 4)), masking, written
        self.layout = Layout(problem.dimensions, problem.features.shape[1])
        self.mask: Mask | None = None
        written.add("begin_path", **_begun(problem), masking=masking)
        written.add("share_path", heard=(np.hstack([self.seed, np.zeros((1, 5), np.uint64)]),), holders=list(HONEST))

    def sums(self, iteration: int, terms: Sequence[NewtonRequest], *, wide: bool) -> RoundSums:
        (each,), rows = terms, self.extent().rows
        step = each.step if self.mask is None else self.mask.transposed_times(each.step)
        d, m = self.layout.dimensions, self.layout.features
        self.mask = draw_mask(self.seed, f"0 {iteration}", d, m, self.masking)
        opened = self.opened(iteration, replace(each, step=step), mask=self.mask)
        scales = each.scales.to_array()
        self.written.add(
            "newton",
            self.layout.pack(opened, scales, rows, keeper=True)[None],
            iteration=iteration,
            problems=np.array([0]),
            steps=each.step[None],
            mus=np.array([each.mu]),
            keep=np.array([float(each.keep)]),
            still=np.array([float(each.still)]),
            scales=scales[None],
            rows=rows,
        )
        return RoundSums([opened])


def _begun(problem: Problem) -> dict[str, Any]:
    return {"prior": np.zeros(problem.features.shape[1]), "price": float(problem.prices[0]), "lever": problem.lever}


def walked(
    written: WrittenDown,
    data: LabeledRows,
    *,
    landmarks: int,
    masking: Masking = "congruence",
    step_noise: float = 0.0,
    C: float = 10.0,
    gamma: float = 0.1,
    tolerance: float = 1e-4,
    categories: list[list[str]] | None = None,
    seed: int = 0,
    objective_noise: float = 0.0,
    tilt: Callable[[int], FloatArray] | None = None,
) -> Solution:
    """Write down a training by the interior point of rows that are not scaled; its solution.

    tilt: draws more noise in the objective, for so many weights.
    """
    rows, kernel = scaled(written, data.rows, categories or []), Kernel("rbf", gamma)
    feature_map = NystromMap.span(kernel, local_centres(rows, landmarks, 1, np.random.default_rng(seed))[0], 1e-10)
    written.add("receive_map", **feature_map.to_fields())
    features = feature_map(rows)
    deviation = objective_noise * C * float((features**2).sum(axis=1).mean() ** 0.5)
    drawn = deviation * np.random.default_rng(seed).standard_normal(len(features.T))
    noise = drawn if tilt is None else drawn + tilt(len(features.T))
    is_noisy = objective_noise > 0 or tilt is not None
    problem = Problem.of(features, data.labels, C)
    if is_noisy:
        problem = replace(problem, tilt=noise).with_secrets(dither_seed(), 0)
    path = _BlindPath(problem, masking, written)
    (outcome,) = interior_point.solve(
        path,
        problems=1,
        dimensions=feature_map.dimensions + 1,
        intercept=True,
        stopping=StoppingRule(tolerance, 100),
        settle=lambda outcomes: False,
        step_noise=step_noise,
    )
    return path.best(outcome, 0)


def clustered(written: WrittenDown, data: FloatArray, *, clusters: int, seed: int = 0) -> None:
    """Write down k-means over rows that are not scaled, as who opens its sums and has no rows sees it."""
    rows = scaled(written, data, [])
    centres, sums = np.zeros((1, rows.shape[1])), np.zeros((1, rows.shape[1] + 2))
    for plan in k_means.rounds(clusters):
        centres = plan.centres(sums, 1, seed) if plan.number else centres
        written.add("take_centres", opener="none", plan=asdict(plan), min_cluster_size=1, seed=seed)
        sums = np.zeros((plan.slots, rows.shape[1] + 2))
        sums[: len(centres)] = k_means.cluster_sums(rows, centres)
        written.add("cluster_sums", sums, number=plan.number, slots=plan.slots)


def two_classes(rows: int, columns: int, seed: int) -> LabeledRows:
    """Rows of two classes that overlap."""
    random = np.random.default_rng(seed)
    labels = np.where(np.arange(rows) % 3 == 0, -1.0, 1.0)
    return LabeledRows(random.normal(size=(rows, columns)) * 5 + 3 * labels[:, None] + 40, labels)
