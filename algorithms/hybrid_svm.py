"""Hybrid SVM (Li, Xiong, Ohno-Machado and Jiang 2014): features from public rows, training on private ones, noise.

    min over w of  1/2 |w - w0|^2 + (C / n) sum_i max(0, 1 - y_i w.z(x_i)),   |z(x)| = 1,   no intercept.

What one row can change. Between data sets that differ in one of n rows the gradient of the second term differs by at
most 2C/n, and the objective is 1-strongly convex, so that its minimisers are within 2C/n of each other in L2 ("tight";
it is attained). The paper takes 4C/n from Rubinstein et al. (2012, corollary 15), loose by 2 ("paper"). A prior w0 of
public rows alone changes neither.

Corrections. (1) The paper prints C times the sum, not C/n, with noise for C/n: with that its epsilon is false by a
factor of n. n, the number of private rows, is public. (2) No intercept: what regularises nothing has no such bound.
(3) The bound is for the exact minimiser: an objective within g of its minimum adds 2 sqrt(2 g), for both neighbours.
What is accounted for is the tolerance, which is public, and not the gap that training happened to reach.

Who sees what. In `joint` training the sites see the points that they go to, and the coordinator what its solver shows
(see `optimization.linear_svm`): noise protects the model against everyone who gets it, not against these. In `one-shot`
every site trains on its own rows, and one secure sum adds the models, weighted by n_s / n, and shares of the noise:
nobody sees anything without noise. One row changes its site's minimiser by 2C/n_s at most, and what is released by
n_s/n of that: 2C/n again.

Of K classes each is told from the others, and K models are one vector, in which one row moves each by 2C/n: all
together by sqrt(K) 2C/n, which is attained, by a row that goes to the opposite point and keeps its class. Noise is for
the whole vector, and there is one release. Private rows of a class that is neither declared nor among the public rows
are among the others of all K. With multiclass = "joint" the K weight vectors are those of one problem, whose loss has a
slope of sqrt(2) in all of them (`optimization.joint_hinge`): one row moves the vector by 2 sqrt(2) C/n, whatever K is.
That is trained by cutting planes; rows of a class that nobody named have no loss in it.
"""

from __future__ import annotations

import functools
import hmac
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, Model, Outline, PublicAlgorithm, TrainingReport
from fedsvm.algorithms.data.classes import above_others, members, one_against_rest
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.horizontal import HorizontalSite, count_rows
from fedsvm.algorithms.data.partition import agreed_folds
from fedsvm.algorithms.data.public_rows import PubliclyScaledSite, PublicTask, each_private_model
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features.fourier import FourierSettings, Frequencies, choose_frequencies, paired_features
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.mapped_rows import FeatureRows
from fedsvm.algorithms.optimization import cutting_plane, interior_point, libsvm
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.cutting_plane import Line, Oracle, Points
from fedsvm.algorithms.optimization.hinge_sums import FederatedOracle, HingeCuts, groups_of
from fedsvm.algorithms.optimization.joint_hinge import JointHingeCuts, JointOracle, JointSums
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.algorithms.optimization.linear_svm import CUTS_SHOW, SolverSettings
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.path_sums import FederatedPath, NewtonPath, choose_points, newton_path
from fedsvm.algorithms.optimization.solution import Certificate, Solution, StoppingRule
from fedsvm.algorithms.optimization.weighting import RowWeights
from fedsvm.algorithms.pooled import Baseline, EvaluationRows, Pooled
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant, Release
from fedsvm.algorithms.privacy.budget import BudgetSettings, pairs_problem
from fedsvm.algorithms.privacy.discrete_noise import gaussian_share, laplace_share
from fedsvm.algorithms.privacy.mechanisms import Noise, PrivacyParameters, noise_for
from fedsvm.algorithms.settings import Dimension, Positive, Share, Tolerance, doc
from fedsvm.algorithms.sklearn_parts import NotExportable, Steps, linear_step, sampler
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.channel.generator import KeyedRandom, drawn_key
from fedsvm.federation.errors import FederationError, MembershipChanged, OrderRefused, StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import AGREED, CHECKED, SitePart, free, step
from fedsvm.federation.site.script import Script, maybe, once, repeat, seq, stage
from fedsvm.federation.site.terms import Terms

