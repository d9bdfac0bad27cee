"""PAN-SVM as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np

from algorithms.data.horizontal import Scale, ScaleName, agree_scale, count_rows
from algorithms.estimators import parameters
from algorithms.estimators.base import HorizontalClassifier, kernel_of, partition_of
from algorithms.features.kernels import KernelName
from algorithms.features.landmarks import landmark_count
from algorithms.pan_svm import PanModel, PanSettings, choose_features, train
from federation.arrays import FloatArray


class PanSVC(HorizontalClassifier):
    """A kernel SVM over sites that hold rows, none of which leaves its site (PAN-SVM; Lu 2016, chapter 3).

    Parameters
    ----------
    C: price of each row's hinge loss, not divided by their number.
    kernel, gamma, degree, coef0: as in scikit-learn's SVC; gamma "auto" is 1 / columns. They are of scaled columns.
    scale: of columns, from secure sums over all sites: "standard", "minmax" or "none".
    landmarks: a share of the rows (float) or a count (int). landmark_method: "local" k-means at each site, or "global".
    min_cluster_size: of the rows that a landmark is the mean of, so that none is a single person's record.
    cut_groups: cuts per round; 1 is the paper's algorithm. The more, the fewer rounds, and the more often a cut holds a
    single row, which the coordinator can tell from it; `disclosures` counts these.
    tolerance: certified relative gap at which training stops, after max_iterations at most. rank_tolerance: eigenvalues
    below this share of the largest are dropped.
    sites: to how many sites rows are dealt where `fit` is given no groups.
    sum: "plain", "ring", "k-secure", "changing-neighbours" or "masked". sum_options: `segments`, `rings`, `threshold`.
    round_timeout_s: of silence, after which a site is taken for lost.
    random_state: of the deal, clusterings and groups; never of masks or keys.

    Attributes
    ----------
    classes_ (2,), n_features_in_, feature_names_in_. scaling_: `offset` and `scale` (p,) that the sites agreed on.
    landmarks_ (l, p), scaled. dual_coef_ (1, l) and intercept_ (1,): the decision value of a scaled row x is
    k(x, landmarks_) · dual_coef_ + intercept_. coef_ (1, p): of a linear kernel only; then X · coef_ + intercept_ is
    the decision value of rows as they are. n_iter_, gap_: iterations, and the certified relative gap. model_: all that
    was trained. result_: what training cost, who took part and what was disclosed, named as in a run's result.json.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from algorithms import PanSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = PanSVC(sites=4, landmarks=60).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    >>> len(model.result_["sites"])
    4
    """

    program = "pan-svm"

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: KernelName = "rbf",
        gamma: float | Literal["auto"] = "auto",
        degree: int = 3,
        coef0: float = 0.0,
        scale: ScaleName = "standard",
        landmarks: float = 0.25,
        landmark_method: Literal["local", "global"] = "local",
        min_cluster_size: int = 1,
        cut_groups: int = 32,
        tolerance: float = 1e-4,
        max_iterations: int = 500,
        rank_tolerance: float = 1e-10,
        sites: int = 3,
        sum: str = "ring",
        sum_options: Mapping[str, float] | None = None,
        round_timeout_s: float = 30.0,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.scale = scale
        self.landmarks = landmarks
        self.landmark_method = landmark_method
        self.min_cluster_size = min_cluster_size
        self.cut_groups = cut_groups
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.rank_tolerance = rank_tolerance
        self.sites = sites
        self.sum = sum
        self.sum_options = sum_options
        self.round_timeout_s = round_timeout_s
        self.random_state = random_state

    def _train(self, rows: FloatArray, signs: FloatArray, groups: Any, seed: int) -> None:
        settings, scale = self._settings(rows, seed), parameters.choice("scale", self.scale, get_args(ScaleName))
        held = self._dealt(np.arange(len(rows)), groups, len(rows), seed)
        partitions = {site: partition_of(rows[mine], signs[mine]) for site, mine in held.items()}
        with self._federation(partitions, seed) as federation:
            with federation.phase("setup"):
                counts = count_rows(federation)
                self.scaling_ = agree_scale(federation, scale, rows.shape[1], len(rows))
            features = choose_features(federation, settings, counts, rows.shape[1])
            self.model_ = train(federation, settings, features)
        self._describe(self.model_, self.scaling_)
        self.result_ = self._result(federation, partitions, self.model_.figures)

    def _settings(self, rows: FloatArray, seed: int) -> PanSettings:
        """Raises ValueError for a parameter that will not do."""
        return PanSettings(
            kernel=kernel_of(self, rows.shape[1]),
            C=parameters.positive("C", self.C),
            landmarks=landmark_count(parameters.share_or_count("landmarks", self.landmarks), len(rows)),
            landmark_method=parameters.choice("landmark_method", self.landmark_method, ("local", "global")),
            min_cluster_size=parameters.whole("min_cluster_size", self.min_cluster_size),
            groups=parameters.whole("cut_groups", self.cut_groups),
            tolerance=parameters.positive("tolerance", self.tolerance, below=1.0),
            max_iterations=parameters.whole("max_iterations", self.max_iterations),
            rank_tolerance=parameters.positive("rank_tolerance", self.rank_tolerance, below=1.0),
            line_search="grid",
            line_search_step=0.1,
            seed=seed,
        )

    def _describe(self, model: PanModel, scaling: Scale) -> None:
        """What scikit-learn's users look for in an SVM."""
        solution = model.solution
        self.landmarks_ = model.landmarks.points
        self.dual_coef_ = (model.mapping @ solution.w)[None, :]
        self.intercept_ = np.array([solution.b])
        self.__dict__.pop("coef_", None)  # of an earlier fit
        if self.kernel == "linear":
            self.coef_ = self.dual_coef_ @ self.landmarks_ / scaling.scale
            self.intercept_ = self.intercept_ - self.coef_ @ scaling.offset
        self.n_iter_, self.gap_ = solution.iterations, solution.gap

    def _scores(self, rows: FloatArray) -> FloatArray:
        return self.model_.decision_values(self.scaling_(rows))
