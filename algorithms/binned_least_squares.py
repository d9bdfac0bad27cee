"""Least squares on labels of +1 and -1 in random bins, by conjugate gradients on secure sums (Rahimi and Recht 2007).

Let Z (n, P B) be the features of all rows; each row has P features that are not 0 (`features.random_bins`). The weights
are

    W = (Z^T Z + lambda I)^-1 Z^T Y.

P B is in the ten thousands, and Z^T Z would have as many numbers squared, so that the system is never formed: one
secure sum opens Z^T Y, and then one a round Z^T Z p for the direction p of conjugate gradients, K P B numbers each for
K problems. That is the "Binning + LS" of the PAN-SVM dissertation's table 3.6, which cites its figures; it has no
intercept, which P constant grids would amount to. One round is what least squares in other features takes.

Disclosures. The coordinator learns of every bin of every grid the sum of its rows' labels, and then of products
that grow with their number: a bin with one row is that row's label, though not whose it is. With a list of records it
says which are there, since both are linear in how often each is (`attacks.bin_sums`).

References
----------
A. Rahimi and B. Recht, "Random features for large-scale kernel machines", NIPS 2007, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, HorizontalAlgorithm, Model, Outline, TrainingReport
from fedsvm.algorithms.data.classes import one_against_rest
from fedsvm.algorithms.data.horizontal import HorizontalSite, each_model, preparation
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.features.random_bins import RandomBins, added_up, to_matrix, values
from fedsvm.algorithms.leakage import LISTED, Recovery, WholeRunLeakage
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.settings import Count, Dimension, Positive, Tolerance, doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import CHECKED, free, step
from fedsvm.federation.site.script import Script, repeat, stage
from fedsvm.federation.site.terms import Terms

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack

BIN_SUMS = (
    "of every bin of every grid the sum of its rows' labels, and products that say how many they are: of few possible "
    "records they say which are there"
)

_MOST_FEATURES = 1_000_000


@dataclass
class BinnedSettings:
    """The settings of a user."""

    regularisation: Annotated[Positive, doc("lambda of sum of squared residuals + lambda |w|^2.")] = 1.0
    _: KW_ONLY
    gamma: Annotated[
        Positive, doc("Coefficient of the Laplacian kernel exp(-gamma sum |x - y|) of scaled columns.")
    ] = 0.1
    grids: Annotated[Dimension, doc("Number of random grids; each gives a row one feature.")] = 30
    bins: Annotated[Dimension, doc("Number of hash buckets per grid.")] = 2000
    tolerance: Annotated[Tolerance, doc("Relative residual at which training stops.")] = 1e-4
    max_iterations: Annotated[Count, doc("Maximum number of rounds, even if the tolerance is not reached.")] = 200


@dataclass(frozen=True)
class BinnedModel(Model):
    """Weights (P B,) of the places of random grids; of more than two classes (K, P B)."""

    grids: RandomBins
    weights: FloatArray
    training: TrainingReport | None = None

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p), (n, K) for more than two classes."""
        found = values(self.grids(rows), np.atleast_2d(self.weights))
        return found[0] if self.weights.ndim == 1 else found.T

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the file. P is the number of grids.

        Returns
        -------
        w : (P B,) or (K, P B)
            Weights of the B places of each grid; of K > 2 classes, one row for each class.
        pitches, shifts, keys : (P, p)
            Width and offset of the bins of each grid, and the keys by which bins are hashed to places.
        places : ()
            B: places of each grid.
        """
        return {"w": self.weights, **{name: np.asarray(part) for name, part in self.grids.to_fields().items()}}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file."""
        return cls(RandomBins.of_parts(arrays), arrays["w"])


class BinnedSite(HorizontalSite):
    """The site half. features (n, P): the places of this site's rows."""

    features: IntArray
    dimensions: int

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `BinnedLeastSquares.fit`."""
        directions = repeat("products", 0, terms.settings["max_iterations"])
        return each_model(terms, stage(preparation(terms), "receive_grids", "label_sums", directions))

    @step(remembered=True, told={"pitches, shifts, keys, places": CHECKED})
    def receive_grids(self, pitches: FloatArray, shifts: FloatArray, keys: IntArray, places: int) -> None:
        """Place this site's rows. Raises OrderRefused for other grids than the agreed seed draws."""
        grids, settings, columns = RandomBins(pitches, shifts, keys, places), self.terms.settings, self.rows.shape[1]
        drawn = RandomBins.draw(settings["gamma"], settings["grids"], settings["bins"], columns, self.terms.seed)
        if not grids.equals(drawn):
            raise OrderRefused(f"the grids must be the {settings['grids']} that the agreed seed draws, and are not")
        self.features, self.dimensions = grids(self.rows), grids.dimensions

    @step
    def label_sums(self) -> FloatArray:
        """Return the (K, P B) this site's part of Y Z."""
        return added_up(self.features, self.labels, self.dimensions)

    @step(
        told={
            "problems": free("numbers of problems", "only a choice of problems"),
            "directions": free("any vectors", "products of the sums of all rows with vectors of its choice"),
        }
    )
    def products(self, problems: IntArray, directions: FloatArray) -> FloatArray:
        """Return the (k, P B) this site's part of Z^T Z p, for directions p (k, P B) of problems (k,)."""
        return added_up(self.features, values(self.features, directions), self.dimensions)


