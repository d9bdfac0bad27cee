"""The noise that hides one row in the weights."""

from __future__ import annotations

import math

import numpy as np

from fedsvm.algorithms.hybrid_svm.settings import HybridSettings
from fedsvm.algorithms.privacy.mechanisms import Noise, PrivacyParameters, noise_for
from fedsvm.federation.arrays import FloatArray


def noise_for_settings(settings: HybridSettings, prior: FloatArray, rows: int, shares: int) -> Noise | None:
    """Return noise for the weights.

    The objective at the prior is at most C (1 + |w0|), so the tolerance bounds the gap, whatever the rows are. In
    `one-shot` it is the same at every site, and counts n_s/n there; the largest share counts as all.
    """
    if settings.privacy is None:
        return None
    sensitivity = (4.0 if settings.sensitivity == "paper" else 2.0) * settings.C / rows
    jointly = settings.is_joint(len(np.atleast_2d(prior)))
    longest = math.sqrt(2) * float(np.linalg.norm(prior)) if jointly else longest_of(prior)
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
    """Return noise for one model (m,), or for K models (K, m) that one row moves together.

    sensitivity, gap: of each; see `noise_for`. The sum of K 1-strongly convex objectives of different weights is so in
    all of them, and K times as far from its minimum at most; movements of K vectors by s are one by sqrt(K) s. jointly:
    they are those of one objective, whose loss has a slope of sqrt(2) for 1.
    """
    if jointly:
        return noise_for(privacy, models.size, math.sqrt(2) * sensitivity, gap, shares)
    several = len(np.atleast_2d(models))
    return noise_for(privacy, models.size, math.sqrt(several) * sensitivity, several * gap, shares)


def longest_of(prior: FloatArray) -> float:
    """Return the length of the longest of the problems' priors."""
    return max(float(np.linalg.norm(each)) for each in np.atleast_2d(prior))
