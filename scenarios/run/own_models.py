"""Each site's own model against the federated one, on the same test rows: the figures of a result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.classes import predict_class
from fedsvm.algorithms.own_models import OwnCounts, Placements
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.run import measuring
from fedsvm.scenarios.run.intervals import Interval, auc_wald, folds_interval, normal_interval, share_interval
from fedsvm.scenarios.run.metrics import Score

_GAIN = (-1.0, 1.0)
_SHARE = (0.0, 1.0)


@dataclass(frozen=True)
class OwnModel(Score):
    """One site's own model on the test rows of the runner.

    Attributes
    ----------
    rows : int
        Rows that the site trains on; in the last fold.
    intervals : mapping of str to Interval
        95 % confidence intervals of accuracy and AUC.
    """

    rows: int
    intervals: Mapping[str, Interval] = field(default_factory=dict)


@dataclass(frozen=True)
class OwnModels(Score):
    """The sites' own models beside the federated one: what federating gains on the same test rows.

    Attributes
    ----------
    accuracy, auc : float
        Means of the sites' own models. They decide at 0. Where sites score their own test rows, `accuracy` is a share
        of all of these, and AUCs are of rows within a site, weighted by the sites' test rows.
    phrase : str
        The method of the sites' own models.
    tested_by : {"runner", "sites"}
        Who holds the test rows: the runner scores the same ones by every model, a site its own by two.
    federated : Score
        The federated model on these rows. It decides at 0 too, not at a threshold that a rule chose.
    accuracy_gain, auc_gain : float
        The federated model's figure, less that of the own models.
    intervals : mapping of str to Interval
        95 % confidence intervals of all of these, by `accuracy`, `auc`, `accuracy_gain` and `auc_gain`. Gains are
        paired by row, and by fold.
    sites : mapping of str to OwnModel
        Each site's own model, where the runner holds the test rows.
    """

    phrase: str
    tested_by: Literal["runner", "sites"]
    federated: Score
    accuracy_gain: float
    auc_gain: float | None
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    sites: Mapping[str, OwnModel] = field(default_factory=dict)


def compare_own(
    phrase: str,
    decisions: FloatArray,
    labels: FloatArray,
    own: Mapping[str, tuple[int, FloatArray]],
) -> OwnModels:
    """Return the comparison on test rows that the runner holds.

    Parameters
    ----------
    phrase : str
        The method of the own models.
    decisions : (n,) or (n, K) array
        Of the federated model.
    labels : (n,) array
        +1 and -1, or numbers of more classes.
    own : mapping of str to (int, array)
        The training rows and the decision values of each site's own model.
    """
    truth = labels > 0 if decisions.ndim == 1 else labels
    sites, of_all = {}, measuring.score(decisions, labels, 0.0)
    for site, (rows, values) in own.items():
        measured = measuring.evaluate(values, labels)
        within = {name: measured.intervals[name] for name in ("accuracy", "auc") if name in measured.intervals}
        sites[site] = OwnModel(measured.accuracy, measured.auc, rows, within)
    right = np.mean([predict_class(values) == truth for _, values in own.values()], axis=0)
    gained = (predict_class(decisions) == truth) - right
    error = float(np.std(gained, ddof=1)) / math.sqrt(len(gained)) if len(gained) > 1 else 0.0
    gain, areas = float(gained.mean()), [each.auc for each in sites.values() if each.auc is not None]
    intervals = {"accuracy_gain": normal_interval(gain, error, _GAIN)}
    auc = float(np.mean(areas)) if len(areas) == len(sites) else None
    auc_gain = None if auc is None or of_all.auc is None else of_all.auc - auc
    if auc_gain is not None and decisions.ndim == 1:
        spread = _auc_gain_error(decisions, [values for _, values in own.values()], labels > 0)
        if spread is not None:
            intervals["auc_gain"] = normal_interval(auc_gain, spread, _GAIN)
    return OwnModels(float(right.mean()), auc, phrase, "runner", of_all, gain, auc_gain, intervals, sites)


def _auc_gain_error(decisions: FloatArray, own: Sequence[FloatArray], is_positive: NDArray[np.bool_]) -> float | None:
    """Return DeLong's standard error of an AUC less the mean of others; None with fewer than two rows of a class."""
    if min(is_positive.sum(), (~is_positive).sum()) < 2:
        return None
    federated, *others = (Placements.of(np.round(each, 9), is_positive) for each in (decisions, *own))
    mean = Placements(
        np.mean([each.positive for each in others], axis=0), np.mean([each.negative for each in others], axis=0)
    )
    return math.sqrt(federated.less(mean).variance)


def compare_counts(phrase: str, counts: OwnCounts) -> OwnModels | None:
    """Return the comparison on test rows that the sites hold; None of no rows."""
    n = counts.rows
    if not n:
        return None
    federated, own = counts.federated_right / n, counts.own_right / n
    gain = federated - own
    error = math.sqrt(max(0.0, counts.differing / n - gain**2) / max(1.0, n - 1))
    intervals = {"accuracy_gain": normal_interval(gain, error, _GAIN)}
    if (of_own := share_interval(round(counts.own_right), round(n))) is not None:
        intervals["accuracy"] = of_own
    if (ranked := counts.ranked) <= 0:
        return OwnModels(own, None, phrase, "sites", Score(federated, None), gain, None, intervals)
    auc, own_auc = counts.federated_auc / ranked, counts.own_auc / ranked
    intervals["auc"] = auc_wald(own_auc, counts.own_variance / ranked**2)
    intervals["auc_gain"] = normal_interval(auc - own_auc, math.sqrt(counts.gain_variance) / ranked, _GAIN)
    return OwnModels(own, own_auc, phrase, "sites", Score(federated, auc), gain, auc - own_auc, intervals)


def mean_own_models(folds: Sequence[OwnModels], folds_per_repeat: int) -> OwnModels | None:
    """Return the means over the folds, with the corrected resampled t intervals; None without any."""
    if len(folds) < 2:
        return folds[0] if folds else None
    names = [name for name in folds[-1].sites if all(name in fold.sites for fold in folds)]
    bounds = {"accuracy": _SHARE, "auc": _SHARE, "accuracy_gain": _GAIN, "auc_gain": _GAIN}
    means, intervals = _means(folds, bounds, folds_per_repeat)
    federated, _ = _means([fold.federated for fold in folds], {"accuracy": _SHARE, "auc": _SHARE}, folds_per_repeat)
    sites = {}
    for name in names:
        of_site = [fold.sites[name] for fold in folds]
        found, within = _means(of_site, {"accuracy": _SHARE, "auc": _SHARE}, folds_per_repeat)
        sites[name] = OwnModel(found["accuracy"] or 0.0, found["auc"], of_site[-1].rows, within)
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