@dataclass
class _Gradients:
    """Conjugate gradients of K problems at once: solutions, residuals and directions (K, P B)."""

    right: FloatArray
    regularisation: float
    tolerance: float
    solution: FloatArray = field(init=False)
    residual: FloatArray = field(init=False)
    direction: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.solution = np.zeros_like(self.right)
        self.residual, self.direction = self.right.copy(), self.right.copy()
        self._enough = self.tolerance * np.linalg.norm(self.right, axis=1)

    @property
    def active(self) -> IntArray:
        """(k,) problems that are not done."""
        return np.flatnonzero(np.linalg.norm(self.residual, axis=1) > self._enough)

    def take(self, problems: IntArray, products: FloatArray) -> None:
        """Take a step along the directions of some problems, given Z^T Z p of them (k, P B)."""
        for k, product in zip(problems.tolist(), products, strict=True):
            p, r = self.direction[k], self.residual[k]
            image = product + self.regularisation * p
            length, before = float(r @ r) / float(p @ image), float(r @ r)
            self.solution[k] += length * p
            self.residual[k] = r - length * image
            self.direction[k] = self.residual[k] + float(self.residual[k] @ self.residual[k]) / before * p


class BinnedLeastSquares(HorizontalAlgorithm[BinnedSettings, BinnedModel]):
    """Least squares on the labels in random bins, by conjugate gradients on secure sums (Rahimi and Recht 2007)."""

    name = "binned-least-squares"
    estimator = "BinnedLeastSquaresClassifier"
    Settings, Site, Model = BinnedSettings, BinnedSite, BinnedModel
    figures = {"grids": "random grids; a row has one feature in each", "rank": "features of all grids"}
    multiclass = True

    def fit(self, federation: Federation, task: HorizontalTask, settings: BinnedSettings) -> BinnedModel:
        """Place the rows, sum their labels, and go along conjugate directions."""

        def stage() -> tuple[RandomBins, _Gradients, int]:
            prepared = task.prepare(federation)
            grids = RandomBins.draw(settings.gamma, settings.grids, settings.bins, prepared.columns, task.seed)
            with federation.phase("train"):
                federation.run("receive_grids", remember=True, **grids.to_fields())
                shape, rows = (task.problems, grids.dimensions), float(prepared.rows)
                right = federation.sum("label_sums", shape=shape, bound=rows)
                gradients = _Gradients(right, settings.regularisation, settings.tolerance)
                return grids, gradients, _minimize(federation, gradients, rows, settings.max_iterations)

        grids, gradients, iterations = federation.until_stable(stage)
        federation.disclose("coordinator", "products", BIN_SUMS, gradients.right.shape)
        report = TrainingReport(
            federation.sites,
            f"{settings.grids} random grids of {settings.bins} places",
            iterations=iterations,
            converged=not len(gradients.active),
            figures={"grids": settings.grids, "rank": grids.dimensions},
        )
        found = gradients.solution
        return BinnedModel(grids, found[0] if task.problems == 1 else found, report)

    def problems(self, settings: BinnedSettings, outline: Outline) -> Iterator[str]:
        """Yield an error if there are more features than a round should carry."""
        if settings.grids * settings.bins > _MOST_FEATURES:
            yield f"bins: must be {_MOST_FEATURES // settings.grids} or fewer for {settings.grids} grids of one sum"

    def train_pooled(self, model: BinnedModel, settings: BinnedSettings, rows: EvaluationRows) -> Pooled:
        """Train on all rows together, by a least squares solver that forms no products (LSQR)."""
        from scipy.sparse.linalg import lsqr

        matrix = to_matrix(model.grids(rows.train.rows), model.grids.dimensions)
        labels, damp = one_against_rest(rows.train.labels, len(rows.classes)), settings.regularisation**0.5
        limits = {"atol": 1e-12, "btol": 1e-12, "iter_lim": 10_000}
        found = np.stack([lsqr(matrix, each, damp=damp, **limits)[0] for each in labels])
        return Pooled(
            BinnedModel(model.grids, found[0] if len(found) == 1 else found).decision_function(rows.test.rows)
        )

    def whole_run(self, settings: BinnedSettings) -> WholeRunLeakage:
        """Return what sums of narrow bins give away."""
        found = Recovery("every row", f"{LISTED} and bins are narrow")
        return WholeRunLeakage(found, found)

    def attacks(self, settings: BinnedSettings) -> list[Attack]:
        """Return the attacks on the sums of bins."""
        from fedsvm.algorithms.attacks.bin_sums import BinSums

        return [BinSums()]


def _minimize(federation: Federation, gradients: _Gradients, rows: float, most: int) -> int:
    """Iterate until all problems are solved, and return the number of rounds. Directions are sent with a largest entry
    of 1."""
    for iteration in range(most):
        if not len(active := gradients.active):
            return iteration
        directions = gradients.direction[active]
        sizes = np.abs(directions).max(axis=1, keepdims=True)
        sums = federation.sum(
            "products", shape=directions.shape, bound=rows, problems=active, directions=directions / sizes
        )
        gradients.take(active, sums * sizes)
        left = float((np.linalg.norm(gradients.residual, axis=1) / np.linalg.norm(gradients.right, axis=1)).max())
        federation.log_metrics(iteration=iteration + 1, residual=left)
    return most
