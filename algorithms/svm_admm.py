"""A linear SVM in common features by consensus ADMM (Boyd and others 2011): the method PAN-SVM was measured against.

Every site i has a model x_i = (w, b) of its own, a consensus z = (w, b) is their shrunk mean, and u_i, which stays at
the site, is what pulls them together. With f~ = (f, 1), rho the penalty and alpha the relaxation, from 0:

    x_i <- argmin over x of  sum max(0, 1 - y f~.x) + rho/2 |x - z + u_i|^2       at the site, by its dual
    x^_i = alpha x_i + (1 - alpha) z
    z   <- N rho / (1/C + N rho) mean(x^_i + u_i),   u_i <- u_i + x^_i - z

which is the iteration, the stopping rule and the numbers of Boyd's `linear_svm.m`, on which the PAN-SVM dissertation's
comparison (Lu 2016, 3.3.2.3) is based; it does not give his lambda, which is C here. His z shrinks the intercept too:
that is `bias = "regularised"`, and of another problem than LIBSVM's. With `"free"`, the default, the factor of the last
entry is 1, and the optimum is LIBSVM's. `topology = "ring"` has no average: see `neighbor_consensus`. Features are
chosen as for PAN-SVM, as the dissertation does.

One secure sum an iteration, of d + 2 numbers for d = m + 1: sum (x^_i + u_i), sum |x_i|^2 and sum |x^_i + u_i|^2. All
of the stopping rule follows, since sum u_i is known from one iteration to the next:

    sum u_i = sum (x^_i + u_i) - N z             sum x_i = (sum (x^_i + u_i) - sum u_i - (1 - alpha) N z_before) / alpha
    r^2 = sum |x_i|^2 - 2 z.sum x_i + N |z|^2    |u|^2 = sum |x^_i + u_i|^2 - 2 z.sum (x^_i + u_i) + N |z|^2

Two last sums certify what was reached, which ADMM by itself does not: the loss of z, evaluated, and of each class the
sum of the dual variables lambda of the sites' last problems; then the sum of theta lambda y f, where theta makes the
classes' sums alike. C theta lambda is a dual point of LIBSVM's problem, so that the gap is that of PAN-SVM's problem,
whatever `bias` is.

A site that drops takes its u_i along, and the coordinator does not know the sum of the others: they go on from z with
u_i = 0.

Disclosures. Every site learns z in every iteration, so the path and the model, and the coordinator the sums above
too. What sites add up in an iteration solves a problem of each site's rows: rho sum (x_i - z + u_i) is the sum of
lambda y f~ over all rows, with a lambda in [0, 1] of each that only its site knows. The certificate is one more such
sum. Rows beyond the margin have no part in it; where those at the margin are fewer than features, who has a list of
possible records solves for them (`attacks.dual_points`). Of two sites each has the other's part of every iteration.

References
----------
S. Boyd, N. Parikh, E. Chu, B. Peleato and J. Eckstein, "Distributed optimization and statistical learning via the
alternating direction method of multipliers", Foundations and Trends in Machine Learning 3 (1), 2011, sections 3.3, 7.1
and 8.2, and the example linear_svm.m that goes with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Gt, Lt

from fedsvm.algorithms.algorithm import TrainingReport
from fedsvm.algorithms.calibration import ThresholdSettings, calibration
from fedsvm.algorithms.data.horizontal import each_model, preparation
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.features.choice import FeatureSettings
from fedsvm.algorithms.features.mapped_rows import map_rows, mapping
from fedsvm.algorithms.leakage import LISTED, Recovery, WholeRunLeakage
from fedsvm.algorithms.linear_model import PanModel, with_calibration
from fedsvm.algorithms.mapped_site import MappedAlgorithm, MappedSite
from fedsvm.algorithms.neighbor_consensus import MODELS_IN_CLEAR, RESIDUALS, NeighborConsensus
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.proximal_model import local_model
from fedsvm.algorithms.optimization.solution import relative_gap
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.remarks import Remark
from fedsvm.algorithms.settings import Count, HingePenalty, Positive, Tolerance, doc
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import AGREED, PartTypes, free, step
from fedsvm.federation.site.script import Script, repeat, seq, stage
from fedsvm.federation.site.terms import Terms

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack

_ROOM = 1 + 1e-9
"""Bounds on sums, with room for what rounding does to them."""

DUAL_POINT = (
    "the rows of all sites' last problems, weighted by their dual variables and added up, from which a bound on the "
    "optimum follows: of possible records at the margin, if they are fewer than features, it says which are there"
)


@dataclass
class AdmmSettings(FeatureSettings, ThresholdSettings):
    """The settings of a user."""

    C: HingePenalty = 1.0
    bias: Annotated[
        Literal["free", "regularised"],
        doc(
            "Intercept without penalty, as in LIBSVM (free), or with the penalty of the weights, as in Boyd's "
            "example (regularised)."
        ),
    ] = "free"
    rho: Annotated[Positive, doc("Penalty on a site's squared distance from the consensus.")] = 1.0
    relaxation: Annotated[float, Gt(0), Lt(2), doc("Over-relaxation alpha; 1 is none.")] = 1.0
    relative_tolerance: Annotated[
        Tolerance, doc("Maximum residual relative to the length of the models and multipliers.")
    ] = 1e-2
    absolute_tolerance: Annotated[Tolerance, doc("Additional maximum residual per weight.")] = 1e-4
    topology: Annotated[
        Literal["star", "ring"],
        doc(
            "Consensus by secure sums over all sites (star), or each site exchanges its models in the clear with its "
            "two neighbors (ring), which shows them sums of its rows."
        ),
    ] = "star"
    max_iterations: Annotated[Count, doc("Maximum number of iterations, even if the tolerance is not reached.")] = 1000


# The site.


class AdmmSite(MappedSite):
    """The site half: its models (K, d) of K problems, and what pulls them to the consensus."""

    part_types: ClassVar[PartTypes] = (*MappedSite.part_types, NeighborConsensus)
    libraries = ("scipy.linalg",)

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.neighbors = NeighborConsensus(self, self.mapped)
        self.iteration = 0
        self.duals = self.value = self._sent = np.zeros((0, 0))

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `SvmAdmm.fit`."""
        once, last = seq("consensus"), seq()
        if terms.settings["topology"] == "ring":
            once, last = seq("exchange_models", "neighbor_residuals"), seq("neighbor_model")
        iterations = repeat(once, 1, terms.settings["max_iterations"])
        trained = stage("squared_norms", iterations, last, "dual_sums", "dual_vector")
        return each_model(terms, stage(preparation(terms), mapping(terms)), trained, calibration(terms))

    @step(
        told={
            "iteration": free("a whole number", "another start of the solver"),
            "w, b": free("any point", "sums of losses or gradients at points of its choice: can isolate rows"),
            "rho, relaxation": AGREED,
            "reach": free("any number", "nothing; the sums in another unit"),
            "fresh": free("true or false", "a restart of the solver"),
        }
    )
    def consensus(
        self,
        iteration: int,
        w: FloatArray,
        b: FloatArray,
        rho: float,
        relaxation: float,
        reach: float,
        fresh: bool,
    ) -> FloatArray:
        """Return the (K, d + 2) this site's x^ + u, and the squared lengths of x and of x^ + u, at z = (w, b).

        w (K, m), b (K,). reach: the lengths are given as shares of it. fresh: u is 0 again.
        """
        if iteration == self.iteration:
            return self.value  # the round is run again
        z = np.column_stack([w, b])
        if fresh:
            u, self.duals = np.zeros_like(z), np.zeros(self.labels.shape)
        else:
            u = self._sent - z
        found = [
            local_model(self.mapped.features, labels, centre, rho, dual)
            for labels, centre, dual in zip(self.labels, z - u, self.duals, strict=True)
        ]
        x, self.duals = np.stack([model for model, _ in found]), np.stack([dual for _, dual in found])
        self._sent = relaxation * x + (1 - relaxation) * z + u
        squares = np.column_stack([(x**2).sum(axis=1), (self._sent**2).sum(axis=1)]) / reach**2
        self.iteration, self.value = iteration, np.hstack([self._sent / reach, squares])
        return self.value

    @step(
        told={
            "w, b": free("any point", "sums of losses or gradients at points of its choice: can isolate rows"),
            "scales": free("two numbers", "nothing; the sums in another unit"),
        }
    )
    def dual_sums(self, w: FloatArray, b: FloatArray, scales: FloatArray) -> FloatArray:
        """Return the (K, 3) loss at w (K, m) and b (K,), and the sum of lambda of each class. scales (2,): of both, to
        1."""
        losses = np.maximum(0.0, 1.0 - self.labels * (w @ self.mapped.features.T + b[:, None])).sum(axis=1)
        duals = self._last_duals
        of_class = [(duals * (self.labels > 0)).sum(axis=1), (duals * (self.labels < 0)).sum(axis=1)]
        return np.column_stack([losses / scales[0], *(sums / scales[1] for sums in of_class)])

    @step(
        told={
            "theta": free("any numbers", "another weighting of the same sums by class"),
            "scale": free("any number", "nothing; the sums in another unit"),
        }
    )
    def dual_vector(self, theta: FloatArray, scale: float) -> FloatArray:
        """Return the (K, m) sum of theta lambda y f, for theta (K, 2) of each class."""
        weights = np.where(self.labels > 0, theta[:, :1], theta[:, 1:])
        return np.asarray((weights * self._last_duals * self.labels) @ self.mapped.features / scale)

    @property
    def _last_duals(self) -> FloatArray:
        """(K, n) of this site's last problems."""
        return self.neighbors.duals[None] if self.terms.settings.get("topology") == "ring" else self.duals


