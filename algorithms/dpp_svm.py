"""DPP-SVM (Que, Jiang and Ohno-Machado 2012): the exact SVM over a vertical partition, with any additive kernel.

The sites' partial kernels are summed, the coordinator solves the dual as LIBSVM does and sends the coefficients back,
and records are scored by sums of the sites' parts again. The model equals the one that pooled columns give. In the
paper kernels are linear, and the server sees every site's matrix; here it is any kernel of inner products or squared
distances, and the coordinator sees sums.

Where the (n, n) matrix is too large, the low-rank variant exchanges n x l kernel values against l shared records
instead, and trains in the features that they span (Nystroem), to a certified gap. Its decision values have the same
form, with the l records in place of the support.

With more than two classes, each is separated from the others. The kernel does not depend on labels: it is exchanged
once, the coordinator solves K duals, and later messages have K numbers instead of one. The number of rounds does not
depend on K.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, Outline, TrainingReport, VerticalAlgorithm, VerticalModel
from fedsvm.algorithms.data.classes import one_against_rest
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.data.vertical import (
    VerticalSite,
    VerticalTask,
    alignment_script,
    column_names,
    count_columns,
    max_squared_norm,
)
from fedsvm.algorithms.features.kernel_exchange import (
    EXCHANGED,
    KernelExchange,
    against_reference,
    exchange_kernel,
)
from fedsvm.algorithms.features.kernel_expansion import KernelExpansion
from fedsvm.algorithms.features.kernels import Kernel, KernelSettings, check_kernel, squared_distances
from fedsvm.algorithms.features.landmarks import landmark_count
from fedsvm.algorithms.features.nystrom import nystrom_features, nystrom_map
from fedsvm.algorithms.features.partial_kernel import (
    MIN_SITES_TO_OPEN,
    element_blocks,
    exchanged_elements,
    partial_kernel,
    unpack,
)
from fedsvm.algorithms.leakage import Recovery, WholeRunLeakage
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.cutting_plane import CuttingPlaneSettings, solve
from fedsvm.algorithms.optimization.hinge_sums import HingeSums
from fedsvm.algorithms.optimization.kernel_dual import Dual, check_memory
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.settings import Positive, Share, ShareOrCount, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.private_file import replace_private
from fedsvm.federation.site.program import free, step
from fedsvm.federation.site.script import Script, maybe, repeat, seq
from fedsvm.federation.site.terms import Terms

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack
    from fedsvm.protocols.analysis.views import Coalition

COEFFICIENTS_DISCLOSE = "the labels of the support records, in the signs of the coefficients"
OPENED_DISCLOSES = "kernel values of all columns together, between records held out and the support records"


@dataclass
class DppSettings(KernelSettings, CuttingPlaneSettings):
    """The settings of a user."""

    C: Annotated[
        Positive, doc("Regularization parameter C, as in scikit-learn's SVC: the weight of each record's hinge loss.")
    ] = 1.0
    _: KW_ONLY
    landmarks: Annotated[
        ShareOrCount | None,
        doc(
            "Number of records that the low-rank variant compares with: a share or a count. Default: the exact kernel."
        ),
    ] = None
    kernel_exchange: Annotated[
        Literal["summed", "plain"],
        doc("Sites send their kernel matrices through the secure sum, or in the clear as in the paper."),
    ] = "summed"
    rank_tolerance: Annotated[
        Share, doc("For the low-rank variant: eigenvalues below this share of the largest are dropped.")
    ] = 1e-10


@dataclass(frozen=True)
class DppModel(VerticalModel):
    """f(x) = sum over s support records of coefficient * k(x, record), plus the intercept.

    Of more than two classes coefficients are (K, s), intercepts (K,) and decision values (n, K). support_indices (s,):
    which of the training records these are, the support or the landmarks. fitted (n,): decision values of the training
    records. max_squared_norm: a bound on the squared length of any record. reference (s, p): the support records,
    scaled, which the sites keep, split by columns; None where they are not all here.
    """

    kernel: Kernel
    support_indices: IntArray
    dual_coef: FloatArray
    intercept: float | FloatArray
    fitted: FloatArray
    max_squared_norm: float
    training: TrainingReport | None = None
    reference: FloatArray | None = None

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p) of all columns, positive for the class +1; (n, K) for
        more."""
        if self.reference is None:
            raise ValueError("the model must be joined with the sites' parts, got the coordinator's alone")
        return np.asarray(self.kernel(rows, self.reference) @ self.dual_coef.T + self.intercept)

    def join_parts(self, rows: FloatArray, held: IntArray | None = None) -> DppModel:
        """Return the whole model, for a caller with all columns; see `VerticalModel.join_parts`."""
        return replace(self, reference=rows[self.support_indices])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the coordinator's file, with the kernel. The records stay at the sites, split by columns.

        The decision value of a scaled row x is k(x, reference) dual_coef + b. The sites hold `reference`.

        Returns
        -------
        support_indices : (s,)
            Numbers of the training records that are the support, or the landmarks.
        dual_coef : (s,) or (K, s)
            Their coefficients; of K > 2 classes, one row for each class.
        b : () or (K,)
            Intercepts.
        """
        arrays = {"support_indices": self.support_indices, "dual_coef": self.dual_coef, "b": np.array(self.intercept)}
        return {**arrays, **self.kernel.to_arrays()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in the coordinator's file and the sites' files."""
        kernel, reference = Kernel.from_arrays(arrays), np.hstack([part["reference"] for part in parts])
        indices, weights, b = arrays["support_indices"], arrays["dual_coef"], arrays["b"]
        intercept = b if b.ndim else float(b)
        return cls(kernel, indices, weights, intercept, np.zeros(0), float("inf"), None, reference)

    @classmethod
    def expansion_of(cls, arrays: Arrays) -> KernelExpansion:
        """Return the decision values as sums of kernel values; see `VerticalModel.expansion_of`."""
        return KernelExpansion(Kernel.from_arrays(arrays), arrays["dual_coef"], arrays["b"])

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return `support_` (s,), `reference_` (s, p), scaled, `dual_coef_` (P, s), `intercept_` (P,), linear:
        `coef_`."""
        weights, intercept = np.atleast_2d(self.dual_coef), np.atleast_1d(self.intercept)
        shown: dict[str, Any] = {"support_": self.support_indices, "dual_coef_": weights, "intercept_": intercept}
        if self.reference is None:
            return shown
        shown["reference_"] = self.reference
        linear = self.kernel.name == "linear"
        return shown | scaling.linear(weights @ self.reference, self.intercept) if linear else shown


FOLD = ("prepare_fold", "fold_counts", "labels_of")
"""The steps of `VerticalTask.prepare`."""


def kernel_training(terms: Terms) -> Script:
    """Return the script of `train`, exactly or with landmarks."""
    begun = seq(maybe("column_count"), "longest")
    if terms.settings["landmarks"] is None:
        return seq(begun, repeat(EXCHANGED, 1), "set_reference", "set_dual_coef")
    return seq(begun, "set_reference", repeat("reference_kernel", 1), "set_dual_coef")


def kernel_test(terms: Terms) -> Script:
    """Return the script of the scores of held-out records."""
    if terms.settings["kernel"] == "linear":
        return maybe("labels_of", "partial_scores")
    return maybe("labels_of", repeat(seq("reference_kernel", maybe("scores_of_opened"))))


class DppSite(VerticalSite):
    """The site half."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `DppSvm.fit` and its test."""
        return alignment_script(terms, *FOLD, kernel_training(terms), kernel_test(terms))

    @step(
        told={
            "first, last": free("two whole numbers", "nothing; each block of the matrix is opened anyway"),
            "distances": free("true or false", "only the other kind of the same block"),
        }
    )
    def kernel_rows(self, first: int, last: int, distances: bool) -> FloatArray:
        """Return this site's part of the kernel matrix of the training records, some rows at a time and packed."""
        return partial_kernel(self.rows[self.training], first, last, distances=distances)

    @step(
        told={
            "records": free(
                "numbers of records", "the kernel between held-out records and training records of its choice"
            ),
        }
    )
    def set_reference(self, records: IntArray) -> None:
        """Keep these training records, as those that others are compared with."""
        self.reference = self.rows[self.training][records]

    @step(
        told={
            "dual_coef": free("any coefficients", "scores of held-out records by coefficients of its choice"),
            "kernel": free(
                "the agreed one; any gamma if a word was agreed", "scores by another width of the same products"
            ),
        }
    )
    def set_dual_coef(self, dual_coef: FloatArray, kernel: dict[str, Any]) -> None:
        """Keep the coefficients (s,) or (K, s), and with them this site's own weights, W_p = sum alpha y x_p.

        They are written to a file that is the site's alone. Its `setting` model_path says where it is; without one
        nothing is written.
        """
        given = Kernel(**kernel)
        check_kernel(self, given)
        self.dual_coef, self.kernel = dual_coef, given
        self.weights = dual_coef @ self.reference
        if path := self.settings.get("model_path"):
            replace_private(path, lambda file: np.savez(file, **self._part()))

    def _part(self) -> dict[str, Any]:
        """Return the part of the model that this site keeps in its own file.

        Inner products of the parts, or squared distances, add up over the sites.

        Returns
        -------
        reference : (s, p)
            Support records, scaled, in the columns of this site.
        dual_coef : (s,) or (K, s)
            Coefficients of the support records.
        kernel, gamma, degree, coef0
            The kernel; see `Kernel.to_arrays`.
        weights : (p,) or (K, p)
            dual_coef times reference.
        offset, scale : (p,)
            Scale of this site's columns.
        columns : (p,) text
            Names of this site's columns.
        order : (n,)
            Order of this site's rows in which the records are aligned.
        training : (n,) bool
            Which of the aligned records were trained on.
        """
        values = self.partition.values
        columns = column_names(values["numeric"], values["categorical"], values["categories"])
        return {
            "reference": self.reference,
            "dual_coef": self.dual_coef,
            **self.kernel.to_arrays(),
            "weights": self.weights,
            "offset": self.scale.offset,
            "scale": self.scale.scale,
            "columns": np.array(columns, dtype=np.str_),
            "order": self.order,
            "training": self.training,
        }

    @step
    def partial_scores(self) -> FloatArray:
        """Return (n held out,) or (n held out, K): this site's part of the scores of the held-out records."""
        return np.asarray(self.rows[~self.training] @ self.weights.T)

    @step(
        receiver="either",
        told={
            "first, last": free("two whole numbers", "nothing; each block of the matrix is opened anyway"),
            "held_out": free("true or false", "the kernel of training records, which it has anyway"),
            "distances": free("true or false", "only the other kind of the same block"),
        },
    )
    def reference_kernel(self, first: int, last: int, held_out: bool, distances: bool) -> FloatArray:
        """Return (rows, s): this site's part of the kernel between some records and the reference records."""
        rows = self.rows[~self.training if held_out else self.training][first:last]
        return squared_distances(rows, self.reference) if distances else np.asarray(rows @ self.reference.T)

    @step(
        bound=np.inf,
        told={
            "opener": free("a site of the run", "nothing; only the opener has the sum"),
            "rows": free("a whole number", "nothing; only empty cells of the table change"),
        },
    )
    def scores_of_opened(self, opener: str, rows: int) -> FloatArray:
        """Return (rows,) or (rows, K): the scores of records whose kernel sums this site opened, otherwise zeros."""
        self.check_row_count(rows)
        if self.site != opener:
            return np.zeros((rows, *self.dual_coef.shape[:-1]))
        return np.asarray(self.kernel.of_sums(self.opened) @ self.dual_coef.T)


