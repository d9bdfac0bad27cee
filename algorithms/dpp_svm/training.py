"""Training at the coordinator, exactly or in the features that landmarks span."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsvm.algorithms.algorithm import TrainingReport
from fedsvm.algorithms.data.classes import one_against_rest
from fedsvm.algorithms.data.vertical import count_columns, max_squared_norm
from fedsvm.algorithms.dpp_svm.model import DppModel
from fedsvm.algorithms.dpp_svm.settings import DppSettings
from fedsvm.algorithms.features.kernel_exchange import KernelExchange, against_reference, exchange_kernel
from fedsvm.algorithms.features.landmarks import landmark_count
from fedsvm.algorithms.features.nystrom import nystrom_map
from fedsvm.algorithms.optimization.cutting_plane import solve
from fedsvm.algorithms.optimization.hinge_sums import HingeSums
from fedsvm.algorithms.optimization.kernel_dual import Dual, check_memory
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation

COEFFICIENTS_DISCLOSE = "the labels of the support records, in the signs of the coefficients"


def train(federation: Federation, settings: DppSettings, labels: FloatArray, seed: int, classes: int = 2) -> DppModel:
    """Return the model of the training records that the sites hold ready.

    labels: (n,) of these records, with this number of classes. seed: of the choice of landmarks and of groups of rows.

    Raises FederationError if the kernel matrix does not fit into memory, before anything is exchanged.
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
    dual_coef, intercept = _as_in_model(coefficients[:, support], [dual.intercept for dual in duals])
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


def _as_in_model(weights: FloatArray, intercepts: Sequence[float]) -> tuple[FloatArray, float | FloatArray]:
    """Return the coefficients (P, s) and intercepts of P problems as a model has them: for P = 1, (s,) and a number."""
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
    values = against_reference(exchange, len(labels), len(records))
    mapping = nystrom_map(values[records], settings.rank_tolerance)
    features, problems = values @ mapping, one_against_rest(labels, classes)
    solutions = solve(
        HingeSums.deal(features, problems, settings.cut_groups, random),
        problems=len(problems),
        dimensions=mapping.shape[1],
        groups=settings.cut_groups,
        C=settings.C,
        stopping=settings.stopping,
        search=grid_search,
        on_iteration=lambda iteration, found: federation.log_metrics(
            iteration=iteration, gap=max(each.gap for each in found)
        ),
    )
    w, intercept = _as_in_model(np.stack([each.w for each in solutions]), [each.b for each in solutions])
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
