"""Noise on the weights of a model when it is released.

The optimum w is the sum of a_i y_i f_i over rows at the margin or within. So exact weights name these rows to whoever
can list the possible ones (`attacks.support_rows`). Noise hides which rows are at the margin, and rows whose part, of
length C at most, is not much larger than the noise. It is not differential privacy.

The site that adds the weights to the sum draws the noise, so the coordinator never has the exact ones. Every site
does: it needs the path of training.
"""

from __future__ import annotations

import numpy as np

from fedsvm.algorithms.optimization.masking import Dither
from fedsvm.federation.arrays import FloatArray


def with_noise(weights: FloatArray, deviation: float, mean_square: float, dither: Dither) -> FloatArray:
    """Return weights and intercepts (K, m + 1) with noise on the weights; a constant model has none.

    mean_square: of the features' lengths. A row of this length has noise of `deviation` on its decision value.
    """
    if not (deviation and mean_square):
        return weights
    drawn = dither.draw(weights[:, :-1].size).reshape(len(weights), -1)
    is_trained = np.any(weights[:, :-1], axis=1, keepdims=True)
    drawn *= (deviation / mean_square**0.5) * is_trained
    return np.column_stack([weights[:, :-1] + drawn, weights[:, -1]])
