"""The hybrid SVM as an algorithm: its site half, its checks, and the methods to compare it with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedsvm.algorithms.algorithm import Outline, Premises, PublicAlgorithm
from fedsvm.algorithms.attacks.attack import Attack
from fedsvm.algorithms.attacks.newton_steps import NewtonSteps
from fedsvm.algorithms.attacks.newton_systems import NewtonSystems
from fedsvm.algorithms.data.classes import problems_of
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.public_rows import PubliclyScaledSite, PublicTask, each_private_model
from fedsvm.algorithms.features.fourier import choose_frequencies, paired_features
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.mapped_rows import FeatureRows
from fedsvm.algorithms.hybrid_svm.minimizer import pooled_minimizer
from fedsvm.algorithms.hybrid_svm.model import HybridModel, scores_of
from fedsvm.algorithms.hybrid_svm.noise import noise_for_settings, noise_of
from fedsvm.algorithms.hybrid_svm.release import ModelRelease, release_script
from fedsvm.algorithms.hybrid_svm.settings import HybridSettings
from fedsvm.algorithms.hybrid_svm.training import train, training_script
from fedsvm.algorithms.leakage import LISTED, Recovery, WholeRunLeakage
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.blind_path import BlindNewton
from fedsvm.algorithms.optimization.hinge_sums import HingeCuts
from fedsvm.algorithms.optimization.joint_hinge import JointHingeCuts
from fedsvm.algorithms.optimization.linear_svm_settings import CUTS_SHOW, without_objective_noise
from fedsvm.algorithms.optimization.masking_choice import MaskedRounds, choice, obstacle
from fedsvm.algorithms.optimization.path_sums import NewtonPath
from fedsvm.algorithms.optimization.weighting import RowWeights
from fedsvm.algorithms.pooled import Baseline, EvaluationRows, Pooled
from fedsvm.algorithms.privacy.budget import pairs_problem
from fedsvm.algorithms.privacy.mechanisms import PrivacyParameters
from fedsvm.algorithms.remarks import Remark
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.channel.generator import drawn_key
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import free, step
from fedsvm.federation.site.script import Script, stage
from fedsvm.federation.site.terms import Terms


class HybridSite(PubliclyScaledSite):
    """The site half: rows in the agreed frequencies, the parts of both solvers, and the release."""

    part_types = (
        *PubliclyScaledSite.part_types,
        FeatureRows,
        ModelRelease,
        NewtonPath,
        BlindNewton,
        HingeCuts,
        JointHingeCuts,
    )
    libraries = ("scipy.optimize", "scipy.special")  # for the noise that epsilon needs

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.mapped = FeatureRows()
        self.release = ModelRelease(self, self.mapped)
        self.path = NewtonPath(self, self.mapped, RowWeights(self), self.release.check_problem)
        self.blind = BlindNewton(self, self.path)
        self.hinge = HingeCuts(self, self.mapped)
        self.joint = JointHingeCuts(self, self.mapped)

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `HybridSvm.fit`: training by the agreed variant and solver, and one release."""
        trained = stage("row_count", "receive_frequencies", training_script(terms))
        return each_private_model(terms, trained, release_script(terms))

    @step(
        remembered=True,
        told={
            "rho": free("as many frequencies as agreed", "features of its choice; the site still computes their noise"),
        },
    )
    def receive_frequencies(self, rho: FloatArray) -> None:
        """Map this site's rows, whose features never leave it, and draw the key of its noise."""
        self.check_agreed(features=len(rho))
        self.mapped.place(paired_features(self.rows, rho))
        self.release.begin(drawn_key(self.channel))

    @step(
        told={
            "keep": free("0 or 1 of each problem", "the last point instead of the best one, nearly the same"),
            "constants": free("-1, 0 or 1 of each problem", "a constant model in place of the trained one"),
        }
    )
    def take_best(self, keep: IntArray, constants: IntArray) -> None:
        """Keep the model that all sites trained together."""
        self.release.take_whole((self.path.start.priors + self.path.best(keep, constants)[:, :-1]).ravel())


