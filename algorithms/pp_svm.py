"""PP-SVM over sites that hold rows, by sizes of intersections (Yu, Jiang and Vaidya 2006): there to compare with.

A row is the set of the columns in which its scaled value is above 0: of 0/1 columns those that are 1, and of numbers
those above the mean, or the middle of the range. Sets are encrypted by all sites (`fedsvm.protocols.sets.records`), and
the coordinator counts what any two have in common: the kernel matrix of all rows, exactly,

    x_i.x_j = |S_i n S_j|,   |x_i - x_j|^2 = |S_i| + |S_j| - 2 |S_i n S_j|,

and solves the dual as LIBSVM does. For a linear kernel the weights are a secure sum of the sites' sums of
alpha y x. For another kernel, each site keeps its own support rows. All sites see new rows, and a secure sum adds up
their sums of alpha y k(x_i, x); in the paper all sites encrypt new rows.

Disclosures. To the coordinator the labels, and of every row which encrypted items it has: the whole table but for
the names of its columns, and these it finds by how often each occurs, or by the rows of any site that tells it
(`attacks.encrypted_items`). The paper says that nothing but the kernel matrix is revealed; a kernel matrix of binary
rows is the table, but for an order of columns, and this is no more secret. The sites learn who is a support vector.

References
----------
H. Yu, X. Jiang and J. Vaidya, "Privacy-preserving SVM using nonlinear kernels on horizontally partitioned data",
SAC 2006. That of vertical partitions (Yu, Vaidya and Jiang, PAKDD 2006) is dpp-svm by a ring of sums.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, HorizontalAlgorithm, Model, TrainingReport
from fedsvm.algorithms.data.horizontal import HorizontalSite, each_model, preparation
from fedsvm.algorithms.data.horizontal_task import HorizontalTask, PreparedRows
from fedsvm.algorithms.features.kernels import Kernel, KernelName, KernelSettings, check_kernel
from fedsvm.algorithms.leakage import Recovery, WholeRunLeakage
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.settings import HingePenalty, doc
from fedsvm.algorithms.sklearn_parts import NotExportable, Steps, binarizer, linear_step
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.private_file import replace_private
from fedsvm.federation.site.program import CHECKED, free, step
from fedsvm.federation.site.script import Script, maybe, seq, stage
from fedsvm.federation.site.terms import Terms
from fedsvm.protocols.common_seed import common_seed
from fedsvm.protocols.sets.records import compare_records, encrypt_records

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack

_SECONDS_PER_POINT = 1.5e-3
"""To hash or encrypt one: three times what it takes, since sites may share as few as one core."""

ENCRYPTED_ROWS = "of every row which encrypted items it has, and so what any two rows have in common"
LABELS = "the labels of all training rows"
SUPPORT = "which of their rows are support vectors, from the coefficients"
FOR_COMPARISON = (
    "pp-svm is there to compare with: it shows the coordinator all rows but for the names of columns, and with any one "
    "site these too; see fedsvm audit."
)
SUPPORT_NEEDED = "The support rows of every site are needed to score new ones, and each keeps its own."


@dataclass
class PpSettings(KernelSettings):
    """The settings of a user."""

    C: HingePenalty = 1.0
    kernel: Annotated[
        KernelName, doc("Kernel, as defined by LIBSVM. Except for linear, each site keeps its own support rows.")
    ] = "linear"


def sets_of(rows: FloatArray) -> FloatArray:
    """Return (n, p) of 0 and 1: in which columns scaled rows (n, p) are above 0."""
    return np.asarray(rows > 0, dtype=np.float64)


@dataclass(frozen=True)
class PpModel(Model):
    """A kernel, an intercept b, and weights w (p,) of a linear kernel, or support rows (s, p) with dual_coef (s,).

    The latter are None where the sites keep them.
    """

    kernel: Kernel
    b: float
    w: FloatArray | None = None
    support: FloatArray | None = None
    dual_coef: FloatArray | None = None
    training: TrainingReport | None = None

    @property
    def kept_by_sites(self) -> bool:
        """True if only the sites have the support rows."""
        return self.w is None and self.support is None

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p); positive for the class +1."""
        if self.w is not None:
            return np.asarray(sets_of(rows) @ self.w + self.b)
        if self.support is None or self.dual_coef is None:
            raise ValueError("the model's support rows are with the sites; read it together with their files")
        return np.asarray(self.kernel(sets_of(rows), self.support) @ self.dual_coef + self.b)

    def sklearn_steps(self, classes: NDArray[Any]) -> Steps:
        """Return the steps of a pipeline; see `Model`."""
        if self.w is None:
            raise NotExportable("its support rows are with the sites")
        return [("sets", binarizer(len(self.w))), linear_step(self.w, self.b, classes)]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the file, with the kernel.

        The decision value of a scaled row x is s w + b, where s is 1 in the columns in which x is above 0, and 0 in the
        others.

        Returns
        -------
        b : ()
            Intercept.
        w : (p,)
            Weights of a linear kernel. Of other kernels each site keeps its own support rows.
        """
        kernel = {
            "kernel" if name == "name" else name: np.asarray(each) for name, each in self.kernel.to_fields().items()
        }
        return {**kernel, "b": np.asarray(self.b), **({} if self.w is None else {"w": self.w})}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file, or in this file and those of the sites."""
        fields = {name: arrays[name].item() for name in ("gamma", "degree", "coef0") if name in arrays}
        kernel, b = Kernel(arrays["kernel"].item(), **fields), float(arrays["b"])
        if "w" in arrays:
            return cls(kernel, b, arrays["w"])
        support, dual_coef = (np.concatenate([part[name] for part in parts]) for name in ("support", "dual_coef"))
        return cls(kernel, b, None, support, dual_coef)


