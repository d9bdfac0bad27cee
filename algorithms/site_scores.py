"""Models judged where the rows are: sites score the rows that they hold out, and secure sums count what came of it.

Counts of calls against classes are exact. Decision values, put into (-1, 1) by d / (1 + |d|), are counted in bins of
equal width; pairs of a positive and a negative row within a bin cannot be told apart, and count as half. So the AUC is
known to half the share of such pairs, which the counts themselves tell: the stated resolution.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from algorithms.contract import Model
from algorithms.settings import MAX_COUNT
from federation.arrays import IntArray
from federation.federation import Federation
from federation.transport.keys import COORDINATOR

BINS = 1000
"""Of the histogram of decision values."""

DISCLOSES = (
    "how many held-out rows of each class have decision values in each of the bins, over all sites: of few rows, "
    "single rows' values to within a bin"
)


@dataclass(frozen=True)
class SiteScores:
    """What the sites' held-out rows come to under a model.

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
        """How many were scored."""
        return int(self.positive.sum() + self.negative.sum())

    @property
    def accuracy(self) -> float:
        """Share of the rows that are called what they are."""
        return (self.true_positive + self.true_negative) / self.rows

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve, to within `auc_resolution`; None where only one class is there."""
        if not (pairs := self._pairs):
            return None
        below = np.cumsum(self.negative) - self.negative
        return float((self.positive * (below + self.negative / 2)).sum() / pairs)

    @property
    def auc_resolution(self) -> float | None:
        """How far `auc` can be from that of the decision values themselves: half the share of pairs within a bin."""
        return float((self.positive * self.negative).sum() / 2 / pairs) if (pairs := self._pairs) else None

    @property
    def _pairs(self) -> int:
        return int(self.positive.sum()) * int(self.negative.sum())


def score_at_sites(federation: Federation, model: Model, bins: int = BINS) -> SiteScores:
    """Have the sites score the rows that they hold out, in one secure sum. Opens no phase.

    Parameters
    ----------
    federation : Federation
        Whose sites have put their rows on the common scale for this model.
    model : Model
        Goes to the sites, unless they keep it.
    bins : int, default 1000
        Of the histogram.

    Raises
    ------
    FederationError
        A site failed, or too few are left.
    """
    threshold = model.calibrated.threshold if model.calibrated is not None else 0.0
    shape = (4 + 2 * bins,)
    counts = federation.sum(
        "score_counts",
        shape=shape,
        bound=float(MAX_COUNT),
        model=packed(model),
        bins=bins,
        threshold=threshold,
        kept=model.kept_by_sites,
    )
    federation.disclose(COORDINATOR, "score_counts", DISCLOSES, shape)
    whole = np.rint(counts).astype(np.int64)
    tp, fp, tn, fn = whole[:4].tolist()
    return SiteScores(tp, fp, tn, fn, whole[4 : 4 + bins], whole[4 + bins :])


def packed(model: Model) -> IntArray:
    """The arrays of a model as the bytes of its file, (n,) uint8."""
    file = io.BytesIO()
    np.savez(file, **model.to_arrays())  # type: ignore[arg-type]
    return np.frombuffer(file.getvalue(), dtype=np.uint8)
