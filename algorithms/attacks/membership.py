"""The optimal test of whether one row is in a noisy sum, by an attacker that knows all other rows.

The noise is Gaussian and its size public, so that no test is better than the likelihood ratio (Neyman and Pearson).
Without the other rows the release is noise, with or without the contribution of the row in question.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np

from fedsvm.algorithms.privacy.noisy_sums import NoisyBlock
from fedsvm.federation.arrays import FloatArray


def log_likelihood_ratio(rest: Sequence[FloatArray], row: Sequence[FloatArray], sigmas: Sequence[float]) -> float:
    """Return log p(rest | the row is there) - log p(rest | it is not), over the blocks of a release.

    rest: the release without all other rows. row: the contribution of the row. sigmas: of the noise of the total.
    """
    return float(
        sum((left @ own - own @ own / 2) / sigma**2 for left, own, sigma in zip(rest, row, sigmas, strict=True))
    )


def scores(
    blocks: Sequence[NoisyBlock], row: Sequence[FloatArray], sites: int, draws: int, source: Random
) -> tuple[FloatArray, FloatArray]:
    """Return the test's scores (draws,) of releases with the row, and of others without it.

    Parameters
    ----------
    blocks : sequence of NoisyBlock
        Of the release. Each site adds the noise of each of them.
    row : sequence of FloatArray
        The contribution to each block.
    sites : int
        Sites whose noise the attacker does not know.
    draws : int
    source : Random
        Generator of the noise.
    """
    sigmas = [block.sigma * math.sqrt(sites) for block in blocks]

    def score(*, is_member: bool) -> float:
        rest = [np.zeros(block.size) for block in blocks]
        for site in range(sites):
            for place, (block, own) in enumerate(zip(blocks, row, strict=True)):
                held = own[None] if is_member and site == 0 else np.zeros((0, block.size))
                rest[place] += block.add_noise([held], source)
        return log_likelihood_ratio(rest, row, sigmas)

    return (
        np.array([score(is_member=True) for _ in range(draws)]),
        np.array([score(is_member=False) for _ in range(draws)]),
    )


def area(members: FloatArray, others: FloatArray) -> float:
    """Return the chance that the score of a member is above that of another row, ties counting half."""
    above = np.sign(members[:, None] - others[None, :])
    return float((above.mean() + 1) / 2)


def margin(draws: int, error: float) -> float:
    """Return by how much an area of so many draws of each kind is too high with a chance of `error` at most.

    By Hoeffding's inequality for U-statistics.
    """
    return math.sqrt(math.log(1 / error) / (2 * draws))


def least_mu(members: FloatArray, others: FloatArray, error: float) -> float:
    """Return a mu that a mechanism has at least, or with a chance of `error` at most has not.

    The test calls a row a member if its score is above 0. A mechanism of mu makes the rates of its two errors satisfy
    mu >= Phi^-1(1 - a) - Phi^-1(b). Both rates are bounded from above (Clopper and Pearson).

    Parameters
    ----------
    members, others : (draws,) FloatArray
        Scores of releases with the row, and of others without it.
    error : float
    """
    from scipy.stats import beta, norm  # an audit alone has a use for it

    wrong = int((others > 0).sum()), int((members <= 0).sum())
    rates = [
        1.0 if count == len(of) else float(beta.ppf(1 - error / 2, count + 1, len(of) - count))
        for count, of in zip(wrong, (others, members), strict=True)
    ]
    return max(0.0, float(norm.isf(rates[0]) - norm.ppf(rates[1])))


def promised_area(mu: float) -> float:
    """Return the area of the optimal test against mu-Gaussian differential privacy: Phi(mu / sqrt(2))."""
    return (1 + math.erf(mu / 2)) / 2
