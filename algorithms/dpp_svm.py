"""DPP-SVM (Que, Jiang and Ohno-Machado 2012): the exact SVM over a vertical partition, with any additive kernel.

The sites' partial kernels are summed, the coordinator solves the dual as LIBSVM does and sends the coefficients back,
and records are scored by sums of the sites' parts again. The model equals the one that pooled columns give. In the
paper kernels are linear, and the server sees every site's matrix; here it is any kernel of inner products or squared
distances, and the coordinator sees sums.

Where the (n, n) matrix is too large, the low-rank variant exchanges n x l kernel values against l shared records
instead, and trains in the features that they span (Nystroem), to a certified gap. Its decision values have the same
form, with the l records in place of the support.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from algorithms.data.vertical import VerticalSite, column_names, reach_of
from algorithms.features.kernels import Kernel, squared_distances
from algorithms.features.nystrom import nystrom_map
from algorithms.features.partial_kernel import BLOCK_ELEMENTS, packed_size, partial_kernel, row_blocks, unpack
from algorithms.figures import Figures
from algorithms.optimisation.cutting_plane import Stopping, relative_gap, solve
from algorithms.optimisation.hinge_sums import HingeSums
from algorithms.optimisation.line_search import grid_search
from federation.arrays import FloatArray, IntArray
from federation.errors import FederationError
from federation.federation import Federation
from federation.site.program import step

if TYPE_CHECKING:
    from sklearn.svm import SVC

LIBSVM_TOLERANCE = 1e-10
LIBSVM_ITERATIONS = 1_000_000
"""At least. LIBSVM keeps the kernel in 24 bits, and of a singular matrix that may never reach its tolerance."""

MIN_TO_OPEN = 3
"""With fewer sites, the one that opened a sum would learn the other's part by taking off its own."""

PLAIN_DISCLOSES = (
    "every site's own kernel matrix; inner products give that site's columns away up to a rotation, and exactly to "
    "whoever knows as many of its records as it has independent columns"
)
SUMMED_DISCLOSES = (
    "the kernel matrix of all columns together, which gives them away to whoever knows as many complete records as "
    "there are independent columns"
)
COEFFICIENTS_DISCLOSE = "the labels of the support records, in the signs of the coefficients"
OPENED_DISCLOSES = "kernel values of all columns together, between records held out and the records that are weighed"

_CACHE_MB = 500


@dataclass(frozen=True)
class DppSettings:
    """What a user decides. landmarks: how many shared records the low-rank variant has; None is exact.

    groups, tolerance, max_iterations, rank_tolerance are of the low-rank variant.
    """

    kernel: Kernel
    C: float
    exchange: Literal["plain", "summed"] = "summed"
    landmarks: int | None = None
    groups: int = 32
    tolerance: float = 1e-4
    max_iterations: int = 500
    rank_tolerance: float = 1e-10
    seed: int = 0


@dataclass(frozen=True)
class DppModel:
    """f(x) = sum over s weighed records of coefficient * k(x, record), plus the intercept.

    weighed (s,): which of the training records these are, the support or the landmarks. fitted (n,): decision values of
    the training records. objective: 1/2 |w|^2 + C sum of hinge losses. lower_bound: of the dual; None for a kernel that
    is not positive semidefinite. reach: a bound on the squared length of any record. rank: of the low-rank features.
    """

    kernel: Kernel
    weighed: IntArray
    coefficients: FloatArray
    intercept: float
    fitted: FloatArray
    objective: float
    lower_bound: float | None
    reach: float
    iterations: int
    converged: bool
    rank: int | None = None

    @property
    def gap(self) -> float | None:
        """(objective - lower bound) / objective, where there is a bound."""
        return None if self.lower_bound is None else relative_gap(self.objective, self.lower_bound)

    def figures(self, sites: tuple[str, ...]) -> Figures:
        """What a result says of it; sites: whose columns it is of."""
        low_rank = self.rank is not None
        return Figures(
            objective=self.objective,
            lower_bound=self.lower_bound,
            gap=self.gap,
            converged=self.converged,
            iterations=self.iterations,
            sites=sites,
            landmarks=len(self.weighed) if low_rank else None,
            rank=self.rank,
            support=None if low_rank else len(self.weighed),
        )


