"""DPP-SVM and algorithms with the same model: checks of settings, comparison methods and attacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedsvm.algorithms.algorithm import Outline, VerticalAlgorithm
from fedsvm.algorithms.data.vertical import VerticalTask
from fedsvm.algorithms.dpp_svm.model import DppModel
from fedsvm.algorithms.dpp_svm.scoring import decision_values
from fedsvm.algorithms.dpp_svm.settings import DppSettings
from fedsvm.algorithms.dpp_svm.site import DppSite
from fedsvm.algorithms.dpp_svm.training import train
from fedsvm.algorithms.features.kernel_exchange import EXCHANGED
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import nystrom_features, nystrom_map
from fedsvm.algorithms.features.partial_kernel import exchanged_elements, unpack
from fedsvm.algorithms.leakage import Recovery, WholeRunLeakage
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack
    from fedsvm.protocols.analysis.views import Coalition

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
        """Return (rows,) decision values of the held-out records, (rows, K) for more than two classes."""
        return decision_values(federation, model, rows)

    def shown_steps(self, settings: S) -> tuple[str, ...]:
        """Return the steps that the paper's plain exchange shows: those with parts of the kernel."""
        return (EXCHANGED, "reference_kernel") if settings.kernel_exchange == "plain" else ()

    def problems(self, settings: S, outline: Outline) -> Iterator[str]:
        """Yield errors for settings that only training with landmarks uses."""
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
        """Return a sentence on what the site that opens sums learns, if it may be in the coalition."""
        if settings.kernel == "linear" or not coalition.sites:
            return []
        return [
            "The first site opens the sums from which new records are scored: if it colludes, the coalition has the "
            "kernel values between these and the support records, of all columns together."
        ]

    def whole_run(self, settings: S) -> WholeRunLeakage | None:
        """Return what the kernel matrix gives away; None with landmarks, whose columns no attack uses."""
        if settings.landmarks is not None:
            return None
        recovery = Recovery("every record", "as many records are known as there are columns")
        return WholeRunLeakage(recovery, recovery)

    def attacks(self, settings: S) -> list[Attack]:
        """Return the attack with known records on the kernel matrix that a coalition has in the end."""
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
    """Return the (n, n) matrix that was exchanged last, from the packed blocks of all exchanges. rows: n."""
    packed = np.concatenate(blocks)[-exchanged_elements(rows) :]
    matrix = np.empty((rows, rows))
    unpack(packed, 0, rows, matrix)
    return matrix