S = TypeVar("S", bound=DppSettings)
M = TypeVar("M", bound=DppModel)


class DppAlgorithm(VerticalAlgorithm[S, M]):
    """An algorithm whose model is a DPP-SVM: the exact SVM over sites that hold columns, or its low-rank variant."""

    figures = {
        "support": "support records of the exact model",
        "landmarks": "records that the low-rank variant compares with",
        "rank": "features of a record in the low-rank variant",
        "problems": "binary ones, of more than two classes",
    }
    multiclass = True

    def score(self, federation: Federation, model: M, rows: int) -> FloatArray:
        """Return (rows,) decision values of the records that the sites hold out, (rows, K) for more than two
        classes."""
        return decision_values(federation, model, rows)

    def shown_steps(self, settings: S) -> tuple[str, ...]:
        """Return the steps with parts of the kernel, which the paper's exchange shows."""
        return (EXCHANGED, "reference_kernel") if settings.kernel_exchange == "plain" else ()

    def problems(self, settings: S, outline: Outline) -> Iterator[str]:
        """Yield settings that only training with landmarks uses."""
        default = DppSettings()
        for key in ("cut_groups", "tolerance", "max_iterations", "rank_tolerance"):
            if settings.landmarks is None and getattr(settings, key) != getattr(default, key):
                yield f"{key}: applies to training with landmarks, and {self.name} without them is exact; remove it"

    def warnings(self, model: M, settings: S, rows: EvaluationRows, fold: int) -> list[str]:
        """Return a warning if LIBSVM's kernel cache is too coarse for nearly dependent columns."""
        training = model.training
        if training is None or training.converged:
            return []
        gap = f", {training.gap:.1e} short of a bound," if training.gap is not None else ""
        return [
            f"Training of fold {fold} stopped{gap} after {training.iterations} iterations. Where columns follow from "
            "others, change their scale or remove them; otherwise lower algorithm.C."
        ]

    def train_pooled(self, model: M, settings: S, rows: EvaluationRows) -> Pooled:
        """Train LIBSVM on all columns together: the same problem, by the exact kernel or in the same low-rank features.

        rows: in the order of the model's records.
        """
        (train_rows, labels), test_rows, kernel = rows.train, rows.test.rows, model.kernel
        classes, total = len(rows.classes), 0.0
        if settings.landmarks is None:
            among, across = kernel(train_rows, train_rows), kernel(test_rows, train_rows)

            def exactly(signs: FloatArray) -> Any:
                nonlocal total
                exact = libsvm.dual(among, signs, settings.C)
                support, weights = exact.support_, exact.dual_coef_[0]
                squared_norm = float(weights @ among[np.ix_(support, support)] @ weights)
                hinge = np.maximum(0.0, 1.0 - signs * exact.decision_function(among)).sum()
                total += 0.5 * squared_norm + settings.C * float(hinge)
                return exact

            return Pooled(libsvm.against_others(exactly, labels, classes, across), total)
        landmarks = train_rows[model.support_indices]
        mapping = nystrom_map(kernel(landmarks, landmarks), settings.rank_tolerance)
        features = [nystrom_features(kernel, each, landmarks, mapping) for each in (train_rows, test_rows)]

        def linearly(signs: FloatArray) -> Any:
            nonlocal total
            linear = libsvm.linear(features[0], signs, settings.C)
            total += libsvm.objective(linear, features[0], signs, settings.C)
            return linear

        scores = libsvm.against_others(linearly, labels, classes, features[1])
        exact = libsvm.against_others(
            lambda signs: libsvm.kernel(kernel, train_rows, signs, settings.C), labels, classes, test_rows
        )
        return Pooled(scores, objective=total, exact=exact)

    def remarks(self, settings: S, coalition: Coalition) -> list[str]:
        """Return what the site that opens sums learns."""
        if settings.kernel == "linear" or not coalition.sites:
            return []
        return [
            "The first site opens the sums from which new records are scored: if it colludes, the coalition has the "
            "kernel values between these and the support records, of all columns together."
        ]

    def whole_run(self, settings: S) -> WholeRunLeakage | None:
        """Return what the kernel matrix gives away; no attack is on its columns at landmarks alone."""
        if settings.landmarks is not None:
            return None
        found = Recovery("every record", "as many records are known as there are columns")
        return WholeRunLeakage(found, found)

    def attacks(self, settings: S) -> list[Attack]:
        """Return the attack with known records on the kernel matrices that a coalition has in the end."""
        from fedsvm.algorithms.attacks.kernel_matrix import KernelMatrix

        return [KernelMatrix(EXCHANGED, distances=Kernel(settings.kernel).of_distances, matrix=_last_matrix)]


