"""Views of runs made in memory: rows are dealt to groups, trained on or clustered, and each sum is written down."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from algorithms.data.columns import Labelled
from algorithms.features import k_means
from algorithms.features.k_means import local_centres
from algorithms.features.kernels import Kernel
from algorithms.features.nystrom import NystromMap
from algorithms.optimisation.cutting_plane import solve
from algorithms.optimisation.hinge_sums import HingeSums
from algorithms.optimisation.line_search import grid_search
from algorithms.optimisation.solution import Stopping
from federation.arrays import FloatArray, IntArray
from protocols.analysis.views import Coalition, RoundView, RunView

HONEST = ("site-1", "site-2", "site-3")
COORDINATOR_ALONE = Coalition((), coordinator=True)


@dataclass
class WrittenDown:
    """Rounds of a run, as its coordinator has them."""

    rounds: list[RoundView] = field(default_factory=list)

    def add(self, step: str, total: FloatArray | None = None, **parameters: Any) -> None:
        """A round; with a total, a secure sum."""
        sums: dict[tuple[str, ...], FloatArray] = {HONEST: total} if total is not None else {}
        self.rounds.append(RoundView(len(self.rounds) + 1, step, parameters, sums))

    def view(self, *, coordinator: bool = True) -> RunView:
        """The coordinator's view, or that of a site, which is sent the parameters alone."""
        if coordinator:
            return RunView(COORDINATOR_ALONE, tuple(self.rounds))
        told = tuple(RoundView(each.number, each.step, each.parameters, {}) for each in self.rounds)
        return RunView(Coalition(("site-4",), coordinator=False), told)


@dataclass(frozen=True)
class _Oracle:
    """The sums of the cutting plane over rows that are here, written down with the points they were asked for at."""

    sums: HingeSums
    written: WrittenDown

    def cuts(self, problems: IntArray, w: FloatArray, b: FloatArray) -> FloatArray:
        total = self.sums.cuts(problems, w, b)
        self.written.add("cuts", total, problems=problems, w=w, b=b)
        return total

    def line(self, problems: IntArray, w: FloatArray, b: FloatArray, *rest: FloatArray) -> FloatArray:
        total = self.sums.line(problems, w, b, *rest)
        self.written.add("line", total, problems=problems, w=w, b=b)
        return total


def scaled(written: WrittenDown, rows: FloatArray, categories: list[list[str]]) -> FloatArray:
    """Rows on a standard scale that everybody is told."""
    offset, scale = rows.mean(axis=0), np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
    written.add("encode", values=categories)
    written.add("rescale", offset=offset, scale=scale)
    return np.asarray((rows - offset) / scale)


def trained(
    written: WrittenDown,
    data: Labelled,
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
    feature_map = NystromMap.spanned(kernel, points, 1e-10)
    written.add("receive_map", **feature_map.to_fields())
    features = feature_map(rows)
    solve(
        _Oracle(HingeSums.dealt(features, data.labels[None, :], groups, np.random.default_rng(seed)), written),
        problems=1,
        dimensions=feature_map.dimensions,
        groups=groups,
        C=C,
        stopping=Stopping(1e-3, 100),
        search=grid_search,
        on_iteration=lambda iteration, solutions: None,
    )


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


def two_classes(rows: int, columns: int, seed: int) -> Labelled:
    """Rows of two classes that overlap."""
    random = np.random.default_rng(seed)
    labels = np.where(np.arange(rows) % 3 == 0, -1.0, 1.0)
    return Labelled(random.normal(size=(rows, columns)) * 5 + 3 * labels[:, None] + 40, labels)
