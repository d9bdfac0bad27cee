"""Columns by an SVM whose weights are mostly zero, and a PAN-SVM on those that are not: the elastic net.

    min over w, b of  l1 |w|_1 + l2/2 |w|^2 + C sum_i max(0, 1 - y_i (w.x_i + b))

One problem selects the columns, instead of a ranking of all. It is trained by cutting planes with another master
problem (`optimization.cutting_plane`). The dual determines which weights are zero, and the
objective is certified. Along a path of falling l1 all cuts stay valid, since they bound the loss, whatever is
added to it. All folds follow the path in the same rounds, and their accuracy determines the size of the model.
`stability` trains half-samples in complementary pairs, and counts how often each column was chosen (Shah and Samworth
2013).

Disclosures. The coordinator learns class means and variances, and every cut: sums of rows in their columns as
they are, which show single rows where they count one or differ by one. The interior point has no such problem, and this
one is not trained by it. The sites learn the points.

References
----------
H. Zou and T. Hastie, "Regularization and variable selection via the elastic net", J. R. Stat. Soc. B 67, 2005.
R. D. Shah and R. J. Samworth, "Variable selection with error control: another look at stability selection", J. R. Stat.
Soc. B 75, 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Le

from fedsvm.algorithms.optimization.cutting_plane import Bundle, Penalty, improve, start
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.algorithms.optimization.solution import Solution, StoppingRule
from fedsvm.algorithms.ranking import CurvePoint
from fedsvm.algorithms.remarks import Remark
from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.algorithms.selection.model import (
    Choice,
    SelectionAlgorithm,
    SelectionInput,
    SelectionSettings,
    SizeModel,
    chosen_count,
    point_of,
    size_of,
)
from fedsvm.algorithms.selection.moments import class_moments
from fedsvm.algorithms.selection.site import CUTS, MOMENTS, SelectionSite
from fedsvm.algorithms.selection.subsets import ALL_ROWS, Subset, half_sample
from fedsvm.algorithms.selection.training import SubsetTraining
from fedsvm.algorithms.settings import Positive, Share, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.site.script import Script, any_order
from fedsvm.federation.site.terms import Terms


@dataclass
class SparseSettings(SelectionSettings):
    """The settings of a user."""

    _: KW_ONLY
    select_solver: Annotated[
        Literal["cutting-plane"],
        doc("Solver of the selection: only cutting planes, which reveal rows to the coordinator."),
    ] = "cutting-plane"
    l1: Annotated[
        Positive | Literal["path"],
        doc('Factor of the sum of |weights|. "path" tries path_steps values by cross-validation.'),
    ] = "path"
    l2: Annotated[Positive, doc("Factor of half the sum of squared weights.")] = 0.01
    path_steps: Annotated[int, Ge(2), Le(50), doc("For a path: number of values of l1.")] = 8
    path_end: Annotated[
        Share, doc("For a path: last l1 relative to the smallest l1 at which all weights are zero.")
    ] = 0.05
    stability: Annotated[
        int, Ge(0), Le(100), doc("Number of complementary pairs of half-samples for stability selection.")
    ] = 0


@dataclass(frozen=True)
class ElasticNetSolution:
    """One elastic net, solved: l1, the model, and sum z a (p,), which exceeds l1 where weights are not zero."""

    l1: float
    solution: Solution
    dual: FloatArray

    @property
    def support(self) -> IntArray:
        """(k,) the columns whose weights are not zero."""
        return np.flatnonzero(np.abs(self.dual) > self.l1)


def path_of(moments: ClassMoments, C: float, steps: int, end: float) -> list[float]:
    """Return falling values of l1, below the one at which a model without columns is optimal."""
    fewer = float(moments.counts.min())
    largest = C * fewer * float(np.abs(moments.means[1] - moments.means[0]).max())
    return [largest * end ** (step / steps) for step in range(1, steps + 1)]


class SparseSite(SelectionSite):
    """The site half."""

    @classmethod
    def choosing(cls, terms: Terms) -> Script:
        """Return the script of nets, by cutting planes, and of counts along a path."""
        counted = {"held_out_rows"} if terms.settings["l1"] == "path" else set[str]()
        return any_order({*MOMENTS, *CUTS, *counted})


class SparseSvm(SelectionAlgorithm[SparseSettings]):
    """PAN-SVM on the columns of a sparse linear SVM, the elastic net, along a certified path (Zou and Hastie 2005)."""

    name = "sparse-svm"
    estimator = "SparseSVC"
    Settings, Site = SparseSettings, SparseSite
    figures = {"sparse_objective": "of the net that chose the columns", **SelectionAlgorithm.figures}

    def choose(self, selecting: SelectionInput, settings: SparseSettings) -> Choice:
        """Train the nets, and choose one with its stability over half-samples."""
        federation = selecting.federation
        moments = federation.until_stable(lambda: class_moments(federation, selecting.prepared.columns))
        training = SubsetTraining(federation, moments, settings)
        columns = np.flatnonzero(~moments.constant)
        if settings.l1 == "path":
            levels = path_of(moments, settings.select_penalty, settings.path_steps, settings.path_end)
            nets, curve = federation.until_stable(lambda: _path(training, columns, levels, settings))
            taken, size, rule = _choose_net(nets, curve, settings, len(columns))
        else:
            l1 = settings.l1
            nets, curve = federation.until_stable(lambda: _nets(training, [Subset(columns)], l1, settings)), ()
            taken, size = nets[0], len(nets[0].support)
            rule = f"weights that are not zero at l1 = {l1:g}"
        strength = np.zeros(selecting.prepared.columns)
        strength[columns] = np.abs(taken.dual) / taken.l1
        order = np.lexsort((np.arange(len(strength)), -strength))
        by_size = {
            len(net.support): SizeModel(columns[net.support], net.solution.w[net.support], net.solution.b)
            for net in nets
            if len(net.support)
        }
        gap = taken.solution.gap
        return Choice(
            order,
            strength,
            "strength: above 1 the weight is not zero",
            np.arange(1, len(order) + 1),
            training,
            size=max(1, size),
            size_rule=rule,
            curve=curve,
            by_size=tuple(by_size.values()),
            stability=_stability(training, columns, taken.l1, settings, len(strength)),
            figures={"sparse_objective": taken.solution.objective},
            remarks=(Remark("sparse", f"l1 {taken.l1:.4g}, certified within {gap:.1e} of the pooled problem"),),
        )


def _nets(
    training: SubsetTraining, subsets: Sequence[Subset], l1: float, settings: SparseSettings
) -> list[ElasticNetSolution]:
    """Train nets of some rows each, at one l1. Raises MembershipChanged if sites leave or join."""
    training.refresh()
    oracle, penalty = training.oracle(subsets), Penalty(l1, settings.l2)
    bundles = [
        Bundle(len(each.columns), settings.select_groups, settings.select_penalty, penalty=penalty) for each in subsets
    ]
    stopping = StoppingRule(settings.select_tolerance, settings.max_iterations)
    try:
        start(oracle, bundles)
        solutions = improve(oracle, bundles, stopping, grid_search)
    finally:
        oracle.disclose()
    return [ElasticNetSolution(l1, solution, bundle.dual) for solution, bundle in zip(solutions, bundles, strict=True)]


def _path(
    training: SubsetTraining, columns: IntArray, levels: Sequence[float], settings: SparseSettings
) -> tuple[list[ElasticNetSolution], tuple[CurvePoint, ...]]:
    """Return nets of all rows at each l1, and the accuracy of the folds' nets; cuts are kept from one to the next."""
    training.refresh()
    training.require_folds()
    subsets = [Subset(columns, fold) for fold in [*range(settings.inner_folds), ALL_ROWS]]
    oracle = training.oracle(subsets)
    bundles = [Bundle(len(columns), settings.select_groups, settings.select_penalty) for _ in subsets]
    nets, curve, done = [], [], 0
    try:
        start(oracle, bundles)
        for l1 in levels:
            bundles = [bundle.with_penalty(Penalty(l1, settings.l2)) for bundle in bundles]
            stopping = StoppingRule(settings.select_tolerance, done + settings.max_iterations)
            solutions = improve(oracle, bundles, stopping, grid_search, done=done)
            done = max(solution.iterations for solution in solutions)
            judged = training.count(solutions)
            nets.append(ElasticNetSolution(l1, solutions[-1], bundles[-1].dual))
            size = len(nets[-1].support)
            curve.append(point_of(size, float(judged.right.sum()), float(judged.rows.sum())))
            training.federation.log_metrics(columns=size, step_gap=solutions[-1].gap)
    finally:
        oracle.disclose()
    return nets, tuple(curve)


