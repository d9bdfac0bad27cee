"""Views of runs made in memory: rows are dealt to groups, trained on or clustered, and each sum is written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from algorithms.data.columns import Labelled
from algorithms.features.inversion import FeatureMap
from algorithms.features.kernels import Kernel
from algorithms.features.landmarks import local_centres, on_grid
from algorithms.features.nystrom import nystrom_map
from algorithms.optimisation.cutting_plane import Stopping, solve
from algorithms.optimisation.hinge_sums import HingeSums
from algorithms.optimisation.line_search import grid_search
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
    mapping = nystrom_map(kernel(points, points), 1e-10)
    written.add("receive_map", kernel=kernel.to_fields(), landmarks=points, mapping=mapping, groups=groups)
    features = FeatureMap(kernel, points, mapping)(rows)
    solve(
        _Oracle(HingeSums.dealt(features, data.labels[None, :], groups, np.random.default_rng(seed)), written),
        problems=1,
        dimensions=mapping.shape[1],
        groups=groups,
        C=C,
        stopping=Stopping(1e-3, 100),
        search=grid_search,
        on_iteration=lambda iteration, solutions: None,
    )


def clustered(written: WrittenDown, data: FloatArray, *, clusters: int, rounds: int, seed: int = 0) -> None:
    """Write down rounds of k-means of rows that are not scaled, from centres that are drawn."""
    rows = on_grid(scaled(written, data, []))
    centres = on_grid(np.random.default_rng(seed).normal(size=(clusters, rows.shape[1])))
    for _ in range(rounds):
        distances = ((rows[:, None] - centres[None]) ** 2).sum(axis=2)
        members = np.eye(clusters)[distances.argmin(axis=1)]
        sums = members.T @ np.column_stack([rows, distances.min(axis=1), np.ones(len(rows))])
        written.add("cluster_sums", sums, centres=centres)
        kept = sums[:, -1] > 0
        centres = on_grid(np.where(kept[:, None], sums[:, :-2] / np.maximum(sums[:, -1:], 1), centres))


def two_classes(rows: int, columns: int, seed: int) -> Labelled:
    """Rows of two classes that overlap."""
    random = np.random.default_rng(seed)
    labels = np.where(np.arange(rows) % 3 == 0, -1.0, 1.0)
    return Labelled(random.normal(size=(rows, columns)) * 5 + 3 * labels[:, None] + 40, labels)
