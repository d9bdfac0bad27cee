"""Noise on the weights of a model when it is released.

The optimum w is the sum of a_i y_i f_i over rows at the margin or within. So exact weights name these rows to whoever
can list the possible ones (`attacks.support_rows`). Noise hides which rows are at the margin, and rows whose part, of
length C at most, is not much larger than the noise. It is not differential privacy.

The sites draw it from the seed that they share, so the coordinator does not know it, and another order for the same
weights gives the same noise. Every site has the exact weights: it needs the path of training.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedsvm.algorithms.optimization.masking import Dither
from fedsvm.federation.arrays import FloatArray, Residues


def with_noise(weights: FloatArray, deviation: float, seed: Residues) -> FloatArray:
    """Return weights and intercepts (K, m + 1) with noise on the weights, of each problem a function of its own.

    deviation: of the noise on each weight, and so on the decision value of a row whose features have length 1. A
    constant model has no noise. The noise of a problem follows from the seed, its number and its weights alone: if
    those of others changed it, a coordinator that orders another as constant would get a second draw.
    """
    if not deviation:
        return weights
    noisy = weights.copy()
    for problem, exact in enumerate(weights):
        if exact[:-1].any():
            content = seed.tobytes() + b"release %d " % problem + exact.tobytes()
            drawn_by = np.frombuffer(hashlib.shake_256(content).digest(seed.nbytes), dtype=np.uint64)
            noisy[problem, :-1] += deviation * Dither(drawn_by.reshape(seed.shape)).draw(len(exact) - 1)
    return noisy