class DppSite(VerticalSite):
    """The site half."""

    @step
    def kernel_rows(self, first: int, last: int, distances: bool) -> FloatArray:
        """This site's part of some rows of the kernel of the training records, packed."""
        return partial_kernel(self.rows[self.training], first, last, distances=distances)

    @step
    def refer_to(self, records: IntArray) -> None:
        """Keep these training records, as those that others are compared with."""
        self.reference = self.rows[self.training][records]

    @step
    def weigh(self, coefficients: FloatArray, kernel: dict[str, Any]) -> None:
        """Keep the coefficients, and with them this site's own weights, W_p = sum alpha y x_p; write them to its file.

        The file is the site's alone. Its `setting` model_path says where it is; without one nothing is written.
        """
        self.coefficients, self.kernel = coefficients, Kernel(**kernel)
        self.weights = coefficients @ self.reference
        if path := self.settings.get("model_path"):
            self._write(path)

    def _write(self, path: str) -> None:
        """Everything of the model that is this site's, in place of what an earlier fold left."""
        values = self.partition.values
        columns = column_names(values["numeric"], values["categorical"], values["categories"])
        partial = f"{path}.partial"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            np.savez(
                file,
                reference=self.reference,
                coefficients=self.coefficients,
                weights=self.weights,
                offset=self.offset,
                scale=self.spread,
                columns=np.array(columns, dtype=np.str_),
                order=self.order,
                training=self.training,
            )
        Path(partial).replace(path)

    @step
    def partial_scores(self) -> FloatArray:
        """(n held out,): this site's part of the linear scores."""
        return np.asarray(self.rows[~self.training] @ self.weights)

    @step
    def reference_kernel(self, first: int, last: int, held_out: bool, distances: bool) -> FloatArray:
        """(rows, s): this site's part of the kernel between some records and those that they are compared with."""
        rows = self.rows[~self.training if held_out else self.training][first:last]
        return squared_distances(rows, self.reference) if distances else np.asarray(rows @ self.reference.T)

    @step
    def scores_of_opened(self, opener: str, rows: int) -> FloatArray:
        """(rows,): scores from the kernel sums that were opened here; zeros where another site opened them."""
        if self.site != opener:
            return np.zeros(rows)
        return np.asarray(self.kernel.of_sums(self.opened) @ self.coefficients)


# Training.


def train(federation: Federation, settings: DppSettings, labels: FloatArray) -> DppModel:
    """The model of the training records that the sites hold ready, with labels (n,) of +1 and -1.

    Raises FederationError where the kernel matrix does not fit the memory at hand, before anything is exchanged.
    """
    if settings.landmarks is None:
        _require_memory(len(labels))
    exchange = KernelExchange(federation, settings, reach_of(federation))
    federation.need_every_site("Its columns are in the kernel, and no other site has them.")
    return _train_exactly(exchange, labels) if settings.landmarks is None else _train_low_rank(exchange, labels)


@dataclass(frozen=True)
class KernelExchange:
    """Kernel values of all columns together, from the sites' parts. `reach` bounds the squared length of a record."""

    federation: Federation
    settings: DppSettings
    reach: float

    def __call__(self, name: str, shape: Sequence[int], **terms: Any) -> FloatArray:
        """The kernel values that `name` computes parts of, of `shape`."""
        kernel, federation = self.settings.kernel, self.federation
        terms["distances"] = kernel.of_distances
        if self.settings.exchange == "plain":
            parts = federation.gather(name, shape=shape, **terms)
            federation.disclose("coordinator", name, PLAIN_DISCLOSES, shape)
            return kernel.of_sums(np.sum([parts[site] for site in federation.sites], axis=0))
        federation.disclose(
            "coordinator", name, PLAIN_DISCLOSES if federation.shows_inputs else SUMMED_DISCLOSES, shape
        )
        return kernel.of_sums(federation.sum(name, shape=shape, bound=4.0 * self.reach, **terms))