class DppSvm(DppAlgorithm[DppSettings, DppModel]):
    """The exact SVM over sites that hold columns: the model of all columns together (DPP-SVM; Que et al. 2012)."""

    name = "dpp-svm"
    estimator = "DppSVC"
    Settings, Site, Model = DppSettings, DppSite, DppModel

    def fit(self, federation: Federation, task: VerticalTask, settings: DppSettings) -> DppModel:
        """Exchange the kernel of the records' columns, and train where it comes together."""
        records = task.prepare(federation)
        with federation.phase("train"):
            return train(federation, settings, records.labels, task.seed, task.classes)


def _last_matrix(blocks: Sequence[FloatArray], rows: int) -> FloatArray:
    """Return the (n, n) matrix that was exchanged last, from the blocks of all exchanges."""
    packed = np.concatenate(blocks)[-exchanged_elements(rows) :]
    matrix = np.empty((rows, rows))
    unpack(packed, 0, rows, matrix)
    return matrix


# Training.


def train(federation: Federation, settings: DppSettings, labels: FloatArray, seed: int, classes: int = 2) -> DppModel:
    """Return the model of the training records that the sites hold ready, with labels (n,) of this number of classes.

    Raises FederationError where the kernel matrix does not fit the memory at hand, before anything is exchanged.
    """
    if settings.landmarks is None:
        check_memory(len(labels))
    derived = isinstance(settings.gamma, str) and settings.kernel != "linear"
    kernel = settings.kernel_of(count_columns(federation) if derived else 1)
    exchange = KernelExchange(federation, kernel, settings.kernel_exchange, max_squared_norm(federation))
    federation.require_all_sites("Its columns are in the kernel, and no other site has them.")
    if settings.landmarks is None:
        return _train_exactly(exchange, settings, labels, classes)
    return _train_low_rank(exchange, settings, labels, seed, classes)