# The coordinator.


@dataclass(frozen=True)
class Residuals:
    """The distance of an iteration from its end, for each problem (K,): primal and dual residuals, and their
    tolerances."""

    primal: FloatArray
    dual: FloatArray
    primal_tolerance: FloatArray
    dual_tolerance: FloatArray

    @property
    def converged(self) -> bool:
        """True if every problem may stop."""
        return bool(((self.primal < self.primal_tolerance) & (self.dual < self.dual_tolerance)).all())


@dataclass
class Consensus:
    """The coordinator's state of K problems: z (K, d), the sum of the sites' u_i, and a bound on their lengths.

    lengths: no sum of |f~| over rows exceeds it.
    """

    settings: AdmmSettings
    sites: int
    lengths: float
    z: FloatArray
    multipliers: FloatArray = field(init=False)
    _multiplier_bound: float = 0.0

    def __post_init__(self) -> None:
        self.multipliers = np.zeros_like(self.z)

    @property
    def reach(self) -> float:
        """No sum of |x_i|, nor of |x^_i + u_i|, exceeds it: x_i = z - u_i + B^T lambda / rho with lambda up to 1."""
        longest = float(np.linalg.norm(self.z, axis=1).max())
        beside = max(1.0, self.settings.relaxation) * self.lengths / self.settings.rho
        return (self.sites * longest + self._multiplier_bound + beside) * _ROOM

    def take(self, total: FloatArray) -> Residuals:
        """Compute the next z from the sums (K, d + 2) of an iteration."""
        settings, sites, before = self.settings, self.sites, self.z
        alpha, rho, d = settings.relaxation, settings.rho, self.z.shape[1]
        sent, x_squares, sent_squares = total[:, :d], total[:, d], total[:, d + 1]
        x = (sent - self.multipliers - (1 - alpha) * sites * before) / alpha
        factor = np.full(d, sites * rho / (1 / settings.C + sites * rho))
        if settings.bias == "free":
            factor[-1] = 1.0
        self.z = z = factor * sent / sites
        self.multipliers = sent - sites * z
        moved = np.linalg.norm(z - before, axis=1)
        grown = abs(1 - alpha) * self._multiplier_bound + alpha * self.lengths / rho
        self._multiplier_bound = grown + sites * float(moved.max())
        z_squares = sites * (z**2).sum(axis=1)
        primal = _root(x_squares - 2 * (z * x).sum(axis=1) + z_squares)
        pulls = _root(sent_squares - 2 * (z * sent).sum(axis=1) + z_squares)
        least, share = math.sqrt(d) * settings.absolute_tolerance, settings.relative_tolerance
        return Residuals(
            primal=primal,
            dual=rho * math.sqrt(sites) * moved,
            primal_tolerance=least + share * np.maximum(_root(x_squares), np.sqrt(z_squares)),
            dual_tolerance=least + share * rho * pulls,
        )