def _choose_net(
    nets: Sequence[ElasticNetSolution], curve: Sequence[CurvePoint], settings: SparseSettings, columns: int
) -> tuple[ElasticNetSolution, int, str]:
    """Return the net of a size, that size, and the rule in a phrase."""
    if isinstance(settings.size, str):
        size, rule = size_of(curve, settings.size)
        of_size = [pair for pair in zip(nets, curve, strict=True) if pair[1].size == size]
        net, _ = max(of_size, key=lambda pair: pair[1].accuracy)
        return net, size, f"{rule}, at l1 = {net.l1:.3g}"
    size = chosen_count(settings.size, columns)
    net = next((net for net in nets if len(net.support) >= size), nets[-1])
    return net, size, f"{settings.size:g}, as set, at l1 = {net.l1:.3g}"


def _stability(
    training: SubsetTraining, columns: IntArray, l1: float, settings: SparseSettings, width: int
) -> tuple[float, ...]:
    """Return for each column the share of half-samples whose net has it, at half of l1, for half of the rows."""
    if not settings.stability:
        return ()
    subsets = [Subset(columns, half_sample(number)) for number in range(2 * settings.stability)]
    nets = training.federation.until_stable(lambda: _nets(training, subsets, l1 / 2, settings))
    times = np.zeros(width)
    for net in nets:
        times[columns[net.support]] += 1
    return tuple((times / len(nets)).tolist())