C_GRID = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Penalties among which the public rows choose."""

_PRIOR_FOLDS = 5
_PRIOR_TOLERANCE = 1e-6
_MAX_ITERATIONS = 500
_POOLED_GROUPS = 32
_NOISE_ROUNDING = 1e-9
"""By how much of it the scale that two machines compute may differ."""


@dataclass
class HybridSettings(BudgetSettings, FourierSettings, SolverSettings):
    """The settings of a user."""

    C: Annotated[Positive, doc("C of min 1/2 |w - w0|^2 + C/n sum of hinge losses, without an intercept.")] = 300.0
    _: KW_ONLY
    features: Annotated[Dimension, doc("Number of frequencies; a model has twice as many weights.")] = 60
    mechanism: Annotated[
        Literal["laplace", "gaussian", "spherical", "none"],
        doc('Distribution of the noise. "none" trains without noise and gives no privacy guarantee.'),
    ] = "spherical"
    delta: Annotated[
        Share | None, doc("The delta of (epsilon, delta)-privacy. Required by the gaussian mechanism only.")
    ] = None
    sensitivity: Annotated[
        Literal["tight", "paper"],
        doc("Bound on the change of the model by one row: 2C/n (tight), or the paper's 4C/n."),
    ] = "tight"
    prior: Annotated[
        Literal["none", "public"], doc("The w0 of the objective: 0, or the model of the public rows alone.")
    ] = "none"
    variant: Annotated[
        Literal["joint", "one-shot"],
        doc(
            "joint: training over all sites, which see the model without noise. one-shot: each site's own model, "
            "summed with noise."
        ),
    ] = "joint"
    multiclass: Annotated[
        Literal["ovr", "joint"],
        doc("Multi-class method: one class against the rest (ovr), or one joint problem (joint)."),
    ] = "ovr"
    tolerance: Annotated[
        Tolerance, doc("Certified relative gap at which training stops. The noise accounts for it.")
    ] = 1e-11

    def is_joint(self, problems: int) -> bool:
        """Return whether the weight vectors belong to one problem; for two classes there is one vector."""
        return problems > 1 and self.multiclass == "joint"

    @property
    def privacy(self) -> PrivacyParameters | None:
        """The privacy guarantee of the model; None without noise."""
        if self.mechanism == "none":
            return None
        return PrivacyParameters(self.mechanism, self.epsilon, self.delta or 0.0)


@dataclass(frozen=True)
class HybridModel(Model):
    """The released model: rho (D, d) and weights (2 D,), with the prior (2 D,), which public rows chose.

    Of more than two classes weights and priors are (K, 2 D). jointly: whether they are those of one problem.
    training: how training ended depends on private rows, and is told without noise only.
    """

    rho: FloatArray
    weights: FloatArray
    prior: FloatArray
    noise: Noise | None = None
    training: TrainingReport | None = None
    jointly: bool = False

    def features(self, rows: FloatArray) -> FloatArray:
        """Return (n, 2 D) features of scaled rows (n, d)."""
        return paired_features(rows, self.rho)

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values for scaled rows (n, d), (n, K) for more than two classes."""
        return scores_of(self.features(rows) @ self.weights.T, jointly=self.jointly)

    def sklearn_steps(self, classes: NDArray[Any]) -> Steps:
        """Return the steps of a pipeline; see `Model`."""
        if self.jointly:
            raise NotExportable("scikit-learn has no part for decision values of a joint problem")
        return [("features", sampler(self.rho)), linear_step(self.weights, 0.0, classes)]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the file.

        The decision value of a scaled row x is [cos(rho x), sin(rho x)] / sqrt(D) w.

        Returns
        -------
        rho : (D, d)
            Frequencies.
        w : (2 D,) or (K, 2 D)
            Weights as released; of K > 2 classes, one row for each class.
        b : ()
            0: the model has no intercept.
        scheme : text
            "joint", if the weights of K classes are those of one problem.
        """
        scheme: dict[str, NDArray[Any]] = {"scheme": np.asarray("joint")} if self.jointly else {}
        return {"rho": self.rho, "w": self.weights, "b": np.array(0.0), **scheme}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file."""
        return cls(arrays["rho"], arrays["w"], np.zeros_like(arrays["w"]), jointly="scheme" in arrays)

    def attributes(self, scaling: Scale) -> dict[str, Any]:
        """Return `frequencies_` (D, p) and `coef_` (P, 2 D) of [cos, sin] of frequencies_ x, over √D."""
        return {"frequencies_": self.rho, "coef_": np.atleast_2d(self.weights)}


def scores_of(values: FloatArray, *, jointly: bool) -> FloatArray:
    """Return (n,) or (n, K) decision values from w.f; for a joint problem each minus the largest of the others."""
    return above_others(values) if jointly else np.asarray(values)


def _training(terms: Terms) -> Script:
    """Return the script of `_train`."""
    settings = terms.settings
    if settings["variant"] == "one-shot":
        return once("train_alone")
    if settings["solver"] == "interior-point":
        return newton_path(terms, "take_best")
    joint = settings["multiclass"] == "joint"
    deal, cuts, line = ("deal_joint_groups", "joint_cuts", "joint_line") if joint else ("deal_groups", "cuts", "line")
    return seq(deal, cuts, repeat(seq(line, maybe(cuts)), 0, settings["max_iterations"]))


