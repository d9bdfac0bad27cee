"""Least squares on labels of +1 and -1 in common features, from one secure sum (Rahimi and Recht 2007).

With Z (n, d) the features of all rows, and a column of ones for the intercept, and Y the labels, the weights are

    W = (Z^T Z + lambda D)^-1 Z^T Y,   D = diag(1, ..., 1, 0),

and both products are sums over rows: d (d + 1)/2 + K d numbers for K problems, each class of K against the others,
in one round. This is the "Fourier + LS"
of the PAN-SVM dissertation's table 3.6, which cites its figures: ridge regression on random features, no SVM. Rahimi
and Recht's features are sqrt(2/D) cos(rho.x + b) with random offsets; here they are the paired cosines and sines of
`features.fourier`, where D/2 frequencies give as many features and approximate the kernel better. Landmarks and the
columns themselves also work.

Disclosures. The coordinator learns the rows' second moments in the features, and their product with the labels. Each is
one sum, but both reveal much. If the possible records can be listed, they reveal how often each occurs, since the
products are linear in it (`attacks.second_moments`). With few rows and many features they determine the rows' span.

With `masking = "committee"` the coordinator solves a system that it sees only behind the masks of two sites, which no
party has both of (`protocols.blind_system`). The weights are the same, and all that it opens. They are an equation in
the rows for each feature; with hundreds of features and a list of the possible records they name rows, too.

References
----------
A. Rahimi and B. Recht, "Random features for large-scale kernel machines", NIPS 2007, sections 3 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedsvm.algorithms.algorithm import Premises, TrainingReport
from fedsvm.algorithms.calibration import ThresholdSettings, calibration
from fedsvm.algorithms.data.classes import one_against_rest, problems_of
from fedsvm.algorithms.data.horizontal import each_model, preparation
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.features.choice import Features, FeatureSettings
from fedsvm.algorithms.features.mapped_rows import map_rows, mapping
from fedsvm.algorithms.leakage import LISTED, Recovery, WholeRunLeakage
from fedsvm.algorithms.linear_model import PanModel, with_calibration
from fedsvm.algorithms.mapped_site import MappedAlgorithm, MappedSite
from fedsvm.algorithms.optimization.committee import (
    BlindSystemSettings,
    check_committee,
    contribute,
    solve_with_committee,
)
from fedsvm.algorithms.optimization.masking_choice import MaskedRounds, choice, obstacle
from fedsvm.algorithms.optimization.weighting import ClassWeightSettings, Factors, agreement_on_factors
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.remarks import Remark, opened_exactly
from fedsvm.algorithms.settings import Positive, doc
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import AGREED, CHECKED, free, step
from fedsvm.federation.site.script import Script, seq, stage
from fedsvm.federation.site.terms import Terms
from fedsvm.protocols.blind_parameters import BlindSystem

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack

MOMENTS = (
    "the second moments of all rows in their features, and the features' products with the labels: of few possible "
    "records they say which are there"
)

BLIND = (
    "the second moments of all rows in their features behind the secret matrices of two sites, which leave of each "
    "eigenvalue a factor of 16, and the weights"
)


@dataclass
class LeastSquaresSettings(FeatureSettings, ClassWeightSettings, ThresholdSettings, BlindSystemSettings):
    """The settings of a user."""

    regularisation: Annotated[Positive, doc("lambda of sum of squared residuals + lambda |w|^2.")] = 1.0
    intercept: Annotated[bool, doc("Add a constant term to the decision value.")] = True


def moments_leakage(settings: FeatureSettings) -> WholeRunLeakage:
    """Return what second moments of the features of all rows give away to whoever opens them."""
    with_site, alone = (Recovery("every row", LISTED, settings.landmark_rows(with_site=site)) for site in (True, False))
    return WholeRunLeakage(with_site, alone, support_named=True)


def committee_leakage(settings: FeatureSettings) -> WholeRunLeakage:
    """Return what follows if two members of a committee alone have the second moments, and others the weights."""
    found = moments_leakage(settings)
    return replace(found, one_site=found.alone, with_members=found.with_site)


def with_ones(features: FloatArray, *, intercept: bool) -> FloatArray:
    """Return (n, d) features (n, m), and a column of ones for the intercept."""
    return np.column_stack([features, np.ones(len(features))]) if intercept else features


def packed_moments(rows: FloatArray, labels: FloatArray, prices: FloatArray | float = 1.0) -> FloatArray:
    """Return (d (d + 1)/2 + K d,) the upper triangle of Z^T P Z for rows Z (n, d), and Y P Z for labels Y (K, n).

    prices (n,): the diagonal of P, by which squared residuals are multiplied, or one number of all.
    """
    priced = (prices * rows.T).T
    gram = rows.T @ priced
    return np.concatenate([gram[np.triu_indices(len(gram))], (labels @ priced).ravel()])


def unpacked_moments(moments: FloatArray, d: int) -> tuple[FloatArray, FloatArray]:
    """Return Z^T Z (d, d) and Y Z (K, d) from what `packed_moments` packs."""
    triangle = d * (d + 1) // 2
    gram = np.zeros((d, d))
    gram[np.triu_indices(d)] = moments[:triangle]
    return gram + np.triu(gram, 1).T, moments[triangle:].reshape(-1, d)


def weights(gram: FloatArray, products: FloatArray, regularisation: float, *, intercept: bool) -> FloatArray:
    """Return (K, d) the weights of least squares for Z^T Z (d, d) and Y Z (K, d), without penalty on the intercept."""
    penalties = np.full(len(gram), regularisation)
    if intercept:
        penalties[-1] = 0.0
    return np.asarray(np.linalg.solve(gram + np.diag(penalties), products.T).T)


class LeastSquaresSite(MappedSite):
    """The site half."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `LeastSquares.fit`."""
        is_blind = terms.settings["masking"] == "committee"
        solved = seq("squared_norms", "blind_weights") if is_blind else seq("moments")
        summed = stage(preparation(terms), mapping(terms), agreement_on_factors(terms), solved)
        return each_model(terms, summed, calibration(terms))

    @step(
        told={
            "intercept": AGREED,
            "factors": CHECKED,
        }
    )
    def moments(self, intercept: bool, factors: Sequence[float] = ()) -> FloatArray:
        """Return the (d (d + 1)/2 + K d,) this site's part of the products of features with each other and with labels.

        factors: of the squared residuals of the classes; all 1 without. Raises OrderRefused for others than
        were agreed on.
        """
        self.row_weights.check_factors(factors)
        return self._moments(factors, intercept=intercept)

    def _moments(self, factors: Sequence[float], *, intercept: bool) -> FloatArray:
        z = with_ones(self.mapped.features, intercept=intercept)
        return packed_moments(z, self.labels, self.row_weights.prices(1.0, factors))

    @step(
        told={
            "intercept, regularisation": AGREED,
            "factors": CHECKED,
            "scale": free("any number", "nothing; a false scale ends the run or spoils the model"),
        }
    )
    def blind_weights(
        self, intercept: bool, regularisation: float, scale: float, factors: Sequence[float] = ()
    ) -> FloatArray | None:
        """Return the (K, m) weights, which two sites open to the coordinator with the masked system; None elsewhere.

        scale: no entry of the system exceeds it. factors: as in `moments`. Raises OrderRefused for others than were
        agreed on.
        """
        self.row_weights.check_factors(factors)
        entries = self._moments(factors, intercept=intercept)
        size = self.mapped.features.shape[1] + int(intercept)
        system = BlindSystem(size, len(self.labels), scale, regularisation, int(intercept))
        found = contribute(self, [system], [entries])
        return None if found is None else found[0]