class PpSite(HorizontalSite):
    """The site half."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `PpSvm.fit`, and of scores where the sites keep support rows."""
        linear = terms.settings["kernel"] == "linear"
        compared = ("item_count", "receive_size", "class_labels", "encrypt_records")
        trained = stage(preparation(terms), *compared, "coefficients" if linear else "keep_support")
        return each_model(terms, trained, seq() if linear else maybe("partial_scores"))

    @property
    def sets(self) -> FloatArray:
        """(n, p) of 0 and 1: the training rows' items."""
        return sets_of(self.rows)

    @step(opens="value")
    def item_count(self) -> FloatArray:
        """Return the () number of items of all rows."""
        return np.array(self.sets.sum())

    @step(opens="value")
    def class_labels(self) -> FloatArray:
        """Return the (K, most) labels of the training rows, padded with zeros."""
        return np.pad(self.labels, ((0, 0), (0, self.most - self.labels.shape[1])))

    @step(
        told={
            "most": free("whole numbers by site", "nothing; wrong numbers end the run"),
        }
    )
    def receive_size(self, most: int) -> None:
        """Learn how many rows the largest site has."""
        self.most = most

    @step(
        told={
            "records, items": free("whole numbers by site", "nothing; wrong numbers end the run"),
        }
    )
    def encrypt_records(self, records: dict[str, int], items: dict[str, int]) -> None:
        """Take part in encrypting all rows' items. records, items: of each site."""
        salt = common_seed(self.channel).tobytes()
        held = [[str(column) for column in np.flatnonzero(row)] for row in self.sets]
        encrypt_records(self.channel, held, items, salt)

    @step(
        told={
            "dual_coef": free("any coefficients", "sums of rows with weights of its choice, so single rows"),
            "first": free("whole numbers by site", "another division of the same sums among the sites"),
        }
    )
    def coefficients(self, dual_coef: FloatArray, first: dict[str, int]) -> FloatArray:
        """Return the (p,) this site's part of sum alpha y x. dual_coef (n,) of all rows; its own begin at `first`."""
        own = dual_coef[first[self.site] :][: len(self.rows)]
        return np.asarray(own @ self.sets)

    @step(
        remembered=True,
        told={
            "dual_coef": free("any coefficients", "scores by coefficients of its choice"),
            "first": free("whole numbers by site", "another division of the same sums among the sites"),
            "kernel": CHECKED,
        },
    )
    def keep_support(self, dual_coef: FloatArray, first: dict[str, int], kernel: dict[str, Any]) -> None:
        """Keep its own support rows, here and in its own file, `model_path` of its settings."""
        if not (path := self.settings.get("model_path")):
            raise StepRefused('a site has no file to keep support rows in; use algorithm.kernel = "linear"')
        check_kernel(self, Kernel(**kernel), self.rows.shape[1])
        own = dual_coef[first[self.site] :][: len(self.rows)]
        self.kernel, self.dual_coef, self.support = Kernel(**kernel), own[own != 0], self.sets[own != 0]
        kept = {"dual_coef": self.dual_coef, "support": self.support}
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - see replace_private
        replace_private(path, lambda file: np.savez(file, **kept))

    @step(
        told={
            "rows": free("any rows", "scores of rows of its choice, so kernels with single support rows"),
        }
    )
    def partial_scores(self, rows: FloatArray) -> FloatArray:
        """Return the (n,) part of this site's support rows in the decision values of scaled rows (n, p)."""
        return np.asarray(self.kernel(sets_of(rows), self.support) @ self.dual_coef)


