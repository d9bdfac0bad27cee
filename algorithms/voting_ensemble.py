"""A vote of SVMs that every site trains on its own rows alone (Kim and others 2002; Lu 2016, section 3.3.2.3).

In features that all sites share, site i trains the linear SVM of its own rows, to the same penalty and by the same
solver as PAN-SVM, and hears of no other site. A row's decision value is the mean of the sites' votes,

    f(x) = 1/N sum_i sign(w_i.f(x) + b_i),

where 0 counts as +1; a site of one class votes for it, and one without rows abstains. Of more than two classes a site
trains each against the others and votes for that of the largest value; a class's decision value is its share of the
votes less 1/2. The dissertation's sites train
LIBSVM with the kernel itself, and pass their models on: such a model consists of support vectors, which are records.
In shared features a model is a vector. It is still of one site's rows alone, and so says more of them than a model of
all rows would:

release = "everyone"  the coordinator learns all models, each in a place of a table that does not show whose it is.
release = "sites"     each site keeps its model in a file of its own. To classify rows they are shown to all sites, and
                      one secure sum adds up the votes: the coordinator learns these, and no model. Votes on rows of
                      its choice are a view of the models all the same: as many as it likes, but sums over sites.

Averaging values in place of votes is worse where sites differ (65.7 % against 80.9 % on fourclass by feature).

References
----------
H.-C. Kim, S. Pang, H.-M. Je, D. Kim and S.-Y. Bang, "Support vector machine ensemble with bagging", SVM 2002.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Arrays, Model, TrainingReport
from fedsvm.algorithms.data.horizontal import each_model, preparation
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.features.choice import Features, FeatureSettings, read_map
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.mapped_rows import map_rows, mapping
from fedsvm.algorithms.leakage import LISTED, Recovery, WholeRunLeakage
from fedsvm.algorithms.mapped_site import MappedAlgorithm, MappedSite
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.path_sums import Release
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.pooled import EvaluationRows, Pooled
from fedsvm.algorithms.remarks import Remark
from fedsvm.algorithms.settings import HingePenalty, doc
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.private_file import replace_private
from fedsvm.federation.site.program import AGREED, free, step
from fedsvm.federation.site.script import Script, maybe, seq, stage
from fedsvm.federation.site.terms import Terms
from fedsvm.protocols.secret_order import secret_order

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import Attack

_STOPPING = StoppingRule(tolerance=1e-6, max_iterations=200)

SITE_MODELS = "the model of every site, of its own rows alone, and not whose it is"
VOTES = "how many sites vote for +1, of each row that is asked about"


@dataclass
class EnsembleSettings(FeatureSettings):
    """The settings of a user."""

    C: HingePenalty = 1.0
    release: Annotated[Release, doc("Who receives the sites' models: the coordinator, or each site only its own.")] = (
        "everyone"
    )


@dataclass(frozen=True)
class EnsembleModel(Model):
    """The sites' models (N, m + 1), weights and intercept, in the features of a map; of more classes (N, K, m + 1).

    None where the sites keep them.
    """

    feature_map: FeatureMap
    models: FloatArray | None
    training: TrainingReport | None = None
    classes: int = 2

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) mean votes for scaled rows (n, p); for more than two classes (n, K) shares of votes, minus
        1/2."""
        if self.models is None:
            raise ValueError("the models are with the sites; read them together with their files")
        features = self.feature_map(rows)
        if self.models.ndim == 2:
            return np.asarray(votes(self.models, features).mean(axis=0))
        return np.asarray(np.mean([ballots(each, features) for each in self.models], axis=0).T - 0.5)

    @property
    def kept_by_sites(self) -> bool:
        """True if only the sites have the models."""
        return self.models is None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the file, with those of the feature map.

        Returns
        -------
        models : (N, m + 1) or (N, K, m + 1)
            Weights and intercept of the model of each site. Of two classes the signs are added up; of more, the
            largest value of each site is a vote. Absent if the sites keep their models.
        """
        return {**self.feature_map.to_arrays(), **({} if self.models is None else {"models": self.models})}

    @classmethod
    def from_arrays(cls, arrays: Arrays, parts: Sequence[Arrays] = ()) -> Self:
        """Return the model in a file, or in those of the sites."""
        models = arrays["models"] if "models" in arrays else np.vstack([part["models"] for part in parts])
        return cls(read_map(arrays), models)


def votes(models: FloatArray, features: FloatArray) -> FloatArray:
    """Return (N, n) votes +1 and -1 of models (N, m + 1) for features (n, m)."""
    return np.where(models[:, :-1] @ features.T + models[:, -1:] >= 0, 1.0, -1.0)


def ballots(models: FloatArray, features: FloatArray) -> FloatArray:
    """Return (K, n) 1 for the class of the largest value and 0 for others, by a site's models (K, m + 1)."""
    values = models[:, :-1] @ features.T + models[:, -1:]
    return np.asarray(np.equal.outer(np.arange(len(models)), values.argmax(axis=0)), dtype=np.float64)