def _blind_weights(
    federation: Federation, settings: LeastSquaresSettings, factors: Factors, d: int, problems: int
) -> FloatArray:
    """Return (K, d) the weights of a system that the coordinator does not see."""
    squares, rows = federation.sum("squared_norms", shape=(2,), bound=math.inf)
    largest = factors.largest * (max(float(squares), 0.0) + float(rows)) * (1 + 1e-9) + settings.regularisation
    scale = 2.0 ** math.frexp(max(largest, 1.0))[1]
    system = BlindSystem(d, problems, scale, settings.regularisation, int(settings.intercept))
    return solve_with_committee(
        federation,
        "blind_weights",
        [system],
        lambda solved: solved[0].found,
        intercept=settings.intercept,
        regularisation=settings.regularisation,
        scale=scale,
        **factors.told,
    )


class LeastSquares(MappedAlgorithm[LeastSquaresSettings, PanModel]):
    """Least squares on the labels in common features, from one secure sum (Rahimi and Recht 2007)."""

    name = "least-squares"
    estimator = "LeastSquaresClassifier"
    Settings, Site, Model = LeastSquaresSettings, LeastSquaresSite, PanModel
    multiclass = True

    def resolve_settings(
        self, settings: LeastSquaresSettings, premises: Premises
    ) -> tuple[LeastSquaresSettings, tuple[Remark, ...]]:
        """Resolve `masking = "auto"`."""
        if settings.masking != "auto":
            return settings, ()
        rounds = None
        if (m := settings.expected_features(premises.rows)) is not None:
            problems = problems_of(premises.classes, "ovr")
            system = BlindSystem(m + int(settings.intercept), problems, 1.0, 0.0, int(settings.intercept))
            rounds = MaskedRounds(premises.sites, (system,), system.own, 0.0, premises.models, premises.conditions)
        is_taken, sentence = choice("none", rounds, obstacle(premises.sites, premises.min_sites, premises.conditions))
        return replace(settings, masking="committee" if is_taken else "none"), (Remark("masking", sentence),)

    def fit(self, federation: Federation, task: HorizontalTask, settings: LeastSquaresSettings) -> PanModel:
        """Map the rows, sum, and solve."""
        if settings.masking == "committee":
            check_committee(federation)

        def stage() -> tuple[Features, FloatArray]:
            prepared = task.prepare(federation)
            features = map_rows(federation, settings, prepared, task.seed)
            d = features.map.dimensions + int(settings.intercept)
            with federation.phase("train"):
                factors = Factors.agreed(federation, settings.weighting_of(task), len(task.classes))
                if settings.masking == "committee":
                    return features, _blind_weights(federation, settings, factors, d, task.problems)
                bound = float(prepared.rows) if settings.features == "fourier" else math.inf  # whose features are short
                shape, bound = (d * (d + 1) // 2 + task.problems * d,), bound * factors.largest
                told: dict[str, Any] = {"intercept": settings.intercept, **factors.told}
                moments = federation.sum("moments", shape=shape, bound=bound, **told)
                found = weights(*unpacked_moments(moments, d), settings.regularisation, intercept=settings.intercept)
                return features, found

        features, found = federation.until_stable(stage)
        d = features.map.dimensions + int(settings.intercept)
        step, shows = ("blind_weights", BLIND) if settings.masking == "committee" else ("moments", MOMENTS)
        federation.disclose("coordinator", step, shows, (d * (d + 1) // 2 + task.problems * d,))
        found = found if settings.intercept else np.column_stack([found, np.zeros(len(found))])
        remarks = tuple(Remark(name, sentence) for name, sentence in features.remarks.items())
        remarks += opened_exactly(task.statistics, shows)
        report = TrainingReport(federation.sites, features.description, figures=features.figures, remarks=remarks)
        model = PanModel.of_weights(features.map, found, report, classes=len(task.classes))
        return with_calibration(federation, task, model, settings)

    def train_pooled(self, model: PanModel, settings: LeastSquaresSettings, rows: EvaluationRows) -> Pooled:
        """Solve the problem on all rows together, by a least squares solver that forms no products."""
        z = with_ones(model.features(rows.train.rows), intercept=settings.intercept)
        ridge = math.sqrt(settings.regularisation) * np.eye(z.shape[1])[: model.feature_map.dimensions]
        several, count = len(rows.classes) > 2, len(rows.classes)
        labels = one_against_rest(rows.train.labels, count).T if several else rows.train.labels[:, None]
        factors = settings.pooled_factors(rows.train.labels, rows.weights, rows.classes)
        roots = np.ones((len(z), 1)) if factors is None else np.sqrt(factors)[:, None]
        right = np.vstack([roots * labels, np.zeros((len(ridge), labels.shape[1]))])
        found = np.linalg.lstsq(np.vstack([roots * z, ridge]), right, rcond=None)[0]
        found = found if several else found[:, 0]
        return Pooled(with_ones(model.features(rows.test.rows), intercept=settings.intercept) @ found)

    def whole_run(self, settings: LeastSquaresSettings) -> WholeRunLeakage:
        """Return what the second moments give away, or what two members of a committee have of them."""
        return committee_leakage(settings) if settings.masking == "committee" else moments_leakage(settings)

    def attacks(self, settings: LeastSquaresSettings) -> list[Attack]:
        """Return the attacks on landmarks, and on the moments."""
        from fedsvm.algorithms.attacks.cluster_rounds import ClusterRounds
        from fedsvm.algorithms.attacks.landmark_copies import LandmarkCopies
        from fedsvm.algorithms.attacks.second_moments import SecondMoments

        return [LandmarkCopies(), ClusterRounds(), SecondMoments()]

    def file_attacks(self, settings: LeastSquaresSettings) -> Sequence[Attack]:
        """Return the attacks on landmarks and digits of the scale, and on the weights of equal classes."""
        from fedsvm.algorithms.attacks.weight_equations import WeightEquations

        attacks = list(super().file_attacks(settings))
        if settings.class_weight is None:
            attacks.append(WeightEquations("squared", settings.regularisation))
        return attacks