def _release_script(terms: Terms) -> Script:
    """Return the script of `_released`: sites draw noise or send the model, unless cuts already revealed it."""
    if terms.settings["mechanism"] in ("laplace", "gaussian"):
        return stage("noisy_part")
    seen = terms.settings["variant"] == "joint" and terms.settings["solver"] == "cutting-plane"
    return seq() if seen else once("own_part")


class ModelRelease(SitePart):
    """The models that a site trained, alone or with all others, and their release with its shares of the noise.

    With several classes, the models are concatenated.
    """

    def __init__(self, site: HorizontalSite, rows: FeatureRows) -> None:
        self._site, self._rows = site, rows
        self._part: FloatArray = np.zeros(0)  # of a model that is a sum over sites
        self._whole: FloatArray | None = None  # the model that all sites trained together
        self._priors: FloatArray = np.zeros((0, 0))  # (K, m) of the last model, and the number of all rows
        self._rows_of_all = 0
        self._noise_key: bytes | None = None  # the shares of noise follow from it
        self._models = 0  # number trained with this key; only the last one counts
        self._summed: frozenset[str] = frozenset()  # what was put into sums with noise of this key
        self._releases = 0  # keys for which a model was released

    def begin(self, noise_key: bytes) -> None:
        """Forget the models of other features, and draw noise from this key."""
        self._noise_key, self._models, self._summed = noise_key, 0, frozenset()

    def take(self, part: FloatArray) -> None:
        """Take this site's part of the next model."""
        self._part = part
        self._models += 1

    def take_whole(self, model: FloatArray) -> None:
        """Take the next model, which all sites trained together; the first site of a sum adds it."""
        self._whole = model
        self._models += 1

    def check_problem(self, prior: FloatArray, price: float) -> None:
        """Raise OrderRefused for a prior where none was agreed on, or a price that is not C over a number of rows."""
        self._check_prior(prior)
        C = self._site.terms.settings.get("C", price)
        rows = round(C / price) if 0 < price < math.inf else 0
        if not math.isclose(price * rows, C):
            raise OrderRefused(f"price must be C = {C:g} over the number of rows, got {price:g}")
        self._priors, self._rows_of_all = np.broadcast_to(prior, (len(self._site.labels), prior.shape[-1])), rows

    def _check_prior(self, prior: FloatArray) -> None:
        """Raise OrderRefused for a prior where none was agreed on."""
        if prior.any():
            self._site.check_agreed(prior="public")

    @step(
        remembered=True,
        told={
            "prior": CHECKED,
            "C, tolerance": AGREED,
            "rows": free("a whole number", "a model on another scale, with the noise of that scale"),
        },
    )
    def train_alone(self, prior: FloatArray, C: float, tolerance: float, rows: int) -> None:
        """Compute this site's own minimizer, weighted by its share of all rows. Raises StepRefused if it is not
        reached."""
        self._check_prior(prior)
        own, priors = len(self._rows.features), np.atleast_2d(prior)
        self._priors, self._rows_of_all = priors, rows
        part = np.zeros(prior.size)
        if own:
            stopping, models = StoppingRule(tolerance, _MAX_ITERATIONS), []
            for labels, of_class in zip(self._site.labels, priors, strict=True):
                solution = minimize(self._rows.features, labels, of_class, C / own, stopping)
                if not solution.converged:
                    raise StepRefused(f"training did not reach tolerance {tolerance:g}; raise algorithm.tolerance")
                models.append(own / rows * (of_class + solution.w))
            part = np.concatenate(models)
        self.take(part)

    @step(
        bound=math.inf,
        told={
            "joint": CHECKED,
        },
    )
    def own_part(self, joint: bool) -> FloatArray:
        """Return the (K 2 D,) this site's part of the model, without noise; of a joint one, all of it at the first
        site.

        Raises StepRefused where that site was restarted, and has lost it, OrderRefused where it is not as agreed.
        """
        self._site.check_agreed(variant="joint" if joint else "one-shot")
        if not joint:
            return self._part
        if self._site.channel.sites[0] != self._site.site:
            return np.zeros(self._size)
        if self._whole is None:
            raise StepRefused("the site that was to release the model lost it when it was restarted; run again")
        return self._whole

    @property
    def _size(self) -> int:
        """Weights of all models."""
        return int(self._rows.features.shape[1] * len(self._site.labels))

    @step(
        bound=math.inf,
        noisy=True,
        told={
            "release": free("a whole number", "one more release, which is charged"),
            "lattice, mechanism, steps, shares, joint": CHECKED,
            "with_model": free("true or false", "noise without a model"),
        },
    )
    def noisy_part(
        self,
        release: int,
        lattice: float,
        mechanism: str,
        steps: int,
        shares: int,
        with_model: bool,
        joint: bool,
    ) -> FloatArray:
        """Return the (K 2 D,) share of the noise, added to this site's part of the model if requested, on the lattice.

        A release has one share, however often it is summed for it, and by whatever process of this site: who saw a sum
        that got lost, as the first site of a ring does, sees the same again. Of anything else, be it over other sites,
        on another lattice or of another model, there is another share: two sums with the same differ by no noise. The
        run agreed on one release for a set of features, and on as many sets as it trains models; each release beyond
        that is charged, whatever the coordinator says of it.

        Raises OrderRefused for a model with less noise than the agreed epsilon needs; see `_check_noise`.
        """
        self._site.check_agreed(mechanism=mechanism, variant="joint" if joint else "one-shot")
        if self._noise_key is None:
            raise StepRefused("it has no features, and no key for its noise yet")
        asked = [release, self._site.channel.sites, lattice, mechanism, steps, shares, with_model, joint, self._models]
        share_of, size = json.dumps(asked), self._size
        if with_model:
            self._check_noise(mechanism, lattice, steps, shares)
        part = np.rint(self.own_part(joint) / lattice) if with_model else np.zeros(size)
        if with_model and share_of not in self._summed:
            if self._summed or self._releases >= self._agreed_models:
                self._site.charge_again()
            self._releases += not self._summed
            self._summed |= {share_of}
        source = KeyedRandom(hmac.digest(self._noise_key, share_of.encode(), "sha256"))
        share = (
            gaussian_share(Fraction(steps) ** 2, shares, size, source)
            if mechanism == "gaussian"
            else laplace_share(steps, shares, size, source)
        )
        return np.asarray((part + share) * lattice)

    def _check_noise(self, mechanism: str, lattice: float, steps: int, shares: int) -> None:
        """Raise OrderRefused for less noise than the epsilon that this site charges needs, for the last model.

        One row moves the model by 2C/n, for the n that it was trained with, whatever the coordinator says of n. All of
        the noise must be there without the share of one site, by the fewest sites that the run goes on with.
        """
        charged = self._site.terms.epsilon
        if charged is None:  # of a run that promises its sites nothing
            return
        settings = HybridSettings(**self._site.terms.settings)
        if settings.mechanism != mechanism or settings.epsilon * self._agreed_models > charged * (1 + _NOISE_ROUNDING):
            raise OrderRefused("the agreed settings must say the mechanism, and the epsilon that this site charges")
        most = max(1, min(len(self._site.channel.sites), self._site.terms.min_sites) - 1)
        if type(shares) is not int or not 1 <= shares <= most:
            raise OrderRefused(f"shares must be from 1 to {most}, one less than min_sites, got {shares!r}")
        if self._rows_of_all < max(1, len(self._rows.features)):
            raise OrderRefused(
                f"rows must be those of all sites, and {len(self._rows.features)} or more, as many as here"
            )
        needed = _noise(settings, self._priors, self._rows_of_all, shares)
        if needed is None or not math.isclose(lattice, needed.step) or steps < needed.steps * (1 - _NOISE_ROUNDING):
            scale = needed.scale if needed else math.inf
            raise OrderRefused(f"noise must have the scale {scale:g} that epsilon needs, got {steps * lattice:g}")

    @property
    def _agreed_models(self) -> int:
        """Return the number of models of the run: one for each fold."""
        return max(1, agreed_folds(self._site.terms.reading))