def exchange_kernel(exchange: KernelExchange, rows: int) -> FloatArray:
    """The (n, n) kernel of the training records."""
    matrix = np.empty((rows, rows))
    for first, last in row_blocks(rows):
        packed = exchange("kernel_rows", (packed_size(rows, first, last),), first=first, last=last)
        unpack(packed, first, last, matrix)
    return matrix


def _train_exactly(exchange: KernelExchange, labels: FloatArray) -> DppModel:
    """The dual, by LIBSVM."""
    federation, settings = exchange.federation, exchange.settings
    matrix = exchange_kernel(exchange, len(labels))
    solver = solve_dual(matrix, labels, settings.C)
    support, coefficients = solver.support_.astype(np.int64), solver.dual_coef_[0]
    fitted = matrix[:, support] @ coefficients
    squared_norm = float(coefficients @ fitted[support])
    objective, dual = _values(squared_norm, fitted + solver.intercept_[0], labels, coefficients, settings.C)
    federation.run("refer_to", records=support)
    federation.disclose("sites", "weigh", COEFFICIENTS_DISCLOSE, coefficients.shape)
    federation.run("weigh", coefficients=coefficients, kernel=settings.kernel.to_fields())
    return DppModel(
        kernel=settings.kernel,
        weighed=support,
        coefficients=coefficients,
        intercept=float(solver.intercept_[0]),
        fitted=fitted + solver.intercept_[0],
        objective=objective,
        lower_bound=dual if settings.kernel.positive_semidefinite else None,
        reach=exchange.reach,
        iterations=int(np.max(solver.n_iter_)),
        converged=solver.fit_status_ == 0,
    )


def solve_dual(matrix: FloatArray, labels: FloatArray, C: float) -> SVC:
    """The dual of the kernel matrix (n, n) and labels (n,), by LIBSVM; `fit_status_` is 0 where it converged."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - sites share this module, and need none of it
    from sklearn.svm import SVC  # noqa: PLC0415

    most = max(LIBSVM_ITERATIONS, 100 * len(labels))
    solver = SVC(C=C, kernel="precomputed", tol=LIBSVM_TOLERANCE, cache_size=_CACHE_MB, max_iter=most)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the model says so
        return solver.fit(matrix, labels)


def _values(
    squared_norm: float, fitted: FloatArray, labels: FloatArray, coefficients: FloatArray, C: float
) -> tuple[float, float]:
    """The primal objective and the dual's, at a dual solution."""
    primal = 0.5 * squared_norm + C * float(np.maximum(0.0, 1.0 - labels * fitted).sum())
    return primal, float(np.abs(coefficients).sum()) - 0.5 * squared_norm


def _train_low_rank(exchange: KernelExchange, labels: FloatArray) -> DppModel:
    """The primal in the features that l shared records span, by cutting planes over rows that are all here."""
    federation, settings = exchange.federation, exchange.settings
    random = np.random.default_rng([settings.seed, len(labels)])
    records = np.sort(random.permutation(len(labels))[: settings.landmarks]).astype(np.int64)
    federation.run("refer_to", records=records)
    values = against_reference(exchange, len(labels), len(records), held_out=False)
    mapping = nystrom_map(values[records], settings.rank_tolerance)
    features = values @ mapping
    (solution,) = solve(
        HingeSums.dealt(features, labels[None, :], settings.groups, random),
        problems=1,
        dimensions=mapping.shape[1],
        groups=settings.groups,
        C=settings.C,
        stopping=Stopping(settings.tolerance, settings.max_iterations),
        search=grid_search,
        on_iteration=lambda iteration, solutions: federation.log_metrics(iteration=iteration, gap=solutions[0].gap),
    )
    coefficients = mapping @ solution.w
    federation.run("weigh", coefficients=coefficients, kernel=settings.kernel.to_fields())
    return DppModel(
        kernel=settings.kernel,
        weighed=records,
        coefficients=coefficients,
        intercept=solution.b,
        fitted=features @ solution.w + solution.b,
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        reach=exchange.reach,
        iterations=solution.iterations,
        converged=solution.converged,
        rank=mapping.shape[1],
    )


