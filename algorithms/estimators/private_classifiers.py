"""The differentially private algorithms as scikit-learn estimators: models that may be released."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from algorithms import dp_erm, hybrid_svm
from algorithms.data.horizontal import ScaleName, count_rows
from algorithms.data.public_rows import prepare, scale_from_public
from algorithms.dp_erm import ErmSettings, Loss, LossName, Perturbation, Points
from algorithms.estimators import parameters
from algorithms.estimators.base import HorizontalClassifier, partition_of
from algorithms.features.fourier import Fit
from algorithms.hybrid_svm import HybridSettings
from algorithms.privacy.mechanisms import MechanismName, PrivacyAccountant, PrivacyParameters
from federation.arrays import FloatArray, IntArray
from federation.federation import Federation
from federation.site.partition import Partition

_NO_FOLD = 0
"""Rows of the partition are in fold -1, so that holding out fold 0 holds out none."""

_CURIOUS = 1
"""A site knows its own share of the noise."""


class _Setup(NamedTuple):
    """Scaled public rows (m, p), their labels (m,), and what the sites hold of the others."""

    public: tuple[FloatArray, FloatArray]
    partitions: dict[str, Partition]


class PubliclyScaledClassifier(HorizontalClassifier):
    """A classifier whose columns are scaled, and features chosen, by rows that are nobody's secret."""

    public: float
    scale: ScaleName

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        return tags

    def _set_up(self, rows: FloatArray, signs: FloatArray, groups: Any, seed: int) -> _Setup:
        """Set public rows apart, and scale by them."""
        scale = parameters.choice("scale", self.scale, get_args(ScaleName))
        public, private = self._set_apart(signs, seed)
        self.scaling_ = scale_from_public(rows[public], scale)
        held = self._dealt(private, groups, len(rows), seed)
        partitions = {site: partition_of(rows[mine], signs[mine]) for site, mine in held.items()}
        return _Setup((self.scaling_(rows[public]), signs[public]), partitions)

    def _set_apart(self, signs: FloatArray, seed: int) -> tuple[IntArray, IntArray]:
        """Indices of the public rows and of the others. Raises ValueError."""
        wanted = parameters.share_or_count("public", self.public)
        count = wanted if isinstance(wanted, int) else round(wanted * len(signs))
        shuffled = np.random.default_rng([seed, 5]).permutation(len(signs))
        public, private = np.sort(shuffled[:count]), np.sort(shuffled[count:])
        if len(public) < 2 or len(np.unique(signs[public])) < 2 or not len(private):
            raise ValueError(
                f"public={self.public!r} sets {len(public)} of n_samples={len(signs)} rows apart, and these must hold "
                "both classes, and not all rows; have more rows, or set another number apart."
            )
        return public, private

    def _ready(self, federation: Federation) -> None:
        """Have the sites scale their rows as the public ones are."""
        with federation.phase("setup"):
            prepare(federation, [], self.scaling_, _NO_FOLD)


def _counted(federation: Federation) -> Callable[[], int]:
    return lambda: sum(count_rows(federation).values())