class EnsembleSite(MappedSite):
    """The site half. models: (K, m + 1) of K problems, of its own rows; None where it has none."""

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.models: FloatArray | None = None

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `VotingEnsemble.fit`, and of votes where the sites keep their models."""
        if terms.settings["release"] == "sites":
            ends: tuple[Script | str, ...] = ("keep_model",)
        else:
            ends = ("agree_secret", "model_table")
        trained = stage(preparation(terms), mapping(terms), "train_alone", *ends)
        voted = maybe("cast_votes") if terms.settings["release"] == "sites" else seq()
        return each_model(terms, trained, voted)

    @step(
        remembered=True,
        told={
            "C": AGREED,
        },
    )
    def train_alone(self, C: float) -> None:
        """Train on this site's rows."""
        problems = [Problem.of(self.mapped.features, labels, C) for labels in self.labels]
        found = solve_pooled(problems, _STOPPING) if len(self.mapped.features) else []
        self.models = np.stack([np.append(each.w, each.b) for each in found]) if found else None

    @step(bound=math.inf)
    def model_table(self) -> FloatArray:
        """Return the (N, K (m + 1) + 1) this site's models in a place that only the sites know, with a 1 that marks
        it."""
        sites = self.channel.sites
        table = np.zeros((len(sites), len(self.labels) * (self.mapped.features.shape[1] + 1) + 1))
        if self.models is not None:
            place = secret_order(self.secret, "models", len(sites))[sites.index(self.site)]
            table[place] = np.append(self.models, 1.0)
        return table

    @step(remembered=True)
    def keep_model(self) -> None:
        """Write the models to this site's own file, `model_path` of its settings."""
        if not (path := self.settings.get("model_path")):
            raise StepRefused('a site has no file to keep a model in; use algorithm.release = "everyone"')
        problems, length = len(self.labels), self.mapped.features.shape[1] + 1
        models = np.zeros((0, problems, length)) if self.models is None else self.models[None]
        kept = models.reshape(-1, length) if problems == 1 else models
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - see replace_private
        replace_private(path, lambda file: np.savez(file, models=kept))

    @step(
        told={
            "rows": free("any rows", "votes on rows of its choice, which describe the models that sites keep"),
        }
    )
    def cast_votes(self, rows: FloatArray) -> FloatArray:
        """Return the (K + 1, n) this site's votes for scaled rows (n, p), for +1 or each of more classes, and 1 if it
        has any."""
        if self.models is None:
            return np.zeros((len(self.labels) + 1, len(rows)))
        cast = votes if len(self.models) == 1 else ballots
        return np.vstack([cast(self.models, self.mapped.map(rows)), np.ones(len(rows))])