def _root(squares: FloatArray) -> FloatArray:
    """Return the root of differences of sums, which rounding may leave slightly below 0."""
    return np.sqrt(np.maximum(squares, 0.0))


@dataclass(frozen=True)
class DualPoint:
    """A point of the dual of LIBSVM's problem, of each of K problems, and the loss at the primal one.

    losses (K,). alphas (K, 2): of each class the sum of lambda. vectors (K, m): sum theta lambda y f, with the theta of
    each class that makes the smaller sum that of both.
    """

    losses: FloatArray
    alphas: FloatArray
    vectors: FloatArray

    @staticmethod
    def theta(alphas: FloatArray) -> FloatArray:
        """Return (K, 2) factors up to 1."""
        return np.asarray(alphas.min(axis=1, keepdims=True) / np.maximum(alphas, np.finfo(float).tiny))

    def certify(self, w: FloatArray, C: float) -> tuple[FloatArray, FloatArray]:
        """Return (K,) objectives at w (K, m), and lower bounds of LIBSVM's problem.

        1/2 |w|^2 + C loss; and, for alpha = C theta lambda, the largest s sum alpha - s^2/2 |sum alpha y f|^2 over s up
        to 1.
        """
        whole = 2 * C * self.alphas.min(axis=1)
        squares = C**2 * (self.vectors**2).sum(axis=1)
        share = np.minimum(1.0, np.divide(whole, squares, out=np.ones_like(whole), where=squares > 0))
        return 0.5 * (w**2).sum(axis=1) + C * self.losses, share * whole - share**2 / 2 * squares