def _train_exactly(exchange: KernelExchange, settings: DppSettings, labels: FloatArray, classes: int) -> DppModel:
    """Solve the dual of each problem by LIBSVM."""
    federation, kernel = exchange.federation, exchange.kernel
    matrix = exchange_kernel(exchange, len(labels))
    duals = [Dual.of(matrix, signs, settings.C) for signs in one_against_rest(labels, classes)]
    support = duals[0].support if classes == 2 else np.unique(np.concatenate([dual.support for dual in duals]))
    coefficients = np.zeros((len(duals), len(labels)))
    for place, dual in enumerate(duals):
        coefficients[place, dual.support] = dual.coefficients
    dual_coef, intercept = _of_classes(coefficients[:, support], [dual.intercept for dual in duals])
    fitted = matrix[:, support] @ dual_coef.T + intercept
    federation.run("set_reference", records=support)
    federation.disclose("sites", "set_dual_coef", COEFFICIENTS_DISCLOSE, dual_coef.shape)
    federation.run("set_dual_coef", dual_coef=dual_coef, kernel=kernel.to_fields())
    gaps = [dual.gap for dual in duals]
    certified, several = kernel.positive_semidefinite, {"problems": classes} if classes > 2 else {}
    training = TrainingReport(
        sites=federation.sites,
        description=f"exact, {len(support)} support records",
        objective=sum(dual.objective for dual in duals),
        lower_bound=sum(dual.bound for dual in duals) if certified else None,
        gap=max(gaps) if certified else None,
        iterations=max(dual.iterations for dual in duals),
        converged=all(dual.converged for dual in duals),
        figures={"support": len(support), **several},
        gaps=tuple(gaps) if certified and classes > 2 else (),
    )
    return DppModel(kernel, support, dual_coef, intercept, fitted, exchange.max_squared_norm, training)


