"""How good a model is, and what training on pooled rows would have given instead.

Only a simulation can ask the second question: here, and nowhere else, all rows are looked at together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from algorithms.dp_erm import ErmModel, ErmSettings
from algorithms.dpp_svm import DppModel, DppSettings, solve_dual
from algorithms.features.fourier import Frequencies, choose_frequencies
from algorithms.features.kernels import Kernel
from algorithms.features.nystrom import nystrom_features, nystrom_map
from algorithms.hybrid_svm import HybridModel, HybridSettings, minimised
from algorithms.optimisation.cutting_plane import Stopping
from algorithms.optimisation.hinge_sums import HingeSums
from algorithms.pan_svm import PanModel
from algorithms.privacy.mechanisms import PrivacyParameters, noise_for
from federation.arrays import FloatArray

_LIBSVM_TOLERANCE = 1e-6
_RANKED_DECIMALS = 9
"""Rows of equal score, as identical ones have, differ in the last digits by the order of summation. They are ties."""

_LIBSVM_CACHE_MB = 500
_MAX_POINTS = 200
"""Of a curve that is there to be looked at."""


@dataclass(frozen=True)
class Quality:
    """accuracy: share of rows on the right side. auc: None where only one class is there to rank."""

    accuracy: float
    auc: float | None


@dataclass(frozen=True)
class Tested(Quality):
    """roc: rates of rows called positive that are not, and that are, as the threshold falls; None as with auc."""

    roc: dict[str, list[float]] | None


def tested(decisions: FloatArray, labels: FloatArray) -> Tested:
    """Quality of decision values (n,) against labels (n,) of +1 and -1, with the curve that the AUC is the area of."""
    from sklearn.metrics import roc_curve

    found, curve = quality(decisions, labels), None
    if found.auc is not None:
        false, true, _ = roc_curve(labels, np.round(decisions, _RANKED_DECIMALS))
        shown = np.unique(np.linspace(0, len(false) - 1, min(len(false), _MAX_POINTS)).astype(int))
        curve = {"false_positive_rate": false[shown].tolist(), "true_positive_rate": true[shown].tolist()}
    return Tested(found.accuracy, found.auc, curve)


def quality(decisions: FloatArray, labels: FloatArray) -> Quality:
    """Quality of decision values (n,) against labels (n,) of +1 and -1; a value of 0 counts as +1."""
    from sklearn.metrics import roc_auc_score  # a second of imports that only evaluations need

    right = float(np.mean(np.where(decisions >= 0, 1.0, -1.0) == labels))
    both = len(np.unique(labels)) == 2
    return Quality(right, float(roc_auc_score(labels, np.round(decisions, _RANKED_DECIMALS))) if both else None)


def objective(features: FloatArray, labels: FloatArray, w: FloatArray, b: float, C: float) -> float:
    """1/2 |w|^2 + C sum of hinge losses, for features (n, m)."""
    hinge = np.maximum(0.0, 1.0 - labels * (features @ w + b))
    return float(0.5 * w @ w + C * hinge.sum())


def compare_with_pooled(
    model: PanModel, C: float, train: tuple[FloatArray, FloatArray], test: tuple[FloatArray, FloatArray]
) -> dict[str, Any]:
    """LIBSVM on the pooled, scaled rows: the same problem in the same features, and the exact kernel.

    train, test: rows (n, p) and labels (n,). The first must give the same optimum as the federation; the second says
    what the landmarks cost.
    """
    from sklearn.svm import SVC

    features, labels = model.features(train[0]), train[1]
    same = SVC(kernel="linear", C=C, tol=_LIBSVM_TOLERANCE, cache_size=_LIBSVM_CACHE_MB).fit(features, labels)
    w, b = same.coef_[0], float(same.intercept_[0])
    pooled = model.features(test[0]) @ w + b
    exact = SVC(C=C, cache_size=_LIBSVM_CACHE_MB, **_libsvm_kernel(model.kernel)).fit(train[0], labels)
    return {
        "accuracy": quality(pooled, test[1]).accuracy,
        "auc": quality(pooled, test[1]).auc,
        "objective": objective(features, labels, w, b, C),
        "max_decision_difference": float(np.abs(pooled - model.decision_values(test[0])).max()),
        "exact_kernel": vars(quality(exact.decision_function(test[0]), test[1])),
    }


def compare_with_pooled_columns(
    model: DppModel,
    settings: DppSettings,
    train: tuple[FloatArray, FloatArray],
    test: tuple[FloatArray, FloatArray],
    scores: FloatArray,
) -> dict[str, Any]:
    """LIBSVM on all columns together: the same problem, by the exact kernel or in the same low-rank features.

    train, test: scaled rows (n, p) and labels (n,), in the order of the model's records and of `scores`.
    """
    found = (
        _pooled_exactly(settings, train, test) if model.rank is None else _pooled_low_rank(model, settings, train, test)
    )
    hinge = float(np.maximum(0.0, 1.0 - train[1] * found.fitted).sum())
    return {
        **vars(quality(found.scores, test[1])),
        "objective": 0.5 * found.squared_norm + settings.C * hinge,
        "max_decision_difference": float(np.abs(found.scores - scores).max()),
        "exact_kernel": vars(quality(found.exact, test[1])),
    }


class _Pooled(NamedTuple):
    """Decision values of the rows trained on and of the others, the latter with the exact kernel too, and |w|^2."""

    fitted: FloatArray
    scores: FloatArray
    exact: FloatArray
    squared_norm: float


def _pooled_exactly(
    settings: DppSettings, train: tuple[FloatArray, FloatArray], test: tuple[FloatArray, FloatArray]
) -> _Pooled:
    among = settings.kernel(train[0], train[0])
    libsvm = solve_dual(among, train[1], settings.C)
    support, weights = libsvm.support_, libsvm.dual_coef_[0]
    scores = libsvm.decision_function(settings.kernel(test[0], train[0]))
    return _Pooled(libsvm.decision_function(among), scores, scores, weights @ among[np.ix_(support, support)] @ weights)


def _pooled_low_rank(
    model: DppModel,
    settings: DppSettings,
    train: tuple[FloatArray, FloatArray],
    test: tuple[FloatArray, FloatArray],
) -> _Pooled:
    from sklearn.svm import SVC

    landmarks = train[0][model.weighed]
    mapping = nystrom_map(settings.kernel(landmarks, landmarks), settings.rank_tolerance)
    features = [nystrom_features(settings.kernel, rows, landmarks, mapping) for rows in (train[0], test[0])]
    libsvm = SVC(kernel="linear", C=settings.C, tol=_LIBSVM_TOLERANCE, cache_size=_LIBSVM_CACHE_MB)
    fitted, scores = map(libsvm.fit(features[0], train[1]).decision_function, features)
    exact = SVC(C=settings.C, cache_size=_LIBSVM_CACHE_MB, **_libsvm_kernel(settings.kernel)).fit(*train)
    return _Pooled(fitted, scores, exact.decision_function(test[0]), float(libsvm.coef_[0] @ libsvm.coef_[0]))


def compare_with_no_noise(
    model: HybridModel,
    settings: HybridSettings,
    train: tuple[FloatArray, FloatArray],
    test: tuple[FloatArray, FloatArray],
) -> dict[str, Any]:
    """The minimiser on all private rows together, in the same features and without noise, and the exact kernel."""
    weights, objective = _minimiser(model.frequencies, model.prior, settings, train)
    scores = model.frequencies.features(test[0]) @ weights
    return {
        **vars(quality(scores, test[1])),
        "objective": objective,
        "max_decision_difference": float(np.abs(scores - model.decision_values(test[0])).max()),
        "exact_kernel": vars(quality(_rbf_scores(settings.C / len(train[1]), settings.sigma, train, test), test[1])),
    }


def private_baselines(
    model: HybridModel,
    settings: HybridSettings,
    public: tuple[FloatArray, FloatArray],
    train: tuple[FloatArray, FloatArray],
    test: tuple[FloatArray, FloatArray],
) -> dict[str, Any]:
    """Public rows alone, the private SVM (random frequencies, no prior, the paper's noise), and no noise at all.

    Only a simulation can have the last two beside the model: each would be a release of its own.
    """
    random = np.random.default_rng([settings.seed, 6])
    frequencies = choose_frequencies(public[0], settings.frequencies, settings.sigma, "random", random)
    exact, _ = _minimiser(frequencies, np.zeros_like(model.prior), settings, train)
    found = {
        "public": _rbf_scores(1.0, settings.sigma, public, test),
        "no_noise": model.frequencies.features(test[0])
        @ _minimiser(model.frequencies, model.prior, settings, train)[0],
    }
    if settings.promise is not None:
        promise = PrivacyParameters("laplace", settings.promise.epsilon)
        noise = noise_for(promise, len(exact), 4 * settings.C / len(train[1]), settings.tolerance * settings.C)
        found["private"] = frequencies.features(test[0]) @ noise.released(exact)
    return {"public_rows": len(public[1]), **{name: vars(quality(each, test[1])) for name, each in found.items()}}


def _minimiser(
    frequencies: Frequencies, prior: FloatArray, settings: HybridSettings, train: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, float]:
    """Weights and objective on all rows together."""
    features, labels = frequencies.features(train[0]), train[1]
    rows = HingeSums.dealt(features, labels[None, :], settings.groups, np.random.default_rng(settings.seed))
    stopping = Stopping(settings.tolerance, settings.max_iterations)
    solution = minimised(rows, prior, settings.C / len(labels), stopping)
    return prior + solution.w, solution.objective


def _rbf_scores(
    C: float, sigma: float, train: tuple[FloatArray, FloatArray], test: tuple[FloatArray, FloatArray]
) -> FloatArray:
    from sklearn.svm import SVC

    svm = SVC(C=C, kernel="rbf", gamma=1 / sigma**2, cache_size=_LIBSVM_CACHE_MB).fit(*train)
    return np.asarray(svm.decision_function(test[0]))


def compare_with_no_perturbation(
    model: ErmModel,
    settings: ErmSettings,
    train: tuple[FloatArray, FloatArray],
    test: tuple[FloatArray, FloatArray],
) -> dict[str, Any]:
    """The minimiser of J on all private rows together, without noise. train, test: points of length 1 at most."""
    from scipy.optimize import minimize

    (points, labels), strength = train, settings.regularisation

    def objective(f: FloatArray) -> tuple[float, FloatArray]:
        values, slopes, _ = settings.loss(labels * (points @ f))
        return float(values.mean() + 0.5 * strength * f @ f), (slopes * labels) @ points / len(labels) + strength * f

    options = {"maxiter": 10_000, "ftol": 1e-16, "gtol": 1e-10}
    found = minimize(objective, np.zeros(points.shape[1]), jac=True, method="L-BFGS-B", options=options)
    scores = test[0] @ found.x
    return {
        **vars(quality(scores, test[1])),
        "objective": float(found.fun),
        "max_decision_difference": float(np.abs(scores - test[0] @ model.weights).max()),
        "exact_kernel": vars(quality(scores, test[1])),
    }


def kernel_arrays(kernel: Kernel) -> dict[str, Any]:
    """The kernel as a model's file holds it."""
    fields = kernel.to_fields()
    return {"kernel": np.array(fields.pop("name")), **{name: np.array(value) for name, value in fields.items()}}


def _libsvm_kernel(kernel: Kernel) -> dict[str, Any]:
    fields = kernel.to_fields()
    return {"kernel": fields.pop("name"), **fields}