class SvmAdmm(MappedAlgorithm[AdmmSettings, PanModel]):
    """A linear SVM in common features, by consensus of the sites' own models (ADMM; Boyd and others 2011)."""

    name = "svm-admm"
    estimator = "AdmmSVC"
    Settings, Site, Model = AdmmSettings, AdmmSite, PanModel
    figures = {
        **MappedAlgorithm.figures,
        "primal_residual": "distance of the sites' models from the consensus, all together",
        "dual_residual": "how far the consensus moved in the last iteration, in multipliers",
        "restarts": "with multipliers of 0, where sites left or joined",
    }

    def fit(self, federation: Federation, task: HorizontalTask, settings: AdmmSettings) -> PanModel:
        """Choose features from the sites' rows, then find the consensus. If sites are lost, the others continue from
        it."""
        features = federation.until_stable(lambda: map_rows(federation, settings, task.prepare(federation), task.seed))
        run = _AdmmProgress(federation, settings, np.zeros((1, features.map.dimensions + 1)))
        with federation.phase("train"):
            residuals, point = federation.until_stable(run.stage if settings.topology == "star" else run.ring_stage)
        features = features.with_lengths(run.mean_square)
        federation.disclose("coordinator", "dual_vector", DUAL_POINT, point.vectors.shape)
        w, b = run.z[0, :-1], float(run.z[0, -1])
        objective, lower_bound = (float(each[0]) for each in point.certify(w[None], settings.C))
        model = PanModel(
            features.map,
            w,
            b,
            TrainingReport(
                sites=federation.sites,
                description=features.description,
                objective=objective,
                lower_bound=lower_bound,
                gap=relative_gap(objective, lower_bound),
                iterations=run.iteration,
                converged=residuals.converged,
                figures={
                    **features.figures,
                    "primal_residual": float(residuals.primal[0]),
                    "dual_residual": float(residuals.dual[0]),
                    "restarts": run.starts - 1,
                },
                remarks=tuple(Remark(name, sentence) for name, sentence in features.remarks.items()),
            ),
        )
        return with_calibration(federation, task, model, settings)

    def train_pooled(self, model: PanModel, settings: AdmmSettings, rows: EvaluationRows) -> Pooled:
        """Train LIBSVM on pooled, scaled rows: in the same features, whose optimum defines the gap, and the exact
        kernel."""
        features, (_, labels) = model.features(rows.train.rows), rows.train
        svm = libsvm.linear(features, labels, settings.C)
        return Pooled(
            scores=svm.decision_function(model.features(rows.test.rows)),
            objective=libsvm.objective(svm, features, labels, settings.C),
            exact=libsvm.exact_scores(model.feature_map, settings.C, rows.train, rows.test.rows),
        )

    def whole_run(self, settings: AdmmSettings) -> WholeRunLeakage:
        """Return what the certificate and the last point give away, and on a ring a site's sums to its neighbors.

        The certificate shows rows at the margin if they are fewer than features.
        """
        with_site, alone = (
            Recovery("some rows", LISTED, settings.landmark_rows(with_site=site)) for site in (True, False)
        )
        if settings.topology == "ring":  # what a neighbor sends changes by single rows
            with_site = by_a_site = Recovery("some rows")
        else:
            by_a_site = alone
        return WholeRunLeakage(with_site, alone, by_a_site, support_named=True)

    def attacks(self, settings: AdmmSettings) -> list[Attack]:
        """Return the attacks on landmarks, on the certificate, and on the trained point."""
        from fedsvm.algorithms.attacks.cluster_rounds import ClusterRounds
        from fedsvm.algorithms.attacks.dual_points import DualPoints
        from fedsvm.algorithms.attacks.landmark_copies import LandmarkCopies
        from fedsvm.algorithms.attacks.support_rows import SupportRows

        return [
            LandmarkCopies(),
            ClusterRounds(),
            DualPoints(),
            SupportRows(settings.C, settings.relative_tolerance, regularised=settings.bias == "regularised"),
        ]