def _of_classes(weights: FloatArray, intercepts: Sequence[float]) -> tuple[FloatArray, float | FloatArray]:
    """Return weights (P, s) and intercepts in the form of a model: for two classes (s,) and one number."""
    return (weights[0], float(intercepts[0])) if len(weights) == 1 else (weights, np.array(intercepts))


def _train_low_rank(
    exchange: KernelExchange, settings: DppSettings, labels: FloatArray, seed: int, classes: int
) -> DppModel:
    """Solve the primal in the features that l shared records span, by cutting planes over local rows."""
    federation, kernel = exchange.federation, exchange.kernel
    random = np.random.default_rng([seed, len(labels)])
    count = landmark_count(settings.landmarks or 1, len(labels))
    records = np.sort(random.permutation(len(labels))[:count]).astype(np.int64)
    federation.run("set_reference", records=records)
    values = against_reference(exchange, len(labels), len(records), held_out=False)
    mapping = nystrom_map(values[records], settings.rank_tolerance)
    features, problems = values @ mapping, one_against_rest(labels, classes)
    solutions = solve(
        HingeSums.deal(features, problems, settings.cut_groups, random),
        problems=len(problems),
        dimensions=mapping.shape[1],
        groups=settings.cut_groups,
        C=settings.C,
        stopping=StoppingRule(settings.tolerance, settings.max_iterations),
        search=grid_search,
        on_iteration=lambda iteration, found: federation.log_metrics(
            iteration=iteration, gap=max(each.gap for each in found)
        ),
    )
    w, intercept = _of_classes(np.stack([each.w for each in solutions]), [each.b for each in solutions])
    dual_coef, fitted = (mapping @ w.T).T, features @ w.T + intercept
    federation.run("set_dual_coef", dual_coef=dual_coef, kernel=kernel.to_fields())
    several = {"problems": classes} if classes > 2 else {}
    training = TrainingReport(
        sites=federation.sites,
        description=f"{count} landmarks, rank {mapping.shape[1]}",
        objective=sum(each.objective for each in solutions),
        lower_bound=sum(each.lower_bound for each in solutions),
        gap=max(each.gap for each in solutions),
        iterations=max(each.iterations for each in solutions),
        converged=all(each.converged for each in solutions),
        figures={"landmarks": count, "rank": mapping.shape[1], **several},
        gaps=tuple(each.gap for each in solutions) if classes > 2 else (),
    )
    return DppModel(kernel, records, dual_coef, intercept, fitted, exchange.max_squared_norm, training)


