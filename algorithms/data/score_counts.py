"""How many of a site's rows a model calls what, and what their decision values are, as counts that can be summed."""

from __future__ import annotations

import numpy as np

from federation.arrays import FloatArray


def counted(decisions: FloatArray, labels: FloatArray, threshold: float, bins: int) -> FloatArray:
    """(4 + 2 bins,) counts of one site's rows: by call and class, then by decision value of each class.

    decisions, labels: (n,); labels are +1 and -1.
    """
    positive, called = labels > 0, decisions >= threshold
    calls = [called & positive, called & ~positive, ~called & ~positive, ~called & positive]
    squashed = decisions / (1 + np.abs(decisions))
    bin_of = np.minimum((bins * (squashed + 1) / 2).astype(np.int64), bins - 1)
    histograms = [np.bincount(bin_of[kind], minlength=bins) for kind in (positive, ~positive)]
    return np.concatenate([[float(call.sum()) for call in calls], *histograms]).astype(np.float64)