@dataclass
class _AdmmProgress:
    """The state of training: it continues from z (K, d) if sites leave or join."""

    federation: Federation
    settings: AdmmSettings
    z: FloatArray
    iteration: int = 0
    starts: int = 0
    mean_square: float = 0.0

    def stage(self) -> tuple[Residuals, DualPoint]:
        """Iterate until the residuals allow to stop, and have the dual point opened that certifies the last."""
        federation, settings = self.federation, self.settings
        rows, lengths = self._extent()
        consensus = Consensus(settings, len(federation.sites), lengths, self.z)
        self.starts += 1
        fresh = True
        while True:
            self.iteration += 1
            residuals = self._iterate(consensus, fresh=fresh)
            fresh = False
            if residuals.converged or self.iteration >= settings.max_iterations:
                return residuals, self._dual_point(rows, lengths)

    def ring_stage(self) -> tuple[Residuals, DualPoint]:
        """Iterate over the ring until neighbors agree, and have the mean of their models and its certificate opened."""
        federation, settings, d = self.federation, self.settings, self.z.shape[1]
        rows, lengths = self._extent()
        self.starts += 1
        fresh, residuals = True, None
        agreed: dict[str, Any] = {"C": settings.C, "rho": settings.rho, "bias": settings.bias}
        while residuals is None or not (residuals.converged or self.iteration >= settings.max_iterations):
            self.iteration += 1
            federation.run("exchange_models", iteration=self.iteration, fresh=fresh, **agreed)
            squares = federation.sum("neighbor_residuals", shape=(3,), bound=math.inf)
            distance, length, change = _root(squares)[:, None]
            tolerance = math.sqrt(d) * settings.absolute_tolerance + settings.relative_tolerance * length
            residuals, fresh = Residuals(distance, change, tolerance, tolerance), False
            shown = {"primal_residual": float(distance[0]), "dual_residual": float(change[0])}
            federation.log_metrics(iteration=self.iteration, **shown)
        federation.disclose("sites", "exchange_models", MODELS_IN_CLEAR, (d,), self.iteration)
        federation.disclose("coordinator", "neighbor_residuals", RESIDUALS, (3,), self.iteration)
        self.z = federation.sum("neighbor_model", shape=(d,), bound=math.inf)[None] / len(federation.sites)
        return residuals, self._dual_point(rows, lengths)

    def _extent(self) -> tuple[float, float]:
        """Return the number of rows, and a bound on sums of |f~| over rows."""
        squares, count = self.federation.sum("squared_norms", shape=(2,), bound=math.inf)
        rows = max(1.0, round(float(count)))
        self.mean_square = max(0.0, float(squares)) / rows
        return rows, math.sqrt(rows * (max(0.0, float(squares)) + rows)) * _ROOM

    def _iterate(self, consensus: Consensus, *, fresh: bool) -> Residuals:
        settings, reach, d = self.settings, consensus.reach, self.z.shape[1]
        total = self.federation.sum(
            "consensus",
            shape=(len(self.z), d + 2),
            bound=1.0,
            iteration=self.iteration,
            w=self.z[:, :-1],
            b=self.z[:, -1],
            rho=settings.rho,
            relaxation=settings.relaxation,
            reach=reach,
            fresh=fresh,
        )
        residuals = consensus.take(np.hstack([total[:, :d] * reach, total[:, d:] * reach**2]))
        self.z = consensus.z
        primal, dual = float(residuals.primal.max()), float(residuals.dual.max())
        self.federation.log_metrics(iteration=self.iteration, primal_residual=primal, dual_residual=dual)
        return residuals

    def _dual_point(self, rows: float, lengths: float) -> DualPoint:
        """Return the dual point by two sums. The second opens one vector, balanced by the classes' sums, not one per
        class."""
        w, b = self.z[:, :-1], self.z[:, -1]
        longest = float(np.linalg.norm(self.z, axis=1).max())
        scales = np.array([rows + longest * lengths, rows]) * _ROOM
        sums = self.federation.sum("dual_sums", shape=(len(w), 3), bound=1.0, w=w, b=b, scales=scales)
        losses, alphas = sums[:, 0] * scales[0], np.maximum(sums[:, 1:], 0.0) * scales[1]
        theta = DualPoint.theta(alphas)
        vectors = self.federation.sum("dual_vector", shape=w.shape, bound=1.0, theta=theta, scale=lengths)
        return DualPoint(losses, alphas, vectors * lengths)
