"""Counts of a site's rows by prediction and by decision value, which can be summed."""

from __future__ import annotations

import numpy as np

from fedsvm.algorithms.data.classes import predict_class as called_of
from fedsvm.federation.arrays import FloatArray, IntArray

MAX_BINS = 1000
"""Of the histogram of decision values; in many more each row has a bin of its own."""


def size_of(classes: int, bins: int) -> int:
    """Return the number of counts."""
    return 4 + 2 * bins if classes == 2 else classes * classes + 2 * classes * bins


def count_scores(decisions: FloatArray, labels: FloatArray, threshold: float, bins: int) -> FloatArray:
    """Return (4 + 2 bins,) counts of one site's rows: by prediction and class, then by decision value of each class.

    decisions (n,), labels (1, n) of +1 and -1. Of K classes decisions are (n, K), labels (K, n), each class against the
    others, and counts (K^2 + 2 K bins,): rows by class and call, then by each class's decision value its own rows and
    all others.
    """
    if decisions.ndim == 2:
        return _counted_by_class(decisions, labels.argmax(axis=0), bins)
    positive, called = labels[0] > 0, decisions >= threshold
    calls = [called & positive, called & ~positive, ~called & ~positive, ~called & positive]
    bin_of = _bin_values(decisions, bins)
    histograms = [np.bincount(bin_of[kind], minlength=bins) for kind in (positive, ~positive)]
    return np.concatenate([[float(call.sum()) for call in calls], *histograms]).astype(np.float64)


def _counted_by_class(decisions: FloatArray, own: IntArray, bins: int) -> FloatArray:
    classes = decisions.shape[1]
    table = np.zeros((classes, classes))
    np.add.at(table, (own, called_of(decisions)), 1)
    bin_of = _bin_values(decisions, bins)
    histograms = [
        np.bincount(bin_of[kind, number], minlength=bins)
        for number in range(classes)
        for kind in (own == number, own != number)
    ]
    return np.concatenate([table.ravel(), *histograms]).astype(np.float64)


def _bin_values(decisions: FloatArray, bins: int) -> IntArray:
    """Return the bin of each decision value."""
    squashed = decisions / (1 + np.abs(decisions))
    return np.asarray(np.minimum((bins * (squashed + 1) / 2).astype(np.int64), bins - 1))
