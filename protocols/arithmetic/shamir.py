"""Secret sharing over the integers modulo 2^256 - 189, the largest prime below 2^256.

Any `threshold` shares give the secret back; fewer say nothing about it.

References
----------
A. Shamir, "How to share a secret", Communications of the ACM 22 (11), 1979.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

PRIME = 2**256 - 189
"""The order of the field."""


def split(secret: int, threshold: int, holders: int, draw: Callable[[int], list[int]]) -> list[int]:
    """Shares of a secret for holders 1 … `holders`.

    Parameters
    ----------
    secret : int
        From 0 to PRIME - 1.
    threshold : int
        How many shares it takes to learn the secret, from 1.
    holders : int
        How many shares there are, `threshold` or more.
    draw : callable
        Gives so many integers uniform below PRIME.

    Returns
    -------
    list of int
        The share of holder x is f(x).
    """
    # f(x) = secret + c_1 x + … + c_(threshold - 1) x^(threshold - 1), by Horner's rule
    # x is small, and one remainder at the end costs less than one at every step
    coefficients = [secret, *draw(threshold - 1)]
    coefficients.reverse()
    shares = []
    for x in range(1, holders + 1):
        value = 0
        for coefficient in coefficients:
            value = value * x + coefficient
        shares.append(value % PRIME)
    return shares


def combine(shares: Mapping[int, int]) -> int:
    """The secret from shares, by Lagrange's interpolation at 0.

    Parameters
    ----------
    shares : mapping of holder to int
        As many as the threshold, or more; with fewer the result is another number.

    Returns
    -------
    int
    """
    weights = _weights_at_zero(tuple(shares))
    return sum(weight * share for weight, share in zip(weights, shares.values(), strict=True)) % PRIME


@functools.lru_cache(maxsize=1024)
def _weights_at_zero(holders: tuple[int, ...]) -> list[int]:
    """prod over j != i of x_j / (x_j - x_i), for each holder x_i."""
    weights = []
    for own in holders:
        numerator = denominator = 1
        for other in holders:
            if other != own:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - own) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return weights
