"""Shamir's secret sharing (1979) over the integers modulo 2^256 - 189, the largest prime below 2^256.

Any `threshold` shares give the secret back; fewer say nothing about it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

PRIME = 2**256 - 189


def split(secret: int, threshold: int, holders: int, draw: Callable[[], int]) -> list[int]:
    """Shares for holders 1 … `holders`: values there of a random polynomial of degree threshold - 1 through `secret`.

    draw: gives integers uniform below PRIME.
    """
    coefficients = [secret, *(draw() for _ in range(threshold - 1))]
    return [_value(coefficients, x) for x in range(1, holders + 1)]


def combine(shares: Mapping[int, int]) -> int:
    """The secret from at least `threshold` shares, by holder number: Lagrange's interpolation at 0."""
    weights = _weights_at_zero(tuple(shares))
    return sum(weight * share for weight, share in zip(weights, shares.values(), strict=True)) % PRIME


def _value(coefficients: Sequence[int], x: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value


@functools.lru_cache(maxsize=1024)
def _weights_at_zero(holders: tuple[int, ...]) -> list[int]:
    """prod over j != i of x_j / (x_j - x_i), for each holder x_i."""
    weights = []
    for own in holders:
        above = below = 1
        for other in holders:
            if other != own:
                above = above * other % PRIME
                below = below * (other - own) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights
