"""Each site's own model against the federated one, on the same test rows: the figures of a result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedsvm.algorithms.own_models import OwnCounts
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.run import measuring
from fedsvm.scenarios.run.gains import BOUNDS, Gain, gain_over, mean_gain
from fedsvm.scenarios.run.intervals import (
    Area,
    Interval,
    auc_gain_interval,
    auc_wald,
    folds_interval,
    paired_interval,
    share_interval,
)
from fedsvm.scenarios.run.metrics import Score

_SHARE = (0.0, 1.0)


@dataclass(frozen=True)
class OwnModel(Score):
    """One site's own model on the test rows of the runner.

    Attributes
    ----------
    rows : int
        The number of training rows of the site, in the last fold.
    intervals : mapping of str to Interval
        95 % confidence intervals of accuracy and AUC.
    gain : Gain, optional
        The federated model's figures minus those of this one.
    one_class : bool
        Whether all training rows are of one class in some fold. The site then predicts this class for every row, and
        means exclude it if another site has more classes.
    """

    rows: int
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    gain: Gain | None = None
    one_class: bool = False


@dataclass(frozen=True)
class OwnModels(Score):
    """The sites' own models compared with the federated one: the gain of federating on the same test rows.

    Attributes
    ----------
    accuracy, auc : float
        Means over the own models of sites with more than one class, at a threshold of 0. If sites score their own test
        rows, `accuracy` is a share of the test rows of these sites, and `auc` is the mean of the sites' AUCs, weighted
        by their test rows.
    phrase : str
        The method of the sites' own models.
    tested_by : {"runner", "sites"}
        The party that holds the test rows. The runner scores the same rows by every model; a site scores its own rows
        by its own model and the federated one.
    federated : Score
        The federated model on these rows, also at a threshold of 0 instead of a chosen one.
    accuracy_gain, auc_gain : float
        The federated model's figure minus that of the own models.
    intervals : mapping of str to Interval
        95 % confidence intervals of `accuracy`, `auc`, `accuracy_gain` and `auc_gain`. Gains are paired by row and by
        fold. Areas on sites' own test rows have no interval if no site's area has a variance.
    sites : mapping of str to OwnModel
        Each site's own model, if the runner holds the test rows.
    test_rows : int
        Number of test rows of all these models, in the last fold.
    """

    phrase: str
    tested_by: Literal["runner", "sites"]
    federated: Score
    accuracy_gain: float
    auc_gain: float | None
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    sites: Mapping[str, OwnModel] = field(default_factory=dict)
    test_rows: int = 0

    @property
    def one_class_sites(self) -> tuple[str, ...]:
        """The sites whose training rows are of one class, so that they cannot train a model alone."""
        return tuple(name for name, each in self.sites.items() if each.one_class)

    @property
    def gain(self) -> Gain:
        """The gain over the mean of the own models, with its intervals."""
        known = {name: self.intervals.get(f"{name}_gain") for name in ("accuracy", "auc")}
        found = {name: interval for name, interval in known.items() if interval is not None}
        return Gain(self.accuracy_gain, self.auc_gain, found)


def compare_own(
    phrase: str,
    decisions: FloatArray,
    labels: FloatArray,
    own: Mapping[str, tuple[int, FloatArray]],
    of_one_class: Collection[str] = (),
) -> OwnModels:
    """Return the comparison on test rows that the runner holds.

    Parameters
    ----------
    phrase : str
        The method of the own models.
    decisions : (n,) or (n, K) array
        Decision values of the federated model.
    labels : (n,) array
        +1 and -1, or class numbers for more than two classes.
    own : mapping of str to (int, array)
        The number of training rows and the decision values of each site's own model.
    of_one_class : collection of str
        The sites whose training rows are of one class. Means exclude them, unless all sites are such.
    """
    sites = {}
    for site, (rows, values) in own.items():
        measured = measuring.evaluate(values, labels)
        within = {name: measured.intervals[name] for name in ("accuracy", "auc") if name in measured.intervals}
        of_site = gain_over(decisions, [values], labels)
        sites[site] = OwnModel(measured.accuracy, measured.auc, rows, within, of_site, site in of_one_class)
    counted = [site for site in own if site not in of_one_class] or list(own)
    gain = gain_over(decisions, [own[site][1] for site in counted], labels)
    of_all = measuring.score(decisions, labels, 0.0)
    auc = None if gain.auc is None or of_all.auc is None else of_all.auc - gain.auc
    intervals = {f"{name}_gain": interval for name, interval in gain.intervals.items()}
    accuracy = of_all.accuracy - gain.accuracy
    return OwnModels(accuracy, auc, phrase, "runner", of_all, gain.accuracy, gain.auc, intervals, sites, len(labels))


def compare_counts(phrase: str, counts: OwnCounts) -> OwnModels | None:
    """Return the comparison on test rows that the sites hold; None without rows."""
    n = counts.rows
    if not n:
        return None
    federated, own = counts.federated_right / n, counts.own_right / n
    gain = federated - own
    intervals = {"accuracy_gain": paired_interval(counts.federated_right - counts.own_right, counts.differing, n)}
    if (of_own := share_interval(round(counts.own_right), round(n))) is not None:
        intervals["accuracy"] = of_own
    if (ranked := counts.ranked) <= 0:
        of_all = Score(federated, None)
        return OwnModels(own, None, phrase, "sites", of_all, gain, None, intervals, test_rows=round(n))
    auc, own_auc = counts.federated_auc / ranked, counts.own_auc / ranked
    variances = [each / ranked**2 for each in (counts.federated_variance, counts.own_variance)]
    if min(variances) > 0:
        areas = [Area(of, spread, auc_wald(of, spread)) for of, spread in zip((auc, own_auc), variances, strict=True)]
        intervals["auc"] = areas[1].interval
        intervals["auc_gain"] = auc_gain_interval(areas[0], areas[1], counts.gain_variance / ranked**2)
    of_all = Score(federated, auc)
    return OwnModels(own, own_auc, phrase, "sites", of_all, gain, auc - own_auc, intervals, test_rows=round(n))


def mean_own_models(folds: Sequence[OwnModels], folds_per_repeat: int) -> OwnModels | None:
    """Return the means over the folds, with the corrected resampled t intervals; None without folds."""
    if len(folds) < 2:
        return folds[0] if folds else None
    names = [name for name in folds[-1].sites if all(name in fold.sites for fold in folds)]
    bounds = {"accuracy": _SHARE, "auc": _SHARE, "accuracy_gain": BOUNDS, "auc_gain": BOUNDS}
    means, intervals = _means(folds, bounds, folds_per_repeat)
    federated, _ = _means([fold.federated for fold in folds], {"accuracy": _SHARE, "auc": _SHARE}, folds_per_repeat)
    sites = {}
    for name in names:
        of_site = [fold.sites[name] for fold in folds]
        found, within = _means(of_site, {"accuracy": _SHARE, "auc": _SHARE}, folds_per_repeat)
        gain = mean_gain([each.gain for each in of_site if each.gain is not None], folds_per_repeat)
        of_one_class = any(each.one_class for each in of_site)
        sites[name] = OwnModel(found["accuracy"] or 0.0, found["auc"], of_site[-1].rows, within, gain, of_one_class)
    return OwnModels(
        means["accuracy"] or 0.0,
        means["auc"],
        folds[-1].phrase,
        folds[-1].tested_by,
        Score(federated["accuracy"] or 0.0, federated["auc"]),
        means["accuracy_gain"] or 0.0,
        means["auc_gain"],
        intervals,
        sites,
        folds[-1].test_rows,
    )


def _means(
    folds: Sequence[Score], bounds: Mapping[str, tuple[float, float]], folds_per_repeat: int
) -> tuple[dict[str, float | None], dict[str, Interval]]:
    """Return the means of figures over the folds that have them, and their intervals."""
    means: dict[str, float | None] = {}
    intervals = {}
    for name, least_and_most in bounds.items():
        known = [value for fold in folds if (value := getattr(fold, name)) is not None]
        means[name] = float(np.mean(known)) if known else None
        if (interval := folds_interval(known, folds_per_repeat, least_and_most)) is not None:
            intervals[name] = interval
    return means, intervals