class PpSvm(HorizontalAlgorithm[PpSettings, PpModel]):
    """An SVM over sites that hold rows, by sizes of intersections of encrypted sets (PP-SVM; Yu and others 2006)."""

    name = "pp-svm"
    estimator = "PpSVC"
    phases = ("setup", "train", "evaluate")
    Settings, Site, Model = PpSettings, PpSite, PpModel
    figures = {"support": "support vectors", "items": "columns that occur in a row"}

    def fit(self, federation: Federation, task: HorizontalTask, settings: PpSettings) -> PpModel:
        """Compare the encrypted rows, solve the dual, and tell the sites the coefficients."""

        def stage() -> PpModel:
            prepared = task.prepare(federation)
            kernel = settings.kernel_of(prepared.columns)
            with federation.phase("train"):
                table, labels = _compare_items(federation, prepared.site_rows, prepared.columns)
                dual = _solve(kernel(table, table), labels, settings.C)
                return _release(federation, kernel, dual, prepared, int(table.any(axis=0).sum()))

        return federation.until_stable(stage)

    def score(self, federation: Federation, model: PpModel, rows: FloatArray) -> FloatArray | None:
        """Return decision values by the sites' parts, if they keep support rows."""
        if not model.kept_by_sites:
            return None
        federation.require_all_sites(SUPPORT_NEEDED)
        return federation.sum("partial_scores", shape=(len(rows),), bound=math.inf, rows=rows) + model.b

    def train_pooled(self, model: PpModel, settings: PpSettings, rows: EvaluationRows) -> Pooled:
        """Train LIBSVM on the sets of all rows."""
        svm = libsvm.kernel(model.kernel, sets_of(rows.train.rows), rows.train.labels, settings.C)
        return Pooled(svm.decision_function(sets_of(rows.test.rows)))

    def warnings(self, model: PpModel, settings: PpSettings, rows: EvaluationRows, fold: int) -> list[str]:
        """Return the warning that this algorithm is for comparison."""
        return [] if fold else [FOR_COMPARISON]

    def whole_run(self, settings: PpSettings) -> WholeRunLeakage:
        """Return what the table of encrypted items gives away once their names are known."""
        known = "it knows how frequent each column is, and no two are equally frequent"
        return WholeRunLeakage(Recovery("every row"), Recovery("every row", known))

    def attacks(self, settings: PpSettings) -> list[Attack]:
        """Return the attacks on the encrypted items."""
        from fedsvm.algorithms.attacks.encrypted_items import ItemFrequencies, KnownItems

        return [KnownItems(), ItemFrequencies()]


def _compare_items(federation: Federation, records: dict[str, int], columns: int) -> tuple[FloatArray, FloatArray]:
    """Return (n, k) of 0 and 1, which encrypted items each row has, and labels (n,), in the sites' order."""
    items = {site: int(count) for site, count in federation.gather("item_count", shape=()).items()}
    federation.run("receive_size", most=max(records.values()))
    shape = (1, max(records.values()))
    padded = federation.gather("class_labels", shape=shape)
    labels = np.concatenate([padded[site][0, : records[site]] for site in federation.sites])
    table: IntArray = federation.run(
        "encrypt_records",
        take_part=lambda channel: compare_records(channel, records, items),
        work_s=_SECONDS_PER_POINT * columns * (len(items) + 1),
        records=records,
        items=items,
    )
    federation.disclose("coordinator", "encrypt_records", ENCRYPTED_ROWS, table.shape)
    federation.disclose("coordinator", "class_labels", LABELS, (len(labels),))
    return table.astype(np.float64), labels


@dataclass(frozen=True)
class _SolvedDual:
    """alpha y (n,), the intercept, and whether LIBSVM came to its tolerance."""

    dual_coef: FloatArray
    intercept: float
    converged: bool


def _solve(matrix: FloatArray, labels: FloatArray, C: float) -> _SolvedDual:
    """Solve the dual for a kernel matrix (n, n) and labels (n,). If all labels are equal, the model is constant."""
    dual_coef = np.zeros(len(labels))
    if len(np.unique(labels)) < 2:
        return _SolvedDual(dual_coef, float(labels[0]), True)
    svm = libsvm.dual(matrix, labels, C)
    dual_coef[svm.support_] = svm.dual_coef_[0]
    return _SolvedDual(dual_coef, float(svm.intercept_[0]), svm.fit_status_ == 0)


def _release(federation: Federation, kernel: Kernel, dual: _SolvedDual, prepared: PreparedRows, items: int) -> PpModel:
    """Return the model, whose parts the sites compute or keep."""
    dual_coef, sites = dual.dual_coef, federation.sites
    firsts = np.cumsum([0, *(prepared.site_rows[site] for site in sites)])
    first = dict(zip(sites, firsts[:-1].tolist(), strict=True))
    federation.disclose("sites", "dual_coef", SUPPORT, dual_coef.shape)
    w = None
    if kernel.name == "linear":
        w = federation.sum("coefficients", shape=(prepared.columns,), bound=math.inf, dual_coef=dual_coef, first=first)
    else:
        federation.run("keep_support", remember=True, dual_coef=dual_coef, first=first, kernel=kernel.to_fields())
    support = int(np.count_nonzero(dual_coef))
    report = TrainingReport(
        sites,
        f"{support} support vectors of {items} items",
        converged=dual.converged,
        figures={"support": support, "items": items},
    )
    return PpModel(kernel, dual.intercept, w, training=report)