class HybridSVC(PubliclyScaledClassifier):
    """An SVM in Fourier features of public rows, released with noise (Li, Xiong, Ohno-Machado and Jiang 2014).

    Parameters
    ----------
    C: of min 1/2 |w - w0|^2 + C/n sum of hinge losses, without an intercept.
    features: frequencies; a model has twice as many weights. sigma: of exp(-|x - y|^2 / sigma^2), of scaled columns;
    "auto" is sqrt(columns). fit_to: "paired" or "paper" (equation 5's map) on public rows, or "random".
    epsilon: what is promised of any one private row; None trains without noise and promises nothing. delta: of the
    "gaussian" mechanism; the others are "laplace" and "spherical". sensitivity: "tight" or the "paper"'s.
    prior: "none", or "public", whose w0 is the model of the public rows alone.
    variant: "cutting-plane", where the coordinator and the sites see training without noise, or "one-shot", where with
    laplace or gaussian noise, which sites draw in shares, and a sum that hides, nobody does.
    cut_groups, tolerance, max_iterations: of training; the tolerance is in the noise.
    public: how many rows are nobody's secret, as a share (float) or a count (int), chosen at random.
    scale: of columns, from the public rows. sites, sum, sum_options, round_timeout_s: as in PanSVC.
    random_state: of the deal and the features; never of noise, so that two fits differ.

    Attributes
    ----------
    classes_ (2,), n_features_in_, feature_names_in_. scaling_: `offset` and `scale` (p,). frequencies_ (D, p). coef_
    (1, 2 D): the decision value of a scaled row x is [cos, sin] of frequencies_ x, over √D, times coef_.
    result_: as in PanSVC, and under `privacy` what was released and whom it protects from whom. The rest of it, such as
    how many rounds training took, is for who ran it: what may be released is coef_, frequencies_ and scaling_.
    """

    program = "hybrid-svm"

    def __init__(
        self,
        C: float = 300.0,
        *,
        features: int = 60,
        sigma: float | Literal["auto"] = "auto",
        fit_to: Fit = "paired",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        mechanism: Literal["laplace", "gaussian", "spherical"] = "spherical",
        sensitivity: Literal["paper", "tight"] = "tight",
        prior: Literal["none", "public"] = "none",
        variant: Literal["cutting-plane", "one-shot"] = "cutting-plane",
        cut_groups: int = 32,
        tolerance: float = 1e-11,
        max_iterations: int = 500,
        public: float = 0.1,
        scale: ScaleName = "standard",
        sites: int = 3,
        sum: str = "ring",
        sum_options: Mapping[str, float] | None = None,
        round_timeout_s: float = 30.0,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.C = C
        self.features = features
        self.sigma = sigma
        self.fit_to = fit_to
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.sensitivity = sensitivity
        self.prior = prior
        self.variant = variant
        self.cut_groups = cut_groups
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.public = public
        self.scale = scale
        self.sites = sites
        self.sum = sum
        self.sum_options = sum_options
        self.round_timeout_s = round_timeout_s
        self.random_state = random_state

    def _train(self, rows: FloatArray, signs: FloatArray, groups: Any, seed: int) -> None:
        setup, account = self._set_up(rows, signs, groups, seed), PrivacyAccountant()
        settings = self._settings(rows.shape[1], len(setup.public[1]), len(setup.partitions), seed)
        with self._federation(setup.partitions, seed) as federation:
            self._ready(federation)
            with federation.phase("train"):
                model = hybrid_svm.train(federation, settings, setup.public, _counted(federation), account)
        self.model_, self.frequencies_, self.coef_ = model, model.frequencies.rho, model.weights[None, :]
        privacy = account.to_fields(**model.noise.origin) if model.noise is not None else None
        self.result_ = self._result(federation, setup.partitions, model.figures, privacy)

    def _settings(self, columns: int, public: int, sites: int, seed: int) -> HybridSettings:
        """Raises ValueError for a parameter that will not do."""
        features, pairs = parameters.whole("features", self.features), public * (public - 1) // 2
        if features > pairs:
            parameters.refuse("features", features, f"{pairs} at most, as {public} public rows have pairs")
        return HybridSettings(
            frequencies=features,
            sigma=parameters.auto_or_positive("sigma", self.sigma, auto=math.sqrt(columns)),
            fit=parameters.choice("fit_to", self.fit_to, get_args(Fit)),
            C=parameters.positive("C", self.C),
            promise=self._promise(),
            sensitivity=parameters.choice("sensitivity", self.sensitivity, ("paper", "tight")),
            prior=parameters.choice("prior", self.prior, ("none", "public")),
            variant=parameters.choice("variant", self.variant, ("cutting-plane", "one-shot")),
            groups=parameters.whole("cut_groups", self.cut_groups),
            tolerance=parameters.positive("tolerance", self.tolerance, below=1.0),
            max_iterations=parameters.whole("max_iterations", self.max_iterations),
            parts=max(1, sites - _CURIOUS),
            seed=seed,
        )

    def _promise(self) -> PrivacyParameters | None:
        if self.epsilon is None:
            return None
        mechanism = parameters.choice("mechanism", self.mechanism, get_args(MechanismName))
        if mechanism != "gaussian" and self.delta is not None:
            parameters.refuse("delta", self.delta, f"None for the {mechanism} mechanism, which is pure")
        delta = parameters.positive("delta", self.delta, below=1.0) if mechanism == "gaussian" else 0.0
        return PrivacyParameters(mechanism, parameters.positive("epsilon", self.epsilon), delta)

    def _scores(self, rows: FloatArray) -> FloatArray:
        return self.model_.decision_values(self.scaling_(rows))


class PrivateErmClassifier(PubliclyScaledClassifier):
    """Logistic regression or Huber's SVM by output or objective perturbation (Chaudhuri and others 2011).

    Parameters
    ----------
    regularisation: lambda of (1/n) sum of losses + lambda/2 |f|^2, without an intercept.
    loss: "logistic" or "huber", of half_width. perturbation: "output" or "objective".
    epsilon: what is promised of any one private row; None trains without noise and promises nothing.
    features: 0 is linear, with rows divided by the length of the longest public one, and longer ones clipped; else
    Fourier features, with sigma and fit_to as in HybridSVC.
    public, scale, sites, sum, sum_options, round_timeout_s, random_state: as in HybridSVC.

    Attributes
    ----------
    classes_ (2,), n_features_in_, feature_names_in_. scaling_: `offset` and `scale` (p,). coef_ (1, d): the decision
    value of a point is point · coef_, and points_(rows) makes points of scaled rows. result_: as in HybridSVC.
    """

    program = "dp-erm"

    def __init__(
        self,
        regularisation: float = 0.01,
        *,
        loss: LossName = "logistic",
        half_width: float = 0.5,
        perturbation: Perturbation = "objective",
        epsilon: float | None = 1.0,
        features: int = 0,
        sigma: float | Literal["auto"] = "auto",
        fit_to: Fit = "paired",
        public: float = 0.1,
        scale: ScaleName = "standard",
        sites: int = 3,
        sum: str = "ring",
        sum_options: Mapping[str, float] | None = None,
        round_timeout_s: float = 30.0,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.regularisation = regularisation
        self.loss = loss
        self.half_width = half_width
        self.perturbation = perturbation
        self.epsilon = epsilon
        self.features = features
        self.sigma = sigma
        self.fit_to = fit_to
        self.public = public
        self.scale = scale
        self.sites = sites
        self.sum = sum
        self.sum_options = sum_options
        self.round_timeout_s = round_timeout_s
        self.random_state = random_state

    def _train(self, rows: FloatArray, signs: FloatArray, groups: Any, seed: int) -> None:
        setup, account, settings = self._set_up(rows, signs, groups, seed), PrivacyAccountant(), self._settings()
        self.points_ = self._points(setup.public[0], seed)
        with self._federation(setup.partitions, seed) as federation:
            self._ready(federation)
            with federation.phase("train"):
                counted = _counted(federation)
                self.model_ = dp_erm.train(federation, settings, self.points_, counted, account, clip=True)
        self.coef_ = self.model_.weights[None, :]
        privacy = account.to_fields(drawn_by="the coordinator") if self.epsilon is not None else None
        self.result_ = self._result(federation, setup.partitions, self.model_.figures, privacy)

    def _settings(self) -> ErmSettings:
        """Raises ValueError for a parameter that will not do."""
        return ErmSettings(
            loss=Loss(
                parameters.choice("loss", self.loss, get_args(LossName)),
                parameters.positive("half_width", self.half_width),
            ),
            regularisation=parameters.positive("regularisation", self.regularisation),
            perturbation=parameters.choice("perturbation", self.perturbation, get_args(Perturbation)),
            epsilon=None if self.epsilon is None else parameters.positive("epsilon", self.epsilon),
        )

    def _points(self, public: FloatArray, seed: int) -> Points:
        """Raises ValueError for a parameter that will not do."""
        features, pairs = parameters.whole("features", self.features, least=0), len(public) * (len(public) - 1) // 2
        if features > pairs:
            parameters.refuse("features", features, f"{pairs} at most, as {len(public)} public rows have pairs")
        sigma = parameters.auto_or_positive("sigma", self.sigma, auto=math.sqrt(public.shape[1]))
        return Points.from_public(
            public, features, sigma, parameters.choice("fit_to", self.fit_to, get_args(Fit)), seed
        )

    def _scores(self, rows: FloatArray) -> FloatArray:
        return np.asarray(self.points_(self.scaling_(rows)) @ self.model_.weights)
