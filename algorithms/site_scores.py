"""Models judged where the rows are: sites score the rows that they hold out, and secure sums count what came of it.

Counts of calls against classes are exact. Decision values, put into (-1, 1) by d / (1 + |d|), are counted in bins of
equal width; pairs of a positive and a negative row within a bin cannot be told apart, and count as half. So the AUC is
known to half the share of such pairs, which the counts themselves tell: the stated resolution.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsvm.algorithms.algorithm import Model
from fedsvm.algorithms.data.score_counts import MAX_BINS, size_of
from fedsvm.algorithms.own_models import COUNTS, OwnCounts
from fedsvm.algorithms.settings import MAX_COUNT
from fedsvm.federation.arrays import IntArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.transport.keys import COORDINATOR

DISCLOSES = (
    "how many held-out rows of each class have decision values in each of the bins, over all sites: of few rows, "
    "single rows' values to within a bin"
)


@dataclass(frozen=True)
class SiteScores:
    """The counts of the sites' held-out rows, scored by a model.

    Parameters
    ----------
    true_positive, false_positive, true_negative, false_negative : int
        Rows by what they are called and what they are.
    positive, negative : (bins,) array of int
        Rows of the classes +1 and -1, by their decision value, lowest first.
    """

    true_positive: int
    false_positive: int
    true_negative: int
    false_negative: int
    positive: IntArray
    negative: IntArray

    @property
    def rows(self) -> int:
        """The number of scored rows."""
        return int(self.positive.sum() + self.negative.sum())

    @property
    def accuracy(self) -> float:
        """Share of the rows that are called what they are."""
        return (self.true_positive + self.true_negative) / self.rows

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve, to within `auc_resolution`; None where only one class is there."""
        return _area(self.positive, self.negative)

    @property
    def auc_resolution(self) -> float | None:
        """The maximum error of `auc` caused by binning: half the share of pairs within a bin."""
        return _resolution(self.positive, self.negative)


@dataclass(frozen=True)
class ClassScores:
    """The counts of the sites' held-out rows, scored by a model of more than two classes.

    Parameters
    ----------
    table : (K, K) array of int
        Rows by their class and by what they are called.
    own, others : (K, bins) array of int
        Of each class its own rows and all others, by the class's decision value, lowest first.
    """

    table: IntArray
    own: IntArray
    others: IntArray

    @property
    def rows(self) -> int:
        """The number of scored rows."""
        return int(self.table.sum())

    @property
    def accuracy(self) -> float:
        """Share of the rows that are called what they are."""
        return float(np.trace(self.table) / self.rows)

    @property
    def auc(self) -> float | None:
        """Mean of the areas of each class against the others, to within `auc_resolution`; of those that have rows."""
        return _mean([_area(*each) for each in zip(self.own, self.others, strict=True)])

    @property
    def auc_resolution(self) -> float | None:
        """The maximum error of `auc` caused by binning: the mean of those of the areas."""
        return _mean([_resolution(*each) for each in zip(self.own, self.others, strict=True)])


def _area(positive: IntArray, negative: IntArray) -> float | None:
    """Return the area under the ROC curve from counts (bins,) by decision value; None if one of them has no rows."""
    if not (pairs := int(positive.sum()) * int(negative.sum())):
        return None
    below = np.cumsum(negative) - negative
    return float((positive * (below + negative / 2)).sum() / pairs)


def _resolution(positive: IntArray, negative: IntArray) -> float | None:
    """Return half the share of pairs within a bin."""
    pairs = int(positive.sum()) * int(negative.sum())
    return float((positive * negative).sum() / 2 / pairs) if pairs else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def score_at_sites(federation: Federation, model: Model, classes: int = 2) -> SiteScores | ClassScores:
    """Score the rows that sites hold out, at the sites, in one secure sum. Opens no phase.

    Parameters
    ----------
    federation : Federation
        Whose sites have put their rows on the common scale for this model.
    model : Model
        Goes to the sites, unless they keep it.
    classes : int, default 2
        How many the model tells apart.

    Raises
    ------
    FederationError
        A site failed, or too few are left.
    """
    threshold = model.calibrated.threshold if model.calibrated is not None else 0.0
    shape = (size_of(classes, MAX_BINS),)
    told: dict[str, Any] = {} if classes == 2 else {"classes": classes}
    counts = federation.sum(
        "score_counts",
        shape=shape,
        bound=float(MAX_COUNT),
        model=pack_model(model),
        bins=MAX_BINS,
        threshold=threshold,
        kept=model.kept_by_sites,
        **told,
    )
    federation.disclose(COORDINATOR, "score_counts", DISCLOSES, shape)
    whole = np.rint(counts).astype(np.int64)
    if classes > 2:
        by_value = whole[classes**2 :].reshape(classes, 2, MAX_BINS)
        return ClassScores(whole[: classes**2].reshape(classes, classes), by_value[:, 0], by_value[:, 1])
    tp, fp, tn, fn = whole[:4].tolist()
    return SiteScores(tp, fp, tn, fn, whole[4 : 4 + MAX_BINS], whole[4 + MAX_BINS :])


def pack_model(model: Model) -> IntArray:
    """Return the arrays of a model as the bytes of its file, (n,) uint8."""
    file = io.BytesIO()
    np.savez(file, **model.to_arrays())  # type: ignore[arg-type]
    return np.frombuffer(file.getvalue(), dtype=np.uint8)


def count_at_sites(federation: Federation, model: Model) -> OwnCounts:
    """Compare own models of the sites with the federated one, in one secure sum. Opens no phase.

    Raises
    ------
    FederationError
        A site failed, or too few are left.
    """
    found = federation.sum(
        "own_model_counts",
        shape=(COUNTS,),
        bound=math.inf,
        model=pack_model(model),
        kept=model.kept_by_sites,
    )
    whole = [*np.rint(found[:5]), *np.maximum(found[5:], 0.0)]
    return OwnCounts(*(float(each) for each in whole))