class VotingEnsemble(MappedAlgorithm[EnsembleSettings, EnsembleModel]):
    """A vote of linear SVMs in common features, each of one site's rows alone (Kim and others 2002)."""

    name = "voting-ensemble"
    estimator = "VotingEnsembleClassifier"
    phases = ("setup", "landmarks", "train", "evaluate")
    Settings, Site, Model = EnsembleSettings, EnsembleSite, EnsembleModel
    figures = {
        **MappedAlgorithm.figures,
        "models": "that vote",
    }
    multiclass = True

    def fit(self, federation: Federation, task: HorizontalTask, settings: EnsembleSettings) -> EnsembleModel:
        """Map the rows, have every site train alone, and gather the models, or leave them where they are."""

        def stage() -> tuple[Features, FloatArray | None]:
            features = map_rows(federation, settings, task.prepare(federation), task.seed)
            with federation.phase("train"):
                federation.run("train_alone", remember=True, C=settings.C)
                if settings.release == "sites":
                    federation.run("keep_model", remember=True)
                    return features, None
                federation.run("agree_secret")
                shape = (len(federation.sites), task.problems * (features.map.dimensions + 1) + 1)
                return features, federation.sum("model_table", shape=shape, bound=math.inf)

        features, table = federation.until_stable(stage)
        models = None
        if table is not None:
            federation.disclose("coordinator", "model_table", SITE_MODELS, table.shape)
            models = table[table[:, -1] > 0.5, :-1]
            models = models if task.problems == 1 else models.reshape(len(models), task.problems, -1)
        voting = len(federation.sites) if models is None else len(models)
        report = TrainingReport(
            federation.sites,
            f"{voting} votes, {features.description}",
            figures={**features.figures, "models": voting},
            remarks=tuple(Remark(name, sentence) for name, sentence in features.remarks.items()),
        )
        return EnsembleModel(features.map, models, report, len(task.classes))

    def score(self, federation: Federation, model: EnsembleModel, rows: FloatArray) -> FloatArray | None:
        """Return the mean of the sites' votes by a secure sum, if they keep their models; otherwise None."""
        if not model.kept_by_sites:
            return None
        federation.disclose("coordinator", "cast_votes", VOTES, (len(rows),))
        problems = 1 if model.classes == 2 else model.classes
        found = federation.sum("cast_votes", shape=(problems + 1, len(rows)), bound=len(federation.sites), rows=rows)
        cast, voters = np.rint(found[:-1]), np.maximum(1.0, np.rint(found[-1]))
        return np.asarray(cast[0] / voters if problems == 1 else (cast / voters).T - 0.5)

    def train_pooled(self, model: EnsembleModel, settings: EnsembleSettings, rows: EvaluationRows) -> Pooled:
        """Train one SVM on all rows, in the same features and with the exact kernel."""
        train, test, classes = model.feature_map(rows.train.rows), model.feature_map(rows.test.rows), len(rows.classes)
        scores = libsvm.against_others(
            lambda labels: libsvm.linear(train, labels, settings.C), rows.train.labels, classes, test
        )
        exact = libsvm.exact_scores(model.feature_map, settings.C, rows.train, rows.test.rows, classes)
        return Pooled(scores, exact=exact)

    def whole_run(self, settings: EnsembleSettings) -> WholeRunLeakage | None:
        """Return what released models of the sites give away; no attack is on their votes."""
        with_site, alone = (settings.landmark_rows(with_site=site) for site in (True, False))
        if settings.release == "everyone":
            found = Recovery("some rows", LISTED, with_site)
            return WholeRunLeakage(found, Recovery("some rows", LISTED, alone), support_named=True)
        return WholeRunLeakage(Recovery(with_site), Recovery(alone)) if with_site and alone else None

    def attacks(self, settings: EnsembleSettings) -> list[Attack]:
        """Return the attacks on landmarks, and on each site's model."""
        from fedsvm.algorithms.attacks.cluster_rounds import ClusterRounds
        from fedsvm.algorithms.attacks.landmark_copies import LandmarkCopies
        from fedsvm.algorithms.attacks.support_rows import SiteSupportRows

        return [LandmarkCopies(), ClusterRounds(), SiteSupportRows(settings.C, _STOPPING.tolerance)]