class HybridSite(PubliclyScaledSite):
    """The site half: rows in the agreed frequencies, the parts of both solvers, and the release."""

    part_types = (
        *PubliclyScaledSite.part_types,
        FeatureRows,
        ModelRelease,
        NewtonPath,
        HingeCuts,
        JointHingeCuts,
    )
    libraries = ("scipy.optimize", "scipy.special")  # for the noise that epsilon needs

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.mapped = FeatureRows()
        self.release = ModelRelease(self, self.mapped)
        self.path = NewtonPath(self, self.mapped, RowWeights(self), self.release.check_problem)
        self.hinge = HingeCuts(self, self.mapped)
        self.joint = JointHingeCuts(self, self.mapped)

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `HybridSvm.fit`: training by the agreed variant and solver, and one release."""
        trained = stage("row_count", "receive_frequencies", _training(terms))
        return each_private_model(terms, trained, _release_script(terms))

    @step(
        remembered=True,
        told={
            "rho": free(
                "as many frequencies as agreed", "features of its choice, whose noise the site computes all the same"
            ),
        },
    )
    def receive_frequencies(self, rho: FloatArray) -> None:
        """Map this site's rows, whose features never leave it, and draw the key of its noise."""
        self.check_agreed(features=len(rho))
        self.mapped.place(paired_features(self.rows, rho))
        self.release.begin(drawn_key(self.channel))

    @step(
        told={
            "keep": free("0 or 1 of each problem", "the last point in place of the best one, which is nearly the same"),
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

    def is_private(self, settings: HybridSettings) -> bool:
        """Return True with any mechanism."""
        return settings.privacy is not None

    def problems(self, settings: HybridSettings, outline: Outline) -> Iterator[str]:
        """Yield what the mechanism, the public rows and the budget do not allow."""
        if settings.mechanism == "gaussian" and settings.delta is None:
            yield 'delta: must be given with mechanism = "gaussian": a number above 0 and below 1'
        if settings.mechanism != "gaussian" and settings.delta is not None:
            yield f'delta: applies only to mechanism = "gaussian", got {settings.delta!r}; remove it'
        if settings.masking == "committee":
            yield 'masking: must be "congruence", "orthogonal" or "none" here; "committee" is for pan-svm'
        if settings.solver == "auto":
            yield 'solver: must be "interior-point" or "cutting-plane" here, since the promise says what they show'
        if settings.multiclass == "joint" and settings.solver != "cutting-plane":
            yield f'multiclass: "joint" needs solver = "cutting-plane", {CUTS_SHOW}'
        if settings.multiclass == "joint" and settings.variant == "one-shot":
            yield 'multiclass: "joint" needs variant = "joint"; with one-shot use "ovr"'
        yield from pairs_problem(settings.features, outline.public_rows)
        yield from settings.budget_problems(outline.models, settings.delta or 0.0, private=settings.privacy is not None)

    def train_pooled(self, model: HybridModel, settings: HybridSettings, rows: EvaluationRows) -> Pooled:
        """Return the minimizer on all private rows together, in the same features and without noise, and the exact
        kernel."""
        weights, objective = pooled_minimiser(model.rho, model.prior, settings, rows.train)
        sigma, classes = settings.sigma_of(model.rho.shape[1]), len(rows.classes)
        return Pooled(
            scores=scores_of(model.features(rows.test.rows) @ weights.T, jointly=model.jointly),
            objective=objective,
            exact=_rbf_scores(settings.C / len(rows.train.labels), sigma, rows.train, rows.test.rows, classes),
        )

    def class_problems(self, settings: HybridSettings, classes: tuple[str, ...]) -> Iterator[str]:
        """Yield an error for cutting planes with several problems."""
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
        noise = _noise(settings, np.zeros((problems, 2 * settings.features)), rows, shares=1)
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

        Only a simulation can have the last two beside the model: each would be a release of its own.
        """
        public, train, test = rows.public, rows.train, rows.test.rows
        alone = self.public_baseline(model, settings, rows)
        if public is None or alone is None:
            raise ValueError("baselines need the public rows, got none")
        sigma = settings.sigma_of(model.rho.shape[1])
        random = np.random.default_rng([seed, 6])
        frequencies = choose_frequencies(public.rows, settings.features, sigma, "random", random)
        exact, _ = pooled_minimiser(frequencies.rho, np.zeros_like(model.prior), settings, train)
        own, _ = pooled_minimiser(model.rho, model.prior, settings, train)
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


def pooled_minimiser(
    rho: FloatArray, prior: FloatArray, settings: HybridSettings, train: LabeledRows
) -> tuple[FloatArray, float]:
    """Return weights, of the prior's shape, and objective on all rows together, summed over several problems."""
    features, labels = paired_features(train.rows, rho), train.labels
    stopping, C = StoppingRule(settings.tolerance, settings.max_iterations), settings.C / len(train.labels)
    if prior.ndim == 1:
        solution = minimize(features, labels, prior, C, stopping)
        return prior + solution.w, solution.objective
    against_rest = one_against_rest(labels, len(prior))
    if settings.is_joint(len(prior)):
        solution = minimised_jointly(features, members(against_rest), prior, C, stopping)
        return prior + solution.w.reshape(prior.shape), solution.objective
    problems = zip(against_rest, prior, strict=True)
    found = [minimize(features, signs, of_class, C, stopping) for signs, of_class in problems]
    return prior + np.stack([each.w for each in found]), sum(each.objective for each in found)


def _rbf_scores(C: float, sigma: float, train: LabeledRows, test: FloatArray, classes: int) -> FloatArray:
    kernel = Kernel("rbf", 1 / sigma**2)
    return libsvm.against_others(
        lambda labels: libsvm.kernel(kernel, train.rows, labels, C), train.labels, classes, test
    )


# Training.


def train(federation: Federation, settings: HybridSettings, task: PublicTask) -> HybridModel:
    """Train on the rows that the sites hold ready, and release the model.

    Raises FederationError where the budget has no room, before private rows are touched.
    """
    privacy, public = settings.privacy, task.public
    if privacy is not None:
        task.accountant.check_budget(privacy.epsilon, privacy.delta)
    random = np.random.default_rng([task.seed, 4])
    sigma = settings.sigma_of(public.rows.shape[1])
    frequencies = choose_frequencies(public.rows, settings.features, sigma, settings.fit_to, random)
    prior = np.zeros((task.problems, 2 * settings.features))
    if settings.prior == "public":
        features = frequencies.features(public.rows)
        problems = one_against_rest(public.labels, task.classes)
        prior = np.stack([public_weights(features, labels, random) for labels in problems])
    prior = prior[0] if task.classes == 2 else prior

    def stage() -> tuple[int, _Trained]:
        count = sum(count_rows(federation).values())  # the number of private rows is public
        federation.run("receive_frequencies", remember=True, rho=frequencies.rho)
        return count, _train(federation, settings, prior, count)

    count, trained = federation.until_stable(stage)
    noise = _noise(settings, prior, count, task.noise_shares)
    if noise is not None:  # before anything is revealed, with the delta that shares add
        task.accountant.spend(_release(settings, noise, federation), federation.journaled_random)
    weights = _released(federation, settings, trained, noise, task.accountant, prior.size)
    jointly = settings.is_joint(task.problems)
    training = _report(frequencies, trained if noise is None else None, prior, federation.sites, jointly=jointly)
    return HybridModel(frequencies.rho, weights.reshape(prior.shape), prior, noise, training, jointly)


def _report(
    frequencies: Frequencies, trained: _Trained | None, prior: FloatArray, sites: tuple[str, ...], *, jointly: bool
) -> TrainingReport:
    """Return the training report. trained: None if noise does not cover the course of training."""
    known = trained.certificates if trained is not None else ()
    of_classes = f", {len(prior)} problems, each class against the others" if prior.ndim > 1 else ""
    of_classes = f", 1 joint problem of {len(prior)} classes" if jointly else of_classes
    return TrainingReport(
        sites=sites,
        description=f"{prior.shape[-1]} features{of_classes}",
        objective=sum(each.objective for each in known) if known else None,
        lower_bound=sum(each.lower_bound for each in known) if known else None,
        gap=max(each.gap for each in known) if known else None,
        iterations=max(each.iterations for each in known) if known else None,
        gaps=tuple(each.gap for each in known) if len(known) > 1 else (),
        figures={
            "frequencies": len(frequencies.rho),
            "rank": prior.size,
            "fit_error_as_drawn": frequencies.error_as_drawn,
            "fit_error": frequencies.error,
        },
    )


@dataclass(frozen=True)
class _Trained:
    """The result of training.

    certificates: one for each problem, none where each site has its own. weights (2 D,): None where only sites have
    them, each a part of its own or all of them the whole.
    """

    certificates: tuple[Certificate, ...]
    weights: FloatArray | None


def _train(federation: Federation, settings: HybridSettings, prior: FloatArray, rows: int) -> _Trained:
    """Return the minimizer over all rows. Raises FederationError if it is not reached."""
    if settings.variant == "one-shot":
        terms: dict[str, Any] = {"C": settings.C, "tolerance": settings.tolerance, "rows": rows}
        federation.run("train_alone", remember=True, prior=prior, **terms)
        return _Trained((), None)
    by = _by_interior_point if settings.solver == "interior-point" else _by_cutting_planes
    trained = by(federation, settings, prior, rows)
    if short := [each for each in trained.certificates if not each.converged]:
        raise FederationError(
            f"Training did not reach the gap of {settings.tolerance:g} that noise is sized for in "
            f"{short[0].iterations} iterations; nothing is released. Raise algorithm.tolerance, or "
            "algorithm.max_iterations."
        )
    return trained


def _note(federation: Federation, settings: HybridSettings, iteration: int, found: Sequence[Certificate]) -> None:
    if settings.privacy is None:  # otherwise nothing is recorded that noise does not cover
        worst = max(found, key=lambda certificate: certificate.gap)
        federation.log_metrics(iteration=iteration, objective=worst.objective, gap=worst.gap)


def _by_interior_point(federation: Federation, settings: HybridSettings, prior: FloatArray, rows: int) -> _Trained:
    """Train so that the sites have the minimizer in the end, and the coordinator does not. C/n counts these sites."""
    counted, problems = federation.sites, len(np.atleast_2d(prior))
    path = FederatedPath(
        federation,
        problems=problems,
        classes=max(2, problems),
        prior=prior,
        price=settings.C / rows,
        intercept=False,
        masking=settings.masking,
        target=1.0 + _longest(prior),
    )
    if federation.sites != counted:
        raise MembershipChanged
    outcomes = interior_point.solve(
        path,
        problems=problems,
        dimensions=path.dimensions,
        intercept=False,
        stopping=StoppingRule(settings.tolerance, settings.max_iterations),
        step_noise=settings.step_noise_among(federation.sites),
        on_iteration=functools.partial(_note, federation, settings),
    )
    keep, constants = choose_points(outcomes)
    federation.run("take_best", keep=keep, constants=constants)
    return _Trained(tuple(outcome.certificate for outcome in outcomes), None)


def _longest(prior: FloatArray) -> float:
    """Return the length of the longest of the problems' priors."""
    return max(float(np.linalg.norm(each)) for each in np.atleast_2d(prior))


def _by_cutting_planes(federation: Federation, settings: HybridSettings, prior: FloatArray, rows: int) -> _Trained:
    groups, lengths = settings.cut_groups, float(rows) * (1 + 1e-9)
    if prior.ndim > 1:
        federation.run("deal_joint_groups", remember=True, groups=groups, intercept=False)
        oracle: Oracle = JointOracle(federation, groups, rows, norm_sum=lengths)
    else:
        federation.run("deal_groups", remember=True, groups=groups)
        oracle = FederatedOracle(federation, groups, rows, norm_sum=lengths)
    (solution,) = cutting_plane.solve(
        _Shifted(oracle, prior.ravel()),
        problems=1,
        dimensions=prior.size,
        groups=settings.cut_groups,
        C=settings.C / rows,
        stopping=StoppingRule(settings.tolerance, settings.max_iterations),
        search=grid_search,
        on_iteration=functools.partial(_note, federation, settings),
        intercept=False,
    )
    return _Trained((solution,), prior.ravel() + solution.w)


def minimised_jointly(
    features: FloatArray, classes: FloatArray, prior: FloatArray, C: float, stopping: StoppingRule
) -> Solution:
    """Return the minimum for the joint hinge of K classes, over V (K m,), by cutting planes on local rows.

    features (n, m), classes (K, n) of 0 and 1, prior (K, m).
    """
    groups = min(len(features), _POOLED_GROUPS)
    members = groups_of(len(features), groups, np.random.default_rng(0))
    (solution,) = cutting_plane.solve(
        _Shifted(JointSums(features, classes, members), prior.ravel()),
        problems=1,
        dimensions=prior.size,
        groups=groups,
        C=C,
        stopping=stopping,
        search=grid_search,
        on_iteration=lambda iteration, solutions: None,
        intercept=False,
    )
    return solution


def minimize(features: FloatArray, labels: FloatArray, prior: FloatArray, C: float, stopping: StoppingRule) -> Solution:
    """Return the minimum over v of 1/2 |v|^2 + C sum of hinge losses at prior + v, without intercept, on local rows.

    features (n, m), labels (n,) of +1 and -1, prior (m,).
    """
    (solution,) = solve_pooled([Problem.of(features, labels, C, prior=prior, lever=0.0)], stopping)
    return solution


@dataclass(frozen=True)
class _Shifted:
    """The sums of an oracle around a prior: its losses at v are those at prior + v."""

    oracle: Oracle
    prior: FloatArray

    def cuts(self, problems: IntArray, at: Points) -> FloatArray:
        cuts = self.oracle.cuts(problems, replace(at, w=at.w + self.prior))
        cuts[..., -1] -= cuts[..., :-2] @ self.prior
        return cuts

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        return self.oracle.line(problems, replace(line, w=line.w + self.prior))


# Noise.


def _noise(settings: HybridSettings, prior: FloatArray, rows: int, shares: int) -> Noise | None:
    """Return noise for the weights.

    The objective at the prior is at most C (1 + |w0|), so the tolerance bounds the gap, whatever the rows are. In
    `one-shot` it is the same at every site, and counts n_s/n there; the largest share counts as all.
    """
    if settings.privacy is None:
        return None
    sensitivity = (4.0 if settings.sensitivity == "paper" else 2.0) * settings.C / rows
    jointly = settings.is_joint(len(np.atleast_2d(prior)))
    longest = math.sqrt(2) * float(np.linalg.norm(prior)) if jointly else _longest(prior)
    gap = settings.tolerance * settings.C * (1.0 + longest)
    return noise_of(settings.privacy, prior, sensitivity, gap, shares, jointly=jointly)


def noise_of(
    privacy: PrivacyParameters,
    models: FloatArray,
    sensitivity: float,
    gap: float,
    shares: int = 1,
    *,
    jointly: bool = False,
) -> Noise:
    """Return noise for one model (m,) or for K of them together (K, m), all of which one row moves.

    sensitivity, gap: of each; see `noise_for`. The sum of K 1-strongly convex objectives of different weights is so in
    all of them, and K times as far from its minimum at most; movements of K vectors by s are one by sqrt(K) s. jointly:
    they are those of one objective, whose loss has a slope of sqrt(2) for 1.
    """
    if jointly:
        return noise_for(privacy, models.size, math.sqrt(2) * sensitivity, gap, shares)
    several = len(np.atleast_2d(models))
    return noise_for(privacy, models.size, math.sqrt(several) * sensitivity, several * gap, shares)


def _released(
    federation: Federation,
    settings: HybridSettings,
    trained: _Trained,
    noise: Noise | None,
    accountant: PrivacyAccountant,
    size: int,
) -> FloatArray:
    """Return the model with its noise.

    Some site may have seen a sum that got lost, and summed again it shows nothing new: sites keep their shares of the
    noise. Where sites left or joined meanwhile, models and shares are others, and it is one more release.
    """
    shape, weights = (size,), trained.weights
    joint = settings.variant == "joint"
    if noise is None or not noise.is_divisible:
        exact = federation.sum("own_part", shape=shape, bound=math.inf, joint=joint) if weights is None else weights
        if noise is None:
            return exact
        released: FloatArray = federation.journaled_random("the released weights", lambda: noise.released(exact))
        return released
    terms: dict[str, Any] = {"lattice": noise.step, "mechanism": noise.privacy.mechanism, "steps": noise.steps}
    terms |= {"shares": noise.shares, "with_model": weights is None, "joint": joint}

    def once_more() -> dict[str, Any]:
        if weights is None:  # else the sum is of noise alone
            accountant.spend(
                replace(accountant.releases[-1], what="weights of the model, summed again over other sites"),
                federation.journaled_random,
            )
        return {"release": len(accountant.releases)}

    terms |= {"release": len(accountant.releases)}
    noisy: FloatArray = federation.sum(
        "noisy_part", shape=shape, bound=math.inf, on_membership_change=once_more, **terms
    )
    return noisy if weights is None else noise.on_lattice(weights) + noisy


def _release(settings: HybridSettings, noise: Noise, federation: Federation) -> Release:
    alone = noise.share_epsilon if settings.variant == "one-shot" and noise.is_divisible else None
    return Release(
        what="weights of the model",
        epsilon=noise.privacy.epsilon,
        delta=noise.delta,
        mechanism=noise.privacy.mechanism,
        sensitivity=noise.sensitivity,
        noise_scale=noise.scale,
        protects_against=("everyone who gets the model", *_protected(settings, noise, federation)),
        drawn_by=noise.drawn_by,
        lattice=noise.step,
        share_epsilon=alone,
    )


def _protected(settings: HybridSettings, noise: Noise, federation: Federation) -> Iterator[str]:
    """Yield from whom, besides recipients of the model, the noise protects private rows, and how far.

    Who knows the shares of some sites has less of the noise against it, and who isolates a site's part has only that
    site's share.
    """
    if settings.variant == "joint" and settings.solver == "cutting-plane":
        yield "not the coordinator and the sites, which saw it trained"
    elif settings.variant == "joint":
        yield "not the sites, which saw it trained, nor the coordinator, which saw figures of every step"
    elif not noise.is_divisible:
        yield "not the coordinator, which saw it without noise"
    elif federation.shows_inputs and noise.shares > 1:
        yield f"the coordinator, which saw each site's part with its share of the noise alone, to {_alone(noise)} only"
    else:
        yield "the coordinator, and every site but the row's own"
        spared = federation.membership.policy.min_sites - noise.shares
        if noise.shares > 1:
            several = max(1, min(federation.isolating_sites, spared + 1))
            who = "another site alone" if several == 1 else f"{several} sites or more together"
            yield f"{who}, which may be left with one site's share of the noise, to {_alone(noise)} only"


def _alone(noise: Noise) -> str:
    return f"epsilon {noise.share_epsilon:.3g}"


# What public rows decide.


def public_weights(features: FloatArray, labels: FloatArray, random: np.random.Generator) -> FloatArray:
    """Return (2 D,) the model of public rows alone, with the penalty chosen by cross-validation on them."""
    dealt = random.permutation(len(labels)) % _PRIOR_FOLDS
    losses = [
        sum(_held_out_loss(features, labels, dealt == fold, penalty) for fold in range(_PRIOR_FOLDS))
        for penalty in C_GRID
    ]
    return _public_model(features, labels, C_GRID[int(np.argmin(losses))])


def _held_out_loss(features: FloatArray, labels: FloatArray, held_out: np.ndarray, penalty: float) -> float:
    if held_out.all() or not held_out.any():
        return 0.0
    weights = _public_model(features[~held_out], labels[~held_out], penalty)
    return float(np.maximum(0.0, 1.0 - labels[held_out] * (features[held_out] @ weights)).sum())


def _public_model(features: FloatArray, labels: FloatArray, penalty: float) -> FloatArray:
    nothing = np.zeros(features.shape[1])
    return minimize(features, labels, nothing, penalty, StoppingRule(_PRIOR_TOLERANCE, _MAX_ITERATIONS)).w