class HybridSvm(PublicAlgorithm[HybridSettings, HybridModel]):
    """An SVM in Fourier features of public rows, released with noise (Li, Xiong, Ohno-Machado and Jiang 2014)."""

    name = "hybrid-svm"
    estimator = "HybridSVC"
    Settings, Site, Model = HybridSettings, HybridSite, HybridModel
    figures = {
        "frequencies": "of the Fourier features",
        "rank": "weights of the model",
        "fit_error_as_drawn": "error of equation 6 of the frequencies as drawn",
        "fit_error": "error of equation 6 of the frequencies as fitted",
    }
    multiclass = True

    def fit(self, federation: Federation, task: PublicTask, settings: HybridSettings) -> HybridModel:
        """Choose columns, scale and features from public rows, then train on private ones, and add noise."""
        task.prepare(federation)
        with federation.phase("train"):
            return train(federation, settings, task)

    def resolve_settings(
        self, settings: HybridSettings, premises: Premises
    ) -> tuple[HybridSettings, tuple[Remark, ...]]:
        """Resolve `masking = "auto"` and the default of `step_noise`."""
        settings = without_objective_noise(settings)
        if settings.masking != "auto":
            return settings, ()
        if not _has_path(settings):
            return replace(settings, masking="congruence"), ()  # nothing is masked
        unless = obstacle(premises.sites, premises.min_sites, premises.conditions)
        features, problems = 2 * settings.features, problems_of(premises.classes, "ovr")
        rounds = MaskedRounds.of_path(
            premises.sites, features, problems, premises.models, premises.conditions, intercept=False
        )
        is_taken, sentence = choice("congruence", rounds, unless)
        return replace(settings, masking="committee" if is_taken else "congruence"), (Remark("masking", sentence),)

    def is_private(self, settings: HybridSettings) -> bool:
        """Return True with any mechanism."""
        return settings.privacy is not None

    def problems(self, settings: HybridSettings, outline: Outline) -> Iterator[str]:
        """Yield what the mechanism, the public rows and the budget do not allow."""
        if settings.mechanism == "gaussian" and settings.delta is None:
            yield 'delta: must be given with mechanism = "gaussian": a number above 0 and below 1'
        if settings.mechanism != "gaussian" and settings.delta is not None:
            yield f'delta: applies only to mechanism = "gaussian", got {settings.delta!r}; remove it'
        if settings.masking == "committee" and not _has_path(settings):
            yield 'masking: "committee" needs variant = "joint" and solver = "interior-point"; others have no system'
        if settings.solver == "auto":
            yield 'solver: must be "interior-point" or "cutting-plane" here, since the guarantee covers what they show'
        if settings.multiclass == "joint" and settings.solver != "cutting-plane":
            yield f'multiclass: "joint" needs solver = "cutting-plane", {CUTS_SHOW}'
        if settings.multiclass == "joint" and settings.variant == "one-shot":
            yield 'multiclass: "joint" needs variant = "joint"; with one-shot use "ovr"'
        yield from pairs_problem(settings.features, outline.public_rows)
        yield from settings.budget_problems(outline.models, settings.delta or 0.0, private=settings.privacy is not None)

    def whole_run(self, settings: HybridSettings) -> WholeRunLeakage | None:
        """Return the most that an attack recovers from Newton's systems and steps; None of another solver or
        variant."""
        if not _has_path(settings):
            return None
        found = Recovery("every row", LISTED)
        by_a_site = found if settings.usual_step_noise == 0 else Recovery("some rows", LISTED)
        if settings.masking == "none":
            return WholeRunLeakage(found, found, by_a_site)
        if settings.masking == "committee":
            return WholeRunLeakage(by_a_site, None, by_a_site, with_members=found)
        return WholeRunLeakage(found, None, by_a_site)

    def attacks(self, settings: HybridSettings) -> list[Attack]:
        """Return the attacks on Newton's systems and steps."""
        return [NewtonSystems(), NewtonSteps(settings.usual_step_noise)] if _has_path(settings) else []

    def train_pooled(self, model: HybridModel, settings: HybridSettings, rows: EvaluationRows) -> Pooled:
        """Return the minimizer on all private rows together, in the same features and without noise, and the exact
        kernel."""
        weights, objective = pooled_minimizer(model.rho, model.prior, settings, rows.train)
        sigma, classes = settings.sigma_of(model.rho.shape[1]), len(rows.classes)
        return Pooled(
            scores=scores_of(model.features(rows.test.rows) @ weights.T, jointly=model.jointly),
            objective=objective,
            exact=_rbf_scores(settings.C / len(rows.train.labels), sigma, rows.train, rows.test.rows, classes),
        )

    def class_problems(self, settings: HybridSettings, classes: tuple[str, ...]) -> Iterator[str]:
        """Yield settings that do not fit the number of classes."""
        if len(classes) > 2 and settings.solver == "cutting-plane" and settings.multiclass == "ovr":
            yield (
                f'solver: must be "interior-point" for {len(classes)} classes; cutting planes train two here, or all '
                'in one problem (multiclass = "joint")'
            )
        if len(classes) == 2 and settings.multiclass == "joint":
            yield 'multiclass: "joint" applies to more than two classes; remove it'

    def foreseen(self, settings: HybridSettings, rows: int, columns: int, classes: int) -> Iterator[str]:
        """Yield a warning if noise exceeds the length of w without a prior: 1/2 |w|^2 <= C, the objective at 0, per
        class."""
        problems = 1 if classes == 2 else classes
        noise = noise_for_settings(settings, np.zeros((problems, 2 * settings.features)), rows, shares=1)
        longest = math.sqrt(2 * settings.C * (1 if settings.is_joint(problems) else problems))
        if noise is not None and settings.prior == "none" and noise.length > longest:
            yield (
                f"Noise for epsilon {settings.epsilon:g} over {rows} private rows is {noise.length:.3g} long, and the "
                f"weights that it hides {longest:.3g} at most: the model will hardly be better than a guess. Have more "
                "rows, allow a larger epsilon, or lower C or features."
            )

    def public_baseline(self, model: HybridModel, settings: HybridSettings, rows: EvaluationRows) -> Baseline | None:
        """Train an SVM on the public rows, with the exact kernel."""
        if rows.public is None:
            return None
        sigma, classes = settings.sigma_of(model.rho.shape[1]), len(rows.classes)
        scores = _rbf_scores(1.0, sigma, rows.public, rows.test.rows, classes)
        return Baseline("public", f"{len(rows.public.labels)} public rows alone", scores)

    def baselines(
        self, model: HybridModel, settings: HybridSettings, rows: EvaluationRows, seed: int
    ) -> list[Baseline]:
        """Return public rows alone, the private SVM (random frequencies, no prior, the paper's noise), and no noise at
        all.

        Only a simulation can train the last two in addition to the model: each would be a release of its own.
        """
        public, train, test = rows.public, rows.train, rows.test.rows
        alone = self.public_baseline(model, settings, rows)
        if public is None or alone is None:
            raise ValueError("baselines need the public rows, got none")
        sigma = settings.sigma_of(model.rho.shape[1])
        random = np.random.default_rng([seed, 6])
        frequencies = choose_frequencies(public.rows, settings.features, sigma, "random", random)
        exact, _ = pooled_minimizer(frequencies.rho, np.zeros_like(model.prior), settings, train)
        own, _ = pooled_minimizer(model.rho, model.prior, settings, train)
        found = [
            alone,
            Baseline("no_noise", "no noise", scores_of(model.features(test) @ own.T, jointly=model.jointly)),
        ]
        if settings.privacy is not None:
            privacy = PrivacyParameters("laplace", settings.epsilon)
            sensitivity, gap = 4 * settings.C / len(train.labels), settings.tolerance * settings.C
            noise = noise_of(privacy, exact, sensitivity, gap, jointly=model.jointly)
            released = frequencies.features(test) @ noise.released(exact.ravel()).reshape(exact.shape).T
            found.insert(1, Baseline("private", "random features", scores_of(released, jointly=model.jointly)))
        return found


def _has_path(settings: HybridSettings) -> bool:
    """Return whether the interior point trains over all sites."""
    return settings.variant == "joint" and settings.solver == "interior-point"


def _rbf_scores(C: float, sigma: float, train: LabeledRows, test: FloatArray, classes: int) -> FloatArray:
    kernel = Kernel("rbf", 1 / sigma**2)
    return libsvm.against_others(
        lambda labels: libsvm.kernel(kernel, train.rows, labels, C), train.labels, classes, test
    )