# Prediction.


def decision_values(federation: Federation, model: DppModel, rows: int) -> FloatArray:
    """Return (n,), or (n, K), for the records that the sites hold out. The coordinator learns only the scores.

    Of other kernels than the linear one somebody must see the sums over sites before they become kernel values: the
    first site does, and of less than three sites the coordinator, since a site would know the other's part.
    """
    if model.kernel.name == "linear":
        largest_sum = float(np.abs(model.dual_coef).sum(axis=-1).max())  # of absolute coefficients of a class
        bound = max(1.0, largest_sum * model.max_squared_norm)
        return federation.sum("partial_scores", shape=_of_rows(model, rows), bound=bound) + model.intercept
    blocks = [
        _scores(federation, model, first, last) for first, last in element_blocks(rows, model.dual_coef.shape[-1])
    ]
    return np.concatenate(blocks) + model.intercept if blocks else np.zeros(_of_rows(model, 0))


def _of_rows(model: DppModel, rows: int) -> tuple[int, ...]:
    """Return the shape of the scores of this number of rows."""
    return (rows, *model.dual_coef.shape[:-1])


def _scores(federation: Federation, model: DppModel, first: int, last: int) -> FloatArray:
    """Return the scores of some held-out records, without the intercept."""
    shape, bound = (last - first, model.dual_coef.shape[-1]), 4.0 * model.max_squared_norm
    terms: dict[str, Any] = {"first": first, "last": last, "held_out": True, "distances": model.kernel.of_distances}
    if len(federation.sites) < MIN_SITES_TO_OPEN:
        sums: FloatArray = federation.sum("reference_kernel", shape=shape, bound=bound, **terms)
        federation.disclose("coordinator", "reference_kernel", OPENED_DISCLOSES, shape)
        return np.asarray(model.kernel.of_sums(sums) @ model.dual_coef.T)
    opener = federation.sites[0]
    federation.sum("reference_kernel", receiver=opener, shape=shape, bound=bound, **terms)
    federation.disclose(opener, "reference_kernel", OPENED_DISCLOSES, shape)
    of_rows = _of_rows(model, last - first)
    return federation.sum("scores_of_opened", shape=of_rows, bound=np.inf, opener=opener, rows=last - first)