def against_reference(exchange: KernelExchange, rows: int, columns: int, *, held_out: bool) -> FloatArray:
    """(rows, columns): the kernel between records and those that they are compared with."""
    parts = [
        exchange("reference_kernel", (last - first, columns), first=first, last=last, held_out=held_out)
        for first, last in _blocks(rows, columns)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, columns))


def _blocks(rows: int, columns: int) -> list[tuple[int, int]]:
    """Ranges of rows with at most so many elements as a block may have, or one row."""
    height = max(1, BLOCK_ELEMENTS // max(1, columns))
    return [(first, min(rows, first + height)) for first in range(0, rows, height)]


def _require_memory(rows: int) -> None:
    """Raise FederationError where the (n, n) matrix and LIBSVM's cache do not fit the memory at hand."""
    needed, at_hand = kernel_bytes(rows), available_bytes()
    if needed > at_hand:
        raise FederationError(
            f"The kernel matrix of {rows} records takes {needed / 2**30:.1f} GiB and {at_hand / 2**30:.1f} GiB are at "
            "hand; train the low-rank variant, by algorithm.landmarks = 500 or so."
        )


def kernel_bytes(rows: int) -> int:
    """Memory that the exact dual of so many records takes at the coordinator."""
    return 8 * rows * rows + (_CACHE_MB << 20)


def available_bytes() -> int:
    """Memory that is free, or can be made so; where nothing says how much, all there is."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# Prediction.


def decision_values(federation: Federation, model: DppModel, rows: int) -> FloatArray:
    """(n,) for the records that the sites hold out. The coordinator learns the scores alone.

    Of other kernels than the linear one somebody must see the sums over sites before they become kernel values: the
    first site does, and of less than three sites the coordinator, since a site would know the other's part.
    """
    if model.kernel.name == "linear":
        bound = max(1.0, float(np.abs(model.coefficients).sum()) * model.reach)
        return federation.sum("partial_scores", shape=(rows,), bound=bound) + model.intercept
    score = _opened_by_a_site if len(federation.sites) >= MIN_TO_OPEN else _opened_by_the_coordinator
    scores = [score(federation, model, first, last) for first, last in _blocks(rows, len(model.weighed))]
    return np.concatenate(scores) + model.intercept if scores else np.zeros(0)


def _opened_by_a_site(federation: Federation, model: DppModel, first: int, last: int) -> FloatArray:
    opener, shape = federation.sites[0], (last - first, len(model.weighed))
    terms = {"first": first, "last": last, "held_out": True, "distances": model.kernel.of_distances}
    federation.sum("reference_kernel", receiver=opener, shape=shape, bound=4.0 * model.reach, **terms)
    federation.disclose(opener, "reference_kernel", OPENED_DISCLOSES, shape)
    return federation.sum("scores_of_opened", shape=(last - first,), bound=np.inf, opener=opener, rows=last - first)


def _opened_by_the_coordinator(federation: Federation, model: DppModel, first: int, last: int) -> FloatArray:
    shape = (last - first, len(model.weighed))
    terms = {"first": first, "last": last, "held_out": True, "distances": model.kernel.of_distances}
    sums = federation.sum("reference_kernel", shape=shape, bound=4.0 * model.reach, **terms)
    federation.disclose("coordinator", "reference_kernel", OPENED_DISCLOSES, shape)
    return np.asarray(model.kernel.of_sums(sums) @ model.coefficients)
